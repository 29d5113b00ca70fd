"""Successes whose chance varies between rows by more than the latent says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, polygamma
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import Marginals, SideInformation
from latentgp.likelihoods.counts import TrialsLikelihood, log_choices
from latentgp.likelihoods.positive import shapes_of_mean
from latentgp.numerics.log_space import log_beta
from latentgp.numerics.quadrature import expectation, prediction_nodes
from latentgp.typing import Array, Latents, PerRow, RandomKey, Scalar, Values

_NODES = 61
_SUMMED = 500.0  # trials, up to which probabilities of counts are added up
_TAIL = 36.0  # nats below the mode, where nothing is left


class BetaBinomial(TrialsLikelihood):
    """Successes in known trials: y ~ Binomial(trials, p), p ~ Beta(s mean, s (1 - mean)).

    The mean share is sigmoid(f). The rows carry `trials`, at least y; without them there is one.

    Args:
        precision: s, learned; the variance is 1 + (trials - 1) / (1 + s) times a binomial's.

    Example:
        >>> row = {"trials": jnp.array(3.0)}
        >>> law = BetaBinomial(precision=2.0)  # p is uniform, and so is y, where f = 0
        >>> round(float(law.log_prob(jnp.array(1.0), jnp.array([0.0]), row)), 4)
        -1.3863
    """

    precision: Scalar = parameter(constraints.positive, default=5.0)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        n, (a, b) = self.trials(side), shapes_of_mean(f[0], self.precision)
        failures = jnp.maximum(n - y, 0.0)
        value = log_choices(n, y) + log_beta(y + a, failures + b) - log_beta(a, b)
        return jnp.where(y <= n, value, -jnp.inf)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        n, mean = self.trials(side), jax.nn.sigmoid(f[0])
        excess = 1 + (n - 1) / (1 + self.precision)
        return n * mean, n * mean * jax.nn.sigmoid(-f[0]) * excess

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        key_share, key_count = jax.random.split(key)
        share = jax.random.beta(key_share, *shapes_of_mean(f[0], self.precision), dtype=f.dtype)
        n = jnp.asarray(self.trials(side), f.dtype)
        return jax.random.binomial(key_count, n, share, dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        n, count = jnp.asarray(self.trials(side), f.dtype), jnp.floor(y)
        inside = (count >= 0) & (count < n)
        k = jnp.where(inside, count, 0.0)
        # At most k successes are there where p is below a beta variable of these shapes.
        below = _chance_above(
            (k + 1, jnp.maximum(n - k, 0.5)), shapes_of_mean(f[0], self.precision)
        )
        return jnp.where(inside, below, (count >= n).astype(f.dtype))

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        n = jnp.broadcast_to(jnp.asarray(self.trials(side), y.dtype), y.shape)
        by_averages = super().predictive_cdf
        return jax.lax.cond(
            jnp.max(n) <= _SUMMED,
            lambda: self._summed_cdf(y, marginals, n),
            lambda: by_averages(y, marginals, side),
        )

    def _summed_cdf(self, y: PerRow, marginals: Marginals, n: PerRow) -> PerRow:
        """The same by the sum of the probabilities of counts, each from the one before it."""
        count, n = jnp.floor(y)[:, None], n[:, None]

        def at_nodes(f: Float[Array, "N S Q"]) -> Float[Array, "N S"]:
            a, b = shapes_of_mean(f[..., 0], self.precision)
            first = log_beta(a, n + b) - log_beta(a, b)

            def add(state: tuple[Scalar, Values, Values]) -> tuple[Scalar, Values, Values]:
                j, log_term, total = state
                left = jnp.maximum(n - j, 1.0)
                log_term += jnp.log(left * (a + j)) - jnp.log((j + 1) * (left - 1 + b))
                more = (j < count) & (j < n)
                return j + 1, log_term, total + jnp.where(more, jnp.exp(log_term), 0.0)

            last = jnp.nanmax(jnp.minimum(count, n))
            start = jnp.zeros((), first.dtype), first, jnp.exp(first)
            total = jax.lax.while_loop(lambda state: state[0] < last, add, start)[2]
            conditions = [count < 0, count < n, count >= n]
            return jnp.select(conditions, [0.0, jnp.minimum(total, 1.0), 1.0], jnp.nan)

        return expectation(at_nodes, *marginals, prediction_nodes(1))


def _chance_above(first: tuple[Scalar, Scalar], second: tuple[Scalar, Scalar]) -> Scalar:
    """Probability that a beta variable exceeds another one, by the shapes of both.

    The distribution function of the wider law is averaged over the narrower one, by the trapezoidal
    rule along the logit.
    """
    swap = _logit_variance(second) < _logit_variance(first)
    a, b, c, d = (
        jnp.where(swap, two, one)
        for one, two in zip((*first, *second), (*second, *first), strict=True)
    )
    centre, spread = jnp.log(a) - jnp.log(b), jnp.sqrt(2 * _TAIL * (1 / a + 1 / b))
    low = centre - jnp.maximum(spread, _TAIL / a)
    high = centre + jnp.maximum(spread, _TAIL / b)
    logit = low + (high - low) * jnp.asarray(np.linspace(0, 1, _NODES), a.dtype)
    weights = jax.nn.softmax(a * jax.nn.log_sigmoid(logit) + b * jax.nn.log_sigmoid(-logit))
    below = weights @ betainc(c, d, jax.nn.sigmoid(logit))
    return jnp.where(swap, 1 - below, below)


def _logit_variance(shapes: tuple[Scalar, Scalar]) -> Scalar:
    return polygamma(1, shapes[0]) + polygamma(1, shapes[1])
