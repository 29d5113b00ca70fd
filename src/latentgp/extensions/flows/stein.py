"""Stein variational gradient descent."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import Adam, Optimiser
from latentgp.typing import Point, RandomKey, Scalar


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
