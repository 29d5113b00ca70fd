"""Baselines: Gaussians at a mode and on the way to it, Stein's particles, averages of descent."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.flows.base import (
    Approximation,
    Gaussian,
    LogDensity,
    Outcome,
    Start,
    StepReport,
    Stepwise,
)
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import Adam, Descent, Optimiser
from latentgp.numerics.cholesky import cholesky, lower_cholesky
from latentgp.typing import Array, Point, RandomKey, Scalar

_SPREAD = 2.0  # of Pathfinder's start, in deviations


class SteinVariational(Stepwise):
    """Stein variational gradient descent (Liu & Wang 2016), by BlackJAX.

    Particles that repel each other by a kernel; the Gaussian has their moments. With the linear
    kernel x'z + 1 the fixed points are those of `GaussianParticleFlow`, and particles far from zero
    make steps unstable.

    Args:
        particles: how many, at least two.
        kernel: "squared-exponential", with the median heuristic for its length, or "linear".
        optimiser: step sizes.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    has_entropy: ClassVar[bool] = False

    particles: int = eqx.field(static=True, default=50)
    kernel: str = eqx.field(static=True, default="squared-exponential")
    optimiser: Optimiser = Adam(0.05)
    steps: int = eqx.field(static=True, default=2000)

    def __check_init__(self) -> None:
        check_choices(self, kernel=("squared-exponential", "linear"))
        check_ranges(self, particles="at least 2", steps="at least 1")

    def gradients_a_step(self, dimension: int) -> int:
        return self.particles

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> Any:
        from blackjax.vi import svgd

        mean, scale = start
        draws = jax.random.normal(key, (self.particles, len(mean)), mean.dtype)
        length = {"length_scale": jnp.ones((), mean.dtype)}
        parameters = length if self.kernel == "squared-exponential" else {}
        optimiser = self.optimiser.transformation(self.steps)
        return self._tuned(svgd.init(mean + scale * draws, parameters, optimiser))

    def step(self, target: LogDensity, state: Any, key: RandomKey) -> tuple[Any, StepReport]:
        from blackjax.vi import svgd

        kernel = svgd.rbf_kernel if self.kernel == "squared-exponential" else _linear
        optimiser = self.optimiser.transformation(self.steps)

        def slope(x: Point) -> Point:
            return -jax.grad(target.energy)(x, key)

        after = svgd.build_kernel(optimiser)(state, slope, kernel)
        # A free energy of particles that are not Gaussian has no entropy in closed form.
        energy = jnp.mean(target.energies(state.particles, key))
        return self._tuned(after), StepReport(energy, jnp.full_like(energy, jnp.nan))

    def gaussian(self, state: Any) -> Gaussian:
        mean = jnp.mean(state.particles, axis=0)
        factor = (state.particles - mean).T / jnp.sqrt(self.particles)
        return Gaussian(mean, Covariance.of(factor), state.particles)

    def _tuned(self, state: Any) -> Any:
        """With the kernel's length by the median of distances."""
        from blackjax.vi import svgd

        return svgd.update_median_heuristic(state) if state.kernel_parameters else state


def _linear(x: Point, z: Point) -> Scalar:
    return x @ z + 1


