"""A Dirichlet law of weights whose concentration is unknown."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Float, Key
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import ParameterFreeTransform, biject_to

from latentgp.errors import InputError
from latentgp.hyperparameters.blocks import block_axes, blocks_given
from latentgp.modules import stored
from latentgp.typing import Array

# Logarithms of the concentration at which it is summed over.
_LOG_NODES = np.linspace(-16.0, 8.0, 481)


class _TinyShares(type(constraints.simplex)):  # pyright: ignore
    """Simplex whose entries may be tiny, mapped by `_BrokenSticks`."""


class _BrokenSticks(ParameterFreeTransform):
    """Weights by sticks that are broken at shares of log odds sinh(z).

    Where the concentration is unknown it may be near zero, and so may be all weights but one: log
    odds then have tails like 1 / x^2, so no variance, and no covariance to propose by. Those of z
    fall exponentially. Weights that are too small for a floating-point number have no density.
    """

    domain: Any = constraints.real_vector  # pyright: ignore
    codomain: Any = _TinyShares()  # pyright: ignore

    def __call__(self, x: Float[Array, "... sticks"]) -> Float[Array, "... M"]:
        odds = jnp.sinh(x) - _even(x.shape[-1])
        nothing = jnp.zeros_like(odds[..., :1])
        left = jnp.cumsum(jax.nn.log_sigmoid(-odds), axis=-1)
        first = jnp.concatenate([nothing, left], axis=-1)
        own = jnp.concatenate([jax.nn.log_sigmoid(odds), nothing], axis=-1)
        return jnp.exp(first + own)

    def _inverse(self, y: Float[Array, "... M"]) -> Float[Array, "... sticks"]:
        left = jnp.cumsum(y[..., ::-1], axis=-1)[..., ::-1][..., 1:]
        odds = jnp.log(y[..., :-1]) - jnp.log(left)
        return jnp.arcsinh(odds + _even(odds.shape[-1]))

    def log_abs_det_jacobian(
        self, x: Float[Array, "... sticks"], y: Float[Array, "... M"], intermediates: Any = None
    ) -> Float[Array, "..."]:
        slopes = jnp.logaddexp(x, -x) - np.log(2.0)
        return jnp.sum(jnp.log(y), axis=-1) + jnp.sum(slopes, axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return *shape[:-1], shape[-1] + 1

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return *shape[:-1], shape[-1] - 1


def _even(breaks: int) -> Float[np.ndarray, "sticks"]:
    """Log odds of equal weights, negative."""
    return np.log(np.arange(breaks, 0, -1.0))


@biject_to.register(_TinyShares)
def _(support: Any) -> _BrokenSticks:
    return _BrokenSticks()


@stored
class HierarchicalDirichlet(Distribution):
    """Weights w_q ~ Dirichlet(a, ..., a) of each latent function q, with a ~ Exponential(rate).

    The hierarchical prior of Filippone et al. (2012, 6.3): the weights of a kernel's parts have a
    sum of one, and how alike they are, a, is learned. It is integrated out, by the trapezoidal rule
    in its logarithm (from 1e-7 to 3,000); `sample_concentration` draws it given weights.

    Args:
        parts: M, how many kernels are summed.
        latents: Q, for how many latent functions; None for weights of shape (M,) that are shared.
        rate: of the exponential law.

    Raises:
        InputError: fewer than two parts, or fewer than one latent function.

    Example:
        >>> law = HierarchicalDirichlet(3)
        >>> bool(np.isfinite(law.log_prob(np.array([0.2, 0.3, 0.5]))))
        True
        >>> HierarchicalDirichlet(3, latents=4).shape()
        (4, 3)
    """

    arg_constraints: ClassVar = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "rate": constraints.positive
    }
    pytree_aux_fields = "parts", "latents"
    support = _TinyShares()  # pyright: ignore

    def __init__(
        self,
        parts: int,
        latents: int | None = None,
        rate: Any = 1.0,
        *,
        validate_args: bool | None = None,
    ):
        if parts < 2 or (latents is not None and latents < 1):
            raise InputError(
                "HierarchicalDirichlet needs at least two parts and one latent function, got "
                f"{parts} and {latents}."
            )
        self.parts, self.latents, self.rate = parts, latents, rate
        shape = (parts,) if latents is None else (latents, parts)
        super().__init__((), shape, validate_args=validate_args)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of weights, each with a concentration of its own."""
        key_concentration, key_weights = jax.random.split(key)
        concentration = jax.random.exponential(key_concentration, sample_shape) / self.rate
        alone = concentration.reshape(*sample_shape, *(1 for _ in self.event_shape))
        alpha = jnp.broadcast_to(alone, (*sample_shape, *self.event_shape))
        logarithms = jax.random.loggamma(key_weights, alpha)  # small concentrations underflow
        return jax.nn.softmax(logarithms, axis=-1)

    def log_prob(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """Log density of weights, the concentration integrated out."""
        step = _LOG_NODES[1] - _LOG_NODES[0]
        return logsumexp(self._joint(value), axis=-1) + np.log(step)

    def sample_concentration(
        self, key: Key[Array, ""], weights: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """A draw of a given weights of shape (..., M) or (..., Q, M), one for each of the rest."""
        key_node, key_within = jax.random.split(key)
        chosen = jax.random.categorical(key_node, self._joint(weights), axis=-1)
        step = _LOG_NODES[1] - _LOG_NODES[0]
        off = jax.random.uniform(key_within, chosen.shape, minval=-0.5, maxval=0.5)
        return jnp.exp(jnp.asarray(_LOG_NODES)[chosen] + step * off)

    def _joint(self, weights: Float[Array, "..."]) -> Float[Array, "... nodes"]:
        """Log density of weights and the logarithm of the concentration at the nodes."""
        parts = self.event_shape[-1]
        latents = self.event_shape[0] if len(self.event_shape) == 2 else 1
        axes = tuple(range(-len(self.event_shape), 0))
        logarithms = jnp.sum(jnp.log(weights), axis=axes)[..., None]
        alpha = jnp.exp(jnp.asarray(_LOG_NODES, logarithms.dtype))
        normaliser = latents * (gammaln(parts * alpha) - parts * gammaln(alpha))
        prior = jnp.log(self.rate) - self.rate * alpha + jnp.log(alpha)
        return prior + normaliser + (alpha - 1) * logarithms


@blocks_given.register
def _(prior: HierarchicalDirichlet, value: Any, key: Key[Array, ""]) -> Array:
    """Weights of each latent function given a concentration, which is drawn given all weights."""
    key_node, key_weights = jax.random.split(key)
    node = jax.random.categorical(key_node, prior._joint(value), axis=-1)
    alpha = jnp.exp(jnp.asarray(_LOG_NODES))[node]
    alpha = alpha.reshape(*alpha.shape, *(1 for _ in prior.event_shape))
    return jax.nn.softmax(
        jax.random.loggamma(key_weights, jnp.broadcast_to(alpha, jnp.shape(value))), axis=-1
    )


@block_axes.register
def _(prior: HierarchicalDirichlet) -> int:
    return 1
