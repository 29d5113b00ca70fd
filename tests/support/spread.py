"""What a process of `test_sharding.py` computes, printed as a line of JSON.

Arguments: number of this process, how many there are, port, folder, names of the fits ("all"), and
whether they keep a checkpoint: "no", "yes", or for example "exit:1:batches", by which process 1
ends in the third round of the fit of that name; "raise:1:batches" raises an error there, and with
"freeze:1:batches" it stops without an end.

What the processes may differ in, in keys, starts, choices of points and disks, they do differ in.
"""

import json
import os
import signal
import sys

PROCESS, PROCESSES, PORT, FOLDER, CASES, CHECKPOINT = sys.argv[1:]
PROCESS, PROCESSES = int(PROCESS), int(PROCESSES)
if PROCESSES == 1:
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import latentgp as lgp  # noqa: E402
from latentgp.extensions.sharded import cholesky as sharded_cholesky  # noqa: E402
from latentgp.runtime import checkpoint  # noqa: E402
from latentgp.runtime.mesh import ROWS as ROWS_AXIS  # noqa: E402
from latentgp.runtime.mesh import summed_in_pairs  # noqa: E402
from latentgp.runtime.processes import broadcast_from_first  # noqa: E402

ROWS, TOLD = 480, {}
DISK = FOLDER if PROCESS == 0 else f"{FOLDER}/none"
checkpoint.CHECKPOINT_SECONDS = 0.0
sharded_cholesky._WIDTH = 50  # so that devices have several blocks
choose_points = lgp.Inducing.initialise


def choose_other_points(self, X, *arguments):
    ready = choose_points(self, X, *arguments)
    return eqx.tree_at(lambda ready: ready.points, ready, ready.points + 0.01 * PROCESS)


lgp.Inducing.initialise = choose_other_points


def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (ROWS, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    y = (rng.uniform(size=ROWS) < 1 / (1 + np.exp(-2 * f))).astype(float)
    return X, f + 0.2 * rng.normal(size=ROWS), y


def figures(devices, cases=CASES):
    X, numbers, classes = problem()
    points = lgp.Inducing(points=X[:15])
    kernel = lgp.RBF(lengthscale=[1.0, 1.0 + PROCESS])
    binary, real = lgp.LatentGP(kernel, lgp.Bernoulli()), lgp.LatentGP(kernel, lgp.Gaussian(0.1))
    few = lgp.ShortSearch(ROWS, 4)  # after other starts, rounding would tell where it goes
    own = f"{DISK}/rows.parquet"  # a copy of its own, if it has one
    path = own if os.path.exists(own) else f"{FOLDER}/rows.parquet"
    files = lgp.FileRows(path, target="y", inputs=["a", "b"], buffer_rows=200)
    by_batches, at_once = (
        lgp.Stochastic(
            lgp.VariationalInference(points),
            batch_size=batch_size,
            epochs=8,
            tolerance=0.0,
            schedule=lgp.RobbinsMonro(power=1.0),
        )
        for batch_size in (60, ROWS)
    )
    seen = lgp.RBF(lengthscale=[2.0] * 4, variance=1.0 + PROCESS)
    deep = lgp.DeepGP(seen, lgp.Bernoulli(), layers=[lgp.Layer(kernel, width=2)])
    by_features = lgp.RandomFeatureVI(20, batch_size=60, epochs=3, components=4)
    held = {"learn_hyperparameters": False}
    found = {}
    for name, model, data, method, settings in [
        ("collapsed", real, lgp.Data(X, numbers), lgp.CollapsedVI(points), held),
        ("searched", real, lgp.Data(X, numbers), lgp.CollapsedVI(points, search=few), {}),
        ("exact", real, lgp.Data(X, numbers), lgp.ExactGP(), {"max_evaluations": 2}),
        ("CAVI", binary, lgp.Data(X, classes), lgp.AugmentedVI(points), held),
        ("batches", binary, lgp.Data(X, classes), by_batches, held),
        ("learned", binary, lgp.Data(X, classes), by_batches, {}),
        ("files", binary, files, by_batches, held),
        ("rows", binary, files, at_once, held),
        ("deep", deep, lgp.Data(X, classes), by_features, {}),
    ]:
        if cases != "all" and name not in cases:
            continue
        told = []
        fit = lgp.fit(
            model,
            data,
            key=jax.random.key(PROCESS),
            method=method,
            devices=devices,
            callback=lambda progress, name=name, told=told: disturb(name, told),
            checkpoint=None if CHECKPOINT == "no" else f"{DISK}/{name}.search",
            **settings,
        )
        with lgp.rows_over(devices):
            marginals = fit.posterior.predict_f(X[:21])
            answers = fit.posterior.predict(X[:150]).mean
        found[name] = [
            fit.posterior.log_evidence.value,
            *np.concatenate([marginals.mean, marginals.variance, answers]).tolist(),
        ]
        TOLD[name] = len(told)
    if cases == "all":
        found["agreed"] = what_is_agreed()
    return found


def what_is_agreed():
    """Numbers of several kinds, of each process its own, as the first has them."""
    own = {
        "yes": PROCESS == 0,
        "none": np.zeros(0),
        "whole": 7 - PROCESS,
        "single": np.full((2, 1), 0.1 + PROCESS, np.float32),
        "double": jax.numpy.arange(3.0) / (3 + PROCESS),
        "not a number": "left as it is",
    }
    told = broadcast_from_first(own)
    assert told["not a number"] == own["not a number"]
    for name, value in own.items():
        assert np.asarray(told[name]).dtype == np.asarray(value).dtype, name
        assert np.shape(told[name]) == np.shape(value), name
    numbers = [told[name] for name in own if name != "not a number"]
    return np.concatenate([np.ravel(value) for value in numbers]).tolist()


def sums_in_pairs():
    """Of what 1 to 4 devices have, on each of them."""
    found = {}
    for number in (1, 2, 3, 4):
        mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:number]), (ROWS_AXIS,))
        cut = jax.sharding.PartitionSpec(ROWS_AXIS)
        add = jax.shard_map(summed_in_pairs, mesh=mesh, in_specs=cut, out_specs=cut)
        found[str(number)] = np.asarray(add(np.arange(1.0, number + 1))).tolist()
    return found


def disturb(name, told):
    told.append(name)
    if len(told) == 3 and CHECKPOINT.endswith(f":{PROCESS}:{name}"):
        if CHECKPOINT.startswith("exit"):
            os._exit(9)
        if CHECKPOINT.startswith("freeze"):
            os.kill(os.getpid(), signal.SIGSTOP)
        raise ArithmeticError("disturbed")


if __name__ == "__main__":
    if PROCESSES > 1:
        lgp.join_processes(f"127.0.0.1:{PORT}", PROCESSES, PROCESS)
    elif PROCESS == 0:
        X, _, y = problem()
        frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
        frame.to_parquet(f"{FOLDER}/rows.parquet", row_group_size=100)
    found = [figures(jax.devices())]
    if PROCESSES == 1:
        three = figures(jax.devices()[:3], cases="batches")
        found = [figures(None), *found, three, sums_in_pairs()]
    print(json.dumps([found, TOLD]))
