"""Settings of solves with the covariance of the targets."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

import equinox as eqx

from latentgp.errors import check_choices, check_ranges, refuse
from latentgp.extensions.iterative.solvers.solution import is_plain
from latentgp.modules import Module

Solver = Literal["conjugate-gradients", "ulisse"]
_STORED_ROWS = 4_000


class Solves(Module):
    """Solves with the covariance of the targets, for stochastic gradients of the log evidence.

    Args:
        solver: "conjugate-gradients" to a tolerance, or "ulisse": stopped early at random, and
            unbiased (Filippone & Engler 2015, eq. 11-12).
        probes: random vectors of signs for the trace, at least two.
        rank: rows of the Nyström preconditioner, drawn with the probes; 0 for none, None for twice
            the root of the number of rows.
        tolerance: of the relative residuals of "conjugate-gradients".
        max_steps: the most products with the covariance a solve.
        threshold: of "ulisse", q: a solve may stop once its residual is q sqrt(N), targets in units
            of their noise.
        rate: of "ulisse", beta: with which weights grow from step to step.
        pathwise: whether probes are draws of the targets, prior paths by random features with
            noise, in place of signs (Lin et al. 2024). `SolvesGP` holds them, and each solve starts
            where the one before has ended; of "conjugate-gradients" alone.
        stored: whether the Gram matrix is kept while a gradient is made, N^2 numbers; None for up
            to 4,000 rows. Else it is made in tiles at every product.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> Solves(rank=100)
        Solves(rank=100)
    """

    solver: Solver = eqx.field(static=True, default="conjugate-gradients")
    probes: int = eqx.field(static=True, default=4)
    rank: int | None = eqx.field(static=True, default=None)
    tolerance: float = 1e-4
    max_steps: int = 1000
    threshold: float = 1.0
    rate: float = 1.0
    pathwise: bool = eqx.field(static=True, default=False)
    stored: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_choices(self, solver=get_args(Solver))
        check_ranges(self, probes="at least 2", rank="at least 0")
        numbers = self.tolerance, self.max_steps, self.threshold, self.rate
        sentences = {
            "Solves(pathwise=True) multiplies solutions, whose product is biased for random "
            'truncation; use solver="conjugate-gradients".': (
                self.pathwise and self.solver != "conjugate-gradients"
            ),
            "Solves needs a positive tolerance, max_steps, threshold and rate, got "
            f"{', '.join(map(str, numbers))}.": (all(map(is_plain, numbers)) and min(numbers) <= 0),
        }
        refuse(sentences)

    def settled(self, rows: int) -> "Solves":
        """The same with nothing left open that depends on the number of rows."""
        rank = min(rows, 2 * math.isqrt(rows) if self.rank is None else self.rank)
        stored = rows <= _STORED_ROWS if self.stored is None else self.stored
        return dataclasses.replace(self, rank=rank, stored=stored)
