"""Affine maps from standard normal coordinates to the latent functions at the rows.

Symbols are those of `coordinates`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.target import WhiteTarget
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.whitening import DenseWhitening, WhiteningBySolves
from latentgp.typing import Array, Coefs, RowLatents, Scalar


class Coordinates(eqx.Module):
    """The affine map from standard normal coordinates to the latent functions at the rows."""

    whitening: Any  # A, and the variance that the coefficients leave open
    centre: RowLatents  # f_hat
    precision: RowLatents  # W
    log_evidence: Scalar  # E, in nats
    # nats that another Newton step would gain at the centre; the certificate of the sites, zero
    # where none are sought
    decrement: Scalar
    factorisations: Scalar  # of matrices of N or M rows made for them, of each latent function

    @abstractmethod
    def shift(self, eps: Coefs) -> RowLatents:
        """F eps."""

    @abstractmethod
    def residual(self, target: WhiteTarget, model: LatentGP, eps: Coefs) -> Scalar:
        """r: log density of the coordinates relative to the standard normal, in nats."""

    @abstractmethod
    def white(self, eps: Coefs) -> Coefs:
        """Prior white coefficients v at coordinates."""

    @abstractmethod
    def of_white(self, white: Coefs) -> Coefs:
        """Coordinates of prior white coefficients."""

    def attached(self, target: WhiteTarget) -> Coordinates:
        """With what all chains share, of which the state of each has a copy."""
        return self

    @property
    def marginals(self) -> Marginals:
        """Laws of f if eps is standard normal; variances are zero where no matrix has them."""
        return Marginals(self.centre, jnp.zeros_like(self.centre))

    def held(self, target: WhiteTarget) -> Coordinates:
        """For hyper-parameters that stay, with what is worked out once."""
        return self

    @property
    def numbers(self) -> int:
        """Entries of the matrix that a step of every chain multiplies, if there is one."""
        return 0

    def log_likelihood(self, target: WhiteTarget, model: LatentGP, f: RowLatents) -> Scalar:
        """Log p(y | f), or its expectation over what the coefficients leave open, in nats."""
        variance = jnp.broadcast_to(self.whitening.residual.T, f.shape)
        return target.log_likelihood_of(model, Marginals(f, variance))


class WhiteCoordinates(Coordinates):
    """Prior white coefficients themselves, of any map to the rows."""

    def attached(self, target: WhiteTarget) -> WhiteCoordinates:
        whitening = self.whitening.attached(target.representation)
        return dataclasses.replace(self, whitening=whitening)

    def shift(self, eps: Coefs) -> RowLatents:
        return self.whitening.conditional(eps).mean

    def residual(self, target: WhiteTarget, model: LatentGP, eps: Coefs) -> Scalar:
        there = self.log_likelihood(target, model, self.centre + self.shift(eps))
        return there - self.log_evidence

    def white(self, eps: Coefs) -> Coefs:
        return eps

    def of_white(self, white: Coefs) -> Coefs:
        return white


class SparseCoordinates(Coordinates):
    """Coordinates by sparse roots: f = f_hat + T eps, T T' near the covariance given the sites.

    Exact whatever T and f_hat are, as with v = v_hat + d the prior white coefficients at f

        r = log p(y | f) - log p(y | f_hat) - v_hat'd - d'd / 2 + eps'eps / 2,
        E = log p(y | f_hat) - v_hat'v_hat / 2 + log |T| - log |B^-1 D^1/2|.
    """

    whitening: WhiteningBySolves
    root: Any  # T
    white_centre: Float[Array, "Q N"]  # v_hat
    at_centre: Scalar  # log likelihood at the centre, in nats

    def attached(self, target: WhiteTarget) -> SparseCoordinates:
        whitening: Any = self.whitening.attached(target.representation)
        root = whitening.attached_root(self.root)
        return dataclasses.replace(self, whitening=whitening, root=root)

    def shift(self, eps: Coefs) -> RowLatents:
        return self.root.times(eps)

    def residual(self, target: WhiteTarget, model: LatentGP, eps: Coefs) -> Scalar:
        shift = self.shift(eps)
        gain = self.log_likelihood(target, model, self.centre + shift) - self.at_centre
        moved = self.whitening.white_of(shift)
        return gain + 0.5 * jnp.sum(eps**2 - moved**2) - jnp.sum(self.white_centre * moved)

    def white(self, eps: Coefs) -> Coefs:
        return self.white_centre + self.whitening.white_of(self.shift(eps))

    def of_white(self, white: Coefs) -> Coefs:
        return self.root.inverse(self.whitening.conditional(white - self.white_centre).mean)


class DenseCoordinates(Coordinates):
    """Coordinates by matrices."""

    whitening: DenseWhitening
    factor: Float[Array, "Q N M"]  # F
    root: Float[Array, "Q M M"]  # R
    slope: RowLatents  # alpha

    def shift(self, eps: Coefs) -> RowLatents:
        return vmap_latents(lambda factor, e: factor @ e, self.factor, eps).T

    def residual(self, target: WhiteTarget, model: LatentGP, eps: Coefs) -> Scalar:
        shift = self.shift(eps)
        gain = self.log_likelihood(target, model, self.centre + shift)
        gain = gain - self.reference(target, model)
        return gain + jnp.sum(shift * (0.5 * self.precision * shift - self.slope))

    def reference(self, target: WhiteTarget, model: LatentGP) -> Scalar:
        """Log likelihood at the centre, in nats."""
        return self.log_likelihood(target, model, self.centre)

    @property
    def marginals(self) -> Marginals:
        variance = jnp.sum(self.factor**2, axis=2) + self.whitening.residual
        return Marginals(self.centre, variance.T)

    def held(self, target: WhiteTarget) -> HeldCoordinates:
        return HeldCoordinates.of(self, target)

    @property
    def numbers(self) -> int:
        return self.factor.size

    def white(self, eps: Coefs) -> Coefs:
        def from_sites(features, lower, slope, root, e):
            return features @ slope + solve_lower(lower, root @ e)

        known = self.whitening.features, self.whitening.lower
        return vmap_latents(from_sites, *known, self.slope.T, self.root, eps)

    def of_white(self, white: Coefs) -> Coefs:
        def to_sites(features, lower, slope, root, v):
            return solve_lower(root, lower @ (v - features @ slope))

        known = self.whitening.features, self.whitening.lower
        return vmap_latents(to_sites, *known, self.slope.T, self.root, white)


class HeldCoordinates(DenseCoordinates):
    """Coordinates that stay, with the map to prior white coefficients worked out."""

    white_centre: Coefs  # v_hat
    back: Float[Array, "Q M M"]  # L^-1 R
    at_centre: Scalar  # log likelihood at the centre, in nats

    @classmethod
    def of(cls, coordinates: DenseCoordinates, target: WhiteTarget) -> HeldCoordinates:
        """With one triangular solve of M right-hand sides."""
        known = {f.name: getattr(coordinates, f.name) for f in dataclasses.fields(DenseCoordinates)}
        back = vmap_latents(solve_lower, coordinates.whitening.lower, coordinates.root)
        centre = coordinates.white(jnp.zeros_like(back[:, 0]))
        value = coordinates.reference(target, target.space.model)
        return cls(**known, white_centre=centre, back=back, at_centre=value)

    def reference(self, target: WhiteTarget, model: LatentGP) -> Scalar:
        return self.at_centre

    def white(self, eps: Coefs) -> Coefs:
        return self.white_centre + vmap_latents(lambda back, e: back @ e, self.back, eps)
