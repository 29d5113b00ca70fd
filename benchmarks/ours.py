"""latentgp's side of every benchmark: a worker like the peers' `run.py`.

Timed from arrays in memory to a fitted model. No priors and the given start, except in
`binary_classification` and `classifier`, which are what a user of `GPClassifier` gets. The
harness's first run of a job is the cold one; JAX keeps what it compiled.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import LogNormal

import latentgp as lgp
from contestant import (
    SCORES_OF_F,
    EvidenceTrace,
    Problem,
    Result,
    ScoreTrace,
    TimeIsUp,
    bernoulli_scores,
    class_scores,
    coverage,
    gaussian_scores,
    kept,
    minus_bound,
    poisson_scores,
    serve,
    student_scores,
)
from latentgp.extensions.chains.draws import Chains
from latentgp.extensions.iterative.matrix_free.solves import MatrixFreeSolves
from latentgp.extensions.iterative.solvers.solution import Solution
from latentgp.extensions.state_space.markov.filtering import filtered, smoothed
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.posteriors.evidence import Evidence
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.progress import RunControl
from latentgp.setup.priors import scales, search_bounds, weak_priors
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import THINNED_RUN, SearchResult, learn, thinned
from latentgp.site_inference.search.profiled_bound import converge_at, evaluate, initial_sites
from latentgp.site_inference.search.search import EndFit, Record, Search
from latentgp.sites.gaussian import GaussianSites

KEY = jax.random.key(0)
TIMED_STEPS = 20
SAMPLING_PIECE = 50  # sweeps in one compiled loop
RECORDED: list[Chains] = []
EVIDENCES: dict[Any, Callable[[np.ndarray], Any]] = {}  # compiled, of each job
MOST_EVALUATIONS = 1000  # where the bound is followed to its maximum
TOLERANCE = 1e-9  # nats a row, about what SciPy's default is for the peers


def model_of(problem: Problem, likelihood: lgp.Likelihood) -> lgp.LatentGP:
    lengthscale = problem.lengthscale if len(problem.lengthscale) > 1 else problem.lengthscale[0]
    kernel = lgp.RBF(lengthscale=lengthscale, variance=problem.variance)
    return lgp.LatentGP(kernel, likelihood)


def regression(problem: Problem, method: lgp.Method) -> Result:
    model = model_of(problem, lgp.Gaussian(noise_variance=problem.noise_variance))
    started = perf_counter()
    fitted = lgp.fit(
        model,
        lgp.Data(problem.X, problem.y),
        method=method,
        priors=None,
        tolerance=TOLERANCE,
        key=KEY,
    )
    seconds = perf_counter() - started
    started = perf_counter()
    predictive = fitted.posterior.predict(problem.X_test)
    mean, variance = predictive.mean, predictive.variance
    return {
        "seconds": seconds,
        "predict_seconds": perf_counter() - started,
        "evaluations": fitted.diagnostics.evaluations,
        "log_evidence": fitted.posterior.log_evidence.value,
        **gaussian_scores(problem.y_test, mean, variance),
    }


def exact_regression(problem: Problem) -> Result:
    """`ExactGP`, maximum likelihood."""
    return regression(problem, lgp.ExactGP())


def neighbours(problem: Problem) -> Result:
    """`ExactGP` or `Laplace` of `Neighbours(...)`, maximum likelihood, its own tolerance.

    Without neighbours `CollapsedVI` of inducing points.
    """
    options = problem.options
    number, inducing = options["neighbours"], options.get("inducing")
    name = options.get("likelihood", "gaussian")
    likelihood = {
        "gaussian": lgp.Gaussian(noise_variance=problem.noise_variance),
        "bernoulli": lgp.Bernoulli(),
        "poisson": lgp.Poisson(),
    }[name]
    if number:
        predicted = options["predicted"]
        own = lgp.Neighbours(number, number_predicted=predicted, inducing=inducing)
        method = lgp.ExactGP(own) if name == "gaussian" else lgp.Laplace(own)
    else:
        method = lgp.CollapsedVI(lgp.Inducing(inducing))
    mean = lgp.ConstantMean() if name == "poisson" else lgp.ZeroMean()
    kernel = lgp.Matern32(lengthscale=problem.lengthscale, variance=problem.variance)
    model = lgp.LatentGP(kernel, likelihood, mean=mean)
    data = lgp.Data(problem.X, problem.y)
    started, cpu = perf_counter(), process_time()
    fitted = lgp.fit(model, data, method=method, priors=None, key=KEY)
    seconds, cpu = perf_counter() - started, process_time() - cpu
    started = perf_counter()
    if name == "poisson":
        law: Any = fitted.posterior.predict_f(problem.X_test)
    else:
        law = fitted.posterior.predict(problem.X_test)
    mean, variance = np.asarray(law.mean).ravel(), np.asarray(law.variance).ravel()
    predict_seconds = perf_counter() - started
    if name == "gaussian":
        own_scores = {"coverage": coverage(problem.y_test, mean, variance)}
        own_scores |= gaussian_scores(problem.y_test, mean, variance)
    elif name == "poisson":
        own_scores = poisson_scores(problem.y_test, mean, variance)
    else:
        own_scores = bernoulli_scores(problem.y_test, mean)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "predict_seconds": predict_seconds,
        "evaluations": fitted.diagnostics.evaluations,
        "log_evidence": fitted.posterior.log_evidence.value,
        **own_scores,
    }


def collapsed_fit(problem: Problem) -> Result:
    """`CollapsedVI` with the given inducing points."""
    return regression(problem, lgp.CollapsedVI(lgp.Inducing(points=problem.Z)))


def collapsed_bound(problem: Problem) -> Result:
    """One value of the collapsed bound and its gradient, at the start."""
    with jax.enable_x64(True), one_blas_thread():
        model = model_of(problem, lgp.Gaussian(noise_variance=problem.noise_variance))
        algorithm = lgp.CollapsedVI(lgp.Inducing(points=problem.Z)).algorithm(model)
        space = ParameterSpace(model)
        vector = jnp.asarray(space.to_vector())
        data = lgp.Data(problem.X, problem.y).to_device()
        sites = initial_sites(algorithm, model, data)
        jax.block_until_ready((vector, data, sites))
        started = perf_counter()
        result = evaluate(algorithm, space, vector, data, sites)
        value = float(result.value)
        jax.block_until_ready(result.gradient)
        return {"seconds": perf_counter() - started, "log_evidence": value}


def conjugate_gradients(problem: Problem) -> Result:
    """`MatrixFree`: one evidence with its gradient, and K^-1 y, with certified residuals."""
    options = problem.options
    noise, lengthscale = options["noise_variance"], problem.lengthscale
    model = model_of(
        replace(problem, lengthscale=np.full_like(lengthscale, options["lengthscale"])),
        lgp.Gaussian(noise_variance=noise),
    )
    with jax.enable_x64(True), one_blas_thread():
        data = lgp.Data(problem.X, problem.y).to_device()
        own = lgp.MatrixFree(
            store=options["store"],
            precision=options["precision"],
            tolerance=options["tolerance"],
            probes=options["probes"],
            max_steps=1000,
        ).initialise(data.X, None, model.kernel, KEY)
        algorithm = lgp.ExactGP(own).algorithm(model)
        space = ParameterSpace(model)
        vector = jnp.asarray(space.to_vector())
        sites = initial_sites(algorithm, model, data)
        jax.block_until_ready((vector, data, sites))
        started, cpu = perf_counter(), process_time()
        result = evaluate(algorithm, space, vector, data, sites)
        value = float(result.value)
        gradient = np.asarray(result.gradient)
        seconds, cpu = perf_counter() - started, process_time() - cpu
        solves, root = own.solves, jnp.full(data.size, noise**-0.5)
        right = (data.y / np.sqrt(noise))[:, None]
        started = process_time()
        solution = jax.block_until_ready(solved(solves, model.kernel, data.X, root, right))
        solve_cpu = process_time() - started
        posterior = converge_at(algorithm, space, vector, data, sites).posterior
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "log_evidence": value,
        "gradient": gradient.tolist(),  # of logarithms: kernel first, noise variance last
        "standard_error": float(posterior.evidence_error),
        "steps": int(posterior.report.steps[0]),
        "worst_residual": float(jnp.max(posterior.report.relative_residual)),
        "solve_cpu_seconds": solve_cpu,
        "solve_steps": int(solution.steps),
        "residual": float(solution.relative_residual[0]),
    }


@jax.jit
def solved(solves: MatrixFreeSolves, kernel: lgp.Kernel, X: Any, root: Any, right: Any) -> Solution:
    """B^-1 right, B = I + W^1/2 K W^1/2 with W = root^2, from the rows on."""
    return solves.solve(*solves.prepared(kernel, X, root), right)


def binary_classification(problem: Problem) -> Result:
    """`GPClassifier` with `method="auto"`: weak priors, inducing points of its own choice."""
    started = perf_counter()
    kernel = model_of(problem, lgp.Bernoulli()).kernel
    classifier = lgp.GPClassifier(kernel, random_state=0).fit(problem.X, problem.y)
    seconds = perf_counter() - started
    started = perf_counter()
    probability = classifier.predict_proba(problem.X_test)[:, 1]
    return {
        "seconds": seconds,
        "predict_seconds": perf_counter() - started,
        "evaluations": classifier.diagnostics_.evaluations,
        "log_evidence": classifier.posterior_.log_evidence.value,
        **bernoulli_scores(problem.y_test, probability),
    }


def classifier(problem: Problem) -> Result:
    """`GPClassifier` with its defaults, but for the options."""
    started, worked = perf_counter(), process_time()
    fitted = lgp.GPClassifier(random_state=0, **problem.options).fit(problem.X, problem.y)
    seconds, worked = perf_counter() - started, process_time() - worked
    probabilities = fitted.predict_proba(problem.X_test)
    of_truth = probabilities[np.arange(len(probabilities)), problem.y_test.astype(int)]
    return {
        "seconds": seconds,
        "cpu_seconds": worked,
        "evaluations": fitted.diagnostics_.evaluations,
        "converged": fitted.diagnostics_.converged,
        "log_losses": kept(problem, -np.log(np.maximum(of_truth, np.finfo(float).tiny))),
        **class_scores(problem.y_test, probabilities),
    }


def regressor(problem: Problem) -> Result:
    """`GPRegressor` with its defaults, but for the options."""
    started = perf_counter()
    fitted = lgp.GPRegressor(random_state=0, **problem.options).fit(problem.X, problem.y)
    seconds = perf_counter() - started
    density = fitted.log_predictive_density(problem.X_test, problem.y_test)
    error = fitted.predict(problem.X_test) - problem.y_test
    return {
        "seconds": seconds,
        "evaluations": fitted.diagnostics_.evaluations,
        "converged": fitted.diagnostics_.converged,
        "log_losses": kept(problem, -density),
        "log_loss": -density.mean(),
        "error": np.sqrt(np.mean(error**2)),
    }


BINARY = {"logit": lgp.Bernoulli, "probit": lgp.BernoulliProbit}


def binary_evidence(problem: Problem) -> Result:
    """One value and gradient, at the start, with sites from nothing."""
    options = problem.options
    model = model_of(problem, BINARY[options["link"]]())
    method = getattr(lgp, options["method"])()
    rows = lgp.Data(problem.X, problem.y)
    with jax.enable_x64(True), one_blas_thread():
        algorithm, space = method.algorithm(model), ParameterSpace(model)
        vector, data = jnp.asarray(space.to_vector()), rows.to_device()
        jax.block_until_ready((vector, data))
        started = perf_counter()
        sites = initial_sites(algorithm, model, data)
        result = evaluate(algorithm, space, vector, data, sites)
        value, gradient = float(result.value), np.asarray(result.gradient)
        seconds = perf_counter() - started
    fitted = lgp.fit(model, rows, method=method, learn_hyperparameters=False, key=KEY)
    return {
        "seconds": seconds,
        "log_evidence": value,
        "gradient": gradient.tolist(),
        "mean_of_f": kept(problem, fitted.posterior.mean_f(problem.X)),
    }


def evidence_fit(
    problem: Problem, model: lgp.LatentGP, method: lgp.Method, frozen: Sequence[str] = ()
) -> tuple[lgp.Posterior, Result]:
    """A fit and the log evidences, or bounds, against its time."""

    def fit(**settings: Any) -> lgp.Posterior:
        fitted = lgp.fit(
            model,
            lgp.Data(problem.X, problem.y),
            method=method,
            priors=None,
            frozen=frozen,
            tolerance=TOLERANCE,
            max_seconds=problem.options["max_seconds"],
            key=KEY,
            **settings,
        )
        return fitted.posterior

    def note(progress: lgp.RunProgress) -> None:
        if progress.restart != THINNED_RUN:
            with contextlib.suppress(TimeIsUp):  # the fit stops by itself
                trace.note(progress.bound)

    jax.clear_caches()  # so that every run measures what compilation takes
    started = perf_counter()
    fit(max_evaluations=1)
    compile_seconds = perf_counter() - started
    trace = EvidenceTrace(problem)
    posterior = fit(callback=note, max_evaluations=MOST_EVALUATIONS)
    return posterior, trace.result() | {"compile_seconds": compile_seconds}


def binary_fit(problem: Problem) -> Result:
    """Maximum likelihood by `Laplace` or `ExpectationPropagation`."""
    model = model_of(problem, BINARY[problem.options["link"]]())
    return evidence_fit(problem, model, getattr(lgp, problem.options["method"])())[1]


def sparse_bound(problem: Problem) -> Result:
    """`VariationalInference`, the rows all at once, as the peers'; the prior mean stays."""
    options = problem.options
    likelihood = {"probit": lgp.BernoulliProbit, "poisson": lgp.Poisson}[options["likelihood"]]()
    model = replace(model_of(problem, likelihood), mean=lgp.ConstantMean(options["prior_mean"]))
    method = lgp.VariationalInference(lgp.Inducing(points=problem.Z))
    posterior, result = evidence_fit(problem, model, method, frozen=["mean"])
    law = posterior.predict_f(problem.X_test)
    scores = SCORES_OF_F[options["likelihood"]]
    return result | scores(problem.y_test, law.mean, law.variance)


