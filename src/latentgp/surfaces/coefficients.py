"""Coefficients of linear parts and effects of groups, given the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.errors import InputError
from latentgp.kernels import (
    CorrelatedLinear,
    FixedEffects,
    Linear,
    MultipleMembership,
    SameGroup,
    White,
)
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import LatentKernel, OwnKernels
from latentgp.kernels.terms import Part, terms_of
from latentgp.posteriors.posterior import Posterior
from latentgp.validation import interval_levels

_LINEAR = FixedEffects, Linear
_GROUPS = SameGroup, White
_SHOWN = 20  # rows that are printed


class Coefficients(NamedTuple):
    """Coefficients of the linear parts of f, one a column.

    Attributes:
        names: of the columns.
        estimate: posterior means, shape (coefficients,), or (coefficients, Q) for Q > 1 latent
            functions; units of the latent function over the column's.
        covariance: posterior covariances, a second axis of coefficients after the first.
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, "coefficients *Q"]
    covariance: Float[np.ndarray, "coefficients coefficients *Q"]

    def __repr__(self) -> str:
        return self.table().to_string(max_rows=_SHOWN)

    @property
    def standard_error(self) -> Float[np.ndarray, "coefficients *Q"]:
        """Posterior standard deviations."""
        return np.sqrt(np.einsum("jj...->j...", self.covariance))

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "coefficients *Q"], Float[np.ndarray, "coefficients *Q"]]:
        """Ends of central intervals of normal laws with these moments."""
        return _ends(self.estimate, self.standard_error, level)

    def contrast(self, weights: Any) -> tuple[Float[np.ndarray, "*Q"], Float[np.ndarray, "*Q"]]:
        """Mean and standard error of a weighted sum of coefficients.

        Args:
            weights: of the coefficients, shape (coefficients,).

        Raises:
            InputError: weights that are not one for each.
        """
        weights = _weights(weights, self.names)
        variance = np.einsum("i,ij...,j->...", weights, self.covariance, weights)
        mean = np.einsum("j,j...->...", weights, self.estimate)
        return np.asarray(mean), np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """A data frame with a row a coefficient: estimate, standard error, ends of intervals."""
        return _table(self.names, self.estimate, self.standard_error, level)


