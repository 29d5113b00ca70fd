"""Preparation of a table for an estimator: task, likelihood, encoded columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from latentgp.errors import InputError, refuse
from latentgp.extensions import answer
from latentgp.likelihoods import Likelihood, Ordinal
from latentgp.surfaces.estimators import (
    BINARY,
    COUNTS,
    MULTICLASS,
    REGRESSION,
    GPClassifier,
    GPCountRegressor,
    GPOrdinalClassifier,
    GPRegressor,
)
from latentgp.surfaces.estimators.additive import AdditiveTerms, Groups, Smooth
from latentgp.surfaces.estimators.places import PlaceColumns, guessed, has_geometry, placed
from latentgp.surfaces.estimators.terms import is_learned_apart, number_of, with_terms
from latentgp.surfaces.options import OF_TABLES
from latentgp.surfaces.tables import TableEncoder, guess_task, split_target
from latentgp.surfaces.tables.columns import MOST_CATEGORIES
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder, rows_without_gaps
from latentgp.surfaces.tables.levels import listed
from latentgp.surfaces.tables.notation import Notation, RecognisedNotation, plain
from latentgp.surfaces.tables.targets import Task
from latentgp.surfaces.tables.values import (
    checked_frame,
    column_of,
    known_column,
    name_of,
    numbers_in,
    read_column,
    source_of,
    text_of,
    texts_in,
    warn,
)

Estimator = GPRegressor | GPCountRegressor | GPClassifier | GPOrdinalClassifier

_OF_TERMS = "mean", "groups"  # settings that are among the terms
_A_NUMBER = "give a number in every row"
# settings that effects of levels go with
_PLAIN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("kernel", "representation", "n_inducing", "certify"), (None,)),
    **{"method": ("auto",), "hyperparameters": ("auto", "optimise"), "depth": (1,)},
}
# Names of times until an event, and of columns that say whether it was seen.
_TIMES = re.compile(r"time|surv|duration|^(os|pfs|days|months|years)$", re.IGNORECASE)
_EVENTS = re.compile(r"status|event|death|dead|died|cens|fustat", re.IGNORECASE)
_MANY_GAPS = 0.1  # share of rows left out for gaps above which that is a warning
_SMOOTH = 20  # columns, all of which a smooth function beside effects is of

ESTIMATORS: dict[Task, type[Estimator]] = {
    "regression": GPRegressor,
    "count": GPCountRegressor,
    "classification": GPClassifier,
    "ordinal": GPOrdinalClassifier,
}
TASKS: dict[str, Task] = {
    **dict.fromkeys(REGRESSION, "regression"),
    **dict.fromkeys(COUNTS, "count"),
    **dict.fromkeys([*BINARY, *MULTICLASS], "classification"),
    "ordinal": "ordinal",
}


class Side(NamedTuple):
    """Side information of a task, and its value where predictions lack it."""

    task: Task
    likelihood: str
    without: str | None


SIDES = {
    "exposure": Side("count", "auto", "predictions are in one unit of exposure"),
    "trials": Side("count", "binomial", "predictions are of one trial"),
    "event": Side("regression", "auto", None),  # which is what is predicted
    "censored": Side("regression", "auto", None),
    "upper": Side("regression", "auto", None),
    "entry": Side("regression", "auto", None),
    "noise_variance": Side("regression", "auto", "predictions have the learned noise only"),
}


class TargetChoice(NamedTuple):
    """Task and likelihood for a target, with notes on whatever was chosen automatically."""

    task: Task
    likelihood: str | Likelihood
    notes: list[str]


def choose_task(
    target: pd.Series,
    task: Task | Literal["auto"],
    likelihood: str | Likelihood,
    side_columns: Mapping[str, str],
    order: Sequence[str] | None,
) -> TargetChoice:
    """Choose task and likelihood if "auto", by the rules of `TableModel.fit`, or InputError."""
    known = listed(["auto", *ESTIMATORS])
    refuse({f"task must be one of {known}, got {task!r}": task not in ("auto", *ESTIMATORS)})
    notes, sides = [], {}
    refuse(
        {
            "event says which rows are censored: leave censored out": {"event", "censored"}
            <= side_columns.keys()
        }
    )
    for name, column in side_columns.items():
        if name not in SIDES:
            raise InputError(f"there is no side column {name!r}: name one of {listed(SIDES)}")
        sides[name] = SIDES[name]
        if task == "auto" and _is_auto(likelihood):
            task = sides[name].task
            notes.append(f"{task} of {target.name!r}, because {column!r} holds its {name}")
    if task == "auto":
        if isinstance(likelihood, Likelihood):
            tasks: dict[str, Task] = {"real": "regression", "count": "count"}
            task = tasks.get(likelihood.targets, "classification")
            task = "ordinal" if isinstance(likelihood, Ordinal) else task
            reason = f"the likelihood is {type(likelihood).__name__}"
        elif likelihood in TASKS:
            task, reason = TASKS[likelihood], f"the likelihood is {likelihood!r}"
        elif order is not None:
            task, reason = "ordinal", "an order is given"
        else:
            task, reason = guess_task(target)
        notes.append(f"{task} of {target.name!r}, because {reason}")
    for name, side in sides.items():
        if side.task != task:
            raise InputError(
                f"{name} belongs to the task {side.task}, but the task of {target.name!r} is "
                f"{task}: leave {name} out, or choose another task or likelihood"
            )
        if _is_auto(likelihood) and side.likelihood != "auto":
            likelihood = side.likelihood
            notes.append(f"likelihood {likelihood!r}, because of {name}")
    if order is not None and task != "ordinal":
        raise InputError(
            f"an order belongs to the task ordinal, but the task of {target.name!r} is {task}: "
            "leave the order out, or choose the task ordinal"
        )
    return TargetChoice(task, likelihood, notes)


def _is_auto(likelihood: str | Likelihood) -> bool:
    return isinstance(likelihood, str) and likelihood == "auto"


class TableStart(NamedTuple):
    """Table prepared for an estimator that is not fitted yet."""

    estimator: Estimator
    encoder: TableEncoder | FormulaEncoder
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    side: dict[str, np.ndarray]
    notes: tuple[str, ...]
    notation: Notation | None
    places: PlaceColumns | None


def takes_exposure(
    frame: pd.DataFrame,
    target: str,
    task: Task | Literal["auto"],
    likelihood: str | Likelihood,
    order: Sequence[str] | None,
    side_columns: Mapping[str, str],
) -> bool:
    """Whether the logarithm of a column beside f is an exposure: the target is of such counts."""
    if not _is_auto(likelihood):
        own = COUNTS.get(likelihood) if isinstance(likelihood, str) else likelihood
        return "exposure" in getattr(own, "side_information", ())
    if order is not None or side_columns or task != "auto":
        return task == "count" and not side_columns
    frame = checked_frame(frame)
    values = column_of(frame, known_column(frame, target)).dropna()
    guessed = guess_task(values).task
    if guessed != "regression":
        return guessed == "count"
    known = np.asarray(pd.to_numeric(values, errors="coerce"), np.float64)
    return bool(len(known) and np.all((known % 1 == 0) & (known >= 0)))


def start(
    frame: pd.DataFrame,
    target: str,
    task: Task | Literal["auto"],
    likelihood: str | Likelihood,
    weights: str | None,
    side_columns: dict[str, str],
    order: Sequence[str] | None,
    leave_out: Sequence[str],
    settings: dict[str, Any],
    *,
    time: str | None = None,
    by: str | None = None,
    formula: str | None = None,
    globe: bool | None = None,
    in_batches: bool = False,
) -> TableStart:
    """Prepare a table by the rules of `TableModel.fit`, or of `fit_files`; InputError as there."""
    notes: list[str] = []
    places, by_default = None, False
    if has_geometry(frame):
        frame, places, notes, doubts = placed(frame, globe)
        here: Any = frame[list(places.columns)].notna().all(axis=1)
        missing = [f"left out {(~here).sum()} row(s) without geometry"] if not here.all() else []
        frame, notes = frame.loc[here], [*notes, *doubts, *missing]
    if formula is not None:
        others = {"time": time, "by": by, "leave_out": leave_out or None}
        others |= {name: settings.get(name) for name in ("kernel", "mean", "groups")}
        others["mean"] = None if is_learned_apart(others["mean"]) else others["mean"]
        for name in (name for name, value in others.items() if value is not None):
            raise InputError(f"the formula {formula!r} says what the inputs do: leave {name} out")
        rows = len(frame)
        frame, gaps = rows_without_gaps(frame, formula, side_columns.get("exposure"))
        notes += gaps
        if len(frame) < (1 - _MANY_GAPS) * rows:
            warn(gaps[0], "; fill them if they may bias the fit")
    inputs, known, dropped = split_target(frame, target)
    if dropped:
        notes.append(f"left out {dropped} row(s) without {target!r}")
    levels = _levels(likelihood, settings)
    task, likelihood, why = choose_task(known, task, likelihood, side_columns, order)
    notes += why
    side, row_weights = sides_of(inputs, side_columns), None
    censored = int(np.sum(side.get("censored", 0) != 0))
    if "censored" in side:
        gone = (
            f"no row has an event by {side_columns.get('event')!r}: name the value that means one"
        )
        refuse({gone: "event" in side_columns and censored == len(known)})
        notes.append(f"{target} is seen in {len(known) - censored} row(s), censored in {censored}")
    if formula is None:  # which says itself what it takes
        own = [known_column(inputs, column_of_side(*named)) for named in side_columns.items()]
        inputs = inputs.drop(columns=own)
    if weights is not None:
        inputs, row_weights = taken_out(inputs, weights, "weights")
    recognised = RecognisedNotation(None)
    if task in ("regression", "count"):
        guess_task(known)  # which refuses dates, and text that is nearly numbers
        recognised = read_column(known, may_be_date=False)[1]
    notes += recognised.described(target)
    if by is not None and time is None:
        raise InputError(f"--by {by} tells series apart, which need a column of time: add --time")
    if formula is not None:
        given = {"has_thresholds": task == "ordinal", "exposure": side_columns.get("exposure")}
        encoder = FormulaEncoder.fit(inputs, formula, **given)
    elif time is not None:
        encoder = TableEncoder.of_series(inputs, time, by)
    else:
        if in_batches and levels:
            raise InputError(
                f"effects of each level of {listed(levels)} take all rows at once: leave groups "
                "out, or fit the table in memory"
            )
        levels = () if in_batches else levels
        by_default = levels is None and settings.get("mean") is None
        encoder = TableEncoder.fit(inputs, _several(leave_out), levels)
        settings = settings | _effects_of(encoder, settings)
    notes += encoder.describe()
    if task == "regression" and not side_columns and formula is None and _TIMES.search(target):
        notes += _untold_events(inputs)
    if task == "ordinal":
        order = [*map(text_of, _several(order))] if order is not None else _order_of(known)
        settings = settings | {"order": order}
        if order is not None:
            notes.append(f"in the order {' < '.join(order)}")
    notation = recognised.notation
    X, y = encoder.encode(inputs), targets_of(known, task, notation)
    settings = {"likelihood": likelihood, **OF_TABLES, **settings}
    if time is None:
        places, terms, why = _on_globe(places, encoder, X, globe, settings)
        notes += why
        if isinstance(encoder, TableEncoder) and encoder.groups and terms is None and by_default:
            terms, why = _beside_levels(encoder, X)
            notes.append(why)
        apart = {n: v for n, v in settings.items() if n == "mean" and is_learned_apart(v)}
        settings = {n: v for n, v in settings.items() if n not in _OF_TERMS} if terms else settings
        settings |= apart
        settings["kernel"] = terms or settings.get("kernel")
    if isinstance(encoder, FormulaEncoder):
        notes += encoder.doubts(X)
    elif time is not None:
        plain = task == "regression" and _is_auto(likelihood) and not side
        settings, reasons = answer("settings for a table of series")(
            *(settings, X, y, row_weights, side), task=task, calendar=encoder.calendar, plain=plain
        )
        notes += reasons
    estimator = ESTIMATORS[task](**settings)
    return TableStart(estimator, encoder, X, y, row_weights, side, tuple(notes), notation, places)


def _untold_events(inputs: pd.DataFrame) -> list[str]:
    """Notes on columns of two values whose names say that they tell events."""
    named = [column_of(inputs, name) for name in inputs if _EVENTS.search(str(name))]
    each = [(own.name, set(texts_in(own.dropna()))) for own in named]
    return [
        f"{name} may say which times are censored: side_columns={{'event': '{name}={max(texts)}'}} "
        "(--event on the command line)"
        for name, texts in each
        if len(texts) == 2
    ]


def _levels(likelihood: str | Likelihood, settings: Mapping[str, Any]) -> Sequence[Any] | None:
    """Columns with an effect for each level: those of `groups` by name.

    None for all of many levels, where nothing is asked for that effects do not go with.
    """
    asked = settings.get("groups")
    if asked is not None:
        return _several(asked)
    plain = all(settings.get(name, usual[0]) in usual for name, usual in _PLAIN.items())
    return None if plain and _is_auto(likelihood) else ()


def _several(names: Any) -> list[Any]:
    """Names, of which one may stand alone."""
    alone = isinstance(names, str) or not np.iterable(names)
    return [names] if alone else list(names)


def _effects_of(encoder: TableEncoder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The estimator's settings of groups, by number, and of a mean.

    Where nobody asked for groups, coefficients of the other columns come beside.
    """
    asked = settings.get("groups")
    if not encoder.groups:
        names = [] if asked is None else _several(asked)
        refuse({f"groups={asked!r} is of columns that are left out; name others.": bool(names)})
        return {"groups": None}
    names, given = encoder.feature_names, asked.items() if isinstance(asked, Mapping) else ()
    slopes = {name_of(column): [*map(name_of, own)] for column, own in given}
    first = len(names) - len(encoder.groups)
    own = {
        first + place: [number_of(slope, len(names), names) for slope in slopes.get(name, ())]
        for name, place in encoder.grouped.items()
    }
    usual = "linear" if asked is None else None
    return {"groups": own, "mean": settings.get("mean") or usual}


