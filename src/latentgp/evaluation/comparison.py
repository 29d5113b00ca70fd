"""Comparison of methods and likelihoods on one split of a table."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from latentgp.errors import InputError
from latentgp.estimators import (
    GPClassifier,
    GPCountRegressor,
    GPOrdinalClassifier,
    GPRegressor,
)
from latentgp.evaluation import metrics
from latentgp.methods.registry import METHODS
from latentgp.tables import split_target
from latentgp.tables.model import TableModel
from latentgp.tables.scores import distances, uncensored
from latentgp.tables.start import TASKS, choose_task
from latentgp.tables.targets import Task
from latentgp.tables.values import listed, texts_in

if TYPE_CHECKING:
    import pandas as pd

LEVELS = np.linspace(0.05, 0.95, 19)
_SURE = 0.95
_NAN = float("nan")
LIKELIHOODS: dict[Task, tuple[str, ...]] = {
    "regression": ("gaussian", "student-t", "heteroscedastic", "warped"),
    "count": ("poisson", "negative-binomial"),
    "classification": ("auto",),
    "ordinal": ("ordinal",),
}


class Compared(NamedTuple):
    """Scores of one likelihood and method on the held-out rows.

    Attributes:
        name: of likelihood and method.
        nlpd: negative log predictive density (of classes the log loss), nats a row; NaN, like
            all scores, where there was no fit.
        standard_error: of the difference of `nlpd` from the best contender's, row by row, as all
            share the rows; 0 of the best.
        error: root mean squared error, or of classes the share of wrong ones.
        absolute_error: mean absolute error; NaN of classes.
        crps: mean continuous ranked probability score; NaN of counts and classes.
        deviance: mean Poisson deviance; NaN of all but counts.
        coverage: share of rows inside their 95 % interval, as in `interval_coverages`, or of
            classes inside the smallest set of labels that has 95 % of the probability.
        calibration_error: mean distance of the coverage of intervals from their level, or of
            classes the expected calibration error.
        seconds: of the fit, compilation included.
        note: why there was no fit, or what the verdict warns of; empty if nothing. Errors,
            coverage and calibration leave censored rows out, which it says.
    """

    name: str
    nlpd: float
    standard_error: float
    error: float = _NAN
    absolute_error: float = _NAN
    crps: float = _NAN
    deviance: float = _NAN
    coverage: float = _NAN
    calibration_error: float = _NAN
    seconds: float = _NAN
    note: str = ""


class Comparison(NamedTuple):
    """Comparison of contenders, best first, and what data it is of."""

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
    progress: Callable[[str], Any] | None = None,
    **settings: Any,
) -> Comparison:
    """Fit every pair of likelihood and method to the same rows, and score them on the others.

    Args:
        frame: inputs and target; rows without a target are left out.
        target: the column to predict.
        task: "auto" goes by the first likelihood, or else by what `TableModel.fit` goes by.
        likelihoods: names; none are the usual ones of the task.
        methods: names; none are the usual ones of the task.
        test_share: of the rows that are held out, in (0, 1).
        seed: of the split and of the fits.
        progress: told before every fit, in words.
        settings: for `TableModel.fit`.

    Returns:
        The scores, the lowest NLPD first; pairs that cannot be fitted last, with the reason.

    Raises:
        InputError: no such column, a share outside (0, 1), or a class that only held-out rows have.
    """
    if not 0 < test_share < 1:
        raise InputError(f"test_share must be strictly between 0 and 1, got {test_share}: try 0.3")
    split = split_target(frame, target)
    named = next((name for name in likelihoods if name in TASKS), "auto")
    sides, order_given = settings.get("side_columns") or {}, settings.get("order")
    chosen, said, _ = choose_task(split.target, task, named, sides, order_given)
    usual = LIKELIHOODS[chosen] if said == "auto" else (said,)
    known = np.flatnonzero(frame.index.isin(split.inputs.index))
    order = np.random.default_rng(seed).permutation(known)
    held_out = max(1, round(test_share * len(order)))
    if len(order) - held_out < 1:
        raise InputError(f"{len(order)} row(s) are too few to hold some out: give more")
    train, test = frame.iloc[np.sort(order[held_out:])], frame.iloc[np.sort(order[:held_out])]
    if chosen in ("classification", "ordinal"):
        known, asked = (set(texts_in(split_target(t, target).target)) for t in (train, test))
        if unseen := sorted(asked - known):
            raise InputError(
                f"only held-out rows have the class {listed(unseen)}: merge rare classes, or take "
                "another seed"
            )
    fits = []
    pairs = list(product(likelihoods or usual, methods or _methods_for(chosen)))
    for number, (likelihood, method) in enumerate(pairs, 1):
        if progress is not None:
            progress(f"{number} of {len(pairs)}: fitting {_name(likelihood, method)} ...")
        fits.append(_one(train, test, target, chosen, likelihood, method, seed, settings))
    fits.sort(key=lambda fit: (np.isnan(fit[0].nlpd), fit[0].nlpd))
    best = fits[0][1]
    rows = [row._replace(standard_error=_standard_error(nlpd - best)) for row, nlpd in fits]
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
) -> tuple[Compared, np.ndarray]:
    """With the NLPD of every row; the standard error is to be filled in."""
    name = _name(likelihood, method)
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
        row = Compared(name, _NAN, _NAN, seconds=seconds, note=str(error))
        return row, np.full(len(test), _NAN)
    seconds = time.perf_counter() - started
    scores = _scores(model, test)
    notes = list(model.estimator.diagnostics_.warnings)
    if scores.censored:
        notes.append(f"Of {scores.censored} censored rows only the density is scored.")
    row = Compared(
        name=name,
        nlpd=float(np.mean(scores.nlpd)),
        standard_error=_NAN,
        error=scores.error,
        absolute_error=scores.absolute_error,
        crps=scores.crps,
        deviance=scores.deviance,
        coverage=scores.coverage,
        calibration_error=scores.calibration_error,
        seconds=seconds,
        note=" ".join(notes),
    )
    return row, scores.nlpd


def _methods_for(task: Task) -> list[str]:
    """The methods that are compared unless others are asked for."""
    return [name for name, entry in METHODS.items() if task in entry.compared_for] or ["auto"]


def _name(likelihood: str, method: str) -> str:
    return ", ".join(part for part in (likelihood, method) if part != "auto") or "auto"


def _standard_error(values: np.ndarray) -> float:
    """Standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else _NAN


