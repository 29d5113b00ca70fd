"""GPflow, float64 as by default; what it optimises is compiled by `tf.function`."""

import contextlib
import functools
from collections.abc import Callable
from time import perf_counter
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from contestant import (
    SCORES_OF_F,
    EvidenceTrace,
    Problem,
    Result,
    ScoreTrace,
    TimeIsUp,
    bernoulli_scores,
    class_scores,
    gaussian_scores,
    kept,
    lbfgs,
    minus_white_bound,
    serve,
    student_scores,
)

STEPS_A_CALL = 10  # mini-batch steps inside one compiled call
DRAWS_A_CALL = 50  # of a chain
START_STEPS = 20  # of L-BFGS towards the mode where chains start, as in GPflow's documentation
LEAPFROGS, HMC_ACCEPTED, NUTS_ACCEPTED = 10, 0.75, 0.8


def latent_kernel(problem: Problem) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(problem.variance, problem.lengthscale)


def collapsed_model(problem: Problem) -> gpflow.models.SGPR:
    data = problem.X, problem.y[:, None]
    model = gpflow.models.SGPR(
        data, latent_kernel(problem), problem.Z, noise_variance=problem.noise_variance
    )
    gpflow.set_trainable(model.inducing_variable, False)
    return model


@functools.lru_cache(maxsize=1)
def collapsed_value_and_gradient(problem: Problem) -> Callable[[], tuple]:
    model = collapsed_model(problem)

    @tf.function
    def value_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    return value_and_gradient


def collapsed_bound(problem: Problem) -> Result:
    """One value and gradient, at the start; the first call compiles."""
    started = perf_counter()
    loss, gradient = collapsed_value_and_gradient(problem)()
    for part in gradient:
        part.numpy()
    return {"seconds": perf_counter() - started, "log_evidence": -loss.numpy()}


def collapsed_fit(problem: Problem) -> Result:
    started = perf_counter()
    model = collapsed_model(problem)
    solution = gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
    fitted = perf_counter()
    mean, variance = model.predict_y(problem.X_test)
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": solution.nfev,
        "log_evidence": -solution.fun,
        **gaussian_scores(problem.y_test, mean.numpy()[:, 0], variance.numpy()[:, 0]),
    }


def trained(
    problem: Problem,
    likelihood: gpflow.likelihoods.Likelihood,
    y: np.ndarray,
    predict: Callable[[gpflow.models.SVGP], tuple[tf.Tensor, ...]],
    scores: Callable[..., Result],
    latents: int = 1,
) -> Result:
    """Mini-batches, Adam on the whitened q and the kernel alike.

    With the option `natural`, q takes natural-gradient steps of that size instead.
    """
    tf.random.set_seed(0)
    options = problem.options
    n_rows, batch_size = len(y), min(options["batch_size"], len(y))
    X, y = tf.constant(problem.X), tf.constant(y[:, None])
    model = gpflow.models.SVGP(
        latent_kernel(problem), likelihood, problem.Z, num_latent_gps=latents, num_data=n_rows
    )
    gpflow.set_trainable(model.inducing_variable, options.get("learn_inducing", False))
    posterior = [(model.q_mu, model.q_sqrt)]
    if options.get("natural"):
        natural = gpflow.optimizers.NaturalGradient(options["natural"])
        for parameter in posterior[0]:
            gpflow.set_trainable(parameter, False)
    adam = tf_keras.optimizers.Adam(options["learning_rate"])
    adam.build(model.trainable_variables)

    @tf.function
    def take(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            rows = tf.random.uniform([batch_size], maxval=n_rows, dtype=tf.int32)
            batch = tf.gather(X, rows), tf.gather(y, rows)
            loss = model.training_loss_closure(batch, compile=False)
            if options.get("natural"):
                natural.minimize(loss, posterior)
            adam.minimize(loss, model.trainable_variables)

    compiled_predict = tf.function(lambda: predict(model))

    def evaluate() -> Result:
        return scores(*(part.numpy() for part in compiled_predict()))

    started = perf_counter()
    take(tf.constant(0))
    evaluate()
    compile_seconds = perf_counter() - started
    trace = ScoreTrace(problem, evaluate)
    while trace.tick():
        take(tf.constant(STEPS_A_CALL))
    return trace.result(steps_a_tick=STEPS_A_CALL) | {"compile_seconds": compile_seconds}


def sparse_binary(problem: Problem) -> Result:
    """Logit link."""
    return trained(
        problem,
        gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid),
        problem.y,
        lambda model: model.predict_y(problem.X_test),
        lambda probability, _: bernoulli_scores(problem.y_test, probability[:, 0]),
    )


