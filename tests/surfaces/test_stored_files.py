"""Files of every kind, by earlier code: they load, predict the same and are gone on from."""

import inspect
import re

import numpy as np
import pytest
from safetensors import safe_open

import latentgp as lgp
import stored_kinds
from latentgp import InputError, persistence
from slow import slow_parameters

pytestmark = pytest.mark.quick

EXPECTED = stored_kinds.stored()
KINDS, RUNS = EXPECTED["kinds"], EXPECTED["runs"]
# Classes that a file can name, and none of these does.
IN_NO_FILE = {
    "Copies": "holds rows, which no file can name",
    "GaussianApproximation": "holds a covariance, which no file can name",
    "HierarchicalDirichlet": "its numbers of parts and latents are not saved",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    return {name: stored_kinds.unpacked(f"{name}.latentgp", folder) for name in KINDS}


@pytest.fixture(scope="module")
def values(files):
    return {name: lgp.load(path) for name, path in files.items()}


def same(found, wanted, rtol):
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        np.testing.assert_allclose(found[name], expected, rtol=rtol, atol=1e-2 * rtol)


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_value_predicts_the_same(values, name):
    same(stored_kinds.predictions(values[name]), KINDS[name]["predictions"], rtol=1e-10)


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_value_shows_itself_the_same(values, name):
    assert stored_kinds.texts(values[name]) == KINDS[name]["texts"]


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_value_is_saved_again_under_public_names(values, name, tmp_path):
    names = names_in(lgp.save(values[name], tmp_path / name))
    assert not [n for n in names if n.startswith("latentgp") and ":" in n]


def test_every_kind_is_stored():
    assert (KINDS.keys(), RUNS.keys()) == (stored_kinds.KINDS.keys(), stored_kinds.RUNS.keys())


def names_in(path):
    with safe_open(path, framework="numpy") as file:
        return set(re.findall(r'"object": "([^"]+)"', file.metadata()["latentgp"]))


def can_be_named():
    """Names of the classes of latentgp that a file can bring back."""
    for name in persistence._PLACES:
        try:
            found = persistence._resolve(f"latentgp.{name}")
        except InputError:
            continue
        if not inspect.isabstract(found):
            yield name


def test_every_class_that_a_file_can_name_is_in_one(files):
    names = {name for path in files.values() for name in names_in(path)}
    held = {persistence._resolve(name).__name__ for name in names}
    assert set(can_be_named()) - held == IN_NO_FILE.keys()


@pytest.mark.parametrize("name", ["search", *slow_parameters(*sorted(RUNS.keys() - {"search"}))])
def test_a_stored_checkpoint_is_gone_on_from(name, tmp_path):
    stored = stored_kinds.unpacked(f"{name}.checkpoint", tmp_path)
    path = stored_kinds.described_anew(stored, name, tmp_path / "checkpoint")
    fit, left = stored_kinds.run(name, path)
    assert left == RUNS[name]["left"]
    same(stored_kinds.predictions(fit), RUNS[name]["predictions"], rtol=1e-6)
