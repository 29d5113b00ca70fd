"""`gaussian_approximation`: a log density and a method in; a Gaussian and a verdict out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, refuse
from latentgp.extensions.flows.base import (
    Approximation,
    Gaussian,
    GaussianApproximation,
    LogDensity,
    Outcome,
    Start,
    approximate,
)
from latentgp.extensions.flows.checks import complaints_of
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.particle_flow import GaussianParticleFlow
from latentgp.modules import Module
from latentgp.numerics.trends import has_stopped, last_rise
from latentgp.rows.arrays import check_shape
from latentgp.typing import Point, RandomKey, Scalar
from latentgp.validation import as_key

_MOST_CURVATURES = 1000  # dimensions
_EXTREME = 1e3  # ratio of deviations by curvature to those of the start
_PARABOLIC = 0.25  # nats, of the half that a parabola rises by in a deviation


def gaussian_approximation(
    log_density: Callable[..., Any],
    dimension: int,
    method: Any = None,
    *,
    key: RandomKey,
    start: Any = None,
    start_std: Any = 1.0,
    stochastic: bool = False,
) -> GaussianApproximation:
    """Approximate a log density by a Gaussian.

    The whole loop is one compiled program, which further calls with the same function, method and
    shapes use again. A log density that reads arrays is best an `equinox.Module` with them as
    fields: other arrays of their shapes then need no new program. The precision is that of JAX
    where it is called, or of a `start` in single precision.

    Args:
        log_density: log p up to a constant, in nats, of an array of shape (D,); differentiable by
            JAX. With stochastic=True it takes a random key too and gives an unbiased estimate,
            such as the sum over a batch of rows that the key chooses, times rows by batch. All
            points of a step get one key.
        dimension: D.
        method: a value such as `GaussianFlow(rank=10)`; None is `GaussianParticleFlow()`.
        key: random key. The same key gives the same bits.
        start: mean of the Gaussian to start from, shape (D,); None for zero.
        start_std: its standard deviations, one number or shape (D,).
        stochastic: the log density takes a key.

    Returns:
        Mean, covariance as an operator, particles if there are any, free energy of every step,
        verdict. If a step gives NaN or infinity the result is the state before it, and says so.
        The verdict tells too where gradients under the Gaussian say that it is not the best one,
        and where the density falls too slowly to have an integral or a variance.

    Raises:
        InputError: a log density that is no number, or not finite at the start; a start of another
            size; a method that does not fit; a search for a mode that ended at none.

    Example:
        >>> import jax, jax.numpy as jnp, latentgp as lgp
        >>> def log_density(x):
        ...     return -0.5 * jnp.sum((x - 1.0) ** 2 / jnp.array([1.0, 4.0, 9.0]))
        >>> found = lgp.flows.gaussian_approximation(log_density, 3, key=jax.random.key(0))
        >>> found.mean.round(3).tolist(), found.converged
        ([1.0, 1.0, 1.0], True)
        >>> found.covariance.dense().round(3).diagonal().tolist()
        [1.0, 4.0, 9.0]
        >>> found.sample(jax.random.key(1), 5).shape
        (5, 3)
    """
    method = GaussianParticleFlow() if method is None else method
    sentences = {
        "method must be an approximation such as GaussianParticleFlow() or MeanField(), got "
        f"{method!r}.": not isinstance(method, Approximation),
        f"dimension must be a whole number of at least 1, got {dimension!r}.": (
            not isinstance(dimension, int | np.integer) or dimension < 1
        ),
    }
    refuse(sentences)
    method.check(int(dimension), stochastic)
    begun = _start(int(dimension), start, start_std)
    target, key = LogDensity(log_density, stochastic), as_key(key)
    _check_start(target, begun, key)
    units = _units(target, begun, key)
    own = begun
    if units is not None:
        target = LogDensity(RescaledDensity(log_density, begun.mean, units), stochastic)
        own = Start(jnp.zeros_like(begun.mean), jnp.ones_like(begun.mean))
    found = finished(method, approximate(method, target, own, key))
    gaussian = Gaussian(found.mean, found.covariance, None)
    sound, said = complaints_of(target, gaussian, own, jax.random.key(0))
    converged, verdict = found.converged and sound, " ".join([found.verdict, *said])
    found = dataclasses.replace(found, converged=converged, verdict=verdict)
    if units is None:
        return found
    return _in_given_units(found, np.asarray(begun.mean), np.asarray(units))


class RescaledDensity(Module):
    """A log density of z for x = centre + units z, but for the constant of the change."""

    function: Callable[..., Any]  # log p(x)
    centre: Point
    units: Point

    def __call__(self, z: Point) -> Scalar:
        return self.function(self.centre + self.units * z)


def _units(target: LogDensity, start: Start, key: RandomKey) -> Point | None:
    """Deviations by the curvature at the start, if they differ extremely from those of the start.

    Steps have one size in all dimensions, or lose small ones to rounding beside large ones. What
    has no such curvature, or is no parabola as far as that says, keeps the start's.
    """
    if target.stochastic or len(start.mean) > _MOST_CURVATURES:
        return None
    try:
        units = np.asarray(_by_curvature(target, start, key))
    except (TypeError, NotImplementedError):  # such as of functions with one derivative alone
        return None
    ratios = units / np.asarray(start.scale)
    extreme = ratios.max() > _EXTREME or ratios.min() < 1 / _EXTREME
    return jnp.asarray(units) if extreme else None


@eqx.filter_jit
def _by_curvature(target: LogDensity, start: Start, key: RandomKey) -> Point:
    energy = partial(target.energy, key=key)
    axes = jnp.eye(len(start.mean), dtype=start.mean.dtype)

    def along(axis: Point) -> Scalar:
        return axis @ jax.jvp(jax.grad(energy), (start.mean,), (axis,))[1]

    unit = 1 / jnp.sqrt(jax.vmap(along)(axes))
    ends = [jax.vmap(energy)(start.mean + sign * unit[:, None] * axes) for sign in (1.0, -1.0)]
    rise = 0.5 * (ends[0] + ends[1]) - energy(start.mean)
    trusted = jnp.isfinite(unit) & (jnp.abs(rise - 0.5) < _PARABOLIC)
    return jnp.where(trusted, unit, start.scale)


def _in_given_units(
    found: GaussianApproximation, centre: Float[np.ndarray, "D"], units: Float[np.ndarray, "D"]
) -> GaussianApproximation:
    """A result in the units of the user's density."""
    own, entropy = found.covariance, np.sum(np.log(units)) if found.method.has_entropy else 0.0
    factor, diagonal = units[:, None] * own.factor, units**2 * own.diagonal
    covariance = Covariance(factor, diagonal, own.block, own.blocks)
    particles = None if found.particles is None else centre + units * found.particles
    return dataclasses.replace(
        found,
        mean=centre + units * found.mean,
        covariance=covariance,
        particles=particles,
        free_energy=found.free_energy - entropy,
        verdict=f"{found.verdict} Steps were in units of the curvature at the start, from "
        f"{units.min():.1e} to {units.max():.1e}.",
    )


