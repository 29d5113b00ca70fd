"""Coefficients of linear parts and effects of groups, given the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.errors import InputError
from latentgp.kernels import CorrelatedLinear, FixedEffects, Kernel, Linear, SameGroup, White
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import LatentKernel, OwnKernels
from latentgp.kernels.terms import Part, terms_of
from latentgp.posteriors.posterior import Posterior
from latentgp.validation import interval_levels

_LINEAR = FixedEffects, Linear
_GROUPS = SameGroup, White
# Means and variances of rows that name a part by their last columns.
Marginals = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


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

    @property
    def standard_error(self) -> Float[np.ndarray, "coefficients *Q"]:
        """Posterior standard deviations."""
        return np.sqrt(np.einsum("jj...->j...", self.covariance))

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "coefficients *Q"], Float[np.ndarray, "coefficients *Q"]]:
        """Ends of central intervals of normal laws with these moments."""
        lower, upper = interval_levels(level)
        error = self.standard_error
        return self.estimate + ndtri(lower) * error, self.estimate + ndtri(upper) * error

    def contrast(self, weights: Any) -> tuple[Float[np.ndarray, "*Q"], Float[np.ndarray, "*Q"]]:
        """Mean and standard error of a weighted sum of coefficients.

        Args:
            weights: of the coefficients, shape (coefficients,).

        Raises:
            InputError: weights that are not one for each.
        """
        weights = np.asarray(weights, np.float64)
        if weights.shape != (len(self.names),):
            raise InputError(
                f"A contrast needs a weight for each of the {len(self.names)} coefficients, got "
                f"shape {weights.shape}."
            )
        variance = np.einsum("i,ij...,j->...", weights, self.covariance, weights)
        mean = np.einsum("j,j...->...", weights, self.estimate)
        return np.asarray(mean), np.asarray(np.sqrt(variance))

    def table(self, level: float = 0.95) -> Any:
        """A data frame with a row a coefficient: estimate, standard error, ends of intervals."""
        lower, upper = self.interval(level)
        return _table(self.names, self.estimate, self.standard_error, lower, upper)


class GroupEffects(NamedTuple):
    """Deviation of each group from the others, in intercept or slope.

    Attributes:
        names: of the groups.
        estimate: posterior means, shape (groups,), or (groups, Q) for Q > 1 latent functions.
        standard_error: posterior standard deviations, likewise.
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, "groups *Q"]
    standard_error: Float[np.ndarray, "groups *Q"]

    def table(self, level: float = 0.95) -> Any:
        """A data frame with a row a group: estimate, standard error, ends of intervals."""
        reach = ndtri(interval_levels(level)[1]) * self.standard_error
        ends = self.estimate - reach, self.estimate + reach
        return _table(self.names, self.estimate, self.standard_error, *ends)


def _table(
    names: Sequence[str],
    estimate: Float[np.ndarray, "coefficients *Q"],
    error: Float[np.ndarray, "coefficients *Q"],
    lower: Float[np.ndarray, "coefficients *Q"],
    upper: Float[np.ndarray, "coefficients *Q"],
) -> Any:
    import pandas as pd

    columns = {"estimate": estimate, "standard_error": error, "lower": lower, "upper": upper}
    if estimate.ndim > 1:
        columns = {
            f"{name} [{q}]": values[:, q]
            for q in range(estimate.shape[1])
            for name, values in columns.items()
        }
    return pd.DataFrame(columns, index=list(names))


class LinearPart(NamedTuple):
    """A part of a sum of kernels whose functions are linear in some columns."""

    number: int  # of the part
    columns: tuple[int, ...]  # in front of which coefficients are
    centre: Float[np.ndarray, "D"]  # row at which the part is zero


def coefficients(posterior: Posterior, names: Sequence[str] | None = None) -> Coefficients:
    """`Posterior.coefficients`."""
    kernel, names = posterior.model.kernel, _column_names(posterior, names)
    parts = _linear_parts(kernel, len(names))
    return _coefficients_of(kernel, parts, names, posterior.marginals_of_parts)


def group_effects(
    posterior: Posterior,
    column: int,
    groups: Sequence[float],
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, GroupEffects]:
    """`Posterior.group_effects`."""
    names = _column_names(posterior, names)
    if not 0 <= column < len(names):
        raise InputError(
            f"There is no column {column!r} of groups; count the {len(names)} columns from 0."
        )
    labels = [f"{group:g}" for group in groups] if labels is None else labels
    marginals = posterior.marginals_of_parts
    return _group_effects_of(posterior.model.kernel, column, groups, names, labels, marginals)


def _column_names(posterior: Posterior, names: Sequence[str] | None) -> Sequence[str]:
    inputs = posterior.components.inputs
    names = [str(column) for column in range(inputs)] if names is None else names
    if len(names) != inputs:
        raise InputError(f"names must have one for each of the {inputs} columns, got {len(names)}.")
    return names


