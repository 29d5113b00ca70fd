"""Several methods and likelihoods on one split of a table, side by side."""

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from latentgp import metrics
from latentgp.errors import InputError
from latentgp.estimators import (
    GPClassifier,
    GPCountRegressor,
    GPOrdinalClassifier,
    GPRegressor,
)
from latentgp.table_model import TableModel
from latentgp.tables import guess_task, split_target
from latentgp.tables.targets import Task

if TYPE_CHECKING:
    import pandas as pd

LEVELS = np.linspace(0.05, 0.95, 19)
_SURE = 0.95
METHODS: dict[Task, tuple[str, ...]] = {
    "regression": ("auto",),
    "count": ("variational", "laplace", "ep"),
    "classification": ("variational", "augmented", "laplace", "ep"),
    "ordinal": ("variational", "laplace", "ep"),
}
LIKELIHOODS: dict[Task, tuple[str, ...]] = {
    "regression": ("gaussian", "student-t", "heteroscedastic", "warped"),
    "count": ("poisson", "negative-binomial"),
    "classification": ("auto",),
    "ordinal": ("ordinal",),
}


class Compared(NamedTuple):
    """How one likelihood and method did on the held-out rows.

    Attributes:
        name: of likelihood and method.
        nlpd: negative log predictive density (of classes the log loss), nats a row; NaN, like
            all scores, where there was no fit.
        standard_error: of `nlpd`.
        error: root mean squared error, or of classes the share of wrong ones.
        coverage: share of rows inside their 95 % interval, or of classes inside the smallest set
            of labels that has 95 % of the probability.
        calibration_error: mean distance of the coverage of intervals from their level, or of
            classes the expected calibration error.
        seconds: of the fit, compilation included.
        note: why there was no fit, or what the verdict warns of; empty if nothing.
    """

    name: str
    nlpd: float
    standard_error: float
    error: float
    coverage: float
    calibration_error: float
    seconds: float
    note: str


class Comparison(NamedTuple):
    """A table of contenders, best first, and what it is of."""

    task: Task
    rows: tuple[Compared, ...]
    trained_on: int
    held_out: int


def compare(
    frame: "pd.DataFrame",
    target: str,
    *,
    task: Task | Literal["auto"] = "auto",
    likelihoods: Sequence[str] = (),
    methods: Sequence[str] = (),
    test_share: float = 0.3,
    seed: int = 0,
    **settings: Any,
) -> Comparison:
    """Fit every pair of likelihood and method to the same rows, and score them on the others.

    Args:
        frame: inputs and target; rows without a target are left out.
        target: the column to predict.
        task: "auto" guesses by the target's type.
        likelihoods: names; none are the usual ones of the task.
        methods: names; none are the usual ones of the task.
        test_share: of the rows that are held out, in (0, 1).
        seed: of the split and of the fits.
        settings: for `TableModel.fit`.

    Returns:
        The scores, the lowest NLPD first; pairs that cannot be fitted last, with the reason.

    Raises:
        InputError: no such column, or a share outside (0, 1).
    """
    if not 0 < test_share < 1:
        raise InputError(f"test_share must be strictly between 0 and 1, got {test_share}: try 0.3")
    split = split_target(frame, target)
    chosen = guess_task(split.target).task if task == "auto" else task
    known = np.flatnonzero(frame.index.isin(split.inputs.index))
    order = np.random.default_rng(seed).permutation(known)
    held_out = max(1, round(test_share * len(order)))
    if len(order) - held_out < 1:
        raise InputError(f"{len(order)} row(s) are too few to hold some out: give more")
    train, test = frame.iloc[np.sort(order[held_out:])], frame.iloc[np.sort(order[:held_out])]
    rows = [
        _one(train, test, target, chosen, likelihood, method, seed, settings)
        for likelihood in likelihoods or LIKELIHOODS[chosen]
        for method in methods or METHODS[chosen]
    ]
    rows.sort(key=lambda row: (np.isnan(row.nlpd), row.nlpd))
    return Comparison(chosen, tuple(rows), len(train), len(test))


def _one(
    train: "pd.DataFrame",
    test: "pd.DataFrame",
    target: str,
    task: Task,
    likelihood: str,
    method: str,
    seed: int,
    settings: dict[str, Any],
) -> Compared:
    named = [part for part in (likelihood, method) if part != "auto"]
    name = ", ".join(named) or "auto"
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = TableModel.fit(
                *(train, target),
                task=task,
                likelihood=likelihood,
                method=method,
                random_state=seed,
                **settings,
            )
    except InputError as error:
        seconds = time.perf_counter() - started
        nan = float("nan")
        return Compared(name, nan, nan, nan, nan, nan, seconds, str(error))
    seconds = time.perf_counter() - started
    scores = _scores(model, test)
    rows = len(scores.nlpd)
    error = float(np.std(scores.nlpd, ddof=1) / np.sqrt(rows)) if rows > 1 else float("nan")
    return Compared(
        name=name,
        nlpd=float(np.mean(scores.nlpd)),
        standard_error=error,
        error=scores.error,
        coverage=scores.coverage,
        calibration_error=scores.calibration_error,
        seconds=seconds,
        note=" ".join(model.estimator.diagnostics_.warnings),
    )


class _Scores(NamedTuple):
    nlpd: np.ndarray  # a row
    error: float
    coverage: float
    calibration_error: float


def _scores(model: TableModel, test: "pd.DataFrame") -> _Scores:
    """As `Compared` says."""
    estimator = model.estimator
    X, y, side = model.encoded(test)
    if isinstance(estimator, GPClassifier | GPOrdinalClassifier):
        unseen = ~np.isin(y, estimator.classes_)
        if unseen.any():
            raise InputError(
                f"{unseen.sum()} held-out row(s) have a class that no row to learn from has; "
                "merge rare classes, or take another seed."
            )
        probabilities = estimator.predict_proba(X)
        classes = estimator.classes_
        truth = probabilities[y[:, None] == classes]
        ahead = np.sum(probabilities, axis=1, where=probabilities > truth[:, None])
        return _Scores(
            -np.log(truth),
            float(np.mean(estimator.predict(X) != y)),
            float(np.mean(ahead < _SURE)),
            metrics.expected_calibration_error(y, probabilities, classes=classes),
        )
    coverages = interval_coverages(estimator, X, y, side)
    return _Scores(
        -estimator.log_predictive_density(X, y, **side),
        metrics.root_mean_squared_error(y, estimator.predict(X, return_std=False, **side)),
        float(coverages[-1]),
        float(np.mean(np.abs(coverages - LEVELS))),
    )


def interval_coverages(
    estimator: GPRegressor | GPCountRegressor, X: np.ndarray, y: np.ndarray, side: dict[str, Any]
) -> np.ndarray:
    """Share of rows inside their interval, for each of `LEVELS`."""
    return np.array(
        [
            metrics.interval_coverage(y, *estimator.predict_interval(X, level, **side))
            for level in LEVELS
        ]
    )
