"""Standard normal coordinates of the latent functions, by Gaussian sites.

Prior white coefficients v ~ N(0, I) give u = L v at the centres and f = m + A'v at the rows. Sites
exp(b'g - g'Wg / 2) of g = f - m make of v a Gaussian of precision P = I + A W A' = C C', and
coordinates eps:

    v = v_hat + L^-1 R eps,  v_hat = P^-1 A b,   f = f_hat + F eps,  F = A' L^-1 R,

with R the lower factor of L P^-1 L', the covariance of u. (C^-T in place of L^-1 R has the same
covariance but turns with the hyper-parameters where the data tell much; R does not.) With
alpha = b - W (f_hat - m), so that v_hat = A alpha, and d = F eps,

    log p(y, v) |dv / deps| = E - |eps|^2 / 2 + r(eps),
    E = log p(y | f_hat) - alpha'(f_hat - m) / 2 - log |C|,
    r = log p(y | f) - log p(y | f_hat) - alpha'd + d'Wd / 2,

whatever the sites are: no inverse of the prior covariance, and r = 0 for Gaussian noise. At the
mode with W its curvature, E is Laplace's log evidence. Sites of one variational update from there
halve the standard deviation of r, for one more factorisation. Without sites eps is v.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.inference.mcmc.coordinate_maps import (
    Coordinates,
    DenseCoordinates,
    SparseCoordinates,
    WhiteCoordinates,
)
from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.inference.sites.algorithm import prior_mean
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.neighbours.root import SparseWhitening
from latentgp.representations.whitening import DenseWhitening, Whitening
from latentgp.runtime.programs import Program
from latentgp.typing import Array

Kind = Literal["sites", "partial", "whitened"]

_WIDEST = 2.0  # variance of the expectations that make sites
_MOST_STEPS = 40
_ROUGHLY, _CLOSELY = 1e-3, 1e-8  # residuals of solves for a centre, and for Newton's steps
_DECREMENT = 1e-7  # nats that another Newton step would gain
_SHARES = (1.0, 0.5, 0.2, 0.05, 0.01, 0.001, 0.0)  # of a Newton step


def coordinates_at(
    target: WhiteTarget,
    model: LatentGP,
    coupling: Kind,
    anchor: Float[Array, "N Q"],
    *,
    differentiable: bool = False,
) -> Coordinates:
    """Coordinates of the latent functions under a model.

    They are a function of the model alone: Newton's method starts at the anchor, not where a chain
    was before. So a chain that holds them while hyper-parameters move is exact however far Newton's
    method came; how far is in the certificate.

    Args:
        target: rows and representation.
        model: with the hyper-parameters.
        coupling: "sites" of one variational update from Laplace's approximation; "partial" of one
            from the anchor, whatever the mode is; "whitened" for none.
        anchor: where Newton's method starts, f at the rows.
        differentiable: whether derivatives in the model are taken, through one more Newton step:
            at the mode they are those of the implicit function theorem, exactly so for one latent
            function, as sites leave out what ties those of a row.
    """
    whitening, offset = target.whitening(model), prior_mean(model, target.data)
    if coupling == "whitened":
        return _prior_coordinates(target, model, whitening, offset)
    mode, decrement, steps = anchor, jnp.zeros((), anchor.dtype), 0.0
    if coupling == "sites":
        held = jax.lax.stop_gradient((model, whitening, offset))
        mode, decrement, steps = _mode(target, *held, anchor)
        if differentiable and isinstance(whitening, DenseWhitening):
            linear, precision = sites_at(target, model, whitening, offset, mode)
            mode, steps = offset + _condition(whitening, linear, precision)[0], steps + 1
    linear, precision = sites_at(target, model, whitening, offset, mode)
    if isinstance(whitening, SparseWhitening):
        found = _sparse_coordinates(target, model, whitening, linear, precision)
        return dataclasses.replace(found, decrement=decrement)
    assert isinstance(whitening, DenseWhitening)
    linear, precision = _expected_sites(target, model, whitening, offset, linear, precision)
    found = coordinates_of_sites(target, model, whitening, linear, precision)
    made = found.factorisations + steps + 1
    return dataclasses.replace(found, decrement=decrement, factorisations=made)


def _prior_coordinates(
    target: WhiteTarget, model: LatentGP, whitening: Whitening, offset: Float[Array, "N Q"]
) -> Coordinates:
    """Prior white coordinates: what `coordinates_of_sites` gives for none, without its work."""
    zeros, zero = jnp.zeros_like(offset), jnp.zeros((), offset.dtype)
    if not isinstance(whitening, DenseWhitening):
        found = WhiteCoordinates(whitening, offset, zeros, zero, zero, zero + 1)
        value = found.log_likelihood(target, model, offset)
        return dataclasses.replace(found, log_evidence=value)
    factor = jnp.swapaxes(whitening.features, 1, 2)
    latents = offset.shape[1], *factor.shape[1:]
    factor = jnp.broadcast_to(factor, latents)
    root = jnp.broadcast_to(whitening.lower, (len(factor), *whitening.lower.shape[1:]))
    found = DenseCoordinates(whitening, offset, factor, root, zeros, zeros, zero, zero, zero + 1)
    value = found.log_likelihood(target, model, offset)
    return dataclasses.replace(found, log_evidence=value)


def coordinates_of_sites(
    target: WhiteTarget,
    model: LatentGP,
    whitening: DenseWhitening,
    linear: Float[Array, "N Q"],
    precision: Float[Array, "N Q"],
) -> DenseCoordinates:
    """Coordinates by given sites, functions of g."""
    g, precision_root = _condition(whitening, linear, precision)
    slope = linear - precision * g

    def factors(lower, features, precision_root):
        half = solve_lower(precision_root, lower.T)
        root = lower_cholesky(half.T @ half)
        if target.representation.one_coefficient_a_row:  # A' = L
            return root, root
        return root, features.T @ solve_lower(lower, root)

    root, factor = vmap_latents(factors, whitening.lower, whitening.features, precision_root)
    zero = jnp.zeros((), g.dtype)
    centre = prior_mean(model, target.data) + g
    found = DenseCoordinates(
        whitening, centre, factor, root, slope, precision, zero, zero, zero + 3
    )
    log_root = jnp.sum(jnp.log(jnp.diagonal(precision_root, axis1=1, axis2=2)))
    value = found.log_likelihood(target, model, found.centre) - 0.5 * jnp.sum(slope * g) - log_root
    return eqx.tree_at(lambda c: c.log_evidence, found, value)


def _sparse_coordinates(
    target: WhiteTarget,
    model: LatentGP,
    whitening: SparseWhitening,
    linear: Float[Array, "N Q"],
    precision: Float[Array, "N Q"],
) -> SparseCoordinates:
    """Coordinates by sparse roots, given sites as functions of g."""
    root, g = whitening.posterior(linear, precision, _ROUGHLY)
    centre, zero = prior_mean(model, target.data) + g, jnp.zeros((), g.dtype)
    white, latents = whitening.white_of(g), g.shape[1]
    found = SparseCoordinates(
        whitening=whitening,
        centre=centre,
        root=root,
        white_centre=white,
        at_centre=zero,
        precision=precision,
        log_evidence=zero,
        decrement=zero,
        factorisations=zero + 2,
    )
    at_centre = found.log_likelihood(target, model, centre)
    value = at_centre - 0.5 * jnp.sum(white**2)
    value = value + root.log_determinant(latents) - whitening.log_determinant(latents)
    return dataclasses.replace(found, at_centre=at_centre, log_evidence=value)


def _condition(
    whitening: DenseWhitening, linear: Float[Array, "N Q"], precision: Float[Array, "N Q"]
) -> tuple[Float[Array, "N Q"], Float[Array, "Q M M"]]:
    """Mean of g given sites, and C."""

    def condition(features, linear, precision):
        P = jnp.eye(len(features), dtype=features.dtype) + (features * precision) @ features.T
        root = lower_cholesky(P)
        half = solve_lower(root, features @ linear)
        return solve_lower(root, half, transposed=True) @ features, root

    g, root = vmap_latents(condition, whitening.features, linear.T, precision.T)
    return g.T, root


def _conditioning(whitening: Whitening) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The function from sites to the mean of g and alpha, by the smaller of two factors."""
    if isinstance(whitening, SparseWhitening):

        def by_solves(linear: Array, precision: Array) -> tuple[Array, Array]:
            _, g = whitening.posterior(linear, precision, _CLOSELY)
            return g, linear - precision * g

        return by_solves
    assert isinstance(whitening, DenseWhitening)
    features = whitening.features
    if features.shape[1] < features.shape[2]:

        def by_coefficients(linear: Array, precision: Array) -> tuple[Array, Array]:
            g, _ = _condition(whitening, linear, precision)
            return g, linear - precision * g

        return by_coefficients
    grams = vmap_latents(lambda features: features.T @ features, features)

    def by_rows(linear: Array, precision: Array) -> tuple[Array, Array]:
        """Through B = I + W^1/2 K W^1/2 (Rasmussen & Williams 2006, Alg. 3.1)."""

        def condition(K, linear, precision):
            root = jnp.sqrt(precision)
            B = jnp.eye(len(K), dtype=K.dtype) + root[:, None] * K * root
            lower = lower_cholesky(B)
            half = solve_lower(lower, root * (K @ linear))
            alpha = linear - root * solve_lower(lower, half, transposed=True)
            return K @ alpha, alpha

        g, slope = vmap_latents(condition, grams, linear.T, precision.T)
        return g.T, slope.T

    return by_rows


