"""GPflux: deep Gaussian processes by doubly stochastic variational inference, float64."""

from collections.abc import Callable
from time import perf_counter

import gpflow
import gpflux
import numpy as np
import tensorflow as tf
from gpflux.helpers import (
    construct_basic_inducing_variables,
    construct_basic_kernel,
    construct_mean_function,
)

from contestant import Problem, Result, ScoreTrace, bernoulli_scores, mixture_scores, serve

STEPS_A_CALL = 10  # mini-batch steps inside one compiled call


def two_layers(problem: Problem, likelihood: gpflow.likelihoods.Likelihood) -> gpflux.models.DeepGP:
    """As `build_constant_input_dim_deep_gp` but for the starts, and the width if one is given."""
    options, n_rows, inputs = problem.options, len(problem.y), problem.X.shape[1]
    width = options["width"] or inputs
    mean = construct_mean_function(problem.X, inputs, width)
    Z, layers = problem.Z, []
    for place, (seen, made) in enumerate(((inputs, width), (width, 1))):
        kernel = gpflow.kernels.SquaredExponential(problem.variance, np.full(seen, seen**0.5))
        hidden = place == 0
        layer = gpflux.layers.GPLayer(
            construct_basic_kernel(kernel, output_dim=made, share_hyperparams=True),
            construct_basic_inducing_variables(len(Z), seen, share_variables=True, z_init=Z),
            n_rows,
            mean_function=mean if hidden else gpflow.mean_functions.Zero(),
            name=f"gp_{place}",
        )
        if hidden:
            layer.q_sqrt.assign(layer.q_sqrt * options["hidden_deviation"])
            Z = np.asarray(mean(Z))
        layers.append(layer)
    return gpflux.models.DeepGP(layers, gpflux.layers.LikelihoodLayer(likelihood))


def deep(
    problem: Problem,
    likelihood: gpflow.likelihoods.Likelihood,
    answer: Callable[..., tuple[tf.Tensor, ...]],
    scores: Callable[..., Result],
) -> Result:
    """Adam on all, steps compiled by `tf.function`; one draw of the hidden layer a step.

    With the option `natural`, the last layer's q takes natural-gradient steps of that size instead,
    as in `gpflux.optimization.NatGradModel`.
    """
    tf.random.set_seed(0)
    options, n_rows = problem.options, len(problem.y)
    model = two_layers(problem, likelihood)
    X, y, X_test = (tf.constant(a) for a in (problem.X, problem.y[:, None], problem.X_test))
    components, rows_held_out = options["components"], len(problem.X_test)
    model.predict_f(X_test[:2])  # makes the layers
    adam = tf.keras.optimizers.legacy.Adam(options["learning_rate"])
    last, own = model.f_layers[-1], []
    if options.get("natural"):
        natural = gpflow.optimizers.NaturalGradient(options["natural"])
        own = [last.q_mu.unconstrained_variable, last.q_sqrt.unconstrained_variable]
    others = [v for v in model.trainable_variables if not any(v is part for part in own)]

    @tf.function
    def take(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            rows = tf.random.uniform([options["batch_size"]], maxval=n_rows, dtype=tf.int32)
            with tf.GradientTape() as tape:
                loss = -model.elbo((tf.gather(X, rows), tf.gather(y, rows)))
            in_own, in_others = tape.gradient(loss, (own, others))
            if own:
                natural._natgrad_apply_gradients(*in_own, last.q_mu, last.q_sqrt)
            adam.apply_gradients(zip(in_others, others, strict=True))

    @tf.function
    def predict() -> tuple[tf.Tensor, ...]:
        mean, variance = model.predict_f(tf.tile(X_test, [components, 1]))
        return answer(mean, variance)

    def evaluate() -> Result:
        parts = predict()
        return scores(*(part.numpy().reshape(components, rows_held_out) for part in parts))

    started = perf_counter()
    take(tf.constant(0))
    evaluate()
    compile_seconds = perf_counter() - started
    trace = ScoreTrace(problem, evaluate)
    while trace.tick():
        take(tf.constant(STEPS_A_CALL))
    return trace.result(steps_a_tick=STEPS_A_CALL) | {"compile_seconds": compile_seconds}


def deep_regression(problem: Problem) -> Result:
    likelihood = gpflow.likelihoods.Gaussian(problem.noise_variance)
    return deep(
        problem,
        likelihood,
        lambda mean, variance: likelihood.predict_mean_and_var(None, mean, variance),
        lambda mean, variance: mixture_scores(problem.y_test, mean, variance),
    )


def deep_binary(problem: Problem) -> Result:
    """Logit link."""
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    return deep(
        problem,
        likelihood,
        lambda mean, variance: likelihood.predict_mean_and_var(None, mean, variance)[:1],
        lambda probability: bernoulli_scores(problem.y_test, probability.mean(axis=0)),
    )


if __name__ == "__main__":
    serve(
        {"deep_regression": deep_regression, "deep_binary": deep_binary},
        packages=("gpflux", "gpflow", "tensorflow", "tensorflow_probability", "numpy"),
    )
