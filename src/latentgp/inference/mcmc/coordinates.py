# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
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

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.inference.sites.algorithm import prior_mean
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.whitening import DenseWhitening, Whitening
from latentgp.runtime.programs import Program
from latentgp.typing import Array

Kind = Literal["sites", "partial", "whitened"]

_WIDEST = 2.0  # variance of the expectations that make sites
_MOST_STEPS = 40
_DECREMENT = 1e-7  # nats that another Newton step would gain
_SHARES = (1.0, 0.5, 0.2, 0.05, 0.01, 0.001, 0.0)  # of a Newton step


class Coordinates(eqx.Module):
    """The affine map from standard normal coordinates to the latent functions at the rows.

    Attributes:
        whitening: A, and the variance that the coefficients leave open.
        centre: f_hat, shape (N, Q).
        precision: W, shape (N, Q).
        log_evidence: E, in nats.
        decrement: nats that another Newton step would gain at the centre; the certificate of the
            sites, zero where none are sought.
        factorisations: of matrices of N or M rows that were made for them, of each latent function.
    """

    whitening: eqx.AbstractVar[Whitening]
    centre: eqx.AbstractVar[Float[Array, "N Q"]]
    precision: eqx.AbstractVar[Float[Array, "N Q"]]
    log_evidence: eqx.AbstractVar[Float[Array, ""]]
    decrement: eqx.AbstractVar[Float[Array, ""]]
    factorisations: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def shift(self, eps: Float[Array, "Q M"]) -> Float[Array, "N Q"]:
        """F eps."""

    @abstractmethod
    def residual(
        self, target: WhiteTarget, model: LatentGP, eps: Float[Array, "Q M"]
    ) -> Float[Array, ""]:
        """r: log density of the coordinates relative to the standard normal, in nats."""

    @abstractmethod
    def white(self, eps: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        """Prior white coefficients v at coordinates."""

    @abstractmethod
    def of_white(self, white: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        """Coordinates of prior white coefficients."""

    def held(self, target: WhiteTarget) -> "Coordinates":
        """For hyper-parameters that stay, with what is worked out once."""
        return self

    @property
    def numbers(self) -> int:
        """Of the matrix that a step of every chain multiplies, if there is one."""
        return 0

    def log_likelihood(
        self, target: WhiteTarget, model: LatentGP, f: Float[Array, "N Q"]
    ) -> Float[Array, ""]:
        """Log p(y | f), or its expectation over what the coefficients leave open, in nats."""
        variance = jnp.broadcast_to(self.whitening.residual.T, f.shape)
        return target.log_likelihood_of(model, Marginals(f, variance))


class WhiteCoordinates(Coordinates):
    """Prior white coefficients themselves, of any map to the rows."""

    whitening: Whitening
    centre: Float[Array, "N Q"]
    precision: Float[Array, "N Q"]
    log_evidence: Float[Array, ""]
    decrement: Float[Array, ""]
    factorisations: Float[Array, ""]

    def shift(self, eps: Float[Array, "Q M"]) -> Float[Array, "N Q"]:
        return self.whitening.conditional(eps).mean

    def residual(
        self, target: WhiteTarget, model: LatentGP, eps: Float[Array, "Q M"]
    ) -> Float[Array, ""]:
        there = self.log_likelihood(target, model, self.centre + self.shift(eps))
        return there - self.log_evidence

    def white(self, eps: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        return eps

    def of_white(self, white: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        return white


class DenseCoordinates(Coordinates):
    """Coordinates by matrices.

    Attributes:
        factor: F, shape (Q, N, M).
        root: R, shape (Q, M, M).
        slope: alpha, shape (N, Q).
    """

    whitening: DenseWhitening
    centre: Float[Array, "N Q"]
    factor: Float[Array, "Q N M"]
    root: Float[Array, "Q M M"]
    slope: Float[Array, "N Q"]
    precision: Float[Array, "N Q"]
    log_evidence: Float[Array, ""]
    decrement: Float[Array, ""]
    factorisations: Float[Array, ""]

    def shift(self, eps: Float[Array, "Q M"]) -> Float[Array, "N Q"]:
        return vmap_latents(lambda factor, e: factor @ e, self.factor, eps).T

    def residual(
        self, target: WhiteTarget, model: LatentGP, eps: Float[Array, "Q M"]
    ) -> Float[Array, ""]:
        shift = self.shift(eps)
        gain = self.log_likelihood(target, model, self.centre + shift)
        gain = gain - self.reference(target, model)
        return gain + jnp.sum(shift * (0.5 * self.precision * shift - self.slope))

    def reference(self, target: WhiteTarget, model: LatentGP) -> Float[Array, ""]:
        """Log likelihood at the centre, in nats."""
        return self.log_likelihood(target, model, self.centre)

    def held(self, target: WhiteTarget) -> "HeldCoordinates":
        return HeldCoordinates.of(self, target)

    @property
    def numbers(self) -> int:
        return self.factor.size

    def white(self, eps: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        def from_sites(features, lower, slope, root, e):
            return features @ slope + solve_lower(lower, root @ e)

        known = self.whitening.features, self.whitening.lower
        return vmap_latents(from_sites, *known, self.slope.T, self.root, eps)

    def of_white(self, white: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        def to_sites(features, lower, slope, root, v):
            return solve_lower(root, lower @ (v - features @ slope))

        known = self.whitening.features, self.whitening.lower
        return vmap_latents(to_sites, *known, self.slope.T, self.root, white)


class HeldCoordinates(DenseCoordinates):
    """Coordinates that stay, with the map to prior white coefficients worked out.

    Attributes:
        white_centre: v_hat, shape (Q, M).
        back: L^-1 R, shape (Q, M, M).
        at_centre: log likelihood at the centre, in nats.
    """

    white_centre: Float[Array, "Q M"]
    back: Float[Array, "Q M M"]
    at_centre: Float[Array, ""]

    @classmethod
    def of(cls, coordinates: DenseCoordinates, target: WhiteTarget) -> "HeldCoordinates":
        """With one triangular solve of M right-hand sides."""
        known = {f.name: getattr(coordinates, f.name) for f in dataclasses.fields(DenseCoordinates)}
        back = vmap_latents(solve_lower, coordinates.whitening.lower, coordinates.root)
        centre = coordinates.white(jnp.zeros_like(back[:, 0]))
        value = coordinates.reference(target, target.space.model)
        return cls(**known, white_centre=centre, back=back, at_centre=value)

    def reference(self, target: WhiteTarget, model: LatentGP) -> Float[Array, ""]:
        return self.at_centre

    def white(self, eps: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
        return self.white_centre + vmap_latents(lambda back, e: back @ e, self.back, eps)


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
    assert isinstance(whitening, DenseWhitening)
    mode, decrement, steps = anchor, jnp.zeros((), anchor.dtype), 0.0
    if coupling == "sites":
        held = jax.lax.stop_gradient((model, whitening, offset))
        mode, decrement, steps = _mode(target, *held, anchor)
        if differentiable:
            linear, precision = sites_at(target, model, whitening, offset, mode)
            mode, steps = offset + _condition(whitening, linear, precision)[0], steps + 1
    linear, precision = sites_at(target, model, whitening, offset, mode)
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
    found = DenseCoordinates(whitening, centre, factor, root, slope, precision, zero, zero, zero + 3)
    log_root = jnp.sum(jnp.log(jnp.diagonal(precision_root, axis1=1, axis2=2)))
    value = found.log_likelihood(target, model, found.centre) - 0.5 * jnp.sum(slope * g) - log_root
    return eqx.tree_at(lambda c: c.log_evidence, found, value)


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


def _conditioning(whitening: DenseWhitening) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The function from sites to the mean of g and alpha, by the smaller of two factors."""
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
    whitening: DenseWhitening,
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
