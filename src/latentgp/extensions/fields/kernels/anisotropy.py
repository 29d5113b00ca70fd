"""Kernels of places whose length-scale depends on the direction, at any angle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, Normal

from latentgp.errors import InputError
from latentgp.extensions.neighbours.search import coordinates
from latentgp.hyperparameters.base import parameter
from latentgp.kernels import features
from latentgp.kernels.base import Kernel
from latentgp.kernels.stationary import Stationary, is_isotropic
from latentgp.typing import Array, Inputs


def _isotropic(kernel: Any) -> Stationary:
    """The kernel itself, if it is a function of the distance."""
    if not is_isotropic(kernel):
        raise InputError(
            "Anisotropic needs a stationary kernel of the distance with one length-scale, got "
            f"{kernel!r}; give Matern32 or such, and combine kernels outside."
        )
    return kernel


class Anisotropic(Kernel):
    """Geometric anisotropy: a kernel whose length-scale is longest along a learned direction.

    Two columns have two stretches v = r (cos 2a, sin 2a): the longest range, the length-scale times
    exp(r / 2), lies at the angle a from the first axis, the shortest one, times exp(-r / 2), across
    (Fuglstad et al. 2015, 3; Llamazares-Elias et al. 2024, 2). In general the ranges squared are
    those of l^2 exp(M), M symmetric with trace zero and linear in v, which has five numbers for
    three columns: M = [[v0, v1], [v1, -v0]], and [[v0 + w, v1, v2], [v1, w - v0, v3], [v2, v3, -2
    w]] with w = v4 / sqrt(3). So v = 0 is isotropic, nothing is singular there, and an angle of 180
    degrees is one of 0. The length-scale is the geometric mean of the ranges.

    The weak prior of v is standard normal: no direction is preferred, and the ratio of two columns
    is above 3.2 with probability 1/2, above 10 with 7 %.

    Args:
        kernel: stationary, with one length-scale.
        stretch: v, shape (2,) for two columns of places, (5,) for three.

    Raises:
        InputError: a kernel that is not stationary and isotropic; other numbers of stretches or
            columns.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> kernel = Anisotropic.at_angle(lgp.Matern12(lengthscale=2.0), angle=90.0, ratio=4.0)
        >>> float(kernel.angle), float(kernel.ratio), kernel.ranges.tolist()
        (90.0, 4.0, [4.0, 1.0])
        >>> bool(np.isclose(kernel(np.zeros(2), np.array([0.0, 4.0])), np.exp(-1.0)))
        True
    """

    kernel: Stationary = eqx.field(converter=_isotropic)
    stretch: Float[Array, "S"] = parameter(default=(0.0, 0.0))

    def __check_init__(self) -> None:
        if np.shape(self.stretch) not in ((2,), (5,)):
            raise InputError(
                "Anisotropic.stretch must have shape (2,) for two columns of places or (5,) for "
                f"three, got {np.shape(self.stretch)}; zeros are no anisotropy."
            )

    @classmethod
    def at_angle(cls, kernel: Stationary, angle: float, ratio: float) -> Anisotropic:
        """The kernel of two columns by the direction of the longest range.

        Args:
            kernel: stationary, its length-scale the geometric mean of the two ranges.
            angle: of the longest range in degrees, from the first axis towards the second. That of
                gstat's `anis` is 90 minus it.
            ratio: of the longest range to the shortest, at least 1. That of gstat is 1 over it.

        Raises:
            InputError: a ratio below 1, and as the class does.
        """
        if not ratio >= 1:
            raise InputError(
                f"ratio is that of the longest range to the shortest, at least 1, got {ratio}; "
                "turn the angle by 90 degrees and give one over it."
            )
        double = np.deg2rad(2 * angle)
        return cls(kernel, np.log(ratio) * np.array([np.cos(double), np.sin(double)]))

    @property
    def ranges(self) -> Float[Array, "D"]:
        """Length-scales along the axes, the longest first."""
        return self.kernel.lengthscale * jnp.exp(0.5 * self._principal[0][::-1])

    @property
    def axes(self) -> Float[Array, "D D"]:
        """Directions of the ranges, a unit vector a row; of what sign is arbitrary."""
        return self._principal[1].T[::-1]

    @property
    def ratio(self) -> Float[Array, ""]:
        """The longest range over the shortest, at least 1."""
        return self.ranges[0] / self.ranges[-1]

    @property
    def angle(self) -> Float[Array, ""]:
        """Angle of the longest range in degrees, from the first axis towards the second, below 180.

        In three columns that of its projection on the first two. It is arbitrary at ratio 1.
        """
        first, second = self.axes[0, :2]
        return jnp.rad2deg(jnp.arctan2(second, first)) % 180

    @property
    def _principal(self) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(self._exponent(jnp.asarray(self.stretch)))
        return values, vectors

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.kernel(self.place(x - z), jnp.zeros_like(x))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        centre = jax.lax.stop_gradient(jnp.mean(X, axis=0))
        return self.kernel.gram(self.place(X - centre), self.place(Z - centre))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.kernel.diagonal(X)

    def place(self, X: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
        """Coordinates in which the kernel is isotropic, X exp(-M / 2)."""
        columns = 2 if len(self.stretch) == 2 else 3
        if X.shape[-1] != columns:
            raise InputError(
                f"Anisotropic of {len(self.stretch)} stretches reads {columns} columns of places, "
                f"got {X.shape[-1]}; use .on(...) with their numbers, stretch=np.zeros(5) for 3."
            )
        shrunk = _exponential(-0.5 * self._exponent(self.stretch.astype(X.dtype)))
        return jnp.sum(X[..., None] * shrunk, axis=-2)  # a product of matrices may round to TF32

    def _exponent(self, v: Float[Array, "S"]) -> Float[Array, "D D"]:
        """The matrix M."""
        if len(v) == 2:
            return jnp.array([[v[0], v[1]], [v[1], -v[0]]])
        w = v[4] / math.sqrt(3)
        return jnp.array([[w + v[0], v[1], v[2]], [v[1], w - v[0], v[3]], [v[2], v[3], -2 * w]])

    def weak_prior(self, name: str, latent: float) -> Distribution | None:
        return Normal(np.zeros(np.shape(self.stretch)), 1.0)


def _exponential(S: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """Exponential of a symmetric matrix, by six squares of nine terms of the series of a 64th.

    To 1e-15 where its eigenvalues are below six, a ratio of exp(12).
    """

    def times(A: Array, B: Array) -> Array:
        return jnp.sum(A[:, :, None] * B[None], axis=1)

    one = jnp.eye(len(S), dtype=S.dtype)
    found = one
    for number in range(9, 0, -1):
        found = one + times(S / 64, found) / number
    for _ in range(6):
        found = times(found, found)
    return found


@coordinates.register
def _(kernel: Anisotropic, X: Inputs, reference: Array) -> Array:
    return coordinates(kernel.kernel, kernel.place(X), kernel.place(reference))


@features.random_parts.register
def _(kernel: Anisotropic, inputs: int) -> list[features.RandomPart]:
    return features.random_parts(kernel.kernel, inputs)


@features._features.register
def _(
    kernel: Anisotropic, spectra: Iterator[features.Spectrum], centre: Float[Array, "#D"]
) -> features.Features:
    own = centre if len(centre) == 1 else kernel.place(centre)
    return features._elsewhere(features._features(kernel.kernel, spectra, own), kernel.place)
