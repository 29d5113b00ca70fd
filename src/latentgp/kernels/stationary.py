"""Kernels of the scaled distance r between two points, r^2 = sum_d (x_d - z_d)^2 / l_d^2."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import check_whole
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import Kernel, same_variance
from latentgp.numerics.bessel import matern_correlation
from latentgp.typing import Array, PerColumn


class Stationary(Kernel):
    """Variance times a correlation that depends on the scaled distance alone.

    An author writes `correlation` of the squared scaled distance, elementwise, and where the
    distance is not that of the inputs `coordinates` and their `lengthscales` (as in `Periodic`).

    Args:
        lengthscale: scalar, or shape (D,) for automatic relevance determination; units of
            the inputs.
        variance: prior variance of the latent function; units of the latent function squared.
    """

    lengthscale: PerColumn = parameter(constraints.positive, role="lengthscale", default=1.0)
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    @abstractmethod
    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """Correlation at squared scaled distance r^2 >= 0, one at r = 0."""

    def coordinates(self, points: Float[Array, "*N D"]) -> Float[Array, "*N E"]:
        """Coordinates that a length-scale divides: the inputs unless overridden.

        The same shift of all points must not change their distances.
        """
        return points

    def lengthscales(self, points: Float[Array, "*N D"]) -> Float[Array, "E"]:
        """The length-scale of each coordinate."""
        return jnp.broadcast_to(self.per_column("lengthscale", points), points.shape[-1:])

    @final
    def embed(self, points: Float[Array, "*N D"]) -> Float[Array, "*N E"]:
        """Coordinates in length-scales, between which the distance is taken."""
        return self.coordinates(points) / self.lengthscales(points)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        difference = self.embed(x) - self.embed(z)
        return self.variance * self.correlation(jnp.sum(difference**2))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        # Inputs far from zero lose their digits unless they are centred before anything else:
        # centred only after scaling, the derivative in the length-scale is wrong at X + 1e6.
        # The centre is that of X alone, where the model's own points are given: a far row among
        # new inputs Z must not blur the other ones.
        centre = jax.lax.stop_gradient(jnp.mean(X, axis=0))
        X, Z = X - centre, Z - centre
        coordinates = self.coordinates(X), self.coordinates(Z)
        squared_distance = squared_distances(*coordinates, self.lengthscales(X))
        return self.variance * self.correlation(squared_distance)

    diagonal = same_variance


def is_isotropic(kernel: Any) -> bool:
    """Whether a kernel is a function of the distance, with one length-scale."""
    changed = ("coordinates", "lengthscales")
    return (
        isinstance(kernel, Stationary)
        and jnp.shape(kernel.lengthscale) in ((), (1,))
        and all(getattr(type(kernel), name) is getattr(Stationary, name) for name in changed)
    )


class RBF(Stationary):
    """Squared exponential kernel, variance * exp(-r^2 / 2) (Rasmussen & Williams 2006, eq. 4.9).

    Example:
        >>> import jax.numpy as jnp
        >>> float(RBF(lengthscale=2.0)(jnp.zeros(1), jnp.zeros(1)))
        1.0
    """

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return jnp.exp(-0.5 * squared_distance)


class Matern12(Stationary):
    """Matérn kernel of order 1/2, variance * exp(-r) (Rasmussen & Williams 2006, eq. 4.18)."""

    order: ClassVar[float] = 0.5

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return jnp.exp(-distance(squared_distance))


class Matern32(Stationary):
    """Matérn kernel of order 3/2, variance * (1 + s) exp(-s), s = sqrt(3) r (R&W eq. 4.17)."""

    order: ClassVar[float] = 1.5

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return _half_integer(1, squared_distance)


class Matern52(Stationary):
    """Matérn kernel of order 5/2, variance * (1 + s + s^2/3) exp(-s), s = sqrt(5) r (R&W 4.17)."""

    order: ClassVar[float] = 2.5

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return _half_integer(2, squared_distance)


class MaternHalfInteger(Stationary):
    """Matérn kernel of order p + 1/2, a polynomial times an exponential (R&W 2006, eq. 4.16).

    Functions are p times differentiable. For `Markov()`, which wants the order to be known;
    `Matern` can learn it.

    Args:
        degree: p, a whole number from 0.

    Example:
        >>> import jax.numpy as jnp
        >>> float(MaternHalfInteger(degree=3)(jnp.zeros(1), jnp.zeros(1)))
        1.0
    """

    degree: int = eqx.field(static=True, default=3)

    def __check_init__(self) -> None:
        check_whole(self, degree=0)

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return _half_integer(self.degree, squared_distance)


class Matern(Stationary):
    """Matérn kernel of any order nu > 0, in Bessel form (Rasmussen & Williams 2006, eq. 4.14).

    variance * 2^(1 - nu) / Gamma(nu) * s^nu K_nu(s), s = sqrt(2 nu) r. The order can be
    learned: derivatives in nu are exact. Orders 1/2, 3/2 and 5/2 have cheaper classes.

    Args:
        order: nu, between 0.05 and 50; functions are differentiable ceil(nu) - 1 times.
    """

    order: Float[Array, ""] = parameter(constraints.interval(0.05, 50.0), default=1.5)

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return matern_correlation(distance(squared_distance), self.order)


class RationalQuadratic(Stationary):
    """Mixture of RBF kernels over length-scales, variance * (1 + r^2 / (2 a))^-a (R&W eq. 4.19).

    Args:
        mixing: a > 0; small values mix many length-scales, a -> infinity is the RBF.
    """

    mixing: Float[Array, ""] = parameter(constraints.positive, default=1.0)

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return jnp.exp(-self.mixing * jnp.log1p(squared_distance / (2 * self.mixing)))


class Periodic(Stationary):
    """Periodic kernel, variance * exp(-2 sum_d sin^2(pi (x_d - z_d) / p) / l_d^2) (MacKay 1998).

    It is the RBF between points wound on circles, so its Gram matrix is one matrix product.

    Args:
        lengthscale: relative to the circle, without units.
        period: scalar or shape (D,); units of the inputs.
    """

    lengthscale: PerColumn = parameter(constraints.positive, default=1.0)
    period: PerColumn = parameter(constraints.positive, role="period", default=1.0)

    def coordinates(self, points: Float[Array, "*N D"]) -> Float[Array, "*N E"]:
        angle = 2 * jnp.pi * points / self.per_column("period", points)
        circle = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        return circle.reshape(*points.shape[:-1], -1)

    def lengthscales(self, points: Float[Array, "*N D"]) -> Float[Array, "E"]:
        return jnp.repeat(super().lengthscales(points), 2)

    def correlation(self, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
        return jnp.exp(-0.5 * squared_distance)


class Cosine(Kernel):
    """Waves of one frequency, variance * cos(2 pi sum_d (x_d - z_d) / p_d).

    Times another kernel it makes oscillations that lose their phase.

    Args:
        period: scalar or shape (D,); units of the inputs.
        variance: units of the latent function squared.

    Example:
        >>> import jax.numpy as jnp
        >>> float(Cosine(period=2.0)(jnp.zeros(1), jnp.ones(1)))
        -1.0
    """

    period: PerColumn = parameter(constraints.positive, role="period", default=1.0)
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance * jnp.cos(jnp.sum(self._phase(x - z)))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        centre = jax.lax.stop_gradient(jnp.mean(X, axis=0))
        a, b = (jnp.sum(self._phase(points - centre), axis=1) for points in (X, Z))
        return self.variance * jnp.cos(a[:, None] - b[None])

    diagonal = same_variance

    def _phase(self, points: Float[Array, "*N D"]) -> Float[Array, "*N D"]:
        return 2 * jnp.pi * points / self.per_column("period", points)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _half_integer(p: int, squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Matérn correlation of order p + 1/2 (Rasmussen & Williams 2006, eq. 4.16)."""
    s = math.sqrt(2 * p + 1) * distance(squared_distance)
    total = jnp.zeros_like(s)
    for i in range(p + 1):  # by Horner's rule, highest power first
        weight = math.comb(p, i) * math.factorial(p + i) / math.factorial(2 * p)
        total = total * (2 * s) + weight
    return total * jnp.exp(-s)


