"""BlackJAX's samplers of latents under a Gaussian prior, float64, chains vectorised."""

import functools
from collections.abc import Callable
from time import perf_counter
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import marginal_latent_gaussian, mclmc
from jax.scipy.special import gammaln
from scipy.spatial.distance import cdist

from contestant import Problem, Result, kept, serve

jax.config.update("jax_enable_x64", True)
JITTER = 1e-8
ACCEPTED = 0.55  # what auxiliary gradient is tuned to, "roughly 50 %" in its documentation


def gram(problem: Problem) -> np.ndarray:
    scaled = problem.X / problem.lengthscale
    squared = cdist(scaled, scaled, "sqeuclidean")
    return problem.variance * np.exp(-0.5 * squared) + JITTER * np.eye(len(scaled))


def log_likelihood(problem: Problem) -> Callable[[jax.Array], jax.Array]:
    options, y = problem.options, jnp.asarray(problem.y)
    if options["likelihood"] == "student":
        nu, scale = options["degrees_of_freedom"], options["scale"]
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - jnp.log(scale * jnp.sqrt(nu * jnp.pi))

        def log_prob(f: jax.Array) -> jax.Array:
            away = (y - f) / scale
            return jnp.sum(constant - 0.5 * (nu + 1) * jnp.log1p(away**2 / nu))

        return log_prob
    return lambda f: -jnp.sum(jax.nn.softplus((1 - 2 * y) * f))


def auxiliary_gradient(problem: Problem) -> tuple[Callable, Callable, Callable]:
    """Warm-up of one chain, one step, and f of a state; the step size by stochastic averaging."""
    covariance, log_prob = jnp.asarray(gram(problem)), log_likelihood(problem)
    svd = marginal_latent_gaussian.svd_from_covariance(covariance)
    kernel = marginal_latent_gaussian.build_kernel(svd)

    def warm(key: jax.Array, number: int) -> tuple[Any, Any]:
        state = marginal_latent_gaussian.init(jnp.zeros(len(covariance)), log_prob, svd.U_t)

        def step(carry: tuple, key_and_time: tuple) -> tuple[tuple, None]:
            state, log_delta, average = carry
            key, time = key_and_time
            state, info = kernel(key, state, log_prob, jnp.exp(log_delta))
            gain = (time + 10.0) ** -0.6
            log_delta = log_delta + 3 * gain * (info.acceptance_rate - ACCEPTED)
            average = average + (log_delta - average) * jnp.maximum(gain, 1 / (time + 1))
            return (state, log_delta, average), None

        keys = jax.random.split(key, number)
        times = jnp.arange(number, dtype=float)
        (state, _, average), _ = jax.lax.scan(step, (state, 0.0, 0.0), (keys, times))
        return state, jnp.exp(average)

    def step(key: jax.Array, state: Any, delta: Any) -> tuple[Any, jax.Array]:
        return kernel(key, state, log_prob, delta)[0], jnp.ones(())

    return warm, step, lambda state: state.position


def elliptical_slice(problem: Problem) -> tuple[Callable, Callable, Callable]:
    covariance = jnp.asarray(gram(problem))
    sampler = blackjax.elliptical_slice(
        log_likelihood(problem), mean=jnp.zeros(len(covariance)), cov=covariance
    )

    def warm(key: jax.Array, number: int) -> tuple[Any, Any]:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            return sampler.step(key, state)[0], None

        start = sampler.init(jnp.zeros(len(covariance)))
        return jax.lax.scan(step, start, jax.random.split(key, number))[0], ()

    def step(key: jax.Array, state: Any, _: Any) -> tuple[Any, jax.Array]:
        state, info = sampler.step(key, state)
        return state, jnp.asarray(info.subiter, float)

    return warm, step, lambda state: state.position


def white_density(problem: Problem) -> tuple[Callable, jax.Array]:
    lower, log_prob = jnp.linalg.cholesky(jnp.asarray(gram(problem))), log_likelihood(problem)
    return lambda white: log_prob(lower @ white) - 0.5 * white @ white, lower


