"""White coefficients of processes in time at points in space, and draws of them given sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import lacks
from latentgp.extensions.state_space.lanes import semidefinite_root
from latentgp.extensions.state_space.space_time.posterior import RowArrays, smoothed_given
from latentgp.extensions.state_space.space_time.prior import SpaceTimePrior, StatePrior
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.extensions.state_space.space_time.stacked import Blocks, Layout
from latentgp.kernels import LatentKernel
from latentgp.kernels.per_latent import in_latent_order
from latentgp.likelihoods.base import Marginals
from latentgp.representations.inducing.projected import ProjectedSites
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.representations.samplers import BlockUpdate, CoefficientDraw, SiteSampler
from latentgp.representations.whitening import Whitening
from latentgp.sites.gaussian import Block
from latentgp.typing import Array, Coefs, Points, RandomKey, RowLatents, Scalar


class WhiteProcesses(eqx.Module):
    """Processes of some latent functions by what is new of the states at each step."""

    latents: tuple[int, ...] = eqx.field(static=True)  # numbers of them
    layout: Layout = eqx.field(static=True)  # of the state
    own: StatePrior
    roots: Blocks  # L with L L' = Q, of each process at each step

    def read(
        self, slots: Slots, white: Float[Array, "functions T width"]
    ) -> Float[Array, "functions T B"]:
        """Values that slots read of the states, which white coefficients make."""

        def of_latent(own: StatePrior, roots: Blocks, white: Array) -> Array:
            return self._read(slots, own, roots, white)

        return vmap_latents(of_latent, self.own, self.roots, white)

    def means(
        self,
        slots: Slots,
        linear: Float[Array, "functions T B"],
        precision: Float[Array, "functions T B"],
        width: int,
    ) -> Float[Array, "functions T width"]:
        """Posterior means of the white coefficients, given sites of these values."""

        def of_latent(own: StatePrior, roots: Blocks, linear: Array, precision: Array) -> Array:
            given = own, slots, linear[..., None], precision
            forces = smoothed_given(self.layout, False, *given).force.reshape(linear.shape)
            like = jnp.zeros((len(linear), width), linear.dtype)
            read = jax.linear_transpose(lambda v: self._read(slots, own, roots, v), like)
            return read(forces)[0]

        return vmap_latents(of_latent, self.own, self.roots, linear, precision)

    def _read(
        self, slots: Slots, own: StatePrior, roots: Blocks, white: Float[Array, "T width"]
    ) -> Float[Array, "T B"]:
        def step(state: Array, at: Any) -> tuple[Array, Array]:
            A, root, place, new = at
            state = self.layout.moved(A, state) + self.layout.moved(root, new)
            return state, own.table[place] @ self.layout.read(state)

        nothing = jnp.zeros(self.layout.size, white.dtype)
        steps = own.moves, roots, jnp.asarray(slots.place), white[:, : self.layout.size]
        return jax.lax.scan(step, nothing, steps)[1]


class SpaceTimeWhitening(Whitening):
    """A coefficient for what is new of each state at each step, over its deviation.

    Latent functions of fewer states than others have some that say nothing.
    """

    centres: Points  # time of the step of each coefficient
    residual: Float[Array, "#Q N"]
    jitter: Scalar
    parts: tuple[WhiteProcesses, ...]  # of latent functions of one structure each
    slots: Slots  # of the rows

    @classmethod
    def of(cls, prior: SpaceTimePrior, slots: Slots, kernel: LatentKernel) -> "SpaceTimeWhitening":
        """The map for rows in slots."""
        known = RowArrays.of(prior, slots, kernel, len(distinct_kernels(kernel)))
        parts = tuple(
            WhiteProcesses(
                group.latents,
                prior.layout(group.one),
                own,
                tuple(map(semidefinite_root, own.noises)),
            )
            for group, own in zip(known.groups, known.priors, strict=True)
        )
        width = max(part.layout.size for part in parts)
        return cls(
            centres=jnp.repeat(prior.inputs_at(jnp.asarray(slots.times)), width, axis=0),
            residual=known.left,
            jitter=jnp.max(jnp.stack([jnp.max(own.jitter) for own in known.priors])),
            parts=parts,
            slots=slots,
        )

    @property
    def width(self) -> int:
        """Number of coefficients a step."""
        return len(self.centres) // len(self.slots.times)

    def conditional(self, white: Coefs) -> Marginals:
        mean = self.at_rows(white, tuple(range(len(white)))).T
        return Marginals(mean, jnp.broadcast_to(self.residual.T, mean.shape))

    def at_rows(self, white: Float[Array, "functions M"], block: Block) -> Float[Array, "_ N"]:
        """Values that rows read of the states of a block of latents."""
        steps = white.reshape(len(white), -1, self.width)
        read = self.over(lambda part, steps: part.read(self.slots, steps), block, steps)
        return self.slots.at_rows(read)

    def of_block(self, block: Block) -> Float[Array, "#functions N"]:
        """Prior variances at the rows that the states leave open, of a block of latents."""
        return self.residual if len(self.residual) == 1 else self.residual[jnp.asarray(block)]

    def over(
        self, function: Callable[..., Array], block: Block, *values: Float[Array, "functions ..."]
    ) -> Float[Array, "functions ..."]:
        """A function of each part and of values of its latents, for those of a block."""
        numbers = [part.latents for part in self.parts]
        number = sum(map(len, numbers))
        if number == 1:  # all share a kernel
            return function(self.parts[0], *values)
        columns = jnp.asarray(block)
        wide = [jnp.zeros((number, *v.shape[1:]), v.dtype).at[columns].set(v) for v in values]
        found = [function(part, *(v[np.array(part.latents)] for v in wide)) for part in self.parts]
        return in_latent_order(numbers, found)[columns]

    def white_of(self, g: RowLatents) -> Float[Array, "Q N"]:
        lacks(self, "no coefficient for each row; use Dense()")

    def log_determinant(self, latents: int) -> Scalar:
        lacks(self, "no coefficient for each row; use Dense()")


class SpaceTimeSampler(SiteSampler):
    """Draws of the white coefficients by simulation and smoothing (Durbin & Koopman 2002).

    In law they are those of forward filtering and backward sampling. The variance that points
    leave open counts as with `Inducing`.
    """

    centres: Points
    jitter: Scalar
    whitening: SpaceTimeWhitening
    power: float = eqx.field(static=True)  # in [0, 1]

    @classmethod
    def of(cls, whitening: SpaceTimeWhitening, power: float) -> "SpaceTimeSampler":
        """The sampler of a map."""
        return cls(whitening.centres, whitening.jitter, whitening, power)

    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        """A draw as of any sampler; it finds no covariances, and `rows` has no effect."""
        sites, block, key, start, over_relaxation, _ = update
        own, columns = self.whitening, jnp.asarray(block)
        told = sites.linear[:, columns].T, sites.precision[:, columns].T
        projected = ProjectedSites.of(*told, own.of_block(block), self.power)
        linear, precision = map(own.slots.sums, projected[:2])
        key_white, key_noise = jax.random.split(key)
        steps = len(block), len(own.slots.times), own.width
        white = jax.random.normal(key_white, steps, linear.dtype)
        noise = jax.random.normal(key_noise, linear.shape, linear.dtype)
        fresh = float(np.sqrt(1 - over_relaxation**2))

        def drawn(part: WhiteProcesses, white, noise, linear, precision):
            # The mean and a deviation together, of (1 + a) l - sqrt(1 - a^2) (W u + W^1/2 e).
            prior = precision * part.read(own.slots, white) + jnp.sqrt(precision) * noise
            told = (1 + over_relaxation) * linear - fresh * prior
            return part.means(own.slots, told, precision, own.width) + fresh * white

        found = own.over(drawn, block, white, noise, linear, precision)
        return CoefficientDraw(found.reshape(len(block), -1) - over_relaxation * start, None)

    def at_rows(
        self, coefficients: Float[Array, "functions M"], block: Block, key: RandomKey
    ) -> Float[Array, "N functions"]:
        read = self.whitening.at_rows(coefficients, block)
        noise = jax.random.normal(key, read.shape, read.dtype)
        return (read + jnp.sqrt(self.whitening.of_block(block)) * noise).T

    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        return coefficients
