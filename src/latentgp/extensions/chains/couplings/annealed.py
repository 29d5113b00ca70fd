"""The pseudo-marginal coupling by annealed importance sampling."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Kind
from latentgp.extensions.chains.couplings.base import Coupling, Place
from latentgp.extensions.chains.latents.base import Residual
from latentgp.extensions.chains.latents.langevin import Langevin, ResidualGradient
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.typing import Array, Coefs, HyperVector, RandomKey, Scalar


class Runs(NamedTuple):
    """Annealed runs at the present hyper-parameters, and the randomness of those of a proposal."""

    at: Place  # the place, with a draw of f by the weights of the runs
    key: RandomKey  # of the runs at proposed hyper-parameters


class Annealed(Coupling):
    """Pseudo-marginal moves whose estimate of p(y | theta) is by annealed importance sampling.

    A run starts at a draw of the Gaussian approximation and moves by Langevin steps under it times
    powers of what it lacks, the residual r (Neal 2001; for Gaussian processes Filippone 2014). The
    estimate is unbiased whatever the moves do, and its logarithm varies less than that of plain
    importance sampling where the approximation is poor.

    Before every proposal the runs at the present hyper-parameters are drawn anew given the present
    f: the one that led there by its moves in reverse order, the others freely. This leaves the law
    of all runs and f as it is (Andrieu, Doucet & Holenstein 2010, 2.4, of particle filters), and no
    estimate that came out too high holds the chain.
    """

    kind: ClassVar[Kind] = "sites"

    samples: int = eqx.field(static=True, default=8)  # S, runs of the estimate
    temperatures: int = eqx.field(static=True, default=8)  # T, powers 0 < 1/T < ... < 1

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> Runs:
        key_back, key_others, key_choice, key_fresh = jax.random.split(key, 4)
        residual = self._residual(target, at)
        _, own = annealed_run(residual, at.eps, self._powers()[::-1], key_back)
        ends, others = self._fresh(residual, at.eps, self.samples - 1, key_others)
        log_weights = jnp.concatenate([own[None], others])
        everything = jnp.concatenate([at.eps[None], ends])
        chosen = everything[jax.random.categorical(key_choice, log_weights)]
        return Runs(at._replace(eps=chosen, log_weights=log_weights), key_fresh)

    def here(
        self, target: WhiteTarget, at: Place, held: Runs, differentiable: bool
    ) -> tuple[Scalar, Place]:
        return self._value(target, held.at), held.at

    def density(
        self, target: WhiteTarget, vector: HyperVector, held: Runs, differentiable: bool
    ) -> tuple[Scalar, Place]:
        key_runs, key_choice = jax.random.split(held.key)
        coordinates = self.coordinates(target, vector, differentiable)
        there = held.at._replace(vector=vector, coordinates=coordinates)
        residual = self._residual(target, there)
        ends, log_weights = self._fresh(residual, there.eps, self.samples, key_runs)
        chosen = ends[jax.random.categorical(key_choice, log_weights)]
        there = there._replace(eps=chosen, log_weights=log_weights)
        return self._value(target, there), there

    def _powers(self) -> Float[Array, "T"]:
        return jnp.arange(1, self.temperatures) / self.temperatures

    def _residual(self, target: WhiteTarget, at: Place) -> Residual:
        model = target.space.to_model(at.vector)
        return lambda eps: at.coordinates.residual(target, model, eps)

    def _fresh(
        self, residual: Residual, like: Coefs, number: int, key: RandomKey
    ) -> tuple[Float[Array, "S Q M"], Float[Array, "S"]]:
        """Runs from draws of the approximation: where they end, and their log weights."""
        key_start, key_run = jax.random.split(key)
        starts = jax.random.normal(key_start, (number, *like.shape), like.dtype)
        keys = jax.random.split(key_run, number)
        run = jax.vmap(lambda eps, key: annealed_run(residual, eps, self._powers(), key))
        return run(starts, keys)

    def _value(self, target: WhiteTarget, at: Place) -> Scalar:
        """Log prior and log of the estimate, in nats."""
        assert at.log_weights is not None
        gain = jax.scipy.special.logsumexp(at.log_weights) - math.log(self.samples)
        value = target.space.log_prior(at.vector) + at.coordinates.log_evidence + gain
        return jnp.where(jnp.isnan(value), -jnp.inf, value)


def annealed_run(
    residual: Residual, eps: Coefs, powers: Float[Array, "T"], key: RandomKey
) -> tuple[Coefs, Scalar]:
    """Moves under N(eps | 0, I) exp(power r), one a power: their end, and the log weight.

    The weight is exp(mean of r) over all points that are visited. From a draw of N(0, I) along
    rising powers it is an unbiased estimate of E exp(r) (Neal 2001, eq. 11); along falling ones it
    is that of a run that ended at `eps`, as the moves are reversible. Powers are evenly spaced in
    (0, 1), without the ends.
    """

    def move(state: ResidualGradient, each: tuple[Array, Array]) -> tuple[ResidualGradient, Scalar]:
        power, key = each
        tempered = ResidualGradient(state.eps, power * state.value, power * state.slope)
        end, _ = langevin.step(lambda e: power * residual(e), tempered, scale, key)
        state = ResidualGradient(end.eps, end.value / power, end.slope / power)
        return state, state.value

    langevin = Langevin()
    scale = jnp.asarray(langevin.first_scale, eps.dtype)
    start = langevin.init(residual, eps)
    keys = jax.random.split(key, len(powers))
    end, values = jax.lax.scan(move, start, (powers.astype(eps.dtype), keys))
    log_weight = (start.value + jnp.sum(values)) / (len(powers) + 1)
    return end.eps, jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)
