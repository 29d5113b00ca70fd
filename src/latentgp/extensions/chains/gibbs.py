"""Gibbs sampling: auxiliary variables given the latents, latents given them, block by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.extensions.chains.coordinates import starting_sites
from latentgp.extensions.chains.copies import Copies, copies_of
from latentgp.extensions.chains.loop import Draw, Transition
from latentgp.extensions.chains.slice_sampling import metropolis_update, slice_update
from latentgp.extensions.chains.slow_rows import rows_at, slowest_rows, update_some_rows
from latentgp.extensions.chains.target import Coefficients, WhiteTarget, from_prior
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.representations.protocols import SamplesCoefficients, coefficients_of
from latentgp.representations.samplers import BlockUpdate, SiteSampler
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import prior_mean, rows_of
from latentgp.sites.augmentations import Automatic
from latentgp.sites.gaussian import Block, GaussianSites
from latentgp.typing import Array, Coefs, HyperVector, RandomKey, RowLatents, Scalar

_SLICE_WIDTH = 1.5
_TARGET_ACCEPTANCE = 0.3
_FIRST_SCALE = 0.3
_CHEAP_MOVES, _DEAR_MOVES = 5, 2  # a sweep: given f, and with a factorisation each

HyperUpdate = Literal["slice", "metropolis"]


class GibbsState(NamedTuple):
    """A chain's state."""

    vector: HyperVector  # unconstrained hyper-parameters
    f: RowLatents  # latent functions at the rows
    coefficients: Coefs  # of the representation, as its sampler draws them
    log_scale: Scalar  # log of the step size of the hyper-parameters' random walk


class GibbsChain(NamedTuple):
    """A chain's state, and sums for `slowest_rows` over the second half of the warm-up."""

    state: GibbsState
    moments: Float[Array, "3 N Q"]


