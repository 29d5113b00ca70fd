"""The sparse design of a kernel's effects: of each term a few levels of a row, and functions."""

from __future__ import annotations

import dataclasses
from math import prod
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.groups.groupings import is_within
from latentgp.extensions.groups.incidence import Incidence
from latentgp.extensions.inter_domain.base import Demands
from latentgp.extensions.inter_domain.functions import Basis, groups_of, times_columns
from latentgp.extensions.inter_domain.per_part import (
    GROUPS,
    LINEAR,
    Memberships,
    PerPart,
    Points,
)
from latentgp.kernels import Kernel, LatentKernel, MultipleMembership, White
from latentgp.kernels.parts import PartsOfKernel, parts_of
from latentgp.kernels.terms import Part, Term, terms_of
from latentgp.modules import stored
from latentgp.typing import Array, Inputs

# Of elimination: numbers that are kept, and products of numbers, a second or so.
_MOST_KEPT, _MOST_PRODUCTS = 5e7, 4e10
_POINTS_OF_A_LEVEL = 20  # of a smooth function of every group's own
_RowLevels: TypeAlias = list[Int[np.ndarray, "N"]]  # of each term


@stored
class GroupTable(eqx.Module):
    """The levels of a grouping: its distinct rows, in lexicographic order.

    Example:
        >>> table = GroupTable(np.array([[1.0], [4.0]]))
        >>> table.index(jnp.array([[4.0], [2.0]])).tolist()
        [1, 2]
    """

    rows: Float[Array, "L columns"]

    def __len__(self) -> int:
        return self.rows.shape[0]

    def index(self, x: Float[Array, "N columns"]) -> Int[Array, "N"]:
        """The number of each row's level; that of all levels where it has none."""
        levels = len(self)
        table = jnp.asarray(self.rows, x.dtype)

        def is_before(number: Int[Array, "N"]) -> Bool[Array, "N"]:
            own, found = table[number], jnp.zeros(len(x), bool)
            for column in reversed(range(x.shape[1])):
                less, same = own[:, column] < x[:, column], own[:, column] == x[:, column]
                found = less | (same & found)
            return found

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) // 2
            after = is_before(jnp.minimum(middle, levels - 1)) & (low < high)
            return jnp.where(after, middle + 1, low), jnp.where(after, high, middle)

        ends = jnp.zeros(len(x), jnp.int32), jnp.full(len(x), levels, jnp.int32)
        low, _ = jax.lax.fori_loop(0, int(levels).bit_length(), halve, ends)
        own = table[jnp.minimum(low, levels - 1)]
        return jnp.where((low < levels) & jnp.all(own == x, axis=1), low, levels)


@stored
class EffectTerm(eqx.Module):
    """One term of a kernel: every level of its groups has E effects, normal and independent.

    The roots of their prior covariance are in the functions that multiply them, so that each
    effect is standard normal.
    """

    columns: tuple[int, ...] = eqx.field(static=True)  # that tell groups apart; of none, one level
    table: GroupTable
    bases: tuple[Basis, ...]  # of the parts that are no groups
    # of groups of which a row has several, beside the columns; of none, a row has one level
    members: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def width(self) -> int:
        """The number of effects of a level, E."""
        return prod(basis.number for basis in self.bases)

    @property
    def levels(self) -> int:
        """The number of levels, L."""
        return len(self.table)

    @property
    def size(self) -> int:
        """The number of effects of all levels."""
        return self.levels * self.width

    @property
    def row_width(self) -> int:
        """The number of effects that a row touches."""
        return max(1, len(self.members)) * self.width

    @property
    def is_whole(self) -> bool:
        """Whether its functions leave no prior variance open."""
        return not any(isinstance(basis, Points | Memberships) for basis in self.bases)

    def groups(self, X: Inputs) -> list[Float[Array, "N columns"]]:
        """Columns that tell levels apart, for each member of a row."""
        each = [(*self.columns, own) for own in self.members] or [self.columns]
        return [X[:, np.array(own, int)] for own in each]

    def index(self, X: Inputs) -> Int[Array, "N ..."]:
        """The level of each row; the number of levels where it has none."""
        each = [self.table.index(own) for own in self.groups(X)]
        return jnp.stack(each, axis=1) if self.members else each[0]

    def values(self, term: Term, X: Inputs) -> Float[Array, "N _"]:
        """What multiplies the effects of a row's levels, those of each member side by side."""
        own, scale, shares = [], jnp.asarray(term.scale), None
        bases = iter(self.bases)
        for part in term.parts:
            kernel: Any = part.kernel
            if shares is None and self.members and isinstance(kernel, MultipleMembership):
                shares = kernel.shares(X[:, np.array(part.columns)])[1]
            elif not isinstance(kernel, GROUPS):
                own.append(next(bases).values(kernel, X[:, np.array(part.columns)]))
            elif isinstance(kernel, White):
                scale = scale * kernel.variance
        values = (jnp.sqrt(scale) * times_columns(own, len(X))).T.astype(X.dtype)
        if shares is None:
            return values
        return (shares[:, :, None] * values[:, None]).reshape(len(X), self.row_width)


