"""Conformance suite of likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods import Likelihood, Marginals
from latentgp.numerics.quadrature import hermite_nodes, sobol_nodes
from latentgp.runtime.x64 import double_precision
from latentgp.sites.gaussian import Rows
from latentgp.testing.numerics import (
    even_nodes,
    require,
    require_equal,
    require_finite,
    require_gradient,
)

_NODES = {1: 200, 2: 60, 3: 24}
_DRAWS = 4000
_STANDARD_ERRORS = 5.0
_MEANS, _VARIANCES = (-1.5, 0.3, 1.1), (0.05, 0.8)
_LEVELS = np.array([0.025, 0.3, 0.5, 0.9])


class Beliefs(NamedTuple):
    """Marginals of the latents at rows, and the rows' side information."""

    marginals: Marginals
    side: dict[str, Float[np.ndarray, "N"]]


class _Case(NamedTuple):
    """What a likelihood is checked with."""

    likelihood: Likelihood
    y: np.ndarray  # targets
    spacing: np.ndarray  # weight of the density at each
    density: np.ndarray  # of each under each belief
    beliefs: Beliefs
    tolerance: float
    continuous: bool


@double_precision
def check_likelihood(
    likelihood: Likelihood,
    targets: Any,
    *,
    continuous: bool,
    side_information: Mapping[str, float] | None = None,
    tolerance: float = 1e-5,
) -> tuple[str, ...]:
    """Check a likelihood of one to three latent functions.

    Args:
        likelihood: with values of its parameters away from the ends of their supports.
        targets: every value y can take; for a continuous y a fine grid, even or not, that holds
            all but `tolerance` of the mass for latent values within [-6, 6]. Values that have a
            probability beside the density are in it too.
        continuous: whether y has a density (the grid is integrated over) or probabilities.
        side_information: a value for the numbers a row that it reads.
        tolerance: of its expectations against quadrature with many nodes.

    Returns:
        Optional methods that the likelihood does not have, and which therefore were not checked:
        any of "conditional_moments", "sample", "predictive_quantiles", "class_probabilities"
        (the last only of targets that are classes, the first and third only of others).

    Raises:
        AssertionError: the density does not integrate to one; expectations, moments, quantiles,
            samples, gradients or limits are wrong.
    """
    require(
        likelihood.latent_size in _NODES,
        f"check_likelihood is for one to three latents, got {likelihood.latent_size}.",
    )
    y = np.asarray(targets, np.float64)
    spacing = _spacing(y, likelihood.atoms) if continuous else np.ones(len(y))
    _, beliefs = rows_and_beliefs(likelihood, y[:1], _MEANS, _VARIANCES, side_information, stride=2)
    likelihood.check_targets(y)
    density = _predictive_density(likelihood, y, beliefs)
    rows = _usual_targets(y, density * spacing)
    # Fixed points in three dimensions and more are good to a percent, not to rounding.
    tolerance = tolerance if likelihood.latent_size < 3 else max(tolerance, 0.03)
    case = _Case(likelihood, y, spacing, density, beliefs, tolerance, continuous)
    if likelihood.is_normalised:
        _check_density(case)
    _check_expectations(case, rows)
    of_classes = likelihood.targets == "class"
    of_others = _check_moments, _check_samples, _check_quantiles
    missing = [c(case) for c in ((_check_classes, _check_samples) if of_classes else of_others)]
    _check_gradients(likelihood, rows, beliefs)
    _check_limits(likelihood, rows, beliefs)
    return tuple(name for name in missing if name is not None)


def _spacing(y: np.ndarray, atoms: tuple[float, ...]) -> np.ndarray:
    """Weight of the density at each target: the step there, one for an atom."""
    spacing, at = np.ones(len(y)), np.isin(y, atoms)
    spacing[~at] = np.gradient(y[~at])
    return spacing


def log_prob_at_nodes(
    likelihood: Likelihood, y: Any, beliefs: Beliefs
) -> tuple[Float[np.ndarray, "N S"], Float[np.ndarray, "S"]]:
    """Log p(y | f) at quadrature nodes of f ~ N(mean, diag(variance)), and their weights."""
    nodes, weights = nodes_of(likelihood)
    mean, variance = beliefs.marginals
    f = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    along = jax.vmap(jax.vmap(likelihood.log_prob, (None, 0, None)), (0, 0, 0))
    return np.asarray(jax.jit(along)(y, f, beliefs.side)), weights


