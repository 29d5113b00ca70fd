"""Inducing inputs of each latent function, as a mixture's coefficients see them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.kernels import LatentKernel
from latentgp.modules import Module
from latentgp.numerics.triangular import solve_lower
from latentgp.representations import Representation
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.representations.protocols import coefficients_of
from latentgp.representations.traits import Traits
from latentgp.representations.whitening import whitening_from
from latentgp.rows.arrays import check_shape
from latentgp.typing import Array, Coefs, Inputs, Scalar


class OwnWhitening(NamedTuple):
    """The map from white coefficients to f, with centres of each latent function."""

    centres: Float[Array, "Q M D"]
    lower: Float[Array, "Q M M"]  # factors of K at them
    features: Float[Array, "Q M N"]  # their products with kernel blocks
    residual: Float[Array, "Q N"]  # prior variances given the coefficients
    jitter: Scalar  # the largest that was added to K


class OwnPoints(Module):
    """Inducing inputs of each latent function: what a bound asks of a representation."""

    points: Float[Array, "Q M D"]

    @property
    def traits(self) -> Traits:
        return Traits(evidence="bound")

    @classmethod
    def checked(cls, given: Any, columns: int, latents: int) -> OwnPoints:
        """The user's points; InputError unless they are of the shape (Q, M, D)."""
        points = np.asarray(given, float)
        axes = "latent functions, points and inputs"
        check_shape("BlackBoxVI.own_points", points, (latents, "M", columns), axes)
        return cls(points)

    def whitening(self, kernel: LatentKernel, X: Inputs) -> OwnWhitening:
        """The map to f at some rows, latent function by latent function."""
        kernels = distinct_kernels(kernel)
        kernels = kernels * (len(self.points) // len(kernels))
        parts = [whitening_from(own, Z, X) for own, Z in zip(kernels, self.points, strict=True)]
        names = "lower", "features", "residual"
        joined = {name: jnp.concatenate([getattr(part, name) for part in parts]) for name in names}
        jitter = jnp.max(jnp.stack([part.jitter for part in parts]))
        return OwnWhitening(jnp.asarray(self.points), **joined, jitter=jitter)

    def united(self) -> tuple[Float[np.ndarray, "points D"], Int[np.ndarray, "Q M"]]:
        """The points of all latent functions, and where those of each are among them."""
        points = np.asarray(self.points)
        flat = points.reshape(-1, points.shape[2])
        union, places = np.unique(flat, axis=0, return_inverse=True)
        return union, places.reshape(points.shape[:2])


def whitening_of(
    representation: Representation | OwnPoints, kernel: LatentKernel, X: Inputs
) -> Any:
    """The map from white coefficients to f at some rows."""
    if isinstance(representation, OwnPoints):
        return representation.whitening(kernel, X)
    return coefficients_of(representation).whitening(kernel, X)


def among_all(
    own: Float[Array, "Q M M"],
    lower: Float[Array, "#Q points points"],
    places: Int[Array, "Q M"],
    mean: Coefs,
    precision: Float[Array, "Q M M"],
) -> tuple[Float[Array, "Q points"], Float[Array, "Q points points"]]:
    """Natural parameters of white coefficients at all points: v' S^-1, and S^-1.

    Those at other points than a latent function's own, whose places among all are given, follow the
    prior given these, so that neither the posterior nor its divergence from the prior is another.
    """

    def one(own: Array, lower: Array, places: Array, mean: Array, precision: Array) -> Any:
        turn = solve_lower(own, lower[places])
        excess = precision - jnp.eye(len(own), dtype=own.dtype)
        inner = turn.T @ excess @ turn
        whole = jnp.eye(len(lower), dtype=own.dtype) + 0.5 * (inner + inner.T)
        return turn.T @ (precision @ mean), whole

    return vmap_latents(one, own, lower, places, mean, precision)
