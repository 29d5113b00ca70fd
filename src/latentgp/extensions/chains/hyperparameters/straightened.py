"""Coordinates of hyper-parameters in which their priors are nearly normal."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.typing import HyperVector, Scalar

_QUANTILES = 200  # of draws of the prior, that a shape is fitted to
_SKEWS, _TAILS = np.linspace(-1.5, 1.5, 61), np.linspace(0.3, 1.6, 27)
_GAIN = 0.005  # nats a draw, that a shape other than normal must gain


class SinhArcsinh(NamedTuple):
    """A monotone map of each unconstrained hyper-parameter.

    w = c + s sinh(t asinh((x - c) / s) - k), the sinh-arcsinh map (Jones & Pewsey 2009), whose
    skewness k and tails t make the prior of w as normal as they can. So the logarithm of a gamma
    variable loses its long tail to the left, where chains would be for long.
    """

    centre: HyperVector
    width: HyperVector
    skew: HyperVector
    tail: HyperVector

    @classmethod
    def of(cls, space: ParameterSpace) -> SinhArcsinh | None:
        """By quantiles of the priors, a parameter without one kept; None if all are kept."""
        draws = space.prior_vectors(jax.random.key(0))
        shapes = np.array([_shape(column) for column in draws.T]).reshape(-1, 4)
        if np.array_equal(shapes[:, 2:], np.broadcast_to([0.0, 1.0], (len(shapes), 2))):
            return None
        return cls(*map(jnp.asarray, shapes.T))

    def __call__(self, vector: HyperVector) -> HyperVector:
        """Straightened hyper-parameters."""
        return self.centre + self.width * jnp.sinh(self._angle(vector))

    def inverse(self, straight: HyperVector) -> HyperVector:
        """Unconstrained hyper-parameters."""
        angle = jnp.arcsinh((straight - self.centre) / self.width)
        return self.centre + self.width * jnp.sinh((angle + self.skew) / self.tail)

    def log_slope(self, vector: HyperVector) -> Scalar:
        """Log of the determinant of the map's derivative."""
        u = (vector - self.centre) / self.width
        slopes = self.tail * jnp.cosh(self._angle(vector)) / jnp.sqrt(1 + u**2)
        return jnp.sum(jnp.log(slopes))

    def _angle(self, vector: HyperVector) -> HyperVector:
        return self.tail * jnp.arcsinh((vector - self.centre) / self.width) - self.skew


def _shape(draws: Float[np.ndarray, "S"]) -> tuple[float, float, float, float]:
    """Centre, width, skewness and tail by the profile likelihood of a normal law."""
    kept = 0.0, 1.0, 0.0, 1.0
    finite = draws[np.isfinite(draws)]
    if not finite.size:
        return kept
    x = np.quantile(finite, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    low, centre, high = np.quantile(x, [0.16, 0.5, 0.84])
    width = 0.5 * (high - low)
    if not width > 0:
        return kept
    u = (x - centre) / width
    angle = _TAILS[:, None] * np.arcsinh(u) - _SKEWS[:, None, None]
    slopes = _TAILS[:, None] * np.cosh(angle) / np.sqrt(1 + u**2)
    fit = np.mean(np.log(slopes), axis=-1) - np.log(np.std(np.sinh(angle), axis=-1))
    skew, tail = np.unravel_index(np.argmax(fit), fit.shape)
    if fit[skew, tail] + np.log(np.std(u)) < _GAIN:
        return kept
    return centre, width, _SKEWS[skew], _TAILS[tail]