@stored
class RowEffects(NamedTuple):
    """Levels and functions of some rows, a pair for each term."""

    levels: tuple[Int[Array, "N ..."], ...]
    values: tuple[Float[Array, "N _"], ...]

    def columns(self, design: EffectDesign, term: int) -> Int[Array, "N _"]:
        """Places of the effects of a term among those that are left; beyond these for no level."""
        own = design.terms[term]
        levels = self.levels[term].reshape(len(self.levels[term]), -1, 1)
        places = design.offsets[term] + levels * own.width + jnp.arange(own.width)
        places = jnp.where(levels < own.levels, places, design.left)
        return places.reshape(len(levels), own.row_width)

    def known(self, design: EffectDesign, term: int) -> Bool[Array, "N _"]:
        """Whether the level is there that each of a term's values of a row multiplies."""
        own = design.terms[term]
        levels = self.levels[term].reshape(len(self.levels[term]), -1)
        return jnp.repeat(levels < own.levels, own.width, axis=1)


@stored
class EffectDesign(eqx.Module):
    """The terms of a kernel, and in which order their effects are eliminated.

    A chain of nested terms, the finest first, is eliminated level by level: every level of one is
    within one level of the next. The effects of all others are left, side by side.
    """

    terms: tuple[EffectTerm, ...]
    chain: tuple[int, ...] = eqx.field(static=True)  # numbers of terms
    # for each but the last of the chain, the level of each later one that its levels are within
    within: tuple[tuple[Int[Array, "_"], ...], ...]
    # where the chain has one term: which effects that are left its levels meet, if these are few
    incidence: Incidence | None = None

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the terms outside of the chain."""
        return self.outside(self.chain)

    def outside(self, some: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of all other terms."""
        return tuple(t for t in range(len(self.terms)) if t not in some)

    @property
    def offsets(self) -> dict[int, int]:
        """Place of the first effect of each term that is left."""
        sizes = [self.terms[t].size for t in self.others]
        return dict(zip(self.others, np.cumsum([0, *sizes]).tolist(), strict=False))

    def is_shared(self, term: int) -> bool:
        """Whether all rows share the effects of a term; new rows may lack its only level."""
        return not self.terms[term].columns and not self.terms[term].members

    @property
    def several(self) -> list[int]:
        """Numbers of the terms outside of the chain that not all rows share."""
        return [t for t in self.others if not self.is_shared(t)]

    @property
    def left(self) -> int:
        """The number of effects outside of the chain."""
        return sum(self.terms[t].size for t in self.others)

    @property
    def number(self) -> int:
        """The number of all effects."""
        return sum(term.size for term in self.terms)

    @property
    def first(self) -> int | None:
        """Number of the grouping with most effects, of those with one level a row; None of none."""
        own = (t for t, term in enumerate(self.terms) if term.levels > 1 and not term.members)
        return max(own, key=lambda t: self.terms[t].size, default=None)

    @property
    def shared(self) -> tuple[int, ...]:
        """Numbers of the terms that all rows share; of none where their blocks are too large.

        Coefficients are last, those of the smallest terms after all others.
        """
        own = [t for t in range(len(self.terms)) if self.is_shared(t)]
        own.sort(key=lambda t: (self.terms[t].is_whole, -self.terms[t].size))
        size = sum(self.terms[t].size for t in own)
        return tuple(own) if 0 < size < self.number and size * self.number <= _MOST_KEPT else ()

    def coefficients(self, most: int) -> int:
        """Number of the last coefficients that all rows share, of whole terms and up to so many."""
        own = [self.terms[t].size for t in reversed(self.shared) if self.terms[t].is_whole]
        return max((int(n) for n in np.cumsum(own) if n <= most), default=0)

    @property
    def is_small(self) -> bool:
        """Whether what elimination takes and keeps is little."""
        kept = self.left * self.number
        return kept + self.blocks <= _MOST_KEPT and self.left * kept <= _MOST_PRODUCTS

    @property
    def blocks(self) -> int:
        """The number of covariances between effects of one level, and with those around it."""
        widths = [self.terms[t].width for t in self.chain]
        own = sum(self.terms[t].size * sum(widths[k:]) for k, t in enumerate(self.chain))
        others = (self.terms[t] for t in self.others)
        return own + sum(term.size * term.width for term in others if term.levels > 1)

    @property
    def row_width(self) -> int:
        """Numbers that a row needs."""
        widths = [term.row_width for term in self.terms]
        blocks = max((self.terms[t].width for t in self.chain), default=1) * max(widths)
        return sum(widths) + blocks + (len(self.chain) > 1) * self.left

    @property
    def is_whole(self) -> bool:
        """Whether the effects are all that there is of f."""
        return all(term.is_whole for term in self.terms)

    def of(self, kernel: Kernel, X: Inputs) -> RowEffects:
        """Levels and functions of rows, of a kernel's parts with shares where it tells them."""
        shares = None
        if isinstance(kernel, PartsOfKernel):
            shares, X = X[:, -kernel.number :], X[:, : -kernel.number]
            each = [len(terms_of(p, tuple(range(X.shape[1])))) for p in parts_of(kernel.kernel)]
            shares, kernel = shares[:, np.repeat(np.arange(len(each)), each)], kernel.kernel
        terms = terms_of(kernel, tuple(range(X.shape[1])))
        values = [own.values(term, X) for own, term in zip(self.terms, terms, strict=True)]
        if shares is not None:
            values = [shares[:, t, None] * own for t, own in enumerate(values)]
        return RowEffects(tuple(own.index(X) for own in self.terms), tuple(values))

    def strays(self, levels: tuple[Int[Array, "N ..."], ...]) -> Bool[Array, "N"]:
        """Whether a row has a level that the design has not, or is nested otherwise than it."""
        found = jnp.zeros(len(levels[0]), bool)
        for level, term in zip(levels, self.terms, strict=True):
            found = found | jnp.any(level.reshape(len(found), -1) >= term.levels, axis=1)
        for k, outer in enumerate(self.within):
            level = levels[self.chain[k]]
            for place, parents in zip(self.chain[k + 1 :], outer, strict=True):
                found = found | (_at(parents, level) != levels[place])
        if self.incidence is not None:
            each = [RowEffects(levels, ()).columns(self, t) for t in self.several]
            (t,), effects = self.chain, jnp.concatenate(each, axis=1)
            found |= self.incidence.lacks(levels[t], effects, self.terms[t].levels, self.left)
        return found