class SWAG(Stepwise):
    """Stochastic weight averaging Gaussian (Maddox et al. 2019).

    The moments of the path of stochastic gradient descent after a warm-up: half of its diagonal
    variances and half of a low rank of its last deviations from the running mean. How wide it is
    comes from the noise of the gradients and the step size, not from the curvature alone; without
    noise it has no width.

    Args:
        rank: deviations that are kept, at least two.
        every: steps between two that are collected.
        optimiser: step sizes, held after the warm-up.
        steps: how many.
        warmup: the share of them before collecting, in [0, 1).

    Raises:
        InputError: settings outside their range.
    """

    has_entropy: ClassVar[bool] = False

    rank: int = eqx.field(static=True, default=20)
    every: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Descent()
    steps: int = eqx.field(static=True, default=5000)
    warmup: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        check_ranges(self, rank="at least 2", every="at least 1", steps="at least 1")
        check_ranges(self, warmup="[0, 1)")

    def gradients_a_step(self, dimension: int) -> int:
        return 1

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> PathState:
        nothing = jnp.zeros_like(start.mean)
        deviations = jnp.zeros((self.rank, len(nothing)), nothing.dtype)
        memory = self.optimiser.transformation(self.steps).init(start.mean)
        zero = jnp.zeros((), int)
        return PathState(start.mean, memory, nothing, nothing, deviations, zero, zero)

    def step(
        self, target: LogDensity, state: PathState, key: RandomKey
    ) -> tuple[PathState, StepReport]:
        position, memory, mean, spread, deviations, number, collected = state
        energy, slope = jax.value_and_grad(target.energy)(position, key)
        update, memory = self.optimiser.transformation(self.steps).update(slope, memory)
        position = position + update
        first = round(self.warmup * self.steps)
        collects = (number >= first) & ((number - first) % self.every == 0)
        count = (collected + 1).astype(mean.dtype)
        apart = position - mean
        nearer = mean + apart / count
        # Welford's update: the sum of squares would lose the digits of a small variance.
        wider = spread + (apart * (position - nearer) - spread) / count
        rolled = deviations.at[collected % self.rank].set(position - nearer)
        after = PathState(
            position,
            memory,
            jnp.where(collects, nearer, mean),
            jnp.where(collects, wider, spread),
            jnp.where(collects, rolled, deviations),
            number + 1,
            collected + collects,
        )
        return after, StepReport(energy, jnp.full_like(energy, jnp.nan))

    def gaussian(self, state: PathState) -> Gaussian:
        seen = jnp.clip(state.collected, 2, self.rank)
        factor = state.deviations.T / jnp.sqrt(2.0 * (seen - 1)).astype(state.mean.dtype)
        mean = jnp.where(state.collected > 0, state.mean, state.position)
        return Gaussian(mean, Covariance.of(factor, 0.5 * state.spread))


class PathState(NamedTuple):
    """Stochastic gradient descent, and moments of what was collected of it."""

    position: Point
    memory: Any
    mean: Point
    spread: Point
    deviations: Float[Array, "R D"]
    number: Int[Array, ""]
    collected: Int[Array, ""]


class LaplaceApproximation(Approximation):
    """The mode, by Optax's L-BFGS, and the inverse of the Hessian there.

    Args:
        steps: of L-BFGS at most.
        tolerance: root mean square of the gradient, in deviations of the start, at the mode.
    """

    needs_exact: ClassVar[bool] = True
    has_entropy: ClassVar[bool] = False

    steps: int = eqx.field(static=True, default=1000)
    tolerance: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self) -> None:
        check_ranges(self, steps="at least 1")

    def run(self, target: LogDensity, start: Start, key: RandomKey) -> Outcome:
        import optax

        def energy(z: Point) -> Scalar:
            return target.energy(start.mean + start.scale * z, key)

        search = optax.lbfgs()
        with_slope = optax.value_and_grad_from_state(energy)
        origin, none = jnp.zeros_like(start.mean), jnp.zeros((), int)
        traces = jnp.full((2, self.steps), jnp.nan, origin.dtype)
        began = origin, search.init(origin), traces, none, none > 0

        def goes_on(carry: Any) -> Any:
            return (carry[3] < self.steps) & ~carry[4]

        def step(carry: Any) -> Any:
            z, state, traces, number, _ = carry
            value, slope = with_slope(z, state=state)
            size = jnp.sqrt(jnp.mean(jnp.asarray(slope) ** 2))
            traces = traces.at[:, number].set(jnp.stack([value, size]))
            update, state = search.update(slope, state, z, value=value, grad=slope, value_fn=energy)
            at_mode = size < self.tolerance
            ended = at_mode | ~jnp.isfinite(value) | jnp.all(update == 0)
            return jnp.where(at_mode, z, z + update), state, traces, number + 1, ended

        z, _, traces, number, _ = jax.lax.while_loop(goes_on, step, began)
        root = start.scale[:, None] * cholesky(jax.hessian(energy)(z)).inverse.T
        mean = start.mean + start.scale * z
        value, size = traces[:, number - 1]
        rounding = jnp.sqrt(jnp.finfo(z.dtype).eps) * (1 + jnp.abs(value))
        settled = size < jnp.maximum(self.tolerance, rounding)
        return Outcome(
            Gaussian(mean, Covariance.of(root)),
            *traces,
            steps=number,
            evaluations=number + len(z),
            settled=settled,
            finite=jnp.isfinite(mean).all() & jnp.isfinite(root).all(),
        )


