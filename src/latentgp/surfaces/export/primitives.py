"""Primitives of JAX as expressions of NumPy, one row of a table each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.lax import GatherScatterMode

Rule = Callable[..., str]  # of the equation and of the arguments' texts

IDENTITIES = {"optimization_barrier", "stop_gradient", "copy", "device_put"}

# Functions of one array that NumPy has by the same name, and of two arrays by its own names.
ANGLES = "sin cos tan sinh cosh tanh"
SAME = f"sign abs floor ceil sqrt cbrt exp exp2 expm1 log log1p real imag conj {ANGLES}"
OF_TWO = {
    **{"max": "maximum", "min": "minimum", "rem": "fmod", "pow": "power", "atan2": "arctan2"},
    **{"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"},
    **{"ge": "greater_equal", "lt_to": "less", "le_to": "less_equal", "nextafter": "nextafter"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
}
JOINING = {"max": "maximum", "min": "minimum", "prod": "multiply", "sum": "add"}
_TEMPLATES = {
    "add": "{0} + {1}",
    "add_any": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "rsqrt": "1 / np.sqrt({0})",
    "square": "{0} * {0}",
    "logistic": "stable_logistic({0})",
    "regularized_incomplete_beta": "betainc({0}, {1}, {2})",
    "igamma": "incomplete_gamma({0}, {1})[0]",
    "igammac": "incomplete_gamma({0}, {1})[1]",
    "complex": "{0} + 1j * {1}",
    "is_finite": "np.isfinite({0})",
    "not": "np.invert({0})",
    "cholesky": "cholesky({0})",
    "clamp": "np.clip({1}, {0}, {2})",
    **{name: f"np.{name}({{0}})" for name in SAME.split()},
    **{f"a{name}": f"np.arc{name}({{0}})" for name in ANGLES.split()},
    **{name: f"np.{own}({{0}}, {{1}})" for name, own in OF_TWO.items()},
    **{name: f"{name}({{0}})" for name in ("erf", "erfc", "erf_inv", "lgamma", "digamma")},
    **{name: f"{name}({{0}}, {{1}})" for name in ("polygamma", "zeta")},
}


def sizes(shape: Any) -> str:
    """A shape as a tuple; sizes may be expressions in the number of rows n."""
    return f"({''.join(f'{dimension}, ' for dimension in shape)})"


def numpy_type(dtype: Any) -> str:
    """A type of numbers by NumPy's name."""
    return f"np.{np.dtype(dtype).name}" if np.dtype(dtype) != bool else "bool"


def _out(equation: Any) -> Any:
    return equation.outvars[0].aval


def _in(equation: Any, place: int = 0) -> Any:
    return equation.invars[place].aval


def _bitcast(equation: Any, x: str) -> str:
    own = numpy_type(_in(equation).dtype)
    return f"np.asarray({x}, dtype={own}).view({numpy_type(_out(equation).dtype)})"


def _select(equation: Any, which: str, *cases: str) -> str:
    if _in(equation).dtype == bool:
        return f"np.where({which}, {cases[1]}, {cases[0]})"
    return f"np.choose({which}, [{', '.join(cases)}])"


def _reshape(equation: Any, x: str, *_: str) -> str:
    return f"np.reshape({x}, {sizes(_out(equation).shape)})"


def _reduced(function: str, typed: bool = False) -> Rule:
    def rule(equation: Any, x: str) -> str:
        more = f", dtype={numpy_type(_out(equation).dtype)}" if typed else ""
        return f"np.{function}({x}, axis={tuple(equation.params['axes'])}{more})"

    return rule


def _placed(function: str) -> Rule:
    kind = f"np.{function}({{0}}, axis={{1}}).astype({{2}})"
    return lambda e, x: kind.format(x, *e.params["axes"], numpy_type(_out(e).dtype))


def _cumulated(function: str) -> Rule:
    kind = f"cumulated(np.{function}, {{0}}, {{1[axis]}}, {{1[reverse]}})"
    return lambda e, x: kind.format(x, e.params)


def _broadcast(equation: Any, x: str, *_: str) -> str:
    shape, axes = _out(equation).shape, tuple(equation.params["broadcast_dimensions"])
    if not axes:
        return f"np.broadcast_to({x}, {sizes(shape)})"
    return f"spread_along({x}, {sizes(shape)}, {axes})"


