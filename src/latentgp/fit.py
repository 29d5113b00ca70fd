"""`fit`: a model, data and a method in; the learned model, its posterior and a verdict out."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key
from numpyro.distributions import Distribution

from latentgp.diagnostics import ChainDiagnostics, Diagnostics, judge, judge_chains
from latentgp.errors import InputError
from latentgp.inference.setup.priors import (
    Scales,
    around,
    scales,
    search_bounds,
    stretched_start,
    weak_priors,
)
from latentgp.inference.sites.algorithm import SiteInference
from latentgp.inference.sites.hyperparameters import Learned, learn
from latentgp.inference.sites.profiled_bound import (
    Settled,
    initial_sites,
    model_at,
    posterior_given_sites,
    settle,
)
from latentgp.inference.sites.search import Driver
from latentgp.methods.all import (
    Method,
    SamplingMethod,
    SiteMethod,
    choose_method,
    default_inducing,
)
from latentgp.methods.stochastic import Stochastic, in_batches_if_many
from latentgp.model_checks import check_model
from latentgp.models import LatentGP
from latentgp.parameters.base import parameters
from latentgp.parameters.space import ParameterSpace
from latentgp.posteriors.chains import watched_rows
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.posterior import Posterior
from latentgp.posteriors.sampled import SampledPosterior, sampled_posterior
from latentgp.representations import Inducing
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.posterior import InducingPosterior
from latentgp.representations.inducing.stream import Remembered
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.arrays import check_not_traced
from latentgp.rows.data import Data
from latentgp.rows.source import blocks_of
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.compilation_cache import make_room_for_programs
from latentgp.runtime.hashing import digest
from latentgp.runtime.mesh import number_of_shards, rows_over, whole
from latentgp.runtime.processes import agreed, is_same_everywhere, spans_processes
from latentgp.runtime.progress import Callback, Driving
from latentgp.runtime.x64 import double_precision
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array
from latentgp.validation import check_data, check_outputs_seen

_START_EVALUATIONS = 15
_START_TOLERANCE = 1e-4
_CANDIDATES = 10_000
_SAMPLED_ROWS, _ROWS_A_SAMPLED_ONE = 4_096, 100


class History(NamedTuple):
    """Every evaluation of the bound while hyper-parameters were learned, in order.

    Attributes:
        bound: in nats, shape (E,).
        value: bound plus log prior, what was maximised, in nats, shape (E,).
        seconds: since the start of the search, shape (E,).
        restart: 0 for the first run, shape (E,).
    """

    bound: Float[np.ndarray, "E"]
    value: Float[np.ndarray, "E"]
    seconds: Float[np.ndarray, "E"]
    restart: Float[np.ndarray, "E"]


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes:
        model: with learned hyper-parameters.
        posterior: of the latent functions.
        history: of the search for hyper-parameters; empty after sampling.
        diagnostics: what happened, with a verdict.
    """

    model: LatentGP
    posterior: Posterior | SampledPosterior
    history: History
    diagnostics: Diagnostics | ChainDiagnostics


