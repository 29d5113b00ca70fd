"""The core stands without any extension, and each declares what it holds."""

import importlib
import inspect
import os
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
# Fits, predictions and choices of the core alone, in a process without an extension.
PROGRAM = """
import jax, numpy as np, latentgp as lgp
from latentgp.choosing.registry import METHODS
from latentgp.extensions import present

assert not present().keys() & {gone}, present().keys()
X = np.linspace(0, 6, 30)[:, None]
counts = np.random.default_rng(0).poisson(np.exp(np.sin(X[:, 0])))
regression = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
rows = lgp.Data(X, np.sin(X[:, 0]))
for name in ("exact", "collapsed", "augmented", "variational", "laplace", "ep"):
    method = METHODS[name].method
    model, data = regression, rows
    if name in ("variational", "laplace", "ep"):
        model, data = lgp.LatentGP(lgp.RBF(), lgp.Poisson()), lgp.Data(X, counts)
    fit = lgp.fit(
        model, data, key=jax.random.key(0), method=method(), learn_hyperparameters=False
    )
    assert np.isfinite(fit.posterior.predict(X).mean).all(), name
fit = lgp.fit(regression, rows, key=jax.random.key(0), max_evaluations=3)
after = fit.posterior.update([[7.0]], [0.6], key=jax.random.key(1))
assert np.isfinite(after.predict_f(X).mean).all()
assert lgp.GPRegressor(random_state=0).fit(X, rows.y).predict(X).shape == (30,)
for name in lgp.__all__:
    getattr(lgp, name)
"""


def lost_with(name):
    """The extension, and those that require it."""
    lost = {name}
    while more := {n for n, own in EXTENSIONS.items() if lost & {*own.requires}} - lost:
        lost |= more
    return lost


@pytest.mark.parametrize("name", sorted(EXTENSIONS))
def test_the_core_stands_without(name, tmp_path):
    lost = lost_with(name)
    shutil.copytree(SOURCE, tmp_path / "latentgp", ignore=shutil.ignore_patterns("__pycache__"))
    for own in lost:
        shutil.rmtree(tmp_path / "latentgp" / "extensions" / own)
    program = PROGRAM.format(gone=lost)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


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
