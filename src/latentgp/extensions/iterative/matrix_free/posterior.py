"""Posterior of all rows by solves: predictions at new inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.matrix_free.solves import MatrixFreeSolves
from latentgp.extensions.iterative.solvers.solution import Solution
from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import PosteriorAtRows
from latentgp.representations.latent_axis import distinct_kernels, latent_diagonals
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Coefs, Inputs, Points, RandomKey, RowLatents, Scalar

# New inputs are right-hand sides of one solve, so many at a time.
_AT_ONCE = 64
_COLUMNS = (1 << 18) // _AT_ONCE
# Below this product of precision and prior variance a site changes the variance by nothing.
_WEAK_SITE = 1e-6


@stored
class Report(NamedTuple):
    """Certificates of the solves of every system with its probe vectors."""

    relative_residual: Float[Array, "solves S"]  # of each right-hand side
    code: Int[Array, "solves S"]  # of each, a place in `solution.OUTCOMES`
    steps: Int[Array, "solves"]

    @classmethod
    def of(cls, solutions: list[Solution]) -> Report:
        """Posterior's part of solutions."""
        parts = [(s.relative_residual, s.code, s.steps) for s in solutions]
        return cls(*map(jnp.stack, zip(*parts, strict=True)))

    @property
    def complaint(self) -> str | None:
        """One sentence on what did not converge; None if all did."""
        residual, code = (np.ravel(a) for a in (self.relative_residual, self.code))
        nothing, steps = np.zeros((0, len(code))), np.max(self.steps)
        return Solution(nothing, residual, code, steps, np.asarray(0)).complaint


@stored
class MatrixFreePosterior(PosteriorAtRows):
    """Posterior with coefficients at the rows, of which no matrix is kept.

    Means are products with the Gram matrix, variances take a solve for each new input. A solve that
    was stopped early leaves the variance too large by what more steps would have explained, never
    too small (Wenger et al. 2022), and a warning.
    """

    kernel: LatentKernel
    X: Inputs  # of the rows, the last of which may be copies of weight zero
    solves: MatrixFreeSolves  # how systems are solved
    root: Float[Array, "#Q N"]  # W^1/2 of each system
    weights: Float[Array, "Q N"]  # K^-1 times the posterior mean
    mean_at_rows: Float[Array, "Q N"]  # the posterior mean there
    solved: Float[Array, "#Q N S"]  # B^-1 z for the probe vectors z of each system
    near: Float[Array, "#Q N S"]  # P^-1 z of the same
    report: Report  # how the solves have ended
    log_evidence: Scalar
    error: Scalar  # standard error of the log evidence, in nats
    jitter: Scalar
    trace_term: Scalar

    @property
    def evidence_error(self) -> Scalar:
        return self.error

    @property
    def kl(self) -> Scalar:
        """Expected log sites less the log evidence; by N solves, when it is asked for."""
        variance = self.marginals(self.X).variance.T
        # Of B v = r: l m - w m^2 / 2 = m (l - w m) + w m^2 / 2, and l - w m are the weights.
        mean = self.mean_at_rows
        nats = mean * self.weights + 0.5 * self.root**2 * (mean**2 - variance)
        return jnp.sum(nats) - self.log_evidence

    @property
    def systems(self) -> list[tuple[int, Kernel, list[int]]]:
        """Number, kernel and latent functions of each system that is solved."""
        each = distinct_kernels(self.kernel)
        if len(self.root) == 1:
            return [(0, each[0], list(range(len(self.weights))))]
        return [(q, each[q % len(each)], [q]) for q in range(len(self.root))]

    def prepared(self) -> list[Any]:
        """The same with what is solved and what it is preconditioned by."""
        own = self.systems
        return [(*s, *self.solves.prepared(s[1], self.X, self.root[s[0]])) for s in own]

    def mean(self, X: Inputs) -> RowLatents:
        return _mean(self, X)

    def marginals(self, X: Inputs) -> Marginals:
        """Means, and variances by a solve for each input and system."""
        return _marginals(self, X)

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        return _covariance(self, X)

    def without_fillers(self) -> MatrixFreePosterior:
        saying = np.any((np.asarray(self.root) > 0) | (np.asarray(self.weights) != 0), axis=0)
        rows = np.flatnonzero(saying) if saying.any() else np.arange(1)
        names = "root", "weights", "mean_at_rows", "solved", "near"
        kept = {name: getattr(self, name)[:, rows] for name in names}
        return dataclasses.replace(self, X=self.X[rows], **kept)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        noise = jax.random.normal(key, self.weights.shape, self.weights.dtype)
        prior, weights = prior_path(self.X).T, self.weights
        for q, _, latents, system, near in self.prepared():
            own = jnp.array(latents)
            residual = self.root[q] * prior[own] + noise[own]
            solution = self.solves.solve_apart(system, near, residual.T)
            solution.tell("Paths")
            weights = weights.at[own].add(-self.root[q] * solution.value.T)
        return weights

    def variance_at_rows(self) -> Float[Array, "Q N"]:
        """Unbiased estimates of the variances at the rows, (1 - [B^-1]_nn) / w_n, by the probes.

        They may be negative. The prior variance where a row says next to nothing, and everywhere
        if there are no probe vectors.
        """
        prior = jnp.broadcast_to(latent_diagonals(self.kernel, self.X), self.weights.shape)
        if not self.solved.shape[2]:
            return prior
        inverse = jnp.mean(self.solved * self.near, axis=2)
        precision = self.root**2
        says = precision * prior > _WEAK_SITE
        return jnp.where(says, (1 - inverse) / jnp.where(says, precision, 1.0), prior)

    @property
    def notes(self) -> tuple[str, ...]:
        estimate = (
            f"the log evidence has a standard error of {float(self.error):.2g} nats "
            f"({self.solved.shape[2]} probe vectors)"
            if self.error > 0
            else "rows are so few that nothing was estimated"
        )
        return (
            f"Solves by {self._operator} took {int(np.max(self.report.steps))} steps to a relative "
            f"residual of at most {np.max(self.report.relative_residual):.1e}; {estimate}.",
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        complaint = self.report.complaint
        if complaint is None:
            return ()
        return (f"{complaint} Evidence, hyper-parameters and predictions are not to be trusted.",)

    @property
    def _operator(self) -> str:
        if self.solves.grid is not None:
            return self.solves.grid.words
        return "products with the stored Gram matrix" if self.solves.store else "tiled products"


# Compiled, so that calls outside other programs compile nothing twice.
@jax.jit
def _mean(posterior: MatrixFreePosterior, X: Inputs) -> RowLatents:
    def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Array]:
        blocks = [kernel.gram(posterior.X, x) for _, kernel, _ in posterior.systems]
        return carry, _means(posterior, blocks)

    return scan_rows(step, None, X, columns=len(posterior.X))[1]


