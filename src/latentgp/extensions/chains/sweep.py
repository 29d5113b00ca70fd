"""Sweeps: hyper-parameters move with something of the latent functions held, then these move."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.chains.coordinates import (
    Coordinates,
    coordinates_at_centre,
    starting_point,
)
from latentgp.extensions.chains.couplings.base import Coupling, Place, log_joint, residuals
from latentgp.extensions.chains.hyperparameters.base import (
    HyperLaw,
    HyperMove,
    HyperMoved,
    Theta,
    WarmupHistory,
)
from latentgp.extensions.chains.hyperparameters.conjugate import ConjugateVariances
from latentgp.extensions.chains.hyperparameters.emulated import Emulator
from latentgp.extensions.chains.hyperparameters.prior_blocks import PriorBlocks, PriorLaw, Tally
from latentgp.extensions.chains.hyperparameters.straightened import SinhArcsinh
from latentgp.extensions.chains.information import Information, with_prior
from latentgp.extensions.chains.latents.base import Info, LatentMove, Residual
from latentgp.extensions.chains.loop import Draw, Sampler
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.runtime.programs import Program
from latentgp.typing import Array, Coefs, HyperMatrix, HyperVector, RandomKey, RowLatents, Scalar

_LARGE = 100_000  # numbers of a matrix that no cache of a core holds
_FIRST_SPREAD = 0.2  # of hyper-parameters, until their covariance is seen
_PRIOR_SWEEPS = 20  # that this counts as
_DECAY = 0.6  # of the steps of the adaptation
_EVALUATIONS = 512  # that an emulator is fitted to
_DECIDES = 0.8  # share of the warm-up, after which it is decided what is proposed from the prior
_FORGETS = 0.1  # the first share of the warm-up, which only leads to the posterior


class Adaptation(NamedTuple):
    """Settings tuned in the warm-up."""

    log_scale: Float[Array, "2"]  # of moves of latent functions, and of hyper-parameters
    mean: HyperVector  # of the hyper-parameters
    covariance: HyperMatrix  # of the hyper-parameters
    seen: WarmupHistory  # what moves of hyper-parameters use of these
    vectors: Float[Array, "T H"]  # that were proposed last; T = 0 without an emulator
    values: Float[Array, "T"]  # their log density by the approximate evidence
    count: Int[Array, ""]  # sweeps so far
    tally: Tally | None = None  # of proposals from the prior; None without them


class SweepState(NamedTuple):
    """A chain's state: where it is, and what the warm-up has tuned."""

    at: Any  # a Place, its coordinates None where hyper-parameters are held
    adaptation: Adaptation
    carried: Any = None  # the state of the move of latent functions where these are held


