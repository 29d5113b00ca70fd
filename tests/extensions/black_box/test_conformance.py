"""Values of log p(y | f) alone, for every likelihood: inside of JAX, and outside."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.black_box.external import slopes_by_values
from latentgp.extensions.black_box.mixtures.expectations import Expectations
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.quadrature import latents_at, sobol_nodes, training_nodes
from latentgp.sites.gaussian import Rows
from likelihood_cases import COMPLETE

CASES = [
    pytest.param(likelihood, targets, side, id=f"{type(likelihood).__name__}-{sorted(side or ())}")
    for likelihood, targets, _, side in COMPLETE
    if likelihood.is_positive
]
KEYS = 400


def problem(likelihood, targets, side, rows):
    """Targets of the middle of the support, marginals, numbers of the rows."""
    middle = np.asarray(targets, float)
    middle = middle[len(middle) // 2 :][:: max(1, len(middle) // 40)][:2] if (
        likelihood.targets == "real"
    ) else middle[:2]  # fmt: skip
    y = np.resize(middle, rows)
    random = np.random.default_rng(3)
    mean = 0.3 * random.normal(size=(rows, likelihood.latent_size))
    variance = random.uniform(0.1, 0.3, size=mean.shape)
    sides = {name: np.full(rows, value) for name, value in (side or {}).items()}
    return jnp.asarray(y), Marginals(jnp.asarray(mean), jnp.asarray(variance)), sides


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("likelihood", "targets", "side"), CASES)
def test_the_score_function_is_unbiased(likelihood, targets, side):
    y, marginals, sides = problem(likelihood, targets, side, 2)
    rows = Rows(y, None, sides)
    score = Expectations("score", 16)

    @eqx.filter_jit
    def many(likelihood, keys):
        return jax.lax.map(lambda key: score(likelihood, rows, marginals, key), keys)

    @eqx.filter_jit
    def direct(likelihood):
        """By many quasi-random nodes, from the same two identities."""
        size = likelihood.latent_size
        nodes = training_nodes(1) if size == 1 else sobol_nodes(size, 1 << 14)
        if size == 1 and not likelihood.is_smooth:
            nodes = sobol_nodes(1, 1 << 14)
        f, _ = latents_at(*marginals, nodes)
        values = likelihood._along_nodes(likelihood.log_prob, y, sides)(f)
        return slopes_by_values(values, *marginals, nodes)

    drawn = many(likelihood, jax.random.split(jax.random.key(0), KEYS))
    for draws, exact in zip(drawn[:3], direct(likelihood), strict=True):
        error = np.std(draws, axis=0) / np.sqrt(KEYS)
        away = np.abs(np.mean(draws, axis=0) - exact)
        assert (away <= 4 * error + 1e-4 * np.abs(exact) + 1e-9).all()


@pytest.mark.parametrize(("likelihood", "targets", "side"), CASES)
def test_outside_of_jax_it_is_the_same_posterior(likelihood, targets, side):
    y, _, sides = problem(likelihood, targets, side, 5)
    names = tuple(sides)

    @eqx.filter_jit
    def log_prob(likelihood, y, f, sides):
        return jax.vmap(likelihood.log_prob)(y, f, sides)

    def outside(y, f, **sides):
        with jax.enable_x64(True):
            return np.asarray(log_prob(likelihood, y, f, sides))

    external = lgp.ExternalLikelihood(
        outside, likelihood.latent_size, kind=likelihood.targets, side=names
    )
    kernel = lgp.RBF(1.0, 0.5)
    data = lgp.Data(np.linspace(0, 2, 5), np.asarray(y), **sides)
    # From the same place: it is not known of an external function where latents are likely to be.
    start = np.zeros((1, 5, likelihood.latent_size))
    method = lgp.BlackBoxVI(estimator="score", samples=8, steps=5, start_means=start)
    fits = [
        lgp.fit(
            lgp.LatentGP(kernel, own),
            data,
            key=jax.random.key(0),
            method=method,
            learn_hyperparameters=False,
        )
        for own in (likelihood, external)
    ]
    new = np.linspace(0, 2, 4)
    one, other = (fit.posterior.predict_f(new) for fit in fits)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6, atol=1e-8)
