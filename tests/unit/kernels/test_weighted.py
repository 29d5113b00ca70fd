"""Weighted sums of kernels: against sums written out, priors of weights, Gram matrices stored."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Dirichlet, Gamma

import latentgp as lgp
from latentgp.hyperparameters.space import ParameterSpace

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(7, 3))
WEIGHTS = np.array([[0.5, 1.5, 2.0], [1.0, 0.3, 0.7]])
PARTS = lgp.RBF(0.8).on(0), lgp.Linear().on(1), lgp.Matern32().on(2)

pytestmark = pytest.mark.quick


def test_sums_are_those_written_out(x64):
    X = jnp.asarray(POINTS)
    whole = lgp.PerLatentSum(PARTS, WEIGHTS)
    for q, weights in enumerate(WEIGHTS):
        written = sum(float(w) * part for w, part in zip(weights, PARTS, strict=True))
        own = lgp.WeightedSum(PARTS, weights)
        np.testing.assert_allclose(own.gram(X, X[:3]), written.gram(X, X[:3]), rtol=1e-12)
        np.testing.assert_allclose(whole.gram(X, X[:3])[q], written.gram(X, X[:3]), rtol=1e-12)
        np.testing.assert_allclose(whole.symmetric_gram(X)[q], written.gram(X, X), rtol=1e-9)
        np.testing.assert_allclose(whole.diagonal(X)[q], written.diagonal(X), rtol=1e-12)
        assert repr(whole.each[q]) == repr(own)


def test_stored_sums_have_the_same_gram_matrices(x64):
    X, numbers = jnp.asarray(POINTS), jnp.arange(7.0)[:, None]
    for kernel in (lgp.WeightedSum(PARTS), lgp.PerLatentSum(PARTS, WEIGHTS)):
        stored = kernel.stored(POINTS)
        expected = kernel.gram(X, X[2:4])
        np.testing.assert_allclose(stored.gram(numbers, numbers[2:4]), expected, atol=1e-12)
        assert list(lgp.parameters(stored)) == ["weights"]


def test_parts_that_are_not_learned_are_computed_once_for_all_latents(x64):
    """The number of exponentials of a compiled Gram matrix does not grow with the latents."""
    parts = tuple(lgp.RBF().on(d) for d in range(3))

    def exponentials(kernel):
        text = str(jax.make_jaxpr(lambda X: kernel.gram(X, X))(POINTS))
        return text.count(" exp ")

    assert exponentials(lgp.PerLatentSum(parts, np.ones((5, 3)))) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lgp.WeightedSum(()), "takes kernels in a tuple"),
        (lambda: lgp.WeightedSum((lgp.RBF(), 2.0)), "takes kernels in a tuple"),
        (lambda: lgp.WeightedSum(PARTS, [1.0, 2.0]), "a number for each of the 3 parts"),
        (lambda: lgp.WeightedSum(PARTS, [1.0, -2.0, 1.0]), "must satisfy positive"),
        (lambda: lgp.PerLatentSum(PARTS, np.ones(3)), r"shape \(latent functions, 3\)"),
        (
            lambda: lgp.LatentGP(lgp.PerLatentSum(PARTS, WEIGHTS), lgp.Softmax(3)),
            "Softmax has 3 latent function",
        ),
        (lambda: lgp.HierarchicalDirichlet(1), "at least two parts"),
    ],
)
def test_wrong_sums_are_refused(make, message):
    with pytest.raises(lgp.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "prior",
    [
        Gamma(2.0, 2.0),
        Dirichlet(np.array([1.0, 2.0, 3.0])),
        lgp.HierarchicalDirichlet(3, 2),
    ],
    ids=["gamma", "dirichlet", "hierarchical"],
)
def test_priors_of_weights_by_path(x64, prior):
    """The density of unconstrained weights is that of the law times the volume of the map."""
    model = lgp.LatentGP(lgp.PerLatentSum(PARTS, WEIGHTS), lgp.HeteroscedasticGaussian())
    space = ParameterSpace(
        model, frozen=["kernel.parts", "likelihood"], priors={"kernel.weights": prior}
    )
    space = ParameterSpace(
        space.inside()[0],
        frozen=["kernel.parts", "likelihood"],
        priors={"kernel.weights": prior},
    )
    vector = jnp.asarray(space.to_vector()) + 0.3
    simplex = not isinstance(prior, Gamma)

    def free(vector):
        weights = lgp.parameters(space.to_model(vector))["kernel.weights"].value
        return weights[:, :-1].ravel() if simplex else weights.ravel()

    weights = lgp.parameters(space.to_model(vector))["kernel.weights"].value
    if simplex:
        np.testing.assert_allclose(np.sum(weights, axis=1), 1.0, rtol=1e-12)
    volume = np.linalg.slogdet(jax.jacfwd(free)(vector))[1]
    expected = np.sum(prior.log_prob(weights)) + volume
    assert float(space.log_prior(vector)) == pytest.approx(float(expected), abs=1e-9)


def test_the_concentration_is_integrated_out(x64):
    """Against quadrature by SciPy, far out too; draws of it given weights against its moments."""
    from scipy.integrate import quad

    law = lgp.HierarchicalDirichlet(3, latents=2, rate=1.5)
    for weights in (
        np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]),
        np.array([[1 - 2e-9, 1e-9, 1e-9], [0.98, 0.01, 0.01]]),
        np.full((2, 3), 1 / 3),
    ):

        def density(alpha, power=0, weights=weights):
            each = Dirichlet(jnp.full(3, alpha)).log_prob(weights)
            return alpha**power * 1.5 * np.exp(-1.5 * alpha + float(jnp.sum(each)))

        pieces = (0.0, 1e-3, 0.05, 0.5, 3.0, 60.0)
        ends = list(itertools.pairwise(pieces))
        whole, first = (
            sum(quad(density, *end, args=(p,), limit=200)[0] for end in ends) for p in (0, 1)
        )
        assert float(law.log_prob(weights)) == pytest.approx(np.log(whole), abs=1e-6)
        drawn = law.sample_concentration(jax.random.key(0), np.tile(weights, (4000, 1, 1)))
        error = float(np.std(drawn)) / np.sqrt(4000)
        assert abs(float(np.mean(drawn)) - first / whole) < 4 * error
    draws = law.sample(jax.random.key(1), (5,))
    assert draws.shape == (5, 2, 3)
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0)
