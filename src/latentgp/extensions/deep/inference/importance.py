"""Bound of deep models by several joint draws of all weights."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.extensions.deep.inference.family import DeepParameters
from latentgp.extensions.deep.inference.steps import DeepInference, DeepState
from latentgp.extensions.deep.inference.weights import total
from latentgp.extensions.deep.models import LayerDraw
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.site_inference.search.algorithm import prior_mean, rows_of
from latentgp.typing import Array, RandomKey, Scalar


class ImportanceWeighted(DeepInference):
    """The bound E log (1/K) sum_k p(y | W_k) p(W_k) / q(W_k), W_k from q (Burda et al. 2016, 8).

    It rises with K to the log evidence. It is no sum over rows, so that a batch has all of them;
    directions of features are drawn once for all K and enter by their divergence. Before the step
    `late` the search climbs the usual bound: far from the posterior one weight is all of the sum.
    """

    number: int = eqx.field(static=True, kw_only=True)  # K

    def read_at(
        self, state: DeepState, batch: Data, key: RandomKey, draws: int
    ) -> tuple[Scalar, DeepParameters, WhiteSites | None]:
        return jax.lax.cond(
            state.steps < self.late,
            lambda: DeepInference.read_at(self, state, batch, key, draws),
            lambda: self.read_several(state, batch, key, draws),
        )

    def read_several(
        self, state: DeepState, batch: Data, key: RandomKey, draws: int
    ) -> tuple[Scalar, DeepParameters, None]:
        """The same of the bound by several draws."""

        def bound(learned: DeepParameters) -> tuple[Scalar, Scalar]:
            keys = jax.random.split(key, draws)
            slopes, values = jax.lax.map(lambda key: self._estimate(learned, batch, key), keys)
            divergence = _kl_of_directions(learned)
            return jnp.mean(slopes) - divergence, jnp.mean(values) - divergence

        slopes, value = jax.grad(bound, has_aux=True)(state.learned)
        in_prior = jax.grad(self.space.log_prior)(state.vector)
        return value, slopes._replace(vector=slopes.vector + in_prior), None

    def bound_of(self, state: DeepState, block: Data, key: RandomKey, number: Any = 0) -> Scalar:
        return self._estimate(self.at_draw(state.learned, key), block, key)[1]

    def kl_of_weights(self, state: DeepState) -> Scalar:
        return _kl_of_directions(state.learned)

    def _estimate(
        self, learned: DeepParameters, rows: Data, key: RandomKey
    ) -> tuple[Scalar, Scalar]:
        """Function with the estimate of the gradient, and log of the mean weight of K draws.

        Doubly reparameterised (Tucker et al. 2019, eq. 8): a weight's density under q has no slope
        in q's parameters, and draws have theirs times the square of its share. Without it, near
        the posterior, the noise of the gradient drowns it as K grows (Rainforth et al. 2018).
        """
        key_features, key_weights = jax.random.split(key)
        features = self.architecture.drawn(learned, key_features)
        model = self.space.to_model(learned.vector)
        offset, seen = prior_mean(model, rows), rows_of(rows)
        held_hidden, held_last = jax.lax.stop_gradient((learned.hidden, learned.last))
        architecture = self.architecture

        def log_weight(key: RandomKey, share: Scalar) -> Scalar:
            key_hidden, key_last = jax.random.split(key)
            draws = architecture.hidden_drawn(learned, features, key_hidden)
            assert learned.last is not None
            assert held_last is not None
            hidden, last = _slowed(
                ([draw.weights for draw in draws], learned.last.draw(key_last)), share
            )
            draws = tuple(map(LayerDraw, features, hidden))
            below = architecture.layout.under_last(model, draws, rows.X)
            blocks = features[-1].cross_covariance(model.kernel, below)
            f = vmap_latents(lambda block, w: w @ block, blocks, last).T + offset
            terms = jax.vmap(model.likelihood.log_prob)(seen.y, f, dict(seen.side))
            if seen.weights is not None:
                terms = jnp.where(seen.weights > 0, seen.weights * terms, 0.0)
            ratios = [own.log_ratio(w) for own, w in zip(held_hidden, hidden, strict=True)]
            return jnp.sum(terms) + total(ratios) + held_last.log_ratio(last)

        keys, one = jax.random.split(key_weights, self.number), jnp.ones(self.number)
        logs = jax.lax.stop_gradient(jax.lax.map(lambda given: log_weight(*given), (keys, one)))
        shares = jax.nn.softmax(logs)
        again = jax.lax.map(lambda given: log_weight(*given), (keys, shares))
        return shares @ again, jax.nn.logsumexp(logs) - jnp.log(self.number)


def _slowed(draws: Any, share: Scalar) -> Any:
    """The same with a share of its slopes."""

    def of(w: Array) -> Array:
        held = jax.lax.stop_gradient(w)
        return held + share * (w - held)

    return jax.tree.map(of, draws)


def _kl_of_directions(learned: DeepParameters) -> Scalar:
    return total([own.kl() for own in learned.directions or ()])
