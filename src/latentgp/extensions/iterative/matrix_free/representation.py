"""The latent functions at all rows by products and solves: nothing N x N is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, UInt32

from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.iterative.matrix_free.posterior import MatrixFreePosterior, Report
from latentgp.extensions.iterative.matrix_free.solves import (
    MatrixFreeSolves,
    Precision,
    PreconditionerName,
    ProbeSolves,
    SolverName,
)
from latentgp.extensions.iterative.solvers.log_determinant import Estimate
from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.structured import Grid, find_grid
from latentgp.kernels import LatentKernel, OwnKernels
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, Representation
from latentgp.representations.latent_axis import distinct_kernels, split_linear
from latentgp.representations.needs import Needs
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, RandomKey, RowLatents, Scalar


class MatrixFree(Representation):
    """One coefficient a row, the exact process by linear solves: O(N^2) a step, O(N) memory.

    Means solve with B = I + W^1/2 K W^1/2, W the precisions of the sites, to a tolerance; variances
    take a solve for each new input. The log-determinant of the evidence is an estimate over probe
    vectors, whose standard error is reported, and so is its gradient (Filippone & Engler 2015;
    Gardner et al. 2018). The same probe vectors serve all evaluations of a fit. Kernel values are
    made tile by tile at every product. Of rows on regularly spaced points, or on a grid, with a
    kernel that allows it products are by Fourier transforms or Kronecker factors; cells may be
    empty. Of few rows B is factorised, and nothing is estimated.

    It works with `ExactGP`, and with `Laplace` for log-concave likelihoods of one latent function:
    other rules need the variances at all rows, which are known by noisy estimates only.

    Args:
        solver: "block" lets right-hand sides share their directions, which takes fewest steps;
            "conjugate-gradients" keeps them apart.
        preconditioner: "nystrom", "fitc", "pivoted-cholesky", "randomised-svd" or "none".
        rank: of the preconditioner; None is four times the root of the number of rows.
        probes: number of probe vectors, at least two.
        tolerance: of relative residuals.
        max_steps: the most steps of a solve.
        store: whether the Gram matrix may be kept, which takes 8 N^2 bytes, half of that with
            single precision.
        precision: "single" makes the products of solves in single precision, in about half the
            time; residuals are computed in double precision and tell where that is too little. On a
            grid all is in double precision.
        structured: whether grids are looked for.
        exact_up_to: number of rows up to which B is factorised: a preconditioner that leaves
            nothing to be estimated, in O(N^3) and N^2 numbers.
        shared: whether precisions of sites are the same for all latent functions; a method sets it.
        means_only: whether nothing but means is asked for; a method sets it.
        exact: whether rows are as few; `initialise` sets it.
        key: data of the random key of probe vectors; `initialise` sets it.
        grid: that the rows are on; `initialise` finds it.

    Raises:
        InputError: an unknown solver or preconditioner, a number out of its range.

    Example:
        >>> import jax, latentgp as lgp
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.ExactGP(lgp.MatrixFree())
        >>> fit = lgp.fit(
        ...     model, data, method=method, key=jax.random.key(0), learn_hyperparameters=False
        ... )
        >>> round(float(fit.posterior.log_evidence), 4)
        -3.0033
    """

    solver: SolverName = eqx.field(static=True, default="block")
    preconditioner: PreconditionerName = eqx.field(static=True, default="nystrom")
    rank: int | None = eqx.field(static=True, default=None)
    probes: int = eqx.field(static=True, default=16)
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_steps: int = eqx.field(static=True, default=200)
    store: bool = eqx.field(static=True, default=False)
    precision: Precision = eqx.field(static=True, default="double")
    structured: bool = eqx.field(static=True, default=True)
    exact_up_to: int = eqx.field(static=True, default=500)
    shared: bool = eqx.field(static=True, default=False)
    means_only: bool = eqx.field(static=True, default=False)
    exact: bool = eqx.field(static=True, default=False)
    key: UInt32[Array, "2"] | None = None
    grid: Grid | None = None

    def __check_init__(self) -> None:
        check_choices(
            self,
            solver=get_args(SolverName),
            preconditioner=get_args(PreconditionerName),
            precision=get_args(Precision),
        )
        least = {"probes": "at least 2", "max_steps": "at least 1", "rank": "at least 1"}
        check_ranges(self, **least, tolerance="(0, 1)")

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "MatrixFree":
        Needs(any_inputs=True).check("MatrixFree", kernel=kernel)
        few = len(X) <= self.exact_up_to
        own = dataclasses.replace(self, key=jax.random.key_data(key), grid=None, exact=few)
        if not self.structured or isinstance(X, Tracer):
            return own
        return dataclasses.replace(own, grid=find_grid(distinct_kernels(kernel), np.asarray(X)))

    @property
    def traits(self) -> Traits:
        return Traits(
            evidence="approximation",
            estimates_evidence=not self.exact,
            estimates_variances=True,
            one_gaussian=False,
            one_coefficient_a_row=True,
            coordinates_of_sites=False,
            powers=True,
        )

    def for_sites(self, form: SiteForm) -> "MatrixFree":
        return dataclasses.replace(self, shared=form.shared, means_only=form.means_alone)

    def condition(
        self, kernel: LatentKernel, X: Inputs, sites: GaussianSites
    ) -> MatrixFreePosterior:
        return _condition(self, kernel, X, sites)

    def marginals_at_rows(self, posterior: MatrixFreePosterior, X: Inputs) -> Marginals:
        """By N solves for the variances, unless only means are asked for."""
        if self.means_only:
            return Marginals(posterior.mean_at_rows.T, posterior.variance_at_rows().T)
        return posterior.marginals(X)

    def pull_back(
        self, posterior: MatrixFreePosterior, X: Inputs, sites: GaussianSites
    ) -> Pullback:
        """Estimates by the probe vectors: of the derivative in K, and of the variances at rows.

        That in K is sum_q a_q a_q' / 2 - W^1/2 mean((B^-1 z) (P^-1 z)') W^1/2 / 2 (Filippone &
        Engler 2015, eq. 9, with the half that its second term lacks), a the weights.
        """
        parts = []
        for q, kernel, latents in posterior.systems:
            weights = posterior.weights[jnp.array(latents)].T
            root, probes = posterior.root[q][:, None], posterior.solved.shape[2]
            left = jnp.concatenate([weights, root * posterior.solved[q]], axis=1)
            share = 0.5 * len(latents) / probes
            right = jnp.concatenate([0.5 * weights, -share * root * posterior.near[q]], axis=1)
            parts.append(posterior.solves.slope(kernel, X, left, right))
        in_kernel = _in_latent_kernel(posterior, parts)
        marginals = Marginals(posterior.mean_at_rows.T, posterior.variance_at_rows().T)
        return Pullback(in_kernel, None, marginals)

    def linearised(
        self, posterior: MatrixFreePosterior, X: Inputs, sites: GaussianSites
    ) -> Callable[[RowLatents], tuple[LatentKernel, RowLatents]]:
        """By one more solve: along s the weights move by s - W^1/2 B^-1 W^1/2 K s."""
        prepared = posterior.prepared()

        def move(along: RowLatents) -> tuple[LatentKernel, RowLatents]:
            parts, means = [], jnp.zeros_like(posterior.weights)
            for q, kernel, latents, system, near in prepared:
                own, root = jnp.array(latents), posterior.root[q][:, None]
                right = root * system.covariance.exactly_times(along[:, own])
                solution = posterior.solves.solve(system, near, right)
                solution.tell("Gradients of the log evidence")
                change = along[:, own] - root * solution.value
                means = means.at[own].set(system.covariance.exactly_times(change).T)
                weights = posterior.weights[own].T
                parts.append(posterior.solves.slope(kernel, X, weights, change))
            return _in_latent_kernel(posterior, parts), means.T

        return move

    @property
    def solves(self) -> MatrixFreeSolves:
        """The settings of solves, without what methods set."""
        key = jax.random.key_data(jax.random.key(0)) if self.key is None else self.key
        key = jax.lax.optimization_barrier(jnp.asarray(key))  # or XLA draws when it compiles
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(MatrixFreeSolves)}
        return MatrixFreeSolves(**own | {"key": key})


# Compiled, so that calls outside other programs compile nothing twice.
@jax.jit
def _condition(
    representation: MatrixFree, kernel: LatentKernel, X: Inputs, sites: GaussianSites
) -> MatrixFreePosterior:
    solves, each = representation.solves, distinct_kernels(kernel)
    once = representation.shared and not isinstance(kernel, OwnKernels)
    root = jnp.sqrt(sites.precision.T[: 1 if once else None])
    linear = sites.linear.T
    parts = []
    for q, own in enumerate(root):
        lines = linear if once else linear[q : q + 1]
        system = solves.prepared(each[q % len(each)], X, own)
        parts.append(_conditioned(solves, *system, lines, own, q, representation.means_only))
    weights, means, explained, probed = zip(*parts, strict=True)
    latents = [len(w) for w in weights]
    logs = [p.log_determinant for p in probed]
    evidence = [e - 0.5 * n * d.value for e, n, d in zip(explained, latents, logs, strict=True)]
    errors = [0.5 * n * d.standard_error for n, d in zip(latents, logs, strict=True)]
    nothing = jnp.zeros((), X.dtype)
    make: Any = MatrixFreePosterior  # whose KL is found when it is asked for
    return make(
        kernel=kernel,
        X=X,
        solves=solves,
        root=root,
        weights=jnp.concatenate(weights),
        mean_at_rows=jnp.concatenate(means),
        solved=jnp.stack([p.solved for p in probed]),
        near=jnp.stack([p.near for p in probed]),
        report=Report.of([p.solution for p in probed]),
        log_evidence=jnp.sum(jnp.stack(evidence)),
        error=jnp.sqrt(jnp.sum(jnp.stack(errors) ** 2)),
        jitter=nothing,
        trace_term=nothing,
    )


def _conditioned(
    solves: MatrixFreeSolves,
    system: System,
    near: Preconditioner,
    linear: Float[Array, "Q N"],
    root: PerRow,
    number: int,
    means_only: bool,
) -> tuple[Float[Array, "Q N"], Float[Array, "Q N"], Scalar, ProbeSolves]:
    """Weights and means of latent functions that share B, what the evidence gains, and probes.

    With l = W^1/2 r + l_0, as `Dense` splits it, and h = r - W^1/2 K l_0, weights are l_0 + W^1/2 v
    of B v = h, and l' S l = r'r + l_0' K l_0 - h'B^-1 h. The last is v' (2 h - B v), whose error
    is at most the squared norm of the residual of v, as B is at least I.
    """
    K = system.covariance
    diagonal = 1 + root**2 * K.diagonal()
    ratio, rest = jax.vmap(lambda own: split_linear(own, root, diagonal))(linear)
    none = jnp.zeros_like(linear.T)
    K_rest = jax.lax.cond(jnp.any(rest != 0), lambda: K.exactly_times(rest.T), lambda: none)
    scale = root[:, None]
    h = ratio.T - scale * K_rest
    if means_only:
        solution = solves.solve(system, near, h)
        v, unknown = solution.value, jnp.full((), jnp.nan, root.dtype)
        empty = jnp.zeros((len(root), 0), root.dtype)
        probed = ProbeSolves(empty, empty, Estimate(unknown, unknown), solution)
    else:
        v, probed = solves.with_probes(system, near, h, number)
    weights = rest + (scale * v).T
    means = K.exactly_times(weights.T)
    product = v + scale * (means - K_rest)  # B v
    explained = jnp.sum(ratio**2) + jnp.sum(rest.T * K_rest) - jnp.sum(v * (2 * h - product))
    return weights, means.T, 0.5 * explained, probed


def _in_latent_kernel(posterior: MatrixFreePosterior, parts: list[Any]) -> LatentKernel:
    """Derivatives in the kernels of the systems, in the parameters of all latent functions."""
    each, pull = jax.vjp(distinct_kernels, posterior.kernel)
    slopes = [jax.tree.map(jnp.zeros_like, kernel) for kernel in each]
    for (q, _, _), part in zip(posterior.systems, parts, strict=True):
        slopes[q % len(each)] = jax.tree.map(jnp.add, slopes[q % len(each)], part)
    (in_kernel,) = pull(tuple(slopes))
    return in_kernel
