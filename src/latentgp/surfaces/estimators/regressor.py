"""Regression in scikit-learn's manners."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from latentgp.choosing.kernels import MARGIN, leaves_time
from latentgp.errors import InputError, refuse
from latentgp.likelihoods import Gaussian, GPRegressionNetwork, Likelihood, LinearCoregionalisation
from latentgp.modules import stored
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.base import LatentPosterior
from latentgp.rows.arrays import unmasked
from latentgp.rows.data import Data, check_side_information
from latentgp.runtime.x64 import double_precision
from latentgp.setup.priors import spread_of
from latentgp.surfaces.estimators.additive import AdditiveTerms
from latentgp.surfaces.estimators.base import (
    ROUTED,
    NumberEstimator,
    check_known,
    given,
    row_weights,
)
from latentgp.surfaces.estimators.laws import law_of_times, logarithms_ahead
from latentgp.surfaces.estimators.likelihoods import OF_OUTPUTS, REGRESSION
from latentgp.surfaces.estimators.precomputed import is_precomputed
from latentgp.surfaces.evaluation.metrics import concordance_index, equally_long
from latentgp.typing import Array, PerRow
from latentgp.validation import check_data

SIDES = "noise_variance", "censored", "upper", "entry"

# Latent functions that outputs share where none were asked for: a network has one for each weight.
_SKEWED = 0.5  # skewness of targets, from which on their logarithms are looked at
_SHARED = {LinearCoregionalisation: 4, GPRegressionNetwork: 1}


@stored
class GPRegressor(NumberEstimator):
    """Gaussian-process regression with calibrated intervals.

    Args:
        kernel: its values are where the search starts, in the units of the data (with Gaussian
            noise also at shorter length-scales; the better one goes on). None chooses among an RBF,
            Matérn kernels and a rational quadratic by their evidence on a sample of rows, where y
            is one latent function and noise, or a count; the verdict says which, and by how many
            nats. A name such as "rbf" or "matern32" has one length-scale an input, started at the
            median distance, as an RBF has where nothing is chosen. With "precomputed" X is a Gram
            matrix of shape (N, N), and to predict one of covariances with the rows of the fit,
            (S, N), or (S, N + 1) with k(x, x) last, which has to be given unless the rows of the
            fit have one variance.
        likelihood: the law of y: "gaussian" (what "auto" takes; of censored y "weibull" or
            "censored-log-normal", the one with the higher evidence on a sample of rows);
            "student-t", "laplace" or "matern" where there are outliers; "heteroscedastic",
            "heteroscedastic-student-t" or "log-noise" where the noise depends on the inputs;
            "warped" where y needs a transform; "gamma", "log-normal" or "generalised-pareto"
            (excesses over a threshold) for y > 0, "tweedie" or "hurdle-gamma" where y can be zero
            too; "weibull" for times that may be censored, "censored-gaussian",
            "censored-student-t", "censored-log-normal" or "censored-weibull" for bounds of any
            kind; "beta" for shares between 0 and 1, "zero-one-inflated-beta" where some are at the
            ends; "asymmetric-laplace" for a median, `AsymmetricLaplace(level=0.9)` for another
            quantile; "stochastic-volatility" where only the noise varies; or a likelihood object of
            a real target, whose values are where the search starts. For several outputs:
            "coregionalisation" (what "auto" takes then; up to four latent functions, of few rows
            each with a `White` nugget unless there is a kernel), "regression-network" (of one), or
            an object such as `LinearCoregionalisation.for_targets(y, latents=2)`.
        method: how; "auto" is exact up to 2,000 rows with Gaussian noise, gives each row its 20
            nearest up to 100,000 (300,000 of at most three inputs), and takes inducing points
            above. One of {methods}, or a method object such as `CollapsedVI(...)`.
        options: as in `GPEstimator`.

    Attributes:
        model_: the learned model, in the units of the data.
        side_information_: which of "noise_variance", "censored", "upper" and "entry" it was
            fitted with.
        ...: as in `GPEstimator`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 6, 30)[:, None]
        >>> regressor = GPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> regressor.predict([[1.5]]).round(2)
        array([1.])
    """

    # What scikit-learn's cross-validation hands on once its metadata routing is on.
    __metadata_request__fit: ClassVar = dict.fromkeys(SIDES, True)
    __metadata_request__partial_fit: ClassVar = dict.fromkeys(SIDES, True)
    __metadata_request__score: ClassVar = {"censored": True}

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        noise_variance: Any = None,
        censored: Any = None,
        upper: Any = None,
        entry: Any = None,
    ) -> Self:
        """Learn hyper-parameters and the posterior.

        Args:
            X: inputs, shape (N, D).
            y: targets, shape (N,), or (N, P) for P outputs, where NaN is a missing one.
            sample_weight: shape (N,); a whole number w equals w copies of the row.
            noise_variance: known noise variance a row, added to the learned one; shape (N,),
                units of y squared.
            censored: 1 where the target is above y, such as a time until which there was no event;
                of the "censored" likelihoods also -1 where it is at most y, and 2 where it is above
                y and at most `upper`; shape (N,).
            upper: the other bound where `censored` is 2, any number elsewhere; shape (N,).
            entry: of the "censored" likelihoods a time from which a row was observed, zero if
                from the beginning; shape (N,). Rows of one subject from entry to y may have inputs
                of their own.
        """
        side = given(noise_variance=noise_variance, censored=censored, upper=upper, entry=entry)
        data = self._rows(X, y, sample_weight, side, reset=True)
        rows = data.merged_rows()
        default, why = self._law_of(rows.merged)
        likelihood = self._chosen_for(rows.merged, default)
        if likelihood.targets != "real":
            raise InputError(
                f"GPRegressor needs a likelihood of real targets, got {type(likelihood).__name__}; "
                "use GPCountRegressor for counts, latentgp.fit for others."
            )
        check_data(likelihood, data)
        self.side_information_ = list(data.side_information)
        centre = _centre(rows.merged) if likelihood.is_location else 0.0
        advice: list[str] = []
        if default == "gaussian" and isinstance(likelihood, Gaussian):
            advice = self._advice(rows.merged)
        return self._fit_model(rows, likelihood, centre, why, advice)

    def _advice(self, data: Data) -> list[str]:
        """Advice of a log-normal law for positive targets, one output, that are skewed."""
        y = np.asarray(data.y)
        learns = self.likelihood == "auto" and self.learn_hyperparameters
        if not learns or y.ndim > 1 or data.side_information or not np.all(y > 0):
            return []
        if is_precomputed(self.kernel) or not leaves_time(self.max_seconds, data.size):
            return []
        skewness, of_logarithms = _skewness(y), abs(_skewness(np.log(y)))
        ahead = logarithms_ahead(data) if skewness > max(_SKEWED, of_logarithms) else 0.0
        if ahead <= MARGIN:
            return []
        return [
            f"Targets are positive and skewed: the evidence of their logarithms is {ahead:.1f} "
            "nats higher by smooth functions; likelihood='log-normal' takes them so, with no "
            "interval below zero."
        ]

    def _law_of(self, data: Data) -> tuple[str, tuple[str, ...]]:
        """The law that "auto" takes of one output, and why."""
        censored = data.side_information.get("censored")
        if censored is None:
            return "gaussian", ()
        none_seen = np.all(censored == censored[0]) and censored[0] in (-1, 1)
        refuse(
            {
                f"censored is {censored[0]:g} in every row, so that targets have no bound on the "
                "other side; give 0 where the target was seen.": none_seen
            }
        )
        asked = self.likelihood == "auto" and self.learn_hyperparameters and data.y.ndim == 1
        seen = not is_precomputed(self.kernel)  # whose inputs are numbers of rows
        in_time = leaves_time(self.max_seconds, data.size)
        return law_of_times(data) if asked and seen and in_time else ("weibull", ())

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        noise_variance: Any = None,
        censored: Any = None,
        upper: Any = None,
        entry: Any = None,
        learn_hyperparameters: bool = False,
    ) -> Self:
        """Update the model with further rows; earlier rows are not needed. The first call is `fit`.

        The streaming sparse posterior (Bui, Nguyen & Turner 2017) with `n_inducing` inducing
        points, chosen among those so far and the new rows.

        Args:
            X: as in `fit`, like the other arrays.
            y: targets.
            sample_weight: of the rows.
            noise_variance: known noise variance a row.
            censored: whether y is a bound.
            upper: the other bound.
            entry: from when a row was observed.
            learn_hyperparameters: lets these rows change the hyper-parameters too.

        Raises:
            InputError: a method that keeps draws, "laplace" or "ep"; rows that do not fit.
        """
        side = given(noise_variance=noise_variance, censored=censored, upper=upper, entry=entry)
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, sample_weight, **side)
        self._check_sides(side, "partial_fit")
        data = self._rows(X, y, sample_weight, side, reset=False)
        self._update_model(data, learn_hyperparameters)
        self.side_information_ = list(data.side_information)
        return self

    def _rows(self, X: Any, y: Any, weights: Any, side: dict[str, Any], *, reset: bool) -> Data:
        outputs = np.asarray(y).shape[1:]
        if len(outputs) == 1 and outputs[0] > 1:
            # scikit-learn's checks of y would refuse what is missing.
            X = self._validated(X, reset=reset)
        else:
            X, y = self._validated(X, y, reset=reset, y_numeric=True)
        return Data.with_checked_inputs(X, y, row_weights(weights, X), **side)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _chosen_for(self, data: Data, default: str) -> Likelihood:
        several = data.y.ndim == 2
        if several and isinstance(self.likelihood, str) and self.likelihood in REGRESSION:
            raise InputError(
                f"likelihood={self.likelihood!r} is of one output, but y has shape "
                f"{data.y.shape}; choose one of {', '.join(OF_OUTPUTS)}, or fit the columns "
                "one by one."
            )
        if several:
            chosen = self._chosen("coregionalisation", OF_OUTPUTS)
        else:
            chosen = self._chosen(default, REGRESSION)
        if isinstance(chosen, Likelihood):
            return chosen
        if not several:
            started = chosen()
            if started.is_location and isinstance(self.kernel, AdditiveTerms):
                data = self.kernel.less_offsets(data)
            return started.scaled_to(spread_of(data), _centre(data))
        latents = min(data.y.shape[1], _SHARED[chosen])
        return chosen.for_targets(data.y, latents, weights=data.weights)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, **side_information: Any
    ) -> Any:
        """Predictive mean of y, and its standard deviation or covariance if asked.

        Without either no variance is computed of `Gaussian` noise.

        Args:
            X: inputs, shape (N, D).
            return_std: also the standard deviation, infinite where the noise has no variance (of
                `StudentT` with two degrees of freedom or fewer).
            return_cov: also the covariance over rows, noise on its diagonal, shape (N, N); of one
                output that is a latent function and noise.
            side_information: what the likelihood reads a row.

        Returns:
            The mean, shape (N,) or (N, P); or it and what was asked for.

        Raises:
            InputError: both asked for; a covariance that there is not.
        """
        posterior, X = self._asked(X)
        likelihood = self.model_.likelihood
        check_side_information(
            side_information, likelihood.side_information, type(likelihood).__name__
        )
        if not (return_std or return_cov) and isinstance(likelihood, Gaussian):
            return posterior.mean_f(X)
        predictive = posterior.predict(X, **side_information)
        if return_cov:
            if return_std:
                raise InputError(
                    "Ask for one of return_std and return_cov; return_cov has the variances on its "
                    "diagonal."
                )
            covariance = self._covariance(X)
            np.fill_diagonal(covariance, predictive.variance)
            return predictive.mean, covariance
        return (predictive.mean, np.sqrt(predictive.variance)) if return_std else predictive.mean

    def _covariance(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N N"]:
        """Posterior covariance of the first latent function, for likelihoods of y - f_1."""
        self._need_inputs("return_cov")
        if not (self.posterior_.is_gaussian and self.model_.likelihood.is_location):
            raise InputError(
                f"return_cov needs one output that is a latent function and noise, and a posterior "
                f"without draws, but this is {type(self.model_.likelihood).__name__} by "
                f"{type(self.method_).__name__}; use sample_y, whose draws are joint."
            )
        return _joint_covariance(self.posterior_, X)

    def predict_quantiles(
        self, X: Any, probabilities: Any, **side_information: Any
    ) -> Float[np.ndarray, "N *P levels"]:
        """Quantiles of y at probabilities in (0, 1): shape (N, levels), or (N, P, levels).

        `predict_quantiles(X, 0.5)[:, 0]` is the median, of survival times for instance.
        """
        return self._predictive(X, **side_information).quantiles(probabilities)

    def predict_survival(
        self, X: Any, times: Any, **side_information: Any
    ) -> Float[np.ndarray, "N *P T"]:
        """Probability that y exceeds each of the times: survival curves, shape (N, T).

        Args:
            X: inputs, shape (N, D).
            times: the same ones for every row, units of y, shape (T,) or one number.
            side_information: what the likelihood reads a row.

        Raises:
            InputError: times that are not finite numbers in one row.
        """
        (times,) = equally_long(times=np.atleast_1d(times))
        predictive = self._predictive(X, **side_information)
        shape = (len(X), *self.model_.likelihood.output_shape)
        return np.stack([1 - predictive.cdf(np.full(shape, time)) for time in times], axis=-1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, censored: Any = None) -> float:
        """R^2 of the predicted mean; with `censored` the concordance index of predicted medians.

        Args:
            X: inputs, shape (N, D).
            y: targets, shape (N,) or (N, P).
            sample_weight: shape (N,); the concordance index takes none.
            censored: of survival times, 1 where there was no event until y; shape (N,). Needed if
                the fit had it.

        Returns:
            R^2, the share of the variance of y that the mean explains; or the share of the pairs of
            times whose order is known that are predicted in this order
            (`latentgp.surfaces.evaluation.metrics.concordance_index`).

        Raises:
            InputError: no `censored`, where the fit had it; weights beside it.
        """
        check_is_fitted(self)
        if censored is None:
            if "censored" in self.side_information_:
                raise InputError(
                    "The fit had censored, without which times until which there was no event "
                    f"count as events; give score(..., censored=...){ROUTED}."
                )
            check_known(y)
            return float(super().score(X, unmasked(y), unmasked(sample_weight)))
        likelihood = self.model_.likelihood
        check_side_information(
            {"censored": censored}, likelihood.side_information, type(likelihood).__name__
        )
        if sample_weight is not None:
            raise InputError("The concordance index takes no weights; leave out sample_weight.")
        return concordance_index(y, self.predict_quantiles(X, 0.5)[:, 0], censored=censored)


@double_precision
def _joint_covariance(
    posterior: Posterior, X: Float[np.ndarray, "N D"]
) -> Float[np.ndarray, "N N"]:
    """Posterior covariance of the first latent function at some inputs."""
    return np.array(_covariances(posterior.latent, X)[0])


@jax.jit
def _covariances(latent: LatentPosterior, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
    return latent.covariance(X)


def _centre(data: Data) -> float:
    """Weighted mean of the targets."""
    return float(np.average(data.y, weights=data.weights))


def _skewness(values: PerRow) -> float:
    """Third central moment in standard deviations; zero of one value."""
    error = values - np.mean(values)
    return float(np.mean(error**3)) / float(np.std(values) ** 3 or 1.0)