class TracedSearch(Search):
    """Shows the trace every evaluation, with the rows and sites that the search has at hand."""

    def __init__(
        self,
        problem: Problem,
        algorithm: SiteInference,
        space: ParameterSpace,
        data: lgp.Data,
        scores: Callable[[lgp.Posterior], Result],
    ):
        super().__init__(max_evaluations=200, control=RunControl(perf_counter()))
        self._algorithm, self._space = algorithm, space
        self._all, self._thinned = data, thinned(data)
        self._current = None
        self.trace = ScoreTrace(problem, lambda: scores(self._posterior()))

    def report(self, record: Record, sites: GaussianSites) -> Record:
        record = super().report(record, sites)
        rows = self._thinned if record.restart == THINNED_RUN else self._all
        self._current = record.vector, rows, sites
        if not self.trace.tick():
            raise EndFit("the time is up")
        return record

    def show_last(self, learned: SearchResult) -> None:
        """Where the search ended, which need not be where it looked last."""
        self._current = learned.vector, self._all, learned.sites
        self.trace.record()

    def _posterior(self) -> lgp.Posterior:
        vector, rows, sites = self._current
        model = self._space.to_model(jnp.asarray(vector))
        state = self._algorithm.resume(model, rows, sites)
        evidence = Evidence(float("nan"), "lower bound")
        return lgp.Posterior.gaussian(state.model, state.posterior, evidence)


