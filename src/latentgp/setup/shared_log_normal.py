"""A log-normal law of several positive numbers that are in part alike."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float
from numpyro.distributions import Distribution, constraints

from latentgp.hyperparameters.blocks import block_axes, blocks_given
from latentgp.modules import stored
from latentgp.typing import Array


@stored
class SharedLogNormal(Distribution):
    """Logarithms loc_d + shared_scale m + own_scale e_d, with m and all e_d standard normal.

    With the first scale wide and the second narrow no size is ruled out, but that all are alike is
    more probable than that they differ: a hierarchical prior, its common size integrated out.

    Args:
        loc: medians of the logarithms, shape (D,).
        shared_scale: standard deviation that all logarithms have in common.
        own_scale: standard deviation that each of them has to itself.

    Example:
        >>> import numpy as np
        >>> law = SharedLogNormal(np.zeros(2), 1.5, 0.5)
        >>> alike, different = law.log_prob(np.array([[3.0, 3.0], [3.0, 1 / 3.0]]))
        >>> bool(alike > different)
        True
    """

    arg_constraints: ClassVar = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "loc": constraints.real_vector,
        "shared_scale": constraints.positive,
        "own_scale": constraints.positive,
    }
    support = constraints.independent(  # pyright: ignore
        constraints.positive, 1
    )

    def __init__(
        self, loc: Any, shared_scale: Any, own_scale: Any, *, validate_args: bool | None = None
    ):
        self.loc, self.shared_scale, self.own_scale = loc, shared_scale, own_scale
        super().__init__((), jnp.shape(loc), validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*S D"]:
        """Independent draws."""
        key_shared, key_own = jax.random.split(key)
        shared = jax.random.normal(key_shared, (*sample_shape, 1))
        own = jax.random.normal(key_own, (*sample_shape, *self.event_shape))
        return jnp.exp(self.loc + self.shared_scale * shared + self.own_scale * own)

    def log_prob(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: Float[Array, "*S D"]
    ) -> Float[Array, "*S"]:
        """Log density: covariance own_scale^2 I + shared_scale^2 1 1', inverted by its rank one."""
        logarithm = jnp.log(value)
        residual, size = logarithm - self.loc, self.event_shape[0]
        own, of_sum = self.own_scale**2, self.own_scale**2 + size * self.shared_scale**2
        total = jnp.sum(residual, axis=-1)
        squared = jnp.sum(residual**2, axis=-1) - self.shared_scale**2 / of_sum * total**2
        normaliser = size * jnp.log(2 * jnp.pi) + (size - 1) * jnp.log(own) + jnp.log(of_sum)
        return -0.5 * (squared / own + normaliser) - jnp.sum(logarithm, axis=-1)


@blocks_given.register
def _(prior: SharedLogNormal, value: Any, key: Any) -> Float[Array, "*S D"]:
    """Each number given m, which is drawn given all numbers."""
    key_shared, key_own = jax.random.split(key)
    residual = jnp.log(value) - prior.loc
    precision = 1 + prior.event_shape[0] * (prior.shared_scale / prior.own_scale) ** 2
    mean = prior.shared_scale / prior.own_scale**2 * jnp.sum(residual, -1, keepdims=True)
    noise = jax.random.normal(key_shared, mean.shape)
    shared = mean / precision + noise / jnp.sqrt(precision)
    own = jax.random.normal(key_own, residual.shape)
    return jnp.exp(prior.loc + prior.shared_scale * shared + prior.own_scale * own)


@block_axes.register
def _(prior: SharedLogNormal) -> int:
    return 0
