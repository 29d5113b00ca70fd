"""Targets that are ordered classes, numbered from 0."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation, Targets
from latentgp.numerics.log_space import log_complement
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerClass, PerRow, RandomKey, RowMoments, Scalar, Values

_FAR, _VERY_FAR = 1e30, 1e15


class Ordinal(Likelihood):
    """y is the number of thresholds below f + noise, noise ~ N(0, 1) (Chu & Ghahramani 2005, 2).

    The noise has a standard deviation of one: another would scale latents and thresholds alike.

    Args:
        thresholds: b_1 < ... < b_(K - 1), learned, shape (K - 1,), units of f.

    Raises:
        InputError: no thresholds, or such that do not rise.

    Example:
        >>> Ordinal.of(3).thresholds.round(2)
        array([-0.43,  0.43])
    """

    thresholds: Float[Array, "thresholds"] = parameter(constraints.ordered_vector)

    targets: ClassVar[Targets] = "class"
    is_log_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if isinstance(self.thresholds, np.ndarray) and self.thresholds.ndim != 1:
            raise InputError(
                "Ordinal.thresholds must have shape (classes - 1,), got shape "
                f"{self.thresholds.shape}; Ordinal.of(classes) spaces them for equal shares."
            )

    @classmethod
    def of(cls, classes: int, shares: Any = None) -> "Ordinal":
        """Thresholds that give the classes their shares where f is zero, equal unless given."""
        if classes < 2:
            raise InputError(f"Ordinal needs at least two classes, got {classes}.")
        shares = np.full(classes, 1 / classes) if shares is None else np.asarray(shares, float)
        return cls(np.asarray(ndtri(np.cumsum(shares)[:-1] / shares.sum()), np.float64))

    @property
    def classes(self) -> int:
        """K."""
        return self.thresholds.shape[-1] + 1

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        lower, upper = self._ends(y, f.dtype)
        return _log_between(lower - f[0], upper - f[0])

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return self._probabilities(f[0], jnp.ones_like(f[0]))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        noisy = f[0] + jax.random.normal(key, dtype=f.dtype)
        return jnp.sum(noisy > jnp.asarray(self.thresholds, f.dtype)).astype(f.dtype)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self._moments(self.class_probabilities(f, side))

    def latent_scale(self, spread: float) -> float:
        return 1.2

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        spread = jnp.sqrt(1 + variance[:, 0])
        lower, upper = self._ends(y, mean.dtype)
        return _log_between((lower - mean[:, 0]) / spread, (upper - mean[:, 0]) / spread)

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        mean, variance = marginals
        return self._probabilities(mean[:, 0], jnp.sqrt(1 + variance[:, 0]))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        return self._moments(self.predictive_probabilities(marginals, side))

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N levels"]:
        below = jnp.cumsum(self.predictive_probabilities(marginals, side), axis=1)[:, :-1]
        passed = below[:, None, :] < probabilities[:, None]
        return jnp.sum(passed, axis=2).astype(marginals.mean.dtype)

    def check_targets(self, y: PerRow) -> None:
        kind = f"classes 0 to {self.classes - 1} in their order"
        advice = "number them, or let GPOrdinalClassifier do it"
        check_values("Ordinal targets", y, np.isin(y, np.arange(self.classes)), kind, advice)

    def _ends(self, y: Values, dtype: Any) -> tuple[Values, Values]:
        """The thresholds around y; at the ends as good as infinite, with finite derivatives."""
        far = jnp.full(1, _FAR, dtype)
        ends = jnp.concatenate([-far, jnp.asarray(self.thresholds, dtype), far])
        index = y.astype(int)
        return ends[index], ends[index + 1]

    def _probabilities(self, mean: Values, spread: Values) -> Float[Array, "*N K"]:
        """Probabilities of all classes under f + noise ~ N(mean, spread^2); exact sums to one."""
        z = (jnp.asarray(self.thresholds, mean.dtype) - mean[..., None]) / spread[..., None]
        # Differences on the side where the tails are small lose no digits.
        lower = jnp.concatenate([jnp.full_like(z[..., :1], -jnp.inf), z], axis=-1)
        upper = jnp.concatenate([z, jnp.full_like(z[..., :1], jnp.inf)], axis=-1)
        values = jnp.where(lower > 0, ndtr(-lower) - ndtr(-upper), ndtr(upper) - ndtr(lower))
        return values / jnp.sum(values, axis=-1, keepdims=True)

    def _moments(self, probabilities: Float[Array, "*N K"]) -> tuple[Values, Values]:
        labels = jnp.arange(self.classes, dtype=probabilities.dtype)
        first = probabilities @ labels
        return first, jnp.sum(probabilities * (labels - first[..., None]) ** 2, axis=-1)


def _log_between(lower: Values, upper: Values) -> Values:
    """Log(Phi(upper) - Phi(lower)), digits kept in both tails; ends may be very far."""
    flip = lower + upper > 0
    low, high = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    open_below, open_above = low < -_VERY_FAR, high > _VERY_FAR
    safe_high = jnp.where(open_above, jnp.where(open_below, 0.0, low + 1.0), high)
    safe_low = jnp.where(open_below, safe_high - 1.0, low)
    log_high = jnp.where(open_above, 0.0, log_ndtr(safe_high))
    log_rest = log_complement(log_ndtr(safe_low) - log_high)
    return log_high + jnp.where(open_below, 0.0, log_rest)
