"""Makes the pictures of the README and the guides: `python docs/pictures.py`, two minutes."""

from functools import cache
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import latentgp as lgp
from latentgp.surfaces.demo.forecast import forecast

BLUE, ORANGE = "#0072B2", "#D55E00"
FOLDER = Path(__file__).parent / "images"
GRID, FINE = np.linspace(0, 10, 120), np.linspace(0, 10, 400)


def real_targets(rng: np.random.Generator, X: np.ndarray) -> dict[str, np.ndarray]:
    """What a regressor's likelihoods are for, by name."""
    signal = np.sin(X)
    noise = rng.normal(size=len(X))
    outliers = np.where(rng.uniform(size=len(X)) < 0.1, 4 * noise, 0)
    mean = np.exp(0.8 * signal + 0.5)
    share = 1 / (1 + np.exp(-1.5 * signal))
    return {
        "gaussian": signal + 0.3 * noise,
        "student-t": signal + 0.2 * noise + outliers,
        "log-noise": signal + np.exp(0.35 * X - 3) * noise,
        "warped": np.exp(signal + 0.2 * noise),
        "gamma": rng.gamma(4.0, mean / 4),
        "weibull": mean * rng.weibull(2.5, len(X)),
        "beta": rng.beta(12 * share, 12 * (1 - share)),
        "stochastic-volatility": np.exp(signal - 0.5) * noise,
    }