def designs_of(
    kernel: LatentKernel, X: Inputs, number: int, exact: bool | None = None
) -> tuple[EffectDesign, ...]:
    """A design for each structure of kernels of the latent functions.

    Args:
        kernel: of the latent functions.
        X: the rows.
        number: of inducing points of parts that are neither groups nor linear.
        exact: whether effects are eliminated; None where that takes little.
    """
    made = [_design(own, np.asarray(X), number) for own in groups_of(kernel)]
    designs = tuple(design for design, _ in made)
    eliminates = all(design.is_small for design in designs) if exact is None else exact
    return tuple(_with_incidence(*own) for own in made) if eliminates else designs


def _design(kernel: Kernel, X: Inputs, number: int) -> tuple[EffectDesign, _RowLevels]:
    """A design, and the level of each row in each of its terms."""
    made = [_effects(term, X, number) for term in terms_of(kernel, tuple(range(X.shape[1])))]
    terms, levels = [term for term, _ in made], [own for _, own in made]
    chain: list[int] = []
    of_one = (t for t, term in enumerate(terms) if not term.members)
    for t in sorted(of_one, key=lambda t: -terms[t].size):
        finer = levels[chain[-1] if chain else t][:, None]
        if terms[t].levels > 1 and is_within(finer, levels[t][:, None]):
            chain.append(t)
    within = []
    for place, t in enumerate(chain):
        first = np.unique(levels[t], return_index=True)[1]
        within.append(tuple(levels[outer][first] for outer in chain[place + 1 :]))
    return EffectDesign(tuple(terms), tuple(chain), tuple(within)), levels


