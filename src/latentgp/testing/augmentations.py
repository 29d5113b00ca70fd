"""Conformance suite of augmentations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.likelihoods import Likelihood, Marginals
from latentgp.runtime.x64 import double_precision
from latentgp.sites.augmentations import Augmentation, augmentation_of
from latentgp.testing.likelihoods import Beliefs, log_prob_at_nodes, rows_and_beliefs
from latentgp.testing.numerics import (
    as_single,
    require,
    require_alike,
    require_equal,
    require_finite,
    require_single,
)

_MEANS = (-4.0, -0.7, 0.0, 1.3)
_VARIANCES = (1e-3, 0.5, 6.0)
_FAR = (-300.0, 0.0, 300.0)
_LATENTS = (-1.7, 0.4, 2.2)
_DRAWS = 4000
_STANDARD_ERRORS = 5.0


@double_precision
def check_augmentation(
    likelihood: Likelihood,
    targets: Any,
    *,
    augmentation: Augmentation | None = None,
    side_information: Mapping[str, float] | None = None,
) -> None:
    """Check an augmentation of a likelihood: its bound, and the law of its auxiliary variables.

    Args:
        likelihood: of one to three latents.
        targets: some values of y, shape (T,).
        augmentation: what is checked; `augmentation_of(likelihood)` if None.
        side_information: a value for the numbers a row that the likelihood reads.

    Raises:
        AssertionError: there is none; its bound is above E log p(y | f), or not tight where f is
            known though it should be, or another law of the auxiliary variables gives a greater
            one; the conditional law of these, the sites and p(y | f) do not agree for the
            variables drawn; draws do not follow their law.
    """
    augmentation = augmentation or augmentation_of(likelihood)
    if augmentation is None:
        raise AssertionError(f"{type(likelihood).__name__} has no augmentation registered.")
    side = side_information
    y = np.asarray(targets, np.float64)
    rows, beliefs = rows_and_beliefs(likelihood, y, _MEANS, _VARIANCES, side)
    name, augmented = type(augmentation).__name__, augmentation.bind(likelihood, rows)
    _check_bound(augmented, beliefs, name)
    _check_optimality(augmented, beliefs, name)
    narrow, marginals = as_single((augmented, beliefs.marginals))
    sites = jax.eval_shape(lambda own, at: own.expected_sites(at), narrow, marginals)
    require_single(sites, f"{name}'s sites")
    rows, beliefs = rows_and_beliefs(likelihood, y, _FAR, (0.0, 1e4), side)
    sites = augmentation.bind(likelihood, rows).expected_sites(beliefs.marginals)
    require_finite(sites, f"{name}'s sites far out")
    _check_blocks(augmentation, likelihood, name)
    rows, beliefs = rows_and_beliefs(likelihood, y, _LATENTS, (0.0,), side)
    augmented = augmentation.bind(likelihood, rows)
    for block in augmentation.blocks(likelihood):
        _check_draws(augmented, beliefs.marginals.mean, block, name)


def _check_bound(augmentation: Augmentation, beliefs: Beliefs, name: str) -> None:
    likelihood, rows = augmentation.likelihood, augmentation.rows
    sites = augmentation.expected_sites(beliefs.marginals)
    require_finite(sites, f"{name}'s sites")
    require(np.all(sites.precision >= 0), f"{name}'s precisions are negative.")
    bound = np.asarray(sites.expected(beliefs.marginals))
    log_prob, weights = log_prob_at_nodes(likelihood, rows.y, beliefs)
    value = log_prob @ weights
    mean, variance = beliefs.marginals
    if augmentation.sites_are_fixed:
        require_equal(bound, value, f"{name} says it is exact", rtol=1e-9, atol=1e-9)
        elsewhere = augmentation.expected_sites(Marginals(mean + 1, 2 * variance))
        require_alike(sites, elsewhere, f"{name} says it is exact but its sites depend on f")
    excess = np.max(bound - value)
    require(excess <= 1e-9, f"{name}'s bound is above E log p(y | f), by {excess:.3e}.")
    if not augmentation.is_tight:
        return
    point = Marginals.known(mean)
    at_point = augmentation.expected_sites(point)
    known = jax.vmap(likelihood.log_prob)(rows.y, mean, beliefs.side)
    what = f"{name}'s bound is not tight where f is known"
    require_equal(at_point.expected(point), known, what, rtol=1e-9, atol=1e-9)


def _check_optimality(augmentation: Augmentation, beliefs: Beliefs, name: str) -> None:
    """Sites made for another belief are a bound too, never a greater one."""
    likelihood = augmentation.likelihood

    @jax.jit
    def bound(marginals):
        return augmentation.expected_sites(marginals).expected(beliefs.marginals)

    mean, variance = beliefs.marginals
    best = np.asarray(bound(beliefs.marginals))
    for block in augmentation.blocks(likelihood):
        inside = np.isin(np.arange(likelihood.latent_size), block)
        for shift, factor in ((0.5, 1.0), (-0.5, 1.0), (0.0, 3.0), (0.0, 0.3)):
            scale = np.where(inside, factor, 1.0)
            other = np.asarray(bound(Marginals(mean + shift * inside, scale * variance)))
            require(
                np.all(other <= best + 1e-12 * (1 + np.abs(best))),
                f"{name}'s law of the auxiliary variable is not the best: another belief about f "
                f"gives a bound greater by {np.max(other - best):.3e}.",
            )

    slopes = jax.grad(lambda marginals: jnp.sum(bound(marginals)))(beliefs.marginals)
    for slope in slopes:
        what = f"{name}'s bound is not stationary in the law of the auxiliary variable"
        require_equal(slope, np.zeros_like(slope), what, atol=1e-9)


def _check_blocks(augmentation: Augmentation, likelihood: Likelihood, name: str) -> None:
    blocks = augmentation.blocks(likelihood)
    once = sorted(q for block in blocks for q in block) == list(range(likelihood.latent_size))
    require(once, f"{name}'s blocks {blocks} do not hold each latent once.")


def _check_draws(
    augmentation: Augmentation, f: np.ndarray, block: tuple[int, ...], name: str
) -> None:
    likelihood, rows = augmentation.likelihood, augmentation.rows
    inside = np.isin(np.arange(f.shape[1]), block)
    moved = f + 0.3 * inside * np.where(np.arange(len(f)) % 2, 1.0, -1.0)[:, None]
    log_prob = jax.vmap(likelihood.log_prob)

    @jax.jit
    def look(key):
        w = augmentation.draw(f, key, block)
        sites = augmentation.conditional_sites(w, f, block)
        at = [augmentation.log_conditional(w, place, block) for place in (f, moved)]
        joint = [sites.expected(Marginals.known(place * inside)) for place in (f, moved)]
        differences = jnp.stack([j - c for j, c in zip(joint, at, strict=True)])
        return sites, differences, jnp.exp(at[1] - at[0])

    sites, differences, ratios = jax.vmap(look)(jax.random.split(jax.random.key(0), _DRAWS))
    outside = np.asarray(sites.linear)[..., ~inside], np.asarray(sites.precision)[..., ~inside]
    leaves = any(np.any(field) for field in outside)
    require(not leaves, f"{name}'s sites leave their block {block}.")
    require(np.all(np.asarray(sites.precision) >= 0), f"{name}'s drawn precisions are negative.")
    known = np.stack([log_prob(rows.y, place, dict(rows.side)) for place in (f, moved)])
    for n in (0, _DRAWS // 2, _DRAWS - 1):
        what = f"{name}: log p(y, w | f) - log p(w | y, f) is not log p(y | f) for the w drawn"
        require_equal(differences[n], known, what, rtol=1e-10, atol=1e-10)
    _require_mean(ratios, np.ones(len(f)), f"{name}: E p(w | f') / p(w | f) under draws given f")
    # Fisher's identity: the score is the average of the scores given w.
    scores = (sites.linear - sites.precision * f) * inside
    score = jax.vmap(jax.grad(likelihood.log_prob, 1))(rows.y, jnp.asarray(f), dict(rows.side))
    _require_mean(scores, score * inside, f"{name}: the mean of linear - precision f over draws")


def _require_mean(draws: Any, expected: Any, what: str) -> None:
    draws = np.asarray(draws)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    excess = np.abs(np.mean(draws, axis=0) - expected) - _STANDARD_ERRORS * error
    require(
        np.all(excess <= 1e-9),
        f"{what} is more than {_STANDARD_ERRORS:g} standard errors from what it must be: "
        f"{np.mean(draws, axis=0)} against {np.asarray(expected)}.",
    )
