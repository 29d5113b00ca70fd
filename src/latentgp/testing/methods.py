"""Conformance suites of methods, on a model that they can be used on.

Log evidences against brute force need rows so few that the latents can be integrated out.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.inference import fit
from latentgp.models import LatentGP
from latentgp.numerics.quadrature import hermite_nodes, sobol_nodes
from latentgp.representations.latent_axis import latent_grams
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.site_inference.search.profiled_bound import (
    ConvergedPosterior,
    converge,
    evaluate,
    initial_sites,
)
from latentgp.testing.numerics import require, require_alike, require_equal, require_gradient

_NODES = {1: 400, 2: 120, 3: 60, 4: 24}
_SOBOL_NODES = 1 << 17
_STEPS = 12
# The size of an update is squared, a change of the bound is so by itself.
_TOLERANCE_OF_BOUNDS, _TOLERANCE_OF_SIZES = 1e-14, 1e-22


@double_precision
def check_method(
    method: SiteMethod, model: LatentGP, data: Data, *, tolerance: float = 1e-6
) -> None:
    """Check a method on a small problem.

    Args:
        method: what is checked.
        model: one that it can be used on.
        data: a few rows.
        tolerance: of the gradient, relative to its size.

    Raises:
        AssertionError: the bound falls under full steps, or does not converge; the gradient in the
            hyper-parameters differs from differences of the profiled bound (or approximate
            evidence); two fits with one key differ.
    """
    name = type(method).__name__
    algorithm = _to_the_end(method, model, data)
    rows = data.to_device()
    state = jax.jit(lambda model, rows: algorithm.init(model, rows))(model, rows)
    step, bounds = jax.jit(lambda state, rows: algorithm.step(state, rows)), []
    for _ in range(_STEPS):
        state, info = step(state, rows)
        bounds.append(float(info.bound))
    require(np.all(np.isfinite(bounds)), f"{name}: the bound is not finite: {bounds}.")
    if algorithm.rule.step_size == 1 and algorithm.rule.is_variational:
        falls = np.diff(bounds).min()
        require(
            falls >= -1e-9 * abs(bounds[-1]), f"{name}: an update lowers the bound by {-falls}."
        )

    space = ParameterSpace(model)
    vector = jnp.asarray(space.to_vector())
    sites = initial_sites(algorithm, model, rows)
    result = evaluate(algorithm, space, vector, rows, sites)
    if algorithm.rule.is_variational:
        require(
            result.bound >= bounds[-1] - 1e-6 * abs(bounds[-1]),
            f"{name}: the converged bound {result.bound} is below that after {_STEPS} updates.",
        )
    require_gradient(
        lambda vector: evaluate(algorithm, space, vector, rows, sites).value,
        vector,
        result.gradient,
        f"{name}: the gradient of the profiled bound",
        rtol=tolerance,
        atol=1e-6,
    )
    _check_fit(method, model, data, name)


@double_precision
def check_copies(
    method: SiteMethod, model: LatentGP, data: Data, *, tolerance: float = 1e-7
) -> None:
    """Check that a row of weight w is w copies of the row, with no equal rows merged before.

    Args:
        method: what is checked; its inducing points, if any, must be given as points, and leave no
            prior variance open that copies would have each of their own (as FITC does).
        model: one that it can be used on.
        data: a few rows without weights, side information unlike in unlike rows.
        tolerance: of the log evidence (relative) and of the latents' means and variances.

    Raises:
        AssertionError: weights and copies lead to different evidence or latents.
    """
    name = type(method).__name__
    counts = 1 + np.arange(data.size) % 3
    weighted = converged(method, model, data.reweighted(counts.astype(np.float64)))
    copied = converged(method, model, data.select(np.repeat(np.arange(data.size), counts)))
    what = f"{name}: the evidence of weighted rows is not that of copies"
    require_equal(weighted.bound, copied.bound, what, rtol=tolerance, atol=tolerance)
    both = (found.posterior.marginals(data.X) for found in (weighted, copied))
    for which, one, other in zip(("means", "variances"), *both, strict=True):
        what = f"{name}: {which} given weighted rows are not those given copies"
        require_equal(one, other, what, rtol=10 * tolerance, atol=10 * tolerance)


@double_precision
def check_evidence(
    method: SiteMethod, model: LatentGP, data: Data, *, closeness: float, tolerance: float = 1e-4
) -> None:
    """Check a method's log evidence against that by quadrature over all latents of all rows.

    Args:
        method: what is checked.
        model: one that it can be used on.
        data: so few rows that there are no more than some six latents in all.
        closeness: how far the evidence may be from the true one, in nats.
        tolerance: by which a lower bound may be above, in nats: the error of the quadrature.

    Raises:
        AssertionError: a lower bound is above the true evidence, or any evidence far from it.
    """
    name = f"{type(method).__name__} of {type(model.likelihood).__name__}"
    truth = log_evidence_by_quadrature(model, data)
    own = float(converged(method, model, data).bound)
    says = f"{name}: the log evidence is {own:.6f} where quadrature gives {truth:.6f}"
    if method.algorithm(model).evidence_kind(model) == "lower bound":
        require(own <= truth + tolerance, f"{says}, so it is no lower bound.")
    require(abs(own - truth) <= closeness, f"{says}, further than {closeness:g}.")


@double_precision
def log_evidence_by_quadrature(model: LatentGP, data: Data) -> float:
    """Log of the integral of p(y | f) p(f), in nats.

    Products of Gauss-Hermite nodes for up to four latents in all, quasi-Monte Carlo for more, and
    where the likelihood has kinks or steps.
    """
    rows, latents = data.size, model.likelihood.latent_size
    numbers = rows * latents
    if numbers in _NODES and model.likelihood.is_smooth:
        nodes, weights = hermite_nodes(numbers, _NODES[numbers])
    else:
        nodes, weights = sobol_nodes(numbers, _SOBOL_NODES)
    white = nodes.reshape(-1, rows, latents)
    grams = np.asarray(latent_grams(model.kernel, data.X, data.X))
    roots = np.linalg.cholesky(np.broadcast_to(grams, (latents, rows, rows)))
    f = np.einsum("qnm,smq->snq", roots, white) + np.asarray(prior_mean(model, data))
    over_rows = jax.vmap(model.likelihood.log_prob)
    log_prob = jax.jit(jax.vmap(lambda f: over_rows(data.y, f, data.side_information)))(f)
    counts = 1.0 if data.weights is None else data.weights
    return float(logsumexp(jnp.sum(counts * log_prob, axis=1), b=weights))


def converged(method: SiteMethod, model: LatentGP, data: Data) -> ConvergedPosterior:
    """The posterior given the rows as they are (none merged), its sites at rest."""
    algorithm = _to_the_end(method, model, data)
    rows = data.to_device()
    return converge(algorithm, model, rows, initial_sites(algorithm, model, rows))


def _to_the_end(method: SiteMethod, model: LatentGP, data: Data) -> SiteInference:
    """The algorithm with as many updates as it takes."""
    algorithm = method.algorithm(model)
    given = data.X, data.weights, model.kernel
    ready = algorithm.representation.initialise(*given, jax.random.key(0)).for_rows(*given)
    rule = algorithm.rule
    by_size = not rule.is_variational and rule.at_the_mode() is None
    tolerance = _TOLERANCE_OF_SIZES if by_size else _TOLERANCE_OF_BOUNDS
    settings = {"tolerance": tolerance, "max_updates": 500}
    return dataclasses.replace(algorithm, representation=ready, **settings)


def _check_fit(method: SiteMethod, model: LatentGP, data: Data, name: str) -> None:
    given = {"key": jax.random.key(1), "method": method, "learn_hyperparameters": False}
    fits = [fit(model, data, **given) for _ in range(2)]
    first, second = (f.posterior.predict_f(data.X) for f in fits)
    require_alike(first, second, f"{name}: two fits with one key differ")
    evidence = fits[0].posterior.log_evidence
    require(
        evidence.kind == method.settled(model, data.size).algorithm(model).evidence_kind(model),
        f"{name}: the evidence is called {evidence.kind!r}.",
    )
