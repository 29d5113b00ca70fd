"""Stochastic gradients of the log evidence against dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hadamard

import latentgp as lgp
from latentgp.extensions.iterative.gradients import gradient
from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.extensions.iterative.gradients.langevin import metric_at
from latentgp.setup.priors import scales, space_of
from latentgp.site_inference.search.profiled_bound import evaluate, initial_sites

pytestmark = pytest.mark.usefixtures("x64")

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (16, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * _rng.normal(size=16)
WEIGHTS = np.where(np.arange(16) == 3, 0.0, np.where(np.arange(16) == 5, 2.0, 1.0))
DATA = lgp.Data(X, Y, weights=WEIGHTS)
MODEL = lgp.LatentGP(
    lgp.Matern32(lengthscale=[0.8, 2.0], variance=1.5), lgp.Gaussian(0.05), lgp.ConstantMean(0.2)
)
ALGORITHM = lgp.ExactGP().algorithm(MODEL)


def evidence(**settings):
    space = space_of(MODEL, scales(MODEL, DATA), "weak")
    solves = lgp.Solves(**settings).settled(16)
    return SolvedEvidence(ALGORITHM, space, DATA.to_device(), solves)


def exact(own):
    place = jnp.asarray(own.space.to_vector())
    sites = initial_sites(ALGORITHM, MODEL, own.data)
    return place, np.asarray(evaluate(ALGORITHM, own.space, place, own.data, sites).gradient)


@pytest.mark.parametrize(
    ("rank", "stored"), [(0, True), (5, True), (5, False)], ids=["plain", "Nyström", "tiles"]
)
def test_signs_that_are_all_orthogonal_give_the_exact_gradient(rank, stored):
    own = evidence(probes=16, rank=rank, stored=stored, tolerance=1e-11)
    place, wanted = exact(own)
    nothing = jnp.zeros(2, jnp.uint32)
    probes = Probes(jnp.asarray(hadamard(16).astype(float)), jnp.arange(rank), nothing)

    @jax.jit
    def run(start):
        return own.slope(place, probes, start, jax.random.key(0))

    found = run(own.no_solution())
    np.testing.assert_allclose(found.gradient, wanted, rtol=1e-7, atol=1e-8)
    assert found.solved
    # From its own solution there is nothing left to be done.
    assert run(found.solution).steps <= 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"solver": "ulisse", "threshold": 0.3, "rate": 0.1}, {"pathwise": True}],
    ids=["signs", "ulisse", "pathwise"],
)
def test_gradients_are_unbiased_and_tell_their_spread(settings, monkeypatch):
    monkeypatch.setattr(gradient, "_FEATURES", 32)
    own = evidence(probes=4, rank=3, tolerance=1e-9, **settings)
    place, wanted = exact(own)

    @jax.jit
    def run(keys):
        def one(key):
            found = own.slope(place, own.probes(key), own.no_solution(), key)
            return found.gradient, found.covariance

        return jax.lax.map(one, keys)

    gradients, covariances = map(np.asarray, run(jax.random.split(jax.random.key(0), 1500)))
    spread = gradients.std(axis=0, ddof=1)
    moving = spread > 1e-6  # the prior mean's is exact where solves are
    error = np.abs(gradients.mean(axis=0) - wanted)[moving]
    assert np.all(error < 4 * spread[moving] / np.sqrt(len(gradients)))
    np.testing.assert_allclose(error[~moving[moving]], 0, atol=1e-6)
    told = np.sqrt(np.diagonal(covariances.mean(axis=0)))
    np.testing.assert_allclose(told[moving], spread[moving], rtol=0.2)


def test_solves_that_run_out_of_steps_are_said():
    own = evidence(rank=0, max_steps=2)
    place = jnp.asarray(own.space.to_vector())
    probes = own.probes(jax.random.key(1))
    assert not jax.jit(
        lambda: own.slope(place, probes, own.no_solution(), jax.random.key(0))
    )().solved


def test_settings_are_checked_and_settled():
    assert lgp.Solves().settled(100) == lgp.Solves(rank=20, stored=True)
    assert not lgp.Solves().settled(5_000).stored
    assert lgp.Solves(rank=50).settled(10).rank == 10
    for wrong in ({"probes": 1}, {"rank": -1}, {"tolerance": 0.0}, {"rate": -1.0}):
        with pytest.raises(lgp.InputError, match=r"Solves[. ]"):
            lgp.Solves(**wrong)
    with pytest.raises(lgp.InputError, match="multiplies solutions"):
        lgp.Solves(solver="ulisse", pathwise=True)


def test_solutions_for_paths_are_near_those_at_hyperparameters_near_by():
    """Paths stretch with length-scales, so that a solve that starts at the last one is short."""
    own = evidence(rank=0, pathwise=True, tolerance=1e-6)
    place = jnp.asarray(own.space.to_vector())
    probes = own.probes(jax.random.key(1))

    @jax.jit
    def run(vector, start):
        return own.slope(vector, probes, start, jax.random.key(0))

    cold, moved = own.no_solution(), place + 1e-3
    solution = run(place, cold).solution
    after = run(moved, cold)
    assert run(moved, solution).steps < after.steps
    change = np.linalg.norm(after.solution - solution)
    assert change < 0.02 * np.linalg.norm(solution)


def test_the_metric_is_the_inverse_of_the_curvature():
    precision = np.array([[4.0, 1.0], [1.0, 2.0]])
    found = metric_at(lambda x: -precision @ x, np.array([0.3, -1.0]))
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(precision), rtol=1e-8)
    flat = metric_at(lambda x: -np.array([4.0, 0.0]) * x, np.zeros(2))
    assert flat.flat == 1
    np.testing.assert_allclose(flat.root, np.diag([0.5, 2.0]), rtol=1e-6)
