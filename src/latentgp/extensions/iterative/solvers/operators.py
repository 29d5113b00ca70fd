"""Symmetric matrices that are known by their products."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, PyTree

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel
from latentgp.modules import forwarded
from latentgp.typing import Array, Inputs, PerRow, Points, Scalar, Vectors

# A tile and what is made of it stay in a core's cache.
_TILE = 256


class LinearOperator(eqx.Module):
    """A symmetric matrix of N rows, known by its products with S columns."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of rows, N."""

    @abstractmethod
    def times(self, right: Vectors) -> Vectors:
        """A right."""

    def exactly_times(self, right: Vectors) -> Vectors:
        """A right in the precision of its columns, where `times` may round more."""
        return self.times(right)

    @property
    def dtype(self) -> Any:
        """Type of its products with columns in the usual precision."""
        return jax.eval_shape(self.times, jax.ShapeDtypeStruct((self.size, 1), float)).dtype


class Covariance(LinearOperator):
    """The Gram matrix K of N rows, without noise."""

    @abstractmethod
    def diagonal(self) -> PerRow:
        """The prior variance at every row."""

    @abstractmethod
    def columns(self, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
        """Covariances of all rows with some of them."""

    def block(self, rows: Int[Array, "M"]) -> Float[Array, "M M"]:
        """Covariances of some rows with each other; made otherwise where that takes less."""
        return self.columns(rows)[rows]


class StoredCovariance(Covariance):
    """A Gram matrix that is kept: N^2 numbers.

    Example:
        >>> StoredCovariance(2 * jnp.eye(2)).times(jnp.ones((2, 1))).tolist()
        [[2.0], [2.0]]
    """

    matrix: Float[Array, "N N"]

    @property
    def size(self) -> int:
        return len(self.matrix)

    def times(self, right: Vectors) -> Vectors:
        return self.matrix @ right

    def diagonal(self) -> PerRow:
        return jnp.diagonal(self.matrix)

    def columns(self, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
        return jnp.asarray(self.matrix)[:, rows]


class TiledCovariance(Covariance):
    """A Gram matrix that is made anew, tile by tile, at every product; nothing of N^2 is kept.

    A tile serves its rows and, transposed, its columns, so half of the matrix is made.

    Example:
        >>> from latentgp import RBF
        >>> K = TiledCovariance(RBF(), np.zeros((3, 1)), tile=2)
        >>> K.times(jnp.ones((3, 1)))[:, 0].tolist()
        [3.0, 3.0, 3.0]
    """

    kernel: Kernel  # the covariance function
    X: Inputs  # inputs
    tile: int = eqx.field(static=True, default=_TILE)  # rows and columns of a tile

    @property
    def size(self) -> int:
        return len(self.X)

    def times(self, right: Vectors) -> Vectors:
        X, V = self._in_tiles(right)
        tiles, width = X.shape[:2]

        def on_diagonal(part: tuple[Array, Array]) -> Array:
            return self.kernel.symmetric_gram(part[0]) @ part[1]

        def above(total: Array, pair: Array) -> tuple[Array, None]:
            i, j = pair
            # The barrier keeps the kernel's loop out of the products (see numerics/sums.py).
            K = jax.lax.optimization_barrier(self.kernel.gram(X[i], X[j]))
            return total.at[i].add(K @ V[j]).at[j].add((V[i].T @ K).T), None

        total = jax.lax.map(jax.checkpoint(on_diagonal), (X, V))
        if tiles > 1:
            total, _ = jax.lax.scan(jax.checkpoint(above), total, _pairs(tiles))
        return total.reshape(tiles * width, -1)[: self.size]

    def diagonal(self) -> PerRow:
        return self.kernel.diagonal(self.X)

    def columns(self, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
        K = self.kernel.gram(self.X, self._at(rows))
        return K.at[rows, jnp.arange(len(rows))].set(self.diagonal()[rows])

    def block(self, rows: Int[Array, "M"]) -> Float[Array, "M M"]:
        return self.kernel.symmetric_gram(self._at(rows))

    def slope(self, left: Vectors, right: Vectors) -> Kernel:
        """Derivative of the sum of left * (K right) in the kernel, by one more pass over tiles.

        Whatever the number of parameters: a tile's own derivative is pulled back at once.
        """
        X, L = self._in_tiles(left)
        _, R = self._in_tiles(right)

        def add(total: Kernel, gram: Any, cotangent: Array) -> tuple[Kernel, None]:
            (more,) = jax.vjp(gram, self.kernel)[1](cotangent)
            return jax.tree.map(jnp.add, total, more), None

        def on_diagonal(total: Kernel, part: Any) -> tuple[Kernel, None]:
            x, own, other = part
            return add(total, lambda kernel: kernel.symmetric_gram(x), own @ other.T)

        def above(total: Kernel, pair: Array) -> tuple[Kernel, None]:
            i, j = pair
            cotangent = L[i] @ R[j].T + R[i] @ L[j].T
            return add(total, lambda kernel: kernel.gram(X[i], X[j]), cotangent)

        nothing = jax.tree.map(jnp.zeros_like, self.kernel)
        total, _ = jax.lax.scan(on_diagonal, nothing, (X, L, R))
        if len(X) > 1:
            total, _ = jax.lax.scan(above, total, _pairs(len(X)))
        return total

    def _at(self, rows: Int[Array, "M"]) -> Points:
        return jnp.asarray(self.X)[rows]  # NumPy knows no traced rows

    def _in_tiles(
        self, right: Vectors
    ) -> tuple[Float[Array, "tiles B D"], Float[Array, "tiles B S"]]:
        """Inputs and columns in tiles; rows that fill up the last one have zeros on the right."""
        tiles = max(1, -(-self.size // self.tile))
        width = -(-self.size // tiles)
        fill = tiles * width - self.size
        X = jnp.pad(self.X, ((0, fill), (0, 0)), mode="edge").reshape(tiles, width, -1)
        return X, jnp.pad(right, ((0, fill), (0, 0))).reshape(tiles, width, -1)


def stored_or_tiled(kernel: Kernel, X: Inputs, stored: bool | None) -> Covariance:
    """The Gram matrix of rows, kept or not."""
    return StoredCovariance(kernel.symmetric_gram(X)) if stored else TiledCovariance(kernel, X)


class RoundedCovariance(Covariance):
    """A Gram matrix whose products are made in single precision, at about half the cost.

    Example:
        >>> K = jnp.full((1, 1), 0.1)
        >>> single = StoredCovariance(K.astype(jnp.float32))
        >>> rounded = RoundedCovariance(StoredCovariance(K), single)
        >>> rounded.times(jnp.ones((1, 1))).dtype == K.dtype
        True
    """

    exact: Covariance  # K, of which all else is asked
    single: Covariance  # the same in single precision

    @property
    def size(self) -> int:
        return self.exact.size

    def times(self, right: Vectors) -> Vectors:
        return self.single.times(right.astype(jnp.float32)).astype(right.dtype)

    exactly_times = forwarded("exact.times")
    diagonal = forwarded("exact.diagonal")
    columns = forwarded("exact.columns")
    block = forwarded("exact.block")


def in_single_precision(tree: PyTree) -> PyTree:
    """Its double-precision arrays rounded, all else as it is.

    Example:
        >>> in_single_precision(1.5), in_single_precision(None)
        (1.5, None)
    """

    def rounded(leaf: Any) -> Any:
        doubled = eqx.is_array_like(leaf) and getattr(leaf, "dtype", None) == jnp.float64
        return jnp.asarray(leaf, jnp.float32) if doubled else leaf

    return jax.tree.map(rounded, tree)


def _pairs(tiles: int) -> Int[np.ndarray, "pairs 2"]:
    """All pairs of two tiles, the first one before the second."""
    return np.stack(np.triu_indices(tiles, 1), axis=1)


class System(LinearOperator):
    """A = S K S + D with diagonal S and D > 0: the matrix that a Gaussian process solves with.

    `noisy_system` and `site_system` make the two that occur.
    """

    covariance: Covariance
    scale: PerRow
    added: PerRow

    @property
    def size(self) -> int:
        return self.covariance.size

    def times(self, right: Vectors) -> Vectors:
        return self._around(self.covariance.times, right)

    def exactly_times(self, right: Vectors) -> Vectors:
        return self._around(self.covariance.exactly_times, right)

    def _around(self, times: Any, right: Vectors) -> Vectors:
        inner = times(self.scale[:, None] * right)
        return self.scale[:, None] * inner + self.added[:, None] * right


class ShiftedOperator(LinearOperator):
    """A + shift I."""

    operator: LinearOperator
    shift: Scalar

    @property
    def size(self) -> int:
        return self.operator.size

    def times(self, right: Vectors) -> Vectors:
        return self.operator.times(right) + self.shift * right


def noisy_system(covariance: Covariance, noise_variance: PerRow | Scalar | float) -> System:
    """K + diag(noise variance), which regression solves with.

    Raises:
        InputError: a noise variance that is not positive.

    Example:
        >>> A = noisy_system(StoredCovariance(jnp.eye(2)), 0.5)
        >>> A.times(jnp.ones((2, 1))).tolist()
        [[1.5], [1.5]]
    """
    _check("noise_variance", noise_variance, noise_variance > 0, "positive numbers")
    dtype = covariance.diagonal().dtype
    noise = jnp.broadcast_to(jnp.asarray(noise_variance, dtype), (covariance.size,))
    return System(covariance, jnp.ones_like(noise), noise)


def site_system(covariance: Covariance, precision: PerRow) -> System:
    """B = I + W^1/2 K W^1/2 of sites with precisions W (Rasmussen & Williams 2006, eq. 3.26).

    A precision is zero where a row says nothing.

    Raises:
        InputError: a negative precision.

    Example:
        >>> B = site_system(StoredCovariance(jnp.eye(2)), jnp.array([0.0, 3.0]))
        >>> B.times(jnp.ones((2, 1)))[:, 0].tolist()
        [1.0, 4.0]
    """
    _check("precision", precision, precision >= 0, "numbers that are not negative")
    return System(covariance, jnp.sqrt(precision), jnp.ones_like(precision))


def _check(name: str, value: Any, accepted: Any, wanted: str) -> None:
    if not isinstance(accepted, Tracer) and not np.all(accepted):
        raise InputError(f"{name} has a smallest value of {np.min(value):.4g}: give {wanted}")
