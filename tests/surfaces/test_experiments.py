"""Optimisers that are compared: the bounds that they climb are those of the library."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
import optimisers
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.setup.priors import scales, search_bounds

ROWS = 400


def task_of(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (ROWS, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    y = f + 0.3 * rng.normal(size=ROWS)
    if likelihood.targets != "real":
        y = (y > 0).astype(float)
    space = ParameterSpace(lgp.LatentGP(lgp.RBF(lengthscale=1.5), likelihood))
    box = search_bounds(space, scales(space.model, lgp.Data(X, y)))
    return optimisers.Task(space, X, y, X, y, X[:15], box)


@pytest.mark.slow
def test_collapsed_and_stochastic_bounds_are_the_library_s(x64):
    task = task_of(lgp.Gaussian(0.2))
    start = optimisers.start_of(task)
    method = lgp.CollapsedVI(lgp.Inducing(points=task.Z))
    fit = lgp.fit(
        task.space.model,
        lgp.Data(task.X, task.y),
        key=jax.random.key(0),
        method=method,
        learn_hyperparameters=False,
    )
    known = fit.posterior.log_evidence.value / ROWS
    best = optimisers.optimal(task, start)
    assert float(optimisers.collapsed_bound(task, start)) == pytest.approx(known, abs=1e-6)
    whole = optimisers.stochastic_bound(task, best, slice(None))
    assert float(whole) == pytest.approx(known, abs=1e-6)
    assert float(optimisers.stochastic_bound(task, start, slice(None))) < known - 0.1
    order = np.random.default_rng(0).permutation(ROWS).reshape(4, -1)
    parts = [optimisers.stochastic_bound(task, best, rows) for rows in order]
    assert float(np.mean(parts)) == pytest.approx(float(whole), abs=1e-9)


def test_one_sample_a_row_is_the_bound_in_the_mean(x64):
    task = task_of(lgp.Bernoulli())
    start = optimisers.start_of(task)
    rows = slice(None)
    keys = jax.random.split(jax.random.key(0), 500)
    sampled = jax.vmap(lambda key: optimisers.stochastic_bound(task, start, rows, key))(keys)
    error = float(jnp.mean(sampled) - optimisers.stochastic_bound(task, start, rows))
    assert abs(error) < 4 * float(jnp.std(sampled)) / np.sqrt(len(keys))


METHODS = [
    *((lgp.Gaussian(0.2), name) for name in optimisers.regression_methods()),
    *((lgp.Bernoulli(), name) for name in optimisers.classification_methods()),
]


@pytest.mark.parametrize(
    ("likelihood", "name"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}: {case[1]}") for case in METHODS],
)
def test_every_optimiser_climbs(x64, likelihood, name):
    task = task_of(likelihood)
    methods = optimisers.regression_methods, optimisers.classification_methods
    method = methods[likelihood.targets != "real"]()[name]
    points = [optimisers.start_of(task)]

    def note(point):
        if point is None:
            return
        points.append(point)
        if len(points) > 10:
            raise optimisers.TimeIsUp

    with contextlib.suppress(optimisers.TimeIsUp):
        method(task, note)

    def worth(point):
        if name.startswith("vi"):
            return float(optimisers.collapsed_bound(task, point))
        return float(optimisers.stochastic_bound(task, point, slice(None)))

    assert worth(points[-1]) > worth(points[0]) + 0.01
