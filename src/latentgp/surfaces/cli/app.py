"""The command line: fit, predict, evaluate, totals, exceedance, export, compare, info, demo."""

from __future__ import annotations

import dataclasses
import os
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer
from typer import Argument, Option

from latentgp._version import __version__
from latentgp.choosing.registry import METHODS, names_in_words
from latentgp.errors import InputError, ProcessLost, in_a_line
from latentgp.methods.options import SearchOptions, sections
from latentgp.runtime.compilation_cache import keep_programs_by_default
from latentgp.runtime.interrupts import Interrupted
from latentgp.runtime.processes import is_first_process, leave
from latentgp.runtime.run_log import log_runs
from latentgp.runtime.writing import check_writable, writing
from latentgp.surfaces.options import FLAGS, OF_TABLES, Degrees, EstimatorOptions

# Where Slurm, Open MPI and other launchers say how many processes they have started together.
_STARTED_TOGETHER = "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"

_STOPPED_STATUS = 130  # Typer's exit status after Ctrl-C

app = typer.Typer(
    help="Gaussian-process models of tables: calibrated predictions from CSV or Parquet.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Table = Annotated[Path, Argument(help="A CSV or Parquet file.")]
Tables = Annotated[Path, Argument(help="A CSV or Parquet file, or a folder of them.")]
Inducing = Annotated[int | None, Option(help="Number of inducing points.")]
Order = Annotated[
    str | None, Option(help="Labels of ordered classes from lowest to highest: low,middle,high.")
]
LeaveOut = Annotated[list[str] | None, Option(help="A column that is no input; again for more.")]
Exposure = Annotated[str | None, Option(help="A column of counts' exposure.")]
Trials = Annotated[
    str | None, Option(help="A column of trials, of which the target counts successes.")
]
Event = Annotated[
    str | None,
    Option(help="A column of 1 where a time has its event, else 0; or COLUMN=VALUE of an event."),
]
IsCensored = Annotated[
    str | None,
    Option(help="A column of 1 where the target is a lower bound, else 0 (-1, 2: guide)."),
]
Upper = Annotated[str | None, Option(help="A column of upper bounds where --censored says 2.")]
Entry = Annotated[str | None, Option(help="A column of times from which rows were observed.")]
TaskName = Annotated[
    Literal["auto", "regression", "count", "classification", "ordinal"],
    Option(help="What kind of target it is; auto looks at the column."),
]
ModelFile = Annotated[Path, Argument(help="A model file written by `latentgp fit`.")]


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"latentgp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", help="Say the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands."""


def _known_method(name: str) -> str:
    """The name of a method, or a wrong usage."""
    if name != "auto" and name not in METHODS:
        raise typer.BadParameter(f"{name!r} is not one of {names_in_words()}.")
    return name


def _flag(name: str) -> Parameter:
    """An option of the estimators as one of a command, explained by a clause of its document."""
    kind = SearchOptions if hasattr(SearchOptions, name) else EstimatorOptions
    entry = sections(kind.__doc__ or "").get("Args", {}).get(name, name)
    clause = " ".join(entry.split()).removeprefix(f"{name}: ").split(";")[0].replace("`", "")
    option = Option(help=f"{clause[0].upper()}{clause[1:].rstrip('.')}.")
    typed = Annotated[get_type_hints(kind)[name], option]
    default = OF_TABLES.get(name, getattr(kind, name))
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=typed)


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command with options of the estimators after `method`, which it takes by name."""

    @wraps(command)
    def run(**given: Any) -> None:
        command(**given)

    *own, _ = signature(command, eval_str=True).parameters.values()
    place = 1 + [parameter.name for parameter in own].index("method")
    run.__dict__["__signature__"] = Signature([*own[:place], *map(_flag, FLAGS), *own[place:]])
    return run


@app.command()
@_with_flags
def fit(
    typed: typer.Context,
    data: Tables,
    out: Annotated[Path, Option(help="Where to write the model.")],
    target: Annotated[str | None, Option(help="The column to predict.")] = None,
    formula: Annotated[
        str | None,
        Option(help='In place of a target and all columns: "y ~ x1 + gp(x2, x3) + (1 | clinic)".'),
    ] = None,
    task: TaskName = "auto",
    likelihood: Annotated[
        str, Option(help="Law of the target, such as student-t; auto is the usual one.")
    ] = "auto",
    method: Annotated[
        str,
        Option(
            help="Inference method; auto says what it chose and why. " + names_in_words(),
            autocompletion=lambda: ["auto", *METHODS],
            callback=_known_method,
        ),
    ] = "auto",
    exposure: Exposure = None,
    trials: Trials = None,
    event: Event = None,
    censored: IsCensored = None,
    upper: Upper = None,
    entry: Entry = None,
    order: Order = None,
    weights: Annotated[str | None, Option(help="A column of row weights.")] = None,
    leave_out: LeaveOut = None,
    mean: Annotated[
        str | None, Option(help="trees: boosted trees of the formula's fixed effects, by LightGBM.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        Option(help="A column with an effect for each level, as of numbers; again for more."),
    ] = None,
    time: Annotated[
        str | None, Option(help="The one input, a column of numbers or dates: a time series.")
    ] = None,
    by: Annotated[
        str | None, Option(help="A column that tells independent series apart; with --time.")
    ] = None,
    globe: Annotated[
        bool | None,
        Option(help="Whether degrees are places on the globe; by names such as lon and lat."),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        Option(help="A parameter that is not learned, by its path; again for more."),
    ] = None,
    prior: Annotated[
        list[str] | None,
        Option(help="PATH=LAW, such as kernel.lengthscale=LogNormal(0,1); again for more."),
    ] = None,
    seed: Annotated[int, Option(help="Seeds inducing points and restarts.")] = 0,
    batch_size: Annotated[
        int | None, Option(help="Learn from so many rows at a time, read from the files as needed.")
    ] = None,
    epochs: Annotated[
        int | None, Option(help="Most passes over the rows, in batches; 20 if not given.")
    ] = None,
    checkpoint: Annotated[
        Path | None, Option(help="A folder for what is learned so far; run again, the fit goes on.")
    ] = None,
    log: Annotated[
        Path | None, Option(help="Add a line of JSON about every step to this file.")
    ] = None,
    coordinator: Annotated[
        str | None,
        Option(
            help="HOST:PORT of process 0, to fit with several processes; "
            "auto asks Slurm, Open MPI or Kubernetes for all three."
        ),
    ] = None,
    num_processes: Annotated[int, Option(help="How many processes fit together.")] = 1,
    process_id: Annotated[int, Option(help="Which of them this is, from 0.")] = 0,
    **options: Any,
) -> None:
    """Fit a model to a table, or to a folder of them in batches, and save it."""
    from latentgp.persistence import save
    from latentgp.surfaces.cli.priors import priors_from
    from latentgp.surfaces.tables import read_table
    from latentgp.surfaces.tables.formula.encoder import target_of
    from latentgp.surfaces.tables.model import TableModel

    check_writable(out)
    if out.resolve() == data.resolve():
        raise InputError(f"{out} is the table itself: name another file for the model")
    in_batches = batch_size is not None or data.is_dir() or coordinator is not None
    for name, given in {"epochs": epochs, "checkpoint": checkpoint}.items():
        if given is not None and not in_batches:
            raise InputError(f"--{name} is for a fit in batches: add --batch-size 1000")
    for name in "max_seconds", "certify":
        if options[name] is not None and options[name] <= 0:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} must be positive, got {options[name]:g}: try 60")
    for asked, said in (
        (time or by, "a time series is fitted in memory: leave --batch-size out"),
        (
            options["certify"],
            "chains have all rows in memory: leave --batch-size out, or --certify",
        ),
        (formula, "a formula is fitted in memory: leave --batch-size out"),
        (mean, "trees are fitted in memory: leave --batch-size out"),
        (groups, "effects of groups are fitted in memory: leave --batch-size out"),
        (options["restarts"], "a fit in batches takes no restarts: leave --restarts out"),
    ):
        if in_batches and asked:
            raise InputError(said)
    if checkpoint is not None:
        try:
            checkpoint.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = f"the folder {checkpoint} cannot be made ({error}): name another one"
            raise InputError(said) from error
    devices = _joined_devices(coordinator, num_processes, process_id)
    table: Any = data if in_batches else read_table(data)
    options["frozen"] = tuple(freeze or ())
    if prior:
        options["priors"] = priors_from(prior)
    more: dict[str, Any] = {"time": time, "by": by, "formula": formula, "mean": mean}
    more["groups"] = groups or None
    sides = {"exposure": exposure, "trials": trials, "event": event}
    sides |= {"censored": censored, "upper": upper, "entry": entry}
    target = target_of(target, formula)
    if in_batches:
        more = {
            "batch_size": batch_size,
            "epochs": epochs,
            "devices": devices,
            "checkpoint": None if checkpoint is None else checkpoint / "search.safetensors",
        }
    fit_it: Any = TableModel.fit_files if in_batches else TableModel.fit
    kept = "" if checkpoint is None else f"; the same command goes on from {checkpoint}"
    # What is printed may find its reader gone: it waits until the model is saved.
    stoppable, stopped = _stoppable(f"no model was written{kept}"), False
    with stoppable, log_runs(log), redirect_stdout(StringIO()) as said:
        try:
            model = fit_it(
                table,
                target,
                task=task,
                likelihood=likelihood,
                weights=weights,
                side_columns={name: own for name, own in sides.items() if own is not None},
                order=_labels(order),
                leave_out=leave_out or (),
                globe=globe,
                method=method,
                random_state=seed,
                verbose=int(is_first_process()),
                **options,
                **more,
            )
        except Interrupted as unfinished:
            model, stopped = unfinished.result, True
        if is_first_process():  # it speaks and writes for all
            save(dataclasses.replace(model, made_by=_as_typed(typed)), out)
    if is_first_process():
        typer.echo(said.getvalue(), nl=False)
        for note in model.notes:
            typer.echo(f"- {note}")
        if options["certify"] is not None and not stopped:
            typer.echo(str(model.estimator.certificate_))
        if not stopped:
            typer.echo(f"Model written to {out}.")
    if stopped:
        raise _Interruption(f"{out} was written with what was learned until then{kept}")


@app.command()
def predict(
    model: ModelFile,
    data: Tables,
    out: Annotated[Path, Option(help="Where to write predictions (.csv or .parquet).")],
    level: Annotated[float, Option(help="Probability that an interval holds.")] = 0.95,
    with_inputs: Annotated[bool, Option(help="Keep the table's own columns.")] = False,
    mean_only: Annotated[
        bool, Option(help="Of numbers and counts the mean alone, which is faster.")
    ] = False,
    quantile: Annotated[
        list[float] | None,
        Option(help="A probability whose quantile is wanted too, 0.5 of the median; again."),
    ] = None,
    above: Annotated[
        list[float] | None,
        Option(help="A value or time that is exceeded with a probability wanted too; again."),
    ] = None,
) -> None:
    """Predict every row of a table, with intervals; large ones part by part, and restartable."""
    from latentgp.surfaces.tables import check_table_path, read_table, write_table
    from latentgp.surfaces.tables.prediction import beside, is_large, predict_files

    if not 0 < level < 1:
        raise InputError(f"--level must be strictly between 0 and 1, got {level}: try 0.95")
    check_table_path(out, data)
    table_model = _table_model(model)
    settings: Any = {"level": level, "mean_only": mean_only}
    settings |= {"quantiles": quantile or (), "above": above or ()}
    if is_large(data):
        settings["with_inputs"] = with_inputs
        with _stoppable("the same command goes on from the rows predicted so far"):
            rows = predict_files(table_model, data, out, verbose=1, **settings)
    else:
        frame = read_table(data, table_model.read_as_text)
        predictions = table_model.predict(frame, **settings)
        write_table(beside(frame, predictions) if with_inputs else predictions, out)
        rows = len(frame)
    typer.echo(f"{rows} predictions written to {out}.")


@app.command()
def evaluate(
    model: ModelFile,
    data: Table,
    weights: Annotated[str | None, Option(help="A column of row weights.")] = None,
    plot: Annotated[Path | None, Option(help="Save a calibration picture here.")] = None,
) -> None:
    """Score a model on a table whose target is known."""
    from latentgp.surfaces.cli.report import calibration_picture
    from latentgp.surfaces.tables import once

    table_model, frame = _with_rows(model, data, plot)
    tell = once()
    for name, value in table_model.evaluate(frame, weights=weights, tell=tell).items():
        typer.echo(f"{name:32s} {value}" if isinstance(value, int) else f"{name:32s} {value:.4f}")
    if plot is not None:
        written = calibration_picture(table_model, frame, plot, weights, tell)
        typer.echo(f"Picture written to {written}.")


@app.command()
def report(
    typed: typer.Context,
    model: ModelFile,
    data: Table,
    out: Annotated[Path, Option(help="Where to write the page.")] = Path("report.html"),
) -> None:
    """Write a page in one file: what was fitted, whether to trust it, what the columns do."""
    from latentgp.surfaces.report import write_report
    from latentgp.surfaces.tables import once

    check_writable(out)
    table_model, frame = _with_rows(model, data)
    told = {"command": _as_typed(typed), "tell": once(), "verbose": 1}
    written = write_report(table_model, frame, out, **told)
    typer.echo(f"Report written to {written}.")


@app.command()
def coefficients(
    model: ModelFile,
    out: Annotated[Path | None, Option(help="Write them here (.csv or .parquet).")] = None,
    groups: Annotated[
        str | None, Option(help="Effects of the groups of this column instead.")
    ] = None,
    level: Annotated[float, Option(help="Probability that an interval holds.")] = 0.95,
    plot: Annotated[
        Path | None, Option(help="Save a picture of the groups in order here, with --groups.")
    ] = None,
) -> None:
    """Say the fixed effects of a formula, or effects of groups, with standard errors."""
    import pandas as pd

    if plot is not None and groups is None:
        raise InputError("--plot draws effects of groups: name their column by --groups")
    table_model = _table_model(model)
    if groups is None:
        table = table_model.coefficients().table(level)
    else:
        each = table_model.group_effects(groups)
        table = pd.concat({name: own.table(level) for name, own in each.items()}, names=["of"])
        if plot is not None:
            from latentgp.surfaces.evaluation import plots

            drawn = plots.caterpillar(each, group=groups, level=level)
            typer.echo(f"Picture written to {plots.save_figure(drawn, plot)}.")
    _say_table(table, out)


def _say_table(table: Any, out: Path | None) -> None:
    """Print a table, and write it where a file is named."""
    from latentgp.surfaces.tables import write_table

    typer.echo(table.to_string(float_format=lambda value: f"{value:.4g}"))
    if out is not None:
        write_table(table.reset_index(names=None), out)
        typer.echo(f"Written to {out}.")


@app.command()
def marginal_means(
    model: ModelFile,
    data: Table,
    column: Annotated[str, Argument(help="A factor of the formula.")],
    by: Annotated[
        list[str] | None, Option(help="A factor at each level of which there are means; again.")
    ] = None,
    pairs: Annotated[bool, Option("--pairs", help="Differences of the levels instead.")] = False,
    adjust: Annotated[str, Option(help="P values of differences: tukey, holm or none.")] = "tukey",
    weights: Annotated[str | None, Option(help="The column of row weights of the fit.")] = None,
    degrees: Annotated[Degrees, Option(help="Degrees of freedom.")] = "satterthwaite",
    level: Annotated[float, Option(help="Probability that an interval holds.")] = 0.95,
    out: Annotated[Path | None, Option(help="Write them here (.csv or .parquet).")] = None,
) -> None:
    """Say means at the levels of a factor of a formula, other factors averaged over."""
    table_model, frame = _with_rows(model, data)
    given = {"frame": frame, "weights": weights, "degrees": degrees}
    found = table_model.marginal_means(column, by or (), **given)
    table = found.pairs(adjust).table(level) if pairs else found.table(level)
    _say_table(table, out)


@app.command()
def totals(
    model: ModelFile,
    data: Table,
    out: Annotated[Path | None, Option(help="Write them here (.csv or .parquet).")] = None,
    weights: Annotated[str | None, Option(help="A column of weights, such as areas.")] = None,
    by: Annotated[
        str | None, Option(help="A column that says which area a row, or one of --areas, is.")
    ] = None,
    areas: Annotated[
        Path | None, Option(help="A file of polygons for geopandas, such as GeoPackage.")
    ] = None,
    level: Annotated[float, Option(help="Probability that an interval holds.")] = 0.95,
) -> None:
    """Add up the target's expectation over areas, with standard errors of the joint law."""
    from latentgp.surfaces.tables import write_table

    table_model, frame = _with_rows(model, data)
    polygons = None if areas is None else _polygons(areas)
    found = table_model.totals(frame, weights=weights, by=by, areas=polygons)
    table = found.table(level)
    typer.echo(table.to_string(float_format=lambda value: f"{value:.4g}"))
    typer.echo(f"Standard errors: {found.reason}.")
    if out is not None:
        typer.echo(f"Written to {write_table(table.rename_axis('area').reset_index(), out)}.")


