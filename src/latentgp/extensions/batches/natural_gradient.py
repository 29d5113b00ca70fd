"""Inference from batches of rows: natural parameters by convex combination, theta by Adam.

Each step reads the marginals of one batch, lets the rule make the rows' sites, and weights them
to count as all rows. The natural parameters of q(v), v white, go a part of the way towards the
sites' sums: a natural-gradient step on the bound (Hoffman et al. 2013; Hensman et al. 2013), which
leaves a proper posterior. The same kernel block gives the derivative of the bound in the
hyper-parameters, the likelihood's factor of u held fixed, in closed form on M x M arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Bool, Float, Int

from latentgp.extensions.batches.step_sizes import Schedule
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import Factor
from latentgp.numerics.finite import all_finite
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.representations.inducing.coupled import AnyInducingPosterior
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.inducing.posterior import Prior, kernel_blocks, residuals
from latentgp.representations.variables import Centres, covariance_between
from latentgp.rows.data import Data
from latentgp.runtime.mesh import sum_over_rows
from latentgp.runtime.programs import Program
from latentgp.runtime.row_scan import scan_rows
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean, rows_of
from latentgp.site_inference.search.gradients import slope_of_sites, with_kernel
from latentgp.typing import Array, HyperVector, Scalar

_LEAST_SHARE = 1e-9
_USUAL = 5.0
_SECOND_MOMENT = 0.999
_ADAM = optax.scale_by_adam(b2=_SECOND_MOMENT)


class BatchState(NamedTuple):
    """State of natural-gradient inference from batches."""

    vector: HyperVector  # hyper-parameters, unconstrained
    centres: Centres  # inducing variables, such as points
    prior: Prior  # at these
    white: WhiteSites  # natural parameters of the rows' factor of v, white under `prior`
    factor: Factor  # of the precision of v that these give
    schedule: Any  # state of the step sizes
    adam: Any  # state of the optimiser of the hyper-parameters and points
    steps: Int[Array, ""]  # number of steps so far


class BatchInfo(NamedTuple):
    """Information about one step."""

    bound: Scalar  # an unbiased estimate of the bound before the step, in nats
    share: Scalar  # step size of the natural parameters towards the batch's
    held: Bool[Array, ""]  # whether hyper-parameters, and points, could not move


class BatchRead(NamedTuple):
    """Bound, gradients and natural parameters estimated from a batch weighted as all rows."""

    bound: Scalar  # in nats
    gradient: HyperVector  # of it in the hyper-parameters, with their prior's
    in_centres: Centres  # of it in the inducing variables
    white: WhiteSites  # natural parameters of the rows' factor of v


class BatchInference(eqx.Module):
    """Interface of an algorithm for the batch loop; its states have `vector` and `steps`."""

    @abstractmethod
    def step(self, state: Any, batch: Data, weight: Scalar) -> tuple[Any, BatchInfo]:
        """One step on a batch of some weight; rows of weight zero do not count."""


class TwoPartInference(BatchInference):
    """Interface of one whose steps are what a batch says, and a move along it.

    The two may be made in two processes, at two states: `inference.batches.asynchronous`. One whose
    states have coordinates of their own overrides `restated`.
    """

    def step(self, state: Any, batch: Data, weight: Scalar) -> tuple[Any, BatchInfo]:
        return self.moved(state, self.estimate(self.seen(state), batch, weight))

    @abstractmethod
    def seen(self, state: Any) -> Any:
        """Part of a state that `estimate` reads."""

    @abstractmethod
    def estimate(self, seen: Any, batch: Data, weight: Scalar) -> Any:
        """Estimate from a batch, weighted to count as all rows."""

    @abstractmethod
    def moved(self, state: Any, read: Any) -> tuple[Any, BatchInfo]:
        """The state after a step along what a batch said, of this state or of one before it."""

    def restated(self, read: Any, seen: Any, state: Any) -> Any:
        """Estimate made at an earlier state, in the coordinates of this one."""
        return read


class SparseInference(BatchInference):
    """Interface of such an algorithm with a posterior of inducing variables."""

    @abstractmethod
    def init(self, vector: HyperVector, posterior: AnyInducingPosterior) -> Any:
        """Initial state, from a posterior at some hyper-parameters."""

    @abstractmethod
    def representation(self, state: Any) -> ByVariables:
        """Through the inducing variables of a state."""

    @abstractmethod
    def posterior_at(self, state: Any) -> tuple[LatentGP, AnyInducingPosterior]:
        """The model at a state's hyper-parameters, and the posterior."""


