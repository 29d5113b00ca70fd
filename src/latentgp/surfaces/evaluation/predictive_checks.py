"""Checks of a model by data that it makes: replicates beside what was observed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError, refuse
from latentgp.hyperparameters.summary import aligned
from latentgp.likelihoods.base import Targets
from latentgp.methods.result import Fit
from latentgp.modules import stored
from latentgp.posteriors.posterior import Posterior
from latentgp.prior import PriorDraws
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.runtime.x64 import public
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.typing import Array
from latentgp.validation import key_of_draws

_ROWS = 2_000
_CLASSES = 10
Statistic = Callable[[Any], Any]


@stored
class PredictiveCheck(eqx.Module):
    """Statistics of the observed targets and of replicates; `str` makes a table.

    Attributes:
        observed: by the statistic's name.
        replicated: of each replicate, shape (S,), likewise.
        replicates: targets that were drawn, shape (S, N), or (S, N, P).
        rows: numbers of the rows that these are of, copies of a weighted row included, shape (N,).
    """

    observed: dict[str, float]
    replicated: dict[str, Float[np.ndarray, "S"]]
    replicates: Float[np.ndarray, "S N *P"]
    rows: Any

    @property
    def tail_probabilities(self) -> dict[str, float]:
        """Share of replicates whose statistic is above the observed one, half of equal ones.

        Near zero or one, data like the observed are beyond the model (Gelman, Meng & Stern 1996).
        """
        return {
            name: float(np.mean(values > self.observed[name]))
            + 0.5 * float(np.mean(values == self.observed[name]))
            for name, values in self.replicated.items()
        }

    def __str__(self) -> str:
        heads = ["statistic", "observed", "replicated 5 %", "50 %", "95 %", "tail probability"]
        cells = [heads]
        for name, tail in self.tail_probabilities.items():
            numbers = self.observed[name], *np.quantile(self.replicated[name], [0.05, 0.5, 0.95])
            cells.append([name, *(f"{number:.4g}" for number in numbers), f"{tail:.3f}"])
        return aligned(cells)


@public
def predictive_check(
    source: Fit | Posterior | PriorDraws,
    data: Data,
    statistic: Statistic | Mapping[str, Statistic] | None = None,
    *,
    key: Key[Array, ""] | None = None,
    number: int = 500,
) -> PredictiveCheck:
    """Statistics of targets drawn from a posterior, or a prior, at the rows of the data.

    A row of weight w is w rows with one value of f and targets of their own. Of more than 2,000
    rows evenly spaced ones are looked at, and of chains those that they watched.

    Args:
        source: a fit, a posterior, or draws of `sample_prior` at the same rows.
        data: the rows.
        statistic: a function of targets, shape (N,) or (N, P), that gives a number, or several by
            name; None takes some by the kind of target: mean, standard deviation, smallest and
            largest; of counts mean, variance over mean, share of zeros and largest; of classes
            their shares.
        key: random key; None is `jax.random.key(0)`.
        number: of replicates S; those of a prior are its draws.

    Raises:
        InputError: weights that are no whole numbers, or of draws of a prior others than 0 and 1;
            draws at other rows; fewer than one draw; rows that are censored, or that were observed
            from a time on.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> rows = lgp.Data(np.arange(8.0), [3, 1, 0, 2, 5, 4, 1, 0])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> fit = lgp.fit(model, rows, key=jax.random.key(0), method=lgp.Laplace())
        >>> check = lgp.predictive_check(fit, rows)
        >>> list(check.observed)
        ['mean', 'variance over mean', 'share of zeros', 'largest']
        >>> bool(0.05 < check.tail_probabilities["mean"] < 0.95)
        True
    """
    key = key_of_draws(jax.random.key(0) if key is None else key, number)
    side = data.side_information
    partly = sum(int(np.count_nonzero(side.get(name, 0))) for name in ("censored", "entry"))
    refuse(
        {
            "predictive_check needs targets that were seen from the beginning, but some rows have "
            "censored or entry; take leave_one_out, whose transforms know of them.": partly > 0
        }
    )
    if isinstance(source, PriorDraws):
        if source.y.shape[1:] != data.y.shape:
            raise InputError(
                f"The prior's draws are of targets of shape {source.y.shape[1:]}, but those of "
                f"data have shape {data.y.shape}; draw at these rows."
            )
        weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
        if not np.all(np.isin(weights, (0, 1))):
            raise InputError(
                "Draws of a prior have one target a row; give rows of weight 2 twice, to "
                "sample_prior too."
            )
        kind, rows = source.targets, np.flatnonzero(weights)
        y, replicates = np.asarray(data.y)[rows], source.y[:, rows]
    else:
        posterior = source.posterior if isinstance(source, Fit) else source
        kind = posterior.model.likelihood.targets
        rows, y, replicates = _replicated(posterior, data, key, number)
    replicates = np.where(np.isnan(y), np.nan, replicates)
    asked = _statistics(kind, y) if statistic is None else statistic
    if not isinstance(asked, Mapping):
        asked = {getattr(asked, "__name__", "statistic"): asked}
    observed = {name: float(of(y)) for name, of in asked.items()}
    replicated = {name: np.array([float(of(y)) for y in replicates]) for name, of in asked.items()}
    return PredictiveCheck(observed, replicated, replicates, rows)


def _replicated(
    posterior: Posterior, data: Data, key: Key[Array, ""], number: int
) -> tuple[Any, Any, Any]:
    """Numbers of rows, their targets, and replicates of these."""
    if isinstance(posterior, HoldsDraws) and _are_watched(posterior, data):
        drawn = posterior.sample_watched(key=key)
        drawn = drawn.reshape(-1, *drawn.shape[2:])[evenly(drawn.shape[0] * drawn.shape[1], number)]
        return posterior.watched, np.asarray(posterior.rows.y), drawn
    rows = np.flatnonzero(data.merged_rows().origin >= 0)
    if data.weights is not None:
        weights = np.asarray(data.weights)[rows]
        if np.any(weights != np.round(weights)):
            raise InputError(
                "predictive_check needs weights that are whole numbers; leave them out."
            )
        rows = np.repeat(rows, weights.astype(int))
    rows = rows[evenly(len(rows), _ROWS)]
    own = data.select(rows)
    drawn = posterior.sample_y(own.X, key=key, number=number, **own.side_information)
    return rows, np.asarray(own.y), drawn


def _are_watched(posterior: HoldsDraws, data: Data) -> bool:
    """Whether chains watched these rows, each of which counts once."""
    watched, own = posterior.watched, posterior.rows
    if not len(watched) or watched[-1] >= data.size or data.weights is not None:
        return False
    same = np.allclose(data.y[watched], own.y, rtol=1e-9, equal_nan=True)  # rounded, if centred
    return own.weights is None and same and np.array_equal(data.X[watched], own.X)


def _statistics(kind: Targets, y: Float[np.ndarray, "N *P"]) -> dict[str, Statistic]:
    """Statistics that tell most about each kind of target."""
    if kind == "class":
        classes = np.unique(y[~np.isnan(y)])[:_CLASSES]
        return {f"share of {k:g}": lambda y, k=k: np.mean(y == k) for k in classes}
    if kind == "count":
        return {
            "mean": np.nanmean,
            "variance over mean": lambda y: np.nanvar(y) / max(np.nanmean(y), 1e-300),
            "share of zeros": lambda y: np.mean(y == 0),
            "largest": np.nanmax,
        }
    ends = {"smallest": np.nanmin, "largest": np.nanmax}
    return {"mean": np.nanmean, "standard deviation": np.nanstd, **ends}
