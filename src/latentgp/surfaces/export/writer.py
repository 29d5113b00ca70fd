"""Writer of a traced function as NumPy source: what does not depend on the rows is worked out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import resources
from itertools import count
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters.partial_eval import dce_jaxpr

from latentgp.errors import InputError
from latentgp.surfaces.export.primitives import IDENTITIES, RULES, numpy_type, sizes, window

_WORD = re.compile(r"[A-Za-z_]\w*")
_INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")  # of a call, its function
_CALLS = {
    *("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_vmap_call"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"),
}


class ConstantValue(NamedTuple):
    """A value that no row changes."""

    array: Any


class NamedValue(NamedTuple):
    """A value that is computed where the file is used, by its variable there."""

    name: str


Value = ConstantValue | NamedValue


class Statement(NamedTuple):
    """Lines that give variables their values."""

    targets: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def words(self) -> set[str]:
        """Every name in it."""
        return set(_WORD.findall("\n".join(self.lines)))


class Constants:
    """Arrays that programs of a file share, each once."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def name(self, array: np.ndarray) -> str:
        """Name of an array, new if it is."""
        content = array.shape, str(array.dtype), array.tobytes()
        name = self._names.setdefault(content, f"K{len(self._names)}")
        self.arrays[name] = array
        return name

    def used_by(self, text: str) -> dict[str, np.ndarray]:
        """Those whose names are in a text."""
        words = set(_WORD.findall(text))
        return {name: array for name, array in self.arrays.items() if name in words}


class Writer:
    """Statements of one block: of a function or of the body of a loop."""

    def __init__(self, constants: Constants, counter: Any = None):
        self.constants = constants
        self.counter = count() if counter is None else counter
        self.statements: list[Statement] = []

    def nested(self) -> Writer:
        """Writer of a block inside this one."""
        return Writer(self.constants, self.counter)

    def new(self, number: int, letter: str = "v") -> tuple[str, ...]:
        """Names that nothing else has."""
        return tuple(f"{letter}{next(self.counter)}" for _ in range(number))

    def text(self, value: Value) -> str:
        """A value as an expression."""
        if isinstance(value, NamedValue):
            return value.name
        if _is_key(value.array):
            raise InputError(
                "The prediction draws random numbers whose law depends on the inputs, which has no "
                "form in NumPy here; leave the quantiles out by quantiles=False, or use "
                'formats=("stablehlo",).'
            )
        array = np.asarray(value.array)
        if array.size and (array == array.flat[0]).all():
            scalar = _scalar(array.flat[0])
            return scalar if array.ndim == 0 else f"np.broadcast_to({scalar}, {array.shape})"
        return self.constants.name(array)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Value]) -> list[Value]:
        """Write the equations; what they give."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {var: ConstantValue(a) for var, a in zip(jaxpr.constvars, consts, strict=True)}

        def read(var: Any) -> Value:
            return ConstantValue(np.asarray(var.val)) if isinstance(var, Literal) else known[var]

        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(var) for var in equation.invars])
            known |= dict(zip(equation.outvars, found, strict=True))
        return [read(var) for var in jaxpr.outvars]

    def _equation(self, equation: Any, values: list[Value]) -> list[Value]:
        name = equation.primitive.name.replace("-", "_")
        if name in _CALLS:
            inner = next(equation.params[key] for key in _INLINED if key in equation.params)
            closed = isinstance(inner, ClosedJaxpr)
            jaxpr, consts = (inner.jaxpr, inner.consts) if closed else (inner, ())
            return self.run(jaxpr, consts, values)
        if name == "platform_index":
            platforms = enumerate(equation.params["platforms"])
            own = next(i for i, names in platforms if names is None or "cpu" in names)
            return [ConstantValue(np.int32(own))]
        if name == "cond" and isinstance(values[0], ConstantValue):
            branches = equation.params["branches"]
            chosen = branches[int(np.clip(values[0].array, 0, len(branches) - 1))]
            return self.run(chosen.jaxpr, chosen.consts, values[1:])
        shapes = (size for var in equation.outvars for size in var.aval.shape)
        if all(isinstance(size, int) for size in shapes) and all(
            isinstance(value, ConstantValue) for value in values
        ):
            return [ConstantValue(a) for a in _worked_out(equation, [v.array for v in values])]  # pyright: ignore[reportAttributeAccessIssue]
        if name in IDENTITIES or _changes_nothing(equation):
            return values
        if name in LOOPS:
            return LOOPS[name](self, equation, values)
        if name == "gather" and isinstance(values[1], ConstantValue) and values[1].array.ndim == 1:
            values[1:] = [NamedValue(window(equation, values[1].array))]
        if name not in RULES:
            raise InputError(
                f"The prediction needs JAX's primitive {name!r}, which has no form in NumPy here; "
                'use formats=("stablehlo",), which has all of them.'
            )
        expression = RULES[name](equation, *map(self.text, values))
        targets = self.new(len(equation.outvars))
        self.add(targets, f"{', '.join(targets)} = {expression}")
        return [NamedValue(target) for target in targets]

    def add(self, targets: Iterable[str], *lines: str) -> None:
        """Append a statement."""
        self.statements.append(Statement(tuple(targets), lines))

    def lines(self, *last: str) -> list[str]:
        """The lines that the last ones need, and these."""
        needed, kept = set(_WORD.findall("\n".join(last))), list(last)
        for statement in reversed(self.statements):
            if needed.intersection(statement.targets):
                needed |= statement.words
                kept[:0] = statement.lines
        return kept


def program(name: str, closed: ClosedJaxpr, arguments: Sequence[str], constants: Constants) -> str:
    """Source of a function of arrays that share their first axis, whose size is n."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)  # pyright: ignore[reportArgumentType]
    writer = Writer(constants)
    found = writer.run(jaxpr, closed.consts, [NamedValue(argument) for argument in arguments])  # pyright: ignore[reportArgumentType]
    body = writer.lines(f"return [{', '.join(map(writer.text, found))}]")
    header = [f"def {name}({', '.join(arguments)}):", f"    n = len({arguments[0]})"]
    return "\n".join([*header, *_indented(body)])


