"""Totals and means of a field over areas, with standard errors of the joint law."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.errors import InputError
from latentgp.extensions.fields.response import check_quantity, posterior_of
from latentgp.methods.result import Fit
from latentgp.posteriors.posterior import Posterior, expectations
from latentgp.representations.base import LatentPosterior
from latentgp.rows.arrays import as_rows
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, Inputs, RandomKey
from latentgp.validation import as_key, check_count, checked_inputs, checked_side, interval_levels

_BLOCK = 1_024  # rows of half a block of joint covariances
_MOST_DRAWN = 4_000  # rows that are drawn jointly by a factor of their covariance
_FEATURES = 4_096
_ROUNDED = 1e-12  # of the sizes of weights: their sum is zero


class Totals(NamedTuple):
    """Weighted sums of a field over areas, and what is not known of them.

    Attributes:
        labels: of the areas.
        estimate: expectations of the sums, shape (areas,).
        covariance: joint covariance of the sums, shape (areas, areas); without noise of the rows.
        weight: sum of the weights of each area, shape (areas,).
        draws: joint draws of the sums, shape (S, areas); None where the covariance is exact.
        standard_error_error: Monte Carlo standard errors of `standard_error`, shape (areas,); zeros
            where nothing is drawn. Draws count as independent, which those of chains are not.
        reason: how the covariance was found, in a sentence.
    """

    labels: tuple[str, ...]
    estimate: Float[np.ndarray, "areas"]
    covariance: Float[np.ndarray, "areas areas"]
    weight: Float[np.ndarray, "areas"]
    draws: Float[np.ndarray, "S areas"] | None
    standard_error_error: Float[np.ndarray, "areas"]
    reason: str

    @property
    def standard_error(self) -> Float[np.ndarray, "areas"]:
        """Posterior standard deviations of the sums."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def means(self) -> Totals:
        """The same of means: sums over the sum of weights, NaN where that is zero."""
        w = np.where(self.weight == 0, np.nan, self.weight)
        return self._replace(
            estimate=self.estimate / w,
            covariance=self.covariance / np.outer(w, w),
            weight=w / w,
            draws=None if self.draws is None else self.draws / w,
            standard_error_error=self.standard_error_error / np.abs(w),
        )

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "areas"], Float[np.ndarray, "areas"]]:
        """Ends of central intervals: of the normal law, or quantiles of the draws."""
        levels = interval_levels(level)
        if self.draws is not None:
            lower, upper = np.quantile(self.draws, levels, axis=0)
            return lower, upper
        lower, upper = ndtri(levels)
        return self.estimate + lower * self.standard_error, self.estimate + upper * (
            self.standard_error
        )

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """A data frame with a row an area: total, standard error, interval, mean."""
        lower, upper = self.interval(level)
        columns = {
            "total": self.estimate,
            "standard_error": self.standard_error,
            "lower": lower,
            "upper": upper,
            "weight": self.weight,
            "mean": self.means.estimate,
            "mean_standard_error": self.means.standard_error,
        }
        if self.draws is not None:
            columns["standard_error_error"] = self.standard_error_error
        return pd.DataFrame(columns, index=list(self.labels))


