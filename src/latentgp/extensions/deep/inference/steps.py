"""Steps on batches for deep models: gradients, and natural parameters of the last layer."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float, Int

from latentgp.extensions.batches.natural_gradient import BatchInfo, TwoPartInference
from latentgp.extensions.batches.step_sizes import Schedule
from latentgp.extensions.deep.inference.family import Architecture, DeepParameters
from latentgp.extensions.deep.inference.weights import Factors, entropy
from latentgp.extensions.deep.models import DeepGP, LastLayer, WeightsAt
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import Factor
from latentgp.numerics.finite import all_finite
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean, rows_of
from latentgp.site_inference.search.gradients import slope_of_sites
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_ADAM = optax.scale_by_adam()
_OF_HYPERPARAMETERS = 1 << 20  # folded into the key of a step for their noise


class DeepState(NamedTuple):
    """State of the search."""

    learned: DeepParameters  # by gradients
    white: WhiteSites | None  # natural parameters of the last layer's weights, if they are not
    factor: Factor | None  # of the precision that these give
    schedule: Any  # state of their step sizes
    adam: Any  # state of the optimiser
    steps: Int[Array, ""]  # number of steps so far

    @property
    def vector(self) -> HyperVector:
        """Hyper-parameters, unconstrained."""
        return self.learned.vector

    @property
    def last(self) -> LastLayer:
        """Posterior of the last layer's weights."""
        if self.learned.last is not None:
            return LastLayer(self.learned.last.mean, jnp.exp(self.learned.last.log_deviation))
        assert self.white is not None
        assert self.factor is not None
        return LastLayer(_weight_means(self.white, self.factor), self.factor.inverse)


def _weight_means(white: WhiteSites, factor: Factor) -> Float[Array, "Q R"]:
    """Posterior means of weights given their natural parameters and the factor of these."""
    return vmap_latents(lambda i, linear: i.T @ (i @ linear), factor.inverse, white.linear)


class DeepRead(NamedTuple):
    """Estimates from a batch weighted as all rows."""

    bound: Scalar  # in nats
    slopes: DeepParameters  # of it in what is learned
    white: WhiteSites | None  # natural parameters of the last layer's weights, if it has them
    part: Scalar  # weight of the batch, one on average