@cache
def helpers() -> dict[str, str]:
    """Functions that programs may call, by name, as source."""
    found = {}
    for module in ("arrays", "special"):
        folder = resources.files("latentgp.surfaces.export.runtime")
        text = folder.joinpath(f"{module}.py").read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                source = ast.get_source_segment(text, node) or ""
                found[node.name] = source.replace("  # noqa: B905", "")
    return found


def needed_helpers(text: str) -> str:
    """Source of the functions that a text calls, and of those that these call."""
    known, needed, words = helpers(), set(), _WORD.findall(text)
    while words:
        new = {word for word in words if word in known} - needed
        needed |= new
        words = [word for name in new for word in _WORD.findall(known[name])]
    return "\n\n\n".join(source for name, source in known.items() if name in needed)


@cache
def _namespace() -> dict[str, Any]:
    from latentgp.surfaces.export.runtime import arrays, special

    return {**vars(special), **vars(arrays), "np": np}


def _worked_out(equation: Any, values: list[Any]) -> list[Any]:
    """Outputs of an equation whose inputs are known, by NumPy where it can."""
    rule = RULES.get(equation.primitive.name.replace("-", "_"))
    if rule is None or not all(isinstance(value, np.ndarray | np.generic) for value in values):
        values = [jax.numpy.asarray(value) for value in values]
        given = equation.primitive.get_bind_params(equation.params)
        found = equation.primitive.bind(*values, **given)
        found = found if equation.primitive.multiple_results else [found]
        return [a if _is_key(a) else np.asarray(a) for a in found]
    names = [f"a{i}" for i in range(len(values))]
    with np.errstate(all="ignore"):
        known = dict(zip(names, values, strict=True))
        found = eval(rule(equation, *names), {**_namespace(), **known})
    found = found if equation.primitive.multiple_results else [found]
    pairs = zip(found, equation.outvars, strict=True)
    return [np.asarray(a, dtype=var.aval.dtype) for a, var in pairs]


