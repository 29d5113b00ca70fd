"""Metric kernels: places on the globe and other inputs, such as times, in one distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import SeesColumns, parameter
from latentgp.kernels.base import ActiveDimensions, Kernel, as_columns, at_columns
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import Stationary
from latentgp.typing import Array, PerColumn


class OtherColumns(SeesColumns):
    """Columns with length-scales.

    Args:
        dimensions: numbers of the columns, from 0.
        lengthscale: scalar, or one a column, shape (D,); in their units.

    Raises:
        InputError: no column, what is no number of one, or one named twice.

    Example:
        >>> OtherColumns((2,), lengthscale=30.0).dimensions
        (2,)
    """

    dimensions: tuple[int, ...] = eqx.field(static=True, converter=as_columns)
    lengthscale: PerColumn = parameter(constraints.positive, role="lengthscale", default=1.0)

    def embed(self, points: Float[Array, "*N D"]) -> Float[Array, "*N E"]:
        """The columns in length-scales."""
        return at_columns(points, self.dimensions) / self.lengthscale


def _by_chord(kernel: Any) -> ActiveDimensions:
    inner = kernel.kernel if isinstance(kernel, ActiveDimensions) else None
    if not (isinstance(inner, OnSphere) and inner.distance == "chord"):
        raise InputError(
            "MetricKernel.space must be a kernel on the globe by the chord with the columns of "
            f"longitude and latitude, such as OnSphere(Matern32(500.0)).on(0, 1), got {kernel!r}."
        )
    return kernel


class MetricKernel(Kernel):
    """Kernel of one distance in all inputs: that of places on the globe, and of others beside it.

    With d the chord between two places, l its length-scale in kilometres, and u_j the difference in
    a further column with the length-scale l_j,

        k(x, z) = variance * c(r),  r^2 = d^2 / l^2 + sum_j u_j^2 / l_j^2,

    c the correlation of a stationary kernel. It is a covariance, as c is one in any number of
    coordinates. Of time it is the metric model of geostatistics (Dimitrakopoulos & Luo 1994). In a
    plane a stationary kernel with a length-scale a column is the same.

    Args:
        space: c, l and the variance, with the columns of longitude and latitude.
        others: further columns and l_j.

    Raises:
        InputError: a kernel of space that is not `OnSphere` by the chord, or without columns;
            a further column that is one of space.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> space = lgp.OnSphere(lgp.Matern12(lengthscale=500.0)).on(0, 1)
        >>> days = lgp.kernels.OtherColumns((2,), lengthscale=30.0)
        >>> kernel = lgp.kernels.MetricKernel(space, days)
        >>> here = np.array([13.4, 52.5, 0.0])
        >>> bool(np.isclose(kernel(here, here + [0, 0, 30]), np.exp(-1)))
        True
    """

    space: ActiveDimensions = eqx.field(converter=_by_chord)
    others: OtherColumns

    def __check_init__(self) -> None:
        if twice := {*self.space.dimensions} & {*self.others.dimensions}:
            raise InputError(
                f"MetricKernel has column {min(twice)} among places and others; leave one out."
            )

    @property
    def kernel(self) -> Stationary:
        """The kernel of distances on the globe."""
        return self.space.kernel.kernel  # type: ignore

    @property
    def dimensions(self) -> tuple[int, ...]:
        """All columns, those of places first."""
        return *self.space.dimensions, *self.others.dimensions

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        centre = jax.lax.stop_gradient(jnp.mean(X, axis=0))
        A, B = (self.others.embed(points - centre) for points in (X, Z))
        on_globe: Any = self.space.kernel
        squared = on_globe.squared_distances(*map(self.space.select, (X, Z)))
        squared = squared + jnp.sum((A[:, None] - B[None]) ** 2, axis=-1)
        return self.kernel.variance * self.kernel.correlation(squared)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.space.diagonal(X)

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        self.space.kernel.check_points(self.space.select(X))

    def place(self, X: Float[Array, "*N D"]) -> Float[Array, "*N E"]:
        """Coordinates in length-scales, those on the globe first."""
        on_globe: Any = self.space.kernel
        at = on_globe.place(self.space.select(X)) / self.kernel.lengthscale
        return jnp.concatenate([at, self.others.embed(X)], axis=-1)


def on_globe(
    kernel: Stationary,
    places: Sequence[int],
    others: tuple[int, ...],
    lengthscale: Float[np.ndarray, "D"],
) -> Kernel:
    """A kernel of the columns of places, and of others with length-scales if there are any."""
    space = OnSphere(kernel).on(*places)  # pyright: ignore
    return MetricKernel(space, OtherColumns(others, lengthscale)) if others else space
