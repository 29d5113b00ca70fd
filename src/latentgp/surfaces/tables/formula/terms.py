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
    """A term gp(x1, log(x2), kernel=matern52, by=group), or z:gp(x1) that multiplies by z."""

    inputs: tuple[TermFactor, ...]
    kernel: str | None = None  # None where none is named
    period: float | None = None
    by: tuple[str, ...] | None = None
    times: tuple[TermFactor, ...] = ()  # whose product has the process as its coefficient
    text: str = ""  # as it was written

    @property
    def name(self) -> str:
        """As it was written, with what it multiplies."""
        return ":".join([*(factor.text for factor in self.times), self.text])


@dataclass(frozen=True)
class GroupTerm:
    """A term (1 + x | group), or (1 + x || group) without correlation; of a:b every pair."""

    columns: tuple[str, ...]
    slopes: tuple[TermFactor, ...]
    intercept: bool
    correlated: bool


@dataclass(frozen=True)
class Formula:
    """A formula, read."""

    target: str  # the column on the left
    fixed: tuple[tuple[TermFactor, ...], ...]  # terms as the factors that they multiply
    smooth: tuple[SmoothTerm, ...]  # Gaussian processes
    groups: tuple[GroupTerm, ...]  # effects of groups
    exposure: str | None = None  # the column of an offset(log(column)); None without one

    @property
    def factors(self) -> tuple[TermFactor, ...]:
        """Factors of the fixed effects, each once."""
        return tuple(dict.fromkeys(factor for term in self.fixed for factor in term))

    @property
    def inputs(self) -> tuple[TermFactor, ...]:
        """Inputs of Gaussian processes, what they multiply, slopes of groups, each once."""
        smooth = [factor for term in self.smooth for factor in (*term.inputs, *term.times)]
        slopes = [factor for term in self.groups for factor in term.slopes]
        return tuple(dict.fromkeys(smooth + slopes))

    @property
    def grouped(self) -> tuple[tuple[str, ...], ...]:
        """Columns, or combinations of columns, of groups, each once."""
        by = [term.by for term in self.smooth if term.by is not None]
        return tuple(dict.fromkeys([*(term.columns for term in self.groups), *by]))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table right of the tilde, each once."""
        names = [name for factor in (*self.factors, *self.inputs) for name in factor.columns]
        return tuple(dict.fromkeys(names + [name for own in self.grouped for name in own]))
