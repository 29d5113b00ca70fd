"""Standard normal coordinates of the latent functions, by Gaussian sites.

Prior white coefficients v ~ N(0, I) give u = L v at the centres and f = m + A'v at the rows. Sites
exp(b'g - g'Wg / 2) of g = f - m make of v a Gaussian of precision P = I + A W A' = C C', and
coordinates eps:

    v = v_hat + C^-T eps,  v_hat = P^-1 A b,   f = f_hat + F eps,  F = A' C^-T,

with C upper triangular, so that R = L C^-T is the lower factor of the covariance of u. (With a
lower C the covariance is the same, but C^-T turns with the hyper-parameters where the data tell
much.) With alpha = b - W (f_hat - m), so that v_hat = A alpha, and d = F eps,

    log p(y, v) |dv / deps| = E - |eps|^2 / 2 + r(eps),
    E = log p(y | f_hat) - alpha'(f_hat - m) / 2 - log |C|,
    r = log p(y | f) - log p(y | f_hat) - alpha'd + d'Wd / 2,

whatever the sites are: no inverse of the prior covariance, and r = 0 for Gaussian noise. At the
mode with W its curvature, E is Laplace's log evidence. Sites of one variational update from there
halve the standard deviation of r, for one more factorisation. Without sites eps is v.

Where log p(y | f) has kinks its slope leads Newton's method astray and its curvature says nothing:
there the mode and the sites are those of its expectation over f with the mean that is sought and
variances held, of the prior first, then of the posterior that it gave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.chains.coordinate_maps import (
    Coordinates,
    DenseCoordinates,
    SparseCoordinates,
    WhiteCoordinates,
)
from latentgp.extensions.chains.target import Position, WhiteTarget, from_prior
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.numerics.triangular import inverse_of_lower, solve_lower
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.representations.protocols import coefficients_of
from latentgp.representations.samplers import BlockUpdate
from latentgp.representations.whitening import DenseWhitening, WhiteningBySolves
from latentgp.runtime.programs import Program
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, RandomKey, RowLatents, Scalar

Kind = Literal["sites", "partial", "whitened"]

_WIDEST = 2.0  # variance of the expectations that make sites
_MOST_STEPS = 40
_ROUNDS = 3  # of variances, where log p(y | f) has kinks
_ROUNDING = 64.0  # of a decrement, in roundings of the squared norm
_ROUGHLY, _CLOSELY = 1e-3, 1e-8  # residuals of solves for a centre, and for Newton's steps
_DECREMENT = 1e-7  # nats that another Newton step would gain
_SHORTER, _SHORTEST = 0.25, 1e-13  # shares of a Newton step, tried in turn
_ARRIVED = 1e-3  # nats that another step would gain, where a mode was met
_GAIN = 0.1  # share of the decrement that a share of a step must gain of its own

_Sites = tuple[RowLatents, RowLatents]  # linear terms and precisions


class ModelAtRows(NamedTuple):
    """A model at the rows of a target."""

    target: WhiteTarget  # rows and representation
    model: LatentGP  # with the hyper-parameters
    whitening: Any  # under them
    offset: RowLatents  # prior mean of f
    blur: RowLatents | None = None  # variances that a likelihood with kinks is expected over

    @classmethod
    def of(cls, target: WhiteTarget, model: LatentGP) -> ModelAtRows:
        """With the map to the rows worked out."""
        return cls(target, model, target.whitening(model), prior_mean(model, target.data))

    def held(self) -> ModelAtRows:
        """Without derivatives in the model."""
        model, whitening, offset = jax.lax.stop_gradient(self[1:4])
        return self._replace(model=model, whitening=whitening, offset=offset)

    def log_likelihood(self, f: RowLatents) -> Scalar:
        """Log p(y | f), or its expectation over what the coefficients leave open, in nats."""
        variance = jnp.broadcast_to(self.whitening.residual.T, f.shape)
        return self.target.log_likelihood_of(self.model, Marginals(f, variance))

    def height(self, g: RowLatents, norm: Scalar) -> Scalar:
        """Log density of g whose white coefficients have a squared norm, up to a constant."""
        f = self.offset + g
        if self.blur is None:
            value = self.log_likelihood(f)
        else:
            value = self.target.expected_log_likelihood(self.model, Marginals(f, self.blur))
        value = value - 0.5 * norm
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def sites(self, f: RowLatents) -> _Sites:
        """Sites of the likelihood's, with a `blur` its expectation's, slope and curvature at f."""
        if self.blur is not None:
            slope, precision = self.expected_slopes(Marginals(f, self.blur))
            return slope + precision * (f - self.offset), precision
        slope, bend = jax.linearize(jax.grad(self.log_likelihood), f)
        # Rows do not depend on each other, so one direction a latent function gives the diagonal.
        columns = jnp.eye(f.shape[1], dtype=f.dtype)
        curvature = sum(bend(jnp.broadcast_to(column, f.shape)) * column for column in columns)
        precision = jnp.maximum(-jnp.asarray(curvature), 0.0)
        return slope + precision * (f - self.offset), precision

    def expected_slopes(self, marginals: Marginals) -> _Sites:
        """Slope and curvature of E log p(y | f) in the mean of f, the latter not below zero."""
        expected = partial(self.target.expected_log_likelihood, self.model)
        slopes = jax.grad(expected)(marginals)
        return slopes.mean, jnp.maximum(-2 * slopes.variance, 0.0)

    def prior_variances(self) -> RowLatents:
        """Prior variances of f."""
        own = latent_diagonals(self.model.kernel, self.target.data.X).T
        return jnp.broadcast_to(own, self.offset.shape)


def coordinates_at(
    target: WhiteTarget,
    model: LatentGP,
    coupling: Kind,
    anchor: Marginals,
    *,
    differentiable: bool = False,
) -> Coordinates:
    """Coordinates of the latent functions under a model.

    They are a function of the model alone: Newton's method starts at the anchor, not where a chain
    was before. So a chain that holds them while hyper-parameters move is exact however far Newton's
    method came; how far is in the certificate.

    "sites" are those of one variational update from Laplace's approximation, "partial" of one from
    the anchor, whatever the mode is: expected under its marginals, they depend on the likelihood's
    hyper-parameters alone. "whitened" is for none. Derivatives in the model go through
    one more Newton step: at the mode they are those of the implicit function theorem, exactly so
    for one latent function, as sites leave out what ties those of a row.
    """
    at = ModelAtRows.of(target, model)
    if coupling == "whitened":
        return _prior_coordinates(at)
    if coupling == "partial":
        f, zero = anchor.mean, jnp.zeros((), anchor.mean.dtype)
        if isinstance(at.whitening, WhiteningBySolves):
            return _around(_Mode(at._replace(blur=_prior_blur(at.held())), f, zero, zero))
        marginals = Marginals(f, _shrunk(model, anchor.variance))
        return coordinates_of_sites(at, *_sites_under(at, marginals, *at.sites(f)))
    found = _mode(at.held(), anchor.mean)
    about = found._replace(at=at._replace(blur=found.at.blur))
    if differentiable and isinstance(at.whitening, DenseWhitening):
        further = at.offset + _condition(at.whitening, *about.sites)[0]
        about = about._replace(mode=further, steps=about.steps + 1)
    return _around(about)


class _Mode(NamedTuple):
    """Mode of p(f | y) under a model."""

    at: ModelAtRows
    mode: RowLatents  # of f
    decrement: Scalar  # nats that another Newton step would gain
    steps: Scalar  # how many were made

    @property
    def sites(self) -> _Sites:
        """Sites at the mode."""
        return self.at.sites(self.mode)


def _around(about: _Mode) -> Coordinates:
    """Coordinates by the sites that are made at a mode."""
    at, sites, left = about.at, about.sites, about.decrement
    if isinstance(at.whitening, WhiteningBySolves):
        return dataclasses.replace(_sparse_coordinates(at, *sites), decrement=left)
    found = coordinates_of_sites(at, *_expected_sites(at, *sites))
    made = found.factorisations + about.steps + 1
    return dataclasses.replace(found, decrement=left, factorisations=made)


def _prior_coordinates(at: ModelAtRows) -> Coordinates:
    """Prior white coordinates: what `coordinates_of_sites` gives for none, without its work."""
    whitening, offset = at.whitening, at.offset
    zeros, zero = jnp.zeros_like(offset), jnp.zeros((), offset.dtype)
    value = at.log_likelihood(offset)
    if not isinstance(whitening, DenseWhitening):
        return WhiteCoordinates(whitening, offset, zeros, value, zero, zero + 1)
    factor = jnp.swapaxes(whitening.features, 1, 2)
    factor = jnp.broadcast_to(factor, (offset.shape[1], *factor.shape[1:]))
    root = jnp.broadcast_to(whitening.lower, (len(factor), *whitening.lower.shape[1:]))
    return DenseCoordinates(whitening, offset, zeros, value, zero, zero + 1, factor, root, zeros)


def coordinates_of_sites(
    at: ModelAtRows, linear: RowLatents, precision: RowLatents
) -> DenseCoordinates:
    """Coordinates by given sites, functions of g."""
    whitening: DenseWhitening = at.whitening
    g, precision_root = _condition(whitening, linear, precision)
    slope = linear - precision * g

    def factors(lower, features, precision_root):
        inverse = _inverse(precision_root)
        root = lower @ inverse.T
        if at.target.representation.traits.one_coefficient_a_row:  # A' = L
            return root, root
        return root, (inverse @ features).T

    root, factor = vmap_latents(factors, whitening.lower, whitening.features, precision_root)
    zero, centre = jnp.zeros((), g.dtype), at.offset + g
    log_root = jnp.sum(jnp.log(jnp.diagonal(precision_root, axis1=1, axis2=2)))
    value = at.log_likelihood(centre) - 0.5 * jnp.sum(slope * g) - log_root
    return DenseCoordinates(
        whitening, centre, precision, value, zero, zero + 3, factor, root, slope
    )


def _sparse_coordinates(
    at: ModelAtRows, linear: RowLatents, precision: RowLatents
) -> SparseCoordinates:
    """Coordinates by sparse roots, given sites as functions of g."""
    whitening: WhiteningBySolves = at.whitening
    root, g = whitening.posterior(linear, precision, _ROUGHLY)
    centre, zero = at.offset + g, jnp.zeros((), g.dtype)
    white, latents, at_centre = whitening.white_of(g), g.shape[1], at.log_likelihood(centre)
    value = at_centre - 0.5 * jnp.sum(white**2)
    value = value + root.log_determinant(latents) - whitening.log_determinant(latents)
    return SparseCoordinates(
        whitening, centre, precision, value, zero, zero + 2, root, white, at_centre
    )


def _condition(
    whitening: DenseWhitening, linear: RowLatents, precision: RowLatents
) -> tuple[RowLatents, Float[Array, "Q M M"]]:
    """Mean of g given sites, and C with its rows and columns in reverse order."""

    def condition(features, linear, precision):
        P = jnp.eye(len(features), dtype=features.dtype) + (features * precision) @ features.T
        root = lower_cholesky(P[::-1, ::-1])
        half = solve_lower(root, (features @ linear)[::-1])
        return solve_lower(root, half, transposed=True)[::-1] @ features, root

    g, root = vmap_latents(condition, whitening.features, linear.T, precision.T)
    return g.T, root


def _inverse(precision_root: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """C^-1 of what `_condition` gives, upper triangular."""
    return inverse_of_lower(precision_root)[::-1, ::-1]


def _conditioning(at: ModelAtRows) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The function from sites to the mean of g and alpha, by the smaller of two factors."""
    whitening = at.whitening

    def by_coefficients(linear: Array, precision: Array) -> tuple[Array, Array]:
        if isinstance(whitening, DenseWhitening):
            g, _ = _condition(whitening, linear, precision)
        elif isinstance(whitening, WhiteningBySolves):
            _, g = whitening.posterior(linear, precision, _CLOSELY)
        else:
            own, X = at.target.representation, at.target.data.X
            sites = GaussianSites(linear, precision, jnp.zeros_like(linear[:, 0]))
            g, _ = own.marginals_at_rows(own.condition(at.model.kernel, X, sites), X)
        return g, linear - precision * g

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

    if isinstance(whitening, DenseWhitening):
        features = whitening.features
        if features.shape[1] >= features.shape[2]:
            grams = vmap_latents(lambda features: features.T @ features, features)
            return by_rows
    return by_coefficients


