"""Learning hyper-parameters: L-BFGS-B on the bound with the sites profiled out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key
from scipy.optimize import minimize

from latentgp.data import Data
from latentgp.inference.driver import Driver, Record, StopSearch
from latentgp.inference.site_inference import SiteInference, evaluate
from latentgp.parameters import ParameterSpace
from latentgp.sites.base import GaussianSites

_RESTART_SPREAD = 1.0


class Learned(NamedTuple):
    """Where the search ended.

    Attributes:
        vector: the best point of all runs, unconstrained.
        sites: where its site updates may start.
        converged: whether the run that found it ended by itself.
        reason: why that run ended, in words.
    """

    vector: Float[np.ndarray, "P"]
    sites: GaussianSites
    converged: bool
    reason: str


def learn(
    algorithm: SiteInference,
    space: ParameterSpace,
    data: Data,
    sites: GaussianSites,
    *,
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    restarts: int,
    tolerance: float,
    driver: Driver,
    key: Key[jax.Array, ""],
) -> Learned:
    """Maximise the bound plus log prior over hyper-parameters.

    The first run starts at the model's own values, each restart at a draw around them. The best
    point of all runs is kept, so a restart never makes the result worse.
    """
    first = space.to_vector()
    lower, upper = bounds
    sites = driver.recall(sites)
    endings: dict[int, tuple[bool, str]] = {}
    try:
        for restart in range(restarts + 1):
            start = first
            if restart:
                noise = jax.random.normal(jax.random.fold_in(key, restart), first.shape)
                start = first + _RESTART_SPREAD * np.asarray(noise)
            objective = _Objective(algorithm, space, data, sites, driver, restart)
            try:
                found = minimize(
                    objective,
                    np.clip(start, lower, upper),
                    jac=True,
                    method="L-BFGS-B",
                    bounds=np.stack([lower, upper], axis=1),
                    options={
                        "ftol": tolerance,
                        "gtol": 1e-6,
                        "maxfun": 10 * driver.max_evaluations,
                        "maxiter": driver.max_evaluations,
                    },
                )
                endings[restart] = (True, str(found.message).lower())
            except StopSearch as stop:
                endings[restart] = (False, str(stop))
                if "max_evaluations" not in str(stop):
                    break
            finally:
                sites = objective.sites
    finally:
        driver.save(sites)
        driver.close()
    best = driver.best()
    return Learned(best.vector, sites, *endings[best.restart])


class _Objective:
    """Minus the bound as SciPy wants it, the sites carried from call to call."""

    def __init__(
        self,
        algorithm: SiteInference,
        space: ParameterSpace,
        data: Data,
        sites: GaussianSites,
        driver: Driver,
        restart: int,
    ):
        self.sites = sites
        self._fixed = (algorithm, space, data)
        self._driver, self._restart = driver, restart

    def __call__(self, vector: Float[np.ndarray, "P"]) -> tuple[float, Float[np.ndarray, "P"]]:
        known = self._driver.replay(self._restart)
        if known is not None:
            return -known.value, -known.gradient
        algorithm, space, data = self._fixed
        result = evaluate(algorithm, space, jnp.asarray(vector), data, self.sites)
        value, gradient = float(result.value), np.asarray(result.gradient)
        if np.isfinite(value) and np.all(np.isfinite(gradient)):
            self.sites = result.sites
        else:
            # Far outside; far below everything seen, so that the line search steps back.
            seen = min((r.value for r in self._driver.records), default=0.0)
            value, gradient = seen - 1e3 * (1 + abs(seen)), np.zeros_like(vector)
        self._driver.report(
            Record(vector.copy(), value, float(result.bound), gradient, 0.0, self._restart),
            self.sites,
        )
        return -value, -gradient
