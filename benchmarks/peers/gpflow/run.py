"""GPflow, float64 as by default; what it optimises is compiled by `tf.function`."""

import functools
from collections.abc import Callable
from time import perf_counter

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras

from contestant import LossTrace, Problem, Result, gaussian_scores, serve

STEPS_A_CALL = 10  # mini-batch steps inside one compiled call


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


def sparse_binary(problem: Problem) -> Result:
    """Mini-batches, Adam on the whitened q and the kernel alike, logit link."""
    tf.random.set_seed(0)
    n_rows, batch_size = len(problem.y), problem.options["batch_size"]
    X, y = tf.constant(problem.X), tf.constant(problem.y[:, None])
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    model = gpflow.models.SVGP(latent_kernel(problem), likelihood, problem.Z, num_data=n_rows)
    gpflow.set_trainable(model.inducing_variable, False)
    adam = tf_keras.optimizers.Adam(problem.options["learning_rate"])
    adam.build(model.trainable_variables)

    @tf.function
    def take(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            rows = tf.random.uniform([batch_size], maxval=n_rows, dtype=tf.int32)
            batch = tf.gather(X, rows), tf.gather(y, rows)
            loss = model.training_loss_closure(batch, compile=False)
            adam.minimize(loss, model.trainable_variables)

    predict = tf.function(lambda: model.predict_y(problem.X_test)[0])

    def class_one() -> np.ndarray:
        return predict().numpy()[:, 0]

    started = perf_counter()
    take(tf.constant(0))
    class_one()
    compile_seconds = perf_counter() - started
    trace = LossTrace(problem, class_one)
    while trace.tick():
        take(tf.constant(STEPS_A_CALL))
    return trace.result() | {"compile_seconds": compile_seconds}


if __name__ == "__main__":
    serve(
        {
            "collapsed_bound": collapsed_bound,
            "collapsed_fit": collapsed_fit,
            "sparse_binary": sparse_binary,
        },
        packages=("gpflow", "tensorflow", "tensorflow-probability", "numpy"),
    )
