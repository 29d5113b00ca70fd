"""Predictions of a table's rows beside their targets, without what the rows themselves told."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.rows.data import Data
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.estimators.fingerprints import are_known, fingerprints
from latentgp.surfaces.estimators.terms import check_leaves_out
from latentgp.surfaces.evaluation.leave_one_out import leave_one_out
from latentgp.surfaces.evaluation.row_scores import scores_of
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.scores import spread_evenly, uncensored
from latentgp.surfaces.tables.values import Tell, silent


@dataclass(frozen=True)
class Assessment:
    """Predictions and targets, a row each."""

    model: TableModel  # the model
    frame: pd.DataFrame  # the rows whose target is known
    X: Float[np.ndarray, "N D"]  # their inputs
    y: np.ndarray  # their targets; of classes their labels, shape (N,)
    classes: np.ndarray | None  # of labels, in their order; None of numbers
    log_density: Float[np.ndarray, "N"]  # log p(y_n), in nats
    seen: float | None  # share that the model learned from, by weight; None where it is not known
    left_out: bool  # whether each row is predicted from the others
    whole: bool  # whether these are all the rows that the model learned from, and no others
    how: str  # what predictions rest on, in words
    uncensored: Bool[np.ndarray, "N"]  # rows whose target was seen
    data: Data  # all this as numbers, as the model takes it
    weights: Float[np.ndarray, "N"]  # how often each row counts
    mean: Float[np.ndarray, "N"] | None = None  # of the predictions; None of classes
    std: Float[np.ndarray, "N"] | None = None  # their standard deviations, noise included
    below: Float[np.ndarray, "N"] | None = None  # probability of a smaller target; None of classes
    up_to: Float[np.ndarray, "N"] | None = None  # probability of a target of at most y
    probabilities: Float[np.ndarray, "N K"] | None = None  # of the classes
    warnings: tuple[str, ...] = ()  # on what is not reliable

    @property
    def transform(self) -> tuple[Float[np.ndarray, "some"], Float[np.ndarray, "some"]] | None:
        """Probability integral transforms of rows that have them, and these rows' weights.

        They are spread evenly within counts and what is censored.
        """
        if self.below is None or self.up_to is None:
            return None
        u = spread_evenly(self.below, self.up_to)
        known = np.isfinite(u)
        return (u[known], self.weights[known]) if known.any() else None


def judged(model: TableModel, frame: pd.DataFrame, tell: Tell = silent) -> Assessment:
    """Predict every row: from the others where the model has learned from it, else as a new one."""
    estimator, posterior = model.estimator, model.estimator.posterior_
    frame = model.without_gaps(frame, tell)
    X, y, weights, side = model.weighted(frame, tell)
    if weights is not None and 0 < np.sum(weights > 0) < len(y):
        return judged(model, frame.loc[weights > 0], tell)
    classes, numbers = None, y
    if isinstance(estimator, LabelEstimator):
        classes, numbers = estimator.classes_, estimator.numbered(y)
    data = Data(X, numbers, weights=weights, **side)
    counts = np.ones(len(y)) if weights is None else weights
    scores = scores_of(posterior.predict(X, **side), numbers).as_predictions()
    names = ("probabilities",) if classes is not None else ("mean", "std", "below", "up_to")
    found = {name: scores[name] for name in ("log_density", *names)}
    known, told = are_known(estimator, X, numbers), list[str]()
    seen = None if known is None else float(np.average(known, weights=counts))
    left_out, how = False, "the rows are new to the model"
    if known is None:
        how = "they are predicted as new ones: nobody knows whether the model learned from them"
    elif seen:
        how = "rows the model has learned from are predicted as new ones: too well"
        try:
            check_leaves_out(estimator.mean)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = data if seen == 1 else data.reweighted(np.where(known, counts, 0.0))
                left = leave_one_out(posterior, own)
        except InputError as error:
            told = [f"Rows cannot be left out of this posterior: {error}"]
        else:
            left_out, told = seen == 1, [*left.warnings]
            each = {name: (getattr(left, name), values) for name, values in found.items()}
            found = {  # rows are the last axis of a transpose
                name: None if a is None or b is None else np.where(known, a.T, b.T).T
                for name, (a, b) in each.items()
            }
            learned = "each row" if left_out else f"each of the {np.sum(known)} it learned from"
            how = f"{learned} is predicted from all others, by {left.how}"
    own_rows = np.unique(fingerprints(X, numbers))
    return Assessment(
        **{"model": model, "frame": frame, "X": X, "y": y, "classes": classes, "data": data},
        **{"seen": seen, "left_out": left_out, "how": how, "weights": counts, **found},
        whole=left_out and np.array_equal(own_rows, np.asarray(estimator.row_fingerprints_)),
        uncensored=uncensored(side, len(y)),
        warnings=tuple(told),
    )
