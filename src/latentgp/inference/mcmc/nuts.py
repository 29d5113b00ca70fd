"""The no-U-turn sampler.

BlackJAX's sampler (Hoffman & Gelman 2014) with its window adaptation of step size and masses.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Key, Shaped

from latentgp.inference.mcmc.joint import JointPosition, JointSampler, JointState
from latentgp.typing import Array


class NUTSSampler(JointSampler):
    """Hamiltonian trajectories that end where they would turn back; see `JointSampler`."""

    def adapted(self, start: JointPosition, key: Key[Array, ""]) -> JointState:
        import blackjax

        adaptation: Any = blackjax.window_adaptation(
            blackjax.nuts,
            lambda at: self.log_density(at),
            target_acceptance_rate=self.target_acceptance,
        )
        (state, settings), _ = adaptation.run(key, start, self.warmup)
        return JointState(state, settings)

    def step(self, state: JointState, key: Key[Array, ""]) -> tuple[JointState, dict[str, Array]]:
        import blackjax

        kernel: Any = blackjax.nuts(lambda at: self.log_density(at), **state.settings)
        hmc, info = kernel.step(key, state.hmc)
        statistics = {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "n_steps": info.num_integration_steps,
            "tree_depth": info.num_trajectory_expansions,
            "energy": info.energy,
            "lp": hmc.logdensity,
            "step_size": jnp.asarray(state.settings["step_size"]),
        }
        return JointState(hmc, state.settings), statistics

    def told(self, steps: dict[str, Shaped[Array, "T"]]) -> dict[str, Shaped[Array, ""]]:
        return super().told(steps) | {
            "acceptance_rate": jnp.mean(steps["acceptance_rate"]),
            "diverging": jnp.any(steps["diverging"]),
            "n_steps": jnp.sum(steps["n_steps"]),
            "tree_depth": jnp.max(steps["tree_depth"]),
        }
