"""How long a new process takes; loose limits, because machines differ, and the figures printed."""

import subprocess
import sys
import time

FIRST_MODEL = """
import numpy as np
import latentgp as lgp

X = np.random.default_rng(0).normal(size=(500, 4))
estimator = lgp.GPRegressor(random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * X[:, 1])
mean, deviation = estimator.predict(X[:10], return_std=True)
assert np.all(np.abs(mean - np.sin(X[:10, 0]) - 0.1 * X[:10, 1]) < 0.1)
"""


def seconds_of(program):
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    return time.perf_counter() - started


def test_import_is_quick():
    best = min(seconds_of("import latentgp") for _ in range(3))
    print(f"import latentgp: {best:.2f} s, process start included")
    assert best < 3


def test_import_leaves_heavy_packages_and_flags_alone():
    program = """
import sys
import latentgp, jax
heavy = {"sklearn", "pandas", "matplotlib", "pyarrow", "typer"} & set(sys.modules)
assert not heavy, heavy
assert not jax.config.jax_enable_x64
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_first_model_is_quick():
    seconds = seconds_of(FIRST_MODEL)
    if seconds > 20:  # a machine that was busy gets a second chance
        seconds = seconds_of(FIRST_MODEL)
    print(f"500 rows, process start to prediction: {seconds:.1f} s")
    assert seconds < 20
