"""Names of the package that scripts and examples of docstrings use are there."""

import ast
import builtins
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import latentgp as lgp

ROOT = Path(__file__).parents[2]
SOURCE = Path(lgp.__file__).parent
SCRIPTS = [
    path
    for folder in ("experiments", "benchmarks", "docs")
    for path in (ROOT / folder).rglob("*.py")
]
WITH_EXAMPLES = [path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text()]

pytestmark = pytest.mark.quick


def names_used(source):
    """Names that code imports from the package, or reads as attributes of `lgp`, dotted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("latentgp."):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from (name for name in names if name.startswith("latentgp."))
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "lgp":
            yield f"latentgp.{node.attr}"


def is_there(name):
    package, _, own = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(package), own) or find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def missing(source):
    return sorted({name for name in names_used(source) if not is_there(name)})


def test_a_missing_name_is_found():
    source = "import latentgp.nowhere, numpy\nfrom latentgp import RBF, nothing\nlgp.RBF\nlgp.none"
    assert missing(source) == ["latentgp.none", "latentgp.nothing", "latentgp.nowhere"]


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
