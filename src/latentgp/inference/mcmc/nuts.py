"""The no-U-turn sampler on white latents, with auxiliary variables if asked for.

BlackJAX's sampler (Hoffman & Gelman 2014) with its window adaptation of step size and masses.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key, Shaped

from latentgp.augmentations.automatic import form_of
from latentgp.inference.mcmc.loop import Draw, collect
from latentgp.inference.sites.algorithm import prior_mean, rows_of
from latentgp.likelihoods.scale_mixture import ScaleMixture, squared_norm
from latentgp.numerics.cholesky import jittered_cholesky, lower_cholesky
from latentgp.parameters.space import ParameterSpace
from latentgp.posteriors.chains import Chains
from latentgp.representations.latent_axis import latent_grams, over_latents
from latentgp.rows.data import Data
from latentgp.runtime.progress import Driving
from latentgp.sites.copies import Copies, copies_of
from latentgp.typing import Array

_PIECE = 50
_START_SPREAD = 0.3


class Position(NamedTuple):
    """Where a trajectory is.

    Attributes:
        vector: unconstrained hyper-parameters, shape (P,); P = 0 if they are fixed.
        white: white latents, f = mean + L v, shape (Q, N).
        log_auxiliary: logs of the auxiliary variables, shape (R,); R = 0 without augmentation.
    """

    vector: Float[Array, "P"]
    white: Float[Array, "Q N"]
    log_auxiliary: Float[Array, "R"]


class Target(eqx.Module):
    """The log density that is sampled: of white latents, and of what else is unknown.

    Args:
        space: the hyper-parameters; none are free if they are fixed.
        data: the rows.
        copies: the rows repeated by their weights.
        lower: factor of the prior covariance if the hyper-parameters are fixed, shape (#Q, N, N).
        augmented: whether the auxiliary variables of a scale mixture are sampled too.
    """

    space: ParameterSpace
    data: Data
    copies: Copies
    lower: Float[Array, "#Q N N"] | None
    augmented: bool = eqx.field(static=True)

    def __call__(self, position: Position) -> Float[Array, ""]:
        model = self.space.to_model(position.vector)
        rows, f = self.copies.rows, self.copies.spread(self.latents(position))
        terms = jax.vmap(model.likelihood.log_prob)(rows.y, f, dict(rows.side))
        total = jnp.sum(terms) - 0.5 * jnp.sum(position.white**2)
        total = total + self.space.log_prior(position.vector)
        if not self.augmented:
            return total
        # p(y, w | f) = p(y | f) p(w | y, f), and the change of variables to log w.
        assert isinstance(model.likelihood, ScaleMixture)
        law = model.likelihood.auxiliary_law(squared_norm(form_of(model.likelihood, rows), f[:, 0]))
        log_w = position.log_auxiliary
        return total + jnp.sum(law.log_prob(jnp.exp(log_w)) + log_w)

    def latents(self, position: Position) -> Float[Array, "N Q"]:
        """F at the rows."""
        model = self.space.to_model(position.vector)
        lower = self.lower
        if lower is None:
            lower = over_latents(_differentiable_factor, latent_grams(model.kernel, self.data.X))
        g = over_latents(lambda lower, v: lower @ v, lower, position.white).T
        return prior_mean(model, self.data) + g


def run_nuts(
    space: ParameterSpace,
    data: Data,
    *,
    augmented: bool,
    chains: int,
    warmup: int,
    draws: int,
    thin: int,
    target_acceptance: float,
    watched: Int[np.ndarray, "W"],
    key: Key[Array, ""],
    driving: Driving,
) -> Chains:
    """Adapt, then run chains from over-dispersed starts.

    Args:
        space: the hyper-parameters; none are free if they are fixed.
        data: the rows, on the device.
        augmented: whether auxiliary variables are sampled too.
        chains: how many, side by side.
        warmup: steps of each chain that adapt its step size and masses.
        draws: that are kept of each chain.
        thin: steps a draw that is kept.
        target_acceptance: that the step size is adapted to.
        watched: rows whose latents are kept.
        key: random key.
        driving: callback, limit, progress line, checkpoint.
    """
    started = time.perf_counter()
    key_warm, key_run = jax.random.split(key)
    keys = jax.random.split(key_warm, chains)
    copies = copies_of(rows_of(data))
    factor, jitter = _prior_factor(space, data)
    target = Target(space, data, copies, None if space.size else factor, augmented)
    centre = jnp.asarray(space.to_vector())
    number = min(_PIECE, draws)

    def piece(adapted: Any, index: int) -> tuple[Any, Draw, Any]:
        states, settings = adapted
        keys = jax.random.split(jax.random.fold_in(key_run, index), chains)
        states, kept, told = _piece(target, states, settings, watched, keys, (number, thin))
        return (states, settings), kept, told

    sampled = collect(
        piece,
        lambda: _warm_up(target, centre, keys, warmup, target_acceptance),
        -(-draws // number),
        number * thin,
        driving,
    )
    columns, statistics = sampled.joined(draws)
    step_sizes = np.asarray(sampled.state[1]["step_size"])[:, None]
    statistics["step_size"] = np.broadcast_to(step_sizes, columns[0].shape[:2])
    return Chains(
        *columns,
        centres=np.asarray(data.X),
        statistics=statistics,
        jitter=float(jitter),
        seconds=time.perf_counter() - started,
    )


@jax.jit
def _prior_factor(
    space: ParameterSpace, data: Data
) -> tuple[Float[Array, "#Q N N"], Float[Array, ""]]:
    factor, jitter = over_latents(_factor, latent_grams(space.model.kernel, data.X))
    return factor, jnp.max(jitter)


@partial(jax.jit, static_argnames=("warmup", "target_acceptance"))
def _warm_up(
    target: Target,
    centre: Float[Array, "P"],
    keys: Key[Array, "C"],
    warmup: int,
    target_acceptance: float,
) -> tuple[Any, Any]:
    import blackjax

    def chain(key: Key[Array, ""]) -> tuple[Any, Any]:
        key_vector, key_white, key_w, key_run = jax.random.split(key, 4)
        noise = jax.random.normal(key_vector, centre.shape, centre.dtype)
        vector = centre + _START_SPREAD * noise
        shape = (target.space.model.likelihood.latent_size, target.data.size)
        white = jax.random.normal(key_white, shape, vector.dtype)
        auxiliary = jax.random.normal(key_w, target.copies.rows.y.shape, vector.dtype)
        position = Position(vector, white, auxiliary if target.augmented else auxiliary[:0])
        adaptation: Any = blackjax.window_adaptation(
            blackjax.nuts, target, target_acceptance_rate=target_acceptance
        )
        (state, settings), _ = adaptation.run(key_run, position, warmup)
        return state, settings

    return jax.vmap(chain)(keys)


@partial(jax.jit, static_argnames="counts")
def _piece(
    target: Target,
    states: Any,
    settings: Any,
    watched: Int[Array, "W"],
    keys: Key[Array, "C"],
    counts: tuple[int, int],
) -> tuple[Any, Draw, dict[str, Shaped[Array, "C S"]]]:
    """Steps of all chains in one loop; keeps every `thin`-th."""
    import blackjax

    number, thin = counts

    def chain(state: Any, settings: Any, key: Key[Array, ""]) -> Any:
        kernel: Any = blackjax.nuts(target, **settings)

        def step(state, key):
            return kernel.step(key, state)

        def keep(state, key):
            state, info = jax.lax.scan(step, state, jax.random.split(key, thin))
            position = state.position
            f = target.latents(position)[watched]
            told = {
                "acceptance_rate": jnp.mean(info.acceptance_rate),
                "diverging": jnp.any(info.is_divergent),
                "n_steps": jnp.sum(info.num_integration_steps),
                "tree_depth": jnp.max(info.num_trajectory_expansions),
                "energy": info.energy[-1],
                "lp": state.logdensity,
            }
            return state, (Draw(position.vector, position.white, f), told)

        state, (kept, told) = jax.lax.scan(keep, state, jax.random.split(key, number))
        return state, kept, told

    return jax.vmap(chain)(states, settings, keys)


def _factor(gram: Float[Array, "N N"]) -> tuple[Float[Array, "N N"], Float[Array, ""]]:
    factor, jitter = jittered_cholesky(gram)
    return factor.lower, jitter


def _differentiable_factor(gram: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """The factor with the jitter it needs, which is held: a loop chose it."""
    jitter = jax.lax.stop_gradient(jittered_cholesky(jax.lax.stop_gradient(gram)).jitter)
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    return lower_cholesky(gram + jitter * identity)