class _Scores(NamedTuple):
    nlpd: np.ndarray  # a row
    error: float = _NAN
    absolute_error: float = _NAN
    crps: float = _NAN
    deviance: float = _NAN
    coverage: float = _NAN
    calibration_error: float = _NAN
    censored: int = 0  # rows that only `nlpd` is of


def _scores(model: TableModel, test: "pd.DataFrame") -> _Scores:
    """As `Compared` says."""
    estimator = model.estimator
    X, y, side = model.encoded(test)
    if isinstance(estimator, GPClassifier | GPOrdinalClassifier):
        probabilities = estimator.predict_proba(X)
        classes = estimator.classes_
        truth = probabilities[y[:, None] == classes]
        ahead = np.sum(probabilities, axis=1, where=probabilities > truth[:, None])
        return _Scores(
            -np.log(truth),
            error=float(np.mean(estimator.predict(X) != y)),
            coverage=float(np.mean(ahead < _SURE)),
            calibration_error=metrics.expected_calibration_error(y, probabilities, classes=classes),
        )
    predictive = estimator.posterior_.predict(X, **side)
    nlpd, seen = -predictive.log_prob(y), uncensored(side, len(y))
    censored = int(np.sum(~seen))
    if not seen.any():
        return _Scores(nlpd, censored=censored)
    far = distances(estimator, y, predictive, seen)
    coverages = interval_coverages(estimator, X, y, side)
    return _Scores(
        nlpd,
        error=far["root mean squared error"],
        absolute_error=far["mean absolute error"],
        crps=far.get("CRPS", _NAN),
        deviance=far.get("Poisson deviance", _NAN),
        coverage=float(coverages[-1]),
        calibration_error=float(np.mean(np.abs(coverages - LEVELS))),
        censored=censored,
    )


def interval_coverages(
    estimator: GPRegressor | GPCountRegressor, X: np.ndarray, y: np.ndarray, side: dict[str, Any]
) -> np.ndarray:
    """Share of rows inside their central interval, for each of `LEVELS`; censored ones left out.

    The interval of a count holds more than its level, as counts are whole. So theirs is of the
    randomised probability integral transform, uniform if the model is right: F(y) - v p(y) with v
    uniform, drawn with seed 0 (Czado, Gneiting & Held 2009, section 2.1).
    """
    if isinstance(estimator, GPCountRegressor):
        predictive = estimator.posterior_.predict(X, **side)
        v = np.random.default_rng(0).uniform(size=len(y))
        transform = predictive.cdf(y) - v * np.exp(predictive.log_prob(y))
        return np.mean(np.abs(2 * transform - 1)[:, None] <= LEVELS, axis=0)
    seen = uncensored(side, len(y))
    X, y, side = X[seen], y[seen], {name: values[seen] for name, values in side.items()}
    return np.array(
        [
            metrics.interval_coverage(y, *estimator.predict_interval(X, level, **side))
            for level in LEVELS
        ]
    )
