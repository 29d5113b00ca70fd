"""Hamiltonian trajectories, of a random number of steps or until they turn back.

Steps are BlackJAX's, and the adaptation of step size and masses in windows, which with a random
number is at half the longest trajectory. Bayesian optimisation finds step size and longest
trajectory instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.chains.joint import JointPosition, JointSampler, JointState
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, RandomKey, Scalar

Tuning = Literal["windows", "jumps"]

_DRAWS_A_TRIAL = 30
_DEEPEST = 10  # doublings of a trajectory
_STEP_SIZES = np.geomspace(1e-3, 1.0, 25)
_LENGTHSCALE, _NOISE, _OPTIMISM = 0.25, 0.1, 2.0  # of the box; relative variance; deviations


class HMCSampler(JointSampler):
    """Trajectories of 1 to `steps` leapfrogs, drawn evenly; see `JointSampler`."""

    steps: int = eqx.field(static=True)  # of the longest trajectory; the most that tuning may take
    tuning: Tuning = eqx.field(static=True)  # "windows" or "jumps"

    def adapted(self, start: JointPosition, key: RandomKey) -> JointState:
        import blackjax

        def log_density(at: JointPosition) -> Scalar:
            return self.log_density(at)

        if self.tuning == "jumps":
            return self._tuned_by_jumps(blackjax.hmc.init(start, log_density), key)
        own, half = (self.warmup, self.target_acceptance), (self.steps + 1) // 2
        state, settings = warmed_up(log_density, start, key, *own, num_integration_steps=half)
        known = {name: settings[name] for name in ("step_size", "inverse_mass_matrix")}
        return JointState(state, known | {"longest": jnp.asarray(self.steps)})

    def step(self, state: JointState, key: RandomKey) -> tuple[JointState, dict[str, Array]]:
        hmc, info = self._moved(state.hmc, state.settings, key)
        statistics = statistics_of(hmc, info, state.settings)
        return JointState(hmc, state.settings), statistics | {"longest": state.settings["longest"]}

    def _moved(self, hmc: Any, settings: dict[str, Any], key: RandomKey) -> tuple[Any, Any]:
        """One trajectory, accepted or not."""
        import blackjax

        key_number, key_step = jax.random.split(key)
        number = jax.random.randint(key_number, (), 1, settings["longest"] + 1)
        kernel: Any = blackjax.hmc.build_kernel()
        size, mass = settings["step_size"], settings["inverse_mass_matrix"]
        return kernel(key_step, hmc, lambda at: self.log_density(at), size, mass, number)

    def _tuned_by_jumps(self, hmc: Any, key: RandomKey) -> JointState:
        """Step size and longest trajectory with the largest squared jump for their cost.

        The mean squared jump of 30 trajectories over the root of the longest is a trial's figure
        (Hensman, Matthews, Filippone & Ghahramani 2015, section 3; Wang, Mohamed & de Freitas
        2013). The next trial is where a Gaussian process of all figures so far has the highest
        upper bound, and what is kept is the trial with its highest mean.
        """
        dtype = hmc.logdensity.dtype
        grid = Trials.grid(self.steps, dtype)
        number = max(self.warmup // _DRAWS_A_TRIAL, 1)
        mass = jnp.ones(sum(part.size for part in hmc.position), dtype)

        def settings_of(place: Int[Array, ""]) -> dict[str, Any]:
            known = {"step_size": grid.step_sizes[place], "longest": grid.longest[place]}
            return known | {"inverse_mass_matrix": mass}

        def trial(carry: tuple[Any, Array, Array], index: Array) -> tuple[Any, None]:
            hmc, places, figures = carry
            mean, deviation = grid.believed(places, figures, index)
            place = jnp.where(index == 0, grid.middle, jnp.argmax(mean + _OPTIMISM * deviation))
            settings = settings_of(place)

            def jump(hmc: Any, key: RandomKey) -> tuple[Any, Array]:
                there, _ = self._moved(hmc, settings, key)
                pairs = zip(there.position, hmc.position, strict=True)
                return there, jnp.asarray(sum(jnp.sum((a - b) ** 2) for a, b in pairs))

            keys = jax.random.split(jax.random.fold_in(key, index), _DRAWS_A_TRIAL)
            hmc, jumps = jax.lax.scan(jump, hmc, keys)
            figures = figures.at[index].set(jnp.mean(jumps) / jnp.sqrt(settings["longest"]))
            return (hmc, places.at[index].set(place.astype(places.dtype)), figures), None

        nowhere = jnp.zeros(number, jnp.int32), jnp.zeros(number, dtype)
        (hmc, places, figures), _ = jax.lax.scan(trial, (hmc, *nowhere), jnp.arange(number))
        mean, _ = grid.believed(places, figures, jnp.asarray(number))
        return JointState(hmc, settings_of(places[jnp.argmax(mean[places])]))


class Trials(NamedTuple):
    """Settings that can be tried, and what is believed of their figures."""

    step_sizes: Float[Array, "trials"]  # of leapfrogs
    longest: Int[Array, "trials"]  # steps of the longest trajectory
    places: Float[Array, "trials 2"]  # of both in the unit square, logarithmic
    middle: int  # where to begin

    @classmethod
    def grid(cls, steps: int, dtype: Any) -> Trials:
        """Step sizes of 0.001 to 1, and longest trajectories of 1 to `steps`, evenly in logs."""
        lengths = np.unique(np.geomspace(1, steps, 12).round().astype(int))
        sizes, longest = (a.ravel() for a in np.meshgrid(_STEP_SIZES, lengths, indexing="ij"))
        first = np.log(sizes / _STEP_SIZES[0]) / np.log(_STEP_SIZES[-1] / _STEP_SIZES[0])
        second = np.log(longest) / max(np.log(steps), 1.0)
        middle = (len(_STEP_SIZES) * 2 // 3) * len(lengths) + len(lengths) // 2
        places = jnp.asarray(np.stack([first, second], axis=1), dtype)
        return cls(jnp.asarray(sizes, dtype), jnp.asarray(longest), places, middle)

    def believed(
        self, tried: Int[Array, "T"], figures: Float[Array, "T"], number: Int[Array, ""]
    ) -> tuple[Float[Array, "trials"], Float[Array, "trials"]]:
        """Mean and deviation of every setting's standardised figure, by a Gaussian process."""
        known = jnp.arange(len(tried)) < number
        count = jnp.maximum(jnp.sum(known), 1)
        centre = jnp.sum(jnp.where(known, figures, 0.0)) / count
        away = jnp.where(known, figures - centre, 0.0)
        spread = jnp.sqrt(jnp.sum(away**2) / count)
        away = away / jnp.where(spread > 0, spread, 1.0)
        X = self.places[tried]
        squared = jnp.sum((X[:, None] - X) ** 2, axis=2)
        both = known[:, None] & known
        gram = jnp.where(both, jnp.exp(-0.5 * squared / _LENGTHSCALE**2), 0.0)
        gram = gram + jnp.diag(jnp.where(known, _NOISE, 1.0))
        cross = jnp.sum((self.places[:, None] - X) ** 2, axis=2)
        cross = jnp.where(known, jnp.exp(-0.5 * cross / _LENGTHSCALE**2), 0.0)
        root = lower_cholesky(gram)
        half = solve_lower(root, cross.T)
        mean = half.T @ solve_lower(root, away)
        return mean, jnp.sqrt(jnp.maximum(1.0 - jnp.sum(half**2, axis=0), 0.0))


class NUTSSampler(JointSampler):
    """Trajectories that end where they would turn back (Hoffman & Gelman 2014)."""

    def adapted(self, start: JointPosition, key: RandomKey) -> JointState:
        own = self.warmup, self.target_acceptance
        return warmed_up(lambda at: self.log_density(at), start, key, *own)

    def step(self, state: JointState, key: RandomKey) -> tuple[JointState, dict[str, Array]]:
        return no_u_turn(lambda at: self.log_density(at), state, key)


def warmed_up(
    log_density: Callable[[Any], Array],
    start: Any,
    key: RandomKey,
    warmup: int,
    target_acceptance: float,
    **steps: Any,
) -> JointState:
    """A chain's state after adapting step size and masses, of HMC if steps are given."""
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

    kernel: Any = blackjax.nuts(log_density, **state.settings, max_num_doublings=_DEEPEST)
    hmc, info = kernel.step(key, state.hmc)
    depth, ended = info.num_trajectory_expansions, info.is_turning | info.is_divergent
    more = {"tree_depth": depth, "energy": info.energy}
    more["reached_max_treedepth"] = (depth >= _DEEPEST) & ~ended
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
