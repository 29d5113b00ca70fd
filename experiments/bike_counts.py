"""Bicycles rented in an hour: a Poisson law against a negative binomial one.

No source: what is shown is what a Poisson law does where counts vary by more than it allows.
17,379 hours of two years, 13 inputs (calendar, weather), counts from 1 to 977.

Chosen here: two random splits, so that hours are predicted from hours before and after them,
1,500 hours to train on and 2,000 held out; 200 inducing points; RBF kernel with a length-scale for
each input; at most 40 evaluations of the bound. Medians and central 90 % intervals are of 500
predictive draws a row; absolute errors are of the median.
"""

import jax
import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, load, paired, parser, random_split, tidy

POISSON, NEGATIVE_BINOMIAL = "poisson", "negative-binomial"


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("bike_counts", arguments)
    X, y = load(arguments.data_dir, "bike_counts")
    quick = arguments.quick
    settings = {"n_inducing": 50 if quick else 200, "max_evaluations": 20 if quick else 40}
    laws, held_out = {POISSON: [], NEGATIVE_BINOMIAL: []}, []
    for seed in range(1 if quick else 2):
        train, rest = random_split(len(y), 500 if quick else 1500, seed)
        test = np.random.default_rng(seed).choice(rest, 2000, replace=False)
        held_out.append(y[test])
        for likelihood, parts in laws.items():
            regressor = lgp.GPCountRegressor(
                likelihood=likelihood, random_state=seed, **settings
            ).fit(X[train], y[train])
            law = regressor.posterior_.predict(X[test])
            draws = law.sample(key=jax.random.key(seed), number=500)
            quantiles = np.quantile(draws, [0.05, 0.5, 0.95], axis=0).T
            parts.append((law.log_prob(y[test]), quantiles, law.mean))
            if likelihood == NEGATIVE_BINOMIAL:
                dispersion = float(regressor.model_.likelihood.dispersion)
                report.note(f"split {seed}: dispersion {dispersion:.3g}")
    counts = np.concatenate(held_out)
    shown = {name: [np.concatenate(part) for part in zip(*parts, strict=True)]
             for name, parts in laws.items()}  # fmt: skip
    rows = []
    for name, (density, quantiles, mean) in shown.items():
        low, median, high = quantiles.T
        rows.append([
            name, -density.mean(), *paired(shown[POISSON][0] - density),
            np.abs(median - counts).mean(), np.sqrt(np.mean((mean - counts) ** 2)),
            np.mean((low <= counts) & (counts <= high)), (high - low).mean(),
        ])  # fmt: skip
    report.table(
        f"bikes, {len(train)} hours to train on, 2000 held out, {len(held_out)} random split(s)",
        [
            "", "NLPD", f"minus {POISSON}", "std. error", "absolute error", "RMSE",
            "coverage of 90 %", "width of 90 %",
        ],
        rows,
    )  # fmt: skip
    report.note("Published: nothing comparable.")
    report.save(picture(counts, shown))


def picture(counts, shown):
    drawn = figure(10, 3.9)
    axes = drawn.subplots(1, 2, sharey=True)
    order = np.argsort(counts)[::20]
    for ax, color, (name, (_, quantiles, _)) in zip(axes, COLORS, shown.items(), strict=False):
        low, median, high = quantiles[order].T
        ax.errorbar(counts[order], median, np.stack([median - low, high - median]), fmt=".",
                    color=color, markersize=4, elinewidth=0.5, alpha=0.7)  # fmt: skip
        ax.plot([1, 977], [1, 977], color="#262626", linewidth=1)
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=1)
        tidy(ax, f"{name}: median and 90 % interval", "held-out count", "predicted count")
    return drawn


if __name__ == "__main__":
    main()