def _linear_parts(kernel: LatentKernel, inputs: int) -> list[LinearPart]:
    """The linear parts that all rows share; InputError if none, or if two see one column."""
    found = [
        _linear(number, parts[0], inputs)
        for number, parts in _products(kernel, inputs)
        if len(parts) == 1 and isinstance(parts[0].kernel, _LINEAR)
    ]
    if not found:
        raise InputError(
            "The kernel has no linear part, whose coefficients there would be; add "
            "FixedEffects(variance).on(columns) or Linear().on(columns) to it."
        )
    seen = [column for part in found for column in part.columns]
    if len(set(seen)) < len(seen):
        raise InputError(
            f"Two linear parts of the kernel see one column of {sorted(seen)}; let each column be "
            "in one of them."
        )
    return found


def _coefficients_of(
    kernel: LatentKernel, parts: Sequence[LinearPart], names: Sequence[str], marginals: Marginals
) -> Coefficients:
    """Coefficients of linear parts; covariances are from variances of sums of two.

    Marginals are of rows that name parts by their last columns.
    """
    sum_of = len(_parts(kernel))
    which = [(part, column) for part in parts for column in part.columns]
    rows = np.zeros((len(which), len(parts[0].centre)))
    units = np.zeros((len(which), sum_of))
    for place, (part, column) in enumerate(which):
        rows[place, column] = 1.0
        units[place, part.number] = 1.0
    first, second = np.triu_indices(len(which))
    off = (first != second).astype(float)[:, None]
    told = np.minimum(units[first] + units[second], 1.0)
    centres = np.zeros((sum_of, rows.shape[1]))
    for part in parts:
        centres[part.number] = part.centre
    X = told @ centres + rows[first] + off * rows[second]
    mean, variance = marginals(np.concatenate([X, told], axis=1))
    own = first == second
    covariance = np.zeros((len(which), len(which), *variance.shape[1:]))
    each = variance[own]
    covariance[first, second] = 0.5 * (variance - each[first] - each[second])
    covariance[second, first] = covariance[first, second]
    covariance[np.arange(len(which)), np.arange(len(which))] = each
    return Coefficients(tuple(names[column] for _, column in which), mean[own], covariance)


def _group_effects_of(
    kernel: LatentKernel,
    column: int,
    groups: Sequence[float],
    names: Sequence[str],
    labels: Sequence[str],
    marginals: Marginals,
) -> dict[str, GroupEffects]:
    """Effects of groups by what they multiply: "intercept", or a column's name.

    Marginals are of rows that name parts by their last columns, groups numbers in their column.

    Raises:
        InputError: the kernel has no such part.
    """
    inputs, units = len(names), np.eye(len(_parts(kernel)))
    found: dict[str, GroupEffects] = {}
    for number, parts in _products(kernel, inputs):
        own = [p for p in parts if isinstance(p.kernel, _GROUPS) and p.columns == (column,)]
        others = [part for part in parts if part not in own]
        if len(own) != 1 or len(others) > 1:
            continue
        kind = type(others[0].kernel) if others else None
        if kind not in (None, Linear, CorrelatedLinear):
            continue

        def at(row: Any, unit: Any = units[number]) -> tuple[np.ndarray, np.ndarray]:
            rows = np.tile(np.append(row, unit), (len(groups), 1))
            rows[:, column] = groups
            return marginals(rows)

        def keep(name: str, mean: np.ndarray, variance: np.ndarray) -> None:
            found[name] = GroupEffects(tuple(labels), mean, np.sqrt(np.maximum(variance, 0.0)))

        nowhere = np.zeros(inputs)
        at_zero = at(nowhere)
        if kind is not Linear:
            keep("intercept", *at_zero)
        for own_column in others[0].columns if others else ():
            unit = nowhere.copy()
            unit[own_column] = 1.0
            up = at(unit)
            if kind is Linear:
                keep(names[own_column], *up)
                continue
            down = at(-unit)  # a + b and a - b, of which the variances add up to twice a's and b's
            variance = 0.5 * (up[1] + down[1]) - at_zero[1]
            keep(names[own_column], 0.5 * (up[0] - down[0]), variance)
    if not found:
        raise InputError(
            f"The kernel has no effect of groups in column {column}; add Constant() * "
            f"SameGroup().on({column}) to it."
        )
    return found


def _parts(kernel: LatentKernel) -> tuple[Kernel, ...]:
    return parts_of(kernel.each[0] if isinstance(kernel, OwnKernels) else kernel)


def _products(kernel: LatentKernel, inputs: int) -> list[tuple[int, tuple[Part, ...]]]:
    """Number of each part of the sum that is one product, and its factors."""
    found = []
    for number, part in enumerate(_parts(kernel)):
        terms = terms_of(part, tuple(range(inputs)))
        if len(terms) == 1:
            found.append((number, terms[0].parts))
    return found


def _linear(number: int, part: Part, inputs: int) -> LinearPart:
    centre = np.zeros(inputs)
    if isinstance(part.kernel, FixedEffects):
        centre[list(part.columns)] = part.kernel.centre
    return LinearPart(number, part.columns, centre)