@app.command()
def exceedance(
    model: ModelFile,
    data: Table,
    above: Annotated[float, Option(help="The threshold, in units of the target.")],
    out: Annotated[Path, Option(help="Where to write probabilities (.csv or .parquet).")],
    of: Annotated[
        Literal["response", "latent"], Option(help="The target's expectation, or f.")
    ] = "response",
    with_inputs: Annotated[bool, Option(help="Keep the table's own columns.")] = False,
) -> None:
    """Write the probability that the target's expectation exceeds a threshold, row by row."""
    from latentgp.surfaces.tables import check_table_path, write_table
    from latentgp.surfaces.tables.prediction import beside

    check_table_path(out, data)
    table_model, frame = _with_rows(model, data)
    found = table_model.exceedance(frame, above, of=of)
    write_table(beside(frame, found) if with_inputs else found, out)
    typer.echo(f"{len(frame)} probabilities written to {out}.")


@app.command()
def export(
    model: ModelFile,
    folder: Annotated[Path, Argument(help="Where to write; it is made if need be.")],
    stablehlo: Annotated[
        bool, Option("--stablehlo", help="Write programs of StableHLO beside it.")
    ] = False,
    tolerance: Annotated[
        float, Option(help="Most that the file may differ from this library, relatively.")
    ] = 1e-10,
) -> None:
    """Write a model as one Python file that predicts with NumPy alone."""
    formats = ("numpy", "stablehlo") if stablehlo else ("numpy",)
    exported = _table_model(model).export(folder, formats=formats, tolerance=tolerance)
    typer.echo(
        f"Predictor written to {exported.predictor}, within {exported.deviation:.1e} of latentgp.\n"
        f"Predict with: python {exported.predictor} rows.csv > predictions.csv"
    )
    if exported.stablehlo:
        typer.echo(f"StableHLO written: {', '.join(p.name for p in exported.stablehlo.values())}")


