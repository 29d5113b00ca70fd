"""Files of every kind, by earlier code: they load, predict the same and are gone on from."""

import inspect
import re
import sys

import jax
import numpy as np
import pytest
from safetensors import safe_open

import latentgp as lgp
import stored_kinds
from latentgp import modules, persistence
from slow import slow_parameters

pytestmark = pytest.mark.quick

EXPECTED = stored_kinds.stored()
KINDS, RUNS = EXPECTED["kinds"], EXPECTED["runs"]
# Classes that a file can name, and none of these does.
IN_NO_FILE = {
    "Copies": "of sites, while they are updated",
    "RegressorMean": "needs pickle",
    "RotatedMean": "of fixed effects, while their likelihood is maximised",
    "_OffsetColumn": "of trees, while they are made",
    "_OffsetRows": "of trees, while they are made",
    "Rows": "of sites, while they are updated",
}
# Rooms of what algorithms make for themselves, and of bases without a value.
OF_ALGORITHMS = (
    *("black_box.mixtures", "iterative.gradients", "iterative.solvers", "flows.base"),
    *("flows.covariance", "flows.front", "chains.methods.sampling"),
    *("kernels.parts", "hyperparameters.base"),
)


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


def words_in(text):
    """Words of a text, whatever the order of an object's fields; classes by their present names."""
    names = {name: found.__name__ for name, found in modules.STORED.items()}
    text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
    return sorted(re.split(r"[\s(),]+", text))


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_value_shows_itself_the_same(values, name):
    shown, before = stored_kinds.texts(values[name]), KINDS[name]["texts"]
    assert [words_in(text) for text in shown] == [words_in(text) for text in before]


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_value_is_saved_again_under_public_names(values, name, tmp_path):
    names = names_in(lgp.save(values[name], tmp_path / name))
    assert not [n for n in names if n.startswith("latentgp") and ":" in n]


@pytest.mark.always
def test_every_kind_is_stored():
    assert (KINDS.keys(), RUNS.keys()) == (stored_kinds.KINDS.keys(), stored_kinds.RUNS.keys())


def names_in(path):
    with safe_open(path, framework="numpy") as file:
        return set(re.findall(r'"object": "([^"]+)"', file.metadata()["latentgp"]))


def can_be_named():
    """Names of the classes of latentgp that a file can bring back."""
    assert persistence.stored_class("Nothing") is None  # all that there are have been imported
    # less those that examples of docstrings make
    known = (
        c for c in set(modules.STORED.values()) if hasattr(sys.modules[c.__module__], c.__name__)
    )
    for found in known:
        place = found.__module__.removeprefix("latentgp.").removeprefix("extensions.")
        made = place.startswith((*OF_ALGORITHMS, "likelihoods.joint")) or "Turned" in found.__name__
        if not (made or inspect.isabstract(found)):
            yield found.__name__


@pytest.mark.always
def test_every_class_that_a_file_can_name_is_in_one(files):
    names = {name for path in files.values() for name in names_in(path)}
    held = {persistence._resolve(name).__name__ for name in names}
    assert set(can_be_named()) - held == IN_NO_FILE.keys()


def test_a_gaussian_approximation_comes_back(tmp_path):
    found = lgp.gaussian_approximation(
        lambda x: -x @ x, 2, lgp.GaussianFlow(steps=2), key=jax.random.key(0)
    )
    loaded = lgp.load(lgp.save(found, tmp_path / "approximation"))
    np.testing.assert_array_equal(loaded.mean, found.mean)


@pytest.mark.parametrize("name", ["search", *slow_parameters(*sorted(RUNS.keys() - {"search"}))])
def test_a_stored_checkpoint_is_gone_on_from(name, tmp_path):
    stored = stored_kinds.unpacked(f"{name}.checkpoint", tmp_path)
    path = stored_kinds.described_anew(stored, name, tmp_path / "checkpoint")
    fit, left = stored_kinds.run(name, path)
    assert left == RUNS[name]["left"]
    same(stored_kinds.predictions(fit), RUNS[name]["predictions"], rtol=1e-6)
