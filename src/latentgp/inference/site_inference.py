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
        return self._step(state, data, self.rule.step_size)

    def _step(
        self, state: SiteState, data: Data, step_size: float | Float[Array, ""]
    ) -> tuple[SiteState, SiteInfo]:
        model, sites, posterior = state
        blocks = self.rule.blocks(model.likelihood)
        bound = None
        for block in blocks:

            def update(rows, mean, variance, sites, offset, block=block):
                target = self._new_sites(model, rows, mean + offset, variance)
                terms = target.expected(mean + offset, variance)
                new = sites.damped(target, step_size)
                return new if len(blocks) == 1 else sites.with_columns(new, block), terms

            sites, after, terms = self.representation.update_sites(
                posterior, data.X, rows_of(data), sites, prior_mean(model, data), update
            )
            bound = terms - posterior.kl if bound is None else bound
            posterior = after
        assert bound is not None
        return SiteState(model, sites, posterior), SiteInfo(bound)

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
    state, _, updates = _update_until_settled(algorithm, algorithm.resume(model, data, sites), data)
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    pullback = algorithm.representation.pull_back(
        state.posterior, data.X, state.sites.about(offset)
    )
    mean = pullback.mean + offset

    def add_rows(carry: tuple[Array, LatentGP], rows: Any, real: Bool[Array, "B"]) -> Any:
        rows, mean, variance = rows

        def terms(model: LatentGP) -> tuple[Float[Array, ""], GaussianSites]:
            target = algorithm._new_sites(model, rows, mean, variance)
            return jnp.sum(jnp.where(real, target.expected(mean, variance), 0.0)), target

        (value, target), in_model = jax.value_and_grad(terms, has_aux=True)(model)
        return (carry[0] + value, jax.tree.map(jnp.add, carry[1], in_model)), target

    nothing = jnp.zeros((), mean.dtype), jax.tree.map(jnp.zeros_like, model)
    rows = rows_of(data), mean, pullback.variance
    (terms, in_model), target = scan_rows(
        add_rows, nothing, rows, columns=training_nodes(mean.shape[1])[0].size
    )
    (through_mean,) = pull_offset(state.sites.linear - state.sites.precision * mean)
    in_model = jax.tree.map(jnp.add, in_model, through_mean)
    in_kernel = jax.tree.map(jnp.add, in_model.kernel, pullback.kernel)
    (gradient,) = pull_model(eqx.tree_at(lambda m: m.kernel, in_model, in_kernel))
    log_prior, in_prior = jax.value_and_grad(space.log_prior)(vector)
    bound = terms - state.posterior.kl
    return Evaluation(
        bound + log_prior,
        bound,
        gradient + in_prior,
        state.sites.damped(target, algorithm.rule.step_size),
        updates + 1,
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
    state, bound, updates = _update_until_settled(
        algorithm, algorithm.resume(model, data, sites), data
    )
    _, info = algorithm.step(state, data)
    change = jnp.abs(info.bound - bound) / jnp.maximum(jnp.abs(info.bound), 1.0)
    return Settled(state.posterior, state.sites, info.bound, updates, change)


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


def _update_until_settled(
    algorithm: SiteInference, state: SiteState, data: Data
) -> tuple[SiteState, Float[Array, ""], Int[Array, ""]]:
    """Update sites until the bound changes by less than the tolerance, or often enough.

    A step that is too long makes the bound swing; each fall of the bound halves it.
    """

    def unsettled(carry):
        *_, change, updates, _ = carry
        return (updates < algorithm.max_updates) & (change > algorithm.tolerance)

    def update(carry):
        sites, posterior, bound, _, updates, step_size = carry
        before = SiteState(state.model, sites, posterior)
        after, info = algorithm._step(before, data, step_size)
        rise = (info.bound - bound) / jnp.maximum(jnp.abs(info.bound), 1.0)
        fell = rise < -algorithm.tolerance
        step_size = jnp.where(fell, jnp.maximum(0.5 * step_size, _SHORTEST_STEP), step_size)
        return after.sites, after.posterior, info.bound, jnp.abs(rise), updates + 1, step_size

    infinite = jnp.asarray(jnp.inf, data.X.dtype)
    step_size = jnp.asarray(algorithm.rule.step_size, data.X.dtype)
    count = jnp.zeros((), jnp.int32)
    start = (state.sites, state.posterior, -infinite, infinite, count, step_size)
    sites, posterior, bound, _, updates, _ = jax.lax.while_loop(unsettled, update, start)
    return SiteState(state.model, sites, posterior), bound, updates


def rows_of(data: Data) -> Rows:
    """What a site rule sees of the data."""
    return Rows(data.y, data.weights, data.side_information)


def prior_mean(model: LatentGP, data: Data) -> Float[Array, "N Q"]:
    """Prior means of f at the rows."""
    shape = (data.X.shape[0], model.likelihood.latent_size)
    return jnp.broadcast_to(model.mean(data.X), shape)
