"""Base of the distributions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float
from numpyro.distributions import Distribution
from numpyro.distributions.util import validate_sample

from latentgp.typing import Array, Draws, RandomKey


class Law(Distribution):
    """A NumPyro distribution with the logarithm of its Laplace transform."""

    @abstractmethod
    def sample(self, key: RandomKey | None, sample_shape: tuple[int, ...] = ()) -> Draws:
        """Independent draws, of shape sample_shape + batch_shape + event_shape."""

    @abstractmethod
    def log_laplace_transform(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """Log E exp(-t w), t >= 0, broadcast against the batch shape."""

    @abstractmethod
    def log_density(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        """Log density or probability at values inside the support."""

    def log_prob(
        self, value: ArrayLike, intermediates: list[Any] | None = None
    ) -> Float[Array, "..."]:
        return self._checked_log_density(jnp.asarray(value))

    @validate_sample
    def _checked_log_density(self, value: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.log_density(value)


def as_floats(*values: ArrayLike) -> Sequence[Float[Array, "*S"]]:
    """The values broadcast together, in the widest floating-point type among them.

    Example:
        >>> [a.shape for a in as_floats(1, jnp.zeros(3))]
        [(3,), (3,)]
    """
    dtype = jnp.result_type(float, *values)
    return jnp.broadcast_arrays(*(jnp.asarray(value, dtype) for value in values))
