"""GPJax, float64; whatever is optimised is compiled whole by `jax.jit`."""

from time import perf_counter
from typing import TypeAlias

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import paramax
from gpjax.fit import get_batch
from jax.flatten_util import ravel_pytree
from numpyro.distributions import BernoulliLogits

from contestant import Problem, Result, ScoreTrace, bernoulli_scores, gaussian_scores, lbfgs, serve

jax.config.update("jax_enable_x64", True)
STEPS_A_CALL = 10  # mini-batch steps inside one compiled call
State: TypeAlias = tuple[gpx.variational_families.WhitenedVariationalGaussian, optax.OptState]


class LogitLikelihood(gpx.likelihoods.Bernoulli):
    """Bernoulli with the logit link; GPJax's own is probit. Expectations by quadrature."""

    def link_function(self, f: jax.Array) -> BernoulliLogits:
        return BernoulliLogits(f, validate_args=False)


def prior(problem: Problem) -> gpx.Prior:
    kernel = gpx.kernels.RBF(lengthscale=jnp.array(problem.lengthscale), variance=problem.variance)
    return gpx.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)


def exact_regression(problem: Problem) -> Result:
    started = perf_counter()
    data = gpx.Dataset(jnp.array(problem.X), jnp.array(problem.y)[:, None])
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=jnp.sqrt(problem.noise_variance))
    parameters, static = eqx.partition(prior(problem) * likelihood, eqx.is_array)
    vector, restore = ravel_pytree(parameters)

    @jax.jit
    @jax.value_and_grad
    def loss(vector: jax.Array) -> jax.Array:
        return -gpx.objectives.conjugate_mll(eqx.combine(restore(vector), static), data)

    def value_and_gradient(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = loss(vector)
        return float(value), np.asarray(gradient)

    solution = lbfgs(value_and_gradient, np.asarray(vector))
    fitted = perf_counter()
    model = eqx.combine(restore(jnp.array(solution.x)), static)
    law = model.condition(data)(jnp.array(problem.X_test), covariance="diagonal")
    mean, variance = (
        np.asarray(law.mean),
        np.asarray(law.variance + model.likelihood.noise_vector(1)),
    )
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": solution.nfev,
        "log_evidence": -solution.fun,
        **gaussian_scores(problem.y_test, mean, variance),
    }


def sparse_binary(problem: Problem) -> Result:
    """The steps of `gpx.fit` with Adam on the whitened q and the kernel alike, a few a call."""
    data = gpx.Dataset(jnp.array(problem.X), jnp.array(problem.y)[:, None])
    X_test = jnp.array(problem.X_test)
    model = gpx.variational_families.WhitenedVariationalGaussian(
        model=prior(problem) * LogitLikelihood(), inducing_inputs=jnp.array(problem.Z)
    )
    model = eqx.tree_at(
        lambda q: q.inducing_inputs, model, paramax.non_trainable(model.inducing_inputs)
    )
    adam = optax.adam(problem.options["learning_rate"])
    nodes, weights = np.polynomial.hermite.hermgauss(20)

    def step(state: State, key: jax.Array) -> tuple[State, None]:
        model, adam_state = state
        batch = get_batch(data, problem.options["batch_size"], key)
        gradient = eqx.filter_grad(lambda model: -gpx.objectives.elbo(model, batch))(model)
        updates, adam_state = adam.update(gradient, adam_state)
        return (eqx.apply_updates(model, updates), adam_state), None

    @jax.jit
    def steps(state: State, key: jax.Array) -> State:
        return jax.lax.scan(step, state, jax.random.split(key, STEPS_A_CALL))[0]

    @jax.jit
    def class_one(state: State) -> jax.Array:
        law = state[0].condition(None)(X_test, covariance="diagonal")
        f = law.mean[:, None] + jnp.sqrt(2 * law.variance)[:, None] * nodes
        return jax.nn.sigmoid(f) @ (weights / np.sqrt(np.pi))

    state = model, adam.init(eqx.filter(model, eqx.is_array))
    key = jax.random.key(0)
    started = perf_counter()
    jax.block_until_ready((steps(state, key), class_one(state)))
    compile_seconds = perf_counter() - started
    trace = ScoreTrace(
        problem, lambda: bernoulli_scores(problem.y_test, np.asarray(class_one(state)))
    )
    while trace.tick():
        key, key_of_steps = jax.random.split(key)
        state = jax.block_until_ready(steps(state, key_of_steps))
    return trace.result(steps_a_tick=STEPS_A_CALL) | {"compile_seconds": compile_seconds}


if __name__ == "__main__":
    serve(
        {"exact_regression": exact_regression, "sparse_binary": sparse_binary},
        packages=("gpjax", "jax", "jaxlib", "numpy"),
    )