@app.command()
def effects(
    model: ModelFile,
    data: Table,
    column: Annotated[
        list[str] | None,
        Option(help="A column whose effect is wanted; again for more. All if not given."),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        Option(help="COLUMN=BEFORE..AFTER: the difference that makes; again for more."),
    ] = None,
    plot: Annotated[
        Path | None, Option(help="Save a picture here: of the one column, or of all shares.")
    ] = None,
) -> None:
    """Say which columns matter and how, with intervals from the posterior's joint law."""
    from latentgp.surfaces.cli.report import print_effects
    from latentgp.surfaces.tables import once

    table_model, frame = _with_rows(model, data, plot)
    print_effects(table_model.effects(frame, once()), column or (), what_if or (), plot)


@app.command()
def compare(
    data: Table,
    target: Annotated[str, Option(help="The column to predict.")],
    task: TaskName = "auto",
    likelihood: Annotated[
        list[str] | None, Option(help="One to compare; again for more. The usual ones.")
    ] = None,
    method: Annotated[
        list[str] | None, Option(help="One to compare; again for more. The usual ones.")
    ] = None,
    representations: Annotated[
        bool,
        Option(
            "--representations",
            help="Compare dense, inducing points and neighbours instead, by time and memory too.",
        ),
    ] = False,
    depth: Annotated[
        list[int] | None,
        Option(help="A number of layers; again for more, such as 1 and 2: does depth pay?"),
    ] = None,
    budget: Annotated[float, Option(help="Seconds for --representations.")] = 120.0,
    order: Order = None,
    leave_out: LeaveOut = None,
    exposure: Exposure = None,
    trials: Trials = None,
    event: Event = None,
    censored: IsCensored = None,
    upper: Upper = None,
    entry: Entry = None,
    test_share: Annotated[float, Option(help="Share of the rows that is held out.")] = 0.3,
    seed: Annotated[int, Option(help="Of the split and the fits.")] = 0,
    n_inducing: Inducing = None,
    plot: Annotated[Path | None, Option(help="Save a picture here.")] = None,
) -> None:
    """Fit several methods, or representations, to the same rows and score them on the others."""
    from latentgp.surfaces.cli.report import comparison_picture, print_comparison
    from latentgp.surfaces.evaluation.comparison import compare as compare_on
    from latentgp.surfaces.evaluation.plots import check_picture_path
    from latentgp.surfaces.tables import read_table

    if plot is not None:
        check_picture_path(plot)
    if not 0 < test_share < 1:
        raise InputError(f"--test-share must lie in (0, 1), got {test_share}: try 0.3")
    sides = {"exposure": exposure, "trials": trials, "event": event}
    sides |= {"censored": censored, "upper": upper, "entry": entry}
    found = compare_on(
        read_table(data),
        target,
        task=task,
        likelihoods=likelihood or (),
        methods=method or (),
        representations="usual" if representations else (),
        depths=depth or (),
        budget=budget,
        test_share=test_share,
        seed=seed,
        order=_labels(order),
        leave_out=leave_out or (),
        n_inducing=n_inducing,
        side_columns={name: own for name, own in sides.items() if own is not None},
        progress=partial(typer.echo, err=True),
    )
    print_comparison(found, target)
    if plot is not None:
        typer.echo(f"Picture written to {comparison_picture(found, plot)}.")


