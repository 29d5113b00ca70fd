"""Likelihoods of the estimators by name, a table a task."""

from __future__ import annotations

from collections.abc import Callable

from latentgp import likelihoods as laws

BINARY: dict[str, type[laws.Likelihood]] = {
    "logit": laws.Bernoulli,
    "probit": laws.BernoulliProbit,
    "bayesian-svm": laws.BayesianSVM,
}
MULTICLASS: dict[str, type[laws.ClassLikelihood]] = {
    "softmax": laws.Softmax,
    "logistic-softmax": laws.LogisticSoftmax,
    "bijective-logistic-softmax": laws.BijectiveLogisticSoftmax,
    "scaled-logistic-softmax": laws.ScaledLogisticSoftmax,
    "robust-max": laws.RobustMax,
    "heaviside": laws.HeavisideMulticlass,
    "least-squares": laws.LeastSquares,
}

COUNTS: dict[str, Callable[[], laws.Likelihood]] = {
    "poisson": laws.Poisson,
    "negative-binomial": laws.LogNegativeBinomial,
    "scaled-logistic-poisson": laws.ScaledLogisticPoisson,
    "binomial": laws.Binomial,
    "beta-binomial": laws.BetaBinomial,
    "zero-inflated-poisson": lambda: laws.ZeroInflated(laws.Poisson()),
    "zero-inflated-negative-binomial": lambda: laws.ZeroInflated(laws.LogNegativeBinomial()),
    "hurdle-poisson": lambda: laws.Hurdle(laws.Poisson()),
    "hurdle-negative-binomial": lambda: laws.Hurdle(laws.LogNegativeBinomial()),
}

REGRESSION: dict[str, Callable[[], laws.Likelihood]] = {
    "gaussian": laws.Gaussian,
    "student-t": laws.StudentT,
    "laplace": laws.LaplaceNoise,
    "matern": laws.MaternNoise,
    "asymmetric-laplace": laws.AsymmetricLaplace,
    "heteroscedastic": laws.HeteroscedasticGaussian,
    "heteroscedastic-student-t": laws.HeteroscedasticStudentT,
    "log-noise": laws.LogNoiseGaussian,
    "warped": laws.WarpedGaussian,
    "stochastic-volatility": laws.StochasticVolatility,
    "gamma": laws.Gamma,
    "log-normal": laws.LogNormal,
    "weibull": laws.Weibull,
    "generalised-pareto": laws.GeneralisedPareto,
    "tweedie": laws.Tweedie,
    "hurdle-gamma": lambda: laws.Hurdle(laws.Gamma()),
    "beta": laws.Beta,
    "zero-one-inflated-beta": lambda: laws.ZeroOneInflated(laws.Beta()),
    "censored-gaussian": lambda: laws.Censored(laws.Gaussian()),
    "censored-student-t": lambda: laws.Censored(laws.StudentT()),
    "censored-log-normal": lambda: laws.Censored(laws.LogNormal()),
}
OF_OUTPUTS: dict[str, type[laws.LinearOutputs]] = {
    "coregionalisation": laws.LinearCoregionalisation,
    "regression-network": laws.GPRegressionNetwork,
}

# Whom a likelihood's name belongs to, for messages.
OWNERS = {
    **dict.fromkeys(REGRESSION, "GPRegressor (task regression)"),
    **dict.fromkeys(OF_OUTPUTS, "GPRegressor with several outputs"),
    **dict.fromkeys(COUNTS, "GPCountRegressor (task count)"),
    **dict.fromkeys(BINARY, "GPClassifier with two classes (task classification)"),
    **dict.fromkeys(MULTICLASS, "GPClassifier (task classification)"),
    "ordinal": "GPOrdinalClassifier (task ordinal)",
}
