"""Logarithm of the beta function."""

from __future__ import annotations

from jax.scipy.special import gammaln
from jaxtyping import Float

from latentgp.typing import Array


def log_beta(a: Float[Array, "*#N"], b: Float[Array, "*#N"]) -> Float[Array, "*#N"]:
    """Log B(a, b), by gamma functions: `betaln` of JAX 0.10 is off by 1e-6 where b is 8 or more.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(log_beta(jnp.array(2.0), jnp.array(3.0))), 4)  # 1 / 12
        -2.4849
    """
    return gammaln(a) + gammaln(b) - gammaln(a + b)
