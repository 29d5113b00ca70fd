"""Exported predictors: size, seconds to import, latency beside the library's own predict.

Models of 500 rows with four inputs (a series of 5,000 rows). The file is imported and run in a
process of its own, where nothing but NumPy is imported; the library's programs are compiled before
they are timed. Each latency is the median of repeated calls: mean and variance of y, or
probabilities.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import jax
import numpy as np

import latentgp as lgp

ROWS, SERIES, INPUTS, SIZES = 500, 5_000, 4, (1, 1_000)
FAR = """
import json, sys, time
from statistics import median
started = time.perf_counter()
import numpy as np
of_numpy = time.perf_counter() - started
sys.path.insert(0, sys.argv[1])
started = time.perf_counter()
import predictor
seconds = [time.perf_counter() - started]
rows = np.load(sys.argv[2])["X"]
for size in (1, 1000):
    times = []
    for _ in range(20):
        started = time.perf_counter()
        predictor.predict(rows[:size])
        times.append(time.perf_counter() - started)
    seconds.append(median(times))
print(json.dumps(seconds))
"""


def cases() -> dict[str, tuple[lgp.LatentGP, lgp.Data, object]]:
    """Models, data and methods by name."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 3, (ROWS, INPUTS))
    f = np.sin(2 * X[:, 0]) + np.cos(X[:, 1])
    y = f + 0.2 * generator.normal(size=ROWS)
    binary = (generator.uniform(size=ROWS) < 1 / (1 + np.exp(-2 * f))).astype(float)
    classes = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])).astype(float)
    t = np.sort(generator.uniform(0, 100, SERIES))[:, None]
    kernel, points = lgp.RBF(np.ones(INPUTS)), lgp.Inducing(50)
    return {
        "exact regression": (
            lgp.LatentGP(kernel, lgp.Gaussian(0.1)),
            lgp.Data(X, y),
            lgp.ExactGP(),
        ),
        "sparse classification": (
            lgp.LatentGP(kernel, lgp.Bernoulli()),
            lgp.Data(X, binary),
            lgp.AugmentedVI(points),
        ),
        "EP classification": (
            lgp.LatentGP(kernel, lgp.BernoulliProbit()),
            lgp.Data(X, binary),
            lgp.ExpectationPropagation(),
        ),
        "counts": (
            lgp.LatentGP(kernel, lgp.Poisson()),
            lgp.Data(X, generator.poisson(np.exp(f))),
            lgp.VariationalInference(points),
        ),
        "series": (
            lgp.LatentGP(lgp.Matern52(2.0), lgp.Gaussian(0.1)),
            lgp.Data(t, np.sin(t[:, 0]) + 0.2 * generator.normal(size=SERIES)),
            lgp.ExactGP(lgp.Markov()),
        ),
        "three classes": (
            lgp.LatentGP(kernel, lgp.Softmax(3)),
            lgp.Data(X, classes),
            lgp.VariationalInference(points),
        ),
    }


def of_library(posterior: lgp.Posterior, X: np.ndarray) -> list[float]:
    """Median seconds of the library's own predictions at each size."""
    found = []
    for size in SIZES:
        times = []
        for _ in range(21):
            started = time.perf_counter()
            predictive = posterior.predict(X[:size])
            if posterior.model.likelihood.targets == "class":
                _ = predictive.probabilities
            else:
                _ = predictive.mean, predictive.variance
            times.append(time.perf_counter() - started)
        found.append(median(times[1:]))
    return found


def main() -> None:
    """Print a table."""
    heads = ("model", "file, kB", "deviation", "import, ms", "1 row, ms", "library")
    print(f"| {' | '.join(heads)} | 1,000 rows, ms | library |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (model, data, method) in cases().items():
        settings = {"method": method, "key": jax.random.key(0), "learn_hyperparameters": False}
        posterior = lgp.fit(model, data, **settings).posterior
        generator = np.random.default_rng(1)
        X = generator.uniform(0, 3, (max(SIZES), data.X.shape[1]))
        with tempfile.TemporaryDirectory() as folder:
            exported = posterior.export(folder)
            np.savez(Path(folder) / "rows.npz", X=X)
            run = [sys.executable, "-I", "-c", FAR, folder, f"{folder}/rows.npz"]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
            size = exported.predictor.stat().st_size / 1e3
        seconds, one, many = json.loads(done.stdout)
        own = of_library(posterior, X)
        cells = (1e3 * value for value in (seconds, one, own[0], many, own[1]))
        row = " | ".join(f"{cell:.1f}" for cell in cells)
        print(f"| {name} | {size:.0f} | {exported.deviation:.0e} | {row} |", flush=True)


if __name__ == "__main__":
    main()
