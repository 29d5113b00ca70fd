"""Formulas such as y ~ x1 + gp(x2, x3) + (1 | clinic): parsed, and never evaluated as Python."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from latentgp.errors import InputError
from latentgp.surfaces.estimators.additive import SMOOTH
from latentgp.surfaces.tables.formula.arithmetic import columns_in, masked, name_of, tree_of
from latentgp.surfaces.tables.formula.terms import Formula, GroupTerm, SmoothTerm, TermFactor

_LONGEST, _MOST_TERMS, _HIGHEST = 2_000, 2_000, 10
_SMOOTH = "gp", "s", "te", "ti"  # functions of smooth terms
_ADDED = "groups are added, and gp(...) is multiplied by numbers alone; gp has by=group"


@functools.lru_cache(maxsize=64)
def parse(text: str) -> Formula:
    """Read a formula: operators by formulaic (Wilkinson & Rogers 1973), gp(...) and groups here.

    InputError of no formula, or one with something else in it.

    Example:
        >>> read = parse("y ~ age * log(dose) + gp(east, north) + (1 | clinic)")
        >>> [[factor.text for factor in term] for term in read.fixed]
        [[], ['age'], ['log(dose)'], ['age', 'log(dose)']]
        >>> read.smooth[0].inputs[1].columns, read.groups[0].columns
        (('north',), ('clinic',))
    """
    if len(text) > _LONGEST:
        raise InputError(f"the formula has {len(text)} characters: write at most {_LONGEST}")
    return _Reader(text).formula()


@dataclass(frozen=True)
class _Piece:
    """Factor in formulaic's sense: the name of a column or something else."""

    text: str
    is_column: bool

    def begins(self, text: str) -> bool:
        return not self.is_column and self.text.startswith(text)

    @property
    def is_smooth(self) -> bool:
        return any(self.begins(f"{name}(") for name in _SMOOTH)

    @property
    def is_one(self) -> bool:
        return not self.is_column and self.text == "1"


