"""What a call of an external function costs beyond the function's own time; latentgp only.

Expectations of N rows at 20 nodes by `ExternalLikelihood`, one call each, beside a bare
`jax.pure_callback` of 20 values and the function's host side alone. Medians and fifth percentiles.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.likelihoods.base import Marginals


def squares(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    return -0.5 * (y - f[:, 0]) ** 2


def show(what: str, call: Callable[[], Any], repeats: int) -> None:
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        started = perf_counter()
        jax.block_until_ready(call())
        seconds.append(perf_counter() - started)
    low, middle = 1000 * np.percentile(seconds, [5, 50])
    print(f"{what:45} {low:8.3f} ms {middle:8.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 50, 1000, 20_000])
    parser.add_argument("--repeats", type=int, default=300)
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        like, y, f = jax.ShapeDtypeStruct((20,), jnp.float32), np.zeros(20), np.zeros((20, 1))
        bare = jax.jit(lambda y, f: jax.pure_callback(squares, like, y, f))
        narrow = np.zeros(20, np.float32), np.zeros((20, 1), np.float32)
        show("jax.pure_callback, 20 values", lambda: bare(*narrow), arguments.repeats)
        likelihood = lgp.ExternalLikelihood(squares)
        host = likelihood.host
        show("host side, 20 values", lambda: host.values(y, f, {}), arguments.repeats)
        for rows in arguments.rows:
            targets = jnp.zeros(rows)
            marginals = Marginals(jnp.zeros((rows, 1)), jnp.ones((rows, 1)))
            expected = jax.jit(lambda y, m: likelihood.expected_log_prob(y, m, {}))
            call = lambda e=expected, y=targets, m=marginals: e(y, m)  # noqa: E731
            show(f"expectations of {rows} rows, {20 * rows} values", call, arguments.repeats)


if __name__ == "__main__":
    main()
