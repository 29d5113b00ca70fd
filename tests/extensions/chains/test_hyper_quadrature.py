"""Chains of hyper-parameters beside quadrature of their exact posterior."""

import dataclasses

import jax
import numpy as np
import pytest
from numpyro.distributions import InverseGamma, LogNormal
from scipy.stats import invgamma, kstest, lognorm

import latentgp as lgp
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.site_inference.search.algorithm import prior_mean

X = np.linspace(0.0, 3.0, 6)
Y = np.array([0.4, 1.1, 0.2, -0.8, -0.3, 0.9])
NOISE = 0.2
PRIORS = {"kernel.variance": InverseGamma(3.0, 2.0), "kernel.lengthscale": LogNormal(0.0, 0.5)}
METHODS = {
    f"manifold, {coupling}": lgp.MCMC(hyperparameters="manifold-mala", coupling=coupling)
    for coupling in ("sites", "whitened", "centred", "surrogate")
}
METHODS["emulated, sites"] = lgp.MCMC()  # straightens the variance's prior
METHODS["emulated, partial"] = lgp.MCMC(coupling="partial")
METHODS["variances, centred"] = lgp.MCMC(
    coupling="centred", conjugate_variance=True, hyperparameters="random-walk"
)
METHODS["variances, sites"] = lgp.MCMC(conjugate_variance=True, hyperparameters="random-walk")


@pytest.fixture(scope="module")
def expected():
    """Means and standard deviations of the logs of variance and length-scale."""
    logs = np.linspace(-3.5, 4.0, 61), np.linspace(-3.0, 3.0, 61)
    squares = (X[:, None] - X) ** 2
    a, b = np.meshgrid(*logs, indexing="ij")
    C = np.exp(a - 0.5 * squares[..., None, None] / np.exp(2 * b))
    C = np.moveaxis(C, (0, 1), (2, 3)) + NOISE * np.eye(6)
    weights = a + b + invgamma(3.0, scale=2.0).logpdf(np.exp(a)) + lognorm(0.5).logpdf(np.exp(b))
    weights -= 0.5 * np.linalg.slogdet(C)[1] + 0.5 * (np.linalg.inv(C) @ Y) @ Y
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    moments = []
    for axis, values in enumerate(logs):
        marginal = weights.sum(axis=1 - axis)
        mean = marginal @ values
        moments.append((mean, np.sqrt(marginal @ (values - mean) ** 2)))
    return moments


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_hyperparameters_have_their_posterior(name, expected):
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(NOISE))
    method = dataclasses.replace(METHODS[name], draws=3000, warmup=500)
    fitted = lgp.fit(
        model,
        lgp.Data(X, Y),
        key=jax.random.key(1),
        method=method,
        priors=PRIORS,
        frozen=("likelihood",),
    )
    assert float(np.mean(fitted.posterior.statistics["hyperparameter_acceptance_rate"])) > 0.2
    for path, (mean, deviation) in zip(PRIORS, expected, strict=True):
        draws = np.log(fitted.posterior.hyperparameters[path])
        parts = draws.reshape(4 * 20, 150)
        error = parts.mean(axis=1).std() / np.sqrt(80)
        assert error < 0.15 * deviation
        assert abs(draws.mean() - mean) < 4.5 * error
        squares = ((parts - mean) ** 2).mean(axis=1)
        assert abs(squares.mean() - deviation**2) < 4.5 * squares.std() / np.sqrt(80)


