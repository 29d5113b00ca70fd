"""The posterior precision of effects of groups by products, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.groups.design import EffectDesign, RowEffects, effects_at
from latentgp.extensions.groups.elimination import inverses_of
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, PerRow, Scalar, Vectors

Blocks = tuple[Float[Array, "_ _ S"], ...]


@stored
class EffectPrecision(LinearOperator):
    """P = I + Z' W Z, by the levels and functions of the rows."""

    design: EffectDesign
    rows: RowEffects
    precision: PerRow

    @property
    def size(self) -> int:
        return self.design.number

    @property
    def dtype(self) -> Any:
        return self.precision.dtype

    def times(self, right: Vectors) -> Vectors:
        return right + self.all_sums(self.weighted(self.at_rows(right)))

    def at_rows(self, effects: Float[Array, "effects S"]) -> Vectors:
        """Z b: what effects of all terms are at the rows."""
        blocks = split(self.design, effects)
        return jnp.asarray(sum(self.function(t, block) for t, block in enumerate(blocks)))

    def weighted(self, values: Vectors) -> Vectors:
        """W times values of the rows."""
        return jnp.asarray(self.precision)[:, None] * values

    def all_sums(self, values: Vectors) -> Float[Array, "effects S"]:
        """Z' values."""
        return joined([self.sums(t, values) for t in range(len(self.design.terms))])

    def function(self, term: int, effects: Float[Array, "L E S"]) -> Vectors:
        """Z_t b: what effects of a term are at the rows."""
        return function_of(effects, self.rows.levels[term], self.rows.values[term])

    def sums(
        self, term: int, values: Vectors, onto: Float[Array, "L E S"] | None = None
    ) -> Float[Array, "L E S"]:
        """Z_t' values: sums over the rows of each level, added to others where there are any."""
        own, u = self.design.terms[term], jnp.asarray(self.rows.values[term])
        if self.design.is_shared(term):
            return (u.T @ values)[None]
        levels = jnp.asarray(self.rows.levels[term])
        each = (u[:, :, None] * values[:, None]).reshape(*levels.shape, own.width, -1)
        if onto is None:
            onto = jnp.zeros((own.levels, own.width, values.shape[1]), values.dtype)
        return onto.at[levels].add(each, mode="drop")

    def blocks(self, term: int) -> Float[Array, "L E E"]:
        """The block of each level of a term."""
        u = jnp.asarray(self.rows.values[term])
        own, w = self.design.terms[term], jnp.asarray(self.precision)
        unit = jnp.eye(own.width, dtype=u.dtype)
        if not own.members:
            return unit + self.sums(term, w[:, None] * u)
        u = u.reshape(len(u), -1, own.width)
        each = w[:, None, None, None] * u[..., None] * u[:, :, None]
        total = jnp.tile(unit, (own.levels, 1, 1))
        return total.at[jnp.asarray(self.rows.levels[term])].add(each, mode="drop")

    def of_terms(self, terms: Sequence[int]) -> EffectPrecision:
        """The block of some terms."""
        design = EffectDesign(tuple(self.design.terms[t] for t in terms), (), ())
        levels, values = (tuple(part[t] for t in terms) for part in self.rows)
        return EffectPrecision(design, RowEffects(levels, values), self.precision)

    def with_shared(
        self,
    ) -> tuple[dict[int, Float[Array, "_ _ shared"]], Float[Array, "shared shared"]]:
        """Blocks of the effects that all rows share: with each other term, and their own."""
        own = self.design.outside(self.design.shared)
        size = sum(self.design.terms[t].size for t in self.design.shared)
        dtype = self.dtype

        def step(total: Any, chunk: Any, real: Array) -> tuple[Any, None]:
            rows, w = RowEffects(*chunk[:2]), jnp.where(real, chunk[2], 0.0)
            A = EffectPrecision(self.design, rows, w)
            u = jnp.concatenate([rows.values[t] for t in self.design.shared], axis=1)
            heavy = w[:, None] * u
            between = [A.sums(t, heavy, onto) for onto, t in zip(total[0], own, strict=True)]
            return (between, total[1] + u.T @ heavy), None

        terms = [self.design.terms[t] for t in own]
        start = (
            [jnp.zeros((t.levels, t.width, size), dtype) for t in terms],
            jnp.eye(size, dtype=dtype),
        )
        columns = 3 * size * max(t.row_width for t in terms)
        each = (*self.rows, self.precision)
        (between, shared), _ = scan_rows(step, start, each, columns=columns)
        return dict(zip(own, between, strict=True)), shared


