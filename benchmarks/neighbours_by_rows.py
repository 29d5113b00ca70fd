"""How neighbours scale with rows: time and memory of a fit, each N in a process of its own.

`ExactGP(Neighbours(20))` of rows of three inputs, a smooth function and noise; hyper-parameters
from the terms of 20,000 rows, which see all rows, then the posterior of all and predictions of
1,000 new rows. With --places the default of classes and counts: a CSV file of places x, y and a
height, each twentieth row held out, N of the others at random; classes are whether a height is
above the median, counts whole metres. Compilation is counted. Memory is the most that was resident,
less what a process has that has fitted 1,000 rows of the first kind.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

TERMS, NEW = 20_000, 1_000
HELD_OUT, PREDICTED = 20, 5_000
LAWS = "classes", "counts"


def resident() -> float:
    """Most MiB so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_places(path: str, rows: int, law: str, targets: str) -> None:
    """One fit of classes or counts by the default; prints its figures."""
    import jax
    import pandas as pd

    import latentgp as lgp

    table = pd.read_csv(path)
    height = table[targets]
    y = (height > height.median() if law == "classes" else height.round()).to_numpy(float)
    X = table[["x", "y"]].to_numpy()
    held_out = np.arange(len(X)) % HELD_OUT == 0
    generator = np.random.default_rng(0)
    learned = generator.permutation(np.flatnonzero(~held_out))[:rows]
    new = generator.permutation(np.flatnonzero(held_out))[:PREDICTED]
    kernel = lgp.Matern32(lengthscale=float(X.std(axis=0).mean()))
    classes = law == "classes"
    level = 0.0 if classes else float(np.log(y[learned].mean()))
    model = lgp.LatentGP(
        kernel, lgp.Bernoulli() if classes else lgp.Poisson(), lgp.ConstantMean(level)
    )
    begun, worked = time.perf_counter(), time.process_time()
    fit = lgp.fit(model, lgp.Data(X[learned], y[learned]), key=jax.random.key(0))
    seconds, processor = time.perf_counter() - begun, time.process_time() - worked
    begun = time.perf_counter()
    density = fit.posterior.predict(X[new]).log_prob(y[new])
    found = {
        "rows": len(learned),
        "seconds": seconds,
        "processor_seconds": processor,
        "evaluations": fit.diagnostics.evaluations,
        "predict_seconds": time.perf_counter() - begun,
        "log_evidence": float(fit.posterior.log_evidence),
        "nlpd": -float(np.mean(density)),
        "kernel": repr(fit.model.kernel),
        "peak_MiB": resident(),
        "reason": fit.diagnostics.reason,
        "notes": fit.diagnostics.notes,
    }
    print(json.dumps(found), flush=True)


def worker(rows: int) -> None:
    """One fit with Gaussian noise; prints its figures."""
    import jax

    import latentgp as lgp

    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (rows + NEW, 3)) * (rows / 100) ** (1 / 3)
    f = np.sin(X).sum(axis=1) + np.cos(X @ [1.0, 2.0, 3.0])
    y = f + 0.2 * generator.normal(size=len(X))
    model = lgp.LatentGP(lgp.Matern32(lengthscale=np.ones(3)), lgp.Gaussian(0.1))

    def fitted(number: int) -> tuple[lgp.Fit, float]:
        begun = time.perf_counter()
        fit = lgp.fit(
            model,
            lgp.Data(X[:number], y[:number]),
            key=jax.random.key(0),
            method=lgp.ExactGP(lgp.Neighbours(20), search=lgp.ShortSearch(TERMS, evaluations=None)),
        )
        return fit, time.perf_counter() - begun

    fitted(1_000)
    before = resident()
    fit, seconds = fitted(rows)
    begun = time.perf_counter()
    nlpd = -float(np.mean(fit.posterior.predict(X[-NEW:]).log_prob(y[-NEW:])))
    found = {
        "rows": rows,
        "seconds": seconds,
        "evaluations": fit.diagnostics.evaluations,
        "predict_seconds": time.perf_counter() - begun,
        "nlpd": nlpd,
        "noise": float(np.sqrt(fit.model.likelihood.noise_variance)),
        "peak_MiB": resident() - before,
        "MiB of the rows": X[:rows].nbytes / 2**20,
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[62_500, 250_000, 1_000_000])
    parser.add_argument("--places", help="CSV file with columns x and y")
    parser.add_argument("--targets", default="FCH", help="its column of heights")
    parser.add_argument("--law", choices=LAWS, default=LAWS[0])
    arguments, passes = parser.parse_args(), []
    for rows in arguments.rows:
        command = [sys.executable, __file__, "--worker", str(rows)]
        if arguments.places:
            command += [arguments.places, arguments.law, arguments.targets]
        reply = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        passes.append(json.loads(reply.splitlines()[-1]))
        print(passes[-1], flush=True)
    if len(passes) > 1:
        N, seconds, memory = (
            np.array([p[k] for p in passes]) for k in ("rows", "seconds", "peak_MiB")
        )
        print(f"log-log slope of time {np.polyfit(np.log(N), np.log(seconds), 1)[0]:.2f}")
        print(f"{np.polyfit(N / 1e6, memory, 1)[0]:.0f} MiB a million rows")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        rows, *places = sys.argv[2:]
        if places:
            path, law, targets = places
            of_places(path, int(rows), law, targets)
        else:
            worker(int(rows))
    else:
        main()