class StochasticInference(SparseInference, TwoPartInference):
    """The algorithm for batches."""

    algorithm: SiteInference  # through inducing variables that are chosen
    space: ParameterSpace  # the hyper-parameters that are learned, with their priors
    schedule: Schedule  # of natural parameters
    learning_rate: Scalar  # of Adam, at the start
    decay: Scalar  # steps after which the learning rate has halved
    # what learning rates of inducing variables are relative to, an input; None leaves them where
    # they are
    point_scale: Float[Array, "D"] | None
    total_weight: Scalar  # what all rows count as
    # of an epoch. One that counts as less than its part of the rows, such as the last, moves
    # everything by so much less, one that counts as more by so much more
    batches: Scalar
    # how many latent functions each one stands for, where only some are looked at
    copies: float = 1.0
    # of hyper-parameters
    bounds: tuple[HyperVector | float, HyperVector | float] = (-float("inf"), float("inf"))

    def representation(self, state: BatchState) -> ByVariables:
        return cast(ByVariables, self.algorithm.representation).at(state.centres)

    def init(self, vector: HyperVector, posterior: AnyInducingPosterior) -> BatchState:
        white = posterior.white_sites()
        jitter = jnp.broadcast_to(posterior.jitter, posterior.factor.lower.shape[:1])
        centres, prior = posterior.centres, Prior(posterior.factor, jitter)
        schedule, adam = self.schedule.init(white), _ADAM.init(self._learned(vector, centres))
        factor, steps = white.factor(), jnp.zeros((), jnp.int32)
        return BatchState(vector, centres, prior, white, factor, schedule, adam, steps)

    def seen(self, state: BatchState) -> BatchState:
        return state._replace(schedule=None, adam=None)

    def estimate(self, seen: BatchState, batch: Data, weight: Scalar) -> tuple[BatchRead, Scalar]:
        """Estimate from a batch, and its weight, one on average."""
        assert batch.weights is not None
        whole = batch.reweighted(batch.weights * (self.total_weight / weight))
        return self.read(seen, whole), weight * self.batches / self.total_weight

    def moved(
        self, state: BatchState, read: tuple[BatchRead, Scalar]
    ) -> tuple[BatchState, BatchInfo]:
        said, part = read
        in_centres = jax.tree.map(lambda slope: part * slope, said.in_centres)
        slopes = self._learned(part * said.gradient, in_centres)
        sound = all_finite((said.bound, said.white, slopes))
        difference = jax.tree.map(jnp.subtract, said.white, state.white)
        share, schedule = self.schedule.share(state.schedule, difference)
        share = jnp.where(sound, jnp.minimum(part * share, 1.0), 0.0)
        ways: Any
        ways, adam = _ADAM.update(_tamed(slopes, state.adam), state.adam)
        rate = self.learning_rate / (1 + state.steps / self.decay)
        moved, share, held = self._moved(state, said.white, share, rate, ways)
        after = moved._replace(schedule=schedule, adam=adam, steps=state.steps + 1)
        # A batch that leads nowhere, or out of the numbers, changes nothing.
        before = state._replace(steps=state.steps + 1)
        after = jax.tree.map(lambda new, old: jnp.where(share > 0, new, old), after, before)
        return after, BatchInfo(said.bound, share, held)

    def restated(
        self, read: tuple[BatchRead, Scalar], seen: BatchState, state: BatchState
    ) -> tuple[BatchRead, Scalar]:
        """White coordinates are the prior's, which moves with hyper-parameters and points."""
        said, part = read
        white = self._carried(said.white, seen, state)
        return said._replace(white=white), part

    def read(self, state: BatchState, batch: Data) -> BatchRead:
        """Bound, gradients and natural parameters from a batch weighted to count as all rows."""
        model, pull_model = jax.vjp(self.space.to_model, state.vector)
        posterior = self.posterior(state, model)
        learning = self._learns(state)

        def update(data, marginals):
            offset, pull_offset = jax.vjp(lambda model: prior_mean(model, data), model)
            marginals, rows = marginals.shifted(offset), rows_of(data)
            none = self.algorithm.no_sites(offset)
            sites = self.algorithm.new_sites(model, rows, marginals, none)
            bound = jnp.sum(sites.expected(marginals))
            if not learning:
                return sites.about(offset), (bound, None)
            (through_mean,) = pull_offset(sites.slope(marginals.mean))
            in_model = slope_of_sites(self.algorithm, model, (rows, marginals, none))
            return sites.about(offset), (bound, jax.tree.map(jnp.add, in_model, through_mean))

        start = jax.tree.map(jnp.zeros_like, (self.total_weight, model if learning else None))
        moving = self.point_scale is not None
        read = self.representation(state).read_batch(
            posterior, state.white, batch, update, start, learning=learning, moving=moving
        )
        terms, in_model = read.sums
        gradient, in_centres = jax.tree.map(jnp.zeros_like, (state.vector, state.centres))
        if learning:
            (gradient,) = pull_model(with_kernel(in_model, read.kernel))
            gradient = self.copies * gradient + jax.grad(self.space.log_prior)(state.vector)
            in_centres = read.representation.centres
        bound = terms - self.copies * posterior.kl
        return BatchRead(bound, gradient, in_centres, read.white)

    def carried(self, state: BatchState, vector: HyperVector, centres: Centres) -> BatchState:
        """The state at other hyper-parameters and variables, the rows' factor of g held fixed.

        The Cholesky factor is that of the old state.
        """
        there = state._replace(vector=vector, centres=centres)
        kernel = self.space.to_model(vector).kernel
        there = there._replace(prior=self.representation(there).prior(kernel))
        return there._replace(white=self._carried(state.white, state, there))

    def _carried(self, white: WhiteSites, state: BatchState, there: BatchState) -> WhiteSites:
        """Natural parameters of the rows' factor at one state, in the coordinates of another."""
        if self.point_scale is None:
            return white.carried(state.prior.factor.inverse, there.prior.factor)
        kernel = self.space.to_model(there.vector).kernel
        cross = covariance_between(kernel, there.centres, state.centres)
        return white.moved(state.prior.factor, there.prior.factor, cross)

    def _learns(self, state: BatchState) -> bool:
        """Whether hyper-parameters or inducing variables are learned."""
        return bool(state.vector.size) or self.point_scale is not None

    def _learned(self, vector: HyperVector, centres: Centres) -> Any:
        """Parameters updated by gradients: hyper-parameters, and inducing variables if learned."""
        return vector, None if self.point_scale is None else centres

    def _moved(
        self,
        state: BatchState,
        batch: WhiteSites,
        share: Scalar,
        rate: Scalar,
        ways: tuple[HyperVector, Centres | None],
    ) -> tuple[BatchState, Scalar, Bool[Array, ""]]:
        """The state after a step, the step size used, and whether hyper-parameters stayed.

        If rounding, or negative precisions, would make the posterior improper, hyper-parameters
        stay, and the step size is halved until the posterior is proper. The state is unchanged if
        no step size above 1e-9 keeps the precision positive definite, or if the update is not
        finite. Negative precisions of rows never take more than half of the posterior's precision
        in a step: with hardly any left, the next mean would be far off.
        """
        direction, shift = ways
        if self.representation(state).signed:
            white = state.white

            def goes_too_far(share: Scalar) -> Bool[Array, ""]:
                return (share > _LEAST_SHARE) & ~white.keeps_half(white.towards(batch, share))

            share = jax.lax.while_loop(goes_too_far, lambda share: 0.5 * share, share)
        vector = jnp.clip(state.vector + rate * direction, *self.bounds)
        centres = state.centres
        if shift is not None:
            scale = rate * self.point_scale
            centres = jax.tree.map(lambda old, way: old + scale * way, centres, shift)
        first = 0 if self._learns(state) else 1  # in attempt 0 hyper-parameters move too

        def attempt(tried: tuple[Array, Array, BatchState]) -> tuple[Array, Array, BatchState]:
            number, share, _ = tried
            share = jnp.where(number <= 1, share, 0.5 * share)
            there = state._replace(white=state.white.towards(batch, share))
            if first == 0:
                moved = partial(self.carried, vector=vector, centres=centres)
                there = jax.lax.cond(number == 0, moved, lambda there: there, there)
            return number + 1, share, there._replace(factor=there.white.factor())

        def improper(tried: tuple[Array, Array, BatchState]) -> Bool[Array, ""]:
            number, share, there = tried
            proper = jnp.all(jnp.isfinite(there.factor.lower))
            return (number == first) | (~proper & (share > _LEAST_SHARE))

        number = jnp.full((), first, jnp.int32)
        attempts, share, there = jax.lax.while_loop(improper, attempt, (number, share, state))
        held = (attempts > 1) & self._learns(state)
        return there, jnp.where(share > _LEAST_SHARE, share, 0.0), held

    def posterior(self, state: BatchState, model: LatentGP) -> AnyInducingPosterior:
        """Posterior at a state, given the model at its hyper-parameters."""
        known = state.prior, state.white.linear, state.factor
        return self.representation(state).of_white(model.kernel, *known)

    def posterior_at(self, state: BatchState) -> tuple[LatentGP, AnyInducingPosterior]:
        return _believed(self, state)


