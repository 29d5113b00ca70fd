"""Formulas of a noise that depends on the input: its latent function has a proper level."""

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.kernels import Constant, FixedEffects
from latentgp.kernels.terms import terms_of


def table():
    """Rows whose noise is a twentieth below x = 15 of what it is above."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 60, 120))
    noise = np.exp(0.3 + 3 * (x > 15))
    return pd.DataFrame({"x": x, "y": 40 * np.sin(x / 8) * (x > 12) + rng.normal(size=120) * noise})


def fitted(formula, likelihood="heteroscedastic", **settings):
    settings = {"likelihood": likelihood, "random_state": 0, **settings}
    return lgp.TableModel.fit(table(), formula=formula, **settings)


def level_variances(model):
    """Prior variance of each latent function's fixed effects, at the mean of x."""
    row = np.array([[1.0, 0.0]])
    ones = [
        part
        for kernel in model.kernel.each
        for term in terms_of(kernel, (0, 1))
        for part in term.parts
        if isinstance(part.kernel, FixedEffects)
    ]
    return [float(part.kernel.diagonal(row[:, list(part.columns)])[0]) for part in ones]


@pytest.mark.parametrize("likelihood", ["heteroscedastic", "heteroscedastic-student-t"])
def test_the_level_of_the_noise_is_within_the_spread_of_its_latent_function(likelihood):
    model = fitted("y ~ s(x)", likelihood, learn_hyperparameters=False, method="variational")
    of_signal, of_noise = level_variances(model.estimator.model_)
    assert of_noise == pytest.approx(2.0**2)
    assert of_signal > 50 * table()["y"].var()


@pytest.mark.slow
def test_an_intercept_does_not_hide_that_noise_varies():
    """Log densities of left-out rows are those of the function without one, to a nat in sixty."""
    smooth, plain = (fitted(f).leave_one_out(table()).elpd for f in ("y ~ s(x)", "y ~ gp(x) - 1"))
    constant = fitted("y ~ s(x)", "gaussian").leave_one_out(table()).elpd
    assert plain - constant > 30
    assert abs(smooth - plain) < 5


def test_noise_that_is_the_same_in_all_rows_is_said():
    X = np.linspace(0, 6, 40)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)

    def warnings(level_variance):
        kernel = lgp.PerLatent(lgp.RBF(), Constant(level_variance))
        settings = {"likelihood": "heteroscedastic", "learn_hyperparameters": False}
        return " ".join(lgp.GPRegressor(kernel, **settings).fit(X, y).diagnostics_.warnings)

    assert "Noise is the same in all rows" in warnings(400.0)
    assert "Noise is the same" not in warnings(1e-4)