def sparse_regression(problem: Problem) -> Result:
    """SVGP with Gaussian noise."""
    return trained(
        problem,
        gpflow.likelihoods.Gaussian(problem.noise_variance),
        problem.y,
        lambda model: model.predict_y(problem.X_test),
        lambda mean, variance: gaussian_scores(problem.y_test, mean[:, 0], variance[:, 0]),
    )


def sparse_multiclass(problem: Problem) -> Result:
    """Robust-max by quadrature, softmax by its 100 Monte Carlo points."""
    likelihoods = {
        "robust-max": gpflow.likelihoods.MultiClass,
        "softmax": gpflow.likelihoods.Softmax,
    }
    classes = problem.options["classes"]
    return trained(
        problem,
        likelihoods[problem.options["likelihood"]](classes),
        problem.y.astype(int),
        lambda model: model.predict_y(problem.X_test),
        lambda probabilities, _: class_scores(problem.y_test, probabilities),
        latents=classes,
    )


def sparse_student(problem: Problem) -> Result:
    """The scale is learned, the degrees of freedom are not."""
    degrees_of_freedom = problem.options["degrees_of_freedom"]
    likelihood = gpflow.likelihoods.StudentT(problem.noise_variance**0.5, degrees_of_freedom)

    def scores(mean: np.ndarray, variance: np.ndarray) -> Result:
        scale = float(likelihood.scale.numpy())
        return student_scores(problem.y_test, mean[:, 0], variance[:, 0], scale, degrees_of_freedom)

    return trained(
        problem, likelihood, problem.y, lambda model: model.predict_f(problem.X_test), scores
    )


