"""An estimator that speaks tables: columns of any type in, predictions with intervals out."""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from scipy.special import expit, ndtri

from latentgp import metrics
from latentgp.errors import InputError
from latentgp.estimators import GPClassifier, GPRegressor
from latentgp.tables import TableEncoder, guess_task, split_target
from latentgp.tables.values import texts_in

if TYPE_CHECKING:
    import pandas as pd

Task = Literal["auto", "regression", "classification"]


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A fitted estimator with the encoding of the columns that it was fitted to.

    Attributes:
        estimator: a fitted `GPRegressor` or `GPClassifier`.
        encoder: turns the other columns into numbers.
        target: name of the target column.
        notes: what was done to the table, a line each.
    """

    estimator: GPRegressor | GPClassifier
    encoder: TableEncoder
    target: str
    notes: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        frame: "pd.DataFrame",
        target: str,
        *,
        task: Task = "auto",
        weights: str | None = None,
        **settings: Any,
    ) -> Self:
        """Fit a table.

        Args:
            frame: inputs and target; rows without a target are left out.
            target: the column to predict.
            task: "auto" guesses by the target's type, and says so in the notes.
            weights: a column of row weights, which is then not an input.
            settings: for the estimator.

        Raises:
            InputError: no such column, or a target that does not fit the task.
        """
        split = split_target(frame, target)
        inputs, notes = split.inputs, []
        if split.rows_dropped:
            notes.append(f"left out {split.rows_dropped} row(s) without {target!r}")
        if task == "auto":
            task, reason = guess_task(split.target)
            notes.append(f"{task} of {target!r}, because {reason}")
        sample_weight = None
        if weights is not None:
            inputs, column, dropped = split_target(inputs, weights)
            if dropped:
                raise InputError(
                    f"the weights column {weights!r} is missing in {dropped} row(s): fill it"
                )
            sample_weight = _numbers("weights column", column, "give numbers, not negative")
        encoder = TableEncoder.fit(inputs)
        notes += encoder.describe()
        make = GPRegressor if task == "regression" else GPClassifier
        estimator = make(**settings)
        estimator.fit(
            encoder.encode(inputs), _targets(split.target, task), sample_weight=sample_weight
        )
        return cls(estimator, encoder, target, tuple(notes))

    @property
    def task(self) -> Literal["regression", "classification"]:
        """What is predicted: a number or a class."""
        return "regression" if isinstance(self.estimator, GPRegressor) else "classification"

    def predict(self, frame: "pd.DataFrame", level: float = 0.95) -> "pd.DataFrame":
        """Predictions, one a row of the table.

        Regression gives `mean`, `std`, `lower`, `upper` of the target. Classification gives
        `prediction`, a `probability` for each class, and, of two classes, `lower`, `upper`: the
        interval that holds the second's probability, given how uncertain the latent function is.
        """
        import pandas as pd

        X = self.encoder.encode(frame)
        if isinstance(self.estimator, GPRegressor):
            mean, std = self.estimator.predict(X, return_std=True)
            lower, upper = self.estimator.predict_interval(X, level)
            columns = {"mean": mean, "std": std, "lower": lower, "upper": upper}
            return pd.DataFrame(columns, index=frame.index)
        probabilities = self.estimator.predict_proba(X)
        names = [f"probability_{label}" for label in self.estimator.classes_]
        columns = {
            "prediction": self.estimator.predict(X),
            **dict(zip(names, probabilities.T, strict=True)),
        }
        if len(names) == 2:
            latent = self.estimator.posterior_.predict_f(X)
            reach = ndtri((1 + level) / 2) * np.sqrt(latent.variance)
            columns["lower"] = expit(latent.mean - reach)
            columns["upper"] = expit(latent.mean + reach)
        return pd.DataFrame(columns, index=frame.index)

    def encoded(self, frame: "pd.DataFrame") -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the rows whose target is known, as the estimator takes them."""
        split = split_target(frame, self.target)
        return self.encoder.encode(split.inputs), _targets(split.target, self.task)

    def evaluate(self, frame: "pd.DataFrame") -> dict[str, float]:
        """Scores on rows whose target is known, by name."""
        X, y = self.encoded(frame)
        if isinstance(self.estimator, GPRegressor):
            return regression_scores(self.estimator, X, y)
        return classification_scores(self.estimator, X, y)


def regression_scores(estimator: GPRegressor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Held-out scores of a regressor, in the units of y and in nats."""
    mean, std = estimator.predict(X, return_std=True)
    density = estimator.log_predictive_density(X, y)
    return {
        "negative log predictive density": metrics.negative_log_predictive_density(density),
        "root mean squared error": metrics.root_mean_squared_error(y, mean),
        "CRPS": metrics.crps_gaussian(y, mean, std),
        "95 % interval coverage": metrics.interval_coverage(y, *estimator.predict_interval(X)),
    }


def classification_scores(
    estimator: GPClassifier, X: np.ndarray, y: np.ndarray
) -> dict[str, float]:
    """Held-out scores of a classifier."""
    probabilities = estimator.predict_proba(X)
    classes = estimator.classes_
    return {
        "log loss": metrics.log_loss(y, probabilities, classes=classes),
        "error": float(np.mean(estimator.predict(X) != y)),
        "Brier score": metrics.brier_score(y, probabilities, classes=classes),
        "expected calibration error": metrics.expected_calibration_error(
            y, probabilities, classes=classes
        ),
    }


def _targets(target: "pd.Series", task: str) -> np.ndarray:
    if task == "classification":
        return texts_in(target).to_numpy(dtype=str)
    return _numbers("target", target, "use --task classification, or clean it")


def _numbers(what: str, column: "pd.Series", advice: str) -> np.ndarray:
    try:
        return column.to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the {what} {column.name!r} is not a number in every row ({error}): {advice}"
        ) from error