def banded(ax: Axes, title: str, X: np.ndarray, y: np.ndarray, fit: lgp.Posterior) -> None:
    """Targets, and the predictive mean with its central 90 %."""
    many = len(X) > 100
    grid = FINE if many else GRID
    predictive = fit.predict(grid)
    lower, upper = predictive.interval(0.9)
    ax.plot(X, y, "o", color="black", markersize=1 if many else 2.5)
    ax.fill_between(grid, lower, upper, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(grid, predictive.mean, color=BLUE)
    ax.set_title(title, fontsize=10)
    ax.set_ylim(*np.quantile(y, [0, 1]) + np.array([-0.15, 0.15]) * np.ptp(y))


def likelihoods() -> Figure:
    """One panel a likelihood, on data that it is for."""
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(0, 10, 90))
    figure = Figure(figsize=(12, 10), layout="constrained")
    panels = iter(figure.subplots(4, 4).ravel())
    for name, y in real_targets(rng, X).items():
        regressor = lgp.GPRegressor(likelihood=name, random_state=0)
        late = y > 4.0 if name == "weibull" else np.zeros(len(X), bool)
        side = {"censored": late.astype(float)} if name == "weibull" else {}
        y = np.where(late, 4.0, y)
        ax = next(panels)
        banded(ax, name, X, y, regressor.fit(X[:, None], y, **side).posterior_)
        if late.any():
            ax.plot(X[late], y[late], "^", color=ORANGE, markersize=4)
    rate = np.exp(1.2 * np.sin(X) + 1)
    for name, y in (
        ("poisson", rng.poisson(rate)),
        ("negative-binomial", rng.poisson(rate * rng.gamma(2.0, 0.5, len(X)))),
    ):
        counts = lgp.GPCountRegressor(likelihood=name, random_state=0).fit(X[:, None], y)
        banded(next(panels), name, X, y.astype(float), counts.posterior_)
    level = 1.5 * np.sin(X) + 0.5 * rng.logistic(size=len(X))
    for name, y in (
        ("bernoulli", (level > 0).astype(int)),
        ("ordinal", np.digitize(level, [-1.0, 1.0])),
        ("softmax", (X + 0.7 * rng.normal(size=len(X))).clip(0, 9.9).astype(int) // 2 % 3),
    ):
        estimator = lgp.GPOrdinalClassifier if name == "ordinal" else lgp.GPClassifier
        classifier = estimator(random_state=0).fit(X[:, None], y)
        ax = next(panels)
        shares = np.cumsum(classifier.predict_proba(GRID[:, None]), axis=1)
        ax.stackplot(
            GRID, np.diff(shares, axis=1, prepend=0).T, colors=["#CCE3F0", "#66AAD0", BLUE]
        )
        ax.plot(X, (y + 0.5) / (y.max() + 1), "o", color="black", markersize=2.5)
        ax.set_title(name, fontsize=10)
    outputs = np.stack([np.sin(X), -2 * np.sin(X) + np.cos(0.7 * X)], axis=1)
    outputs += 0.2 * rng.normal(size=outputs.shape)
    outputs[(X > 3) & (X < 7), 1] = np.nan
    for name in ("coregionalisation", "regression-network"):
        fit = lgp.GPRegressor(likelihood=name, random_state=0).fit(X[:, None], outputs)
        ax, predictive = next(panels), fit.posterior_.predict(GRID)
        lower, upper = predictive.interval(0.9)
        for output, color in enumerate((ORANGE, BLUE)):
            band = lower[:, output], upper[:, output]
            ax.fill_between(GRID, *band, color=color, alpha=0.2, linewidth=0)
            ax.plot(GRID, predictive.mean[:, output], color=color)
            ax.plot(X, outputs[:, output], "o", color=color, markersize=2.5)
        ax.set_title(name, fontsize=10)
    for ax in panels:
        ax.set_axis_off()
    return figure


def methods() -> Figure:
    """One panel a method: the latent function of binary targets, against Gibbs sampling."""
    rng = np.random.default_rng(5)
    X = np.sort(rng.uniform(0, 10, 40))
    y = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-5 * np.sin(X)))).astype(float)
    model = lgp.LatentGP(lgp.RBF(1.0, variance=25.0), lgp.Bernoulli())
    chosen = {
        "VariationalInference": lgp.VariationalInference(),
        "ExpectationPropagation": lgp.ExpectationPropagation(),
        "AugmentedVI": lgp.AugmentedVI(),
        "Laplace": lgp.Laplace(),
    }

    def latent(method: lgp.Method) -> tuple[np.ndarray, np.ndarray]:
        fit = lgp.fit(
            model, lgp.Data(X, y), key=jax.random.key(0), method=method, learn_hyperparameters=False
        )
        mean, variance = fit.posterior.predict_f(GRID)
        return mean, 2 * np.sqrt(variance)

    truth, width = latent(lgp.GibbsSampling(draws=2_000))
    figure = Figure(figsize=(12, 3), layout="constrained")
    for ax, (name, method) in zip(figure.subplots(1, 4, sharey=True), chosen.items(), strict=True):
        mean, spread = latent(method)
        ax.fill_between(GRID, mean - spread, mean + spread, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(GRID, mean, color=BLUE, label=name)
        for line in (truth, truth - width, truth + width):
            label = "GibbsSampling" if line is truth else None
            ax.plot(GRID, line, color="black", linestyle="--", linewidth=1, label=label)
        ax.plot(X, np.where(y > 0, 26, -26), "|", color=ORANGE)
        ax.set_title(name, fontsize=10)
        ax.set_ylim(-44, 30)  # room for the legend
        ax.legend(fontsize=7, loc="lower left")
    return figure


def representations() -> Figure:
    """One panel a representation, on data that it is for."""
    rng = np.random.default_rng(7)
    few, many = np.sort(rng.uniform(0, 10, 40)), np.sort(rng.uniform(0, 10, 600))
    regular = np.linspace(0, 10, 201)
    regular = regular[(regular < 4) | (regular > 6)]
    slow, fast = np.sin, lambda X: 0.5 * np.sin(11 * X)
    noise = lgp.Gaussian(0.04)
    cases = {
        "Dense(): few rows": (few, slow(few), noise, lgp.RBF(1.5), lgp.ExactGP()),
        "Inducing(12): many rows, a smooth function": (
            many, slow(many), noise, lgp.RBF(1.5), lgp.CollapsedVI(lgp.Inducing(12)),
        ),
        "Neighbours(20): many rows, short distances": (
            many, fast(many), noise, lgp.RBF(0.2), lgp.ExactGP(lgp.Neighbours(20)),
        ),
        "Neighbours(20, inducing=12): both at once": (
            many, slow(many) + fast(many), noise, lgp.RBF(1.5) + lgp.RBF(0.2, variance=0.3),
            lgp.ExactGP(lgp.Neighbours(20, inducing=12)),
        ),
        "MatrixFree(): a line or a grid": (
            regular, slow(regular), noise, lgp.RBF(1.0), lgp.ExactGP(lgp.MatrixFree()),
        ),
        "LatentNeighbours(20): counts": (
            many, 1 + slow(many) + fast(many), lgp.Poisson(), lgp.RBF(0.25),
            lgp.Laplace(lgp.neighbours.LatentNeighbours(20)),
        ),
    }  # fmt: skip
    figure = Figure(figsize=(12, 6), layout="constrained")
    for ax, (title, (X, f, likelihood, kernel, method)) in zip(
        figure.subplots(2, 3).ravel(), cases.items(), strict=True
    ):
        counts = isinstance(likelihood, lgp.Poisson)
        y = rng.poisson(np.exp(f)).astype(float) if counts else f + 0.2 * rng.normal(size=len(X))
        model = lgp.LatentGP(kernel, likelihood)
        fit = lgp.fit(
            model, lgp.Data(X, y), key=jax.random.key(0), method=method, learn_hyperparameters=False
        )
        banded(ax, title, X, y, fit.posterior)
        if isinstance(method, lgp.CollapsedVI):
            points = np.asarray(fit.posterior.latent.centres)[:, 0]
            ax.plot(
                points, np.full(len(points), ax.get_ylim()[0]), "|", color=ORANGE, markersize=14
            )
    return figure


def time_series() -> Figure:
    """A series with a gap and a forecast, and counts with theirs, both in state space."""
    rng = np.random.default_rng(0)
    month = np.arange(144.0)
    sales = 200 + 0.8 * month + 25 * np.sin(2 * np.pi * month / 12) + rng.normal(0, 5, 144)
    counts = rng.poisson(np.exp(1.2 + np.sin(month / 9))).astype(float)
    seen = (month < 120) & ((month < 60) | (month >= 80))
    season = lgp.Periodic(period=12.0, variance=500.0)
    trend = lgp.Matern52(lengthscale=60.0, variance=2000.0) + lgp.Linear(variance=1.0)
    cases = {
        "Trend and season, twenty months missing, two years ahead": (
            trend + season, lgp.Gaussian(25.0), lgp.ConstantMean(200.0), sales,
            lgp.ExactGP(lgp.Markov(harmonics=4)), ["kernel.parts[2].period"],
        ),
        "Counts": (
            lgp.Matern52(lengthscale=15.0), lgp.Poisson(), lgp.ConstantMean(1.0), counts,
            lgp.VariationalInference(lgp.Markov()), [],
        ),
    }  # fmt: skip
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    for ax, (title, (kernel, likelihood, mean, y, method, frozen)) in zip(
        figure.subplots(1, 2), cases.items(), strict=True
    ):
        data = lgp.Data(month[seen], y[seen])
        model = lgp.LatentGP(kernel, likelihood, mean=mean)
        fit = lgp.fit(model, data, key=jax.random.key(0), method=method, frozen=frozen)
        predictive = fit.posterior.predict(month)
        lower, upper = predictive.interval(0.9)
        ax.fill_between(month, lower, upper, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(month, predictive.mean, color=BLUE)
        ax.plot(month[seen], y[seen], "o", color="black", markersize=2.5)
        ax.plot(month[~seen], y[~seen], "o", color=ORANGE, markersize=2.5)
        ax.set_title(title, fontsize=10)
    return figure


EAST_NORTH = "east [km]", "north [km]"


@cache
def soil() -> tuple[np.ndarray, np.ndarray, lgp.Fit]:
    """The samples of the guide to maps, and their fit."""
    generator = np.random.default_rng(3)
    places = generator.uniform([0, 0], [100, 60], (300, 2))
    covariance = np.asarray(lgp.Matern32(lengthscale=12.0).gram(places, places))
    values = generator.multivariate_normal(np.full(300, 5.0), covariance + 0.1 * np.eye(300))
    kernel = lgp.Matern32(lengthscale=10.0)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.1), lgp.ConstantMean(5.0))
    return places, values, lgp.fit(model, lgp.Data(places, values), key=jax.random.key(0))


