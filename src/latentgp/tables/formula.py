"""Formulas such as y ~ x1 + gp(x2, x3) + (1 | clinic): parsed, and never evaluated as Python."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.inference.setup.additive import SMOOTH

_LONGEST = 2_000
_GROUP = "_group_{}_"
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "I": np.asarray,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "square": np.square,
}


@dataclass(frozen=True)
class SmoothTerm:
    """A term gp(x1, x2, kernel=matern52, by=group)."""

    columns: tuple[str, ...]
    kernel: str = "rbf"
    period: float | None = None
    by: str | None = None


@dataclass(frozen=True)
class GroupTerm:
    """A term (1 + x | group), or (1 + x || group) without correlation."""

    column: str
    slopes: tuple[str, ...]
    intercept: bool
    correlated: bool


@dataclass(frozen=True)
class Formula:
    """A formula, read.

    Attributes:
        target: the column on the left.
        fixed: terms with fixed effects, each the factors that it multiplies; of none, ones.
        smooth: Gaussian processes.
        groups: effects of groups.
    """

    target: str
    fixed: tuple[tuple[str, ...], ...]
    smooth: tuple[SmoothTerm, ...]
    groups: tuple[GroupTerm, ...]


def parse(text: str) -> Formula:
    """Read a formula: operators by formulaic (Wilkinson & Rogers 1973), gp(...) and groups here.

    Raises:
        InputError: no formula, or one with something else in it.

    Example:
        >>> read = parse("y ~ age * dose + gp(east, north) + (1 | clinic)")
        >>> read.fixed
        ((), ('age',), ('dose',), ('age', 'dose'))
        >>> read.smooth[0].columns, read.groups[0].column
        (('east', 'north'), 'clinic')
    """
    if len(text) > _LONGEST:
        raise InputError(f"the formula has {len(text)} characters: write at most {_LONGEST}")
    rest, groups = _without_groups(text)
    left, right = _terms(rest, text)
    if len(left) != 1 or len(left[0]) != 1 or not left[0][0][1]:
        raise _wrong(text, "the left side must be one column; transform a target by its likelihood")
    fixed: list[tuple[str, ...]] = []
    smooth: list[SmoothTerm] = []
    kept: list[GroupTerm] = []
    for term in right:
        names = [expression for expression, _ in term]
        if names == ["1"]:
            fixed.append(())
        elif len(names) == 1 and names[0] in groups:
            kept.append(groups[names[0]])
        elif len(names) == 1 and names[0].startswith("gp("):
            smooth.append(_smooth(names[0], text))
        elif any(name in groups or name.startswith("gp(") for name in names):
            raise _wrong(text, "gp(...) and groups are added, not multiplied; gp has by=group")
        else:
            for expression, is_column in term:
                if not (is_column or categorical(expression)):
                    columns_in(expression)  # refuses what is no arithmetic
            fixed.append(tuple(names))
    if len(kept) < len(groups):
        raise _wrong(text, "groups can be added alone")
    return Formula(left[0][0][0], tuple(fixed), tuple(smooth), tuple(kept))


def columns_in(expression: str) -> tuple[str, ...]:
    """Columns that an expression of arithmetic is of.

    Raises:
        InputError: it is none.

    Example:
        >>> columns_in("log(dose / `body weight`)")
        ('dose', 'body weight')
    """
    tree, names = _tree(expression)
    found: dict[str, None] = {}

    def note(name: str) -> float:
        found[name] = None
        return 1.0

    _value(tree, names, note, expression)
    if not found:
        raise InputError(f"{expression!r} in the formula has no column in it: name one")
    return tuple(found)


def value_of(expression: str, column: Callable[[str], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Values of an expression of arithmetic.

    Args:
        expression: such as "log(dose) ** 2".
        column: gives the numbers of a column.
    """
    tree, names = _tree(expression)
    with np.errstate(all="ignore"):
        return np.asarray(_value(tree, names, column, expression), np.float64)


def categorical(expression: str) -> str | None:
    """The column whose numbers C(column) takes as categories; None for another expression."""
    if not expression.startswith("C("):
        return None
    tree, names = _tree(expression)
    if isinstance(tree, ast.Call) and len(tree.args) == 1 and not tree.keywords:
        return _name(tree.args[0], names)
    return None


def _without_groups(text: str) -> tuple[str, dict[str, GroupTerm]]:
    """The formula with a name in place of every (... | group), and these."""
    groups: dict[str, GroupTerm] = {}
    kept, start, bar = [], 0, None
    opened: list[int] = []
    quoted = False
    for place, letter in enumerate(text):
        quoted = quoted != (letter == "`")
        if quoted or letter == "`":
            continue
        if letter == "(":
            opened.append(place)
        elif letter == "|" and bar is None:
            if not opened:
                raise _wrong(text, "groups stand in brackets, such as (1 | clinic)")
            bar = (opened[-1], place)
        elif letter == ")" and opened:
            first = opened.pop()
            if bar is not None and bar[0] == first:
                name = _GROUP.format(len(groups))
                groups[name] = _group(text[first + 1 : place], bar[1] - first - 1, text)
                kept += [text[start:first], name]
                start, bar = place + 1, None
    return "".join([*kept, text[start:]]), groups


