"""NumPyro's no-U-turn sampler with its default settings, float64, on white latents f = L v."""

import functools
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import BernoulliLogits, LogNormal, Normal, Poisson, StudentT
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide
from numpyro.optim import Adam
from scipy.spatial.distance import cdist

from contestant import Problem, Result, ScoreTrace, kept, minus_white_bound, serve

jax.config.update("jax_enable_x64", True)
JITTER = 1e-8
STEPS_A_CALL = 20  # inside one compiled call


def prior_factor(problem: Problem) -> np.ndarray:
    scaled = problem.X / problem.lengthscale
    gram = problem.variance * np.exp(-0.5 * cdist(scaled, scaled, "sqeuclidean"))
    return np.linalg.cholesky(gram + JITTER * np.eye(len(gram)))


@functools.lru_cache(maxsize=4)
def sampler(problem: Problem, chain_method: str) -> tuple[MCMC, float]:
    """What has been run once, and the seconds that took."""
    options, y = problem.options, problem.y
    lower = jnp.asarray(prior_factor(problem))

    def model() -> None:
        white = numpyro.sample("white", Normal(jnp.zeros(len(y)), 1.0).to_event(1))
        f = lower @ white
        if options["likelihood"] == "student":
            law = StudentT(options["degrees_of_freedom"], f, options["scale"])
        else:
            law = BernoulliLogits(f)
        numpyro.sample("y", law, obs=y)

    mcmc = MCMC(
        NUTS(model),
        num_warmup=options["warmup"],
        num_samples=options["draws"],
        num_chains=options["chains"],
        chain_method=chain_method,
        progress_bar=False,
    )
    return mcmc, sum(run(mcmc))


@functools.lru_cache(maxsize=4)
def sampler_of_hyperparameters(problem: Problem, chain_method: str) -> tuple[MCMC, float]:
    """Length-scales, variance and white latents together; priors as the other contestants'."""
    options, X, y = problem.options, jnp.asarray(problem.X), problem.y
    inputs, middle = X.shape[1], options["middle"]

    def model() -> None:
        lengthscale = numpyro.sample(
            "lengthscale", LogNormal(jnp.full(inputs, jnp.log(middle)), 1.0).to_event(1)
        )
        variance = numpyro.sample("variance", LogNormal(0.0, 1.0))
        Z = X / lengthscale
        squares = jnp.sum(Z**2, axis=1)
        squared = jnp.maximum(squares[:, None] + squares - 2 * Z @ Z.T, 0.0)
        gram = variance * (jnp.exp(-0.5 * squared) + 1e-6 * jnp.eye(len(X)))
        white = numpyro.sample("white", Normal(jnp.zeros(len(y)), 1.0).to_event(1))
        f = numpyro.deterministic("f", jnp.linalg.cholesky(gram) @ white)
        law = Poisson(jnp.exp(f)) if options["likelihood"] == "poisson" else BernoulliLogits(f)
        numpyro.sample("y", law, obs=y)

    mcmc = MCMC(
        NUTS(model),
        num_warmup=options["warmup"],
        num_samples=options["draws"],
        num_chains=options["chains"],
        chain_method=chain_method,
        progress_bar=False,
    )
    return mcmc, 0.0


def chains(problem: Problem) -> Result:
    mcmc, _ = sampler_of_hyperparameters(problem, problem.options["chain_method"])
    warmup_seconds, draws_seconds = run(mcmc)  # compilation among the warm-up's
    draws = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
    columns = np.log(draws["lengthscale"]), np.log(draws["variance"])[..., None], draws["f"]
    return {
        "warmup_seconds": warmup_seconds,
        "draws_seconds": draws_seconds,
        "steps_a_draw": float(np.mean(mcmc.get_extra_fields()["num_steps"])),
        "draws": kept(problem, np.concatenate(columns, axis=2)),
    }


def run(mcmc: MCMC) -> tuple[float, float]:
    """Seconds of the warm-up and of the draws."""
    started = perf_counter()
    mcmc.post_warmup_state = None
    mcmc.warmup(jax.random.key(0))
    jax.block_until_ready(mcmc.post_warmup_state)
    warm = perf_counter()
    mcmc.run(jax.random.key(1), extra_fields=("num_steps",))
    jax.block_until_ready(mcmc.get_samples())
    return warm - started, perf_counter() - warm


def sampling(problem: Problem) -> Result:
    mcmc, first_seconds = sampler(problem, problem.options["chain_method"])
    warmup_seconds, draws_seconds = run(mcmc)
    white = np.asarray(mcmc.get_samples(group_by_chain=True)["white"])
    return {
        "compile_seconds": max(first_seconds - warmup_seconds - draws_seconds, 0.0),
        "warmup_seconds": warmup_seconds,
        "draws_seconds": draws_seconds,
        "steps_a_draw": float(np.mean(mcmc.get_extra_fields()["num_steps"])),
        "draws": kept(problem, white @ prior_factor(problem).T),
    }


def black_box(problem: Problem) -> Result:
    """A Gaussian of the white latents by reparameterised gradients of one draw, and Adam."""
    options, y = problem.options, jnp.asarray(problem.y)
    lower = prior_factor(problem)

    def model() -> None:
        white = numpyro.sample("white", Normal(jnp.zeros(len(y)), 1.0).to_event(1))
        f = jnp.asarray(lower) @ white
        law = Poisson(jnp.exp(f)) if options["likelihood"] == "poisson" else BernoulliLogits(f)
        numpyro.sample("y", law, obs=y)

    guide = getattr(autoguide, options["guide"])(model)
    svi = SVI(model, guide, Adam(options["learning_rate"]), Trace_ELBO())
    state = svi.init(jax.random.key(0))

    @jax.jit
    def take(state: Any) -> Any:
        return jax.lax.scan(lambda s, _: (svi.update(s)[0], None), state, None, STEPS_A_CALL)[0]

    def scores() -> Result:
        law = guide.get_posterior(svi.get_params(state))
        root = np.linalg.cholesky(np.asarray(law.covariance_matrix))
        return minus_white_bound(problem, lower, np.asarray(law.mean), root)

    started = perf_counter()
    jax.block_until_ready(take(state))
    compile_seconds = perf_counter() - started
    trace = ScoreTrace(problem, scores)
    while trace.tick():
        state = jax.block_until_ready(take(state))
    return trace.result(STEPS_A_CALL) | {"compile_seconds": compile_seconds}


if __name__ == "__main__":
    tasks = {"sampling": sampling, "chains": chains, "black_box": black_box}
    serve(tasks, packages=("numpyro", "jax", "jaxlib", "numpy"))