def _expected_sites(at: ModelAtRows, linear: RowLatents, precision: RowLatents) -> _Sites:
    """One variational update of sites: slope and curvature expected under their posterior.

    Its variance v is shrunk to 2 v / (v + 2), in units of a logit or a log rate squared: sites of
    the whole of a wide posterior are narrower than its tails, where a chain would stay.
    """
    g, variances = _posterior(at, linear, precision)
    return _sites_under(at, Marginals(at.offset + g, variances), linear, precision)


def _sites_under(
    at: ModelAtRows, marginals: Marginals, linear: RowLatents, precision: RowLatents
) -> _Sites:
    """Sites expected under marginals of f, those given where an expectation is not finite."""
    g = marginals.mean - at.offset
    expected_slope, expected = at.expected_slopes(marginals)
    known = jnp.isfinite(expected_slope) & jnp.isfinite(expected)  # else the row's sites stay
    slope = jnp.where(known, expected_slope, linear - precision * g)
    precision = jnp.where(known, expected, precision)
    return slope + precision * g, precision


def _posterior(
    at: ModelAtRows, linear: RowLatents, precision: RowLatents
) -> tuple[RowLatents, RowLatents]:
    """Mean of g and variances of f that expectations are taken over, given sites."""
    g, root = _condition(at.whitening, linear, precision)

    def variance(features, root):
        return sum_over_first((_inverse(root) @ features) ** 2)

    variances = vmap_latents(variance, at.whitening.features, root).T + at.whitening.residual.T
    return g, _shrunk(at.model, variances)


