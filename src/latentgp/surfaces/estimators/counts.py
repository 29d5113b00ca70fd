"""Regression of counts in scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.metrics import r2_score

from latentgp.choosing.kernels import leaves_time
from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood, Poisson
from latentgp.modules import stored
from latentgp.rows.arrays import unmasked
from latentgp.rows.data import Data
from latentgp.setup.priors import spread_of
from latentgp.surfaces.estimators.base import NumberEstimator, check_known, given, row_weights
from latentgp.surfaces.estimators.laws import law_of_counts
from latentgp.surfaces.estimators.likelihoods import COUNTS
from latentgp.surfaces.estimators.precomputed import is_precomputed
from latentgp.validation import check_data

SIDES = "exposure", "trials"


@stored
class GPCountRegressor(NumberEstimator):
    """Gaussian-process regression of counts, with exposures or numbers of trials.

    Args:
        likelihood: "poisson", or "negative-binomial" where counts vary by more than a Poisson's
            ("auto" takes the former unless the evidence of the latter is two nats higher),
            "scaled-logistic-poisson" where the rate has an upper limit (and no exposure),
            "binomial" where they are successes in a known number of trials, "beta-binomial" where
            these vary by more; "zero-inflated-poisson" or "zero-inflated-negative-binomial" where
            there are further zeros, "hurdle-poisson" or "hurdle-negative-binomial" where zeros
            have a probability of their own; or a likelihood object of counts, such as
            `ZeroInflated(Poisson(), varying=True)`.
        options: as in `GPEstimator`.

    Attributes:
        model_: the learned model; its latent function is the logarithm of the rate, or the log-odds
            of a success.
        side_information_: which of "exposure" and "trials" it was fitted with.
        ...: as in `GPEstimator`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 4, 50)[:, None]
        >>> counts = np.random.default_rng(0).poisson(2 * np.exp(np.sin(X[:, 0])))
        >>> regressor = GPCountRegressor(random_state=0).fit(X, counts, exposure=np.full(50, 2.0))
        >>> bool(1.5 < regressor.predict([[1.5]])[0] < 4)
        True
    """

    # What scikit-learn's cross-validation hands on once its metadata routing is on.
    __metadata_request__fit = dict.fromkeys(SIDES, True)
    __metadata_request__partial_fit = dict.fromkeys(SIDES, True)
    __metadata_request__predict = dict.fromkeys(SIDES, True)
    __metadata_request__score = dict.fromkeys(SIDES, True)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None
    ) -> Self:
        """Learn hyper-parameters and the posterior.

        Args:
            X: inputs, shape (N, D).
            y: counts, shape (N,).
            sample_weight: shape (N,); a whole number w equals w copies of the row.
            exposure: the time, area or population in which y was counted, positive, shape (N,).
            trials: in how many trials y are the successes, shape (N,); for "binomial" and
                "beta-binomial".

        Raises:
            InputError: targets that are no counts, or all zero, an exposure that is not positive,
                trials that are not whole numbers of at least y, or either for a likelihood without
                it.
        """
        data = self._rows(X, y, sample_weight, given(exposure=exposure, trials=trials), reset=True)
        if not np.any(data.y):
            raise InputError("Every count is zero, so no rate is known; give rows with events.")
        rows, default, why = data.merged_rows(), "poisson", ()
        seen = not is_precomputed(self.kernel)  # whose inputs are numbers of rows
        if self.likelihood == "auto" and self.learn_hyperparameters and trials is None and seen:
            check_data(Poisson(), data)
            if leaves_time(self.max_seconds, rows.merged.size):
                default, why = law_of_counts(rows.merged)
        likelihood = self._chosen(default, COUNTS)
        if not isinstance(likelihood, Likelihood):
            likelihood = likelihood().scaled_to(spread_of(rows.merged))
        if likelihood.targets != "count":
            raise InputError(
                f"GPCountRegressor needs a likelihood of counts, got {type(likelihood).__name__}."
            )
        check_data(likelihood, data)
        self.side_information_ = list(data.side_information)
        return self._fit_model(rows, likelihood, notes=why)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: Any = None,
        trials: Any = None,
        learn_hyperparameters: bool = False,
    ) -> Self:
        """Update the model with further rows, as `GPRegressor.partial_fit` does.

        Args:
            X: as in `fit`, like the other arrays.
            y: counts.
            sample_weight: of the rows.
            exposure: in which they were counted.
            trials: of which they are successes.
            learn_hyperparameters: lets these rows change the hyper-parameters too.

        Raises:
            InputError: a method that keeps draws, "laplace" or "ep"; rows that do not fit.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, sample_weight, exposure=exposure, trials=trials)
        self._check_sides(given(exposure=exposure, trials=trials), "partial_fit")
        data = self._rows(X, y, sample_weight, given(exposure=exposure, trials=trials), reset=False)
        return self._update_model(data, learn_hyperparameters)

    def _rows(self, X: Any, y: Any, weights: Any, side: dict[str, Any], *, reset: bool) -> Data:
        X, y = self._validated(X, y, reset=reset, y_numeric=True)
        return Data.with_checked_inputs(X, y, row_weights(weights, X), **side)

    def predict(
        self, X: Any, return_std: bool = False, *, exposure: Any = None, trials: Any = None
    ) -> Any:
        """Predictive mean of the count, shape (N,), in one unit of exposure, or trial, by default.

        And its standard deviation, if asked.
        """
        predictive = self._predictive(X, exposure=exposure, trials=trials)
        return (predictive.mean, np.sqrt(predictive.variance)) if return_std else predictive.mean

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None
    ) -> float:
        """R^2 of the predicted mean, the share of the variance of y that it explains.

        Raises:
            InputError: no exposure or trials, where the fit had them.
        """
        side = given(exposure=exposure, trials=trials)
        self._check_sides(side, "score")
        check_known(y)
        mean, weights = self.predict(X, **side), unmasked(sample_weight)
        return float(r2_score(unmasked(y), mean, sample_weight=weights))
