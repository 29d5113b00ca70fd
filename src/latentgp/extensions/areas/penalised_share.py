"""Penalised-complexity prior of the share that a structured effect has of a variance."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key
from numpyro.distributions import Distribution, constraints

from latentgp.modules import stored
from latentgp.typing import Array

# Logits at which draws are interpolated, and the least share that the density tells from zero.
_LOGITS = np.linspace(-25.0, 36.0, 2049)
_LEAST = 1e-9


@stored
class PenalisedShare(Distribution):
    """Prior of rho in the covariance (1 - rho) I + rho R, that falls with its distance from I.

    The distance is d = sqrt(2 KL) of the two Gaussians, and d is exponential (Simpson et al. 2017,
    3; Riebler et al. 2016). With the eigenvalues g_i of R, 2 KL is the sum of
    rho (g_i - 1) - log(1 + rho (g_i - 1)). Where R is singular d has no end, and the law needs no
    normaliser.

    Args:
        eigenvalues: of R, shape (A,), at least one of them zero.
        rate: of the exponential law of d.

    Example:
        >>> eigenvalues = np.array([0.0, 0.5, 2.0])
        >>> law = PenalisedShare.from_statement(eigenvalues, below=0.5, probability=0.7)
        >>> share = np.linspace(0.0, 0.5, 2001)[1:]
        >>> round(float(np.sum(np.exp(law.log_prob(share))) * share[0]), 3)
        0.7
    """

    arg_constraints: ClassVar = {  # pyright: ignore[reportIncompatibleVariableOverride]
        "eigenvalues": constraints.real_vector,
        "rate": constraints.positive,
    }
    support = constraints.unit_interval  # pyright: ignore

    def __init__(self, eigenvalues: Any, rate: Any, *, validate_args: bool | None = None):
        self.eigenvalues, self.rate = eigenvalues, rate
        super().__init__((), (), validate_args=validate_args)

    @classmethod
    def from_statement(
        cls, eigenvalues: Float[np.ndarray, "A"], below: float, probability: float
    ) -> "PenalisedShare":
        """The law under which rho is below a number with a probability."""
        with jax.enable_x64(True):
            reach = float(_distance(jnp.asarray(below), jnp.asarray(eigenvalues)))
        return cls(eigenvalues, -np.log1p(-probability) / reach)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Float[Array, "*S"]:
        """Independent draws, by interpolation of the distance in the logit."""
        logits = jnp.asarray(_LOGITS)
        known = jax.lax.map(lambda t: _distance(jax.nn.sigmoid(t), self.eigenvalues), logits)
        drawn = jax.random.exponential(key, sample_shape) / self.rate
        return jax.nn.sigmoid(jnp.interp(drawn, known, logits))

    def log_prob(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: Float[Array, "*S"]
    ) -> Float[Array, "*S"]:
        """Log density: that of the distance, and its slope rho sum e^2 / (1 + rho e) / (2 d)."""
        share = _inside(jnp.asarray(value))
        excess = jnp.asarray(self.eigenvalues) - 1
        distance = _distance(share, jnp.asarray(self.eigenvalues))
        steep = jnp.sum(excess**2 / (1 + share[..., None] * excess), axis=-1)
        log_slope = jnp.log(share) + jnp.log(steep) - jnp.log(2 * distance)
        return jnp.log(self.rate) - self.rate * distance + log_slope


def _inside(share: Float[Array, "*S"]) -> Float[Array, "*S"]:
    return jnp.clip(share, _LEAST, 1 - jnp.finfo(share.dtype).eps)


def _distance(share: Float[Array, "*S"], eigenvalues: Float[Array, "A"]) -> Float[Array, "*S"]:
    moved = _inside(share)[..., None] * (eigenvalues - 1)
    # Of a small number the difference would lose its digits.
    series = moved**2 * (0.5 - moved * (1 / 3 - moved * (0.25 - 0.2 * moved)))
    terms = jnp.where(jnp.abs(moved) < 1e-3, series, moved - jnp.log1p(moved))
    return jnp.sqrt(jnp.sum(terms, axis=-1))
