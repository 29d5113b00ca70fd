"""Ctrl-C: loops of fits end, what was learned is kept, and no compiler is broken into."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import latentgp as lgp
from latentgp.errors import RunAborted
from latentgp.runtime.x64 import public
from problems import SMOOTH, X, regression

KEY = jax.random.key(0)
DATA = lgp.Data(X, SMOOTH)


class At:
    """A callback that presses Ctrl-C at some of its calls."""

    def __init__(self, ctrl_c, *calls):
        self.ctrl_c, self.calls, self.made = ctrl_c, calls, 0

    def __call__(self, progress):
        self.made += 1
        if self.made in self.calls:
            self.ctrl_c()

    def __deepcopy__(self, known):  # scikit-learn copies what estimators hold
        return self


def test_a_loop_of_fits_ends_with_what_was_learned_on_the_estimator(ctrl_c):
    press, fitted = At(ctrl_c, 3), []

    def loop():
        for seed in range(3):
            fitted.append(lgp.GPRegressor(callback=press, random_state=seed))
            fitted[-1].fit(X, SMOOTH)

    with pytest.raises(KeyboardInterrupt):
        loop()
    (only,) = fitted
    assert len(only.history_.bound) == press.made == 3
    assert "it was interrupted" in only.diagnostics_.verdict
    assert np.all(np.isfinite(only.predict(X)))


def test_cross_validation_ends(ctrl_c):
    press = At(ctrl_c, 2)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(lgp.GPRegressor(callback=press, random_state=0), X, SMOOTH, cv=2)
    assert press.made == 2


def test_a_table_is_kept_in_the_exception(ctrl_c):
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=SMOOTH)
    with pytest.raises(KeyboardInterrupt) as raised:
        lgp.TableModel.fit(frame, "y", random_state=0, callback=At(ctrl_c, 2))
    assert len(raised.value.result.predict(frame)) == len(frame)


def test_a_second_time_ends_at_once(ctrl_c):
    made = []

    def call():
        ctrl_c()
        made.append("the first is waited for")
        ctrl_c()
        made.append("never")

    with pytest.raises(KeyboardInterrupt) as raised:
        public(call, keeps_results=True)()
    assert made == ["the first is waited for"]
    assert not hasattr(raised.value, "result")


def test_a_fit_that_has_nothing_yet_raises_at_its_first_step(ctrl_c):
    class Pressed(lgp.Kernel):
        """Presses Ctrl-C where its values are first asked for."""

        def __call__(self, x, z):
            press(None)
            return lgp.RBF()(x, z)

    press = At(ctrl_c, 1)
    chains = lgp.NUTS(draws=10, warmup=60, chains=1)
    with pytest.raises(KeyboardInterrupt) as raised:
        lgp.fit(regression(Pressed()), DATA, key=KEY, method=chains)
    assert not hasattr(raised.value, "result")
    assert isinstance(raised.value.__cause__, RunAborted)


class TestWithoutAResult:
    """Calls, such as predictions, that have none before their end."""

    def test_an_interrupt_is_raised_at_once(self, ctrl_c):
        went_on = []

        def call():
            ctrl_c()
            went_on.append(1)

        with pytest.raises(KeyboardInterrupt):
            public(call)()
        assert not went_on

    def test_unless_a_program_is_being_compiled(self, ctrl_c):
        there = {"__name__": "jax._src.compiler", "ctrl_c": ctrl_c, "after": []}
        exec("def compile():\n    ctrl_c()\n    ctrl_c()\n    after.append(1)\n", there)
        with pytest.raises(KeyboardInterrupt) as raised:
            public(lambda: there["compile"]() or "made")()
        assert there["after"] == [1]
        assert raised.value.result == "made"

    def test_a_handler_of_ones_own_stays(self, ctrl_c):
        import signal

        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        try:
            lgp.fit(regression(), DATA, key=KEY, callback=At(ctrl_c, 1), max_evaluations=2)
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        assert seen == [1]


COMPILING = """
import os, signal, sys, threading, warnings
import numpy as np, latentgp as lgp
from jax._src import compiler

warnings.simplefilter("ignore")
X = np.linspace(0, 6, 40)[:, None]
many = np.linspace(0, 6, 300)[:, None]
model = lgp.GPRegressor(random_state=0, max_evaluations=2).fit(X, np.sin(X[:, 0]))

compiles, compiled = threading.Event(), compiler.backend_compile_and_load

def told(*given, **named):
    compiles.set()
    return compiled(*given, **named)

compiler.backend_compile_and_load = told

def press():
    compiles.wait()
    os.kill(os.getpid(), signal.SIGINT)

def fit():
    model.fit(many, many[:, 0])

print("ready", flush=True)
if sys.argv[1] == "daemon":
    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    compiles.wait()
    sys.exit(130)
threading.Thread(target=press, daemon=True).start()
try:
    fit() if sys.argv[1] == "fit" else model.predict_interval(X[:3], 0.5)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("what", ["fit", "predict", "daemon"])
def test_a_process_that_ends_while_it_compiles_ends_well(what):
    """It was brought down by a segmentation fault: the compiler went on in its thread."""
    known = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    slowly = {"XLA_FLAGS": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "LATENTGP_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILING, what],
        env={**known, **slowly},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "ready\n", "")


def test_only_one_place_handles_signals():
    source = Path(lgp.__file__).parent
    using = [str(f.relative_to(source)) for f in source.rglob("*.py") if "SIGINT" in f.read_text()]
    assert using == ["runtime/interrupts.py"]
