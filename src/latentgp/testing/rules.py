"""Conformance suite of rules that make sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.likelihoods import Likelihood, Marginals
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.rules.base import SiteRule
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.testing.likelihoods import Beliefs, log_prob_at_nodes, nodes_of, rows_and_beliefs
from latentgp.testing.numerics import (
    as_single,
    require,
    require_alike,
    require_equal,
    require_finite,
    require_single,
)

_MEANS, _VARIANCES = (-1.2, 0.1, 0.9), (0.05, 0.7)


class _RuleCase(NamedTuple):
    """A rule, and the sites that it makes of rows."""

    rule: SiteRule
    likelihood: Likelihood
    rows: Rows
    marginals: Marginals
    current: GaussianSites
    sites: GaussianSites
    name: str


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
        targets: some values of y, shape (T,), or (T, P) for P outputs.
        side_information: a value for the numbers a row that the likelihood reads.
        tolerance: of the rule's expectations against quadrature with many nodes.

    Raises:
        AssertionError: a precision is negative and the rule does not say so; rows influence each
            other. Of a bound: its value is above E log p(y | f); the sites are not the
            derivatives of that value, which is what makes the gradient in hyper-parameters right.
            Of a mode: the sites are not the expansion of log p(y | f). Of moments: cavity times
            site has not the mass and moments of cavity times likelihood.
    """
    name = type(rule).__name__
    rule.check(likelihood)
    require(0 < rule.step_size <= 1, f"{name}.step_size is {rule.step_size}, not in (0, 1].")
    rows, beliefs = rows_and_beliefs(likelihood, targets, _MEANS, _VARIANCES, side_information)
    y, (marginals, side) = rows.y, beliefs
    mean, variance = marginals
    current = GaussianSites(0.3 * jnp.sign(mean), 0.2 / variance, jnp.zeros(len(y)))
    sites = jax.jit(type(rule).sites)(rule, likelihood, rows, marginals, current)
    for field, values in sites._asdict().items():
        shape = y.shape[:1] if field == "log_constant" else mean.shape
        require(values.shape == shape, f"{name}'s {field} has shape {values.shape}, not {shape}.")
    require_finite(sites, f"{name}'s sites")
    signed = rule.signed(likelihood)
    require(signed or np.all(sites.precision >= 0), f"{name}'s precisions are negative.")
    case = _RuleCase(rule, likelihood, rows, marginals, current, sites, name)
    if rule.is_variational:
        log_prob, weights = log_prob_at_nodes(likelihood, y, beliefs)
        excess = np.max(np.asarray(sites.expected(marginals)) - log_prob @ weights)
        require(excess <= tolerance, f"{name}'s value is above E log p(y | f), by {excess:.3e}.")
        _check_derivatives(case)
    elif rule.at_the_mode() is not None:
        _check_expansion(case)
    else:
        _check_moments(case, tolerance)
    half = Rows(y[1::2], None, {key: values[1::2] for key, values in side.items()})
    some = jax.tree.map(lambda a: a[1::2], current)
    some_of = Marginals(mean[1::2], variance[1::2])
    alone = rule.sites(likelihood, half, some_of, some)
    own = jax.tree.map(lambda a: a[1::2], sites)
    require_alike(alone, own, f"{name}'s rows influence each other", atol=1e-12)
    if rule.sites_are_fixed(likelihood):
        other_place = Marginals(mean + 1, 2 * variance)
        elsewhere = rule.sites(likelihood, rows, other_place, GaussianSites.none(mean))
        what = f"{name} says its sites are fixed but they depend on f"
        require_alike(elsewhere, sites, what, rtol=1e-10, atol=1e-10)
    narrow = as_single((likelihood, rows, marginals, current))
    require_single(jax.eval_shape(rule.sites, *narrow), f"{name}'s sites")


