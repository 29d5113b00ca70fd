"""Inference by Gaussian sites: one algorithm for every rule and every representation.

One update reads the marginals of every row, lets the rule make new sites, and conditions the
prior on them. With an augmentation it is coordinate ascent, with quadrature a natural-gradient
step; with a Gaussian likelihood the first sites are exact.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key

from latentgp.arrays import Array
from latentgp.data import Data
from latentgp.inference.acceleration import History, Update, accelerated
from latentgp.latents.base import (
    LatentPosterior,
    Representation,
    latent_diagonals,
    log_evidence,
)
from latentgp.likelihoods.quadrature import training_nodes
from latentgp.linalg.streaming import scan_rows
from latentgp.models import LatentGP
from latentgp.parameters import ParameterSpace
from latentgp.sites.base import GaussianSites, Rows, SiteRule

_SHORTEST_STEP = 0.02


class SiteState(NamedTuple):
    """What is carried from update to update."""

    model: LatentGP
    sites: GaussianSites
    posterior: LatentPosterior


class SiteInfo(NamedTuple):
    """What is reported of an update: the bound of the posterior it started from, in nats."""

    bound: Float[Array, ""]


class Evaluation(NamedTuple):
    """The bound with sites profiled out, at one vector of hyper-parameters.

    Attributes:
        value: bound plus log prior of the hyper-parameters, in nats.
        bound: the (lower bound on the) log evidence alone, in nats.
        gradient: of `value` in the unconstrained vector, exact at the sites' optimum.
        sites: where the next evaluation starts.
        updates: how many site updates were made.
    """

    value: Float[Array, ""]
    bound: Float[Array, ""]
    gradient: Float[Array, "P"]
    sites: GaussianSites
    updates: Int[Array, ""]


class SiteInference(eqx.Module):
    """The algorithm: a representation (column) and a rule (row) of the design's table.

    Args:
        representation: how the latent functions are represented.
        rule: how the data enter.
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation.
    """

    representation: Representation
    rule: SiteRule
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=4)

    def init(self, model: LatentGP, data: Data, key: Key[Array, ""] | None = None) -> SiteState:
        """The state with sites made from the prior's marginals."""
        offset = prior_mean(model, data)
        prior = jnp.broadcast_to(latent_diagonals(model.kernel, data.X).T, offset.shape)
        variance = self.rule.starting_variance(model.likelihood, prior)
        sites = self._new_sites(model, rows_of(data), offset, variance)
        return SiteState(model, sites, self._condition(model, data, sites))

    def resume(self, model: LatentGP, data: Data, sites: GaussianSites) -> SiteState:
        """The state of a (new) model with sites already known."""
        return SiteState(model, sites, self._condition(model, data, sites))

    def step(
        self, state: SiteState, data: Data, key: Key[Array, ""] | None = None
    ) -> tuple[SiteState, SiteInfo]:
        """One damped update of all sites, block by block, and the posterior they give."""
        after, bound, _ = self._sweep(state, data, self.rule.step_size)
        return after, SiteInfo(bound)

    def _sweep(
        self, state: SiteState, data: Data, step_size: float
    ) -> tuple[SiteState, Float[Array, ""], Update]:
        """The state after a step, the bound before it, and the update as one of all blocks."""
        model, sites, posterior = state
        blocks = self.rule.blocks(model.likelihood)
        first = None
        for block in blocks:

            def update(rows, mean, variance, sites, offset, block=block):
                target = self._new_sites(model, rows, mean + offset, variance)
                terms = target.expected(mean + offset, variance)
                new = sites.damped(target, step_size)
                new = new if len(blocks) == 1 else sites.with_columns(new, block)
                return new, (terms, mean + offset, variance)

            sites, after, read = self.representation.update_sites(
                posterior, data.X, rows_of(data), sites, prior_mean(model, data), update
            )
            first = first or (jnp.sum(read[0]) - posterior.kl, *read[1:])
            posterior = after
        assert first is not None
        bound, mean, variance = first
        return (
            SiteState(model, sites, posterior),
            bound,
            Update(state.sites, sites, mean, variance),
        )

    def is_exact(self, model: LatentGP) -> bool:
        """Whether the log evidence is the model's own and not a lower bound."""
        return self.representation.is_exact and self.rule.is_exact(model.likelihood)

    def _condition(self, model: LatentGP, data: Data, sites: GaussianSites) -> LatentPosterior:
        about = sites.about(prior_mean(model, data))
        return self.representation.condition(model.kernel, data.X, about)

    def _new_sites(
        self,
        model: LatentGP,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> GaussianSites:
        sites = self.rule.sites(model.likelihood, rows, mean, variance)
        return sites.weighted(rows.weights)


@jax.jit
def initial_sites(algorithm: SiteInference, model: LatentGP, data: Data) -> GaussianSites:
    """The sites that an algorithm starts from."""
    return algorithm.init(model, data).sites


@jax.jit
def spread_sites(
    algorithm: SiteInference,
    model: LatentGP,
    known: Data,
    known_sites: GaussianSites,
    data: Data,
) -> GaussianSites:
    """Sites for rows, from what is believed about the latents given sites of other rows."""
    posterior = algorithm.resume(model, known, known_sites).posterior
    offset = prior_mean(model, data)

    def update(rows, mean, variance, sites, offset):
        target = algorithm._new_sites(model, rows, mean + offset, variance)
        return target, target.log_constant

    empty = GaussianSites(jnp.zeros_like(offset), jnp.zeros_like(offset), offset[:, 0])
    return algorithm.representation.update_sites(
        posterior, data.X, rows_of(data), empty, offset, update
    )[0]


@jax.jit
def evaluate(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: Float[Array, "P"],
    data: Data,
    sites: GaussianSites,
) -> Evaluation:
    """The bound and its gradient at a vector of hyper-parameters, sites profiled out.

    At the sites' optimum the derivative in the kernel's parameters is that of the evidence with
    the sites held, so nothing is differentiated through the updates (the dual
    parameterisation: Adam et al. 2021, 3).
    """
    if algorithm.rule.is_exact(space.model.likelihood):
        return _evaluate_exact(algorithm, space, vector, data, sites)
    model, pull_model = jax.vjp(space.to_model, vector)
    ascent = _ascend(algorithm, model, data, sites)
    posterior, bound, update = ascent.best
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    pullback = algorithm.representation.pull_back(posterior, data.X, update.sites.about(offset))
    mean = pullback.mean + offset

    def add_rows(in_model: LatentGP, rows: Any, real: Bool[Array, "B"]) -> tuple[LatentGP, None]:
        rows, mean, variance = rows

        def terms(model: LatentGP) -> Float[Array, ""]:
            target = algorithm._new_sites(model, rows, mean, variance)
            return jnp.sum(jnp.where(real, target.expected(mean, variance), 0.0))

        return jax.tree.map(jnp.add, in_model, jax.grad(terms)(model)), None

    in_model, _ = scan_rows(
        add_rows,
        jax.tree.map(jnp.zeros_like, model),
        (rows_of(data), mean, pullback.variance),
        columns=training_nodes(mean.shape[1])[0].size,
    )
    (through_mean,) = pull_offset(update.sites.linear - update.sites.precision * mean)
    in_model = jax.tree.map(jnp.add, in_model, through_mean)
    in_kernel = jax.tree.map(jnp.add, in_model.kernel, pullback.kernel)
    (gradient,) = pull_model(eqx.tree_at(lambda m: m.kernel, in_model, in_kernel))
    log_prior, in_prior = jax.value_and_grad(space.log_prior)(vector)
    return Evaluation(
        bound + log_prior,
        bound,
        gradient + in_prior,
        update.sites.damped(update.target, ascent.step_size),
        ascent.updates,
    )


class Settled(NamedTuple):
    """A posterior whose sites have been updated until the bound stands still.

    Attributes:
        posterior: given the sites.
        sites: as functions of f.
        bound: the posterior's (lower bound on the) log evidence, in nats.
        updates: how many were made.
        change: of the bound in the last update, relative.
    """

    posterior: LatentPosterior
    sites: GaussianSites
    bound: Float[Array, ""]
    updates: Int[Array, ""]
    change: Float[Array, ""]


@jax.jit
def settle(algorithm: SiteInference, model: LatentGP, data: Data, sites: GaussianSites) -> Settled:
    """The posterior at fixed hyper-parameters."""
    if algorithm.rule.is_exact(model.likelihood):
        state = algorithm.init(model, data)
        offset = prior_mean(model, data)
        bound = state.posterior.log_evidence + jnp.sum(state.sites.about(offset).log_constant)
        return Settled(state.posterior, state.sites, bound, jnp.int32(1), jnp.zeros_like(bound))
    ascent = _ascend(algorithm, model, data, sites)
    posterior, bound, update = ascent.best
    return Settled(posterior, update.sites, bound, ascent.updates, ascent.change)


def _evaluate_exact(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: Float[Array, "P"],
    data: Data,
    sites: GaussianSites,
) -> Evaluation:
    """Sites that are the likelihood itself: differentiate the evidence straight through them."""

    def objective(vector):
        model = space.to_model(vector)
        offset = prior_mean(model, data)
        exact = algorithm._new_sites(model, rows_of(data), offset, jnp.ones_like(offset))
        bound = log_evidence(algorithm.representation, model.kernel, data.X, exact.about(offset))
        return bound + space.log_prior(vector), bound

    (value, bound), gradient = jax.value_and_grad(objective, has_aux=True)(vector)
    return Evaluation(value, bound, gradient, sites, jnp.ones((), jnp.int32))


class Best(NamedTuple):
    """Of the site updates so far, the one from the highest bound.

    Attributes:
        posterior: given the sites that were updated.
        bound: of that posterior, in nats.
        update: of its sites.
    """

    posterior: LatentPosterior
    bound: Float[Array, ""]
    update: Update


class Ascent(NamedTuple):
    """Site updates so far.

    Attributes:
        best: the one from the highest bound.
        history: of the updates since the bound last fell.
        step_size: of the next one; there is none where it is too short.
        change: of the bound in the last one, relative, as if it had been a full step.
        updates: how many there were.
    """

    best: Best
    history: History
    step_size: Float[Array, ""]
    change: Float[Array, ""]
    updates: Int[Array, ""]


def _ascend(algorithm: SiteInference, model: LatentGP, data: Data, sites: GaussianSites) -> Ascent:
    """Update sites until the bound changes by less than the tolerance, or often enough.

    Updates are accelerated. One that makes the bound fall is taken back: what past updates said
    is forgotten, and a plain step from the best sites comes in its place, half as long if it
    was a plain step that failed.
    """
    full = algorithm.rule.step_size
    dtype = data.X.dtype

    def at(sites: GaussianSites) -> Best:
        state = algorithm.resume(model, data, sites)
        _, bound, update = algorithm._sweep(state, data, 1.0)
        return Best(state.posterior, bound, update)

    def unsettled(ascent: Ascent) -> Bool[Array, ""]:
        left = (ascent.updates <= algorithm.max_updates) & (ascent.step_size >= _SHORTEST_STEP)
        return left & (ascent.change > algorithm.tolerance)

    def update(ascent: Ascent) -> Ascent:
        best, history, step_size, _, updates = ascent
        first = updates == 0
        after = at(accelerated(history, best.update, step_size))
        scale = jnp.maximum(jnp.abs(after.bound), 1.0)
        rise = (after.bound - best.bound) / scale
        fell = ~(first | (rise >= -algorithm.tolerance))
        failed = fell & (history.count == 0)
        shorter = jnp.where(failed, 0.5, jnp.where(fell, 1.0, 1.5)) * step_size
        # Where even a short step fails, this is what the bound fell by in it.
        change = jnp.where(first, jnp.inf, jnp.abs(rise) * full / step_size)
        goes_on = fell & (shorter >= _SHORTEST_STEP)
        empty = History.empty(sites)
        longer = history.between(best.update, after.update)
        return Ascent(
            _where(fell, best, after),
            _where(fell | first, empty, longer),
            jnp.minimum(full, shorter),
            jnp.where(goes_on, jnp.inf, change),
            updates + 1,
        )

    # Before the first update: stay where the sites are.
    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(at, sites))
    stay = nowhere._replace(update=nowhere.update._replace(sites=sites, target=sites))
    start = Ascent(
        stay,
        History.empty(sites),
        jnp.asarray(full, dtype),
        jnp.asarray(jnp.inf, dtype),
        jnp.zeros((), jnp.int32),
    )
    return jax.lax.while_loop(unsettled, update, start)


def _where(condition: Bool[Array, ""], one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def rows_of(data: Data) -> Rows:
    """What a site rule sees of the data."""
    return Rows(data.y, data.weights, data.side_information)


def prior_mean(model: LatentGP, data: Data) -> Float[Array, "N Q"]:
    """Prior means of f at the rows."""
    shape = (data.X.shape[0], model.likelihood.latent_size)
    return jnp.broadcast_to(model.mean(data.X), shape)