class _Reader:
    """The text of one formula, with plain words in place of what formulaic need not see."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain, self.quoted = masked(text)

    def formula(self) -> Formula:
        rest, groups = self._without_groups()
        left, right = self._terms(rest)
        target, sides = self._left(left)
        fixed: list[tuple[TermFactor, ...]] = []
        smooth: list[SmoothTerm] = []
        kept: list[GroupTerm] = []
        offsets: list[TermFactor] = []
        for term in right:
            first, alone = term[0], len(term) == 1
            if alone and first.is_one:
                fixed.append(())
            elif alone and first.text in groups:
                kept += groups[first.text]
            elif (own := [piece for piece in term if piece.is_smooth]) and len(own) == 1:
                smooth.append(self._times(term, self._smooth(own[0].text), groups))
            elif alone and first.begins("offset("):
                offsets.append(self._offset(first.text))
            elif own or any(piece.text in groups for piece in term):
                raise self._wrong(_ADDED)
            else:
                fixed.append(tuple(self._factor(piece) for piece in term))
        if len(kept) < sum(map(len, groups.values())):
            raise self._wrong("groups can be added alone")
        self._check_once(kept)
        terms = tuple(fixed), tuple(smooth), tuple(kept), tuple(offsets)
        found = Formula(target, *terms, sides)
        known = [name for factor in found.offsets for name in factor.columns]
        for what, name in (("target", target), *sides):
            name = name.partition("=")[0] if what == "event" else name
            if name in (*found.columns, *known):
                raise self._wrong(f"the {what} {name!r} is on the right side too")
        if not (found.fixed or found.smooth or found.groups):
            raise self._wrong("it has no term; add a column, 1, gp(...) or groups")
        return found

    def _left(self, left: list[list[_Piece]]) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The target, and the side columns of Surv(time, event) or Surv(entry, time, event)."""
        alone = left[0][0] if len(left) == 1 and len(left[0]) == 1 else None
        if alone is not None and alone.is_column:
            return alone.text, ()
        tree, names = tree_of(alone.text if alone is not None else "0")
        call = _call_of(tree, "Surv")
        if call is None:
            raise self._wrong(
                "the left side must be one column, or Surv(time, event); in place of log(y) make "
                "it a column, or take likelihood='log-normal'; side columns hold trials and bounds"
            )
        if len(call.args) not in (2, 3) or call.keywords:
            raise self._wrong(
                "Surv is of a time and an event, or an entry, a time and an event; side columns "
                "censored and upper hold other bounds"
            )
        *entry, time, node = call.args
        sides = tuple(("entry", name_of(own, names)) for own in entry)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            value = node.comparators[0]
            shown = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
            event = f"{name_of(node.left, names)}={shown}"
        else:
            event = name_of(node, names)
        return name_of(time, names), (*sides, ("event", event))

    def _without_groups(self) -> tuple[str, dict[str, list[GroupTerm]]]:
        """The formula with a name in place of every (... | group), and these."""
        groups: dict[str, list[GroupTerm]] = {}
        mark = "g"
        while mark in self.plain or mark in self.text:
            mark += "g"
        kept, opened, start, bar = list[str](), list[int](), 0, None
        for place, letter in enumerate(self.plain):
            if letter == "(":
                opened.append(place)
            elif letter == "|" and bar is None:
                if not opened:
                    is_left = "~" in self.plain[place:]
                    raise self._wrong(
                        "side columns hold trials, weights and bounds, in place of |"
                        if is_left
                        else "groups stand in brackets, such as (1 | clinic)"
                    )
                bar = (opened[-1], place)
            elif letter == ")" and opened:
                first = opened.pop()
                if bar is not None and bar[0] == first:
                    name = f"{mark}{len(groups)}_"
                    own = self.plain[first + 1 : bar[1]], self.plain[bar[1] + 1 : place]
                    groups[name] = self._groups(*own)
                    kept += [self.plain[start:first], name]
                    start, bar = place + 1, None
        return "".join([*kept, self.plain[start:]]), groups

    def _groups(self, before: str, after: str) -> list[GroupTerm]:
        """(before | after): of a/b effects of a, and of every pair of a and b."""
        correlated = not after.startswith("|")
        after = after.removeprefix("|")
        several = self._members(after) if after.strip().startswith("mm(") else None
        levels = after.split("/") if several is None else []
        nested = [[name.strip() for name in level.split(":")] for level in levels]
        for name in (name for level in nested for name in level):
            if not name.isidentifier():
                given = self._as_written(after.strip(" |"))
                raise self._wrong(f"the group must be a column, or some as a:b or a/b: {given!r}")
        columns = [[self.quoted.get(name, name) for name in level] for level in nested]
        terms = self._terms(f"{before} ")[1]
        if any(len(term) != 1 for term in terms):
            given = self._as_written(before.strip())
            raise self._wrong(f"before | stand columns and 1, not {given!r}")
        intercept = any(piece.is_one for (piece,) in terms)
        slopes = [self._factor(piece) for (piece,) in terms if not piece.is_one]
        if not (slopes or intercept):
            given = self._as_written(after.rstrip())
            raise self._wrong(f"nothing stands before |{given}; write (1 |{given})")
        own = tuple(slopes), intercept, correlated
        if several is not None:
            (first, *others), weights, standardised = several
            return [GroupTerm((first,), *own, tuple(others), weights, standardised)]
        together = accumulate(columns)  # of a/b a, and a with b
        return [GroupTerm(tuple(dict.fromkeys(names)), *own) for names in together]

    def _members(self, expression: str) -> tuple[list[str], tuple[TermFactor, ...], bool]:
        """Columns and weights of mm(a, b, weights=(v, w), scale=False), and whether these scale."""
        tree, names = tree_of(self._as_written(expression.strip()))
        call = _call_of(tree, "mm")
        if call is None or len(call.args) < 2:
            raise self._wrong("several groups of a row are mm(a, b), alone behind the |")
        columns = [name_of(node, names) for node in call.args]
        settings = self._settings(call, "mm", "weights", "scale")
        if len(set(columns)) < len(columns):
            raise self._wrong("mm(...) names a column twice")
        node, scale = settings.get("weights"), settings.get("scale")
        combined = None if node is None else _call_of(node, "cbind") or node
        pieces = getattr(combined, "args", getattr(combined, "elts", [])) if combined else []
        if combined is not None and len(pieces) != len(columns):
            raise self._wrong(f"weights must be one for each of {len(columns)}: weights=(v, w)")
        word = "true" if scale is None else ast.unparse(scale)
        word = names.get(word, word).lower()
        if word not in ("true", "false"):
            raise self._wrong("scale of mm(...) must be True or False")
        return columns, self._numbers(pieces, names), word == "true"

    def _settings(self, call: ast.Call, function: str, *known: str) -> dict[str | None, ast.expr]:
        settings = {keyword.arg: keyword.value for keyword in call.keywords}
        if settings.keys() - {*known} or len(settings) < len(call.keywords):
            shown = f"{', '.join(known[:-1])} and {known[-1]}"
            raise self._wrong(f"{function}(...) has the settings {shown}, each once")
        return settings

    def _numbers(self, nodes: list[Any], names: dict[str, str]) -> tuple[TermFactor, ...]:
        """Columns, or arithmetic of them, in brackets of a call."""
        pieces = [
            _Piece(name_of(node, names), True)
            if isinstance(node, ast.Name)
            else _Piece(_restored(ast.unparse(node), names), False)
            for node in nodes
        ]
        return tuple(self._number(self._factor(piece)) for piece in pieces)

    def _check_once(self, groups: list[GroupTerm]) -> None:
        """No group has two intercepts, or a slope twice, which nothing could tell apart."""
        several = [{*term.grouped} for term in groups if term.others]
        for term in groups:
            own = {*term.grouped}
            if any(own & other and own != other for other in several):
                raise self._wrong(
                    f"{term.name} shares a column with mm(...): take a copy of it for one"
                )
        each = [(frozenset(map(frozenset, term.grouped)), term) for term in groups]
        named = {own: term.name for own, term in each}
        effects = Counter(
            (own, effect)
            for own, term in each
            for effect in [*(["an intercept"] if term.intercept else []), *term.slopes]
        )
        for (own, effect), times in effects.items():
            if times > 1:
                what = effect if isinstance(effect, str) else f"a slope of {effect.text}"
                name = named[own]
                raise self._wrong(f"{name} has {what} twice; write (1 | {name}) + (0 + x | {name})")

    def _terms(self, formula: str) -> tuple[list[list[_Piece]], list[list[_Piece]]]:
        """Terms left and right of the tilde, by formulaic's parser."""
        import formulaic
        from formulaic.parser import DefaultFormulaParser

        parser: Any = formulaic.Formula
        try:
            most = _most_terms(DefaultFormulaParser().get_ast(formula))
            if most > _MOST_TERMS:
                raise ValueError(
                    f"multiplied out it may have more than {_MOST_TERMS} terms, or a power above "
                    f"{_HIGHEST}; write fewer"
                )
            parsed = parser(formula)
            sides = getattr(parsed, "lhs", ()), getattr(parsed, "rhs", parsed)
            left, right = (
                [[self._piece(f) for f in term.factors] for term in side] for side in sides
            )
        # Whatever a parser makes of arbitrary text is an error of the formula.
        except Exception as error:
            said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
            why = said[0].rstrip(".") if said else type(error).__name__
            if "`.` operator" in why:
                why = "name the columns in place of a full stop"
            raise self._wrong(self._as_written(why)) from error
        return left, right

    def _piece(self, factor: Any) -> _Piece:
        text = str(factor.expr)
        if factor.eval_method.value == "lookup":
            return _Piece(self.quoted.get(text, text), True)
        return _Piece(self._as_written(text), False)

    def _factor(self, piece: _Piece) -> TermFactor:
        if piece.is_column:
            return TermFactor(piece.text, (piece.text,))
        tree, names = tree_of(piece.text)
        call = _call_of(tree, "C")
        if call is not None and len(call.args) == 1 and not call.keywords:
            return TermFactor(piece.text, (name_of(call.args[0], names),), "levels")
        return TermFactor(piece.text, columns_in(piece.text), "arithmetic")

    def _number(self, factor: TermFactor) -> TermFactor:
        if factor.kind == "levels":
            raise self._wrong(f"{factor.text} stands where numbers are needed")
        return factor

    def _smooth(self, expression: str) -> SmoothTerm:
        tree, names = tree_of(expression)
        function = next((name for name in _SMOOTH if _call_of(tree, name)), "gp")
        call = _call_of(tree, function)
        if call is None or not call.args:
            raise self._wrong(f"{expression!r} names no column; write gp(x)")
        inputs = self._numbers(call.args, names)
        settings = self._settings(call, function, "kernel", "period", "by")
        kernel = None
        if "kernel" in settings:
            node = settings["kernel"]
            named = node.value if isinstance(node, ast.Constant) else name_of(node, names)
            kernel = str(named).lower().replace("_", "-")
        if kernel not in (None, *SMOOTH):
            raise self._wrong(f"kernel must be one of {', '.join(SMOOTH)}")
        if kernel == "globe" and (len(inputs) != 2 or function != "gp"):
            raise self._wrong("kernel=globe takes longitude and latitude of gp(...)")
        if len(set(inputs)) < len(inputs):
            raise self._wrong(f"{expression} names a column twice")
        period = self._period(settings["period"], kernel) if "period" in settings else None
        by = (name_of(settings["by"], names),) if "by" in settings else None
        return SmoothTerm(inputs, kernel, period, by, text=expression, function=function)

    def _times(
        self, term: list[_Piece], smooth: SmoothTerm, groups: Mapping[str, Any]
    ) -> SmoothTerm:
        """x:gp(...), a coefficient of numbers that varies as the process does."""
        others = [piece for piece in term if not piece.is_smooth]
        if any(piece.text in groups or piece.begins("offset(") for piece in others):
            raise self._wrong(_ADDED)
        factors = tuple(self._number(self._factor(piece)) for piece in others)
        return dataclasses.replace(smooth, times=factors)

    def _offset(self, expression: str) -> TermFactor:
        """The column, the number, or the arithmetic of columns of offset(...)."""
        tree, names = tree_of(expression)
        call = _call_of(tree, "offset")
        if call is None or len(call.args) != 1 or call.keywords:
            raise self._wrong("an offset is of one column, or arithmetic: offset(log(days))")
        node, text = call.args[0], _restored(ast.unparse(call.args[0]), names)
        is_arithmetic = not (isinstance(node, ast.Name) or _call_of(node, "C"))
        if is_arithmetic and not columns_in(text, at_least=0):
            return TermFactor(text, (), "arithmetic")
        return self._numbers([node], names)[0]

    def _period(self, node: ast.AST, kernel: str | None) -> float:
        value: Any = node.value if isinstance(node, ast.Constant) else None
        if type(value) not in (int, float) or not 0 < value < 1e300:
            raise self._wrong(f"a period must be a positive number, not {ast.unparse(node)}")
        if kernel != "periodic":
            raise self._wrong(f"kernel={kernel or 'rbf'} has no period; write kernel=periodic")
        return float(value)

    def _as_written(self, text: str) -> str:
        return _restored(text, self.quoted)

    def _wrong(self, why: str) -> InputError:
        shown = self.text if len(self.text) < 80 else f"{self.text[:77]}..."
        return InputError(f"the formula {shown!r} cannot be read: {why}")