def sites_at(
    target: WhiteTarget,
    model: LatentGP,
    whitening: Whitening,
    offset: Float[Array, "N Q"],
    f: Float[Array, "N Q"],
) -> tuple[Float[Array, "N Q"], Float[Array, "N Q"]]:
    """Sites of the likelihood's slope and curvature at f, as functions of g = f - offset."""
    variance = jnp.broadcast_to(whitening.residual.T, f.shape)

    def slope_of(f: Float[Array, "N Q"]) -> Float[Array, "N Q"]:
        return jax.grad(lambda f: target.log_likelihood_of(model, Marginals(f, variance)))(f)

    slope, bend = jax.linearize(slope_of, f)
    # Rows do not depend on each other, so one direction a latent function gives the diagonal.
    columns = jnp.eye(f.shape[1], dtype=f.dtype)
    curvature = sum(bend(jnp.broadcast_to(column, f.shape)) * column for column in columns)
    precision = jnp.maximum(-jnp.asarray(curvature), 0.0)
    return slope + precision * (f - offset), precision


def _expected_sites(
    target: WhiteTarget,
    model: LatentGP,
    whitening: DenseWhitening,
    offset: Float[Array, "N Q"],
    linear: Float[Array, "N Q"],
    precision: Float[Array, "N Q"],
) -> tuple[Float[Array, "N Q"], Float[Array, "N Q"]]:
    """One variational update of sites: slope and curvature expected under their posterior.

    Its variance v is shrunk to 2 v / (v + 2), in units of a logit or a log rate squared: sites of
    the whole of a wide posterior are narrower than its tails, where a chain would stay.
    """
    g, root = _condition(whitening, linear, precision)

    def variance(features, root):
        return jnp.sum(solve_lower(root, features) ** 2, axis=0)

    variances = vmap_latents(variance, whitening.features, root).T + whitening.residual.T
    shrunk = _WIDEST * variances / (_WIDEST + variances)
    marginals = Marginals(offset + g, shrunk)
    slopes = jax.grad(lambda marginals: target.expected_log_likelihood(model, marginals))(marginals)
    expected = jnp.maximum(-2 * slopes.variance, 0.0)
    known = jnp.isfinite(slopes.mean) & jnp.isfinite(expected)  # else the row's sites stay
    slope = jnp.where(known, slopes.mean, linear - precision * g)
    precision = jnp.where(known, expected, precision)
    return slope + precision * g, precision


