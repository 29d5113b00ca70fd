"""Gaussian posteriors of crossed effects by conjugate gradients: O(N) a product, no matrix kept.

The posterior precision P = I + Z' W Z is preconditioned by symmetric Gauss-Seidel steps over the
terms, (D + L) D^-1 (D + L)' with D the blocks of levels and L what is below them, which needs the
fewest steps for crossed effects (Kuendig & Sigrist 2025, 3.2). Effects of the grouping with most of
them, and those that all rows share, such as coefficients and values at points, are eliminated
first: a step has no vectors of the former, and no product with functions of the latter at the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.groups.design import EffectDesign, RowEffects, at_levels, effects_at
from latentgp.extensions.groups.open_variance import given_effects, open_variance
from latentgp.extensions.groups.precision import (
    Blocks,
    EffectPrecision,
    GaussSeidel,
    LevelBlocks,
    SchurComplement,
    function_of,
    joined,
    split,
)
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    Estimate,
    ProbedSolution,
    probed_solution,
)
from latentgp.kernels import Kernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import cholesky
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, PerRow, RandomKey, Scalar, Vectors

_TOLERANCE = 1e-6  # relative residual of the mean


class CrossedSettings(NamedTuple):
    """How systems of effects are solved."""

    key: RandomKey  # of probe vectors, the same in every evaluation
    probes: int
    max_steps: int


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

    @property
    def all_means(self) -> tuple[Any, ...]:
        """Posterior means of all effects."""
        return self.means

    def means_of(self, design: EffectDesign, rows: RowEffects) -> tuple[Float[Array, "N _"], ...]:
        """Posterior means of the effects of each row's levels, for each term."""
        each = zip(self.means, rows.levels, strict=True)
        return tuple(effects_at(jnp.asarray(mean), level) for mean, level in each)

    def covariances_of(
        self, design: EffectDesign, rows: RowEffects
    ) -> tuple[Float[Array, "N _"], ...]:
        """Covariances of the effects of each row's levels with f there; zeros of means alone."""
        if not self.one[0].shape[-1]:
            return tuple(jnp.zeros_like(values) for values in rows.values)
        f_one, f_other = (_function(b, rows) for b in (self.one, self.other))
        each = zip(self.one, self.other, rows.levels, strict=True)
        total = [
            (_met(a, level, f_other) + _met(b, level, f_one)) / (2 * f_one.shape[1])
            for a, b, level in each
        ]
        first = design.first
        if first is not None:
            inner = at_levels(jnp.asarray(self.own), rows.levels[first])
            total[first] = total[first] + jnp.einsum("nij,nj->ni", inner, rows.values[first])
        each = enumerate(zip(total, rows.values, strict=True))
        return tuple(jnp.where(rows.known(design, t), cov, u) for t, (cov, u) in each)

    def variance_errors(self, rows: RowEffects) -> PerRow:
        """Standard errors of the variances of f, by the probe vectors themselves."""
        f_one, f_other = (_function(b, rows) for b in (self.one, self.other))
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


def _function(blocks: Blocks, rows: RowEffects) -> Vectors:
    """Columns of f at rows."""
    return jnp.asarray(sum(map(function_of, blocks, *rows)))


def _met(block: Float[Array, "L E S"], levels: Int[Array, "N ..."], f: Vectors) -> Array:
    """Sums over columns of products of the effects of each row's levels with f there."""
    if len(block) == 1 and levels.ndim == 1:
        return f @ jnp.asarray(block)[0].T
    return jnp.einsum("nes,ns->ne", effects_at(block, levels), f)


