"""Classification in scikit-learn's manners."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from latentgp.choosing.choice import DENSE_CLASSES, DENSE_OTHERWISE
from latentgp.choosing.registry import of_name
from latentgp.errors import InputError
from latentgp.likelihoods import ClassLikelihood, Likelihood
from latentgp.modules import stored
from latentgp.rows.arrays import unmasked
from latentgp.rows.data import Data
from latentgp.surfaces.estimators.base import GPEstimator, check_known, row_weights
from latentgp.surfaces.estimators.likelihoods import BINARY, MULTICLASS
from latentgp.validation import check_data

_CLASSES_FOR_SURE = 20  # never too many, whatever the rows
MANY_CLASSES = 10  # from which least squares is as good as the softmax, and much faster


class LabelEstimator(ClassifierMixin, GPEstimator):
    """Base of the estimators of labels."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn hyper-parameters and the posterior.

        Args:
            X: inputs, shape (N, D).
            y: labels, of any type, shape (N,).
            sample_weight: shape (N,); a whole number w equals w copies of the row.
        """
        return self._fit_labels(X, y, sample_weight)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        learn_hyperparameters: bool = False,
    ) -> Self:
        """Update the model with further rows; earlier rows are not needed. The first call is `fit`.

        The streaming sparse posterior (Bui, Nguyen & Turner 2017) with `n_inducing` inducing
        points, chosen among those so far and the new rows.

        Args:
            X: inputs, shape (N, D).
            y: labels, shape (N,).
            classes: all that will come, for the first call, whose rows may lack some.
            sample_weight: of the rows, shape (N,).
            learn_hyperparameters: lets these rows change the hyper-parameters too.

        Raises:
            InputError: a label that was not among the first call's; a method that keeps draws,
                "laplace" or "ep".
        """
        if not hasattr(self, "posterior_"):
            return self._fit_labels(X, y, sample_weight, classes)
        if classes is not None:
            self.numbered(classes)
        data = self._rows(X, y, sample_weight, {}, reset=False)
        return self._update_model(data, learn_hyperparameters)

    def _rows(self, X: Any, y: Any, weights: Any, side: dict[str, Any], *, reset: bool) -> Data:
        X, y = self._validated(X, y, reset=reset)
        check_known(y)
        return self._numbered_rows(X, y, row_weights(weights, X), **side)

    def _numbered_rows(
        self, X: Any, y: Any, weights: Float[np.ndarray, "N"] | None, **side: Any
    ) -> Data:
        """With the labels' numbers; any will do for rows of weight zero."""
        y = np.asarray(y)
        self.numbered(y if weights is None else y[weights > 0])
        target = self._numbered(np.where(np.isin(y, self.classes_), y, self.classes_[0]))
        return Data.with_checked_inputs(X, target, weights, **side)

    def _fit_labels(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        dtype = getattr(y, "dtype", None)
        X, y = self._validated(X, y)
        check_known(y)
        check_classification_targets(y)
        weights = row_weights(sample_weight, X)
        present = y if weights is None else y[weights > 0]
        known = np.unique(present if classes is None else classes)
        self.classes_ = self._sorted_labels(known, dtype)
        if len(known) < 2:
            raise InputError(
                f"The targets hold one class only ({known[:1].tolist()}); "
                "a classifier needs rows of two classes."
            )
        if len(self.classes_) > max(_CLASSES_FOR_SURE, len(present) / 2):
            raise InputError(
                f"The targets hold {len(self.classes_)} classes in {len(present)} rows, too many "
                "to learn any; use GPRegressor if they are numbers, or merge rare classes."
            )
        data = self._numbered_rows(X, y, weights)
        rows = data.merged_rows()
        likelihood = self._class_likelihood(rows.merged)
        check_data(likelihood, data)
        return self._fit_model(rows, likelihood)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N K"]:
        """Probabilities of `classes_`, deterministic, rows sum to one."""
        return self._predictive(X).probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose label is predicted."""
        check_known(y)
        return float(super().score(X, unmasked(y), unmasked(sample_weight)))

    def log_predictive_density(self, X: Any, y: Any) -> Float[np.ndarray, "N"]:
        """Log p(label | data) a row, in nats."""
        return self._predictive(X).log_prob(self.numbered(y))

    def numbered(self, y: Any) -> Float[np.ndarray, "N"]:
        """The places of labels in `classes_`.

        Raises:
            InputError: labels that the classifier was not fitted to.
        """
        check_known(y)
        y = np.asarray(unmasked(y))
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise InputError(
                f"y has labels that the classifier was not fitted to: {unknown[:5].tolist()}; "
                f"it knows {self.classes_.tolist()}."
            )
        return self._numbered(y)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Draws of labels: joint over rows through the latent functions, shape (N, n_samples)."""
        draws = self._draws(X, n_samples, random_state).astype(int)
        return self.classes_[draws]

    @abstractmethod
    def _class_likelihood(self, data: Data) -> Likelihood:
        """The likelihood of targets that number `classes_`."""

    def _sorted_labels(self, labels: np.ndarray, dtype: Any) -> np.ndarray:
        """The labels, each once, in their order; `dtype` is that of the targets as given."""
        return np.unique(labels)

    def _numbered(self, labels: np.ndarray) -> Float[np.ndarray, "N"]:
        """Their places in `classes_`."""
        order = np.argsort(self.classes_)
        return order[np.searchsorted(self.classes_, labels, sorter=order)].astype(np.float64)


@stored
class GPClassifier(LabelEstimator):
    """Gaussian-process classification into two classes or more, with labels of any kind.

    Args:
        kernel: as in `GPRegressor`, "precomputed" too; one for the latent functions of all
            classes, or `PerLatent` or `PerLatentSum`.
        likelihood: "auto" is "logit" for two classes; for more it is "softmax", or
            "logistic-softmax" with the methods "augmented" and "gibbs", or, for ten and more of
            401 to 5,000 rows with method "auto", "least-squares". Others: "probit" and
            "bayesian-svm" for two; "logistic-softmax", "scaled-logistic-softmax",
            "bijective-logistic-softmax", "robust-max" and "heaviside" (by expectation
            propagation) for any number; or a likelihood object of classes.
        method: how; "auto" has one coefficient a row up to 400 rows and inducing points above, or
            the nearest rows of more than 2,000 places. One of {methods}, or a method object.
        options: as in `GPEstimator`.

    Attributes:
        classes_: the labels, sorted.
        model_: the learned model; its latent functions are on the logit scale.
        ...: as in `GPEstimator`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(-3, 3, 40)[:, None]
        >>> labels = np.where(X[:, 0] > 0, "yes", "no")
        >>> classifier = GPClassifier(random_state=0).fit(X, labels)
        >>> classifier.predict([[-2.0], [2.0]]).tolist()
        ['no', 'yes']
    """

    def _class_likelihood(self, data: Data) -> Likelihood:
        number = len(self.classes_)
        names = MULTICLASS if number > 2 else {**BINARY, **MULTICLASS}
        conjugate = self.method != "auto" and of_name(self.method).needs_augmentation
        several = "logistic-softmax" if conjugate else "softmax"  # softmax has no augmentation
        if number >= MANY_CLASSES and self.method == "auto" and self.n_inducing is None:
            few = data.size <= DENSE_OTHERWISE
            several = "softmax" if few or data.size > DENSE_CLASSES else "least-squares"
        likelihood = self._chosen(several if number > 2 else "logit", names)
        if isinstance(likelihood, type):
            counted = issubclass(likelihood, ClassLikelihood)
            return likelihood(number) if counted else likelihood()
        size = likelihood.classes if isinstance(likelihood, ClassLikelihood) else 2
        if likelihood.targets != "class" or size != number:
            raise InputError(
                f"The targets hold {number} classes, which {type(likelihood).__name__} is not a "
                "likelihood of; give one for as many classes, or a name."
            )
        return likelihood
