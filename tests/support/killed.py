"""Fits that hang in their middle until their process is killed, and that go on in another.

`python killed.py hang FOLDER NAME...` says "hangs" once each of the fits waits in one of its steps;
`python killed.py resume FOLDER NAME...` goes on, and compares with fits that nothing ended.
"""

import json
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import numpy as np

import latentgp as lgp
from latentgp.runtime import checkpoint
from method_cases import case_of
from problems import X

LONG = 400.0
STEPS = {"elliptical-slice": 10}  # of its chains: eight evaluations come before these


def begun(name, folder, **settings):
    model, data, method = case_of(name)
    file = folder / name.replace(", ", "-")
    return lgp.fit(
        model,
        data,
        method=method,
        key=jax.random.key(1),
        **{"checkpoint": file, "max_evaluations": 8} | settings,
    )


def hang(folder, names):
    checkpoint.CHECKPOINT_SECONDS = 0.0  # written after every step
    waiting = threading.Semaphore(0)

    def callback(name):
        told = []

        def wait(progress):
            told.append(progress)
            if len(told) == STEPS.get(name, 2):
                waiting.release()
                time.sleep(LONG)

        return wait

    runs = {name: begun(name, folder, callback=callback(name), blocking=False) for name in names}
    for _ in runs:
        while not waiting.acquire(timeout=1.0):
            for name, run in runs.items():
                if run.done:
                    print(f"{name} ended", run.result().diagnostics, flush=True)
                    sys.exit(1)
    print("hangs", flush=True)
    time.sleep(LONG)


def resume(folder, names):
    for name in names:
        told = [], []
        resumed = begun(name, folder, callback=told[0].append)
        whole = begun(name, folder, callback=told[1].append, checkpoint=None)
        inputs = X[:3, : np.shape(case_of(name)[1].X)[1]]
        bits = [
            [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves((fit.model, found))]
            for fit in (resumed, whole)
            for found in [tuple(fit.posterior.predict_f(inputs))]
        ]
        print(json.dumps([name, *map(len, told), bits[0] == bits[1]]), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, folder, *names = sys.argv[1:]
    {"hang": hang, "resume": resume}[what](Path(folder), names)
