"""Riemann manifold trajectories: metrics as published, steps that keep volume, known posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Gamma

import latentgp as lgp
from latentgp.extensions.chains.coordinates import coordinates_at
from latentgp.extensions.chains.information import information_of_latents, with_prior
from latentgp.extensions.chains.latents.riemannian import (
    RiemannianHamiltonian,
    curvature_metric,
    homogeneous_metric,
)
from latentgp.extensions.chains.loop import run_chains
from latentgp.extensions.chains.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.runtime.progress import RunControl

RNG = np.random.default_rng(0)
ROWS, CLASSES, PARTS = 7, 3, 2
X = RNG.normal(size=(ROWS, PARTS))
Y = np.array([0.0, 1, 2, 1, 1, 0, 1])
KERNEL = lgp.PerLatentSum(
    tuple(lgp.Precomputed.of(lgp.RBF().on(d), X) for d in range(PARTS)),
    RNG.uniform(0.5, 2.0, (CLASSES, PARTS)),
)
MODEL = lgp.LatentGP(KERNEL, lgp.Softmax(CLASSES))
PRIORS = {"kernel.weights": Gamma(2.0, 2.0)}
NUMBERS = np.arange(float(ROWS))


@pytest.fixture(scope="module")
def target():
    with jax.enable_x64(True):
        space = ParameterSpace(MODEL, priors=PRIORS)
        yield WhiteTarget.of(space, lgp.Dense(), lgp.Data(NUMBERS, Y).to_device())


def in_f(coordinates, metric):
    """A metric of coordinates as one of f, latent functions first."""
    root = jax.scipy.linalg.block_diag(*coordinates.root)
    inverse = np.linalg.inv(root)
    return inverse.T @ metric @ inverse


def prior_precision(target):
    grams = MODEL.kernel.gram(target.data.X, target.data.X)
    return jax.scipy.linalg.block_diag(*np.linalg.inv(grams))


def curvature(probabilities):
    """Diag(pi) - Phi Phi' (Filippone et al. 2012, 3) of probabilities of shape (N, Q)."""
    stacked = np.vstack([np.diag(column) for column in probabilities.T])
    return np.diag(probabilities.T.ravel()) - stacked @ stacked.T


