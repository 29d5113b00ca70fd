"""What `test_sharded.py` finds on four emulated devices, printed as a line of JSON."""

import json
import os
import pickle
import re
import sys
from functools import partial

flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

import latentgp as lgp  # noqa: E402
from latentgp.extensions.sharded import cholesky as module  # noqa: E402
from latentgp.extensions.sharded.cholesky import (  # noqa: E402
    Layout,
    over_inverse,
    sharded_cholesky,
)
from latentgp.runtime.mesh import ROWS, rows_over  # noqa: E402
from latentgp.site_inference.search.profiled_bound import exact_log_evidence  # noqa: E402

module._WIDTH = 20
RNG = np.random.default_rng(0)


def of_matrix(A, right, devices, width):
    """R in the order of the rows, half the log-determinant, both solves, A^-1 made in columns."""
    rows = len(A) // devices

    def own(A, right):
        layout = Layout.of(rows, width)
        whole = layout.to_blocks(A)
        fillers = jnp.arange(layout.filled) >= rows
        me = jax.lax.axis_index(ROWS)

        def columns(j, last):
            block = jax.lax.dynamic_slice_in_dim(whole, j * layout.width, layout.width, 1)
            place = j // devices * layout.width + jnp.arange(layout.width)
            same = (jnp.arange(layout.filled)[:, None] == place) & (j % devices == me)
            return (block + (same & fillers[:, None]))[: last * layout.width]

        right = jax.lax.all_gather(right, ROWS, tiled=True)
        factor = sharded_cholesky(columns, layout, jnp.sum(right))
        b = layout.in_turn(right) + 0 * factor.half_log_determinant
        solved, squares, trace = factor.solve(b)

        def write(total, j, first, part):
            numbers = layout.numbers(first)[:, None]
            below = jnp.where(numbers >= j, part, 0.0)
            start = first * layout.width, j * layout.width
            return jax.lax.dynamic_update_slice(total, below, start)

        inverse = over_inverse(write, jnp.zeros_like(factor.inverse) + 0 * trace, factor)
        R, inverse = layout.to_rows(factor.inverse), layout.to_rows(inverse)
        scalars = factor.half_log_determinant, jnp.sum(squares), trace - layout.filled * devices
        return R, jnp.stack(scalars), layout.in_rows(solved), inverse

    cut, alike = PartitionSpec(ROWS), PartitionSpec()
    mesh = Mesh(np.asarray(jax.devices()[:devices]), (ROWS,))
    run = jax.shard_map(
        own, mesh=mesh, in_specs=(cut, cut), out_specs=(cut, alike, alike, cut), check_vma=False
    )
    return [np.asarray(a) for a in jax.jit(run)(A, right)]


def factors():
    found = {}
    for devices, rows, width in [(4, 23, 5), (3, 7, 7)]:
        size = devices * rows
        root = RNG.normal(size=(size, size))
        A, right = root @ root.T / size + np.eye(size), RNG.normal(size=(size, 2))
        R, (half_log, squares, trace), solved, lower = of_matrix(A, right, devices, width)
        known = np.linalg.inv(A)
        made = np.where(lower != 0, lower, lower.T)
        found[f"{devices} {rows} {width}"] = {
            "inverse": np.abs(R.T @ R - known).max(),
            "log": abs(half_log - 0.5 * np.linalg.slogdet(A)[1]),
            "squares": abs(squares - np.sum(right * (known @ right))),
            "trace": abs(trace - np.trace(known) + size),
            "solve": np.abs(solved - known @ right).max(),
            "columns": np.abs(made - known).max(),
        }
    A = np.eye(32) - 3 * np.outer(np.eye(32)[20], np.eye(32)[20])
    return found, [float(a) for a in of_matrix(A, np.ones((32, 1)), 4, 3)[1]]


