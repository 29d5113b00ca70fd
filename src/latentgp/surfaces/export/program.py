"""The exported file: programs, constants, test rows and what runs them, as one text."""

from __future__ import annotations

import ast
import base64
import io
import json
from importlib import resources
from typing import Any

import numpy as np

from latentgp._version import __version__
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.export.trace import TracedPredictions
from latentgp.surfaces.export.writer import Constants, needed_helpers, program

_COPIED = "# Copied from here.\n"
_IMPORTS = """
from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
import re
import statistics
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
"""
# What the reading of tables takes over from the library as it is there.
_TAKEN = {
    "latentgp.surfaces.files.csv": (
        *("MISSING_MARKERS", "GAPS_AMONG_NUMBERS", "CODE", "KEPT_AS_TEXT"),
        *("Header", "header_of", "_fields"),
    ),
    "latentgp.surfaces.tables.levels": (
        *("GAP", "TRUTH", "as_levels", "filled", "indicators", "series_numbers", "level_numbers"),
        *("refuse_others", "refuse_infinite", "_tell_gaps", "rows_listed", "listed"),
    ),
    "latentgp.surfaces.tables.formula.arithmetic": ("FUNCTIONS", "OPERATORS", "value_of"),
    "latentgp.surfaces.tables.values": (
        *("text_of", "label_of", "parts_of_label", "parts_of_labels", "combined"),
    ),
    "latentgp.surfaces.tables.notation": (
        *("_SYMBOLS", "_CURRENCIES", "_UNIT", "_LETTERS", "_BLANK", "NumberNotation"),
        *("_Number", "_number_pattern", "_NUMBERS", "_read_number"),
        *("_NAME", "_YEAR", "_SHORT", "_DAY", "_CLOCK", "_IN_DIGITS"),
        *("_DATES", "_EITHER_WAY", "_MONTHS"),
        *("_YEARS", "DateNotation", "iso_of", "_iso"),
        *("_DURATION", "_ISO_DURATION", "_SECONDS", "DurationNotation", "seconds_of"),
    ),
}
_ENDING = """
def arrays_in(text):
    \"\"\"Arrays that were written as text.\"\"\"
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


globals().update(arrays_in(CONSTANTS))
TESTS = arrays_in(TEST_ROWS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
_MAIN = '''
def main(arguments):
    """`--self-test` compares with the library; predictions of arrays are made by `predict`."""
    if arguments == ["--self-test"]:
        return self_test()
    print(f"usage: {sys.argv[0]} --self-test", file=sys.stderr)
    return 2
'''


@double_precision
def file_text(
    traced: TracedPredictions,
    about: dict[str, Any],
    tests: dict[str, np.ndarray],
    *,
    of_tables: bool,
) -> str:
    """Text of a file that predicts with NumPy alone; `about` is of JSON's types."""
    constants = Constants()
    programs, names = _programs(traced, constants)
    arrays = constants.used_by(programs)
    taken = [_taken(module, set(names)) for module, names in _TAKEN.items()] if of_tables else []
    more = _copied("tables") if of_tables else _MAIN
    pairs = "".join(f'    "{name}": {own},\n' for name, own in names.items())
    used = needed_helpers(programs)
    blocks = [
        _heading(about, of_tables),
        _IMPORTS.strip(),
        f"ABOUT = json.loads(\n{_quoted(json.dumps(about, indent=1))}\n)",
        *map(str.strip, (_copied("predictor"), *taken, more)),
        f"# Operations of the programs below.\n\n\n{used}" if used else "",
        f"# The model's predictions, as JAX computes them.\n\n\n{programs}",
        f"PROGRAMS = {{\n{pairs}}}",
        f"CONSTANTS = {_encoded(arrays)}",
        f"TEST_ROWS = {_encoded(tests)}",
        _ENDING.strip(),
    ]
    return "\n\n\n".join(block for block in blocks if block) + "\n"


def _programs(traced: TracedPredictions, constants: Constants) -> tuple[str, dict[str, str]]:
    """Source of all programs, and the function of each; equal ones are written once."""
    own: dict[str, str] = {}  # names of functions by what follows these
    names: dict[str, str] = {}
    for name, closed in traced.programs.items():
        text = program("", closed, traced.arguments[name], constants).removeprefix("def ")
        names[name] = own.setdefault(text, f"program_{len(own)}")
    return "\n\n\n".join(f"def {name}{text}" for text, name in own.items()), names


def _heading(about: dict[str, Any], of_tables: bool) -> str:
    use = (
        "    python FILE rows.csv > predictions.csv\n"
        '    predict_table({"column": [...], ...})   # or from Python: a dict of columns\n'
        if of_tables
        else "    predict(X)   # from Python, of an array of shape (N, D); see its docstring\n"
    )
    return (
        f'"""Predictor exported by latentgp {__version__}: needs Python 3.10 and NumPy alone.\n\n'
        f"{use}    python FILE --self-test   # compares with the library's own predictions\n"
        '"""'
    )


def _copied(module: str) -> str:
    """Text of a module of the runtime, from its mark on."""
    text = resources.files("latentgp.surfaces.export.runtime").joinpath(f"{module}.py").read_text()
    lines = text.partition(_COPIED)[2].splitlines()
    return "\n".join(line.partition("  # noqa")[0] for line in lines).strip()


def _taken(module: str, names: set[str]) -> str:
    """Definitions of some names in a module, in their order."""
    room, _, file = module.rpartition(".")
    text = resources.files(room).joinpath(f"{file}.py").read_text()
    lines, found = text.splitlines(), []
    for node in ast.parse(text).body:
        own = {getattr(node, "name", None)}
        if isinstance(node, ast.Assign):
            own = {getattr(target, "id", None) for target in node.targets}
        if own & names:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(d.lineno for d in decorators)])
            own_lines = lines[first - 1 : node.end_lineno]
            # A predictor reads no stored files.
            found.append("\n".join(line for line in own_lines if line != "@stored"))
            names = names - own
    if names:
        raise LookupError(f"{module} does not define {sorted(names)}")
    return "\n\n\n".join(found)


def _quoted(text: str) -> str:
    """A text as literals, a line each: whatever it holds, it is data."""
    return "\n".join(f"    {line + chr(10)!r}" for line in text.splitlines())


def _encoded(arrays: dict[str, np.ndarray]) -> str:
    """Arrays as a literal: NumPy's compressed archive in base64."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    text = base64.b64encode(file.getvalue()).decode()
    return '"""\n' + "\n".join(text[i : i + 100] for i in range(0, len(text), 100)) + '\n"""'
