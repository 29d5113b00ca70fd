"""Mean functions of the latent Gaussian process."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.hyperparameters.base import OwnParts, Parametrised, parameter
from latentgp.rows.data import Data
from latentgp.rows.functionals import EncodedColumns, Regions, decoded, spread_over_regions
from latentgp.typing import Array

__all__ = [
    "ConstantMean",
    "FunctionalMean",
    "LinearMean",
    "Mean",
    "OffsetMean",
    "PerLatentMean",
    "ZeroMean",
]


class Mean(Parametrised):
    """Prior mean of every latent function at given inputs."""

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        """Prior mean at every row, one column, or one a latent."""


class ZeroMean(Mean):
    """A prior mean of zero."""

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.zeros((X.shape[0], 1), X.dtype)


class ConstantMean(Mean):
    """A prior mean that is the same everywhere; units of the latent function."""

    value: Float[Array, ""] = parameter(role="level", default=0.0)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.broadcast_to(self.value.astype(X.dtype), (X.shape[0], 1))


class LinearMean(Mean):
    """A prior mean that is linear in the inputs: intercept + X slope."""

    slope: Float[Array, "D"] = parameter()
    intercept: Float[Array, ""] = parameter(default=0.0)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        if self.slope.shape != X.shape[1:]:
            raise InputError(
                f"LinearMean.slope has shape {self.slope.shape} but the inputs have {X.shape[1]} "
                "columns; give one slope a column."
            )
        return (self.intercept + X @ self.slope)[:, None]


class OffsetMean(Mean):
    """A prior mean plus columns of the inputs, the offsets of generalised linear models.

    Nothing of the offsets is learned (McCullagh & Nelder 1989, 6.3.2).

    Args:
        mean: what else the prior mean has.
        columns: numbers of the offsets' columns, in units of the latent function.
        centre: what is taken off their sum.

    Example:
        >>> OffsetMean(ConstantMean(3.0), (1,))(np.array([[5.0, 0.5]])).tolist()
        [[3.5]]
    """

    mean: Mean
    columns: tuple[int, ...] = eqx.field(static=True)
    centre: float = eqx.field(static=True, default=0.0)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return self.mean(X) + self.offset(X)[:, None]

    def offset(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        """The sum of the offsets, less the centre."""
        return X[:, np.array(self.columns)].sum(axis=1) - self.centre

    def taken_off(self, data: Data) -> Data:
        """The rows with the offsets taken off the targets."""
        return data.shifted(-self.offset(data.X))


class FunctionalMean(Mean):
    """Prior mean of functionals of f, as `Functionals` reads its rows, from the mean of values.

    Averages are by Gauss-Legendre quadrature, exact for polynomials of degree 15 or less.

    Args:
        mean: prior mean of the values of f.
        columns: number of inputs of the function.
        average_along: the column of the intervals of averages, as in `Functionals`.
        regions: those that rows are about.

    Example:
        >>> from latentgp import functionals
        >>> rows = np.concatenate([functionals.values([[2.0]]), functionals.derivatives([[2.0]])])
        >>> FunctionalMean(ConstantMean(3.0))(rows).tolist()
        [[3.0], [0.0]]
    """

    mean: Mean
    columns: int = eqx.field(static=True, default=1)
    average_along: int | None = eqx.field(static=True, default=None)
    regions: Regions | None = None

    def __call__(self, X: Float[Array, "N columns"]) -> Float[Array, "N #Q"]:
        X = jnp.asarray(X)
        rows = decoded(X, self.columns)
        if self.regions is None:
            return self._of(rows)
        points, weights = spread_over_regions(self.regions, rows)
        return jnp.einsum("pn,pnq->nq", weights, jax.vmap(self._of)(points))

    def _of(self, rows: EncodedColumns) -> Float[Array, "N #Q"]:
        if self.average_along is None:
            return self._at(rows)
        places, weights = np.polynomial.legendre.leggauss(8)
        total = 0.0
        for place, weight in zip(places, weights, strict=True):
            x = rows.x.at[:, self.average_along].add(place / 2 * rows.width)
            total = total + weight / 2 * self._at(rows._replace(x=x))
        return total

    def _at(self, rows: EncodedColumns) -> Float[Array, "N #Q"]:
        value, slope = jax.jvp(self.mean, (rows.x,), (rows.direction,))
        return rows.value[:, None] * value + slope


class PerLatentMean(OwnParts, Mean):
    """A prior mean of its own for every latent function.

    Args:
        parts: as many prior means as the likelihood has latent functions, in their order.

    Raises:
        InputError: none is given, or something that is not a prior mean.

    Example:
        >>> import numpy as np
        >>> PerLatentMean(ConstantMean(3.0), ZeroMean())(np.zeros((1, 2))).tolist()
        [[3.0, 0.0]]
    """

    part_type: ClassVar[type] = Mean
    parts: tuple[Mean, ...]

    def __init__(self, *parts: Mean):
        self.parts = parts

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.concatenate([part(X) for part in self.parts], axis=1)


def constant_first(value: Any, latents: int) -> Mean:
    """Constant prior means of the first latent functions, a tuple of them or one; zero of others.

    Each value is a number or an array of draws.
    """
    values = value if isinstance(value, tuple) else (value,)
    means = [*map(ConstantMean, values), *(ZeroMean() for _ in range(latents - len(values)))]
    return PerLatentMean(*means) if len(means) > 1 else means[0]