def slopes():
    """Errors, relative to one device, of evidence and gradient."""
    X = RNG.uniform(-3, 3, (190, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=190)
    labels = np.digitize(y, [-0.4, 0.4])
    ard, rough = lgp.RBF(lengthscale=[1.0, 1.5]), lgp.Matern32(lengthscale=[0.7, 2.0])
    weights = np.where(np.arange(190) % 9, 1.0, 1e-9)
    classes = lgp.LeastSquares(3, noise_variance=0.3)
    cases = {
        "weak sites": (lgp.LatentGP(2.0 * ard + rough, lgp.Gaussian(0.1)), y, weights),
        "classes, shared": (lgp.LatentGP(ard, classes), labels, None),
        "classes, own": (lgp.LatentGP(lgp.PerLatent(ard, rough, ard), classes), labels, None),
    }
    found = {}
    for name, (model, targets, weights) in cases.items():
        algorithm = lgp.ExactGP().algorithm(model)
        data = lgp.Data(X, targets, weights=weights)
        model, ends = jax.tree.map(jnp.asarray, model), []
        for devices in (None, jax.devices()):
            with rows_over(devices):
                slope = jax.jit(jax.value_and_grad(partial(exact_log_evidence, algorithm)))
                ends.append(slope(model, data.to_device() if devices is None else data))
        one, four = map(jax.tree.leaves, ends)
        found[name] = max(
            float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0))
            for a, b in zip(four, one, strict=True)
        )
    return found


def arrays():
    """Numbers of the largest array of the program, over N^2 / P, and its memory over 8 N^2 / P."""
    rows = 640
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    model = jax.tree.map(jnp.asarray, model)
    algorithm, X = lgp.ExactGP().algorithm(model), RNG.uniform(size=(rows, 2))
    with rows_over(jax.devices()):
        data = lgp.Data(X, X[:, 0]).to_device()
        slope = jax.jit(jax.value_and_grad(lambda m: exact_log_evidence(algorithm, m, data)))
        compiled = slope.lower(model).compile()
    shapes = re.findall(r"(?:f64|s64|pred)\[([\d,]+)\]", compiled.as_text())
    largest = max(int(np.prod([int(n) for n in shape.split(",")])) for shape in shapes)
    return [
        largest / (rows**2 / 4),
        compiled.memory_analysis().temp_size_in_bytes / (8 * rows**2 / 4),
    ]


def posteriors(folder):
    """Predictions of a fit over devices, of copies and files of it, elsewhere; what is refused."""
    X = RNG.uniform(-3, 3, (150, 2))
    data = lgp.Data(X, np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=150))
    model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    known, fit = (
        lgp.fit(
            model,
            data,
            key=jax.random.key(0),
            method=lgp.ExactGP(),
            devices=devices,
            learn_hyperparameters=False,
        )
        for devices in (None, jax.devices())
    )
    inverse = fit.posterior.latent.factor.inverse
    parts = [shard.data.shape for shard in inverse.addressable_shards]
    path = lgp.save(fit.posterior, f"{folder}/posterior.latentgp")
    new, key = RNG.uniform(-3, 3, (30, 2)), jax.random.key(1)
    of_all = {
        "as it is": fit.posterior,
        "pickled": pickle.loads(pickle.dumps(fit.posterior)),
        "loaded": lgp.load(path),
    }
    found = {}
    for name, posterior in of_all.items():
        ours, theirs = posterior.predict_f(new), known.posterior.predict_f(new)
        found[name] = float(max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)))
    with rows_over(jax.devices()):
        ours, theirs = (f.posterior.predict_f(new).variance for f in (fit, known))
        found["predictions over devices"] = float(np.abs(ours - theirs).max())
    ours, theirs = (f.posterior.sample_f(new[:5], key=key, number=3) for f in (fit, known))
    found["draws"] = float(np.abs(ours - theirs).max())
    ours, theirs = (
        f.posterior.update(new, new[:, 0], key=key).predict_f(new).mean for f in (fit, known)
    )
    found["update"] = float(np.abs(ours - theirs).max())
    return parts, found


def refusal():
    model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    try:
        lgp.fit(
            model,
            lgp.Data([0.0, 1.0], [0.0, 1.0]),
            key=jax.random.key(0),
            method=lgp.VariationalInference(),
            devices=jax.devices(),
        )
    except lgp.InputError as error:
        return str(error)


if __name__ == "__main__":
    with jax.enable_x64(True):
        found = [factors(), slopes(), arrays()]
    print(json.dumps([*found, posteriors(sys.argv[1]), refusal()]))