def test_exact_draws_of_a_variance_have_its_law(x64):
    """Two latent functions with kernels of their own, one of them with a conjugate variance."""
    kernel = lgp.PerLatent(lgp.Matern32(0.8, 1.4), 2.0 * lgp.Matern32(0.5))
    model = lgp.LatentGP(kernel, lgp.HeteroscedasticGaussian(), lgp.ConstantMean(0.3))
    path = "kernel.parts[1].scale"
    space = ParameterSpace(model, priors={path: InverseGamma(3.0, 2.0)})
    target = WhiteTarget.of(space, lgp.Dense(), lgp.Data(X, Y).to_device())
    sampler = lgp.MCMC(coupling="centred", conjugate_variance=True).sampler(target)
    at = sampler.init(jax.random.key(0)).at
    entry = [label for label, _ in space.entries()].index(path)

    def draw(key):
        moved = sampler.variances.moved(at, sampler._coordinates, key)
        return moved.vector, moved.coordinates.centre + moved.coordinates.shift(moved.eps)

    vectors, f = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(1), 2000))
    held = at.coordinates.centre + at.coordinates.shift(at.eps)
    np.testing.assert_allclose(f, np.broadcast_to(held, f.shape), atol=1e-8)
    others = np.arange(space.size) != entry
    np.testing.assert_array_equal(vectors[:, others] - at.vector[others], 0.0)
    own = space.to_model(at.vector).kernel.parts[1].kernel
    g = (
        np.asarray(held)[:, 1]
        - np.asarray(prior_mean(space.to_model(at.vector), target.data))[:, 1]
    )
    squares = g @ np.linalg.solve(np.asarray(own.gram(X[:, None], X[:, None])), g)
    law = invgamma(3.0 + 3, scale=2.0 + 0.5 * squares)
    assert kstest(np.exp(np.asarray(vectors[:, entry])), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "method",
    [
        lgp.MCMC(coupling="sites", hyperparameters="hmc", conjugate_variance=True),
        lgp.MCMC(coupling="sites", hyperparameters="slice", conjugate_variance=True),
    ],
    ids=["with derivatives", "without"],
)
def test_the_density_where_a_chain_is_is_that_of_proposals_there(x64, method):
    """From the start and after exact draws of a variance, whatever steps a proposal makes more."""
    model, y = lgp.LatentGP(lgp.RBF(0.8, 1.4), lgp.Poisson()), np.array([4.0, 9, 2, 0, 1, 30])
    target = WhiteTarget.of(ParameterSpace(model, priors=PRIORS), lgp.Dense(), lgp.Data(X, y))
    sampler = method.sampler(target)
    target = sampler.target  # whose anchor is known
    (coupling,), differentiates = sampler.couplings, sampler.hyperparameters.differentiates
    start = sampler.init(jax.random.key(0)).at
    drawn = sampler.variances.moved(start, sampler._coordinates, jax.random.key(1))
    for place in (start, drawn):
        held = coupling.held(target, place, jax.random.key(2))
        here, _ = coupling.here(target, place, held, differentiates)
        anew, _ = coupling.density(target, place.vector, held, differentiates)
        np.testing.assert_allclose(here, anew, rtol=1e-13, atol=1e-13)


def test_a_variance_of_a_part_is_not_conjugate_whatever_the_first_rows_see():
    inputs = np.stack([np.linspace(0, 4, 24), np.arange(24) > 21], axis=1).astype(float)
    model = lgp.LatentGP(lgp.RBF().on(0) + lgp.Linear(25.0).on(1), lgp.Gaussian())
    priors = {"kernel.parts[0].kernel.variance": InverseGamma(3.0, 2.0)}
    data = lgp.Data(inputs, np.zeros(24)).to_device()
    target = WhiteTarget.of(ParameterSpace(model, priors=priors), lgp.Dense(), data)
    with pytest.raises(lgp.InputError, match="needs a variance that scales the whole kernel"):
        lgp.MCMC(coupling="whitened", conjugate_variance=True).sampler(target)


@pytest.mark.parametrize(
    ("kernel", "priors"),
    [
        (lgp.RBF(), {"kernel.variance": LogNormal(0.0, 1.0)}),
        (lgp.RBF(), {"kernel.lengthscale": InverseGamma(3.0, 2.0)}),
        (lgp.RBF() + lgp.Matern32(), {"kernel.parts[0].variance": InverseGamma(3.0, 2.0)}),
    ],
)
def test_variances_that_are_not_conjugate_are_refused(kernel, priors):
    model = lgp.LatentGP(kernel, lgp.Gaussian())
    method = lgp.MCMC(coupling="centred", conjugate_variance=True)
    with pytest.raises(lgp.InputError, match="needs a variance that scales the whole kernel"):
        lgp.fit(model, lgp.Data(X, Y), key=jax.random.key(0), method=method, priors=priors)
