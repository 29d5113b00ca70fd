"""TO BE WRITTEN BY THE FOUNDER: latentgp's side of every benchmark.

A worker like the peers' `run.py`, in this project's own environment. Each task takes a
`Problem` and returns a dictionary; tasks and keys are the same for every contestant:

- `seconds`: wall time of the fit, from arrays in memory to a fitted model. The harness's first
  run of a job is the cold one, so compile inside the timed part and keep what is compiled. The
  repetitions of a job get the very same `Problem` object. Block until JAX is done.
- `predict_seconds`: of the held-out predictions.
- `evaluations`: of the objective and its gradient.
- `log_evidence`: the objective at the end, exact or a lower bound, in nats over all rows.
- scores from `gaussian_scores` (predictive variance with noise) or `bernoulli_scores`.

Start the kernel at `problem.lengthscale` (one entry an input, or a single one for an isotropic
kernel), `problem.variance`, and the noise at `problem.noise_variance`; no priors; keep the
inducing points where `problem.Z` has them.
"""

from contestant import Problem, Result, serve


def exact_regression(problem: Problem) -> Result:
    """`ExactGP`, maximum likelihood by L-BFGS to SciPy's default tolerances.

    Keys: seconds, predict_seconds, evaluations, log_evidence, rmse, nlpd.
    """
    raise NotImplementedError


def binary_classification(problem: Problem) -> Result:
    """`method="auto"`, logit link. `problem.Z` is the peers'; auto need not use it.

    Keys: seconds, predict_seconds, evaluations, log_evidence, log_loss, error.
    """
    raise NotImplementedError


def collapsed_bound(problem: Problem) -> Result:
    """One value of `CollapsedVI`'s bound and its gradient, at the start of the hyper-parameters.

    Keep the compiled function by the problem (`functools.lru_cache(maxsize=1)`): the first run
    then counts compilation and the later ones the value and gradient alone.
    Keys: seconds, log_evidence.
    """
    raise NotImplementedError


def collapsed_fit(problem: Problem) -> Result:
    """The whole `CollapsedVI` fit with `problem.Z` fixed.

    Keys: seconds, predict_seconds, evaluations, log_evidence, rmse, nlpd.
    """
    raise NotImplementedError


def sparse_binary(problem: Problem) -> Result:
    """`problem.options["method"]` is "AugmentedVI" or "VariationalInference"; logit link.

    Compile first and time that as `compile_seconds`. Then make a `LossTrace(problem,
    probabilities)`, whose clock starts at once; `probabilities()` gives the held-out rows'
    probabilities of class 1 under the model as it stands. Call `trace.tick()` after each round
    and stop when it is false; after stopping by itself call `trace.record()`. Return
    `trace.result() | {"compile_seconds": ...}`. The peers' `batch_size` and `learning_rate` are
    in the options too and need not be used.
    """
    raise NotImplementedError


if __name__ == "__main__":
    serve(
        {
            task.__name__: task
            for task in (
                exact_regression,
                binary_classification,
                collapsed_bound,
                collapsed_fit,
                sparse_binary,
            )
        },
        packages=("latentgp", "jax", "jaxlib", "numpy"),
    )