def _shrunk(model: LatentGP, variances: RowLatents) -> RowLatents:
    """Variances over which a likelihood is expected: less than 2, where f has no unit."""
    unitless = np.isfinite(np.asarray(model.likelihood.latent_scale(np.inf), float))
    shrunk = _WIDEST * variances / (_WIDEST + variances)
    return jnp.where(unitless, shrunk, variances)


def _prior_blur(at: ModelAtRows) -> RowLatents | None:
    """Variances of the prior over which a likelihood with kinks is expected; None without any."""
    likelihood = at.model.likelihood
    if likelihood.is_smooth or not likelihood.is_continuous:
        return None
    return _shrunk(at.model, at.prior_variances())


def _mode(at: ModelAtRows, anchor: RowLatents) -> _Mode:
    """Mode of p(f | y) from an anchor."""

    def sought(at: ModelAtRows, anchor: Array) -> tuple[Array, Array, Array]:
        g, slope = _conditioning(at)(*at.sites(anchor))
        first = g, jnp.sum(g * slope)
        # The anchor is the mode for other hyper-parameters: it may lead further off than the prior.
        zero = jnp.zeros_like(at.offset)
        leads = at.height(*first) > at.height(zero, jnp.zeros((), zero.dtype))
        start = jax.tree.map(lambda a: jnp.where(leads, a, 0.0), first)
        g, decrement, count = _newton(at, start)
        return at.offset + g, decrement, count + 1

    at = at._replace(blur=_prior_blur(at))
    mode, decrement, steps = sought(at, anchor)
    for _ in range(0 if at.blur is None else _ROUNDS - 1):
        linear, precision = at.sites(mode)
        if isinstance(at.whitening, DenseWhitening):
            _, blur = _posterior(at, linear, precision)
        else:  # each row alone
            prior = at.prior_variances()
            blur = _shrunk(at.model, prior / (1 + prior * precision))
        at = at._replace(blur=blur)
        mode, decrement, more = sought(at, mode)
        steps = steps + more + 1
    return _Mode(at, mode, decrement, steps)


