"""Time series in state space: carbon dioxide, disasters, passengers, currencies, binary, a crash.

Every posterior is by `Markov`, exact given the sites in time linear in the rows. No source is
reproduced; each part checks what such a model is for, on data that others use. `--parts` picks:

* `co2`: monthly carbon dioxide (Rasmussen & Williams 2006, 5.4.3; trend and rest are Matérn here):
  learned until a cut, forecast for ten years, months without measurements left out.
* `coal`: disasters as a Cox process in 811 bins; the posterior by `Markov` and by `Dense` at the
  same hyper-parameters.
* `passengers`: simulated monthly counts like those of airline passengers, a trend times a season,
  more variable than Poisson counts: Poisson and negative binomial, two years ahead.
* `currencies`: exchange rates of 2007 (Álvarez & Lawrence 2010 have the data), whose weeks are held
  out in turn, each currency a series under the same hyper-parameters.
* `binary`: a logistic series by augmentation against Gibbs sampling, both in state space.
* `crash`: the motorcycle data with noise that varies in time, ten folds (the model is that of
  Goldberg et al. 1998).

Held-out densities are in nats a row, coverage is that of central 90 % intervals.
"""

import time

import jax
import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, fit_fixed, folds, load, parser, tidy

KEY = jax.random.key(0)
MARKOV = lgp.Markov()
SEASON = "kernel.parts[2].parts[0].period"
EARLY_GAPS = ["1958-06", "1958-10", "1964-02", "1964-03", "1964-04"]  # of NOAA's record
FROZEN_WHITE = ["kernel.parts[1].kernel.variance"]


def learned(model, X, y, method, **settings):
    """A fit with everything learned, and its seconds, compilation counted."""
    begun = time.perf_counter()
    fit = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, **settings)
    return fit, time.perf_counter() - begun


def forecast_scores(posterior, X, y):
    """Held-out negative log density, coverage of 90 % intervals, and RMSE."""
    law = posterior.predict(X)
    low, high = law.interval(0.9)
    error = np.sqrt(np.mean((np.asarray(law.mean) - y) ** 2))
    density = -np.mean(law.log_prob(y))
    return float(density), float(np.mean((low <= y) & (y <= high))), float(error)


def co2(report, data_dir, ax, quick):
    with np.load(data_dir / "co2_monthly.npz", allow_pickle=False) as file:
        X, y, days = file["X"][:, 0], file["y"], file["days_in_mean"]
        date = file["date"]
    # Days are -1 before they were counted, and later where the month is a gap.
    known = ((days > 0) | (date < "1974-05")) & ~np.isin(date, EARLY_GAPS)
    rows = []
    for cut in (2004.0, 2016.5):
        train = known & (cut > X)
        later = known & (cut <= X) & (cut + 10 > X)
        centre = X[train].mean()
        trend = lgp.Matern52(lengthscale=50.0, variance=2000.0) + lgp.Linear(variance=2.0)
        season = lgp.Periodic(lengthscale=1.3, period=1.0, variance=5.0)
        rest = lgp.Matern32(lengthscale=1.0, variance=0.3)
        kernel = trend + season * lgp.Matern32(lengthscale=90.0) + rest
        model = lgp.LatentGP(kernel, lgp.Gaussian(0.05), mean=lgp.ConstantMean(y[train].mean()))
        method = lgp.ExactGP(lgp.Markov(harmonics=4))
        frozen = [SEASON, "kernel.parts[2].parts[1].variance"]
        fit, seconds = learned(model, X[train] - centre, y[train], method, frozen=frozen)
        scores = forecast_scores(fit.posterior, X[later] - centre, y[later])
        rows.append([f"until {cut:g}", int(train.sum()), int(later.sum()), *scores, seconds])
        if cut == 2016.5:
            grid = np.linspace(2010, 2026.5, 400)
            law = fit.posterior.predict(grid - centre)
            band(ax, grid, law, X[later | (train & (X > 2010))], y[later | (train & (X > 2010))])
            ax.axvline(cut, color=COLORS[6], linewidth=1)
            tidy(ax, "Carbon dioxide: forecast from 2016.5", "year", "ppm")
        if quick:
            break
    heads = ["", "rows", "held out", "NLPD", "coverage", "RMSE [ppm]", "seconds"]
    report.table("co2: forecasts of ten years", heads, rows)
    report.note(f"co2: {int((~known).sum())} of {len(date)} months have no measurement, left out.")


def band(ax, grid, law, X, y):
    low, high = law.interval(0.9)
    ax.fill_between(grid, low, high, color=COLORS[0], alpha=0.2, linewidth=0)
    ax.plot(grid, law.mean, color=COLORS[0], linewidth=1)
    ax.plot(X, y, "o", color="#262626", markersize=1.6)


