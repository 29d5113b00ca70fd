"""`fit`: a model, data and a method in; the learned model, its posterior and a verdict out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Key

from latentgp.choosing.choice import Choice, choose_for, gone_on, treating, treatment
from latentgp.choosing.kernels import with_usual_kernel
from latentgp.choosing.registry import as_method
from latentgp.errors import refuse
from latentgp.methods.base import Method, StandsForMethod, check_method
from latentgp.methods.calls import run_with_calls_told
from latentgp.methods.options import FitOptions
from latentgp.methods.problem import Problem, checked_rows
from latentgp.methods.result import Fit
from latentgp.model_checks import check_model
from latentgp.models import LatentGP
from latentgp.representations.summary import RowsAsSums
from latentgp.rows import RowSource
from latentgp.rows.data import Data, MergedRows
from latentgp.runs import supervised
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.compilation_cache import keep_programs_by_default, make_room_for_programs
from latentgp.runtime.mesh import rows_over
from latentgp.runtime.progress import RunControl
from latentgp.site_inference.methods.exact import through_sums
from latentgp.typing import Array
from latentgp.validation import as_key, check_arguments, check_bounds


@dataclass(kw_only=True, eq=False, repr=False)
class FitArguments(FitOptions):
    """Arguments of `fit` beside a model and data.

    Args:
        key: random key, for inducing points and restarts. The same key gives the same bits.
        method: how; "auto" chooses by the likelihood and the number of rows, and says so. An
            approximation such as `GaussianParticleFlow()` stands for `DensityApproximation` of it.
        ...: as in `FitOptions`.
        kernel: "auto" puts in place of the model's kernel the one whose evidence is highest on a
            sample of rows, of one latent function and noise; the verdict says which.
        devices: over which the rows are spread, such as `jax.devices()`, for methods through
            inducing points and `ExactGP`; None computes on one. With `jax.distributed` they are
            those of all processes, each of which makes the same call.
        blocking: False returns at once, with a `BackgroundRun` that pauses, aborts and waits.
        log: a file to which the run is logged, see `log_runs`.
    """

    key: Key[Array, ""]
    method: Method | StandsForMethod | Literal["auto"] = "auto"
    kernel: Literal["auto"] | None = None
    devices: Sequence[Any] | None = None
    blocking: bool = True
    log: str | Path | None = None


@supervised(FitArguments)
@one_blas_thread()
def fit(
    model: LatentGP, data: Data | MergedRows | RowSource | RowsAsSums, options: FitArguments
) -> Fit:
    """Fit a model to data.

    Args:
        model: its hyper-parameters are where the search starts (or are used as they are).
        data: the rows; or `data.merged_rows()` of rows that were checked already; or where they
            come from, such as `FileRows`, for `Stochastic`; or their sums (`summarise`).
        options: as in `FitArguments`.

    Returns:
        Model, posterior, history and diagnostics.

    Raises:
        InputError: data that do not fit the model, a method that does not, an unknown path, a
            prior whose support has no value that the parameter can have.
        KeyboardInterrupt: Ctrl-C, or a callback that raises it, at the end of a step; its `result`
            is what there was by then.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data(X, np.sin(X) + 0.1 * np.cos(40 * X))
        >>> result = lgp.fit(model, data, key=jax.random.key(0))
        >>> result.diagnostics.converged
        True
    """
    started = time.perf_counter()
    keep_programs_by_default()
    make_room_for_programs()
    method, rows = through_sums(model, data, options.method)
    check_arguments(model, rows, options.priors)
    check_bounds(options)
    said = f'kernel must be "auto", or None to keep the model\'s, got {options.kernel!r}.'
    refuse({said: options.kernel not in ("auto", None)})
    source, rows = checked_rows(model, rows)
    on_kernel: tuple[str, ...] = ()
    if options.kernel is not None:
        model, on_kernel = with_usual_kernel(model, rows.merged)
    check_model(model, rows.merged.X)
    learned, y, searched = options.learn_hyperparameters, rows.merged.y, False
    few = method == "auto" and learned and source is None and options.priors is not None
    given = options.hyperparameters, model, len(y), options.frozen_paths
    asked = treatment(*given, may_integrate=few and bool((y != y[:1]).any()))
    if method == "auto":
        searched = learned and not options.restarts and asked == "optimise"
        shape, seconds = rows.merged.X.shape, options.max_seconds
        chosen = choose_for(model, shape, source, searched=searched, seconds=seconds)
    else:
        chosen = Choice(as_method(method), "asked for")
    if asked != "optimise":
        chosen = treating(asked, chosen, model, learned)
    method, reason, _ = chosen
    on_devices = options.devices is not None
    check_method(method, model, source is not None, options.restarts, on_devices)
    problem = Problem(
        model=model,
        rows=rows,
        source=source,
        key=as_key(options.key),
        reason=rows.counted(reason),
        options=replace(options, frozen=options.frozen_paths),
        streaming_prior=method.streaming_prior,
        control=RunControl(started, options.callback, options.max_seconds, options.verbose),
    )
    problem, moved, notes = problem.checked().started()
    with rows_over(options.devices):
        problem = problem.from_first_process()
        run = method.run if model.likelihood.calls is None else partial(run_with_calls_told, method)
        result = run(problem)
    result = result.warned_before(moved).noted((*on_kernel, *notes))
    result = problem.summarised(result, data)
    if not searched or source is not None or on_devices:
        return result
    own: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    own |= {"kernel": None, "checkpoint": None, "log": None, "blocking": True}

    def again(method: Method) -> Fit:
        own["method"] = method
        return fit(model, rows, **own).noted(on_kernel)

    return gone_on(chosen, result, options.max_seconds, again)[1]