@pytest.mark.parametrize("coupling", ["whitened", "sites"])
def test_metrics_of_latent_functions_are_those_published(x64, target, coupling):
    anchor = Marginals(jnp.zeros((ROWS, CLASSES)), jnp.ones((ROWS, CLASSES)))
    coordinates = coordinates_at(target, MODEL, coupling, anchor)
    eps = jnp.asarray(RNG.normal(size=(CLASSES, ROWS)))
    f = coordinates.centre + coordinates.shift(eps)

    def potential(q):
        eps = q.reshape(CLASSES, ROWS)
        return 0.5 * jnp.sum(eps**2) - coordinates.residual(target, MODEL, eps)

    own = curvature_metric(target, MODEL, coordinates, f)
    np.testing.assert_allclose(own, jax.hessian(potential)(eps.ravel()), atol=1e-8)
    found = in_f(coordinates, own)
    expected = prior_precision(target) + curvature(np.asarray(jax.nn.softmax(f)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    found = in_f(coordinates, homogeneous_metric(target, MODEL, coordinates))
    shares = np.bincount(np.asarray(target.data.y).astype(int)) / ROWS
    expected = prior_precision(target) + curvature(np.tile(shares, (ROWS, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    move = RiemannianHamiltonian("identity").within(target, MODEL, coordinates)
    np.testing.assert_allclose(
        in_f(coordinates, move.root @ move.root.T), np.eye(ROWS * CLASSES), atol=1e-6
    )


def test_the_metric_of_weights_is_that_published(x64, target):
    """exp(t_r + t_j) Tr(K^-1 C_r K^-1 C_j) / 2 of each class, and the Gamma law's curvature."""
    vector = jnp.asarray(target.space.to_vector())
    weights = np.exp(vector).reshape(CLASSES, PARTS)
    parts = [part.gram(target.data.X, target.data.X) for part in KERNEL.parts]
    expected = np.diag(2.0 * weights.ravel())
    for c in range(CLASSES):
        inverse = np.linalg.inv(sum(w * C for w, C in zip(weights[c], parts, strict=True)))
        for j in range(PARTS):
            for r in range(PARTS):
                trace = np.trace(inverse @ parts[r] @ inverse @ parts[j])
                expected[c * PARTS + j, c * PARTS + r] += (
                    0.5 * weights[c, j] * weights[c, r] * trace
                )
    found = with_prior(target, vector, information_of_latents(target, vector)).matrix
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def banana(q):
    return 0.5 * q[0] ** 2 + 0.5 * (q[1] - q[0] ** 2) ** 2 + 0.1 * q[0] ** 4


def bent(q):
    return jnp.array([[1.5 + q[0] ** 2, 0.3 * jnp.sin(q[1])], [0.3 * jnp.sin(q[1]), 1.0]])


def test_energies_are_kept_to_second_order_and_constant_metrics_agree(x64):
    """The error of H falls fourfold where the step is halved; both kinds of step agree."""
    start, key = jnp.array([0.3, -0.4]), jax.random.key(1)
    whole, half = (
        implicit_trajectory(banana, bent, start, jnp.array(scale), jnp.array(steps), key)
        for scale, steps in ((0.2, 3), (0.1, 6))
    )
    assert not whole.failed
    assert not half.failed
    assert 3 < float(whole.log_ratio / half.log_ratio) < 5.5
    root = jnp.array([[1.2, 0.0], [0.4, 0.9]])
    rest = start, jnp.array(0.2), jnp.array(4), key
    one = explicit_trajectory(banana, root, *rest)
    other = implicit_trajectory(banana, lambda q: root @ root.T + 0.0 * q[0], *rest)
    np.testing.assert_allclose(one.place, other.place, rtol=1e-7)
    assert float(one.log_ratio) == pytest.approx(float(other.log_ratio), abs=1e-7)


def test_equations_without_a_solution_refuse_the_proposal(x64):
    start, scale, steps = jnp.array([0.3, -0.4]), jnp.array(8.0), jnp.array(2)
    end = implicit_trajectory(banana, bent, start, scale, steps, jax.random.key(1))
    assert bool(end.failed)
    assert float(end.log_ratio) == -np.inf


def test_chains_leave_a_bent_law_as_it_is(x64):
    """Independent draws stay draws of the same law: moments after steps beside those before."""
    chains, scale, steps = 4000, jnp.array(0.4), jnp.array(3)
    keys = jax.random.split(jax.random.key(0), (3, chains))
    first = jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys[0])

    def potential(q):  # z = (q_0, q_1 - q_0^2) is standard normal, with volume one
        return 0.5 * q[0] ** 2 + 0.5 * (q[1] - q[0] ** 2) ** 2

    start = jnp.stack([first[:, 0], first[:, 1] + first[:, 0] ** 2], axis=1)

    def move(q, key):
        key_move, key_accept = jax.random.split(key)
        end = implicit_trajectory(potential, bent, q, scale, steps, key_move)
        taken = jnp.log(jax.random.uniform(key_accept)) < end.log_ratio
        return jnp.where(taken, end.place, q), end.failed, taken

    places = start
    for turn in (1, 2):
        places, failed, taken = jax.jit(jax.vmap(move))(places, keys[turn])
    assert 0.6 < float(jnp.mean(taken)) < 1.0
    assert float(jnp.mean(failed)) < 0.2
    z = np.stack([places[:, 0], places[:, 1] - places[:, 0] ** 2], axis=1)
    error = 1 / np.sqrt(chains)
    assert np.all(np.abs(z.mean(axis=0)) < 4 * error)
    assert np.all(np.abs((z**2).mean(axis=0) - 1) < 4 * np.sqrt(2) * error)
    assert abs((z[:, 0] * z[:, 1]).mean()) < 4 * error


GRAMS = np.array([[[1.0, 0.5], [0.5, 1.0]], [[1.0, -0.4], [-0.4, 2.0]]])


def tiny():
    """Two rows of a Bernoulli model, and the logarithms of two weights under Gamma laws."""
    kernel = lgp.WeightedSum([lgp.Precomputed(gram) for gram in GRAMS])
    model = lgp.LatentGP(kernel, lgp.Bernoulli())
    space = ParameterSpace(model, priors=PRIORS)
    return WhiteTarget.of(space, lgp.Dense(), lgp.Data([0.0, 1.0], [1.0, 1.0]).to_device())


@pytest.fixture(scope="module")
def known_moments():
    """Means of log weights, f and their squares and products, by quadrature."""
    axis = np.linspace(-6.0, 3.0, 46)
    nodes, masses = np.polynomial.hermite_e.hermegauss(30)
    z = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    mass = np.outer(masses, masses).ravel()
    total, sums = 0.0, np.zeros(10)
    for a in axis:
        for b in axis:
            logs = np.array([a, b])
            weights = np.exp(logs)
            f = z @ np.linalg.cholesky(np.tensordot(weights, GRAMS, 1)).T
            density = mass * np.prod(1 / (1 + np.exp(-f)), axis=1)
            density = density * np.prod(weights**2 * np.exp(-2 * weights))
            total += density.sum()
            sums += density @ figures(np.broadcast_to(logs, f.shape), f)
    return sums / total


def figures(logs, f):
    products = logs[..., :1] * f[..., :1], f[..., :1] * f[..., 1:]
    return np.concatenate([logs, logs**2, f, f**2, *products], axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric", [pytest.param("riemannian", marks=pytest.mark.slow), "identity", "homogeneous"]
)
def test_chains_of_weights_and_latents_have_the_moments_of_quadrature(x64, metric, known_moments):
    latents, hyper, coupling = f"{metric}-hmc", f"{metric}-hmc", "centred"
    if metric == "homogeneous":
        hyper, coupling = "random-walk", "whitened"
    method = lgp.MCMC(
        latents=latents, hyperparameters=hyper, coupling=coupling, warmup=100, draws=600, repeats=2
    )
    control = RunControl(0.0, None, None, 0)
    draws = run_chains(method.sampler(tiny()), method, np.arange(2), jax.random.key(0), control)
    found = figures(draws.vector, draws.f[..., 0])
    parts = found.reshape(4 * 12, 50, -1).mean(axis=1)
    error = parts.std(axis=0, ddof=1) / np.sqrt(len(parts))
    off = (parts.mean(axis=0) - known_moments) / error
    assert np.all(np.abs(off) < 4.5), off
    assert np.all(error < 0.25 * np.sqrt(found.var(axis=(0, 1))))  # it would see something wrong
    refused = draws.statistics["diverging"].mean()
    assert refused < (0.35 if metric == "riemannian" else 0.05)
