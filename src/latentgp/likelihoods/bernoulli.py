"""Binary targets."""

import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, SideInformation


class Bernoulli(Likelihood):
    """y in {0, 1} with p(y = 1 | f) = 1 / (1 + exp(-f)), the logit link."""

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return jax.nn.log_sigmoid((2 * y - 1) * f[0])

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        probability = jax.nn.sigmoid(f[0])
        return probability, probability * (1 - probability)

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(f[0])).astype(f.dtype)

    def predictive_quantiles(
        self,
        probabilities: Float[Array, "K"],
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
        side: SideInformation,
    ) -> Float[Array, "N K"]:
        probability = self.predictive_moments(mean, variance, side)[0]
        return (probabilities > 1 - probability[:, None]).astype(mean.dtype)

    def check_targets(self, y: Float[Array, "N"]) -> None:
        outside = np.setdiff1d(y, [0.0, 1.0])
        if outside.size:
            raise InputError(
                f"Bernoulli targets must be 0 or 1, got {outside[:5].tolist()}; "
                "encode the two classes as 0 and 1."
            )
