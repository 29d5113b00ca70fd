"""Evidence of counts, and the kernel that is chosen by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import latentgp as lgp
from latentgp.choosing import laplace
from latentgp.choosing.evidence import (
    FAMILIES,
    KernelShape,
    RowBlock,
    negative_log_evidence,
    optimum,
)
from latentgp.choosing.kernels import usual_kernel
from latentgp.choosing.laplace import law_of
from latentgp.runtime.x64 import in_x64
from latentgp.setup.priors import scales
from latentgp.surfaces.estimators.laws import law_of_counts

LEVEL, SCALE = 0.7, 2.0
LIKELIHOODS = [
    *(lgp.Poisson(), lgp.LogNegativeBinomial(dispersion=2.5), lgp.Binomial()),
    *(lgp.Weibull(2.5), lgp.Censored(lgp.LogNormal(2.5))),
]
OF_TIMES = lgp.Weibull, lgp.Censored
SIDES = {lgp.Binomial: "trials", **dict.fromkeys(OF_TIMES, "censored")}
SHAPES = [KernelShape("Matern52", 2), KernelShape("RationalQuadratic", 1)]
NAMES = [type(likelihood).__name__ for likelihood in LIKELIHOODS]


def some_counts(likelihood, size=30):
    generator = np.random.default_rng(4)
    X = generator.normal(size=(size, 2))
    latent = 1 + np.sin(2 * X[:, 0])
    sizes = generator.integers(1, 6, size).astype(float)
    if isinstance(likelihood, lgp.Binomial):
        y = generator.binomial(sizes.astype(int), 1 / (1 + np.exp(-latent)))
    elif isinstance(likelihood, OF_TIMES):
        y, sizes = np.exp(latent) * generator.exponential(size=size), (sizes < 3) * 1.0
    else:
        y = generator.poisson(sizes * np.exp(latent))
    return RowBlock(X, y.astype(float), generator.integers(1, 4, size).astype(float), sizes)


def logarithms(shape, likelihood):
    values = [*[0.3, -0.2][: shape.inputs], 0.4]
    own = isinstance(likelihood, (lgp.LogNegativeBinomial, *OF_TIMES))
    values += [np.log(2.5)] if own else []
    return np.array(values + [0.3] * FAMILIES[shape.family].is_mixture)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.quick
def test_gradient_is_that_of_the_evidence(likelihood, shape):
    law, at = law_of(likelihood, LEVEL, SCALE), logarithms(shape, likelihood)
    blocks = [some_counts(likelihood), some_counts(likelihood, 20)]
    _, gradient = negative_log_evidence(at, shape, blocks, law)
    step = 1e-4
    for place, unit in enumerate(step * np.eye(len(at))):
        above, below = (
            negative_log_evidence(point, shape, blocks, law)[0] for point in (at + unit, at - unit)
        )
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=NAMES)
def test_evidence_is_that_of_the_library(likelihood):
    shape, rows = SHAPES[0], some_counts(likelihood)
    at = logarithms(shape, likelihood)
    lengthscale, variance = np.exp(at[:2]), SCALE**2 * np.exp(at[2])
    kernel = lgp.Matern52(lengthscale=lengthscale, variance=variance) + lgp.Constant(SCALE**2)
    side = {SIDES.get(type(likelihood), "exposure"): rows.sizes}
    fitted = lgp.fit(
        lgp.LatentGP(kernel, likelihood, lgp.ConstantMean(LEVEL)),
        lgp.Data(rows.X, rows.y, weights=rows.weights, **side),
        method=lgp.Laplace(),
        key=jax.random.key(0),
        learn_hyperparameters=False,
    )
    expected = fitted.posterior.log_evidence
    around = 0.5 * np.log(2) * np.ones(2)
    expected += multivariate_normal(around, 2.75 + 0.25 * np.eye(2)).logpdf(at[:2])
    expected += norm(0, 2).logpdf(at[2:]).sum()
    law = law_of(likelihood, LEVEL, SCALE)
    assert -negative_log_evidence(at, shape, [rows], law)[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("limit", ["_STEPS", "_HALVINGS"])
@pytest.mark.quick
def test_without_a_mode_there_is_no_evidence(monkeypatch, limit):
    likelihood, shape = LIKELIHOODS[0], SHAPES[0]
    law, rows = law_of(likelihood, LEVEL, SCALE), some_counts(likelihood)
    value, _ = negative_log_evidence(logarithms(shape, likelihood), shape, [rows], law)
    assert np.isfinite(value)
    monkeypatch.setattr(laplace, limit, 1 if limit == "_STEPS" else 0)
    value, gradient = negative_log_evidence(logarithms(shape, likelihood), shape, [rows], law)
    assert value == np.inf
    assert not gradient.any()
    found = optimum(shape, [rows], logarithms(shape, likelihood), law=law)
    assert found.log_evidence == -np.inf


def large_counts(size):
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[1::2] = X[::2]  # equal inputs, whose covariance hardly has an inverse
    y = np.random.default_rng(1).poisson(size * np.exp(2 * np.sin(2 * X[:, 0])))
    return RowBlock(X, y.astype(float), np.ones(60), np.ones(60))


@pytest.mark.parametrize("size", [1e3, 1e6])
@pytest.mark.quick
def test_large_counts_have_a_mode(size):
    """Though differences of their log densities are rounding near it."""
    rows, shape = large_counts(size), KernelShape("RBF", 2)
    law, at = law_of(lgp.Poisson(), np.log(size), SCALE), np.array([-0.2, 0.4, 0.3])
    value, gradient = negative_log_evidence(at, shape, [rows], law)
    assert np.isfinite(value)
    for place, unit in enumerate(1e-3 * np.eye(3)):
        above, below = (
            negative_log_evidence(a, shape, [rows], law)[0] for a in (at + unit, at - unit)
        )
        assert gradient[place] == pytest.approx((above - below) / 2e-3, rel=1e-3)


@pytest.mark.quick
def test_no_choice_where_no_evidence_can_be_had(monkeypatch):
    monkeypatch.setattr(laplace, "_STEPS", 0)
    X = np.arange(40.0)[:, None]
    assert chosen(X, np.arange(40) % 3 + 0.0, lgp.Poisson()) is None


def drawn(kernel, X, seed=0):
    """Poisson counts whose log rate is a function of the kernel."""
    generator = np.random.default_rng(seed)

    @in_x64
    def gram():
        return np.asarray(kernel.gram(jnp.asarray(X), jnp.asarray(X)))

    root = np.linalg.cholesky(gram() + 1e-8 * np.eye(len(X)))
    return generator.poisson(np.exp(3 + root @ generator.normal(size=len(X)))).astype(float)


def chosen(X, y, likelihood, **side):
    data = lgp.Data(X, y, **side)
    return usual_kernel(data, likelihood, scales(lgp.LatentGP(lgp.RBF(), likelihood), data))


@pytest.mark.parametrize("family", ["RBF", "Matern12"])
@pytest.mark.quick
def test_family_that_rates_are_drawn_from_is_chosen(family):
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    y = drawn(FAMILIES[family].kernel(lengthscale=np.array([0.7, 1.5])), X)
    found = chosen(X, y, lgp.Poisson())
    assert found.family == family
    assert found.log_evidences == chosen(X, y, lgp.Poisson()).log_evidences


@pytest.mark.quick
def test_exposures_count():
    X = np.random.default_rng(3).uniform(-2, 2, size=(150, 1))
    y = drawn(lgp.RBF(lengthscale=0.7), X)
    exposure = np.where(np.arange(150) % 2, 1.0, 50.0)
    told = chosen(X, np.round(y * exposure), lgp.Poisson(), exposure=exposure)
    untold = chosen(X, np.round(y * exposure), lgp.Poisson())
    assert told.log_evidences["RBF"] > untold.log_evidences["RBF"] + 100


@pytest.mark.quick
def test_no_choice_for_classes_and_laws_of_further_zeros():
    X, y = np.arange(40.0)[:, None], np.arange(40) % 3 + 0.0
    assert chosen(X, y, lgp.Softmax(3)) is None
    assert chosen(X, y, lgp.ZeroInflated(lgp.Poisson())) is None


def test_counts_say_which_kernel():
    X = np.random.default_rng(3).uniform(-2, 2, size=(200, 2))
    y = drawn(lgp.Matern12(lengthscale=np.array([0.7, 1.5])), X)
    fitted = lgp.GPCountRegressor(random_state=0).fit(X, y)
    assert isinstance(fitted.model_.kernel, lgp.Matern12)
    assert "Kernel: Matern12" in fitted.diagnostics_.verdict
    frozen = lgp.GPCountRegressor("rbf", random_state=0).fit(X, y)
    assert isinstance(frozen.model_.kernel, lgp.RBF)
    assert frozen.kernel_choice_ is None


@pytest.mark.parametrize("places", [200, 12], ids=["each of its own", "few"])
@pytest.mark.quick
def test_law_that_counts_are_drawn_from_is_chosen(places):
    """Also where f is as rough as counts are, with a row at each place."""
    generator = np.random.default_rng(5)
    X = generator.uniform(0, 6, places)[np.arange(200) % places]
    rate, days = np.exp(1.5 + np.sin(X)), generator.uniform(1, 3, 200)
    drawn = {
        "poisson": generator.poisson(days * rate),
        "negative-binomial": generator.poisson(days * rate * generator.gamma(1.5, 1 / 1.5, 200)),
    }
    for name, y in drawn.items():
        law, why = law_of_counts(lgp.Data(X, y, exposure=days))
        assert law == name
        said = {"poisson": "a Poisson's", "negative-binomial": "a negative binomial's"}
        assert why[0].startswith(f"Likelihood: {said[name]}")