def traced(
    problem: Problem,
    model: lgp.LatentGP,
    scores: Callable[[lgp.Posterior], Result],
    frozen: Sequence[str] = (),
) -> Result:
    """Held-out scores against time, with the sites as they stand after each evaluation."""
    jax.clear_caches()  # so that every run measures what compilation takes
    with jax.enable_x64(True), one_blas_thread():
        method = getattr(lgp, problem.options["method"])(lgp.Inducing(points=problem.Z))
        rows = lgp.Data(problem.X, problem.y)
        scale = scales(model, rows)
        priors = weak_priors(model, scale) if problem.options.get("priors") else {}
        algorithm = method.algorithm(model)
        space = ParameterSpace(model, frozen=tuple(frozen), priors=priors)
        bounds = search_bounds(space, scale)
        data = rows.to_device()

        def run(search: Search) -> SearchResult:
            return learn(
                algorithm,
                space,
                data,
                bounds=bounds,
                restarts=0,
                tolerance=1e-6,
                search=search,
                key=KEY,
            )

        started = perf_counter()
        run(Search(max_evaluations=1, control=RunControl(perf_counter())))
        compile_seconds = perf_counter() - started
        search = TracedSearch(problem, algorithm, space, data, scores)
        search.show_last(run(search))
        evaluations = len(search.records)
        return search.trace.result() | {
            "compile_seconds": compile_seconds,
            "evaluations": evaluations,
        }


