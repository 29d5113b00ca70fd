"""Small files of every kind that `save` writes, and checkpoints of runs that were cut off.

`python stored_kinds.py [NAME...]` writes those that are not there yet, with what they predict. They
are of the state before modules moved; a kind that is new is written by the code that introduces it.
"""

import gzip
import json
import sys
import tempfile
import warnings
from datetime import date
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from numpyro.distributions import Distribution, Gamma, HalfNormal, LogNormal
from numpyro.distributions import Normal as NormalLaw
from safetensors.numpy import load_file, save_file

import latentgp as lgp
from latentgp import persistence
from latentgp.extensions import flows as approximations
from latentgp.extensions.areas.penalised_share import PenalisedShare
from latentgp.extensions.batches.asynchronous import Asynchrony
from latentgp.extensions.state_space import kernels as state_space
from latentgp.extensions.state_space.lanes import UnrolledMatrix
from latentgp.kernels import directions, per_latent
from latentgp.likelihoods.multiclass import SomeOfLogisticSoftmax
from latentgp.representations.inducing import natural_parameters
from latentgp.representations.inducing.posterior import Prior
from latentgp.runtime import checkpoint
from latentgp.setup.shared_log_normal import SharedLogNormal
from latentgp.sites.augmentations import automatic, conjugate, heteroscedastic, polya_gamma
from latentgp.surfaces.estimators.places import PlaceColumns
from latentgp.surfaces.evaluation.comparison import compare

FOLDER = Path(__file__).parent / "files" / "kinds"
EXPECTED = FOLDER / "expected.json"
KEY = jax.random.key(0)

# Quarters are exact in every precision, and in decimals.
X = 0.25 * np.stack(
    [[0, 1, 3, 5, 6, 8, 10, 11, 13, 14, 16, 17], [4, 10, 1, 7, 2, 9, 4, 0, 8, 5, 3, 11]], axis=1
)
NEW = np.array([[0.5, 1.5, 0.0], [1.75, 0.25, 1.0], [3.0, 2.5, 2.0], [4.5, 1.0, 1.0]])
SMOOTH = np.round(np.sin(2 * X[:, 0]) + 0.3 * X[:, 1], 2)
BINARY = (X[:, 1] > 1).astype(float)
BINARY[[2, 5]] = 1 - BINARY[[2, 5]]
CLASSES = np.arange(12.0) % 3
COUNTS = np.array([0, 2, 1, 4, 3, 0, 1, 5, 2, 2, 0, 1], float)
KERNEL = lgp.Matern32([0.7, 1.5], 1.25)
LINE = lgp.Matern32(0.7, 1.25)
POINTS = lgp.Inducing(points=X[::3] + 0.125)
CHAINS = {"chains": 2, "draws": 5, "warmup": 4}
NARROW = {"kernel.lengthscale": LogNormal(np.zeros(2), 0.5)}


def regression(kernel=KERNEL, likelihood=None, mean=None):
    return lgp.LatentGP(kernel, likelihood or lgp.Gaussian(0.25), mean or lgp.ConstantMean(0.5))


