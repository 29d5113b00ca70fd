"""Gaussian targets by particle flow, BlackJAX's SVGD and NumPyro's SVI, to one covariance error.

The target is N(mu, S) of D dimensions, S = U diag(l) U' with l from 0.1 to 1 (Galy-Fajou 2022,
6.4.1 with a condition number of 10). Every contestant starts from N(0, I), has its gradients by
JAX in float64, and runs compiled pieces until |C - S| / |S| (Frobenius) is below the error asked
for, or `--limit` seconds are over. Seconds are of the pieces alone, after one that compiles them
and does not count; the error is worked out between pieces. Learning rates of the others are the
best of those listed in `RATES`, each tried; `--rates` shows all. Batch and match makes 20 draws a
step.

SVI is NumPyro's `AutoMultivariateNormal` with Adam and ten particles of the bound; SVGD has the
squared-exponential kernel with BlackJAX's median heuristic, D + 1 particles and Adam.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from blackjax.vi.svgd import rbf_kernel, update_median_heuristic
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from latentgp import GaussianParticleFlow
from latentgp.extensions.flows import BatchAndMatch
from latentgp.extensions.flows.base import LogDensity, Start, Stepwise

KEY = jax.random.key(0)
RATES = {"SVI": (0.01, 0.003, 0.001), "SVGD": (0.1, 0.01)}


def target_of(size: int) -> tuple[Callable, np.ndarray, np.ndarray]:
    """Log density, mean and covariance."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    scale = 10 ** (np.arange(size) / (size - 1) - 1)
    mean, precision = rng.normal(size=size), jnp.asarray((turn / scale) @ turn.T)
    middle = jnp.asarray(mean)

    def log_density(x: Any) -> Any:
        return -0.5 * (x - middle) @ precision @ (x - middle)

    return log_density, mean, (turn * scale) @ turn.T


def ours(
    method: Stepwise, log_density: Callable, size: int, piece: int
) -> tuple[Any, Callable, Callable]:
    target, start = LogDensity(log_density), Start(jnp.zeros(size), jnp.ones(size))
    state = eqx.filter_jit(method.init)(target, start, KEY)

    @jax.jit
    def run(carry: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            state, key = carry
            key, own = jax.random.split(key)
            return method.step(target, state, own)[0], key

        return jax.lax.fori_loop(0, piece, step, carry)

    return (state, KEY), run, lambda carry: method.gaussian(carry[0]).covariance.dense()


def stein(
    log_density: Callable, size: int, piece: int, rate: float
) -> tuple[Any, Callable, Callable]:
    algorithm = blackjax.svgd(jax.grad(log_density), optax.adam(rate), rbf_kernel)
    particles = jax.random.normal(KEY, (size + 1, size))
    state = update_median_heuristic(algorithm.init(particles, {"length_scale": jnp.ones(())}))

    @jax.jit
    def run(state: Any) -> Any:
        return jax.lax.fori_loop(0, piece, lambda _, s: algorithm.step(s), state)

    return state, run, lambda s: jnp.cov(s.particles.T, bias=True)


def variational(
    log_density: Callable, size: int, piece: int, rate: float
) -> tuple[Any, Callable, Callable]:
    def model() -> None:
        x = numpyro.sample(
            "x",
            numpyro.distributions.ImproperUniform(
                numpyro.distributions.constraints.real_vector, (), (size,)
            ),
        )
        numpyro.factor("target", log_density(x))

    start = numpyro.infer.init_to_value(values={"x": jnp.zeros(size)})
    guide = AutoMultivariateNormal(model, init_loc_fn=start, init_scale=1.0)
    # NumPyro's optimisers take Optax's.
    svi = SVI(model, guide, optax.adam(rate), Trace_ELBO(num_particles=10))
    state = svi.init(jax.random.PRNGKey(0))

    @jax.jit
    def run(state: Any) -> Any:
        return jax.lax.fori_loop(0, piece, lambda _, s: svi.update(s)[0], state)

    def covariance(state: Any) -> Any:
        root = svi.get_params(state)["auto_scale_tril"]
        return root @ root.T

    return state, run, covariance


def seconds_to(
    made: tuple[Any, Callable, Callable], truth: np.ndarray, error: float, limit: float
) -> tuple[float, float, float]:
    """Seconds to compile, seconds to the error (infinite if the limit came first), the last one."""
    state, run, covariance = made
    began = time.perf_counter()
    jax.block_until_ready(run(state))
    first, spent, last = time.perf_counter() - began, 0.0, np.inf
    started = time.perf_counter()
    while time.perf_counter() - started < limit:
        began = time.perf_counter()
        state = jax.block_until_ready(run(state))
        spent += time.perf_counter() - began
        found = np.asarray(covariance(state))
        last = float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
        if last < error:
            return first, spent, last
        if not np.isfinite(last):
            break
    return first, np.inf, last


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--sizes", type=int, nargs="+", default=[50, 500])
    options.add_argument("--errors", type=float, nargs="+", default=[0.1])
    options.add_argument("--limit", type=float, default=30.0, help="seconds of each run")
    options.add_argument("--rates", action="store_true", help="show every learning rate")
    arguments = options.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{'':34}{'first s':>9}{'seconds':>9}{'error':>10}")
    for size in arguments.sizes:
        log_density, _, truth = target_of(size)
        for error in arguments.errors:
            print(f"D = {size}, to a covariance error of {error:g}")
            for name, method in (
                ("particle flow", GaussianParticleFlow(particles=size + 1)),
                ("batch and match", BatchAndMatch()),
            ):
                made = ours(method, log_density, size, 1)
                row(f"  {name}", *seconds_to(made, truth, error, arguments.limit))
            for name, make, piece in (("SVI", variational, 200), ("SVGD", stein, 50)):
                found = []
                for rate in RATES[name]:
                    steps = 1 if size > 100 and make is stein else piece
                    made = make(log_density, size, steps, rate)
                    found.append((seconds_to(made, truth, error, arguments.limit), rate))
                    if arguments.rates:
                        row(f"    {name}, rate {rate:g}", *found[-1][0])
                (first, spent, last), rate = min(found, key=lambda f: (f[0][1], f[0][2]))
                row(f"  {name}, rate {rate:g}", first, spent, last)


def row(name: str, first: float, spent: float, last: float) -> None:
    """Print a line."""
    reached = f"{spent:9.3f}" if np.isfinite(spent) else f"{'never':>9}"
    print(f"{name:34}{first:9.2f}{reached}{last:10.1e}", flush=True)


if __name__ == "__main__":
    main()
