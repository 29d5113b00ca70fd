"""A regressor of scikit-learn as the prior mean, by predictions of rows it was not fitted to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError, check_whole, refuse
from latentgp.extensions.groups.boosted.boosting import Boosting, columns_beside_groups
from latentgp.inference import fit
from latentgp.means import ConstantMean, Mean
from latentgp.methods.base import Method
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.host_calls import call_on_host
from latentgp.typing import Array


@dataclasses.dataclass(frozen=True)
class CrossFit:
    """Any regressor of scikit-learn as the prior mean, by cross-fitted predictions.

    Each row is predicted by a regressor fitted to the other folds; what is left is what
    hyper-parameters and the posterior are learned from. New rows are predicted by one regressor
    fitted to all rows (Chernozhukov et al. 2018, 3, have the same split for other ends).

    Args:
        regressor: with `fit` and `predict`; clones of it are fitted.
        folds: number of folds.
        columns: inputs that it sees; None for all that tell no groups apart.
        seed: of the folds.

    Raises:
        InputError: fewer than two folds; on use fewer rows than folds, a likelihood of y that is
            not that of y - f, censored rows, a posterior that is no single Gaussian.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> from sklearn.tree import DecisionTreeRegressor
        >>> group, x = np.arange(600.0) % 30, np.cos(7.0 * np.arange(600.0))
        >>> data = lgp.Data(np.column_stack([group, x]), np.sign(x) + np.cos(group))
        >>> model = lgp.LatentGP(lgp.kernels.SameGroup().on(0) * 1.0, lgp.Gaussian(0.1))
        >>> cross_fit = lgp.groups.CrossFit(DecisionTreeRegressor(max_depth=1), columns=(1,))
        >>> method = lgp.CollapsedVI(lgp.groups.SparseEffects())
        >>> result = cross_fit.fit(model, data, key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[0.0, 0.9]])[0] - 2.0) < 0.1)
        True
    """

    regressor: Any
    folds: int = 5
    columns: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, folds=2)

    def fit(
        self,
        model: LatentGP,
        data: Data | MergedRows,
        *,
        key: Key[Array, ""],
        method: Method | Any = "auto",
        **options: Any,
    ) -> Fit:
        """Fit a model whose prior mean is that of `model` plus the regressor's predictions.

        Args:
            model: its hyper-parameters are where the search starts.
            data: the rows.
            key: random key, as `latentgp.fit` takes it.
            method: likewise.
            options: further ones of `latentgp.fit`.

        Returns:
            As of `latentgp.fit`; `save` refuses it, as the regressor would need pickle.
        """
        from sklearn.base import clone
        from sklearn.utils.validation import has_fit_parameter

        data = data.given if isinstance(data, MergedRows) else data
        if not model.likelihood.is_location or data.y.ndim > 1 or data.size < self.folds:
            raise InputError(
                "CrossFit needs at least a row a fold, and a likelihood of y less f, such as "
                f"Gaussian(), got {data.size} rows and {type(model.likelihood).__name__}."
            )
        made: Any = partial(clone, self.regressor)
        columns = self.columns or columns_beside_groups(model, data.X.shape[1])
        name = type(self.regressor).__name__
        _refuse_bounds(name, data)
        refuse(
            {
                "The mean has no column beside those of groups; add one, or leave it out.": (
                    not columns
                ),
                f"{name} takes no row weights; leave them out, or take another regressor.": (
                    data.weights is not None
                    and not has_fit_parameter(self.regressor, "sample_weight")
                ),
            }
        )
        X, y = data.X[:, np.array(columns)], data.y
        weights = {} if data.weights is None else {"sample_weight": data.weights}
        predicted = np.empty(data.size)
        fold = np.random.default_rng(self.seed).permutation(data.size) % self.folds
        for number in range(self.folds):
            out = fold == number
            own = {name: value[~out] for name, value in weights.items()}
            predicted[out] = made().fit(X[~out], y[~out], **own).predict(X[out])
        left = data.shifted(-predicted)
        found = fit(model, left, key=key, method=method, **options)
        whole = made().fit(X, y, **weights)
        mean = RegressorMean(found.model.mean, whole, tuple(columns))
        model, before = dataclasses.replace(found.model, mean=mean), found.posterior
        posterior = Posterior.gaussian(model, before.latent, before.log_evidence)
        # Rows and sites are those of what was left of y.
        found = dataclasses.replace(found, model=model, posterior=posterior, rows=None, sites=None)
        return found.noted(
            (
                f"The prior mean has predictions of {type(whole).__name__}: hyper-parameters and "
                f"posterior are by those of {self.folds} cross-fitted folds, new rows are "
                "predicted by one fitted to all.",
                "That the regressor could be another is in the noise alone, by its errors in "
                "rows that it was not fitted to, not in the uncertainty of f.",
            )
        )


def learner_of(mean: Any) -> Callable[..., Fit]:
    """Fitting of a model and of its mean, "trees" or a regressor, as an estimator asks for it."""
    if isinstance(mean, str):
        return Boosting().fit

    def by_regressor(model: LatentGP, data: Data | MergedRows, **options: Any) -> Fit:
        of_rest = dataclasses.replace(model, mean=ConstantMean(0.0))  # the level is the regressor's
        return CrossFit(mean).fit(of_rest, data, **options)

    return by_regressor


class RegressorMean(Mean):
    """A prior mean that is another one plus predictions of a fitted regressor.

    Args:
        base: the other one.
        regressor: of scikit-learn, fitted; its predictions are not differentiated.
        columns: inputs that it sees.
    """

    base: Mean
    regressor: Any = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        def predictions(X: np.ndarray) -> tuple[np.ndarray]:
            rows = X.reshape(-1, X.shape[-1])
            return (np.asarray(self.regressor.predict(rows)).reshape(X.shape[:-1]),)

        own = jax.lax.stop_gradient(X[:, np.array(self.columns)])
        (found,) = call_on_host(predictions, (X.shape[:1],), X.dtype, own)
        return self.base(X) + found[:, None]


def _refuse_bounds(name: str, rows: Data) -> None:
    """Raise InputError where targets are censored, or were seen above an entry alone."""
    each = (rows.side_information.get(side, 0.0) for side in ("censored", "entry"))
    bounds = int(sum(map(np.count_nonzero, each)))
    sentence = f"{name} takes no bounds for targets, which {bounds} rows have (censored or entry); "
    refuse({sentence + "leave these rows out, or take trees as the mean.": bounds > 0})
