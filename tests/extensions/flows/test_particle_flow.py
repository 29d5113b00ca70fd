"""The Gaussian particle flow against the theorems of its source, and Stein's equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import latentgp as lgp
from gaussian_targets import banana, logistic_regression, quadratic
from latentgp.extensions.flows import Adam, Descent, GaussianParticleFlow, RMSProp
from latentgp.extensions.flows.base import LogDensity
from latentgp.extensions.flows.particle_flow import standard_particles

KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("x64")


def gradients(target, particles):
    return LogDensity(target).gradients(particles, KEY)


def integrated(target, particles, time, steps=400):
    """Particles after some time of the continuous flow, by Runge and Kutta's fourth order."""
    flow = GaussianParticleFlow()

    def velocity(x):
        return -flow.flow(x, gradients(target, x)[1], "none").total

    def step(x, _):
        h = time / steps
        a = velocity(x)
        b = velocity(x + h / 2 * a)
        c = velocity(x + h / 2 * b)
        return x + h / 6 * (a + 2 * b + 2 * c + velocity(x + h * c)), None

    return jax.jit(lambda x: jax.lax.scan(step, x, None, steps)[0])(particles)


@pytest.mark.parametrize("condition", [1.0, 10.0, 100.0])
def test_it_is_exact_for_gaussians_with_one_particle_more_than_dimensions(condition):
    target, mean, covariance = quadratic(6, condition)
    found = lgp.gaussian_approximation(target, 6, GaussianParticleFlow(particles=7), key=KEY)
    assert found.converged
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance.dense(), covariance, atol=1e-8)
    assert found.particles.shape == (7, 6)
    assert found.steps < 30


@pytest.mark.parametrize("number", [3, 6, 9])
def test_the_flow_is_that_of_the_source(number):
    """Algorithm 6.2 with the matrix formed, and the natural gradients; of no Gaussian target."""

    def target(x):
        return -jnp.sum(jnp.cosh(x - 0.3)) - 0.5 * jnp.sum(x) ** 2

    particles = np.random.default_rng(1).normal(size=(number, 5))
    energies, g = gradients(target, particles)
    mean = particles.mean(axis=0)
    centred, C = particles - mean, np.cov(particles.T, bias=True)
    A = np.asarray(g).T @ centred / number - np.eye(5)
    method = GaussianParticleFlow()
    plain = method.flow(particles, g, "none")
    np.testing.assert_allclose(plain.total, centred @ A.T + g.mean(axis=0), atol=1e-10)
    natural = method.flow(particles, g, "mean")
    np.testing.assert_allclose(natural.covered, C @ g.mean(axis=0), atol=1e-10)
    full = method.flow(particles, g, "full")
    # In white coordinates z, C = W W': the symmetric part of E[W'g z'] - I.
    values, vectors = np.linalg.eigh(C)
    kept = values > 1e-9
    W = vectors[:, kept] * np.sqrt(values[kept])
    z = centred @ np.linalg.pinv(W).T
    inner = W.T @ np.asarray(g).T @ z / number - np.eye(kept.sum())
    np.testing.assert_allclose(full.spread, 0.5 * z @ (inner + inner.T) @ W.T, atol=1e-9)
    np.testing.assert_allclose(full.rest @ W, 0, atol=1e-9)
    if number > 5:
        np.testing.assert_allclose(full.rest, 0, atol=1e-9)
    by_eigenvalues = np.mean(energies) - 0.5 * np.sum(np.log(values[values > 1e-9]))
    np.testing.assert_allclose(method.free_energy(particles, energies), by_eigenvalues, rtol=1e-10)


def test_the_rates_of_the_second_theorem():
    """m - mu by exp(-Lambda t), tr(C^-1 - Lambda) by exp(-2 t)."""
    target, mean, _ = quadratic(4, 10.0)
    precision, time = target.precision, 0.3
    start = 2.0 + standard_particles(KEY, 5, (4,), jnp.float64) * np.array([0.3, 0.5, 1.0, 2.0])
    after = np.asarray(integrated(target, start, time))
    values, vectors = np.linalg.eigh(precision)
    decay = (vectors * np.exp(-values * time)) @ vectors.T
    np.testing.assert_allclose(
        after.mean(axis=0) - mean, decay @ (np.asarray(start).mean(axis=0) - mean), atol=1e-7
    )

    def excess(particles):
        C = np.cov(np.asarray(particles).T, bias=True)
        return np.trace(np.linalg.inv(C) - precision)

    assert excess(after) == pytest.approx(np.exp(-2 * time) * excess(start), rel=1e-7)


@pytest.mark.parametrize("number", [3, 5])
def test_the_spectrum_of_the_third_theorem(number):
    """Few particles: an exact mean, and eigenvalues that are the largest of the target's."""
    target, mean, covariance = quadratic(6, 100.0)
    method = GaussianParticleFlow(particles=number, tolerance=1e-10)
    found = lgp.gaussian_approximation(target, 6, method, key=KEY)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    own = np.linalg.eigvalsh(found.covariance.dense())[::-1]
    largest = np.linalg.eigvalsh(covariance)[::-1]
    np.testing.assert_allclose(own[: number - 1], largest[: number - 1], rtol=1e-6)
    np.testing.assert_allclose(own[number - 1 :], 0, atol=1e-9)
    assert f"at most rank {number - 1} of 6" in found.verdict
    with pytest.raises(lgp.InputError, match="rank below 6"):
        found.log_prob(np.zeros(6))