def _newton(at: ModelAtRows, start: tuple[RowLatents, Scalar]) -> tuple[RowLatents, Scalar, Any]:
    """Newton's method from g and the squared norm of its white coefficients.

    Of a step the first share that gains enough is taken. Gives g, the decrement, number of steps.
    """
    posterior_given = _conditioning(at)

    def step(carry: tuple) -> tuple:
        g, norm, _, _, count = carry
        linear, precision = at.sites(at.offset + g)
        there, slope = posterior_given(linear, precision)
        # Products of white coefficients v = A alpha are those of g and alpha.
        inner, norm_there = jnp.sum(g * slope), jnp.sum(there * slope)
        pull = linear - precision * g
        decrement = jnp.sum(pull * (there - g)) - (inner - norm)

        def along(share: Array) -> tuple[Array, Array]:
            rest = 1 - share
            squared = rest**2 * norm + 2 * share * rest * inner + share**2 * norm_there
            return g + share * (there - g), squared

        level = at.height(g, norm)

        def gains_too_little(share: Array) -> Array:
            enough = at.height(*along(share)) >= level + _GAIN * share * decrement
            return ~enough & (share > _SHORTEST)

        one = jnp.ones((), g.dtype)
        share = jax.lax.while_loop(gains_too_little, lambda share: _SHORTER * share, one)
        share = jnp.where(share > _SHORTEST, share, 0.0)
        return *along(share), decrement, share > 0, count + 1

    def goes_on(carry: tuple) -> Array:
        _, norm, decrement, moves, count = carry
        least = jnp.maximum(_DECREMENT, _ROUNDING * jnp.finfo(norm.dtype).eps * norm)
        return (jnp.abs(decrement) > least) & moves & (count < _MOST_STEPS)

    first = *start, jnp.array(jnp.inf, at.offset.dtype), jnp.array(True), 0
    g, _, decrement, _, count = jax.lax.while_loop(goes_on, step, first)
    return g, jnp.abs(decrement), count + 0.0


