"""scikit-learn's manners over `latentgp.fit`: a table and a target in, calibrated predictions out.

Everything is in the user's units, hyper-parameters included: priors, search bounds and starting
values scale with the data, so nothing has to be standardised before or converted after.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from latentgp.data import Data, as_weights, check_finite, check_side_information, rows_named
from latentgp.errors import InputError
from latentgp.fit import fit
from latentgp.inference.methods import AugmentedVI, GibbsSampling, Method, method_from_name
from latentgp.inference.priors import spread_of
from latentgp.inference.starts import starting_model
from latentgp.kernels import Kernel, PerLatent
from latentgp.likelihoods import (
    BayesianSVM,
    Bernoulli,
    BijectiveLogisticSoftmax,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    LaplaceNoise,
    Likelihood,
    LogisticSoftmax,
    MaternNoise,
    MulticlassLikelihood,
    ScaledLogisticSoftmax,
    Softmax,
    StudentT,
)
from latentgp.means import ZeroMean

# How Python, NumPy and pandas write what is missing.
_MISSING = ("None", "nan", "NaT", "<NA>")
_CLASSES_FOR_SURE = 20  # never too many, whatever the rows

MethodName = Literal["auto", "exact", "collapsed", "augmented", "variational", "gibbs", "nuts"]

REGRESSION: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "laplace": LaplaceNoise,
    "matern": MaternNoise,
    "heteroscedastic": HeteroscedasticGaussian,
    "heteroscedastic-student-t": HeteroscedasticStudentT,
}
BINARY: dict[str, type[Likelihood]] = {"logit": Bernoulli, "bayesian-svm": BayesianSVM}
MULTICLASS: dict[str, type[MulticlassLikelihood]] = {
    "softmax": Softmax,
    "logistic-softmax": LogisticSoftmax,
    "bijective-logistic-softmax": BijectiveLogisticSoftmax,
    "scaled-logistic-softmax": ScaledLogisticSoftmax,
}


class _GPEstimator(BaseEstimator):
    """What regressor and classifier share."""

    def __init__(
        self,
        kernel: Kernel | PerLatent | None = None,
        *,
        likelihood: str | Likelihood = "auto",
        method: MethodName | Method = "auto",
        n_inducing: int | None = None,
        restarts: int = 0,
        max_evaluations: int = 200,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.likelihood = likelihood
        self.method = method
        self.n_inducing = n_inducing
        self.restarts = restarts
        self.max_evaluations = max_evaluations
        self.random_state = random_state
        self.verbose = verbose

    def save(self, path: str | Path) -> Path:
        """Write the estimator to one file, without pickle; read it with `latentgp.load`."""
        from latentgp.persistence import save

        return save(self, path)

    def _fit_model(self, data: Data, likelihood: Likelihood, centre: float = 0.0) -> Self:
        """Fit targets that were centred already; `centre` is added to the model's mean again.

        Far from zero, squares of targets that are not centred would lose all their digits.
        """
        if self.n_inducing is not None and self.n_inducing < 1:
            raise InputError(
                f"n_inducing must be a positive number or None, got {self.n_inducing}."
            )
        if self.kernel is not None and not isinstance(self.kernel, Kernel | PerLatent):
            raise InputError(
                f"kernel must be a latentgp kernel such as RBF(), or None, got {self.kernel!r}."
            )
        model = starting_model(data, likelihood, ZeroMean(), self.kernel)
        reason = "asked for"
        method = self.method
        if not isinstance(method, Method):
            method, reason = method_from_name(method, model, data.size, self.n_inducing)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        result = fit(
            model,
            data,
            key=jax.random.key(seed),
            method=method,
            restarts=self.restarts,
            max_evaluations=self.max_evaluations,
            verbose=self.verbose,
        )
        self.posterior_ = result.posterior.shifted(centre) if centre else result.posterior
        self.model_ = self.posterior_.model
        self.history_ = result.history
        self.diagnostics_ = dataclasses.replace(result.diagnostics, reason=reason)
        self.method_, self.method_reason_ = method, reason
        if self.verbose:
            print(self.diagnostics_.verdict)
        else:
            for warning in self.diagnostics_.warnings:
                warnings.warn(warning, stacklevel=3)
        return self

    def _chosen(self, default: str, names: Mapping[str, Any]) -> Any:
        """The likelihood asked for: an object as it is, or the class that a name stands for."""
        if isinstance(self.likelihood, Likelihood):
            return self.likelihood
        name = default if self.likelihood == "auto" else self.likelihood
        if not isinstance(name, str) or name not in names:
            raise InputError(
                f"likelihood must be one of auto, {', '.join(names)}, or a likelihood object, got "
                f"{self.likelihood!r}."
            )
        return names[name]

    def _inputs(self, X: Any) -> Float[np.ndarray, "N D"]:
        check_is_fitted(self)
        return self._validated(X, reset=False, ensure_min_samples=0)

    def _validated(self, X: Any, y: Any = "no_validation", **checks: Any) -> Any:
        """scikit-learn's checks, with messages that name the rows at fault."""
        alone = isinstance(y, str)
        try:
            checked = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False, **checks)
        except (TypeError, ValueError) as error:
            if not alone and y is not None:
                _check_known(y)
            if "could not convert string" not in str(error):
                raise
            culprit = "X" if alone or _holds_text(X) else "y"
            raise InputError(
                f"{culprit} holds text where numbers are needed ({error}); encode it first, with "
                "scikit-learn's OneHotEncoder, say (`latentgp fit` does so by itself)."
            ) from error
        array: Any = checked if alone else checked[0]
        if len(array):
            check_finite("X", array)
        return checked

    def _draws(
        self, X: Any, number: int, random_state: int | np.random.RandomState | None
    ) -> Float[np.ndarray, "N S"]:
        X = self._inputs(X)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        return self.posterior_.sample_y(X, key=jax.random.key(seed), number=number).T


