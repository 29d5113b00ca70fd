"""Default fits of many rows: within the budget of "auto", and searched on all rows.

Flights (`airline_delay`): minutes of delay by regression, of flights that follow in time, and
whether a flight is more than a quarter of an hour late by classification, of any others.
"""

import argparse
import time
from datetime import datetime
from os import cpu_count, getloadavg
from pathlib import Path

import jax
import numpy as np

import latentgp as lgp
from data import airline_in_time, binary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--test-rows", type=int, default=20_000)
    arguments = parser.parse_args()
    minutes = airline_in_time(arguments.data_dir, arguments.rows, arguments.test_rows)
    late = binary(arguments.data_dir, "airline_delay", arguments.rows)
    inputs = minutes.X.shape[1]
    started = f"{datetime.now():%Y-%m-%d %H:%M}, {cpu_count()} cores, load {getloadavg()[0]:.1f}"
    print(f"{started}; {arguments.rows} rows, {inputs} inputs\n")
    print("| | method | seconds | held-out log density | reason |\n|---|---|---|---|---|")
    kernel = lgp.RBF(lengthscale=np.full(inputs, inputs**0.5))
    cases = [
        ("minutes", minutes, lgp.Gaussian(0.5), lgp.CollapsedVI(lgp.Inducing(500))),
        ("late or not", late, lgp.Bernoulli(), lgp.VariationalInference(lgp.Inducing(200))),
    ]
    for name, split, likelihood, all_rows in cases:
        model = lgp.LatentGP(kernel, likelihood)
        X_test, y_test = (a[: arguments.test_rows] for a in (split.X_test, split.y_test))
        for method in ("auto", all_rows):
            began = time.perf_counter()
            fitted = lgp.fit(
                model, lgp.Data(split.X, split.y), key=jax.random.key(0), method=method
            )
            seconds = time.perf_counter() - began
            density = np.mean(fitted.posterior.predict(X_test).log_prob(y_test))
            reason = fitted.diagnostics.reason
            kind = "auto" if method == "auto" else "all rows"
            print(f"| {name} | {kind} | {seconds:.0f} | {density:.4f} | {reason} |", flush=True)


if __name__ == "__main__":
    main()