class DeepInference(TwoPartInference):
    """The algorithm for batches."""

    architecture: Architecture  # the features
    algorithm: SiteInference  # makes sites of rows, by a rule
    space: ParameterSpace  # of hyper-parameters
    schedule: Schedule  # of natural parameters
    learning_rate: Scalar  # of Adam, at the start
    decay: Scalar  # steps after which the learning rate has halved
    total_weight: Scalar  # what all rows count as
    batches: Scalar  # of an epoch
    # of the hidden layers in a step, at first and later
    draws: tuple[int, int] = eqx.field(static=True)
    late: Int[Array, ""]  # the step from which there are as many as later
    held: Int[Array, ""]  # how many steps hyper-parameters of kernels are held for
    of_kernels: Bool[Array, "H"]  # which entries of the vector are those
    key: RandomKey  # random key
    # of hyper-parameters
    bounds: tuple[HyperVector | float, HyperVector | float] = (-float("inf"), float("inf"))

    def begin(
        self, learned: DeepParameters, model: DeepGP, last: WhiteSites | None = None
    ) -> DeepState:
        """The state before the first step: the last layer at its prior, or at given sites."""
        white = factor = None
        if learned.last is None:
            latents, size = model.likelihood.latent_size, len(self.architecture.features[-1])
            white = last or WhiteSites(jnp.zeros((latents, size)), jnp.zeros((latents, size, size)))
            factor = white.factor()
        elif last is not None:
            spread = jnp.diagonal(last.precision, axis1=1, axis2=2)
            own = Factors(_weight_means(last, last.factor()), -0.5 * jnp.log1p(spread))
            learned = learned._replace(last=own)
        steps = jnp.zeros((), jnp.int32)
        schedule = self.schedule.init(white)
        return DeepState(
            learned, white, factor, schedule, _ADAM.init(ravel_pytree(learned)[0]), steps
        )

    def seen(self, state: DeepState) -> DeepState:
        return state._replace(schedule=None, adam=None)

    def estimate(self, seen: DeepState, batch: Data, weight: Scalar) -> DeepRead:
        assert batch.weights is not None
        part = weight * self.batches / self.total_weight
        whole = batch.reweighted(batch.weights * (self.total_weight / weight))
        key = jax.random.fold_in(self.key, seen.steps)
        few, many = self.draws
        if few == many:
            return DeepRead(*self.read(seen, whole, key, few), part)
        by_draws = (partial(self.read, seen, whole, key, draws) for draws in (few, many))
        bound, slopes, white = jax.lax.cond(seen.steps < self.late, *by_draws)
        return DeepRead(bound, slopes, white, part)

    def moved(self, state: DeepState, read: DeepRead) -> tuple[DeepState, BatchInfo]:
        bound, slopes, white, part = read
        sound = all_finite((bound, slopes, white))
        flat, in_shape = ravel_pytree(slopes)  # a few operations in place of some for each leaf
        moves: Any
        moves, adam = _ADAM.update(part * flat, state.adam)
        ways = in_shape(moves)
        rate = self.learning_rate / (1 + state.steps / self.decay)
        free = jnp.where(self.of_kernels & (state.steps < self.held), 0.0, 1.0)
        ways = ways._replace(vector=free * ways.vector)
        if ways.spread is not None:
            ways = ways._replace(spread=free * ways.spread)
        learned = jax.tree.map(lambda old, way: old + rate * way, state.learned, ways)
        learned = learned._replace(vector=jnp.clip(learned.vector, *self.bounds))
        share, schedule = jnp.ones(()), state.schedule
        moved, factor = state.white, state.factor
        if state.white is not None:
            assert white is not None
            difference = jax.tree.map(jnp.subtract, white, state.white)
            share, schedule = self.schedule.share(state.schedule, difference)
            share = jnp.minimum(part * share, 1.0)
            moved = state.white.towards(white, share)
            factor = moved.factor()
            sound = sound & all_finite(factor)
        after = DeepState(learned, moved, factor, schedule, adam, state.steps + 1)
        before = state._replace(steps=state.steps + 1)
        after = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
        share = jnp.where(sound, share, 0.0)
        return after, BatchInfo(bound, share, jnp.zeros((), bool))

    def read(
        self, state: DeepState, batch: Data, key: RandomKey, draws: int
    ) -> tuple[Scalar, DeepParameters, WhiteSites | None]:
        """Bound, its gradient, and natural parameters, from a batch weighted as all rows."""
        if state.learned.spread is None:
            return self.read_at(state, batch, key, draws)
        drawn, pull = jax.vjp(lambda learned: self.at_draw(learned, key), state.learned)
        bound, slopes, white = self.read_at(state._replace(learned=drawn), batch, key, draws)
        (slopes,) = pull(slopes)
        own, in_spread = jax.value_and_grad(entropy)(state.learned.spread)
        slopes = slopes._replace(spread=slopes.spread + in_spread)
        return bound + own + self.space.log_prior(drawn.vector), slopes, white

    def at_draw(self, learned: DeepParameters, key: RandomKey) -> DeepParameters:
        """The same at a draw of the hyper-parameters, if they have a posterior."""
        if learned.spread is None:
            return learned
        key = jax.random.fold_in(key, _OF_HYPERPARAMETERS)
        noise = jax.random.normal(key, learned.vector.shape, learned.vector.dtype)
        return learned._replace(vector=learned.vector + jnp.exp(learned.spread) * noise)

    def read_at(
        self, state: DeepState, batch: Data, key: RandomKey, draws: int
    ) -> tuple[Scalar, DeepParameters, WhiteSites | None]:
        """The same at one value of the hyper-parameters."""
        model, pull_model = jax.vjp(self.space.to_model, state.vector)
        rows, held = rows_of(batch), jax.lax.stop_gradient(state.last)
        offset, pull_offset = jax.vjp(lambda model: prior_mean(model, batch), model)

        def of_draw(key: RandomKey) -> tuple[Any, ...]:
            def forward(learned: DeepParameters) -> tuple[Marginals, Array]:
                blocks = self.blocks(learned, batch.X, key)
                last = state._replace(learned=learned).last if learned.last is not None else held
                return WeightsAt(last, blocks).marginals(), blocks

            marginals, pull, blocks = jax.vjp(forward, state.learned, has_aux=True)
            of_f = marginals.shifted(offset)
            none = GaussianSites.none(of_f.mean)
            sites = self.algorithm.new_sites(model, rows, of_f, none)
            terms = jnp.sum(sites.expected(of_f))
            in_mean = sites.linear - sites.precision * of_f.mean
            (slopes,) = pull(Marginals(in_mean, -0.5 * sites.precision))
            in_model = slope_of_sites(self.algorithm, model, (rows, of_f, none))
            (through_mean,) = pull_offset(in_mean)
            white = None
            if state.white is not None:
                about = sites.about(offset)
                precision = jnp.maximum(about.precision, 0.0)
                # Where a precision is negative none is taken; the slope in the mean stays.
                linear = about.linear + (precision - about.precision) * marginals.mean
                white = vmap_latents(
                    lambda block, b, w: WhiteSites(block @ b, (block * w) @ block.T),
                    *(blocks, linear.T, precision.T),
                )
            return terms, slopes, jax.tree.map(jnp.add, in_model, through_mean), white

        if draws == 1:
            terms, slopes, in_model, white = of_draw(key)
        else:
            drawn = jax.lax.map(of_draw, jax.random.split(key, draws))
            mean = partial(jnp.mean, axis=0)
            terms, slopes, in_model, white = jax.tree.map(mean, drawn)
        (gradient,) = pull_model(in_model)
        gradient = gradient + jax.grad(self.space.log_prior)(state.vector)
        divergence, in_divergence = jax.value_and_grad(DeepParameters.kl)(state.learned)
        slopes = jax.tree.map(jnp.subtract, slopes, in_divergence)
        slopes = slopes._replace(vector=slopes.vector + gradient)
        return terms - divergence - self.kl_of_last(state), slopes, white

    def blocks(
        self, learned: DeepParameters, X: Float[Array, "B D"], key: RandomKey
    ) -> Float[Array, "#Q R B"]:
        """Features of the last layer at rows, for a draw of the hidden ones."""
        key_features, key_layers = jax.random.split(key)
        model = self.space.to_model(learned.vector)
        features = self.architecture.drawn(learned, key_features)
        seen = self.architecture.under_last(model, learned, features, X, key_layers)
        return features[-1].cross_covariance(model.kernel, seen)

    def kl(self, state: DeepState, key: RandomKey) -> Scalar:
        """Nats subtracted from `bound_of` all rows, at one draw of the hyper-parameters."""
        found, spread = self.kl_of_weights(state), state.learned.spread
        if spread is None:
            return found
        vector = self.at_draw(state.learned, key).vector
        return found - entropy(spread) - self.space.log_prior(vector)

    def kl_of_weights(self, state: DeepState) -> Scalar:
        """KL divergence of weights and directions, in nats."""
        return state.learned.kl() + self.kl_of_last(state)

    def kl_of_last(self, state: DeepState) -> Scalar:
        """KL divergence of the last layer's weights with natural parameters, in nats."""
        if state.white is None:
            return jnp.zeros(())
        mean, root = state.last
        assert state.factor is not None
        logs = jnp.sum(jnp.log(jnp.diagonal(state.factor.lower, axis1=1, axis2=2)))
        return 0.5 * (jnp.sum(root**2) - mean.size + jnp.sum(mean**2)) + logs

    def bound_of(self, state: DeepState, block: Data, key: RandomKey, number: Any = 0) -> Scalar:
        """Expected log likelihood of a block of rows under a draw of the hidden layers, in nats.

        The key is that of the draw of hyper-parameters, the same for all blocks; rows of a block,
        by its number, have noise of their own.
        """
        learned = self.at_draw(state.learned, key)
        model = self.space.to_model(learned.vector)
        blocks = self.blocks(learned, block.X, jax.random.fold_in(key, number))
        of_f = WeightsAt(state.last, blocks).marginals().shifted(prior_mean(model, block))
        sites = self.algorithm.new_sites(model, rows_of(block), of_f, GaussianSites.none(of_f.mean))
        return jnp.sum(sites.expected(of_f))
