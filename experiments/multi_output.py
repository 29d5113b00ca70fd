"""Several outputs that share latent functions, some of them missing: Jura and exchange rates.

Jura (Goovaerts 1997): cadmium at 100 sites, given nickel and zinc there and all three metals at
259 others. Published mean absolute errors: independent Gaussian process 0.5739, co-kriging 0.51,
intrinsic coregionalisation 0.4608, semiparametric latent factors 0.4578, convolved processes
0.4552, regression network 0.4525 (Wilson, Knowles & Ghahramani 2012, table 1).

Exchange rates of 2007 (Alvarez, Luengo & Lawrence 2010): the Canadian dollar on days 50 to 100, the
yen on days 100 to 150, the Australian dollar on days 150 to 200, given the other ten series, with
gaps of their own, and these three on all other days. Published standardised mean squared errors,
mean of the three: independent 0.5996, convolved 0.2427, collaborative 0.2125 (Nguyen & Bonilla
2014, table 1).

Chosen here: every output standardised, its unit as in the file; metals on the scale of the
logarithm too, as concentrations are skewed, predictions then the median; RBF kernels for Jura,
Matern-1/2 for rates, one for each latent function; squared errors relative to those of the training
mean.
"""

import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, parser, tidy

METALS = ("Cd", "Ni", "Zn")
HIDDEN = {"CAD/USD": (49, 100), "JPY/USD": (99, 150), "AUD/USD": (149, 200)}
NETWORK = "regression network"


def outputs_of(data_dir, name, wanted):
    """Inputs, the wanted columns of the targets (all: None), and the file."""
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        names = file["target_names"].tolist()
        columns = [names.index(one) for one in wanted or names]
        mask = file["train_mask"] if "train_mask" in file.files else None
        return file["X"].astype(float), file["y"].astype(float)[:, columns], names, mask


def contestants(y, kernel, mixed, networks, evaluations):
    """Estimators by name: plain coregionalisation, and networks."""
    makes = {f"coregionalisation, {n}": (lgp.LinearCoregionalisation, n) for n in mixed}
    makes |= {f"{NETWORK}, {n}": (lgp.GPRegressionNetwork, n) for n in networks}
    return {
        name: lgp.GPRegressor(
            kernel,
            likelihood=cls.for_targets(y, latents),
            random_state=0,
            max_evaluations=evaluations,
        )
        for name, (cls, latents) in makes.items()
    }


def jura(arguments, report):
    X, y, _, train = outputs_of(arguments.data_dir, "jura", METALS)
    evaluations = 20 if arguments.quick else 200
    rows, curves = [], {}
    for scale, there, back in (("as it is", np.asarray, np.asarray), ("log", np.log, np.exp)):
        seen = there(y.copy())
        seen[~train, 0] = np.nan
        alone = lgp.GPRegressor(random_state=0).fit(X[train], seen[train, 0])
        fits = {"independent": (alone, alone.posterior_.predict(X[~train]), ())}
        sizes = ([2], []) if arguments.quick else ([1, 2, 3], [1, 2])
        for name, one in contestants(seen, None, *sizes, evaluations).items():
            one.fit(X, seen)
            fits[name] = one, one.posterior_.predict(X[~train]), (..., 0)
        truth = y[~train, 0]
        density = np.log(truth) if scale == "log" else np.zeros_like(truth)
        for name, (one, predictive, first) in fits.items():
            mean = np.asarray(predictive.mean)[first]
            lower, upper = (np.asarray(end)[first] for end in predictive.interval(0.9))
            target = there(truth)
            if first:
                target = np.column_stack([target, *np.full((2, len(truth)), np.nan)])
            log_density = predictive.log_prob(target) - density
            error = np.abs(back(mean) - truth)
            covered = np.mean((there(truth) >= lower) & (there(truth) <= upper))
            seconds = one.diagnostics_.seconds
            rows.append([f"{name} ({scale})", error.mean(), -log_density.mean(), covered, seconds])
            curves[f"{name} ({scale})"] = error.mean()
            print(f"  {rows[-1]}", flush=True)
    heads = ["model", "mean absolute error", "NLPD", "coverage of 90 %", "s"]
    report.table("cadmium at 100 sites, ppm", heads, rows)
    return curves


