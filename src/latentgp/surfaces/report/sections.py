"""The sections of a report, in the order of a reader's questions."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from latentgp._version import __version__
from latentgp.hyperparameters.base import entry_labels
from latentgp.kernels.base import ActiveDimensions, Scaled
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import OwnKernels
from latentgp.rows.arrays import evenly
from latentgp.runtime.progress import stepwise
from latentgp.surfaces.evaluation import metrics, plots
from latentgp.surfaces.evaluation.comparison import LEVELS
from latentgp.surfaces.evaluation.effects import Dependence, Effects, VarianceShares, in_words
from latentgp.surfaces.evaluation.plots import drawing
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.surfaces.evaluation.row_scores import error_of_mean
from latentgp.surfaces.report.baselines import Baseline
from latentgp.surfaces.report.figures import new_axes, picture
from latentgp.surfaces.report.judged import Assessment
from latentgp.surfaces.report.page import Block, Code, Section, Table, Text, Verdict
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.scores import coverages

_DRAWN = 800  # rows in a picture
_WORST = 8
_CURVES = 6
_TRACED = 4
_CALIBRATED = 200  # sets of labels that show what chance does


def what_it_is(model: TableModel) -> Section:
    """The model in words and as a formula, and what inference did with it."""
    estimator, fitted = model.estimator, model.estimator.model_
    likelihood, latents = fitted.likelihood, fitted.likelihood.latent_size
    functions = "a latent function f" if latents == 1 else f"{latents} latent functions f"
    count = len(model.encoder.column_names)
    blocks: list[Block] = [
        Text(
            f"The column {model.target!r} is predicted ({model.task}) from {count} "
            f"column{'s' if count != 1 else ''} through {functions}, a Gaussian process: a law of "
            "functions whose values at similar inputs are similar."
        ),
        Table(
            ("what", "in words", "as fitted"),
            [
                ("likelihood", _said(likelihood), repr(likelihood)),
                *_kernels(fitted.of_inputs),
                ("prior mean", _said(fitted.mean), repr(fitted.mean)),
                ("inference", _said(estimator.method_), repr(estimator.method_)),
            ],
            wordy=True,
        ),
        Code(f"{model.target} ~ {type(likelihood).__name__}(f(x))\nf ~ GP(mean, kernel)"),
        Text(f"Why this method: {estimator.method_reason_}."),
    ]
    return Section("model", "The model", blocks)


def columns(model: TableModel) -> Section:
    """Treatment of each column."""
    notes = Table(("what was seen and done",), [(note,) for note in model.notes], wordy=True)
    return Section("columns", "What was done to the table", [notes])


def scores(judged: Assessment, contenders: Sequence[Baseline]) -> Section:
    """Scores of predictions, beside baselines without a Gaussian process."""
    rows = judged.frame.shape[0]
    seen = "unknown" if judged.seen is None else f"{100 * judged.seen:.0f} %"
    blocks: list[Block] = [
        Text(
            f"{rows:,} rows; {judged.how}. Share of them that the model has learned from: {seen}."
        ),
        *(Verdict(False, warning) for warning in judged.warnings),
    ]
    known, classes = ~np.isnan(judged.log_density), judged.classes
    scored, weights = known & judged.uncensored, judged.weights
    heads, cells = ["", "log density a row"], []
    if judged.mean is not None:
        heads += ["root mean squared error", "mean absolute error"]
    elif classes is not None:
        heads += ["wrong class", "Brier score"]
    for name, log_density, mean, given in contenders:
        own = [name, f"{np.average(log_density[known], weights=weights[known]):.3f}"]
        if mean is not None:
            errors = metrics.root_mean_squared_error, metrics.mean_absolute_error
            given = judged.y[scored], mean[scored]
            own += [f"{error(*given, sample_weight=weights[scored]):.4g}" for error in errors]
        elif given is not None and classes is not None:
            wrong = np.average(classes[np.argmax(given, axis=1)] != judged.y, weights=weights)
            brier = metrics.brier_score(judged.y, given, classes=classes, sample_weight=weights)
            own += [f"{100 * wrong:.1f} %", f"{brier:.4f}"]
        cells.append(own)
    unit = f", in the unit of {judged.model.target}" if judged.mean is not None else ""
    caption = (
        "Log density: of what was observed under the prediction, in nats; higher is better. "
        f"Errors{unit}: lower is better."
    )
    blocks.append(Table(heads, cells, caption))
    gains = judged.log_density[known] - contenders[-1].log_density[known]
    impossible, better = int(np.sum(np.isneginf(gains))), False
    said = f"It is behind {contenders[-1].name}: {impossible} row(s) have no density under it."
    if not impossible:
        gain, error = (
            np.average(gains, weights=weights[known]),
            error_of_mean(gains, weights[known]),
        )
        better = bool(gain > 2 * error)
        said = (
            f"It is {'' if better else 'not clearly '}ahead of {contenders[-1].name}: its log "
            f"density is {gain:+.3f} nats a row apart, 95 % interval {gain - 2 * error:+.3f} to "
            f"{gain + 2 * error:+.3f}."
        )
    remedy = "Compare likelihoods and methods with `latentgp compare`, or keep the simpler one."
    blocks.append(Verdict(better, said, remedy))
    return Section("scores", "How good are the predictions?", blocks)


def trust(model: TableModel) -> Section:
    """Whether the fit ended well, in the words of its diagnostics."""
    told = model.estimator.diagnostics_
    first, *_ = told.verdict.split("\n")
    blocks: list[Block] = [
        Verdict(bool(told.converged or told.stopped_as_meant), first),
        *map(Text, told.remarks),
    ]
    wrong = [Verdict(False, warning) for warning in told.warnings]
    blocks += wrong or [Verdict(True, "Nothing looked wrong while fitting.")]
    certificate = getattr(model.estimator, "certificate_", None)
    if certificate is not None:
        blocks += map(Text, str(certificate).split("\n"))
    return Section("verdict", "Can the fit be trusted?", blocks)


def calibration(judged: Assessment) -> Section | None:
    """Whether probabilities and intervals are what they say."""
    blocks: list[Block] = []
    if judged.probabilities is not None and judged.classes is not None:
        classes, given = judged.classes, judged.probabilities
        event = f"{judged.model.target} = {classes[-1]}"
        if given.shape[1] == 2:
            shown, what = given[:, 1], event
            caption = f"Of rows with a predicted probability of {event}, the share with {event};"
        else:
            shown, what = given, "the predicted class"
            caption = (
                "Of rows whose most probable class has a probability, the share that are of it;"
            )
        bins = int(np.clip(len(judged.y) // 30, 5, 15))
        known = {"classes": classes, "event": event, "sample_weight": judged.weights}
        axes = plots.reliability_diagram(new_axes(4.8), judged.y, shown, bins, **known)
        off, chance = _gaps(judged, shown, bins)
        said = f"Probabilities of {what} are off by {100 * off:.1f} points on average"
        usual = f"of calibrated ones 95 % are off by less than {100 * chance:.1f}"
        alt, caption = f"Reliability diagram. {said}.", f"{caption} bars are 95 % of chance."
        blocks.append(_calibrated(off <= max(chance, 0.02), said, usual))
        blocks.append(picture(axes, "reliability", alt, caption))
    if judged.transform is not None:
        transform, weights = judged.transform
        level, rows = 0.95, len(transform)
        covered = coverages(judged, LEVELS, judged.weights)
        held = float(coverages(judged, level, judged.weights))
        error = np.sqrt(level * (1 - level) / rows)
        said = f"95 % intervals hold {100 * held:.1f} % of the targets"
        good = abs(held - level) <= max(3 * error, 0.02)
        axes = plots.interval_calibration(new_axes(4.4), LEVELS, covered, rows=rows)
        histogram = plots.transform_histogram(new_axes(), transform, sample_weight=weights)
        inside = "Share of targets inside their interval, by level: on the diagonal if calibrated."
        fall = (
            "Where targets fall in their predictive law: level if calibrated, a hump if intervals "
            "are too wide, a valley if too narrow, a slope if means are off."
        )
        alt = "Histogram of probability integral transforms."
        blocks += [
            _calibrated(good, said, f"chance alone moves that by {200 * error:.1f} points"),
            picture(axes, "coverage", f"Coverage of intervals by level. {said}.", inside),
            picture(histogram, "transform", alt, fall),
        ]
    return Section("calibration", "Are the probabilities right?", blocks) if blocks else None


def residuals(judged: Assessment) -> Section:
    """Targets beside predictions, and the rows predicted worst."""
    blocks: list[Block] = []
    if judged.mean is not None and judged.std is not None and np.all(np.isfinite(judged.std)):
        drawn = np.flatnonzero(judged.uncensored & np.isfinite(judged.mean))
        drawn = drawn[evenly(len(drawn), _DRAWN)]
        mean, std, y = judged.mean[drawn], judged.std[drawn], judged.y[drawn]
        reach = drawing.NORMAL_95 * std
        axes = plots.observed_against_predicted(
            new_axes(4.4), y, mean, mean - reach, mean + reach, target_label=judged.model.target
        )
        axes.legend_ = None
        caption = (
            f"Observed {judged.model.target} against predicted; bars are 1.96 standard deviations "
            "to either side, 95 % of a normal law"
        )
        blocks.append(picture(axes, "observed", f"{caption}.", f"{caption}, orange if they miss."))
        axes = plots.standardised_residuals(new_axes(), mean, (y - mean) / std)
        caption = "Residuals in standard deviations against the prediction"
        said = f"{caption}: no pattern if the model is right; the line is a running median."
        blocks.append(picture(axes, "residuals", f"{caption}.", said))
    worst = np.argsort(judged.log_density)[:_WORST]  # NaN last
    names = judged.model.encoder.column_names[:8]
    predicted_heads, predicted = _predicted(judged)
    rows = [
        (
            str(judged.frame.index[n]),
            _cell(judged.y[n]),
            *predicted[n],
            f"{judged.log_density[n]:.2f}",
            *(_cell(judged.frame[name].iloc[n]) for name in names),
        )
        for n in worst
    ]
    caption = "The rows that surprised the model most: errors in the data, or what it cannot know."
    heads = ("row", judged.model.target, *predicted_heads, "log density", *names)
    blocks.append(Table(heads, rows, caption))
    return Section("residuals", "Where is it wrong?", blocks)


def effects(
    judged: Assessment, asked: Effects, shares: VarianceShares | None, verbose: int
) -> Section:
    """Effects of columns."""
    names, response = list(asked.columns), asked.response
    blocks: list[Block] = []
    if shares is not None:
        order = np.argsort(-shares.total.mean(axis=1), kind="stable")
        names = [names[d] for d in order]
        axes = plots.variance_shares(new_axes(drawing.rows_height(names[:20])), shares)
        words = f"Shares in the variance of {response}; {names[0]} has the largest."
        said = (
            f"Share of each column in how much {response} differs between rows: alone, and "
            f"with all its interactions; lines are {100 * shares.level:g} % intervals."
        )
        blocks += [picture(axes, "shares", words, said), _shares_table(shares)]
    figures, tables = [], []
    drawn = stepwise(names[:_CURVES], "averaging effects", "column", verbose)
    for number, name in enumerate(drawn):
        shown = asked.dependence(name)
        axes = plots.dependence(new_axes(_height(shown)), shown)
        words = f"Mean of {response} by {name}"
        few = len(shown.values)
        known = len(set(judged.frame[name].dropna())) if name in judged.frame else few
        most = "" if shown.is_ordered or known <= few else f" The {few} most frequent of {known}."
        ends = f"its {100 * shown.level:g} % interval"
        bands = f"shaded is {ends}." if shown.is_ordered else f"lines are {ends}s."
        if shown.is_ordered and len(shown.outputs) == 1:
            bands += " Thin lines are single rows."
        said = f"{words}, were it the same in all rows; {bands}{most}"
        figures.append(picture(axes, f"dependence-{number}", f"{words}.", said))
        tables.append(_dependence_table(shown))
    more = len(names[_CURVES:])
    left = f" latentgp effects MODEL DATA --column NAME answers {more} more." if more else ""
    note = (
        f"Intervals are of the average over {len(asked.background)} rows, from joint draws of the "
        "posterior: they tell what the model does not know, not how much rows differ. These are "
        f"effects in the model, causal only if nothing else is behind.{left}"
    )
    blocks += [*figures, *tables, Text(note)]
    return Section("effects", "Which columns matter, and how?", blocks)


def _height(shown: Dependence) -> float:
    """Height of a figure of the dependence on a column, with room for its legend."""
    outputs, names = len(shown.outputs), [in_words(value) for value in shown.values]
    legend = 0.2 * outputs if outputs > 1 else 0.0
    return legend + (3.3 if shown.is_ordered else drawing.rows_height(names, outputs))


def search(model: TableModel) -> Section | None:
    """The course of the chains, or of the search."""
    estimator, posterior = model.estimator, model.estimator.posterior_
    blocks: list[Block] = []
    if isinstance(posterior, HoldsDraws):
        for number, (path, draws) in enumerate(_scalars(posterior.hyperparameters)):
            axes = plots.traces(new_axes(2.8), draws, y_label=path)
            said = f"Draws of {path}, chain by chain: not to be told apart if they have mixed."
            blocks.append(picture(axes, f"trace-{number}", f"Traces of {path}.", said))
            axes = plots.ranks(new_axes(2.8), draws)
            said = f"Ranks of the draws of {path}: level if the chains have one law."
            blocks.append(picture(axes, f"ranks-{number}", f"Ranks of {path}.", said))
    elif len(estimator.history_.bound) > 1:
        history = estimator.history_
        axes = plots.learning_curve(new_axes(), history.value, seconds=history.seconds)
        words = "Bound plus log prior while the hyper-parameters were searched"
        blocks.append(picture(axes, "search", f"{words}.", f"{words}."))
    return Section("search", "How did the fit go?", blocks) if blocks else None


def reproduction(
    model: TableModel, digest: str, command: str | None, seconds: Mapping[str, float]
) -> Section:
    """Commands that reproduce fit and page."""
    estimator = model.estimator
    packages = ["jax", "equinox", "numpyro", "numpy", "scipy", "scikit-learn"]
    rows = [
        ("latentgp", __version__),
        *((name, version(name)) for name in packages),
        ("Python", platform.python_version()),
        ("machine", f"{platform.system()} {platform.machine()}"),
        ("random seed", str(estimator.random_state)),
        ("rows of this report, SHA-256", digest),
        *((f"seconds: {name}", f"{value:.2f}") for name, value in seconds.items()),
    ]
    made = model.made_by or "How the model was fitted is not in its file."
    commands = [Code("\n".join(line for line in (made, command) if line)), Code(repr(estimator))]
    table = Table(("what", "as it was"), rows, wordy=True)
    return Section("again", "To do it again", [*commands, table])


def _calibrated(good: bool, said: str, chance: str) -> Verdict:
    remedy = (
        "Try another likelihood (student-t for outliers, negative-binomial for counts that vary "
        "more), or --hyperparameters integrate."
    )
    return Verdict(good, f"{said}; {chance}.", remedy)


def _gaps(judged: Assessment, probabilities: np.ndarray, bins: int) -> tuple[float, float]:
    """Mean gap of the reliability diagram, and below what 95 % are of labels drawn from it."""
    weighted = {"sample_weight": judged.weights}
    curve = metrics.reliability_curve(
        judged.y, probabilities, bins, classes=judged.classes, **weighted
    )
    stated = probabilities if probabilities.ndim == 1 else probabilities.max(axis=1)
    rng, gaps = np.random.default_rng(0), []
    for _ in range(_CALIBRATED):
        drawn = (rng.uniform(size=len(stated)) < stated).astype(int)
        own = metrics.reliability_curve(drawn, stated, bins, **weighted)
        gaps.append(float(own.weight @ np.abs(own.probability - own.frequency)))
    off = float(curve.weight @ np.abs(curve.probability - curve.frequency))
    return off, float(np.quantile(gaps, 0.95))


def _said(thing: Any) -> str:
    """The first line of what its class says of itself."""
    return (type(thing).__doc__ or "").strip().split("\n")[0].rstrip(".")


def _kernels(kernel: Any) -> Iterator[tuple[str, str, str]]:
    each = kernel.each if isinstance(kernel, OwnKernels) else (kernel,)
    for number, own in enumerate(each):
        for part in parts_of(own):
            of = f" of f{number + 1}" if len(each) > 1 else ""
            inner = part
            while isinstance(inner, Scaled | ActiveDimensions):
                inner = inner.kernel
            yield f"kernel{of}", _said(inner), repr(part)


def _predicted(judged: Assessment) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and cells of the predictions."""
    if judged.mean is not None and judged.std is not None:
        given = zip(judged.mean, judged.std, strict=True)
        cells = [(f"{mean:.4g}", f"{std:.2g}") for mean, std in given]
        return ("predicted", "one standard deviation"), cells
    if judged.probabilities is not None and judged.classes is not None:
        best, tops = np.argmax(judged.probabilities, axis=1), judged.probabilities.max(axis=1)
        pairs = zip(judged.classes[best], tops, strict=True)
        cells = [(f"{label}", f"{100 * share:.0f} %") for label, share in pairs]
        return ("predicted", "its probability"), cells
    return (), [()] * len(judged.y)


def _shares_table(shares: VarianceShares) -> Table:
    figures = shares.first, shares.total, *shares.total_interval, shares.design_error
    rows = [
        (f"{column} {output}".strip(), *(f"{a[d, k]:.3f}" for a in figures))
        for d, column in enumerate(shares.columns)
        for k, output in enumerate(shares.outputs)
    ]
    level = f"{100 * shares.level:g} %"
    heads = ("column", "alone", "in all", f"{level} from", "to", "off by (rows are finitely many)")
    said = f"Values of the shares in the variance of {shares.response}"
    return Table(heads, rows, said, folded=True)


def _dependence_table(shown: Dependence) -> Table:
    heads = (shown.column, "mean of", "mean", f"{100 * shown.level:g} % from", "to")
    said = f"Values of the dependence of {shown.response} on {shown.column}"
    return Table(heads, shown.rows(), said, folded=True)


def _scalars(draws: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """Chains of single numbers, some of them."""
    found = [
        (label, values[:, :, *place])
        for path, values in draws.items()
        for place, label in entry_labels(path, values.shape[2:]).items()
    ]
    return found[:_TRACED]


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else in_words(value)
