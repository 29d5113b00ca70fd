"""A kernel of space and time that is no product, and the powered exponential."""

from __future__ import annotations

import operator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, LogNormal, constraints

from latentgp.errors import InputError
from latentgp.extensions.fields.kernels.anisotropy import Anisotropic
from latentgp.extensions.neighbours.search import coordinates
from latentgp.hyperparameters.base import SeesColumns, parameter
from latentgp.kernels.base import ActiveDimensions, Kernel
from latentgp.kernels.functionals import rough, rough_along
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    MaternHalfInteger,
    RationalQuadratic,
    Stationary,
    distance,
)
from latentgp.typing import Array, Inputs


class PoweredExponential(Stationary):
    """Powered exponential kernel, variance * exp(-r^p) (Diggle & Ribeiro 2007, eq. 3.8).

    Args:
        power: p, between 0.05 and 2; 1 is `Matern12`, 2 an `RBF` of length-scale 1 / sqrt(2).

    Example:
        >>> import numpy as np
        >>> kernel = PoweredExponential(lengthscale=4.0, power=0.5)
        >>> round(float(kernel(np.zeros(1), np.ones(1))), 4)  # exp(-1 / 2)
        0.6065
    """

    power: Float[Array, ""] = parameter(constraints.interval(0.05, 2.0), default=1.0)

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return jnp.exp(-_power(squared_distance, self.power))


def _power(squared: Float[Array, "*S"], power: Float[Array, ""]) -> Float[Array, "*S"]:
    """A power of a distance; at zero it is zero, and so is its derivative."""
    return jnp.where(squared > 0, jnp.exp(power * jnp.log(distance(squared))), 0.0)


# Correlations that are completely monotone functions of the squared distance.
_MONOTONE = (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    MaternHalfInteger,
    RationalQuadratic,
    PoweredExponential,
)


def _stationary(kernel: ActiveDimensions) -> Any:
    """The kernel of distances in a kernel of space."""
    inner: Any = kernel.kernel
    return inner.kernel if isinstance(inner, Anisotropic | OnSphere) else inner


def _of_space(kernel: Any) -> ActiveDimensions:
    if (
        not isinstance(kernel, ActiveDimensions)
        or not isinstance(_stationary(kernel), _MONOTONE)
        or getattr(kernel.kernel, "distance", "chord") != "chord"
    ):
        raise InputError(
            "Gneiting.space must be a kernel of the columns of space whose correlation is a mixture"
            f" of RBF kernels, such as Matern32(...).on(1, 2), got {kernel!r}; give a Matérn, RBF, "
            "RationalQuadratic or PoweredExponential kernel, Anisotropic or OnSphere of one (by "
            "the chord), with .on(...)."
        )
    return kernel


def _one_column(column: Any) -> tuple[int]:
    try:
        (number,) = map(operator.index, column if isinstance(column, tuple) else (column,))
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise InputError(
            f"TemporalDecay reads one column, of time, by its number from 0, got {column!r}."
        )
    return (number,)


class TemporalDecay(SeesColumns):
    """Decay in time, T(u) = 1 + |u / lengthscale|^(2 smoothness) at a lag u, to minus a power.

    Args:
        dimensions: the column of time.
        lengthscale: units of time.
        smoothness: alpha, between 0.05 and 1; 1/2 for paths as rough as those of `Matern12`.
        power: delta > 0.

    Raises:
        InputError: what is no number of a column.

    Example:
        >>> TemporalDecay(0, lengthscale=2.0).dimensions
        (0,)
    """

    dimensions: tuple[int, ...] = eqx.field(static=True, converter=_one_column)
    lengthscale: Float[Array, ""] = parameter(constraints.positive, role="lengthscale", default=1.0)
    smoothness: Float[Array, ""] = parameter(constraints.interval(0.05, 1.0), default=0.5)
    power: Float[Array, ""] = parameter(constraints.positive, default=1.0)

    def widening(self, lags: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """T(u) at some lags."""
        return 1 + _power((lags / self.lengthscale) ** 2, 2 * self.smoothness)

    def weak_prior(self, name: str, latent: float) -> Distribution | None:
        return LogNormal(0.0, 1.0) if name == "power" else None


class Gneiting(Kernel):
    """Space and time that do not separate: correlations in space reach farther at longer lags.

    With T(u) = 1 + |u / tau|^(2 alpha) and d coordinates of space,

        k(h, u) = T(u)^-(delta + beta d / 2) c(h / T(u)^(beta / 2)),

    c the kernel of space, whose correlation is a completely monotone function of the squared
    distance (Gneiting 2002, theorem 2 with the second function of table 2, as in eq. 14, times the
    purely temporal T^-delta). At beta = 0 it is the product of c and T^-delta.

    Args:
        space: c with its columns, such as `Matern32().on(1, 2)`; on the globe d is 3.
        time: column, tau, alpha and delta.
        interaction: beta, between 0 and 1. Its weak prior is uniform.

    Raises:
        InputError: a kernel of space of which this is not known to be a covariance, or without
            columns; a column of time that is one of space.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> time = TemporalDecay(0, lengthscale=2.0)
        >>> kernel = Gneiting(lgp.Matern12(3.0).on(1, 2), time, interaction=1.0)
        >>> apart = kernel(np.zeros(3), np.array([6.0, 0.0, 6.0]))  # T = 4
        >>> bool(np.isclose(apart, np.exp(-6 / 3 / 2) / 16))
        True
    """

    space: ActiveDimensions = eqx.field(converter=_of_space)
    time: TemporalDecay
    interaction: Float[Array, ""] = parameter(constraints.unit_interval, role="share", default=0.5)

    def __check_init__(self) -> None:
        if self.time.dimensions[0] in self.space.dimensions:
            raise InputError(
                f"Gneiting has column {self.time.dimensions[0]} as time and among those of space, "
                f"{self.space.dimensions}; give each its own."
            )

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        A, B = (coordinates(self.space, points, X) for points in (X, Z))
        squared = jnp.sum((A[:, None] - B[None]) ** 2, axis=-1)
        (column,) = self.time.dimensions
        wider = jnp.log(self.time.widening(X[:, None, column] - Z[None, :, column]))
        own = _stationary(self.space)
        correlation = own.correlation(squared * jnp.exp(-self.interaction * wider))
        return own.variance * jnp.exp(-self._decay(A.shape[1]) * wider) * correlation

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.space.diagonal(X)

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        self.space.kernel.check_points(self.space.select(X))

    def _decay(self, coordinates: int) -> Float[Array, ""]:
        """Power of T at distance zero."""
        return self.time.power + self.interaction * coordinates / 2


@coordinates.register
def _(kernel: Gneiting, X: Inputs, reference: Array) -> Array:
    """Times by the lag at which the correlation at a place is 1 / e, beside those of space."""
    space, time = coordinates(kernel.space, X, reference), kernel.time
    fallen = jnp.expm1(1 / kernel._decay(space.shape[1])) ** (0.5 / time.smoothness)
    lags = X[:, time.dimensions] - jnp.mean(reference[:, time.dimensions], axis=0)
    return jnp.concatenate([space, lags / (time.lengthscale * fallen)], axis=1)


@rough_along.register
def _(kernel: Gneiting, columns: set[int]) -> Kernel | None:
    """In time it is rough, but for a smoothness of one."""
    in_time = columns & {*kernel.time.dimensions}
    return kernel if in_time else rough_along(kernel.space, columns)


rough_along.register(PoweredExponential, rough)
