"""Options of the estimators, which tables and the command line read too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from latentgp.likelihoods import Likelihood
from latentgp.methods.base import Method, StandsForMethod
from latentgp.representations import Representation

Degrees: TypeAlias = Literal["satterthwaite", "kenward-roger", "normal", "curvature"]  # of freedom

# A column of groups, several, or the columns that have a slope in each group by its column.
GroupColumns: TypeAlias = int | str | Sequence[int | str] | Mapping[int | str, Sequence[int | str]]


@runtime_checkable
class Regressor(Protocol):
    """A regressor of scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


# Columns with fixed effects, or what takes their place.
MeanTerms: TypeAlias = Literal["linear", "trees"] | Sequence[int | str] | Regressor | None
# Options that the command line has too.
FLAGS = (
    "hyperparameters",
    "fixed_effects",
    "n_inducing",
    "max_seconds",
    "certify",
    "restarts",
    "depth",
)


# What tables and the command line take where the estimators take something else.
OF_TABLES = {"hyperparameters": "auto"}


@dataclass(kw_only=True, eq=False, repr=False)
class EstimatorOptions:
    """Options of the estimators that `fit` does not have.

    Args:
        method: how, one of {methods}, or a method object; those that need an augmentation of the
            likelihood refuse what has none.
        n_inducing: number of inducing points; a number asks for a sparse method.
        representation: how the latent functions are held, such as `Neighbours(20)`; None goes by
            the number of rows.
        depth: number of layers, above one a deep model by random features (`DeepGP`).
        mean: columns, by number or name, with fixed effects beside the kernel: coefficients with
            vague priors that are not learned, read by `coefficients()`; "linear" for all but those
            of groups; "trees" for boosted trees of these, in place of fixed effects and of a
            kernel that is not given, by LightGBM (`latentgp.groups.Boosting`); a regressor of
            scikit-learn likewise, by cross-fitted predictions (`latentgp.groups.CrossFit`).
        groups: columns of groups with random intercepts, or a mapping from such a column to those
            that have a slope in every group, such as {"clinic": ["age"]}; read by `group_effects`.
        fixed_effects: "integrate" over them, as restricted maximum likelihood does, or "maximise"
            the likelihood in them too, so that variances are maximum-likelihood estimates.
        certify: seconds for Markov chains that say how far off the fit is; None for none. What
            they say is in `certificate_`.
        random_state: seeds inducing points and restarts.
    """

    likelihood: str | Likelihood = "auto"
    method: str | Method | StandsForMethod = "auto"
    n_inducing: int | None = None
    representation: Representation | None = None
    depth: int = 1
    mean: MeanTerms = None
    groups: GroupColumns | None = None
    fixed_effects: Literal["integrate", "maximise"] = "integrate"
    certify: float | None = None
    random_state: int | np.random.RandomState | None = None
