"""Expectations over independent Gaussian latents, by fixed nodes and weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.typing import Array, PerRow, RowLatents, Vectors

Nodes = tuple[Float[np.ndarray, "S Q"], Float[np.ndarray, "S"]]

_TRAINING_NODES, _PREDICTION_NODES, _SOBOL_NODES = 20, 121, 256
_RANGE, _FAR = 8.5, 40.0
_NARROW = 2  # even nodes a width that are enough
_POINTS, _ROUNDS, _WIDTHS = 9, 7, 17


@lru_cache
def training_nodes(latent_size: int) -> Nodes:
    """Standard normal nodes for bounds: Gauss-Hermite for Q <= 2, Sobol points above."""
    if latent_size > 2:
        return sobol_nodes(latent_size, _SOBOL_NODES)
    return _product(gauss_hermite(_TRAINING_NODES), latent_size)


@lru_cache
def prediction_nodes(latent_size: int) -> Nodes:
    """Standard normal nodes for predictions, where latents may be very uncertain.

    The trapezoidal rule converges geometrically for Gaussian integrals and, with a link that
    turns on a scale far below the latent's standard deviation, needs fewer nodes than
    Gauss-Hermite (Trefethen & Weideman 2014). Sobol points for Q > 2.
    """
    if latent_size > 2:
        return sobol_nodes(latent_size, 4 * _SOBOL_NODES)
    count = _PREDICTION_NODES if latent_size == 1 else _PREDICTION_NODES // 3
    return trapezoidal_nodes(latent_size, count)


def trapezoidal_nodes(latent_size: int, count: int) -> Nodes:
    """The trapezoidal rule, so many nodes along each latent."""
    grid = np.linspace(-_RANGE, _RANGE, count)
    weights = np.exp(-0.5 * grid**2)
    return _product((grid[:, None], weights / weights.sum()), latent_size)


@lru_cache
def hermite_nodes(latent_size: int, count: int) -> Nodes:
    """Gauss-Hermite nodes for Q standard normals, so many along each."""
    return _product(gauss_hermite(count), latent_size)


def gauss_hermite(count: int) -> Nodes:
    """Gauss-Hermite nodes for a standard normal: exact for polynomials of degree 2 S - 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes[:, None], weights / weights.sum()