def sparse_binary(problem: Problem) -> Result:
    def scores(posterior: lgp.Posterior) -> Result:
        return bernoulli_scores(problem.y_test, posterior.predict(problem.X_test).mean)

    trained = by_batches if "epochs" in problem.options else traced
    return trained(problem, model_of(problem, lgp.Bernoulli()), scores)


def sparse_regression(problem: Problem) -> Result:
    """Gaussian noise: the collapsed bound with all rows at once, or batches."""
    model = model_of(problem, lgp.Gaussian(noise_variance=problem.noise_variance))

    def scores(posterior: lgp.Posterior) -> Result:
        predictive = posterior.predict(problem.X_test)
        return gaussian_scores(problem.y_test, predictive.mean, predictive.variance)

    trained = by_batches if "epochs" in problem.options else traced
    return trained(problem, model, scores)


def by_batches(
    problem: Problem, model: lgp.LatentGP, scores: Callable[[lgp.Posterior], Result]
) -> Result:
    """`Stochastic` from a user's point of view: the thinned start, then batches; weak priors."""
    options = problem.options
    site_method = getattr(lgp, options["method"])(lgp.Inducing(points=problem.Z))
    method = lgp.Stochastic(site_method, batch_size=options["batch_size"], epochs=options["epochs"])
    return by_rounds(problem, model, method, scores)


