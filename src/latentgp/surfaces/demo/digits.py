"""Handwritten digits: probabilities that say when a person should look."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from latentgp.surfaces.demo.section import Row, Section, Tell, fitted
from latentgp.surfaces.estimators import GPClassifier
from latentgp.surfaces.evaluation import metrics, plots
from latentgp.surfaces.evaluation.plots import drawing
from latentgp.surfaces.evaluation.plots.calibration import wilson_interval

TRAINING_ROWS = 500
SURE = 0.95
OURS = "latentgp GPClassifier"
BINS = 5
FEWEST = 10  # rows of a bin that is drawn


def digits(folder: Path, tell: Tell) -> Section:
    """Fit classifiers to 500 digits, score and draw the probabilities of the others."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch: Any = load_digits()
    split = cast(Any, train_test_split)  # scikit-learn's decorator hides the signature
    X, X_test, y, y_test = split(
        bunch.data, bunch.target, train_size=TRAINING_ROWS, stratify=bunch.target, random_state=0
    )
    rows, predictions = [], {}
    for name, estimator, first, again in fitted(_contenders(), X, y, tell):
        probabilities = predictions[name] = estimator.predict_proba(X_test)
        nlpd = -np.log(np.maximum(probabilities[np.arange(len(y_test)), y_test], 1e-15))
        wrong = probabilities.argmax(axis=1) != y_test
        sure = probabilities.max(axis=1) >= SURE
        scores = (
            f"{100 * wrong.mean():.1f} %",
            f"{metrics.expected_calibration_error(y_test, probabilities):.3f}",
            f"{sure.sum()}, {wrong[sure].sum()} wrong",
        )
        rows.append(Row(name, nlpd, scores, first, again))
    picture = folder / "digits-calibration.png"
    plots.save_figure(_drawn(X_test, y_test, predictions), picture)
    return Section(
        title="Probabilities to act on",
        data=f"Handwritten digits (scikit-learn's, 8 x 8 pixels): {len(y)} to learn from, "
        f"{len(y_test)} held out.",
        question=f"A machine reads the digits that it is at least {100 * SURE:.0f} % sure of, and "
        "a person the rest. That needs few errors, and probabilities that mean what they say.",
        lesson="The Gaussian process makes the fewest errors and has the lowest log loss: nine "
        "digits in ten need no person. The forest and the support vector machine are nearly as "
        "often right, but their probabilities are far too low to be of use here. Digits that look "
        "like none it has learned from get ten nearly equal probabilities, as they should.",
        score="log loss",
        columns=("wrong", "ECE", f"read at {100 * SURE:.0f} %"),
        rows=tuple(rows),
        picture=picture,
        caption=f"Left: how often the most probable digit is right, in {BINS} bins of the "
        f"probability stated for it (those of {FEWEST} digits or more; bars are 95 % Wilson "
        f"intervals). Right: the held-out digits of which {OURS} is least sure, with the two "
        "digits it finds most probable; its first choice is wrong where they are orange.",
    )


def _contenders() -> dict[str, Any]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    platt_scaled = cast(Any, CalibratedClassifierCV)  # whose annotation has `ensemble` as a text
    return {
        OURS: GPClassifier(random_state=0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "random forest": RandomForestClassifier(500, random_state=0),
        "SVM, Platt-scaled": make_pipeline(StandardScaler(), platt_scaled(SVC(), ensemble=False)),
    }


def _drawn(X: np.ndarray, y: np.ndarray, predictions: dict[str, np.ndarray]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.8), layout="constrained")
    left, right = cast(Any, figure.subfigures(1, 2))
    ax = left.subplots()
    ax.plot([0, 1], [0, 1], color=drawing.GREY, linewidth=1.0, label="calibrated")
    shapes = "o-", "s--", "^:", "D-."
    for (name, probabilities), color, shape in zip(
        predictions.items(), drawing.CURVES, shapes, strict=True
    ):
        curve = metrics.reliability_curve(y, probabilities, BINS)
        drawn = curve.rows >= FEWEST
        stated, right_share = curve.probability[drawn], curve.frequency[drawn]
        ends = wilson_interval(right_share, curve.rows[drawn])
        ax.vlines(stated, *ends, color=color, alpha=0.4, linewidth=1.4)
        style: dict[str, Any] = {"color": color, "linewidth": 1.2, "markersize": 5.5}
        ax.plot(stated, right_share, shape, label=name, zorder=3, **style)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    ax.legend(**drawing.legend_style(loc="lower right"))
    drawing.tidy(ax, "probability stated for the most probable digit", "share that is right")
    ours = predictions[OURS]
    right.suptitle(f"the digits of which {OURS} is least sure", fontsize=10)
    panels = right.subplots(3, 4)
    for row, panel in zip(np.argsort(ours.max(axis=1)), panels.flat, strict=False):
        first, second = np.argsort(-ours[row])[:2]
        color = drawing.INK if first == y[row] else drawing.ORANGE
        panel.imshow(X[row].reshape(8, 8), cmap="gray_r")
        panel.set_title(
            f"{first}: {100 * ours[row, first]:.0f} %, {second}: {100 * ours[row, second]:.0f} %\n"
            f"it is a {y[row]}",
            fontsize=8,
            color=color,
        )
        panel.set_axis_off()
    return figure
