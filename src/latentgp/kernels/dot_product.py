"""Kernels of inner products, and those that ask whether points are equal."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import check_choices, check_whole
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import Kernel, same_variance
from latentgp.typing import Array, PerColumn


class Linear(Kernel):
    """Linear functions through the origin, sum_d v_d x_d z_d (Rasmussen & Williams 2006, 4.2.2).

    Args:
        variance: prior variance of the slopes, scalar or shape (D,); units of the latent
            function squared over those of the inputs squared.
    """

    variance: PerColumn = parameter(constraints.positive, default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.sum(self.per_column("variance", x) * x * z)

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return (self.per_column("variance", X) * X) @ Z.T

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.sum(self.per_column("variance", X) * X**2, axis=1)


class Polynomial(Kernel):
    """Polynomials up to a degree, (sum_d v_d x_d z_d + offset)^degree (R&W 2006, table 4.1).

    Args:
        degree: a whole number from 1.
        variance: weight of each input dimension, scalar or shape (D,).
        offset: positive; how much the lower degrees count.
    """

    degree: int = eqx.field(static=True, default=2)
    variance: PerColumn = parameter(constraints.positive, default=1.0)
    offset: Float[Array, ""] = parameter(constraints.positive, default=1.0)

    def __check_init__(self) -> None:
        check_whole(self, degree=1)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return (jnp.sum(self.per_column("variance", x) * x * z) + self.offset) ** self.degree

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return ((self.per_column("variance", X) * X) @ Z.T + self.offset) ** self.degree

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return (jnp.sum(self.per_column("variance", X) * X**2, axis=1) + self.offset) ** self.degree


class White(Kernel):
    """An independent value at every distinct point: variance where x equals z, else zero.

    It is part of the latent function, as a nugget that rows at equal points share; repeated points
    tell it from noise. For noise of the observations use a likelihood.
    """

    variance: Float[Array, ""] = parameter(constraints.positive, role="noise_variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.where(jnp.all(x == z), self.variance, 0.0)

    diagonal = same_variance


class Categorical(Kernel):
    """Hamming kernel, variance * exp(-sum over columns that differ of 1 / l_d).

    Inputs are category codes; only equality counts. Use it on chosen columns:
    `Categorical().on(3) * RBF().on(0, 1, 2)`. (Ru et al. 2020, eq. 3, unnormalised.)

    Args:
        lengthscale: scalar or shape (D,), without units: a large one makes categories alike.
        variance: units of the latent function squared.
    """

    lengthscale: PerColumn = parameter(constraints.positive, default=1.0)
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance * jnp.exp(-jnp.sum((x != z) / self.per_column("lengthscale", x)))

    diagonal = same_variance


class ArcCosine(Kernel):
    """An infinitely wide layer of a neural network (Cho & Saul 2009, eq. 1), orders 0 and 1.

    With a = (sqrt(w) x, sqrt(bias)) and t the angle between a and b: order 0 (steps) is variance *
    (1 - t / pi), order 1 (rectified linear units) variance / pi * |a| |b| (sin t + (pi - t) cos t).

    Args:
        order: 0 or 1.
        weight_variance: scalar or shape (D,); units of the inputs to the power -2.
        bias_variance: without units.
        variance: units of the latent function squared.
    """

    order: int = eqx.field(static=True, default=1)
    weight_variance: PerColumn = parameter(constraints.positive, default=1.0)
    bias_variance: Float[Array, ""] = parameter(constraints.positive, default=1.0)
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __check_init__(self) -> None:
        check_choices(self, order=(0, 1))

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        product = jnp.sum(self.per_column("weight_variance", x) * x * z) + self.bias_variance
        return self._from_products(product, self._squared_norm(x), self._squared_norm(z))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        product = (self.per_column("weight_variance", X) * X) @ Z.T + self.bias_variance
        left, right = self._squared_norm(X)[:, None], self._squared_norm(Z)[None, :]
        return self._from_products(product, left, right)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        squared_norm = self._squared_norm(X)
        return self.variance * (squared_norm if self.order else jnp.ones_like(squared_norm))

    def _squared_norm(self, points: Float[Array, "*N D"]) -> Float[Array, "*N"]:
        weight_variance = self.per_column("weight_variance", points)
        return jnp.sum(weight_variance * points**2, axis=-1) + self.bias_variance

    def _from_products(
        self, product: Float[Array, "*#S"], left: Float[Array, "*#S"], right: Float[Array, "*#S"]
    ) -> Float[Array, "*#S"]:
        norms = jnp.sqrt(left) * jnp.sqrt(right)
        cosine = jnp.clip(product / norms, -1.0, 1.0)
        if self.order == 0:
            return self.variance * _supplementary_angle(cosine) / jnp.pi
        return self.variance / jnp.pi * norms * _rectifier(cosine)


@jax.custom_jvp
def _supplementary_angle(cosine: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Pi - arccos, with derivative zero where the true one is infinite (zero distance)."""
    return jnp.pi - jnp.arccos(cosine)


@_supplementary_angle.defjvp
def _supplementary_angle_jvp(primals, tangents):
    (cosine,) = primals
    squared_sine = 1 - cosine**2
    inside = squared_sine > 4 * jnp.finfo(cosine.dtype).eps
    slope = jnp.where(inside, 1 / jnp.sqrt(jnp.where(inside, squared_sine, 1.0)), 0.0)
    return _supplementary_angle(cosine), slope * tangents[0]


@jax.custom_jvp
def _rectifier(cosine: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Sin t + (pi - t) cos t as a function of cos t; its derivative is pi - t, finite."""
    return jnp.sqrt(1 - cosine**2) + (jnp.pi - jnp.arccos(cosine)) * cosine


@_rectifier.defjvp
def _rectifier_jvp(primals, tangents):
    (cosine,) = primals
    return _rectifier(cosine), (jnp.pi - jnp.arccos(cosine)) * tangents[0]
