"""Cross-validation by rows, by groups of rows, and along time."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Int, Key

from latentgp.diagnostics import FitDiagnostics
from latentgp.errors import InputError
from latentgp.inference import fit
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.runtime.progress import stepwise
from latentgp.runtime.x64 import public
from latentgp.surfaces.evaluation.row_scores import RowPredictions, RowScores, scattered, scores_of
from latentgp.typing import Array
from latentgp.validation import as_key


@stored
class CrossValidation(RowPredictions):
    """Predictions of every row by a fit without its fold; NaN for rows in no fold.

    Attributes:
        fold: of each row, counted from 0; -1 of rows that are never predicted, shape (N,).
        how: what the folds are, in a few words.
    """

    fold: Int[np.ndarray, "N"]
    how: str = eqx.field(static=True)

    def __str__(self) -> str:
        scores = (
            f"{np.sum(self.weights):g} rows, {self.how}: log density {self.elpd:.1f}, standard "
            f"error {self.standard_error:.1f}."
        )
        return "\n".join([scores, *self.warnings])


@public
def cross_validate(
    model: LatentGP,
    data: Data,
    *,
    key: Key[Array, ""],
    folds: int = 10,
    groups: Any = None,
    time: Any = None,
    refit: bool = True,
    **settings: Any,
) -> CrossValidation:
    """Predict every row by a fit to the rows of other folds.

    Folds are random, or whole groups, or consecutive pieces of time, each predicted by all that
    came before (an expanding window; the first of `folds` + 1 pieces is never predicted). A row
    with a weight is in one fold with all of it.

    Args:
        model: as `fit` takes it.
        data: the rows.
        key: random key, for folds and fits.
        folds: how many; at most as many as there are rows, groups, or times less one.
        groups: a label of each row, shape (N,); rows of one label are left out together.
        time: of each row, shape (N,), numbers or dates; equal times stay together.
        refit: learn hyper-parameters anew for every fold; else they are those of a fit to all rows.
        settings: further arguments of `fit`, such as `method` and `priors`.

    Raises:
        InputError: groups and time at once, or of another number of rows; too few or many folds.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 30)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
        >>> data = lgp.Data(X, np.sin(X))
        >>> found = lgp.cross_validate(
        ...     model, data, key=jax.random.key(0), folds=3, time=X, refit=False, priors=None
        ... )
        >>> found.fold[[0, 8, 29]]
        array([-1,  0,  2])
    """
    key_folds, key_fits = jax.random.split(as_key(key))
    parts, how = _parts(data, key_folds, folds, groups, time)
    fold, pieces, fits = np.full(data.size, -1), [], dict[str, FitDiagnostics]()
    if not refit:
        whole = fit(model, data, key=key_fits, **settings)
        model, fits["all rows"] = whole.model, whole.diagnostics
        settings = {**settings, "learn_hyperparameters": False}
    shown = stepwise(parts, "cross-validating", "fold", settings.get("verbose", 0))
    for number, (train, test) in enumerate(shown):
        own = jax.random.fold_in(key_fits, number)
        found = fit(model, data.select(train), key=own, **settings)
        fits[f"fold {number}"] = found.diagnostics
        rows = data.select(test)
        predictive = found.posterior.predict(rows.X, **rows.side_information)
        fold[test] = number
        pieces.append(scores_of(predictive, np.asarray(rows.y)))
    together: RowScores = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    places = np.concatenate([np.flatnonzero(test) for _, test in parts])
    scores = together.mapped(lambda values: scattered(values, places, data.size))
    weights = np.ones(data.size) if data.weights is None else np.array(data.weights)
    weights[(fold < 0) | (data.merged_rows().origin < 0)] = 0.0
    return CrossValidation(
        **scores.as_predictions(),
        weights=weights,
        fold=fold,
        how=how + (", refitted" if refit else ", hyper-parameters of all rows"),
        warnings=_about_fits(fits),
    )


def _about_fits(fits: dict[str, FitDiagnostics]) -> tuple[str, ...]:
    """A warning of fits that have not converged, with what the first of them says."""
    doubtful = [n for n, own in fits.items() if not (own.converged or own.stopped_as_meant)]
    if not doubtful:
        return ()
    first, why = doubtful[0], " ".join(fits[doubtful[0]].warnings)
    return (f"{len(doubtful)} of {len(fits)} fits have not converged; that of {first}: {why}",)


def _parts(
    data: Data, key: Key[Array, ""], folds: int, groups: Any, time: Any
) -> tuple[list[tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]], str]:
    """Masks of the rows to learn from and to predict, fold by fold, and what folds are."""
    if groups is not None and time is not None:
        raise InputError("cross_validate takes groups or time, got both; leave one of them out.")
    kind = "rows" if groups is None and time is None else "groups" if time is None else "times"
    given = np.arange(data.size) if kind == "rows" else np.asarray(groups if time is None else time)
    if given.shape != (data.size,):
        raise InputError(
            f"{'groups' if time is None else 'time'} has shape {given.shape}, but there are "
            f"{data.size} rows; give one entry a row."
        )
    labels, label, counts = np.unique(given, return_inverse=True, return_counts=True)
    least, most = 2 - (kind == "times"), len(labels) - (kind == "times")
    if not (folds == int(folds) and least <= folds <= most):
        raise InputError(
            f"folds must be a whole number of at least {least} and at most {most}, "
            f"for {len(labels)} different {kind}, got {folds}."
        )
    if kind == "times":
        sizes = [len(piece) for piece in np.array_split(labels, folds + 1)]
        piece = np.repeat(np.arange(folds + 1), sizes)[label]
        return [(piece < k, piece == k) for k in range(1, folds + 1)], f"{folds} pieces of time"
    # Large groups first, each to the fold that has fewest rows so far; of equal ones at random.
    shuffled = np.asarray(jax.random.permutation(key, len(labels)))
    order = shuffled[np.argsort(-counts[shuffled], kind="stable")]
    fold, rows = np.zeros(len(labels), int), np.zeros(folds)
    for place in order:
        fold[place] = np.argmin(rows)
        rows[fold[place]] += counts[place]
    masks = [fold[label] == k for k in range(folds)]
    return [(~test, test) for test in masks], f"{folds} folds of {kind}"
