# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Gaussians whose draws are a differentiable function of their parameters.

Their covariances are diagonal, full, or a low rank plus a diagonal.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance, check_rank
from latentgp.extensions.flows.optimisers import Adam, Optimiser
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, RandomKey, Samples, Scalar

_FIRST = 0.1  # size of the first low rank, relative to the deviations at the start


class Reparameterised(Stepwise):
    """Stochastic gradients of the free energy by draws x(parameters, noise)."""

    # the entropy is estimated by the draws too, and the gradient taken along their path alone,
    # whose noise dies out where the approximation is exact (Roeder et al. 2017); else the entropy
    # is in closed form
    by_the_path: ClassVar[bool] = False

    samples: eqx.AbstractVar[int]  # drawn a step
    optimiser: eqx.AbstractVar[Optimiser]  # step sizes

    def __check_init__(self) -> None:
        check_ranges(self, samples="at least 1", steps="at least 1")

    @abstractmethod
    def parameters(self, start: Start, key: RandomKey) -> Any:
        """The first parameters."""

    @abstractmethod
    def draws(self, parameters: Any, key: RandomKey) -> Samples:
        """Draws of the Gaussian, differentiable in its parameters."""

    @abstractmethod
    def half_log_determinant(self, parameters: Any) -> Scalar:
        """Half the log-determinant of the covariance."""

    def half_square(self, parameters: Any, points: Samples) -> Float[Array, "S"]:
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


class MeanField(Reparameterised):
    """Doubly stochastic variational inference with a diagonal (Titsias & Lázaro-Gredilla 2014).

    The best one has the inverses of the diagonal of the precision as variances, if the target is
    Gaussian.

    Args:
        samples: drawn a step.
        optimiser: step sizes of the mean and of the logarithms of deviations.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    def parameters(self, start: Start, key: RandomKey) -> Any:
        return start.mean, jnp.log(start.scale)

    def draws(self, parameters: Any, key: RandomKey) -> Samples:
        mean, log_std = parameters
        normal = jax.random.normal(key, (self.samples, len(mean)), mean.dtype)
        return mean + normal * jnp.exp(log_std)

    def half_log_determinant(self, parameters: Any) -> Scalar:
        return jnp.sum(parameters[1])

    def of_parameters(self, parameters: Any) -> Gaussian:
        mean, log_std = parameters
        return Gaussian(mean, Covariance.of_variances(jnp.exp(2 * log_std)))


class FullRank(Reparameterised):
    """Doubly stochastic variational inference (Titsias & Lázaro-Gredilla 2014, algorithm 1).

    x = m + L e with a lower triangular L, whose diagonal is learned by its logarithm.

    Args:
        samples: drawn a step.
        optimiser: step sizes of the mean and of L.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    def parameters(self, start: Start, key: RandomKey) -> Any:
        size = len(start.mean)
        return start.mean, jnp.log(start.scale), jnp.zeros((size, size), start.mean.dtype)

    def draws(self, parameters: Any, key: RandomKey) -> Samples:
        mean, *_ = parameters
        normal = jax.random.normal(key, (self.samples, len(mean)), mean.dtype)
        return mean + normal @ _lower(parameters).T

    def half_log_determinant(self, parameters: Any) -> Scalar:
        return jnp.sum(parameters[1])

    def of_parameters(self, parameters: Any) -> Gaussian:
        return Gaussian(parameters[0], Covariance.of(_lower(parameters)))


def _lower(parameters: Any) -> Float[Array, "D D"]:
    _, log_diagonal, below = parameters
    return jnp.diag(jnp.exp(log_diagonal)) + jnp.tril(below, -1)


class LowRankPlusDiagonal(Reparameterised):
    """C = w B B' + diag(s^2), with a weight w that a leaf states."""

    rank: int = eqx.field(static=True, default=1)  # columns of B
    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    def __check_init__(self) -> None:
        check_ranges(self, rank="at least 1")

    def check(self, dimension: int, stochastic: bool) -> None:
        super().check(dimension, stochastic)
        check_rank(self, dimension)

    @property
    @abstractmethod
    def weight(self) -> float:
        """Weight of the low rank."""

    def parameters(self, start: Start, key: RandomKey) -> Any:
        mean, scale = start
        draws = jax.random.normal(key, (len(mean), self.rank), mean.dtype)
        return mean, jnp.log(scale), _FIRST * scale[:, None] * draws

    def draws(self, parameters: Any, key: RandomKey) -> Samples:
        mean, *_ = parameters
        return mean + self._covariance(parameters).draw(key, self.samples)

    def half_log_determinant(self, parameters: Any) -> Scalar:
        """By the matrix determinant lemma."""
        _, lower = self._inner(parameters)
        return jnp.sum(parameters[1]) + jnp.sum(jnp.log(jnp.diagonal(lower)))

    def half_square(self, parameters: Any, points: Samples) -> Float[Array, "S"]:
        """By the matrix inversion lemma."""
        mean, log_std, _ = parameters
        centred = (points - mean) * jnp.exp(-log_std)
        scaled, lower = self._inner(parameters)
        explained = solve_lower(lower, scaled.T @ centred.T)
        return 0.5 * (jnp.sum(centred**2, axis=1) - jnp.sum(explained**2, axis=0))

    def of_parameters(self, parameters: Any) -> Gaussian:
        return Gaussian(parameters[0], self._covariance(parameters))

    def _covariance(self, parameters: Any) -> Covariance:
        _, log_std, factor = parameters
        return Covariance.of(jnp.sqrt(self.weight) * factor, jnp.exp(2 * log_std))

    def _inner(self, parameters: Any) -> tuple[Array, Array]:
        """B over the deviations, and the lower factor of I + B'B."""
        _, log_std, factor = parameters
        scaled = jnp.sqrt(self.weight) * factor * jnp.exp(-log_std)[:, None]
        inner = jnp.eye(self.rank, dtype=scaled.dtype) + scaled.T @ scaled
        return scaled, lower_cholesky(inner)


class FactorCovariance(LowRankPlusDiagonal):
    """The factor covariance structure (Ong, Nott & Smith 2018): C = B B' + diag(s^2).

    Gradients go by the path of the draws, so that their noise dies out where the target has such a
    covariance.

    Args:
        rank: columns of B.
        samples: drawn a step.
        optimiser: step sizes of the mean, of B and of the logarithms of s.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    by_the_path: ClassVar[bool] = True

    @property
    def weight(self) -> float:
        return 1.0


class EfficientLowRank(LowRankPlusDiagonal):
    """Efficient low-rank Gaussian variational inference (Tomczak, Swaroop & Turner 2020; ELRGVI).

    C = V V' / rank + diag(s^2), with the entropy in closed form.

    Args:
        rank: columns of V.
        samples: drawn a step.
        optimiser: step sizes of the mean, of V and of the logarithms of s.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    @property
    def weight(self) -> float:
        return 1 / self.rank
