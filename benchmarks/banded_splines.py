"""A step through B-splines of one input: banded algebra beside dense algebra.

Value of the bound from sums over rows, and value with derivatives, for 300 to 10,000 splines and a
Matérn-3/2 kernel; with the greatest difference of bound and derivatives. Least of some repetitions.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.extensions.inter_domain import splines as splines_module

KEY = jax.random.key(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splines", type=int, nargs="+", default=[100, 300, 1_000, 3_000, 10_000])
    parser.add_argument("--most-dense", type=int, default=3_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, arguments.rows)
    data = lgp.Data(X, np.sin(X) + 0.3 * rng.normal(size=len(X)))
    model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(0.1))
    print("splines  algebra    value  with derivatives   (ms)  difference")
    for number in arguments.splines:
        found = {}
        for name, least in {"banded": 1, "dense": 100_000}.items():
            if name == "dense" and number > arguments.most_dense:
                continue
            splines_module._BANDED_FROM = least
            sums = lgp.summarise(model, data, lgp.BSplines(number), key=KEY)
            value, slope, answers = timed(model, sums, arguments.repetitions)
            found[name] = answers
            print(f"{number:7}  {name:7}  {value:7.2f}  {slope:16.2f}", flush=True)
        if len(found) == 2:
            pairs = zip(*map(jax.tree.leaves, found.values()), strict=True)
            off = max(float(np.abs(a - b) / (1 + np.abs(b))) for a, b in pairs)
            print(f"{number:7}  {off:.1e} relative", flush=True)


def timed(model: lgp.LatentGP, sums: lgp.RowSums, repetitions: int) -> tuple[float, float, object]:
    """Milliseconds of the bound, and with derivatives; the latter's answers."""
    with jax.enable_x64(True):
        own, held = jax.tree.map(jnp.asarray, (model, sums))

        def evidence(model: lgp.LatentGP, sums: lgp.RowSums) -> jax.Array:
            return sums.evidence(model)

        programs = jax.jit(evidence), jax.jit(jax.value_and_grad(evidence))
        least = []
        for program in programs:
            jax.block_until_ready(program(own, held))
            seconds = []
            for _ in range(repetitions):
                started = time.perf_counter()
                answers = jax.block_until_ready(program(own, held))
                seconds.append(time.perf_counter() - started)
            least.append(1e3 * min(seconds))
        return least[0], least[1], jax.tree.map(np.asarray, answers)


if __name__ == "__main__":
    main()
