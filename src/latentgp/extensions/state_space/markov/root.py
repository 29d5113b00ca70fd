"""White coefficients of state-space processes, and draws given sites."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.lanes import number, scaled
from latentgp.extensions.state_space.markov.beliefs import Filter, zeros
from latentgp.extensions.state_space.markov.processes import (
    in_groups,
    means_given,
    perturbation,
    together,
)
from latentgp.extensions.state_space.markov.series import Series
from latentgp.likelihoods.base import Marginals
from latentgp.representations.samplers import BlockUpdate, CoefficientDraw, SiteSampler
from latentgp.representations.whitening import Whitening
from latentgp.typing import Array, Inputs, RowLatents, Scalar


class MarkovWhitening(Whitening):
    """The Cholesky factor of K in the order of time, row after row by the filter.

    A coefficient is what is new of g at its row given the rows before it, over its deviation.
    """

    centres: Inputs
    residual: Float[Array, "#Q N"]
    jitter: Scalar
    filters: list[Filter]  # the processes, covariances kept as they are
    series: Series  # the rows in one lane
    # latent functions of one structure; None where all share a kernel
    groups: tuple[tuple[int, ...], ...] | None = eqx.field(static=True)

    def conditional(self, white: Float[Array, "Q N"]) -> Marginals:
        return Marginals.known(self._through(white.T, inverse=False)[0])

    def white_of(self, g: RowLatents) -> Float[Array, "Q N"]:
        return self._through(g, inverse=True)[0].T

    def log_determinant(self, latents: int) -> Scalar:
        nothing = jnp.zeros((len(self.centres), latents), self.centres.dtype)
        return self._through(nothing, inverse=False)[1]

    def groups_of(self, latents: int) -> list[tuple[int, ...]]:
        """Numbers of the latent functions of each process."""
        return [tuple(range(latents))] if self.groups is None else list(self.groups)

    def _through(self, values: RowLatents, inverse: bool) -> tuple[RowLatents, Scalar]:
        """G of white coefficients, or the reverse, and the log-determinant of the map."""
        groups = self.groups_of(values.shape[1])
        each = in_groups(self.series.to_lanes(values), groups)
        found, logs = [], jnp.zeros((), values.dtype)
        for process, own in zip(self.filters, each, strict=True):
            out, deviations = self._of_process(process, own, inverse)
            found.append(self.series.to_rows(out))
            logs = logs + jnp.sum(jnp.log(deviations))
        return together(found, groups), logs

    def _of_process(
        self, process: Filter, values: Float[Array, "N Q 1"], inverse: bool
    ) -> tuple[Float[Array, "N Q 1"], Float[Array, "N Q 1"]]:
        like, size = values[0], process.space.size
        h = process.measurement(like)

        def step(carry: Any, at: Any) -> tuple[Any, Any]:
            mean, P = carry
            where, value = at
            A, Q = process.transition(where)
            mean, P = A @ mean, process.moved(P, A, Q)
            g = P @ h
            s = number(h.mT @ g)
            deviation = jnp.sqrt(jnp.maximum(s, 0.0) + self.jitter)
            known = number(h.mT @ mean)
            white = (value - known) / deviation if inverse else value
            out = white if inverse else known + deviation * value
            mean = mean + scaled(g, white / deviation)
            P = small.symmetric(P - scaled(g, 1 / deviation**2) @ g.mT)
            after = small.full(mean, like), small.full(P, like)
            return after, (out, jnp.broadcast_to(deviation, like.shape))

        none = zeros(size, 1, like), zeros(size, size, like)
        return jax.lax.scan(step, none, (self.series.lanes, values))[1]


class MarkovSampler(SiteSampler):
    """Draws of g at the rows by simulation and smoothing, O(N) each (Durbin & Koopman 2002).

    In law they are those of forward filtering and backward sampling.
    """

    centres: Inputs
    jitter: Scalar
    filters: list[Filter]  # the processes of the latent functions
    series: Series  # the rows in the order of time
    whitening: MarkovWhitening  # of the prior at the rows

    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        """A draw as of any sampler; it finds no covariances, and `rows` has no effect."""
        sites, block, key, start, over_relaxation, _ = update
        latents = sites.linear.shape[1]
        there = np.isin(np.arange(latents), np.asarray(block))
        precision = jnp.where(there, sites.precision, 0.0)
        linear = jnp.where(there, sites.linear, 0.0)
        groups = self.whitening.groups_of(latents)
        prior, more = perturbation(self.filters, groups, self.series, precision, key, 1)
        # The mean and a deviation together, of (1 + a) l + sqrt(1 - a^2) z.
        fresh = float(np.sqrt(1 - over_relaxation**2))
        told = (1 + over_relaxation) * linear + fresh * more[:, 0]
        found = means_given(self.filters, groups, self.series, told, precision)
        drawn = found + fresh * prior[:, 0]
        return CoefficientDraw(drawn.T[jnp.asarray(block)] - over_relaxation * start, None)

    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        flat = coefficients.reshape(coefficients.shape[0], -1, coefficients.shape[-1])
        found = jax.lax.map(lambda g: self.whitening.white_of(g.T), jnp.moveaxis(flat, 1, 0))
        return jnp.moveaxis(found, 0, 1).reshape(coefficients.shape)