def _iota(equation: Any, *_: str) -> str:
    out, axis = _out(equation), equation.params["dimension"]
    line = f"np.arange({out.shape[axis]}, dtype={numpy_type(out.dtype)})"
    return line if len(out.shape) == 1 else f"spread_along({line}, {sizes(out.shape)}, ({axis},))"


def _dot_general(equation: Any, a: str, b: str) -> str:
    contracted, batched = equation.params["dimension_numbers"]
    contracted, batched = (tuple(map(tuple, pair)) for pair in (contracted, batched))
    flat = _in(equation, 0).ndim == 2 and _in(equation, 1).ndim in (1, 2)
    if flat and not batched[0] and len(contracted[0]) == 1:
        left = a if contracted[0] == (1,) else f"np.transpose({a})"
        right = b if contracted[1] == (0,) else f"np.transpose({b})"
        return f"{left} @ {right}"
    return f"dot_general({a}, {b}, {contracted}, {batched})"


def _slice(equation: Any, x: str) -> str:
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or [1] * len(starts)
    cuts = zip(starts, limits, strides, _in(equation).shape, strict=True)
    parts = [
        ":" if (a, s) == (0, 1) and b is whole else f"{a}:{b}" + f":{s}" * (s != 1)
        for a, b, s, whole in cuts
    ]
    return f"np.asarray({x})[{', '.join(parts)}]"


def _joined(function: str, parts: tuple[str, ...], axis: int) -> str:
    return f"np.{function}([{', '.join(parts)}], axis={axis})"


def _split(equation: Any, x: str) -> str:
    ends = np.cumsum(equation.params["sizes"])[:-1].tolist()
    return f"np.split({x}, {ends}, axis={equation.params['axis']})"


def _pad(equation: Any, x: str, value: str) -> str:
    low, high, inner = zip(*equation.params["padding_config"], strict=True)
    return f"padded({x}, {value}, {sizes(low)}, {sizes(high)}, {sizes(inner)})"


def _qr(equation: Any, x: str) -> str:
    whole = "complete" if equation.params["full_matrices"] else "reduced"
    return f'np.linalg.qr({x}, mode="{whole}")'


def _sort(equation: Any, *arrays: str) -> str:
    axis, keys = equation.params["dimension"], equation.params["num_keys"]
    found = f"sorted_together([{', '.join(arrays)}], {axis}, {keys})"
    return found if len(arrays) > 1 else f"{found}[0]"


def window(equation: Any, start: np.ndarray) -> str:
    """Index of the one window that a gather at a known place takes."""
    numbers, shape = equation.params["dimension_numbers"], _in(equation).shape
    place = dict(zip(numbers.start_index_map, start.tolist(), strict=True))
    parts = []
    for d, wanted in enumerate(equation.params["slice_sizes"]):
        first = min(max(place.get(d, 0), 0), shape[d] - wanted) if wanted is not shape[d] else 0
        if d in numbers.collapsed_slice_dims:
            parts.append(str(first))
        else:
            parts.append(":" if wanted == shape[d] else f"{first}:{first + wanted}")
    return f"[{', '.join(parts)}]"


def _gather(equation: Any, x: str, indices: str) -> str:
    if indices.startswith("["):
        return f"np.asarray({x}){indices}"
    numbers, fill = equation.params["dimension_numbers"], equation.params["fill_value"]
    if equation.params["mode"] != GatherScatterMode.FILL_OR_DROP:
        fill = None
    elif fill is None:
        fill = _filled(_in(equation).dtype)
    text = "np.nan" if isinstance(fill, float) and np.isnan(fill) else repr(fill)
    batched = tuple(numbers.operand_batching_dims), tuple(numbers.start_indices_batching_dims)
    return (
        f"gather({x}, {indices}, {tuple(numbers.offset_dims)}, "
        f"{tuple(numbers.collapsed_slice_dims)}, {tuple(numbers.start_index_map)}, {batched}, "
        f"{sizes(equation.params['slice_sizes'])}, {text})"
    )


def _filled(dtype: Any) -> Any:
    """JAX's fill value for entries outside of an array."""
    if np.issubdtype(dtype, np.floating):
        return float("nan")
    if np.issubdtype(dtype, np.bool_):
        return True
    return np.iinfo(dtype).min or np.iinfo(dtype).max  # of unsigned ones the largest


