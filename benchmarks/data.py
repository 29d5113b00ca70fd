"""Data sets from `--data-dir`: seeded splits, standardised with the training rows' statistics."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

MOST_CLUSTERED = 20_000


class Split(NamedTuple):
    X: np.ndarray  # N x D, each column with mean 0 and standard deviation 1
    y: np.ndarray  # N: standardised likewise (regression), or the number of the class
    X_test: np.ndarray
    y_test: np.ndarray


def regression(data_dir: Path, name: str, n_train: int | None = None, seed: int = 0) -> Split:
    """Every row that is not among the `n_train` (default: nine tenths) is held out."""
    return regression_split_of(*load(data_dir, name), n_train, seed)


def regression_split_of(X: np.ndarray, y: np.ndarray, n_train: int | None, seed: int) -> Split:
    """The same of rows that are there."""
    train, test = _shuffled_rows(len(y), n_train, seed)
    X = _standardised(X, train)
    y = _standardised(y, train)
    return Split(X[train], y[train], X[test], y[test])


def airline_in_time(data_dir: Path, n_train: int = 700_000, n_test: int = 100_000) -> Split:
    """Minutes of delay: rows to train on, and those that follow them in time, by year and day.

    Both are then shuffled, so that a part of either is a part of all of its time.
    """
    with np.load(data_dir / "airline_delay.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        years = np.array([int(name[-4:]) for name in file["source_names"]])[file["source_id"]]
    known = np.all(X >= 0, axis=1)
    X, y, years = X[known], y[known], years[known]
    order = np.lexsort((X[:, 3], X[:, 1], X[:, 0], years))[: n_train + n_test]
    rng = np.random.default_rng(0)
    train, test = rng.permutation(order[:n_train]), rng.permutation(order[n_train:])
    X, y = _standardised(X, train), _standardised(y, train)
    return Split(X[train], y[train], X[test], y[test])


def binary(data_dir: Path, name: str, n_train: int | None = None, seed: int = 0) -> Split:
    """The same for two classes; the larger label becomes 1, the other 0.

    Of `mnist` 1 is an odd digit, of `airline_delay` more than a quarter of an hour.
    """
    X, labels = load(data_dir, name)
    if name == "airline_delay":
        known = np.isfinite(labels) & np.all(np.isfinite(X), axis=1) & np.all(X >= 0, axis=1)
        X, labels = X[known], labels[known] > 15
    elif name == "mnist":
        labels = labels % 2
    elif name == "eeg":  # three rows with spikes of a hundred times the usual values
        usual = np.all(X < 20_000, axis=1)
        X, labels = X[usual], labels[usual]
    train, test = _shuffled_rows(len(labels), n_train, seed)
    X = _standardised(X, train)
    y = (labels == labels.max()).astype(float)
    return Split(X[train], y[train], X[test], y[test])


def counts(data_dir: Path, name: str, n_train: int | None = None, seed: int = 0) -> Split:
    """The same for counts, which stay as they are."""
    X, y = load(data_dir, name)
    train, test = _shuffled_rows(len(y), n_train, seed)
    X = _standardised(X, train)
    return Split(X[train], y[train], X[test], y[test])


def multiclass(
    data_dir: Path, name: str, n_train: int | None = None, n_test: int | None = None, seed: int = 0
) -> Split:
    """The same for the classes among the training rows, numbered from 0.

    Held-out rows of other classes are left out, and at most `n_test` are kept.
    """
    return split_of(*load(data_dir, name), n_train, n_test, seed)


def split_of(
    X: np.ndarray, labels: np.ndarray, n_train: int | None, n_test: int | None, seed: int
) -> Split:
    """The same of rows that are there."""
    train, test = _shuffled_rows(len(labels), n_train, seed)
    X = _standardised(X, train)
    known, y = np.unique(labels[train], return_inverse=True)
    test = test[np.isin(labels[test], known)][:n_test]
    return Split(X[train], y.astype(float), X[test], np.searchsorted(known, labels[test]))


def inducing_points(X: np.ndarray, n_points: int, seed: int = 0) -> np.ndarray:
    """K-means centres of at most 20,000 rows; the distinct rows where they are no more."""
    X = X[:MOST_CLUSTERED]
    distinct = np.unique(X, axis=0)
    if len(distinct) <= n_points:
        return distinct
    return KMeans(n_points, n_init=1, max_iter=30, random_state=seed).fit(X).cluster_centers_


def load(data_dir: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets as they are."""
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(float), file["y"].astype(float)


def _shuffled_rows(n_rows: int, n_train: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(seed).permutation(n_rows)
    n_train = round(0.9 * n_rows) if n_train is None else n_train
    return rows[:n_train], rows[n_train:]


def _standardised(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    scale = values[train].std(axis=0)
    return (values - values[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