def field_variogram() -> Figure:
    """Variogram of samples with that of the model, and residuals on a map."""
    places, values, fit = soil()
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = lgp.fields.variogram(places, values - values.mean())
    noise = float(fit.model.likelihood.noise_variance)
    distance = np.linspace(0, found.edges[-1], 100)
    curve = lgp.fields.model_variogram(fit.model.kernel, distance, noise_variance=noise)
    lgp.plots.variogram(left, found, curve, x_label="distance [km]")
    others = fit.leave_one_out()
    errors = (values - others.mean) / others.std
    lgp.plots.residual_map(right, places, errors, labels=EAST_NORTH)
    return figure


def field_maps() -> Figure:
    """Posterior mean of a field and its standard deviation."""
    places, _, fit = soil()
    return lgp.plots.field_maps(fit.posterior, places, labels=EAST_NORTH, name="soil")


def field_draws() -> Figure:
    """Joint draws of a field."""
    places, _, fit = soil()
    return lgp.plots.field_draws(
        fit.posterior, places, key=jax.random.key(0), number=4, labels=EAST_NORTH
    )


def caterpillar() -> Figure:
    """Intercepts and slopes of clinics in order."""
    generator = np.random.default_rng(1)
    clinic, dose = np.repeat(np.arange(18), 12), generator.normal(size=216)
    level, slope = generator.multivariate_normal([0, 0], [[1.0, 0.3], [0.3, 0.25]], 18).T
    table = pd.DataFrame({"dose": dose, "clinic": [f"clinic {name:02d}" for name in clinic + 1]})
    table["y"] = 2 + level[clinic] + (0.5 + slope[clinic]) * dose + generator.normal(size=216)
    model = lgp.TableModel.fit(table, formula="y ~ dose + (1 + dose | clinic)", random_state=0)
    return lgp.plots.caterpillar(model.group_effects("clinic"), group="clinic", width=9)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    print(forecast(FOLDER, print).picture)
    fields = field_variogram, field_maps, field_draws
    for make in (likelihoods, methods, representations, time_series, *fields, caterpillar):
        name = make.__name__.replace("_", "-")
        print(lgp.plots.save_figure(make(), FOLDER / f"{name}.png", dots_per_inch=80))
