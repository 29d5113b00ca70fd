"""Fits on the device that JAX takes by itself (a GPU where there is one), beside the processor.

    .venv/bin/python benchmarks/accelerator.py --data-dir DATA
    JAX_PLATFORMS=cpu .venv/bin/python benchmarks/accelerator.py --data-dir DATA
    .venv/bin/python benchmarks/accelerator.py --data-dir DATA --steps

Double precision throughout. A first fit compiles, a second one of the same shapes does not; the
same figure of quality shows that both devices do the same work. Searches do as many evaluations as
`--evaluations` allows, so that times compare. Memory is the most that the device had in use.
`--steps` takes the time of steps instead: the log evidence of a series, and the difference of a
long and a short fit over the steps between them.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import latentgp as lgp
from data import Split, airline_in_time, binary, regression

KEY = jax.random.key(0)


class Case(NamedTuple):
    model: lgp.LatentGP
    split: Split
    method: Any
    settings: dict[str, Any] = {}  # noqa: RUF012


def smooth(split: Split) -> lgp.Matern52:
    columns = split.X.shape[1]
    return lgp.Matern52(lengthscale=np.full(columns, 0.5 * columns**0.5))


def kin40k(folder: Path, rows: int, method: Any, **settings: Any) -> Case:
    split = regression(folder, "kin40k_std_split", rows)
    return Case(lgp.LatentGP(smooth(split), lgp.Gaussian(0.1)), split, method, settings)


def classes(folder: Path, name: str, rows: int, method: Any, **settings: Any) -> Case:
    split = binary(folder, name, rows)
    return Case(lgp.LatentGP(smooth(split), lgp.Bernoulli()), split, method, settings)


def flights(folder: Path, epochs: int) -> Case:
    split = airline_in_time(folder, 600_000, 100_000)
    method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(500)), 5000, epochs=epochs)
    return Case(lgp.LatentGP(smooth(split), lgp.Gaussian(0.8)), split, method)


def deep(folder: Path, rows: int) -> Case:
    split = regression(folder, "kin40k_std_split", rows)
    columns = split.X.shape[1]
    last = lgp.RBF(np.full(columns + 3, (columns + 3) ** 0.5))
    hidden = [lgp.Layer(lgp.RBF(np.full(columns, columns**0.5)), 3)]
    method = lgp.RandomFeatureVI(500, batch_size=5000, epochs=100)
    return Case(lgp.DeepGP(last, lgp.Gaussian(0.1), layers=hidden), split, method)


def cases(folder: Path, evaluations: int, small: bool) -> dict[str, Callable[[], Case]]:
    """The cases by name, the cheapest first."""
    few = {"max_evaluations": evaluations}
    scale = 0.1 if small else 1.0
    rows = {size: int(scale * size) for size in (1000, 4000, 5000, 10_000, 20_000, 36_000)}
    return {
        "exact": lambda: kin40k(folder, rows[10_000], lgp.ExactGP(), **few),
        "inducing": lambda: kin40k(folder, rows[36_000], lgp.ExactGP(lgp.Inducing(500)), **few),
        "laplace": lambda: classes(folder, "magic", rows[5000], lgp.Laplace(), **few),
        "chains": lambda: classes(
            folder, "magic", rows[1000], lgp.MCMC(draws=200, warmup=100, chains=4)
        ),
        "flights": lambda: flights(folder, 1),
        "neighbours": lambda: kin40k(folder, rows[36_000], lgp.ExactGP(lgp.Neighbours(20)), **few),
        "latent-neighbours": lambda: classes(
            folder, "magic", rows[4000], lgp.Laplace(lgp.Neighbours(20)), **few
        ),
        "deep": lambda: deep(folder, rows[36_000]),
        "exact-20000": lambda: kin40k(folder, rows[20_000], lgp.ExactGP(), **few),
        "matrix-free": lambda: kin40k(
            folder, rows[20_000], lgp.ExactGP(lgp.MatrixFree()), learn_hyperparameters=False
        ),
    }


def used() -> str:
    """The most memory that the device had in use, if it tells."""
    told = jax.devices()[0].memory_stats() or {}
    return f"{told['peak_bytes_in_use'] / 2**30:.2f} GiB" if told else "memory not told"


def run(name: str, case: Case, predicted: int) -> None:
    """Two fits and predictions, a line each."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        fit = lgp.fit(
            case.model,
            lgp.Data(case.split.X, case.split.y),
            method=case.method,
            key=KEY,
            **case.settings,
        )
        seconds.append(time.perf_counter() - start)
    X, y = case.split.X_test[:predicted], case.split.y_test[:predicted]
    fit.posterior.predict(X).log_prob(y)
    start = time.perf_counter()
    loss = -float(np.mean(fit.posterior.predict(X).log_prob(y)))
    predicting = time.perf_counter() - start
    print(
        f"{name}: {case.split.X.shape[0]} x {case.split.X.shape[1]}: first fit {seconds[0]:.1f} s, "
        f"second {seconds[1]:.2f} s, {len(y)} predictions {predicting:.3f} s, "
        f"held-out NLPD {loss:.4f}, {used()}",
        flush=True,
    )


