"""`fit`: a model, data and a method in; the learned model, its posterior and a verdict out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxtyping import Key
from numpyro.distributions import Distribution

from latentgp.choosing.choice import Choice, Hyperparameters, choose_for, treating
from latentgp.methods.base import Method, StandsForMethod, check_method
from latentgp.methods.calls import run_with_calls_told
from latentgp.methods.problem import Problem, checked_rows
from latentgp.methods.result import Fit
from latentgp.model_checks import check_model
from latentgp.models import LatentGP
from latentgp.representations.summary import RowsAsSums
from latentgp.rows import RowSource
from latentgp.rows.data import Data, MergedRows
from latentgp.runs import supervised
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.compilation_cache import make_room_for_programs
from latentgp.runtime.mesh import rows_over
from latentgp.runtime.progress import Callback, RunControl
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.exact import through_sums
from latentgp.typing import Array
from latentgp.validation import as_key, check_arguments


@supervised
@double_precision
@one_blas_thread()
def fit(
    model: LatentGP,
    data: Data | MergedRows | RowSource | RowsAsSums,
    *,
    key: Key[Array, ""],
    method: Method | StandsForMethod | Literal["auto"] = "auto",
    hyperparameters: Hyperparameters = "optimise",
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
    blocking: Literal[True] = True,
    log: str | Path | None = None,
) -> Fit:
    """Fit a model to data.

    Args:
        model: its hyper-parameters are where the search starts (or are used as they are).
        data: the rows; or `data.merged_rows()` of rows that were checked already; or where they
            come from, such as `FileRows`, for `Stochastic`; or their sums (`summarise`).
        key: random key, for inducing points and restarts. The same key gives the same bits.
        method: how; "auto" chooses by the likelihood and the number of rows, and says so. An
            approximation such as `GaussianParticleFlow()` stands for `DensityApproximation` of it.
        hyperparameters: "optimise" takes the most probable ones, "integrate" a mixture over many
            by the method's evidence (`Integrated`), "sample" draws of Markov chains.
        learn_hyperparameters: False keeps the model's values; True treats them as
            `hyperparameters` says.
        priors: "weak" sets wide log-normal ones, scaled to the data, on length-scales and
            variances (in a stream around the model's values); a mapping changes them by path
            (None: no prior there); None means none. A hyper-parameter stays
            in the support of its prior; a start outside is moved into it, with a warning.
        frozen: paths (or their beginnings) that are not learned.
        restarts: further runs from random starts; the best of all is kept.
        max_evaluations: of the bound, each run on all rows; `Stochastic` has its epochs instead.
        max_seconds: for the whole search; a sampler makes its warm-up and some draws in any case.
            "auto" chooses what is likely to be done in that time, or in a minute if None.
        tolerance: nats a row by which an iteration must raise the bound for a run to go on;
            `Stochastic` has one of its own.
        callback: called, in every process, with a `RunProgress` after every step; true ends the
            search or the sampling with what there is.
        checkpoint: a file kept up to date while learning or sampling, and resumed from if it is
            there; `max_evaluations`, `max_seconds`, and of `Stochastic` the epochs, tolerance and
            patience may then be others.
        verbose: 1 shows progress of what takes long: a line in a terminal, else one in ten seconds.
        devices: over which the rows are spread, such as `jax.devices()`, for methods through
            inducing points and `ExactGP`; None computes on one. With `jax.distributed` they are
            those of all processes, each of which makes the same call.
        input_names: names of the input columns, for warnings.
        blocking: False returns at once, with a `BackgroundRun` that pauses, aborts and waits.
        log: a file to which the run is logged, see `log_runs`.

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
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0))
        >>> result.diagnostics.converged
        True
    """
    started = time.perf_counter()
    make_room_for_programs()
    method, rows = through_sums(model, data, method)
    check_arguments(model, rows, priors, max_evaluations, restarts)
    source, rows = checked_rows(model, rows)
    check_model(model, rows.merged.X)
    if method == "auto":
        searched = learn_hyperparameters and not restarts and hyperparameters == "optimise"
        chosen = choose_for(model, rows.merged.X.shape, source, searched, max_seconds)
    else:
        own = method.as_method() if isinstance(method, StandsForMethod) else method
        chosen = Choice(own, "asked for")
    method, reason, _ = treating(hyperparameters, chosen, model, learn_hyperparameters)
    check_method(method, model, source is not None, restarts, devices is not None)
    problem = Problem(
        model=model,
        rows=rows,
        source=source,
        key=as_key(key),
        reason=reason,
        learn_hyperparameters=learn_hyperparameters,
        priors=priors,
        frozen=(frozen,) if isinstance(frozen, str) else tuple(frozen),
        streaming_prior=method.streaming_prior,
        restarts=restarts,
        max_evaluations=max_evaluations,
        tolerance=tolerance,
        control=RunControl(started, callback, max_seconds, verbose),
        checkpoint=checkpoint,
        input_names=input_names,
    )
    problem, moved, notes = problem.checked().started()
    with rows_over(devices):
        result = run_with_calls_told(method, problem.from_first_process())
    return problem.summarised(result.warned_before(moved).noted(notes), data)