@double_precision
@one_blas_thread()
def fit(
    model: LatentGP,
    data: Data | RowSource,
    *,
    key: Key[Array, ""],
    method: Method | Literal["auto"] = "auto",
    learn_hyperparameters: bool = True,
    priors: Mapping[str, Distribution | None] | Literal["weak"] | None = "weak",
    frozen: Sequence[str] = (),
    restarts: int = 0,
    max_evaluations: int = 200,
    max_seconds: float | None = None,
    tolerance: float = 1e-6,
    callback: Callback | None = None,
    checkpoint: str | Path | None = None,
    verbose: int = 0,
    devices: Sequence[Any] | None = None,
    input_names: Sequence[str] | None = None,
) -> Fit:
    """Fit a model to data.

    Args:
        model: its hyper-parameters are where the search starts (or are used as they are).
        data: the rows; or where they come from, such as `FileRows`, for `Stochastic`.
        key: random key, for inducing points and restarts. The same key gives the same bits.
        method: how; "auto" chooses by the likelihood and the number of rows, and says so in
            the diagnostics.
        learn_hyperparameters: maximise the (lower bound on the) log evidence plus log prior.
        priors: "weak" sets wide log-normal ones, scaled to the data, on length-scales and
            variances (after rows that are remembered, around the model's values); a mapping
            changes them by path (None: no prior there); None means none. A hyper-parameter stays
            in the support of its prior; a start outside is moved into it, with a warning.
        frozen: paths (or their beginnings) that are not learned.
        restarts: further runs from random starts; the best of all is kept.
        max_evaluations: of the bound, each run; `Stochastic` has its epochs instead.
        max_seconds: for the whole search; a sampler makes its warm-up and some draws in any case.
        tolerance: nats a row by which an iteration must raise the bound for a run to go on;
            `Stochastic` has one of its own.
        callback: called, in every process, with a `Progress` after every evaluation, a
            `BatchProgress` after every round, or a `ChainProgress` now and then; true ends the
            search or the sampling with what there is.
        checkpoint: a file kept up to date while learning or sampling, and resumed from if it is
            there; `max_evaluations`, `max_seconds`, and of `Stochastic` the epochs, tolerance and
            patience may then be others.
        verbose: 1 shows progress of whatever takes longer than a second: a line in a terminal, a
            line every ten seconds elsewhere.
        devices: over which the rows are spread, such as `jax.devices()`, for methods through
            inducing points; None computes on one. With `jax.distributed` they are those of all
            processes, each of which makes the same call.
        input_names: names of the input columns, for warnings.

    Returns:
        Model, posterior, history and diagnostics.

    Raises:
        InputError: data that do not fit the model, a method that does not, an unknown path, a
            prior whose support has no value that the parameter can have.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0))
        >>> result.diagnostics.converged
        True
    """
    started = time.perf_counter()
    make_room_for_programs()
    _check_arguments(model, data, priors, max_evaluations, restarts)
    key = _as_key(key)
    frozen = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    source = None
    if isinstance(data, RowSource):
        source = data.checked(partial(check_data, model.likelihood))
        data = source.sample(_SAMPLED_ROWS)
    check_data(model.likelihood, data)
    given = data
    data, origin = data.merged_rows()
    check_model(model, data.X)
    reason = "asked for"
    if method == "auto":
        if source is None:
            choice = choose_method(model, data.size)
        else:
            choice = choose_method(model, source.size, default_inducing(model))
        if source is None and learn_hyperparameters and not restarts:
            choice = in_batches_if_many(choice, data.size)
        method, reason = choice
        if source is not None:
            assert isinstance(method, SiteMethod)
            method, reason = Stochastic(method), f"{reason}; batches of rows that are read"
    elif not isinstance(method, Method):
        raise InputError(f'method must be "auto" or a method such as ExactGP(), got {method!r}.')
    if source is not None and not isinstance(method, Stochastic):
        raise InputError(
            f"{type(method).__name__} needs all rows in memory; give them as Data, or use "
            "Stochastic(...) to read them in batches."
        )
    remembered = _remembered(method)
    if remembered is None:
        check_outputs_seen(data)
    else:
        _check_remembered(model, remembered)
        # What is remembered is about f less the prior mean.
        frozen = *frozen, *(path for path in parameters(model) if path.startswith("mean."))
    moved: tuple[str, ...] = ()
    if learn_hyperparameters and isinstance(priors, Mapping):
        model, moved = ParameterSpace(model, frozen=frozen, priors=priors).inside()
        model = jax.tree.map(np.asarray, model)
    task = _Task(
        model=model,
        given=given,
        origin=origin,
        data=data,
        input_names=input_names,
        key=key,
        method=method,
        reason=reason,
        priors=priors,
        frozen=tuple(frozen),
        driving=Driving(started, callback, max_seconds, verbose),
    )
    if devices is not None:
        _check_spread(method)
    with rows_over(devices):
        task = task.agreed()
        if isinstance(method, SamplingMethod):
            if restarts:
                raise InputError(f"{type(method).__name__} takes no restarts; it has chains.")
            result = _sample(task, method, learn_hyperparameters, checkpoint)
        elif isinstance(method, Stochastic):
            if restarts:
                raise InputError("Stochastic takes no restarts; leave them out.")
            result = _by_batches(
                task,
                method,
                source or RowsInMemory(data),
                learn_hyperparameters=learn_hyperparameters,
                checkpoint=checkpoint,
            )
        else:
            assert isinstance(method, SiteMethod)
            result = _by_sites(
                task,
                method,
                learn_hyperparameters=learn_hyperparameters,
                restarts=restarts,
                max_evaluations=max_evaluations,
                tolerance=tolerance,
                checkpoint=checkpoint,
            )
    return _with_warnings(result, moved)


