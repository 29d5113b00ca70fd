"""The bound with the sites profiled out, its gradient in the hyper-parameters, and posteriors.

At the sites' optimum the derivative in the kernel's parameters is that of the evidence with the
sites held, so nothing is differentiated through the updates (the dual parameterisation: Adam et
al. 2021, 3). One compiled ascent serves every evaluation and the final posterior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.arrays import Array
from latentgp.data import Data
from latentgp.inference.acceleration import Update
from latentgp.inference.ascent import Ascended, ascend
from latentgp.inference.site_inference import SiteInference, prior_mean, rows_of
from latentgp.latents.base import LatentPosterior, log_evidence
from latentgp.likelihoods.quadrature import training_nodes
from latentgp.linalg.streaming import scan_rows
from latentgp.models import LatentGP
from latentgp.parameters import ParameterSpace
from latentgp.sites.base import GaussianSites, Rows
from latentgp.sites.laplace import LaplaceRule


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


@jax.jit
def initial_sites(algorithm: SiteInference, model: LatentGP, data: Data) -> GaussianSites:
    """The sites that an algorithm starts from."""
    return algorithm.first_sites(model, data)


@jax.jit
def posterior_given_sites(
    algorithm: SiteInference, model: LatentGP, data: Data, sites: GaussianSites
) -> LatentPosterior:
    """Of known sites."""
    return algorithm.resume(model, data, sites).posterior


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
        target = algorithm.sites_alone(model, rows, mean + offset, variance)
        return target, target.log_constant

    empty = GaussianSites.none(offset)
    return algorithm.representation.update_sites(
        posterior, data.X, rows_of(data), empty, offset, update
    )[0]


def evaluate(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: Float[Array, "P"],
    data: Data,
    sites: GaussianSites,
) -> Evaluation:
    """The bound and its gradient at a vector of hyper-parameters, sites profiled out."""
    if algorithm.rule.is_exact(space.model.likelihood):
        return _evaluate_exact(algorithm, space, vector, data, sites)
    ascended = ascend(algorithm, model_at(space, vector), data, sites)
    return _evaluate_ascended(algorithm, space, vector, data, ascended)


@jax.jit
def model_at(space: ParameterSpace, vector: Float[Array, "P"]) -> LatentGP:
    """The model whose free parameters are those of the unconstrained vector."""
    return space.to_model(vector)


@jax.jit
def _evaluate_ascended(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: Float[Array, "P"],
    data: Data,
    ascended: Ascended,
) -> Evaluation:
    """The bound where an ascent has ended, and its gradient."""
    model, pull_model = jax.vjp(space.to_model, vector)
    bound, in_model = slope_at(algorithm, model, data, ascended)
    (gradient,) = pull_model(in_model)
    log_prior, in_prior = jax.value_and_grad(space.log_prior)(vector)
    return Evaluation(
        bound + log_prior,
        bound,
        gradient + in_prior,
        ascended.next_sites,
        ascended.updates,
    )


def slope_at(
    algorithm: SiteInference, model: LatentGP, data: Data, ascended: Ascended
) -> tuple[Float[Array, ""], LatentGP]:
    """The bound where an ascent has ended, in nats, and its derivative in the model."""
    if isinstance(algorithm.rule, LaplaceRule):
        return _slope_at_mode(algorithm, algorithm.rule, model, data, ascended)
    return _slope_at_fixed_point(algorithm, model, data, ascended)


def _slope_at_fixed_point(
    algorithm: SiteInference, model: LatentGP, data: Data, ascended: Ascended
) -> tuple[Float[Array, ""], LatentGP]:
    """Of the bound, or of the approximate evidence, where it is stationary in the sites."""
    posterior, bound, _, update = ascended.best
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    pullback = algorithm.representation.pull_back(posterior, data.X, update.sites.about(offset))
    mean = pullback.mean + offset
    rows = rows_of(data), mean, pullback.variance, update.sites
    (through_mean,) = pull_offset(update.sites.linear - update.sites.precision * mean)
    in_model = jax.tree.map(jnp.add, slope_of_sites(algorithm, model, rows), through_mean)
    return bound, with_kernel(in_model, pullback.kernel)


def slope_of_sites(
    algorithm: SiteInference,
    model: LatentGP,
    rows: tuple[Rows, Array, Array, GaussianSites],
) -> LatentGP:
    """The derivative in a model of what rows are worth, their sites and all about f held.

    Args:
        algorithm: whose rule makes what rows are worth.
        model: at which it is taken.
        rows: with means and variances of f, and the sites that these contain.
    """

    def terms(model: LatentGP, rows: Any) -> Float[Array, "B"]:
        rows, mean, variance, sites = rows
        return algorithm.new_sites(model, rows, mean, variance, sites).expected(mean, variance)

    return _slope_of_rows(terms, model, rows)


def with_kernel(in_model: LatentGP, through_kernel: Any) -> LatentGP:
    """A derivative in a model, with the part added that goes through the kernel."""
    in_kernel = jax.tree.map(jnp.add, in_model.kernel, through_kernel)
    return eqx.tree_at(lambda m: m.kernel, in_model, in_kernel)


def _slope_of_rows(
    terms: Callable[[LatentGP, Any], Float[Array, "B"]], model: LatentGP, rows: Any
) -> LatentGP:
    """The derivative in a model of the sum over rows of terms of theirs."""

    def add_rows(in_model: LatentGP, rows: Any, real: Bool[Array, "B"]) -> tuple[LatentGP, None]:
        def total(model: LatentGP) -> Float[Array, ""]:
            return jnp.sum(jnp.where(real, terms(model, rows), 0.0))

        return jax.tree.map(jnp.add, in_model, jax.grad(total)(model)), None

    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), model)
    numbers = training_nodes(model.likelihood.latent_size)[0].size
    return scan_rows(add_rows, nothing, rows, columns=numbers)[0]


class Settled(NamedTuple):
    """A posterior whose sites have been updated until the bound stands still.

    Attributes:
        posterior: given the sites.
        sites: as functions of f.
        bound: the posterior's (lower bound on the) log evidence, in nats.
        updates: how many were made.
        change: of the bound in the last update, relative.
        stuck: how many rows kept their sites because no update could be made.
    """

    posterior: LatentPosterior
    sites: GaussianSites
    bound: Float[Array, ""]
    updates: Int[Array, ""]
    change: Float[Array, ""]
    stuck: Int[Array, ""]


def settle(algorithm: SiteInference, model: LatentGP, data: Data, sites: GaussianSites) -> Settled:
    """The posterior at fixed hyper-parameters."""
    if algorithm.rule.is_exact(model.likelihood):
        return _settle_exact(algorithm, model, data)
    ascended = ascend(algorithm, model, data, sites)
    posterior, bound, _, update = ascended.best
    sites = update.sites
    stuck = _stuck(algorithm, update, data)
    if isinstance(algorithm.rule, LaplaceRule):
        sites, posterior, bound = _mode_of(algorithm, algorithm.rule, model, data, ascended)
    return Settled(posterior, sites, bound, ascended.updates, ascended.change, stuck)


@jax.jit
def _stuck(algorithm: SiteInference, update: Update, data: Data) -> Int[Array, ""]:
    """How many rows kept their sites."""
    current = update.sites.unweighted(data.weights)
    return jnp.sum(algorithm.rule.stuck(update.variance, current))


@jax.jit
def _settle_exact(algorithm: SiteInference, model: LatentGP, data: Data) -> Settled:
    state = algorithm.init(model, data)
    offset = prior_mean(model, data)
    bound = state.posterior.log_evidence + jnp.sum(state.sites.about(offset).log_constant)
    one, none = jnp.int32(1), jnp.int32(0)
    return Settled(state.posterior, state.sites, bound, one, jnp.zeros_like(bound), none)


@jax.jit
def _evaluate_exact(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: Float[Array, "P"],
    data: Data,
    sites: GaussianSites,
) -> Evaluation:
    """Sites that are the likelihood itself: differentiate the evidence straight through them."""

    def objective(vector):
        bound = exact_log_evidence(algorithm, space.to_model(vector), data)
        return bound + space.log_prior(vector), bound

    (value, bound), gradient = jax.value_and_grad(objective, has_aux=True)(vector)
    return Evaluation(value, bound, gradient, sites, jnp.ones((), jnp.int32))


def exact_log_evidence(algorithm: SiteInference, model: LatentGP, data: Data) -> Float[Array, ""]:
    """The log evidence (or its collapsed bound) where sites are the likelihood itself, in nats."""
    offset = prior_mean(model, data)
    none = GaussianSites.none(offset)
    exact = algorithm.new_sites(model, rows_of(data), offset, jnp.ones_like(offset), none)
    return log_evidence(algorithm.representation, model.kernel, data.X, exact.about(offset))


class Mode(NamedTuple):
    """Laplace's approximation: the posterior given sites of the true curvature at the mode."""

    sites: GaussianSites
    posterior: LatentPosterior
    evidence: Float[Array, ""]