def test_plain_steps_with_few_particles_end_at_a_part_of_the_spectrum():
    target, mean, covariance = quadratic(4, 10.0)
    method = GaussianParticleFlow(particles=3, optimiser=Descent(0.05), steps=20_000)
    found = lgp.gaussian_approximation(target, 4, method, key=KEY)
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    own = np.linalg.eigvalsh(found.covariance.dense())[-2:]
    apart = np.abs(own[:, None] - np.linalg.eigvalsh(covariance))
    np.testing.assert_allclose(apart.min(axis=1), 0, atol=1e-4)


@pytest.mark.parametrize("optimiser", [None, Descent(0.01)])
def test_the_free_energy_never_rises(optimiser):
    method = GaussianParticleFlow(particles=10, optimiser=optimiser, steps=500)
    found = lgp.gaussian_approximation(banana, 2, method, key=KEY, start=[0.0, 8.0])
    assert np.all(np.diff(found.free_energy) <= 1e-9)
    assert found.free_energy[-1] < found.free_energy[0] - 0.5


def test_steins_equations_hold_for_the_particles():
    """E[g] = 0 and E[g (x - m)'] = I, for a target that is no Gaussian.

    Of the natural flow, which turns no particles, the second in its symmetric part.
    """
    target = logistic_regression()
    for metric, optimiser, steps in [("full", None, 500), ("mean", Descent(0.5), 20_000)]:
        method = GaussianParticleFlow(
            particles=12, metric=metric, optimiser=optimiser, steps=steps, tolerance=1e-9
        )
        found = lgp.gaussian_approximation(target, 2, method, key=KEY)
        assert found.converged
        _, g = gradients(target, found.particles)
        np.testing.assert_allclose(g.mean(axis=0), 0, atol=1e-7)
        E, C = np.asarray(g).T @ (found.particles - found.mean) / 12, found.covariance.dense()
        if metric == "full":
            E = 0.5 * (C @ E @ np.linalg.inv(C) + E.T)
        np.testing.assert_allclose(E, np.eye(2), atol=1e-7)


def energy_by_nodes(target):
    """Free energy and slope of Gaussians of two dimensions, by Gauss and Hermite's nodes.

    Of the mean, and of the lower factor of the covariance with logarithms on its diagonal.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    weight = np.outer(weights, weights).ravel() / (2 * np.pi)

    @jax.jit
    @jax.value_and_grad
    def free_energy(parameters):
        root = jnp.array([[jnp.exp(parameters[2]), 0.0], [parameters[3], jnp.exp(parameters[4])]])
        points = parameters[:2] + grid @ root.T
        return -weight @ jax.vmap(target)(points) - parameters[2] - parameters[4]

    return free_energy


@pytest.mark.parametrize("metric", ["none", "mean", "full"])
def test_blocks_of_one_size_are_made_together(metric):
    """Each block flows by itself, whatever the order of their sizes; the program does not grow."""
    sizes, random = (1, 2, 1, 2, 1), np.random.default_rng(0)
    particles, gradients = (jnp.asarray(random.normal(size=(9, 7))) for _ in range(2))
    flow = GaussianParticleFlow(structure=sizes).flow(particles, gradients, metric)
    ends = np.cumsum(sizes)
    for size, end in zip(sizes, ends, strict=True):
        own = slice(end - size, end)
        alone = GaussianParticleFlow().flow(particles[:, own], gradients[:, own], metric)
        for found, expected in zip(flow, alone, strict=True):
            np.testing.assert_allclose(found[..., own], expected, atol=1e-12)

    def lines(number):
        method = GaussianParticleFlow(structure=(2, *[1] * number))
        given = jnp.ones((9, 2 + number)), jnp.ones((9, 2 + number))

        def both(x, g):
            return method.flow(x, g, "full"), method.free_energy(x, g[:, 0])

        return str(jax.make_jaxpr(both)(*given)).count("\n")

    assert lines(20) == lines(10)


def test_blocks_of_few_particles_are_not_alike():
    """128 particles, a power of two, for blocks of more dimensions than that in all."""
    drawn = np.asarray(standard_particles(KEY, 128, (2, *[1] * 150), jnp.float64))
    apart = np.abs(np.corrcoef(drawn.T)[2:, 2:] - np.eye(150))
    assert apart.max() < 0.6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_is_near_the_best_gaussian_of_a_banana(seed):
    """With one particle more than dimensions it would be 100 nats off."""
    free_energy = energy_by_nodes(banana)
    best = minimize(free_energy, np.array([0.0, 8.0, 1.0, 0.0, 1.0]), jac=True, tol=1e-10)
    found = lgp.gaussian_approximation(banana, 2, key=jax.random.key(seed))
    assert found.converged
    root = np.linalg.cholesky(found.covariance.dense())
    own = [*found.mean, np.log(root[0, 0]), root[1, 0], np.log(root[1, 1])]
    assert float(free_energy(np.array(own))[0]) - best.fun < 0.02


def test_many_particles_find_the_best_gaussian():
    """Against the free energy by Gauss and Hermite's nodes, minimised by SciPy."""
    target = logistic_regression()
    best = minimize(energy_by_nodes(target), np.zeros(5), jac=True, tol=1e-10)
    root = np.array([[np.exp(best.x[2]), 0.0], [best.x[3], np.exp(best.x[4])]])
    method = GaussianParticleFlow(particles=4000, tolerance=1e-3)
    found = lgp.gaussian_approximation(target, 2, method, key=KEY)
    np.testing.assert_allclose(found.mean, best.x[:2], atol=0.05)
    np.testing.assert_allclose(found.covariance.dense(), root @ root.T, rtol=0.05, atol=0.03)
    assert found.free_energy[-1] == pytest.approx(best.fun, abs=0.03)


