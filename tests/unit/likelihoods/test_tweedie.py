"""The compound Poisson-gamma law against its series in 60 digits, and its sum term by term."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammainc
from scipy.stats import norm, poisson

import latentgp as lgp
from latentgp.likelihoods import Marginals

# y, mean, power, dispersion, and the log density by mpmath in 60 digits.
TRUTH = [
    (1e-8, 1e-7, 1.02, 0.05, -683.370672327904328),
    (0.7, 2.0, 1.5, 1.0, -1.25983183635544735),
    (60.0, 30.0, 1.9, 0.05, -12.1272740419275927),
    (3.0, 9.0, 1.98, 30.0, -4.66090660032080104),
    (1000.0, 900.0, 1.1, 1e-3, -2706.74925674566228),
    (1e6, 9e5, 1.5, 1.0, -16.8323680933463465),
    (1000.0, 1000.0, 1.5, 1e-3, -2.64588031759723225),
]


@jax.jit
def log_prob(y, mean, power, dispersion):
    return lgp.Tweedie(power, dispersion).log_prob(y, jnp.log(mean)[None], {})


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", TRUTH)
def test_density_to_rounding(case):
    *row, truth = map(jnp.asarray, case)
    np.testing.assert_allclose(log_prob(*row), truth, rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("case", "in_power", "in_dispersion"),
    [
        (TRUTH[1], 0.43217637404233, -0.200774781350084),
        (TRUTH[2], 29.8553168514045, 166.2155813964),
    ],
)
def test_slopes_in_the_parameters(case, in_power, in_dispersion):
    slopes = jax.jit(jax.grad(log_prob, (2, 3)))(*map(jnp.asarray, case[:4]))
    np.testing.assert_allclose(slopes, (in_power, in_dispersion), rtol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("power", "dispersion", "mean", "tolerance"),
    [(1.5, 1.0, 2.0, 1e-8), (1.9, 0.3, 0.5, 1e-8), (1.1, 2.0, 7.0, 1e-8), (1.5, 4e-4, 1.0, 1e-6)],
)
def test_distribution_function_is_the_sum_over_numbers_of_amounts(
    power, dispersion, mean, tolerance
):
    law = lgp.Tweedie(power, dispersion)
    rate = mean ** (2 - power) / (dispersion * (2 - power))
    shape, scale = (2 - power) / (power - 1), dispersion * (power - 1) * mean ** (power - 1)
    number = np.arange(1, 20_000)
    spread = np.sqrt(dispersion * mean**power)
    y = np.r_[0.0, mean + spread * np.array([-0.9, -0.1, 0.0, 0.0005, 0.5, 2.5])]
    y = y[y >= 0]
    truth = [
        poisson.pmf(0, rate) + poisson.pmf(number, rate) @ gammainc(number * shape, own / scale)
        for own in y
    ]
    found = jax.vmap(lambda y: law.cdf(y, jnp.log(jnp.array([mean])), {}))(jnp.asarray(y))
    np.testing.assert_allclose(found, truth, atol=tolerance)
    assert law.cdf(jnp.array(-1.0), jnp.zeros(1), {}) == 0


@pytest.mark.slow
def test_any_latent_and_any_target_has_a_slope():
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            y = jnp.array([0.0, 1e-30, 1e-3, 1.0, 1e6, 1e12], dtype)
            f = jnp.array([-30.0, -1.0, 0.0, 3.0, 30.0], dtype)

            def value(f, power, dispersion, y):
                return lgp.Tweedie(power, dispersion).log_prob(y, f[None], {})

            slopes = jax.grad(value, (0, 1, 2))
            over = jax.vmap(jax.vmap(slopes, (0, None, None, None)), (None, None, None, 0))
            found = over(f, jnp.array(1.4, dtype), jnp.array(0.5, dtype), y)
            assert all(np.all(np.isfinite(part)) for part in found)


def test_quantiles_are_zero_where_zero_is_likely(x64):
    marginals = Marginals(jnp.array([[-1.0], [3.0]]), jnp.full((2, 1), 0.2))
    found = lgp.Tweedie(1.5, 1.0).predictive_quantiles(jnp.array([0.1, 0.9]), marginals, {})
    assert found[0, 0] == 0.0
    assert np.all(np.asarray(found)[[0, 1, 1], [1, 0, 1]] > 0)


@pytest.mark.slow
def test_a_fit_finds_the_claims():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, 150))
    mean = np.exp(1 + np.sin(X))
    number = rng.poisson(2 * np.sqrt(mean))  # power 3/2, dispersion 1
    y = np.where(number > 0, rng.gamma(np.maximum(number, 1), 0.5 * np.sqrt(mean)), 0.0)
    regressor = lgp.GPRegressor(likelihood="tweedie", random_state=0).fit(X[:, None], y)
    law = regressor.model_.likelihood
    assert 1.3 < float(law.power) < 1.7
    assert 0.7 < float(law.dispersion) < 1.4
    assert np.mean(np.abs(regressor.predict(X[:, None]) - mean)) < 0.15 * mean.mean()
    lower, upper = regressor.predict_interval(X[:, None], 0.9)
    assert 0.85 < np.mean((lower <= y) & (y <= upper)) < 0.97
    with pytest.raises(lgp.InputError, match="Tweedie targets must be at least 0"):
        regressor.fit(X[:, None], y - 1)


def test_the_narrow_law_is_nearly_normal(x64):
    law = lgp.Tweedie(1.3, 1e-8)
    z = jnp.array([-2.0, 0.0, 1.0])
    found = jax.vmap(lambda z: law.cdf(1 + 1e-4 * z, jnp.zeros(1), {}))(z)
    np.testing.assert_allclose(found, norm.cdf(z), atol=1e-4)