def finished(
    method: Approximation, outcome: Outcome, ended: str | None = None
) -> GaussianApproximation:
    """The result in NumPy, with its verdict.

    `ended` says why something outside of the method ended it.

    Raises:
        InputError: not one step was finite, or a search for a mode ended at none.
    """
    outcome = jax.tree.map(np.asarray, outcome)
    steps, name = int(outcome.steps), type(method).__name__
    covariance = outcome.gaussian.covariance
    curved = np.isfinite(covariance.factor).all() and np.isfinite(covariance.diagonal).all()
    sentences = {
        f"The log density or its gradient is not finite where {name} starts; give another start, "
        "or a smaller start_std.": not steps,
        f"{name} ended where the log density is not curved like a Gaussian's; give another start, "
        "or use MeanField or GaussianParticleFlow.": not curved,
    }
    refuse(sentences)
    energies, change = outcome.free_energy[:steps], outcome.change[:steps]
    outcome = outcome._replace(free_energy=energies, change=change)
    converged, verdict = _verdict(name, outcome, ended)
    return GaussianApproximation(
        *outcome.gaussian[:2],
        particles=outcome.gaussian.particles,
        free_energy=energies,
        change=change,
        gradient_evaluations=int(outcome.evaluations),
        converged=converged,
        verdict=verdict,
        method=method,
    )