def by_rounds(
    problem: Problem,
    model: lgp.LatentGP,
    method: lgp.Method,
    scores: Callable[[lgp.Posterior], Result],
) -> Result:
    """A method that shows its posterior after every round of batches.

    A first fit, of two rounds of batches and more until there were twenty steps between, nothing
    scored, compiles and gives the time of a step; its seconds are those of compiling and computing.
    """
    data = lgp.Data(problem.X, problem.y)

    def fit(callback: Callable[[Any], bool]) -> lgp.Fit:
        return lgp.fit(model, data, key=KEY, method=method, callback=callback)

    rounds: list[Any] = []

    def end_after_some(progress: Any) -> bool:
        rounds.append(progress)
        return progress.steps - rounds[0].steps >= TIMED_STEPS

    jax.clear_caches()  # so that every run measures what compilation takes
    started = perf_counter()
    fit(end_after_some)
    compile_seconds = perf_counter() - started
    steps = rounds[-1].steps - rounds[0].steps
    step_ms = 1000 * (rounds[-1].seconds - rounds[0].seconds) / steps if steps else None
    latest: Any = None  # makes the posterior, for scores alone
    trace = ScoreTrace(problem, lambda: scores(latest()))

    def look(progress: Any) -> bool:
        nonlocal latest
        latest = progress.posterior
        return not trace.tick()

    latest = partial(getattr, fit(look), "posterior")
    trace.record()
    return trace.result() | {"compile_seconds": compile_seconds, "step_ms": step_ms}


