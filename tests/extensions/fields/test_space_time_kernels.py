"""Space and time that do not separate, against formulas; autoregressions and walks in time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gamma, kv
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp import functionals
from latentgp.errors import InputError
from latentgp.extensions.neighbours.search import coordinates
from latentgp.kernels import (
    AR1,
    Anisotropic,
    Gneiting,
    OnSphere,
    PoweredExponential,
    RandomWalk,
    TemporalDecay,
)

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 4, (30, 3))
X[7], X[9, 1:] = X[6], X[8, 1:]
SPACE = np.linalg.norm(X[:, None, 1:] - X[None, :, 1:], axis=-1)
LAGS = np.abs(X[:, None, 0] - X[None, :, 0])


def matern(h, order):
    s = np.sqrt(2 * order) * np.maximum(h, 1e-12)
    return 2 ** (1 - order) / gamma(order) * s**order * kv(order, s)


@pytest.mark.quick
@pytest.mark.parametrize("interaction", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("order", [0.5, 1.0, 2.5])
def test_covariances_are_those_of_the_formula(interaction, order):
    kernel = Gneiting(
        lgp.Matern(1.3, 0.7, order).on(1, 2), TemporalDecay(0, 2.0, 0.3, 0.6), interaction
    )
    T = 1 + (LAGS / 2.0) ** 0.6
    expected = 0.7 * T ** -(0.6 + interaction) * matern(SPACE / 1.3 / T ** (interaction / 2), order)
    np.testing.assert_allclose(kernel.gram(X, X), expected, rtol=1e-9)


@pytest.mark.quick
def test_covariances_are_those_of_gneitings_wind():
    """Gneiting (2002), eq. 16: 1 / (0.901 u^1.544 + 1) exp(-0.00134 h / (...)^(beta / 2))."""
    time = TemporalDecay(0, 0.901 ** (-1 / 1.544), 0.772, power=1 - 0.61)
    kernel = Gneiting(lgp.Matern12(1 / 0.00134).on(1, 2), time, interaction=0.61)
    places = X * [1, 200, 200]
    T = 0.901 * LAGS**1.544 + 1
    expected = np.exp(-0.00134 * 200 * SPACE / T**0.305) / T
    np.testing.assert_allclose(kernel.gram(places, places), expected, rtol=1e-9)


@pytest.mark.quick
def test_without_interaction_it_is_a_product():
    class Cauchy(lgp.kernels.Stationary):
        def correlation(self, squared_distance):
            return (1 + squared_distance) ** -0.8

    space = Anisotropic.at_angle(lgp.Matern32(0.8, 1.3), 30, 3.0)
    apart = Gneiting(space.on(1, 2), TemporalDecay(0, 2.0, 1.0, 0.8), interaction=0.0)
    product = space.on(1, 2) * Cauchy(2.0).on(0)
    np.testing.assert_allclose(apart.gram(X, X), product.gram(X, X), rtol=1e-6)
    whole = Gneiting(space.on(1, 2), TemporalDecay(0, 2.0, 1.0, 0.8), interaction=1.0)
    assert np.max(np.abs(whole.gram(X, X) - product.gram(X, X))) > 0.1


@pytest.mark.quick
def test_the_powered_exponential_is_its_formula():
    kernel = PoweredExponential(1.3, 0.7, power=1.4)
    np.testing.assert_allclose(
        kernel.gram(X[:, 1:], X[:, 1:]), 0.7 * np.exp(-((SPACE / 1.3) ** 1.4)), atol=1e-9
    )
    power_two = PoweredExponential(np.sqrt(2) * 1.3, power=2.0)
    np.testing.assert_allclose(power_two.gram(X, X), lgp.RBF(1.3).gram(X, X), atol=1e-9)


@pytest.mark.quick
def test_neighbours_are_near_in_space_and_time():
    """One over the coordinate of a lag is where the correlation at a place has fallen to 1 / e."""
    kernel = Gneiting(lgp.Matern12(0.5).on(1, 2), TemporalDecay(0, 3.0, 0.4, 0.7), 0.6)
    at = np.asarray(coordinates(kernel, jnp.asarray(X), X))
    np.testing.assert_allclose(at[:, :2] - at[0, :2], (X[:, 1:] - X[0, 1:]) / 0.5, atol=1e-6)
    lag = (X[1, 0] - X[0, 0]) / (at[1, 2] - at[0, 2])
    assert float(kernel(np.zeros(3), np.array([lag, 0.0, 0.0]))) == pytest.approx(np.exp(-1))


@pytest.mark.quick
def test_what_is_refused():
    time = TemporalDecay(0)
    great_circle = OnSphere(lgp.Matern12(500.0), "great-circle")
    for kernel in (lgp.Matern32(), lgp.Periodic().on(1), great_circle.on(1, 2), lgp.White().on(1)):
        with pytest.raises(lgp.InputError, match="mixture of RBF kernels"):
            Gneiting(kernel, time)
    with pytest.raises(lgp.InputError, match="column 1 as time and among those of space"):
        Gneiting(lgp.Matern32().on(1, 2), TemporalDecay(1))
    with pytest.raises(lgp.InputError, match=r"in degrees, in this order, got \[52.5, 113.4\]"):
        Gneiting(OnSphere(lgp.Matern12(500.0)).on(1, 2), time).check_points(
            np.array([[0.0, 52.5, 113.4]])
        )
    for column in ("t", 1.5, -1, (0, 1)):
        with pytest.raises(lgp.InputError, match="reads one column, of time"):
            TemporalDecay(column)
    for kernel in (AR1(), RandomWalk()):
        with pytest.raises(lgp.InputError, match="reads one column, of times, got 3"):
            kernel.check_inputs(3)
    with pytest.raises(lgp.InputError, match=r"whole numbers of time, got 0\.5"):
        AR1().check_points(np.array([[0.0], [0.5]]))
    with pytest.raises(lgp.InputError, match="starts at 2, got the time 1;"):
        RandomWalk(start=2).check_points(np.array([[3.0], [1.0]]))


LATER = np.array([[3.0], [40.0], [299.0], [310.0]])


@pytest.mark.parametrize("correlation", [0.9, -0.7, 0.0])
def test_an_autoregression_has_the_covariance_of_its_recursion(correlation):
    """f_t = rho f_(t-1) + e_t as a triangular matrix of 300 steps, from the stationary law."""
    kernel, steps = AR1(correlation, variance=1.7), np.arange(311.0)
    lags = np.subtract.outer(steps, steps)
    L = np.where(lags >= 0, np.power(correlation, np.maximum(lags, 0)), 0.0)
    scales = np.sqrt(1.7 * np.where(steps == 0, 1.0, 1 - correlation**2))
    covariance = (L * scales**2) @ L.T
    np.testing.assert_allclose(kernel.gram(steps[:, None], steps[:, None]), covariance, atol=1e-12)
    _is_the_closed_formula(kernel, covariance)


@pytest.mark.parametrize("start", [0.0, -2.0])
def test_a_random_walk_has_the_covariance_of_its_sums(start):
    kernel, steps = RandomWalk(0.3, start=start), np.arange(311.0)
    L = np.tril(np.ones((311, 311))) * np.sqrt(np.append(-start, np.ones(310)))
    covariance = 0.3 * L @ L.T
    np.testing.assert_allclose(kernel.gram(steps[:, None], steps[:, None]), covariance, atol=1e-12)
    _is_the_closed_formula(kernel, covariance)


def _is_the_closed_formula(kernel, covariance):
    """Evidence and predictions of 300 steps, dense and in time, by a covariance of 311 steps."""
    y = np.random.default_rng(6).multivariate_normal(np.zeros(300), covariance[:300, :300])
    law = multivariate_normal(np.zeros(300), covariance[:300, :300] + 0.2 * np.eye(300))
    there = LATER[:, 0].astype(int)
    weights = np.linalg.solve(law.cov, covariance[:300, there])
    variance = np.diag(covariance)[there] - np.sum(weights * covariance[:300, there], axis=0)
    model, data = lgp.LatentGP(kernel, lgp.Gaussian(0.2)), lgp.Data(TIMES[:300], y)
    for method in METHODS:
        found = lgp.fit(model, data, method=method, key=KEY, learn_hyperparameters=False).posterior
        assert float(found.log_evidence) == pytest.approx(law.logpdf(y), rel=1e-9)
        np.testing.assert_allclose(found.predict_f(LATER).mean, y @ weights, atol=1e-8)
        np.testing.assert_allclose(found.predict_f(LATER).variance, variance, atol=1e-8)


def test_the_interaction_is_learned():
    """500 rows say little of it: 0.35 and 0.72 where it is 0 and 1."""
    rng = np.random.default_rng(2)
    stations = np.tile(rng.uniform(0, 5, (20, 2)), (25, 1))
    rows = np.column_stack([np.repeat(np.arange(25.0) / 2, 20), stations])
    found = []
    for interaction in (0.0, 1.0):
        time = TemporalDecay(0, lengthscale=2.0, power=1.0001 - interaction)
        K = np.asarray(Gneiting(lgp.Matern12(1.5).on(1, 2), time, interaction).gram(rows, rows))
        f = np.linalg.cholesky(K + 1e-9 * np.eye(500)) @ rng.normal(size=500)
        data = lgp.Data(rows, f + 0.1 * rng.normal(size=500))
        start = Gneiting(lgp.Matern12(1.0).on(1, 2), TemporalDecay(0))
        model = lgp.LatentGP(start, lgp.Gaussian(0.1))
        kernel = lgp.fit(model, data, method=lgp.ExactGP(), key=KEY).model.kernel
        found.append(float(kernel.interaction))
        assert abs(np.log(kernel.space.kernel.lengthscale / 1.5)) < 0.5
        assert abs(kernel.time.smoothness - 0.5) < 0.15
    assert found[0] < 0.5 < found[1]
    assert found[1] - found[0] > 0.2


TIMES = np.arange(500.0)[:, None]


@pytest.mark.parametrize("correlation", [0.8, -0.6])
def test_an_autoregression_is_learned(correlation):
    rng, f = np.random.default_rng(4), np.zeros(500)
    for t in range(1, 500):
        f[t] = correlation * f[t - 1] + np.sqrt(1 - correlation**2) * rng.normal()
    data = lgp.Data(TIMES, f + 0.3 * rng.normal(size=500))
    model = lgp.LatentGP(AR1(0.1), lgp.Gaussian(0.3))
    runs = [lgp.fit(model, data, method=own, key=KEY) for own in METHODS]
    for run in runs:
        assert abs(run.model.kernel.correlation - correlation) < 0.1
        assert abs(np.log(run.model.likelihood.noise_variance / 0.09)) < 1
    one, other = (run.posterior.log_evidence for run in runs)
    assert float(one) == pytest.approx(float(other), abs=0.05)  # two searches


METHODS = lgp.ExactGP(), lgp.CollapsedVI(lgp.Markov())


@pytest.mark.parametrize("start", [0.0, -3.0])
def test_a_walk_in_time_is_as_dense_algebra(start):
    """From its first row too, where it is zero."""
    rng = np.random.default_rng(5)
    y = 3 + 0.5 * np.cumsum(rng.normal(size=60))
    model = lgp.LatentGP(RandomWalk(0.25, start=start) + lgp.Constant(9.0), lgp.Gaussian(0.1))
    data, new = lgp.Data(TIMES[:60], y), np.array([[0.0], [30.5], [75.0]])
    settings = {"key": KEY, "learn_hyperparameters": False}
    one, other = (lgp.fit(model, data, method=own, **settings).posterior for own in METHODS)
    assert float(one.log_evidence) == pytest.approx(float(other.log_evidence), rel=1e-9)
    np.testing.assert_allclose(one.predict_f(new), other.predict_f(new), rtol=1e-8)


def test_a_start_that_is_no_number():
    with pytest.raises(InputError, match=r"RandomWalk\.start must be in"):
        RandomWalk(start=float("nan"))


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0, 3.0])
def test_a_correlation_of_zero_has_its_slope(x64, gap):
    """A search that starts there leaves it."""
    of = jax.value_and_grad(lambda rho: AR1(rho)(np.zeros(1), np.array([gap])))
    value, slope = of(jnp.asarray(0.0))
    np.testing.assert_allclose([value, slope], [gap == 0, gap == 1], atol=1e-20)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kernel", "along", "rough"),
    [
        (Gneiting(lgp.Matern12().on(1), TemporalDecay(0)), 1, "Matern12"),
        (Gneiting(lgp.Matern32().on(1), TemporalDecay(0)), 0, "Gneiting"),
        (Gneiting(lgp.Matern32().on(1), TemporalDecay(0)), 1, None),
        (Gneiting(PoweredExponential().on(1), TemporalDecay(0)), 1, "PoweredExponential"),
        (Anisotropic(lgp.Matern12()), 0, "Matern12"),
        (RandomWalk().on(0) * lgp.RBF().on(1), 0, "RandomWalk"),
        (RandomWalk().on(0) * lgp.RBF().on(1), 1, None),
        (AR1().on(0) + lgp.RBF().on(1), 0, "AR1"),
    ],
)
def test_derivatives_of_rough_functions_are_refused(kernel, along, rough):
    rows = functionals.derivatives(np.array([[1.0, 0.3], [2.0, 0.7]]), along)
    whole = lgp.Functionals(kernel, columns=2)
    if rough is None:
        whole.check_points(rows)
    else:
        with pytest.raises(InputError, match=f"Functions of {rough} have no derivative"):
            whole.check_points(rows)