def nodes_of(likelihood: Likelihood) -> tuple[Float[np.ndarray, "S Q"], Float[np.ndarray, "S"]]:
    """Many standard normal nodes for a likelihood's latents, and their weights."""
    size = likelihood.latent_size
    if size == 1:
        return even_nodes()
    if size == 2 and likelihood.is_smooth:
        return even_nodes(2, 281)
    # Products of grids see nothing of a step between their points.
    return hermite_nodes(size, _NODES[size]) if likelihood.is_smooth else sobol_nodes(size, 1 << 16)


def rows_and_beliefs(
    likelihood: Likelihood,
    targets: Any,
    means: tuple[float, ...],
    variances: tuple[float, ...],
    side_information: Mapping[str, float] | None,
    stride: int = 1,
) -> tuple[Rows, Beliefs]:
    """Rows of all combinations of targets, means and variances, which latents have by turns."""
    grid = np.meshgrid(np.arange(len(targets)), means, variances)
    which, mean, variance = (g.ravel() for g in grid)
    columns = range(likelihood.latent_size)
    marginals = Marginals(
        np.stack([np.roll(mean, q) for q in columns], axis=1),
        np.stack([np.roll(variance, stride * q) for q in columns], axis=1),
    )
    y, given = np.asarray(targets, np.float64)[which], side_information or {}
    side = {name: np.full(len(y), float(value)) for name, value in given.items()}
    return Rows(y, None, side), Beliefs(marginals, side)


