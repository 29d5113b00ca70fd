"""Places on the globe and other columns in one distance."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.search import coordinates
from latentgp.hyperparameters.summary import lengthscales
from latentgp.kernels import MetricKernel, OnSphere, OtherColumns
from latentgp.kernels.features import random_features
from latentgp.kernels.sphere import EARTH_RADIUS
from latentgp.setup.priors import scales, weak_priors

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("x64")]
RNG = np.random.default_rng(0)
# Days far from zero, longitudes, a further column, latitudes.
ROWS = np.column_stack(
    [
        RNG.uniform(736_330, 736_420, 30),
        RNG.uniform(-180, 360, 30),
        RNG.normal(size=30),
        np.degrees(np.arcsin(RNG.uniform(-1, 1, 30))),
    ]
)
SPACE = OnSphere(lgp.Matern32(4000.0, 1.3)).on(1, 3)
KERNEL = MetricKernel(SPACE, OtherColumns((0, 2), lengthscale=[40.0, 1.5]))


def on_unit_sphere(X):
    longitude, latitude = np.radians(X[:, 1]), np.radians(X[:, 3])
    flat = np.cos(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)


def test_the_distance_is_of_all_columns():
    places = EARTH_RADIUS / 4000.0 * on_unit_sphere(ROWS)
    whole = np.column_stack([places, ROWS[:, 0] / 40.0, ROWS[:, 2] / 1.5])
    r = np.sqrt(3) * np.linalg.norm(whole[:, None] - whole[None], axis=-1)
    expected = 1.3 * (1 + r) * np.exp(-r)
    np.testing.assert_allclose(KERNEL.gram(ROWS, ROWS), expected, atol=1e-9)
    assert np.linalg.eigvalsh(np.asarray(KERNEL.symmetric_gram(ROWS)))[0] > 0
    near = np.asarray(coordinates(KERNEL, ROWS, ROWS))
    found = np.linalg.norm(near[:, None] - near[None], axis=-1)
    np.testing.assert_allclose(np.sqrt(3) * found, r, atol=1e-9)


def test_without_another_column_that_varies_it_is_the_globe():
    same = ROWS.copy()
    same[:, [0, 2]] = ROWS[0, [0, 2]]
    np.testing.assert_allclose(KERNEL.gram(same, same), SPACE.gram(same, same), rtol=1e-12)


def test_lengthscales_are_in_kilometres_and_units_of_the_columns():
    degrees = 4000.0 / (EARTH_RADIUS * np.pi / 180)
    np.testing.assert_allclose(lengthscales(KERNEL, 5), [40.0, degrees, 1.5, degrees, np.inf])
    model = lgp.LatentGP(KERNEL, lgp.Gaussian())
    priors = weak_priors(model, scales(model, lgp.Data(ROWS, ROWS[:, 2])))
    typical = np.sqrt(2) * ROWS[:, [0, 2]].std(axis=0)
    np.testing.assert_allclose(np.exp(priors["kernel.others.lengthscale"].loc), typical, rtol=0.01)
    away = EARTH_RADIUS * np.sqrt(np.sum(np.var(on_unit_sphere(ROWS), axis=0)))
    found = np.exp(priors["kernel.space.kernel.kernel.lengthscale"].loc)
    assert float(found) == pytest.approx(away, rel=0.01)


def test_random_features_are_those_of_the_distance():
    phi = random_features(KERNEL, jax.random.key(0), 4, 40_000)(ROWS[:8])
    np.testing.assert_allclose(phi @ phi.T, KERNEL.gram(ROWS[:8], ROWS[:8]), atol=0.06)


def test_slopes_are_those_of_differences():
    smooth = lgp.Functionals(KERNEL, columns=4)
    rough = lgp.Functionals(
        MetricKernel(OnSphere(lgp.Matern12()).on(1, 3), KERNEL.others), columns=4
    )
    values = lgp.functionals.values(ROWS[1:5])
    for column, step in ((0, 1e-3), (3, 1e-4)):
        moved = lgp.functionals.values(ROWS[:1] + step * np.eye(4)[column])
        both = np.concatenate([lgp.functionals.values(ROWS[:1]), moved])
        slope = lgp.functionals.derivatives(ROWS[:1], column)
        found = np.asarray(smooth.gram(values, slope))[:, 0]
        differences = np.diff(np.asarray(smooth.gram(values, both)), axis=1)[:, 0] / step
        np.testing.assert_allclose(found, differences, atol=1e-4)
        with pytest.raises(lgp.InputError, match="have no derivative"):
            rough.check_points(slope)


def test_refusals():
    for space in (lgp.Matern32().on(0, 1), OnSphere(lgp.Matern32())):
        with pytest.raises(lgp.InputError, match=r"such as OnSphere\(Matern32\(500.0\)\).on"):
            MetricKernel(space, OtherColumns((2,)))
    with pytest.raises(lgp.InputError, match="among places and others"):
        MetricKernel(SPACE, OtherColumns((3,)))
    with pytest.raises(lgp.InputError, match="by their numbers"):
        OtherColumns(("day",))
    with pytest.raises(lgp.InputError, match="in this order"):
        KERNEL.check_points(ROWS[:, [0, 1, 2, 0]])