def sobol_nodes(latent_size: int, count: int) -> Nodes:
    """Quasi-Monte Carlo nodes for Q standard normals, equal weights (Sobol 1967).

    With every node comes its opposite, and their covariance is the identity to rounding, so
    polynomials of degree 3 are integrated exactly, and the derivative in the latents' variance
    is that of the curvature even where the variance is tiny.
    """
    from scipy.stats import norm, qmc

    points = qmc.Sobol(latent_size, rng=0).random(count // 2)
    points = norm.ppf(np.clip(points, 1e-12, 1 - 1e-12))
    points = np.concatenate([points, -points])
    root = np.linalg.cholesky(points.T @ points / count)
    return np.linalg.solve(root, points.T).T, np.full(count, 1 / count)


def latent_at_nodes(
    mean: PerRow, variance: PerRow, nodes: Nodes
) -> tuple[Vectors, Float[Array, "S"]]:
    """One latent at nodes, where the others are integrated out, and their weights."""
    f, _ = latents_at(mean[:, None], variance[:, None], nodes)
    return f[:, :, 0], jnp.asarray(nodes[1], mean.dtype)


def nodes_near(
    mean: RowLatents,
    variance: RowLatents,
    near_mean: RowLatents,
    near_variance: RowLatents,
    along: int | None = None,
) -> tuple[Float[Array, "N S Q"], Vectors]:
    """Nodes and log weights for f ~ N(mean, diag(variance)), few latents, dense near another law.

    For an integrand that can be much narrower than the law that the expectation is under: the
    trapezoidal rule in x for f = near_mean + near_spread sinh(reach x), x from -1 to 1, which
    reaches to where the former law ends (in the manner of Takahasi & Mori 1974). `along` is the
    number of nodes along each latent; those of `prediction_nodes` for at most two if None.
    """
    latents = mean.shape[1]
    nodes = trapezoidal_nodes(latents, along) if along else prediction_nodes(latents)
    points = jnp.asarray(nodes[0] / _RANGE, mean.dtype)
    count = round(len(points) ** (1 / latents))
    mean, variance, near_mean = mean[:, None], variance[:, None], near_mean[:, None]
    spread = jnp.sqrt(near_variance)[:, None]
    end = _RANGE * jnp.sqrt(variance) + jnp.abs(near_mean - mean)
    reach = jnp.arcsinh(jax.lax.stop_gradient(end) / spread)
    f = near_mean + spread * jnp.sinh(reach * points)
    log_density = -0.5 * (f - mean) ** 2 / variance - 0.5 * jnp.log(2 * jnp.pi * variance)
    log_step = jnp.log(spread * reach * jnp.cosh(reach * points) * 2 / (count - 1))
    return f, jnp.sum(log_density + log_step, axis=2)


def log_expectation(
    log_function: Callable[[Vectors], Vectors], like: PerRow, *, unimodal: bool
) -> PerRow:
    """Log E exp(log_function(x)) under x ~ N(0, 1), a row: of factors that may be narrow.

    The nodes are dense where the integrand is largest: around a mode within 40 standard
    deviations, as dense as the integrand falls there. Where log_function, which is of S values a
    row, each by itself, is not concave (`unimodal`), only a mode that is narrower than the even
    nodes of `prediction_nodes` changes their spacing. `like` has the rows' shape and dtype.
    """
    count = len(prediction_nodes(1)[0])
    grid = np.sinh(np.arcsinh(_FAR) * np.linspace(-1, 1, count if not unimodal else count // 4 + 1))

    def log_tilted(x: Float[Array, "N S"]) -> Float[Array, "N S"]:
        return jax.lax.stop_gradient(log_function(x) - 0.5 * x**2)

    def closer(_: Any, ends: tuple[PerRow, PerRow]) -> tuple[PerRow, PerRow]:
        """The neighbours of the highest of a few points between two ends."""
        x = jnp.linspace(*ends, _POINTS, axis=1)
        return neighbours(x, log_tilted(x))

    def neighbours(x: Vectors, values: Vectors) -> tuple[PerRow, PerRow]:
        highest = jnp.argmax(values, axis=1)[:, None]
        lower = jnp.take_along_axis(x, jnp.maximum(highest - 1, 0), axis=1)
        upper = jnp.take_along_axis(x, jnp.minimum(highest + 1, x.shape[1] - 1), axis=1)
        return lower[:, 0], upper[:, 0]

    x = jnp.broadcast_to(jnp.asarray(grid, like.dtype), (*like.shape, len(grid)))
    ends = jax.lax.fori_loop(0, _ROUNDS, closer, neighbours(x, log_tilted(x)))
    mode = 0.5 * (ends[0] + ends[1])[:, None]
    # How far from it the integrand has fallen by a half in logarithm, to a factor of two.
    away = jnp.asarray(4.0 ** -np.arange(_WIDTHS), like.dtype)
    lower = jnp.minimum(log_tilted(mode - away), log_tilted(mode + away))
    fallen = log_tilted(mode) - lower > 0.5
    spread = jnp.min(jnp.where(fallen, 0.5 * away, 1.0), axis=1)[:, None]
    if not unimodal:
        spread = jnp.where(spread > _NARROW * 2 * _RANGE / (count - 1), _FAR**2, spread)
    x, log_weights = nodes_near(jnp.zeros_like(mode), jnp.ones_like(mode), mode, spread**2)
    return jax.scipy.special.logsumexp(log_function(x[:, :, 0]) + log_weights, axis=1)


def expectation(
    function: Callable[[Float[Array, "N S Q"]], Float[Array, "N S *shape"]],
    mean: RowLatents,
    variance: RowLatents,
    nodes: Nodes,
) -> Float[Array, "N *shape"]:
    """E function(f) under f ~ N(mean, diag(variance)), a row."""
    f, _ = latents_at(mean, variance, nodes)
    return jnp.einsum("ns...,s->n...", function(f), jnp.asarray(nodes[1], mean.dtype))


def latents_at(
    mean: Float[Array, "N Q"], variance: Float[Array, "N Q"], nodes: Nodes
) -> tuple[Float[Array, "N S Q"], Float[Array, "N Q"]]:
    """The latents at nodes, and their standard deviations."""
    spread = spread_of(mean, variance)
    return mean[:, None, :] + spread[:, None, :] * jnp.asarray(nodes[0], mean.dtype), spread


def spread_of(mean: Float[Array, "N Q"], variance: Float[Array, "N Q"]) -> Float[Array, "N Q"]:
    """Standard deviations large enough for differences between nodes or draws.

    The derivative in the variance is such a difference: nodes must not coincide.
    """
    eps = float(np.finfo(variance.dtype).eps)
    floor = eps**1.25 * mean**2 + eps**1.75
    return jnp.sqrt(variance + jax.lax.stop_gradient(jnp.maximum(floor - variance, 0.0)))


def _product(
    nodes: tuple[Float[np.ndarray, "nodes 1"], Float[np.ndarray, "nodes"]], latent_size: int
) -> Nodes:
    grids = np.meshgrid(*[nodes[0][:, 0]] * latent_size, indexing="ij")
    factors = np.meshgrid(*[nodes[1]] * latent_size, indexing="ij")
    return np.stack([g.ravel() for g in grids], axis=-1), np.prod(factors, axis=0).ravel()


def expected_excess(mean: Float[Array, "*N"], variance: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """E max(0, x) under x ~ N(mean, variance), in closed form."""
    spread = jnp.sqrt(variance + float(np.finfo(variance.dtype).tiny))
    z = mean / spread
    density = jnp.exp(-0.5 * z**2) / float(np.sqrt(2 * np.pi))
    return mean * jax.scipy.special.ndtr(z) + spread * density
