"""Derivatives in learned inducing points beside finite differences."""

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations.learned_points import learned_steps
from latentgp.site_inference.search.profiled_bound import evaluate, initial_sites


def check_slopes_in_points(model, data, method, representation):
    """In a hyper-parameter and two coordinates of points, sites profiled out."""
    own = representation.initialise(data.X, None, model.kernel, jax.random.key(0))
    ready = own.for_rows(data.X, None, model.kernel)
    algorithm = method(ready).algorithm(model).until_converged()
    space, rows = ParameterSpace(model), data.to_device()
    sites = initial_sites(algorithm, model, rows)
    vector = np.append(space.to_vector(), learned_steps(own))

    def value(vector):
        return evaluate(algorithm, space, jnp.asarray(vector), rows, sites)

    gradient = np.asarray(value(vector).gradient)
    assert len(gradient) == space.size + 2 * own.number
    for place in (0, space.size, space.size + 3):
        step = 1e-4 * (np.arange(len(vector)) == place)
        difference = float(value(vector + step).value - value(vector - step).value) / 2e-4
        np.testing.assert_allclose(gradient[place], difference, rtol=2e-4, atol=2e-4)
