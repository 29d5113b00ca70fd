"""Gaussian posteriors of crossed effects by conjugate gradients: O(N) a product, no matrix kept.

The posterior precision P = I + Z' W Z is preconditioned by symmetric Gauss-Seidel steps over the
terms, (D + L) D^-1 (D + L)' with D the blocks of levels and L what is below them, which needs the
fewest steps for crossed effects (Kuendig & Sigrist 2025, 3.2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.groups.design import EffectDesign, RowEffects, at_levels
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    mean_of,
    quadrature,
    recorded_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.solution import Solution
from latentgp.kernels import Kernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.typing import Array, Inputs, PerRow, RandomKey, Scalar, Vectors

_TOLERANCE, _PROBES_TOLERANCE = 1e-6, 1e-2  # relative residuals of the mean, and of probes
_RECORDED = 64  # steps, of which quadrature knows

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
        if len(effects) == 1:
            return u @ effects[0]
        return jnp.einsum("ne,nes->ns", u, at_levels(effects, self.rows.levels[term]))

    def sums(self, term: int, values: Vectors) -> Float[Array, "L E S"]:
        """Z_t' values: sums over the rows of each level."""
        own, u = self.design.terms[term], jnp.asarray(self.rows.values[term])
        if own.levels == 1:
            return (u.T @ values)[None]
        each = u[:, :, None] * values[:, None]
        nothing = jnp.zeros((own.levels, own.width, values.shape[1]), values.dtype)
        return nothing.at[jnp.asarray(self.rows.levels[term])].add(each, mode="drop")

    def blocks(self, term: int) -> Float[Array, "L E E"]:
        """The block of each level of a term."""
        u = jnp.asarray(self.rows.values[term])
        unit = jnp.eye(u.shape[1], dtype=u.dtype)
        return unit + self.sums(term, jnp.asarray(self.precision)[:, None] * u)


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

    Of the first term, which has most effects, the covariance given all others is exact.
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

    def means_of(self, design: EffectDesign, rows: RowEffects) -> tuple[Float[Array, "N _"], ...]:
        """Posterior means of the effects of each row's levels, for each term."""
        each = zip(self.means, rows.levels, strict=True)
        return tuple(at_levels(jnp.asarray(mean), level) for mean, level in each)

    def covariances_of(
        self, design: EffectDesign, rows: RowEffects
    ) -> tuple[Float[Array, "N _"], ...]:
        """Covariances of the effects of each row's levels with f there, for each term."""
        one, other = (
            [at_levels(jnp.asarray(b), level) for b, level in zip(blocks, rows.levels, strict=True)]
            for blocks in (self.one, self.other)
        )
        f_one, f_other = (
            sum(jnp.einsum("ne,nes->ns", u, b) for u, b in zip(rows.values, blocks, strict=True))
            for blocks in (one, other)
        )
        number = 2 * one[0].shape[2]
        total = [
            (jnp.einsum("nes,ns->ne", a, f_other) + jnp.einsum("nes,ns->ne", b, f_one)) / number
            for a, b in zip(one, other, strict=True)
        ]
        first = design.first
        inner = at_levels(jnp.asarray(self.own), rows.levels[first])
        total[first] = total[first] + jnp.einsum("nij,nj->ni", inner, rows.values[first])
        return tuple(
            jnp.where((level < term.levels)[:, None], cov, u)
            for cov, level, term, u in zip(
                total, rows.levels, design.terms, rows.values, strict=True
            )
        )

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
    rows = design.of(kernel, X)
    A = EffectPrecision(design, rows, precision)
    near = GaussSeidel.of(A)
    right = joined([A.sums(t, linear[:, None]) for t in range(len(design.terms))])
    probes = 0 if means_only else settings.probes
    signs = jax.random.rademacher(settings.key, (A.size, probes), right.dtype)
    z = near.times_root(signs)
    every = jnp.concatenate([right, z], axis=1)
    tolerance = jnp.array([_TOLERANCE] + [_PROBES_TOLERANCE] * probes)
    most = settings.max_steps
    recorded = recorded_conjugate_gradients(A, every, near, tolerance, most, min(most, _RECORDED))
    solution: Solution = recorded.solution
    mean, solved = solution.value[:, :1], solution.value[:, 1:]
    # whose error is at most the squared norm of the residual
    gain = jnp.sum(mean * right) - 0.5 * jnp.sum(mean * A.times(mean))
    zero = jnp.zeros((), right.dtype)
    log_determinant, error, kl = near.log_determinant(), zero, zero
    first = design.first
    own = near.factors[first].inverse
    own = jnp.einsum("lji,ljk->lik", own, own)
    one, other = split(design, solved), split(design, near.solve(z))
    if not means_only:
        estimate = mean_of(log_determinant + quadrature(recorded, slice(1, None)))
        log_determinant, error = estimate.value, 0.5 * estimate.standard_error
        one, other = (_given_others(A, first, own, blocks) for blocks in (one, other))
        products = sum(jnp.sum(a * b) for a, b in zip(one, other, strict=True)) / probes
        trace = products + jnp.sum(jnp.trace(own, axis1=1, axis2=2))
        kl = 0.5 * (trace + jnp.sum(mean**2) - A.size + log_determinant)
    return CrossedEffects(
        means=tuple(block[:, :, 0] for block in split(design, mean)),
        one=one,
        other=other,
        own=own,
        operator=A,
        log_evidence=gain - 0.5 * log_determinant,
        kl=kl,
        evidence_error=error,
        relative_residual=solution.relative_residual,
        code=solution.code,
        steps=solution.steps,
    )


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
