"""Laws of auxiliary variables: draws, moments, Laplace transforms and densities agree."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from latentgp.distributions import (
    Gamma,
    GeneralisedInverseGaussian,
    InverseGaussian,
    TiltedScaleMixture,
    sample_gamma,
    sample_generalised_inverse_gaussian,
    sample_inverse_gaussian,
    sample_negative_multinomial,
    sample_poisson,
    sample_polya_gamma,
    sample_tilted_scale_mixture,
)
from polya_gamma_law import PolyaGamma
from slow import slow_parameters

DRAWS = 100_000
KEY = 7


@pytest.fixture(autouse=True)
def _double(request):
    """Double precision, but for the tests of single precision."""
    with jax.enable_x64("single" not in request.node.name):
        yield


@partial(jax.jit, static_argnums=1)
def draw(law, number=DRAWS):
    return law.sample(jax.random.key(KEY), (number,))


def check_draws(law, draws, moments=(True, True)):
    """Draws along the first axis match mean, variance and Laplace transform of the law."""
    draws = np.asarray(draws)
    assert np.all(np.isfinite(draws))
    mean, variance = np.asarray(law.mean), np.asarray(law.variance)
    number = len(draws)
    if moments[0]:
        error = np.sqrt(draws.var(axis=0) / number)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 5 * error + 1e-9 * mean)
    if moments[1]:
        fourth = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0)
        error = np.sqrt((fourth - draws.var(axis=0) ** 2) / number)
        wrong = np.abs(draws.var(axis=0) - variance)
        np.testing.assert_array_less(wrong, 5 * error + 1e-6 * variance)
    scale = np.where(np.isfinite(mean), mean, np.median(draws, axis=0))
    for factor in (0.1, 1.0, 6.0):
        t = factor / np.where(scale > 0, scale, 1.0)
        values = np.exp(-t * draws)
        expected = np.exp(np.asarray(law.log_laplace_transform(jnp.asarray(t))))
        error = 5 * values.std(axis=0) / np.sqrt(number) + 1e-9
        np.testing.assert_array_less(np.abs(values.mean(axis=0) - expected), error)


def check_density(law, log_lower, log_upper, nodes=4001):
    """The density integrates to one; its cumulative integral is returned as a function."""
    log_w = np.linspace(log_lower, log_upper, nodes)
    density = np.exp(np.asarray(law.log_prob(jnp.exp(log_w))) + log_w)
    assert abs(integrate.simpson(density, x=log_w) - 1) < 1e-6
    cumulative = np.concatenate([[0], integrate.cumulative_simpson(density, x=log_w)])
    return lambda w: np.interp(np.log(w), log_w, cumulative)


def same_law(draws, cdf, number=20_000):
    return stats.kstest(np.asarray(draws).ravel()[:number], cdf).pvalue > 1e-3


class TestGamma:
    shapes = (0.01, 0.3, 1.0, 2.5, 40.0, 1e6)

    def test_draws(self):
        law = Gamma(jnp.array(self.shapes), 2.0)
        draws = draw(law)
        check_draws(law, draws)
        for k, shape in enumerate(self.shapes[1:], 1):
            assert same_law(draws[:, k], stats.gamma(shape, scale=0.5).cdf)

    def test_limits(self):
        draws = sample_gamma(jax.random.key(KEY), jnp.array([0.0, -1.0, jnp.nan, 1e-300, 1e300]))
        np.testing.assert_array_equal(np.isnan(draws), [False, True, True, False, False])
        assert draws[0] == 0
        assert draws[4] == pytest.approx(1e300)


class TestPoisson:
    @pytest.mark.parametrize("rate", [0.0, 1e-3, 0.7, 9.9, 10.0, 31.0, 1e4, 1e9])
    def test_draws(self, rate):
        draws = np.asarray(jax.jit(sample_poisson)(jax.random.key(KEY), jnp.full(DRAWS, rate)))
        assert np.all(draws == np.round(draws))
        error = 5 * np.sqrt(max(rate, 0.0) / DRAWS)
        assert abs(draws.mean() - rate) <= error
        assert abs(draws.var() - rate) <= 5 * np.sqrt((rate + 2 * rate**2) / DRAWS)
        if 0 < rate < 100:
            counts = np.bincount(draws.astype(int))
            expected = DRAWS * stats.poisson(rate).pmf(np.arange(len(counts)))
            common = expected > 10
            chi = np.sum((counts - expected)[common] ** 2 / expected[common])
            assert stats.chi2(common.sum()).sf(chi) > 1e-3

    def test_limits(self):
        draws = sample_poisson(jax.random.key(KEY), jnp.array([jnp.nan, jnp.inf, -1.0, 1e18]))
        np.testing.assert_array_equal(np.isnan(draws), [True, True, True, False])


class TestPolyaGamma:
    tilts = np.array([0.0, 1e-4, 0.5, 3.0, 40.0, 1e3])

    @pytest.mark.parametrize(
        "b", [1e-3, 1.0, 5.9, 300.25, *slow_parameters(0.3, 0.5, 1.7, 4.5, 40.0)]
    )
    def test_draws(self, b):
        law = PolyaGamma(b, self.tilts)
        check_draws(law, draw(law))

    @pytest.mark.parametrize("b", [0.3, 1.0, 5.7, 30.0])
    @pytest.mark.parametrize("c", [0.0, -4.0])
    def test_draws_have_the_density(self, b, c):
        law = PolyaGamma(b, c)
        centre = float(jnp.log(law.mean))
        cdf = check_density(law, centre - (8 if b > 1 else 25), centre + 6)
        assert same_law(draw(law, 20_000), cdf)

    def test_density_of_one_by_its_series(self):
        # Polson, Scott & Windle (2013, section 2): alternating inverse Gaussian densities.
        w = np.array([0.01, 0.1, 0.25, 0.6])
        n = np.arange(200)[:, None]
        terms = (-1.0) ** n * (2 * n + 1) * np.exp(-((2 * n + 1) ** 2) / (8 * w))
        expected = np.log(terms.sum(axis=0) / np.sqrt(2 * np.pi * w**3))
        np.testing.assert_allclose(PolyaGamma(1.0, 0.0).log_prob(w), expected, rtol=1e-12)

    def test_sixteen_is_a_sum_of_sixteen(self):
        parts = np.asarray(draw(PolyaGamma(1.0, 1.3), 20_000)).reshape(-1, 16)
        whole = np.asarray(draw(PolyaGamma(16.0, 1.3), 20_000))
        assert stats.ks_2samp(parts.sum(axis=1), whole).pvalue > 1e-3

    def test_acceptance_is_a_probability(self):
        """1 - r(x) and r(x) of the rejection sampler, from densities of the exact law."""
        for b in (0.05, 0.3, 1.0, 1.4):
            x = jnp.logspace(-2, 1, 200) * b
            levy = stats.levy(scale=b**2 / 4).logpdf(np.asarray(x))
            r = np.exp(np.asarray(PolyaGamma(b, 0.0).log_prob(x)) - levy - b * np.log(2))
            assert np.all(r >= 0)
            assert np.all(r <= 1 + 1e-10)

    def test_moments_everywhere(self):
        c = np.array([0.0, 1e-8, 1e-3, 0.01, 0.3, 0.999, 1.001, 5.0, 1e3, 1e6])
        step = np.longdouble(1) * np.where(c > 0, c, 1)
        mean = np.tanh(step / 2) / (2 * step)
        variance = (2 * np.tanh(step / 2) / step - 1 / np.cosh(np.minimum(step, 1e3) / 2) ** 2) / (
            4 * step**2
        )
        law = PolyaGamma(jnp.ones(len(c)), c)
        np.testing.assert_allclose(law.mean[1:], mean[1:].astype(float), rtol=1e-12)
        np.testing.assert_allclose(law.variance[4:], variance[4:].astype(float), rtol=1e-12)
        np.testing.assert_allclose(law.mean[:2], 0.25, rtol=1e-14)
        np.testing.assert_allclose(law.variance[:3], 1 / 24, rtol=1e-6)

    def test_limits(self):
        b = jnp.array([0.0, 1e-300, 1e-170, 1e-3, 1.0, 1e6, 1e12])
        c = jnp.array([0.0, 1e-10, 30.0, 1e6, -1e6, 1e9])
        draws = np.asarray(draw(PolyaGamma(b[:, None], c), 24))
        assert np.all(np.isfinite(draws))
        assert np.all(draws[:, 0] == 0)
        assert np.all(draws[:, 3:] > 0)
        mean = np.asarray(PolyaGamma(b[:, None], c).mean)
        np.testing.assert_allclose(draws[:, 5:].mean(axis=0), mean[5:], rtol=1e-3)
        wrong = sample_polya_gamma(
            jax.random.key(KEY), jnp.array([np.nan, -1, 1]), jnp.array(np.inf)
        )
        assert np.all(np.isnan(wrong))


class TestInverseGaussian:
    @pytest.mark.parametrize(("mean", "shape"), [(1.0, 1.0), (0.01, 5.0), (20.0, 0.5), (3.0, 1e4)])
    def test_draws(self, mean, shape):
        law = InverseGaussian(mean, shape)
        draws = draw(law)
        check_draws(law, draws)
        scipy = stats.invgauss(mean / shape, scale=shape)
        assert same_law(draws, scipy.cdf)
        np.testing.assert_allclose(law.log_prob(draws[:99]), scipy.logpdf(draws[:99]), rtol=1e-9)

    def test_infinite_mean(self):
        law = InverseGaussian(jnp.inf, 2.0)
        draws = draw(law)
        check_draws(law, draws, moments=(False, False))
        assert same_law(draws, stats.levy(scale=2.0).cdf)
        np.testing.assert_allclose(
            law.log_prob(draws[:99]), stats.levy(scale=2.0).logpdf(draws[:99])
        )

    def test_limits(self):
        mean = jnp.array([1e-200, 1e-8, 1e15, 1e300])
        draws = sample_inverse_gaussian(jax.random.key(KEY), mean, jnp.array(0.5))
        assert np.all(np.isfinite(draws))
        assert np.all(np.asarray(draws) > 0)


class TestGeneralisedInverseGaussian:
    parameters = (
        (-1.5, 2.0, 1.5),
        (-0.5, 1.0, 3.0),
        (0.5, 3.0, 0.2),
        (3.3, 4.0, 5.0),
        (-60.0, 1.0, 3.0),
        (0.7, 1e3, 1e3),
        (0.25, 0.3, 0.01),
    )

    @pytest.mark.parametrize(("p", "a", "b"), parameters)
    def test_draws(self, p, a, b):
        law = GeneralisedInverseGaussian(p, a, b)
        draws = draw(law)
        check_draws(law, draws)
        scipy = stats.geninvgauss(p, np.sqrt(a * b), scale=np.sqrt(b / a))
        assert same_law(draws, scipy.cdf, 2000)
        np.testing.assert_allclose(law.log_prob(draws[:50]), scipy.logpdf(draws[:50]), rtol=1e-8)

    @pytest.mark.parametrize(
        ("p", "a", "b"),
        [(0.0, 1e-3, 1e-3), (-0.1, 1e-6, 2.0), (1e-3, 1.0, 1e-8), (-1.5, 1e-9, 1.5)],
    )
    def test_near_the_limits(self, p, a, b):
        law = GeneralisedInverseGaussian(p, a, b)
        cdf = check_density(law, -45.0, 25.0, 20_001)
        assert same_law(draw(law, 20_000), cdf)

    def test_inverse_gamma_and_gamma(self):
        law, scipy = GeneralisedInverseGaussian(-1.5, 0.0, 1.5), stats.invgamma(1.5, scale=0.75)
        draws = draw(law)
        check_draws(law, draws, moments=(False, False))
        assert same_law(draws, scipy.cdf)
        np.testing.assert_allclose(law.log_prob(draws[:50]), scipy.logpdf(draws[:50]), rtol=1e-10)
        assert law.mean == pytest.approx(1.5)
        assert np.isinf(law.variance)
        assert np.isinf(GeneralisedInverseGaussian(-0.2, 0.0, 1.5).mean)
        law, scipy = GeneralisedInverseGaussian(0.6, 2.0, 0.0), stats.gamma(0.6)
        draws = draw(law)
        check_draws(law, draws)
        assert same_law(draws, scipy.cdf)

    @pytest.mark.parametrize("p", [1e-3, 0.02, 0.3, 1e4])
    def test_a_gamma_law_of_any_shape(self, p):
        law, scipy = GeneralisedInverseGaussian(p, 1.0, 0.0), stats.gamma(p, scale=2)
        np.testing.assert_allclose(law.log_prob(1.0), scipy.logpdf(1.0), rtol=1e-9)
        np.testing.assert_allclose(law.mean, scipy.mean(), rtol=1e-9)
        np.testing.assert_allclose(law.variance, scipy.var(), rtol=1e-5)
        single = jnp.asarray([p] * 2000, jnp.float32)
        ones = jnp.ones_like(single)
        draws = sample_generalised_inverse_gaussian(jax.random.key(KEY), single, ones, 0 * ones)
        for place in (1e-10, scipy.mean()):  # smaller ones may be zero in single precision
            share = scipy.sf(place)
            error = np.sqrt(share * (1 - share) / len(draws))
            assert abs(np.mean(np.asarray(draws) > place) - share) < 4 * error + 1e-6

    def test_no_such_law(self):
        p, a, b = (jnp.array(column) for column in zip((1.0, 0.0, 1.0), (-1.0, 1.0, 0.0), strict=1))
        draws = sample_generalised_inverse_gaussian(jax.random.key(KEY), p, a, b)
        assert np.all(np.isnan(draws))


def log_gamma_transform(shape, t):
    return -shape * jnp.log1p(t)


def log_levy_transform(t):
    return -jnp.sqrt(t)


def log_matern_transform(t):
    root = jnp.sqrt(3 * t)
    return jnp.log1p(root) - root


def log_inverse_cosh(t):
    root = jnp.sqrt(t / 2)
    return jnp.log(2.0) - root - jnp.log1p(jnp.exp(-2 * root))


class Module(eqx.Module):
    """A transform with a parameter in a JAX array, as a likelihood has."""

    shape: jax.Array

    def log_phi(self, t):
        return -self.shape * jnp.log1p(t)


class TestTiltedScaleMixture:
    def test_a_method_with_traced_parameters(self):
        def sample(shape, key):
            law = TiltedScaleMixture(Module(shape).log_phi, jnp.full(50, 0.5))
            return draw(law, 20)

        shapes, key = jnp.array([0.5, 2.0]), jax.random.key(KEY)
        draws = jax.jit(jax.vmap(sample, (0, None)))(shapes, key)
        expected = [
            draw(TiltedScaleMixture(Module(k).log_phi, jnp.full(50, 0.5)), 20) for k in shapes
        ]
        np.testing.assert_allclose(draws, expected, rtol=1e-8)

    @pytest.mark.parametrize("shape", [0.3, 100.0, 1e4])
    def test_gamma(self, shape):
        law = TiltedScaleMixture(partial(log_gamma_transform, shape), jnp.array([0.0, 2.0, 1e5]))
        scipy = stats.gamma(shape, scale=1 / (1 + np.asarray(law.tilt)))
        draws = draw(law, 20_000)
        check_draws(law, draws)
        for k in range(3):
            assert same_law(draws[:, k] * (1 + law.tilt[k]), stats.gamma(shape).cdf)
        np.testing.assert_allclose(law.cdf(draws[:99]), scipy.cdf(draws[:99]), atol=2e-10)
        uniform = jax.random.uniform(jax.random.key(KEY), (20_000, 3))
        np.testing.assert_allclose(scipy.cdf(np.asarray(draws)), uniform, atol=3e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("r", [1e-6, 0.1, 5.0, 1e4, 1e8])
    def test_inverse_gaussian(self, r):
        law, exact = TiltedScaleMixture(log_levy_transform, r), InverseGaussian(0.5 / r**0.5, 0.5)
        draws = draw(law, 20_000)
        check_draws(exact, draws, moments=(r > 1e-3, r > 0.1))
        assert same_law(draws, stats.invgauss(1 / np.sqrt(r), scale=0.5).cdf)
        assert law.mean == pytest.approx(float(exact.mean), rel=1e-9)
        assert law.variance == pytest.approx(float(exact.variance), rel=1e-9)
        body = jnp.sort(draws)[1000:-1000:500]
        np.testing.assert_allclose(law.log_prob(body), exact.log_prob(body), atol=1e-5)

    @pytest.mark.parametrize(
        ("log_phi", "cdf"),
        [
            (log_levy_transform, stats.levy(scale=0.5).cdf),
            (log_matern_transform, stats.invgamma(1.5, scale=0.75).cdf),
        ],
    )
    def test_heavy_tails(self, log_phi, cdf):
        """Without a tilt the variance is infinite, or the mean is."""
        law = TiltedScaleMixture(log_phi, 0.0)
        draws = draw(law, 20_000)
        uniform = jax.random.uniform(jax.random.key(KEY), (20_000,))
        np.testing.assert_allclose(cdf(np.asarray(draws)), uniform, atol=3e-9)
        check_draws(law, draws, moments=(False, False))

    @pytest.mark.parametrize("c", [0.5, 4.0])
    def test_polya_gamma(self, c):
        law = TiltedScaleMixture(log_inverse_cosh, c**2 / 2)
        draws = draw(law, 20_000)
        check_draws(PolyaGamma(1.0, c), draws)
        assert stats.ks_2samp(draws, draw(PolyaGamma(1.0, c), 20_000)).pvalue > 1e-3
        assert same_law(draws, check_density(PolyaGamma(1.0, c), -8.0, 3.0))


class TestNegativeMultinomial:
    @pytest.mark.parametrize("x0", [0.4, 1.0, 7.5, 200.0])
    def test_draws(self, x0):
        """Moments and the Laplace transform; each kind alone is negative binomial."""
        p = np.array([0.2, 0.5, 0.01])
        odds = p / (1 - p.sum())
        mean, variance = x0 * odds, x0 * odds * (1 + odds)
        draws = np.asarray(
            sample_negative_multinomial(
                jax.random.key(KEY), jnp.full(DRAWS, x0), jnp.tile(p, (DRAWS, 1))
            )
        )
        error = 5 * np.sqrt(draws.var(axis=0) / DRAWS)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), error)
        fourth = np.mean((draws - draws.mean(axis=0)) ** 4, axis=0)
        error = 5 * np.sqrt((fourth - draws.var(axis=0) ** 2) / DRAWS)
        np.testing.assert_array_less(np.abs(draws.var(axis=0) - variance), error)
        for t in ([0.1, 0.0, 2.0], [1.0, 0.5, 0.1], [0.01, 0.02, 0.0]):
            t = np.array(t) / max(1.0, x0 / 5)
            values = np.exp(-draws @ t)
            expected = (1 - odds @ np.expm1(-t)) ** -x0
            assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(DRAWS)
        for k in range(3):
            zeros, chance = np.mean(draws[:, k] == 0), stats.nbinom(x0, 1 / (1 + odds[k])).pmf(0)
            assert abs(zeros - chance) < 5 * np.sqrt(chance * (1 - chance) / DRAWS) + 1 / DRAWS

    def test_a_small_chance_to_end(self):
        counts = sample_negative_multinomial(
            jax.random.key(KEY), jnp.ones(1000), jnp.full((1000, 2), 0.5), jnp.full(1000, 1e-9)
        )
        assert np.asarray(counts).mean() == pytest.approx(0.5e9, rel=0.2)


def some_laws(size):
    """A law of each kind, of batch shape (size,)."""
    x = jnp.linspace(0.1, 3.0, size)
    return {
        "polya_gamma": PolyaGamma(3 * x**2, x),
        "inverse_gaussian": InverseGaussian(x, 1.0),
        "generalised": GeneralisedInverseGaussian(-1.5, 2 * x, 1.5),
        "tilted": TiltedScaleMixture(log_matern_transform, x),
    }


@pytest.mark.parametrize("name", some_laws(2))
def test_jit_vmap_and_repetition_change_nothing(name):
    law, keys = some_laws(300)[name], jax.random.split(jax.random.key(KEY), 3)
    plain = [law.sample(key) for key in keys]
    assert plain[0].shape == law.shape()
    more = jax.eval_shape(lambda key: law.sample(key, (2,)), keys[0])
    assert more.shape == law.shape((2,))
    np.testing.assert_array_equal(law.sample(keys[0]), plain[0])
    jitted = jax.jit(lambda law, key: law.sample(key))(law, keys[0])
    np.testing.assert_allclose(jitted, plain[0], rtol=1e-8)
    np.testing.assert_allclose(jax.vmap(law.sample)(keys), jnp.stack(plain), rtol=1e-8)


@pytest.mark.parametrize("name", some_laws(2))
def test_single_precision(name):
    law = some_laws(3)[name]
    draws = draw(law, 300)
    assert draws.dtype == jnp.float32
    assert np.all(np.isfinite(draws))
    error = 6 * np.sqrt(np.asarray(law.variance) / len(draws))
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - law.mean), error + 1e-3 * law.mean)
    for quantity in (law.mean, law.variance, law.log_prob(draws[:10])):
        assert quantity.dtype == jnp.float32
        assert np.all(np.isfinite(quantity))


def test_single_precision_limits_of_polya_gamma():
    b, c = jnp.array([0.0, 1e-30, 1e-3, 1.0, 1e6])[:, None], jnp.array([0.0, 1e-3, 20.0, 1e6])
    draws = np.asarray(draw(PolyaGamma(b, c), 50))
    assert draws.dtype == np.float32
    assert np.all(np.isfinite(draws))
    np.testing.assert_allclose(draws[:, 4].mean(axis=0), PolyaGamma(1e6, c).mean, rtol=2e-3)


def test_counts_in_single_precision():
    counts = sample_negative_multinomial(jax.random.key(KEY), jnp.ones(3), jnp.full((3, 2), 0.3))
    assert counts.dtype == jnp.float32


def test_functions_take_arrays_of_several_shapes():
    key, row, column = jax.random.key(KEY), jnp.ones(3), jnp.ones((2, 1))

    def shape(function, *arguments):
        return jax.eval_shape(function, key, *arguments).shape

    assert shape(sample_polya_gamma, row, column) == (2, 3)
    assert shape(sample_inverse_gaussian, row, column) == (2, 3)
    assert shape(sample_generalised_inverse_gaussian, row, column, row) == (2, 3)
    assert shape(sample_gamma, column) == (2, 1)
    assert shape(sample_poisson, column) == (2, 1)
    assert shape(sample_negative_multinomial, row, jnp.ones((3, 2)) / 4) == (3, 2)
    tilted = partial(sample_tilted_scale_mixture, log_phi=log_levy_transform)
    assert jax.eval_shape(lambda key: tilted(key, tilt=column), key).shape == (2, 1)
