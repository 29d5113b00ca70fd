"""Arithmetic of columns in a formula: computed from a tree of Python's parser, never evaluated."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from latentgp.errors import InputError

FUNCTIONS = {
    "I": np.asarray,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "square": np.square,
}
OPERATORS = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "negative": np.negative,
    "positive": np.positive,
}
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.USub: "negative",
    ast.UAdd: "positive",
}
# Quoted columns, and words: some of them are no names in Python.
_WORD = re.compile(r"`([^`]+)`|(?<![\w.])([^\W\d][\w.]*)")
_OF_FORMULAS = "in"


def masked(text: str) -> tuple[str, dict[str, str]]:
    """The text with plain words in place of columns that Python cannot name, and which they are.

    These are quoted ones, and words such as body.weight, class and größe.

    Example:
        >>> masked("log(`body weight`) + class + q0")
        ('log(qq0_) + qq1_ + q0', {'qq0_': 'body weight', 'qq1_': 'class'})
    """
    mark = "q"
    while mark in text:
        mark += "q"
    names: dict[str, str] = {}

    def word(found: re.Match[str]) -> str:
        plain: str = found[2] or ""
        reserved = keyword.iskeyword(plain) and plain != _OF_FORMULAS
        if plain.isascii() and plain.isidentifier() and not reserved:
            return plain
        names[f"{mark}{len(names)}_"] = plain or str(found[1])
        return f"{mark}{len(names) - 1}_"

    return _WORD.sub(word, text), names


def tree_of(expression: str) -> tuple[ast.AST, dict[str, str]]:
    """The tree of an expression, and its quoted columns by their stand-ins; or InputError."""
    plain, names = masked(expression)
    try:
        return ast.parse(plain, mode="eval").body, names
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{expression!r} in the formula is no expression: correct it") from error


def name_of(node: ast.AST, names: dict[str, str]) -> str:
    """The column that a node names; InputError if it is no name."""
    if not isinstance(node, ast.Name):
        raise InputError(
            f"{ast.unparse(node)!r} in the formula must be the name of a column: in `backquotes` "
            "if it is no plain word"
        )
    return names.get(node.id, node.id)


def steps_of(expression: str) -> Any:
    """An expression as nested operations, of numbers, columns and `FUNCTIONS`; else InputError.

    Example:
        >>> steps_of("log(dose / 2)")
        ('log', ('/', ('column', 'dose'), 2.0))
    """
    tree, names = tree_of(expression)

    def of(node: ast.AST) -> Any:
        if isinstance(node, ast.Name):
            return "column", name_of(node, names)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # pyright: ignore
        if isinstance(node, ast.UnaryOp) and type(node.op) in _SYMBOLS:
            return _SYMBOLS[type(node.op)], of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _SYMBOLS:
            return _SYMBOLS[type(node.op)], of(node.left), of(node.right)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            function = ast.unparse(node.func)
            if function in FUNCTIONS:
                return function, of(node.args[0])
        raise InputError(
            f"{expression!r} in the formula is more than arithmetic: use + - * / **, "
            f"{', '.join(FUNCTIONS)}, C(column), offset(column), gp, s, te and ti of columns, "
            "(1 | group) and (1 | mm(a, b)); I(x**2) or s(x) in place of poly and bs"
        )

    try:
        return of(tree)
    except (RecursionError, OverflowError) as error:
        raise InputError(
            f"an expression in the formula is nested too deep or has too large a number: {error}"
        ) from error


def columns_in(expression: str, at_least: int = 1) -> tuple[str, ...]:
    """Columns that an expression of arithmetic is of; InputError of any other expression.

    Example:
        >>> columns_in("log(dose / `body weight`)")
        ('dose', 'body weight')
    """
    found: dict[str, Any] = {}
    value_of(steps_of(expression), lambda name: found.setdefault(name, np.ones(1)))
    if len(found) < at_least:
        raise InputError(f"{expression!r} in the formula has no column in it: name one")
    return tuple(found)


def value_of(steps: Any, column: Callable[..., Any]) -> Any:
    """Values of nested operations, where `column` gives the numbers of one by what names it."""
    if isinstance(steps, float):
        return np.float64(steps)
    name, *arguments = steps
    if name == "column":
        return column(*arguments)
    with np.errstate(all="ignore"):
        return {**OPERATORS, **FUNCTIONS}[name](*(value_of(own, column) for own in arguments))