def series(order: int, gradient: bool, rows: int) -> float:
    """Seconds of the log evidence of a time series, compiled."""
    t = 0.1 * np.cumsum(np.random.default_rng(0).exponential(size=rows))
    data = lgp.Data(t, np.sin(t) + 0.3 * np.random.default_rng(1).normal(size=rows))
    kernel = {3: lgp.Matern32, 5: lgp.Matern52}[order]

    def evidence(theta: Any) -> Any:
        model = lgp.LatentGP(kernel(theta[0], variance=theta[1]), lgp.Gaussian(theta[2]))
        return lgp.log_evidence(model, data, lgp.ExactGP(lgp.Markov()))

    with jax.enable_x64(True):
        call = jax.jit(jax.value_and_grad(evidence) if gradient else evidence)
        return seconds_of(lambda: jax.block_until_ready(call(np.array([1.0, 1.0, 0.1]))), 5)


def step_of(case: Case, methods: tuple[Any, Any], steps: int) -> float:
    """Seconds of a step, from two fits between which there are so many."""
    data = lgp.Data(case.split.X, case.split.y)
    short, long = (
        seconds_of(lambda m=m: lgp.fit(case.model, data, method=m, key=KEY, **case.settings), 2)
        for m in methods
    )
    return (long - short) / steps


def seconds_of(call: Callable[[], Any], times: int) -> float:
    """The median after a first call, which compiles."""
    call()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def steps(folder: Path, small: bool) -> dict[str, Callable[[], float]]:
    """What takes the seconds of a step, by name."""
    scale = 100 if small else 1
    rows, batch, short, long = 1_000_000 // scale, 5000 // scale, 5, 25

    def black_box() -> float:
        held = {"learn_hyperparameters": False}
        methods = tuple(lgp.BlackBoxVI(estimator="score", steps=number) for number in (50, 250))
        return step_of(classes(folder, "magic", 1000 // scale, None, **held), methods, 200)

    def random_features() -> float:
        case = deep(folder, 36_000 // scale)
        settings = {"batch_size": batch, "start": "given"}
        methods = tuple(lgp.RandomFeatureVI(500, epochs=n, **settings) for n in (short, long))
        return step_of(case, methods, (long - short) * -(-len(case.split.y) // batch))

    return {
        "series, Matérn 3/2, value": lambda: series(3, False, rows),
        "series, Matérn 3/2, value and gradient": lambda: series(3, True, rows),
        "series, Matérn 5/2, value and gradient": lambda: series(5, True, rows),
        "BlackBoxVI": black_box,
        "RandomFeatureVI": random_features,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=None)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--predicted", type=int, default=1000)
    parser.add_argument("--small", action="store_true", help="a tenth of the rows, or less")
    parser.add_argument("--steps", action="store_true", help="the time of steps instead")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}", flush=True)
    if options.steps:
        for name, measured in steps(options.data_dir, options.small).items():
            print(f"{name}: {1e3 * measured():.2f} ms", flush=True)
        return
    every = cases(options.data_dir, options.evaluations, options.small)
    for name in options.cases or every:
        try:
            run(name, every[name](), options.predicted)
        except Exception:  # the others still run
            print(f"{name}: failed\n{traceback.format_exc(limit=-6)}", flush=True)


if __name__ == "__main__":
    main()
