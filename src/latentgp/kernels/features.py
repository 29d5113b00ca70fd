"""Random features: a finite-dimensional function space whose covariance is near the kernel's."""

from __future__ import annotations

from abc import abstractmethod
from functools import singledispatch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Scaled, Sum
from latentgp.kernels.dot_product import Linear
from latentgp.kernels.stationary import (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Stationary,
)
from latentgp.kernels.weighted import WeightedSum
from latentgp.typing import Array


class Features(eqx.Module):
    """A map phi with E phi(x)' phi(z) = k(x, z): phi(x)' w with w ~ N(0, I) is a prior draw."""

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        """Features of every row."""


class FourierFeatures(Features):
    """Cosines and sines at random frequencies (Rahimi & Recht 2007)."""

    kernel: Stationary
    frequencies: Float[Array, "F E"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        angle = self.kernel.embed(X) @ self.frequencies.T
        scale = jnp.sqrt(self.kernel.variance / len(self.frequencies))
        return scale * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)


class ScaledFeatures(Features):
    """Features times a number."""

    features: Features
    scale: Float[Array, ""]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return self.scale * self.features(X)


class SumFeatures(Features):
    """Features side by side: the sum of independent functions."""

    parts: tuple[Features, ...]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return jnp.concatenate([part(X) for part in self.parts], axis=1)


class SelectedFeatures(Features):
    """Features of some columns."""

    features: Features
    dimensions: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return self.features(X[:, np.array(self.dimensions)])


class LinearFeatures(Features):
    """The inputs themselves, in prior standard deviations of their slopes: exact."""

    kernel: Linear

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return X * jnp.sqrt(self.kernel.variance)


class ConstantFeatures(Features):
    """One constant feature: exact."""

    kernel: Constant

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return jnp.broadcast_to(jnp.sqrt(self.kernel.variance), (X.shape[0], 1))


@singledispatch
def random_features(kernel: Kernel, key: Key[Array, ""], inputs: int, number: int) -> Features:
    """Random features of a kernel.

    Args:
        kernel: a stationary, linear or constant kernel, or a sum, scaling or selection of such.
        key: random key.
        inputs: number of input columns D.
        number: of features for each stationary part, an even number.

    Raises:
        InputError: the kernel has none.
    """
    raise InputError(
        f"{type(kernel).__name__} has no random features, which paths need; "
        "use sample_f for joint draws at given inputs."
    )


@random_features.register
def _(kernel: Stationary, key: Key[Array, ""], inputs: int, number: int) -> Features:
    size = kernel.embed(jnp.zeros(inputs)).shape[0]
    key_normal, key_scale = jax.random.split(key)
    normal = jax.random.normal(key_normal, (number // 2, size))
    if number < 2:
        raise InputError(f"features must be at least 2, a cosine and a sine, got {number}.")
    scale = jnp.sqrt(_spectral_mixing(kernel, key_scale, number // 2))
    return FourierFeatures(kernel, normal * scale[:, None])


@random_features.register
def _(kernel: Sum, key: Key[Array, ""], inputs: int, number: int) -> Features:
    keys = jax.random.split(key, len(kernel.parts))
    return SumFeatures(
        tuple(
            random_features(part, k, inputs, number)
            for part, k in zip(kernel.parts, keys, strict=True)
        )
    )


@random_features.register
def _(kernel: WeightedSum, key: Key[Array, ""], inputs: int, number: int) -> Features:
    scaled = tuple(Scaled(part, w) for part, w in zip(kernel.parts, kernel.weights, strict=True))
    return random_features(Sum(scaled), key, inputs, number)


@random_features.register
def _(kernel: Scaled, key: Key[Array, ""], inputs: int, number: int) -> Features:
    return ScaledFeatures(
        random_features(kernel.kernel, key, inputs, number), jnp.sqrt(kernel.scale)
    )


@random_features.register
def _(kernel: ActiveDimensions, key: Key[Array, ""], inputs: int, number: int) -> Features:
    features = random_features(kernel.kernel, key, len(kernel.dimensions), number)
    return SelectedFeatures(features, kernel.dimensions)


@random_features.register
def _(kernel: Linear, key: Key[Array, ""], inputs: int, number: int) -> Features:
    return LinearFeatures(kernel)


@random_features.register
def _(kernel: Constant, key: Key[Array, ""], inputs: int, number: int) -> Features:
    return ConstantFeatures(kernel)


@singledispatch
def _spectral_mixing(kernel: Stationary, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    """Frequencies are N(0, s I) with s drawn from the law of this mixing variable."""
    raise InputError(
        f"{type(kernel).__name__} has no random features, which paths need; "
        "use sample_f for joint draws at given inputs."
    )


@_spectral_mixing.register(RBF)
@_spectral_mixing.register(Periodic)
def _(kernel: Stationary, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return jnp.ones(number)


@_spectral_mixing.register
def _(kernel: RationalQuadratic, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return jax.random.gamma(key, kernel.mixing, (number,)) / kernel.mixing


@_spectral_mixing.register
def _(kernel: Matern, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return _matern_mixing(kernel.order, key, number)


@_spectral_mixing.register
def _(kernel: Matern12, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return _matern_mixing(jnp.asarray(0.5), key, number)


@_spectral_mixing.register
def _(kernel: Matern32, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return _matern_mixing(jnp.asarray(1.5), key, number)


@_spectral_mixing.register
def _(kernel: Matern52, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return _matern_mixing(jnp.asarray(2.5), key, number)


def _matern_mixing(order: Float[Array, ""], key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    """The spectral law is multivariate Student-t with 2 nu degrees of freedom (R&W eq. 4.15)."""
    return order / jax.random.gamma(key, order, (number,))
