"""A table as the columns that a formula's terms are of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.surfaces.estimators.additive import AdditiveTerms, Groups, Smooth
from latentgp.surfaces.estimators.places import PlaceColumns
from latentgp.surfaces.tables.columns import NumberColumn, SeriesColumn, as_read
from latentgp.surfaces.tables.formula.arithmetic import steps_of, value_of
from latentgp.surfaces.tables.formula.coding import FixedColumn, LevelColumn, coded
from latentgp.surfaces.tables.formula.parser import parse
from latentgp.surfaces.tables.formula.terms import Formula, GroupTerm, SmoothTerm, TermFactor
from latentgp.surfaces.tables.levels import listed, rows_listed, settled
from latentgp.surfaces.tables.values import (
    Tell,
    checked_frame,
    column_of,
    columns_of,
    combined,
    in_order,
    known_column,
    levels_in,
    parts_of_labels,
    read_column,
    source_of,
    texts_in,
    warn,
)

_DEPENDENT = 1e-12  # of a column's length, what is left of it beside the columns before
_Values: TypeAlias = Mapping[str, NDArray[Any]]
_FAR = 10.0  # deviations from zero at which intercepts of groups say little


@stored
@dataclass(frozen=True)
class FormulaEncoder:
    """Encoding of tables as the columns of a formula's terms, learned from a training table.

    First the columns of the fixed effects, then numbers that Gaussian processes and slopes of
    groups are of, then numbers of groups.

    Example:
        >>> import pandas
        >>> table = pandas.DataFrame({"y": [1.0, 2.0], "dose": [1, 2], "clinic": ["a", "b"]})
        >>> encoder = FormulaEncoder.fit(table, "y ~ dose + (1 | clinic)")
        >>> encoder.feature_names
        ['Intercept', 'dose', 'clinic [number]']
        >>> encoder.encode(table).tolist()
        [[1.0, 1.0, 0.0], [1.0, 2.0, 1.0]]
    """

    formula: str  # as it was written
    numbers: tuple[NumberColumn, ...]  # columns of the table that are taken as numbers
    levels: tuple[LevelColumn, ...]  # those taken as categories with fixed effects
    groups: tuple[SeriesColumn, ...]  # of columns, or of combinations of columns
    fixed: tuple[FixedColumn, ...]  # products that have fixed effects
    has_thresholds: bool = False  # of ordered classes, which take the place of an intercept
    # what is added to f as it is; the exposure is not
    offsets: tuple[TermFactor, ...] = field(default=(), repr=False)

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        formula: str,
        has_thresholds: bool = False,
        exposure: str | None = None,
    ) -> FormulaEncoder:
        """Learn the encoding of a table without gaps in the formula's columns, or InputError.

        The exposure is the column of which offset(log(column)) is none of the inputs.
        """
        read, frame = parse(formula), checked_frame(frame)
        offsets = read.offsets_beside(exposure)
        levels: dict[TermFactor, LevelColumn] = {}
        numbers: dict[str, NumberColumn] = {}
        for factor in dict.fromkeys((*read.factors, *read.inputs, *offsets)):
            for name in factor.columns:
                column = column_of(frame, known_column(frame, name))
                values, recognised = read_column(column)
                source = source_of(values.dropna())
                own = factor in (*read.factors, *read.slopes) and source == "category"
                if factor.kind == "levels" or (own and factor.kind == "column"):
                    levels[factor] = LevelColumn.fit(column)
                elif source == "category":
                    raise _text(name, factor)
                else:
                    numbers[name] = NumberColumn.fit(values, source, recognised)
        for factor in filter(levels.get, (*read.numbers, *offsets)):
            raise _text(factor.text, factor)
        each = {names: SeriesColumn.fit(_joined(frame, names)) for names in read.grouped}
        groups = tuple(
            replace(
                own, labels=_labels(each[other] for other in read.together(names)), noun="groups"
            )
            for names, own in each.items()
        )
        by_name = {column.name: column for column in levels.values()}
        units = {column.name: column.feature_names[0] for column in numbers.values()}
        fixed = coded(read, {factor: own.levels for factor, own in levels.items()}, units)
        fixed = tuple(column for column in fixed if column.factors or not has_thresholds)
        columns = tuple(numbers.values()), tuple(by_name.values()), groups
        return cls(formula, *columns, fixed, has_thresholds, offsets)

    @property
    def _read(self) -> Formula:
        return parse(self.formula)

    @property
    def column_names(self) -> list[str]:
        """Columns of the table that are used, each once."""
        known = [name for factor in self.offsets for name in factor.columns]
        return list(dict.fromkeys([*self._read.columns, *known]))

    @property
    def _inputs(self) -> tuple[tuple[TermFactor, str | None], ...]:
        """What other terms than fixed effects are of, and offsets, each once; levels apart."""
        factors = dict.fromkeys((*self._read.inputs, *self.offsets))
        return tuple((own, level) for own in factors for level in self._levels_of(own))

    def _levels_of(self, factor: TermFactor) -> tuple[str | None, ...]:
        """Levels of a category; None alone of numbers."""
        levels = {own.name: own.levels for own in self.levels}
        as_number = factor.kind == "column" and factor.text in {own.name for own in self.numbers}
        if as_number or factor.kind == "arithmetic":
            return (None,)
        return levels[factor.columns[0]]

    def _slopes(self, term: GroupTerm) -> tuple[tuple[TermFactor, str | None], ...]:
        """What slopes of groups multiply: of a category levels that do not add up to another's."""
        found, has_level = list[tuple[TermFactor, str | None]](), term.intercept
        for factor in term.slopes:
            levels = self._levels_of(factor)
            is_category = levels != (None,)
            first = int(is_category and has_level)
            found += [(factor, level) for level in levels[first:]]
            has_level |= is_category
        return tuple(found)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Unused columns: unknown outside of the formula."""
        return ()

    @property
    def numbered(self) -> tuple[int, ...]:
        """Places of encoded columns that are numbers of groups, whose order means nothing."""
        size = len(self.feature_names)
        return tuple(range(size - len(self.groups), size))

    @property
    def grouped(self) -> dict[str, int]:
        """Groups by the names that `group_effects` takes: their number among the groups."""
        names = {":".join(names): place for place, names in enumerate(self._read.grouped)}
        return names | {term.name: names[":".join(term.columns)] for term in self._read.groups}

    @property
    def with_effects(self) -> list[str]:
        """Those of groups with intercepts or slopes, each once."""
        return list(dict.fromkeys(term.name for term in self._read.groups))

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, (D,)."""
        units = {column.name: column.feature_names[0] for column in self.numbers}
        names = [column.name for column in self.fixed]
        names += [
            units.get(own.text, own.text) if level is None else f"{own.text}[{level}]"
            for own, level in self._inputs
        ]
        return names + [name for column in self.groups for name in column.feature_names]

    @property
    def read_as_text(self) -> list[str]:
        """Columns that a reader of CSV must leave as text: 1.200 may be 1200 there."""
        columns = *self.numbers, *self.levels, *self.groups
        return [own.name for own in columns if own.stays_text and own.name in self.column_names]

    def read(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with dates, times and numbers that are written in another way as such."""
        return as_read(frame, self.numbers)

    def describe(self) -> list[str]:
        """Describe the encoding of the table in words."""
        level = ", with thresholds in place of an intercept" if self.has_thresholds else ""
        alone = {factor.text for factor in (*self._read.factors, *self._read.slopes)}
        numbers = [
            own.describe()
            + f", taken as one number: write C({own.name}) for categories"
            * (own.source == "text" and own.name in alone)
            for own in self.numbers
        ]
        groups, levels = ([own.describe() for own in each] for each in (self.groups, self.levels))
        return [f"formula {self.formula}{level}", *groups, *numbers, *levels]

    def doubts(self, X: NDArray[np.float64]) -> list[str]:
        """Doubts about the training rows, given encoded, (N, D), a sentence each."""
        said = []
        empty, names = self.unknown(X)
        if empty:
            said.append(
                f"{listed(empty)} of the formula is zero in every row, so that nothing but the "
                "prior is known of its coefficient"
            )
        if names:
            said.append(
                f"{listed(names)} of the formula follow(s) from the terms before: nothing but "
                "the prior tells their coefficients apart; leave out one of them"
            )
        labels = dict(zip(self._read.grouped, self.groups, strict=True))
        for term in self._read.smooth:
            if term.by is not None and 2 * len(labels[term.by].labels) > len(X):
                said.append(
                    f"{term.text} has a function for each value of {term.by[0]}, and few rows have "
                    f"the same: write {term.by[0]}:{term.function}(...) to multiply by its numbers"
                )
        for term in self._read.groups:
            levels = 0 if term.others else len(labels[term.columns].labels)
            if levels == 1:
                said.append(
                    f"{term.name} has one group, whose effects are not told apart from the fixed "
                    "ones: nothing is known of their variance; leave them out"
                )
            elif levels == len(X) and term.intercept:
                said.append(
                    f"{term.name} has a group for each row: Gaussian noise is not told apart from "
                    "its effects, and their variances are some of one sum; leave these out"
                )
        slopes = {slope for term in self._read.groups if term.intercept for slope in term.slopes}
        times = {factor: term.name for term in self._read.smooth for factor in term.times}
        for place, (factor, _) in enumerate(self._inputs):
            values = X[:, len(self.fixed) + place]
            mean, spread = float(values.mean()), float(values.std())
            if not abs(mean) > _FAR * spread > 0:
                continue
            centre = round(mean, -math.ceil(math.log10(spread)))
            if factor in slopes:
                said.append(
                    f"intercepts of groups are at {factor.text} = 0, far from its values: write "
                    f"I({factor.text} - {centre:.15g}) for its slopes"
                )
            if factor in times:
                said.append(
                    f"{times[factor]} is zero at {factor.text} = 0, far from its values: write "
                    f"I({factor.text} - {centre:.15g}) to have it about these"
                )
        return said

    def unknown(self, X: NDArray[np.float64]) -> tuple[list[str], list[str]]:
        """Fixed effects that training rows leave open: columns of zeros; what follows from others.

        The rows are given encoded, (N, D).
        """
        fixed = X[:, : len(self.fixed)]
        length, left = np.linalg.norm(fixed, axis=0), np.zeros(len(self.fixed))
        pivots = np.diagonal(np.linalg.qr(fixed / np.where(length > 0, length, 1.0), mode="r"))
        left[: len(pivots)] = np.abs(pivots)
        empty, following = length == 0, (left < _DEPENDENT) & (length > 0)
        names = ([self.fixed[i].name for i in np.flatnonzero(own)] for own in (empty, following))
        return next(names), next(names)

    @property
    def varying(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Coefficients that vary, by name: which smooth term, columns that they are of."""
        each = zip(self._read.smooth, self.terms().smooth, strict=True)
        return {
            read.name: (number, own.times) for number, (read, own) in enumerate(each) if own.times
        }

    def encode(self, frame: pd.DataFrame, tell: Tell = warn) -> NDArray[np.float64]:
        """Turn a table with the formula's columns into finite numbers, (N, D), or InputError."""
        frame = columns_of(frame, self.column_names, "of the formula")
        read = partial(column_of, frame, learned=True)
        numbers = {c.name: c.encode(read(c.name), tell)[:, 0] for c in self.numbers}
        levels = {c.name: c.encode(read(c.name), tell) for c in self.levels}

        column = _reader(numbers, levels)

        def value(text: str, steps: Any) -> NDArray[np.float64]:
            found = np.broadcast_to(value_of(steps, column), len(frame))
            wrong = ~np.isfinite(found)
            if wrong.any():
                rows = rows_listed(frame.index[wrong])
                raise InputError(f"{text!r} of the formula is not finite in {rows}")
            return found

        ones = np.ones(len(frame))
        products = [[value(*factor) for factor in product] for product in self.products]
        columns = [np.prod([ones, *factors], axis=0) for factors in products]
        for group, names in zip(self.groups, self._read.grouped, strict=True):
            together = self._read.together(names)  # so that groups that are new have one number
            texts = [_joined(frame, own, group.labels) for own in together]
            found = group.encode(pd.Series(np.concatenate(texts), dtype=object), tell)[:, 0]
            columns.append(np.split(found, len(together))[together.index(names)])
        return np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))

    def fixed_columns(self, numbers: _Values, levels: _Values, size: int) -> NDArray[np.float64]:
        """Columns of the fixed effects, (N, p), of numbers and numbers of levels by column."""
        read, ones = _reader(numbers, levels), np.ones(size)
        own = self.products[: len(self.fixed)]
        each = ([ones, *(value_of(steps, read) for _, steps in product)] for product in own)
        return np.stack([np.prod(factors, axis=0) for factors in each], axis=1)

    @cached_property
    def products(self) -> list[list[tuple[str, Any]]]:
        """Encoded columns but groups: names of what each is a product of, and nested operations.

        There `("column", name)` is a column of numbers, `("column", name, 2)` whether a row has the
        third level.
        """
        number_of = {c.name: {text: i for i, text in enumerate(c.levels)} for c in self.levels}

        def steps(factor: TermFactor, level: str | None = None) -> tuple[str, Any]:
            if level is None and factor.kind == "arithmetic":
                return factor.text, steps_of(factor.text)
            (name,) = factor.columns
            of_level = () if level is None else (number_of[name][level],)
            return factor.text, ("column", name, *of_level)

        fixed = [[steps(*factor) for factor in column.factors] for column in self.fixed]
        return fixed + [[steps(*each)] for each in self._inputs]

    def terms(self, places: PlaceColumns | None = None) -> AdditiveTerms:
        """The terms of the formula by the numbers of the encoded columns.

        Of two columns of places on the globe `gp(lon, lat)` is there, unless it names a kernel.
        """
        read, fixed = self._read, len(self.fixed)
        inputs = {each: fixed + place for place, each in enumerate(self._inputs)}
        first = fixed + len(inputs)
        groups = {names: first + place for place, names in enumerate(read.grouped)}

        globe = places.columns if places is not None and places.on_globe else ()

        def numbers(factors: tuple[TermFactor, ...]) -> tuple[int, ...]:
            return tuple(inputs[factor, None] for factor in factors)

        def smooth(term: SmoothTerm) -> Smooth:
            columns = [factor.text for factor in term.inputs]
            more: Any = {"by": groups.get(term.by or ()), "times": numbers(term.times)}
            more["function"] = term.function
            plain = term.function == "gp" and term.kernel is None
            if globe and plain and sorted(columns) == sorted(globe):
                own = (term.inputs[columns.index(name)] for name in globe)
                return Smooth(numbers(tuple(own)), "globe", **more)
            return Smooth(numbers(term.inputs), term.kernel or "rbf", term.period, **more)

        of_groups = [
            Groups(
                groups[term.columns],
                tuple(inputs[each] for each in self._slopes(term)),
                term.intercept,
                term.correlated,
                tuple(groups[own] for own in term.grouped[1:]),
                numbers(term.weights),
                term.standardised,
            )
            for term in read.groups
        ]
        terms = tuple(range(fixed)), tuple(map(smooth, read.smooth)), tuple(of_groups)
        offsets = numbers(self.offsets)
        level = self.has_thresholds, self.ones
        return AdditiveTerms(*terms, None, *level, offsets)

    @property
    def ones(self) -> tuple[int, ...]:
        """Columns of fixed effects whose sum is one in every row: the intercept, or all levels."""
        known = {column.name: len(column.levels) for column in self.levels}
        places: dict[tuple[TermFactor, ...], list[int]] = {}
        for place, column in enumerate(self.fixed):
            if all(level is not None for _, level in column.factors):
                places.setdefault(tuple(factor for factor, _ in column.factors), []).append(place)
        for factors, own in places.items():
            if len(own) == math.prod(known[factor.columns[0]] for factor in factors):
                return tuple(own)
        return ()