def _beside_levels(encoder: TableEncoder, X: np.ndarray) -> tuple[AdditiveTerms, str]:
    """Effects of levels beside coefficients and a smooth function, and a note on it.

    The function is of all other columns; where there are more than 20, of those of many values.
    """
    number = X.shape[1] - len(encoder.groups)
    linear, groups = tuple(range(number)), tuple(map(Groups, range(number, X.shape[1])))
    own = [c for c in linear if number <= _SMOOTH or len(np.unique(X[:, c])) > MOST_CATEGORIES]
    smooth = (Smooth(tuple(own), "matern32"),) if own else ()
    what = (
        f" and a smooth function of {listed(encoder.feature_names[c] for c in own)}" if own else ""
    )
    note = f"beside the effects coefficients of the other columns{what}"
    note += " (groups=(): the most frequent levels as 0/1 columns instead)"
    return AdditiveTerms(linear, smooth, groups), note


def _on_globe(
    places: PlaceColumns | None,
    encoder: TableEncoder | FormulaEncoder,
    X: np.ndarray,
    globe: bool | None,
    settings: Mapping[str, Any],
) -> tuple[PlaceColumns | None, AdditiveTerms | None, list[str]]:
    """Places of the rows, terms in place of a kernel where there are any, and why.

    Guessed by names and values where there is no geometry.
    """
    names, is_guess, notes = encoder.feature_names, places is None and not globe, list[str]()
    if places is None:
        places, notes = guessed(names, X, globe)
    of_formula = encoder.terms() if isinstance(encoder, FormulaEncoder) else None
    if places is None or not places.on_globe:
        return places, of_formula, notes
    pair = f"{places.columns[0]}, {places.columns[1]}"
    if isinstance(encoder, FormulaEncoder):
        terms = encoder.terms(places)
        other = f"the formula has no gp({pair}) without a kernel" if terms == of_formula else None
    else:
        given = {"kernel": None, "depth": 1} | ({"representation": None} if is_guess else {})
        wrong = (n for n, usual in given.items() if settings.get(n, usual) != usual)
        other = next((f"{name} is given" for name in wrong), None)
        if not set(places.columns) <= set(names):
            other = "one of them is constant"
        asked = settings.get("mean"), settings.get("groups")
        terms = None if other else with_terms(None, *asked, X.shape[1], names, places)
    if other is None:
        where = "on the globe, length-scale in kilometres"
        return places, terms, [*notes, f"{pair}: {where} (globe=False: a plane)"]
    if is_guess and (of_formula is not None or settings.get("kernel") is not None):
        return None, of_formula, []
    change = "; globe=True puts them there" if is_guess else ""
    return places, of_formula, [*notes, f"{pair}: not on the globe, because {other}{change}"]


