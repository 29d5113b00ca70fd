"""How sure the logistic-softmax can be of one of ten classes, in theory and on digits.

Reproduces Galy-Fajou (2022), 7.4.3: with ten classes, f = 4 for the true one and -4 for the
others, the logistic-softmax gives 0.858, the softmax 0.996 (exactly 0.99699); scaling by learned
weights is the remedy proposed. The source has no experiment with it.

Chosen here: usps, the ten digits in 256 pixels; 1,000 rows to train on, 2,000 held out, 200
inducing points by k-means, one RBF length-scale for all pixels, hyper-parameters (and weights)
learned in at most 60 evaluations. Confidence is the greatest probability of a row; the reliability
diagram sets it against the share of rows that are right.
"""

import time

import numpy as np

import latentgp as lgp
from common import (
    COLORS,
    STYLES,
    Report,
    class_scores,
    figure,
    load,
    parser,
    random_split,
    standardised,
    tidy,
)
from latentgp import metrics

PUBLISHED = {"logistic-softmax": 0.858, "softmax": 0.996}
FITS = {
    "softmax, variational": ("softmax", lgp.VariationalInference),
    "logistic-softmax, variational": ("logistic-softmax", lgp.VariationalInference),
    "scaled, variational": ("scaled-logistic-softmax", lgp.VariationalInference),
    "logistic-softmax, augmented": ("logistic-softmax", lgp.AugmentedVI),
    "scaled, augmented": ("scaled-logistic-softmax", lgp.AugmentedVI),
}


def probability(likelihood, true, others):
    """Of the true class, given the latents."""
    f = np.full(likelihood.latent_size, others)
    f[0] = true
    return float(likelihood.class_probabilities(f, {})[0])


def in_theory(report):
    weighted = lgp.ScaledLogisticSoftmax(10, np.where(np.arange(10) == 0, 10.0, 1.0))
    likelihoods = {
        "softmax": lgp.Softmax(10),
        "logistic-softmax": lgp.LogisticSoftmax(10),
        "bijective": lgp.BijectiveLogisticSoftmax(10),
        "scaled, its weight 10": weighted,
    }
    report.table(
        "probability of the true one of ten classes, f = 4 for it and -4 for the others",
        ["", "found", "published", "at most, others at -4"],
        [
            [name, probability(law, 4.0, -4.0), PUBLISHED.get(name), probability(law, 1e3, -4.0)]
            for name, law in likelihoods.items()
        ],
    )
    values = np.linspace(-6, 12, 91)
    return values, {
        n: [probability(law, v, -4.0) for v in values] for n, law in likelihoods.items()
    }


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("many_classes", arguments)
    theory = in_theory(report)
    X, y = load(arguments.data_dir, "usps")
    train, test = random_split(len(y), 200 if arguments.quick else 1000)
    test = np.random.default_rng(1).permutation(test)[:2000]
    inputs, inputs_test = standardised(X[train], X[test])
    given, rows = {}, []
    for name, (likelihood, method) in FITS.items():
        started = time.perf_counter()
        classifier = lgp.GPClassifier(
            lgp.RBF(lengthscale=X.shape[1] ** 0.5, variance=4.0),
            likelihood=likelihood,
            method=method(lgp.Inducing(30 if arguments.quick else 200)),
            random_state=0,
            max_evaluations=5 if arguments.quick else 60,
        ).fit(inputs, y[train])
        seconds = time.perf_counter() - started
        p = given[name] = classifier.predict_proba(inputs_test)
        scores = class_scores(y[test], p)
        confidence = p.max(axis=1)
        rows.append([
            name, scores["log loss"], scores["error"], scores["ECE"], confidence.mean(),
            np.quantile(confidence, 0.9), confidence.mean() - (1 - scores["error"]), seconds,
        ])  # fmt: skip
        print(f"  {name}: {seconds:.0f} s", flush=True)
    report.table(
        f"usps, {len(train)} rows to train on, {len(test)} held out",
        [
            "", "log loss", "error", "ECE", "mean confidence", "90 % quantile",
            "confidence minus accuracy", "s a fit",
        ],
        rows,
    )  # fmt: skip
    report.note("Published: the first table's figures alone; the digits are not the source's.")
    report.save(picture(theory, y[test], given))


def picture(theory, labels, given):
    drawn = figure(10, 4)
    left, right = drawn.subplots(1, 2)
    values, curves = theory
    for color, style, (name, curve) in zip(COLORS, STYLES, curves.items(), strict=False):
        left.plot(values, curve, style, color=color, label=name)
    for name, published in PUBLISHED.items():
        left.plot([4], [published], "D", color=COLORS[list(curves).index(name)], markersize=5)
    left.plot([], [], "D", color="#6E6E6E", markersize=5, label="published")
    tidy(
        left, "Ten classes, f = -4 for the other nine", "f of the true class",
        "probability of the true class", legend=True,
    )  # fmt: skip
    right.plot([0, 1], [0, 1], color="#262626", linewidth=1)
    for color, style, (name, p) in zip(COLORS, STYLES, given.items(), strict=False):
        curve = metrics.reliability_curve(labels, p, 10)
        right.plot(curve.probability, curve.frequency, f"o{style}", color=color, ms=4, label=name)
    tidy(
        right, "usps: reliability", "stated probability of the class chosen",
        "share of rows that are right", legend=True,
    )  # fmt: skip
    return drawn


if __name__ == "__main__":
    main()
