"""Checks of the resulting Gaussian: the density's gradients under it, and its tails.

At the best Gaussian the mean gradient of phi = -log p vanishes, and E[g (x - m)'] is the identity
(Stein's identity for both), whatever the method; of low ranks its trace is the rank. Far out phi
must rise faster than the logarithm of the distance, or p has no integral, and faster than three
times that, or it has no variance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.flows.base import Gaussian, LogDensity, Start
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar

_DRAWS = 512
_NEAR, _FAR = 1e3, 1e4  # deviations, between which tails are looked at
_LINES = 64  # along so many dimensions, and principal axes
_DENSE = 512  # dimensions, up to which there are principal axes
_SLIGHTLY, _MUCH = 0.1, 0.5  # off from Stein's identities: told, and not converged
_ERRORS = 4.0  # standard errors within which nothing is off
_SLACK = 0.05  # of tails
_BEYOND = 1e30  # times the start, how wide nothing proper is


class Moments(NamedTuple):
    """Gradients under draws of the Gaussian, and their standard errors."""

    slope: Point  # mean gradient of phi in deviations
    slope_error: Point  # of it
    spread: Point  # E[g_i (x_i - m_i)]
    spread_error: Point  # of it
    total: Scalar  # their sum
    total_error: Scalar  # of it
    energies: Float[Array, "S"]  # phi at the draws
    draws: Samples  # less the mean


def complaints_of(
    target: LogDensity, gaussian: Gaussian, start: Start, key: RandomKey
) -> tuple[bool, tuple[str, ...]]:
    """Whether a Gaussian, in NumPy, can be what the density asks for, and where it is not."""
    variances = np.asarray(gaussian.covariance.variances, float)
    deviations = np.sqrt(np.maximum(variances, 0.0))
    wide = ~(deviations <= _BEYOND * np.asarray(start.scale, float))
    if wide.any():
        return False, (
            f"Deviations grow without end in dimension {int(np.argmax(wide))}, as of a density "
            "that does not fall there: it has no integral, and no Gaussian is near it.",
        )
    sound, said = _by_gradients(target, gaussian, deviations, key)
    proper, of_tails = _by_tails(target, gaussian, deviations, key)
    return sound and proper, (*said, *of_tails)


def _by_gradients(
    target: LogDensity, gaussian: Gaussian, deviations: Float[np.ndarray, "D"], key: RandomKey
) -> tuple[bool, tuple[str, ...]]:
    found: Any = jax.tree.map(lambda a: np.asarray(a, float), _moments(target, gaussian, key))
    covariance, size = gaussian.covariance, len(deviations)
    rank = _rank(gaussian, deviations)
    if rank == 0:
        return False, ("All variances are zero, which says nothing of how wide the density is.",)
    slope = _clear(found.slope, found.slope_error)
    said, worst = [], float(np.max(slope))
    if worst > _SLIGHTLY:
        said.append(
            f"The mean is off by about {worst:.2g} deviations in dimension {np.argmax(slope)}, by "
            "the gradients under the Gaussian."
        )
    off = _clear(found.total / rank - 1, found.total_error / rank)
    ratio = found.total / rank
    columns = covariance.factor.shape[1]
    if rank == size and (columns == 0 or columns * covariance.blocks >= size):
        each = _clear(found.spread - 1, found.spread_error)
        place = int(np.argmax(each))
        if each[place] > off:
            off, ratio = each[place], found.spread[place]
    if off > _SLIGHTLY:
        said.append(
            f"Variances are about {max(ratio, 0.0):.2g} times those of the best Gaussian, by the "
            "gradients under this one."
        )
    sound = worst <= _MUCH and off <= _MUCH and np.isfinite([worst, off]).all()
    apart = 0.0 if target.stochastic else _apart(gaussian, found)
    if apart > _SLIGHTLY:
        said.append(
            f"The log density differs from the Gaussian's by {apart:.2g} nats (standard deviation "
            "under it): moments are the Gaussian's, which those of the density may differ from."
        )
    return bool(sound), tuple(said)


def _apart(gaussian: Gaussian, found: Moments) -> float:
    """Standard deviation of log p - log q under q; zero where q has no density."""
    known = gaussian.covariance.log_density(np.asarray(found.draws, gaussian.mean.dtype))
    difference = -np.asarray(found.energies) - np.asarray(known, float)
    return float(np.std(difference)) if np.isfinite(difference).all() else 0.0


def _rank(gaussian: Gaussian, deviations: Float[np.ndarray, "D"]) -> int:
    """Rank of the covariance: D with a diagonal."""
    covariance = gaussian.covariance
    if np.all(np.asarray(covariance.diagonal) > 0):
        return len(deviations)
    scale = np.where(deviations > 0, deviations, 1.0)[:, None]
    factor, block = np.asarray(covariance.factor, float) / scale, np.asarray(covariance.block)
    own = [factor[block == number] for number in range(covariance.blocks)]
    return sum(int(np.linalg.matrix_rank(part)) for part in own if part.size)


def _clear(off: Any, error: Any) -> Any:
    """Error beyond the standard errors; infinite for NaN."""
    clear = np.maximum(np.abs(off) - _ERRORS * error, 0.0)
    return np.where(np.isfinite(clear), clear, np.inf)


@eqx.filter_jit
def _moments(target: LogDensity, gaussian: Gaussian, key: RandomKey) -> Moments:
    """By draws and their opposites."""
    key_draws, key_batch = jax.random.split(key)
    half = gaussian.covariance.draw(key_draws, _DRAWS // 2)
    draws = jnp.concatenate([half, -half])
    keys = jax.random.split(key_batch, _DRAWS)  # each its own batch, whose noise is an error's
    energies, gradients = jax.vmap(jax.value_and_grad(target.energy))(gaussian.mean + draws, keys)
    deviations = jnp.sqrt(gaussian.covariance.variances)

    def mean(values: Float[Array, "S *D"]) -> tuple[Array, Array]:
        pairs = values.reshape(2, _DRAWS // 2, *values.shape[1:]).mean(axis=0)
        return jnp.mean(pairs, axis=0), jnp.std(pairs, axis=0) / np.sqrt(_DRAWS // 2)

    products = gradients * draws
    slope, total = mean(gradients * deviations), mean(jnp.sum(products, axis=1))
    return Moments(*slope, *mean(products), *total, energies, draws)


def _by_tails(
    target: LogDensity, gaussian: Gaussian, deviations: Float[np.ndarray, "D"], key: RandomKey
) -> tuple[bool, tuple[str, ...]]:
    widest = np.argsort(-deviations)[:_LINES]
    lines = np.zeros((len(widest), len(deviations)))
    lines[np.arange(len(widest)), widest] = deviations[widest]
    if len(deviations) <= _DENSE:
        values, vectors = np.linalg.eigh(np.asarray(gaussian.covariance.dense(), float))
        axes = (vectors * np.sqrt(np.maximum(values, 0.0))).T[::-1][:_LINES]
        lines = np.concatenate([lines, axes])
    there = np.tile(np.linalg.norm(lines, axis=1) > 0, 2)  # all are evaluated: shapes are compiled
    if not there.any():
        return True, ()
    both = jnp.asarray(np.concatenate([lines, -lines]), gaussian.mean.dtype)
    near, far = (np.asarray(a, float) for a in _energies_along(target, gaussian, both, key))
    with np.errstate(invalid="ignore"):
        rise = (far - near) / np.log(_FAR / _NEAR)
    rise = np.where(np.isfinite(rise) & there, rise, np.inf)
    lowest = int(np.argmin(rise))
    if rise[lowest] > 3 + _SLACK:
        return True, ()
    line = np.abs(np.asarray(both[lowest]))
    along = int(np.argmax(line / np.where(deviations > 0, deviations, 1)))
    if rise[lowest] > 1 + _SLACK:
        return True, (
            f"Far out the density falls as the power -{rise[lowest]:.2g} of the distance (most in "
            f"dimension {along}): it has no variance, and that of the Gaussian is its core's.",
        )
    return False, (
        f"Far out the density does not fall (most in dimension {along}; as the power "
        f"{-rise[lowest]:.2g} of the distance): it has no integral, and the variance there means "
        "nothing; give it a prior.",
    )


@eqx.filter_jit
def _energies_along(
    target: LogDensity, gaussian: Gaussian, lines: Float[Array, "lines D"], key: RandomKey
) -> tuple[Float[Array, "lines"], Float[Array, "lines"]]:
    """Phi near and far on lines through a draw: through the mean a line can be a ridge's."""
    key_draw, key_batch = jax.random.split(key)
    base = gaussian.mean + gaussian.covariance.draw(key_draw, 1)[0]
    near, far = (target.energies(base + scale * lines, key_batch) for scale in (_NEAR, _FAR))
    return near, far
