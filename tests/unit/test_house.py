"""Counts of the code see what they count, and one above its limit fails."""

import ast

import pytest

import house
from house import Limit

pytestmark = pytest.mark.quick


def package(monkeypatch, **sources):
    parsed = {module: ast.parse(source) for module, source in sources.items()}
    monkeypatch.setattr(house, "trees", lambda: parsed)


@pytest.mark.parametrize(("classes", "status"), [(["A", "B"], 0), (["A", "B", "C"], 1)])
def test_a_count_above_its_limit_fails(monkeypatch, capsys, classes, status):
    monkeypatch.setattr(house, "counts", lambda: {"classes": classes, "files": 7})
    monkeypatch.setattr(house, "LIMITS", {"classes": Limit(2, 1), "files": Limit()})
    monkeypatch.setattr(house, "printed_by", lambda program: {"seconds": 1.0})
    monkeypatch.setattr("sys.argv", ["house.py"])
    assert house.main() == status
    assert ("Above their limits: classes." in capsys.readouterr().out) == bool(status)


def test_a_limit_above_its_count_is_told(capsys):
    assert not house.report({"files": 6}, {"files": Limit(7)})
    assert "lower the limit" in capsys.readouterr().out


def test_a_count_without_a_limit_is_an_error():
    with pytest.raises(KeyError, match="files"):
        house.report({"files": 7}, {})


def test_imports_in_functions_count_and_those_for_types_do_not():
    source = """
if TYPE_CHECKING:
    from latentgp.a import A
from latentgp import b
def late():
    import latentgp.c.d
    from latentgp.e import f
    from latentgp.g import G
"""
    known = {"a", "b", "c.d", "e", "e.f", "g"}
    assert house.imports(ast.parse(source), known) == {"b", "c.d", "e.f", "g"}


def test_circles_are_found():
    arrows = {
        "a": {"b"},
        "b": {"c"},
        "c": {"a", "d"},
        "d": {"e"},
        "e": set(),
        "f": {"g"},
        "g": {"f"},
    }
    assert house.circles(arrows) == [["a", "b", "c"], ["f", "g"]]


def test_names_of_classes(monkeypatch):
    package(
        monkeypatch,
        a="class Found: pass\nclass Seed: pass\nclass Taken: pass",
        b="class _Scaled: pass\nclass ScaledSum: pass\nclass Seed: pass",
    )
    assert house.participles() == ["Found (a)", "Scaled (b)", "Taken (a)"]
    assert house.names_of_several_classes() == ["Seed (a, b)"]


def test_hooks_and_protocols(monkeypatch):
    base = """
class Representation(Module):
    field: int
    def condition(self): ...
    @property
    def notes(self): ...
    def _own(self): ...
"""
    protocol = "class Streams(Protocol[T]):\n    def going_on(self, summary): ..."
    package(monkeypatch, **{"representations.base": base, "representations.streams": protocol})
    assert house.hooks("Representation") == ["condition", "notes"]
    assert house.protocols() == ["Streams"]
    with pytest.raises(LookupError):
        house.hooks("SiteRule")


def test_refusals_and_constants(monkeypatch):
    source = """
_TINY = 1e-30
_LOW, _HIGH = 0, 1
_REGISTERED: dict = {}
_names = "not a constant"
def check(x):
    "Docstring."
    raise InputError("No.")
def checked(x):
    if isinstance(x, int):
        raise ValueError(x)
    raise errors.InputError(x)
"""
    package(monkeypatch, a=source)
    assert house.private_constants() == ["a._TINY", "a._LOW", "a._REGISTERED"]
    assert house.refusals() == ["a:8", "a:12"]
    assert house.functions_that_only_raise() == ["a.check"]
    assert house.isinstance_calls() == ["a:10"]


def test_writers_of_checkpoints(monkeypatch):
    package(monkeypatch, a="run.control.checkpoint.write({})\ncheckpoint.write(x)\nfile.write(x)")
    assert len(house.checkpoint_writers()) == 2