def nuts(problem: Problem) -> tuple[Callable, Callable, Callable]:
    density, lower = white_density(problem)

    def warm(key: jax.Array, number: int) -> tuple[Any, Any]:
        adaptation = blackjax.window_adaptation(blackjax.nuts, density)
        (state, parameters), _ = adaptation.run(key, jnp.zeros(len(lower)), number)
        return state, (parameters["step_size"], parameters["inverse_mass_matrix"])

    def step(key: jax.Array, state: Any, tuned: Any) -> tuple[Any, jax.Array]:
        size, mass = tuned
        sampler = blackjax.nuts(density, step_size=size, inverse_mass_matrix=mass)
        state, info = sampler.step(key, state)
        return state, jnp.asarray(info.num_integration_steps, float)

    return warm, step, lambda state: lower @ state.position


def microcanonical(problem: Problem) -> tuple[Callable, Callable, Callable]:
    """MCLMC, whose draws have a bias that its tuning bounds."""
    density, lower = white_density(problem)
    kernel = mclmc.build_kernel()

    def warm(key: jax.Array, number: int) -> tuple[Any, Any]:
        key_start, key_noise, key = jax.random.split(key, 3)
        start = jax.random.normal(key_noise, (len(lower),))
        state = mclmc.init(start, density, key_start)
        state, found, _ = blackjax.mclmc_find_L_and_step_size(
            kernel, num_steps=max(10 * number // 3, 30), state=state, rng_key=key,
            logdensity_fn=density,
        )  # fmt: skip
        return state, (found.inverse_mass_matrix, found.L, found.step_size)

    def step(key: jax.Array, state: Any, tuned: Any) -> tuple[Any, jax.Array]:
        return kernel(key, state, density, *tuned)[0], jnp.ones(())

    return warm, step, lambda state: lower @ state.position


SAMPLERS = {
    "auxiliary gradient": auxiliary_gradient,
    "elliptical slice": elliptical_slice,
    "NUTS": nuts,
    "MCLMC": microcanonical,
}


@functools.lru_cache(maxsize=8)
def sampler(problem: Problem, name: str) -> tuple[Callable, Callable, float]:
    """Compiled warm-up and draws of all chains, and the seconds of a first run of both."""
    warm, step, position = SAMPLERS[name](problem)
    options = problem.options
    repeats = options.get("repeats", 1)
    # Trees of no-U-turn steps differ in length: side by side all chains wait for the longest.
    over_chains = jax.lax.map if name == "NUTS" else lambda run, chains: jax.vmap(run)(chains)

    @jax.jit
    def warmup(keys: jax.Array) -> Any:
        return over_chains(lambda key: warm(key, options["warmup"]), keys)

    @jax.jit
    def draw(keys: jax.Array, warmed: Any) -> tuple[jax.Array, jax.Array]:
        def chain(given: tuple) -> tuple[jax.Array, jax.Array]:
            key, (state, tuned) = given

            def one(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
                return step(key, state, tuned)

            def kept_one(state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
                state, steps = jax.lax.scan(one, state, jax.random.split(key, repeats))
                return state, (position(state), jnp.sum(steps))

            keys = jax.random.split(key, options["draws"])
            return jax.lax.scan(kept_one, state, keys)[1]

        return over_chains(chain, (keys, warmed))

    return warmup, draw, sum(run(options["chains"], warmup, draw)[1:])


def run(chains: int, warmup: Callable, draw: Callable) -> tuple[tuple, float, float]:
    """Draws, seconds of the warm-up and of the draws."""
    started = perf_counter()
    warmed = jax.block_until_ready(warmup(jax.random.split(jax.random.key(0), chains)))
    warm = perf_counter()
    drawn = jax.block_until_ready(draw(jax.random.split(jax.random.key(1), chains), warmed))
    return drawn, warm - started, perf_counter() - warm


def sampling(problem: Problem) -> Result:
    warmup, draw, first_seconds = sampler(problem, problem.options["sampler"])
    (f, steps), warmup_seconds, draws_seconds = run(problem.options["chains"], warmup, draw)
    return {
        "compile_seconds": max(first_seconds - warmup_seconds - draws_seconds, 0.0),
        "warmup_seconds": warmup_seconds,
        "draws_seconds": draws_seconds,
        "steps_a_draw": float(np.mean(steps)),
        "draws": kept(problem, np.asarray(f)),
    }


@functools.lru_cache(maxsize=2)
def sampler_of_hyperparameters(problem: Problem) -> tuple[Callable, Callable, float]:
    """NUTS of log length-scales, log variance and white latents; priors as the others'."""
    options, X, y = problem.options, jnp.asarray(problem.X), jnp.asarray(problem.y)
    rows, inputs = X.shape

    def f_of(state: dict[str, jax.Array]) -> jax.Array:
        Z = X / jnp.exp(state["lengthscale"])
        squares = jnp.sum(Z**2, axis=1)
        squared = jnp.maximum(squares[:, None] + squares - 2 * Z @ Z.T, 0.0)
        gram = jnp.exp(state["variance"]) * (jnp.exp(-0.5 * squared) + 1e-6 * jnp.eye(rows))
        return jnp.linalg.cholesky(gram) @ state["white"]

    def density(state: dict[str, jax.Array]) -> jax.Array:
        f = f_of(state)
        if options["likelihood"] == "poisson":
            value = jnp.sum(y * f - jnp.exp(f))
        else:
            value = -jnp.sum(jax.nn.softplus((1 - 2 * y) * f))
        value -= 0.5 * jnp.sum((state["lengthscale"] - jnp.log(options["middle"])) ** 2)
        return value - 0.5 * state["variance"] ** 2 - 0.5 * jnp.sum(state["white"] ** 2)

    start = {
        "lengthscale": jnp.full(inputs, jnp.log(options["middle"])),
        "variance": jnp.zeros(()),
        "white": jnp.zeros(rows),
    }

    @jax.jit
    def warmup(keys: jax.Array) -> Any:
        adaptation = blackjax.window_adaptation(blackjax.nuts, density)

        def one(key: jax.Array) -> Any:
            (state, found), _ = adaptation.run(key, start, options["warmup"])
            return state, found["step_size"], found["inverse_mass_matrix"]

        return jax.lax.map(one, keys)

    @jax.jit
    def draw(keys: jax.Array, warmed: Any) -> tuple[jax.Array, jax.Array]:
        def chain(given: tuple) -> tuple[jax.Array, jax.Array]:
            key, (state, size, mass) = given
            nuts = blackjax.nuts(density, step_size=size, inverse_mass_matrix=mass)

            def one(state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array, jax.Array]]:
                state, info = nuts.step(key, state)
                at = state.position
                columns = at["lengthscale"], at["variance"][None], f_of(at)
                return state, (jnp.concatenate(columns), info.num_integration_steps)

            return jax.lax.scan(one, state, jax.random.split(key, options["draws"]))[1]

        return jax.lax.map(chain, (keys, warmed))

    keys = jax.random.split(jax.random.key(0), options["chains"])
    started = perf_counter()
    compiled = warmup.lower(keys).compile()
    shapes = jax.eval_shape(warmup, keys)
    drawing = draw.lower(keys, shapes).compile()
    return compiled, drawing, perf_counter() - started


def chains(problem: Problem) -> Result:
    warmup, draw, compile_seconds = sampler_of_hyperparameters(problem)
    (draws, steps), warmup_seconds, draws_seconds = run(problem.options["chains"], warmup, draw)
    return {
        "compile_seconds": compile_seconds,
        "warmup_seconds": warmup_seconds,
        "draws_seconds": draws_seconds,
        "steps_a_draw": float(np.mean(steps)),
        "draws": kept(problem, np.asarray(draws)),
    }


if __name__ == "__main__":
    serve({"sampling": sampling, "chains": chains}, packages=("blackjax", "jax", "jaxlib", "numpy"))
