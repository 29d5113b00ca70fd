"""Gaussian posteriors of crossed effects by conjugate gradients: O(N) a product, no matrix kept.

The posterior precision P = I + Z' W Z is preconditioned by symmetric Gauss-Seidel steps over the
terms, (D + L) D^-1 (D + L)' with D the blocks of levels and L what is below them, which needs the
fewest steps for crossed effects (Kuendig & Sigrist 2025, 3.2). Effects that all rows share, such as
coefficients and values at points, are eliminated first: a step then takes no product with their
functions at the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.groups.design import EffectDesign, RowEffects, at_levels, effects_at
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    Estimate,
    ProbedSolution,
    probed_solution,
)
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.kernels import Kernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, PerRow, RandomKey, Scalar, Vectors

_TOLERANCE = 1e-6  # relative residual of the mean

Blocks = tuple[Float[Array, "_ _ S"], ...]


class CrossedSettings(NamedTuple):
    """How systems of effects are solved."""

    key: RandomKey  # of probe vectors, the same in every evaluation
    probes: int
    max_steps: int


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
        blocks = split(self.design, right)
        f = sum(self.function(t, block) for t, block in enumerate(blocks))
        weighted = jnp.asarray(self.precision)[:, None] * f
        return right + joined([self.sums(t, weighted) for t in range(len(blocks))])

    def function(self, term: int, effects: Float[Array, "L E S"]) -> Vectors:
        """Z_t b: what effects of a term are at the rows."""
        u = jnp.asarray(self.rows.values[term])
        if len(effects) == 1 and u.shape[1] == effects.shape[1]:
            return u @ effects[0]
        return jnp.einsum("ne,nes->ns", u, effects_at(effects, self.rows.levels[term]))

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

    def with_shared(self) -> tuple[Float[Array, "effects shared"], Float[Array, "shared shared"]]:
        """Blocks of the effects that all rows share: with those of groups, and of their own."""
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
        return joined(between), shared


class SchurComplement(LinearOperator):
    """A - B B' of the effects of groups, A their precision, once all others are eliminated."""

    groups: EffectPrecision
    through: Float[Array, "effects shared"]  # B

    @property
    def size(self) -> int:
        return self.groups.size

    @property
    def dtype(self) -> Any:
        return self.groups.dtype

    def times(self, right: Vectors) -> Vectors:
        return self.groups.times(right) - self.through @ (self.through.T @ right)


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


