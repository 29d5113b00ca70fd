"""Augmentations of the logistic-softmax likelihoods (Galy-Fajou et al. 2020; 2022, 7.4).

With S = D + sum theta and s = sigmoid(-f), the normaliser 1 / (S - sum theta_j s_j) is, up to
1 / S, the generating function of negative multinomial counts with p_j = theta_j / S; they are
Poisson counts of rate lambda p_j S whose lambda ~ Gamma(1, S) is integrated out, or kept.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, polygamma
from jaxtyping import Float

from latentgp.distributions import sample_negative_multinomial
from latentgp.likelihoods.base import Likelihood
from latentgp.likelihoods.multiclass import LogisticSoftmaxLikelihood
from latentgp.sites.augmentations.base import augmentation_of
from latentgp.sites.augmentations.polya_gamma import LogisticPowers, Powers
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowLatents

_NEWTON_STEPS = 12


class NegativeMultinomialPolyaGamma(LogisticPowers[LogisticSoftmaxLikelihood]):
    """Negative multinomial counts: no inner loop, the tighter bound (2022, algorithms 4 and 5)."""

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, LogisticSoftmaxLikelihood)

    def powers(self) -> Powers:
        y, theta = self.rows.y, self._theta()
        chosen = jax.nn.one_hot(y.astype(int), self.likelihood.latent_size, dtype=y.dtype)
        constant = chosen @ jnp.log(theta) - jnp.log(self._pinned() + jnp.sum(theta))
        absent = self.likelihood.absent(self.rows.side)
        if absent is not None:
            constant = constant + (1 - jnp.sum(chosen, axis=1)) * absent[1]
        return Powers(chosen, jnp.zeros_like(chosen), constant)

    def log_generating(self, rest: RowLatents) -> PerRow:
        return -jnp.log(self._no_count(rest))

    def draw_counts(self, f: RowLatents, key: RandomKey) -> RowLatents:
        chances, none = self._shares() * jax.nn.sigmoid(-f), self._no_count(jax.nn.sigmoid(f))
        return sample_negative_multinomial(key, jnp.ones_like(self.rows.y), chances, none)

    def log_counts(self, counts: RowLatents) -> PerRow:
        """Not normalised: with D = 0 the counts have no proper law (as lambda has not)."""
        ways = gammaln(1 + jnp.sum(counts, axis=1)) - jnp.sum(gammaln(counts + 1), axis=1)
        return ways + jnp.sum(counts * jnp.log(self._shares()), axis=1)

    def _theta(self) -> Latents:
        return jnp.asarray(self.likelihood.class_weights, self.rows.y.dtype)

    def _pinned(self) -> Float[Array, "*#N"]:
        """D."""
        absent = self.likelihood.absent(self.rows.side)
        return jnp.zeros((), self.rows.y.dtype) if absent is None else absent[0]

    def _shares(self) -> Float[Array, "*#N Q"]:
        """Theta / S."""
        theta = self._theta()
        return theta / (self._pinned()[..., None] + jnp.sum(theta))

    def _no_count(self, rest: RowLatents) -> PerRow:
        """1 - sum_j theta_j s_j / S, from rest = 1 - s: the chance of no further count."""
        theta, pinned = self._theta(), self._pinned()
        return (rest @ theta + pinned) / (pinned + jnp.sum(theta))


class GammaPoissonPolyaGamma(NegativeMultinomialPolyaGamma):
    """The same with lambda kept: q(lambda) q(n) factorise, so the bound is looser (2020, 3.2).

    q(lambda) = Gamma(alpha, S) and q(n_j) is Poisson of rate exp(E log lambda) theta_j s_j;
    alpha = 1 + sum of their means is solved for by Newton's method, the inner loop.
    """

    is_tight: ClassVar[bool] = False

    def expected_counts(self, s: RowLatents, rest: RowLatents) -> tuple[RowLatents, PerRow]:
        chances, none = self._shares() * s, self._no_count(rest)
        total = jnp.sum(chances, axis=1)
        alpha = jax.lax.stop_gradient(_shape_of_lambda(total, none))
        # E log p(lambda, n) - E log q(lambda, n), with lambda measured in units of 1 / S.
        rate = jnp.exp(digamma(alpha))
        bound = rate * total + gammaln(alpha) + (1 - alpha) * digamma(alpha)
        return rate[:, None] * chances, bound


augmentation_of.register(
    LogisticSoftmaxLikelihood, lambda likelihood: NegativeMultinomialPolyaGamma()
)


def _shape_of_lambda(total: PerRow, none: PerRow) -> PerRow:
    """The alpha with alpha = 1 + total exp(digamma(alpha)), by Newton's method.

    exp(digamma(alpha)) is about alpha - 1/2, which gives the start; none = 1 - total.
    """

    def newton(_, alpha):
        tilt = total * jnp.exp(digamma(alpha))
        step = (alpha - 1 - tilt) / (1 - tilt * polygamma(1, alpha))
        return jnp.maximum(alpha - step, 1.0)

    return jax.lax.fori_loop(0, _NEWTON_STEPS, newton, (1 - 0.5 * total) / none)