@app.command()
def info(model: ModelFile) -> None:
    """Describe the contents of a model file."""
    from latentgp.hyperparameters.summary import summary
    from latentgp.surfaces.cli.report import lengthscales

    table_model = _table_model(model)
    estimator = table_model.estimator
    typer.echo(f"{type(estimator).__name__} of {table_model.target!r}")
    if evidence := estimator.posterior_.evidence:
        typer.echo(f"log evidence: {evidence.value:.2f} nats ({evidence.kind})")
    typer.echo(estimator.diagnostics_.verdict)
    for note in table_model.notes:
        typer.echo(f"- {note}")
    typer.echo(summary(estimator.model_))
    typer.echo(lengthscales(table_model))


@app.command()
def demo(
    out: Annotated[Path, Option(help="Folder for the page and its pictures.")] = Path(
        "latentgp-demo"
    ),
) -> None:
    """Forecast, classify and count on real data, next to baselines, with a page of pictures."""
    from latentgp.surfaces.demo import run_demo

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    run_demo(out)


@app.command()
def arena(
    data: Annotated[Path, Argument(help="Folder of SRBench's sets and published scores.")],
    sets: Annotated[int, Option(min=1, help="How many sets, the smallest first.")] = 12,
) -> None:
    """Fit small sets of SRBench by default settings, beside 21 published systems."""
    from latentgp.surfaces.cli.arena import run_arena

    run_arena(data, sets, typer.echo)