def coal(report, data_dir, ax, quick):
    X, y = load(data_dir, "coal_mining")
    X = X[:, 0] / 365.25 + 1851.2
    model = lgp.LatentGP(lgp.Matern52(15.0), lgp.Poisson(), mean=lgp.ConstantMean())
    rows, shown = [], None
    for rule in (lgp.VariationalInference, lgp.ExpectationPropagation, lgp.Laplace):
        fit, _ = learned(model, X, y, rule(MARKOV))
        held = fit.model
        dense = None
        for name, representation in (("Dense", lgp.Dense()), ("Markov", MARKOV)):
            own, seconds = learned(held, X, y, rule(representation), learn_hyperparameters=False)
            f = own.posterior.predict_f(X)
            dense = dense or f
            difference = np.max(np.abs(f.mean - dense.mean))
            ratio = np.max(np.abs(np.sqrt(f.variance / dense.variance) - 1))
            evidence = float(own.posterior.log_evidence)
            length = float(held.kernel.lengthscale)
            rows.append([f"{rule.__name__}, {name}", evidence, length, difference, ratio, seconds])
        shown = shown or f
    heads = ["", "log evidence", "length-scale", "largest |difference|", "of std. dev.", "seconds"]
    report.table("coal: log intensity against Dense", heads, rows)
    deviation = np.sqrt(shown.variance)
    low, middle, high = (
        np.exp(shown.mean + k * deviation) * 365.25 / 50 for k in (-1.645, 0, 1.645)
    )
    ax.fill_between(X, low, high, color=COLORS[0], alpha=0.2, linewidth=0)
    ax.plot(X, middle, color=COLORS[0])
    tidy(ax, "Disasters a year", "year", "")


def passengers(report, data_dir, ax, quick):
    month = np.arange(168.0)
    rows, number = {}, 1 if quick else 5
    for seed in range(number):
        rng = np.random.default_rng(seed)
        season = 0.18 * np.sin(2 * np.pi * month / 12) + 0.08 * np.cos(4 * np.pi * month / 12)
        rate = np.exp(5.0 + 0.008 * month + season)
        y = rng.poisson(rate * rng.gamma(200.0, 1 / 200.0, len(month))).astype(float)
        train = month < 144
        kernel = (
            lgp.Matern32(lengthscale=60.0, variance=0.3)
            + lgp.Linear(variance=1e-4)
            + lgp.Periodic(lengthscale=1.5, period=12.0, variance=0.05)
        )
        for likelihood in (lgp.Poisson(), lgp.NegativeBinomial(100.0)):
            level = 5.0 if isinstance(likelihood, lgp.Poisson) else 5.0 - np.log(100.0)
            model = lgp.LatentGP(kernel, likelihood, mean=lgp.ConstantMean(level))
            frozen = ["kernel.parts[2].period"]
            method = lgp.VariationalInference(lgp.Markov(harmonics=4))
            fit, seconds = learned(model, month[train], y[train], method, frozen=frozen)
            scores = forecast_scores(fit.posterior, month[~train], y[~train])
            rows.setdefault(type(likelihood).__name__, []).append([*scores, seconds])
            if seed == 0 and isinstance(likelihood, lgp.NegativeBinomial):
                band(ax, month, fit.posterior.predict(month), month, y)
                tidy(ax, "Passengers (simulated), from month 144 on a forecast", "month", "count")
    heads = ["", "NLPD", "coverage", "RMSE", "seconds"]
    title = f"passengers: {number} simulated series, 24 months ahead"
    report.table(title, heads, [[name, *np.mean(part, axis=0)] for name, part in rows.items()])


def currencies(report, data_dir, ax, quick):
    X, y = load(data_dir, "fx2007")
    day, y = X[:, 0], np.log(y)
    y = (y - np.nanmean(y, axis=0)) / np.nanstd(y, axis=0)
    count = y.shape[1]
    times = np.stack([np.tile(day, count), np.repeat(np.arange(count), len(day))], 1).astype(float)
    value = y.T.ravel()
    known, week = np.isfinite(value), times[:, 0] // 5
    rows = []
    for name, kernel in (("Matérn 1/2", lgp.Matern12), ("Matérn 3/2", lgp.Matern32)):
        inside, density, seconds = [], [], 0.0
        for held in range(1 if quick else 5):
            # Every tenth week of a currency, another one in each.
            out = (week + 3 * times[:, 1]) % 10 == 2 * held
            train, test = known & ~out, known & out
            apart = kernel(lengthscale=100.0).on(0) * lgp.White().on(1)
            model = lgp.LatentGP(apart, lgp.Gaussian(0.01))
            fit, spent = learned(
                model, times[train], value[train], lgp.ExactGP(MARKOV), frozen=FROZEN_WHITE
            )
            law = fit.posterior.predict(times[test])
            low, high = law.interval(0.9)
            inside.append((low <= value[test]) & (value[test] <= high))
            density.append(-law.log_prob(value[test]))
            seconds += spent
            if held == 0 and kernel is lgp.Matern12:
                one = np.stack([np.linspace(0, 250, 500), np.full(500, 3.0)], 1)
                mine = times[:, 1] == 3
                band(ax, one[:, 0], fit.posterior.predict(one), day, value[mine])
                gone = mine & test
                ax.plot(times[gone, 0], value[gone], "o", color=COLORS[1], markersize=2.5)
                tidy(ax, "A currency, held-out weeks orange", "trading day", "log rate")
        rows.append([
            name, int(known.sum()), sum(map(len, inside)), float(np.mean(np.concatenate(density))),
            float(np.mean(np.concatenate(inside))), seconds,
        ])  # fmt: skip
    heads = ["", "rows", "held out", "NLPD", "coverage", "seconds"]
    report.table(f"currencies: {count} series of 2007, weeks held out", heads, rows)