def _call_of(tree: ast.AST, name: str) -> ast.Call | None:
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == name:
        return tree
    return None


def _restored(text: str, names: dict[str, str]) -> str:
    """The text with `quoted columns` where plain words stood for them."""
    if not names:
        return text
    return re.sub("|".join(map(re.escape, names)), lambda found: f"`{names[found[0]]}`", text)


def _most_terms(tree: Any) -> int:
    """At most so many terms come of formulaic's tree of operators; too many of a high power."""
    if not hasattr(tree, "args"):
        return 1
    nodes, counts = [tree], dict[int, int]()
    for node in nodes:
        nodes += [child for child in node.args if hasattr(child, "args")]
    for node in reversed(nodes):
        own = [counts.get(id(child), 1) for child in node.args]
        if node.operator.symbol in ("**", "^"):
            power = str(node.args[1])
            high = not power.isdigit() or len(power) > 2 or int(power) > _HIGHEST
            counts[id(node)] = _MOST_TERMS + 1 if high else max(2, own[0]) ** int(power)
        elif node.operator.symbol in ("~", "+", "-"):
            counts[id(node)] = sum(own)
        elif node.operator.symbol == ":":
            counts[id(node)] = math.prod(own)
        else:
            counts[id(node)] = functools.reduce(lambda a, b: a * (b + 1) + b, own, 0)
        if counts[id(node)] > _MOST_TERMS:
            return counts[id(node)]
    return counts[id(tree)]