def deep_regression(problem: Problem) -> Result:
    """Gaussian noise."""

    def scores(posterior: lgp.Posterior) -> Result:
        predictive = posterior.predict(problem.X_test)
        error = predictive.mean - problem.y_test
        nlpd = -predictive.log_prob(problem.y_test).mean()
        return {"rmse": float(np.sqrt(np.mean(error**2))), "nlpd": float(nlpd)}

    return deep(problem, lgp.Gaussian(problem.noise_variance), scores)


def deep_binary(problem: Problem) -> Result:
    def scores(posterior: lgp.Posterior) -> Result:
        return bernoulli_scores(problem.y_test, posterior.predict(problem.X_test).mean)

    return deep(problem, lgp.Bernoulli(), scores)


def deep(
    problem: Problem, likelihood: lgp.Likelihood, scores: Callable[[lgp.Posterior], Result]
) -> Result:
    """`RandomFeatureVI`; every layer sees the inputs, and weak priors."""
    options, width = problem.options, problem.options["width"]
    seen = width + problem.X.shape[1]
    kernel = lgp.RBF(np.full(seen, seen**0.5), problem.variance)
    hidden = lgp.Layer(model_of(problem, likelihood).kernel, width)
    model = lgp.DeepGP(kernel, likelihood, layers=[hidden])
    method = lgp.RandomFeatureVI(
        options["features"],
        batch_size=options["batch_size"],
        epochs=options["epochs"],
        start=options["start"],
    )
    return by_rounds(problem, model, method, scores)


def sparse_multiclass(problem: Problem) -> Result:
    """One likelihood of several classes."""

    def scores(posterior: lgp.Posterior) -> Result:
        return class_scores(problem.y_test, posterior.predict(problem.X_test).probabilities)

    likelihoods = {
        "softmax": lgp.Softmax,
        "logistic-softmax": lgp.LogisticSoftmax,
        "robust-max": lgp.RobustMax,
    }
    likelihood = likelihoods[problem.options["likelihood"]](problem.options["classes"])
    trained = by_batches if "epochs" in problem.options else traced
    return trained(problem, model_of(problem, likelihood), scores)


def sparse_student(problem: Problem) -> Result:
    """The scale is learned, the degrees of freedom are not."""
    likelihood = lgp.StudentT(
        scale=problem.noise_variance**0.5,
        degrees_of_freedom=problem.options["degrees_of_freedom"],
    )

    def scores(posterior: lgp.Posterior) -> Result:
        law, learned = posterior.predict_f(problem.X_test), posterior.model.likelihood
        return student_scores(
            problem.y_test,
            law.mean,
            law.variance,
            float(learned.scale),
            float(learned.degrees_of_freedom),
        )

    return traced(problem, model_of(problem, likelihood), scores, ["likelihood.degrees_of_freedom"])


def black_box(problem: Problem) -> Result:
    """`BlackBoxVI`, hyper-parameters held: by nodes to its end; by draws of ever more steps."""
    options = problem.options
    likelihood = {"logit": lgp.Bernoulli, "poisson": lgp.Poisson}[options["likelihood"]]()
    model, rows = model_of(problem, likelihood), lgp.Data(problem.X, problem.y)
    by_draws = options["estimator"] != "quadrature"

    def fitted(steps: int) -> tuple[float, Result]:
        method = lgp.BlackBoxVI(
            estimator=options["estimator"], samples=options["samples"], steps=steps
        )
        started = perf_counter()
        fit = lgp.fit(model, rows, method=method, learn_hyperparameters=False, key=KEY)
        seconds = perf_counter() - started
        law = fit.posterior.predict_f(problem.X)
        return seconds, minus_bound(problem, *law, float(fit.posterior.latent.kl))

    jax.clear_caches()
    first, _ = fitted(20)
    points, steps = [], 20
    while not points or (by_draws and points[-1]["training_seconds"] < options["max_seconds"]):
        seconds, score = fitted(steps)
        points.append({"training_seconds": seconds} | score)
        steps *= 2
        if steps > options["most_steps"]:
            break
    return {"trace": points, "compile_seconds": first - points[0]["training_seconds"]} | points[-1]