def _order_of(target: pd.Series) -> list[str] | None:
    """The labels from lowest to highest, of numbers and of categories with an order."""
    if getattr(target.dtype, "ordered", False):
        return texts_in(target.cat.categories.to_series()).tolist()
    known = target.drop_duplicates().astype(object).infer_objects()
    source = source_of(known)
    if source not in ("number", "text", "boolean"):
        return None
    ascending = np.argsort(numbers_in(known, source), kind="stable")
    return texts_in(known.iloc[ascending]).tolist()


def targets_of(target: pd.Series, task: str, notation: Notation | None) -> np.ndarray:
    """Targets as an estimator takes them: labels as text, others as numbers, shape (N,)."""
    if task in ("classification", "ordinal"):
        return texts_in(target).to_numpy(dtype=str)
    return _numbers("target", plain(target, notation), "use --task classification, or clean it")


def _numbers(what: str, column: pd.Series, advice: str) -> np.ndarray:
    if column.dtype.kind in "mM":  # NumPy would count their ticks
        raise InputError(
            f"the {what} {column.name!r} holds dates or durations: make numbers of them, such as "
            "by .dt.total_seconds()"
        )
    try:
        return column.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the {what} {column.name!r} is not a number in every row ({error}): {advice}"
        ) from error


def column_of_side(name: str, column: str) -> str:
    """A side column's name: of an event without the value that means one, as in "status=2"."""
    return column.rpartition("=")[0] or column if name == "event" else column


