"""Shapes are written in the glossary's letters, one an axis; other axes are words."""

import ast
import re
from pathlib import Path

import pytest

import latentgp as lgp
from without import GONE

pytestmark = pytest.mark.quick

ROOT = Path(lgp.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs/glossary.md"
LETTER = re.compile(r"\b[A-Za-z]\d*\b")


def letters_of_the_glossary():
    """The first column of its table of axes."""
    table = GLOSSARY.read_text().split("## Axes")[1].split("\n## ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return {letter for cell in first for letter in LETTER.findall(cell)}


def letters_in(source):
    """Those of annotations, Float[Array, "N Q"], and of shapes in docstrings, shape (N, Q)."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(slice=ast.Tuple(elts=[ast.expr(), ast.Constant(value=str(shape))])):
                found |= set(LETTER.findall(shape))
            case ast.Module() | ast.ClassDef() | ast.FunctionDef():
                for shape in re.findall(r"\bshape \(([^()]*)\)", ast.get_docstring(node) or ""):
                    found |= set(LETTER.findall(shape))
    return found


def test_letters_of_a_shape_are_found():
    source = '''
def f(x: Float[Array, "*N #Q L1 atoms"]) -> dict[str, Int[Array, "1+J"]]:
    """Numbers, shape (N, Z, 2 ** D)."""
'''
    assert letters_in(source) == {"N", "Q", "L1", "J", "Z", "D"}


@pytest.mark.always
def test_every_letter_of_a_shape_is_in_the_glossary():
    used = {path: letters_in(path.read_text()) for path in ROOT.rglob("*.py")}
    known = letters_of_the_glossary()
    unknown = {str(path.relative_to(ROOT)): found - known for path, found in used.items()}
    assert {path: found for path, found in unknown.items() if found} == {}
    assert GONE or known - set().union(*used.values()) == set()  # an extension has its letters
