"""Comparison of methods, likelihoods and representations on one split of a table."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product, starmap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.choosing.registry import METHODS
from latentgp.errors import InputError, ProcessLost, refuse
from latentgp.modules import stored, stored_as
from latentgp.runtime.apart import apart
from latentgp.runtime.progress import stepwise
from latentgp.surfaces.estimators import (
    GPClassifier,
    GPOrdinalClassifier,
)
from latentgp.surfaces.evaluation import metrics, pilot
from latentgp.surfaces.evaluation.row_scores import error_of_mean, scores_of, total
from latentgp.surfaces.tables import split_target
from latentgp.surfaces.tables.levels import listed
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.scores import coverages, distances, uncensored
from latentgp.surfaces.tables.start import TASKS, choose_task, taken_out
from latentgp.surfaces.tables.targets import Task
from latentgp.surfaces.tables.values import checked_frame, column_of, known_column, texts_in

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


@stored_as("Compared")
class ComparisonRow(NamedTuple):
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
        deviance: mean deviance, Poisson's, or of trials the binomial; NaN of all but counts.
        coverage: share of rows inside their 95 % interval, of counts and censored targets by
            what is known of them, or of
            classes inside the smallest set of labels that has 95 % of the probability.
        calibration_error: mean distance of the coverage of intervals from their level, or of
            classes the expected calibration error.
        seconds: of the fit, compilation included.
        memory: bytes that the fit and the predictions took at their peak, compilation included, as
            `apart` measures them; NaN but of representations.
        bound: log evidence, or its bound, nats a row to learn from; NaN of methods that only
            approximate it.
        note: why there was no fit, or what the verdict warns of; empty if nothing. Errors leave
            censored rows out, which it says.
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
    memory: float = _NAN
    bound: float = _NAN
    note: str = ""


@stored
class Comparison(NamedTuple):
    """Comparison of contenders, best first, and what data it is of.

    Attributes:
        task: kind of target.
        rows: the contenders.
        trained_on: rows to learn from.
        held_out: rows to score on.
        notes: what was left out of a pilot.
        advice: of a pilot, which representation to take, and how.
        verdict: of depths, whether hidden layers pay.
    """

    task: Task
    rows: tuple[ComparisonRow, ...]
    trained_on: int
    held_out: int
    notes: tuple[str, ...] = ()
    advice: str = ""
    verdict: str = ""


Scored = tuple[ComparisonRow, np.ndarray]  # with the NLPD of every row


class _Contender(NamedTuple):
    likelihood: str
    method: str
    representation: str = "auto"
    depth: int = 1

    def settings(self, task: Task) -> dict[str, Any]:
        """Arguments of `TableModel.fit`."""
        return {"task": task, "likelihood": self.likelihood, "method": self.method}

    def __str__(self) -> str:
        layers = f"{self.depth} layers" if self.depth > 1 else "auto"
        return ", ".join(part for part in (*self[:3], layers) if part != "auto") or "auto"


def compare(
    frame: "pd.DataFrame",
    target: str,
    *,
    task: Task | Literal["auto"] = "auto",
    likelihoods: Sequence[str] = (),
    methods: Sequence[str] = (),
    representations: Sequence[str] | Literal["usual"] = (),
    depths: int | Sequence[int] = (),
    budget: float = 120.0,
    test_share: float = 0.3,
    seed: int = 0,
    progress: Callable[[str], Any] | None = None,
    **settings: Any,
) -> Comparison:
    """Fit every pair of likelihood and method to the same rows, and score them on the others.

    With representations it is a pilot: each is fitted with the same likelihood and method, in a
    process of its own, to as many rows, drawn at random, as the budget is enough for. With depths
    the verdict says whether hidden layers pay, by two standard errors of held-out rows.

    Args:
        frame: inputs and target; rows without a target are left out.
        target: the column to predict.
        task: "auto" goes by the first likelihood, or else by what `TableModel.fit` goes by.
        likelihoods: names; none are the usual ones of the task.
        methods: names; none are the usual ones of the task, or of the likelihood in a pilot.
        representations: names, keys of `REPRESENTATIONS`; "usual" are all of them.
        depths: numbers of layers; of several layers the method is "auto" unless methods are given.
        budget: seconds for a pilot.
        test_share: of the rows that are held out, in (0, 1).
        seed: of the split and of the fits.
        progress: told before every fit, in words.
        settings: for `TableModel.fit`; by a column of `weights` scores are weighted too.

    Returns:
        The scores, the lowest NLPD first; pairs that cannot be fitted last, with the reason.

    Raises:
        InputError: no such column or representation, a share outside (0, 1), a class that only
            held-out rows have, depths and representations together.
    """
    if not 0 < test_share < 1:
        raise InputError(f"test_share must be strictly between 0 and 1, got {test_share}: try 0.3")
    frame = checked_frame(frame)
    split = split_target(frame, target)
    named = next((name for name in likelihoods if name in TASKS), "auto")
    sides, order_given = settings.get("side_columns") or {}, settings.get("order")
    chosen, said, _ = choose_task(split.target, task, named, sides, order_given)
    usual = LIKELIHOODS[chosen]
    if {"event", "censored"} & sides.keys():
        usual = "weibull", "censored-log-normal", "censored-gaussian"
    usual = usual if said == "auto" and not representations else (str(said),)
    likelihoods = likelihoods or usual
    tried, notes = {}, []
    known = np.flatnonzero(column_of(frame, known_column(frame, target)).notna())
    order = np.random.default_rng(seed).permutation(known)
    depths = [depths] if isinstance(depths, int) else depths
    if representations and depths:
        raise InputError("a pilot of representations has one depth: leave depths out")
    if representations:
        if settings.get("n_inducing") is not None:
            raise InputError("representations say how many points: leave n_inducing out")
        methods = methods or ("auto",)
        gaussian = pilot.is_gaussian(likelihoods, chosen)
        most = pilot.rows_within(budget, gaussian=gaussian)
        tried, notes = pilot.candidates(representations, len(order), gaussian=gaussian)
        notes += pilot.sampled(len(order), most)
        order = order[:most]
    held_out = max(1, round(test_share * len(order)))
    if len(order) - held_out < 1:
        raise InputError(f"{len(order)} row(s) are too few to hold some out: give more")
    train, test = frame.iloc[np.sort(order[held_out:])], frame.iloc[np.sort(order[:held_out])]
    weights = _weights(test, settings)
    refuse({"weights are zero in all held-out rows: take another seed": not weights.any()})
    if chosen in ("classification", "ordinal"):
        known, asked = (set(texts_in(split_target(t, target).target)) for t in (train, test))
        if unseen := sorted(asked - known):
            said = f"only held-out rows have the class {listed(unseen)}"
            raise InputError(f"{said}: merge rare classes, or take another seed")
    fits, contenders = [], []
    of_task = [name for name, entry in METHODS.items() if chosen in entry.compared_for]
    for depth in depths or [1]:
        of_depth = methods or (of_task if depth == 1 else []) or ["auto"]
        each = product(likelihoods, of_depth, tried or ["auto"], [depth])
        contenders += starmap(_Contender, each)
    began = time.monotonic()
    for number, contender in enumerate(stepwise(contenders, "comparing", "contender")):
        if progress is not None:
            progress(f"{number + 1} of {len(contenders)}: fitting {contender} ...")
        given = train, test, target, chosen, contender, seed
        own = settings | ({"depth": contender.depth} if contender.depth != 1 else {})
        if tried:
            left = budget - (time.monotonic() - began)
            own = own | {"representation": tried[contender.representation]}
            fits.append(_apart(*given, own, pilot.share(left, len(contenders) - number)))
        else:
            fits.append(_one(*given, own))
    said = ""
    if depths:
        scored = list(zip(contenders, fits, strict=True))
        flat, deep = ([f for c, f in scored if (c.depth > 1) == more] for more in (False, True))
        said = verdict(flat, deep, weights)
    fits.sort(key=lambda fit: (np.isnan(fit[0].nlpd), fit[0].nlpd))
    best = fits[0][1]
    rows = [row._replace(standard_error=error_of_mean(nlpd - best, weights)) for row, nlpd in fits]
    compared = Comparison(chosen, tuple(rows), len(train), len(test), verdict=said)
    if not tried:
        return compared
    code = {
        str(own): pilot.line_of_python(target, tried[own.representation], **own.settings(task))
        for own in contenders
    }
    notes += pilot.cut_short(rows)
    return compared._replace(notes=tuple(notes), advice=pilot.advice(rows, code))


def _apart(*given: Any) -> Scored:
    """`_one` in a process of its own, within its share of the budget."""
    *arguments, settings, share = given
    settings = {"max_seconds": share.search} | settings
    began = time.monotonic()
    try:
        (row, nlpd), memory = apart(_one, *arguments, settings, seconds=share.end)
    except ProcessLost as lost:
        _, test, _, _, contender, _ = arguments
        seconds, note = time.monotonic() - began, f"There is no fit: {lost}. Raise the budget."
        row = ComparisonRow(str(contender), _NAN, _NAN, seconds=seconds, note=note)
        return row, np.full(len(test), _NAN)
    return row._replace(memory=memory), nlpd


def _one(
    train: "pd.DataFrame",
    test: "pd.DataFrame",
    target: str,
    task: Task,
    contender: _Contender,
    seed: int,
    settings: dict[str, Any],
) -> Scored:
    """With the NLPD of every row; the standard error is to be filled in."""
    name = str(contender)
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = contender.settings(task)
            model = TableModel.fit(train, target, **own, random_state=seed, **settings)
    except InputError as error:
        seconds = time.perf_counter() - started
        row = ComparisonRow(name, _NAN, _NAN, seconds=seconds, note=str(error))
        return row, np.full(len(test), _NAN)
    seconds = time.perf_counter() - started
    weights = _weights(test, settings)
    nlpd, scores, censored = _scores(model, test, weights)
    notes = list(model.estimator.diagnostics_.warnings)
    if groups := getattr(model.encoder, "groups", ()):
        notes.append(f"Every level of {listed(own.name for own in groups)} has an effect.")
    if censored:
        notes.append(f"Errors leave {censored} censored rows out.")
    evidence = model.estimator.posterior_.evidence
    if evidence is not None and evidence.kind != "approximation":
        scores["bound"] = evidence.value / float(np.sum(_weights(train, settings)))
    mean = total(nlpd, weights) / float(weights.sum())
    scores |= {"nlpd": mean, "standard_error": _NAN, "seconds": seconds}
    return ComparisonRow(name, note=" ".join(notes), **scores), nlpd


def _weights(rows: "pd.DataFrame", settings: dict[str, Any]) -> Float[np.ndarray, "N"]:
    """Row weights of the column that `TableModel.fit` is told of, else ones."""
    column = settings.get("weights")
    return np.ones(len(rows)) if column is None else taken_out(rows, column, "weights")[1]


def _scores(
    model: TableModel, test: "pd.DataFrame", weights: Float[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "N"], dict[str, float], int]:
    """NLPD a row, other scores by their names in `ComparisonRow`, and number of censored rows."""
    estimator = model.estimator
    X, y, side = model.encoded(test)
    if isinstance(estimator, GPClassifier | GPOrdinalClassifier):
        probabilities, classes = estimator.predict_proba(X), estimator.classes_
        known: dict[str, Any] = {"classes": classes, "sample_weight": weights}
        off = metrics.expected_calibration_error(y, probabilities, **known)
        truth = probabilities[y[:, None] == classes]
        ahead = np.sum(probabilities, axis=1, where=probabilities > truth[:, None])
        scores = {
            "error": float(np.average(estimator.predict(X) != y, weights=weights)),
            "coverage": float(np.average(ahead < _SURE, weights=weights)),
            "calibration_error": off,
        }
        return -np.log(truth), scores, 0
    predictive = estimator.posterior_.predict(X, **side)
    nlpd, seen = -predictive.log_prob(y), uncensored(side, len(y))
    censored = int(np.sum(~seen))
    far = distances(estimator, predictive, y, seen, weights) if weights[seen].any() else {}
    covered = coverages(scores_of(predictive, y), LEVELS, weights)
    scores = {
        "error": far.get("root mean squared error", _NAN),
        "absolute_error": far.get("mean absolute error", _NAN),
        "crps": far.get("CRPS", _NAN),
        "deviance": next((far[name] for name in far if name.endswith("deviance")), _NAN),
        "coverage": float(covered[-1]),
        "calibration_error": float(np.mean(np.abs(covered - LEVELS))),
    }
    return nlpd, scores, censored


def verdict(
    shallow: Sequence[Scored],
    deep: Sequence[Scored],
    weights: Float[np.ndarray, "N"] | None = None,
) -> str:
    """Whether depth pays by two standard errors of held-out rows, and what the bounds say.

    Contenders without and with hidden layers have their NLPD row by row, rows with weights or
    without; NaN without a fit.

    Example:
        >>> one, two = ComparisonRow("one", 1.0, 0.1), ComparisonRow("two", 0.9, 0.1)
        >>> verdict([(one, np.array([1.0, 1.0, 1.0]))], [(two, np.array([0.9, 0.8, 1.0]))])
        'Depth does not pay here: two is ahead of one by 0.100 ± 0.058 nats a row.'
    """
    best_shallow, best_deep = _best(shallow), _best(deep)
    if best_shallow is None or best_deep is None:
        return "There is no verdict on depth: it takes a fit without hidden layers, and one with."
    (one, of_one), (many, of_many) = best_shallow, best_deep
    ahead = of_one - of_many
    mean, error = float(np.average(ahead, weights=weights)), error_of_mean(ahead, weights)
    if not np.isfinite(error):
        return "There is no verdict on depth: one held-out row says nothing of the error."
    said = "pays" if mean > 2 * error else "does not pay"
    where = "ahead of" if mean > 0 else "behind"
    told = f"Depth {said} here: {many.name} is {where} {one.name} by {abs(mean):.3f} ± {error:.3f}"
    bounded = [row for row, _ in (*shallow, *deep) if not np.isnan(row.bound)]
    if len(bounded) < 2:
        return f"{told} nats a row."
    highest = max(bounded, key=lambda row: row.bound)
    return f"{told} nats a row. {highest.name} has the highest bound, {highest.bound:.3f}."


def _best(scored: Sequence[Scored]) -> Scored | None:
    fitted = [(row, nlpd) for row, nlpd in scored if not np.isnan(row.nlpd)]
    return min(fitted, key=lambda own: own[0].nlpd, default=None)