def binary(report, data_dir, ax, quick):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 100, 1000))
    f = 2 * np.sin(X) + 1.5 * np.sin(0.3 * X)
    y = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-f))).astype(float)
    model = lgp.LatentGP(lgp.Matern32(2.0, variance=4.0), lgp.Bernoulli())
    methods = {
        "Gibbs": lgp.GibbsSampling(MARKOV, draws=200 if quick else 1000, warmup=100),
        "augmented": lgp.AugmentedVI(MARKOV),
        "variational": lgp.VariationalInference(MARKOV),
        "EP": lgp.ExpectationPropagation(MARKOV),
        "Laplace": lgp.Laplace(MARKOV),
    }
    rows, truth = [], None
    for name, method in methods.items():
        begun = time.perf_counter()
        posterior = fit_fixed(model, X, y, method).posterior
        seconds = time.perf_counter() - begun
        mean, variance = posterior.predict_f(X)
        probability = np.asarray(posterior.predict(X).mean)
        truth = truth or (mean, variance, probability)
        off = np.abs(mean - truth[0]).mean()
        ratio = np.sqrt(variance / truth[1]).mean()
        rows.append([name, off, ratio, np.abs(probability - truth[2]).mean(), seconds])
        if name in ("Gibbs", "augmented"):
            color, deviation = COLORS[len(rows) - 1], np.sqrt(variance)
            ax.fill_between(X, mean - deviation, mean + deviation, color=color, alpha=0.2)
            ax.plot(X, mean, color=color, label=name)
    ax.set_xlim(0, 30)
    tidy(ax, "Binary series: f by Gibbs and augmentation", "time", "f", legend=True)
    heads = ["", "mean |difference| of f", "ratio of std. dev.", "of probability", "seconds"]
    report.table("binary: 1,000 rows, marginals against Gibbs sampling", heads, rows)


def crash(report, data_dir, ax, quick):
    X, y = load(data_dir, "motorcycle")
    X, y = X[:, 0], y / y.std()
    rows = {}
    latents = lgp.PerLatent(lgp.Matern52(10.0), lgp.Matern32(15.0))
    models = {
        "constant noise": (lgp.LatentGP(lgp.Matern52(10.0), lgp.Gaussian(0.1)), lgp.ExactGP),
        "varying noise": (
            lgp.LatentGP(latents, lgp.HeteroscedasticGaussian(10.0)), lgp.VariationalInference,
        ),
        "varying noise, augmented": (
            lgp.LatentGP(latents, lgp.HeteroscedasticGaussian(10.0)), lgp.AugmentedVI,
        ),
    }  # fmt: skip
    for train, test in list(folds(len(y), 10))[: 1 if quick else 10]:
        for name, (model, rule) in models.items():
            settings = {"coupled": False} if rule is lgp.VariationalInference else {}
            fit, seconds = learned(model, X[train], y[train], rule(MARKOV, **settings))
            rows.setdefault(name, []).append(
                [*forecast_scores(fit.posterior, X[test], y[test]), seconds]
            )
            if name == "varying noise" and len(rows[name]) == 1:
                grid = np.linspace(X.min(), X.max(), 300)
                band(ax, grid, fit.posterior.predict(grid), X, y)
                tidy(ax, "Motorcycle: noise that varies", "time [ms]", "acceleration / std. dev.")
    heads = ["", "NLPD", "coverage", "RMSE", "seconds a fit"]
    title = "crash: held-out rows of ten folds, standardised"
    report.table(title, heads, [[name, *np.mean(part, axis=0)] for name, part in rows.items()])


PARTS = {part.__name__: part for part in (co2, coal, passengers, currencies, binary, crash)}


def main():
    own = parser(__doc__)
    own.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = own.parse_args()
    report = Report("time_series", arguments)
    drawn = figure(11, 3.2 * -(-len(arguments.parts) // 2))
    axes = drawn.subplots(-(-len(arguments.parts) // 2), 2, squeeze=False).ravel()
    for name, ax in zip(arguments.parts, axes, strict=False):
        PARTS[name](report, arguments.data_dir, ax, arguments.quick)
    report.save(drawn)


if __name__ == "__main__":
    main()