def crossed(
    design: EffectDesign,
    kernel: Kernel,
    X: Inputs,
    linear: PerRow,
    precision: PerRow,
    settings: CrossedSettings,
    *,
    power: float = 0.0,
    means_only: bool = False,
) -> tuple[CrossedEffects, PerRow]:
    """The posterior of the effects given sites of f, by conjugate gradients.

    With it comes the prior variance of f at each row that they leave open.

    Args:
        design: of the kernel.
        kernel: of one latent function.
        X: the rows.
        linear: of the sites.
        precision: of the sites, not negative.
        settings: of the solves.
        power: of what they leave open, as in `given_effects`.
        means_only: whether covariances, the evidence and the KL are left out.
    """
    rows = design.of(kernel, X)
    open_at_rows = open_variance(design, kernel, X, rows.values)
    linear, precision, _ = given_effects(linear, precision, open_at_rows, power)
    A = EffectPrecision(design, rows, precision)
    right = A.all_sums(linear[:, None])
    probes = 0 if means_only else settings.probes
    known = design.coefficients(4 * probes)
    levels = None if design.first is None else LevelBlocks.of(A, design.first)
    found = _solved(A, levels, right, settings, probes, known)
    log_determinant, error = found.log_determinant
    kl = jnp.zeros((), right.dtype)
    own = jnp.zeros((0, 0, 0), right.dtype)
    mean, one, other = (
        split(design, part) for part in (found.value[:, :1], found.solved, found.preconditioned)
    )
    if levels is not None:
        mean = _given_others(levels, mean, split(design, right)[levels.term])
    if not means_only:
        if levels is not None:
            own = levels.inverse
            one, other = (_given_others(levels, blocks) for blocks in (one, other))
        products = sum(jnp.mean(jnp.sum(a * b, (0, 1))) for a, b in zip(one, other, strict=True))
        trace = products + jnp.sum(jnp.trace(own, axis1=1, axis2=2))
        squares = sum(jnp.sum(block**2) for block in mean)
        kl = 0.5 * (trace + squares - A.size + log_determinant)
    effects = CrossedEffects(
        means=tuple(block[:, :, 0] for block in mean),
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
    return effects, open_at_rows


def _solved(
    A: EffectPrecision,
    levels: LevelBlocks | None,
    right: Vectors,
    settings: CrossedSettings,
    probes: int,
    coefficients: int,
) -> ProbedSolution:
    """P^-1 b, and pairs of columns whose products are P^-1 in the mean; zeros of eliminated levels.

    Effects of one of several groupings are eliminated by its `levels`; what follows is of the
    others, given which they are known. With C C' the block of the shared effects and A_gs that
    with the others, B = A_gs C^-T, they are C^-T u, u = C^-1 b_s - B' x_g given those of groups,
    x_g, which the Schur complement S is solved for. Coefficients are the last of u. The block of
    these, (I + B' S^-1 B)_ff = R R', is known by a solve each, and so is all that they tell of the
    others, V R^-T R^-1 V' with V = P^-1 C_f. Of the pairs, what is left of the effects once
    V R^-T R^-1 u_f is taken off.
    """
    design, how = A.design, {"tolerance": _TOLERANCE, "max_steps": settings.max_steps}
    levels = levels if len(design.outside(design.shared)) > 1 else None
    eliminated = () if levels is None else (levels.term,)
    others = design.outside((*design.shared, *eliminated))
    groups, pieces = A.of_terms(others), split(design, right)
    near = GaussSeidel.of(groups)
    left, gain = joined([pieces[t] for t in others]), jnp.zeros((), right.dtype)
    log_determinant = jnp.zeros((), right.dtype)
    if levels is not None:
        own = levels.solve(pieces[levels.term])
        gain = 0.5 * jnp.sum(own * pieces[levels.term])
        log_determinant = levels.log_determinant
        left = left - groups.all_sums(A.weighted(A.function(levels.term, own)))

    def whole(
        of_groups: Float[Array, "groups S"], shared: Float[Array, "shared S"] | None = None
    ) -> Float[Array, "effects S"]:
        columns = of_groups.shape[1]
        each = {t: jnp.zeros((design.terms[t].size, columns), right.dtype) for t in eliminated}
        each |= {
            t: joined([b]) for t, b in zip(others, split(groups.design, of_groups), strict=True)
        }
        if shared is not None:
            sizes = np.cumsum([design.terms[t].size for t in design.shared])[:-1]
            each |= zip(design.shared, jnp.split(shared, sizes.tolist()), strict=True)
        return jnp.concatenate([each[t] for t in range(len(design.terms))])

    if not design.shared:
        S = SchurComplement(groups, levels, None)
        found = probed_solution(S, near, left, settings.key, probes, **how)
        value, *both = map(whole, (found.value, found.solved, found.preconditioned))
    else:
        between, block = A.with_shared()
        through = joined([between[t] for t in others])
        known = joined([pieces[t] for t in design.shared])
        if levels is not None:
            on = levels.solve(between[levels.term])
            block = block - jnp.tensordot(between[levels.term], on, ((0, 1), (0, 1)))
            known = known - jnp.tensordot(on, pieces[levels.term], ((0, 1), (0, 1)))
            through = through - _through(A, others, levels.term, on)
        C = cholesky(block)
        through = through @ C.inverse.T
        last = slice(len(block) - coefficients, None)
        unit = jnp.eye(len(block), dtype=known.dtype)[:, last]
        known = jnp.concatenate([C.inverse @ known, unit], axis=1)
        left = jnp.pad(left, ((0, 0), (0, coefficients))) - through @ known
        S = SchurComplement(groups, levels, through)
        found = probed_solution(S, near, left, settings.key, probes, **how)
        white = known - through.T @ found.value
        value = whole(found.value, C.inverse.T @ white)
        R = cholesky(0.5 * (white[last, 1:] + white[last, 1:].T))
        told = value[:, 1:] @ R.inverse.T

        def pairs(of_groups: Float[Array, "effects S"]) -> Vectors:
            white = signs - through.T @ of_groups
            return whole(of_groups, C.inverse.T @ white) - told @ (R.inverse @ white[last])

        key = jax.random.fold_in(settings.key, 1)
        signs = jax.random.rademacher(key, (len(block), probes), right.dtype)
        columns = probes + coefficients
        share, exactly = columns / max(1, probes), told * np.sqrt(columns)
        both = [
            jnp.concatenate([share * pairs(found.solved), exactly], axis=1),
            jnp.concatenate([pairs(found.preconditioned), exactly], axis=1),
        ]
        gain = gain + 0.5 * jnp.sum(known[:, 0] ** 2)
        log_determinant = log_determinant + 2 * C.half_log_determinant
    of_groups, error = found.log_determinant
    return found._replace(
        value=value[:, :1],
        gain=found.gain + gain,
        log_determinant=Estimate(of_groups + log_determinant, error),
        solved=both[0],
        preconditioned=both[1],
    )


def _through(
    A: EffectPrecision, others: tuple[int, ...], term: int, effects: Float[Array, "L E S"]
) -> Vectors:
    """The block of P between other terms and one of groups, times effects of that."""
    terms = [A.design.terms[t] for t in others]
    start = [jnp.zeros((t.levels, t.width, effects.shape[2]), effects.dtype) for t in terms]

    def step(total: Any, chunk: Any, real: Array) -> tuple[Any, None]:
        own = EffectPrecision(A.design, RowEffects(*chunk[:2]), jnp.where(real, chunk[2], 0.0))
        f = own.weighted(own.function(term, effects))
        return [own.sums(t, f, onto) for onto, t in zip(total, others, strict=True)], None

    columns = 3 * effects.shape[2] * max(t.row_width for t in A.design.terms)
    return joined(scan_rows(step, start, (*A.rows, A.precision), columns=columns)[0])


def _given_others(
    levels: LevelBlocks, blocks: Blocks, right: Float[Array, "L E S"] | float = 0.0
) -> Blocks:
    """The same with effects of a grouping as all others have them in the mean."""
    A, first = levels.operator, levels.term
    f = jnp.zeros((len(A.precision), blocks[0].shape[2]), blocks[0].dtype)
    f = f + sum(A.function(t, block) for t, block in enumerate(blocks) if t != first)
    own = levels.given(f, right)
    return tuple(own if t == first else block for t, block in enumerate(blocks))
