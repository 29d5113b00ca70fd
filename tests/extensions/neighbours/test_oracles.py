"""All rows as neighbours against dense linear algebra at 300 places."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")
ROWS, KEY = 300, jax.random.key(0)
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(0, 4, (ROWS, 2)), RNG.uniform(0, 4, (20, 2))
KERNEL = lgp.Matern32(lengthscale=[0.9, 1.4], variance=1.3)
with jax.enable_x64(True):
    F = np.linalg.cholesky(KERNEL.gram(X, X) + 1e-9 * np.eye(ROWS)) @ RNG.normal(size=ROWS)
CASES = {
    "exact": (lgp.ExactGP, lgp.Gaussian(0.2), F + np.sqrt(0.2) * RNG.normal(size=ROWS)),
    "Laplace": (lgp.Laplace, lgp.Bernoulli(), (F + RNG.logistic(size=ROWS) > 0).astype(float)),
}


def posterior_by(name, representation):
    method, likelihood, y = CASES[name]
    model, data = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.1)), lgp.Data(X, y)
    settings = {"key": KEY, "learn_hyperparameters": False}
    return lgp.fit(model, data, method=method(representation), **settings).posterior


@pytest.mark.parametrize("name", ["exact", *slow_parameters("Laplace")])
def test_all_rows_as_neighbours_leave_out_nothing(name):
    ours, theirs = (posterior_by(name, own) for own in (lgp.Neighbours(ROWS - 1), lgp.Dense()))
    assert float(ours.log_evidence) == pytest.approx(float(theirs.log_evidence), rel=1e-6)
    for one, other in zip(ours.predict_f(NEW), theirs.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