def _with_warnings(result: Fit, sentences: Sequence[str]) -> Fit:
    """The same result with further warnings before its own."""
    if not sentences:
        return result
    told = *sentences, *result.diagnostics.warnings
    diagnostics = dataclasses.replace(result.diagnostics, warnings=told)
    return dataclasses.replace(result, diagnostics=diagnostics)


def _check_arguments(
    model: Any, data: Any, priors: Any, max_evaluations: int, restarts: int
) -> None:
    """Raise unless arguments are of the kinds that they should be."""
    if not isinstance(model, LatentGP):
        raise InputError(f"model must be a LatentGP(kernel, likelihood), got {_kind(model)}.")
    check_not_traced("model", model)
    if not isinstance(data, Data | RowSource):
        raise InputError(f"data must be Data(X, y), or FileRows(...), got {_kind(data)}.")
    if not (priors is None or priors == "weak" or isinstance(priors, Mapping)):
        raise InputError(
            f'priors must be "weak", None, or a mapping of paths to distributions, got {priors!r}.'
        )
    if max_evaluations < 1 or restarts < 0:
        raise InputError(
            f"max_evaluations must be at least 1 and restarts at least 0, got {max_evaluations} "
            f"and {restarts}; learn_hyperparameters=False keeps the values that the model has."
        )


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _as_key(key: Any) -> Key[Array, ""]:
    """A random key, also of JAX's older kind.

    Raises:
        InputError: something else, such as a number.
    """
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if dtype is not None and shape == () and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return key
    if dtype == np.uint32 and shape == (2,):
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise InputError(f"key must be a random key such as jax.random.key(0), got {key!r}.")


def _remembered(method: Method) -> Remembered | None:
    """What earlier rows said, if they count too."""
    representation = getattr(getattr(method, "method", method), "representation", None)
    return representation.remembered if isinstance(representation, Inducing) else None


def _check_remembered(model: LatentGP, remembered: Remembered) -> None:
    """Raise unless it can be about a model's latent functions."""
    latents, wanted = len(remembered.white.linear), model.likelihood.latent_size
    if latents != wanted:
        raise InputError(
            f"What is remembered is about {latents} latent function(s), but the likelihood has "
            f"{wanted}; go on with the posterior's own model."
        )
    if not np.isfinite(remembered.constant):
        raise InputError(
            "What is remembered has no log evidence, as the posterior is of a search that was "
            "going on; take the posterior that the fit ended with."
        )


def _check_spread(method: Method) -> None:
    """Raise unless rows can be spread over devices."""
    sites = method.method if isinstance(method, Stochastic) else method
    if not (isinstance(sites, SiteMethod) and isinstance(sites.representation, Inducing)):
        raise InputError(
            f"{type(method).__name__} cannot spread rows over devices, which takes inducing "
            "points; leave devices out, or use a method with Inducing(...)."
        )


def _check_processes(source: RowSource) -> None:
    """Raise unless several processes can share the rows out among them."""
    if jax.process_count() > 1 and not source.is_everywhere and not spans_processes():
        raise InputError(
            "Each of several processes reads a part of the files, which takes the devices of all "
            "of them; give devices=jax.devices()."
        )
    if not is_same_everywhere(source.layout):
        raise InputError(
            "The processes do not see the same rows; give all of them the same files, or the same "
            "arrays."
        )