def trees():
    """Two trees, the first of three leaves."""
    places = [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    left, right = [[1, 3, 2, 3, 4], [1, 1, 2, 3, 4]], [[2, 4, 2, 3, 4], [2, 1, 2, 3, 4]]
    at = [[1.5, 0.75, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0, 0.0]]
    value = [[0.0, 0.0, 1.25, -0.5, 0.25], [0.0, -0.75, 0.5, 0.0, 0.0]]
    table = (np.array(own, float) for own in (places, at, left, right, value))
    return lgp.groups.Trees(lgp.ConstantMean(0.5), *table, columns=2, depth=2)


def classification(kernel=KERNEL, likelihood=None):
    return lgp.LatentGP(kernel, likelihood or lgp.Bernoulli())


def fitted(method, model=None, y=SMOOTH, inputs=X, **settings):
    """A fit of the regression, or of another model, whose hyper-parameters are held."""
    usual = {"key": KEY, "learn_hyperparameters": False}
    return lgp.fit(model or regression(), lgp.Data(inputs, y), method=method, **usual | settings)


def labelled(method, model=None, y=BINARY, **settings):
    return fitted(method, model or classification(), y, **settings)


def deep(likelihood=None):
    return lgp.DeepGP(lgp.RBF(), likelihood or lgp.Gaussian(0.25), layers=[lgp.Layer(lgp.RBF(), 2)])


def features(kind, kernel=LINE, inputs=X[:, :1]):
    return fitted(lgp.CollapsedVI(lgp.Inducing(features=kind)), regression(kernel), inputs=inputs)


FITS = {
    "dense": lambda: fitted(lgp.ExactGP()),
    "dense_learned": lambda: fitted(
        lgp.ExactGP(), learn_hyperparameters=True, priors=NARROW, max_evaluations=3
    ),
    "dense_of_classes": lambda: fitted(
        lgp.ExactGP(), regression(likelihood=lgp.LeastSquares(3, 0.25)), CLASSES
    ),
    "variational_of_outputs": lambda: fitted(
        lgp.VariationalInference(),
        regression(likelihood=lgp.LinearCoregionalisation([[1.0, 0.5], [-0.5, 1.25]], [0.25, 0.5])),
        np.stack([SMOOTH, SMOOTH[::-1]], axis=1),
    ),
    "coupled": lambda: labelled(
        lgp.Laplace(coupled=True), classification(likelihood=lgp.LogNoiseGaussian(6.0)), SMOOTH
    ),
    "coupled_inducing": lambda: labelled(
        lgp.VariationalInference(POINTS, coupled=True),
        classification(likelihood=lgp.Softmax(3)),
        CLASSES,
    ),
    "own_kernels": lambda: fitted(
        lgp.VariationalInference(POINTS),
        regression(lgp.PerLatent(KERNEL, lgp.RBF(0.75)), lgp.HeteroscedasticGaussian(4.0)),
    ),
    "inducing": lambda: fitted(lgp.CollapsedVI(POINTS)),
    "inducing_blocks": lambda: fitted(
        lgp.CollapsedVI(lgp.Inducing(4, approximation="pitc", block_size=4))
    ),
    "inducing_diagonal": lambda: labelled(
        lgp.VariationalInference(lgp.Inducing(4, covariance="diagonal"))
    ),
    "splines": lambda: features(lgp.BSplines(6)),
    "splines_of_two": lambda: features(
        lgp.BSplines(5), LINE.on(0) + lgp.Matern32(0.5).on(1) + lgp.Constant(0.5), X
    ),
    "splines_banded": lambda: features(lgp.BSplines(256)),
    "fourier": lambda: features(lgp.FourierFeatures(5)),
    "hilbert": lambda: features(lgp.HilbertSpace(5)),
    "windows": lambda: features(lgp.MultiScale(4), lgp.RBF([0.75, 1.25]), X),
    "harmonics": lambda: features(lgp.SphericalHarmonics(9), lgp.ArcCosine(), X),
    "per_part": lambda: features(
        lgp.PerPart(4),
        LINE.on(0) + lgp.FixedEffects(4.0, 0.5).on(1) + lgp.SameGroup().on(2),
        np.c_[X, CLASSES],
    ),
    "random_features": lambda: fitted(lgp.CollapsedVI(lgp.RandomFeatures(12))),
    "markov": lambda: fitted(
        lgp.ExactGP(lgp.Markov(harmonics=2)),
        regression(LINE + 0.5 * lgp.Periodic(period=2.0)),
        inputs=X[:, :1],
    ),
    "markov_of_all_kinds": lambda: fitted(
        lgp.ExactGP(lgp.Markov()),
        regression(
            lgp.Matern12(0.7) * lgp.Cosine(period=2.0)
            + lgp.Linear(0.5)
            + lgp.White(0.25)
            + lgp.Constant(0.5)
        ),
        inputs=X[:, :1],
    ),
    "markov_of_classes": lambda: labelled(
        lgp.VariationalInference(lgp.Markov()), classification(LINE), inputs=X[:, :1]
    ),
    "space_time": lambda: fitted(
        lgp.CollapsedVI(lgp.SpaceTime(3)),
        regression(LINE.on(0) * lgp.Matern52(0.75).on(1)),
    ),
    "trees": lambda: fitted(lgp.ExactGP(), regression(mean=trees())),
    "neighbours": lambda: fitted(lgp.ExactGP(lgp.Neighbours(3))),
    "neighbours_of_residuals": lambda: fitted(lgp.ExactGP(lgp.Neighbours(3, inducing=3))),
    "neighbours_of_classes": lambda: labelled(
        lgp.VariationalInference(lgp.LatentNeighbours(3, draws=4))
    ),
    "coupled_neighbours": lambda: labelled(
        lgp.Laplace(lgp.LatentNeighbours(3, draws=4), coupled=True),
        classification(likelihood=lgp.LogNoiseGaussian(6.0)),
        SMOOTH,
    ),
    "latent_neighbours_of_residuals": lambda: labelled(
        lgp.Laplace(lgp.LatentNeighbours(3, draws=4, inducing=3))
    ),
    "latent_neighbours": lambda: labelled(lgp.Laplace(lgp.LatentNeighbours(3, draws=4))),
    "latent_neighbours_by_levels": lambda: labelled(lgp.Laplace(lgp.LatentNeighbours(4, draws=4))),
    "matrix_free": lambda: fitted(lgp.ExactGP(lgp.MatrixFree(exact_up_to=0))),
    "matrix_free_of_classes": lambda: labelled(lgp.Laplace(lgp.MatrixFree())),
    "matrix_free_line": lambda: fitted(
        lgp.ExactGP(lgp.MatrixFree(exact_up_to=0)),
        regression(LINE),
        inputs=np.arange(12.0)[:, None] / 4,
    ),
    "matrix_free_grid": lambda: fitted(
        lgp.ExactGP(lgp.MatrixFree(exact_up_to=0)),
        regression(LINE.on(0) * lgp.RBF(0.75).on(1)),
        inputs=np.stack([np.repeat([0.0, 0.5, 1.25, 2.0], 3), np.tile([0.0, 0.75, 1.0], 4)], 1),
    ),
    "augmented": lambda: labelled(lgp.AugmentedVI()),
    "augmented_inducing": lambda: labelled(
        lgp.AugmentedVI(POINTS, lgp.GammaPoissonPolyaGamma()),
        classification(likelihood=lgp.LogisticSoftmax(3)),
        CLASSES,
    ),
    "variational": lambda: labelled(lgp.VariationalInference()),
    "laplace": lambda: labelled(lgp.Laplace(), classification(likelihood=lgp.Poisson()), COUNTS),
    "expectation_propagation": lambda: labelled(
        lgp.ExpectationPropagation(), classification(likelihood=lgp.BernoulliProbit())
    ),
    "expectation_propagation_inducing": lambda: labelled(
        lgp.ExpectationPropagation(POINTS, power=0.5)
    ),
    "gibbs": lambda: labelled(lgp.GibbsSampling(**CHAINS), learn_hyperparameters=True),
    "gibbs_inducing": lambda: labelled(lgp.GibbsSampling(POINTS, **CHAINS)),
    "elliptical_slice": lambda: labelled(lgp.EllipticalSlice(**CHAINS, thin=1)),
    "mcmc": lambda: labelled(lgp.MCMC(**CHAINS), learn_hyperparameters=True),
    "mcmc_neighbours": lambda: labelled(lgp.MCMC(lgp.Neighbours(3), **CHAINS)),
    "mcmc_markov": lambda: labelled(
        lgp.MCMC(lgp.Markov(), **CHAINS), classification(LINE), inputs=X[:, :1]
    ),
    "mcmc_inducing": lambda: labelled(lgp.MCMC(POINTS, **CHAINS)),
    "hmc": lambda: labelled(lgp.HMC(**CHAINS, steps=3)),
    "nuts": lambda: labelled(lgp.NUTS(**CHAINS)),
    "sgld": lambda: fitted(
        lgp.SGLD(chains=2, draws=4, warmup=4, thin=1), learn_hyperparameters=True
    ),
    "solves": lambda: fitted(lgp.SolvesGP(iterations=4), learn_hyperparameters=True),
    "black_box": lambda: labelled(lgp.BlackBoxVI(components=2), max_evaluations=4),
    "black_box_inducing": lambda: labelled(lgp.BlackBoxVI(POINTS), max_evaluations=4),
    "stochastic": lambda: labelled(
        lgp.Stochastic(lgp.AugmentedVI(POINTS), batch_size=4, epochs=2, schedule=lgp.Adaptive()),
    ),
    "stochastic_variational": lambda: labelled(
        lgp.Stochastic(lgp.VariationalInference(POINTS), batch_size=4, epochs=2)
    ),
    "integrated": lambda: fitted(
        lgp.Integrated(lgp.ExactGP()),
        learn_hyperparameters=True,
        frozen=["kernel.lengthscale", "kernel.variance", "mean.value"],
    ),
    "random_feature_vi": lambda: fitted(
        lgp.RandomFeatureVI(features=12, batch_size=4, epochs=2, components=3)
    ),
    "deep": lambda: fitted(
        lgp.RandomFeatureVI(features=12, batch_size=4, epochs=2, components=3, start="given"),
        deep(),
    ),
    "deep_chains": lambda: fitted(
        lgp.DeepMCMC(features=12, chains=1, draws=4, warmup=2, thin=1, components=3), deep()
    ),
    "deep_functions": lambda: fitted(
        lgp.DeepMCMC("elliptical-slice", chains=1, draws=4, warmup=2, thin=1, components=3), deep()
    ),
    "particle_flow": lambda: labelled(_by(lgp.GaussianParticleFlow(6, steps=4))),
    "gaussian_flow": lambda: labelled(_by(lgp.GaussianFlow(steps=4))),
    "pathfinder": lambda: labelled(_by(approximations.Pathfinder(steps=4))),
}


def _by(approximation):
    return lgp.DensityApproximation(approximation, draws=6, chains=1)


def _stream(method, model, y, inputs=X, **settings):
    """A posterior of six rows after two more, and what is kept of it."""
    first = lgp.Data(inputs[:6], y[:6])
    posterior = lgp.fit(model, first, method=method, key=KEY, learn_hyperparameters=False).posterior
    later = posterior.update(inputs[6:8], y[6:8], key=KEY, method=method, **settings)
    return later, later.remembered()


STREAMS = {
    "reports": lambda: _stream(
        lgp.CollapsedVI(lgp.SpaceTime(3)),
        regression(LINE.on(0) * lgp.Matern52(0.75).on(1)),
        SMOOTH,
    ),
    "stream": lambda: _stream(lgp.CollapsedVI(POINTS), regression(), SMOOTH, n_inducing=4),
    "stream_of_classes": lambda: _stream(
        lgp.VariationalInference(POINTS), classification(), BINARY, n_inducing=4
    ),
    "stream_in_time": lambda: _stream(
        lgp.ExactGP(lgp.Markov()), regression(LINE), SMOOTH, X[:, :1], lag=2.5
    ),
    "stream_of_features": lambda: _stream(
        lgp.CollapsedVI(lgp.RandomFeatures(12)), regression(), SMOOTH
    ),
}


def _table():
    return pd.DataFrame(
        {
            "x": X[:, 0],
            "kind": np.array(["a", "b", "c"])[CLASSES.astype(int)],
            "day": pd.date_range(date(2024, 1, 1), periods=12, freq="D"),
            "waited": pd.to_timedelta(np.arange(12) % 5, unit="h"),
            "price": [f"{1000 + 10 * i},5" for i in range(12)],
            "y": SMOOTH,
            "ill": np.where(BINARY, "yes", "no"),
            "n": COUNTS.astype(int),
        }
    )


def _tabled(target=None, drop=(), dates=False, **settings):
    frame = _table().drop(columns=list(drop))
    if dates:
        frame["day"] = frame["day"].dt.strftime("%d.%m.%Y")
    frame.loc[3, "x"] = None
    usual = {"random_state": 0, "max_evaluations": 3, "learn_hyperparameters": False}
    return lgp.TableModel.fit(frame, *([] if target is None else [target]), **usual | settings)


TABLES = {
    "table": lambda: _tabled("y", ["ill", "n"]),
    "table_of_labels": lambda: _tabled("ill", ["y", "n", "price"]),
    "table_of_series": lambda: _tabled(
        "y", ["ill", "n", "price", "waited", "x"], time="day", by="kind"
    ),
    "table_of_counts": lambda: _tabled("n", ["ill", "y", "price"], task="count"),
    "table_of_dates": lambda: _tabled("y", ["ill", "n", "price", "waited"], dates=True),
    "table_formula": lambda: _tabled(
        formula="y ~ gp(x, by=kind) + kind + (1 + waited | kind)", drop=["ill", "n"]
    ),
    "table_maximised": lambda: _tabled(
        formula="y ~ waited + (1 | kind)", drop=["ill", "n"], fixed_effects="maximise"
    ),
}


def _estimator(kind, y, **settings):
    usual = {"random_state": 0, "learn_hyperparameters": False}
    return kind(lgp.RBF(lengthscale=0.75), **usual | settings).fit(X, y)


ESTIMATORS = {
    "regressor": lambda: _estimator(lgp.GPRegressor, SMOOTH),
    "regressor_learned": lambda: _estimator(
        lgp.GPRegressor, SMOOTH, learn_hyperparameters=True, max_evaluations=3
    ),
    "regressor_chosen": lambda: lgp.GPRegressor(random_state=0, max_evaluations=3).fit(X, SMOOTH),
    "classifier": lambda: _estimator(lgp.GPClassifier, np.where(BINARY, "yes", "no")),
    "counts": lambda: _estimator(lgp.GPCountRegressor, COUNTS),
    "ordinal": lambda: _estimator(lgp.GPOrdinalClassifier, CLASSES),
}


def _with_weights():
    kernel = lgp.WeightedSum((lgp.RBF(0.75).on(0), lgp.Linear(0.5).on(1)), [0.5, 2.0])
    chains = lgp.MCMC(**CHAINS)
    return fitted(chains, regression(kernel), learn_hyperparameters=True).posterior


def _compared():
    only = {"methods": ["exact"], "likelihoods": ["gaussian"]}
    return compare(_table()[["x", "y"]], "y", **only, max_evaluations=2)


def _judged():
    data, fit = lgp.Data(X, SMOOTH), fitted(lgp.ExactGP())
    smoother = fitted(lgp.ExactGP(), regression(lgp.RBF(1.25)))
    prior = lgp.sample_prior(regression(), data, key=KEY, number=3)
    with tempfile.TemporaryDirectory() as folder:
        exported = lgp.export_predictor(fit.posterior, folder)
    return {
        "leave_one_out": fit.leave_one_out(),
        "comparison": lgp.compare_models(
            {"rough": fit.leave_one_out(), "smooth": smoother.leave_one_out()}
        ),
        "cross_validation": lgp.cross_validate(
            regression(), data, key=KEY, folds=3, refit=False, method=lgp.ExactGP()
        ),
        "predictive_check": lgp.predictive_check(fit, data, key=KEY, number=5),
        "weights": lgp.kernel_weights(_with_weights()),
        "prior": prior,
        "gap": lgp.augmentation_gap(labelled(lgp.AugmentedVI()).posterior, lgp.Data(X, BINARY)),
        "reliability": lgp.metrics.reliability_curve(BINARY, np.linspace(0.05, 0.95, 12)),
        "exported": exported._replace(predictor=None, stablehlo={}, deviation=0.0),
        "compared": _compared(),
        "certificate": fitted(
            lgp.AugmentedVI(),
            classification(),
            BINARY,
            learn_hyperparameters=True,
            max_evaluations=3,
        ).certify(key=KEY, seconds=0.5),
        "summary": lgp.summarise(
            regression(LINE), lgp.Data(X[:, :1], SMOOTH), lgp.BSplines(6), key=KEY
        ),
        "pure": fit.posterior.as_jax(),
        "marginals": FITS["integrated"]().posterior.hyperparameter_marginals,
        "progress": lgp.RunProgress("sampling", 3, 5, 0.5, None),
        "asynchrony": Asynchrony(2, 0, 3, 0.5, 1),
    }


BORDERS = [(0, 1), (1, 2), (2, 3)]
GRAM = np.array([[2.0, 0.5], [0.5, 1.0]])


def _kernels():
    line = lgp.Matern32(0.75)
    network = eqx.nn.MLP(1, 1, 2, 1, activation=jax.nn.tanh, key=KEY)
    regions = lgp.functionals.Regions([[[0.0], [1.0]], [[2.0]]])
    return [
        lgp.RBF([0.75, 1.25]), lgp.Matern12(0.75), line, lgp.Matern52(0.75),
        lgp.Matern(order=1.25), lgp.MaternHalfInteger(0.75, degree=3),
        lgp.RationalQuadratic(mixing=0.75), lgp.Periodic(1.25, period=2.0),
        lgp.Cosine(period=2.0), lgp.Linear(0.5), lgp.Polynomial(degree=3, variance=0.5),
        lgp.Constant(2.0), lgp.White(0.5), lgp.ArcCosine(order=0), lgp.Categorical(0.5),
        lgp.FixedEffects([4.0, 1.0], centre=[0.0, 0.5]), lgp.SameGroup(),
        lgp.CorrelatedLinear([0.5, 0.25], [0.5]), lgp.OnSphere(lgp.Matern32(3000.0)),
        lgp.OnSphere(lgp.Matern12(3000.0), "great-circle"), lgp.Precomputed(GRAM),
        lgp.CAR(BORDERS, 2.0, 0.75, areas=4), lgp.ICAR(BORDERS, 2.0, areas=4),
        lgp.BYM2(BORDERS, 2.0, 0.25, areas=4),
        lgp.Functionals(line, average_along=0), lgp.Functionals(line, regions=regions),
        lgp.WeightedSum((lgp.RBF().on(0), lgp.Linear().on(1)), [0.5, 2.0]),
        lgp.PerLatentSum((lgp.RBF(), lgp.Linear()), [[0.5, 2.0], [1.0, 0.25]]),
        lgp.PerLatent(lgp.RBF(), lgp.Linear()),
        2.0 * lgp.RBF().on(0) * lgp.Categorical().on(1) + lgp.White(0.25),
        regions, network,
        *per_latent.kernel_groups(lgp.PerLatent(lgp.RBF(), lgp.RBF(2.0)), 2),
        directions.DirectionMatrix(GRAM),
        directions.HadamardDirections(np.ones((1, 3, 64)), np.ones(2)),
    ]  # fmt: skip


def _likelihoods():
    return [
        lgp.Gaussian(0.25), lgp.StudentT(0.5, 7.0), lgp.LaplaceNoise(0.5), lgp.MaternNoise(0.5),
        lgp.HeteroscedasticGaussian(9.0), lgp.HeteroscedasticStudentT(40.0, 9.0),
        lgp.Bernoulli(), lgp.BernoulliProbit(), lgp.BayesianSVM(), lgp.Binomial(),
        lgp.NegativeBinomial(1.5), lgp.ScaledLogisticPoisson(3.5), lgp.Poisson(),
        lgp.LogNegativeBinomial(1.5), lgp.Ordinal([-0.75, 0.25, 1.5]), lgp.StochasticVolatility(),
        lgp.LogNoiseGaussian(6.0), lgp.Gamma(2.25), lgp.Weibull(1.5), lgp.Beta(40.0),
        lgp.WarpedGaussian([1.5, 0.5], [0.75, 3.0], [-1.0, 0.5], 0.25),
        lgp.AsymmetricLaplace(0.25, level=0.75), lgp.LogNormal(0.5), lgp.GeneralisedPareto(0.125),
        lgp.Tweedie(1.5, 0.75), lgp.Censored(lgp.Gaussian(0.25)), lgp.BetaBinomial(4.0),
        lgp.ZeroTruncated(lgp.Poisson()), lgp.ZeroInflated(lgp.Poisson(), 0.25),
        lgp.Hurdle(lgp.Poisson(), 0.25, varying=True), lgp.ZeroOneInflated(lgp.Beta(40.0), 0.25),
        lgp.Softmax(3), lgp.RobustMax(3), lgp.HeavisideMulticlass(3), lgp.LeastSquares(3, 0.25),
        lgp.LogisticSoftmax(3), lgp.BijectiveLogisticSoftmax(3),
        lgp.ScaledLogisticSoftmax(3, [0.5, 1.0, 2.0]),
        SomeOfLogisticSoftmax(3),
        lgp.LinearCoregionalisation([[1.0, 0.5], [-0.5, 1.25]], [0.25, 0.5]),
        lgp.GPRegressionNetwork([[1.0], [-0.5]], 0.5),
        lgp.Form(0.5, 0.0, 1.0, 2.0, 1.0),
    ]  # fmt: skip


def _means():
    line = lgp.LinearMean([0.5, -2.0], 1.0)
    return [
        lgp.ZeroMean(), lgp.ConstantMean(4.0), line, lgp.PerLatentMean(line, lgp.ZeroMean()),
        lgp.FunctionalMean(lgp.LinearMean([0.5])),
    ]  # fmt: skip


def _representations():
    return [
        lgp.Dense(), lgp.Inducing(7, selection="greedy-variance"), POINTS, lgp.Markov(lanes=3),
        lgp.SpaceTime(4), lgp.Neighbours(3, inducing=lgp.Inducing(3)), lgp.LatentNeighbours(3),
        lgp.MatrixFree(rank=3), lgp.RandomFeatures(20, kind="structured"),
        *(lgp.Inducing(features=kind) for kind in (
            lgp.BSplines(8), lgp.FourierFeatures(7), lgp.HilbertSpace(5), lgp.MultiScale(5),
            lgp.SphericalHarmonics(20), lgp.PerPart(8))),
    ]  # fmt: skip


def _approximations():
    own = approximations
    usual = [
        own.BatchAndMatch, own.BayesianLearningRule, own.EfficientLowRank, own.FactorCovariance,
        own.FullRank, own.LaplaceApproximation, own.MeanField, own.Pathfinder,
        own.SteinVariational, own.SWAG, own.VariationalOnlineNewton, own.GaussianFlow,
        own.GaussianParticleFlow,
    ]  # fmt: skip
    return [
        *(make() for make in usual),
        *(own.MeanField(optimiser=o()) for o in (own.Adam, own.Descent, own.RMSProp)),
    ]


def _augmentations():
    return [
        lgp.GammaPoissonPolyaGamma(), lgp.NegativeMultinomialPolyaGamma(), automatic.Automatic(),
        conjugate.Conjugate(), heteroscedastic.HeteroscedasticAugmentation(),
        polya_gamma.PolyaGamma(), polya_gamma.PoissonPolyaGamma(),
    ]  # fmt: skip


def _methods():
    return [
        lgp.ExactGP(), lgp.CollapsedVI(POINTS), lgp.AugmentedVI(), lgp.VariationalInference(POINTS),
        lgp.Laplace(lgp.LatentNeighbours(3)), lgp.ExpectationPropagation(power=0.5),
        lgp.GibbsSampling(draws=7), lgp.EllipticalSlice(draws=7), lgp.MCMC(draws=7),
        lgp.HMC(steps=3), lgp.NUTS(draws=7), lgp.SGLD(solves=lgp.Solves(probes=2)), lgp.SolvesGP(),
        lgp.BlackBoxVI(components=2), lgp.DensityApproximation(lgp.GaussianParticleFlow(6)),
        lgp.Stochastic(lgp.AugmentedVI(POINTS), schedule=lgp.RobbinsMonro(0.75)),
        lgp.Stochastic(lgp.AugmentedVI(POINTS), schedule=lgp.Adaptive(5.0)),
        lgp.Integrated(lgp.Laplace()), lgp.RandomFeatureVI(features=12), lgp.DeepMCMC("sghmc"),
        lgp.AugmentedVI(search=lgp.ShortSearch(100, 3)),
    ]  # fmt: skip


def _others():
    return {
        "model": regression(mean=lgp.LinearMean([0.5, 1.0])),
        "deep model": deep(),
        "data": lgp.Data(X, COUNTS, weights=np.arange(1.0, 13.0), exposure=np.full(12, 2.5)),
        "priors": [
            LogNormal(np.zeros(2), 0.5),
            HalfNormal(1.0),
            NormalLaw(0.0, 2.0),
            Gamma(2.0, 1.0),
            SharedLogNormal(np.zeros(2), 1.5, 0.5),
            PenalisedShare(np.array([0.0, 0.5, 2.0]), 1.25),
        ],
        "state spaces": [
            state_space.state_space(kernel, state_space.Truncation())
            for kernel in (
                lgp.Matern52(0.75),
                lgp.RBF(0.75),
                lgp.Periodic(1.25, period=2.0),
                lgp.Constant(2.0),
                lgp.Linear(0.5),
                lgp.White(0.5),
                0.5 * lgp.Matern12(0.75),
                lgp.Matern12(0.75) + lgp.Cosine(period=2.0),
                lgp.Matern12() * lgp.Matern32(),
            )
        ],
        "matrices": UnrolledMatrix([[0.5, 1.0], [0.0, 2.0]]),
    }


class OfFeature(lgp.Kernel):
    """A user's kernel, of one learned feature."""

    network: eqx.nn.MLP

    def __call__(self, x, z):
        return self.network(x)[0] * self.network(z)[0]


def log_prob_of_own(y, f):
    return jax.nn.log_sigmoid(y - f[0]) + jax.nn.log_sigmoid(f[0] - y)


def _own():
    """Values that hold classes and functions of the user's."""
    network = eqx.nn.MLP(1, 1, 2, 1, activation=jax.nn.tanh, key=KEY)
    return [
        OfFeature(network),
        lgp.CustomLikelihood(log_prob_of_own),
        lgp.ExternalLikelihood(log_prob_of_own),
    ]


for thing in (OfFeature, log_prob_of_own):
    persistence.register(thing)


def _mixture():
    fits = [fitted(lgp.ExactGP(), regression(lgp.RBF(scale))) for scale in (0.5, 1.0)]
    return lgp.Posterior.mixture([fit.posterior for fit in fits], [0.25, 0.75])


def _parts():
    """What posteriors and their summaries are made of, by itself."""
    latent = FITS["inducing"]().posterior.latent
    fixed = FITS["splines_of_two"]().posterior.latent.variables
    white = natural_parameters.WhiteSites(np.ones((1, 2)), np.eye(2)[None])
    return [
        Prior(latent.factor, latent.jitter),
        natural_parameters.Memory(white, np.array(0.5), np.array(0.25)),
        natural_parameters.ProjectedPrior(np.eye(2)[None], np.ones(1)),
        fixed.telling_parts(3),
    ]


def _warping():
    knots = [[0.0, -1.0], [1.0, 0.0], [4.0, 2.0]]
    kernel = lgp.kernels.InputWarping(
        lgp.Matern32([0.75, 1.25]), knots, [[0.5, 0.0], [1.5, 0.75], [2.0, 1.0]]
    )
    return [kernel, kernel.on(0, 1) + lgp.Linear()]


def _metric():
    space = lgp.OnSphere(lgp.Matern12(500.0, 1.25)).on(1, 0)
    return [lgp.kernels.MetricKernel(space, lgp.kernels.OtherColumns((2, 3), [0.75, 2.0]))]


def _field_kernels():
    """Kernels of fields, and state-space forms of those that have one."""
    turned = lgp.kernels.Anisotropic(lgp.Matern32(0.75, 1.25), [0.5, -0.25])
    decay = lgp.kernels.TemporalDecay(0, lengthscale=2.0, smoothness=0.75, power=0.5)
    over_time = [lgp.kernels.AR1(0.5, 1.25), lgp.kernels.RandomWalk(0.25, start=-1.0)]
    return [
        turned, lgp.kernels.Anisotropic(lgp.RBF(0.75), [0.5, 0.25, 0.0, -0.5, 0.75]),
        lgp.kernels.PoweredExponential(0.75, power=1.5),
        lgp.kernels.Gneiting(turned.on(1, 2), decay, 0.25), *over_time,
        *(state_space.state_space(own, state_space.Truncation()) for own in over_time),
    ]  # fmt: skip


def _fourier_of_places():
    """Sums over places, the posterior given them, and how places of a table are known."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 2, (20, 2))
    data = lgp.Data(X, np.sin(3 * X[:, 0]))
    model = lgp.LatentGP(lgp.RBF(lengthscale=1.0), lgp.Gaussian(0.1))
    few = lgp.fields.EquispacedFourier(tolerance=0.1, left=0.1)
    sums = lgp.fields.summarise(model, data, few, key=KEY)
    found = lgp.fit(model, sums, key=KEY, learn_hyperparameters=False)
    places = PlaceColumns(("lon", "lat"), True, None, False)
    return [lgp.fields.FourierGP(few), sums, found.posterior, places]


def _effects_of_groups():
    """Posteriors of effects, eliminated and crossed, and a summary's method."""
    X = np.stack([np.arange(12.0) % 4, np.arange(12.0) % 3, np.ones(12)], axis=1)
    kernel = lgp.kernels.FixedEffects(4.0).on(2)
    for column in (0, 1):
        kernel = kernel + lgp.Constant(0.5) * lgp.kernels.SameGroup().on(column)
    model, data = lgp.LatentGP(kernel, lgp.Gaussian(0.1)), lgp.Data(X, SMOOTH)
    found = []
    for exact in (True, False):
        method = lgp.CollapsedVI(lgp.groups.SparseEffects(exact=exact, probes=2))
        fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
        found += [method, fit.posterior]
    return found


def _memberships():
    """Kernels of several groups of a row, and of interactions; effects of such groups."""
    X = np.stack([np.arange(12.0) % 4, np.arange(12.0) % 3, np.ones(12)], axis=1)
    several = lgp.kernels.MultipleMembership(2)
    kernel = lgp.kernels.FixedEffects(4.0).on(2) + 0.5 * several.on(0, 1)
    model, data = lgp.LatentGP(kernel, lgp.Gaussian(0.1)), lgp.Data(X, SMOOTH)
    found = []
    for features in (lgp.groups.SparseEffects(), _per_part(5)):
        method = lgp.CollapsedVI(features)
        fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
        found.append(fit.posterior)
    offset = lgp.means.OffsetMean(lgp.ConstantMean(4.0), (1,))
    return [several, lgp.kernels.ZeroAverage(lgp.RBF(0.75), [[0.5], [1.5]]), offset, *found]


def _per_part(number):
    return lgp.Inducing(features=lgp.inter_domain.PerPart(number))


VALUES = {
    "memberships": _memberships,
    "effects_of_groups": _effects_of_groups,
    "fourier_of_places": _fourier_of_places,
    "mixture": _mixture,
    "own": _own,
    "parts": _parts,
    "kernels": _kernels,
    "warping": _warping,
    "metric": _metric,
    "field_kernels": _field_kernels,
    "likelihoods": _likelihoods,
    "means": _means,
    "representations": _representations,
    "approximations": _approximations,
    "augmentations": _augmentations,
    "methods": _methods,
    "others": _others,
    "weights": lambda: lgp.HierarchicalDirichlet(3, latents=2, rate=1.5),
    "judged": _judged,
}
KINDS = {**FITS, **STREAMS, **TABLES, **ESTIMATORS, **VALUES}


def _searched(method, model=None, y=BINARY, **settings):
    return model or classification(), lgp.Data(X, y), {"method": method, **settings}


RUNS = {  # and after how many reports of progress they are cut off
    "search": lambda: (
        *_searched(lgp.Laplace(correct_mean=False), priors=NARROW, max_evaluations=6),
        3,
    ),
    "batches": lambda: (*_searched(lgp.Stochastic(lgp.AugmentedVI(POINTS), 4, 6)), 3),
    "gibbs": lambda: (*_searched(lgp.GibbsSampling(chains=2, draws=120, warmup=0)), 1),
    "chains": lambda: (*_searched(lgp.NUTS(chains=1, draws=120, warmup=10)), 1),
    "mixtures": lambda: (*_searched(lgp.BlackBoxVI(components=2), max_evaluations=6), 3),
    "approximation": lambda: (*_searched(_by(lgp.GaussianParticleFlow(6, steps=300))), 1),
    "solves": lambda: (*_searched(lgp.SolvesGP(iterations=30), regression(), SMOOTH), 1),
    "deep": lambda: (
        *_searched(
            lgp.RandomFeatureVI(
                frequencies="variational",
                features=12,
                batch_size=4,
                epochs=6,
                components=3,
                start="given",
            ),
            deep(),
            SMOOTH,
        ),
        3,
    ),
}


def run(name, path, reports=None):
    """A run of a name with its checkpoint, cut off after so many reports; and those it made."""
    model, data, settings, _ = RUNS[name]()
    told = []

    def callback(progress):
        told.append(progress)
        return len(told) == reports

    return lgp.fit(model, data, key=KEY, checkpoint=path, callback=callback, **settings), len(told)


def described_anew(path, name, to):
    """The checkpoint with the description that this code gives its problem.

    A description names classes by their modules, so a checkpoint is gone on from by the code that
    wrote it; what else it holds is to be understood by later code too.
    """
    run(name, to, reports=1)
    tensors = {**load_file(path), "made_with": load_file(to)["made_with"]}
    del tensors["digest"]
    save_file({**tensors, "digest": checkpoint.checksum(tensors)}, to)
    return to


def posteriors(value):
    """Posteriors in a value."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        value = value[0]
    value = getattr(value, "posterior_", getattr(value, "posterior", value))
    return [value] if isinstance(value, lgp.Posterior) else []


def predictions(value):
    """What a value predicts, by name."""
    found = {}
    for posterior in posteriors(value):
        inputs = NEW[:, : posterior.latent_inputs()]
        found |= posterior.predict_f(inputs)._asdict()
        if posterior.evidence is not None:
            found["evidence"] = posterior.evidence.value
    if isinstance(value, lgp.TableModel):
        answers = value.predict(_table().head(4))
        found |= {name: answers[name] for name in answers if answers[name].dtype.kind == "f"}
    if isinstance(value, lgp.GPClassifier | lgp.GPOrdinalClassifier):
        found["probabilities"] = value.predict_proba(NEW[:, :2])
    elif isinstance(value, lgp.GPRegressor | lgp.GPCountRegressor):
        found["predicted"] = value.predict(NEW[:, :2])
    return {name: np.asarray(values, float).tolist() for name, values in found.items()}


def texts(value):
    """How a value, or each part of one, shows itself."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [text for part in value for text in texts(part)]
    if isinstance(value, lgp.Fit):
        return [repr(value.model), repr(value.diagnostics), str(value.diagnostics)]
    if isinstance(value, Distribution):
        fields = {name: np.asarray(getattr(value, name)).tolist() for name in value.arg_constraints}
        return [f"{type(value).__name__} {fields}"]
    text = repr(value)
    return [text if " at 0x" not in text else type(value).__name__]


def unpacked(name, folder):
    """The file of a name, unpacked into a folder."""
    path = Path(folder) / name
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path


def _pack(path):
    (FOLDER / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def stored():
    """What is expected of the files, by their names."""
    return json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {"kinds": {}, "runs": {}}


def _expect(group, name, **expected):
    known = stored()
    known[group][name] = expected
    EXPECTED.write_text(json.dumps(known, indent=1))


def write_kind(name, folder):
    value = KINDS[name]()
    path = lgp.save(value, folder / f"{name}.latentgp")
    saved = lgp.load(path)
    found = predictions(saved)
    assert found == predictions(value), "the file predicts something else"
    _pack(path)
    _expect("kinds", name, predictions=found, texts=texts(saved))


def write_run(name, folder):
    checkpoint.CHECKPOINT_SECONDS = 0.0
    whole, made = run(name, folder / "whole")
    path = folder / f"{name}.checkpoint"
    run(name, path, RUNS[name]()[-1])
    (folder / "copy").write_bytes(path.read_bytes())
    resumed, left = run(name, folder / "copy")
    assert 0 < left < made, (left, made)
    assert predictions(resumed) == predictions(whole), "it goes on to something else"
    _pack(path)
    _expect("runs", name, predictions=predictions(whole), left=left)


def main(names):
    """Write the files of these names, or all, that are not there yet."""
    FOLDER.mkdir(exist_ok=True)
    todo = [(name, "latentgp", write_kind) for name in KINDS]
    todo += [(name, "checkpoint", write_run) for name in RUNS]
    for name, ending, write in todo:
        missing = not (FOLDER / f"{name}.{ending}.gz").exists()
        if missing and (not names or name in names):
            with tempfile.TemporaryDirectory() as folder:
                write(name, Path(folder))


if __name__ == "__main__":
    from stored_kinds import main  # files name what is registered by its module

    warnings.simplefilter("ignore")
    main(sys.argv[1:])