def sampling(problem: Problem) -> Result:
    """`GibbsSampling`, or `MCMC` of some settings; a coefficient a row, hyper-parameters fixed."""
    options = problem.options
    settings = options.get("settings")
    if options["likelihood"] == "student":
        likelihood = lgp.StudentT(
            scale=options["scale"], degrees_of_freedom=options["degrees_of_freedom"]
        )
    else:
        likelihood = lgp.Bernoulli()
    model = model_of(problem, likelihood)
    method = lgp.GibbsSampling if settings is None else lgp.MCMC
    fixed = {"learn_hyperparameters": False}
    fitted, result = timed_chains(problem, model, method, settings or {}, fixed)
    f = f_at_rows(fitted.posterior, problem.X, options["chains"])
    return result | {"draws": kept(problem, f)}


def chains(problem: Problem) -> Result:
    """`MCMC`, or `GibbsSampling` where no settings are given, of hyper-parameters too.

    Through inducing points where there are some, whose white values are then what is kept of f.
    """
    options, inputs = problem.options, problem.X.shape[1]
    likelihood = lgp.Poisson() if options["likelihood"] == "poisson" else lgp.Bernoulli()
    middle = options["middle"]
    lengthscale = np.full(inputs, middle) if inputs > 1 else middle
    model = lgp.LatentGP(lgp.RBF(lengthscale=lengthscale, variance=1.0), likelihood)
    priors = {
        "kernel.lengthscale": LogNormal(np.log(middle), 1.0),
        "kernel.variance": LogNormal(0.0, 1.0),
    }
    settings = options["settings"]
    method = lgp.GibbsSampling if settings is None else Recorded
    if problem.Z is not None:
        settings = settings | {"representation": lgp.Inducing(points=problem.Z)}
    fitted, result = timed_chains(problem, model, method, settings or {}, {"priors": priors})
    draws = fitted.posterior.to_arviz().posterior
    named = [np.log(draws[f"kernel.{name}"].values) for name in ("lengthscale", "variance")]
    f = draws["f"].values if problem.Z is None else RECORDED[-1].white
    count = options["chains"], options["draws"], -1
    columns = [values.reshape(count) for values in (*named, f)]
    return result | {"draws": kept(problem, np.concatenate(columns, axis=2))}


class Recorded(lgp.MCMC):
    """Keeps its last chains, of which a posterior has 500 draws of white values at most."""

    def sample(self, *arguments: Any) -> Chains:
        RECORDED[:] = [super().sample(*arguments)]
        return RECORDED[-1]


def timed_chains(
    problem: Problem,
    model: lgp.LatentGP,
    method: Callable[..., lgp.Method],
    settings: dict[str, Any],
    arguments: dict[str, Any],
) -> tuple[lgp.Fit, Result]:
    """A fit, and the seconds of its compilation, warm-up and draws."""
    options = problem.options

    def fit(draws: int, warmup: int) -> tuple[lgp.Fit, dict[int, float]]:
        """With the seconds after every piece, by its number of sweeps."""
        seconds = {0: 0.0}
        size = {"chains": options["chains"], "draws": draws, "warmup": warmup}
        fitted = lgp.fit(
            model,
            lgp.Data(problem.X, problem.y),
            method=method(**size | settings),
            key=KEY,
            callback=lambda progress: seconds.update({progress.sweeps: progress.seconds}),
            **arguments,
        )
        return fitted, seconds

    jax.clear_caches()  # so that every run measures what compilation takes
    started = perf_counter()
    fit(SAMPLING_PIECE, 0)
    compile_seconds = perf_counter() - started
    draws = options["draws"]
    fitted, seconds = fit(draws, options["warmup"])
    total = max(seconds)
    warmup_seconds = seconds[total - draws]
    return fitted, {
        "compile_seconds": compile_seconds,
        "warmup_seconds": warmup_seconds,
        "draws_seconds": seconds[total] - warmup_seconds,
    }


