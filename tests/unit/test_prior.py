"""Draws from the prior that a fit would use."""

import jax
import numpy as np
import pytest
from numpyro.distributions import Gamma, LogNormal, Normal

import latentgp as lgp

KEY = jax.random.key(0)
X = np.linspace(0.0, 3.0, 6)
MODEL = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1), lgp.ConstantMean(0.5))
PRIORS = {
    "kernel.lengthscale": LogNormal(0.0, 0.3),
    "kernel.variance": Gamma(4.0, 2.0),
    "mean.value": Normal(3.0, 0.5),
}


def test_draws_have_the_moments_of_the_model():
    number = 4000
    draws = lgp.sample_prior(
        MODEL, lgp.Data(X, np.sin(X)), key=KEY, number=number, priors=PRIORS, frozen=["likelihood"]
    )
    assert draws.held == ("likelihood.noise_variance",)
    assert set(draws.hyperparameters) == set(PRIORS)
    assert draws.f.shape == draws.y.shape == (number, 6)
    own = draws.hyperparameters
    # Var f = E variance + Var mean, whatever the length-scale is; y has the noise as well.
    standard = (draws.f - own["mean.value"][:, None]) / np.sqrt(own["kernel.variance"])[:, None]
    assert abs(standard.mean()) < 0.1
    np.testing.assert_allclose(standard.var(axis=0), 1.0, atol=0.1)
    np.testing.assert_allclose((draws.y - draws.f).var(), 0.1, rtol=0.05)
    assert abs(own["mean.value"].mean() - 3.0) < 0.04
    # Neighbours are as close as their length-scale says.
    apart = np.exp(-0.5 * (X[1] - X[0]) ** 2 / own["kernel.lengthscale"] ** 2)
    assert abs(np.mean(standard[:, 0] * standard[:, 1]) - apart.mean()) < 0.06


def test_several_latents_and_weak_priors():
    model = lgp.LatentGP(lgp.RBF([1.0, 1.0]), lgp.Softmax(3))
    data = lgp.Data(np.stack([X, X**2], axis=1), np.array([0.0, 1, 2, 0, 1, 2]))
    draws = lgp.sample_prior(model, data, key=KEY, number=30)
    assert draws.f.shape == (30, 6, 3)
    assert set(np.unique(draws.y)) == {0.0, 1.0, 2.0}
    assert draws.hyperparameters["kernel.lengthscale"].shape == (30, 2)
    assert draws.held == ()


def test_without_priors_everything_is_held():
    draws = lgp.sample_prior(MODEL, lgp.Data(X, X), key=KEY, number=3, priors=None)
    assert not draws.hyperparameters
    assert set(draws.held) == set(lgp.parameters(MODEL))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"number": 0}, "number must be a whole number from 1"),
        ({"priors": {"kernel.size": None}}, "size"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.sample_prior(MODEL, lgp.Data(X, X), key=KEY, **settings)


def test_the_summary_of_a_fit_names_priors_and_their_sources():
    result = lgp.fit(
        MODEL,
        lgp.Data(X, np.sin(X)),
        key=KEY,
        priors={"kernel.variance": PRIORS["kernel.variance"]},
        frozen=["mean"],
        method=lgp.ExactGP(),
    )
    table = {line.split()[0]: line for line in result.summary.splitlines()}
    assert table["kernel.variance"].endswith("yours")
    assert "Gamma(4" in table["kernel.variance"]
    assert table["kernel.lengthscale"].endswith("weak")
    assert table["mean.value"].endswith("frozen")
