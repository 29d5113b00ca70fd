"""`MatrixFree`: seconds of an evidence with its gradient, steps, residual and standard error.

Rows of a data set, standardised, under a Matérn-5/2 kernel with a length-scale for each input, at
fixed hyper-parameters. Predictions are of 64 held-out rows, by one solve.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from data import regression
from latentgp import Matern52, MatrixFree
from latentgp.representations.evidence import log_evidence_and_posterior
from latentgp.sites.gaussian import GaussianSites


def timed(function, *arguments):
    """Processor seconds of a run without compilation, and what it gives."""
    program = jax.jit(function).lower(*arguments).compile()
    memory = program.memory_analysis().temp_size_in_bytes / 2**20
    start = time.process_time()
    found = jax.block_until_ready(program(*arguments))
    return time.process_time() - start, memory, found


def evidence(kernel, representation, X, sites):
    """Value, gradient and posterior."""

    def value(kernel):
        return log_evidence_and_posterior(representation, kernel, X, sites)

    return jax.value_and_grad(value, has_aux=True)(kernel)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--set", default="kin40k_std_split")
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--lengthscale", type=float, default=2.0)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--probes", type=int, default=16)
    parser.add_argument("--rank", type=int, default=None)
    parser.add_argument("--preconditioner", default="nystrom")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    own = MatrixFree(
        probes=options.probes,
        rank=options.rank,
        preconditioner=options.preconditioner,
        tolerance=options.tolerance,
        store=options.store,
    )
    for rows in options.rows:
        split = regression(options.data_dir, options.set, rows)
        X, new = split.X[:rows], split.X_test[:64]
        y = split.y[:rows, None] / options.noise
        constants = -0.5 * (options.noise * y[:, 0] ** 2 + np.log(2 * np.pi * options.noise))
        sites = GaussianSites(y, np.full_like(y, 1 / options.noise), constants)
        lengthscale = np.full(X.shape[1], options.lengthscale)
        kernel = Matern52(lengthscale=lengthscale, variance=np.float64(1.5))
        ready = own.initialise(X, None, kernel, jax.random.key(0))
        spent, memory, ((value, posterior), _) = timed(evidence, kernel, ready, X, sites)
        print(
            f"{options.set}, {rows} x {X.shape[1]}: evidence and gradient {spent:.1f} s, "
            f"{memory:.0f} MiB of working memory; log evidence {float(value):.1f}, "
            f"{posterior.notes[0]}",
            flush=True,
        )
        print("; ".join(posterior.complaints) or "all solves converged", flush=True)
        spent, _, _ = timed(lambda p, x: p.marginals(x), posterior, new)
        print(f"means and variances at {len(new)} new inputs {spent:.1f} s", flush=True)


if __name__ == "__main__":
    with jax.enable_x64(True):
        print(f"processor seconds without compilation, {jnp.ones(1).device}")
        main()