@double_precision
def total(
    posterior: Fit | Posterior,
    X: Any,
    *,
    weights: Any = None,
    by: Any = None,
    of: str = "response",
    key: RandomKey | None = None,
    number: int = 1000,
    **side_information: Any,
) -> Totals:
    """Sums of the expectation of y, or of the latent function, over the rows of areas.

    The sum over an area is T = sum_i w_i E[y_i | f], whose law is that of f at all of its rows
    together (Cressie 1993, 3.2.3 on block kriging). Where E[y | f] is f and a constant, as with
    Gaussian noise, and the posterior is one Gaussian, the covariance w' S w is exact, from pairs of
    blocks of rows, so that memory does not grow with their number. Elsewhere it is that of joint
    draws, and the estimate is by quadrature; of more than 4,000 rows the draws of one Gaussian are
    paths through 4,096 random features. Those of a mixture or of chains are joint at all rows.

    Args:
        posterior: or a fit.
        X: inputs of the rows, such as cells of a grid, shape (N, D).
        weights: of the rows, such as areas of cells, shape (N,); ones unless given.
        by: labels of the areas that rows belong to, shape (N,); one area unless given.
        of: "response" is the expectation of y, "latent" the latent function.
        key: random key of the draws, where there are any; that of seed 0 unless given.
        number: of draws S.
        side_information: what the likelihood reads a row, such as exposure.

    Raises:
        InputError: weights or labels that are not one a row, several classes or outputs, or latent
            functions whose total is asked for; no features of the kernel for many rows; fewer
            than two draws.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> cells = np.linspace(0.0, 2.0, 41)
        >>> found = lgp.fields.total(fit, cells, weights=np.full(41, 0.05), by=cells > 1)
        >>> found.labels, found.estimate.round(2), found.standard_error.round(2)
        (('False', 'True'), array([0.41, 0.87]), array([0.26, 0.25]))
    """
    posterior = posterior_of(posterior)
    likelihood = posterior.model.likelihood
    check_quantity(of, likelihood)
    X = checked_inputs(X, posterior.latent_inputs())
    side = checked_side(likelihood, side_information, len(X))
    check_count("number", number, 2)
    labels, W = _areas(weights, by, len(X))
    size, weight = np.abs(W).sum(axis=0), W.sum(axis=0)
    weight = np.where(np.abs(weight) > _ROUNDED * size, weight, 0.0)
    linear = likelihood.is_location and likelihood.latent_size == 1
    if posterior.is_gaussian and (of == "latent" or linear):
        mean = posterior.predict(X, **side).mean if of == "response" else posterior.mean_f(X)
        covariance = _covariance(posterior.latent, X, W)
        reason = "exact for the posterior: the joint covariance of all rows"
        exact = None, np.zeros(len(labels)), reason
        return Totals(labels, W.T @ mean, covariance, weight, *exact)
    key = jax.random.key(0) if key is None else as_key(key)
    drawn, how = _drawn(posterior, X, of, key, number, side)
    if drawn.ndim > 2:
        raise InputError(
            f"Totals are of one output a row, but {type(likelihood).__name__} has several; fit one."
        )
    draws = drawn @ W
    mean = posterior.predict(X, **side).mean if of == "response" else posterior.mean_f(X)
    away = draws - draws.mean(axis=0)
    covariance = away.T @ away / (number - 1)
    second = np.diagonal(covariance)
    spread = np.maximum(np.mean(away**4, axis=0) - second**2, 0.0) / number
    error = np.sqrt(spread) / (2 * np.sqrt(np.maximum(second, np.finfo(float).tiny)))
    return Totals(labels, W.T @ mean, covariance, weight, draws, error, how)


def _areas(
    weights: Any, by: Any, rows: int
) -> tuple[tuple[str, ...], Float[np.ndarray, "N areas"]]:
    """Labels in order, and weights of each row in each area."""
    w = np.ones(rows) if weights is None else as_rows("weights", weights, rows)
    own = np.zeros(rows, int) if by is None else np.asarray(by)
    own = own.astype(str) if own.dtype == object else own
    if own.shape != (rows,) or not rows:
        raise InputError(
            f"Totals need rows, and by a label for each of the {rows}, got shape {own.shape}."
        )
    known, numbers = np.unique(own, return_inverse=True)
    labels = ("all",) if by is None else tuple(map(str, known))
    return labels, w[:, None] * (numbers[:, None] == np.arange(len(known)))


def _covariance(
    latent: LatentPosterior, X: Float[np.ndarray, "N D"], W: Float[np.ndarray, "N areas"]
) -> Float[np.ndarray, "areas areas"]:
    """W' S W by pairs of blocks of rows; rows of weight zero fill the last one."""
    size = min(_BLOCK, -(-len(X) // 2))
    blocks = max(2, -(-len(X) // size))
    more = blocks * size - len(X)
    X = np.pad(X, ((0, more), (0, 0)), mode="edge").reshape(blocks, size, -1)
    W = np.pad(W, ((0, more), (0, 0))).reshape(blocks, size, -1)
    found = np.zeros((W.shape[2], W.shape[2]))
    for a, b in itertools.combinations(range(blocks), 2):
        together = np.asarray(_covariances(latent, np.concatenate([X[a], X[b]])))
        cross = W[a].T @ together[:size, size:] @ W[b]
        found += cross + cross.T
        if b == a + 1:  # once for each block, and for the last one with the one before
            found += W[a].T @ together[:size, :size] @ W[a]
        if a == blocks - 2:
            found += W[b].T @ together[size:, size:] @ W[b]
    np.fill_diagonal(found, np.maximum(np.diagonal(found), 0.0))  # of contrasts, rounded
    return found


@jax.jit
def _covariances(latent: LatentPosterior, X: Inputs) -> Float[Array, "N N"]:
    return latent.covariance(X)[0]


def _drawn(
    posterior: Posterior, X: np.ndarray, of: str, key: RandomKey, number: int, side: dict[str, Any]
) -> tuple[np.ndarray, str]:
    """Joint draws of the quantity at the rows, shape (S, N), and how they were made."""
    how = f"{number} joint draws at all rows"
    if len(X) > _MOST_DRAWN and posterior.is_gaussian:
        how = f"{number} paths through {_FEATURES} random features, an approximation of the prior"
        f = posterior.sample_paths(key=key, number=number, features=_FEATURES)(X)
    elif of == "latent":
        f = posterior.sample_f(X, key=key, number=number)
    else:
        return posterior.sample_expectation(X, key=key, number=number, **side), how
    if of == "latent":
        return f, how
    f = f[..., None] if f.ndim == 2 else f
    return np.asarray(expectations(posterior.model.likelihood, jnp.asarray(f), side, False)), how
