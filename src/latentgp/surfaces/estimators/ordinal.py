"""Classification into ordered classes in scikit-learn's manners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood, Ordinal
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.surfaces.estimators.classifier import LabelEstimator


@stored
@dataclass(kw_only=True, eq=False, repr=False)
class GPOrdinalClassifier(LabelEstimator):
    """Gaussian-process classification into ordered classes, such as grades.

    One latent function, cut by learned thresholds (`latentgp.Ordinal`).

    Args:
        order: all labels from lowest to highest, those without rows too; None sorts numbers, and
            takes the categories of a pandas categorical that has an order. Other labels need it.
        likelihood: "auto" or "ordinal", or an `Ordinal` with the thresholds to start from.
        options: as in `GPEstimator`.

    Attributes:
        classes_: the labels in their order; those of `order` without rows too.
        model_: the learned model; the noise of its latent function has a standard deviation of 1.
        ...: as in `GPEstimator`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 3, 60)[:, None]
        >>> grades = np.array(["low", "middle", "high"])[X[:, 0].astype(int).clip(0, 2)]
        >>> classifier = GPOrdinalClassifier(order=["low", "middle", "high"], random_state=0)
        >>> classifier.fit(X, grades).predict([[0.2], [1.5], [2.9]]).tolist()
        ['low', 'middle', 'high']
    """

    order: Any = None

    def _sorted_labels(self, labels: np.ndarray, dtype: Any) -> np.ndarray:
        present = np.unique(labels)
        given = self.order
        if isinstance(given, str):
            raise InputError(
                f"order must be a list of labels, such as {given.split(',')!r}, got {given!r}."
            )
        if given is None and getattr(dtype, "ordered", False):
            given = dtype.categories
        if given is None:
            if any(isinstance(label, str) for label in present.tolist()):
                raise InputError(
                    f"The labels {present[:5].tolist()} are text, which has no order of its own; "
                    "give order= (--order on the command line), from lowest to highest."
                )
            return present
        order = np.asarray(list(given))
        unknown = np.setdiff1d(present, order)
        if unknown.size or len(np.unique(order)) < len(order):
            raise InputError(
                f"order must hold every label once, but {unknown[:5].tolist() or 'one'} is "
                f"{'missing from' if unknown.size else 'twice in'} {order.tolist()}."
            )
        return order

    def _class_likelihood(self, data: Data) -> Likelihood:
        number = len(self.classes_)
        likelihood = self._chosen("ordinal", {"ordinal": Ordinal})
        if isinstance(likelihood, type):
            weights = np.ones(data.size) if data.weights is None else data.weights
            counts = np.bincount(data.y.astype(int), weights=weights, minlength=number)
            # A class without rows counts as half a row.
            shares = np.where(counts > 0, counts, 0.5)
            return Ordinal.of(number, shares)
        if not isinstance(likelihood, Ordinal) or likelihood.classes != number:
            raise InputError(
                f"The targets hold {number} ordered classes; give an Ordinal with {number - 1} "
                'thresholds, or "ordinal".'
            )
        return likelihood
