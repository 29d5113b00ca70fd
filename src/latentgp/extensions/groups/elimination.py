"""Gaussian posteriors of effects by elimination: exact, level by level along a chain of groups.

With z_n the functions of row n, effects that are N(0, I) a priori have the posterior precision
P = I + sum_n w_n z_n z_n'. Effects of one term at different levels meet in no row, so that their
block of P is block-diagonal; once they are eliminated, so is that of a term they are within.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Float, Int

from latentgp.extensions.groups.design import EffectDesign, RowEffects, at_levels
from latentgp.extensions.groups.open_variance import given_effects, open_variance
from latentgp.kernels import Kernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import cholesky, lower_cholesky
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, PerRow, Scalar


@stored
class ChainEffects(NamedTuple):
    """Effects b of one term of the chain, in terms of those that are left and of coarser ones.

    b = mean + through (b_left - mean_left) + sum_c T_c e_c, with independent e_c of covariance
    `inner` of a coarser term's level, and of the own one, for which T is one.
    """

    mean: Float[Array, "L E"]
    inner: Float[Array, "L E E"]
    through: Float[Array, "L E left"]
    # through times the covariance of what is left; empty where the design is sparse
    turned: Float[Array, "_ _ left"]
    own: Float[Array, "L E E"]  # through times that times through'
    paths: tuple[Float[Array, "_ _ _"], ...]  # T of each coarser term


@stored
class EliminatedEffects(eqx.Module):
    """The posterior of all effects of a latent function."""

    chain: tuple[ChainEffects, ...]
    mean: Float[Array, "left"]  # of the effects that are left
    covariance: Float[Array, "_ _"]  # of these; none of means alone
    log_evidence: Scalar
    kl: Scalar

    @property
    def all_means(self) -> tuple[Any, ...]:
        """Posterior means of all effects."""
        return (*(own.mean for own in self.chain), self.mean)

    @property
    def has_means_alone(self) -> bool:
        """Whether covariances were left out."""
        return not (self.covariance.size or any(own.inner.size for own in self.chain))

    def means_of(self, design: EffectDesign, rows: RowEffects) -> tuple[Float[Array, "N _"], ...]:
        """Posterior means of the effects of each row's levels, for each term."""
        own = zip(design.chain, self.chain, strict=True)
        found = {t: at_levels(effects.mean, rows.levels[t]) for t, effects in own}
        for t in design.others:
            found[t] = at_levels(self.mean, rows.columns(design, t))
        return tuple(found[t] for t in range(len(design.terms)))

    @property
    def row_width(self) -> int:
        """Numbers that covariances of a row need, beside those of its design."""
        several = (own.through for own in self.chain if not own.turned.size)
        return sum(2 * through.shape[-2] * through.shape[-1] for through in several)

    def of_fitted_rows(self, design: EffectDesign) -> EliminatedEffects:
        """The same, whose covariances are those of rows that the design was made of alone.

        Where the design is sparse, these take a hundredth of the time.
        """
        if design.incidence is None or self.has_means_alone:
            return self
        (own,) = self.chain
        turned = design.incidence.times(own.through, self.covariance)
        return eqx.tree_at(lambda found: found.chain[0].turned, self, turned)

    def covariances_of(
        self, design: EffectDesign, rows: RowEffects
    ) -> tuple[Float[Array, "N _"], ...]:
        """Covariances of the effects of each row's levels with f there, for each term.

        Their products with the functions add up to the variance of f. Of a level without data they
        are those of the prior. Where there are means alone they are zero.
        """
        if self.has_means_alone:
            return tuple(jnp.zeros_like(values) for values in rows.values)
        return _row_covariances(self, design, rows)

    def variance_errors(self, rows: RowEffects) -> Float[Array, ""]:
        """Standard errors of the variances of f: none, as these are no estimates."""
        return jnp.zeros((), rows.values[0].dtype)

    def between(self, design: EffectDesign, rows: RowEffects) -> Float[Array, "N N"]:
        """Posterior covariances of f between rows, those of levels without data left out."""
        return _between_rows(self, design, rows)


