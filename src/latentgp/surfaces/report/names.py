"""Hyper-parameters in words: what each measures, and the columns that it is about."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np

from latentgp.hyperparameters.base import ParameterInfo, SeesColumns, parameters
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import OwnKernels
from latentgp.surfaces.tables.model import TableModel

_NAMED = 2  # columns, of several that one hyper-parameter is about


def names_of(model: TableModel) -> dict[str, str]:
    """A name in words for every entry of the hyper-parameters, by path and place.

    Length-scales have the unit of their column, which its name holds where it is known.
    """
    fitted, columns = model.estimator.model_, model.encoder.feature_names
    found = {}
    for path, info in parameters(fitted).items():
        shape = np.shape(info.value)
        seen = _columns(info, fitted.of_inputs, len(columns))
        own = [columns[d] for d in seen if d < len(columns)] if fitted.depth == 1 else []
        each = info.role == "lengthscale" and shape == (len(own),)
        latent = "" if info.latent is None else f", latent function {info.latent + 1}"
        for place in np.ndindex(shape):
            label = path if not place else f"{path}[{', '.join(map(str, place))}]"
            names = [own[place[0]]] if each else own
            entry = "" if each or not place else f" {', '.join(str(p + 1) for p in place)}"
            found[label] = f"{_what(info)}{entry}{_of(info, names, len(columns))}{latent}"
    twice = [name for name in found.values() if list(found.values()).count(name) > 1]
    return {k: f"{name} ({k})" if name in twice else name for k, name in found.items()}


def _what(info: ParameterInfo) -> str:
    """Quantity that it measures."""
    first, last = info.path.split(".")[0], info.path.split(".")[-1]
    words = re.sub(r"\[.*?\]", "", last).replace("_", " ")
    if info.role == "lengthscale":
        return "length-scale"
    if first == "mean":
        return "prior mean" if words == "value" else f"prior mean's {words}"
    return words


def _of(info: ParameterInfo, names: list[str], inputs: int) -> str:
    """The columns that it is about."""
    if not info.path.startswith("kernel"):
        return ""
    if not names or (len(names) == inputs > 1):
        return " of all inputs" if info.role == "lengthscale" else " of f"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" of {', '.join(names[:_NAMED])}{more}"


def _columns(info: ParameterInfo, kernel: Any, inputs: int) -> list[int]:
    """Places of these columns: of a factor without any, those of the term that it is in."""
    if info.dimensions is not None:
        return list(info.dimensions)
    term = re.match(r"kernel\.parts\[(\d+)\]", info.path)
    if term is None or isinstance(kernel, OwnKernels):
        return list(range(inputs))

    def sees(node: Any) -> bool:
        return isinstance(node, SeesColumns)

    parts = parts_of(kernel)
    if int(term[1]) >= len(parts):
        return list(range(inputs))
    nodes = jax.tree.leaves(parts[int(term[1])], is_leaf=sees)
    own = sorted({d for node in nodes if sees(node) for d in node.dimensions})
    return own or list(range(inputs))
