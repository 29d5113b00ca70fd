"""Every other approximation on a Gaussian target, against what it is known to find there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from gaussian_targets import NoisyQuadratic, logistic_regression, quadratic
from latentgp.extensions.flows import (
    SWAG,
    Adam,
    BatchAndMatch,
    BayesianLearningRule,
    Covariance,
    Descent,
    EfficientLowRank,
    FactorCovariance,
    FullRank,
    GaussianFlow,
    LaplaceApproximation,
    MeanField,
    Pathfinder,
    SteinVariational,
    VariationalOnlineNewton,
)
from latentgp.extensions.flows.base import Gaussian, Outcome
from latentgp.extensions.flows.front import finished
from latentgp.extensions.flows.natural import MatchState

KEY = jax.random.key(0)
D = 4
TARGET, MEAN, COVARIANCE = quadratic(D, 10.0)
MEAN_FIELD = np.diag(1 / np.diag(TARGET.precision))
pytestmark = pytest.mark.usefixtures("x64")


def fitted(method, target=TARGET, **settings):
    return lgp.gaussian_approximation(target, D, method, key=KEY, **settings)


@pytest.mark.parametrize(
    ("method", "expected", "tolerance"),
    [
        (GaussianFlow(steps=4000), COVARIANCE, 0.05),
        (GaussianFlow(structure="mean-field", steps=4000), MEAN_FIELD, 0.05),
        (MeanField(optimiser=Adam(0.02), steps=4000), MEAN_FIELD, 0.05),
        (FullRank(optimiser=Adam(0.02), steps=4000), COVARIANCE, 0.05),
        (FactorCovariance(rank=D, optimiser=Adam(0.02), steps=4000), COVARIANCE, 1e-3),
        (EfficientLowRank(rank=D, optimiser=Adam(0.02), steps=4000), COVARIANCE, 0.05),
        (BayesianLearningRule(steps=500), COVARIANCE, 1e-8),
        (BayesianLearningRule(hessian=False, rate=0.03), COVARIANCE, 0.1),
        (BatchAndMatch(samples=3), COVARIANCE, 1e-8),
        (BatchAndMatch(falling=False), COVARIANCE, 1e-8),
        (VariationalOnlineNewton(), MEAN_FIELD, 0.05),
        (SteinVariational(kernel="linear", particles=D + 1), COVARIANCE, 1e-4),
        (LaplaceApproximation(), COVARIANCE, 1e-8),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "run") else "",
)
def test_it_finds_the_gaussian_that_it_can(method, expected, tolerance):
    found = fitted(method)
    assert found.converged, found.verdict
    mean_tolerance = min(tolerance, 0.05) if tolerance > 1e-8 else 0.05
    np.testing.assert_allclose(found.mean, MEAN, atol=mean_tolerance)
    np.testing.assert_allclose(found.covariance.dense(), expected, atol=tolerance)


def test_a_low_rank_of_the_gaussian_flow_is_the_best_one():
    """The largest eigenvalues, as of few particles."""
    found = fitted(GaussianFlow(rank=2, steps=6000))
    own = np.linalg.eigvalsh(found.covariance.dense())
    np.testing.assert_allclose(own[2:], np.linalg.eigvalsh(COVARIANCE)[2:], rtol=0.1)
    np.testing.assert_allclose(own[:2], 0, atol=1e-12)


def test_gaussian_flow_steps_are_those_of_the_source():
    """Algorithm 6.1 with -I: one plain step, its expectations by its own draws."""
    method = GaussianFlow(samples=3, optimiser=Descent(0.1), steps=1)
    found = fitted(method, start_std=0.7)
    # The first step's draws, by the keys that the loop makes.
    key = jax.random.fold_in(jax.random.split(KEY)[1], 0)
    normal = np.asarray(jax.random.normal(jax.random.split(key)[0], (3, D)))
    root = 0.7 * np.eye(D)
    gradients = (normal @ root.T - MEAN) @ TARGET.precision
    A = gradients.T @ (normal @ root.T) / 3 - np.eye(D)
    np.testing.assert_allclose(found.mean, -0.1 * gradients.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.covariance.factor, root - 0.1 * A @ root, rtol=1e-10)


def test_batch_and_match_is_the_closed_form_of_the_source():
    """Cai et al. (2024): the solution of S U S + S = V, with the root of a matrix."""
    from scipy.linalg import sqrtm

    rng = np.random.default_rng(2)
    root, mean, rate = rng.normal(size=(D, D)), rng.normal(size=D), 1.7
    points, scores = mean + rng.normal(size=(6, D)) @ root.T, rng.normal(size=(6, D))
    state = MatchState(*map(jnp.asarray, (mean, root, 0.0, 0)))
    after = BatchAndMatch().matched(
        state, jnp.asarray(points), jnp.asarray(scores), jnp.asarray(rate)
    )
    share, centre, score = rate / (1 + rate), points.mean(axis=0), scores.mean(axis=0)
    U = rate * np.cov(scores.T, bias=True) + share * np.outer(score, score)
    V = root @ root.T + rate * np.cov(points.T, bias=True)
    V = V + share * np.outer(mean - centre, mean - centre)
    S = 2 * V @ np.linalg.inv(np.eye(D) + np.real(sqrtm(np.eye(D) + 4 * U @ V)))
    np.testing.assert_allclose(S @ U @ S + S, V, rtol=1e-8)
    np.testing.assert_allclose(after.root @ after.root.T, S, rtol=1e-8)
    np.testing.assert_allclose(after.mean, mean / (1 + rate) + share * (S @ score + centre))
    half = 0.5 * np.linalg.slogdet(S)[1]
    assert float(after.half_log_determinant) == pytest.approx(half, rel=1e-10)


def test_batch_and_match_settles_near_the_best_gaussian_of_another_density():
    """The falling rate averages the noise of draws out."""
    target = logistic_regression()
    found = lgp.gaussian_approximation(target, 2, BatchAndMatch(samples=50), key=KEY)
    flow = lgp.gaussian_approximation(target, 2, key=KEY)
    assert found.converged, found.verdict
    np.testing.assert_allclose(found.mean, flow.mean, atol=0.3 * flow.std.min())
    np.testing.assert_allclose(found.std, flow.std, rtol=0.2)


def test_online_newton_steps_are_those_of_the_source():
    """Shen et al. (2024), algorithm 1, with a weight of one and no weight decay."""
    method = VariationalOnlineNewton(
        samples=1, rate=0.2, momentum=0.8, curvature_rate=0.3, final=1.0, steps=3
    )
    found = fitted(method, start_std=0.7)
    m, h, g = np.zeros(D), np.full(D, 0.7**-2), np.zeros(D)
    for t in range(3):
        key = jax.random.fold_in(jax.random.split(KEY)[1], t)
        noise = np.asarray(jax.random.normal(jax.random.split(key)[0], (1, D)))[0]
        theta = m + noise / np.sqrt(h)
        slope = (theta - MEAN) @ TARGET.precision
        estimate = slope * (theta - m) * h
        g = 0.8 * g + 0.2 * slope
        h = 0.7 * h + 0.3 * estimate + 0.5 * 0.3**2 * (h - estimate) ** 2 / h
        m = m - 0.2 * (g / (1 - 0.8 ** (t + 1))) / h
    np.testing.assert_allclose(found.mean, m, rtol=1e-10)
    np.testing.assert_allclose(found.covariance.variances, 1 / h, rtol=1e-10)


def test_laplace_has_the_curvature_at_the_mode():
    target = logistic_regression()
    found = lgp.gaussian_approximation(target, 2, LaplaceApproximation(), key=KEY)
    np.testing.assert_allclose(jax.grad(target)(found.mean), 0, atol=1e-5)
    expected = np.linalg.inv(-jax.hessian(target)(found.mean))
    np.testing.assert_allclose(found.covariance.dense(), expected, rtol=1e-8)


def test_pathfinder_chooses_by_the_bounds_of_the_gaussians_that_it_gives():
    """The lowest free energy is that of the mean and covariance that are handed out."""
    found = fitted(Pathfinder(memory=D, samples=4000))
    np.testing.assert_allclose(found.mean, MEAN, atol=0.1)
    covariance = np.asarray(found.covariance.dense())
    error = found.mean - MEAN
    energy = 0.5 * (np.trace(TARGET.precision @ covariance) + error @ TARGET.precision @ error)
    exact = energy - 0.5 * np.linalg.slogdet(covariance)[1]
    assert found.free_energy.min() == pytest.approx(exact, abs=0.1)
    best = 0.5 * D - 0.5 * np.linalg.slogdet(COVARIANCE)[1]
    assert exact < best + 0.3


def test_a_path_whose_best_gaussian_is_the_last_that_it_may_have_was_cut_off():
    cut = fitted(Pathfinder(steps=2, memory=D))
    assert not cut.converged
    assert "too few to tell" in cut.verdict
    assert fitted(Pathfinder(memory=D)).converged


def test_a_path_keeps_states_where_blackjaxs_own_gaussians_have_no_bound():
    """On a narrow support draws of the Gaussians that it looks at are outside of it."""

    def inside(x):
        within = (x > 0) & (x < 1)
        z = jnp.where(within, x, 0.5)
        return jnp.sum(jnp.where(within, 3 * jnp.log(z) + 3 * jnp.log1p(-z), -jnp.inf))

    start = {"start": np.full(3, 0.5), "start_std": 0.05}
    found = lgp.gaussian_approximation(inside, 3, Pathfinder(), key=KEY, **start)
    assert np.isfinite(found.free_energy).any()
    assert found.free_energy[np.isfinite(found.free_energy)].min() < found.free_energy[0]


def test_energies_without_an_entropy_do_not_change_with_units():
    """Scales that differ by 1e4 bring steps in units of the curvature."""
    scales = jnp.array([1e-4, 1.0])
    found = lgp.gaussian_approximation(
        lambda x: -0.5 * jnp.sum((x / scales) ** 2),
        2,
        LaplaceApproximation(),
        key=KEY,
        start=np.array([0.0, 3.0]),
    )
    assert "in units of the curvature" in found.verdict
    assert found.free_energy[0] == pytest.approx(4.5)


def test_a_free_energy_that_rises_has_not_stopped():
    steps, method = np.arange(200), lgp.flows.MeanField(steps=200)
    covariance = Covariance.of_variances(jnp.ones(2))
    outcome = Outcome(
        Gaussian(jnp.zeros(2), covariance, None),
        *(0.05 * steps, np.full(200, np.nan), np.array(200), np.array(200)),
        settled=np.array(False),
        finite=np.array(True),
    )
    found = finished(method, outcome)
    assert not found.converged
    assert "still rose, by 2.5 nats" in found.verdict


def test_a_saddle_is_no_mode():
    with pytest.raises(lgp.InputError, match="ended where the log density is not curved"):
        lgp.gaussian_approximation(
            lambda x: x[0] ** 2 - x[0] ** 4 - x[1] ** 2, 2, LaplaceApproximation(), key=KEY
        )


def test_swag_has_the_moments_of_noisy_descent():
    """Of c = eta^2 s^2 lambda / (1 - (1 - eta lambda)^2) in every direction of the precision."""
    rate, noise = 0.05, 0.7
    values, vectors = np.linalg.eigh(TARGET.precision)
    target = NoisyQuadratic(TARGET, vectors * np.sqrt(values), noise)
    method = SWAG(rank=400, every=50, optimiser=Descent(rate), steps=40_000)
    found = fitted(method, target, stochastic=True)
    stationary = (
        vectors * (rate**2 * noise**2 * values / (1 - (1 - rate * values) ** 2))
    ) @ vectors.T
    assert found.covariance.factor.shape == (D, 400)
    np.testing.assert_allclose(found.mean, MEAN, atol=0.05)
    # Half of it is the low rank, half the diagonal (Maddox et al. 2019, 3.3).
    low = np.asarray(found.covariance.factor) @ np.asarray(found.covariance.factor).T
    np.testing.assert_allclose(low, 0.5 * stationary, atol=0.15 * stationary.max())
    np.testing.assert_allclose(found.covariance.diagonal, 0.5 * np.diag(stationary), rtol=0.2)


def test_the_squared_exponential_kernel_has_blackjaxs_steps():
    from blackjax import svgd

    method = SteinVariational(particles=6, optimiser=Descent(0.1), steps=5)
    found = fitted(method)
    import optax

    algorithm = svgd(jax.grad(TARGET), optax.sgd(0.1))
    first = jax.random.normal(jax.random.split(KEY)[0], (6, D))
    from blackjax.vi.svgd import update_median_heuristic

    state = update_median_heuristic(algorithm.init(first, {"length_scale": jnp.ones(())}))
    for _ in range(5):
        state = algorithm.step(state)
    np.testing.assert_allclose(found.particles, state.particles, rtol=1e-8)


@pytest.mark.parametrize("sizes", [None, (1, 3), (1, 1, 1, 1)])
def test_draws_have_the_covariance_without_a_factorisation(sizes):
    """And the elementwise product that is printed in the source (6.16) gives its diagonal alone."""
    factor = np.random.default_rng(0).normal(size=(D, 6))
    covariance = Covariance.of(jnp.asarray(factor), jnp.arange(4.0), sizes)
    draws = np.asarray(covariance.draw(KEY, 40_000))
    dense = np.asarray(covariance.dense())
    std = np.sqrt(np.diag(dense))
    error = 4 * np.outer(std, std) * np.sqrt(2 / len(draws))
    assert np.all(np.abs(np.cov(draws.T) - dense) < error)
    vector = np.arange(1.0, 5.0)
    np.testing.assert_allclose(covariance @ vector, dense @ vector, rtol=1e-12)
    np.testing.assert_allclose(covariance.variances, np.diag(dense), rtol=1e-12)


@pytest.mark.parametrize("rank", [2, 6])
def test_log_densities_are_those_of_a_dense_matrix(rank):
    from scipy.stats import multivariate_normal

    rng = np.random.default_rng(1)
    covariance = Covariance.of(jnp.asarray(rng.normal(size=(D, rank))), jnp.full(D, 0.3))
    points = rng.normal(size=(5, D))
    expected = multivariate_normal(np.zeros(D), np.asarray(covariance.dense())).logpdf(points)
    np.testing.assert_allclose(covariance.log_density(jnp.asarray(points)), expected, rtol=1e-10)


def test_double_precision_outlasts_the_context():
    with jax.enable_x64(True):
        found = fitted(LaplaceApproximation())
    with jax.enable_x64(False):
        dense = found.covariance.dense()
        assert dense.dtype == found.sample(KEY, 3).dtype == np.float64
        np.testing.assert_allclose(dense, COVARIANCE, atol=1e-10)
        assert np.asarray(found.log_prob(MEAN)).dtype == np.float64