class _Task(NamedTuple):
    """What is to be fitted, checked and merged, whatever the method.

    Attributes:
        given: the rows as they were given.
        origin: in which merged row each of them is, -1 for none, shape (N,).
        data: merged.
    """

    model: LatentGP
    given: Data
    origin: Int[np.ndarray, "N"]
    data: Data
    input_names: Sequence[str] | None
    key: Key[Array, ""]
    method: Method
    reason: str
    priors: Mapping[str, Distribution | None] | Literal["weak"] | None
    frozen: tuple[str, ...]
    driving: Driving

    def agreed(self) -> "_Task":
        """With the model and the key of the first of several processes."""
        model, bits = agreed((self.model, jax.random.key_data(self.key)))
        key = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(self.key))
        return self._replace(model=model, key=key)

    def scales(self, data: Data) -> Scales:
        """Of some of the rows, and of what is remembered."""
        return scales(self.model, data, _remembered(self.method))

    def space(self, scale: Scales) -> ParameterSpace:
        """The hyper-parameters that are learned, with their priors."""
        chosen: dict[str, Distribution | None] = {}
        if self.priors is not None:
            weak = weak_priors(self.model, scale)
            chosen |= weak if _remembered(self.method) is None else around(self.model, weak)
        if isinstance(self.priors, Mapping):
            chosen |= self.priors
        names = self.model.likelihood.calibrated_parameters
        frozen = *self.frozen, *(f"likelihood.{name}" for name in names)
        return ParameterSpace(self.model, frozen=frozen, priors=chosen)


def _by_sites(
    task: _Task,
    method: SiteMethod,
    *,
    learn_hyperparameters: bool,
    restarts: int,
    max_evaluations: int,
    tolerance: float,
    checkpoint: str | Path | None,
) -> Fit:
    """Hyper-parameters at their most probable values, and a Gaussian posterior."""
    model, data, key = task.model, task.data, task.key
    algorithm = method.algorithm(model)
    ready = agreed(algorithm.representation.initialise(data.X, data.weights, model.kernel, key))
    algorithm = dataclasses.replace(algorithm, representation=ready)
    scale = task.scales(data)
    space = task.space(scale)
    bounds = search_bounds(space, scale)
    rows = data.padded(number_of_shards()).to_device()
    kept = _checkpoint(
        checkpoint,
        task,
        RowsInMemory(data),
        space,
        algorithm,
        restarts=restarts,
        tolerance=tolerance,
        padded_rows=rows.size,
    )
    driving = task.driving._replace(checkpoint=kept)
    short = getattr(method, "search", None)
    most = max_evaluations if short is None else min(max_evaluations, short.evaluations)
    driver = Driver(max_evaluations=most, driving=driving)
    learned, searched, second = None, rows, None
    if short is not None:
        searched = _part(data, short.rows).padded(number_of_shards()).to_device()
    elif algorithm.rule.is_exact(model.likelihood):  # else a second run would take too long
        second = stretched_start(space, scale)
    if learn_hyperparameters and space.size:
        learned = learn(
            algorithm,
            space,
            searched,
            bounds=bounds,
            second=second,
            restarts=restarts,
            tolerance=tolerance,
            driver=driver,
            key=key,
        )
        if short is not None and max_evaluations >= short.evaluations:
            learned = learned._replace(converged=True)  # it had what it was meant to have
        model = _learned_model(space, learned)
    settled = _settled(algorithm.until_settled(), model, rows, learned)
    settled = settled._replace(sites=whole(settled.sites))
    evidence = Evidence(float(settled.bound), algorithm.evidence_kind(model))
    posterior = Posterior(model, settled.posterior, evidence)
    if learn_hyperparameters:
        posterior = _calibrated(posterior, data, settled.sites)
        model = posterior.model
    diagnostics = judge(
        posterior=posterior,
        method=method,
        reason=task.reason,
        data=data,
        learned=learned,
        records=driver.records,
        space=space,
        bounds=bounds,
        settled=settled,
        seconds=time.perf_counter() - task.driving.started,
        input_names=task.input_names,
    )
    return Fit(model, posterior, _history(driver.records), diagnostics)


