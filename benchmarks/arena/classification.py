"""Classification by default settings, beside boosting, a forest, an SVM and logistic regression.

Sets of a folder and of scikit-learn: at most 2,000 rows, of which three quarters are learned from,
two splits. Log loss and share of errors of held-out rows, inputs in standard deviations.
"""

from __future__ import annotations

import numpy as np
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

import latentgp as lgp
from common import Results, parser

SETS = (
    "a9a", "adult", "breast_wisconsin", "eeg", "electricity", "glass", "magic", "ratsch_banana",
    "ratsch_breast_cancer", "ratsch_diabetis", "ratsch_german", "ratsch_image", "ratsch_ringnorm",
    "ratsch_titanic", "segment", "shuttle", "usps", "usps_3v5", "vehicle", "wine",
)  # fmt: skip
OWN = "breast_cancer", "digits", "iris"  # scikit-learn's
MOST_ROWS = 2_000
GRID = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1, 1.0]}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--by", nargs="+", default=["latentgp", *peers(0)])
    options = arguments.parse_args()
    names = options.sets or [
        path.stem for path in sorted(options.folder.glob("*.npz")) if path.stem in SETS
    ] + list(OWN)

    def fit(name: str, seed: int, by: str) -> dict:
        X, X_test, y, y_test = split(*load(options.folder, name), seed)
        kind = {"latentgp": lgp.GPClassifier(random_state=seed)} | peers(seed)
        chosen = kind[by].fit(X, y)
        probabilities = np.clip(chosen.predict_proba(X_test), 1e-12, 1)
        guess = chosen.classes_[probabilities.argmax(1)]
        return {
            "rows": len(y),
            "inputs": X.shape[1],
            "classes": len(chosen.classes_),
            "log_loss": log_loss(y_test, probabilities, labels=chosen.classes_),
            "error": np.mean(guess != y_test),
            "model": str(getattr(chosen, "model_", ""))[:200],
        }

    jobs = [(n, seed, by) for n in names for seed in range(options.seeds) for by in options.by]
    Results("classification", options.out).fill(jobs, fit)


def peers(seed: int) -> dict:
    """Peers by name, as scikit-learn sets them or by its cross-validation."""
    machine = GridSearchCV(SVC(), GRID, n_jobs=1)
    return {
        "boosting": HistGradientBoostingClassifier(early_stopping=True, random_state=seed),
        "forest": RandomForestClassifier(500, random_state=seed),
        "support vectors": CalibratedClassifierCV(machine, cv=3, ensemble=False),
        "logistic": LogisticRegressionCV(
            max_iter=2000, scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False
        ),
    }


def load(folder, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in OWN:
        return getattr(datasets, f"load_{name}")(return_X_y=True)
    with np.load(folder / f"{name}.npz") as file:
        return file["X"].astype(float), file["y"].ravel()


def split(X: np.ndarray, y: np.ndarray, seed: int) -> list[np.ndarray]:
    """Rows to learn from and to be predicted, of every class in both."""
    known = np.all(np.isfinite(X), axis=1)
    X, y = X[known], y[known]
    rows = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    labels, numbers = np.unique(y[rows], return_counts=True)
    rows = rows[np.isin(y[rows], labels[numbers > 3])]
    X, X_test, y, y_test = train_test_split(
        X[rows], y[rows], train_size=0.75, random_state=seed, stratify=y[rows]
    )
    scale = X.std(0)
    scale[scale == 0] = 1
    return [(X - X.mean(0)) / scale, (X_test - X.mean(0)) / scale, y, y_test]


if __name__ == "__main__":
    main()
