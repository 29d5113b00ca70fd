"""Pictures of hyper-parameters, their priors and what they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.surfaces.evaluation.metrics import (
    equally_long,
)
from latentgp.surfaces.evaluation.plots.drawing import (
    BLUE,
    CURVES,
    GREY,
    INK,
    LIGHT,
    MARKERS,
    ORANGE,
    axes_of,
    legend_above,
    legend_style,
    rows_height,
    tidy,
    with_rows,
)
from latentgp.surfaces.evaluation.weights import KernelWeights

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def relevance(
    ax: Axes | None,
    lengthscales: ArrayLike,
    feature_names: Sequence[str] | None = None,
    *,
    at_most: int = 25,
    x_label: str = "relevance: 1 / length-scale",
) -> Axes:
    """Draw the inverse length-scales of an ARD kernel as bars, the most relevant input on top.

    Relevances compare only between inputs in one unit, so pass the length-scales of standardised
    inputs and say so in `x_label` where it matters.

    Args:
        ax: axes to draw on, None for a new figure.
        lengthscales: (D,) positive length-scales; infinity means the input is not used.
        feature_names: (D,) names; None means x0 .. x(D-1).
        at_most: how many inputs to draw; the axis says when some are left out.
        x_label: what the bars measure.

    Raises:
        InputError: if a length-scale is not positive or the names do not match in number.

    Example:
        >>> ax = relevance(None, [2.0, 0.5], ["age", "dose"])
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['dose', 'age']
    """
    (lengthscales,) = equally_long(allow_infinity=True, lengthscales=lengthscales)
    if not (lengthscales > 0).all():
        raise InputError("lengthscales holds a value that is not positive: pass positive ones")
    size = lengthscales.size
    names = [f"x{d}" for d in range(size)] if feature_names is None else feature_names
    if len(names) != size:
        raise InputError(f"feature_names has {len(names)} names for {size} inputs: pass one each")
    order = np.argsort(lengthscales, kind="stable")[:at_most]
    shown = [str(names[d]) for d in order]
    ax = axes_of(ax, (6.4, rows_height(shown)))
    ax.barh(np.arange(order.size), 1 / lengthscales[order], height=0.66, color=BLUE, zorder=2)
    ax.set_xlim(left=0)
    left_out = f" ({order.size} most relevant of {size} inputs)" if order.size < size else ""
    return with_rows(ax, shown, x_label + left_out)


def hyperparameter(
    ax: Axes | None,
    marginal: HyperparameterMarginal,
    *,
    x_label: str = "hyper-parameter",
    level: float = 0.95,
    fitted: float | None = None,
) -> Axes:
    """Draw the marginal posterior of a hyper-parameter over its prior, with its central interval.

    Args:
        ax: axes to draw on, None for a new figure.
        marginal: one of `posterior.hyperparameter_marginals`.
        x_label: its name and unit, for instance "length-scale [m]".
        level: of the interval that is shaded.
        fitted: the most probable value, marked in place of the mean.

    Example:
        >>> import numpy as np, latentgp as lgp
        >>> draws = np.random.default_rng(0).gamma(4.0, size=1000)
        >>> marginal = lgp.HyperparameterMarginal.of(draws, positive=True)
        >>> hyperparameter(None, marginal, x_label="length-scale [m]").get_xlabel()
        'length-scale [m]'
    """
    low, high = marginal.quantiles([0.002, 0.99])
    margin = 0.15 * (high - low)
    left = max(low - margin, 1e-3 * low) if marginal.positive else low - margin
    x = np.linspace(left, high + margin, 401)
    ax, (lower, upper) = axes_of(ax, (6.4, 3.8)), marginal.interval(level)
    inside, density = x[(x >= lower) & (x <= upper)], marginal.pdf(x)
    shade = {"label": f"{100 * level:g} % interval", "color": BLUE, "alpha": 0.18, "linewidth": 0}
    ax.fill_between(inside, marginal.pdf(inside), **shade)
    ax.plot(x, density, color=BLUE, linewidth=1.8, label="posterior", zorder=3)
    if marginal.prior is not None:
        style: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
        ax.plot(x, marginal.prior.pdf(x), label="prior", zorder=2, **style)
    middle, name = (marginal.mean, "posterior mean") if fitted is None else (fitted, "fitted")
    ax.axvline(middle, color=ORANGE, linewidth=1.2, label=name, zorder=2)
    told = np.array([lower, middle, upper])
    ax.plot(told, marginal.pdf(told), "o", color=BLUE, markersize=4, zorder=4)
    ax.set_ylim(bottom=0.0, top=1.08 * density.max())
    ax.margins(x=0.0)
    ax.legend(**legend_style())
    return tidy(ax, x_label, "density")


def hyperparameter_prior(
    ax: Axes | None,
    prior: HyperparameterMarginal,
    fitted: float,
    *,
    x_label: str = "hyper-parameter",
    level: float = 0.95,
) -> Axes:
    """Draw the prior of a hyper-parameter with the value that was fitted.

    Of one that is positive on a logarithmic axis, its density a factor of ten.

    Args:
        ax: axes to draw on, None for a new figure.
        prior: its marginal, as `HyperparameterMarginal.prior`.
        fitted: the value.
        x_label: its name and unit, for instance "length-scale [m]".
        level: of the central interval that is shaded.

    Example:
        >>> import numpy as np, latentgp as lgp
        >>> draws = np.exp(np.random.default_rng(0).normal(size=1000))
        >>> prior = lgp.HyperparameterMarginal.of(draws, positive=True)
        >>> hyperparameter_prior(None, prior, 0.3, x_label="length-scale [m]").get_xscale()
        'log'
    """
    low, high = prior.quantiles([0.005, 0.995])
    low, high = min(low, fitted), max(high, fitted)
    x = np.geomspace(low, high, 401) if prior.positive else np.linspace(low, high, 401)

    def density(x: NDArray) -> NDArray:
        return prior.pdf(x) * (np.log(10) * x if prior.positive else 1.0)

    ax, (lower, upper) = axes_of(ax, (6.4, 3.8)), prior.interval(level)
    inside, label = x[(x >= lower) & (x <= upper)], f"{100 * level:g} % interval of the prior"
    ax.fill_between(inside, density(inside), label=label, color=GREY, alpha=0.18, linewidth=0)
    ax.plot(x, density(x), color=GREY, linestyle="--", linewidth=1.2, label="prior")
    ax.axvline(fitted, color=ORANGE, linewidth=1.2, label="fitted")
    told = np.array([lower, fitted, upper])
    ax.plot(told, density(told), "o", color=GREY, markersize=4, zorder=3)
    if prior.positive:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    ax.tick_params(axis="x", pad=7)  # away from the zero of the density
    ax.set_ylim(bottom=0.0, top=1.08 * density(x).max())
    ax.margins(x=0.0)
    ax.legend(**legend_style())
    return tidy(ax, x_label, "density a factor of ten" if prior.positive else "density")


def kernel_weights(
    ax: Axes | None,
    weights: KernelWeights,
    *,
    true: ArrayLike | None = None,
    x_label: str = "weight of the kernel",
) -> Axes:
    """Draw posterior means and intervals of the weights of kernels, a row for each kernel.

    Args:
        ax: axes to draw on, None for a new figure.
        weights: of `latentgp.kernel_weights`.
        true: (Q, M) weights that are known, drawn as ticks.
        x_label: what the weights are, and their unit.

    Raises:
        InputError: known weights of another shape.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> mean = np.array([[0.8, 0.2]])
        >>> weights = lgp.surfaces.KernelWeights(
        ...     ("grey matter", "T2"), ("0",), mean, 0.1 * mean, 0.8 * mean, 1.2 * mean, 0.95
        ... )
        >>> ax = kernel_weights(None, weights)
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['grey matter', 'T2']
    """
    latents, parts = weights.mean.shape
    known = None if true is None else np.asarray(true, np.float64)
    if known is not None and known.shape != weights.mean.shape:
        raise InputError(
            f"true has shape {known.shape}, but there are weights of shape {weights.mean.shape}: "
            "pass one for each"
        )
    ax = axes_of(ax, (6.4, 1.2 + 0.28 * parts * max(latents, 2) ** 0.7))
    places, spread = np.arange(parts), 0.7 / latents
    for number, latent in enumerate(weights.latents):
        y = places + spread * (number - 0.5 * (latents - 1))
        color = CURVES[number % len(CURVES)]
        marker = MARKERS[number % len(MARKERS)]
        ax.hlines(y, weights.lower[number], weights.upper[number], color=color, linewidth=1.8)
        ax.plot(weights.mean[number], y, marker, color=color, markersize=5, label=latent)
        if known is not None:
            label = "known" if number == latents - 1 else None
            style: dict[str, Any] = {"color": INK, "markersize": 11, "markeredgewidth": 1.6}
            ax.plot(known[number], y, "|", label=label, zorder=4, **style)
    for edge in places[1:] - 0.5:
        ax.axhline(edge, color=LIGHT, linewidth=0.8, zorder=1)
    ax.set_xlim(left=0)
    if latents > 1 or known is not None:
        legend_above(ax, title=f"mean, {100 * weights.level:g} % interval")
    return with_rows(ax, weights.parts, x_label)
