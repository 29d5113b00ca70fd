"""All rows as neighbours against dense linear algebra at 300 places, for each rule of sites."""

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
NOISY = F + np.sqrt(0.2) * RNG.normal(size=ROWS)
LAWS = {
    "Gaussian": (lgp.Gaussian(0.2), NOISY),
    "Student": (lgp.StudentT(0.4), NOISY),
    "Bernoulli": (lgp.Bernoulli(), (F + RNG.logistic(size=ROWS) > 0).astype(float)),
    "Poisson": (lgp.Poisson(), RNG.poisson(np.exp(F)).astype(float)),
    "negative binomial": (
        lgp.LogNegativeBinomial(2.0),
        RNG.poisson(np.exp(F) * RNG.gamma(2.0, 0.5, ROWS)).astype(float),
    ),
}
RULES = {
    "exact": lgp.ExactGP,
    "augmented": lgp.AugmentedVI,
    "variational": lgp.VariationalInference,
    "moments": lgp.ExpectationPropagation,
    "mode": lgp.Laplace,
}
CASES = [
    (rule, law)
    for rule, laws in {
        "augmented": ("Student", "Bernoulli"),
        "variational": ("Bernoulli", "Poisson", "negative binomial"),
        "moments": ("Bernoulli", "Poisson", "negative binomial", "Student"),
        "mode": ("Bernoulli", "Poisson", "negative binomial"),
    }.items()
    for law in laws
]


def posterior_by(rule, law, representation):
    likelihood, y = LAWS[law]
    model, data = lgp.LatentGP(KERNEL, likelihood, lgp.ConstantMean(0.1)), lgp.Data(X, y)
    settings = {"key": KEY, "learn_hyperparameters": False}
    return lgp.fit(model, data, method=RULES[rule](representation), **settings).posterior


@pytest.mark.parametrize("case", [("exact", "Gaussian"), *slow_parameters(*CASES)], ids=", ".join)
def test_all_rows_as_neighbours_leave_out_nothing(case):
    """But white noise of 1e-9 of the prior variance, which latents are given with neighbours."""
    ours, theirs = (posterior_by(*case, own) for own in (lgp.Neighbours(ROWS - 1), lgp.Dense()))
    assert float(ours.log_evidence) == pytest.approx(float(theirs.log_evidence), abs=1e-6)
    for points in (NEW, X):
        for one, other in zip(ours.predict_f(points), theirs.predict_f(points), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
