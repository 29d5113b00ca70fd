"""Classes by least squares: regression on indicators, calibrated to probabilities afterwards."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import Marginals, SideInformation
from latentgp.likelihoods.gaussian import USUAL_NOISE_SHARE
from latentgp.likelihoods.multiclass import ClassLikelihood
from latentgp.typing import Array, Latents, PerClass, PerRow, RandomKey, RowMoments, Scalar, Values

_LOG_TEMPERATURES = -7.0, 12.0


class LeastSquares(ClassLikelihood):
    """Indicators of the classes with Gaussian noise: 1[y = k] - 1/K = f_k + N(0, noise_variance).

    Least-squares classification (Rasmussen & Williams 2006, 6.5): a pseudo-likelihood, whose
    posterior is exact and, under one kernel, one factorisation for all classes. Class
    probabilities are the values over y to the power 1 / temperature, divided by their sum, the
    softmax of f / (temperature noise_variance). The evidence says nothing of the temperature: `fit`
    ends by giving the rows' labels the highest leave-one-out probability.

    Args:
        classes: K.
        noise_variance: learned; a tenth of the indicators' variance unless given.
        temperature: of the probabilities.

    Example:
        >>> LeastSquares(3, noise_variance=0.5).noise_variance
        array(0.5)
    """

    is_normalised: ClassVar[bool] = False
    is_log_concave: ClassVar[bool] = True
    is_jointly_log_concave: ClassVar[bool] = True
    calibrated_parameters: ClassVar[tuple[str, ...]] = ("temperature",)

    noise_variance: Scalar = parameter(constraints.positive, role="noise_variance")
    temperature: Scalar = parameter(constraints.positive)

    def __init__(self, classes: int, noise_variance: Any = None, temperature: Any = 1.0):
        self.classes = classes
        usual = USUAL_NOISE_SHARE * self.latent_scale(1.0) ** 2
        self.noise_variance = usual if noise_variance is None else noise_variance
        self.temperature = temperature

    def indicators(self, y: Values) -> Float[Array, "*N K"]:
        """1[y = k] - 1/K."""
        chosen = jax.nn.one_hot(y.astype(int), self.classes, dtype=y.dtype)
        return chosen - 1 / self.classes

    def _latents_of(self, shares: Float[np.ndarray, "K"]) -> Float[np.ndarray, "Q"]:
        return shares - 1 / self.classes

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self._log_density(jnp.sum((self.indicators(y) - f) ** 2))

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        squares = (self.indicators(y) - mean) ** 2 + variance
        return self._log_density(jnp.sum(squares, axis=1))

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return jax.nn.softmax(f / self._scale)

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        """From MacKay's (1992, eq. 10) approximation for each pair of classes."""
        mean, variance = marginals

        def own(column: RowMoments) -> PerRow:
            ahead, both = column[0][:, None] - mean, column[1][:, None] + variance
            spread = jnp.sqrt(self._scale**2 + np.pi / 8 * both)
            return jnp.exp(-jax.nn.logsumexp(-ahead / spread, axis=1))

        values = jax.lax.map(own, (mean.T, variance.T)).T
        return values / jnp.sum(values, axis=1, keepdims=True)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.categorical(key, f / self._scale).astype(f.dtype)

    def latent_scale(self, spread: float) -> float:
        """The standard deviation of the indicator of one of K classes that are equally frequent."""
        return (self.classes - 1) ** 0.5 / self.classes

    def calibrated(
        self, y: PerRow, weights: PerRow | None, marginals: Marginals, side: SideInformation
    ) -> "LeastSquares":
        from scipy.optimize import minimize_scalar  # takes long to import

        def at(log_temperature: Array | float) -> LeastSquares:
            return LeastSquares(self.classes, self.noise_variance, jnp.exp(log_temperature))

        @jax.jit
        def loss(log_temperature: Scalar) -> Scalar:
            return -jnp.average(
                at(log_temperature).predictive_log_prob(y, marginals, side), weights=weights
            )

        found: Any = minimize_scalar(loss, bounds=_LOG_TEMPERATURES, method="bounded")
        return at(float(found.x))

    @property
    def _scale(self) -> Scalar:
        return self.temperature * self.noise_variance

    def _log_density(self, squares: Values) -> Values:
        """Log density of K indicators with a sum of squared residuals."""
        normaliser = self.classes * jnp.log(2 * jnp.pi * self.noise_variance)
        return -0.5 * (normaliser + squares / self.noise_variance)