class _Information(NamedTuple):
    """Sums over rows: blocks of P and of what it is solved with, those of the prior included."""

    own: tuple[Float[Array, "_ _ _"], ...]
    outer: tuple[tuple[Float[Array, "_ _ _"], ...], ...]  # with each coarser term's own level
    left: tuple[Float[Array, "_ _ left"], ...]
    right: tuple[Float[Array, "_ _"], ...]
    rest: Float[Array, "left left"]
    rest_right: Float[Array, "left"]


class _Elimination(NamedTuple):
    """What elimination leaves behind of each term of the chain, and of the rest."""

    inverses: list[Float[Array, "_ _ _"]]  # of the own blocks, once finer terms are eliminated
    on_outer: list[list[Float[Array, "_ _ _"]]]  # regression on each coarser term's level
    on_left: list[Float[Array, "_ _ left"]]
    solved: list[Float[Array, "_ _"]]
    rest: Float[Array, "left left"]  # lower factor of what is left
    mean: Float[Array, "left"]
    gain: Scalar  # of the solution with what it is solved for
    log_determinant: Scalar  # of P


def eliminated(
    design: EffectDesign,
    kernel: Kernel,
    X: Inputs,
    linear: PerRow,
    precision: PerRow,
    *,
    power: float = 0.0,
    means_only: bool = False,
) -> tuple[EliminatedEffects, PerRow]:
    """The posterior of the effects given sites of f: O(N) and O(L left^2 + left^3) algebra.

    With it comes the prior variance of f at each row that they leave open.

    Args:
        design: of the kernel.
        kernel: of one latent function.
        X: the rows.
        linear: of the sites.
        precision: of the sites, not negative.
        power: of what they leave open, as in `given_effects`.
        means_only: whether covariances, and the KL, are left out.
    """
    info, open_at_rows = _information(design, kernel, X, linear, precision, power)
    factors = _factors(design, info)
    dtype, mean = linear.dtype, factors.mean
    values = _means(design, factors)
    log_evidence = 0.5 * (factors.gain - factors.log_determinant)
    if means_only:
        no = jnp.zeros((0, 0, 0), dtype)
        means = tuple(ChainEffects(value, no, no, no, no, ()) for value in values)
        none = jnp.zeros((0, 0), dtype), log_evidence, jnp.zeros((), dtype)
        return EliminatedEffects(means, mean, *none), open_at_rows
    covariance = cho_solve((factors.rest, True), jnp.eye(design.left, dtype=dtype))
    chain = _chain(design, factors, values, covariance)
    trace, squares = jnp.trace(covariance), jnp.sum(mean**2)
    for k, effects in enumerate(chain):
        squares = squares + jnp.sum(effects.mean**2)
        trace = trace + _trace(effects.own) + _trace(effects.inner)
        for c, place in enumerate(_within(design, k)):
            path, inner = effects.paths[c], chain[k + 1 + c].inner[place]
            trace = trace + jnp.einsum("lia,lab,lib->", path, inner, path)
    kl = 0.5 * (trace + squares - design.number + factors.log_determinant)
    return EliminatedEffects(tuple(chain), mean, covariance, log_evidence, kl), open_at_rows


def _factors(design: EffectDesign, info: _Information) -> _Elimination:
    """Elimination along the chain, the finest term first."""
    own, outer, left, right = (list(map(_as_list, part)) for part in info[:4])
    rest, rest_right = info.rest, info.rest_right
    gain, log_determinant = jnp.zeros((), rest.dtype), jnp.zeros((), rest.dtype)
    found = _Elimination([], [], [], [], rest, rest_right, gain, log_determinant)
    for k in range(len(own)):
        inverse, more = inverses_of(own[k])
        log_determinant = log_determinant + more
        v = jnp.einsum("lij,lj->li", inverse, right[k])
        on_outer = [jnp.einsum("lij,lja->lia", inverse, block) for block in outer[k]]
        on_left = jnp.einsum("lij,ljp->lip", inverse, left[k])
        gain = gain + jnp.sum(v * right[k])
        if design.incidence is None:
            rest = rest - jnp.tensordot(left[k], on_left, ((0, 1), (0, 1)))
        else:
            rest = rest - design.incidence.product(left[k], on_left)
        rest_right = rest_right - jnp.tensordot(v, left[k], ((0, 1), (0, 1)))
        for c, (block, parents) in enumerate(zip(outer[k], _within(design, k), strict=True)):
            place = k + 1 + c

            def less(total: Array, much: Array, parents: Array = parents) -> Array:
                return total.at[parents].add(-much)

            own[place] = less(own[place], jnp.einsum("lia,lib->lab", block, on_outer[c]))
            left[place] = less(left[place], jnp.einsum("lia,lip->lap", block, on_left))
            right[place] = less(right[place], jnp.einsum("lia,li->la", block, v))
            for d in range(c + 1, len(outer[k])):
                much = jnp.einsum("lia,lib->lab", block, on_outer[d])
                outer[place][d - c - 1] = less(outer[place][d - c - 1], much)
        found.inverses.append(inverse)
        found.on_outer.append(on_outer)
        found.on_left.append(on_left)
        found.solved.append(v)
    factor = lower_cholesky(rest)
    mean = cho_solve((factor, True), rest_right)
    log_determinant = log_determinant + 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    gain = gain + mean @ rest_right
    return _Elimination(*found[:4], factor, mean, gain, log_determinant)