def _check_derivatives(case: _RuleCase) -> None:
    rule, likelihood, rows, marginals, current, sites, name = case

    def value(marginals):
        sites = rule.sites(likelihood, rows, marginals, current)
        return jnp.sum(sites.expected(marginals))

    in_mean, in_variance = jax.jit(jax.grad(value))(marginals)
    slope = sites.linear - sites.precision * marginals.mean
    what = f"{name}'s linear - precision mean is not the derivative of its value in the mean"
    require_equal(slope, in_mean, what, rtol=1e-8, atol=1e-8)
    # A precision held at zero keeps the posterior proper where the true one is negative.
    held = np.asarray(sites.precision) == 0
    expected = np.where(held, np.maximum(-2 * in_variance, 0.0), -2 * in_variance)
    what = f"{name}'s precision is not -2 times the derivative of its value in the variance"
    require_equal(sites.precision, expected, what, rtol=1e-8, atol=1e-8)


def _check_expansion(case: _RuleCase) -> None:
    """Near the mean the factors are log p(y | f), to second order wherever that is concave."""
    _, likelihood, rows, (mean, _), _, sites, name = case
    log_prob = jax.vmap(likelihood.log_prob)
    step = 1e-3
    for latent in range(likelihood.latent_size):
        move = np.zeros_like(mean)
        move[:, latent] = step
        ahead, here, behind = (log_prob(rows.y, mean + s * move, rows.side) for s in (1, 0, -1))
        own = [sites.expected(Marginals.known(mean + s * move)) for s in (1, 0, -1)]
        require_equal(own[1], here, f"{name}'s factor at the mean", rtol=1e-10, atol=1e-10)
        slope, own_slope = (ahead - behind) / (2 * step), (own[0] - own[2]) / (2 * step)
        require_equal(own_slope, slope, f"{name}'s slope at the mean", rtol=1e-4, atol=1e-4)
        curvature = -(ahead - 2 * here + behind) / step**2
        precision = np.asarray(sites.precision)[:, latent]
        what = f"{name}'s precision is not the curvature at the mean"
        # Where it is not concave a search may take the curvature's size, or nothing.
        held = (precision >= 0) & (curvature < 0)
        expected = np.where(held, np.where(precision > 0, -curvature, 0.0), curvature)
        require_equal(precision, expected, what, rtol=1e-3, atol=1e-3)


def _check_moments(case: _RuleCase, tolerance: float) -> None:
    """Cavity times site^power against cavity times p(y | f)^power, by quadrature."""
    rule, likelihood, rows, (mean, variance), current, sites, name = case
    power = rule.power
    left = 1 / variance - power * np.asarray(current.precision)
    cavity_mean = (mean / variance - power * np.asarray(current.linear)) / left
    cavity = Beliefs(Marginals(cavity_mean, 1 / left), dict(rows.side))
    log_prob, weights = log_prob_at_nodes(likelihood, rows.y, cavity)
    tilted = np.exp(power * log_prob) * weights
    mass = tilted.sum(axis=1)
    precision = left + power * np.asarray(sites.precision)
    centre = (left * cavity_mean + power * np.asarray(sites.linear)) / precision
    nodes = nodes_of(likelihood)[0]

    def compare(own: Any, expected: Any, which: str) -> None:
        what = f"{name}: cavity times site has not the {which} of cavity times likelihood"
        require_equal(own, expected, what, rtol=tolerance, atol=tolerance)

    for latent in range(likelihood.latent_size):
        f = cavity_mean[:, [latent]] + np.sqrt(1 / left[:, [latent]]) * nodes[:, latent]
        first = np.sum(tilted * f, axis=1) / mass
        second = np.sum(tilted * f**2, axis=1) / mass - first**2
        compare(centre[:, latent], first, "mean")
        compare(1 / precision[:, latent], second, "variance")
    spread = np.log(precision / left) + cavity_mean**2 * left - centre**2 * precision
    log_mass = power * np.asarray(sites.log_constant) - 0.5 * spread.sum(axis=1)
    compare(log_mass, np.log(mass), "mass")
