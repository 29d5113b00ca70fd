"""Random features: a finite-dimensional function space whose covariance is near the kernel's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, UInt32

from latentgp.errors import InputError
from latentgp.kernels import stationary
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum, contains
from latentgp.kernels.directions import DirectionKind, Directions, draw_directions
from latentgp.kernels.dot_product import ArcCosine, Linear, White
from latentgp.kernels.metric import MetricKernel
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import Stationary
from latentgp.kernels.warping import InputWarping
from latentgp.kernels.weighted import WeightedSum
from latentgp.numerics.waves import cosine_and_sine
from latentgp.typing import Array


class Features(eqx.Module):
    """A map of rows: features phi with E phi(x)' phi(z) = k(x, z), or the angles of some.

    phi(x)' w with w ~ N(0, I) is a prior draw.
    """

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        """Features, or angles, of every row."""


class Spectrum(NamedTuple):
    """Random parts of one kernel's features, which hyper-parameters scale."""

    directions: Directions  # in the coordinates of the kernel
    key: Key[Array, ""]  # of the mixing variable, by which frequencies are longer or shorter


class StationaryAngles(Features):
    """Angles of a stationary kernel, of inputs about a centre."""

    kernel: Stationary
    directions: Directions
    stretch: Float[Array, "F"]
    centre: Float[Array, "#D"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        return self.directions(self.kernel.embed(X - self.centre)) * self.stretch


class ProductAngles(Features):
    """Angles of a product: its spectral law is that of sums of independent frequencies."""

    parts: tuple[Features, ...]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        return sum((part(X) for part in self.parts[1:]), self.parts[0](X))


class CosineFeatures(Features):
    """Cosines and sines at random frequencies (Rahimi & Recht 2007)."""

    angles: Features
    variance: Float[Array, ""]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        angle = self.angles(X)
        scale = jnp.sqrt(self.variance / angle.shape[1])
        return scale * jnp.concatenate(cosine_and_sine(angle), axis=1)


class ArcCosineFeatures(Features):
    """Units of a layer with random weights: steps of order 0, rectified of order 1 (Cho & Saul)."""

    kernel: ArcCosine
    directions: Directions

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        weighted = X * jnp.sqrt(self.kernel.per_column("weight_variance", X))
        bias = jnp.broadcast_to(jnp.sqrt(self.kernel.bias_variance), (len(X), 1))
        inner = self.directions(jnp.concatenate([weighted, bias.astype(X.dtype)], axis=1))
        units = jax.nn.relu(inner) if self.kernel.order else (inner > 0).astype(X.dtype)
        return jnp.sqrt(2 * self.kernel.variance / inner.shape[1]) * units


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


class ProductFeatures(Features):
    """Products of each feature of one map with each of another, drawn independently."""

    parts: tuple[Features, ...]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        product = self.parts[0](X)
        for part in self.parts[1:]:
            product = (product[:, :, None] * part(X)[:, None, :]).reshape(len(X), -1)
        return product


class FeaturesElsewhere(Features):
    """Features, or angles, of places on a sphere, of some columns, or of warped ones."""

    features: Features
    place: Any  # of a row, a method of the kernel

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        return self.features(self.place(X))


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


class WhiteFeatures(Features):
    """Random signs of every point: the same wherever its bits are, as those of one function."""

    kernel: White
    seed: UInt32[Array, "2"]  # of the signs
    number: int = eqx.field(static=True)  # of them at a point

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N R"]:
        def folded(key: Key[Array, ""], word: UInt32[Array, ""]) -> tuple[Key[Array, ""], None]:
            return jax.random.fold_in(key, word), None

        def signs(x: Float[Array, "D"]) -> Float[Array, "R"]:
            key = jax.random.wrap_key_data(self.seed, impl="threefry2x32")
            one_zero = jnp.where(x == 0, 0.0, x)  # not another one below
            words = jax.lax.bitcast_convert_type(one_zero, jnp.uint32)
            own, _ = jax.lax.scan(folded, key, words.ravel())
            return jax.random.rademacher(own, (self.number,), X.dtype)

        return jnp.sqrt(self.kernel.variance / self.number) * jax.vmap(signs)(X)


def random_features(
    kernel: Kernel, key: Key[Array, ""], inputs: int, number: int, kind: DirectionKind = "fourier"
) -> Features:
    """Random features of a kernel of D inputs, an even number for each part that has random ones.

    It is a stationary, arc-cosine, linear, constant or white kernel, or a sum, product, scaling or
    selection of such; InputError of another. The kind is that of `draw_directions`.
    """
    return features_of(kernel, _spectra(kernel, key, inputs, number, kind))


def draw_spectra(
    kernel: Kernel, key: Key[Array, ""], inputs: int, number: int, kind: DirectionKind = "fourier"
) -> tuple[Spectrum, ...]:
    """Random parts of a kernel's features, so many for each part that has some.

    The kernel's structure alone matters. InputError of a kernel without random features, or a part
    without smooth ones: signs at N points are N features, not fewer.
    """
    if contains(kernel, White):
        raise InputError(
            "White noise is no sum over few features, as RandomFeatures need; leave White() to the "
            "noise of the likelihood, or use Dense()."
        )
    return _spectra(kernel, key, inputs, number, kind)


def _spectra(
    kernel: Kernel, key: Key[Array, ""], inputs: int, number: int, kind: DirectionKind
) -> tuple[Spectrum, ...]:
    if number < 2:
        raise InputError(f"features must be at least 2, a cosine and a sine, got {number}.")
    parts = random_parts(kernel, inputs)
    keys = [key] if len(parts) < 2 else jax.random.split(key, len(parts))
    drawn = []
    for part, own in zip(parts, keys, strict=False):
        key_directions, key_mixing = jax.random.split(own)
        count = number // part.features_each
        directions = draw_directions(key_directions, part.coordinates, count, kind)
        drawn.append(Spectrum(directions, key_mixing))
    return tuple(drawn)


def features_of(
    kernel: Kernel, spectra: Sequence[Spectrum], centre: Float[Array, "D"] | None = None
) -> Features:
    """The features that `draw_spectra` of the kernel's parts give at its hyper-parameters.

    Angles of stationary parts are zero at the centre: far from the inputs a change of length-scales
    would turn all of them. Their covariances are the same anywhere.
    """
    return _features(kernel, iter(spectra), jnp.zeros(1) if centre is None else centre)


class RandomPart(NamedTuple):
    """A part of a kernel with features that are random."""

    coordinates: int  # that directions are in
    features_each: int  # features a direction


@singledispatch
def random_parts(kernel: Kernel, inputs: int) -> list[RandomPart]:
    """The parts of a kernel whose features are random, in their order; InputError if none are."""
    raise InputError(
        f"{type(kernel).__name__} has no random features, which paths and RandomFeatures need; "
        "use sample_f for joint draws at given inputs, and leave RandomFeatures out."
    )


@random_parts.register
def _(kernel: Stationary, inputs: int) -> list[RandomPart]:
    return [RandomPart(jax.eval_shape(kernel.embed, jnp.zeros(inputs)).shape[0], 2)]


@random_parts.register
def _(kernel: OnSphere, inputs: int) -> list[RandomPart]:
    if kernel.distance != "chord":
        raise InputError(
            "OnSphere has random features of the chord alone, which paths and RandomFeatures need; "
            'use distance="chord".'
        )
    return random_parts(kernel.kernel, 3)


@random_parts.register
def _(kernel: MetricKernel, inputs: int) -> list[RandomPart]:
    return random_parts(kernel.kernel, 3 + len(kernel.others.dimensions))


@random_parts.register
def _(kernel: White, inputs: int) -> list[RandomPart]:
    return [RandomPart(inputs, 1)]


@random_parts.register
def _(kernel: ArcCosine, inputs: int) -> list[RandomPart]:
    return [RandomPart(inputs + 1, 1)]


@random_parts.register(Sum)
@random_parts.register(Product)
@random_parts.register(WeightedSum)
def _(kernel: Sum | Product | WeightedSum, inputs: int) -> list[RandomPart]:
    return [found for part in kernel.parts for found in random_parts(part, inputs)]


@random_parts.register(Scaled)
@random_parts.register(InputWarping)
def _(kernel: Scaled | InputWarping, inputs: int) -> list[RandomPart]:
    return random_parts(kernel.kernel, inputs)


@random_parts.register
def _(kernel: ActiveDimensions, inputs: int) -> list[RandomPart]:
    return random_parts(kernel.kernel, len(kernel.dimensions))


@random_parts.register(Linear)
@random_parts.register(Constant)
def _(kernel: Kernel, inputs: int) -> list[RandomPart]:
    return []


@singledispatch
def _features(kernel: Kernel, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    """Features of a kernel, each random part with the next of the spectra."""
    raise NotImplementedError(type(kernel).__name__)


@_features.register
def _(kernel: Stationary, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    directions, key = next(spectra)
    stretch = jnp.sqrt(_spectral_mixing(kernel, key, directions.number))
    angles = StationaryAngles(kernel, directions, stretch, centre)
    return CosineFeatures(angles, kernel.variance)


@_features.register
def _(kernel: OnSphere, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    own = centre if len(centre) == 1 else kernel.place(centre[None])[0]
    return _elsewhere(_features(kernel.kernel, spectra, own), kernel.place)


@_features.register
def _(kernel: MetricKernel, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    own = centre if len(centre) == 1 else kernel.place(centre[None])[0]
    unit = eqx.tree_at(lambda k: k.lengthscale, kernel.kernel, jnp.ones(()))
    return _elsewhere(_features(unit, spectra, own), kernel.place)


@_features.register
def _(kernel: White, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    directions, key = next(spectra)
    return WhiteFeatures(kernel, jax.random.bits(key, (2,), "uint32"), directions.number)


@_features.register
def _(kernel: ArcCosine, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    return ArcCosineFeatures(kernel, next(spectra).directions)


@_features.register
def _(kernel: Sum, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    return SumFeatures(tuple(_features(part, spectra, centre) for part in kernel.parts))


@_features.register
def _(kernel: WeightedSum, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    scaled = tuple(Scaled(part, w) for part, w in zip(kernel.parts, kernel.weights, strict=True))
    return _features(Sum(scaled), spectra, centre)


@_features.register
def _(kernel: Product, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    parts = tuple(_features(part, spectra, centre) for part in kernel.parts)
    waves = [part for part in parts if isinstance(part, CosineFeatures)]
    others = tuple(part for part in parts if not isinstance(part, CosineFeatures))
    if not waves:
        return ProductFeatures(others)
    variance = jnp.prod(jnp.stack([part.variance for part in waves]))
    together = CosineFeatures(ProductAngles(tuple(part.angles for part in waves)), variance)
    return ProductFeatures((together, *others)) if others else together


@_features.register
def _(kernel: Scaled, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    features = _features(kernel.kernel, spectra, centre)
    if isinstance(features, CosineFeatures):
        return CosineFeatures(features.angles, kernel.scale * features.variance)
    return ScaledFeatures(features, jnp.sqrt(kernel.scale))


@_features.register
def _(
    kernel: ActiveDimensions, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]
) -> Features:
    own = centre if len(centre) == 1 else kernel.select(centre)
    return _elsewhere(_features(kernel.kernel, spectra, own), kernel.select)


@_features.register
def _(kernel: InputWarping, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    own = centre if len(centre) == 1 < kernel.knots.shape[1] else kernel.warp(centre)
    return _elsewhere(_features(kernel.kernel, spectra, own), kernel.warp)


def _elsewhere(features: Features, place: Any) -> Features:
    if isinstance(features, CosineFeatures):
        return CosineFeatures(FeaturesElsewhere(features.angles, place), features.variance)
    return FeaturesElsewhere(features, place)


@_features.register
def _(kernel: Linear, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    return LinearFeatures(kernel)


@_features.register
def _(kernel: Constant, spectra: Iterator[Spectrum], centre: Float[Array, "#D"]) -> Features:
    return ConstantFeatures(kernel)


@singledispatch
def _spectral_mixing(kernel: Stationary, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    """Frequencies are N(0, s I) with s drawn from the law of this mixing variable."""
    raise InputError(
        f"{type(kernel).__name__} has no random features, which paths and RandomFeatures need; "
        "use sample_f for joint draws at given inputs, and leave RandomFeatures out."
    )


@_spectral_mixing.register(stationary.RBF)
@_spectral_mixing.register(stationary.Periodic)
def _(kernel: Stationary, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return jnp.ones(number)


@_spectral_mixing.register
def _(kernel: stationary.RationalQuadratic, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    return jax.random.gamma(key, kernel.mixing, (number,)) / kernel.mixing


@_spectral_mixing.register(stationary.Matern)
@_spectral_mixing.register(stationary.Matern12)
@_spectral_mixing.register(stationary.Matern32)
@_spectral_mixing.register(stationary.Matern52)
def _(kernel: Any, key: Key[Array, ""], number: int) -> Float[Array, "F"]:
    """The spectral law is multivariate Student-t with 2 nu degrees of freedom (R&W eq. 4.15)."""
    order = jnp.asarray(kernel.order)
    return order / jax.random.gamma(key, order, (number,))