@_half_integer.defjvp
def _slope_of_half_integer(p: int, primals: Any, tangents: Any) -> Any:
    """In r^2 it is the correlation of the order below, finite at zero where one through r is not.

    Second derivatives of the kernel in the inputs of two equal points need it.
    """
    (squared,), (tangent,) = primals, tangents
    if not p:
        return jax.jvp(lambda squared: jnp.exp(-distance(squared)), (squared,), (tangent,))
    order = p + 0.5
    slope = -order / (2 * order - 2) * _half_integer(p - 1, order / (order - 1) * squared)
    return _half_integer(p, squared), slope * tangent


@jax.custom_jvp
def squared_distances(
    A: Float[Array, "N E"], B: Float[Array, "M E"], lengthscales: Float[Array, "E"]
) -> Float[Array, "N M"]:
    """Squared Euclidean distances between rows in length-scales, never negative.

    By one matrix product, which loses digits in proportion to the squared norms, so the points
    should be centred; of one column by differences, which lose none. The derivative in the
    length-scales takes one more, where that through both scaled arrays would take two.
    """
    if A.shape[1] == 1:
        return ((A - B.T) / lengthscales) ** 2
    A, B = A / lengthscales, B / lengthscales
    # Without the barrier XLA (0.10) makes a slower loop of it: 3.7 for 3.1 ms of a step in all.
    product = jax.lax.optimization_barrier(A @ B.T)
    squared = jnp.sum(A**2, 1)[:, None] + jnp.sum(B**2, 1)[None, :] - 2 * product
    return jnp.maximum(squared, 0)


def _slope_of_distances(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> Any:
    lengthscales = primals[2]
    A, B = primals[0] / lengthscales, primals[1] / lengthscales
    in_A, in_B, relative = (
        None if isinstance(tangent, SymbolicZero) else tangent / lengthscales
        for tangent in tangents
    )
    slope = jnp.zeros((len(A), len(B)), A.dtype)
    if A.shape[1] == 1:
        moved = [0.0 if tangent is None else tangent for tangent in (in_A, in_B, relative)]
        apart = (primals[0] - primals[1].T) / lengthscales
        slope = slope + 2 * apart * (moved[0] - jnp.transpose(moved[1]) - moved[2] * apart)
        return apart**2, slope
    if relative is not None:
        # The product in the derivative is over the rows of what is not weighted: the fewer ones.
        product = (A * relative) @ B.T if len(A) > len(B) else A @ (B * relative).T
        norms = (A**2 @ relative)[:, None] + (B**2 @ relative)[None, :]
        slope = slope - 2 * (norms - 2 * product)
    if in_A is not None:
        slope = slope + 2 * (jnp.sum(A * in_A, 1)[:, None] - in_A @ B.T)
    if in_B is not None:
        slope = slope + 2 * (jnp.sum(B * in_B, 1)[None, :] - A @ in_B.T)
    return squared_distances(*primals), slope


squared_distances.defjvp(_slope_of_distances, symbolic_zeros=True)


def distance(squared_distance: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Square root with derivative zero, not infinity, at zero."""
    return jnp.sqrt(jnp.maximum(squared_distance, 1e-36))
