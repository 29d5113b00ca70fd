"""Comparison of models by predictions of rows that each was not shown, and weights to mix them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.hyperparameters.summary import aligned
from latentgp.modules import stored
from latentgp.surfaces.evaluation.row_scores import RowPredictions, standard_error, total


def stacking_weights(log_densities: Any, *, sample_weight: Any = None) -> Float[np.ndarray, "K"]:
    """Weights of models whose mixture predicts rows best (Yao, Vehtari, Simpson & Gelman 2018).

    Maximises sum_n log sum_k w_k p_k(y_n | other rows), which is concave, over the simplex.
    `Posterior.mixture` takes them.

    Args:
        log_densities: log p_k(y_n | other rows) of K models, shape (N, K), in nats.
        sample_weight: how often each row counts, shape (N,).

    Returns:
        Weights that sum to one.

    Raises:
        InputError: another shape; NaN; a row that no model could have.

    Example:
        >>> import numpy as np
        >>> stacking_weights(np.log([[0.9, 0.1], [0.8, 0.2], [0.2, 0.6]])).round(2)
        array([0.93, 0.07])
    """
    from scipy.optimize import minimize  # takes long to import

    table = np.asarray(log_densities, np.float64)
    if table.ndim != 2 or 0 in table.shape or np.isnan(table).any():
        raise InputError(
            f"log_densities must be numbers of shape (rows, models), got shape {table.shape}"
            f"{' with NaN' if np.isnan(table).any() else ''}; leave such rows out."
        )
    highest = table.max(axis=1, keepdims=True)
    if not np.isfinite(highest).all():
        raise InputError("log_densities holds rows that are infinite; leave these rows out.")
    share = np.ones(len(table)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if share.shape != (len(table),) or not (share >= 0).all() or not share.any():
        raise InputError("sample_weight must have one entry a row, not negative; correct it.")
    density, share = np.exp(table - highest), share / share.sum()
    models = table.shape[1]

    def loss(weights: Float[np.ndarray, "K"]) -> tuple[float, Float[np.ndarray, "K"]]:
        mixed = np.maximum(density @ weights, 1e-300)
        return -float(share @ np.log(mixed)), -(share / mixed) @ density

    found = minimize(
        loss,
        np.full(models, 1 / models),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * models,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    weights = np.clip(found.x, 0.0, None)
    return weights / weights.sum()


@stored
class ModelComparison(eqx.Module):
    """Models from best to worst by log densities of held-out rows.

    `str` makes a table. A difference below two of its standard errors decides nothing.

    Attributes:
        names: of the models.
        elpd: sums of log densities, in nats, shape (K,).
        standard_error: of these, shape (K,).
        difference: from the best, not positive, shape (K,).
        difference_error: standard error of the difference, row by row, shape (K,).
        weights: by stacking, shape (K,).
        rows: number that all models have predicted, by weight.
        warnings: what is not reliable of each model's predictions, and what to do.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    elpd: Float[np.ndarray, "K"]
    standard_error: Float[np.ndarray, "K"]
    difference: Float[np.ndarray, "K"]
    difference_error: Float[np.ndarray, "K"]
    weights: Float[np.ndarray, "K"]
    rows: float = eqx.field(static=True)
    warnings: tuple[str, ...] = eqx.field(static=True, default=())

    def __str__(self) -> str:
        figures = (
            self.elpd, self.standard_error, self.difference, self.difference_error, self.weights
        )  # fmt: skip
        heads = ["model", "log density", "error", "difference", "error", "weight"]
        forms = ["{:.1f}"] * 4 + ["{:.2f}"]
        columns = [map(f.format, values) for f, values in zip(forms, figures, strict=True)]
        cells = zip(self.names, *columns, strict=True)
        return "\n".join([f"{self.rows:g} rows", aligned([heads, *cells]), *self.warnings])


def compare_models(predictions: Mapping[str, RowPredictions]) -> ModelComparison:
    """Compare models by `leave_one_out` or `cross_validate` on the same rows.

    Rows that one of them has no log density of are left out for all.

    Args:
        predictions: by the name of the model.

    Raises:
        InputError: fewer than two models; other rows; no row that all have.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 30)
        >>> rows = lgp.Data(X, np.sin(3 * X) + 0.1 * np.cos(40 * X))
        >>> found = {
        ...     name: lgp.fit(
        ...         lgp.LatentGP(kernel, lgp.Gaussian(0.1)), rows, key=jax.random.key(0)
        ...     ).leave_one_out()
        ...     for name, kernel in {"line": lgp.Linear(), "curve": lgp.RBF()}.items()
        ... }
        >>> lgp.compare_models(found).names
        ('curve', 'line')
    """
    if len(predictions) < 2:
        raise InputError("compare_models needs two models at least; give them by name.")
    sizes = {len(own.log_density) for own in predictions.values()}
    if len(sizes) > 1:
        counts = " and ".join(map(str, sorted(sizes)))
        raise InputError(f"The models have predicted {counts} rows; compare them on the same ones.")
    weights = np.min([own.weights for own in predictions.values()], axis=0)
    table = np.stack([own.log_density for own in predictions.values()], axis=1)
    seen = (weights > 0) & ~np.isnan(table).any(axis=1)
    if not seen.any():
        raise InputError("There is no row that all models have predicted; compare them on some.")
    weights, table = weights[seen], table[seen]
    sums = np.array([total(column, weights) for column in table.T])
    order = np.argsort(-sums, kind="stable")
    table, sums = table[:, order], sums[order]
    away = table - table[:, :1]
    names = list(predictions)
    return ModelComparison(
        names=tuple(names[k] for k in order),
        elpd=sums,
        standard_error=np.array([standard_error(column, weights) for column in table.T]),
        difference=sums - sums[0],
        difference_error=np.array([standard_error(column, weights) for column in away.T]),
        weights=stacking_weights(table, sample_weight=weights),
        rows=float(weights.sum()),
        warnings=tuple(
            f"{name}: {sentence}" for name, own in predictions.items() for sentence in own.warnings
        ),
    )