@jax.jit
def _mode_of(
    algorithm: SiteInference,
    rule: LaplaceRule,
    model: LatentGP,
    data: Data,
    ascended: Ascended,
) -> Mode:
    """What Laplace's approximation is where an ascent has ended."""
    exact = eqx.tree_at(lambda a: a.rule, algorithm, rule.at_the_mode())
    update = ascended.best.update
    sites = exact.new_sites(model, rows_of(data), update.mean, update.variance, update.sites)
    offset = prior_mean(model, data)
    about = sites.about(offset)
    posterior = algorithm.representation.condition(model.kernel, data.X, about)
    evidence = posterior.log_evidence + jnp.sum(about.log_constant)
    # Short of the mode that holds what a whole Newton step would gain if the density were Gaussian,
    # which can be much more than there is.
    step = algorithm.representation.pull_back(posterior, data.X, about).mean + offset - update.mean
    before, after = (s.linear - s.precision * update.mean for s in (update.sites, sites))
    return Mode(sites, posterior, evidence - 0.5 * jnp.sum(step * (after - before)))


def _slope_at_mode(
    algorithm: SiteInference,
    rule: LaplaceRule,
    model: LatentGP,
    data: Data,
    ascended: Ascended,
) -> tuple[Float[Array, ""], LatentGP]:
    """Laplace's evidence and its derivative, with the implicit term of the mode.

    The mode moves with the hyper-parameters as the posterior mean does while the sites are held,
    and the evidence with the mode through the curvature alone (Rasmussen & Williams 2006, 5.5.1).
    So the implicit term is a derivative, along s = d evidence / d mode, of the gradient with the
    sites held in their linear terms.
    """
    mode = _mode_of(algorithm, rule, model, data, ascended)
    exact = eqx.tree_at(lambda a: a.rule, algorithm, rule.at_the_mode())
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    rows, representation = rows_of(data), algorithm.representation

    def pulled_back(linear: Float[Array, "N Q"]) -> tuple[Any, Array, Array, Array]:
        own = mode.sites._replace(linear=linear).about(offset)
        posterior = representation.condition(model.kernel, data.X, own)
        pullback = representation.pull_back(posterior, data.X, own)
        mean = pullback.mean + offset
        pull = linear - mode.sites.precision * mean
        return pullback.kernel, mean, pull, pullback.variance

    (_, mean, _, variance) = held = pulled_back(mode.sites.linear)

    def half_weighted_curvature(f: Float[Array, "N Q"]) -> Float[Array, ""]:
        own = exact.new_sites(model, rows, f, variance, mode.sites)
        return -0.5 * jnp.sum(own.precision * jax.lax.stop_gradient(variance))

    along = jax.grad(half_weighted_curvature)(mean)
    if mean.shape[1] > 1:
        _, move = jax.linearize(lambda linear: pulled_back(linear)[1], mode.sites.linear)
        along = _with_ties(exact, model, rows, mode.sites, mean, move, along)
    moved = jax.jvp(pulled_back, (mode.sites.linear,), (along,))[1]
    through_kernel, shift, through_pull, _ = jax.tree.map(jnp.add, held, moved)
    shift = shift - mean

    def terms(model: LatentGP, rows: Any) -> Float[Array, "B"]:
        rows, mean, variance, shift, sites = rows
        target = exact.new_sites(model, rows, mean, variance, sites)
        slope = target.linear - target.precision * mean
        return target.expected(mean, variance) + jnp.sum(shift * slope, axis=1)

    in_model = _slope_of_rows(terms, model, (rows, mean, variance, shift, mode.sites))
    (through_mean,) = pull_offset(through_pull)
    in_model = jax.tree.map(jnp.add, in_model, through_mean)
    return mode.evidence, with_kernel(in_model, through_kernel)


def _with_ties(
    exact: SiteInference,
    model: LatentGP,
    rows: Rows,
    sites: GaussianSites,
    mean: Float[Array, "N Q"],
    move: Callable[[Float[Array, "N Q"]], Float[Array, "N Q"]],
    along: Float[Array, "N Q"],
) -> Float[Array, "N Q"]:
    """What to move linear terms along where the likelihood ties the latents of a row together.

    The mode then moves by (I + K H)^-1 with the whole second derivative -H of log p(y | f), while
    sites know the diagonal W of H: s is replaced by the solution of s' = s - (H - W) S s', S the
    posterior covariance given the sites.
    """

    def slope(f: Float[Array, "N Q"]) -> Float[Array, "N Q"]:
        linear, precision, _ = exact.new_sites(model, rows, f, jnp.ones_like(f), sites)
        return linear - precision * f

    _, curve = jax.linearize(slope, mean)

    def untied(direction: Float[Array, "N Q"]) -> Float[Array, "N Q"]:
        moved = move(direction)
        return direction - (curve(moved) + sites.precision * moved)

    solution, _ = jax.scipy.sparse.linalg.gmres(untied, along, tol=1e-12, restart=30, maxiter=20)
    return solution
