"""Gaussian posteriors of weights and directions whose prior is standard normal."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.numerics.sums import sum_over_first
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_LOG_2PI = 1.8378770664093453


class Factors(NamedTuple):
    """Independent Gaussians."""

    mean: Any  # a tree of arrays; shape (R, width) of a layer's weights
    log_deviation: Any  # the same of logarithms of standard deviations

    def kl(self) -> Scalar:
        """KL divergence from standard normal laws, in nats."""

        def of(mean: Array, log: Array) -> Array:
            return 0.5 * jnp.sum(jnp.exp(2 * log) + mean**2 - 1 - 2 * log)

        return total(jax.tree.map(of, self.mean, self.log_deviation))

    def draw(self, key: RandomKey) -> Any:
        """One draw of each."""
        return self.drawn(standard_noise(key, self.mean))

    def drawn(self, noise: Any) -> Any:
        """The same given standard normal noise."""
        return jax.tree.map(
            lambda m, log, e: m + jnp.exp(log) * e, self.mean, self.log_deviation, noise
        )

    def log_ratio(self, drawn: Any) -> Scalar:
        """Log density of a draw under the prior less that under this law, in nats."""

        def of(mean: Array, log: Array, w: Array) -> Array:
            return jnp.sum(0.5 * ((w - mean) * jnp.exp(-log)) ** 2 + log - 0.5 * w**2)

        return total(jax.tree.map(of, self.mean, self.log_deviation, drawn))

    def functions(self, phi: Float[Array, "B R"], key: RandomKey) -> Float[Array, "B width"]:
        """A draw of the functions phi' w, each row's by noise of its own."""
        mean, variance = phi @ self.mean, phi**2 @ jnp.exp(2 * self.log_deviation)
        return mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape, mean.dtype)


class MatrixNormal(NamedTuple):
    """Weights of one layer with covariance V (x) U, shared by features and by functions.

    Gaussian as Louizos & Welling (2016, "Structured and efficient variational deep learning with
    matrix Gaussian posteriors"), both covariances full.
    """

    mean: Float[Array, "R width"]
    features: Float[Array, "R R"]  # lower factor of U, shape (R, R), its diagonal in logarithms
    between: Float[Array, "width width"]  # lower factor of V, likewise

    def kl(self) -> Scalar:
        """KL divergence from standard normal laws, in nats."""
        size, width = self.mean.shape
        spread = jnp.sum(_factor(self.features) ** 2) * jnp.sum(_factor(self.between) ** 2)
        logs = width * jnp.trace(self.features) + size * jnp.trace(self.between)
        return 0.5 * (spread + jnp.sum(self.mean**2) - self.mean.size) - logs

    def draw(self, key: RandomKey) -> Float[Array, "R width"]:
        """One draw."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + _factor(self.features) @ noise @ _factor(self.between).T

    def log_ratio(self, drawn: Float[Array, "R width"]) -> Scalar:
        """Log density of a draw under the prior less that under this law, in nats."""
        half = _solve(self.features, drawn - self.mean)
        noise = _solve(self.between, half.T)
        size, width = self.mean.shape
        logs = width * jnp.trace(self.features) + size * jnp.trace(self.between)
        return 0.5 * (jnp.sum(noise**2) - jnp.sum(drawn**2)) + logs

    def functions(self, phi: Float[Array, "B R"], key: RandomKey) -> Float[Array, "B width"]:
        """A draw of the functions phi' w, each row's by noise of its own."""
        mean = phi @ self.mean
        deviation = jnp.sqrt(sum_over_first((phi @ _factor(self.features)).T ** 2))
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + deviation[:, None] * (noise @ _factor(self.between).T)


def of_weights(mean: Float[Array, "R width"], deviation: float, *, factorised: bool) -> Any:
    """Posterior of a layer's weights with one standard deviation for all of them."""
    log = jnp.log(jnp.asarray(deviation))
    if factorised:
        return Factors(mean, jnp.full(mean.shape, log))
    size, width = mean.shape
    return MatrixNormal(mean, log * jnp.eye(size), jnp.zeros((width, width)))


def standard_noise(key: RandomKey, like: Any) -> Any:
    """Standard normal noise in the shape of a tree."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, max(len(leaves), 1))
    pairs = zip(keys, leaves, strict=False)
    noise = [jax.random.normal(own, leaf.shape, leaf.dtype) for own, leaf in pairs]
    return jax.tree.unflatten(structure, noise)


def entropy(log_deviation: HyperVector) -> Scalar:
    """Entropy of independent Gaussians, in nats."""
    return jnp.sum(log_deviation) + 0.5 * log_deviation.size * (1 + _LOG_2PI)


def total(parts: Any) -> Scalar:
    """The sum of a tree of numbers."""
    return sum(jax.tree.leaves(parts), jnp.zeros(()))


def _factor(raw: Float[Array, "size size"]) -> Float[Array, "size size"]:
    return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))


def _solve(raw: Float[Array, "size size"], right: Float[Array, "size S"]) -> Float[Array, "size S"]:
    return jax.scipy.linalg.solve_triangular(_factor(raw), right, lower=True)
