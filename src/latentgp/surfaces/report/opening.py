"""The first sentences of a report: what was predicted, from what, and how well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentgp.surfaces.evaluation.effects import VarianceShares
from latentgp.surfaces.report.baselines import Baseline
from latentgp.surfaces.report.judged import Assessment
from latentgp.surfaces.report.page import Section, Text
from latentgp.surfaces.tables.scores import coverages

_NAMED = 6  # columns


def in_short(
    judged: Assessment, contenders: Sequence[Baseline], shares: VarianceShares | None
) -> Section:
    """The answer for whoever decides, in sentences without terms of the trade."""
    model = judged.model
    names = model.encoder.column_names
    more = [f"{len(names) - _NAMED} more columns"] if len(names) > _NAMED else []
    columns = _enumerated([*names[:_NAMED], *more])
    what = f"a probability for each class of {model.target}" if judged.classes is not None else ""
    new = "each is predicted from the other rows, as if it were new"
    how = new if judged.left_out else judged.how
    said = [
        f"This model predicts {what or model.target} from {columns}. It is tried on "
        f"{len(judged.y):,} rows; {how}.",
        (_of_numbers if judged.classes is None else _of_classes)(judged, contenders),
        _of_columns(shares),
    ]
    told = model.estimator.diagnostics_
    if not (told.converged or told.stopped_as_meant) or told.warnings or judged.warnings:
        said.append("Not all went well: read “Can the fit be trusted?” before using it.")
    return Section("short", "In short", [Text(words) for words in said if words])


def _of_numbers(judged: Assessment, contenders: Sequence[Baseline]) -> str:
    """Size of the errors and width of the intervals, in the unit of the target."""
    seen = judged.uncensored & ~np.isnan(judged.log_density)
    if judged.mean is None or not seen.any():
        return ""
    target, y = judged.model.target, judged.y.astype(float)

    def off(mean: np.ndarray) -> float:
        return float(np.average(np.abs(y[seen] - mean[seen]), weights=judged.weights[seen]))

    others = [
        f"{contender.name} by {off(contender.mean):.3g}"
        for contender in contenders[1:]
        if contender.mean is not None
    ]
    rows = f" in the {int(seen.sum()):,} rows whose {target} was seen to the end"
    rows = "" if judged.uncensored.all() else rows
    beside = f"; for comparison, {_enumerated(others)}" if others else ""
    said = (
        f"Predictions are off by {off(judged.mean):.3g} on average{rows}, in the unit of {target}"
        f"{beside}. In these rows {target} is from {y[seen].min():.4g} to {y[seen].max():.4g}."
    )
    if judged.transform is not None:
        held = coverages(judged, 0.95, judged.weights)
        said += f" Intervals meant to hold 95 % of the values hold {100 * held:.0f} %."
    return said


def _of_classes(judged: Assessment, contenders: Sequence[Baseline]) -> str:
    """Share of the rows whose most probable class is right."""
    if judged.probabilities is None or judged.classes is None:
        return ""
    classes, y = judged.classes, judged.y

    def share(values: np.ndarray) -> float:
        return 100 * float(np.average(values, weights=judged.weights))

    def right(probabilities: np.ndarray) -> str:
        return f"{share(classes[np.argmax(probabilities, axis=1)] == y):.0f} %"

    shares = [share(y == label) for label in classes]
    frequent = classes[int(np.argmax(shares))]
    others = [f"always saying {frequent} is right in {max(shares):.0f} %"]
    others += [
        f"{contender.name} in {right(contender.probabilities)}"
        for contender in contenders[2:]
        if contender.probabilities is not None
    ]
    own = judged.probabilities[np.arange(len(y)), np.asarray(judged.data.y).astype(int)]
    return (
        f"The classes are {_enumerated(list(map(str, classes)))}. The most probable one is right "
        f"in {right(judged.probabilities)} of the rows; for comparison, {_enumerated(others)}. "
        f"What was observed had a probability of {share(own):.0f} % on average."
    )


def _of_columns(shares: VarianceShares | None) -> str:
    """The columns that matter most."""
    if shares is None:
        return ""
    total = shares.total.mean(axis=1)
    order = np.argsort(-total, kind="stable")[:3]
    each = [f"{shares.columns[d]} ({100 * min(total[d], 1.0):.0f} %)" for d in order]
    return (
        f"Of the differences between rows in {shares.response}, most go with {_enumerated(each)}; "
        "shares overlap where columns act together."
    )


def _enumerated(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])
