"""What every augmentation must satisfy."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.augmentations import Augmentation, augmentation_of
from latentgp.likelihoods import Likelihood
from latentgp.precision import double_precision
from latentgp.sites.base import Rows
from latentgp.testing.likelihoods import Beliefs, log_prob_at_nodes
from latentgp.testing.numerics import (
    as_single,
    require,
    require_equal,
    require_finite,
    require_single,
)

_MEANS = (-4.0, -0.7, 0.0, 1.3)
_VARIANCES = (1e-3, 0.5, 6.0)
_FAR = (-300.0, 0.0, 300.0)


@double_precision
def check_augmentation(
    likelihood: Likelihood,
    targets: Any,
    *,
    side_information: Mapping[str, float] | None = None,
) -> None:
    """Check the augmentation that is registered for a likelihood.

    Args:
        likelihood: `augmentation_of(likelihood)` is what is checked.
        targets: some values of y, shape (T,).
        side_information: a value for the numbers a row that the likelihood reads.

    Raises:
        AssertionError: there is none; its bound is above E log p(y | f), or not tight where f is
            known, or another law of the auxiliary variable gives a greater one.
    """
    augmentation = augmentation_of(likelihood)
    if augmentation is None:
        raise AssertionError(f"{type(likelihood).__name__} has no augmentation registered.")
    side = side_information or {}
    rows, beliefs = _grid(likelihood, np.asarray(targets, np.float64), _MEANS, _VARIANCES, side)
    name = type(augmentation).__name__
    _check_bound(augmentation, likelihood, rows, beliefs, name)
    _check_optimality(augmentation, likelihood, rows, beliefs, name)
    far = _grid(likelihood, np.asarray(targets, np.float64), _FAR, (0.0, 1e4), side)
    sites = augmentation.expected_sites(likelihood, far[0], far[1].mean, far[1].variance)
    require_finite(sites, f"{name}'s sites far out")
    narrow = as_single((likelihood, rows, beliefs.mean, beliefs.variance))
    require_single(jax.eval_shape(augmentation.expected_sites, *narrow), f"{name}'s sites")


def _grid(
    likelihood: Likelihood,
    targets: np.ndarray,
    means: tuple[float, ...],
    variances: tuple[float, ...],
    side_information: Mapping[str, float],
) -> tuple[Rows, Beliefs]:
    y, mean, variance = (g.ravel() for g in np.meshgrid(targets, means, variances))
    columns = range(likelihood.latent_size)
    side = {name: np.full(len(y), float(value)) for name, value in side_information.items()}
    beliefs = Beliefs(
        np.stack([np.roll(mean, q) for q in columns], axis=1),
        np.stack([np.roll(variance, q) for q in columns], axis=1),
        side,
    )
    return Rows(y, None, side), beliefs


def _check_bound(
    augmentation: Augmentation, likelihood: Likelihood, rows: Rows, beliefs: Beliefs, name: str
) -> None:
    sites = augmentation.expected_sites(likelihood, rows, beliefs.mean, beliefs.variance)
    require_finite(sites, f"{name}'s sites")
    require(np.all(sites.precision >= 0), f"{name}'s precisions are negative.")
    bound = np.asarray(sites.expected(beliefs.mean, beliefs.variance))
    log_prob, weights = log_prob_at_nodes(likelihood, rows.y, beliefs)
    value = log_prob @ weights
    if augmentation.is_exact:
        require_equal(bound, value, f"{name} says it is exact", rtol=1e-9, atol=1e-9)
        elsewhere = augmentation.expected_sites(
            likelihood, rows, beliefs.mean + 1, 2 * beliefs.variance
        )
        for one, other in zip(sites, elsewhere, strict=True):
            require_equal(one, other, f"{name} says it is exact but its sites depend on f")
    excess = np.max(bound - value)
    require(excess <= 1e-9, f"{name}'s bound is above E log p(y | f), by {excess:.3e}.")
    nothing = np.zeros_like(beliefs.variance)
    at_point = augmentation.expected_sites(likelihood, rows, beliefs.mean, nothing)
    known = jax.vmap(likelihood.log_prob)(rows.y, beliefs.mean, beliefs.side)
    what = f"{name}'s bound is not tight where f is known"
    require_equal(at_point.expected(beliefs.mean, nothing), known, what, rtol=1e-9, atol=1e-9)


def _check_optimality(
    augmentation: Augmentation, likelihood: Likelihood, rows: Rows, beliefs: Beliefs, name: str
) -> None:
    """Sites made for another belief are a bound too, never a greater one."""

    @jax.jit
    def bound(mean, variance):
        sites = augmentation.expected_sites(likelihood, rows, mean, variance)
        return sites.expected(beliefs.mean, beliefs.variance)

    best = np.asarray(bound(beliefs.mean, beliefs.variance))
    for shift, factor in ((0.5, 1.0), (-0.5, 1.0), (0.0, 3.0), (0.0, 0.3)):
        other = np.asarray(bound(beliefs.mean + shift, factor * beliefs.variance))
        require(
            np.all(other <= best + 1e-12),
            f"{name}'s law of the auxiliary variable is not the best: another belief about f "
            f"gives a bound greater by {np.max(other - best):.3e}.",
        )

    def total(mean, variance):
        return jnp.sum(bound(mean, variance))

    slopes = jax.grad(total, (0, 1))(beliefs.mean, beliefs.variance)
    for slope in slopes:
        what = f"{name}'s bound is not stationary in the law of the auxiliary variable"
        require_equal(slope, np.zeros_like(slope), what, atol=1e-9)