class SweepSampler(Sampler):
    """Blocks in turn: hyper-parameters by each coupling, latent functions some times."""

    target: WhiteTarget  # the log density
    couplings: tuple[Coupling, ...]  # in turn; latent functions move in the coordinates of the last
    latents: LatentMove  # the move of latent functions
    hyperparameters: HyperMove  # that of hyper-parameters
    repeats: int = eqx.field(static=True)  # moves of latent functions a sweep
    warmup: Int[Array, ""]  # sweeps that adapt scales and the covariance of hyper-parameters
    chains: int = eqx.field(static=True)  # side by side, tuned by what all have seen
    fixed: Coordinates | None  # those of all chains where hyper-parameters are held
    variances: ConjugateVariances | None = None  # that are drawn exactly, if any are
    prior_blocks: PriorBlocks | None = None  # that are proposed from the prior, if any are
    straightened: SinhArcsinh | None = None  # what hyper-parameters move in; None for themselves

    @classmethod
    def of(cls, target: WhiteTarget, **settings: Any) -> SweepSampler:
        """With the mode under the space's model as the anchor."""
        coordinates = coordinates_at_centre(target, settings["couplings"][-1].kind)
        target = dataclasses.replace(target, anchor=coordinates.marginals)
        sampler = cls(target, fixed=None, **settings)
        if target.space.size:
            straightens = sampler.hyperparameters.straightens
            map_of = SinhArcsinh.of(target.space) if straightens else None
            return dataclasses.replace(sampler, straightened=map_of)
        fixed = _held(coordinates, target)
        return dataclasses.replace(sampler, fixed=fixed, latents=_within(sampler, fixed))

    @property
    def shares_work(self) -> bool:
        return self.fixed is not None and self.fixed.numbers > _LARGE

    def init(self, key: RandomKey) -> SweepState:
        start = starting_point(self.target, key)
        size, dtype = len(start.vector), start.white.dtype
        covariance = _FIRST_SPREAD**2 * jnp.eye(size, dtype=dtype)
        scales = jnp.array([self.latents.first_scale, 2.38 / max(size, 1) ** 0.5], dtype)
        emulates = self.hyperparameters.emulates and size > 0
        kept = -(-_EVALUATIONS // self.chains) if emulates else 0
        emulator = Emulator.none(self.chains * kept, start.vector) if emulates else None
        mean = self._straight(start.vector)
        own = Adaptation(
            jnp.log(scales),
            mean,
            covariance,
            WarmupHistory(mean, jnp.sqrt(covariance), emulator),
            jnp.zeros((kept, size), dtype),
            jnp.full(kept, -jnp.inf, dtype),
            jnp.zeros((), jnp.int32),
            None if self.prior_blocks is None else self.prior_blocks.tally(self.warmup),
        )
        fixed = self.fixed
        coordinates = self._coordinates(start.vector) if fixed is None else fixed
        eps = coordinates.of_white(start.white)
        others = self.couplings[-1].others(eps, jax.random.fold_in(key, 1))
        return self._state(Place(start.vector, eps, coordinates, others), own)

    def step(self, state: SweepState, key: RandomKey) -> tuple[SweepState, dict[str, Array]]:
        at, own = self._place(state), state.adaptation
        scales, dtype = jnp.exp(own.log_scale), at.eps.dtype
        hyper_acceptance, factorisations = jnp.ones((), dtype), jnp.zeros((), dtype)
        failed, steps, told = jnp.zeros((), bool), jnp.zeros((), dtype), {}
        if self.target.space.size:
            for number, coupling in enumerate(self.couplings):
                key_vector = jax.random.fold_in(key, number)
                move = partial(self.hyperparameters.step, scale=scales[1])
                at, moved = self._move_vector(coupling, at, own, key_vector, move)
                share = 1 / len(self.couplings)
                hyper_acceptance = hyper_acceptance * moved.acceptance**share
                each = moved.proposed.worked_out.coordinates.factorisations
                factorisations = factorisations + moved.evaluations * each
                failed = failed | moved.failed
                own = self._noted(own, moved.proposed)
            if own.tally is not None:
                key_blocks = jax.random.fold_in(key, len(self.couplings) + 2)
                tally = own.tally.with_usual(hyper_acceptance)
                at, tally, made, moves = self._propose_blocks(at, own, tally, key_blocks)
                factorisations, steps = factorisations + made, steps + moves
                for name in ("proposed", "accepted"):
                    new = getattr(tally, name) - getattr(own.tally, name)
                    told[f"prior_{name}"] = jnp.sum(new)
                own = own._replace(tally=tally)
            if self.variances is not None:
                key_variances = jax.random.fold_in(key, len(self.couplings) + 1)
                at = self.variances.moved(at, self._coordinates, key_variances)
                factorisations = factorisations + at.coordinates.factorisations
        at, carried, info = self._move_latents(at, state.carried, scales[0], key)
        straight = self._straight(at.vector)
        own = self._adapted(own, straight, info.acceptance, hyper_acceptance)
        statistics = {
            "acceptance_rate": info.acceptance,
            "hyperparameter_acceptance_rate": hyper_acceptance,
            "diverging": failed | info.failed,
            "n_steps": steps + info.evaluations,
            "factorisations": factorisations,
            "decrement": at.coordinates.decrement,
            "lp": self._log_joint(at, carried) - 0.5 * jnp.sum(at.eps**2),
            **told,
        }
        if len(at.others) or at.log_weights is not None:
            statistics["evidence_error"] = self._evidence_error(at)
        carried = None if self.fixed is None else carried
        return SweepState(self._kept(at), own, carried), statistics

    def _log_joint(self, at: Place, moved: Any) -> Scalar:
        """That of the place, whose residual the move knows."""
        if len(at.others):
            return log_joint(self.target, at)
        log_prior = self.target.space.log_prior(at.vector)
        return log_prior + at.coordinates.log_evidence + moved.value

    def _evidence_error(self, at: Place) -> Scalar:
        """Relative standard error of the evidence's estimate, by its own samples, in [0, 1]."""
        model, log_weights = self.target.space.to_model(at.vector), at.log_weights
        if log_weights is None:
            log_weights = residuals(self.target, model, at)
        shares = jax.nn.softmax(log_weights)
        number = len(shares)
        return jnp.sqrt((number * jnp.sum(shares**2) - 1) / (number - 1))

    def position(self, state: SweepState) -> Position:
        at = self._place(state)
        return Position(at.vector, at.coordinates.white(at.eps))

    def moved(self, state: SweepState, position: Position) -> SweepState:
        coordinates = self._coordinates(position.vector)
        eps = coordinates.of_white(position.white)
        at = Place(position.vector, eps, coordinates, state.at.others)
        return self._state(at, state.adaptation)

    def f_at_rows(self, state: SweepState, key: RandomKey) -> RowLatents:
        at = self._place(state)
        return self._f(at.coordinates, at.eps, key)

    def _f(self, coordinates: Coordinates, eps: Coefs, key: RandomKey) -> RowLatents:
        f = coordinates.centre + coordinates.shift(eps)
        variance = jnp.broadcast_to(coordinates.whitening.residual.T, f.shape)
        return self.target.latents_of(Marginals(f, variance), key)

    def record(self, state: SweepState, key: RandomKey, watched: Int[Array, "W"]) -> Any:
        if self.fixed is None:
            return super().record(state, key, watched)
        return state.at.vector, state.at.eps, key

    def draw(self, record: Any, watched: Int[Array, "W"]) -> Draw:
        """Draws in fixed coordinates: one product of matrices for all."""
        if self.fixed is None:
            return record
        vector, eps, key = record
        f = self._f(self.fixed, eps, key)
        return Draw(vector, self.fixed.white(eps), f[watched])

    def _state(self, at: Place, own: Adaptation) -> SweepState:
        held = self.fixed is not None
        carried = self.latents.init(self._residual(at), at.eps) if held else None
        return SweepState(self._kept(at), own, carried)

    def _residual(self, at: Place) -> Residual:
        model = self.target.space.to_model(at.vector)
        return lambda eps: at.coordinates.residual(self.target, model, eps)

    def _coordinates(self, vector: HyperVector) -> Coordinates:
        differentiates = self.fixed is None and self.hyperparameters.differentiates
        return self.couplings[-1].coordinates(self.target, vector, differentiates)

    def _straight(self, vector: HyperVector) -> HyperVector:
        return vector if self.straightened is None else self.straightened(vector)

    def _bent(self, straight: HyperVector) -> HyperVector:
        return straight if self.straightened is None else self.straightened.inverse(straight)

    def _log_slope(self, vector: HyperVector) -> Scalar:
        if self.straightened is None:
            return jnp.zeros((), vector.dtype)
        return self.straightened.log_slope(vector)

    def _place(self, state: SweepState) -> Place:
        """Where a chain is, with the coordinates that all share."""
        at = state.at
        return self._attached(at) if self.fixed is None else at._replace(coordinates=self.fixed)

    def _attached(self, at: Place) -> Place:
        """With what all chains share: a copy for each would be worked on as each one's own."""
        return at._replace(coordinates=at.coordinates.attached(self.target))

    def _kept(self, at: Place) -> Any:
        at = at._replace(log_weights=None)
        return at if self.fixed is None else at._replace(coordinates=None)

    def _move_vector(
        self,
        coupling: Coupling,
        at: Place,
        own: Adaptation,
        key: RandomKey,
        move: Callable[..., HyperMoved],
    ) -> tuple[Place, HyperMoved]:
        """Hyper-parameters by one coupling; the place in the coordinates of the last."""
        key_held, key_move, key_select = jax.random.split(key, 3)
        held = coupling.held(self.target, at, key_held)
        differentiates = self.hyperparameters.differentiates

        def density(straight: Array) -> tuple[Array, Place]:
            vector = self._bent(straight)
            value, there = coupling.density(self.target, vector, held, differentiates)
            return value - self._log_slope(vector), there

        def information(vector: Array, there: Place) -> Information:
            fisher = coupling.information(self.target, there, held)
            return with_prior(self.target, vector, fisher)

        value, worked_out = coupling.here(self.target, at, held, differentiates)
        here = Theta(self._straight(at.vector), value - self._log_slope(at.vector), worked_out)
        law = HyperLaw(density, information, own.seen)
        moved = move(law, here, key=key_move)
        place, last = self._attached(moved.at.worked_out), self.couplings[-1]
        if coupling.kind != last.kind:
            white = place.coordinates.white(place.eps)
            coordinates = self._coordinates(place.vector)
            place = Place(place.vector, coordinates.of_white(white), coordinates, place.others)
        place = coupling.selected(self.target, place, key_select)
        return place, moved

    def _propose_blocks(
        self, at: Place, own: Adaptation, tally: Tally, key: RandomKey
    ) -> tuple[Place, Tally, Scalar, Scalar]:
        """Proposals from the prior, f moved after each; their factorisations and evaluations."""
        blocks, coupling = self.prior_blocks, self.couplings[-1]
        assert blocks is not None

        def log_density(straight: HyperVector) -> Scalar:
            vector = self._bent(straight)
            return self.target.space.log_prior(vector) - self._log_slope(vector)

        def anew(straight: HyperVector, key: RandomKey) -> HyperVector:
            return self._straight(self.target.space.drawn_anew(self._bent(straight), key))

        prior = PriorLaw(log_density, anew)

        def propose(number: Array, carry: Any) -> Any:
            at, tally, made, steps = carry
            key_block, key_move, key_f = jax.random.split(jax.random.fold_in(key, number), 3)
            block = tally.drawn(key_block)
            move = partial(blocks.step, prior=prior, block=block)
            at, moved = self._move_vector(coupling, at, own, key_move, move)
            at, _, info = self._move_latents(at, None, jnp.exp(own.log_scale[0]), key_f)
            tally = tally.with_proposal(block, moved.acceptance)
            each = moved.proposed.worked_out.coordinates.factorisations
            return at, tally, made + each, steps + info.evaluations

        zero = jnp.zeros((), at.eps.dtype)
        return jax.lax.fori_loop(0, tally.due(own.count), propose, (at, tally, zero, zero))

    def _noted(self, own: Adaptation, there: Theta) -> Adaptation:
        """With a proposal among those that an emulator will be fitted to."""
        if not own.values.size:
            return own
        vector, evidence = there.worked_out.vector, there.worked_out.coordinates.log_evidence
        value = self.target.space.log_prior(vector) + evidence - self._log_slope(vector)
        # What was evaluated before the first fit, further out, stays in one half.
        first, fitted = len(own.values) // 2, own.seen.emulator.fitted
        other = first + own.count % (len(own.values) - first)
        slot = jnp.where(fitted, other, own.count % len(own.values))
        warm = own.count < self.warmup
        return own._replace(
            vectors=own.vectors.at[slot].set(jnp.where(warm, there.vector, own.vectors[slot])),
            values=own.values.at[slot].set(jnp.where(warm, value, own.values[slot])),
        )

    def tuned(self, states: SweepState) -> SweepState:
        return states._replace(adaptation=_pooled(self, states.adaptation))

    def _move_latents(
        self, at: Place, carried: Any, scale: Scalar, key: RandomKey
    ) -> tuple[Place, Any, Info]:
        """The place after all moves; their mean acceptance, evaluations, and whether any failed."""
        residual, move = self._residual(at), self.latents
        if self.fixed is None:
            model = self.target.space.to_model(at.vector)
            move = move.within(self.target, model, at.coordinates)
        keys = jax.random.split(jax.random.fold_in(key, len(self.couplings)), self.repeats)
        start = move.init(residual, at.eps) if carried is None else carried
        end, info = jax.lax.scan(lambda s, k: move.step(residual, s, scale, k), start, keys)
        evaluated = jnp.sum(info.evaluations) + (carried is None)
        told = Info(jnp.mean(info.acceptance), evaluated, jnp.any(info.failed))
        return at._replace(eps=end.eps), end, told

    def _adapted(
        self, own: Adaptation, vector: HyperVector, acceptance: Scalar, hyper_acceptance: Scalar
    ) -> Adaptation:
        """Scales towards the acceptance asked for, and the covariance seen; held after warm-up."""
        begun = jnp.maximum(own.count - (_FORGETS * self.warmup).astype(int), 0)
        gain = (1.0 + own.count) ** -_DECAY
        scale = jnp.exp(own.log_scale[0])
        targets = self.latents.wanted_acceptance(scale), self.hyperparameters.target_acceptance
        rates = acceptance, hyper_acceptance
        largest = [move.largest_scale for move in (self.latents, self.hyperparameters)]
        steps = [
            jnp.zeros_like(gain) if wanted is None else gain * (rate - wanted)
            for rate, wanted in zip(rates, targets, strict=True)
        ]
        share = jnp.where(begun > 0, 1.0 / (begun + _PRIOR_SWEEPS), 0.0)
        off = vector - own.mean
        mean = jnp.where(begun > 0, own.mean + share * off, vector)
        covariance = (1 - share) * own.covariance + share * (1 - share) * jnp.outer(off, off)
        seen = WarmupHistory(mean, _root(covariance), own.seen.emulator)
        if own.seen.emulator is not None:  # it belongs to the mean and root of its fit
            fitted = own.seen.emulator.fitted
            seen = jax.tree.map(lambda new, old: jnp.where(fitted, old, new), seen, own.seen)
            steps[1] = jnp.where(fitted, 0.0, steps[1])
        tuned = own._replace(
            log_scale=jnp.minimum(own.log_scale + jnp.stack(steps), jnp.log(jnp.array(largest))),
            mean=mean,
            covariance=covariance,
            seen=seen,
            count=own.count + 1,
        )
        warm = own.count < self.warmup
        return jax.tree.map(lambda new, old: jnp.where(warm, new, old), tuned, own)


def _root(covariance: HyperMatrix) -> HyperMatrix:
    ridge = 1e-8 * jnp.eye(len(covariance), dtype=covariance.dtype)
    return lower_cholesky(covariance + ridge)


@Program
def _pooled(sampler: SweepSampler, own: Adaptation) -> Adaptation:
    """Every chain's adaptation by what all chains have seen, once they have left their start."""
    chains = len(own.count)
    begun = own.count[0] > _FORGETS * sampler.warmup
    mean = jnp.mean(own.mean, axis=0)
    off = own.mean - mean
    covariance = jnp.mean(own.covariance, axis=0) + off.T @ off / chains
    seen = WarmupHistory(mean, _root(covariance), None)
    if own.seen.emulator is not None:
        vectors = own.vectors.reshape(-1, own.vectors.shape[-1])
        emulator = Emulator.fit(seen, vectors, own.values.ravel())
        ready = emulator.fitted & (own.count[0] >= sampler.warmup // 2)
        coefficients = jnp.where(ready, emulator.coefficients, 0.0)
        seen = seen._replace(emulator=emulator._replace(coefficients=coefficients, fitted=ready))
    pooled = jnp.mean(own.log_scale, axis=0), mean, covariance, seen
    shared = jax.tree.map(lambda one: jnp.broadcast_to(one, (chains, *one.shape)), pooled)
    tuned = own._replace(**dict(zip(own._fields, shared, strict=False)))
    tuned = jax.tree.map(lambda new, old: jnp.where(begun, new, old), tuned, own)
    if own.tally is None or sampler.prior_blocks is None:
        return tuned
    decided = own.tally.decided(sampler.prior_blocks.most)
    last = own.count[0] >= _DECIDES * sampler.warmup
    tally = jax.tree.map(lambda new, old: jnp.where(last, new, old), decided, own.tally)
    return tuned._replace(tally=tally)


@Program
def _held(coordinates: Coordinates, target: WhiteTarget) -> Coordinates:
    return coordinates.held(target)


@Program
def _within(sampler: SweepSampler, coordinates: Coordinates) -> LatentMove:
    target = sampler.target
    return sampler.latents.within(target, target.space.model, coordinates)
