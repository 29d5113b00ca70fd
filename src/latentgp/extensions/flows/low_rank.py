# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Gaussians whose covariance is a low rank plus a diagonal, by stochastic gradients."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import InputError, check_ranges
from latentgp.extensions.flows.base import Gaussian, Start
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import Adam, Optimiser
from latentgp.extensions.flows.reparameterised import Reparameterised
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, RandomKey, Scalar

_FIRST = 0.1  # size of the first low rank, relative to the deviations at the start


class LowRankPlusDiagonal(Reparameterised):
    """C = w B B' + diag(s^2), with a weight w that a leaf states.

    Attributes:
        rank: columns of B.
    """

    rank: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        check_ranges(self, rank="at least 1")

    def check(self, dimension: int, stochastic: bool) -> None:
        super().check(dimension, stochastic)
        if self.rank > dimension:
            raise InputError(
                f"{type(self).__name__}.rank must be at most the dimension {dimension}, got "
                f"{self.rank}."
            )

    @property
    @abstractmethod
    def weight(self) -> float:
        """Weight of the low rank."""

    def parameters(self, start: Start, key: RandomKey) -> Any:
        mean, scale = start
        draws = jax.random.normal(key, (len(mean), self.rank), mean.dtype)
        return mean, jnp.log(scale), _FIRST * scale[:, None] * draws

    def draws(self, parameters: Any, key: RandomKey) -> Float[Array, "S D"]:
        mean, *_ = parameters
        return mean + self._covariance(parameters).draw(key, self.samples)

    def half_log_determinant(self, parameters: Any) -> Scalar:
        """By the matrix determinant lemma."""
        _, log_std, _ = parameters
        _, _, lower = self._inner(parameters)
        return jnp.sum(log_std) + jnp.sum(jnp.log(jnp.diagonal(lower)))

    def half_square(self, parameters: Any, points: Float[Array, "S D"]) -> Float[Array, "S"]:
        """By the matrix inversion lemma."""
        mean, log_std, _ = parameters
        centred = (points - mean) * jnp.exp(-log_std)
        scaled, _, lower = self._inner(parameters)
        explained = solve_lower(lower, scaled.T @ centred.T)
        return 0.5 * (jnp.sum(centred**2, axis=1) - jnp.sum(explained**2, axis=0))

    def of_parameters(self, parameters: Any) -> Gaussian:
        return Gaussian(parameters[0], self._covariance(parameters))

    def _covariance(self, parameters: Any) -> Covariance:
        _, log_std, factor = parameters
        return Covariance.of(jnp.sqrt(self.weight) * factor, jnp.exp(2 * log_std))

    def _inner(self, parameters: Any) -> tuple[Array, Array, Array]:
        """B over the deviations, I + B'B, and the lower factor of that."""
        _, log_std, factor = parameters
        scaled = jnp.sqrt(self.weight) * factor * jnp.exp(-log_std)[:, None]
        inner = jnp.eye(self.rank, dtype=scaled.dtype) + scaled.T @ scaled
        return scaled, inner, lower_cholesky(inner)


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

    rank: int = eqx.field(static=True, default=1)
    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

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

    rank: int = eqx.field(static=True, default=1)
    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    @property
    def weight(self) -> float:
        return 1 / self.rank