class Probit(gpflow.likelihoods.ScalarLikelihood):
    """GPflow's own stays 1e-3 away from 0 and 1, which is another model with another bound."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        right = 0.5 * tf.math.erfc((1 - 2 * Y) * F / 2**0.5)
        return tf.math.log(tf.maximum(right, np.finfo(float).tiny))

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.math.erfc(-F / 2**0.5)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        mean = self._conditional_mean(X, F)
        return mean * (1 - mean)


def sparse_bound(problem: Problem) -> Result:
    """All rows in every step: L-BFGS on everything, or natural gradients for q and Adam."""
    options = problem.options
    data = tf.constant(problem.X), tf.constant(problem.y[:, None])
    mean = gpflow.functions.Constant(options["prior_mean"])
    likelihood = {"probit": Probit, "poisson": gpflow.likelihoods.Poisson}[options["likelihood"]]()
    model = gpflow.models.SVGP(
        latent_kernel(problem),
        likelihood,
        problem.Z,
        mean_function=mean,
        num_data=len(problem.y),
    )
    for part in (mean, model.inducing_variable):
        gpflow.set_trainable(part, False)
    loss = model.training_loss_closure(data, compile=False)
    fit = by_natural_gradients if options.get("natural") else by_lbfgs
    result = fit(problem, model, loss)
    law = model.predict_f(problem.X_test)
    scores = SCORES_OF_F[options["likelihood"]]
    return result | scores(problem.y_test, *(part.numpy()[:, 0] for part in law))


def by_lbfgs(problem: Problem, model: gpflow.models.SVGP, loss: Callable[[], tf.Tensor]) -> Result:
    scipy, variables = gpflow.optimizers.Scipy(), model.trainable_variables
    start = scipy.initial_parameters(variables).numpy()
    evaluate = scipy.eval_func(loss, variables, tf_fun_args={})
    started = perf_counter()
    evaluate(start)
    compile_seconds = perf_counter() - started
    trace = EvidenceTrace(problem)

    def traced(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, gradient = evaluate(vector)
        trace.note(-float(value))
        return value, gradient

    with contextlib.suppress(TimeIsUp):
        lbfgs(traced, start)
    return trace.result() | {"compile_seconds": compile_seconds}


def by_natural_gradients(
    problem: Problem, model: gpflow.models.SVGP, loss: Callable[[], tf.Tensor]
) -> Result:
    options = problem.options
    posterior = [(model.q_mu, model.q_sqrt)]
    for parameter in posterior[0]:
        gpflow.set_trainable(parameter, False)
    natural = gpflow.optimizers.NaturalGradient(options["natural"])
    adam = tf_keras.optimizers.Adam(options["learning_rate"])
    adam.build(model.trainable_variables)

    @tf.function
    def step() -> tf.Tensor:
        natural.minimize(loss, posterior)
        with tf.GradientTape() as tape:
            value = loss()
        gradient = tape.gradient(value, model.trainable_variables)
        adam.apply_gradients(zip(gradient, model.trainable_variables, strict=True))
        return value

    started = perf_counter()
    compiled = step.get_concrete_function()
    compile_seconds = perf_counter() - started
    trace = EvidenceTrace(problem)
    with contextlib.suppress(TimeIsUp):
        while True:
            trace.note(-float(compiled()))
    return trace.result() | {"compile_seconds": compile_seconds}


class Logit(gpflow.likelihoods.ScalarLikelihood):
    """GPflow's own takes the logarithm of one minus a sigmoid, which is that of 0 from 37 on."""

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return -tf.nn.softplus((1 - 2 * Y) * F)

    def _conditional_mean(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(F)

    def _conditional_variance(self, X: tf.Tensor, F: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)


class ByDraws(gpflow.likelihoods.MonteCarloLikelihood):
    """Expectations by draws, the value of log p(y given f) and its gradient at each."""

    def __init__(self, counts: bool) -> None:
        super().__init__(input_dim=None, latent_dim=1, observation_dim=1)
        self.counts = counts

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        if self.counts:
            return tf.reduce_sum(Y * F - tf.exp(F) - tf.math.lgamma(Y + 1), axis=-1)
        return tf.reduce_sum(-tf.nn.softplus(-(2 * Y - 1) * F), axis=-1)


def black_box(problem: Problem) -> Result:
    """`VGP` with such a likelihood: natural gradients, or Adam alone."""
    options = problem.options
    data = tf.constant(problem.X), tf.constant(problem.y[:, None])
    likelihood = ByDraws(options["likelihood"] == "poisson")
    likelihood.num_monte_carlo_points = options["samples"]
    model = gpflow.models.VGP(data, latent_kernel(problem), likelihood)
    for part in model.kernel.trainable_parameters:
        gpflow.set_trainable(part, False)
    adam = tf_keras.optimizers.Adam(options["learning_rate"])
    posterior = [(model.q_mu, model.q_sqrt)]
    natural = options["natural"] and gpflow.optimizers.NaturalGradient(options["natural"])
    loss = model.training_loss_closure(compile=False)
    jitter = gpflow.config.default_jitter() * np.eye(len(problem.y))
    lower = np.linalg.cholesky(model.kernel(problem.X).numpy() + jitter)

    @tf.function
    def step() -> None:
        if natural:
            natural.minimize(loss, posterior)
        else:
            adam.minimize(loss, model.trainable_variables)

    def scores() -> Result:
        return minus_white_bound(
            problem, lower, model.q_mu.numpy()[:, 0], np.tril(model.q_sqrt.numpy()[0])
        )

    if not natural:
        adam.build(model.trainable_variables)
    started = perf_counter()
    compiled = step.get_concrete_function()
    compile_seconds = perf_counter() - started
    trace = ScoreTrace(problem, scores)
    while trace.tick():
        compiled()
    return trace.result(1) | {"compile_seconds": compile_seconds}


def sampled_model(problem: Problem) -> gpflow.models.SGPMC:
    """Log-normal priors over length-scales and variance, as the other contestants'."""
    options = problem.options
    likelihood = {"logit": Logit, "poisson": gpflow.likelihoods.Poisson}[options["likelihood"]]()
    middle = np.full(problem.X.shape[1], options["middle"])
    kernel = gpflow.kernels.SquaredExponential(1.0, middle if len(middle) > 1 else middle[0])
    log_normal = tfp.distributions.LogNormal
    kernel.lengthscales.prior = log_normal(np.log(kernel.lengthscales.numpy()), np.float64(1.0))
    kernel.variance.prior = log_normal(np.float64(0.0), np.float64(1.0))
    data = problem.X, problem.y[:, None]
    model = gpflow.models.SGPMC(data, kernel, likelihood, inducing_variable=problem.Z)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def transition(helper: gpflow.optimizers.SamplingHelper, options: dict) -> Any:
    """HMC or NUTS whose step size is adapted in the warm-up."""
    density, mcmc = helper.target_log_prob_fn, tfp.mcmc
    size = tf.constant(0.01, gpflow.default_float())
    if options["sampler"] == "NUTS":
        inner, accepted = mcmc.NoUTurnSampler(density, step_size=size), NUTS_ACCEPTED
    else:
        inner = mcmc.HamiltonianMonteCarlo(density, step_size=size, num_leapfrog_steps=LEAPFROGS)
        accepted = HMC_ACCEPTED
    return mcmc.DualAveragingStepSizeAdaptation(
        inner,
        num_adaptation_steps=options["warmup"],
        target_accept_prob=tf.constant(accepted, gpflow.default_float()),
    )


def chains(problem: Problem) -> Result:
    """SGPMC: hyper-parameters and white inducing variables together, one chain after another."""
    options = problem.options
    if options["warmup"] % DRAWS_A_CALL or options["draws"] % DRAWS_A_CALL:
        raise ValueError(f"warm-up and draws must be multiples of {DRAWS_A_CALL}")
    model = sampled_model(problem)
    parameters = [model.kernel.lengthscales, model.kernel.variance, model.V]
    helper = gpflow.optimizers.SamplingHelper(model.log_posterior_density, parameters)
    kernel, optimiser = transition(helper, options), gpflow.optimizers.Scipy()
    origin = [tf.identity(part) for part in helper.current_state]

    @tf.function
    def piece(state: list[tf.Tensor], results: Any, seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            DRAWS_A_CALL,
            state,
            results,
            kernel,
            trace_fn=None,
            return_final_kernel_results=True,
            seed=seed,
        )

    def start(steps: int) -> tuple[list[tf.Tensor], Any]:
        for variable, value in zip(helper.current_state, origin, strict=True):
            variable.assign(value)
        optimiser.minimize(
            model.training_loss, model.trainable_variables, options={"maxiter": steps}
        )
        state = [tf.identity(part) for part in helper.current_state]
        return state, kernel.bootstrap_results(state)

    def run(at: tuple[list[tf.Tensor], Any], number: int, seed: tuple[int, int]) -> Any:
        collected = []
        for index in range(number // DRAWS_A_CALL):
            drawn = piece(*at, seed=tf.constant([seed[0], 1000 * seed[1] + index]))
            collected.append([part.numpy() for part in drawn.all_states])
            at = [part[-1] for part in drawn.all_states], drawn.final_kernel_results
        return at, [np.concatenate(parts) for parts in zip(*collected, strict=True)]

    started = perf_counter()
    run(start(1), DRAWS_A_CALL, (0, 0))
    compile_seconds = perf_counter() - started
    warmup_seconds, draws_seconds, columns = 0.0, 0.0, []
    for chain in range(options["chains"]):
        started = perf_counter()
        at, _ = run(start(START_STEPS), options["warmup"], (chain, 1))
        warm = perf_counter()
        _, drawn = run(at, options["draws"], (chain, 2))
        warmup_seconds += warm - started
        draws_seconds += perf_counter() - warm
        lengthscale, variance, white = helper.convert_to_constrained_values(drawn)
        parts = np.log(lengthscale), np.log(variance), np.asarray(white)
        columns.append(np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1))
    return {
        "compile_seconds": compile_seconds,  # and those of the first draws
        "warmup_seconds": warmup_seconds,
        "draws_seconds": draws_seconds,
        "draws": kept(problem, np.stack(columns)),
    }


if __name__ == "__main__":
    serve(
        {
            "collapsed_bound": collapsed_bound,
            "collapsed_fit": collapsed_fit,
            "sparse_binary": sparse_binary,
            "sparse_regression": sparse_regression,
            "sparse_multiclass": sparse_multiclass,
            "sparse_student": sparse_student,
            "sparse_bound": sparse_bound,
            "black_box": black_box,
            "chains": chains,
        },
        packages=("gpflow", "tensorflow", "tensorflow-probability", "numpy"),
    )
