"""Solves by products alone: seconds of a product, steps and seconds by preconditioner.

Rows are simulated. A product is with 16 columns, of a Matérn-3/2 Gram matrix of N rows and eight
inputs. Solves are of y and 15 probe vectors to a relative residual of 1e-6, on N / 5 rows of four
inputs, and every preconditioner has about as many numbers as the square root of N times N.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp import RBF, Matern32
from latentgp.extensions.iterative.solvers.block_conjugate_gradients import (
    block_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.conjugate_gradients import (
    conjugate_gradients,
    flexible_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import TiledCovariance, noisy_system
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.iterated import (
    Interpolation,
    Regularised,
)
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    Fitc,
    Nystrom,
    Pitc,
    PivotedCholesky,
    RandomisedSVD,
    Spectral,
    random_rows,
)
from latentgp.extensions.iterative.solvers.preconditioners.roots import BlockJacobi
from latentgp.rows.subsets import blocks_of_rows

TOLERANCE, MOST = 1e-6, 2000


def timed(function, *arguments):
    """Processor and wall seconds of a run that compiles nothing, and what it gives."""
    jax.block_until_ready(function(*arguments))
    start = time.process_time(), time.perf_counter()
    found = jax.block_until_ready(function(*arguments))
    return time.process_time() - start[0], time.perf_counter() - start[1], found


def products(size: int) -> None:
    generator = np.random.default_rng(0)
    X, right = generator.normal(size=(size, 8)), generator.normal(size=(size, 16))
    K = TiledCovariance(Matern32(lengthscale=np.float64(2), variance=np.float64(1)), X)
    times = jax.jit(lambda K, right: K.times(right))
    for dtype in np.float64, np.float32:
        cast = jax.tree.map(dtype, K)
        processor, wall, _ = timed(times, cast, dtype(right))
        print(f"product {dtype.__name__:8} {processor:8.2f} processor s {wall:8.2f} s", flush=True)


def recipes(size: int, X: np.ndarray, noise: float) -> dict:
    number = round(np.sqrt(size))
    rows = random_rows(jax.random.key(0), size, number)
    blocks = blocks_of_rows(X, number)
    side = max(2, round(size ** (3 / 16)))
    return {
        "none": lambda _: Identity(),
        "Nystrom": Nystrom(rows),
        "FITC": Fitc(rows),
        "PITC": Pitc(rows, blocks),
        "spectral": Spectral(jax.random.key(0), 2 * number),
        "randomised SVD": RandomisedSVD(jax.random.key(0), number),
        "pivoted Cholesky": PivotedCholesky(number),
        "block Jacobi": BlockJacobi(blocks),
        "regularised": Regularised(100 * noise),
        "SKI": Interpolation((side,) * X.shape[1]),
    }


def solves(size: int) -> None:
    generator = np.random.default_rng(0)
    X, right = generator.uniform(size=(size, 4)), generator.normal(size=(size, 16))
    right[:, 0] = np.sin(5 * X).sum(axis=1) + 0.1 * right[:, 0]
    for lengthscale in 1.0, 0.2:
        for noise in 1e-2, 1e-4:
            print(f"\nRBF, length-scale {lengthscale}, noise variance {noise:g}, {size} rows")
            kernel = RBF(lengthscale=np.float64(lengthscale), variance=np.float64(1))
            system = noisy_system(TiledCovariance(kernel, X), noise)
            for name, recipe in recipes(size, X, noise).items():
                made, _, P = timed(eqx.filter_jit(recipe), system)
                solvers = {"": conjugate_gradients if P.is_fixed else flexible_conjugate_gradients}
                if name in ("none", "Nystrom"):
                    solvers["block"] = block_conjugate_gradients
                for kind, solve in solvers.items():
                    options = {"preconditioner": P, "tolerance": TOLERANCE, "max_steps": MOST}
                    spent, _, found = timed(partial(solve, **options), system, right)
                    print(
                        f"{name:16} {kind:8} made in {made:6.2f}, solved in {spent:7.2f} s, "
                        f"{int(found.steps):5} steps, {int(found.inner_steps):6} inside: "
                        f"{found.complaint or 'converged'}",
                        flush=True,
                    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    with jax.enable_x64(True):
        print(f"seconds of a processor without compilation, {jnp.ones(1).device}")
        products(rows)
        solves(rows // 5)
