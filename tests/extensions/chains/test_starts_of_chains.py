"""Where chains start, and coordinates where Newton's method has a hard time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains.coordinates import coordinates_at, coordinates_at_centre
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace

KEY = jax.random.key(0)
X = np.arange(3.0)
FEW = {"chains": 2, "draws": 100, "warmup": 100}


@pytest.mark.parametrize(
    "method",
    [
        lgp.MCMC(**FEW),
        lgp.MCMC(coupling="whitened", **FEW),
        lgp.MCMC(lgp.Markov(), **FEW),
        lgp.EllipticalSlice(**FEW),
        pytest.param(lgp.NUTS(coupling="sites", **FEW), marks=pytest.mark.slow),
        pytest.param(lgp.HMC(**FEW), marks=pytest.mark.slow),
        lgp.DensityApproximation(chains=2, draws=100),
        pytest.param(lgp.GibbsSampling(**FEW), marks=pytest.mark.slow),
    ],
    ids=lambda method: type(method).__name__,
)
def test_chains_of_large_counts_are_where_the_posterior_is(method):
    """With counts of 20,000, log y is 9.9; from a prior of unit variance no chain moved."""
    y = np.array([20_000.0, 21_000.0, 19_500.0])
    likelihood, spread, log_rate = lgp.Poisson(), y**-0.5, np.log(y)
    if isinstance(method, lgp.GibbsSampling):  # of dispersion 1,000: 1 / y + 1 / 1,000
        likelihood = lgp.NegativeBinomial(dispersion=1e3)
        spread, log_rate = (1 / y + 1e-3) ** 0.5, log_rate - np.log(1e3)
    model = lgp.LatentGP(lgp.Matern32(), likelihood)
    found = lgp.fit(
        model, lgp.Data(X, y), method=method, key=KEY, learn_hyperparameters=False
    ).posterior.predict_f(X)
    laplace = lgp.fit(
        model, lgp.Data(X, y), method=lgp.Laplace(), key=KEY, learn_hyperparameters=False
    ).posterior.predict_f(X)
    np.testing.assert_allclose(laplace.mean.ravel(), log_rate, atol=0.05)
    np.testing.assert_allclose(found.mean, laplace.mean, atol=2 * np.max(spread))
    ratio = (found.variance / laplace.variance) ** 0.5
    assert np.min(ratio) > 0.3
    assert np.max(ratio) < 2.0


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (lgp.Poisson(), [1e9, 0.0, 3e5]),
        (lgp.likelihoods.Gamma(), [1e-6, 2e6, 1.0]),
        (lgp.likelihoods.Weibull(), [1e-6, 2e6, 1.0]),
        (lgp.LogNormal(noise_variance=1e-6), [1e-9, 1e9, 1.0]),
        (lgp.Gaussian(1e-6), [1e6, -1e6, 0.0]),
        (lgp.BayesianSVM(), [0.0, 1.0, 1.0]),
        (lgp.likelihoods.LaplaceNoise(0.01), [1e3, -2.0, 0.0]),
        (lgp.likelihoods.AsymmetricLaplace(0.9, 0.1), [1e-3, 5.0, 0.0]),
        (lgp.Bernoulli(), [0.0, 1.0, 1.0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_coordinates_lie_about_the_mode(x64, likelihood, y):
    """Another Newton step gains nothing; with kinks it would have gained up to 500 nats."""
    made = eqx.filter_jit(coordinates_at)
    for variance in (1e-2, 1.0, 60.0):
        model = lgp.LatentGP(lgp.RBF(1.0, variance), likelihood)
        space = ParameterSpace(model, frozen=list(lgp.parameters(model)))
        target = WhiteTarget.of(space, lgp.Dense(), lgp.Data(X, np.array(y)).to_device())
        found = coordinates_at_centre(target, "sites")
        size = float(jnp.sum(found.white(jnp.zeros((1, 3))) ** 2))
        # A solve with I + W^(1/2) K W^(1/2), W of 1e9 for such counts, leaves that many digits.
        rounding = 1e-11 * size + 5e-11 * float(jnp.max(found.precision))
        assert float(found.decrement) < 1e-3 + rounding
        assert bool(jnp.all(jnp.isfinite(found.centre)))
        assert float(jnp.min(found.precision)) >= 0
        again = made(target, model, "sites", found.marginals)
        spread = float(jnp.max(jnp.abs(found.factor)))
        np.testing.assert_allclose(again.centre, found.centre, atol=0.1 * spread, rtol=1e-5)


def test_moments_of_counts_far_from_all_rows_are_in_closed_form():
    """Of exp(f), f ~ N(0, 4): 4,096 points saw half of a variance of 2,934."""
    method = lgp.EllipticalSlice(chains=2, draws=50, warmup=50)
    model = lgp.LatentGP(lgp.RBF(variance=4.0), lgp.Poisson())
    data = lgp.Data(X, np.array([1.0, 2.0, 1.0]))
    found = lgp.fit(model, data, method=method, key=KEY, learn_hyperparameters=False)
    far = found.posterior.predict([1e3])
    mean = np.exp(2.0)
    assert far.mean[0] == pytest.approx(mean, rel=1e-9)
    assert far.variance[0] == pytest.approx(mean**2 * np.expm1(4.0) + mean, rel=1e-9)


def test_weights_that_may_be_tiny_have_moments_on_the_unconstrained_scale(x64):
    """Log ratios under an unknown concentration have none: one of 2,000 is most of their square."""
    from numpyro.distributions.transforms import biject_to

    law = lgp.HierarchicalDirichlet(3)
    weights = law.sample(jax.random.key(1), (2000,))
    inside = np.asarray(jnp.min(weights, axis=1)) > 1e-15  # those that keep their digits
    z = np.asarray(biject_to(law.support).inv(weights[inside]))
    assert np.max(z**2 / np.sum(z**2, axis=0)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 3])
def test_weights_of_unknown_concentration_mix(parts):
    generator = np.random.default_rng(0)
    Z = generator.normal(size=(40, 2 * parts))
    y = (Z[:, 0] + 0.3 * generator.normal(size=40) > 0).astype(float)
    kernels = tuple(lgp.RBF(1.5).on(2 * i, 2 * i + 1) for i in range(parts))
    model = lgp.LatentGP(lgp.WeightedSum(kernels).stored(Z), lgp.Bernoulli())
    found = lgp.fit(
        model,
        lgp.Data(np.arange(40.0), y),
        method=lgp.MCMC(draws=1000, warmup=1000),
        key=KEY,
        priors={"kernel.weights": lgp.HierarchicalDirichlet(parts)},
    )
    assert found.posterior.summary.least > 400
    assert found.posterior.summary.r_hat < 1.02


def test_draws_at_hyperparameters_of_a_search_that_was_cut_off_have_not_converged():
    X = np.linspace(0.0, 2.0, 3)
    model, data = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli()), lgp.Data(X, [0.0, 1.0, 1.0])
    method = lgp.EllipticalSlice(chains=4, draws=1000, warmup=100, thin=5)
    whole, short = (
        lgp.fit(model, data, key=jax.random.key(0), method=method, max_evaluations=most).diagnostics
        for most in (200, 1)
    )
    assert whole.converged
    assert not short.converged
    assert "ended early" in short.verdict
