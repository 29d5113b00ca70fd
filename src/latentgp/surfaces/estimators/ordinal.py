"""Classification into ordered classes in scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpyro.distributions import Distribution

from latentgp.choosing.choice import Hyperparameters
from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.likelihoods import Likelihood, Ordinal
from latentgp.methods.base import Method
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.runtime.progress import Callback
from latentgp.surfaces.estimators.base import GPEstimator
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.estimators.terms import GroupColumns


@stored
class GPOrdinalClassifier(LabelEstimator):
    """Gaussian-process classification into ordered classes, such as grades.

    One latent function, cut by learned thresholds (`latentgp.Ordinal`).

    Args:
        kernel: as in `GPRegressor`.
        order: all labels from lowest to highest, those without rows too; None sorts numbers, and
            takes the categories of a pandas categorical that has an order. Other labels need it.
        likelihood: "auto" or "ordinal", or an `Ordinal` with the thresholds to start from.
        method: how, one of {methods}, or a method
            object; those that need an augmentation of the likelihood refuse what has none.
        n_inducing: number of inducing points; a number asks for a sparse method.
        representation: how the latent functions are held, such as `Neighbours(20)`; None goes by
            the number of rows.
        depth: number of layers; above one a deep model by random features (`DeepGP`).
        mean: as in `GPRegressor`.
        groups: as in `GPRegressor`.
        hyperparameters: "optimise" takes the most probable ones, "integrate" averages over them,
            "sample" draws them by Markov chains.
        learn_hyperparameters: false keeps the values that the kernel and the likelihood have.
        priors: of hyper-parameters by path, such as `{"kernel.lengthscale": LogNormal(0.0, 1.0)}`;
            "weak" and None as in `latentgp.fit`.
        frozen: paths of hyper-parameters that are not learned, such as `["kernel.period"]`.
        restarts: further runs of the hyper-parameter search; the best is kept.
        max_evaluations: of the bound, each run on all rows; a fit in batches has epochs instead.
        max_seconds: for the whole search, which ends with the best so far.
        certify: as in `GPRegressor`.
        callback: called now and then, as in `latentgp.fit`; true ends the search.
        random_state: seeds inducing points and restarts.
        verbose: 1 prints progress, the method chosen and the verdict.

    Attributes:
        classes_: the labels in their order; those of `order` without rows too.
        model_: the learned model; the noise of its latent function has a standard deviation of 1.
        lengthscales_: one an input, in its units, the shortest of several; infinity for
            one that is not used, such as a constant column.
        posterior_: the posterior.
        diagnostics_: what happened; `diagnostics_.verdict` in words.
        history_: the search.
        priors_: of the learned hyper-parameters, by path; None of one without.
        method_: the method used, and `method_reason_` why.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(0, 3, 60)[:, None]
        >>> grades = np.array(["low", "middle", "high"])[X[:, 0].astype(int).clip(0, 2)]
        >>> classifier = GPOrdinalClassifier(order=["low", "middle", "high"], random_state=0)
        >>> classifier.fit(X, grades).predict([[0.2], [1.5], [2.9]]).tolist()
        ['low', 'middle', 'high']
    """

    def __init__(
        self,
        kernel: LatentKernel | str | None = None,
        *,
        order: Any = None,
        likelihood: str | Likelihood = "auto",
        method: str | Method = "auto",
        n_inducing: int | None = None,
        representation: Representation | None = None,
        depth: int = 1,
        mean: Literal["linear"] | Sequence[int | str] | None = None,
        groups: GroupColumns | None = None,
        hyperparameters: Hyperparameters = "optimise",
        learn_hyperparameters: bool = True,
        priors: Mapping[str, Distribution | None] | Literal["weak"] | None = "weak",
        frozen: Sequence[str] = (),
        restarts: int = 0,
        max_evaluations: int = 200,
        max_seconds: float | None = None,
        certify: float | None = None,
        callback: Callback | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        GPEstimator.__init__(
            self,
            kernel,
            likelihood=likelihood,
            method=method,
            n_inducing=n_inducing,
            representation=representation,
            depth=depth,
            mean=mean,
            groups=groups,
            hyperparameters=hyperparameters,
            learn_hyperparameters=learn_hyperparameters,
            priors=priors,
            frozen=frozen,
            restarts=restarts,
            max_evaluations=max_evaluations,
            max_seconds=max_seconds,
            certify=certify,
            callback=callback,
            random_state=random_state,
            verbose=verbose,
        )
        self.order = order

    def _sorted_labels(self, labels: np.ndarray, dtype: Any) -> np.ndarray:
        present = np.unique(labels)
        given = self.order
        if isinstance(given, str):
            raise InputError(
                f"order must be a list of labels, such as {given.split(',')!r}, got {given!r}."
            )
        if given is None and getattr(dtype, "ordered", False):
            given = dtype.categories
        if given is None:
            if any(isinstance(label, str) for label in present.tolist()):
                raise InputError(
                    f"The labels {present[:5].tolist()} are text, which has no order of its own; "
                    "give order= (--order on the command line), from lowest to highest."
                )
            return present
        order = np.asarray(list(given))
        unknown = np.setdiff1d(present, order)
        if unknown.size or len(np.unique(order)) < len(order):
            raise InputError(
                f"order must hold every label once, but {unknown[:5].tolist() or 'one'} is "
                f"{'missing from' if unknown.size else 'twice in'} {order.tolist()}."
            )
        return order

    def _class_likelihood(self, data: Data) -> Likelihood:
        number = len(self.classes_)
        likelihood = self._chosen("ordinal", {"ordinal": Ordinal})
        if isinstance(likelihood, type):
            weights = np.ones(data.size) if data.weights is None else data.weights
            counts = np.bincount(data.y.astype(int), weights=weights, minlength=number)
            # A class without rows counts as half a row.
            shares = np.where(counts > 0, counts, 0.5)
            return Ordinal.of(number, shares)
        if not isinstance(likelihood, Ordinal) or likelihood.classes != number:
            raise InputError(
                f"The targets hold {number} ordered classes; give an Ordinal with {number - 1} "
                'thresholds, or "ordinal".'
            )
        return likelihood