class GPRegressor(RegressorMixin, _GPEstimator):
    """Gaussian-process regression with calibrated intervals.

    Args:
        kernel: its values are where the search starts, in the units of the data; None is an
            RBF with one length-scale an input, started at the median distance.
        likelihood: the law of the noise: "gaussian" (what "auto" takes), "student-t", "laplace"
            or "matern" where there are outliers, "heteroscedastic" or
            "heteroscedastic-student-t" where the noise depends on the inputs; or a likelihood
            object of a real target, whose values are where the search starts.
        method: "auto" (exact up to 2,000 rows with Gaussian noise, inducing points above),
            "exact", "collapsed", "augmented", "variational", "gibbs", "nuts", or a method object
            such as `CollapsedVI(...)`.
        n_inducing: number of inducing points; a number asks for a sparse method.
        restarts: further runs of the hyper-parameter search; the best is kept.
        max_evaluations: of the bound, each run.
        random_state: seeds inducing points and restarts.
        verbose: 1 prints progress, the method chosen and the verdict.

    Attributes:
        model_: the learned model, in the units of the data.
        posterior_: the posterior; ask it about the latent function.
        diagnostics_: what happened; `diagnostics_.verdict` in words.
        history_: the search.
        method_: the method used, and `method_reason_` why.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 30)[:, None]
        >>> regressor = GPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> regressor.predict([[1.5]]).round(2)
        array([1.])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, noise_variance: Any = None) -> Self:
        """Learn hyper-parameters and the posterior.

        Args:
            X: inputs, shape (N, D).
            y: targets, shape (N,).
            sample_weight: shape (N,); a whole number w equals w copies of the row.
            noise_variance: known noise variance a row, added to the learned one; shape (N,),
                units of y squared.
        """
        X, y = self._validated(X, y, y_numeric=True)
        side = {} if noise_variance is None else {"noise_variance": noise_variance}
        data = Data(X, y, weights=_weights(sample_weight, X), **side).merged()
        likelihood = self._chosen("gaussian", REGRESSION)
        if isinstance(likelihood, type):
            likelihood = likelihood().scaled_to(spread_of(data))
        if likelihood.targets != "real":
            raise InputError(
                f"GPRegressor needs a likelihood of real targets, got {type(likelihood).__name__}; "
                "use latentgp.fit for others."
            )
        centre = float(np.average(data.y, weights=data.weights))
        data = eqx.tree_at(lambda d: d.y, data, data.y - centre)
        return self._fit_model(data, likelihood, centre)

    def predict(self, X: Any, return_std: bool = False, **side_information: Any) -> Any:
        """Predictive mean of y, and its standard deviation if asked, shapes (N,).

        Without `return_std` no variance is computed.
        """
        X = self._inputs(X)
        likelihood = self.model_.likelihood
        check_side_information(
            side_information, likelihood.side_information, type(likelihood).__name__
        )
        if not return_std and isinstance(likelihood, Gaussian):
            return self.posterior_.mean_f(X)
        predictive = self.posterior_.predict(X, **side_information)
        return (predictive.mean, np.sqrt(predictive.variance)) if return_std else predictive.mean

    def predict_interval(
        self, X: Any, level: float = 0.95, **side_information: Any
    ) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
        """Ends of the central interval that holds y with the given probability, shapes (N,)."""
        X = self._inputs(X)
        return self.posterior_.predict(X, **side_information).interval(level)

    def log_predictive_density(
        self, X: Any, y: Any, **side_information: Any
    ) -> Float[np.ndarray, "N"]:
        """Log p(y | data) a row, in nats."""
        X = self._inputs(X)
        return self.posterior_.predict(X, **side_information).log_prob(y)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> Float[np.ndarray, "N S"]:
        """Draws of y: joint over rows through the latent function, shape (N, n_samples)."""
        return self._draws(X, n_samples, random_state)


class GPClassifier(ClassifierMixin, _GPEstimator):
    """Gaussian-process classification into two classes or more, with labels of any kind.

    Args:
        kernel: as in `GPRegressor`; one for the latent functions of all classes, or `PerLatent`.
        likelihood: "auto" is "logit" for two classes; for more it is "softmax", or
            "logistic-softmax" with the methods "augmented" and "gibbs". Others: "bayesian-svm"
            for two, "logistic-softmax", "scaled-logistic-softmax" or
            "bijective-logistic-softmax" for any number; or a likelihood object of classes.
        method: "auto" (one coefficient a row up to 400 rows, inducing points above),
            "augmented", "variational", "gibbs", "nuts", or a method object.
        n_inducing: number of inducing points; a number asks for a sparse method.
        restarts: further runs of the hyper-parameter search; the best is kept.
        max_evaluations: of the bound, each run.
        random_state: seeds inducing points and restarts.
        verbose: 1 prints progress, the method chosen and the verdict.

    Attributes:
        classes_: the labels, sorted.
        model_: the learned model; its latent functions are on the logit scale.
        posterior_: the posterior.
        diagnostics_: what happened; `diagnostics_.verdict` in words.
        history_: the search.
        method_: the method used, and `method_reason_` why.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(-3, 3, 40)[:, None]
        >>> labels = np.where(X[:, 0] > 0, "yes", "no")
        >>> classifier = GPClassifier(random_state=0).fit(X, labels)
        >>> classifier.predict([[-2.0], [2.0]]).tolist()
        ['no', 'yes']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn hyper-parameters and the posterior.

        Args:
            X: inputs, shape (N, D).
            y: labels, of any type, shape (N,).
            sample_weight: shape (N,); a whole number w equals w copies of the row.
        """
        X, y = self._validated(X, y)
        _check_known(y)
        check_classification_targets(y)
        weights = _weights(sample_weight, X)
        present = y if weights is None else y[weights > 0]
        self.classes_ = np.unique(present)
        if len(self.classes_) < 2:
            raise InputError(
                f"The targets hold one class only ({self.classes_[:1].tolist()}); "
                "a classifier needs rows of two classes."
            )
        if len(self.classes_) > max(_CLASSES_FOR_SURE, len(present) / 2):
            raise InputError(
                f"The targets hold {len(self.classes_)} classes in {len(present)} rows, too many "
                "to learn any; use GPRegressor if they are numbers, or merge rare classes."
            )
        # A label that only rows of weight zero have counts as any: these rows say nothing.
        known = np.isin(y, self.classes_)
        target = np.searchsorted(self.classes_, np.where(known, y, self.classes_[0]))
        data = Data(X, target.astype(np.float64), weights=weights).merged()
        return self._fit_model(data, self._class_likelihood())

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N K"]:
        """Probabilities of `classes_`, deterministic, rows sum to one."""
        X = self._inputs(X)
        return self.posterior_.predict(X).probabilities

    def log_predictive_density(self, X: Any, y: Any) -> Float[np.ndarray, "N"]:
        """Log p(label | data) a row, in nats."""
        X, y = self._inputs(X), np.asarray(y)
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise InputError(
                f"y has labels that the classifier was not fitted to: {unknown[:5].tolist()}; "
                f"it knows {self.classes_.tolist()}."
            )
        target = np.searchsorted(self.classes_, y).astype(np.float64)
        return self.posterior_.predict(X).log_prob(target)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Draws of labels: joint over rows through the latent functions, shape (N, n_samples)."""
        draws = self._draws(X, n_samples, random_state).astype(int)
        return self.classes_[draws]

    def _class_likelihood(self) -> Likelihood:
        number = len(self.classes_)
        names = MULTICLASS if number > 2 else {**BINARY, **MULTICLASS}
        conjugate = isinstance(self.method, AugmentedVI | GibbsSampling)
        conjugate |= self.method in ("augmented", "gibbs")
        several = "logistic-softmax" if conjugate else "softmax"  # softmax has no augmentation
        likelihood = self._chosen(several if number > 2 else "logit", names)
        if isinstance(likelihood, type):
            counted = issubclass(likelihood, MulticlassLikelihood)
            return likelihood(number) if counted else likelihood()
        size = likelihood.classes if isinstance(likelihood, MulticlassLikelihood) else 2
        if likelihood.targets != "class" or size != number:
            raise InputError(
                f"The targets hold {number} classes, which {type(likelihood).__name__} is not a "
                "likelihood of; give one for as many classes, or a name."
            )
        return likelihood


def _weights(sample_weight: Any, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N"] | None:
    if sample_weight is None:
        return None
    return as_weights(_check_sample_weight(sample_weight, X), len(X))


def _check_known(y: Any) -> None:
    """Raise InputError, naming the rows, where a target is missing or infinite."""
    y = np.asarray(y)
    if y.dtype.kind == "f":
        check_finite("y", y)
    elif y.dtype.kind == "O":
        missing = np.array(
            [not isinstance(v, str) and str(v) in _MISSING for v in y.ravel().tolist()], bool
        )
        if missing.any():
            raise InputError(f"y is missing in {rows_named(missing)}; drop these rows first.")


def _holds_text(values: Any) -> bool:
    try:
        np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return True
    return False
