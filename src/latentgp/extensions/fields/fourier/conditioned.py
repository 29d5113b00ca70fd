"""Weights of the functions given Gaussian rows: solves with B = I + S T S and what they tell."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, UInt32

from latentgp.extensions.fields.fourier.toeplitz import StrongFunctions, ToeplitzGram
from latentgp.extensions.iterative.solvers.log_determinant import (
    Estimate,
    probed_solution,
)
from latentgp.extensions.iterative.solvers.operators import System, site_system
from latentgp.extensions.iterative.solvers.solution import Solution
from latentgp.modules import stored
from latentgp.numerics.eigen import eigenvectors
from latentgp.typing import Array, PerRow, Scalar, Vectors

_AT_ONCE, _NUMBERS = 8, 1 << 26  # draws whose bases are kept together; numbers of these
_TOLERANCE_OF_SEARCH, _PROBES_OF_SEARCH = 1e-4, 4


@stored
class SolveSettings(eqx.Module):
    """How systems of weights are solved.

    Args:
        key: data of the random key of probe vectors, the same in every evaluation.
        probes: number of probe vectors.
        tolerance: of the relative residual of the posterior mean.
        max_steps: the most steps of a solve.
        block: number of functions whose rows and columns precondition as they are.
    """

    key: UInt32[Array, "2"]
    probes: int = eqx.field(static=True, default=8)
    tolerance: float = eqx.field(static=True, default=1e-6)
    max_steps: int = eqx.field(static=True, default=500)
    block: int = eqx.field(static=True, default=1000)

    def system(self, gram: ToeplitzGram, variances: PerRow) -> tuple[System, StrongFunctions]:
        """B with the prior variances of the weights, and what it is preconditioned by."""
        system = site_system(gram, variances)
        chosen = jax.lax.top_k(variances, min(self.block, len(variances)))[1]
        return system, StrongFunctions.of(system, chosen)

    def loose(self) -> SolveSettings:
        """Those of a search: what it reads of a mean is off by the square of its residual."""
        probes = min(self.probes, _PROBES_OF_SEARCH)
        return dataclasses.replace(self, tolerance=_TOLERANCE_OF_SEARCH, probes=probes)

    def is_exact(self, number: int) -> bool:
        """Whether a system of so many weights is factorised."""
        return number <= self.block


class WhiteWeights(NamedTuple):
    """The posterior of white weights v, N(B^-1 b, B^-1), and what the evidence needs."""

    mean: PerRow  # v
    gain: Scalar  # b' B^-1 b / 2
    log_determinant: Estimate  # of B
    inverse_diagonal: PerRow  # estimate of that of B^-1
    solution: Solution


def white_weights(
    settings: SolveSettings, system: System, near: StrongFunctions, right: PerRow
) -> WhiteWeights:
    """The posterior mean of white weights, the log-determinant and the diagonal of the inverse.

    Probe vectors are z = R u, P = R R' the preconditioner and u of random signs. The diagonal is
    that of P^-1, which is known, plus the mean of (B^-1 z - P^-1 z) P^-1 z over them.
    """
    found = probed_solution(
        system,
        near,
        right[:, None],
        jax.random.wrap_key_data(settings.key),
        settings.probes,
        tolerance=settings.tolerance,
        max_steps=4 if settings.is_exact(system.size) else settings.max_steps,
    )
    beyond = (found.solved - found.preconditioned) * found.preconditioned
    diagonal = near.inverse_diagonal() + jnp.mean(beyond, axis=1)
    mean = found.value[:, 0]
    return WhiteWeights(mean, found.gain, found.log_determinant, diagonal, found.solution)


def draws_about_mean(
    system: System, near: StrongFunctions, white: Vectors, tolerance: float, steps: int
) -> tuple[Vectors, Scalar]:
    """Draws from N(0, B^-1), R^-T (R^-1 B R^-T)^-1/2 u, by Lanczos' method; and what is left.

    The inverse root of the matrix of the iteration stands for that of the operator (Pleiss et al.
    2020 have rational functions for it). It ends where the next direction of a solve with the same
    directions would be within the tolerance of all.
    """
    size, number = white.shape
    width = max(1, min(_AT_ONCE, number, _NUMBERS // (size * steps)))
    padded = jnp.pad(white, ((0, 0), (0, -number % width)), constant_values=1.0)
    pieces = jnp.moveaxis(padded.reshape(size, -1, width), 1, 0)
    found, left = jax.lax.map(
        partial(_inverse_root_times, system, near, tolerance=tolerance, steps=steps), pieces
    )
    return jnp.moveaxis(found, 0, 1).reshape(padded.shape)[:, :number], jnp.max(left)


class _Lanczos(NamedTuple):
    """The iteration, of each column its own."""

    basis: Float[Array, "T M S"]
    alphas: Float[Array, "T S"]
    betas: Float[Array, "T S"]
    pivots: Float[Array, "S"]  # of the elimination of the tridiagonal matrix
    left: Float[Array, "S"]  # residual of a solve with the same directions
    step: Any


def _inverse_root_times(
    system: System, near: StrongFunctions, white: Vectors, *, tolerance: float, steps: int
) -> tuple[Vectors, Scalar]:
    """R^-T (R^-1 B R^-T)^-1/2 times columns, by Lanczos' method."""
    size, number = white.shape
    lengths = jnp.linalg.norm(white, axis=0)
    first = white / lengths

    def split(q: Vectors) -> Vectors:
        inner = near.solve_root(q, transposed=True)
        return near.solve_root(system.times(inner))

    def body(now: _Lanczos) -> _Lanczos:
        k = now.step
        q = now.basis[k]
        w = split(q)
        before = now.betas[k - 1]  # none in the first step, as none of the last one has been made
        w = w - before * now.basis[k - 1]
        alpha = jnp.sum(q * w, axis=0)
        w = w - alpha * q
        beta = jnp.linalg.norm(w, axis=0)
        pivot = alpha - before**2 / now.pivots
        left = now.left * beta / pivot
        following = w / jnp.where(beta > 0, beta, 1.0)
        return _Lanczos(
            now.basis.at[k + 1].set(following, mode="drop"),
            now.alphas.at[k].set(alpha),
            now.betas.at[k].set(beta),
            pivot,
            left,
            k + 1,
        )

    basis = jnp.zeros((steps, size, number), white.dtype).at[0].set(first)
    nothing = jnp.zeros((steps, number), white.dtype)
    ones = jnp.ones(number, white.dtype)
    end = jax.lax.while_loop(
        lambda now: jnp.any(now.left > tolerance) & (now.step < steps),
        body,
        _Lanczos(basis, nothing, nothing, ones, ones, jnp.asarray(0)),
    )

    def weights(alphas: Array, betas: Array) -> Float[Array, "T"]:
        made = jnp.arange(steps) < end.step
        beside = jnp.where(made[1:], betas[:-1], 0.0)
        T = jnp.diag(jnp.where(made, alphas, 1.0)) + jnp.diag(beside, 1) + jnp.diag(beside, -1)
        values, vectors = eigenvectors(T)
        return vectors @ (vectors[0] / jnp.sqrt(jnp.maximum(values, 1e-14)))

    by = jax.lax.map(lambda own: weights(*own), (end.alphas.T, end.betas.T))
    root = jnp.einsum("tms,st->ms", end.basis, by) * lengths
    return near.solve_root(root, transposed=True), jnp.max(end.left)
