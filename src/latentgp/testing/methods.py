"""What every method must satisfy on a model that it can be used on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.data import Data
from latentgp.fit import fit
from latentgp.inference import SiteMethod
from latentgp.inference.profile import evaluate, initial_sites
from latentgp.models import LatentGP
from latentgp.parameters import ParameterSpace
from latentgp.precision import double_precision
from latentgp.testing.numerics import require, require_equal, require_gradient

_STEPS = 12
# The size of an update is squared, a change of the bound is so by itself.
_TOLERANCES = {"bound": 1e-14, "mode": 1e-14, "moments": 1e-22}


@double_precision
def check_method(method: SiteMethod, model: LatentGP, data: Data) -> None:
    """Check a method on a small problem.

    Args:
        method: what is checked.
        model: one that it can be used on.
        data: a few rows.

    Raises:
        AssertionError: the bound falls under full steps, or does not settle; the gradient in the
            hyper-parameters differs from differences of the profiled bound (or approximate
            evidence); two fits with one key differ.
    """
    name = type(method).__name__
    algorithm = method.algorithm(model)
    ready = algorithm.representation.initialise(
        data.X, data.weights, model.kernel, jax.random.key(0)
    )
    algorithm = dataclasses.replace(
        algorithm, representation=ready, tolerance=_TOLERANCES[algorithm.rule.goal], max_updates=500
    )
    rows = data.to_device()
    state = jax.jit(lambda model, rows: algorithm.init(model, rows))(model, rows)
    step, bounds = jax.jit(lambda state, rows: algorithm.step(state, rows)), []
    for _ in range(_STEPS):
        state, info = step(state, rows)
        bounds.append(float(info.bound))
    require(np.all(np.isfinite(bounds)), f"{name}: the bound is not finite: {bounds}.")
    goal = algorithm.rule.goal
    if algorithm.rule.step_size == 1 and goal == "bound":
        falls = np.diff(bounds).min()
        require(
            falls >= -1e-9 * abs(bounds[-1]), f"{name}: an update lowers the bound by {-falls}."
        )

    space = ParameterSpace(model)
    vector = jnp.asarray(space.to_vector())
    sites = initial_sites(algorithm, model, rows)
    result = evaluate(algorithm, space, vector, rows, sites)
    if goal == "bound":
        require(
            result.bound >= bounds[-1] - 1e-6 * abs(bounds[-1]),
            f"{name}: the settled bound {result.bound} is below that after {_STEPS} updates.",
        )
    require_gradient(
        lambda vector: evaluate(algorithm, space, vector, rows, sites).value,
        vector,
        result.gradient,
        f"{name}: the gradient of the profiled bound",
        rtol=1e-6,
        atol=1e-6,
    )
    _check_fit(method, model, data, name)


def _check_fit(method: SiteMethod, model: LatentGP, data: Data, name: str) -> None:
    fits = [
        fit(model, data, key=jax.random.key(1), method=method, learn_hyperparameters=False)
        for _ in range(2)
    ]
    first, second = (f.posterior.predict_f(data.X) for f in fits)
    for one, other in zip(first, second, strict=True):
        require_equal(one, other, f"{name}: two fits with one key differ")
    evidence = fits[0].posterior.log_evidence
    require(
        evidence.kind == method.algorithm(model).evidence_kind(model),
        f"{name}: the evidence is called {evidence.kind!r}.",
    )
