"""Likelihoods of the estimators by name, a table a task."""

from __future__ import annotations

from collections.abc import Callable

from latentgp.likelihoods import (
    AsymmetricLaplace,
    BayesianSVM,
    Bernoulli,
    BernoulliProbit,
    Beta,
    BetaBinomial,
    BijectiveLogisticSoftmax,
    Binomial,
    Censored,
    ClassLikelihood,
    Gamma,
    Gaussian,
    GeneralisedPareto,
    GPRegressionNetwork,
    HeavisideMulticlass,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Hurdle,
    LaplaceNoise,
    LeastSquares,
    Likelihood,
    LinearCoregionalisation,
    LinearOutputs,
    LogisticSoftmax,
    LogNegativeBinomial,
    LogNoiseGaussian,
    LogNormal,
    MaternNoise,
    Poisson,
    RobustMax,
    ScaledLogisticPoisson,
    ScaledLogisticSoftmax,
    Softmax,
    StochasticVolatility,
    StudentT,
    Tweedie,
    WarpedGaussian,
    Weibull,
    ZeroInflated,
    ZeroOneInflated,
)

BINARY: dict[str, type[Likelihood]] = {
    "logit": Bernoulli,
    "probit": BernoulliProbit,
    "bayesian-svm": BayesianSVM,
}
MULTICLASS: dict[str, type[ClassLikelihood]] = {
    "softmax": Softmax,
    "logistic-softmax": LogisticSoftmax,
    "bijective-logistic-softmax": BijectiveLogisticSoftmax,
    "scaled-logistic-softmax": ScaledLogisticSoftmax,
    "robust-max": RobustMax,
    "heaviside": HeavisideMulticlass,
    "least-squares": LeastSquares,
}

COUNTS: dict[str, Callable[[], Likelihood]] = {
    "poisson": Poisson,
    "negative-binomial": LogNegativeBinomial,
    "scaled-logistic-poisson": ScaledLogisticPoisson,
    "binomial": Binomial,
    "beta-binomial": BetaBinomial,
    "zero-inflated-poisson": lambda: ZeroInflated(Poisson()),
    "zero-inflated-negative-binomial": lambda: ZeroInflated(LogNegativeBinomial()),
    "hurdle-poisson": lambda: Hurdle(Poisson()),
    "hurdle-negative-binomial": lambda: Hurdle(LogNegativeBinomial()),
}

REGRESSION: dict[str, Callable[[], Likelihood]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "laplace": LaplaceNoise,
    "matern": MaternNoise,
    "asymmetric-laplace": AsymmetricLaplace,
    "heteroscedastic": HeteroscedasticGaussian,
    "heteroscedastic-student-t": HeteroscedasticStudentT,
    "log-noise": LogNoiseGaussian,
    "warped": WarpedGaussian,
    "stochastic-volatility": StochasticVolatility,
    "gamma": Gamma,
    "log-normal": LogNormal,
    "weibull": Weibull,
    "generalised-pareto": GeneralisedPareto,
    "tweedie": Tweedie,
    "hurdle-gamma": lambda: Hurdle(Gamma()),
    "beta": Beta,
    "zero-one-inflated-beta": lambda: ZeroOneInflated(Beta()),
    "censored-gaussian": lambda: Censored(Gaussian()),
    "censored-student-t": lambda: Censored(StudentT()),
    "censored-log-normal": lambda: Censored(LogNormal()),
    "censored-weibull": lambda: Censored(Weibull()),
}
OF_OUTPUTS: dict[str, type[LinearOutputs]] = {
    "coregionalisation": LinearCoregionalisation,
    "regression-network": GPRegressionNetwork,
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
