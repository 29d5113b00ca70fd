"""The Gaussian particle flow."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import check_choices, check_ranges, refuse
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance, block_sizes, blocks_by_size
from latentgp.extensions.flows.optimisers import Optimiser, RMSProp
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.quadrature import sobol_nodes
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar

_METRICS = "none", "mean", "full"
_FEWEST_PARTICLES, _MOST_PARTICLES = 128, 1024  # that are taken unasked
_IDLE = 100  # steps in which the free energy falls by rounding alone: it is as low as it gets
_LARGEST, _GROWTH, _SHRINKAGE = 0.5, 2.0, 0.3  # of a step that is searched for


class GaussianParticleFlow(Stepwise):
    """Particles that flow by linear maps until mean and covariance are those of the best Gaussian.

    The flow dx/dt = -E[g] - (E[g (x - m)'] - I)(x - m), g the gradient of phi = -log p and E the
    mean over the particles, is the steepest descent of the free energy among linear ones
    (Galy-Fajou, Perrone & Opper 2021; Galy-Fajou 2022, algorithm 6.2). D + 1 particles fit a
    Gaussian target exactly; N <= D give a covariance of rank N - 1, and an exact mean. The matrix
    of the flow is never formed: a step costs N D times the lesser of N and D, and N gradients.

    Without an optimiser the step size is searched for: a step that would raise the free energy is
    not made, and steps of one half make Newton's steps of the fixed-point equations. That needs a
    log density without noise; otherwise `RMSProp()` is taken.

    Args:
        particles: N, at least two; None for the power of two above 2 D, at least 128, or where that
            is over 1,024 for D + 1, at most 1,024. A power of two from 2 D on starts at quadrature
            nodes (Sobol's, whitened and turned), and keeps to them but for mean and covariance.
        optimiser: step sizes of the discretised flow, dimension by dimension; None searches.
        structure: which dimensions the covariance couples: "full", "mean-field", or the sizes of
            blocks, of which each has a full rank with one particle more than its size. With N > D
            particles of different blocks are uncorrelated; with fewer their chance correlations
            stay, and act as noise.
        metric: "none" for the flow above; "mean" moves the mean by C E[g]; "full" is the natural
            gradient of mean and covariance, (C E C^-1 + E') / 2 - I with E = E[g (x - m)'] within
            the span of the particles, whose rate is the same in every direction and in any units,
            and which does not turn them. None is "full" if step sizes are searched for, else
            "none".
        steps: at most.
        tolerance: relative change of the particles in a step at which the flow has settled.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> found = lgp.flows.gaussian_approximation(
        ...     lambda x: -0.5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2 / 9), 2, key=jax.random.key(0)
        ... )
        >>> found.mean.round(3).tolist(), found.covariance.variances.round(3).tolist()
        ([1.0, 2.0], [1.0, 9.0])
    """

    particles: int | None = eqx.field(static=True, default=None)
    optimiser: Optimiser | None = None
    structure: Any = eqx.field(static=True, default="full")
    metric: str | None = eqx.field(static=True, default=None)
    steps: int = eqx.field(static=True, default=2000)
    tolerance: float = eqx.field(static=True, default=1e-5)

    def __check_init__(self) -> None:
        check_choices(self, metric=(*_METRICS, None))
        check_ranges(self, particles="at least 2", steps="at least 1")
        blocks = self.structure if isinstance(self.structure, tuple) else ()
        proper = blocks and all(isinstance(size, int) and size > 0 for size in blocks)
        sentence = (
            'GaussianParticleFlow.structure must be "full", "mean-field" or the sizes of blocks '
            f"such as (3, 2), got {self.structure!r}."
        )
        refuse({sentence: self.structure not in ("full", "mean-field") and not proper})

    def check(self, dimension: int, stochastic: bool) -> None:
        super().check(dimension, stochastic)
        size = sum(block_sizes(self.structure, dimension))
        sentence = (
            f"GaussianParticleFlow.structure has blocks of {size} dimensions in all, but the log "
            f"density has {dimension}."
        )
        refuse({sentence: size != dimension})

    def gradients_a_step(self, dimension: int) -> int:
        return self._number(dimension)

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> FlowState:
        size = len(start.mean)
        known = self._number(size), block_sizes(self.structure, size), start.mean.dtype
        particles = standard_particles(key, *known)
        return self.at(target, start.mean + start.scale * particles, key)

    def at(self, target: LogDensity, particles: Samples, key: RandomKey) -> FlowState:
        """The state of given particles."""
        energies, gradients = target.gradients(particles, key)
        if (optimiser := self._chosen(target)) is not None:
            memory = optimiser.transformation(self.steps, True).init(particles)
            return FlowState(particles, energies, gradients, memory)
        one, none = jnp.ones((), particles.dtype), jnp.zeros((), int)
        memory = Memory(_LARGEST * one, one, particles, gradients, jnp.inf * one, none)
        return FlowState(particles, energies, gradients, memory)

    def step(
        self, target: LogDensity, state: FlowState, key: RandomKey
    ) -> tuple[FlowState, StepReport]:
        optimiser = self._chosen(target)
        if optimiser is None:
            return self._searched(target, state, key)
        energies, gradients = target.gradients(state.particles, key)
        flow = self.flow(state.particles, gradients, self.metric or "none")
        update, memory = optimiser.transformation(self.steps, True).update(flow.total, state.memory)
        noise = jnp.full((), jnp.nan, energies.dtype)
        change = noise if target.stochastic else self.change(flow, state.particles)
        after = FlowState(state.particles + update, energies, gradients, memory)
        return after, StepReport(self.free_energy(state.particles, energies), change)

    def has_settled(self, change: Scalar) -> Any:
        return change < self.tolerance

    def gaussian(self, state: FlowState) -> Gaussian:
        mean, centred = _moments(state.particles)
        if self.structure == "mean-field":
            covariance = Covariance.of_variances(jnp.mean(centred**2, axis=0))
        else:
            sizes = block_sizes(self.structure, len(mean))
            covariance = Covariance.of(centred.T / jnp.sqrt(len(centred)), sizes=sizes)
        return Gaussian(mean, covariance, state.particles)

    def flow(self, particles: Samples, gradients: Samples, metric: str) -> Flow:
        """Where particles flow to, turned round, for gradients of phi at them."""
        mean, centred = _moments(particles)
        if self.structure == "mean-field":
            return _flow_of_each(centred, gradients, metric)
        blocks, parts = blocks_by_size(block_sizes(self.structure, len(mean))), []
        for own in blocks:
            if own.shape[1] == 1:
                parts.append(_flow_of_each(centred[:, own[:, 0]], gradients[:, own[:, 0]], metric))
                continue
            of_block = jax.vmap(partial(_flow_of_block, metric=metric), 1, Flow(-2, 0, -2))
            flow = of_block(centred[:, own], gradients[:, own])
            parts.append(jax.tree.map(lambda a: a.reshape(*a.shape[:-2], -1), flow))
        return _joined(blocks, parts)

    def change(self, flow: Flow, particles: Samples) -> Scalar:
        """Root mean square of a flow in standard deviations, so that units do not matter."""
        size = jnp.sqrt(jnp.mean(_moments(particles)[1] ** 2, axis=0))
        scale = jnp.where(size > 0, size, 1)
        along = jnp.mean((flow.spread / scale) ** 2) + jnp.mean((flow.covered / scale) ** 2)
        return jnp.sqrt(along + jnp.mean((flow.rest * scale) ** 2))

    def free_energy(self, particles: Samples, energies: Float[Array, "S"]) -> Scalar:
        """-log|C| / 2 + E phi, of the eigenvalues of C above zero where N <= D, in nats.

        By the Gram matrix of the particles: R = Z'Z/N + J/N has the determinant of the product of
        the N - 1 eigenvalues (Galy-Fajou 2022, 6.17).
        """
        _, centred = _moments(particles)
        if self.structure == "mean-field":
            half = 0.5 * jnp.sum(jnp.log(jnp.mean(centred**2, axis=0)))
        else:
            blocks = blocks_by_size(block_sizes(self.structure, centred.shape[1]))
            each = jax.vmap(_half_log_determinant, 1)
            half = sum((jnp.sum(each(centred[:, own])) for own in blocks), jnp.zeros(()))
        return jnp.mean(energies) - half

    def _number(self, dimension: int) -> int:
        nodes = max(_FEWEST_PARTICLES, 1 << (2 * dimension).bit_length())  # a power of two
        usual = nodes if nodes <= _MOST_PARTICLES else min(dimension + 1, _MOST_PARTICLES)
        return self.particles or usual

    def _chosen(self, target: LogDensity) -> Optimiser | None:
        return RMSProp() if self.optimiser is None and target.stochastic else self.optimiser

    def _searched(
        self, target: LogDensity, state: FlowState, key: RandomKey
    ) -> tuple[FlowState, StepReport]:
        """A step of the size found so far, if it lowers the free energy; the next one is larger."""
        size, rest_size, last, last_gradients, lowest, idle = state.memory
        flow = self.flow(state.particles, state.gradients, self.metric or "full")
        before = self.free_energy(state.particles, state.energies)
        moved, bent = state.particles - last, state.gradients - last_gradients
        rest_size = _secant_size(moved, bent, rest_size)
        down = flow.spread + 2 * (flow.covered + rest_size * flow.rest)
        proposed = state.particles - size * down
        energies, gradients = target.gradients(proposed, key)
        after = self.free_energy(proposed, energies)
        eps = jnp.finfo(before.dtype).eps
        rounding = 8 * eps * jnp.maximum(jnp.max(jnp.abs(state.energies)), jnp.abs(before))
        lower = jnp.isfinite(gradients).all() & (after <= before + rounding)
        idle = jnp.where(before < lowest - rounding, 0, idle + 1)
        lowest = jnp.minimum(lowest, before)
        grown = jnp.minimum(_LARGEST, _GROWTH * size)
        memory = Memory(grown, rest_size, state.particles, state.gradients, lowest, idle)
        moved = FlowState(proposed, energies, gradients, memory)
        kept = state.memory._replace(size=_SHRINKAGE * size, lowest=lowest, idle=idle)
        held = state._replace(memory=kept)
        chosen = jax.tree.map(lambda new, old: jnp.where(lower, new, old), moved, held)
        change = self.change(flow, state.particles)
        return chosen, StepReport(before, jnp.where(idle > _IDLE, 0.0, change))


class Flow(NamedTuple):
    """A flow downwards, before step sizes."""

    spread: Samples  # of every particle from the mean
    covered: Point  # of the mean, within the span of the particles if a metric is
    rest: Samples  # gradients outside of the span, where the metric has no size

    @property
    def total(self) -> Samples:
        """The flow of every particle."""
        return self.spread + self.covered + self.rest


class Memory(NamedTuple):
    """State of the search for step sizes."""

    size: Scalar  # of the next step
    rest_size: Scalar  # relative to it, that outside the span of the particles
    particles: Samples  # before the last step
    gradients: Samples  # of phi at these
    lowest: Scalar  # free energy so far
    idle: Int[Array, ""]  # steps since it last fell by more than rounding


class FlowState(NamedTuple):
    """Particles, phi and its gradients there, and what step sizes need."""

    particles: Samples
    energies: Float[Array, "S"]
    gradients: Samples
    memory: Any


def standard_particles(key: RandomKey, number: int, sizes: tuple[int, ...], dtype: Any) -> Samples:
    """Particles of mean zero whose covariance in each block is I, or a projection of it.

    Of no more particles than a block has dimensions it is I on a random space of N - 1 dimensions.
    More than D particles have no covariance between blocks, which linear flows of blocks keep.
    """
    dimension = sum(sizes)
    if number >= 2 * dimension and number & (number - 1) == 0:
        turn = jnp.linalg.qr(jax.random.normal(key, (dimension, dimension), dtype))[0]
        return jnp.asarray(sobol_nodes(dimension, number)[0], dtype) @ turn.T
    if number > dimension:
        return _standard(key, number, dimension, dtype)
    if set(sizes) == {1}:
        draws = jax.random.normal(key, (number, dimension), dtype)
        draws = draws - jnp.mean(draws, axis=0)
        return draws / jnp.sqrt(jnp.mean(draws**2, axis=0))
    keys, blocks, parts = jax.random.split(key, len(sizes)), blocks_by_size(sizes), []
    for own in blocks:
        size = own.shape[1]
        drawn = partial(_standard, number=number, size=size, dtype=dtype)
        parts.append(jax.vmap(drawn, out_axes=1)(keys[np.equal(sizes, size)]).reshape(number, -1))
    return _joined(blocks, parts)


def _joined(blocks: list[Int[np.ndarray, "_ _"]], parts: list[Any]) -> Any:
    """Arrays of the blocks of each size as arrays of all dimensions, in order."""
    order = np.argsort(np.concatenate([own.ravel() for own in blocks]))
    return jax.tree.map(lambda *own: jnp.concatenate(own, axis=-1)[..., order], *parts)


def _standard(key: RandomKey, number: int, size: int, dtype: Any) -> Samples:
    key_left, key_right = jax.random.split(key)
    rank = min(number - 1, size)
    draws = jax.random.normal(key_left, (number, rank), dtype)
    left = jnp.linalg.qr(draws - jnp.mean(draws, axis=0))[0]
    if rank == size:
        return left * jnp.sqrt(number)
    right = jnp.linalg.qr(jax.random.normal(key_right, (size, rank), dtype))[0]
    return left @ right.T * jnp.sqrt(number)


def _moments(particles: Samples) -> tuple[Point, Samples]:
    mean = jnp.mean(particles, axis=0)
    return mean, particles - mean


def _flow_of_each(centred: Samples, gradients: Samples, metric: str) -> Flow:
    """The flow where no two dimensions are coupled, in which the metrics of C are one."""
    slope = jnp.mean(gradients, axis=0)
    spread = centred * (jnp.mean(gradients * centred, axis=0) - 1)
    covered = slope if metric == "none" else jnp.mean(centred**2, axis=0) * slope
    return Flow(spread, covered, jnp.zeros_like(centred))


def _flow_of_block(centred: Samples, gradients: Samples, metric: str) -> Flow:
    """The flow where all dimensions are coupled."""
    number, size = centred.shape
    slope = jnp.mean(gradients, axis=0)
    rest = jnp.zeros_like(centred)
    covered = slope if metric == "none" else centred.T @ (centred @ slope) / number
    if metric == "full":
        turned = gradients - slope
        if number > size + 1:
            # What is linear in the particles of their gradients: X C^-1 E[(x - m) g'].
            lower = lower_cholesky(centred.T @ centred / number)
            inner = solve_lower(lower, centred.T @ gradients / number)
            turned = centred @ solve_lower(lower, inner, transposed=True)
        # What turns the particles without a change of C is left out.
        one = _times_moments(turned, centred, centred)
        spread = 0.5 * (one + _times_moments(centred, turned, centred)) - centred
    else:
        spread = _times_moments(centred, centred, gradients) - centred
    if metric != "none" and number <= size:
        rest = rest + _outside(centred, gradients if metric == "full" else slope[None])
    return Flow(spread, covered, rest)


def _times_moments(left: Samples, middle: Samples, right: Samples) -> Samples:
    """A B' C / N in the cheaper order."""
    number, size = left.shape
    if number <= size:
        return (left @ middle.T) @ right / number
    return left @ (middle.T @ right / number)


def _outside(centred: Samples, vectors: Float[Array, "B D"]) -> Float[Array, "B D"]:
    """The parts of vectors that are orthogonal to the centred particles."""
    gram, scale = _gram(centred)
    lower = lower_cholesky(gram)
    along = solve_lower(lower, centred @ vectors.T)
    inner = solve_lower(lower, along, transposed=True) / (len(centred) * scale)
    return vectors - inner.T @ centred


def _gram(centred: Samples) -> tuple[Float[Array, "S S"], Scalar]:
    """Z'Z / (N s) + J / N, and s, their mean diagonal: centred particles have no part along J."""
    products = centred @ centred.T / len(centred)
    scale = jnp.mean(jnp.diagonal(products))
    return products / scale + 1 / len(centred), scale


def _half_log_determinant(centred: Samples) -> Scalar:
    """Half the sum of the logs of the eigenvalues of C above zero; -inf or NaN if too few are."""
    number, size = centred.shape
    if number > size + 1:
        lower = lower_cholesky(centred.T @ centred / number)
        return jnp.sum(jnp.log(jnp.diagonal(lower)))
    gram, scale = _gram(centred)
    pivots = jnp.diagonal(lower_cholesky(gram))
    return jnp.sum(jnp.log(pivots)) + 0.5 * (number - 1) * jnp.log(scale)


def _secant_size(moved: Samples, bent: Samples, last: Scalar) -> Scalar:
    """The lesser step size of Barzilai & Borwein (1988), s'y / y'y; without one the last."""
    found = jnp.sum(moved * bent) / jnp.sum(bent**2)
    return jnp.where(jnp.isfinite(found) & (found > 0), found, last)