def sides_of(frame: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Side information by the likelihood's names; events as what is not censored."""
    side = {}
    for name, column in sorted(columns.items(), key=lambda own: own[0] == "upper"):
        own = column_of_side(name, column)
        if name == "event":
            values = split_target(frame, own)
            _refuse_gaps(name, own, values.rows_dropped)
            side["censored"] = 1.0 - _events(values.target, column[len(own) + 1 :])
        elif name == "upper":  # which rows without one may leave empty
            values = _numbers("upper column", column_of(frame, known_column(frame, own)), _A_NUMBER)
            gaps = np.isnan(values)
            _refuse_gaps(name, own, np.sum(gaps & (side.get("censored", 2) == 2)))
            side[name] = np.where(gaps, 0.0, values)
        else:
            side[name] = taken_out(frame, own, name)[1]
    kinds = set(side.get("censored", ()))
    refuse(
        {
            f"the censored column {columns.get('censored')!r} holds 1 and 2, as a status where 2 "
            f"is an event: give it as event, '{columns.get('censored')}=2'": kinds == {1, 2}
            and "upper" not in columns
        }
    )
    return side


def _events(values: pd.Series, event: str) -> np.ndarray:
    """Whether there was an event: the value that means one, or else true or 1."""
    texts = texts_in(values)
    if event:
        return texts.to_numpy(str) == event
    known = texts.str.lower().map({"0": False, "1": True, "false": False, "true": True})
    refuse(
        {
            f"the event column {values.name!r} holds {listed(sorted(set(texts)))}, not 0 and 1: "
            f"name the value that means an event, such as '{values.name}={max(texts)}'": (
                known.isna().any()
            )
        }
    )
    return known.to_numpy(bool)


def _refuse_gaps(what: str, column: str, rows: int) -> None:
    gaps = f"the {what} column {column!r} is missing in {rows} row(s): fill it, or leave them out"
    refuse({gaps: rows})


def taken_out(inputs: pd.DataFrame, column: str, what: str) -> tuple[pd.DataFrame, np.ndarray]:
    """The inputs without a column, and its numbers, shape (N,)."""
    inputs, values, dropped = split_target(inputs, column)
    _refuse_gaps(what, column, dropped)
    advice = "give numbers, not negative" if what == "weights" else _A_NUMBER
    return inputs, _numbers(f"{what} column", values, advice)