@jax.jit
def _marginals(posterior: MatrixFreePosterior, X: Inputs) -> Marginals:
    solves, prepared = posterior.solves, posterior.prepared()

    def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Marginals]:
        blocks, variances = [], jnp.zeros((len(posterior.weights), len(x)), x.dtype)
        for q, kernel, latents, system, near in prepared:
            across, prior = kernel.gram(posterior.X, x), kernel.diagonal(x)
            right = posterior.root[q][:, None] * across
            solution = solves.solve(system, near, right)
            solution.tell("Variances")
            explained = jnp.sum(right * solution.value, axis=0)
            variance = jnp.clip(prior - explained, 0.0, prior)
            variances = variances.at[jnp.array(latents)].set(variance)
            blocks.append(across)
        return carry, Marginals(_means(posterior, blocks), variances.T)

    return scan_rows(step, None, X, columns=_COLUMNS, in_cache=True)[1]


@jax.jit
def _covariance(posterior: MatrixFreePosterior, X: Inputs) -> Float[Array, "Q N N"]:
    def of_system(q: Any, kernel: Kernel, _: Any, system: Any, near: Any) -> Float[Array, "N N"]:
        root = posterior.root[q][:, None]

        def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Array]:
            right = root * kernel.gram(posterior.X, x)
            solution = posterior.solves.solve(system, near, right)
            solution.tell("Covariances")
            weights = root * solution.value
            return carry, weights.T @ kernel.gram(posterior.X, X)

        _, explained = scan_rows(step, None, X, columns=_COLUMNS, in_cache=True)
        return kernel.symmetric_gram(X) - 0.5 * (explained + explained.T)

    found = [of_system(*own) for own in posterior.prepared()]
    return jnp.stack(found * (len(posterior.weights) // len(found)))


def _means(
    posterior: MatrixFreePosterior, blocks: list[Float[Array, "N B"]]
) -> Float[Array, "B Q"]:
    """Means from the blocks of each system."""
    per = len(posterior.weights) // len(blocks)
    weights = posterior.weights
    return jnp.stack([w @ block for w, block in zip(weights, blocks * per, strict=True)], axis=1)
