"""Fixed effects of columns and effects of groups, as an estimator is asked for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from latentgp.errors import InputError
from latentgp.kernels import Kernel
from latentgp.surfaces.estimators.additive import AdditiveTerms, Groups, Smooth
from latentgp.surfaces.estimators.places import PlaceColumns
from latentgp.surfaces.options import GroupColumns, MeanTerms, Regressor


def with_terms(
    kernel: Any,
    mean: MeanTerms,
    groups: GroupColumns | None,
    columns: int,
    names: Sequence[str] | None,
    places: PlaceColumns | None = None,
) -> Any:
    """The kernel asked for, with terms for a linear mean and for groups beside it.

    Without a kernel there is an RBF of all columns but those of groups, or one by its name; of
    places on the globe a Matérn kernel there, times an RBF of the others.

    Args:
        kernel: or its name, or None, or terms.
        mean: columns with fixed effects; "linear" for all but those of groups; "trees" or a
            regressor for no terms of columns, but those of a kernel or terms that are given.
        groups: columns of groups.
        columns: number of these in the inputs.
        names: theirs, if they have any.
        places: two of the columns, by name.

    Raises:
        InputError: a column that there is not; a kernel of each latent function's own.
    """
    on_globe = kernel is None and places is not None and places.on_globe
    if mean is None and groups is None and not on_globe:
        return kernel
    apart = is_learned_apart(mean)
    if apart and isinstance(kernel, AdditiveTerms):
        return dataclasses.replace(kernel, linear=(), centred=True, ones=())
    if not (kernel is None or isinstance(kernel, Kernel | str)):
        raise InputError(
            f"mean and groups go beside one kernel that latent functions share, got {kernel!r}; "
            "give a kernel such as RBF(), or None."
        )
    of_groups = _of_groups(groups, columns, names)
    taken = [group.column for group in of_groups]
    others = tuple(column for column in range(columns) if column not in taken)
    if isinstance(mean, str):
        if mean not in ("linear", "trees"):
            raise InputError(
                f'mean must be "linear", "trees", a regressor, a list of columns, or None, got '
                f'{mean!r}; write ["{mean}"] for one column.'
            )
        linear = others if mean == "linear" else ()
    elif isinstance(mean, Regressor):
        linear = ()
    else:
        linear = tuple(number_of(column, columns, names) for column in mean or ())
    if isinstance(kernel, Kernel):
        return AdditiveTerms(linear, (), of_groups, kernel)
    whole = not (apart and kernel is None)
    smooth = (Smooth(others, kernel or "rbf"),) if others and whole else ()
    if on_globe and names is not None and places is not None:
        own = places.among(names)
        beside = (column for column in others if column not in own)
        smooth = (Smooth((*own, *beside), "globe"),)
    return AdditiveTerms(linear, smooth, of_groups)


def is_learned_apart(mean: Any) -> bool:
    """Whether a mean is learned by another method: boosted trees, or a regressor."""
    return mean == "trees" if isinstance(mean, str) else isinstance(mean, Regressor)


def check_leaves_out(mean: Any) -> None:
    """InputError of a mean that was fitted to the rows which are to be predicted without them."""
    if is_learned_apart(mean):
        raise InputError(
            "A mean of trees or of a regressor was fitted to all rows, and is not known without "
            "one; score rows that it was not fitted to."
        )


def number_of(column: int | str, columns: int, names: Sequence[str] | None) -> int:
    """Number of a column from 0, by its number or name.

    Raises:
        InputError: there is none.
    """
    if isinstance(column, str):
        if names is not None and column in names:
            return list(names).index(column)
        known = f"the columns are {list(names)}" if names is not None else "columns have no names"
        raise InputError(f"There is no column {column!r}: {known}.")
    if isinstance(column, bool) or not 0 <= column < columns:
        raise InputError(
            f"There is no column {column!r}; count the {columns} columns from 0, or give a name."
        )
    return int(column)


def _of_groups(
    groups: GroupColumns | None, columns: int, names: Sequence[str] | None
) -> tuple[Groups, ...]:
    if groups is None:
        return ()
    if isinstance(groups, int | str):
        groups = [groups]
    asked = groups if isinstance(groups, Mapping) else dict.fromkeys(groups, ())

    def number(column: Any) -> int:
        return number_of(column, columns, names)

    return tuple(
        Groups(number(column), tuple(number(slope) for slope in slopes))
        for column, slopes in asked.items()
    )