def _mode(
    target: WhiteTarget,
    model: LatentGP,
    whitening: Whitening,
    offset: Float[Array, "N Q"],
    anchor: Float[Array, "N Q"],
) -> tuple[Float[Array, "N Q"], Float[Array, ""], Float[Array, ""]]:
    """Mode of p(f | y) by Newton's method, of whose step the best of some shares is taken.

    Returns:
        The mode, the decrement there, the number of steps.
    """
    variance = jnp.broadcast_to(whitening.residual.T, offset.shape)
    posterior_given = _conditioning(whitening)

    def height(g: Float[Array, "N Q"], slope: Float[Array, "N Q"]) -> Float[Array, ""]:
        value = target.log_likelihood_of(model, Marginals(offset + g, variance))
        value = value - 0.5 * jnp.sum(g * slope)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def newton(f: Float[Array, "N Q"]) -> tuple[Array, Array, Array]:
        linear, precision = sites_at(target, model, whitening, offset, f)
        g, slope = posterior_given(linear, precision)
        return g, slope, linear - precision * (f - offset)

    def step(carry: tuple) -> tuple:
        g, slope, _, count = carry
        there, slope_there, pull = newton(offset + g)
        decrement = jnp.sum((pull - slope) * (there - g))

        def at(share: Float[Array, ""]) -> Float[Array, ""]:
            return height(g + share * (there - g), slope + share * (slope_there - slope))

        shares = jnp.array(_SHARES, g.dtype)
        share = shares[jnp.argmax(jax.lax.map(at, shares))]
        moved = g + share * (there - g), slope + share * (slope_there - slope)
        return *moved, decrement, count + 1

    g, slope, _ = newton(anchor)
    # The anchor is the mode for other hyper-parameters: it may lead further off than the prior.
    leads = height(g, slope) > height(jnp.zeros_like(g), jnp.zeros_like(g))
    g, slope = jnp.where(leads, g, 0.0), jnp.where(leads, slope, 0.0)
    start = g, slope, jnp.array(jnp.inf, g.dtype), 0
    g, _, decrement, count = jax.lax.while_loop(
        lambda carry: (jnp.abs(carry[2]) > _DECREMENT) & (carry[3] < _MOST_STEPS), step, start
    )
    return offset + g, jnp.abs(decrement), count + 1.0


@partial(Program, static_argnums=(1,))
def coordinates_at_centre(target: WhiteTarget, coupling: Kind) -> Coordinates:
    """Those under the space's model, whose centre is the anchor of all others."""
    start = prior_mean(target.space.model, target.data)
    kind: Kind = "sites" if coupling == "partial" else coupling
    return coordinates_at(target, target.space.model, kind, start)
