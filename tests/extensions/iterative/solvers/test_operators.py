"""Products in tiles against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
import linear_systems as cases
from latentgp import InputError
from latentgp.extensions.iterative.solvers.operators import (
    ShiftedOperator,
    StoredCovariance,
    TiledCovariance,
    noisy_system,
    site_system,
)

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("x64")]


@pytest.mark.parametrize("tile", [7, 100])
def test_tiles_give_the_gram_matrix(tile):
    K = TiledCovariance(cases.kernel(), jnp.asarray(cases.X), tile=tile)
    np.testing.assert_allclose(cases.matrix(K), cases.gram(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(K.diagonal(), np.diagonal(cases.gram()), rtol=1e-13)
    rows = jnp.array([5, 0, 19])
    np.testing.assert_allclose(K.columns(rows), cases.gram()[:, rows], rtol=1e-12)
    np.testing.assert_allclose(K.block(rows), cases.gram()[rows][:, rows], rtol=1e-12)


def test_stored_is_the_same():
    tiled, stored = cases.covariance(), StoredCovariance(jnp.asarray(cases.gram()))
    rows = jnp.array([5, 0, 19])
    for one, other in [
        (stored.columns(rows), tiled.columns(rows)),
        (stored.block(rows), tiled.block(rows)),
        (stored.diagonal(), tiled.diagonal()),
        (stored.times(jnp.asarray(cases.X)), tiled.times(jnp.asarray(cases.X))),
    ]:
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["noise", "sites"])
def test_systems(name):
    system = cases.systems()[name]
    np.testing.assert_allclose(cases.matrix(system), cases.dense(name, cases.gram()), atol=1e-12)
    shifted = cases.matrix(ShiftedOperator(system, jnp.asarray(0.7)))
    np.testing.assert_allclose(shifted - cases.matrix(system), 0.7 * np.eye(cases.SIZE), atol=1e-12)


def test_products_have_derivatives():
    """Forwards and backwards, through tiles that are made anew."""
    right = jnp.asarray(cases.X)

    def form(lengthscale):
        K = TiledCovariance(lgp.RBF(lengthscale=lengthscale), jnp.asarray(cases.X), tile=7)
        return jnp.sum(right[:, ::-1] * K.times(right))

    at, step = jnp.asarray(cases.LENGTHSCALE), 1e-5
    form = jax.jit(form)
    differences = [(form(at + e) - form(at - e)) / (2 * step) for e in step * jnp.eye(2)]
    np.testing.assert_allclose(jax.grad(form)(at), differences, rtol=1e-7)
    slope = jax.jvp(form, (at,), (jnp.ones(2),))[1]
    np.testing.assert_allclose(slope, np.sum(differences), rtol=1e-7)


def test_products_keep_no_matrix():
    """Working memory of a product, of 2,000 rows, is that of some tiles."""
    X = np.zeros((2000, 3))
    times = jax.jit(lambda X, right: TiledCovariance(lgp.RBF(), X).times(right))
    used = times.lower(X, X).compile().memory_analysis().temp_size_in_bytes
    assert used < 0.25 * 8 * 2000**2


def test_dtype_is_followed():
    K = jax.tree.map(jnp.float32, cases.covariance())
    assert K.times(np.float32(cases.X)).dtype == np.float32


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_noise_that_is_not_positive_is_refused(value):
    with pytest.raises(InputError, match="noise_variance has a smallest value"):
        noisy_system(cases.covariance(), value)


def test_negative_precision_is_refused():
    with pytest.raises(InputError, match="precision has a smallest value of -2"):
        site_system(cases.covariance(), jnp.full(cases.SIZE, -2.0))