def _reader(numbers: _Values, levels: _Values) -> Callable[..., NDArray[np.float64]]:
    """Values of a column, or whether rows have one of its levels."""

    def column(name: str, level: int | None = None) -> NDArray[np.float64]:
        return numbers[name] if level is None else (levels[name] == level).astype(np.float64)

    return column


def target_of(target: str | None, formula: str | None) -> str:
    """The column to predict, as named or on a formula's left; InputError of neither, or two."""
    if formula is None:
        if target is None:
            raise InputError("there is no target: name the column to predict, or give a formula")
        return target
    if not isinstance(formula, str):
        raise InputError(f"the formula must be text, got {formula!r}")
    left = parse(formula).target
    if target not in (None, left):
        raise InputError(f"the formula predicts {left!r}, but the target is {target!r}: drop it")
    return left


def with_sides(formula: str | None, sides: Mapping[str, str]) -> dict[str, str]:
    """Side columns with those of a formula's Surv(entry, time, event)."""
    return {**sides, **dict(() if formula is None else parse(formula).sides)}


def with_offset(formula: str | None, sides: Mapping[str, str]) -> dict[str, str]:
    """Side columns with a formula's first offset(log(column)); InputError of another exposure."""
    exposures = () if formula is None else parse(formula).exposures
    if not exposures:
        return dict(sides)
    exposure = exposures[0]
    if sides.get("exposure", exposure) not in exposures:
        raise InputError(
            f"the formula has offset(log({exposure})), but the exposure is "
            f"{sides['exposure']!r}: leave one of them out"
        )
    return {"exposure": exposure, **sides}