def series_evidence(problem: Problem) -> Result:
    """The log evidence of a time series by `Markov`, with its gradient where asked for."""
    started = perf_counter()
    theta = np.array([problem.lengthscale[0], problem.variance, problem.noise_variance])
    key = problem.folder, problem.options.get("filter", False)
    with jax.enable_x64(True):
        if key not in EVIDENCES:
            EVIDENCES[key] = compiled_evidence(problem)
        found = jax.block_until_ready(EVIDENCES[key](theta))
    seconds = perf_counter() - started
    return {"seconds": seconds, "log_evidence": float(jax.tree.leaves(found)[0])}


def compiled_evidence(problem: Problem) -> Callable[[np.ndarray], Any]:
    options = problem.options
    kernel = {"matern32": lgp.Matern32, "matern52": lgp.Matern52}[options["kernel"]]
    data, method = lgp.Data(problem.X, problem.y), lgp.ExactGP(lgp.Markov())

    def model(theta: Any) -> lgp.LatentGP:
        return lgp.LatentGP(kernel(theta[0], variance=theta[1]), lgp.Gaussian(theta[2]))

    def evidence(theta: Any) -> Any:
        return lgp.log_evidence(model(theta), data, method)

    if not options.get("filter"):
        return jax.jit(jax.value_and_grad(evidence) if options["gradient"] else evidence)
    own = model(np.array([problem.lengthscale[0], problem.variance, problem.noise_variance]))
    ready = method.representation.for_rows(data.X, None, own.kernel)
    series = ready.series(own.kernel, jnp.asarray(data.X))
    precision = series.to_lanes(jnp.full((len(data.X), 1), 1 / problem.noise_variance))
    linear = precision * series.to_lanes(jnp.asarray(problem.y)[:, None])
    constant = -0.5 * jnp.sum(
        jnp.log(2 * jnp.pi * problem.noise_variance) + problem.y**2 / problem.noise_variance
    )

    def alone(theta: Any, linear: Any, precision: Any) -> Any:
        (process,) = ready.filters(model(theta).kernel, 1)
        found = filtered(process, series, linear, precision)
        value = jnp.sum(found.log_evidence) + constant
        if not options["gradient"]:
            return value
        return value, smoothed(process, series, precision, found, slopes=True)

    return partial(jax.jit(alone), linear=linear, precision=precision)


def f_at_rows(posterior: lgp.SampledPosterior, X: np.ndarray, chains: int) -> np.ndarray:
    """Chains x draws x rows: of all rows, where the posterior itself keeps 200 of them.

    A fit sorts its rows and merges equal ones, so they are matched by their inputs.
    """
    with jax.enable_x64(True):
        centres, white = posterior.components.centres, posterior.components.white[:, 0]
        sampler = lgp.Dense().sampler(posterior.model.kernel, jnp.asarray(centres), 0.0)
        sorted_f = np.asarray(white @ sampler.lower[0].T)
    places = {row.tobytes(): place for place, row in enumerate(np.asarray(centres))}
    return sorted_f[:, [places[row.tobytes()] for row in X]].reshape(chains, -1, len(X))


if __name__ == "__main__":
    serve(
        {
            task.__name__: task
            for task in (
                exact_regression,
                neighbours,
                binary_classification,
                classifier,
                regressor,
                binary_evidence,
                binary_fit,
                sparse_bound,
                collapsed_bound,
                collapsed_fit,
                conjugate_gradients,
                sparse_binary,
                sparse_regression,
                sparse_multiclass,
                sparse_student,
                deep_regression,
                deep_binary,
                black_box,
                sampling,
                chains,
                series_evidence,
            )
        },
        packages=("latentgp", "jax", "jaxlib", "numpy"),
    )