def _start(
    task: _Task,
    algorithm: SiteInference,
    space: ParameterSpace,
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    rows: Data,
) -> Learned:
    """Hyper-parameters that another search, or a sampler, goes on from."""
    return learn(
        algorithm,
        space,
        rows,
        bounds=bounds,
        restarts=0,
        tolerance=_START_TOLERANCE,
        driver=Driver(
            max_evaluations=_START_EVALUATIONS, driving=task.driving._replace(callback=None)
        ),
        key=task.key,
    )


def _part(data: Data, most: int) -> Data:
    """Evenly spaced rows."""
    return data.select(np.linspace(0, data.size - 1, min(most, data.size)).astype(int))


def _learned_model(space: ParameterSpace, learned: Learned) -> LatentGP:
    return jax.tree.map(np.asarray, model_at(space, jnp.asarray(learned.vector)))


def _settled(
    algorithm: SiteInference, model: LatentGP, rows: Data, learned: Learned | None
) -> Settled:
    """Where site updates come to; from those of the search if they are of these rows.

    Raises:
        InputError: the log evidence is no number.
    """
    settled = None
    if learned is not None and len(learned.sites.linear) == rows.size:
        settled = settle(algorithm, model, rows, learned.sites)
    if settled is None or not np.isfinite(settled.bound):
        settled = settle(algorithm, model, rows, initial_sites(algorithm, model, rows))
    if not np.isfinite(settled.bound):
        raise InputError(
            "The log evidence is not a finite number at these hyper-parameters; start from other "
            "values, or change the units of the data."
        )
    return settled


def _calibrated(posterior: Posterior, data: Data, sites: GaussianSites) -> Posterior:
    """With what of the likelihood only predictions depend on set by leave-one-out marginals."""
    model = posterior.model
    if not model.likelihood.calibrated_parameters:
        return posterior
    marginals = posterior.predict_f(data.X)
    linear, precision = (np.asarray(a)[: data.size] for a in (sites.linear, sites.precision))
    variance = 1 / np.maximum(1 / marginals.variance - precision, 1e-12)
    mean = variance * (marginals.mean / marginals.variance - linear)
    likelihood = model.likelihood.calibrated(
        data.y, data.weights, mean, variance, data.side_information
    )
    return dataclasses.replace(posterior, model=dataclasses.replace(model, likelihood=likelihood))


def _said(
    algorithm: SiteInference, model: LatentGP, rows: Data, learned: Learned
) -> LatentPosterior | None:
    """What a search's sites say, if they are of these rows and leave a proper posterior."""
    sites = learned.sites
    if algorithm.rule.is_exact(model.likelihood):  # the search never changes them
        sites = initial_sites(algorithm, model, rows)
    if len(sites.linear) != rows.size:
        return None
    posterior = posterior_given_sites(algorithm, model, rows, sites)
    return posterior if np.isfinite(posterior.kl) else None