def rows_without_gaps(
    frame: pd.DataFrame, formula: str, exposure: str | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Rows where a formula's columns are all there, and a note on the others, or InputError."""
    frame, read = checked_frame(frame), parse(formula)
    offsets = [name for own in read.offsets_beside(exposure) for name in own.columns]
    there = {
        name: column_of(frame, known_column(frame, name)).notna().to_numpy()
        for name in (*read.columns, *offsets)
    }
    kept = np.logical_and.reduce([np.ones(len(frame), bool), *there.values()])
    if not kept.any():
        raise InputError("every row has a gap in a column of the formula: fill the columns")
    left = int((~kept).sum())
    gaps = listed(name for name, own in there.items() if not own.all())
    found: Any = frame[kept]
    return found, [f"left out {left} of {len(kept)} row(s), with gaps in {gaps}"] if left else []


def _joined(
    frame: pd.DataFrame, names: tuple[str, ...], labels: tuple[str, ...] | None = None
) -> pd.Series:
    """The column of groups, or combinations of several as "a:b"; labels are those of training."""
    learned = labels is not None
    columns = [column_of(frame, known_column(frame, own), learned=learned) for own in names]
    if labels is None:
        texts = [settled(texts_in(column)) for column in columns]
    else:
        pairs = zip(columns, parts_of_labels(labels, len(names)), strict=True)
        texts = [levels_in(column, known) for column, known in pairs]
    return pd.Series(combined(texts), index=frame.index, name=":".join(names), dtype=object)


def _labels(columns: Iterable[SeriesColumn]) -> tuple[str, ...]:
    """Labels of any of several columns."""
    return tuple(
        in_order(set(filter(None, settled(label for own in columns for label in own.labels))))
    )


def _text(name: str, factor: TermFactor) -> InputError:
    place = "its place in the formula" if factor.text == name else f"{factor.text} in the formula"
    return InputError(
        f"column {name!r} holds text, but {place} takes numbers: clean it, or add it as a term of "
        "its own"
    )
