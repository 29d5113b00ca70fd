"""The core stands without any extension, and each declares what it holds."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import latentgp as lgp
from latentgp.extension import at
from latentgp.extensions import present

SOURCE = Path(lgp.__file__).parent
EXTENSIONS = present()
BESIDE = {"extensions", "surfaces", "testing"}
CORE = "tests/unit", "tests/conformance"  # whose quick cases pass without any extension


def lost_with(name):
    """The extension, and those that require it."""
    lost = {name}
    while more := {n for n, own in EXTENSIONS.items() if lost & {*own.requires}} - lost:
        lost |= more
    return lost


def asked_of(names):
    """Public names and names of methods of extensions, by which a test asks for one."""
    for own in (EXTENSIONS[name] for name in names):
        yield from (own.package.rpartition(".")[2], *own.places, *own.methods)


@pytest.mark.parametrize("name", sorted(EXTENSIONS))
def test_the_core_stands_without(name, tmp_path):
    lost = lost_with(name)
    shutil.copytree(SOURCE, tmp_path / "latentgp", ignore=shutil.ignore_patterns("__pycache__"))
    for own in lost:
        shutil.rmtree(tmp_path / "latentgp" / "extensions" / own)
    gone = " ".join(asked_of(lost))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "WITHOUT": gone}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-m",
        "quick",
        "-p",
        "no:cacheprovider",
        *CORE,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert int(found[1]) > 1000, done.stdout


@pytest.mark.quick
def test_no_example_of_the_core_asks_for_an_extension():
    names = {*EXTENSIONS}.union(*(own.places for own in EXTENSIONS.values()))
    core = [path for path in SOURCE.rglob("*.py") if not BESIDE & {*path.relative_to(SOURCE).parts}]
    examples = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in core
        for line in path.read_text().splitlines()
        if re.match(r"\s*(>>>|\.\.\.) ", line) and names & {*re.findall(r"lgp\.(\w+)", line)}
    }
    assert len(core) > 100
    assert examples == set()


@pytest.mark.quick
@pytest.mark.parametrize("name", sorted(EXTENSIONS))
class TestDeclarations:
    def test_every_place_is_there(self, name):
        own = EXTENSIONS[name]
        package = importlib.import_module(own.package)
        for public in own.places:
            assert getattr(package, public) is not None
        for place in (*own.offers.values(), *own.verbs.values()):
            assert callable(at(place))
        for entry in own.methods.values():
            assert issubclass(entry.method, lgp.Method)
            assert callable(entry.representation)

    def test_type_checkers_see_what_is_declared(self, name):
        own = EXTENSIONS[name]
        source = inspect.getsource(importlib.import_module(own.package))
        for public, module in own.places.items():
            assert f"from {module} import" in source
            assert f"{public} as {public}" in source
        assert f"from {own.package} import *" in (SOURCE / "extensions/__init__.py").read_text()

    def test_its_tests_are_in_a_folder_of_its_name(self, name):
        assert list((Path(__file__).parents[1] / "extensions" / name).glob("test_*.py"))