def _usual_targets(y: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """A target a belief: quantiles from 5 to 95 % of the beliefs' mixture."""
    below = np.cumsum(mass.mean(axis=0))
    levels = np.linspace(0.05, 0.95, len(mass))
    return y[np.searchsorted(below, levels * below[-1])]


def _predictive_density(likelihood: Likelihood, y: np.ndarray, beliefs: Beliefs) -> np.ndarray:
    """p(y) under each belief for every target, by quadrature, shape (N, T)."""
    size = likelihood.latent_size
    smooth = size == 1 or likelihood.is_smooth
    nodes, weights = hermite_nodes(size, _NODES[size]) if smooth else nodes_of(likelihood)
    log_prob = jax.vmap(jax.vmap(likelihood.log_prob, (0, None, None)), (None, 0, None))

    @jax.jit
    def density(mean, variance, side):
        f = mean + jnp.sqrt(variance) * nodes
        values = jnp.exp(log_prob(y, f, side))
        total = 1.0 if likelihood.is_normalised else jnp.sum(values, axis=1, keepdims=True)
        return (values / total).T @ weights

    return np.stack([np.asarray(density(*row)) for row in _each(beliefs)])


def _each(beliefs: Beliefs) -> list[tuple[Any, Any, dict[str, Any]]]:
    return [
        (mean, variance, {name: values[n] for name, values in beliefs.side.items()})
        for n, (mean, variance) in enumerate(zip(*beliefs.marginals, strict=True))
    ]


def _check_density(case: _Case) -> None:
    likelihood, y, beliefs = case.likelihood, case.y, case.beliefs
    over = jax.jit(jax.vmap(jax.vmap(likelihood.log_prob, (0, None, None)), (None, 0, 0)))
    log_prob = np.asarray(over(y, beliefs.marginals.mean, beliefs.side))
    require(not np.any(np.isnan(log_prob)), f"{_name(likelihood)}.log_prob is NaN.")
    total = np.exp(log_prob) @ case.spacing
    what = f"The density of {_name(likelihood)} does not add up to one over the targets"
    require_equal(total, np.ones_like(total), what, atol=1e-5)


def _check_expectations(case: _Case, rows: np.ndarray) -> None:
    likelihood, beliefs, tolerance = case.likelihood, case.beliefs, case.tolerance
    for shift in (0, 1):
        rows = np.roll(rows, shift)
        log_prob, weights = log_prob_at_nodes(likelihood, rows, beliefs)
        expected = _jitted(likelihood, "expected_log_prob")(rows, *beliefs)
        what = f"{_name(likelihood)}.expected_log_prob differs from quadrature"
        require_equal(expected, log_prob @ weights, what, rtol=tolerance, atol=tolerance)
        if not likelihood.is_normalised:
            continue
        predictive = _jitted(likelihood, "predictive_log_prob")(rows, *beliefs)
        what = f"{_name(likelihood)}.predictive_log_prob differs from quadrature"
        value = np.log(np.exp(log_prob) @ weights)
        require_equal(predictive, value, what, rtol=tolerance, atol=tolerance)


def _check_moments(case: _Case) -> str | None:
    likelihood, y, spacing, density, beliefs, tolerance, _ = case
    if not _has(likelihood.conditional_moments, *_first(beliefs)):
        return "conditional_moments"
    first, second = (density @ (y**power * spacing) for power in (1, 2))
    mean, variance = _jitted(likelihood, "predictive_moments")(*beliefs)
    name, atol = _name(likelihood), tolerance * np.max(np.abs(second))
    require_equal(mean, first, f"{name}'s predictive mean differs from quadrature", atol=atol)
    what = f"{name}'s predictive variance differs from quadrature"
    require_equal(variance, second - first**2, what, atol=atol)
    require(np.all(variance >= 0), f"{name}'s predictive variance is negative.")
    return None


def _check_classes(case: _Case) -> str | None:
    likelihood, y, _, density, beliefs, tolerance, _ = case
    if not _has(likelihood.class_probabilities, *_first(beliefs)):
        return "class_probabilities"
    name = _name(likelihood)
    require_equal(y, np.arange(len(y)), f"The targets of {name}, which are classes")
    given = jax.vmap(likelihood.class_probabilities)(beliefs.marginals.mean, beliefs.side)
    over = jax.vmap(jax.vmap(likelihood.log_prob, (0, None, None)), (None, 0, 0))
    values = np.exp(over(y, beliefs.marginals.mean, beliefs.side))
    values /= values.sum(axis=1, keepdims=True)
    what = f"{name}.class_probabilities differ from exp(log_prob)"
    require_equal(given, values, what, rtol=1e-12, atol=1e-12)
    predictive = np.asarray(_jitted(likelihood, "predictive_probabilities")(*beliefs))
    what = f"{name}'s predictive probabilities do not add up to one"
    require_equal(predictive.sum(axis=1), np.ones(len(predictive)), what, atol=1e-12)
    if likelihood.is_normalised:
        what = f"{name}'s predictive probabilities differ from quadrature"
        require_equal(predictive, density, what, atol=tolerance)
    return None


def _check_samples(case: _Case) -> str | None:
    likelihood, y, spacing, density, beliefs, *_ = case
    if not _has(likelihood.sample, jax.random.key(0), *_first(beliefs)):
        return "sample"
    key_f, key_y = jax.random.split(jax.random.key(0))
    mean, variance = beliefs.marginals
    f = mean + np.sqrt(variance) * jax.random.normal(key_f, (_DRAWS, *mean.shape))
    keys = jax.random.split(key_y, f.shape[:2])
    draw = jax.jit(jax.vmap(jax.vmap(likelihood.sample), (0, 0, None)))
    draws = np.asarray(draw(keys, f, beliefs.side))
    name = _name(likelihood)
    for power in (1, 2):
        moment, spread = (density @ (y ** (k * power) * spacing) for k in (1, 2))
        error = np.sqrt(np.maximum(spread - moment**2, 0) / _DRAWS)
        excess = np.abs(np.mean(draws**power, axis=0) - moment) - _STANDARD_ERRORS * error
        require(
            np.all(excess <= 1e-12),
            f"Moment {power} of {name}.sample is more than {_STANDARD_ERRORS:g} standard errors "
            f"from that of its density: {np.mean(draws**power, axis=0)} against {moment}.",
        )
    return None


def _check_quantiles(case: _Case) -> str | None:
    likelihood, y, spacing, density, beliefs, _, continuous = case
    if not _has(likelihood.predictive_quantiles, _LEVELS, *beliefs):
        return "predictive_quantiles"
    quantiles = np.asarray(_jitted(likelihood, "predictive_quantiles")(_LEVELS, *beliefs))
    name = _name(likelihood)
    rises = np.all(np.diff(quantiles, axis=1) >= 0)
    require(rises, f"{name}'s quantiles fall as probability rises.")
    if continuous:
        given_f = jnp.asarray(quantiles[0, 0]), *_first(beliefs)
        require(_has(likelihood.cdf, *given_f), f"{name} has quantiles, but no cdf.")
        cdf = _jitted(likelihood, "predictive_cdf")
        reached = np.stack([cdf(own, *beliefs) for own in quantiles.T], axis=1)
        at_atoms = np.isin(quantiles, likelihood.atoms)
        wanted = np.where(at_atoms, np.maximum(reached, _LEVELS), _LEVELS)
        require_equal(reached, wanted, f"{name}'s predictive_cdf at its quantiles", atol=1e-3)
    for row, own in zip(density, quantiles, strict=True):
        if likelihood.atoms:
            _check_split(name, y, row * spacing, own, 1e-3)
        elif continuous:
            halves = 0.5 * (row[1:] + row[:-1]) * np.diff(y)
            below = np.interp(own, y, np.concatenate([[0.0], np.cumsum(halves)]))
            require_equal(below, _LEVELS, f"The probability below {name}'s quantiles", atol=1e-3)
        else:
            _check_split(name, y, row, own, 1e-9)
    return None


def _check_split(
    name: str, y: np.ndarray, mass: np.ndarray, quantiles: np.ndarray, tolerance: float
) -> None:
    """Check quantiles of a law that has probabilities at the targets."""
    below = np.array([mass[y < q].sum() for q in quantiles])
    upto = np.array([mass[y <= q].sum() for q in quantiles])
    require(
        np.all((below <= _LEVELS + tolerance) & (upto >= _LEVELS - tolerance)),
        f"{name}'s quantiles {quantiles} do not split its law at {_LEVELS}.",
    )


def _check_gradients(likelihood: Likelihood, rows: np.ndarray, beliefs: Beliefs) -> None:
    space = ParameterSpace(likelihood)
    for method in ("expected_log_prob", "predictive_log_prob"):

        def total(point: tuple, method: str = method) -> Any:
            vector, marginals = point
            own = space.to_model(vector)
            return jnp.sum(getattr(own, method)(rows, marginals, beliefs.side))

        point = (jnp.asarray(space.to_vector()), beliefs.marginals)
        gradient = jax.jit(jax.grad(total))(point)
        what = f"The gradient of {_name(likelihood)}.{method}"
        require_gradient(jax.jit(total), point, gradient, what, rtol=1e-5)


def _check_limits(likelihood: Likelihood, rows: np.ndarray, beliefs: Beliefs) -> None:
    """At zero variance of the latents every expectation is the value at their mean."""
    methods = ("expected_log_prob", "predictive_log_prob")[: 2 if likelihood.is_normalised else 1]
    mean = beliefs.marginals.mean
    known = Marginals(mean, np.zeros_like(mean))
    expected = np.asarray(jax.vmap(likelihood.log_prob)(rows, mean, beliefs.side))
    name = _name(likelihood)
    for method in methods:
        value = getattr(likelihood, method)(rows, known, beliefs.side)
        what = f"{name}.{method} at zero variance differs from log_prob"
        require_equal(value, expected, what, rtol=1e-8, atol=1e-8)
        far = getattr(likelihood, method)(rows, Marginals(1e3 * mean, known.variance), beliefs.side)
        exact = jax.vmap(likelihood.log_prob)(rows, 1e3 * mean, beliefs.side)
        what = f"{name}.{method} is no number where log_prob, far from the targets, is one"
        is_number = np.isfinite(far) | ~np.isfinite(exact)
        require(bool(np.all(is_number)) or likelihood.targets not in ("class", "count"), what)

    slope = jax.grad(lambda f: jnp.sum(likelihood.expected_log_prob(rows, f, beliefs.side)))
    slopes = slope(known)
    require_finite(slopes, f"The gradient of {name}.expected_log_prob at zero variance")
    # d/dv E log p is half the expected curvature: near zero variance it must not jump.
    nearby = slope(Marginals(mean, np.full_like(mean, 1e-6))).variance
    what = f"The gradient of {name}.expected_log_prob in the variance at zero"
    require_equal(slopes.variance, nearby, what, rtol=1e-3, atol=1e-3)
    own: Any = likelihood
    for given, predicted, at, words in (
        (own.conditional_moments, own.predictive_moments, (), ("mean", "variance")),
        (own.cdf, own.predictive_cdf, (rows,), ("CDF",)),
        (own.class_probabilities, own.predictive_probabilities, (), ("probabilities",)),
    ):
        if not _has(given, *(jnp.asarray(row[0]) for row in at), *_first(beliefs)):
            continue
        values = jax.tree.leaves(predicted(*at, known, beliefs.side))
        others = jax.tree.leaves(jax.vmap(given)(*at, mean, beliefs.side))
        for value, other, word in zip(values, others, words, strict=True):
            what = f"{name}'s predictive {word} at zero variance of the latents"
            require_equal(value, other, what, rtol=1e-8, atol=1e-8)


def _first(beliefs: Beliefs) -> tuple[Any, dict[str, Any]]:
    mean, _, side = _each(beliefs)[0]
    return jnp.asarray(mean), side


def _has(method: Callable[..., Any], *arguments: Any) -> bool:
    try:
        jax.eval_shape(lambda: method(*arguments))
    except InputError:
        return False
    return True


def _jitted(likelihood: Likelihood, method: str) -> Callable[..., Any]:
    return jax.jit(lambda *arguments: getattr(likelihood, method)(*arguments))


def _name(likelihood: Likelihood) -> str:
    return type(likelihood).__name__