def _means(design: EffectDesign, factors: _Elimination) -> list[Float[Array, "_ _"]]:
    """Posterior means of the effects of the chain, the coarsest term's first solved for."""
    values: list[Float[Array, "_ _"]] = []
    for k in reversed(range(len(design.chain))):
        value = factors.solved[k] - factors.on_left[k] @ factors.mean
        each = zip(factors.on_outer[k], _within(design, k), values[::-1], strict=True)
        for block, place, outer in each:
            value = value - jnp.einsum("lia,la->li", block, outer[place])
        values.append(value)
    return values[::-1]


def _chain(
    design: EffectDesign,
    factors: _Elimination,
    values: list[Float[Array, "_ _"]],
    covariance: Float[Array, "left left"],
) -> list[ChainEffects]:
    """The effects of the chain, likewise."""
    chain: list[ChainEffects] = []
    for k in reversed(range(len(values))):
        parents, later, paths = _within(design, k), chain[::-1], list[Array]()
        through = -factors.on_left[k]
        for c, (block, place) in enumerate(zip(factors.on_outer[k], parents, strict=True)):
            through = through - jnp.einsum("lia,lap->lip", block, later[c].through[place])
            path = -block
            for d in range(c):
                coarser = later[d].paths[c - d - 1][parents[d]]
                path = path - jnp.einsum("lia,lab->lib", factors.on_outer[k][d], coarser)
            paths.append(path)
        if design.incidence is None:
            turned = kept = through @ covariance
        else:
            turned = design.incidence.times(through, covariance)
            kept = jnp.zeros((0, 0, 0), turned.dtype)
        inside = jnp.einsum("lip,ljp->lij", turned, through)
        own = values[k], factors.inverses[k], through, kept, inside
        chain.append(ChainEffects(*own, tuple(paths)))
    return chain[::-1]


def _row_covariances(
    found: EliminatedEffects, design: EffectDesign, rows: RowEffects
) -> tuple[Float[Array, "N _"], ...]:
    values = rows.values
    columns = {t: rows.columns(design, t) for t in design.others}
    total = [jnp.where(rows.known(design, t), 0.0, own) for t, own in enumerate(values)]
    for t in design.others:
        for s in design.others:
            total[t] = total[t] + _rest_times(found.covariance, design, columns, t, s, values[s])
    chain = found.chain
    for k, t in enumerate(design.chain):
        level = rows.levels[t]
        own = at_levels(chain[k].own, level)
        total[t] = total[t] + jnp.einsum("nij,nj->ni", own, values[t])
        for s in design.others:
            block = _turned_block(found, design, k, level, s, columns[s])
            total[t] = total[t] + jnp.einsum("nij,nj->ni", block, values[s])
            total[s] = total[s] + jnp.einsum("nij,ni->nj", block, values[t])
        for m in range(k + 1, len(chain)):
            s = design.chain[m]
            turned, through = (
                at_levels(chain[k].turned, level),
                at_levels(chain[m].through, rows.levels[s]),
            )
            block = jnp.einsum("nip,njp->nij", turned, through)
            total[t] = total[t] + jnp.einsum("nij,nj->ni", block, values[s])
            total[s] = total[s] + jnp.einsum("nij,ni->nj", block, values[t])
    for c in range(len(chain)):
        along = [_along(found, design, rows, k, c) for k in range(c + 1)]
        inner = chain[c].inner
        for k, (place, path, _) in enumerate(along):
            met = sum(
                jnp.where((other == place)[:, None], vector, 0.0) for other, _, vector in along
            )
            spread = jnp.einsum("nab,nb->na", at_levels(inner, place), met)
            t = design.chain[k]
            total[t] = total[t] + jnp.einsum("nia,na->ni", path, spread)
    return tuple(total)