class GroupEffects(NamedTuple):
    """Deviation of each group from the others, in intercept or slope.

    Attributes:
        names: of the groups.
        estimate: posterior means, shape (groups,), or (groups, Q) for Q > 1 latent functions.
        standard_error: posterior standard deviations, likewise.
        posterior: that they are of, which contrasts need.
        terms: scales and rows; effects are sums of scales times f there, in one part of the kernel.
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, "groups *Q"]
    standard_error: Float[np.ndarray, "groups *Q"]
    posterior: Posterior | None = None
    terms: tuple[tuple[float, Float[np.ndarray, "groups columns"]], ...] = ()

    def __repr__(self) -> str:
        return self.table().to_string(max_rows=_SHOWN)

    def contrast(self, weights: Any) -> tuple[Float[np.ndarray, "*Q"], Float[np.ndarray, "*Q"]]:
        """Mean and standard error of a weighted sum of effects, such as the difference of two.

        By the joint law of the groups whose weights are not zero; of a posterior that is no single
        Gaussian from 4,000 draws, which put the error off by about 1 %.

        Args:
            weights: of the groups, shape (groups,).

        Raises:
            InputError: weights that are not one for each; effects that belong to no posterior.
        """
        weights = _weights(weights, self.names)
        if self.posterior is None:
            raise InputError("Effects that belong to no posterior have no joint law.")
        own = np.flatnonzero(weights)
        rows = np.concatenate([rows[own] for _, rows in self.terms])
        each = np.concatenate([scale * weights[own] for scale, _ in self.terms])
        mean, variance = self.posterior.weighted_sum_of_parts(rows, each)
        return np.asarray(mean), np.asarray(np.sqrt(variance))

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """A data frame with a row a group: estimate, standard error, ends of intervals."""
        return _table(self.names, self.estimate, self.standard_error, level)


def _weights(weights: Any, names: Sequence[str]) -> Float[np.ndarray, "effects"]:
    """Weights of effects; InputError unless there is one for each."""
    try:
        own = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        own = np.full(1, np.nan)
    if own.shape != (len(names),) or not np.all(np.isfinite(own)):
        raise InputError(
            f"A contrast needs a weight for each of the {len(names)} effects, got {weights!r}."
        )
    return own


def _ends(
    estimate: Float[np.ndarray, "effects *Q"], error: Float[np.ndarray, "effects *Q"], level: float
) -> tuple[Float[np.ndarray, "effects *Q"], Float[np.ndarray, "effects *Q"]]:
    lower, upper = ndtri(interval_levels(level))
    return estimate + lower * error, estimate + upper * error


def _table(
    names: Sequence[str],
    estimate: Float[np.ndarray, "effects *Q"],
    error: Float[np.ndarray, "effects *Q"],
    level: float,
) -> pd.DataFrame:
    lower, upper = _ends(estimate, error, level)
    columns = {"estimate": estimate, "standard_error": error, "lower": lower, "upper": upper}
    if estimate.ndim > 1:
        columns = {
            f"{name} [{q}]": values[:, q]
            for q in range(estimate.shape[1])
            for name, values in columns.items()
        }
    return pd.DataFrame(columns, index=list(names))


def coefficients(posterior: Posterior, names: Sequence[str] | None = None) -> Coefficients:
    """`Posterior.coefficients`; covariances are from variances of sums of two."""
    names = _column_names(posterior, names)
    products, parts = _products(posterior.model.kernel, len(names))
    linear = [
        (number, factors[0])
        for number, factors in products
        if len(factors) == 1 and isinstance(factors[0].kernel, _LINEAR)
    ]
    if not linear:
        raise InputError(
            "The kernel has no linear part, whose coefficients there would be; add "
            "FixedEffects(variance).on(columns) or Linear().on(columns) to it."
        )
    seen = [column for _, part in linear for column in part.columns]
    if len(set(seen)) < len(seen):
        raise InputError(
            f"Two linear parts of the kernel see one column of {sorted(seen)}; let each column be "
            "in one of them."
        )
    centres = np.zeros((parts, len(names)))  # rows at which the parts are zero
    for number, part in linear:
        if isinstance(part.kernel, FixedEffects):
            centres[number, list(part.columns)] = part.kernel.centre
    rows = np.eye(len(names))[seen]
    units = np.eye(parts)[[number for number, part in linear for _ in part.columns]]
    first, second = np.triu_indices(len(seen))
    own = first == second
    told = np.minimum(units[first] + units[second], 1.0)
    X = told @ centres + rows[first] + ~own[:, None] * rows[second]
    mean, variance = posterior.marginals_of_parts(np.concatenate([X, told], axis=1))
    covariance = np.zeros((len(seen), len(seen), *variance.shape[1:]))
    each = variance[own]
    covariance[first, second] = 0.5 * (variance - each[first] - each[second])
    covariance[second, first] = covariance[first, second]
    covariance[first[own], second[own]] = each
    return Coefficients(tuple(names[column] for column in seen), mean[own], covariance)


def group_effects(
    posterior: Posterior,
    column: int,
    groups: Sequence[float],
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, GroupEffects]:
    """`Posterior.group_effects`, by what they multiply: "intercept", or a column's name."""
    names = _column_names(posterior, names)
    if not 0 <= column < len(names):
        raise InputError(
            f"There is no column {column!r} of groups; count the {len(names)} columns from 0."
        )
    labels = [f"{group:g}" for group in groups] if labels is None else labels
    products, sum_of = _products(posterior.model.kernel, len(names))
    units, zero = np.eye(sum_of), np.zeros(len(names))
    found: dict[str, GroupEffects] = {}
    for number, parts in products:
        own = [p for p in parts if _is_of(p, column)]
        others = [part for part in parts if part not in own]
        if len(own) != 1 or len(others) > 1:
            continue
        kind = type(others[0].kernel) if others else None
        if kind not in (None, Linear, CorrelatedLinear):
            continue
        has_intercept = not others or getattr(others[0].kernel, "intercept", False)

        def keep(
            name: str,
            moments: tuple[np.ndarray, np.ndarray],
            *terms: tuple[float, Float[np.ndarray, "groups columns"]],
        ) -> None:
            error = np.sqrt(np.maximum(moments[1], 0.0))
            found[name] = GroupEffects(tuple(labels), moments[0], error, posterior, terms)

        rows = _rows_of_groups(zero, groups, own[0], units[number])
        at_zero = posterior.marginals_of_parts(rows)
        if has_intercept:
            keep("intercept", at_zero, (1.0, rows))
        for own_column in others[0].columns if others else ():
            unit = np.eye(len(names))[own_column]
            rows = _rows_of_groups(unit, groups, own[0], units[number])
            up = posterior.marginals_of_parts(rows)
            if not has_intercept:
                keep(names[own_column], up, (1.0, rows))
                continue
            opposite = _rows_of_groups(-unit, groups, own[0], units[number])
            down = posterior.marginals_of_parts(opposite)
            # a + b and a - b, of which the variances add up to twice a's and b's
            moments = 0.5 * (up[0] - down[0]), 0.5 * (up[1] + down[1]) - at_zero[1]
            keep(names[own_column], moments, (0.5, rows), (-0.5, opposite))
    if not found:
        raise InputError(
            f"The kernel has no effect of groups in column {column}; add Constant() * "
            f"SameGroup().on({column}) to it."
        )
    return found


def _rows_of_groups(
    row: Float[np.ndarray, "D"],
    groups: Sequence[float],
    part: Part,
    unit: Float[np.ndarray, "parts"],
) -> Float[np.ndarray, "groups columns"]:
    """A row of each group in one part of the kernel."""
    rows, members = np.tile(np.append(row, unit), (len(groups), 1)), _members(part)
    rows[:, list(part.columns)] = 1 / members  # of weights, whose members are all one group
    rows[:, list(part.columns[:members])] = np.array(groups)[:, None]
    return rows


def _members(part: Part) -> int:
    """How many groups of a grouping a row has."""
    return part.kernel.members if isinstance(part.kernel, MultipleMembership) else 1


def _is_of(part: Part, column: int) -> bool:
    """Whether a part is of the groups in a column alone, or of members of which it has one."""
    if isinstance(part.kernel, MultipleMembership):
        return column in part.columns[: part.kernel.members]
    return isinstance(part.kernel, _GROUPS) and part.columns == (column,)


def _column_names(posterior: Posterior, names: Sequence[str] | None) -> Sequence[str]:
    inputs = posterior.components.inputs
    names = [str(column) for column in range(inputs)] if names is None else names
    if len(names) != inputs:
        raise InputError(f"names must have one for each of the {inputs} columns, got {len(names)}.")
    return names


def _products(kernel: LatentKernel, inputs: int) -> tuple[list[tuple[int, tuple[Part, ...]]], int]:
    """Number and factors of each part of the sum that is one product, and how many parts it has."""
    parts = parts_of(kernel.each[0] if isinstance(kernel, OwnKernels) else kernel)
    terms = [terms_of(part, tuple(range(inputs))) for part in parts]
    return [(n, own[0].parts) for n, own in enumerate(terms) if len(own) == 1], len(parts)
