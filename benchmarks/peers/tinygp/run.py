"""tinygp's quasiseparable solver on sorted times, float64."""

import functools
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from tinygp import GaussianProcess
from tinygp.kernels import quasisep

from contestant import Problem, Result, serve

jax.config.update("jax_enable_x64", True)
KERNELS = {"matern32": quasisep.Matern32, "matern52": quasisep.Matern52}


@functools.lru_cache(maxsize=1)  # repetitions of a job share what is compiled
def compiled(problem: Problem):
    t, y = jnp.asarray(problem.X[:, 0]), jnp.asarray(problem.y)

    def evidence(theta: jax.Array) -> jax.Array:
        kernel = KERNELS[problem.options["kernel"]](scale=theta[0], sigma=jnp.sqrt(theta[1]))
        process = GaussianProcess(kernel, t, diag=theta[2], assume_sorted=True)
        return process.log_probability(y)

    return jax.jit(jax.value_and_grad(evidence) if problem.options["gradient"] else evidence)


def series_evidence(problem: Problem) -> Result:
    """The log evidence of a time series, with its gradient in three hyper-parameters."""
    started = perf_counter()
    theta = np.array([problem.lengthscale[0], problem.variance, problem.noise_variance])
    found = jax.block_until_ready(compiled(problem)(theta))
    seconds = perf_counter() - started
    return {"seconds": seconds, "log_evidence": float(jax.tree.leaves(found)[0])}


if __name__ == "__main__":
    serve({"series_evidence": series_evidence}, packages=("tinygp", "jax", "numpy"))
