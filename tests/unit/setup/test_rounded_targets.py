"""Noise of rounded targets, where equal rows repeat."""

import dataclasses

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.methods.options import FitOptions
from latentgp.methods.problem import Problem, checked_rows
from latentgp.rows import RowsInMemory
from latentgp.runtime.progress import RunControl
from latentgp.setup.priors import grid_width


def table(number=150, repeated=30, seed=0):
    """Grades from 0 to 6 of noisy functions; some rows are there twice."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(number, 3))
    y = np.round(3 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.6 * generator.normal(size=number))
    return np.vstack([X, X[:repeated]]), np.append(y, y[:repeated])


@pytest.mark.parametrize(
    ("y", "width"),
    [
        (np.arange(60) % 4 + 2.0, 1.0),
        (np.arange(60) % 4 * 2.5 - 7, 2.5),
        (np.where(np.arange(60) % 3, 0.1, 0.4), 0.3),  # two values
        (np.arange(60) % 4 + 0.1 * (np.arange(60) % 2), 0.0),  # no whole numbers of steps
        (np.arange(60) % 9, 0.0),  # fewer than ten share a value
        (np.ones(60), 0.0),
    ],
)
def test_the_width_of_a_grid(y, width):
    X = np.arange(60.0)[:, None] * np.array([1.0, -2.0])
    once, twice = lgp.Data(X, y), lgp.Data(np.vstack([X, X[:1]]), np.append(y, y[:1]))
    assert grid_width(once.merged()) == 0.0
    assert grid_width(twice.merged()) == pytest.approx(width)


@pytest.mark.usefixtures("x64")
def test_repeated_rows_are_not_mistaken_for_no_noise():
    X, y = table()
    fitted = lgp.GPRegressor("rbf", random_state=0).fit(X, y)
    noise = float(fitted.model_.likelihood.noise_variance)
    assert noise >= 1 / 12
    assert "noise is at least that of rounding, a variance of 0.0833" in fitted.diagnostics_.verdict
    new, truth = table(400, 0, seed=1)
    lower, upper = fitted.predict_interval(new, level=0.95)
    assert 0.9 < np.mean((truth >= lower) & (truth <= upper)) < 1
    # One row less: nothing repeats, and the noise is found by itself.
    alone = lgp.GPRegressor("rbf", random_state=0).fit(X[:150], y[:150])
    assert float(alone.model_.likelihood.noise_variance) == pytest.approx(noise, rel=0.5)
    assert "rounding" not in alone.diagnostics_.verdict


def test_a_sample_that_counts_as_more_rows_does_not_repeat_them():
    X = np.linspace(0, 1, 5_000)[:, None]
    model, rows = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), lgp.Data(X, np.arange(5_000) % 4)
    source, sample = checked_rows(model, RowsInMemory(rows))
    assert np.min(sample.merged.weights) > 1
    problem = Problem(
        model, sample, source, jax.random.key(0), "", FitOptions(), None, RunControl(0.0)
    )
    assert problem.scales.grid_width == 0.0
    # Of repeated rows in memory a part that does not repeat has the grid too.
    twice = rows.select(np.append(np.arange(5_000), 0)).merged_rows()
    some = dataclasses.replace(problem, rows=twice, source=None)
    assert some.scales_of(rows.select(slice(9, 29))).grid_width == 1.0
