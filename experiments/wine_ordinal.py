"""Grades of white wine: ordered classes against regression on their numbers.

A claim of the ordinal literature (Chu & Ghahramani 2005, "Gaussian processes for ordinal
regression"): a likelihood of ordered classes beats regression on their numbers. The wine data are
not theirs, so nothing is published to compare with.

Chosen here: 3,961 wines (rows that repeat another are left out), 11 inputs, grades 3 to 8 (the five
wines of grade 9 count as 8); three random splits, 2,000 to train on; 200 inducing points; RBF
kernel with a length-scale for each input; at most 60 evaluations of the bound. Regression gives a
grade the probability of its unit interval (the lowest and the highest grade those of all below and
above), so that both state probabilities of grades. Absolute errors are of the median grade,
accuracies of the most probable.
"""

import numpy as np
from scipy.stats import norm

import latentgp as lgp
from common import (
    COLORS,
    STYLES,
    Report,
    class_scores,
    figure,
    load,
    log_losses,
    paired,
    parser,
    random_split,
    tidy,
)

ORDINAL, REGRESSION = "ordinal", "regression"


def probabilities(X, y, inputs, grades, settings):
    """Of each model: probabilities of the grades at new inputs, shape (N, K)."""
    ordinal = lgp.GPOrdinalClassifier(**settings).fit(X, y)
    yield ORDINAL, ordinal.predict_proba(inputs)
    law = lgp.GPRegressor(**settings).fit(X, y).posterior_.predict(inputs)
    between = (grades[:-1] + 0.5 - law.mean[:, None]) / np.sqrt(law.variance)[:, None]
    below = np.pad(norm.cdf(between), [(0, 0), (1, 1)], constant_values=((0, 0), (0, 1)))
    yield REGRESSION, np.diff(below, axis=1)


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("wine_ordinal", arguments)
    table = np.unique(np.column_stack(load(arguments.data_dir, "wine_white")), axis=0)
    X, y = table[:, :-1], np.minimum(table[:, -1], 8)
    grades = np.unique(y)
    quick = arguments.quick
    settings = {"n_inducing": 50 if quick else 200, "max_evaluations": 20 if quick else 60}
    held_out, given = [], {}
    for seed in range(1 if quick else 3):
        train, test = random_split(len(y), 1000 if quick else 2000, seed)
        held_out.append(np.searchsorted(grades, y[test]))
        for name, p in probabilities(
            X[train], y[train], X[test], grades, settings | {"random_state": seed}
        ):
            given.setdefault(name, []).append(p)
        print(f"  split {seed} done", flush=True)
    labels = np.concatenate(held_out)
    given = {name: np.concatenate(parts) for name, parts in given.items()}
    losses = {name: log_losses(labels, p) for name, p in given.items()}
    rows = []
    for name, p in given.items():
        median = np.argmax(np.cumsum(p, axis=1) >= 0.5, axis=1)
        scores = class_scores(labels, p)
        rows.append([
            name, scores["log loss"], *paired(losses[name] - losses[REGRESSION]),
            1 - scores["error"], np.abs(median - labels).mean(), scores["ECE"],
        ])  # fmt: skip
    report.table(
        f"white wine, {len(train)} rows to train on, {len(test)} held out",
        [
            "", "NLPD of the grade", f"minus {REGRESSION}", "std. error", "accuracy",
            "absolute error", "ECE",
        ],
        rows,
    )  # fmt: skip
    report.note("Published: nothing on these data; the claim is in this script's docstring.")
    report.save(picture(grades, labels, given, losses))


def picture(grades, labels, given, losses):
    drawn = figure(10, 3.9)
    by_grade, shares = drawn.subplots(1, 2)
    for (name, p), color, style in zip(given.items(), COLORS, STYLES, strict=False):
        loss = [losses[name][labels == k].mean() for k in range(len(grades))]
        by_grade.plot(grades, loss, "o", color=color, linestyle=style, label=name)
        shares.plot(grades, p.mean(axis=0), "o", color=color, linestyle=style, label=name)
    observed = np.bincount(labels, minlength=len(grades)) / len(labels)
    shares.plot(grades, observed, color="#262626", linewidth=1, label="observed")
    shares.set_yscale("log")
    tidy(by_grade, "Held-out log loss by grade", "grade", "nats a row", legend=True)
    tidy(shares, "Share of each grade", "grade", "mean probability", legend=True)
    return drawn


if __name__ == "__main__":
    main()
