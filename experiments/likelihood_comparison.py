"""Likelihoods of several classes on classes that overlap, and how honest their probabilities are.

Reproduces Galy-Fajou et al. (2020), 5.1, figures 3 and 4: seven toys of 500 points in three
classes, Gaussian mixtures of variance 0 (apart) to 1 (overlapping); unaugmented variational
inference. The claims: error and log loss are alike for softmax and logistic-softmax; both are
calibrated where the classes overlap (numbers in figures only). Robust-max, which was badly
calibrated there, and Heaviside are not in the library.

Chosen here: centres at the corners of an equilateral triangle of circumradius 1, variances from
0.01 to 1 (at 0 all points of a class coincide), 500 points to train on as there and 2,000 to test
on; RBF kernel, hyper-parameters learned. The augmented fits and the other two variants stand beside
the unaugmented ones, and so does the rule that knows the mixture, which no method can beat.
"""

import numpy as np
from scipy.special import softmax

import latentgp as lgp
from common import COLORS, STYLES, Report, class_scores, figure, parser, tidy
from latentgp import metrics

BEST = "true mixture"
SHOWN = 0.5  # the variance of the source's reliability diagrams
FITS = {
    "softmax, variational": ("softmax", "variational"),
    "logistic-softmax, variational": ("logistic-softmax", "variational"),
    "logistic-softmax, augmented": ("logistic-softmax", "augmented"),
    "bijective, augmented": ("bijective-logistic-softmax", "augmented"),
    "scaled, augmented": ("scaled-logistic-softmax", "augmented"),
}
ANGLES = 2 * np.pi * np.arange(3) / 3
CENTRES = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


def toy(variance, rows, seed):
    """Inputs, classes, and the true probabilities of the classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    X = CENTRES[y] + np.sqrt(variance) * rng.normal(size=(rows, 2))
    squares = np.sum((X[:, None] - CENTRES) ** 2, axis=2)
    return X, y, softmax(-squares / (2 * variance), axis=1)


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("likelihood_comparison", arguments)
    variances = [0.1, SHOWN] if arguments.quick else [0.01, 0.05, 0.1, 0.2, 0.35, SHOWN, 1.0]
    rows, shown = {}, {}
    for variance in variances:
        X, y, _ = toy(variance, 150 if arguments.quick else 500, 0)
        X_test, y_test, p = toy(variance, 2000, 1)
        given = {BEST: p}
        for name, (likelihood, method) in FITS.items():
            classifier = lgp.GPClassifier(likelihood=likelihood, method=method, random_state=0)
            given[name] = classifier.fit(X, y).predict_proba(X_test)
        for name, p in given.items():
            rows.setdefault(name, []).append([variance, *class_scores(y_test, p).values()])
        if variance == SHOWN:
            shown = {name: metrics.reliability_curve(y_test, p, 10) for name, p in given.items()}
        print(f"  variance {variance} done", flush=True)
    for place, score in enumerate(("error", "log loss", "ECE"), start=1):
        report.table(
            f"{score} by variance of the mixture",
            ["", *(f"{variance:g}" for variance in variances)],
            [[name, *(row[place] for row in values)] for name, values in rows.items()],
        )
    report.note("Published: figures only; claims as in this script's docstring.")
    report.save(picture(rows, shown))


def picture(rows, shown):
    drawn = figure(13, 3.8)
    axes = drawn.subplots(1, 4)
    for number, (name, values) in enumerate(rows.items()):
        style = {
            "color": COLORS[-1 - number if name == BEST else number],
            "linestyle": STYLES[number],
        }
        values = np.array(values)
        for ax, place in zip(axes, (1, 2, 3), strict=False):
            ax.plot(values[:, 0], values[:, place], "o", markersize=3, label=name, **style)
        curve = shown[name]
        axes[3].plot(curve.probability, curve.frequency, "o", markersize=3, **style)
    titles = ("Error", "Log loss [nats a row]", "Expected calibration error")
    for ax, title in zip(axes, titles, strict=False):
        tidy(ax, title, "variance of the mixture", title.lower())
    axes[3].plot([0, 1], [0, 1], color="#262626", linewidth=1)
    tidy(
        axes[3], f"Reliability at variance {SHOWN}", "stated probability of the class chosen",
        "share of rows that are right",
    )  # fmt: skip
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6,
                 fontsize=8, frameon=False)  # fmt: skip
    return drawn


if __name__ == "__main__":
    main()
