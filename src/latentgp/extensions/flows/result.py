"""The result of a Gaussian approximation."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extensions.flows.base import Approximation
from latentgp.extensions.flows.covariance import Covariance
from latentgp.modules import Module
from latentgp.typing import RandomKey


class GaussianApproximation(Module):
    """A Gaussian that approximates a log density, with its diagnostics; arrays are NumPy's.

    Attributes:
        mean: shape (D,).
        covariance: a low rank, in blocks, plus a diagonal; `covariance @ vector`,
            `covariance.variances`, `covariance.dense()`.
        particles: whose moments these are, shape (N, D); None of methods without particles.
        free_energy: F = -log|C| / 2 + E phi before each step, exact for the particles or estimated,
            in nats, shape (T,). Up to the constant of log p, less D (1 + log 2 pi) / 2 where the
            covariance has full rank, it is the negative lower bound on the log evidence.
        change: how far each step was from standing still, shape (T,); NaN where that is noise.
        gradient_evaluations: of log p, the gradients at several points of a step one each, a
            Hessian D of them.
        converged: the method settled, or its free energy no longer fell by more than noise.
        verdict: what happened, in a sentence or two.
        method: the method.
    """

    mean: Float[np.ndarray, "D"]
    covariance: Covariance
    particles: Float[np.ndarray, "S D"] | None
    free_energy: Float[np.ndarray, "T"]
    change: Float[np.ndarray, "T"]
    gradient_evaluations: int = eqx.field(static=True)
    converged: bool = eqx.field(static=True)
    verdict: str = eqx.field(static=True)
    method: Approximation

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return len(self.free_energy)

    @property
    def std(self) -> Float[np.ndarray, "D"]:
        """Standard deviations of each dimension."""
        return np.sqrt(np.asarray(self.covariance.variances))

    def sample(self, key: RandomKey, number: int) -> Float[np.ndarray, "S D"]:
        """Draws, without a factorisation of the covariance.

        Args:
            key: random key.
            number: of draws.
        """
        return self.mean + np.asarray(self.covariance.draw(key, number))

    def log_prob(self, x: Any) -> Any:
        """Log density of the Gaussian at x, in nats: one number, or shape (S,).

        Args:
            x: one point of shape (D,), or several of shape (S, D).

        Raises:
            InputError: the covariance is singular, so that there is no density.
        """
        points = np.asarray(x, self.mean.dtype)
        if points.shape[-1:] != self.mean.shape or points.ndim > 2:
            raise InputError(
                f"x must have the shape ({len(self.mean)},) or (S, {len(self.mean)}), got "
                f"{points.shape}."
            )
        values = np.asarray(self.covariance.log_density(np.atleast_2d(points - self.mean)))
        if not np.isfinite(values).all():
            raise InputError(
                f"The covariance has a rank below {len(self.mean)}, so there is no density; use "
                "more particles, or a method with a diagonal such as FactorCovariance."
            )
        return values if points.ndim == 2 else values[0]
