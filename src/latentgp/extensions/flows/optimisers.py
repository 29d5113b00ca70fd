# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Step sizes of stochastic methods, as values that make Optax's transformations.

Of particles, second moments are averages over these, so that all particles move by one step size a
dimension and stay an affine image of where they started (Galy-Fajou 2022, appendix H).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.errors import check_ranges
from latentgp.modules import Module
from latentgp.typing import Array

_SMALL = 1e-8  # of a root mean square, which it is added to


def falling_share(step: Any, steps: int, final: float) -> Any:
    """Share of a step size after some of all steps: from 1 to `final` along half a cosine."""
    return final + (1 - final) * 0.5 * (1 + jnp.cos(jnp.pi * step / steps))


class Optimiser(Module):
    """Optimiser: turns gradients into steps.

    Attributes:
        rate: the step size at the start.
        final: the share of it at the end, which it falls to along half a cosine; 1 holds it.
    """

    rate: eqx.AbstractVar[float]
    final: eqx.AbstractVar[float]

    def __check_init__(self) -> None:
        check_ranges(self, rate="above 0", final="[0, 1]")

    @abstractmethod
    def scaling(self, of_particles: bool) -> Any:
        """Divisor of gradients.

        Args:
            of_particles: gradients have particles first, and second moments are averages over them.
        """

    def transformation(self, steps: int, of_particles: bool = False) -> Any:
        """Optax's transformation of gradients into steps downwards.

        Args:
            steps: in all.
            of_particles: whether gradients have an axis of particles first.
        """
        import optax

        falling = optax.cosine_decay_schedule(self.rate, max(steps, 1), self.final)
        return optax.chain(self.scaling(of_particles), optax.scale_by_learning_rate(falling))


class Descent(Optimiser):
    """Plain gradient descent.

    Args:
        rate: the step size.
        final: the share of it at the end; 1 holds it.
    """

    rate: float = eqx.field(static=True, default=0.01)
    final: float = eqx.field(static=True, default=1.0)

    def scaling(self, of_particles: bool) -> Any:
        import optax

        return optax.identity()


class RMSProp(Optimiser):
    """Steps by running root mean squares of the gradients.

    Args:
        rate: the step size at the start.
        decay: of the running mean.
        final: the share of the step size at the end; 1 holds it.
    """

    rate: float = eqx.field(static=True, default=0.01)
    decay: float = eqx.field(static=True, default=0.9)
    final: float = eqx.field(static=True, default=0.01)

    def scaling(self, of_particles: bool) -> Any:
        def running(old: Array, new: Array, count: Array) -> Array:
            return self.decay * old + (1 - self.decay) * new

        return _by_second_moments(running, of_particles)


class Adam(Optimiser):
    """Steps by running means of the gradients and of their squares (Kingma & Ba 2015).

    Args:
        rate: the step size at the start.
        first: decay of the running mean of gradients.
        second: decay of that of their squares.
        final: the share of the step size at the end; 1 holds it.
    """

    rate: float = eqx.field(static=True, default=0.01)
    first: float = eqx.field(static=True, default=0.9)
    second: float = eqx.field(static=True, default=0.999)
    final: float = eqx.field(static=True, default=0.01)

    def scaling(self, of_particles: bool) -> Any:
        def running(old: Array, new: Array, count: Array) -> Array:
            """The unbiased running mean: that of count steps weighs 1 - second^count."""
            before, now = 1 - self.second ** (count - 1), 1 - self.second**count
            return (self.second * before * old + (1 - self.second) * new) / now

        import optax

        return _by_second_moments(running, of_particles, optax.ema(self.first, debias=True))


def _by_second_moments(running: Any, of_particles: bool, first: Any = None) -> Any:
    """Gradients, or what is first made of them, over the roots of their running second moments."""
    import optax

    first = first or optax.identity()

    def squared(gradient: Array) -> Array:
        square = gradient**2
        return jnp.mean(square, axis=0, keepdims=True) if of_particles else square

    def init(params: Any) -> Any:
        moments = jax.tree.map(lambda p: jnp.zeros_like(squared(p)), params)
        return first.init(params), (jnp.zeros((), int), moments)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        own, (number, before) = state
        count = number + 1
        moments = jax.tree.map(
            lambda old, g: running(old, squared(g), count.astype(g.dtype)), before, updates
        )
        updates, own = first.update(updates, own)
        scaled = jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + _SMALL), updates, moments)
        return scaled, (own, (count, moments))

    return optax.GradientTransformation(init, update)
