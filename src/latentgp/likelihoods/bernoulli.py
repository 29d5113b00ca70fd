"""Binary targets."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation, Targets
from latentgp.likelihoods.noise_shapes import ExponentialOfRoot
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture, log_inverse_cosh_root
from latentgp.numerics.quadrature import expected_excess
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerClass, PerRow, RandomKey, RowMoments, Scalar


def class_shares(y: PerRow, weights: PerRow | None, classes: int) -> Float[np.ndarray, "K"]:
    """Share of each class among the rows, with half a row more in each, lest there be none."""
    counts = np.bincount(np.asarray(y, int), weights=weights, minlength=classes)
    return (counts + 0.5) / np.sum(counts + 0.5)


class BinaryResponse(Likelihood):
    """A law of y in {0, 1} given one latent."""

    targets: ClassVar[Targets] = "class"

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        return self._latent_of(float(class_shares(y, weights, 2)[1]))

    def _latent_of(self, share: float) -> float:
        """The latent at which a share of targets is one."""
        return float(np.log(share / (1 - share)))

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        probability = self.class_probabilities(f, side)[1]
        return probability, probability * (1 - probability)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.bernoulli(key, self.class_probabilities(f, side)[1]).astype(f.dtype)

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N levels"]:
        probability = self.predictive_moments(marginals, side)[0]
        return (probabilities > 1 - probability[:, None]).astype(marginals.mean.dtype)

    def check_targets(self, y: PerRow) -> None:
        name, advice = f"{type(self).__name__} targets", "encode the two classes as 0 and 1"
        check_values(name, y, np.isin(y, [0.0, 1.0]), "0 or 1", advice)


class BinaryLikelihood(BinaryResponse, ScaleMixture):
    """A law of y in {0, 1} that is a Gaussian scale mixture in its latent."""

    is_log_concave: ClassVar[bool] = True


class Bernoulli(BinaryLikelihood):
    """y in {0, 1} with p(y = 1 | f) = 1 / (1 + exp(-f)), the logit link."""

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return jax.nn.log_sigmoid((2 * y - 1) * f[0])

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return jax.nn.sigmoid(jnp.stack([-f[0], f[0]]))

    def form(self, y: Scalar, side: SideInformation) -> Form:
        zero = jnp.zeros_like(y)
        return Form(zero - jnp.log(2.0), y - 0.5, zero, zero, zero + 1)

    def log_phi(self, r: Array) -> Array:
        return log_inverse_cosh_root(r)


class BernoulliProbit(BinaryResponse):
    """y in {0, 1} with p(y = 1 | f) = Phi(f), the standard normal's distribution function."""

    is_log_concave: ClassVar[bool] = True

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return log_ndtr((2 * y - 1) * f[0])

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return ndtr(jnp.stack([-f[0], f[0]]))

    def _latent_of(self, share: float) -> float:
        return float(ndtri(share))

    def latent_scale(self, spread: float) -> float:
        return 1.2  # a probit is about a logit of 1.7 times its argument

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        return log_ndtr((2 * y - 1) * mean[:, 0] / jnp.sqrt(1 + variance[:, 0]))

    def predictive_probabilities(self, marginals: Marginals, side: SideInformation) -> PerClass:
        mean, variance = marginals
        z = mean[:, 0] / jnp.sqrt(1 + variance[:, 0])
        return ndtr(jnp.stack([-z, z], axis=1))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        probability = self.predictive_probabilities(marginals, side)
        return probability[:, 1], probability[:, 0] * probability[:, 1]


class BayesianSVM(ExponentialOfRoot, BinaryLikelihood):
    """The hinge loss as a pseudo-likelihood: exp(-2 max(0, 1 - t f)), t = 2 y - 1.

    Polson & Scott (2011), for Gaussian processes Wenzel et al. (2017). It does not add up to one
    over y: a log evidence with it ranks hyper-parameters, and is not comparable with that of
    another likelihood. Class probabilities are the two values divided by their sum.
    """

    is_normalised: ClassVar[bool] = False
    is_smooth: ClassVar[bool] = False

    def _latent_of(self, share: float) -> float:
        return float(np.clip(super()._latent_of(share) / 4, -1, 1))  # beyond it is flatter

    def form(self, y: Scalar, side: SideInformation) -> Form:
        sign, one = 2 * y - 1, jnp.ones_like(y)
        return Form(-one, sign, one, 2 * sign, one)

    def class_probabilities(self, f: Latents, side: SideInformation) -> Float[Array, "K"]:
        return jax.nn.softmax(-2 * jax.nn.relu(1 - jnp.stack([-f[0], f[0]])))

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        return -2 * expected_excess(1 - (2 * y - 1) * mean[:, 0], variance[:, 0])

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        probability = self.predictive_probabilities(marginals, side)
        return jnp.log(jnp.where(y > 0.5, probability[:, 1], probability[:, 0]))