def main() -> None:
    """Run the command line; a user's error is one sentence and a non-zero exit."""
    keep_programs_by_default()

    def show(message: Warning | str, *_: Any) -> None:
        with suppress(BrokenPipeError):  # whoever reads no more still gets the files
            typer.echo(f"warning: {message}", err=True)

    warnings.showwarning = show
    try:
        app()
    except (InputError, ProcessLost) as error:
        typer.echo(f"error: {error}", err=True)
        leave()
    except _Interruption as stopped:
        typer.echo(f"stopped: {stopped}", err=True)
        leave(_STOPPED_STATUS)
    except SystemExit as ended:  # of Typer, after Ctrl-C too
        if ended.code == _STOPPED_STATUS:
            typer.echo("stopped: nothing was written", err=True)
        if ended.code:
            leave(ended.code)
        raise


class _Interruption(Exception):
    """Ctrl-C, and what is left of the work in words."""


@contextmanager
def _stoppable(said: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise _Interruption(said) from interrupt


def _joined_devices(coordinator: str | None, processes: int, process: int) -> Any:
    """The devices of all processes, which this one has joined; None where it is alone."""
    if coordinator is None:
        if processes > 1:
            raise InputError("several processes need an address: add --coordinator HOST:PORT")
        for name in _STARTED_TOGETHER:
            if int(os.environ.get(name, 1)) > 1:
                warnings.warn(
                    f"this is one of {os.environ[name]} processes ({name}), each of which fits "
                    "alone and writes the same files: add --coordinator auto to fit together",
                    stacklevel=2,
                )
        return None
    import jax

    import latentgp as lgp

    if coordinator == "auto":
        lgp.join_processes()
    else:
        lgp.join_processes(coordinator, processes, process)
    return jax.devices()


def _as_typed(typed: typer.Context) -> str:
    """The command, with what was given alone."""
    words = ["latentgp", str(typed.info_name)]
    for known in typed.command.params:
        name = str(known.name)
        value, source = typed.params.get(name), typed.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        option = known.opts[:1] if known.param_type_name == "option" else []
        if isinstance(value, bool):
            words += option if value else known.secondary_opts[:1]
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [*option, str(each)]
    return shlex.join(words)


def _polygons(path: Path) -> Any:
    """A file of polygons as a GeoDataFrame."""
    try:
        import geopandas
    except ImportError as error:
        raise InputError("--areas needs geopandas: install it, or give --by a column") from error
    try:
        return geopandas.read_file(path)
    except Exception as error:  # whatever GDAL makes of a file
        raise InputError(f"{path} cannot be read as polygons: {in_a_line(error)}") from error


def _labels(order: str | None) -> list[str] | None:
    return None if order is None else [label.strip() for label in order.split(",")]


def _with_rows(model: Path, data: Path, plot: Path | None = None):
    """The model and the rows of a table, once it is known that a picture can be written."""
    from latentgp.surfaces.evaluation.plots import check_picture_path
    from latentgp.surfaces.tables import read_table

    if plot is not None:
        check_picture_path(plot)
    table_model = _table_model(model)
    return table_model, read_table(data, table_model.read_as_text)


def _table_model(path: Path):
    from latentgp.persistence import load
    from latentgp.surfaces.tables.model import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise InputError(
            f"{path} holds a {type(model).__name__}, not a model of a table: "
            "give a file written by `latentgp fit`"
        )
    return model
