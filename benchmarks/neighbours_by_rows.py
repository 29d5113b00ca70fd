"""How `ExactGP(Neighbours(20))` scales with rows: time and memory of a fit, each N in a process.

Rows of three inputs, a smooth function and noise; hyper-parameters from the terms of 20,000 rows,
which see all rows, then the posterior of all and predictions of 1,000 new rows. Compilation is
counted. Memory is the most that was resident, less what a process has that has fitted 1,000 rows.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

TERMS, NEW = 20_000, 1_000


def worker(rows: int) -> None:
    """One fit; prints its figures."""
    import resource

    import jax

    import latentgp as lgp

    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (rows + NEW, 3)) * (rows / 100) ** (1 / 3)
    f = np.sin(X).sum(axis=1) + np.cos(X @ [1.0, 2.0, 3.0])
    y = f + 0.2 * generator.normal(size=len(X))
    model = lgp.LatentGP(lgp.Matern32(lengthscale=np.ones(3)), lgp.Gaussian(0.1))

    def resident() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

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
    passes = []
    for rows in parser.parse_args().rows:
        command = [sys.executable, __file__, "--worker", str(rows)]
        reply = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        passes.append(json.loads(reply.splitlines()[-1]))
        print(passes[-1], flush=True)
    N, seconds, memory = (np.array([p[k] for p in passes]) for k in ("rows", "seconds", "peak_MiB"))
    print(f"log-log slope of time {np.polyfit(np.log(N), np.log(seconds), 1)[0]:.2f}")
    print(f"{np.polyfit(N / 1e6, memory, 1)[0]:.0f} MiB a million rows")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
    else:
        main()
