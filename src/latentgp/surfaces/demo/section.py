"""A part of the demo: contenders on one data set, their scores and a picture."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.surfaces.estimators.base import GPEstimator

Tell = Callable[[str], Any]


class Row(NamedTuple):
    """A contender's line in the table of a section."""

    name: str  # of the contender
    nlpd: Float[np.ndarray, "N"]  # negative log predictive density of each held-out row, in nats
    scores: tuple[str, ...]  # the other columns, ready to print
    first: float  # seconds of the fit, in which latentgp compiles its programs
    again: float | None  # seconds of the same fit again; None where nothing was compiled


class Section(NamedTuple):
    """Results on one data set."""

    title: str  # in a few words
    data: str  # which rows are learned from and which are held out
    question: str  # what the picture and the table are to show
    lesson: str  # what they do show
    score: str  # heading of the column of mean `nlpd`
    columns: tuple[str, ...]  # headings of `Row.scores`
    rows: tuple[Row, ...]  # the contenders, latentgp first
    picture: Path  # file drawn
    caption: str  # what is in the picture

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of `cells`."""
        return ("", self.score, *self.columns, "first fit", "again")

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The table, a tuple a contender."""
        return [
            (
                row.name,
                f"{row.nlpd.mean():.3f}",
                *row.scores,
                f"{row.first:.{row.first < 9.95:d}f} s",
                "" if row.again is None else f"{row.again:.{row.again < 9.95:d}f} s",
            )
            for row in self.rows
        ]


def fitted(
    contenders: Mapping[str, Any], X: np.ndarray, y: np.ndarray, tell: Tell
) -> Iterator[tuple[str, Any, float, float | None]]:
    """Each contender fitted, with `Row.first` and `Row.again`."""
    for name, estimator in contenders.items():
        tell(f"fitting {name} ...")
        with quiet():
            first = _seconds(estimator, X, y)
            again = _seconds(estimator, X, y) if isinstance(estimator, GPEstimator) else None
        yield name, estimator, first, again


def _seconds(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    started = time.perf_counter()
    estimator.fit(X, y)
    return time.perf_counter() - started


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of contenders: the scores say what became of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def behind(nlpd: Float[np.ndarray, "N"], best: Float[np.ndarray, "N"]) -> str:
    """Difference of mean NLPD between two models on the same rows, with two standard errors."""
    difference = nlpd - best
    if not difference.any():
        return ""
    spread = 2 * difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{difference.mean():+.3f} ± {spread:.3f}"
