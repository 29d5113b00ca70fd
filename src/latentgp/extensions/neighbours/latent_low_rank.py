"""Posterior precision of latents that are a low rank and a residual given its neighbours.

Latents are g = Phi v + r with white inducing variables v ~ N(0, I) and r of prior precision Q = B'
D^-1 B (Gyger, Furrer & Sigrist 2025). Given sites W the coefficients (r, v) have the precision

    J = | Q + W    W Phi          |
        | Phi' W   I + Phi' W Phi |.

With T T' near Q + W and H = (T T')^-1 W Phi its preconditioner is L L',

    L = | T      0       |    S = I + (Phi - H)' W (Phi - H) + H' Q H,
        | H' T   S^(1/2) |,

which is J where T T' is Q + W. S is the precision of v for r + H v held, so that an error of T T'
counts by its square. Nothing cancels, as in the precision of g, Q - Q Phi (I + Phi' Q Phi)^-1 Phi'
Q, where the low rank leaves little.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.neighbours.latent_precision import (
    Controls,
    PosteriorPrecision,
    WhitenedOperator,
    row_times,
)
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.representations.latent_axis import vmap_latents
from latentgp.typing import Array, RowLatents, Scalar


@stored
class FullScaleOperator(PosteriorPrecision):
    """L^-1 J L'^-1: coefficients are the N residuals and, behind them, the M weights."""

    residual: WhitenedOperator  # of residuals given the weights: Q + W
    features: Float[Array, "#Q N M"]  # Phi
    gains: Float[Array, "Q N M"]  # H
    factor: Factor  # of S

    @classmethod
    def of(
        cls, residual: WhitenedOperator, features: Float[Array, "#Q N M"], precision: RowLatents
    ) -> FullScaleOperator:
        """With the preconditioner, in which negative precisions of sites count as zero."""
        held = features, jnp.maximum(precision, 0.0).T[..., None], residual
        known, precision, own = jax.lax.stop_gradient(held)
        solved = own.from_white(own.to_white(jnp.moveaxis(precision * known, 0, 1)))
        errors = own.factor.times(solved) / jnp.sqrt(own.variance)[..., None]
        gains, errors = (jnp.moveaxis(each, 1, 0) for each in (solved, errors))

        def factor(left: Array, errors: Array) -> Factor:
            inner = jnp.eye(left.shape[1], dtype=left.dtype)
            return cholesky(inner + left.T @ left + errors.T @ errors)

        left = jnp.sqrt(precision) * (known - gains)
        return cls(residual, features, gains, vmap_latents(factor, left, errors))

    @property
    def sparse(self) -> WhitenedOperator:
        return self.residual

    @property
    def size(self) -> int:
        return self.residual.size + self.gains.shape[0] * self.gains.shape[2]

    @property
    def log_determinant(self) -> Scalar:
        halves = vmap_latents(lambda own: own.half_log_determinant, self.factor)
        return self.residual.log_determinant + 2 * jnp.sum(halves)

    def at_rows(self, coefficients: Float[Array, "C Q S"]) -> Float[Array, "N Q S"]:
        r, v = self._parts(coefficients)
        return r + _each(jnp.matmul, self.features, v)

    def from_rows(self, right: Float[Array, "N Q S"]) -> Float[Array, "C Q S"]:
        return jnp.concatenate([right, _each(_transposed, self.features, right)])

    def coefficient_times(self, right: Float[Array, "C Q S"]) -> Float[Array, "C Q S"]:
        r, v = self._parts(right)
        of_sites = self.from_rows(row_times(self.residual.precision, self.at_rows(right)))
        return of_sites + jnp.concatenate([self.residual.prior_times(r), v])

    def from_white(self, white: Float[Array, "M S"]) -> Float[Array, "C Q S"]:
        w, u = self._white_parts(white)
        v = _each(_transposed, self.factor.inverse, u)
        r = self.residual.from_white(w) - _each(jnp.matmul, self.gains, v)
        return jnp.concatenate([r, v])

    def to_white(self, right: Float[Array, "C Q S"]) -> Float[Array, "M S"]:
        r, v = self._parts(right)
        u = _each(jnp.matmul, self.factor.inverse, v - _each(_transposed, self.gains, r))
        return jnp.concatenate([self.residual.to_white(r), u.reshape(-1, u.shape[2])])

    def from_preconditioner(self, white: Float[Array, "M S"]) -> Float[Array, "C Q S"]:
        w, u = self._white_parts(white)
        r = self.residual.from_preconditioner(w)
        v = _each(jnp.matmul, self.factor.lower, u) + _each(_transposed, self.gains, r)
        return jnp.concatenate([r, v])

    def noise_of(self, solutions: Float[Array, "C Q S"]) -> Float[Array, "N Q S"]:
        return self.residual.noise_of(self._given_weights(solutions))

    def control(self, solutions: Float[Array, "C Q S"]) -> Controls:
        """Residuals given the weights: beside them the weights move the rows by H v."""
        root = vmap_latents(lambda H, own: H @ own.T, self.gains, self.factor.inverse)
        return Controls(self._given_weights(solutions), jnp.moveaxis(root, 0, 1))

    def _given_weights(self, solutions: Float[Array, "C Q S"]) -> Float[Array, "N Q S"]:
        r, v = self._parts(solutions)
        return r + _each(jnp.matmul, self.gains, v)

    def in_features(
        self,
        slope: RowLatents,
        mean: Float[Array, "C Q"],
        x: Float[Array, "C Q S"],
        p: Float[Array, "C Q S"],
    ) -> Float[Array, "Q N M"]:
        """Derivatives of the log evidence in features: the mean of (l - W g) v'.

        By the slope l - W g at the mean, the mean of the coefficients, and solves x = J^-1 z and
        p = (L L')^-1 z with probe vectors. The mean of p p' is known, and takes most of the noise
        away.
        """
        W, weights = self.residual.precision, self._parts(mean[..., None])[1]
        (wx, wp) = (row_times(W, self.at_rows(each)) for each in (x, p))
        vx, vp = (self._parts(each)[1] for each in (x, p))

        def of_latent(*own: Array) -> Array:
            slope, mean, wx, wp, vx, vp, features, gains, inverse, precision = own
            number = wx.shape[1]
            moved = wx @ vp.T + wp @ vx.T - 2 * wp @ vp.T
            known = precision[:, None] * ((features - gains) @ (inverse.T @ inverse))
            return slope[:, None] * mean[:, 0] - 0.5 * moved / number - known

        own = (jnp.moveaxis(each, 1, 0) for each in (slope, weights, wx, wp, vx, vp))
        diagonal = W if W.ndim == 2 else jnp.diagonal(W, axis1=1, axis2=2)
        return vmap_latents(
            of_latent, *own, self.features, self.gains, self.factor.inverse, diagonal.T
        )

    def _parts(
        self, coefficients: Float[Array, "C Q S"]
    ) -> tuple[Float[Array, "N Q S"], Float[Array, "M Q S"]]:
        """Residuals and weights."""
        rows = self.features.shape[1]
        return coefficients[:rows], coefficients[rows:]

    def _white_parts(
        self, white: Float[Array, "size S"]
    ) -> tuple[Float[Array, "rows S"], Float[Array, "M Q S"]]:
        """The same of white ones, the residuals' as the sparse part takes them."""
        cut = self.residual.size
        weights = white[cut:].reshape(self.gains.shape[2], self.gains.shape[0], -1)
        return white[:cut], weights


def _each(
    function: Callable[[Array, Array], Array],
    matrices: Float[Array, "#Q _ _"],
    columns: Float[Array, "K Q S"],
) -> Float[Array, "L Q S"]:
    """A function of each latent's matrix and columns."""
    found = vmap_latents(function, matrices, jnp.moveaxis(columns, 1, 0))
    return jnp.moveaxis(found, 0, 1)


def _transposed(matrix: Float[Array, "_ _"], columns: Float[Array, "_ S"]) -> Float[Array, "_ S"]:
    return matrix.T @ columns
