"""Hyper-parameters as people read them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.hyperparameters.base import _describe, _name_of, _shown, parameters
from latentgp.hyperparameters.space import ParameterSpace


def lengthscales(model: eqx.Module, inputs: int) -> Float[np.ndarray, "D"]:
    """The length-scale of each input: the shortest of those that are about it, infinity for none.

    In the units of the inputs, of a kernel or a model with one.

    Example:
        >>> from latentgp import RBF
        >>> lengthscales(RBF(lengthscale=[0.5, 2.0]).on(0, 2) + RBF(1.0).on(0), 3)
        array([0.5, inf, 2. ])
    """
    shortest = np.full(inputs, np.inf)
    for info in parameters(model).values():
        seen = list(range(inputs) if info.dimensions is None else info.dimensions)
        value = np.asarray(info.value)
        if info.role == "lengthscale" and value.shape in ((), (1,), (len(seen),)):
            shortest[seen] = np.minimum(shortest[seen], value / info.unit)
    return shortest


def summary(
    model: eqx.Module, space: ParameterSpace | None = None, *, given: Collection[str] = ()
) -> str:
    """A readable table of a model's parameters, a line each: path, value, support.

    Of more than six numbers, and of matrices, it says how many there are and their range.

    Args:
        model: any module.
        space: adds a column with each parameter's prior in it, or "frozen", and one of its source:
            "weak", or "yours".
        given: paths whose priors are the caller's own.

    Example:
        >>> from latentgp import RBF
        >>> print(summary(RBF()))
        parameter    value  support
        lengthscale  1      positive
        variance     1      positive
    """
    known = parameters(model).values()
    rows = [(i.path, _shown(i.value), _describe(i.support)) for i in known]
    if space is None:
        return aligned([("parameter", "value", "support"), *rows])
    named = zip(space.prior_paths, map(_name_of, space.priors), strict=True)
    states = dict.fromkeys(space.paths, "-") | dict(named)
    sources = dict.fromkeys(space.prior_paths, "weak") | dict.fromkeys(given, "yours")
    rows = [(*row, states.get(row[0], "frozen"), sources.get(row[0], "")) for row in rows]
    return aligned([("parameter", "value", "support", "prior", "source"), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells of text as a table, a line a row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide = ([*map(str.ljust, row, widths)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in wide)
