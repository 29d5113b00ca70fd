"""The log evidence of a Gaussian process with Gaussian noise, and its gradient, by solves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, PyTree

from latentgp.extensions.iterative.solvers.log_determinant import (
    Estimate,
    mean_of,
    quadrature,
    recorded_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import (
    Identity,
    Preconditioner,
    draws,
)
from latentgp.extensions.iterative.solvers.solution import Solution, compiled
from latentgp.typing import Array, PerRow, RandomKey, Scalar


class EvidenceEstimate(NamedTuple):
    """log N(y; 0, A) and its gradient, with their standard errors."""

    value: Scalar  # of the log evidence
    standard_error: Scalar  # of the value, over the probe vectors
    gradient: PyTree  # in the parameters, a tree like these
    gradient_standard_error: PyTree  # of every number of the gradient
    solution: Solution  # A^-1 y in the first column, and A^-1 z of the probe vectors


@compiled("tolerance")
def log_evidence_by_solves(
    system_of: Callable[[PyTree], LinearOperator],
    parameters: PyTree,
    y: PerRow,
    key: RandomKey,
    *,
    preconditioner: Callable[[Any], Preconditioner] | None = None,
    probes: int = 16,
    tolerance: Any = 1e-6,
    max_steps: int = 100,
) -> EvidenceEstimate:
    """The log evidence N(y; 0, A) and its gradient from solves with y and probe vectors at once.

    The gradient is v' dA v / 2 - mean (A^-1 z)' dA (P^-1 z) / 2 with v = A^-1 y and z ~ N(0, P)
    (Filippone & Engler 2015, eq. 9, with the half that its second term lacks; P as in Gardner et
    al. 2018). The quadratic term is v' (2 y - A v), with an error of the second order in the
    residual.

    `system_of` gives A for parameters, numbers in any tree, and the preconditioner P for A. Targets
    y are less their mean. The same random key gives a smooth function of parameters. There are at
    least two probe vectors.

    Raises:
        InputError: a preconditioner without a root.

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.eye(40))
        >>> def system(noise):
        ...     return operators.noisy_system(K, noise)
        >>> found = log_evidence_by_solves(system, 3.0, jnp.ones(40), jax.random.key(1))
        >>> exact = -0.5 * 40 * (jnp.log(2 * jnp.pi * 4) + 1 / 4)
        >>> bool(abs(found.value - exact) < 4 * found.standard_error)
        True
    """
    A = system_of(parameters)
    P = Identity() if preconditioner is None else preconditioner(A)
    z = draws(P, key, A.size, probes, y.dtype)
    right = jnp.concatenate([y[:, None], z], axis=1)
    recorded = recorded_conjugate_gradients(A, right, P, tolerance, max_steps)
    v = recorded.solution.value[:, 0]
    quadratic = v @ (2 * y - A.times(v[:, None])[:, 0])
    log_det = mean_of(P.log_determinant() + quadrature(recorded)[1:])
    value = -0.5 * (quadratic + log_det.value + A.size * jnp.log(2 * jnp.pi))

    left, by = recorded.solution.value, jnp.concatenate([v[:, None], P.solve(z)], axis=1)
    flat, unravel = ravel_pytree(parameters)

    def forms(flat: Array) -> Float[Array, "S"]:
        return jnp.sum(left * system_of(unravel(flat)).times(by), axis=0)

    def slope(direction: Array) -> Estimate:
        slopes = jax.jvp(forms, (flat,), (direction,))[1]
        trace = mean_of(slopes[1:])
        return Estimate(0.5 * (slopes[0] - trace.value), 0.5 * trace.standard_error)

    # One parameter after another: all at once would keep as many tiles.
    gradient, error = jax.lax.map(slope, jnp.eye(flat.size, dtype=flat.dtype))
    return EvidenceEstimate(
        value, 0.5 * log_det.standard_error, unravel(gradient), unravel(error), recorded.solution
    )
