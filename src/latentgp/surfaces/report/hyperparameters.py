"""Posteriors of hyper-parameters beside their priors, and their names in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from latentgp.errors import InputError
from latentgp.extension import verb
from latentgp.hyperparameters.base import ParameterInfo, SeesColumns, entry_labels, parameters
from latentgp.kernels.parts import parts_of
from latentgp.kernels.per_latent import OwnKernels
from latentgp.models import LatentGP
from latentgp.posteriors.hyperparameters import (
    HyperparameterMarginal,
    marginals_of,
    positive_paths,
    space_of_priors,
)
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.estimators.base import GPEstimator
from latentgp.surfaces.evaluation import plots
from latentgp.surfaces.evaluation.plots import drawing
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.surfaces.report.figures import new_axes, picture
from latentgp.surfaces.report.judged import Assessment
from latentgp.surfaces.report.page import Block, Section, Table, Text
from latentgp.surfaces.tables.model import TableModel

_SHOWN = 8
_MOST_SECONDS = 60.0  # of evaluations for a Hessian
_EVALUATIONS = 3  # of each hyper-parameter, about
_LISTED = 200
_NAMED = 2  # columns, of several that one hyper-parameter is about

Marginals = Mapping[str, HyperparameterMarginal]
Names = Mapping[str, str]


def hyperparameters(judged: Assessment) -> Section:
    """Posteriors of hyper-parameters beside their priors."""
    posterior, names = judged.model.estimator.posterior_, names_of(judged.model)
    found = getattr(posterior, "hyperparameter_marginals", None)
    if found is not None:
        how = "by chains" if isinstance(posterior, HoldsDraws) else "by integration"
        caption = f"Posterior of the hyper-parameters, {how}."
        blocks = [_table(found, caption, names), *_figures(found, names)]
    else:
        blocks = [*_optimised(judged, names), *_relevance(judged.model)]
    units = (
        "A length-scale is how far an input must move for the prediction to change much, in the "
        "unit of its column; one of an input that is 0 or 1 is in that unit. Variances have the "
        "square of the unit of what they are of. The path is what --prior and --freeze take."
    )
    title = "What was learned about the hyper-parameters?"
    return Section("hyperparameters", title, [Text(units), *blocks])


@double_precision
def prior_marginals(
    model: LatentGP, priors: Mapping[str, Distribution | None]
) -> dict[str, HyperparameterMarginal]:
    """Marginals of the priors of a model's hyper-parameters, of those that have one, by path."""
    space = space_of_priors(model, priors)
    drawn = space.prior_draws(jax.random.key(0))
    return marginals_of(drawn, positive=positive_paths(space), prior={})


def _optimised(judged: Assessment, names: Names) -> list[Block]:
    """Values, and the posterior around them if it can be had; priors alone if not."""
    estimator = judged.model.estimator
    priors = getattr(estimator, "priors_", {})
    known = parameters(estimator.model_)
    if not priors:
        return [_values(estimator, tuple(known), names)]
    fitted = _entries(estimator, tuple(priors))
    try:
        found = _around_optimum(judged)
    except InputError as error:
        words = f"Of these values there is no posterior here, only their priors. {error}"
        figures = _prior_figures(prior_marginals(estimator.model_, priors), names, fitted)
        return [_values(estimator, tuple(known), names), Text(words), *figures]
    caption = "The most probable values, with 95 % intervals and those of the prior."
    words = (
        "Blue is the posterior, dashed the prior: where both are alike, the rows say little. The "
        "posterior is Laplace's approximation, a normal law of the logarithms (of what is "
        "positive) that bends at the fitted values as the log evidence does; fit with "
        "--hyperparameters integrate for its true form."
    )
    rest = tuple(path for path in known if path not in priors)
    values = [_values(estimator, rest, names)] if rest else []
    table, figures = _table(found, caption, names, fitted), _figures(found, names, fitted)
    return [*values, table, Text(words), *figures]


def _around_optimum(judged: Assessment) -> Marginals:
    """Laplace's approximation, or an InputError that says what is in the way of it."""
    estimator = judged.model.estimator
    if not judged.whole:
        new = "these rows are new to the model" if judged.seen == 0 else "these are not known to be"
        raise InputError(f"That takes all rows of the fit and no others, and {new}.")
    history, count = estimator.history_, len(_entries(estimator, tuple(estimator.priors_)))
    if len(history.seconds) > 1:
        each = float(history.seconds[-1] - history.seconds[0]) / (len(history.seconds) - 1)
        if (seconds := _EVALUATIONS * count * each) > _MOST_SECONDS:
            raise InputError(f"That would take about {seconds:.0f} seconds.")
    return verb("hyperparameter_marginals")(
        estimator.posterior_, estimator.method_, judged.data.merged_rows(), estimator.priors_
    )


def _entries(estimator: GPEstimator, paths: tuple[str, ...]) -> dict[str, float]:
    """Fitted values of every entry of hyper-parameters, by the names of their marginals."""
    known = parameters(estimator.model_)
    values = {path: np.asarray(known[path].value, np.float64)[None] for path in paths}
    found = marginals_of(values, positive=(), prior={})
    return {label: own.mean for label, own in found.items()}


def _values(estimator: GPEstimator, paths: tuple[str, ...], names: Names) -> Table:
    """The values of hyper-parameters, of which no posterior is shown."""
    learned = getattr(estimator, "priors_", None)  # files of before do not say
    rows = [
        (names.get(label, label), f"{value:.4g}", held, label)
        for p in paths
        for held in ["" if learned is None or p in learned else "yes"]
        for label, value in _entries(estimator, (p,)).items()
    ]
    caption = "Their values; those that were learned are the most probable ones under the priors."
    heads = "hyper-parameter", "value", "held", "path"
    return Table(heads, rows[:_LISTED], caption, folded=len(rows) > 12)


