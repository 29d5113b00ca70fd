"""Settings of JAX that others made in the process change no answer."""

import json
import subprocess
import sys

import pytest

ANSWERS = """
import json, sys, traceback, warnings
import jax, numpy as np, pandas as pd, latentgp as lgp

warnings.simplefilter("ignore")
X = np.random.default_rng(0).uniform(0, 5, (24, 2))
y = np.sin(X[:, 0])
short = {"random_state": 0, "max_evaluations": 3}
key = jax.random.key(0)

def answers():
    regressor = lgp.GPRegressor(**short).fit(X, y)
    yield regressor.predict(X[:3], return_std=True)
    yield regressor.sample_y(X[:2], 2, random_state=0)
    classifier = lgp.GPClassifier(**short).fit(X, np.digitize(y, [-0.5, 0.5]))
    yield classifier.predict_proba(X[:3])
    yield lgp.GPCountRegressor(**short).fit(X, np.round(3 + 3 * y)).predict(X[:3])
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    points = {"method": "collapsed", "n_inducing": 4}
    yield lgp.TableModel.fit(frame, "y", **points, **short).predict(frame[:3])
    model, data = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), lgp.Data(X, y)
    chains = lgp.MCMC(draws=20, warmup=20, chains=1)
    fit = lgp.fit(model, data, method=chains, key=key)
    yield fit.posterior.predict_f(X[:3]).mean
    fit = lgp.fit(model, data, key=key, learn_hyperparameters=False)
    yield fit.leave_one_out().mean
    with jax.enable_x64(True):
        of_users = jax.jit(jax.value_and_grad(lgp.log_evidence))
        value, slope = of_users(*jax.device_put((model, data)))
        yield value, slope.kernel.lengthscale
        yield fit.posterior.as_jax().mean(jax.device_put(X[:3]))

def flat(found):
    parts = [part.to_numpy() if isinstance(part, pd.DataFrame) else part for part in found]
    return [np.asarray(leaf, float).tolist() for leaf in jax.tree.leaves(parts)]

right = flat(answers())
COMMON = "jax_numpy_rank_promotion", "jax_numpy_dtype_promotion", "jax_enable_x64"
SETTINGS = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_default_matmul_precision": "bfloat16",
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_debug_key_reuse": True,
    "jax_check_tracer_leaks": True,
    "jax_disable_jit": True,
    "jax_enable_x64": True,
    "jax_threefry_partitionable": False,
    "jax_default_prng_impl": "rbg",
    "jax_legacy_prng_key": "error",
    "jax_transfer_guard": "disallow",
    "jax_default_device": jax.devices("cpu")[0],
}
for name, value in SETTINGS.items():
    if (name in COMMON) != (sys.argv[1] == "common"):
        continue
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        same = flat(answers()) == right
    except Exception as error:
        steps = traceback.extract_tb(error.__traceback__)
        where = [(step.filename[-30:], step.lineno) for step in steps]
        where = [step for step in where if "latentgp" in step[0] or "string" in step[0]]
        same = f"{type(error).__name__}: {str(error)[:150]} {where[:4]}"
    jax.config.update(name, before)
    print(json.dumps([name, same]), flush=True)
"""


@pytest.mark.parametrize(
    ("group", "number"), [("common", 3), pytest.param("others", 11, marks=pytest.mark.slow)]
)
def test_no_setting_of_others_changes_an_answer(group, number):
    """`jax_numpy_rank_promotion="raise"` ended a fit in a ValueError of JAX's."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS, group], capture_output=True, text=True, timeout=460
    )
    found = dict(map(json.loads, done.stdout.splitlines()))
    assert len(found) == number, done.stderr
    assert set(found.values()) == {True}, found
