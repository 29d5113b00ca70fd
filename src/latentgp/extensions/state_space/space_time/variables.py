"""Processes in time at inducing points in space as inducing variables, for paths."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.state_space.kernels import Truncation
from latentgp.extensions.state_space.space_time.prior import SpaceTimePrior, latent_groups
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.kernels import Kernel, LatentKernel
from latentgp.kernels.features import Features
from latentgp.kernels.per_latent import in_latent_order, of_kernel_groups
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.prior_paths import PriorPaths, prior_paths
from latentgp.representations.variables import InducingVariables
from latentgp.typing import Array, Inputs, Points, RandomKey


class ProcessesAtPoints(InducingVariables):
    """M processes for each term; their values are what the rows read of them."""

    points: Points  # inducing points in space, as whole inputs
    slots: Slots  # of the rows
    time: int = eqx.field(static=True)
    truncation: Truncation = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return self.points.shape

    @property
    def dtype(self) -> Any:
        return self.points.dtype

    @property
    def places(self) -> Points:
        return jnp.asarray(self.points).at[:, self.time].set(self.slots.times[0])

    @property
    def _prior(self) -> SpaceTimePrior:
        return SpaceTimePrior(self.points, self.time, self.truncation)

    def covariance(self, kernel: LatentKernel) -> Float[Array, "#Q rows rows"]:
        return self.between(kernel, self)

    def between(self, kernel: LatentKernel, others: Any) -> Float[Array, "#Q rows _"]:
        return self.cross_covariance(kernel, others.slots.inputs(self.time))

    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q rows N"]:
        return of_kernel_groups(kernel, lambda own, _: self._prior.read_between(own, self.slots, X))

    def prior_paths(
        self, kernel: LatentKernel, key: RandomKey, *, latents: int, features: int, number: int
    ) -> tuple[PriorPaths, Float[Array, "S N Q"]]:
        separate, sizes = self._prior.in_terms(kernel), {"features": features, "number": number}
        paths = prior_paths(separate, key, inputs=self.shape[1], latents=latents, **sizes)
        drawn = zip(latent_groups(separate, latents), paths.features, paths.weights, strict=True)
        values = [vmap_latents(self._read, group.kernels, *own) for group, *own in drawn]
        return paths, in_latent_order(paths.latents, values).transpose(1, 2, 0)

    def _read(
        self, kernel: Kernel, features: Any, weights: Float[Array, "R S"]
    ) -> Float[Array, "S N"]:
        """What rows read of the processes of paths by features of each term."""
        prior, slots = self._prior, self.slots
        times = prior.inputs_at(slots.times)
        sizes = [jax.eval_shape(phi, times).shape[1] for phi in features.parts]
        read = jnp.zeros((weights.shape[1], *slots.place.shape), weights.dtype)
        parts = zip(features.parts, jnp.split(weights, np.cumsum(sizes)[:-1]), strict=True)
        for term, (phi, own) in zip(prior.terms(kernel), parts, strict=True):
            points = self.points if term.space is not None else self.points[:1]

            def path(point, phi: Features = phi, own=own):
                return (phi(times + point) @ own).T

            at_points = jax.lax.map(path, points)
            white = solve_lower(prior.root(term)[0], at_points.reshape(len(points), -1))
            shares = prior.read(term, slots.places)[0][slots.place]
            read = read + jnp.einsum("kbm,msk->skb", shares, white.reshape(at_points.shape))
        return slots.at_rows(read)