def _table(
    found: Marginals, caption: str, names: Names, fitted: Mapping[str, float] | None = None
) -> Table:
    """Centres and 95 % intervals, of the priors too."""
    rows = []
    for path, own in found.items():
        centre = (own.mean, own.std) if fitted is None else (fitted[path],)
        before = ("", "") if own.prior is None else _written(own.prior.interval())
        numbers = _written((*centre, *own.interval()))
        rows.append((names.get(path, path), *numbers, *before, path))
    heads = ("mean", "standard deviation") if fitted is None else ("fitted",)
    heads = ("hyper-parameter", *heads, "95 % from", "to", "prior 95 % from", "to", "path")
    return Table(heads, rows, caption)


def _written(values: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{value:.4g}" for value in values)


def _figures(
    found: Marginals, names: Names, fitted: Mapping[str, float] | None = None
) -> Iterator[Block]:
    """Prior and posterior of the first few."""
    for number, (path, own) in enumerate(list(found.items())[:_SHOWN]):
        value, name = None if fitted is None else fitted[path], names.get(path, path)
        axes = plots.hyperparameter(new_axes(2.9), own, x_label=name, fitted=value)
        what = "Posterior" if own.prior is None else "Prior and posterior"
        lower, upper = own.interval()
        words = f"{what} of {name}: 95 % from {lower:.3g} to {upper:.3g}."
        yield picture(axes, f"marginal-{number}", words, words)


def _prior_figures(found: Marginals, names: Names, fitted: Mapping[str, float]) -> Iterator[Block]:
    """Priors of the first few, and where the fit is."""
    for number, (path, prior) in enumerate(list(found.items())[:_SHOWN]):
        name, value = names.get(path, path), fitted[path]
        axes = plots.hyperparameter_prior(new_axes(2.9), prior, value, x_label=name)
        said = f"Prior of {name}, and the fitted value, {value:.3g}."
        said += f" {100 * float(prior.cdf(value)):.0f} % of the prior are below it."
        yield picture(axes, f"marginal-{number}", said, said)


def _relevance(model: TableModel) -> list[Block]:
    """Widths of the inputs in length-scales, where there are several."""
    lengthscales = np.asarray(model.estimator.lengthscales_)
    spreads = np.asarray(model.spreads or np.ones(len(lengthscales)))
    if len(lengthscales) < 2 or len(spreads) != len(lengthscales):
        return []
    with np.errstate(divide="ignore"):
        relative = np.where(spreads > 0, lengthscales / spreads, np.inf)
    names = model.encoder.feature_names
    axes, label = new_axes(drawing.rows_height(names[:25])), "relevance: spread / length-scale"
    axes = plots.relevance(axes, relative, names, x_label=label)
    words = "Relevance of the inputs: their spread in length-scales"
    caption = f"{words}. Long bars are inputs along which the function bends."
    return [picture(axes, "relevance", f"{words}.", caption)]


def names_of(model: TableModel) -> dict[str, str]:
    """A name in words for every entry of the hyper-parameters, by path and place."""
    fitted, columns = model.estimator.model_, model.encoder.feature_names
    found = {}
    for path, info in parameters(fitted).items():
        shape = np.shape(info.value)
        seen = _columns(info, fitted.of_inputs, len(columns))
        own = [columns[d] for d in seen if d < len(columns)] if fitted.depth == 1 else []
        each = info.role == "lengthscale" and shape == (len(own),)
        latent = "" if info.latent is None else f", latent function {info.latent + 1}"
        for place, label in entry_labels(path, shape).items():
            names = [own[place[0]]] if each else own
            entry = "" if each or not place else f" {', '.join(str(p + 1) for p in place)}"
            found[label] = f"{_what(info)}{entry}{_of(info, names, len(columns))}{latent}"
    twice = [name for name in found.values() if list(found.values()).count(name) > 1]
    return {k: f"{name} ({k})" if name in twice else name for k, name in found.items()}


def _what(info: ParameterInfo) -> str:
    """Quantity that it measures."""
    first, last = info.path.split(".")[0], info.path.split(".")[-1]
    words = re.sub(r"\[.*?\]", "", last).replace("_", " ")
    if info.role == "lengthscale":
        return "length-scale"
    if first == "mean":
        return "prior mean" if words == "value" else f"prior mean's {words}"
    return words


def _of(info: ParameterInfo, names: list[str], inputs: int) -> str:
    """The columns that it is about."""
    if not info.path.startswith("kernel"):
        return ""
    if not names or (len(names) == inputs > 1):
        return " of all inputs" if info.role == "lengthscale" else " of f"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" of {', '.join(names[:_NAMED])}{more}"


def _columns(info: ParameterInfo, kernel: Any, inputs: int) -> list[int]:
    """Places of these columns: of a factor without any, those of the term that it is in."""
    if info.dimensions is not None:
        return list(info.dimensions)
    term = re.match(r"kernel\.parts\[(\d+)\]", info.path)
    parts = () if term is None or isinstance(kernel, OwnKernels) else parts_of(kernel)

    def sees(node: Any) -> bool:
        return isinstance(node, SeesColumns)

    own = parts[int(term[1]) :][:1] if term else ()
    nodes = jax.tree.leaves(own, is_leaf=sees)
    return sorted({d for n in nodes if sees(n) for d in n.dimensions}) or list(range(inputs))
