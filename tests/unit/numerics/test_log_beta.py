import jax.numpy as jnp
import numpy as np
from scipy.special import betaln

from latentgp.numerics.log_space import log_beta


def test_log_beta_around_eight_and_at_extreme_shapes(x64):
    a = np.array([0.1, 1.6, 7.9, 8.1, 300.0, 1e5])
    found = log_beta(jnp.asarray(a)[:, None], jnp.asarray(a))
    np.testing.assert_allclose(found, betaln(a[:, None], a), rtol=1e-13, atol=1e-9)