@stored
class CrossedEffects(eqx.Module):
    """The posterior of all effects of a latent function; covariances are means over probes.

    Those of the `known` last coefficients are exact, and of the first term given all others.
    """

    means: tuple[Float[Array, "_ _"], ...]
    one: Blocks  # columns whose products with those of the other are covariances in the mean
    other: Blocks
    own: Float[Array, "L E E"]  # covariances of effects of the first term given the others
    operator: EffectPrecision
    log_evidence: Scalar
    kl: Scalar
    evidence_error: Scalar  # standard error, in nats
    relative_residual: Float[Array, "solves"]
    code: Any  # of each solve, as of a `Solution`
    steps: Any
    known: int = eqx.field(static=True, default=0)  # the last columns, of coefficients

    @property
    def probes(self) -> int:
        """Number of probe vectors."""
        return self.one[0].shape[-1] - self.known

    def means_of(self, design: EffectDesign, rows: RowEffects) -> tuple[Float[Array, "N _"], ...]:
        """Posterior means of the effects of each row's levels, for each term."""
        each = zip(self.means, rows.levels, strict=True)
        return tuple(effects_at(jnp.asarray(mean), level) for mean, level in each)

    def covariances_of(
        self, design: EffectDesign, rows: RowEffects
    ) -> tuple[Float[Array, "N _"], ...]:
        """Covariances of the effects of each row's levels with f there, for each term."""
        (one, f_one), (other, f_other) = (_seen(b, rows) for b in (self.one, self.other))
        number = 2 * one[0].shape[2]
        total = [
            (jnp.einsum("nes,ns->ne", a, f_other) + jnp.einsum("nes,ns->ne", b, f_one)) / number
            for a, b in zip(one, other, strict=True)
        ]
        first = design.first
        if first is not None:
            inner = at_levels(jnp.asarray(self.own), rows.levels[first])
            total[first] = total[first] + jnp.einsum("nij,nj->ni", inner, rows.values[first])
        each = enumerate(zip(total, rows.values, strict=True))
        return tuple(jnp.where(rows.known(design, t), cov, u) for t, (cov, u) in each)

    def variance_errors(self, rows: RowEffects) -> PerRow:
        """Standard errors of the variances of f, by the probe vectors themselves."""
        (_, f_one), (_, f_other) = (_seen(b, rows) for b in (self.one, self.other))
        spread = jnp.var((f_one * f_other)[:, : self.probes], axis=1, ddof=1)
        spread = jnp.maximum(spread, jnp.finfo(spread.dtype).tiny)
        return jnp.sqrt(self.probes * spread) / f_one.shape[1]

    def relative_error(self, first: int | None) -> float:
        """Root mean square error of the effects' deviations, as a share of these."""
        errors, variances = 0.0, 0.0
        for t, (one, other) in enumerate(zip(self.one, self.other, strict=True)):
            pairs = np.asarray(one) * np.asarray(other)
            variance = np.mean(pairs, axis=-1)
            if t == first:
                variance = variance + np.diagonal(np.asarray(self.own), axis1=-2, axis2=-1)
            own = np.var(pairs[..., : self.probes], axis=-1, ddof=1) * self.probes
            errors += np.sum(own) / pairs.shape[-1] ** 2
            variances += np.sum(variance**2)
        return float(0.5 * np.sqrt(errors / variances))

    def between(self, design: EffectDesign, rows: RowEffects) -> Float[Array, "N N"]:
        """Posterior covariances of f between rows, by a solve each."""
        at = EffectPrecision(design, rows, jnp.ones(len(rows.levels[0])))
        unit = jnp.eye(len(rows.levels[0]), dtype=rows.values[0].dtype)
        right = joined([at.sums(t, unit) for t in range(len(rows.levels))])
        near = GaussSeidel.of(self.operator)
        solution = conjugate_gradients(
            self.operator, right, preconditioner=near, tolerance=_TOLERANCE, max_steps=1000
        )
        solution.tell("Covariances")
        return right.T @ solution.value


def _seen(blocks: Blocks, rows: RowEffects) -> tuple[list[Array], Array]:
    """Columns of the effects of each row's levels, and of f there."""
    each = zip(blocks, rows.levels, strict=True)
    own = [effects_at(jnp.asarray(block), level) for block, level in each]
    f = [jnp.einsum("ne,nes->ns", u, b) for u, b in zip(rows.values, own, strict=True)]
    return own, jnp.asarray(sum(f))


def crossed(
    design: EffectDesign,
    kernel: Kernel,
    X: Inputs,
    linear: PerRow,
    precision: PerRow,
    settings: CrossedSettings,
    *,
    means_only: bool = False,
) -> CrossedEffects:
    """The posterior of the effects given sites of f, by conjugate gradients.

    Args:
        design: of the kernel.
        kernel: of one latent function.
        X: the rows.
        linear: of the sites.
        precision: of the sites, not negative.
        settings: of the solves.
        means_only: whether covariances, the evidence and the KL are left out.
    """
    A = EffectPrecision(design, design.of(kernel, X), precision)
    right = joined([A.sums(t, linear[:, None]) for t in range(len(design.terms))])
    probes = 0 if means_only else settings.probes
    known = design.coefficients(4 * probes)
    found, near = _solved(A, right, settings, probes, known)
    mean, (log_determinant, error) = found.value[:, :1], found.log_determinant
    kl = jnp.zeros((), right.dtype)
    own = jnp.zeros((0, 0, 0), right.dtype)
    one, other = split(design, found.solved), split(design, found.preconditioned)
    if not means_only:
        if (first := design.first) is not None:
            own = jax.vmap(Factor.inverse_of_product)(near[first])
            one, other = (_given_others(A, first, own, blocks) for blocks in (one, other))
        products = sum(jnp.mean(jnp.sum(a * b, (0, 1))) for a, b in zip(one, other, strict=True))
        trace = products + jnp.sum(jnp.trace(own, axis1=1, axis2=2))
        kl = 0.5 * (trace + jnp.sum(mean**2) - A.size + log_determinant)
    return CrossedEffects(
        means=tuple(block[:, :, 0] for block in split(design, mean)),
        one=one,
        other=other,
        own=own,
        operator=A,
        log_evidence=found.gain - 0.5 * log_determinant,
        kl=kl,
        evidence_error=0.5 * error,
        relative_residual=found.solution.relative_residual,
        code=found.solution.code,
        steps=found.solution.steps,
        known=known,
    )


