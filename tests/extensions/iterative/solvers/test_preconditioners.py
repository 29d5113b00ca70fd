"""Every preconditioner against its dense formula, near K + noise and near I + W^1/2 K W^1/2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
import linear_systems as cases
from latentgp import InputError
from latentgp.extensions.iterative.solvers.operators import (
    StoredCovariance,
    TiledCovariance,
    noisy_system,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Complete, Identity, draws
from latentgp.extensions.iterative.solvers.preconditioners.iterated import (
    Interpolation,
    Regularised,
    interpolated,
)
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    Fitc,
    Nystrom,
    Pitc,
    PivotedCholesky,
    RandomisedSVD,
    Spectral,
    random_rows,
)
from latentgp.extensions.iterative.solvers.preconditioners.roots import BlockJacobi
from latentgp.kernels.features import random_features
from latentgp.rows.subsets import blocks_of_rows

pytestmark = pytest.mark.usefixtures("x64")

ROWS = np.array([2, 11, 17, 5, 23])
BLOCKS = blocks_of_rows(cases.X, 7)
KEY = 4


def of_inducing(K):
    return K[:, ROWS] @ np.linalg.solve(K[ROWS][:, ROWS], K[ROWS])


def in_blocks(K):
    kept = np.zeros_like(K)
    for block in BLOCKS:
        own = block[block < len(K)]
        kept[np.ix_(own, own)] = K[np.ix_(own, own)]
    return kept


def of_features(K):
    """sigma^2 / m sum cos(w_r' (x_i - x_j)) over the frequencies that were drawn."""
    features = random_features(cases.kernel(), jax.random.key(KEY), 2, 16)
    scaled = cases.X / cases.LENGTHSCALE
    shift = scaled[:, None] - scaled[None]
    waves = features.angles
    angle = shift @ np.asarray(waves.directions.matrix * waves.stretch[:, None]).T
    return cases.VARIANCE * np.mean(np.cos(angle), axis=-1)


def largest_eigenvalues(K):
    values, vectors = np.linalg.eigh(K)
    return vectors[:, -6:] * values[-6:] @ vectors[:, -6:].T


def of_pivots(K):
    """K_XU K_UU^-1 K_UX with U found by the largest of what is left over."""
    rows = []
    for _ in range(6):
        left = K - K[:, rows] @ np.linalg.solve(K[np.ix_(rows, rows)], K[rows]) if rows else K
        rows.append(int(np.argmax(np.diagonal(left))))
    return K[:, rows] @ np.linalg.solve(K[np.ix_(rows, rows)], K[rows])


# What stands in place of K: the recipe, and its dense formula.
DIRECT = {
    "nystrom": (lambda: Nystrom(ROWS), of_inducing),
    "fitc": (
        lambda: Fitc(ROWS),
        lambda K: of_inducing(K) + np.diag(np.diagonal(K - of_inducing(K))),
    ),
    "pitc": (
        lambda: Pitc(ROWS, BLOCKS),
        lambda K: of_inducing(K) + in_blocks(K - of_inducing(K)),
    ),
    "block_jacobi": (lambda: BlockJacobi(BLOCKS), in_blocks),
    "spectral": (lambda: Spectral(jax.random.key(KEY), 16), of_features),
    "svd": (lambda: RandomisedSVD(jax.random.key(KEY), 6, 18), largest_eigenvalues),
    "pivoted": (lambda: PivotedCholesky(6), of_pivots),
    "complete": (lambda: Complete.of, lambda K: K),
}


@pytest.mark.parametrize("system", ["noise", "sites"])
@pytest.mark.parametrize("name", DIRECT)
def test_dense_formula(name, system):
    """Solve, log-determinant and root of those that have them."""
    recipe, formula = DIRECT[name]
    P = recipe()(cases.systems()[system])
    wanted = cases.dense(system, formula(cases.gram()))
    eye = jnp.eye(cases.SIZE)
    np.testing.assert_allclose(P.solve(eye) @ wanted, np.eye(cases.SIZE), atol=1e-7)
    assert float(P.log_determinant()) == pytest.approx(np.linalg.slogdet(wanted)[1], rel=1e-8)
    root = np.asarray(P.times_root(eye))
    np.testing.assert_allclose(root @ root.T, wanted, atol=1e-8)
    np.testing.assert_allclose(P.solve_root(eye) @ root, eye, atol=1e-9)
    np.testing.assert_allclose(P.solve_root(eye, transposed=True), P.solve_root(eye).T, atol=1e-9)


def test_draws_have_the_covariance():
    P = Nystrom(ROWS)(cases.systems()["noise"])
    z = np.asarray(draws(P, jax.random.key(0), cases.SIZE, 4000))
    found = z @ z.T / 4000
    wanted = cases.dense("noise", of_inducing(cases.gram()))
    # var(z_i z_j) = P_ii P_jj + P_ij^2
    spread = np.outer(np.diagonal(wanted), np.diagonal(wanted)) + wanted**2
    assert np.max(np.abs(found - wanted) / np.sqrt(spread / 4000)) < 4.5


@pytest.mark.parametrize("system", ["noise", "sites"])
def test_regularised(system):
    P = Regularised(0.3, tolerance=1e-12)(cases.systems()[system])
    solved, steps = P.counted_solve(jnp.asarray(cases.X))
    wanted = cases.dense(system, cases.gram()) + 0.3 * np.eye(cases.SIZE)
    np.testing.assert_allclose(solved, np.linalg.solve(wanted, cases.X), rtol=1e-9, atol=1e-11)
    assert 0 < steps <= 100
    with pytest.raises(InputError, match="no log-determinant, as it is solved by an iteration"):
        P.log_determinant()


@pytest.mark.parametrize("nearest", [False, True])
def test_interpolation(nearest):
    """W K_UU W' with W written out, one row after another."""
    grid = (9, 6)
    low, high = cases.X.min(axis=0), cases.X.max(axis=0)
    axes = [np.linspace(*ends) for ends in zip(low, high, grid, strict=True)]
    U = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    W = np.zeros((cases.SIZE, len(U)))
    for n, x in enumerate(cases.X):
        along = []
        for value, axis in zip(x, axes, strict=True):
            step = axis[1] - axis[0]
            hat = np.maximum(0, 1 - np.abs(value - axis) / step)
            closest = np.arange(len(axis)) == np.argmin(np.abs(value - axis))
            along.append(closest.astype(float) if nearest else hat)
        W[n] = np.outer(*along).ravel()
    scaled = U / cases.LENGTHSCALE
    squared = np.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
    near = W @ (cases.VARIANCE * np.exp(-0.5 * squared)) @ W.T
    K = interpolated(cases.kernel(), jnp.asarray(cases.X), grid, nearest=nearest)
    np.testing.assert_allclose(cases.matrix(K), near, atol=1e-10)
    if nearest:
        return
    np.testing.assert_allclose(K.diagonal(), np.diagonal(near), atol=1e-10)
    np.testing.assert_allclose(K.block(ROWS), near[ROWS][:, ROWS], atol=1e-10)
    for name, system in cases.systems().items():
        P = Interpolation(grid, tolerance=1e-12)(system)
        wanted = np.linalg.solve(cases.dense(name, near), cases.X)
        np.testing.assert_allclose(P.solve(jnp.asarray(cases.X)), wanted, rtol=1e-8, atol=1e-9)


def test_rank_that_is_not_there_does_no_harm():
    """Equal rows leave nothing to the pivots after the first."""
    K = TiledCovariance(lgp.RBF(lengthscale=jnp.asarray(1.0)), jnp.ones((5, 1)))
    for recipe in PivotedCholesky(4), Nystrom(jnp.arange(4)):
        P = recipe(noisy_system(K, 1e-6))
        wanted = np.linalg.inv(np.ones((5, 5)) + 1e-6 * np.eye(5))
        np.testing.assert_allclose(P.solve(jnp.eye(5)) * 1e-6, wanted * 1e-6, atol=1e-6)


def test_no_preconditioner():
    assert Identity().log_determinant() == 0
    assert draws(Identity(), jax.random.key(0), 3, 2).shape == (3, 2)


def test_rows_of_a_subset_differ():
    assert len(set(random_rows(jax.random.key(1), 50, 20).tolist())) == 20


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (lambda: Spectral(jax.random.key(0), 4), "no features of a Stored"),
        (lambda: Interpolation((4, 4)), "Tiled covariance with a stationary kernel, got Stored"),
    ],
)
def test_recipes_that_need_a_kernel_say_so(recipe, words):
    with pytest.raises(InputError, match=words):
        recipe()(noisy_system(StoredCovariance(jnp.eye(2)), 1.0))


@pytest.mark.parametrize("grid", [(4,), (4, 1)])
def test_a_grid_that_does_not_fit_is_refused(grid):
    with pytest.raises(InputError, match="the inputs have 2 columns"):
        Interpolation(grid)(cases.systems()["noise"])
