"""Priors of what mixed models add up."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

import latentgp as lgp
from latentgp.kernels import CorrelatedLinear
from latentgp.setup.priors import scales, weak_priors

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("concentration", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_prior_of_partial_correlations_is_the_lkj_law(size, concentration):
    """Densities of the correlations are numpyro's, up to a change of variables."""
    below = np.tril_indices(size, -1)
    partial = np.random.default_rng(0).uniform(-0.8, 0.8, len(below[0]))
    kernel = CorrelatedLinear(np.ones(size), partial)

    def correlations(partial):
        root = CorrelatedLinear(jnp.ones(size), partial).root()
        return root @ root.T

    own = kernel.prior_of_correlation(concentration)
    jacobian = jax.jacobian(lambda z: correlations(z)[below])(jnp.asarray(partial))
    law = dist.LKJ(size, concentration)
    expected = law.log_prob(correlations(jnp.asarray(partial)))
    expected = expected + jnp.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(jnp.sum(own.log_prob(partial)), expected, rtol=1e-9)


def test_it_is_the_default_and_another_can_be_taken():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 2)), np.arange(60) % 6])
    kernel = CorrelatedLinear([1.0, 0.5, 0.5]).on(0, 1) * lgp.kernels.SameGroup().on(2)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
    data = lgp.Data(X, X[:, 0] * X[:, 2] + 0.1 * rng.normal(size=60))
    path = "kernel.parts[0].kernel.partial_correlation"
    usual: Any = weak_priors(model, scales(model, data))[path]
    assert usual.base_dist.concentration1.tolist() == [2.5, 2.5, 2.0]
    law = CorrelatedLinear([1.0, 0.5, 0.5]).prior_of_correlation(50.0)
    kernels: list[Any] = [
        lgp.fit(model, data, key=jax.random.key(0), priors=priors, max_evaluations=20).model.kernel
        for priors in ({path: law}, {path: None})
    ]
    one, other = (own.parts[0].kernel.partial_correlation for own in kernels)
    assert np.abs(one).max() < 0.5 * np.abs(other).max()


def test_a_concentration_that_is_none_is_refused():
    with pytest.raises(lgp.InputError, match="concentration must be positive"):
        CorrelatedLinear([1.0, 1.0]).prior_of_correlation(0.0)