def _turned_block(
    found: EliminatedEffects,
    design: EffectDesign,
    k: int,
    level: Int[Array, "N"],
    s: int,
    columns: Int[Array, "N E"],
) -> Float[Array, "N _ E"]:
    """Of a row's level of term k of the chain and its effects of another term."""
    turned = found.chain[k].turned
    if turned.size:
        each = jnp.arange(turned.shape[1])[None, :, None]
        return at_levels(turned, (level[:, None, None], each, columns[:, None, :]))
    through = at_levels(found.chain[k].through, level)
    if design.is_shared(s):
        return through @ found.covariance[:, _span(design, s)]
    return jnp.einsum("nip,njp->nij", through, at_levels(found.covariance, columns))


def _between_rows(
    found: EliminatedEffects, design: EffectDesign, rows: RowEffects
) -> Float[Array, "N N"]:
    size = len(rows.levels[0])
    left = jnp.zeros((size, design.left), rows.values[0].dtype)
    for t in design.others:
        columns = rows.columns(design, t)
        left = left.at[jnp.arange(size)[:, None], columns].add(rows.values[t], mode="drop")
    chain = found.chain
    for k, t in enumerate(design.chain):
        through = at_levels(chain[k].through, rows.levels[t])
        left = left + jnp.einsum("nip,ni->np", through, rows.values[t])
    total = left @ found.covariance @ left.T
    for c in range(len(chain)):
        along = [_along(found, design, rows, k, c) for k in range(c + 1)]
        for place, _, own in along:
            spread = jnp.einsum("nab,nb->na", at_levels(chain[c].inner, place), own)
            for other, _, vector in along:
                total = total + (place[:, None] == other) * (spread @ vector.T)
    return total


def _along(
    found: EliminatedEffects, design: EffectDesign, rows: RowEffects, k: int, c: int
) -> tuple[Array, Float[Array, "N E outer"], Float[Array, "N outer"]]:
    """How effects of a row's level of term k move with the own part of term c, c >= k.

    The level of term c that it is within, the factors, and these times the functions.
    """
    level, values = rows.levels[design.chain[k]], rows.values[design.chain[k]]
    if k == c:
        seen = level < design.terms[design.chain[k]].levels
        path = jnp.where(seen[:, None, None], jnp.eye(values.shape[1], dtype=values.dtype), 0.0)
        return level, path, jnp.where(seen[:, None], values, 0.0)
    parents = _within(design, k)[c - k - 1]
    place = parents.at[level].get(mode="fill", fill_value=design.terms[design.chain[c]].levels)
    path = at_levels(found.chain[k].paths[c - k - 1], level)
    return place, path, jnp.einsum("nia,ni->na", path, values)


def _rest_times(
    covariance: Float[Array, "left left"],
    design: EffectDesign,
    columns: dict[int, Array],
    t: int,
    s: int,
    values: Float[Array, "N E"],
) -> Float[Array, "N _"]:
    """The block of the covariance of what is left for the levels of two terms, times columns."""
    if all(design.is_shared(own) for own in (t, s)):
        first, second = (_span(design, own) for own in (t, s))
        return values @ covariance[first, second].T
    block = at_levels(covariance, (columns[t][:, :, None], columns[s][:, None, :]))
    return jnp.einsum("nij,nj->ni", block, values)


def _span(design: EffectDesign, term: int) -> slice:
    own = design.terms[term]
    return slice(design.offsets[term], design.offsets[term] + own.size)