def _verdict(name: str, outcome: Outcome, ended: str | None) -> tuple[bool, str]:
    """Whether it has converged, and what happened in words."""
    (mean, covariance, particles), energies, change, *_ = outcome
    work = f"{name} made {len(energies):,} steps and {int(outcome.evaluations):,} gradients"
    columns = covariance.factor.shape[1] - (particles is not None)  # particles have a mean
    rank, low = columns * covariance.blocks, ""
    if rank < len(mean) and not np.all(covariance.diagonal > 0):
        low = f" Its covariance has at most rank {rank} of {len(mean)}: other variances are zero."
    if not outcome.finite:
        return False, (
            f"{work}, and stopped before a step that gave NaN or infinity: the result is the state "
            f"before it; take smaller steps, or another start.{low}"
        )
    if outcome.settled:
        return True, f"{work}, and settled.{low}"
    if ended is not None:
        return False, f"{work}, and ended early because {ended}.{low}"
    if np.isfinite(change).all():
        return False, (
            f"{work}, and was still moving, by {change[-1]:.1e} relative to the deviations; raise "
            f"steps.{low}"
        )
    fall, error = last_rise(-energies)
    if has_stopped(fall, error):
        return True, (
            f"{work}; its free energy no longer falls, by {fall:.2g} nats between the last two "
            f"quarters with a standard error of {error:.2g}.{low}"
        )
    if not np.isfinite(fall):
        return (
            False,
            f"{work}, too few to tell whether its free energy still falls; raise steps.{low}",
        )
    way = "fell" if fall > 0 else "rose"
    return False, (
        f"{work}, and its free energy still {way}, by {abs(fall):.2g} nats between the last two "
        f"quarters with a standard error of {error:.2g}; raise steps, or change the rate.{low}"
    )


def _start(dimension: int, start: Any, start_std: Any) -> Start:
    """The start as arrays of one precision."""
    given = np.zeros(dimension) if start is None else np.asarray(start)
    check_shape("start", given, (dimension,), "that of the dimension")
    single = given.dtype == np.float32
    mean = jnp.asarray(given, jnp.float32 if single else jnp.zeros(()).dtype)
    scale = np.asarray(start_std, float)
    proper = scale.shape in ((), (dimension,)) and np.all((scale > 0) & np.isfinite(scale))
    sentences = {
        f"start_std must be above 0, one number or of shape ({dimension},), got {start_std!r}.": (
            not proper
        ),
        "start must be finite, but has NaN or infinity.": not np.isfinite(given).all(),
    }
    refuse(sentences)
    return Start(mean, jnp.broadcast_to(jnp.asarray(scale, mean.dtype), mean.shape))


def _check_start(target: LogDensity, start: Start, key: RandomKey) -> None:
    """Raise InputError unless the log density is a finite number at the start."""
    try:
        energy, gradient = _at_start(target, start.mean, key)
    except InputError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        takes = "an array and a key" if target.stochastic else "an array"
        raise InputError(
            f"log_density failed on {takes} of shape {start.mean.shape} ({error}); check dimension "
            "and stochastic."
        ) from error
    if not np.isfinite(energy) or not np.isfinite(gradient).all():
        raise InputError(
            f"log_density is {-float(energy)} at the start, where it and its gradient must be "
            "finite; give another start."
        )


@eqx.filter_jit
def _at_start(target: LogDensity, mean: Point, key: RandomKey) -> Any:
    """Energy and gradient; the checks are made when it is traced."""
    value = target.function(mean, key) if target.stochastic else target.function(mean)
    if getattr(value, "shape", None) != ():
        raise InputError(
            "log_density must give one number, got "
            f"{getattr(value, 'shape', type(value).__name__)}; sum what it gives over rows."
        )
    return jax.value_and_grad(lambda x: target.energy(x, key))(mean)
