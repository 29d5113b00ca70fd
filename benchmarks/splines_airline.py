"""Delays of flights, one additive function an input: splines and one pass against batches.

Additive Matérn-3/2 of eight inputs, Gaussian noise, the rows that follow in time held out. Ours is
`summarise` with `BSplines` (one pass) and `fit` of the sums; then again under other priors, with no
row read. Beside it `Stochastic` through inducing points, with the same kernel and with an RBF of
all inputs.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from numpyro.distributions import LogNormal

import latentgp as lgp
from data import airline_in_time

KEY = jax.random.key(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000, help="at most, the first in time")
    parser.add_argument("--test-rows", type=int, default=100_000)
    parser.add_argument("--splines", type=int, default=100, help="an input")
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--batches",
        nargs="*",
        choices=("RBF", "additive"),
        default=("RBF", "additive"),
        help="kernels that Stochastic takes; none is given by no name",
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    split = airline_in_time(arguments.data_dir, arguments.rows, arguments.test_rows)
    if not len(split.y_test):  # fewer rows than asked for: hold the last ones out
        rows = len(split.y) - arguments.test_rows
        split = airline_in_time(arguments.data_dir, rows, arguments.test_rows)
    data, inputs = lgp.Data(split.X, split.y), range(split.X.shape[1])
    print(f"{data.size:,} rows, {len(split.y_test):,} held out", flush=True)
    kernel = sum(lgp.Matern32(1.0, 0.1).on(column) for column in inputs)
    model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=1.0))
    report: dict[str, dict[str, float]] = {}

    def note(name: str, seconds: float, result: lgp.Fit) -> None:
        posterior = result.posterior
        log_densities = posterior.predict(split.X_test).log_prob(split.y_test)
        report[name] = {
            "seconds": seconds,
            "evaluations": result.diagnostics.evaluations,
            "log evidence": posterior.log_evidence.value,
            "nlpd": -float(np.mean(log_densities)),
            "rmse": float(np.sqrt(np.mean((posterior.mean_f(split.X_test) - split.y_test) ** 2))),
        }
        print(name, json.dumps(report[name]), result.diagnostics.verdict, sep="\n", flush=True)

    started = time.perf_counter()
    sums = lgp.summarise(model, data, lgp.BSplines(arguments.splines), key=KEY)
    read = time.perf_counter() - started
    print(f"one pass: {read:.1f} s", flush=True)
    result = lgp.fit(model, sums, key=KEY)
    note("splines", time.perf_counter() - started, result)
    priors = {f"kernel.parts[{i}].kernel.lengthscale": LogNormal(0.0, 1.0) for i in inputs}
    started = time.perf_counter()
    again = lgp.fit(result.model, sums, key=KEY, priors=priors)
    note("splines, other priors", time.perf_counter() - started, again)
    whole = lgp.LatentGP(lgp.RBF(np.full(len(inputs), 2.8)), lgp.Gaussian(0.9))
    models = {"RBF": whole, "additive": model}
    for name in arguments.batches:
        method = lgp.CollapsedVI(lgp.Inducing(arguments.inducing))
        method = lgp.Stochastic(method, epochs=arguments.epochs)
        started = time.perf_counter()
        result = lgp.fit(models[name], data, key=KEY, method=method)
        note(f"Stochastic, {name}", time.perf_counter() - started, result)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