@jax.jit
def _believed(
    inference: StochasticInference, state: BatchState
) -> tuple[LatentGP, AnyInducingPosterior]:
    model = inference.space.to_model(state.vector)
    return model, inference.posterior(state, model)


def _tamed(slopes: Any, adam: Any) -> Any:
    """Derivatives, none far beyond the usual size of its own so far.

    One row of heavy tails would otherwise carry its parameter off: what Adam remembers of it moves
    on for ten steps.
    """
    square = optax.tree.bias_correction(adam.nu, _SECOND_MOMENT, jnp.maximum(adam.count, 1))

    def clip(slope: Array, square: Array) -> Array:
        limit = jnp.where(square > 0, _USUAL * jnp.sqrt(square), jnp.inf)
        return jnp.clip(slope, -limit, limit)

    return jax.tree.map(clip, slopes, square)


@jax.jit
def begun(inference: SparseInference, vector: HyperVector, posterior: AnyInducingPosterior) -> Any:
    """`init`, compiled."""
    return inference.init(vector, posterior)


@Program
def run_batches(inference: BatchInference, state: Any, block: Data) -> tuple[Any, BatchInfo]:
    """Steps on the batches of a block, leaves of shape (S, B, ...), in one scan.

    A batch whose weights are all zero is passed over, its bound NaN.
    """

    def step(state: Any, weighed: tuple[Data, Array]) -> tuple[Any, BatchInfo]:
        unknown = jnp.full_like(weighed[1], jnp.nan)
        return jax.lax.cond(
            weighed[1] > 0,
            lambda state: inference.step(state, *weighed),
            lambda state: (state, BatchInfo(unknown, unknown, jnp.zeros((), bool))),
            state,
        )

    assert block.weights is not None
    return jax.lax.scan(step, state, (block, sum_over_rows(block.weights.T)))


@jax.jit
def bound_of_rows(
    algorithm: SiteInference, model: LatentGP, posterior: AnyInducingPosterior, data: Data
) -> tuple[Scalar, Scalar]:
    """Contributions of rows to the bound of a posterior and to its trace term, in nats."""
    precision = posterior.prior_precision

    def add(carry, chunk, real):
        bound, trace_term = carry
        blocks, prior = kernel_blocks(model.kernel, posterior.centres, chunk.X)
        marginals = posterior.block_marginals(blocks, prior).shifted(prior_mean(model, chunk))
        none = algorithm.no_sites(marginals.mean)
        sites = algorithm.new_sites(model, rows_of(chunk), marginals, none)
        terms = jnp.where(real, sites.expected(marginals), 0.0)
        left = residuals(precision, blocks, prior)
        lost = 0.5 * jnp.sum(jnp.where(real, sites.precisions.T * left, 0.0))
        return (bound + jnp.sum(terms), trace_term + lost), None

    zero = jnp.zeros((), data.X.dtype)
    return scan_rows(add, (zero, zero), data, columns=len(posterior.centres))[0]