def starting_point(target: WhiteTarget, key: RandomKey) -> Position:
    """A start over-dispersed to the target: hyper-parameters around those of the space's model.

    Latent functions are drawn from the Gaussian approximation about the mode, whose scale no draw
    of the prior knows: where counts are in the ten thousands a chain from there never arrives.
    """
    start = from_prior(target, key)
    about = _start(target, start)
    if about is None:
        return start
    if isinstance(about.at.whitening, DenseWhitening | WhiteningBySolves):
        return Position(start.vector, _around(about).white(start.white))
    model = target.space.to_model(start.vector)
    sampler = coefficients_of(target.representation).sampler(model.kernel, target.data.X)
    everything, nothing = tuple(range(len(start.white))), jnp.zeros_like(start.white)
    sites = starting_sites(target, start)
    drawn = sampler.draw(BlockUpdate(sites, everything, jax.random.fold_in(key, 1), nothing))
    return Position(start.vector, sampler.white(drawn.coefficients))


def starting_sites(target: WhiteTarget, start: Position) -> GaussianSites:
    """Sites, as functions of g, of that approximation for a draw of the prior."""
    about = _start(target, start)
    none = GaussianSites.none(prior_mean(target.space.model, target.data))
    return none if about is None else GaussianSites(*about.sites, none.log_constant)


def _start(target: WhiteTarget, start: Position) -> _Mode | None:
    """The mode that a chain starts about; None where log p(y | f) has no gradient.

    Of a likelihood that is not log-concave it is the one that is met from the draw of the prior, so
    that chains start about all of them.
    """
    likelihood = target.space.model.likelihood
    if not (likelihood.is_continuous and likelihood.has_gradient):
        return None
    at = ModelAtRows.of(target, target.space.to_model(start.vector))
    found = _mode(at, likely(target, at.offset))
    of_one = likelihood.latent_size == 1 and likelihood.is_log_concave
    concave = of_one or likelihood.is_jointly_log_concave
    if concave or found.at.blur is not None:
        return found
    first = at.whitening.conditional(start.white).mean, jnp.sum(start.white**2)
    g, left, _ = _newton(at, first)
    return found._replace(mode=jnp.where(left < _ARRIVED, at.offset + g, found.mode))


def likely(target: WhiteTarget, offset: RowLatents) -> RowLatents:
    """Where Newton's method starts first: likely latents, else the prior mean."""
    data, likelihood = target.data, target.space.model.likelihood
    first = likelihood.latent_start(data.y, dict(data.side_information))
    return offset if first is None else offset.at[:, 0].set(first)


@partial(Program, static_argnums=(1,))
def coordinates_at_centre(target: WhiteTarget, coupling: Kind) -> Coordinates:
    """Those under the space's model, whose centre is the anchor of all others."""
    start = likely(target, prior_mean(target.space.model, target.data))
    kind: Kind = "sites" if coupling == "partial" else coupling
    return coordinates_at(target, target.space.model, kind, Marginals(start, jnp.zeros_like(start)))
