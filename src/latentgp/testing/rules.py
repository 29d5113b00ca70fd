"""What every rule that makes sites must satisfy."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.likelihoods import Likelihood
from latentgp.precision import double_precision
from latentgp.sites.base import GaussianSites, Rows, SiteRule
from latentgp.testing.likelihoods import Beliefs, log_prob_at_nodes
from latentgp.testing.numerics import (
    as_single,
    require,
    require_equal,
    require_finite,
    require_single,
)

_MEANS, _VARIANCES = (-1.2, 0.1, 0.9), (0.05, 0.7)


@double_precision
def check_rule(
    rule: SiteRule,
    likelihood: Likelihood,
    targets: Any,
    *,
    side_information: Mapping[str, float] | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Check a rule on a likelihood.

    Args:
        rule: what is checked.
        likelihood: one that the rule can make sites for.
        targets: some values of y, shape (T,).
        side_information: a value for the numbers a row that the likelihood reads.
        tolerance: of the rule's expectations against quadrature with many nodes.

    Raises:
        AssertionError: its value is above E log p(y | f); the sites are not the derivatives of
            that value, which is what makes the gradient in hyper-parameters right; a precision is
            negative; rows influence each other.
    """
    name = type(rule).__name__
    rule.check(likelihood)
    require(0 < rule.step_size <= 1, f"{name}.step_size is {rule.step_size}, not in (0, 1].")
    y, mean, variance = (
        g.ravel() for g in np.meshgrid(np.asarray(targets, np.float64), _MEANS, _VARIANCES)
    )
    mean, variance = (
        np.stack([np.roll(column, q) for q in range(likelihood.latent_size)], axis=1)
        for column in (mean, variance)
    )
    side = {key: np.full(len(y), float(value)) for key, value in (side_information or {}).items()}
    rows = Rows(y, None, side)
    sites = jax.jit(type(rule).sites)(rule, likelihood, rows, mean, variance)
    for field, values in sites._asdict().items():
        shape = y.shape if field == "log_constant" else mean.shape
        require(values.shape == shape, f"{name}'s {field} has shape {values.shape}, not {shape}.")
    require_finite(sites, f"{name}'s sites")
    require(np.all(sites.precision >= 0), f"{name}'s precisions are negative.")
    log_prob, weights = log_prob_at_nodes(likelihood, y, Beliefs(mean, variance, side))
    excess = np.max(np.asarray(sites.expected(mean, variance)) - log_prob @ weights)
    require(excess <= tolerance, f"{name}'s value is above E log p(y | f), by {excess:.3e}.")
    _check_derivatives(rule, likelihood, rows, mean, variance, sites, name)
    half = Rows(y[1::2], None, {key: values[1::2] for key, values in side.items()})
    alone = rule.sites(likelihood, half, mean[1::2], variance[1::2])
    for one, other in zip(alone, sites, strict=True):
        require_equal(one, other[1::2], f"{name}'s rows influence each other", atol=1e-12)
    if rule.is_exact(likelihood):
        elsewhere = rule.sites(likelihood, rows, mean + 1, 2 * variance)
        for one, other in zip(elsewhere, sites, strict=True):
            require_equal(one, other, f"{name} says it is exact but its sites depend on f")
    narrow = as_single((likelihood, rows, mean, variance))
    require_single(jax.eval_shape(rule.sites, *narrow), f"{name}'s sites")


def _check_derivatives(
    rule: SiteRule,
    likelihood: Likelihood,
    rows: Rows,
    mean: np.ndarray,
    variance: np.ndarray,
    sites: GaussianSites,
    name: str,
) -> None:
    def value(mean, variance):
        return jnp.sum(rule.sites(likelihood, rows, mean, variance).expected(mean, variance))

    in_mean, in_variance = jax.jit(jax.grad(value, (0, 1)))(mean, variance)
    slope = sites.linear - sites.precision * mean
    what = f"{name}'s linear - precision mean is not the derivative of its value in the mean"
    require_equal(slope, in_mean, what, rtol=1e-8, atol=1e-8)
    # A precision held at zero keeps the posterior proper where the true one is negative.
    held = np.asarray(sites.precision) == 0
    expected = np.where(held, 0.0, -2 * in_variance)
    what = f"{name}'s precision is not -2 times the derivative of its value in the variance"
    require_equal(sites.precision, expected, what, rtol=1e-8, atol=1e-8)
