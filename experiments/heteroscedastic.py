"""Noise that depends on the input: a toy with known signal and noise, and the motorcycle data.

Reproduces Galy-Fajou (2022), 7.2 and figure 7.2: y ~ N(f(x), 1 / (lambda sigmoid(g(x)))). The
claims: variational inference and, more so, Gibbs sampling recover f and g; Gibbs needs no warm-up;
the variational variance of f is nearly negligible, absorbed by the noise. Its numbers are in the
figure only, and it prints neither its toy nor its kernels.

Chosen here: toys of 200 inputs in [0, 10], f and g drawn from RBF kernels of length-scale 1 and
variances 1 and 4, lambda = 10, all known to the methods; 4 chains of 1,000 draws, no warm-up.
Coverage is the share of inputs where the truth lies in the central 95 % interval.

The motorcycle data (133 rows) have no truth: held-out density in ten random folds, everything
learned, against constant noise. Gibbs there keeps the hyper-parameters that the augmented fit
learned.
"""

import numpy as np
from scipy.special import expit

import latentgp as lgp
from common import COLORS, Report, figure, fit_fixed, folds, load, paired, parser, tidy
from latentgp.surfaces.evaluation.plots import prediction_bands

PRECISION = 10.0
MODEL = lgp.LatentGP(
    lgp.PerLatent(lgp.RBF(), lgp.RBF(variance=4.0)), lgp.HeteroscedasticGaussian(PRECISION)
)
CONSTANT = "constant Gaussian noise"
LEARNED = {
    CONSTANT: ("gaussian", "exact"),
    "heteroscedastic, variational": ("heteroscedastic", "variational"),
    "heteroscedastic, augmented": ("heteroscedastic", "augmented"),
    "heteroscedastic Student-t, augmented": ("heteroscedastic-student-t", "augmented"),
}
GIBBS = "heteroscedastic, Gibbs"
SHOWN = CONSTANT, "heteroscedastic, augmented"


def toy(seed):
    """Inputs, targets, and f and g behind them, shape (N, 2)."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, 200))
    root = np.linalg.cholesky(np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-8 * np.eye(len(x)))
    f = root @ rng.normal(size=(len(x), 2)) * [1.0, 2.0]
    y = f[:, 0] + rng.normal(size=len(x)) / np.sqrt(PRECISION * expit(f[:, 1]))
    return x, y, f


def on_toys(report, number, draws):
    """The table of the toys, and what the picture shows of the first."""
    methods = {
        "variational": lgp.VariationalInference(),
        "augmented": lgp.AugmentedVI(),
        "Gibbs": lgp.GibbsSampling(draws=draws, warmup=0),
    }
    scores, shown = {name: [] for name in methods}, {}
    for seed in range(number):
        x, y, truth = toy(seed)
        for name, method in methods.items():
            posterior = fit_fixed(MODEL, x, y, method).posterior
            mean, variance = posterior.predict_f(x)
            deviation = np.sqrt(variance)
            inside = np.abs(truth - mean) < 1.96 * deviation
            scores[name].append([
                *np.sqrt(np.mean((truth - mean) ** 2, axis=0)), *inside.mean(axis=0),
                *deviation.mean(axis=0),
            ])  # fmt: skip
            if seed == 0:
                shown[name] = x, truth, mean, deviation
    report.table(
        f"{number} toys of 200 rows, lambda = {PRECISION:g}",
        [
            "", "RMSE of f", "RMSE of g", "coverage of f", "coverage of g", "std. dev. of f",
            "std. dev. of g",
        ],
        [[name, *np.mean(values, axis=0)] for name, values in scores.items()],
    )  # fmt: skip
    return shown


def on_motorcycle(report, data_dir, number, draws):
    """The table of the motorcycle data, and predictions over a grid by the first fold."""
    X, y = load(data_dir, "motorcycle")
    grid = np.linspace(X.min(), X.max(), 300)[:, None]
    densities, inside, shown = {}, {}, {}
    for train, test in list(folds(len(y), 10))[:number]:
        posteriors = {}
        for name, (likelihood, method) in LEARNED.items():
            regressor = lgp.GPRegressor(likelihood=likelihood, method=method, random_state=0)
            posteriors[name] = regressor.fit(X[train], y[train]).posterior_
        model = posteriors["heteroscedastic, augmented"].model
        gibbs = lgp.GibbsSampling(draws=draws, warmup=draws // 4)
        posteriors[GIBBS] = fit_fixed(model, X[train], y[train], gibbs).posterior
        for name, posterior in posteriors.items():
            if name in SHOWN and name not in shown:
                predictive = posterior.predict(grid)
                shown[name] = predictive.mean, *predictive.interval(0.95)
            predictive = posterior.predict(X[test])
            low, high = predictive.interval(0.95)
            densities.setdefault(name, []).append(-predictive.log_prob(y[test]))
            inside.setdefault(name, []).append((low <= y[test]) & (y[test] <= high))
    values = {name: np.concatenate(parts) for name, parts in densities.items()}
    report.table(
        f"motorcycle: {len(values[CONSTANT])} held-out rows, accelerations in g",
        ["", "NLPD", f"minus {CONSTANT}", "std. error", "coverage of 95 %"],
        [
            [
                name, value.mean(), *paired(value - values[CONSTANT]),
                np.concatenate(inside[name]).mean(),
            ]
            for name, value in values.items()
        ],
    )  # fmt: skip
    return X[:, 0], y, grid[:, 0], shown


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("heteroscedastic", arguments)
    quick = arguments.quick
    toys = on_toys(report, 1 if quick else 5, 100 if quick else 1000)
    motorcycle = on_motorcycle(
        report, arguments.data_dir, 1 if quick else 10, 100 if quick else 500
    )
    report.note(
        "Published: claims only, as in this script's docstring; the motorcycle data are not the "
        "source's."
    )
    report.save(picture(toys, *motorcycle))


def picture(toys, x_seen, y_seen, grid, shown):
    drawn = figure(10, 6.4)
    axes = drawn.subplots(2, 2)
    for ax, latent, title in zip(axes[0], (0, 1), ("Toy: signal f", "Toy: noise g"), strict=True):
        for color, (name, (x, truth, mean, deviation)) in zip(
            COLORS[1:], toys.items(), strict=False
        ):
            if name == "variational":
                ax.plot(x, truth[:, latent], color="#262626", linewidth=1.2, label="truth")
                continue
            m, d = mean[:, latent], 1.96 * deviation[:, latent]
            ax.fill_between(x, m - d, m + d, color=color, alpha=0.18, linewidth=0)
            ax.plot(x, m, color=color, linewidth=1.4, label=f"{name}, 95 %")
        tidy(ax, title, "x", "fg"[latent], legend=latent == 0)
    for ax, name in zip(axes[1], SHOWN, strict=True):
        prediction_bands(
            ax, grid, *shown[name], observed_x=x_seen, observed_y=y_seen,
            x_label="time [ms]", y_label="acceleration [g]",
        )  # fmt: skip
        tidy(ax, f"Motorcycle: {name}", "time [ms]", "acceleration [g]")
        ax.set_ylim(-210, 150)
    axes[1, 1].get_legend().remove()
    return drawn


if __name__ == "__main__":
    main()