def rates(arguments, report):
    X, y, names, _ = outputs_of(arguments.data_dir, "fx2007", None)
    seen = y.copy()
    hidden = {names.index(name): slice(*days) for name, days in HIDDEN.items()}
    for column, days in hidden.items():
        seen[days, column] = np.nan
    kernel = lgp.Matern12(lengthscale=100.0)
    evaluations = 20 if arguments.quick else 200
    predictions, seconds = {}, {}
    independent = np.full((2, *y.shape), np.nan)
    total = 0.0
    for column in hidden:
        there = ~np.isnan(seen[:, column])
        start = lgp.Matern12(lengthscale=100.0, variance=np.nanvar(seen[:, column]))
        alone = lgp.GPRegressor(start, random_state=0).fit(X[there], seen[there, column])
        independent[:, :, column] = alone.predict(X, return_std=True)
        total += alone.diagnostics_.seconds
    predictions["independent"], seconds["independent"] = independent, total
    sizes = ([3], []) if arguments.quick else ([1, 2, 3, 4, 6, 8], [1])
    for name, one in contestants(seen, kernel, *sizes, evaluations).items():
        one.fit(X, seen)
        predictions[name] = np.stack(one.predict(X, return_std=True))
        seconds[name] = one.diagnostics_.seconds
        print(f"  {name}: {one.diagnostics_.verdict}", flush=True)
    rows = []
    for name, (mean, deviation) in predictions.items():
        errors, densities = [], []
        for column, days in hidden.items():
            away = mean[days, column] - y[days, column]
            baseline = np.nanmean(seen[:, column]) - y[days, column]
            errors.append(np.mean(away**2) / np.mean(baseline**2))
            z = away / deviation[days, column]
            # In units of the series' own deviation, so that currencies can be averaged.
            unit = np.nanstd(seen[:, column])
            scale = np.log(2 * np.pi * (deviation[days, column] / unit) ** 2)
            densities.append(0.5 * np.mean(scale + z**2))
        rows.append([name, np.mean(errors), *errors, np.mean(densities), seconds[name]])
    heads = ["model", "SMSE", *HIDDEN, "NLPD (standardised)", "s"]
    report.table("exchange rates on hidden days", heads, rows)
    best = min((row for row in rows if row[0] != "independent"), key=lambda row: row[1])[0]
    return X, y, hidden, {name: predictions[name] for name in ("independent", best)}


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("multi_output", arguments)
    errors = jura(arguments, report)
    X, y, hidden, predictions = rates(arguments, report)
    picture = figure(15, 4)
    bars, *panels = picture.subplots(1, 4)
    places = np.arange(len(errors))
    bars.barh(places, list(errors.values()), color=COLORS[0])
    bars.axvline(0.5739, color=COLORS[6], linestyle="--", label="published, independent")
    bars.axvline(0.4525, color=COLORS[1], linestyle=":", label="published, network")
    bars.set_yticks(places, list(errors))
    bars.invert_yaxis()
    tidy(bars, "Cadmium at 100 sites", "mean absolute error, ppm", "", legend=True)
    for panel, (column, days), name in zip(panels, hidden.items(), HIDDEN, strict=True):
        panel.axvspan(days.start, days.stop - 1, color="#EEEEEE")
        panel.plot(X, y[:, column], color="black", linewidth=1, label="rate")
        for color, (model, (mean, deviation)) in zip(COLORS, predictions.items(), strict=False):
            panel.plot(X, mean[:, column], color=color, linewidth=1, label=model)
            ends = mean[:, column] + np.outer([-1.96, 1.96], deviation[:, column])
            panel.fill_between(X[:, 0], *ends, color=color, alpha=0.15, linewidth=0)
        tidy(
            panel,
            f"{name}, hidden where grey",
            "trading day of 2007",
            "",
            legend=panel is panels[0],
        )
    report.save(picture)


if __name__ == "__main__":
    main()
