"""Weights of a formula's fixed effects: of its terms, and of means at levels of a factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder
from latentgp.surfaces.tables.formula.terms import TermFactor
from latentgp.surfaces.tables.levels import listed
from latentgp.surfaces.tables.values import column_of

_MOST_CELLS = 1_000_000  # of all factors' levels, which means are averaged over
_ROWS = 20  # a column, on which codings are compared


def term_weights(encoder: FormulaEncoder) -> dict[str, Float[np.ndarray, "rank effects"]]:
    """Weights that are zero together where a term has no effect, type III.

    They are the coefficients of the term where categories are coded as deviations that sum to zero
    (SAS/STAT 2018, 15; Kuznetsova et al. 2017, 3.3).

    Example:
        >>> table = pd.DataFrame({"y": [1.0, 2, 3, 4], "arm": list("abab"), "x": [1.0, 2, 3, 4]})
        >>> found = term_weights(FormulaEncoder.fit(table, "y ~ arm * x"))
        >>> found["x"].round(3)[0, 2:].tolist()
        [1.0, 0.5]
    """
    generator, size = np.random.default_rng(0), _ROWS * len(encoder.fixed)
    known = {own.name: own.levels for own in encoder.levels}
    levels = {name: generator.integers(0, len(own), size) for name, own in known.items()}
    every = (pair for column in encoder.fixed for pair in column.factors)
    # Any numbers do: the weights are those of the coding alone.
    numbers = {own: generator.uniform(1, 2, size) for own, level in every if level is None}
    terms: dict[tuple[TermFactor, ...], list[int]] = {}
    for place, column in enumerate(encoder.fixed):
        terms.setdefault(tuple(factor for factor, _ in column.factors), []).append(place)
    plain, deviations = np.ones((2, size, len(encoder.fixed)))
    for factors, places in terms.items():
        for number, factor in enumerate(factors):
            name = factor.columns[0]
            coded = [encoder.fixed[place].factors[number][1] for place in places]
            for place, level in zip(places, coded, strict=True):
                if level is None:
                    own = less = numbers[factor]
                else:
                    own = less = (levels[name] == known[name].index(level)).astype(np.float64)
                    if known[name][0] not in coded:
                        less = own - (levels[name] == 0)
                plain[:, place] *= own
                deviations[:, place] *= less
    between = np.linalg.lstsq(deviations, plain, rcond=None)[0]
    names = {factors: ":".join(factor.text for factor in factors) for factors in terms}
    return {names[own]: between[places] for own, places in terms.items() if own}


class LevelWeights(NamedTuple):
    """Weights of the fixed effects in means at levels of a factor.

    Attributes:
        levels: of the factor.
        within: levels of the factors that means are apart for, as text; empty without any.
        weights: shape (sums, effects).
    """

    levels: tuple[str, ...]
    within: tuple[str, ...]
    weights: Float[np.ndarray, "sums effects"]


def level_weights(
    encoder: FormulaEncoder,
    frame: pd.DataFrame,
    column: str,
    by: Sequence[str],
    weights: Float[np.ndarray, "N"] | None = None,
) -> LevelWeights:
    """Weights of means over a grid of all factors, every cell counting alike.

    Numbers are at their means in a table, the training's, rows weighted (Searle, Speed & Milliken
    1980).

    Raises:
        InputError: no such factor in the formula, or more than a million cells.

    Example:
        >>> table = pd.DataFrame({"y": [1.0, 2, 3], "arm": ["a", "b", "b"], "x": [1.0, 2, 6]})
        >>> encoder = FormulaEncoder.fit(table, "y ~ arm + x")
        >>> level_weights(encoder, table, "arm", []).weights.tolist()
        [[1.0, 0.0, 3.0], [1.0, 1.0, 3.0]]
    """
    fixed = {own for each in encoder.fixed for own, level in each.factors if level is not None}
    columns = {name for factor in fixed for name in factor.columns}
    known = {own.name: own.levels for own in encoder.levels if own.name in columns}
    if len({column, *by}) <= len(by):
        raise InputError(f"{column!r} and by={[*by]} name a factor twice: name it once")
    for name in (column, *by):
        if name not in known:
            others = f", or take one of {listed(known)}" if known else ""
            raise InputError(
                f"{name!r} is no factor of the formula: write C({name}) there for its "
                f"levels{others}"
            )
    size = math.prod(map(len, known.values()))
    if size > _MOST_CELLS:
        raise InputError(
            f"the factors of the formula have {size:,} combinations of levels to average over, "
            f"above {_MOST_CELLS:,}: leave factors out, or take one as groups, (1 | factor)"
        )
    cells = np.array(list(product(*(range(len(own)) for own in known.values()))))
    levels = {name: cells[:, place] for place, name in enumerate(known)}
    numbers = {
        own.name: np.full(
            size, np.average(own.encode(column_of(frame, own.name))[:, 0], weights=weights)
        )
        for own in encoder.numbers
    }
    design = encoder.fixed_columns(numbers, levels, size)
    found = []
    for cell in product(*(range(len(known[name])) for name in (*by, column))):
        here = np.all([levels[n] == k for n, k in zip((*by, column), cell, strict=True)], axis=0)
        apart = (f"{n} = {known[n][k]}" for n, k in zip(by, cell, strict=False))
        found.append((known[column][cell[-1]], ", ".join(apart), design[here].mean(axis=0)))
    names, within, rows = zip(*found, strict=True)
    return LevelWeights(names, within, np.stack(rows))