class LevelBlocks(eqx.Module):
    """A grouping whose effects are eliminated, by the inverses D^-1 of its levels' blocks."""

    operator: EffectPrecision  # of all effects
    inverse: Float[Array, "L E E"]
    log_determinant: Scalar  # of D
    term: int = eqx.field(static=True)

    @classmethod
    def of(cls, operator: EffectPrecision, term: int) -> LevelBlocks:
        """The blocks of a term of a precision."""
        return cls(operator, *inverses_of(operator.blocks(term)), term)

    def solve(self, right: Float[Array, "L E S"]) -> Float[Array, "L E S"]:
        """D^-1 right."""
        return jnp.einsum("lij,ljs->lis", self.inverse, right)

    def given(
        self, f: Vectors, right: Float[Array, "L E S"] | float = 0.0
    ) -> Float[Array, "L E S"]:
        """D^-1 (right - Z' W f): effects where all others make f."""
        A = self.operator
        return self.solve(right - A.sums(self.term, A.weighted(f)))

    def weighted(self, f: Vectors) -> Vectors:
        """W times f and what the effects are given it."""
        A = self.operator
        return A.weighted(f + A.function(self.term, self.given(f)))


class SchurComplement(LinearOperator):
    """The precision of the effects of other groups, less B B', once some are eliminated."""

    groups: EffectPrecision
    levels: LevelBlocks | None  # of the grouping that is eliminated
    through: Float[Array, "effects shared"] | None  # B, of the effects that all rows share

    @property
    def size(self) -> int:
        return self.groups.size

    @property
    def dtype(self) -> Any:
        return self.groups.dtype

    def times(self, right: Vectors) -> Vectors:
        A = self.groups
        product = right + A.all_sums((self.levels or A).weighted(A.at_rows(right)))
        if self.through is None:
            return product
        return product - self.through @ (self.through.T @ right)


class GaussSeidel(Preconditioner):
    """(D + L) D^-1 (D + L)', D the blocks of the levels of every term, L what is below them."""

    operator: EffectPrecision
    factors: tuple[Factor, ...]  # of the blocks of D

    @classmethod
    def of(cls, operator: EffectPrecision) -> GaussSeidel:
        """For a precision."""
        terms = range(len(operator.design.terms))
        return cls(operator, tuple(jax.vmap(cholesky)(operator.blocks(t)) for t in terms))

    def log_determinant(self) -> Scalar:
        return 2 * sum(
            jnp.sum(jnp.log(jnp.diagonal(f.lower, axis1=1, axis2=2))) for f in self.factors
        )

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        """With the root (D + L) C^-T, D = C C'; C' (D + L)^-1 and (D + L')^-1 C of columns."""
        blocks, A = split(self.operator.design, right), self.operator
        order = range(len(blocks))
        found: dict[int, Array] = {}
        f = jnp.zeros((len(A.precision), right.shape[1]), right.dtype)
        for t in reversed(order) if transposed else order:
            C = self.factors[t]
            own = jnp.einsum("lij,ljs->lis", C.lower, blocks[t]) if transposed else blocks[t]
            own = own - A.sums(t, A.precision[:, None] * f)
            half = jnp.einsum("lij,ljs->lis", C.inverse, own)
            b = jnp.einsum("lji,ljs->lis", C.inverse, half)
            f = f + A.function(t, b)
            found[t] = b if transposed else half
        return joined([found[t] for t in order])

    def times_root(self, right: Vectors) -> Vectors:
        A = self.operator
        f = jnp.zeros((len(A.precision), right.shape[1]), right.dtype)
        found = []
        for t, block in enumerate(split(A.design, right)):
            C = self.factors[t]
            below = A.sums(t, A.precision[:, None] * f)
            found.append(jnp.einsum("lij,ljs->lis", C.lower, block) + below)
            f = f + A.function(t, jnp.einsum("lji,ljs->lis", C.inverse, block))
        return joined(found)


def function_of(
    effects: Float[Array, "L E S"], levels: Int[Array, "N ..."], values: Float[Array, "N _"]
) -> Vectors:
    """What effects of a term are at rows of these levels, which multiply them by values."""
    if len(effects) == 1 and levels.ndim == 1:
        return jnp.where(levels[:, None] == 0, values, 0.0) @ jnp.asarray(effects)[0]
    return jnp.einsum("ne,nes->ns", values, effects_at(effects, levels))


def split(design: EffectDesign, columns: Vectors) -> Blocks:
    """Columns of all effects as blocks of each term."""
    sizes = [term.size for term in design.terms]
    pieces = jnp.split(columns, np.cumsum(sizes)[:-1].tolist())
    return tuple(
        piece.reshape(term.levels, term.width, columns.shape[1])
        for piece, term in zip(pieces, design.terms, strict=True)
    )


def joined(blocks: list[Float[Array, "_ _ S"]]) -> Vectors:
    """The other way round."""
    return jnp.concatenate([jax.lax.collapse(block, 0, 2) for block in blocks])
