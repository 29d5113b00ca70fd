"""Bound of deep models by several joint draws of all weights."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.deep.family import Learned
from latentgp.inference.deep.steps import DeepInference, DeepState
from latentgp.inference.deep.weights import total
from latentgp.inference.sites.algorithm import prior_mean, rows_of
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.typing import Array


class ImportanceWeighted(DeepInference):
    """The bound E log (1/K) sum_k p(y | W_k) p(W_k) / q(W_k), W_k from q (Burda et al. 2016, 8).

    It rises with K to the log evidence. It is no sum over rows, so that a batch has all of them;
    directions of features are drawn once for all K and enter by their divergence.

    Args:
        number: K.
    """

    number: int = eqx.field(static=True, kw_only=True)

    def read_at(
        self, state: DeepState, batch: Data, key: Key[Array, ""], draws: int
    ) -> tuple[Float[Array, ""], Learned, WhiteSites | None]:
        def bound(learned: Learned) -> Float[Array, ""]:
            keys = jax.random.split(key, draws)
            of_draws = jax.lax.map(lambda key: self._log_mean(learned, batch, key), keys)
            return jnp.mean(of_draws) - _kl_of_directions(learned)

        value, slopes = jax.value_and_grad(bound)(state.learned)
        in_prior = jax.grad(self.space.log_prior)(state.vector)
        return value, slopes._replace(vector=slopes.vector + in_prior), None

    def bound_of(self, state: DeepState, block: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        return self._log_mean(self.at_draw(state.learned, key), block, key)

    def kl_of_weights(self, state: DeepState) -> Float[Array, ""]:
        return _kl_of_directions(state.learned)

    def _log_mean(self, learned: Learned, rows: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        """Log of the mean weight of K draws."""
        key_features, key_weights = jax.random.split(key)
        features = self.architecture.drawn(learned, key_features)
        model = self.space.to_model(learned.vector)
        offset, last = prior_mean(model, rows), learned.last
        assert last is not None
        seen = rows_of(rows)

        def log_weight(key: Key[Array, ""]) -> Float[Array, ""]:
            key_hidden, key_last = jax.random.split(key)
            draws = self.architecture.hidden_drawn(learned, features, key_hidden)
            below = self.architecture.layout.under_last(model, draws, rows.X)
            blocks = features[-1].cross_covariance(model.kernel, below)
            weights = last.draw(key_last)
            f = vmap_latents(lambda block, w: w @ block, blocks, weights).T + offset
            terms = jax.vmap(model.likelihood.log_prob)(seen.y, f, dict(seen.side))
            ratios = [
                own.log_ratio(d.weights) for own, d in zip(learned.hidden, draws, strict=True)
            ]
            if seen.weights is not None:
                terms = jnp.where(seen.weights > 0, seen.weights * terms, 0.0)
            return jnp.sum(terms) + total(ratios) + last.log_ratio(weights)

        logs = jax.lax.map(log_weight, jax.random.split(key_weights, self.number))
        return jax.nn.logsumexp(logs) - jnp.log(self.number)


def _kl_of_directions(learned: Learned) -> Float[Array, ""]:
    return total([own.kl() for own in learned.directions or ()])