@pytest.mark.parametrize(
    ("structure", "blocks"), [("mean-field", [[0], [1], [2], [3]]), ((1, 3), [[0], [1, 2, 3]])]
)
def test_blocks_have_the_inverses_of_the_precisions_blocks(structure, blocks):
    target, mean, _ = quadratic(4, 10.0)
    method = GaussianParticleFlow(structure=structure, tolerance=1e-10)
    found = lgp.gaussian_approximation(target, 4, method, key=KEY)
    expected = np.zeros((4, 4))
    for own in blocks:
        expected[np.ix_(own, own)] = np.linalg.inv(target.precision[np.ix_(own, own)])
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance.dense(), expected, atol=1e-8)


@pytest.mark.parametrize("optimiser", [Adam(0.05), RMSProp(0.05)])
def test_dimension_wise_steps_keep_particles_an_affine_image(optimiser):
    """Of six particles in two dimensions: other optimisers twist them (Galy-Fajou 2022, H)."""
    target, mean, covariance = quadratic(2, 10.0)
    method = GaussianParticleFlow(particles=6, optimiser=optimiser, steps=3000)
    found = lgp.gaussian_approximation(target, 2, method, key=KEY)
    first = standard_particles(jax.random.split(KEY)[0], 6, (2,), jnp.float64)
    design = np.column_stack([first, np.ones(6)])
    fitted = design @ np.linalg.lstsq(design, found.particles, rcond=None)[0]
    np.testing.assert_allclose(found.particles, fitted, atol=1e-9)
    np.testing.assert_allclose(found.mean, mean, atol=2e-2)
    np.testing.assert_allclose(found.covariance.dense(), covariance, atol=2e-2)


def test_optimisers_are_those_of_the_source():
    """Appendix H, step by step in NumPy."""
    rng = np.random.default_rng(0)
    flows = rng.normal(size=(4, 5, 2))
    squares = np.mean(flows**2, axis=1)
    for optimiser, expected in [
        (RMSProp(0.1, final=1.0), _rms(flows, squares)),
        (Adam(0.1, final=1.0), _adam(flows, squares)),
    ]:
        transformation = optimiser.transformation(10, of_particles=True)
        state = transformation.init(flows[0])
        for flow, step in zip(flows, expected, strict=True):
            update, state = transformation.update(jnp.asarray(flow), state)
            np.testing.assert_allclose(update, -0.1 * step, rtol=1e-6)


def _rms(flows, squares, decay=0.9):
    v = np.zeros(2)
    for flow, square in zip(flows, squares, strict=True):
        v = decay * v + (1 - decay) * square
        yield flow / np.sqrt(v)


def _adam(flows, squares, first=0.9, second=0.999):
    m, v = np.zeros((5, 2)), np.zeros(2)
    for t, (flow, square) in enumerate(zip(flows, squares, strict=True), start=1):
        m = first * m + (1 - first) * flow
        v = second * v + (1 - second) * square
        yield m / (1 - first**t) / np.sqrt(v / (1 - second**t))


def test_mini_batches_of_rows():
    """A key chooses a batch: the result is that of all rows, but for noise."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 2))
    y = X @ [1.0, -0.5] + 0.5 * rng.normal(size=60)
    precision = X.T @ X / 0.25 + np.eye(2)
    mean = np.linalg.solve(precision, X.T @ y / 0.25)

    def log_density(w, key):
        batch = jax.random.choice(key, 60, (20,), replace=False)
        error = jnp.asarray(y)[batch] - jnp.asarray(X)[batch] @ w
        return -0.5 * 3 * jnp.sum(error**2) / 0.25 - 0.5 * jnp.sum(w**2)

    method = GaussianParticleFlow(steps=3000)
    found = lgp.gaussian_approximation(log_density, 2, method, key=KEY, stochastic=True)
    std = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(found.mean, mean, atol=0.5 * std.max())
    np.testing.assert_allclose(found.std, std, rtol=0.15)
    assert np.isnan(found.change).all()
