"""Moves of hyper-parameters by an emulator of the approximate evidence."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.hyperparameters.crank_nicolson import log_student
from latentgp.extensions.chains.hyperparameters.random_walk import metropolis
from latentgp.extensions.chains.latents.rotations import ANTITHETIC, SHORTEST
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_LENGTHSCALES = (0.7, 1.0, 1.5, 2.5, 4.0)  # times sqrt(P), in standard deviations
_WALKS = 0.1  # share of the moves that are a random walk's
_LARGEST_STEP = 0.7  # of a leapfrog, in standard deviations; times P^(-1/4)
_NUGGET = 1e-6  # relative to the variance of the residuals
_IGNORED = 1e6
_DEPTH = 12.0  # nats below the highest value, and one more a hyper-parameter, that are fitted


class Emulator(NamedTuple):
    """Log density by regression on what was evaluated, from a Student-t law that holds far away."""

    points: Float[Array, "T H"]  # where it was evaluated, standardised
    coefficients: Float[Array, "T"]  # of the kernel at the points; zero before the fit
    lengthscale: Scalar  # of the squared exponential kernel, in standard deviations
    fitted: Array  # whether there was a fit

    def __call__(self, z: HyperVector) -> Scalar:
        """Log density at standardised hyper-parameters, up to a constant."""
        squared = jnp.sum((self.points - z) ** 2, axis=1)
        features = jnp.exp(-0.5 * squared / self.lengthscale**2)
        return log_student(z) + features @ self.coefficients

    @classmethod
    def none(cls, size: int, like: HyperVector) -> Emulator:
        """Before anything was evaluated."""
        points = jnp.zeros((size, len(like)), like.dtype)
        one = jnp.ones((), like.dtype)
        return cls(points, jnp.zeros_like(points[:, 0]), one, jnp.zeros((), bool))

    @classmethod
    def fit(
        cls, seen: WarmupHistory, vectors: Float[Array, "T H"], values: Float[Array, "T"]
    ) -> Emulator:
        """Regression of finite and probable values by the length-scale of highest evidence."""
        points = jax.vmap(seen.standardised)(vectors)
        size = points.shape[1]
        finite = jnp.isfinite(values)
        lowest = jnp.max(jnp.where(finite, values, -jnp.inf)) - _DEPTH - size
        used = finite & (values > lowest)
        residual = jnp.where(used, values, 0.0) - jax.vmap(log_student)(points)
        mean = jnp.sum(jnp.where(used, residual, 0.0)) / jnp.maximum(jnp.sum(used), 1)
        residual = jnp.where(used, residual - mean, 0.0)
        noise = jnp.where(used, _NUGGET, _IGNORED)
        squared = jnp.sum((points[:, None] - points) ** 2, axis=2)

        def solved(lengthscale: Array) -> tuple[Array, Array]:
            gram = jnp.exp(-0.5 * squared / lengthscale**2) + jnp.diag(noise)
            lower = lower_cholesky(gram)
            half = solve_lower(lower, residual)
            number = jnp.maximum(jnp.sum(used), 1)
            log_root = jnp.sum(jnp.where(used, jnp.log(jnp.diagonal(lower)), 0.0))
            evidence = -0.5 * number * jnp.log(jnp.sum(half**2) / number + 1e-12) - log_root
            return evidence, solve_lower(lower, half, transposed=True)

        lengthscales = jnp.array(_LENGTHSCALES, values.dtype) * size**0.5
        evidence, coefficients = jax.lax.map(solved, lengthscales)
        best = jnp.argmax(jnp.where(jnp.isfinite(evidence), evidence, -jnp.inf))
        chosen = jnp.where(used, coefficients[best], 0.0)
        fitted = jnp.isfinite(evidence[best]) & (jnp.sum(used) > 5 * size)
        return cls(points, jnp.where(fitted, chosen, 0.0), lengthscales[best], fitted)


class HyperEmulated(HyperMove):
    """Proposals at the end of a trajectory under an emulator, which costs no factorisation.

    In the warm-up all chains' evaluations of the approximate evidence are kept, and a Gaussian
    process is fitted to them. A move makes a Hamiltonian trajectory under its density s and accepts
    the end by pi(theta') s(theta) / (pi(theta) s(theta')) (surrogate transitions, Liu 2001, 9.4.3;
    Christen & Fox 2005; Gaussian processes for trajectories, Rasmussen 2003). However wrong the
    emulator is the chain is exact. Where it is right a trajectory is a third of a turn about the
    mean, so that errors of draws that follow each other cancel (`Rotations`). It moves in
    coordinates in which the priors are nearly normal, as it knows nothing of long tails. One move
    in ten, and all before the fit, are those of `HyperRandomWalk`, which lead out of where it is
    wrong.
    """

    target_acceptance: ClassVar[float | None] = 0.25
    emulates: ClassVar[bool] = True
    straightens: ClassVar[bool] = True

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        seen, vector = law.seen, here.vector
        emulator = seen.emulator
        key_kind, key_walk, key_run, key_accept = jax.random.split(key, 4)
        walks = ~emulator.fitted | jax.random.bernoulli(key_kind, _WALKS)
        start = seen.standardised(vector)
        end = self._end(emulator, start, key_run)
        noise = jax.random.normal(key_walk, start.shape, start.dtype)
        there = jnp.where(walks, vector + scale * (seen.root @ noise), seen.mean + seen.root @ end)
        there = law.at(there)
        gain = jnp.where(walks, 0.0, emulator(end) - emulator(start))
        return metropolis(here, there, there.value - here.value - gain, key_accept)

    def _end(self, emulator: Emulator, start: HyperVector, key: RandomKey) -> HyperVector:
        """The end of a trajectory that is accepted under the emulator."""
        import blackjax

        kernel: Any = blackjax.hmc.build_kernel()
        key_share, key_step = jax.random.split(key)
        steps = math.ceil(ANTITHETIC * len(start) ** 0.25 / _LARGEST_STEP)
        share = jax.random.uniform(key_share, dtype=start.dtype, minval=SHORTEST)
        size, mass = share * ANTITHETIC / steps, jnp.ones_like(start)
        state = blackjax.hmc.init(start, emulator)
        return kernel(key_step, state, emulator, size, mass, steps)[0].position