def _solved(
    A: EffectPrecision, right: Vectors, settings: CrossedSettings, probes: int, coefficients: int
) -> tuple[ProbedSolution, dict[int, Factor]]:
    """P^-1 b, pairs of columns whose products are P^-1 in the mean, factors of blocks.

    With C C' the block of the shared effects and A_gs that with the others, B = A_gs C^-T, they are
    C^-T u, u = C^-1 b_s - B' x_g given those of groups, x_g, which the Schur complement S is solved
    for. Coefficients are the last of u. The block of these, (I + B' S^-1 B)_ff = R R', is known by
    a solve each, and so is all that they tell of the others, V R^-T R^-1 V' with V = P^-1 C_f. Of
    the pairs, what is left of the effects once V R^-T R^-1 u_f is taken off.
    """
    design, how = A.design, {"tolerance": _TOLERANCE, "max_steps": settings.max_steps}
    others = design.outside(design.shared)
    groups = A.of_terms(others)
    near = GaussSeidel.of(groups)
    factors = dict(zip(others, near.factors, strict=True))
    if not design.shared:
        return probed_solution(A, near, right, settings.key, probes, **how), factors
    between, block = A.with_shared()
    C, pieces = cholesky(block), split(design, right)
    through = between @ C.inverse.T
    last = slice(len(block) - coefficients, None)
    known = joined([pieces[t] for t in design.shared])
    known = jnp.concatenate(
        [C.inverse @ known, jnp.eye(len(block), dtype=known.dtype)[:, last]], axis=1
    )
    left = joined([pieces[t] for t in others])
    left = jnp.pad(left, ((0, 0), (0, coefficients))) - through @ known
    found = probed_solution(
        SchurComplement(groups, through), near, left, settings.key, probes, **how
    )

    def whole(of_groups: Float[Array, "effects S"], white: Float[Array, "shared S"]) -> Vectors:
        shared = C.inverse.T @ white
        sizes = np.cumsum([design.terms[t].size for t in design.shared])[:-1]
        each = dict(zip(design.shared, jnp.split(shared, sizes.tolist()), strict=True))
        own = split(groups.design, of_groups)
        each |= {t: joined([b]) for t, b in zip(others, own, strict=True)}
        return jnp.concatenate([each[t] for t in range(len(design.terms))])

    white = known - through.T @ found.value
    value = whole(found.value, white)
    R = cholesky(0.5 * (white[last, 1:] + white[last, 1:].T))
    told = value[:, 1:] @ R.inverse.T

    def pairs(of_groups: Float[Array, "effects S"]) -> Vectors:
        white = signs - through.T @ of_groups
        return whole(of_groups, white) - told @ (R.inverse @ white[last])

    key = jax.random.fold_in(settings.key, 1)
    signs = jax.random.rademacher(key, (len(block), probes), right.dtype)
    log_determinant, error = found.log_determinant
    columns = probes + coefficients
    share, exactly = columns / max(1, probes), told * np.sqrt(columns)
    found = found._replace(
        value=value[:, :1],
        gain=found.gain + 0.5 * jnp.sum(known[:, 0] ** 2),
        log_determinant=Estimate(log_determinant + 2 * C.half_log_determinant, error),
        solved=jnp.concatenate([share * pairs(found.solved), exactly], axis=1),
        preconditioned=jnp.concatenate([pairs(found.preconditioned), exactly], axis=1),
    )
    return found, factors


def _given_others(
    A: EffectPrecision, first: int, own: Float[Array, "L E E"], blocks: Blocks
) -> Blocks:
    """The same with effects of the first term as all others have them in the mean."""
    f = sum(A.function(t, block) for t, block in enumerate(blocks) if t != first)
    f = jnp.zeros((len(A.precision), blocks[0].shape[2]), blocks[0].dtype) + f
    mean = -jnp.einsum("lij,ljs->lis", own, A.sums(first, A.precision[:, None] * f))
    return tuple(mean if t == first else block for t, block in enumerate(blocks))


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
