"""Moves along the gradient of the residual."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Coordinates, DenseCoordinates
from latentgp.extensions.chains.latents.base import Info, LatentMove, Residual, accepted
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import eigenvectors
from latentgp.representations.latent_axis import vmap_latents
from latentgp.typing import Array, Coefs, RandomKey, Scalar

_QUARTER = math.pi / 2
_SHORTEST = 0.8  # share of an angle that the steps of a trajectory of several have at least


class ResidualGradient(NamedTuple):
    """Coordinates, the residual there, and its gradient."""

    eps: Coefs
    value: Scalar
    slope: Coefs


class GradientMove(LatentMove):
    """A move by the residual's gradient."""

    def init(self, residual: Residual, eps: Coefs) -> ResidualGradient:
        return ResidualGradient(eps, *jax.value_and_grad(residual)(eps))


class Langevin(GradientMove):
    """Crank-Nicolson steps along the gradient (Cotter, Roberts, Stuart & White 2013, 4.3).

    eps' = beta eps + (1 - beta) g + sqrt(1 - beta^2) xi with g the residual's gradient at eps and
    beta = 2 / (2 + delta), delta the scale. Where the residual is flat every step is accepted.
    """

    target_acceptance: ClassVar[float | None] = 0.57
    first_scale: ClassVar[float] = 2.0
    largest_scale: ClassVar[float] = 100.0

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_noise, key_accept = jax.random.split(key)
        beta, eps = 2 / (2 + scale), state.eps
        noise = jax.random.normal(key_noise, eps.shape, eps.dtype)
        drift = beta * eps + (1 - beta) * state.slope
        there = self.init(residual, drift + jnp.sqrt(1 - beta**2) * noise)

        def forward(start: ResidualGradient, end: ResidualGradient) -> Scalar:
            """Log density of a step over that of the same step without a slope."""
            off = end.eps - beta * start.eps - 0.5 * (1 - beta) * start.slope
            return jnp.sum(off * start.slope) / (1 + beta)

        log_ratio = there.value + forward(there, state) - state.value - forward(state, there)
        return accepted(state, there, log_ratio, key_accept)


class Rotations(GradientMove):
    """Hamiltonian trajectories of a quarter of a turn on N(eps | 0, I) exp(residual).

    The Gaussian part is followed exactly, by a rotation of coordinates and momenta; the residual's
    gradient g kicks the momenta by tan(h / 2) g before and after each rotation by h (Hilbert-space
    Hamiltonian Monte Carlo, Beskos, Pinski, Sanz-Serna & Stuart 2011). Where the residual is flat
    one step is an independent draw, and one step is always that of `Langevin` with
    beta = cos h. Where it is not, a quarter of a turn takes more steps.

    The errors of a trajectory's energy have a standard deviation that goes with h^2, and are normal
    in many dimensions, so that acceptance with one number of steps tells that with any other. The
    warm-up fits the scale, the h at which the deviation is one nat, to the acceptance it sees; the
    number of steps is the best by that. Where the most steps are too few for a quarter, as in prior
    white coordinates of precise targets, h is the scale and a trajectory is shorter.
    """

    first_scale: ClassVar[float] = 0.5
    largest_scale: ClassVar[float] = 20.0

    steps: int = eqx.field(static=True, default=32)  # at most so many

    def wanted_acceptance(self, scale: Scalar) -> Scalar:
        return _acceptance(_step(self._number(scale), scale), scale)

    def _number(self, scale: Scalar) -> Scalar:
        """Steps of the trajectory that gives most a step, refusals counted twice."""
        numbers = jnp.arange(1, self.steps + 1).astype(scale.dtype)
        chance = _acceptance(_QUARTER / numbers, scale)
        return numbers[jnp.argmax(chance**2 / ((2 - chance) * numbers))]

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_momentum, key_angle, key_accept = jax.random.split(key, 3)
        momentum = jax.random.normal(key_momentum, state.eps.shape, state.eps.dtype)
        number = self._number(scale)
        share = jax.random.uniform(key_angle, dtype=scale.dtype, minval=_SHORTEST)
        angle = jnp.where(number > 1, share, 1.0) * _step(number, scale)
        kick, cosine, sine = jnp.tan(angle / 2), jnp.cos(angle), jnp.sin(angle)

        def rotated(
            _: Any, carry: tuple[ResidualGradient, Array]
        ) -> tuple[ResidualGradient, Array]:
            at, p = carry
            p = p + kick * at.slope
            there = self.init(residual, cosine * at.eps + sine * p)
            return there, cosine * p - sine * at.eps + kick * there.slope

        there, p = jax.lax.fori_loop(0, number.astype(int), rotated, (state, momentum))
        log_ratio = there.value - state.value + 0.5 * jnp.sum(state.eps**2 - there.eps**2)
        log_ratio = log_ratio + 0.5 * jnp.sum(momentum**2 - p**2)
        return accepted(state, there, log_ratio, key_accept, number)


