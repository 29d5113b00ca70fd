"""Preconditioners of crossed effects: symmetric Gauss-Seidel beside incomplete Cholesky.

    python effect_preconditioners.py [--rows 20000] [--levels 2000 1000 60]

Systems P = I + Z' Z of effects of crossed groupings, made as ratings of lecturers by students are:
rows draw a level of each grouping, of unequal sizes. Z has the ratio of the deviation of effects to
that of the noise where a row touches a level. Both preconditioners are lower-triangular roots of
the pattern of P: (D + L) D^-1/2 with D the diagonal and L what is below it, as `SparseEffects` has
it, and the factor without fill-in, in the order of the groupings (Golub & Van Loan 2013, 11.5.8).
Printed are conjugate-gradient steps to a relative residual of 1e-6, means over ten right-hand
sides, and milliseconds of making the root and of a solve; all is SciPy, on one core.
"""

import argparse
import time

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

TOLERANCE, SIDES = 1e-6, 10


def precision(rows: int, levels: list[int], ratio: float) -> sparse.csr_matrix:
    """P of crossed groupings whose levels have rows in proportion to uniform numbers."""
    generator = np.random.default_rng(0)
    blocks = []
    for number in levels:
        share = generator.uniform(size=number)
        level = generator.choice(number, rows, p=share / share.sum())
        blocks.append(sparse.csr_matrix((np.full(rows, ratio), (np.arange(rows), level))))
    Z = sparse.hstack(blocks).tocsr()
    return (sparse.identity(Z.shape[1]) + Z.T @ Z).tocsr()


def gauss_seidel(P: sparse.csr_matrix) -> sparse.csc_matrix:
    """(D + L) D^-1/2."""
    return (sparse.tril(P) @ sparse.diags(P.diagonal() ** -0.5)).tocsc()


def incomplete_cholesky(P: sparse.csr_matrix) -> sparse.csc_matrix:
    """The lower factor with the pattern of P, row by row."""
    lower = sparse.tril(P).tocsr()
    lower.sort_indices()
    found: list[dict[int, float]] = []
    for row in range(lower.shape[0]):
        at = slice(*lower.indptr[row : row + 2])
        own: dict[int, float] = {}
        for column, value in zip(lower.indices[at].tolist(), lower.data[at].tolist(), strict=True):
            other = own if column == row else found[column]
            shorter, longer = sorted((own, other), key=len)
            value -= sum(v * longer[k] for k, v in shorter.items() if k < column and k in longer)
            own[column] = value**0.5 if column == row else value / other[column]
        found.append(own)
    lower.data = np.array([v for own in found for v in own.values()])
    return lower.tocsc()


def measured(P: sparse.csr_matrix, root: sparse.csc_matrix | None) -> tuple[float, float]:
    """Steps and seconds of a solve, in the mean."""
    size = P.shape[0]
    plain = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0}
    solver = None if root is None else linalg.splu(root, **plain)  # keeps the triangle as it is
    steps, seconds = [], []
    for right in np.random.default_rng(1).normal(size=(SIDES, size)):
        count: list[int] = []
        near = None
        if solver is not None:
            near = linalg.LinearOperator(
                (size, size), lambda v, s=solver: s.solve(s.solve(v), trans="T")
            )
        begun = time.perf_counter()
        _, code = linalg.cg(
            P, right, rtol=TOLERANCE, maxiter=5_000, M=near, callback=lambda _, c=count: c.append(0)
        )
        seconds.append(time.perf_counter() - begun)
        steps.append(len(count) if code == 0 else np.nan)
    return float(np.mean(steps)), float(np.mean(seconds))


def main() -> None:
    """A row for each ratio and preconditioner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--levels", type=int, nargs="+", default=[2_000, 1_000, 60])
    asked = parser.parse_args()
    print(f"{'effects / noise':>16} {'preconditioner':<22} {'steps':>7} {'made, ms':>9} {'ms':>7}")
    for ratio in (0.3, 1.0, 3.0, 10.0):
        P = precision(asked.rows, asked.levels, ratio)
        makers = {"none": lambda P: None, "Gauss-Seidel": gauss_seidel}
        for name, make in (makers | {"incomplete Cholesky": incomplete_cholesky}).items():
            begun = time.perf_counter()
            root = make(P)
            made = time.perf_counter() - begun
            steps, seconds = measured(P, root)
            print(f"{ratio:16g} {name:<22} {steps:7.1f} {1e3 * made:9.1f} {1e3 * seconds:7.1f}")


if __name__ == "__main__":
    main()
