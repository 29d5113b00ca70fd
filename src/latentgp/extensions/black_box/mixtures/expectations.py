"""Expected log likelihoods under univariate Gaussians, and their derivatives in these.

Theorem 1 of Bonilla, Krauth & Dezfouli: whatever the posterior of the coefficients, E log p(y | f)
and its derivatives need draws of the Q independent latents of a row only. With f = b + v^1/2 e,

    d/db E = E[e v^-1/2 log p],        d/dv E = E[(e^2 - 1) / (2 v) log p]

are found from values of log p; where it has a gradient, as E[g] and E[g e] / (2 v^1/2).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.modules import Module
from latentgp.numerics.quadrature import spread_of, training_nodes
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, PerRow, RandomKey, RowLatents

Estimator = Literal["quadrature", "score", "reparameterised"]


class ExpectedLogLikelihoods(NamedTuple):
    """Expected log likelihoods of rows, in nats, with their derivatives."""

    value: PerRow  # E log p(y | f)
    in_mean: RowLatents  # its derivative in the mean of f
    in_variance: RowLatents  # that in the variance
    error: PerRow  # variance of `value` as an estimate; zero where it is none
    failed: PerRow  # values of log p that were not finite, counted as the lowest of their row, (N,)


class Expectations(Module):
    """Estimator of expected log likelihoods."""

    # "quadrature", by fixed nodes; "score", by draws and values of log p alone; "reparameterised",
    # by draws and gradients of log p
    estimator: Estimator = eqx.field(static=True, default="quadrature")
    samples: int = eqx.field(static=True, default=100)  # even: every draw has its opposite
    # whether the score function is a control variate (Ranganath et al. 2014), with a coefficient
    # for each derivative; it is found from the other draws, so that nothing is biased
    control: bool = eqx.field(static=True, default=True)

    @property
    def is_random(self) -> bool:
        """Whether a key matters."""
        return self.estimator != "quadrature"

    def __call__(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, key: RandomKey
    ) -> ExpectedLogLikelihoods:
        """Expectations of all rows, some rows at a time."""
        noise, latents = self._noise(key, marginals.mean), marginals.mean.shape[1]

        def chunk(
            carry: None, part: Any, real: Bool[Array, "B"]
        ) -> tuple[None, ExpectedLogLikelihoods]:
            return carry, self._of_chunk(likelihood, part)

        numbers = latents * (self.samples if self.is_random else len(training_nodes(latents)[0]))
        parts = rows, marginals, noise
        return scan_rows(chunk, None, parts, columns=numbers, in_cache=True)[1]

    def worth(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, key: RandomKey
    ) -> PerRow:
        """The values alone, differentiable in the likelihood's parameters."""
        noise = self._noise(key, marginals.mean)
        if noise is None:
            return likelihood.expected_log_prob(rows.y, marginals, rows.side)
        mean, variance = marginals
        f = mean[:, None] + jnp.sqrt(variance)[:, None] * noise
        values = likelihood._along_nodes(likelihood.log_prob, rows.y, rows.side)(f)
        # As `by_score` has them.
        known = lowest_where_unknown(values) if self.estimator == "score" else values
        return jnp.mean(known, axis=1)

    def _noise(self, key: RandomKey, mean: RowLatents) -> Float[Array, "N S Q"] | None:
        """Standard normal draws, and then their opposites in the same order."""
        if not self.is_random:
            return None
        half = jax.random.normal(key, (len(mean), self.samples // 2, mean.shape[1]), mean.dtype)
        return jnp.concatenate([half, -half], axis=1)

    def _of_chunk(
        self, likelihood: Likelihood, part: tuple[Rows, Marginals, Float[Array, "B S Q"] | None]
    ) -> ExpectedLogLikelihoods:
        rows, marginals, noise = part
        if noise is None:
            return by_quadrature(likelihood, rows, marginals)
        spread = spread_of(*marginals)[:, None]
        f = marginals.mean[:, None] + spread * noise
        if self.estimator == "score":
            along = likelihood._along_nodes(likelihood.log_prob, rows.y, rows.side)
            return by_score(along(f), noise, spread, self.control)
        with_slopes = jax.value_and_grad(likelihood.log_prob, argnums=1)
        values, slopes = likelihood._along_nodes(with_slopes, rows.y, rows.side)(f)
        in_variance = jnp.mean(slopes * noise, axis=1) / (2 * spread[:, 0])
        failed = jnp.sum(~jnp.isfinite(values), axis=1).astype(values.dtype)
        value, in_mean = jnp.mean(values, axis=1), jnp.mean(slopes, axis=1)
        return ExpectedLogLikelihoods(value, in_mean, in_variance, _error(values), failed)


def by_quadrature(
    likelihood: Likelihood, rows: Rows, marginals: Marginals
) -> ExpectedLogLikelihoods:
    """By the likelihood's own expectations, which have derivatives."""

    def total(marginals: Marginals) -> tuple[Array, Array]:
        values = likelihood.expected_log_prob(rows.y, marginals, rows.side)
        return jnp.sum(values), values

    (in_mean, in_variance), values = jax.grad(total, has_aux=True)(marginals)
    nothing = jnp.zeros_like(values)
    return ExpectedLogLikelihoods(values, in_mean, in_variance, nothing, nothing)


def by_score(
    values: Float[Array, "N S"],
    noise: Float[Array, "N S Q"],
    spread: Float[Array, "N 1 Q"],
    control: bool,
) -> ExpectedLogLikelihoods:
    """From values of log p at draws and their opposites."""
    failed = jnp.sum(~jnp.isfinite(values), axis=1).astype(values.dtype)
    values = lowest_where_unknown(values)

    def slope(score: Float[Array, "N S Q"]) -> RowLatents:
        worth = values[:, :, None]
        if control:
            above, among = (_of_others(part) for part in (score**2 * worth, score**2))
            worth = worth - above / among
        return jnp.mean(score * worth, axis=1)

    in_mean = slope(noise) / spread[:, 0]
    in_variance = slope(noise**2 - 1) / (2 * spread[:, 0] ** 2)
    value = jnp.mean(values, axis=1)
    return ExpectedLogLikelihoods(value, in_mean, in_variance, _error(values), failed)


def _of_others(parts: Float[Array, "N S Q"]) -> Float[Array, "N S Q"]:
    """Sums over the draws but one and its opposite."""
    opposite = jnp.roll(parts, parts.shape[1] // 2, axis=1)
    return jnp.sum(parts, axis=1, keepdims=True) - parts - opposite


def _error(values: Float[Array, "N S"]) -> PerRow:
    """Variance of a mean over draws and their opposites."""
    pairs = values.reshape(len(values), 2, -1).mean(axis=1)
    return jnp.var(pairs, axis=1) / max(pairs.shape[1] - 1, 1)


def lowest_where_unknown(values: Float[Array, "N S"]) -> Float[Array, "N S"]:
    """Values with the lowest of their row in place of those that are not finite.

    Were these left out, an ascent would go where nothing is known. NaN in a row without any.
    """
    known = jnp.isfinite(values)
    lowest = jnp.min(jnp.where(known, values, jnp.inf), axis=1, keepdims=True)
    return jnp.where(known, values, jnp.where(jnp.isfinite(lowest), lowest, jnp.nan))
