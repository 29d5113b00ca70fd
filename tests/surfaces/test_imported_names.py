"""Names of the package that scripts and examples of docstrings use are there."""

import ast
import builtins
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import latentgp as lgp
from latentgp.diagnostics import Diagnostics
from latentgp.extensions.chains.diagnostics import ChainDiagnostics

ROOT = Path(__file__).parents[2]
SOURCE = Path(lgp.__file__).parent
SCRIPTS = [
    path
    for folder in ("experiments", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if ".environments" not in path.parts
]
WITH_EXAMPLES = [path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text()]

pytestmark = pytest.mark.quick


def names_used(source):
    """Names that code imports from the package, or reads from it, its modules or diagnostics."""
    nodes, modules = list(ast.walk(ast.parse(source))), {"lgp": "latentgp"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("latentgp."):
            imported = {f"{node.module}.{a.name}": a.asname or a.name for a in node.names}
            yield from imported
            modules |= {own: name for name, own in imported.items() if is_module(name)}
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (name for name in names if name.startswith("latentgp."))
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            of = getattr(node.value, "id", None), getattr(node.value, "attr", None)
            if "diagnostics" in of:
                yield f"latentgp.diagnostics.Diagnostics.{node.attr}"
            elif of[0] in modules:
                yield f"{modules[of[0]]}.{node.attr}"


def is_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def is_there(name):
    package, _, own = name.rpartition(".")
    if package == "latentgp.diagnostics.Diagnostics":
        kinds = Diagnostics, ChainDiagnostics
        return any(hasattr(kind, own) or own in kind.__dataclass_fields__ for kind in kinds)
    try:
        return hasattr(importlib.import_module(package), own) or find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def missing(source):
    return sorted({name for name in names_used(source) if not is_there(name)})


def test_a_missing_name_is_found():
    source = "import latentgp.nowhere, numpy\nfrom latentgp import RBF, nothing\nlgp.RBF\nlgp.none"
    assert missing(source) == ["latentgp.none", "latentgp.nothing", "latentgp.nowhere"]
    source = (
        "from latentgp import runs as own\nown._gone\nfit.diagnostics.gone, fit.diagnostics.notes"
    )
    assert missing(source) == ["latentgp.diagnostics.Diagnostics.gone", "latentgp.runs._gone"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_a_script_are_there(path):
    assert missing(path.read_text()) == []


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_of_examples_are_there(path):
    lines = (line.strip() for line in path.read_text().splitlines())
    code = "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
    assert missing(code) == []
    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    known = vars(importlib.import_module(module.removesuffix(".__init__"))).keys() | vars(builtins)
    assert unbound(code) - known == set()


def unbound(code):
    """Names that code reads, and neither binds nor imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    imported = (a for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names)
    bound |= {alias.asname or alias.name.partition(".")[0] for alias in imported}
    return {node.id for node in names} - bound