def _scatter(combine: str | None) -> Rule:
    def rule(equation: Any, x: str, indices: str, updates: str) -> str:
        numbers = equation.params["dimension_numbers"]
        clip = equation.params["mode"] == GatherScatterMode.CLIP
        pair = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
        batched = tuple(map(tuple, pair))
        return (
            f"scatter({x}, {indices}, {updates}, {tuple(numbers.update_window_dims)}, "
            f"{tuple(numbers.inserted_window_dims)}, "
            f"{tuple(numbers.scatter_dims_to_operand_dims)}, {batched}, {clip}, {combine})"
        )

    return rule


def _triangular_solve(equation: Any, a: str, b: str) -> str:
    given = equation.params
    flags = (given[name] for name in ("left_side", "lower", "transpose_a", "unit_diagonal"))
    return f"triangular_solve({a}, {b}, {', '.join(map(str, flags))})"


def _round(equation: Any, x: str) -> str:
    if equation.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return f"np.round({x})"
    return f"np.copysign(np.floor(np.abs({x}) + 0.5), {x})"


def _shifted(function: str, unsigned: bool = False) -> Rule:
    def rule(equation: Any, x: str, by: str) -> str:
        own = numpy_type(_in(equation).dtype)
        if not unsigned:
            return f"np.{function}({x}, {by})"
        wide = own if own.startswith("np.u") else f"np.u{own.removeprefix('np.')}"
        return f"np.{function}(np.asarray({x}).astype({wide}), {by}).astype({own})"

    return rule


def _template(text: str) -> Rule:
    return lambda equation, *arguments: text.format(*arguments)


RULES: dict[str, Rule] = {
    **{name: _template(text) for name, text in _TEMPLATES.items()},
    "argmax": _placed("argmax"),
    "argmin": _placed("argmin"),
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda e, *parts: _joined("concatenate", parts, e.params["dimension"]),
    "div": lambda e, a, b: f"{a} / {b}" if _out(e).dtype.kind in "fc" else f"quotient({a}, {b})",
    "convert_element_type": (lambda e, x: f"np.asarray({x}).astype({numpy_type(_out(e).dtype)})"),
    "cumlogsumexp": _cumulated("logaddexp"),
    **{f"cum{name}": _cumulated(own) for name, own in JOINING.items()},
    "dim_as_value": lambda e, *_: str(e.params["dim"]),
    "dot_general": _dot_general,
    "dynamic_slice": (
        lambda e, x, *starts: (
            f"dynamic_slice({x}, [{', '.join(starts)}], {sizes(e.params['slice_sizes'])})"
        )
    ),
    "dynamic_update_slice": (
        lambda e, x, update, *starts: f"dynamic_update_slice({x}, {update}, [{', '.join(starts)}])"
    ),
    "expand_dims": _reshape,
    "gather": _gather,
    "integer_pow": (
        lambda e, x: f"{x} * {x}" if e.params["y"] == 2 else f"whole_power({x}, {e.params['y']})"
    ),
    "iota": _iota,
    "pad": _pad,
    "qr": _qr,
    "reduce_and": _reduced("all"),
    "reduce_or": _reduced("any"),
    **{f"reduce_{name}": _reduced(name, name in ("prod", "sum")) for name in JOINING},
    "reshape": _reshape,
    "rev": lambda e, x: f"np.flip({x}, {tuple(e.params['dimensions'])})",
    "round": _round,
    "scatter": _scatter(None),
    "scatter_add": _scatter("np.add"),
    "scatter_mul": _scatter("np.multiply"),
    **{f"scatter_{name}": _scatter(f"np.{JOINING[name]}") for name in ("max", "min")},
    "select_n": _select,
    "shift_left": _shifted("left_shift"),
    "shift_right_arithmetic": _shifted("right_shift"),
    "shift_right_logical": _shifted("right_shift", unsigned=True),
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": _reshape,
    "stack": lambda e, *parts: _joined("stack", parts, e.params.get("axis", 0)),
    "top_k": lambda e, x: f"largest({x}, {e.params['k']})",
    "transpose": lambda e, x: f"np.transpose({x}, {tuple(e.params['permutation'])})",
    "triangular_solve": _triangular_solve,
}
