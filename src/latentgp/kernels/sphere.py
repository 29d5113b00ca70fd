"""Kernels of places on the globe, given as longitude and latitude in degrees."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError, check_choices, check_ranges
from latentgp.hyperparameters.base import ChangesUnits
from latentgp.kernels.base import Kernel
from latentgp.kernels.stationary import (
    Matern12,
    MaternHalfInteger,
    Stationary,
    distance,
    is_isotropic,
)
from latentgp.typing import Array

EARTH_RADIUS = 6371.0088  # kilometres, the mean one


def _isotropic(kernel: Any) -> Stationary:
    """The kernel itself, if it is a function of the distance in three coordinates."""
    if is_isotropic(kernel):
        return kernel
    raise InputError(
        f"OnSphere needs a stationary kernel of the distance with one length-scale, got {kernel!r};"
        " give RBF, Matern32 or such, and combine kernels outside, as OnSphere(a) + OnSphere(b)."
    )


class OnSphere(ChangesUnits, Kernel):
    """A stationary kernel of places on a sphere: columns longitude and latitude, in degrees.

    The length-scale is in kilometres on the Earth as a sphere, whose distances are off by at most
    0.6 %; `radius=1.0` makes it radians. Longitudes that differ by 360 are the same place.

    With "chord" the distance is the straight one through the globe, 2 R sin(d / 2R) for the
    great-circle distance d, and every stationary kernel of three coordinates is a covariance
    (Yadrenko 1983); it is shorter than d by 1 % at 3,100 km. With "great-circle" it is d itself. Of
    Matérn kernels only those of an order up to 1/2 are then covariances, the RBF is none (Gneiting
    2013, table 1): the exponential kernel alone is taken.

    Args:
        kernel: with one length-scale. Sums and products are of kernels each on the sphere.
        distance: "chord" or "great-circle".
        radius: of the sphere, in the units of the length-scale.

    Raises:
        InputError: a kernel that is not stationary and isotropic; one that is no covariance of the
            great-circle distance; another distance; a radius that is not positive.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> kernel = lgp.kernels.OnSphere(lgp.Matern32(lengthscale=500.0))
        >>> berlin, paris = np.array([13.4, 52.5]), np.array([2.35, 48.85])
        >>> round(float(kernel(berlin, paris)), 2)
        0.19
    """

    kernel: Stationary = eqx.field(converter=_isotropic)
    distance: str = eqx.field(static=True, default="chord")
    radius: float = eqx.field(static=True, default=EARTH_RADIUS, converter=float)

    def __check_init__(self) -> None:
        check_choices(self, distance=("chord", "great-circle"))
        check_ranges(self, radius="(0, inf)")
        if self.distance == "great-circle" and not _is_exponential(self.kernel):
            raise InputError(
                f"{type(self.kernel).__name__} of the great-circle distance is no covariance, or "
                "not known to be one: Matérn kernels smoother than order 1/2 and the RBF are none "
                '(Gneiting 2013); give Matern12, or distance="chord".'
            )

    @property
    def unit(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One degree along a great circle in the units of the length-scale."""
        return self.radius * math.pi / 180

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.kernel.variance * self.kernel.correlation(self.squared_distances(X, Z))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.kernel.diagonal(X)

    def squared_distances(
        self, X: Float[Array, "N D"], Z: Float[Array, "M D"]
    ) -> Float[Array, "N M"]:
        """Squares of distances between rows of X and rows of Z, in length-scales."""
        A, B = on_unit_sphere(X)[:, None], on_unit_sphere(Z)[None]
        squared = _norm(A - B)
        if self.distance == "great-circle":
            # The angle by both, as an arc sine loses half its digits at antipodes.
            squared = (2 * jnp.arctan2(distance(squared), distance(_norm(A + B)))) ** 2
        return squared * (self.radius / self.kernel.lengthscale.reshape(())) ** 2

    def check_inputs(self, columns: int) -> None:
        if columns != 2:
            raise InputError(
                f"OnSphere reads two columns, longitude and latitude, got {columns}; use "
                "OnSphere(...).on(longitude, latitude) with their numbers beside others."
            )

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        wrong = X[~are_degrees(X)]
        if len(wrong):
            raise InputError(
                "OnSphere reads longitude and latitude in degrees, in this order, got "
                f"{wrong[0].tolist()}; latitudes are from -90 to 90, longitudes from -540 to 540."
            )

    def place(self, X: Float[Array, "N D"]) -> Float[Array, "N 3"]:
        """Coordinates in space, in the units of the length-scale, from the centre of the sphere."""
        return self.radius * on_unit_sphere(X)


def are_degrees(X: Float[np.ndarray, "*N D"]) -> Bool[np.ndarray, "*N"]:
    """Whether points may be longitudes, counted on by half a turn at most, and latitudes."""
    return np.all(np.abs(X) <= [540, 90], axis=-1)


def on_unit_sphere(X: Float[Array, "*N D"]) -> Float[Array, "*N 3"]:
    """Points of the unit sphere at longitudes and latitudes in degrees."""
    longitude, latitude = jnp.deg2rad(X[..., 0]), jnp.deg2rad(X[..., 1])
    flat = jnp.cos(latitude)
    east, north = flat * jnp.cos(longitude), flat * jnp.sin(longitude)
    return jnp.stack([east, north, jnp.sin(latitude)], axis=-1)


def along_surface(chord: Float[np.ndarray, "*N"]) -> Float[np.ndarray, "*N"]:
    """Kilometres on the Earth between points whose images on the unit sphere are so far apart."""
    return 2 * EARTH_RADIUS * np.arcsin(np.minimum(chord / 2, 1))


def _norm(vectors: Float[Array, "*N 3"]) -> Float[Array, "*N"]:
    """Squared norms: from differences, as a matrix product would blur what is metres apart."""
    return vectors[..., 0] ** 2 + vectors[..., 1] ** 2 + vectors[..., 2] ** 2


def _is_exponential(kernel: Kernel) -> bool:
    half = isinstance(kernel, MaternHalfInteger) and not kernel.degree
    return half or isinstance(kernel, Matern12)
