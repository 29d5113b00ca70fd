"""The prior of a sum of separable terms by inducing points in space.

With L L' = c(Z, Z) of a term k(t, t') c(s, s'), f = sum_m phi_m(s) a_m(t) + e for phi(s) =
L^-1 c(Z, s), independent processes a_m of covariance k, and e of covariance
k(t, t') (c(s, s') - phi(s)' phi(s')) (Hamelijnck et al. 2021).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.state_space.kernels import StateSpace, Truncation, state_space
from latentgp.extensions.state_space.lanes import UnrolledMatrix, full
from latentgp.extensions.state_space.separable import SeparableTerm, separable_terms
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.extensions.state_space.space_time.stacked import Blocks, Layout
from latentgp.kernels import Kernel, LatentKernel, PerLatent
from latentgp.kernels.base import Sum
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import in_latent_order, kernel_groups
from latentgp.numerics.cholesky import differentiable_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.typing import Array, Points, Scalar


class StatePrior(NamedTuple):
    """The law of the states at some times, and what places read of them."""

    table: Float[Array, "*Q M values"]  # phi of all terms, side by side, for each place
    left: Float[Array, "*Q M parts"]  # c(s, s) - |phi|^2 of each term, for each place
    variances: Float[Array, "*Q T parts"]  # k(t, t) of each term, at each time
    moves: Any  # A to each time, zero where nothing is before it
    noises: Any  # Q to each time, there the prior's covariance
    jitter: Float[Array, "*Q"]  # the most that was added to a c(Z, Z)


class Moments(NamedTuple):
    """Where times are."""

    times: Float[Array, "T"]  # of steps
    gaps: Float[Array, "T"]  # since what is before each
    fresh: Bool[Array, "T"]  # whether nothing is before it

    @classmethod
    def of(cls, slots: Slots) -> "Moments":
        """The times of steps."""
        gaps = jnp.diff(slots.times, prepend=slots.times[:1])
        return cls(slots.times, gaps, jnp.arange(len(gaps)) == 0)


class LatentGroup(NamedTuple):
    """Latent functions whose kernels are of one structure."""

    latents: tuple[int, ...]  # their numbers
    kernels: Kernel  # parameters with an axis in front, of size one where they share them
    one: Kernel  # one of them, whose structure alone matters


def latent_groups(kernel: LatentKernel, latents: int) -> list[LatentGroup]:
    """The groups of so many latent functions."""
    return [
        LatentGroup(group.latents, group.kernels, jax.tree.map(lambda leaf: leaf[0], group.kernels))
        for group in kernel_groups(kernel, latents)
    ]


class SpaceTimePrior(NamedTuple):
    """Points in space and what is approximated; priors are differentiable in it and kernels."""

    points: Points  # inducing points Z as whole inputs
    time: int  # the column of time
    truncation: Truncation  # of the processes in time

    def terms(self, kernel: Kernel) -> list[SeparableTerm]:
        """The terms of a kernel."""
        return separable_terms(kernel, self.points.shape[1], self.time)

    def layout(self, kernel: Kernel) -> Layout:
        """Layout of the state."""
        terms = self.terms(kernel)
        spaces = [state_space(term.time, self.truncation) for term in terms]
        copies = (1 if term.space is None else len(self.points) for term in terms)
        return Layout(tuple(space.measurement for space in spaces), tuple(copies))

    def of_group(self, group: LatentGroup, places: Points, at: Moments) -> StatePrior:
        """The priors of a group's kernels."""
        return vmap_latents(lambda kernel: self._of_kernel(kernel, places, at), group.kernels)

    def moves_of_group(self, group: LatentGroup, at: Moments) -> Blocks:
        """Transitions alone."""
        return vmap_latents(
            lambda kernel: tuple(self._moves(term, at)[0] for term in self.terms(kernel)),
            group.kernels,
        )

    def left_between(
        self, group: LatentGroup, X: Float[Array, "B D"], shares: Float[Array, "B parts"]
    ) -> Float[Array, "#Q B B"]:
        """Covariances between inputs of what the states leave open, the terms by shares."""

        def of_kernel(kernel: Kernel) -> Float[Array, "B B"]:
            total = jnp.zeros((len(X), len(X)), X.dtype)
            for term, share in zip(self.terms(kernel), shares.T, strict=True):
                if term.space is not None:
                    phi, _, _ = self.read(term, X)
                    left = term.space.symmetric_gram(X) - phi @ phi.T
                    total = total + jnp.outer(share, share) * term.time.symmetric_gram(X) * left
            return total

        return vmap_latents(of_kernel, group.kernels)

    def read_between(self, kernel: Kernel, slots: Slots, X: Points) -> Float[Array, "N B"]:
        """Covariances of what rows in slots read of the states with f at inputs."""
        times, total = self.inputs_at(slots.times), jnp.zeros((len(slots.slot), len(X)), X.dtype)
        step, place = slots.of_rows
        for term in self.terms(kernel):
            at_places, at_inputs = (self.read(term, at)[0] for at in (slots.places, X))
            total = total + term.time.gram(times, X)[step] * (at_places @ at_inputs.T)[place]
        return total

    def in_terms(self, kernel: LatentKernel) -> LatentKernel:
        """The same kernel, or kernels, as a sum of the terms."""
        each = map(self.terms, distinct_kernels(kernel))
        sums = [Sum(tuple(term.product for term in terms)) for terms in each]
        return PerLatent(*sums) if len(sums) > 1 else sums[0]

    def inputs_at(self, times: Float[Array, "T"]) -> Points:
        """Inputs at times, zero elsewhere."""
        return times[:, None] * (np.arange(self.points.shape[1]) == self.time)

    def part_of_terms(self, kernel: Kernel) -> Int[np.ndarray, "parts"]:
        """Number of the part of a sum of kernels that each term belongs to."""
        each = [len(self.terms(part)) for part in parts_of(kernel)]
        return np.repeat(np.arange(len(each)), each)

    def _of_kernel(self, kernel: Kernel, places: Points, at: Moments) -> StatePrior:
        terms = self.terms(kernel)
        table, left, jitter = zip(*(self.read(term, places) for term in terms), strict=True)
        inputs = self.inputs_at(at.times)
        moves, noises = zip(*(self._moves(term, at) for term in terms), strict=True)
        made = StatePrior(
            table=jnp.concatenate(table, axis=1),
            left=jnp.stack(left, axis=1),
            variances=jnp.stack([term.time.diagonal(inputs) for term in terms], axis=1),
            moves=moves,
            noises=noises,
            jitter=jnp.max(jnp.stack(jitter)),
        )
        return jax.tree.map(lambda leaf: leaf.astype(places.dtype), made)

    def root(self, term: SeparableTerm) -> tuple[Float[Array, "M M"], Scalar]:
        """L of a term, one where it has no kernel of space, and the jitter."""
        if term.space is None:
            return jnp.ones((1, 1), self.points.dtype), jnp.zeros((), self.points.dtype)
        return differentiable_cholesky(term.space.symmetric_gram(self.points))

    def read(self, term: SeparableTerm, places: Points) -> tuple[Array, Array, Scalar]:
        """Values of a term: phi at places, the open variance, and the jitter."""
        lower, jitter = self.root(term)
        if term.space is None:
            return jnp.ones_like(places[:, :1]), jnp.zeros_like(places[:, 0]), jitter
        phi = solve_lower(lower, term.space.gram(self.points, places)).T
        left = jnp.maximum(term.space.diagonal(places) - jnp.sum(phi**2, axis=1), 0.0)
        return phi, left, jitter

    def _moves(self, term: SeparableTerm, at: Moments) -> tuple[Array, Array]:
        """A and Q of a term's process."""
        space: StateSpace = state_space(term.time, self.truncation)
        A, Q = (_stacked(M, at.times) for M in space.transition(at.times, at.gaps))
        fresh, P = at.fresh[:, None, None], _stacked(space.covariance(at.times), at.times)
        return jnp.where(fresh, 0.0, A), jnp.where(fresh, P, Q)


def of_all(groups: list[LatentGroup], values: list[Float[Array, "_ *S"]]) -> Float[Array, "Q *S"]:
    """Values of all latent functions from those of each group, shared or not."""
    wide = [
        jnp.broadcast_to(part, (len(group.latents), *part.shape[1:]))
        for group, part in zip(groups, values, strict=True)
    ]
    return in_latent_order([group.latents for group in groups], wide)


def _stacked(M: UnrolledMatrix, like: Float[Array, "T"]) -> Float[Array, "T states states"]:
    return jnp.stack([jnp.stack(row, -1) for row in full(M, like).rows], -2)
