"""NumPyro's no-U-turn sampler with its default settings, float64, on white latents f = L v."""

import functools
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import BernoulliLogits, Normal, StudentT
from numpyro.infer import MCMC, NUTS
from scipy.spatial.distance import cdist

from contestant import Problem, Result, kept, serve

jax.config.update("jax_enable_x64", True)
JITTER = 1e-8


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


if __name__ == "__main__":
    serve({"sampling": sampling}, packages=("numpyro", "jax", "jaxlib", "numpy"))