def _step(number: Scalar, scale: Scalar) -> Scalar:
    """The angle of a step: a quarter's share, if the error of the energy is a nat at most."""
    return jnp.minimum(_QUARTER / number, scale)


def _acceptance(angle: Float[Array, "*S"], scale: Scalar) -> Float[Array, "*S"]:
    """Mean acceptance, 2 Phi(-deviation / 2), of normal errors (Roberts, Gelman & Gilks 1997)."""
    deviation = (angle / scale) ** 2
    return 2 * jax.scipy.stats.norm.cdf(-deviation / 2)


class MALA(GradientMove):
    """Langevin steps of the whole density (Roberts & Tweedie 1996), the scale their length.

    In coordinates of sites the metric is that of the posterior's curvature at its centre: the
    simplified manifold sampler of Girolami & Calderhead (2011, 5) with a metric that is the same
    for all f given the hyper-parameters.
    """

    target_acceptance: ClassVar[float | None] = 0.574
    first_scale: ClassVar[float] = 0.5

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_noise, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_noise, state.eps.shape, state.eps.dtype)

        def density(state: ResidualGradient) -> Scalar:
            return state.value - 0.5 * jnp.sum(state.eps**2)

        def ahead(state: ResidualGradient) -> Coefs:
            return state.eps + 0.5 * scale**2 * (state.slope - state.eps)

        there = self.init(residual, ahead(state) + scale * noise)
        back = jnp.sum((state.eps - ahead(there)) ** 2) / scale**2
        log_ratio = density(there) - density(state) - 0.5 * (back - jnp.sum(noise**2))
        return accepted(state, there, log_ratio, key_accept)


class AuxiliaryGradient(GradientMove):
    """The marginal auxiliary gradient sampler (Titsias & Papaspiliopoulos 2018, 3.1).

    With lambda the eigenvalues of the covariance F F' of f at the rows, the steps are those of
    `Langevin` along its eigenvectors with beta = 2 lambda / (2 lambda + delta): where f hardly
    varies coordinates are drawn anew, and delta is a variance of f. With coupling="whitened" F F'
    is the prior covariance, as published. One eigendecomposition a sweep, or one in all where
    hyper-parameters are held.
    """

    target_acceptance: ClassVar[float | None] = 0.57

    values: Coefs | None = None  # eigenvalues; set by `within`
    vectors: Float[Array, "Q M M"] | None = None  # eigenvectors in columns; set by `within`

    def within(self, target: WhiteTarget, model: LatentGP, coordinates: Coordinates) -> LatentMove:
        assert isinstance(coordinates, DenseCoordinates)
        values, vectors = vmap_latents(lambda F: eigenvectors(F.T @ F), coordinates.factor)
        return AuxiliaryGradient(jnp.maximum(values, 0.0), vectors)

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        values: Any = self.values
        key_noise, key_accept = jax.random.split(key)
        beta = 2 * values / (2 * values + scale)
        noise = jax.random.normal(key_noise, beta.shape, beta.dtype)

        def rotated(eps: Coefs) -> Coefs:
            return vmap_latents(lambda vectors, e: e @ vectors, self.vectors, eps)

        def forward(start: Array, slope: Array, end: Array) -> Scalar:
            """Log density of a step over that of the same step without a slope."""
            off = end - beta * start - 0.5 * (1 - beta) * slope
            return jnp.sum(off * slope / (1 + beta))

        here, slope = rotated(state.eps), rotated(state.slope)
        end = beta * here + (1 - beta) * slope + jnp.sqrt(1 - beta**2) * noise
        there = self.init(residual, vmap_latents(lambda v, e: v @ e, self.vectors, end))
        back = forward(end, rotated(there.slope), here)
        log_ratio = there.value + back - state.value - forward(here, slope, end)
        return accepted(state, there, log_ratio, key_accept)