class GibbsSampler(Transition):
    """Sweeps of a chain. With fixed hyper-parameters every step is an exact conditional.

    A sweep: likelihood parameters given f, auxiliary variables integrated out; then for each
    block of latents its auxiliary variables given f, kernel and mean parameters given the sites
    with the block's latents integrated out, and these latents. Integrating out keeps the
    hyper-parameters from being held in place by the latents they shape. A likelihood of several
    blocks, and one whose evidence given the sites is an estimate, has its kernel parameters updated
    with the white coefficients held instead.
    """

    representation: Representation  # made ready for the rows
    rule: AugmentationRule  # gives the augmentation
    space: ParameterSpace  # the hyper-parameters; none are free if they are fixed
    data: Data  # the rows, on the device
    copies: Copies  # the rows repeated by their weights
    centre: HyperVector  # unconstrained hyper-parameters that chains start around
    update: HyperUpdate = eqx.field(static=True, default="slice")  # how they are updated
    power: float = eqx.field(static=True, default=0.0)  # 0 is variational, 1 is FITC
    over_relaxation: float = eqx.field(static=True, default=0.0)  # where latents are not collapsed
    known: SiteSampler | None = None  # sampler of the latents, if the hyper-parameters are fixed
    slow: Int[Array, "slow"] | None = None  # rows that are updated more often, each of one copy
    adapt: float = 0.0  # how much the random walk's step size may change, 0 after the warm-up
    counts: bool = False  # whether moments are summed

    @classmethod
    def of(
        cls,
        representation: Representation,
        rule: AugmentationRule,
        space: ParameterSpace,
        data: Data,
        *,
        slow_rows: int,
        **settings: Any,
    ) -> GibbsSampler:
        """With the latents' sampler worked out once if the hyper-parameters are fixed."""
        copies, centre = copies_of(rows_of(data)), jnp.asarray(space.to_vector())
        sampler = cls(representation, rule, space, data, copies, centre, **settings)
        known = None if space.size else _known_sampler(sampler)
        return dataclasses.replace(sampler, known=known, slow=sampler._first_slow_rows(slow_rows))

    def init(self, key: RandomKey) -> GibbsChain:
        """A state with hyper-parameters drawn around a centre, latents about the mode there."""
        key_start, key_f, key_rows = jax.random.split(key, 3)
        target = WhiteTarget(self.space, self.representation, self.data, self.centre)
        start = from_prior(target, key_start)
        vector = start.vector
        model = self.space.to_model(vector)
        sampler, offset = self._sampler(model), prior_mean(model, self.data)
        everything = tuple(range(offset.shape[1]))
        nothing = jnp.zeros((offset.shape[1], len(sampler.centres)), offset.dtype)
        sites = starting_sites(target, start)
        coefficients = sampler.draw(BlockUpdate(sites, everything, key_f, nothing)).coefficients
        f = offset + sampler.at_rows(coefficients, everything, key_rows)
        log_scale = jnp.log(jnp.asarray(_FIRST_SCALE, vector.dtype))
        state = GibbsState(vector, f, coefficients, log_scale)
        return GibbsChain(state, jnp.zeros((3, *f.shape), f.dtype))

    def step(self, state: GibbsChain, key: RandomKey) -> tuple[GibbsChain, dict[str, Array]]:
        before, moments = state
        after, acceptance = self.sweep(before, key)
        new = jnp.stack([after.f, after.f**2, after.f * before.f])
        moments = moments + jnp.where(self.counts, new, 0.0)
        return GibbsChain(after, moments), {"acceptance_rate": acceptance}

    def sweep(self, state: GibbsState, key: RandomKey) -> tuple[GibbsState, Scalar]:
        """One sweep, and the acceptance rate of its accept-reject steps."""
        data, copies, slow = self.data, self.copies, self.slow
        likelihood = self.space.model.likelihood
        blocks = self.rule.blocks(likelihood)
        augmentation = self.rule.chosen(likelihood)
        in_likelihood, elsewhere = self._masks()
        # Hyper-parameters moved with the latents integrated out ask for latents drawn afresh.
        collapsed = bool(elsewhere.any()) and not self._holds_white(blocks)
        over_relaxation = 0.0 if collapsed else self.over_relaxation
        key, key_likelihood, key_white = jax.random.split(key, 3)
        accepted: list[Any] = []
        vector, f, coefficients, log_scale = state
        move = partial(self._move, log_scale, accepted)
        if in_likelihood.any():
            density = partial(self._given_f, f)
            vector = move(density, vector, in_likelihood, _CHEAP_MOVES, key_likelihood)
        if elsewhere.any() and self._holds_white(blocks):
            white = self._white(vector, coefficients)
            density = partial(self._given_white, white)
            vector = move(density, vector, elsewhere, _DEAR_MOVES, key_white)
            f, g = self._at_rows(white, vector)
            coefficients = g.T
        for index, block in enumerate(blocks):
            keys = jax.random.split(jax.random.fold_in(key, index), 5)
            key_w, key_hyper, key_draw, key_rows, key_slow = keys
            model = self.space.to_model(vector)
            augmented, spread = augmentation.bind(model.likelihood, copies.rows), copies.spread(f)
            w = augmented.draw(spread, key_w, block)
            sites = copies.gather(augmented.conditional_sites(w, spread, block), len(f))
            if collapsed:
                density = partial(self._given_sites, sites)
                vector = move(density, vector, elsewhere, _DEAR_MOVES, key_hyper)
                model = self.space.to_model(vector)
            own = self._sampler(model)
            offset = prior_mean(model, data)
            columns = jnp.asarray(block)
            about, start = sites.about(offset), coefficients[columns]
            result = own.draw(BlockUpdate(about, block, key_draw, start, over_relaxation, slow))
            drawn = result.coefficients
            if slow is not None and result.covariances is not None:
                bound = augmentation.bind(model.likelihood, rows_at(copies, slow))
                drawn = update_some_rows(bound, result, about, f, offset, slow, block, key_slow)
            g = own.at_rows(drawn, block, key_rows)
            f = f.at[:, columns].set(offset[:, columns] + g)
            coefficients = coefficients.at[columns].set(drawn)
        acceptance = jnp.mean(jnp.stack(accepted)) if accepted else jnp.ones((), f.dtype)
        log_scale = log_scale + self.adapt * (acceptance - _TARGET_ACCEPTANCE)
        return GibbsState(vector, f, coefficients, log_scale), acceptance

    def within_piece(
        self, states: GibbsChain, piece: int, warmup: int, sweeps: int
    ) -> GibbsSampler:
        half, warming, slow = warmup // 2, piece < warmup, self.slow
        seen = min(piece, warmup) - half  # pieces in the sums
        if slow is not None and seen > 0:
            moments = np.asarray(states.moments)
            slow = jnp.asarray(slowest_rows(moments, seen * sweeps, self.copies, len(slow)))
        adapt = 1 / (1 + piece) ** 0.5 if warming else 0.0
        return dataclasses.replace(self, slow=slow, adapt=adapt, counts=half <= piece and warming)

    def keys(self, key: RandomKey, thin: int) -> tuple[Key[Array, "T"], RandomKey]:
        return jax.random.split(key, thin), key  # nothing is random in a draw

    def record(self, state: GibbsChain, key: RandomKey, watched: Int[Array, "W"]) -> Draw:
        vector, f, coefficients, _ = state.state
        white = coefficients if self.known is not None else self._white(vector, coefficients)
        return Draw(vector, white, f[watched])

    def draw(self, record: Draw, watched: Int[Array, "W"]) -> Draw:
        # One factor for all draws: their white coefficients at once.
        known = self.known
        return record if known is None else record._replace(white=known.white(record.white))

    def coefficients(self, state: GibbsChain) -> Coefficients:
        own = self._sampler(self.space.to_model(state.state.vector))
        return Coefficients(own.centres, own.jitter)

    @property
    def _coefficients(self) -> SamplesCoefficients:
        return coefficients_of(self.representation)

    def _holds_white(self, blocks: Sequence[Block]) -> bool:
        """Whether kernel and mean parameters move with the white coefficients held."""
        traits = self.representation.traits
        return len(blocks) > 1 or (traits.one_coefficient_a_row and not traits.dense_factors)

    def _first_slow_rows(self, most: int) -> Int[Array, "slow"] | None:
        """Rows to begin with where rows may be outliers: dense scale mixtures; else None."""
        automatic = isinstance(self.rule.chosen(self.space.model.likelihood), Automatic)
        copied = np.bincount(np.asarray(self.copies.origin), minlength=self.data.size)
        single = np.flatnonzero(copied == 1)
        few = single[: min(most, len(single) // 2)]
        traits = self.representation.traits
        dense = traits.one_coefficient_a_row and traits.dense_factors
        return jnp.asarray(few) if automatic and few.size and dense else None

    def _masks(self) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the vector: entries that belong to the likelihood, and all others."""
        labels = [label for label, _ in self.space.entries()]
        in_likelihood = np.array([label.startswith("likelihood") for label in labels], bool)
        return in_likelihood, ~in_likelihood

    def _move(
        self,
        log_scale: Scalar,
        accepted: list[Any],
        density: Any,
        vector: HyperVector,
        mask: np.ndarray,
        number: int,
        key: RandomKey,
    ) -> HyperVector:
        def move(index: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            by_slices = self.update == "slice"
            update = slice_update if by_slices else metropolis_update
            width = _SLICE_WIDTH if by_slices else jnp.exp(log_scale)
            result = update(density, carry[0], width * mask, jax.random.fold_in(key, index))
            return result.vector, carry[1] + result.accepted

        vector, count = jax.lax.fori_loop(0, number, move, (vector, 0))
        if self.update == "metropolis":
            accepted.append(count / number)
        return vector

    def _given_f(self, f: RowLatents, vector: HyperVector) -> Scalar:
        likelihood, rows = self.space.to_model(vector).likelihood, self.copies.rows
        terms = jax.vmap(likelihood.log_prob)(rows.y, self.copies.spread(f), dict(rows.side))
        return jnp.sum(terms) + self.space.log_prior(vector)

    def _given_sites(self, sites: GaussianSites, vector: HyperVector) -> Scalar:
        model = self.space.to_model(vector)
        about = sites.about(prior_mean(model, self.data))
        evidence = self.representation.condition(model.kernel, self.data.X, about).log_evidence
        return evidence + jnp.sum(about.log_constant) + self.space.log_prior(vector)

    def _given_white(self, white: Coefs, vector: HyperVector) -> Scalar:
        return self._given_f(self._at_rows(white, vector)[0], vector)

    def _at_rows(self, white: Coefs, vector: HyperVector) -> tuple[RowLatents, RowLatents]:
        """Latents at the rows by their white coefficients, and their zero-mean part."""
        model = self.space.to_model(vector)
        g, _ = self._coefficients.whitening(model.kernel, self.data.X).conditional(white)
        return prior_mean(model, self.data) + g, g

    def _white(self, vector: HyperVector, coefficients: Coefs) -> Coefs:
        kernel = self.space.to_model(vector).kernel
        return self._coefficients.sampler(kernel, self.data.X, self.power).white(coefficients)

    def _sampler(self, model: LatentGP) -> SiteSampler:
        if self.known is not None:
            return self.known
        return self._coefficients.sampler(model.kernel, self.data.X, self.power)


@Program
def _known_sampler(sampler: GibbsSampler) -> SiteSampler:
    return sampler._sampler(sampler.space.model)
