"""Contents of a formula: target, fixed effects, smooth terms and effects of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from latentgp.modules import stored


@stored
@dataclass(frozen=True)
class TermFactor:
    """Factor of a term."""

    text: str  # as it is shown: the name of a column, or as it was written
    columns: tuple[str, ...]  # of the table that it is of
    kind: Literal["column", "levels", "arithmetic"] = "column"  # "levels" of C(column)


@dataclass(frozen=True)
class SmoothTerm:
    """A term gp(x1, log(x2), kernel=matern52, by=group), or z:gp(x1) that multiplies by z.

    s(x1) has an average of zero; te(x1, x2) has a product of kernels, ti(x1, x2) the interaction
    alone.
    """

    inputs: tuple[TermFactor, ...]
    kernel: str | None = None  # None where none is named
    period: float | None = None
    by: tuple[str, ...] | None = None
    times: tuple[TermFactor, ...] = ()  # whose product has the process as its coefficient
    text: str = ""  # as it was written
    function: str = "gp"  # or s, te, ti

    @property
    def name(self) -> str:
        """As it was written, with what it multiplies."""
        return ":".join([*(factor.text for factor in self.times), self.text])


@dataclass(frozen=True)
class GroupTerm:
    """A term (1 + x | group), or (1 + x || group) without correlation; of a:b every pair.

    A category among the slopes has one for each level; beside an intercept not for the first.

    Of (1 | mm(a, b)) a row has several groups, whose effects have a weighted mean or sum.
    """

    columns: tuple[str, ...]
    slopes: tuple[TermFactor, ...]
    intercept: bool
    correlated: bool
    others: tuple[str, ...] = ()  # columns of a row's further groups
    weights: tuple[TermFactor, ...] = ()  # of each of these; of none, equal ones
    standardised: bool = True  # whether they are divided by their sum

    @property
    def grouped(self) -> tuple[tuple[str, ...], ...]:
        """Columns, or combinations of columns, of groups."""
        return self.columns, *((name,) for name in self.others)

    @property
    def name(self) -> str:
        """As `group_effects` takes it: a, a:b, or mm(a, b)."""
        name = ":".join(self.columns)
        return f"mm({', '.join((name, *self.others))})" if self.others else name


@dataclass(frozen=True)
class Formula:
    """A formula, read."""

    target: str  # the column on the left
    fixed: tuple[tuple[TermFactor, ...], ...]  # terms as the factors that they multiply
    smooth: tuple[SmoothTerm, ...]  # Gaussian processes
    groups: tuple[GroupTerm, ...]  # effects of groups
    offsets: tuple[TermFactor, ...] = ()  # what is added to f as it is
    sides: tuple[tuple[str, str], ...] = ()  # names and columns, of Surv(entry, time, event)

    @property
    def exposures(self) -> tuple[str, ...]:
        """Columns of offsets that are logarithms of one column."""
        each = ((factor, *factor.columns) for factor in self.offsets if len(factor.columns) == 1)
        return tuple(name for own, name in each if own.text in (f"log({name})", f"log(`{name}`)"))

    def offsets_beside(self, exposure: str | None) -> tuple[TermFactor, ...]:
        """Offsets but that of the exposure."""
        logs = (f"log({exposure})", f"log(`{exposure}`)")
        return tuple(factor for factor in self.offsets if factor.text not in logs)

    @property
    def factors(self) -> tuple[TermFactor, ...]:
        """Factors of the fixed effects, each once."""
        return tuple(dict.fromkeys(factor for term in self.fixed for factor in term))

    @property
    def inputs(self) -> tuple[TermFactor, ...]:
        """Inputs of Gaussian processes, what they multiply, slopes of groups, each once."""
        slopes = [factor for term in self.groups for factor in (*term.slopes, *term.weights)]
        return tuple(dict.fromkeys([*self._of_smooth, *slopes]))

    @property
    def numbers(self) -> tuple[TermFactor, ...]:
        """Inputs that categories have no levels in: all but slopes of groups."""
        weights = (factor for term in self.groups for factor in term.weights)
        return (*self._of_smooth, *weights)

    @property
    def slopes(self) -> tuple[TermFactor, ...]:
        """Slopes of groups."""
        return tuple(factor for term in self.groups for factor in term.slopes)

    @property
    def _of_smooth(self) -> list[TermFactor]:
        return [factor for term in self.smooth for factor in (*term.inputs, *term.times)]

    @property
    def grouped(self) -> tuple[tuple[str, ...], ...]:
        """Columns, or combinations of columns, of groups, each once."""
        by = [term.by for term in self.smooth if term.by is not None]
        groups = [names for term in self.groups for names in term.grouped]
        return tuple(dict.fromkeys([*groups, *by]))

    def together(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Columns, or combinations of columns, that hold the same groups as one of them."""
        each = (term.grouped for term in self.groups if names in term.grouped)
        return next(each, (names,))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table right of the tilde, each once."""
        names = [name for factor in (*self.factors, *self.inputs) for name in factor.columns]
        return tuple(dict.fromkeys(names + [name for own in self.grouped for name in own]))
