"""Intervals whose coverage is corrected by rows that predictions were not shown."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, refuse
from latentgp.posteriors.predictive import Predictive
from latentgp.rows.arrays import as_targets
from latentgp.surfaces.evaluation.row_scores import RowPredictions
from latentgp.validation import interval_levels


def conformal_interval(
    predictive: Predictive, calibration: Predictive | RowPredictions, y: Any, *, level: float = 0.95
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Intervals mean +- q std, where a share `level` of other rows is within q of their prediction.

    With predictions of rows that were held out of the fit (split conformal), intervals hold a new
    target with at least this probability whatever the model, if rows are exchangeable (Lei et al.
    2018, 2 and 5.2). With `leave_one_out` or `cross_validate` no row is lost to calibration; the
    coverage is then that of the jackknife, close to the level unless the fit is unstable.

    Args:
        predictive: of the new rows.
        calibration: predictions of rows with known targets, by fits without them.
        y: these targets, shape (N,), none of them censored.
        level: probability that a new target is inside.

    Returns:
        Lower and upper ends, shape (N,); infinite if there are too few rows for the level.

    Raises:
        InputError: classes, or several outputs; predictions without mean and standard deviation, or
            with one that is infinite or zero; censored targets.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.01))
        >>> data = lgp.Data(X, np.sin(X) + 0.3 * np.cos(40 * X))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> loo = lgp.leave_one_out(fit)
        >>> lower, upper = lgp.conformal_interval(fit.posterior.predict(X), loo, data.y, level=0.8)
        >>> bool(np.mean((lower < data.y) & (data.y < upper)) > 0.7)
        True
    """
    interval_levels(level)
    if predictive.likelihood.targets == "class" or predictive.likelihood.output_shape:
        raise InputError("conformal_interval needs one number a target; classes have none.")
    if isinstance(calibration, RowPredictions):
        mean, std, weights = calibration.mean, calibration.std, calibration.weights
    else:
        mean, std, weights = calibration.mean, np.sqrt(calibration.variance), None
    if mean is None or std is None:
        raise InputError("The predictions have no mean and standard deviation to correct.")
    y = as_targets(y, len(mean))
    weights = np.ones(len(y)) if weights is None else weights
    seen = (weights > 0) & np.isfinite(mean) & np.isfinite(y)
    censored = np.sum(seen & _is_censored(predictive, calibration))
    sure = np.all((std[seen] > 0) & (std[seen] < np.inf)) and np.all(predictive.variance < np.inf)
    refuse(
        {
            f"conformal_interval needs targets that were seen, but {censored} are censored; take "
            "predictive.interval().": censored > 0,
            "conformal_interval needs standard deviations that are finite and positive; take "
            "predictive.interval().": not sure,
        }
    )
    scores, weights = (np.abs(y - mean) / std)[seen], weights[seen]
    order = np.argsort(scores)
    # A new row is one more, which may be farther off than all others.
    upto = np.cumsum(weights[order]) / (weights.sum() + 1)
    place = np.searchsorted(upto, level - 1e-12)
    q = scores[order][place] if place < len(scores) else np.inf
    width = q * np.sqrt(predictive.variance)
    least = 0.0 if predictive.likelihood.targets == "count" else -np.inf
    return np.maximum(predictive.mean - width, least), predictive.mean + width


def _is_censored(predictive: Predictive, calibration: Predictive | RowPredictions) -> Any:
    """Which rows are known to have a censored target, whose transform is no number."""
    if isinstance(calibration, Predictive):
        return np.not_equal(calibration.side_information.get("censored", 0), 0)
    below, up_to = calibration.below, calibration.up_to
    if below is None or up_to is None or "censored" not in predictive.likelihood.side_information:
        return False
    return below != up_to
