"""Conjugate gradients: a log evidence with its gradient, and a solve, hyper-parameters held.

Ours by `MatrixFree`, whose solves certify their residuals, in tiles and with the Gram matrix kept;
GPyTorch with `max_cholesky_size(0)`, a pivoted Cholesky preconditioner of rank 100 and the Gram
matrix kept. Both in double precision, and in single: of ours only the products of the solves,
GPyTorch whole. The same tolerance of relative residuals and number of probe vectors. GPyTorch stops
at a mean of the residuals that it carries along; shown are true ones, computed from solutions in
double precision: `residual` of K^-1 y, of ours also the worst with probe vectors. GPyTorch's
quadrature of the log-determinant has its default of 20 steps. The seconds are those of the evidence
and its gradient, `cpu_seconds` the processor's of the same, `solve_cpu_seconds` those of K^-1 y,
kernel and preconditioner included. Up to --exact rows a Cholesky factorisation tells the errors: of
the evidence in nats, and of the gradient in the logarithms of length-scales, variance and noise
variance, relative.
"""

import argparse
from collections.abc import Mapping

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.spatial.distance import cdist

import harness
from data import Split, regression

PRECISIONS = ("double", "single")
COLUMNS = (
    "cpu_seconds", "solve_cpu_seconds", "residual", "worst_residual", "solve_steps", "steps",
    "standard_error", "evidence_error", "gradient_error", "peak_MiB",
)  # fmt: skip


def exact(split: Split, lengthscale: float, noise: float) -> tuple[float, np.ndarray]:
    """Log evidence and its gradient by a Cholesky factorisation, of an RBF of variance one."""
    X, y = split.X / lengthscale, split.y
    K = np.exp(-0.5 * cdist(X, X, "sqeuclidean"))
    lower = cholesky(K + noise * np.eye(len(y)), lower=True)
    weights = cho_solve((lower, True), y)
    value = -0.5 * y @ weights - np.log(np.diag(lower)).sum() - 0.5 * len(y) * np.log(2 * np.pi)
    slope = 0.5 * (np.outer(weights, weights) - cho_solve((lower, True), np.eye(len(y))))
    of_kernel = slope * K
    gaps = (np.sum(of_kernel * cdist(x[:, None], x[:, None], "sqeuclidean")) for x in X.T)
    return value, np.array([*gaps, of_kernel.sum(), noise * np.trace(slope)])


def note_errors(runs: harness.Runs, value: float, gradient: np.ndarray) -> None:
    """Of every run, from the exact evidence and its gradient."""
    for run in (run for done in runs.values() for run in done):
        run["evidence_error"] = abs(run["log_evidence"] - value)
        gap = np.array(run["gradient"]) - gradient
        run["gradient_error"] = float(np.linalg.norm(gap) / np.linalg.norm(gradient))


def contestants(arguments: argparse.Namespace) -> list[harness.Contestant]:
    kept = {"tiles": False} | ({"kept": True} if arguments.rows <= arguments.stored else {})
    ours = [
        harness.Contestant(
            harness.OURS,
            {"store": store, "precision": precision},
            f"{harness.OURS}, {name}, {precision}",
        )
        for name, store in kept.items()
        for precision in PRECISIONS
    ]
    peers = [
        harness.Contestant(peer, {"precision": precision}, f"{peer}, {precision}")
        for peer in arguments.peers
        for precision in PRECISIONS
    ]
    return [*ours, *peers]


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch",), repeats=2)
    parser.add_argument("--set", default="protein")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--lengthscale", type=float, default=1.0)
    parser.add_argument("--noises", type=float, nargs="+", default=[0.1, 0.01])
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--probes", type=int, default=10, help="GPyTorch's own number")
    parser.add_argument("--exact", type=int, default=6000, help="rows up to which errors are told")
    parser.add_argument("--stored", type=int, default=10_000, help="rows whose matrix ours keeps")
    arguments = parser.parse_args()
    split = regression(arguments.data_dir, arguments.set, arguments.rows)
    with harness.Session(arguments) as session:
        for noise in arguments.noises:
            options: Mapping[str, float] = {
                "noise_variance": noise,
                "lengthscale": arguments.lengthscale,
                "tolerance": arguments.tolerance,
                "probes": arguments.probes,
            }
            finish = None
            if arguments.rows <= arguments.exact:
                truth = exact(split, arguments.lengthscale, noise)
                finish = lambda runs, truth=truth: note_errors(runs, *truth)  # noqa: E731
            title = (
                f"{arguments.set}, {len(split.y)} x {split.X.shape[1]}, noise variance {noise:g}"
            )
            session.compare(
                title,
                "conjugate_gradients",
                split._asdict(),
                COLUMNS,
                options,
                contestants(arguments),
                finish=finish,
            )


if __name__ == "__main__":
    main()
