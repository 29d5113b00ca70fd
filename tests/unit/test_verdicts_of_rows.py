"""Sentences of verdicts about the rows: one target, copies of rows, distinct rows, no signal."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.kernels import Constant, SameGroup

RNG = np.random.default_rng(0)
X = np.linspace(0, 3, 24)[:, None]
NOISY = RNG.normal(size=24)


def diagnostics(data, kernel=None, **settings):
    model = lgp.LatentGP(kernel or lgp.RBF(), lgp.Gaussian())
    return lgp.fit(model, data, key=jax.random.key(0), **settings).diagnostics


def test_a_target_of_one_value_is_one_warning():
    said = diagnostics(lgp.Data(X, np.full(24, 3.0)))
    assert type(said.method).__name__ == "ExactGP"
    (warning,) = said.warnings
    assert warning.startswith("The target has one value")
    estimator = lgp.GPRegressor(random_state=0)
    with pytest.warns(UserWarning, match="one value"):
        estimator.fit(X, np.full(24, 3.0))
    (warning,) = estimator.diagnostics_.warnings
    assert "integrated" not in estimator.diagnostics_.verdict
    assert not any("one value" in own for own in diagnostics(lgp.Data(X, NOISY)).warnings)


def test_no_length_scale_is_advised_where_there_is_none():
    groups = np.repeat(np.arange(6.0), 4)[:, None]
    y = np.tile([-1.0, 1.0, -1.1, 1.1], 6)
    (warning,) = diagnostics(lgp.Data(groups, y), Constant() * SameGroup()).warnings
    assert warning.startswith("No signal")
    assert "length-scale" not in warning
    assert "length-scale" in " ".join(diagnostics(lgp.Data(groups, y)).warnings)


def test_no_noise_of_copies_is_said_to_come_from_them():
    data = lgp.Data(X, np.sin(X[:, 0]), weights=np.full(24, 50.0))
    told = " ".join(diagnostics(data, hyperparameters="optimise").warnings)
    assert "likelihood.noise_variance is at its lower search bound: weights count copies" in told
    told = " ".join(diagnostics(lgp.Data(X, np.sin(X[:, 0]))).warnings)
    assert "copies" not in told


def test_a_slope_that_is_not_needed_is_said_to_be_none():
    inputs = np.column_stack([X[:, 0], RNG.normal(size=24)])
    data = lgp.Data(inputs, 2 * X[:, 0] + 0.1 * NOISY)
    kernel = lgp.Linear(np.ones(2))
    said = diagnostics(data, kernel, priors=None, hyperparameters="optimise")
    own = [line for line in said.warnings if "kernel.variance[1]" in line]
    assert own == [
        "kernel.variance[1] is at its lower search bound: the function hardly depends on this "
        "input."
    ]


def test_rows_are_counted_as_they_were_given():
    twice, y = np.vstack([X, X[:1]]), np.append(NOISY, NOISY[0])
    assert "24 distinct of 25 rows are few" in diagnostics(lgp.Data(twice, y)).reason
    assert diagnostics(lgp.Data(X, NOISY)).reason.startswith("24 rows are few")
    estimator = lgp.GPRegressor(random_state=0, hyperparameters="optimise").fit(twice, y)
    assert estimator.method_reason_.startswith("24 distinct of 25 rows")
    rows = lgp.Data(twice, y).merged_rows()
    assert rows.counted("Of 24 rows.") == "Of 24 distinct of 25 rows."
