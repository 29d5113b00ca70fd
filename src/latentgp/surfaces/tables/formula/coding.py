"""Columns of fixed effects: products of numbers and of categories as differences."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.surfaces.tables.formula.terms import Formula, TermFactor
from latentgp.surfaces.tables.levels import level_numbers, settled
from latentgp.surfaces.tables.values import (
    Tell,
    changes_as_number,
    levels_in,
    levels_of_training,
    texts_in,
    warn,
)

_MOST_COLUMNS = 2_000


@stored
@dataclass(frozen=True)
class LevelColumn:
    """A column of categories with fixed effects, which are differences from the first level."""

    name: str  # the column
    levels: tuple[str, ...]  # of training, in the order of a categorical column, else sorted

    @classmethod
    def fit(cls, values: pd.Series) -> LevelColumn:
        """Learn the levels."""
        found = levels_of_training(values)
        if isinstance(values.dtype, pd.CategoricalDtype):
            ordered = dict.fromkeys(settled(texts_in(pd.Series(values.cat.categories))))
            found = [text for text in ordered if text in set(found)]
        return cls(str(values.name), tuple(found))

    @property
    def stays_text(self) -> bool:
        """Whether a reader of CSV must leave it as text."""
        return any(map(changes_as_number, self.levels))

    def describe(self) -> str:
        """Describe the column in words."""
        return f"{self.name}: {len(self.levels)} categories, beside {self.levels[0]!r}"

    def encode(self, values: pd.Series, tell: Tell = warn) -> NDArray[np.int64]:
        """Numbers of levels, (N,); what training never saw is the first level."""
        return level_numbers(self, levels_in(values, self.levels), tell)


@stored
@dataclass(frozen=True)
class FixedColumn:
    """A product that has a fixed effect."""

    name: str  # as coefficients are called
    factors: tuple[tuple[TermFactor, str | None], ...]  # numbers, or whether a row has a level


def coded(
    read: Formula, levels: dict[TermFactor, tuple[str, ...]], units: dict[str, str]
) -> tuple[FixedColumn, ...]:
    """Columns of the fixed effects; levels are coded so that no column follows from others.

    Formulaic sees plain names and numbers of levels alone, which no text of a table can disturb.
    InputError of too many columns.
    """
    import formulaic

    if not read.fixed:
        return ()
    counts = [math.prod(len(levels.get(factor, ".")) for factor in term) for term in read.fixed]
    if sum(counts) > _MOST_COLUMNS:
        raise InputError(
            f"the formula has up to {sum(counts)} columns of fixed effects, more than "
            f"{_MOST_COLUMNS}: take effects of groups for categories of many levels, such as "
            "(1 | a:b)"
        )
    name_of = {factor: f"f{place}" for place, factor in enumerate(read.factors)}
    rows = np.arange(max((len(own) for own in levels.values()), default=1))
    table = {
        name: pd.Categorical(rows % len(levels[factor])) if factor in levels else np.ones(len(rows))
        for factor, name in name_of.items()
    }
    written = [":".join(name_of[factor] for factor in term) or "1" for term in read.fixed]
    if () not in read.fixed:
        written.append("0")
    parser: Any = formulaic.Formula
    matrix = parser(" + ".join(written)).get_model_matrix(pd.DataFrame(table, index=rows))
    products = []
    for product in matrix.columns:  # such as f0[T.1]:f2
        names, factors = [], []
        for part in product.split(":") if product != "Intercept" else ():
            found = re.fullmatch(r"f(\d+)(?:\[(T\.)?(\d+)\])?", part)
            if found is None:
                raise RuntimeError(f"formulaic calls a column {product!r}")
            factor = read.factors[int(found[1])]
            level = None if found[3] is None else levels[factor][int(found[3])]
            number = units.get(factor.text, factor.text)
            names.append(number if level is None else f"{factor.text}[{found[2] or ''}{level}]")
            factors.append((factor, level))
        products.append(FixedColumn(":".join(names) or product, tuple(factors)))
    return tuple(products)