class Pathfinder(Approximation):
    """The best of the Gaussians that L-BFGS passes on its way (Zhang et al. 2022).

    The path is BlackJAX's.

    Args:
        steps: of L-BFGS at most.
        memory: of its steps that the covariance is made of.
        samples: that estimate the free energy of each Gaussian.

    Raises:
        InputError: settings outside their range.
    """

    needs_exact: ClassVar[bool] = True

    steps: int = eqx.field(static=True, default=60)
    memory: int = eqx.field(static=True, default=10)
    samples: int = eqx.field(static=True, default=50)

    def __check_init__(self) -> None:
        check_ranges(self, steps="at least 1", memory="at least 1", samples="at least 1")

    def run(self, target: LogDensity, start: Start, key: RandomKey) -> Outcome:
        from blackjax.vi import pathfinder

        def log_density(z: Point) -> Scalar:
            return -target.energy(start.mean + start.scale * z, key)

        # A random start, as of several paths: at a mode there would be no path.
        key_start, key_draws = jax.random.split(key)
        z = _SPREAD * jax.random.normal(key_start, start.mean.shape, start.mean.dtype)
        known = {"maxiter": self.steps, "maxcor": self.memory}
        path = pathfinder.approximate(key, log_density, z, 1, **known)[1].path
        normal = jax.random.normal(key_draws, (self.samples, len(z)), z.dtype)

        def free_energy(state: Any) -> Scalar:
            centre, half, root = _gaussian_of(state)
            return jnp.mean(jax.vmap(lambda u: -log_density(centre + root(u)))(normal)) - half

        # BlackJAX repeats the last state after the end; bounds of its own Gaussians may be none.
        positions: Any = path.position
        moved = jnp.any(jnp.abs(jnp.diff(positions, axis=0)) > 0, axis=1)
        places = jnp.arange(len(positions))
        made = places < jnp.max(jnp.where(moved, places[1:], 0))
        energies = jax.lax.map(free_energy, path)
        energies = jnp.where(made & jnp.isfinite(energies), energies, jnp.inf)
        place = jnp.argmin(energies)
        best = jax.tree.map(lambda leaf: leaf[place], path)
        centre, _, root = _gaussian_of(best)
        mean = start.mean + start.scale * centre
        factor = start.scale[:, None] * jax.vmap(root, 1, 1)(jnp.eye(len(z), dtype=z.dtype))
        count = jnp.sum(made)
        # The path ends there, for want of steps.
        cut_off = (count >= self.steps) & (place == count - 1)
        # States that were made come first.
        energies = jnp.where(made, energies - jnp.sum(jnp.log(start.scale)), jnp.nan)
        return Outcome(
            Gaussian(mean, Covariance.of(factor)),
            energies,
            jnp.where(made & ~cut_off, 0.0, jnp.nan),
            steps=count,
            evaluations=count * (1 + self.samples),
            settled=(count > 0) & ~cut_off,
            finite=jnp.isfinite(mean).all() & jnp.isfinite(factor).all(),
        )


def _gaussian_of(state: Any) -> tuple[Point, Scalar, Any]:
    """Mean, half the log-determinant and product with a root, from a state of L-BFGS.

    The covariance is its inverse Hessian H = diag(a) + b c b', the mean x - H g with the gradient g
    of -log p (Zhang et al. 2022, algorithm 4). BlackJAX 1.7 has x + H g, so its own bounds, by
    which it chooses, are those of other Gaussians.
    """
    alpha, beta, gamma = state.alpha, state.beta, state.gamma
    basis, turn = jnp.linalg.qr(beta / jnp.sqrt(alpha)[:, None])
    one = jnp.eye(len(turn), dtype=turn.dtype)
    lower = lower_cholesky(one + turn @ gamma @ turn.T)
    half = 0.5 * jnp.sum(jnp.log(alpha)) + jnp.sum(jnp.log(jnp.diagonal(lower)))
    newton = alpha * state.grad_position + beta @ (gamma @ (beta.T @ state.grad_position))

    def root(normal: Point) -> Point:
        return jnp.sqrt(alpha) * (normal + basis @ ((lower - one) @ (basis.T @ normal)))

    return state.position - newton, half, root