def _group(inside: str, bar: int, text: str) -> GroupTerm:
    before, after = inside[:bar], inside[bar + 1 :]
    correlated = not after.startswith("|")
    column = after.removeprefix("|").strip()
    quoted = re.fullmatch(r"`([^`]+)`", column)
    if quoted is None and not column.isidentifier():
        raise _wrong(text, f"the group must be one column, not {column!r}")
    slopes: list[str] = []
    intercept = False
    for term in _terms(f"{before} ", text)[1]:
        if len(term) != 1 or not (term[0][1] or term[0][0] == "1"):
            raise _wrong(text, f"before | stand columns and 1, not {before.strip()!r}")
        if term[0][0] == "1":
            intercept = True
        else:
            slopes.append(term[0][0])
    if not (slopes or intercept):
        raise _wrong(text, f"nothing stands before | {column}; write (1 | {column})")
    name = column if quoted is None else quoted[1]
    return GroupTerm(name, tuple(slopes), intercept, correlated)


_Term = list[tuple[str, bool]]  # expressions, and whether each is the name of a column


def _terms(formula: str, text: str) -> tuple[list[_Term], list[_Term]]:
    """Terms left and right of the tilde, by formulaic's parser."""
    import formulaic

    parser: Any = formulaic.Formula
    try:
        parsed = parser(formula)
        sides = [getattr(parsed, side, ()) for side in ("lhs", "rhs")]
        if not hasattr(parsed, "rhs"):
            sides = [(), parsed]
        found = [
            [[(f.expr, f.eval_method.value == "lookup") for f in term.factors] for term in side]
            for side in sides
        ]
    # Whatever a parser makes of arbitrary text is an error of the formula.
    except Exception as error:
        said = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
        why = said[0].rstrip(".") if said else type(error).__name__
        if "`.` operator" in why:
            why = "name the columns in place of a full stop"
        raise _wrong(text, why) from error
    return found[0], found[1]


def _smooth(expression: str, text: str) -> SmoothTerm:
    tree, names = _tree(expression)
    if not (isinstance(tree, ast.Call) and tree.args):
        raise _wrong(text, f"{expression!r} names no column; write gp(x)")
    columns = tuple(_name(argument, names) for argument in tree.args)
    settings: dict[str, Any] = {}
    for keyword in tree.keywords:
        value = keyword.value
        if keyword.arg == "period" and isinstance(value, ast.Constant):
            settings["period"] = value.value
        elif keyword.arg == "kernel":
            given = value.value if isinstance(value, ast.Constant) else _name(value, names)
            settings["kernel"] = str(given).lower().replace("_", "-")
        elif keyword.arg == "by":
            settings["by"] = _name(value, names)
        else:
            raise _wrong(text, "gp(...) has the settings kernel, period and by")
    period = settings.get("period", 1.0)
    if isinstance(period, bool) or not isinstance(period, int | float) or not period > 0:
        raise _wrong(text, f"a period must be a positive number, not {period!r}")
    if settings.get("kernel", "rbf") not in SMOOTH:
        raise _wrong(text, f"kernel must be one of {', '.join(SMOOTH)}")
    if settings.get("kernel") == "globe" and len(columns) != 2:
        raise _wrong(text, "kernel=globe takes longitude and latitude")
    if len(set(columns)) < len(columns):
        raise _wrong(text, f"{expression} names a column twice")
    return SmoothTerm(columns, **settings)


def _tree(expression: str) -> tuple[ast.AST, dict[str, str]]:
    """The expression as a tree, and the columns that were quoted by what stands for them."""
    names: dict[str, str] = {}

    def masked(found: re.Match[str]) -> str:
        names[f"_column_{len(names)}_"] = found[1]
        return f"_column_{len(names) - 1}_"

    plain = re.sub(r"`([^`]+)`", masked, expression)
    try:
        return ast.parse(plain, mode="eval").body, names
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{expression!r} in the formula is no expression: correct it") from error


def _name(node: ast.AST, names: dict[str, str]) -> str:
    if not isinstance(node, ast.Name):
        raise InputError(
            f"{ast.unparse(node)!r} in the formula must be the name of a column: in `backquotes` "
            "if it is no plain word"
        )
    return names.get(node.id, node.id)


def _value(
    node: ast.AST, names: dict[str, str], column: Callable[[str], Any], expression: str
) -> Any:
    """Arithmetic alone: numbers, columns, + - * / **, and `FUNCTIONS`."""

    def of(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return column(_name(node, names))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return np.float64(node.value)  # pyright: ignore
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = FUNCTIONS.get(node.func.id)
            if function is not None and len(node.args) == 1 and not node.keywords:
                return function(of(node.args[0]))
        raise InputError(
            f"{expression!r} in the formula is more than arithmetic: use + - * / **, "
            f"{', '.join(FUNCTIONS)}, C(column) and gp(columns)"
        )

    with np.errstate(all="ignore"):
        return of(node)


def _wrong(text: str, why: str) -> InputError:
    shown = text if len(text) < 80 else f"{text[:77]}..."
    return InputError(f"the formula {shown!r} cannot be read: {why}")