def _information(
    design: EffectDesign,
    kernel: Kernel,
    X: Inputs,
    linear: PerRow,
    precision: PerRow,
    power: float,
) -> tuple[_Information, PerRow]:
    """Sums over rows, and the prior variance that effects leave open at each."""
    terms, dtype = design.terms, linear.dtype
    chain = [terms[t] for t in design.chain]

    def step(info: _Information, rows: Any, real: Array) -> tuple[_Information, PerRow]:
        x, s, w = rows
        s, w = jnp.where(real, s, 0.0), jnp.where(real, w, 0.0)

        def added(info: _Information) -> tuple[_Information, PerRow]:
            own = design.of(kernel, x)
            left = open_variance(design, kernel, x, own.values)
            return _with_rows(design, info, own, *given_effects(s, w, left, power)[:2]), left

        def passed_over(info: _Information) -> tuple[_Information, PerRow]:
            return info, jnp.zeros_like(s)

        return jax.lax.cond(jnp.any((s != 0) | (w != 0)), added, passed_over, info)

    start = _Information(
        tuple(jnp.tile(jnp.eye(t.width, dtype=dtype), (t.levels, 1, 1)) for t in chain),
        tuple(
            tuple(jnp.zeros((t.levels, t.width, outer.width), dtype) for outer in chain[k + 1 :])
            for k, t in enumerate(chain)
        ),
        tuple(jnp.zeros((t.levels, t.width, design.left), dtype) for t in chain),
        tuple(jnp.zeros((t.levels, t.width), dtype) for t in chain),
        jnp.eye(design.left, dtype=dtype),
        jnp.zeros(design.left, dtype),
    )
    widths = [term.row_width for term in terms]
    columns = sum(widths) + max(a * b for a in widths for b in widths)
    return scan_rows(step, start, (X, linear, precision), columns=columns)


def _with_rows(
    design: EffectDesign, info: _Information, rows: RowEffects, s: PerRow, w: PerRow
) -> _Information:
    own, outer, left, right = (list(map(_as_list, part)) for part in info[:4])
    rest, rest_right = info.rest, info.rest_right
    columns = {t: rows.columns(design, t) for t in design.others}
    for k, t in enumerate(design.chain):
        level, u = rows.levels[t], rows.values[t]
        heavy = w[:, None] * u
        own[k] = own[k].at[level].add(heavy[:, :, None] * u[:, None], mode="drop")
        right[k] = right[k].at[level].add(s[:, None] * u, mode="drop")
        for c, other in enumerate(design.chain[k + 1 :]):
            block = heavy[:, :, None] * rows.values[other][:, None]
            outer[k][c] = outer[k][c].at[level].add(block, mode="drop")
        for other in design.others:
            block = heavy[:, :, None] * rows.values[other][:, None]
            if design.is_shared(other):
                left[k] = left[k].at[level, :, _span(design, other)].add(block, mode="drop")
            else:
                each = jnp.arange(u.shape[1])[None, :, None]
                place = level[:, None, None], each, columns[other][:, None, :]
                left[k] = left[k].at[place].add(block, mode="drop")
    for t in design.others:
        heavy = w[:, None] * rows.values[t]
        rest_right = rest_right.at[columns[t]].add(s[:, None] * rows.values[t], mode="drop")
        for other in design.others:
            if all(design.is_shared(one) for one in (t, other)):
                block = heavy.T @ rows.values[other]
                rest = rest.at[_span(design, t), _span(design, other)].add(block)
            else:
                block = heavy[:, :, None] * rows.values[other][:, None]
                place = columns[t][:, :, None], columns[other][:, None, :]
                rest = rest.at[place].add(block, mode="drop")
    outer = tuple(tuple(blocks) for blocks in outer)
    return _Information(tuple(own), outer, tuple(left), tuple(right), rest, rest_right)


def _as_list(part: Any) -> Any:
    return list(part) if isinstance(part, tuple) else part


def _within(design: EffectDesign, k: int) -> Sequence[Array]:
    return [jnp.asarray(parents) for parents in design.within[k]]


def inverses_of(blocks: Float[Array, "L E E"]) -> tuple[Float[Array, "L E E"], Scalar]:
    """Inverses of positive definite blocks, and the sum of their log-determinants."""
    if blocks.shape[1] == 1:
        return 1 / blocks, jnp.sum(jnp.log(blocks))
    factors = jax.vmap(cholesky)(blocks)
    inverses = jnp.swapaxes(factors.inverse, 1, 2) @ factors.inverse
    diagonals = jnp.diagonal(factors.lower, axis1=1, axis2=2)
    return inverses, 2 * jnp.sum(jnp.log(diagonals))


def _trace(blocks: Float[Array, "L E E"]) -> Scalar:
    return jnp.sum(jnp.trace(blocks, axis1=1, axis2=2))
