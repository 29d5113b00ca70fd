"""Products on grids against the Gram matrix, and which rows and kernels have a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.iterative.solvers.operators import TiledCovariance
from latentgp.extensions.iterative.solvers.structured import factor_columns, find_grid

_rng = np.random.default_rng(0)
UNEVEN = np.sort(_rng.uniform(0, 4, 11)), np.r_[0.0, 0.3, 1.1, 1.2, 3.0]


def combined(*axes):
    """Most combinations of points, in random order, one of them twice."""
    X = np.stack(np.meshgrid(*axes), -1).reshape(-1, len(axes))
    X = X[_rng.permutation(len(X))[: int(0.8 * len(X))]]
    return np.concatenate([X, X[:1]])


def doubled(points):
    """Inputs of which the last column is a number of its own."""
    return np.concatenate([points, np.full((len(points), 1), 3.0)], axis=1)


LINE = 0.1 * np.delete(np.arange(60.0), slice(20, 27))[:, None] - 1e3
EVEN = combined(np.linspace(0, 1, 7), np.linspace(-3, 2, 6))
GRIDS = {
    "line": (LINE, lgp.Matern32(lengthscale=0.4), "Toeplitz products on 60 "),
    "lattice": (EVEN, lgp.Matern52(lengthscale=[0.5, 2.0]), "Toeplitz products on 7 x 6 "),
    "sum": (EVEN, lgp.Matern12().on(0) + 0.5 * lgp.RBF().on(1), "Toeplitz products on 7 x 6 "),
    "constant column": (doubled(LINE), lgp.RBF(lengthscale=0.5), "Toeplitz products on 60 "),
    "grid": (combined(*UNEVEN), lgp.RBF(lengthscale=[0.9, 1.3]), "Kronecker products on a grid of"),
    "factors": (
        combined(*UNEVEN, [0.0, 1.0]),
        2.0 * lgp.Matern32(variance=0.7).on(0) * lgp.Matern52(lengthscale=2.0).on([2, 1]),
        "Kronecker products on a grid of 11 x 10 ",
    ),
}


@pytest.mark.parametrize("case", GRIDS)
def test_products_and_slopes(case):
    X, kernel, words = GRIDS[case]
    generator = np.random.default_rng(1)
    left, right = (jnp.asarray(generator.normal(size=(len(X), 3))) for _ in range(2))
    grid = find_grid((kernel,), X)
    assert words in grid.words
    with jax.enable_x64(True):
        kernel, X, left, right = jax.tree.map(jnp.float64, (kernel, X, left, right))
        K = grid.covariance(kernel, X)
        dense = kernel.symmetric_gram(X)
        np.testing.assert_allclose(K.times(right), dense @ right, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(K.columns(jnp.array([2, 5])), dense[:, [2, 5]], atol=1e-9)
        exact = jax.grad(lambda k: jnp.sum(left * (k.symmetric_gram(X) @ right)))(kernel)
        for ours in (
            grid.slope(kernel, X, left, right),
            TiledCovariance(kernel, X, 16).slope(left, right),
        ):
            for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(exact), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("X", "kernel"),
    [
        (_rng.uniform(0, 1, (50, 1)), lgp.RBF()),
        (_rng.uniform(0, 1, (50, 2)), lgp.RBF()),
        (combined(*UNEVEN), lgp.Matern32()),
        (LINE, lgp.Linear()),
        (combined(*UNEVEN), lgp.Linear() * lgp.RBF()),
        (np.r_[0.0, 1e-3, np.arange(1.0, 40)][:, None], lgp.RBF()),
    ],
    ids=["scattered", "plane", "no product", "linear", "linear factor", "empty cells"],
)
def test_no_grid(X, kernel):
    assert find_grid((kernel,), X) is None


def test_factors_share_columns():
    product = lgp.Matern32().on([0, 2]) * lgp.RBF().on([2, 3]) * lgp.Periodic().on(1)
    assert factor_columns(product, (0, 1, 2, 3)) == ((0, 2), (1,), (3,))
    assert factor_columns(lgp.Linear() * lgp.RBF(), (0, 1)) is None
