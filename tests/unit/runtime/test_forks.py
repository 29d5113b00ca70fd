"""Forks: work in the child of a process that has used JAX is refused, in place of a hang."""

import multiprocessing
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

# Each answers in a child of its own: what waits there for ever is ended, and named.
ENTRIES = """
import os, sys, tempfile, time, warnings
from pathlib import Path
import jax, numpy as np, pandas as pd, latentgp as lgp

warnings.simplefilter("ignore")
X = np.linspace(0, 5, 12)[:, None]
y = np.sin(X[:, 0])
data, model = lgp.Data(X, y), lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
frame = pd.DataFrame({"x": X[:, 0], "y": y})
key = jax.random.key(0)  # JAX is in use from here on
short = {"random_state": 0, "learn_hyperparameters": False}
regressor = lgp.GPRegressor(**short).fit(X, y)
classifier = lgp.GPClassifier(**short).fit(X, y > 0)
table = lgp.TableModel.fit(frame, "y", **short)
fit = lgp.fit(model, data, key=key, learn_hyperparameters=False)
folder = Path(tempfile.mkdtemp())
file = lgp.save(regressor, folder / "model")
calls = {
    "predict": lambda: regressor.predict(X),
    "probabilities": lambda: classifier.predict_proba(X),
    "table": lambda: table.predict(frame),
    "loaded": lambda: lgp.load(file).predict(X),
    "posterior": lambda: fit.posterior.predict_f(X),
    "draws": lambda: fit.posterior.sample_f(X, key=key),
    "fit": lambda: lgp.fit(model, data, key=key),
    "background": lambda: lgp.fit(model, data, key=key, blocking=False).result(),
    "regressor": lambda: lgp.GPRegressor(random_state=0).fit(X, y),
    "classifier": lambda: lgp.GPClassifier(random_state=0).fit(X, y > 0),
    "counts": lambda: lgp.GPCountRegressor(random_state=0).fit(X, np.round(y + 1)),
    "updated": lambda: regressor.partial_fit(X, y),
    "table model": lambda: lgp.TableModel.fit(frame, "y", random_state=0),
    "evidence": lambda: lgp.log_evidence(model, data),
    "leave one out": lambda: fit.leave_one_out(),
    "export": lambda: lgp.export_predictor(fit.posterior, folder / "files"),
    "certificate": lambda: fit.certify(1.0),
    "pure": lambda: fit.posterior.as_jax().mean(X),
    "score": lambda: regressor.score(X, y),
    "prior": lambda: lgp.sample_prior(model, data, key=key),
    "marginals": lambda: fit.hyperparameter_marginals(),
}

def answer(call, out):
    try:
        call()
        said = "no error"
    except lgp.InputError as error:
        said = "refused" if 'get_context("spawn")' in str(error) else str(error)
    except BaseException as error:
        said = repr(error)
    os.write(out, said[:200].encode())
    os._exit(0)

readers = {}
for name, call in calls.items():
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        answer(call, writer)
    os.close(writer)
    readers[name] = child, reader
until = time.monotonic() + 30
for name, (child, reader) in readers.items():
    os.set_blocking(reader, False)
    said = None
    while said is None and time.monotonic() < until:
        try:
            said = os.read(reader, 300).decode()
        except BlockingIOError:
            time.sleep(0.01)
    if said is None:
        os.kill(child, 9)
    print(name, "|", said or "hangs")
    os.waitpid(child, 0)
"""


@pytest.mark.filterwarnings("ignore")
def test_every_entry_is_refused_in_a_fork_that_cannot_compute():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENTRIES], capture_output=True, text=True, timeout=300
    )
    answers = dict(line.split(" | ") for line in done.stdout.splitlines())
    assert len(answers) > 15, done.stderr
    assert set(answers.values()) == {"refused"}, answers


BEFORE = """
import multiprocessing, sys, warnings
import numpy as np
{early}
X = np.linspace(0, 5, 12)[:, None]

def work(path):
    import latentgp as lgp

    warnings.simplefilter("ignore")
    known = lgp.load(path) if model is None else model
    anew = lgp.GPRegressor(random_state=0, learn_hyperparameters=False).fit(X, np.sin(X[:, 0]))
    return known.predict(X), anew.predict(X)

with multiprocessing.get_context("fork").Pool(1) as pool:
    job = pool.map_async(work, sys.argv[1:])
    try:
        one, two = job.get(100)[0]
        print(np.array_equal(one, two))
    except ValueError as error:
        print(error)
model = None
one, two = work(*sys.argv[1:])
print("here", np.array_equal(one, two))
"""


@pytest.mark.parametrize(
    ("early", "says"),
    [
        ("import latentgp as lgp; model = lgp.load(sys.argv[1])", "True"),
        ("import jax; jax.random.key(0); model = None", "do not survive a fork"),
    ],
    ids=["loaded", "JAX alone, before latentgp is imported"],
)
def test_what_is_imported_and_loaded_before_a_fork(early, says, tmp_path):
    import re

    import numpy as np

    import latentgp as lgp

    X = np.linspace(0, 5, 12)[:, None]
    fitted = lgp.GPRegressor(random_state=0, learn_hyperparameters=False).fit(X, np.sin(X[:, 0]))
    path = lgp.save(fitted, tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEFORE.format(early=early), str(path)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert re.search(says, done.stdout), done.stderr
    assert done.stdout.endswith("here True\n")  # the parent itself can


def test_a_child_of_a_spawn_computes():
    """Not every child is a fork."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_fitted) == 2


def _fitted():
    import latentgp as lgp

    return len(lgp.GPRegressor(random_state=0).fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0], [1]]))
