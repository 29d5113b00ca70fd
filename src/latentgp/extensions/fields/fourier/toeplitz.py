"""The Gram matrix of the functions over rows: block Toeplitz plus block Hankel, by its sums."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.fft import next_fast_len

from latentgp.extensions.fields.fourier.frequencies import FrequencyGrid, apart, in_pairs, turned
from latentgp.extensions.iterative.solvers.operators import Covariance, System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.typing import Array, PerRow, Scalar, Vectors


@stored
class ToeplitzGram(Covariance):
    """T = sum_n w_n phi(x_n) phi(x_n)', (M, M), by the sums of w_n cas at doubled frequencies.

    T_ij = Re t(i - j) + Im t(i + j) with t(k) = sum_n w_n exp(i w_k'x_n): a product is one
    convolution, O(M log M) (Greengard, Rachh & Barnett 2025, section 3).
    """

    grid: FrequencyGrid
    doubled: Float[Array, "doubled"]  # sums over rows of w_n cas(w_k'x_n), k in {-2m, .., 2m}^D

    @property
    def size(self) -> int:
        return self.grid.number

    def times(self, right: Vectors) -> Vectors:
        shape, number = self.grid.shape, right.shape[1]
        axes = tuple(range(1, 1 + len(shape)))
        padded = _padded(self.grid)
        u = in_pairs(right.T.reshape(number, *shape))
        u = 0.5 * (u - 1j * turned(u))
        found = jnp.fft.ifftn(jnp.fft.fftn(u, padded, axes) * self._symbol(padded), axes=axes)
        found = found[(slice(None), *(slice(n) for n in shape))]
        found = found + 1j * turned(found)
        return apart(found, number).reshape(number, -1).T

    def _symbol(self, padded: list[int]) -> Float[Array, "*padded"]:
        """Fourier transform of t, laid round a circle; it is real."""
        own = self.grid.doubled()
        t = self._t().reshape(own.shape)
        places = [np.arange(-m, m + 1) % n for m, n in zip(own.most, padded, strict=True)]
        around = jnp.zeros(padded, t.dtype).at[np.ix_(*places)].set(t)
        return jnp.fft.fftn(around).real

    def _t(self) -> Array:
        h = self.doubled  # whose reverse are the opposite frequencies
        return 0.5 * (h + h[::-1]) + 0.5j * (h - h[::-1])

    def diagonal(self) -> PerRow:
        """Re t(0) + Im t(2 j)."""
        twice = _number_of(2 * self.grid.steps, self.grid.doubled())
        return self.doubled[len(self.doubled) // 2] + self._t().imag[twice]

    def columns(self, rows: Int[Array, "R"]) -> Float[Array, "M R"]:
        return self._between(jnp.asarray(self.grid.steps), jnp.asarray(self.grid.steps)[rows])

    def block(self, rows: Int[Array, "R"]) -> Float[Array, "R R"]:
        own = jnp.asarray(self.grid.steps)[rows]
        return self._between(own, own)

    def _between(self, a: Int[Array, "A D"], b: Int[Array, "B D"]) -> Float[Array, "A B"]:
        t, own = self._t(), self.grid.doubled()
        less, more = a[:, None] - b[None], a[:, None] + b[None]
        return t.real[_number_of(less, own)] + t.imag[_number_of(more, own)]


def squares_of(grid: FrequencyGrid, columns: Vectors) -> Float[Array, "doubled"]:
    """Weights, at doubled frequencies, of the sum of squares of combinations of the functions.

    (sum_j u_j cas_j)^2 = sum_ij u_i u_j [cos(w_i - w_j) + sin(w_i + w_j)]: a correlation and a
    convolution of the weights, as the even and the odd part.
    """
    shape, axes = grid.shape, tuple(range(1, 1 + len(grid.shape)))
    padded = _padded(grid)

    def add(total: Any, u: Array) -> tuple[Any, None]:
        spectrum = jnp.fft.fftn(u.reshape(1, *shape), padded, axes)
        return (total[0] + jnp.abs(spectrum) ** 2, total[1] + spectrum**2), None

    nothing = jnp.zeros((1, *padded))
    (correlated, convolved), _ = jax.lax.scan(add, (nothing, nothing + 0j), columns.T)
    lags = [np.arange(-2 * m, 2 * m + 1) % n for m, n in zip(grid.most, padded, strict=True)]
    C = jnp.fft.ifftn(correlated, axes=axes).real[0][np.ix_(*lags)].ravel()
    D = jnp.fft.ifftn(convolved, axes=axes).real[0]
    D = D[tuple(slice(2 * n - 1) for n in shape)].ravel()
    return C + 0.5 * (D - D[::-1])


def _padded(grid: FrequencyGrid) -> list[int]:
    """Sizes of arrays on which a convolution of two grids does not go round."""
    fast: Any = next_fast_len  # whose annotation says that it returns nothing
    return [fast(2 * n - 1) for n in grid.shape]


def _number_of(steps: Any, grid: FrequencyGrid) -> Any:
    """Numbers of functions by their whole-number frequencies."""
    number = 0
    for column, (m, size) in enumerate(zip(grid.most, grid.shape, strict=True)):
        number = number * size + steps[..., column] + m
    return number


class StrongFunctions(Preconditioner):
    """The rows and columns of B of some functions as they are, of the others the diagonal.

    Those with the greatest prior variances tell apart where there are rows and where not; the rest
    hardly do (compare Greengard, Rachh & Barnett 2025, who have none).
    """

    chosen: Int[Array, "R"]  # the numbers of those that are taken whole
    factor: Factor  # of their block
    deviation: PerRow  # of the others, the root of the diagonal

    @classmethod
    def of(cls, system: System, chosen: Int[Array, "R"]) -> StrongFunctions:
        """Of B = I + S T S."""
        scale = system.scale[chosen]
        block = scale[:, None] * system.covariance.block(chosen) * scale
        factor = cholesky(block + jnp.diag(system.added[chosen]))
        diagonal = system.scale**2 * system.covariance.diagonal() + system.added
        return cls(chosen, factor, jnp.sqrt(diagonal))

    def log_determinant(self) -> Scalar:
        others = 2 * jnp.log(self.deviation)
        return jnp.sum(others.at[self.chosen].set(0.0)) + 2 * self.factor.half_log_determinant

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        inverse = self.factor.inverse.T if transposed else self.factor.inverse
        own = inverse @ right[self.chosen]
        return (right / self.deviation[:, None]).at[self.chosen].set(own)

    def times_root(self, right: Vectors) -> Vectors:
        own = self.factor.lower @ right[self.chosen]
        return (right * self.deviation[:, None]).at[self.chosen].set(own)

    def inverse_diagonal(self) -> PerRow:
        """The diagonal of P^-1."""
        own = jnp.sum(self.factor.inverse**2, axis=0)
        return (1 / self.deviation**2).at[self.chosen].set(own)