def _by_batches(
    task: _Task,
    method: Stochastic,
    source: RowSource,
    *,
    learn_hyperparameters: bool,
    checkpoint: str | Path | None,
) -> Fit:
    """A Gaussian posterior from batches of rows, begun where a part of the rows leads."""
    # What only this needs takes long to import.
    from latentgp.inference.batches.class_subsampling import (
        model_of_some,
        prior_of_some,
        some_classes,
    )
    from latentgp.inference.batches.loop import BatchDriver, Plan
    from latentgp.inference.batches.natural_gradient import (
        BatchInference,
        StochasticInference,
        begun,
        bound_of_rows,
    )

    _check_processes(source)
    model, key = task.model, task.key
    all_rows, held_out = source, None
    if method.held_out:
        source, held_out = source.split(method.held_out)
    algorithm = method.algorithm(model)
    assert isinstance(algorithm.representation, Inducing)
    candidates = source.sample(max(_CANDIDATES, 2 * (algorithm.representation.number or 0)))
    ready = agreed(
        algorithm.representation.initialise(candidates.X, candidates.weights, model.kernel, key)
    )
    few = max(_SAMPLED_ROWS, source.size // _ROWS_A_SAMPLED_ONE)
    sample = RowsInMemory(candidates).sample(few).divisible(number_of_shards())
    algorithm = dataclasses.replace(algorithm, representation=ready)
    scale = task.scales(sample)
    space = task.space(scale)
    learns = learn_hyperparameters and space.size > 0
    if not learns:
        space = ParameterSpace(model, frozen=tuple(parameters(model)))
    bounds = search_bounds(space, scale)
    seen = model
    if method.classes is not None:
        seen = model_of_some(model, method.classes, sample.X.shape[1])
    source = source.part(jax.process_index(), jax.process_count())
    plan = Plan.of(
        source.size,
        method.batch_size,
        method.epochs,
        method.tolerance,
        method.patience,
        columns=max(sample.X.shape[1], len(ready.points) * seen.likelihood.latent_size),
    )
    kept = _checkpoint(
        checkpoint,
        task,
        all_rows,
        space,
        algorithm,
        learning_rate=method.learning_rate,
        decay=method.decay,
        schedule=method.steps,
        classes=method.classes,
        learn_points=method.learn_points,
        held_out=method.held_out,
        processes=1 if source.is_everywhere else jax.process_count(),
        batches=f"{plan.batches} of {plan.batch_size} rows, {plan.round_size} a round",
    )
    looking = algorithm
    if method.classes is None:
        rows, latent = sample.to_device(), None
        if learns:
            learned = _start(task, algorithm.coarse(), space, bounds, rows)
            seen = _learned_model(space, learned)
            # Batches go on at once; what they need is what these sites say through all points.
            latent = _said(algorithm, seen, rows, learned)
        if latent is None:
            enough = algorithm.rough() if learns else algorithm.until_settled()
            latent = _settled(enough, seen, rows, None).posterior
    else:
        looking = dataclasses.replace(method.algorithm(seen), representation=ready)
        latent = prior_of_some(looking, seen)
    assert isinstance(latent, InducingPosterior)
    space = eqx.tree_at(lambda s: s.model, space, seen)
    numbers = method.learning_rate, method.decay, source.total_weight, float(plan.batches)
    rate, decay, total, batches = (jnp.asarray(number) for number in numbers)
    spread = jnp.asarray(np.std(sample.X, axis=0)) if method.learn_points else None
    inference: BatchInference
    inference = StochasticInference(
        looking, space, method.steps, rate, decay, spread, total, batches
    )
    if method.classes is not None:
        inference = some_classes(inference, model, key)
    kind = algorithm.evidence_kind(model)

    def view(state: Any) -> Posterior:
        return Posterior(*inference.believed(state), Evidence(float("nan"), kind))

    driver = BatchDriver(
        inference,
        source,
        plan,
        key=key,
        driving=task.driving._replace(checkpoint=kept),
        view=view,
        held_out=None if held_out is None else partial(_mean_log_density, held_out),
    )
    vector = jnp.asarray(space.to_vector())
    searched = driver.run(begun(inference, vector, latent))
    model, latent = inference.believed(searched.state)
    algorithm = dataclasses.replace(
        algorithm, representation=inference.representation(searched.state)
    )
    bound, deficit = -latent.kl, latent.deficit
    for block in blocks_of(source, (0,), plan.rows_a_round):
        worth, lost = bound_of_rows(algorithm, model, latent, block)
        bound, deficit = bound + worth, deficit + lost
    latent = dataclasses.replace(latent, deficit=deficit)
    model = jax.tree.map(np.asarray, model)
    posterior = Posterior(model, latent, Evidence(float(bound), kind))
    nothing = jnp.zeros((), jnp.int32)
    sites = whole(initial_sites(algorithm, model, sample.to_device()))
    if learn_hyperparameters:
        posterior = _calibrated(posterior, sample, sites)
        model = posterior.model
    ended = Learned(np.asarray(searched.state.vector), sites, searched.converged, searched.reason)
    settled = Settled(latent, sites, bound, searched.state.steps, jnp.zeros(()), nothing)
    diagnostics = judge(
        posterior=posterior,
        method=method,
        reason=task.reason,
        data=sample,
        passed_over=sum(r.passed_over for r in searched.rounds),
        learned=ended,
        records=searched.rounds,
        space=space,
        bounds=bounds,
        settled=settled,
        seconds=time.perf_counter() - task.driving.started,
        input_names=task.input_names,
    )
    return Fit(model, posterior, _history(searched.rounds), diagnostics)


def _mean_log_density(held_out: Data, posterior: Posterior) -> float:
    """Of held-out targets under a posterior."""
    predictive = posterior.predict(held_out.X, **held_out.side_information)
    return float(np.average(predictive.log_prob(held_out.y), weights=held_out.weights))


def _sample(
    task: _Task,
    method: SamplingMethod,
    learn_hyperparameters: bool,
    checkpoint: str | Path | None,
) -> Fit:
    """Draws of the posterior, of the hyper-parameters' too if these are learned.

    Chains that sample hyper-parameters start around the most probable ones by coordinate ascent.
    """
    model, data, key = task.model, task.data, task.key
    scale = task.scales(data)
    space = task.space(scale)
    learns = learn_hyperparameters and space.size > 0
    method.check(model, learns)
    ready = method.representation.initialise(data.X, data.weights, model.kernel, key)
    if not learns:
        space = ParameterSpace(model, frozen=tuple(parameters(model)))
    kept = _checkpoint(checkpoint, task, RowsInMemory(data), space, method)
    if learns:
        start = dataclasses.replace(method.starting_method(), representation=ready)
        algorithm = start.algorithm(model)
        rows = data.padded(number_of_shards()).to_device()
        learned = _start(task, algorithm, space, search_bounds(space, scale), rows)
        space = eqx.tree_at(lambda s: s.model, space, _learned_model(space, learned))
    driving = task.driving._replace(checkpoint=kept)
    numbers = method.chains * method.draws * model.likelihood.latent_size
    counting = np.flatnonzero(task.origin >= 0)
    watched = counting[watched_rows(len(counting), numbers)]
    chains = method.run(ready, space, data.to_device(), task.origin[watched], key, driving)
    posterior = sampled_posterior(space, chains, watched, task.given.select(watched))
    diagnostics = judge_chains(
        method=method,
        reason=task.reason,
        chains=chains,
        summary=posterior.summary,
        seconds=time.perf_counter() - task.driving.started,
    )
    return Fit(posterior.model, posterior, _history([]), diagnostics)


def _history(records: Sequence[Any]) -> History:
    return History(*(np.array([getattr(r, name) for r in records]) for name in History._fields))


def _checkpoint(
    path: str | Path | None,
    task: _Task,
    source: RowSource,
    space: ParameterSpace,
    method: SiteInference | SamplingMethod,
    **settings: Any,
) -> Checkpoint:
    """A file that can be resumed from by the same task on the same rows alone."""
    if path is None:
        return Checkpoint()
    # NumPyro flattens a prior in the order of a set, another in every process: go by name.
    priors = [
        (prior_path, type(prior).__name__, name, np.asarray(getattr(prior, name)).tolist())
        for prior_path, prior in zip(space.prior_paths, space.priors, strict=True)
        for name in sorted(prior.arg_constraints)
    ]
    made_with = {
        "another kind of method": type(task.method).__name__,
        "another set of rows (or buffer)": source.identity(),
        **settings,
        "another key": digest(jax.random.key_data(task.key)),
        "another model": digest(task.model),
        "another set of learned hyper-parameters": space.paths,
        "another prior": priors,
        "another method": digest(method),
    }
    return Checkpoint(path, {name: f"{value}" for name, value in made_with.items()})
