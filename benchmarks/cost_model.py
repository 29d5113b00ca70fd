"""Seconds of a step of `Stochastic` against a cost model in M, B, D and Q.

The model: 4 Q B M^2 flops of products of kernel blocks (statistics, and `reduction` times block),
B M (D + 1) of making blocks and pulling derivatives back through them, Q M^3 for factors and white
sites, B for the sites of a row by quadrature, more where Q > 1 by quasi-Monte Carlo, and what a
step costs whatever its size. The rates are fitted, in relative error, to one half of the settings,
drawn at random, and checked on the other; then taken to 10^9 rows and 10^3 devices on paper.
"""

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

import latentgp as lgp
from latentgp.extensions.batches.natural_gradient import StochasticInference, run_batches
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.runtime.blas_threads import one_blas_thread

SETTINGS = [
    (M, B, D, Q)
    for (M, B), D, Q in itertools.product(
        [(50, 1000), (100, 1000), (100, 4000), (200, 1000), (200, 4000), (400, 1000), (400, 4000)],
        [8, 64],
        [1, 4],
    )
]
STEPS, REPEATS = 20, 3


def terms(M: int, B: int, D: int, Q: int) -> list[float]:
    return [
        4.0 * Q * B * M**2,
        float(B * M * (D + 1)),
        float(Q * M**3),
        float(B),
        float(B * (Q > 1)),
        1.0,
    ]


def step_seconds(M: int, B: int, D: int, Q: int) -> float:
    """Median over calls of twenty steps each, compiled."""
    rng = np.random.default_rng(0)
    likelihood = lgp.Bernoulli() if Q == 1 else lgp.Softmax(Q)
    model = lgp.LatentGP(lgp.RBF(lengthscale=np.full(D, D**0.5)), likelihood)
    method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(points=rng.normal(size=(M, D)))))
    with jax.enable_x64(True), one_blas_thread():
        X = jnp.asarray(rng.normal(size=(STEPS, B, D)))
        y = jnp.asarray(rng.integers(0, max(Q, 2), (STEPS, B)).astype(float))
        block = lgp.Data(np.asarray(X).reshape(-1, D), np.asarray(y).ravel())
        block = block.reweighted(np.ones(block.size))
        block = jax.tree.map(lambda a: jnp.asarray(a).reshape(STEPS, B, *a.shape[1:]), block)
        algorithm, space = method.algorithm(model), ParameterSpace(model)
        rate, decay, total, batches = (jnp.asarray(x) for x in (0.01, 300.0, 1e6, 1e6 / B))
        numbers = rate, decay, None, total, batches
        inference = StochasticInference(algorithm, space, method.steps, *numbers)
        nothing = lgp.Data(np.zeros((1, D)), np.zeros(1)).to_device()
        posterior = algorithm.init(model, nothing).posterior
        state = inference.init(jnp.asarray(space.to_vector()), posterior)
        jax.block_until_ready(run_batches(inference, state, block))
        seconds = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            jax.block_until_ready(run_batches(inference, state, block))
            seconds.append((time.perf_counter() - started) / STEPS)
    return float(np.median(seconds))


def on_paper(rates: np.ndarray, rows: float = 1e9, devices: int = 1000) -> dict[str, float]:
    """An epoch of 10^9 rows of 28 inputs on devices like this one, M = 1,000, B = 10^6.

    Rows are cut over the devices; what is M x M is done by all of them alike. A step adds up
    M^2 + M + M D numbers across devices: each swaps all of them with log2(devices) partners in
    turn, at 1 GB/s and 50 microseconds a round.
    """
    M, B, D = 1000, 10**6, 28
    own = terms(M, B // devices, D, 1)
    seconds = float(np.dot(own, rates))
    numbers = M**2 + M + M * D
    rounds = np.ceil(np.log2(devices))
    messages = rounds * (8 * numbers / 1e9 + 50e-6)
    return {
        "seconds of a step, computing": seconds,
        "of which M x M": float(own[2] * rates[2]),
        "seconds of a step, messages": float(messages),
        "MB a device sends a step": 8e-6 * rounds * numbers,
        "hours an epoch": (seconds + messages) * rows / B / 3600,
        "hours an epoch on one device": float(np.dot(terms(M, B, D, 1), rates)) * rows / B / 3600,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for setting in SETTINGS:
        found.append(
            dict(zip("MBDQ", setting, strict=True)) | {"ms": 1000 * step_seconds(*setting)}
        )
        print(found[-1], flush=True)
    order = np.random.default_rng(0).permutation(len(SETTINGS))
    fitted, checked = order[::2], order[1::2]
    design = np.array([terms(*setting) for setting in SETTINGS])
    measured = np.array([row["ms"] for row in found]) / 1000
    relative = design / measured[:, None]
    rates, _ = nnls(relative[fitted], np.ones(len(relative[fitted])))
    ratios = relative[checked] @ rates
    report = {
        "steps": found,
        "product GFlop/s": 1e-9 / rates[0] if rates[0] else None,
        "ns a kernel entry and input": 1e9 * rates[1],
        "ns a M^3": 1e9 * rates[2],
        "us a row by quadrature": 1e6 * rates[3],
        "us a row more by quasi-Monte Carlo": 1e6 * rates[4],
        "ms a step": 1e3 * rates[5],
        "predicted over measured, settings not fitted": {
            "median": float(np.median(ratios)),
            "least": float(ratios.min()),
            "most": float(ratios.max()),
        },
    }
    report["on paper"] = on_paper(rates)
    print(json.dumps({k: v for k, v in report.items() if k != "steps"}, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