def _scan(writer: Writer, equation: Any, values: list[Value]) -> list[Value]:
    given, body = equation.params, writer.nested()
    closed, consts, carried = given["jaxpr"], given["num_consts"], given["num_carry"]
    (index,) = writer.new(1, "i")
    carry, rows = (writer.new(carried, "c"), writer.new(len(values) - consts - carried, "x"))
    kept = writer.new(len(closed.jaxpr.outvars) - carried, "y")
    named = [NamedValue(name) for name in (*carry, *rows)]
    for name, whole in zip(rows, values[consts + carried :], strict=True):
        body.add([name], f"{name} = {writer.text(whole)}[{index}]")
    found = body.run(closed.jaxpr, closed.consts, [*values[:consts], *named])
    texts = list(map(body.text, found))
    pairs = zip(kept, texts[carried:], strict=True)
    last = [*(f"{name}.append({text})" for name, text in pairs), *_moved(carry, texts[:carried])]
    order = f"range({given['length']})"
    lines = [
        *_moved(carry, list(map(writer.text, values[consts : consts + carried]))),
        *(f"{name} = []" for name in kept),
        f"for {index} in {f'reversed({order})' if given['reverse'] else order}:",
        *_indented(body.lines(*last) or ["pass"]),
    ]
    turned = "[::-1]" if given["reverse"] else ""
    for name, var in zip(kept, equation.outvars[carried:], strict=True):
        shape, kind = sizes(var.aval.shape), numpy_type(var.aval.dtype)
        lines.append(f"{name} = np.array({name}{turned}, dtype={kind}).reshape({shape})")
    writer.add((*carry, *kept), *lines)
    return [NamedValue(name) for name in (*carry, *kept)]


def _while(writer: Writer, equation: Any, values: list[Value]) -> list[Value]:
    given = equation.params
    of_cond, of_body = given["cond_nconsts"], given["body_nconsts"]
    carry = writer.new(len(values) - of_cond - of_body, "c")
    named = [NamedValue(name) for name in carry]
    asking, body = writer.nested(), writer.nested()
    cond, loop = given["cond_jaxpr"], given["body_jaxpr"]
    (goes_on,) = asking.run(cond.jaxpr, cond.consts, [*values[:of_cond], *named])
    consts = values[of_cond : of_cond + of_body]
    found = body.run(loop.jaxpr, loop.consts, [*consts, *named])
    asked, last = asking.text(goes_on), _moved(carry, list(map(body.text, found)))
    ask = [f"if not {asked}:", "    break"]
    (several,) = cond.out_avals
    if several.shape:  # loops side by side, each with its own end
        (open_,) = writer.new(1, "w")
        ask = [f"{open_} = {asked}", f"if not np.any({open_}):", "    break"]
        triples = zip(carry, map(body.text, found), equation.outvars, strict=True)
        texts = [
            f"np.where({open_}[(...,) + (None,) * {var.aval.ndim - several.ndim}], {text}, {name})"
            for name, text, var in triples
        ]
        last = _moved(carry, texts)
    lines = [
        *_moved(carry, list(map(writer.text, values[of_cond + of_body :]))),
        "while True:",
        *_indented(asking.lines(*ask)),
        *_indented(body.lines(*last)),
    ]
    writer.add(carry, *lines)
    return list(named)


def _cond(writer: Writer, equation: Any, values: list[Value]) -> list[Value]:
    targets = writer.new(len(equation.outvars))
    lines = []
    for place, branch in enumerate(equation.params["branches"]):
        body = writer.nested()
        found = body.run(branch.jaxpr, branch.consts, values[1:])
        own = body.lines(*_moved(targets, list(map(body.text, found))))
        lines += [f"{'elif' if place else 'if'} {writer.text(values[0])} == {place}:"]
        lines += _indented(own or ["pass"])
    writer.add(targets, *lines)
    return [NamedValue(target) for target in targets]


Loop = Callable[[Writer, Any, list[Value]], list[Value]]
LOOPS: dict[str, Loop] = {"scan": _scan, "while": _while, "cond": _cond}


def _moved(targets: Sequence[str], texts: Sequence[str]) -> list[str]:
    return [f"{', '.join(targets)} = {', '.join(texts)}"] if targets else []


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _scalar(value: Any) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(bool(value))
    if isinstance(value, np.unsignedinteger):
        return f"np.{value.dtype.name}({int(value)})"
    if isinstance(value, np.integer):
        return f"({int(value)})" if value < 0 else str(int(value))
    if isinstance(value, np.complexfloating):
        return f"complex({_scalar(value.real)}, {_scalar(value.imag)})"
    if not np.isfinite(value):
        return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "(-np.inf)"
    return f"({float(value)!r})" if np.signbit(value) else repr(float(value))


def _changes_nothing(equation: Any) -> bool:
    """Whether an array only gets the shape that it has."""
    name, shapes = equation.primitive.name, [v.aval.shape for v in equation.invars[:1]]
    return (
        name in ("reshape", "squeeze", "broadcast_in_dim", "transpose", "convert_element_type")
        and shapes == [equation.outvars[0].aval.shape]
        and equation.invars[0].aval.dtype == equation.outvars[0].aval.dtype
        and list(equation.params.get("permutation", ())) in ([], [*range(len(shapes[0]))])
    )


def _is_key(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key)
