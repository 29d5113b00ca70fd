"""Predictions of a table's rows beside their targets, without what the rows themselves told."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.rows.data import Data
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.estimators.fingerprints import fingerprints, share_known
from latentgp.surfaces.estimators.terms import check_leaves_out
from latentgp.surfaces.evaluation.leave_one_out import leave_one_out
from latentgp.surfaces.evaluation.row_scores import scores_of
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.scores import spread_evenly, uncensored

_MOSTLY = 0.5  # of the rows known to the model: then they are judged as its own


@dataclass(frozen=True)
class Assessment:
    """Predictions and targets, a row each."""

    model: TableModel  # the model
    frame: pd.DataFrame  # the rows whose target is known
    X: Float[np.ndarray, "N D"]  # their inputs
    y: np.ndarray  # their targets; of classes their labels, shape (N,)
    classes: np.ndarray | None  # of labels, in their order; None of numbers
    log_density: Float[np.ndarray, "N"]  # log p(y_n), in nats
    seen: float | None  # share of the rows that the model learned from; None where it is not known
    left_out: bool  # whether each row is predicted from the others
    how: str  # what predictions rest on, in words
    uncensored: Bool[np.ndarray, "N"]  # rows whose target was seen
    data: Data  # all this as numbers, as the model takes it
    mean: Float[np.ndarray, "N"] | None = None  # of the predictions; None of classes
    std: Float[np.ndarray, "N"] | None = None  # their standard deviations, noise included
    below: Float[np.ndarray, "N"] | None = None  # probability of a smaller target; None of classes
    up_to: Float[np.ndarray, "N"] | None = None  # probability of a target of at most y
    probabilities: Float[np.ndarray, "N K"] | None = None  # of the classes
    warnings: tuple[str, ...] = ()  # on what is not reliable

    @property
    def transform(self) -> Float[np.ndarray, "N"] | None:
        """Probability integral transforms, spread evenly within counts and what is censored."""
        if self.below is None or self.up_to is None:
            return None
        u = spread_evenly(self.below, self.up_to)
        return u[np.isfinite(u)]


def judged(model: TableModel, frame: pd.DataFrame) -> Assessment:
    """Predict every row: from the others where the model has learned from it, else as a new one."""
    estimator, posterior = model.estimator, model.estimator.posterior_
    frame = model.without_gaps(frame)
    X, y, side = model.encoded(frame)
    classes, numbers = None, y
    if isinstance(estimator, LabelEstimator):
        classes, numbers = estimator.classes_, estimator.numbered(y)
    known = getattr(estimator, "row_sketch_", None)
    seen = None if known is None else share_known(fingerprints(X, numbers), known)
    plain: dict[str, Any] = {"model": model, "frame": frame, "X": X, "y": y, "classes": classes}
    data = Data(X, numbers, **side)
    plain |= {"seen": seen, "uncensored": uncensored(side, len(y)), "data": data}
    told: tuple[str, ...] = ()
    if seen is None or seen > _MOSTLY:
        try:
            check_leaves_out(estimator.mean)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                left = leave_one_out(posterior, data)
        except InputError as error:
            told = (f"Rows cannot be left out of this posterior: {error}",)
        else:
            found = {name: getattr(left, name) for name in ("mean", "std", "below", "up_to")}
            if classes is None:
                plain |= {name: values for name, values in found.items() if np.ndim(values) == 1}
            return Assessment(
                **plain,
                log_density=left.log_density,
                left_out=True,
                how=f"each row is predicted from all others, by {left.how}",
                probabilities=left.probabilities,
                warnings=left.warnings,
            )
    predictive = posterior.predict(X, **side)
    scores = scores_of(predictive, numbers).as_predictions()
    density = scores.pop("log_density")
    names = ("probabilities",) if classes is not None else ("mean", "std", "below", "up_to")
    plain |= {name: scores[name] for name in names}
    learned = "rows the model has learned from are predicted as new ones: too well"
    how = learned if told else "the rows are new to the model"
    return Assessment(**plain, log_density=density, left_out=False, how=how, warnings=told)