def _with_incidence(design: EffectDesign, levels: _RowLevels) -> EffectDesign:
    """With the cells of its one grouping, where sums over their pairs pay."""
    terms, chain, several, offsets = design.terms, design.chain, design.several, design.offsets
    if not several or len(chain) != 1 or any(terms[t].members for t in several):
        return design
    shared = [offsets[t] + np.arange(terms[t].size) for t in design.others if t not in several]
    shared = np.concatenate([np.zeros(0, int), *shared])
    widths = {t: np.arange(terms[t].width) for t in several}
    each = [offsets[t] + levels[t][:, None] * len(own) + own for t, own in widths.items()]
    (t,), effects = chain, np.concatenate(each, axis=1)
    incidence = Incidence.of(levels[t], effects, shared, terms[t].levels, design.left)
    return dataclasses.replace(design, incidence=incidence)


def _effects(term: Term, X: Inputs, number: int) -> tuple[EffectTerm, Int[np.ndarray, "N"]]:
    """The effects of a term, and the level of each row."""
    of_groups = [part for part in term.parts if isinstance(part.kernel, GROUPS)]
    columns = tuple(column for part in of_groups for column in part.columns)
    of_members = [p for p in term.parts if isinstance(p.kernel, MultipleMembership)][:1]
    members = tuple(c for p in of_members for c in p.columns[: p.kernel.members])  # pyright: ignore
    rows, levels = np.zeros((1, 0)), np.zeros(len(X), int)
    if columns or members:
        each = [(*columns, own) for own in members] or [columns]
        whole = np.concatenate([X[:, np.array(own)] for own in each])
        rows, levels = np.unique(whole, axis=0, return_inverse=True)
    apart = (*of_groups, *of_members)
    others: list[Part] = [part for part in term.parts if not any(part is p for p in apart)]
    smooth = sum(not isinstance(part.kernel, LINEAR) for part in others)
    number = min(number, _POINTS_OF_A_LEVEL) if (columns or members) and smooth else number
    demands = Demands(None, np.inf, 0.0, share=max(1, smooth))
    bases = (PerPart(number).basis(p, X[:, np.array(p.columns)], demands) for p in others)
    own = EffectTerm(columns, GroupTable(rows), tuple(bases), members)
    return own, levels.reshape(-1, len(X))[0]  # of the first member


def _at(parents: Any, level: Int[Array, "N"]) -> Int[Array, "N"]:
    return jnp.asarray(parents).at[level].get(mode="fill", fill_value=-1)


def effects_at(
    effects: Float[Array, "L E *S"], levels: Int[Array, "N ..."]
) -> Float[Array, "N _ *S"]:
    """Effects of the levels of rows, those of each member side by side; zeros beyond the last."""
    size = prod(levels.shape[1:]) * effects.shape[1]
    return at_levels(effects, levels).reshape(len(levels), size, *effects.shape[2:])


def at_levels(blocks: Array, places: Any) -> Array:
    """Blocks at places; zeros beyond the last."""
    return jnp.asarray(blocks).at[places].get(mode="fill", fill_value=0.0)
