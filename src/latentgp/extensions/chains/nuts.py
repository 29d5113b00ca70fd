"""The no-U-turn sampler.

BlackJAX's sampler (Hoffman & Gelman 2014) with its window adaptation of step size and masses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from latentgp.extensions.chains.joint import JointPosition, JointSampler, JointState
from latentgp.typing import Array, RandomKey


class NUTSSampler(JointSampler):
    """Hamiltonian trajectories that end where they would turn back; see `JointSampler`."""

    def adapted(self, start: JointPosition, key: RandomKey) -> JointState:
        return warmed_up(
            lambda at: self.log_density(at), start, key, self.warmup, self.target_acceptance
        )

    def step(self, state: JointState, key: RandomKey) -> tuple[JointState, dict[str, Array]]:
        return no_u_turn(lambda at: self.log_density(at), state, key)


def warmed_up(
    log_density: Callable[[Any], Array],
    start: Any,
    key: RandomKey,
    warmup: int,
    target_acceptance: float,
    **steps: int,
) -> JointState:
    """A chain's state after steps from a start that adapt step size and masses.

    With `num_integration_steps` trajectories have so many; else they end where they would turn.
    """
    import blackjax

    adaptation: Any = blackjax.window_adaptation(
        blackjax.hmc if steps else blackjax.nuts,
        log_density,
        target_acceptance_rate=target_acceptance,
        **steps,
    )
    return JointState(*adaptation.run(key, start, warmup)[0])


def no_u_turn(
    log_density: Callable[[Any], Array], state: JointState, key: RandomKey
) -> tuple[JointState, dict[str, Array]]:
    """The state after a trajectory, and its statistics."""
    import blackjax

    kernel: Any = blackjax.nuts(log_density, **state.settings)
    hmc, info = kernel.step(key, state.hmc)
    more = {"tree_depth": info.num_trajectory_expansions, "energy": info.energy}
    return JointState(hmc, state.settings), statistics_of(hmc, info, state.settings) | more


def statistics_of(hmc: Any, info: Any, settings: dict[str, Any]) -> dict[str, Array]:
    """Statistics of a trajectory, from BlackJAX's."""
    return {
        "acceptance_rate": info.acceptance_rate,
        "diverging": info.is_divergent,
        "n_steps": jnp.asarray(info.num_integration_steps),
        "lp": hmc.logdensity,
        "step_size": jnp.asarray(settings["step_size"]),
    }
