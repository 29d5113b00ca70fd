"""Cosines and sines of the same angles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from latentgp.numerics.waves import cosine_and_sine

EXTENDED = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


@pytest.mark.usefixtures("x64")
@pytest.mark.skipif(not EXTENDED, reason="needs numbers longer than double precision")
@pytest.mark.parametrize("reach", [1e-3, 1.0, 30.0, 1e4, 1e8])
def test_numbers_are_those_of_extended_precision(reach):
    angles = np.random.default_rng(0).uniform(-reach, reach, 20_000)
    found = jax.jit(cosine_and_sine)(angles)
    known = np.cos(angles.astype(np.longdouble)), np.sin(angles.astype(np.longdouble))
    # Half a unit in the last place by rounding, as much by the polynomial, and that of the angle.
    tolerance = np.finfo(float).eps + 0.5 * np.spacing(np.abs(angles)) * (reach > 1e6)
    for ours, exact in zip(found, known, strict=True):
        assert np.all(np.abs(np.asarray(ours) - exact) <= tolerance)


@pytest.mark.usefixtures("x64")
def test_angles_that_are_not_known_to_a_turn_stay_bounded():
    far = jnp.array([1e17, -1e30, 1e300])
    assert np.all(np.abs(np.stack(cosine_and_sine(far))) <= 1.0)
    assert np.all(np.isnan(cosine_and_sine(jnp.inf * jnp.ones(1))))


@pytest.mark.usefixtures("x64")
def test_quarters_of_a_turn_are_exact_to_the_rounding_of_the_angle():
    quarters = jnp.arange(-9, 10)
    cosine, sine = cosine_and_sine(quarters * (np.pi / 2))
    np.testing.assert_allclose(cosine, [[1, 0, -1, 0][q % 4] for q in quarters], atol=1e-14)
    np.testing.assert_allclose(sine, [[0, 1, 0, -1][q % 4] for q in quarters], atol=1e-14)


@pytest.mark.usefixtures("x64")
def test_derivatives_are_one_another():
    check_grads(cosine_and_sine, (jnp.linspace(-7.0, 7.0, 11),), order=2)


def test_single_precision_is_kept():
    angles = jnp.linspace(-20, 20, 50, dtype=jnp.float32)
    cosine, sine = cosine_and_sine(angles)
    assert cosine.dtype == sine.dtype == jnp.float32
    np.testing.assert_allclose(cosine, np.cos(np.asarray(angles)), atol=1e-6)
