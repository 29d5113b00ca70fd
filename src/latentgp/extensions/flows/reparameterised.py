# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Gaussians whose draws are a differentiable function of their parameters."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.optimisers import Optimiser
from latentgp.typing import Array, RandomKey, Scalar


class Reparameterised(Stepwise):
    """Stochastic gradients of the free energy by draws x(parameters, noise).

    Attributes:
        by_the_path: the entropy is estimated by the draws too, and the gradient taken along their
            path alone, whose noise dies out where the approximation is exact (Roeder et al. 2017);
            else the entropy is in closed form.
        samples: drawn a step.
        optimiser: step sizes.
    """

    by_the_path: ClassVar[bool] = False

    samples: eqx.AbstractVar[int]
    optimiser: eqx.AbstractVar[Optimiser]

    def __check_init__(self) -> None:
        check_ranges(self, samples="at least 1", steps="at least 1")

    @abstractmethod
    def parameters(self, start: Start, key: RandomKey) -> Any:
        """The first parameters."""

    @abstractmethod
    def draws(self, parameters: Any, key: RandomKey) -> Float[Array, "S D"]:
        """Draws of the Gaussian, differentiable in its parameters."""

    @abstractmethod
    def half_log_determinant(self, parameters: Any) -> Scalar:
        """Half the log-determinant of the covariance."""

    def half_square(self, parameters: Any, points: Float[Array, "S D"]) -> Float[Array, "S"]:
        """Half of (x - m)' C^-1 (x - m), for gradients by the path."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient by the path.")

    @abstractmethod
    def of_parameters(self, parameters: Any) -> Gaussian:
        """The Gaussian."""

    def gradients_a_step(self, dimension: int) -> int:
        return self.samples

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> "ParameterState":
        parameters = self.parameters(start, key)
        memory = self.optimiser.transformation(self.steps).init(parameters)
        return ParameterState(parameters, memory)

    def step(
        self, target: LogDensity, state: "ParameterState", key: RandomKey
    ) -> tuple["ParameterState", StepReport]:
        key_draws, key_batch = jax.random.split(key)

        def free_energy(parameters: Any) -> tuple[Any, Any]:
            points = self.draws(parameters, key_draws)
            energy = jnp.mean(target.energies(points, key_batch))
            half = self.half_log_determinant(parameters)
            told = energy - half
            if not self.by_the_path:
                return told, told
            held = jax.lax.stop_gradient(parameters)
            return energy - jnp.mean(self.half_square(held, points)), told

        slopes, told = jax.grad(free_energy, has_aux=True)(state.parameters)
        update, memory = self.optimiser.transformation(self.steps).update(slopes, state.memory)
        parameters = jax.tree.map(jnp.add, state.parameters, update)
        return ParameterState(parameters, memory), StepReport(told, jnp.full_like(told, jnp.nan))

    def gaussian(self, state: "ParameterState") -> Gaussian:
        return self.of_parameters(state.parameters)


class ParameterState(NamedTuple):
    """Parameters of the Gaussian, and what step sizes need."""

    parameters: Any
    memory: Any
