"""Places on the globe: distances far, near and at antipodes, what is a covariance, units."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.hyperparameters.summary import lengthscales
from latentgp.kernels.features import random_features
from latentgp.kernels.sphere import EARTH_RADIUS
from latentgp.setup.priors import scales, weak_priors

RNG = np.random.default_rng(0)
LATITUDES = np.degrees(np.arcsin(RNG.uniform(-1, 1, 500)))
PLACES = np.column_stack([RNG.uniform(-180, 180, 500), LATITUDES])
EXPONENTIAL = lgp.OnSphere(lgp.Matern12(500.0), "great-circle")
KEY = jax.random.key(0)


def great_circle(x, z):
    """Kilometres, by the haversine formula, which is accurate up to a quarter of the globe."""
    (a, b), (c, d) = np.radians(x), np.radians(z)
    h = np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2
    if h > 0.5:
        return np.pi * EARTH_RADIUS - great_circle(x, [z[0] - 180, -z[1]])
    return 2 * EARTH_RADIUS * np.arcsin(np.sqrt(h))


PAIRS = {
    "a metre": ([13.4, 52.5], [13.4, 52.5 + 9e-6], 0.001),
    "a centimetre": ([-70.0, 0.0], [-70.0 + 9e-8, 0.0], 1e-5),
    "a kilometre": ([13.4, 52.5], [13.41, 52.505], 1.0),
    "across 180": ([179.9, -17.0], [-179.9, -17.2], 30.0),
    "an ocean": ([-74.0, 40.7], [-9.1, 38.7], 5000.0),
    "nearly antipodes": ([13.4, 52.5], [-166.6, -52.49999], 20000.0),
    "antipodes": ([30.0, 45.0], [-150.0, -45.0], 20000.0),
    "poles": ([12.0, 90.0], [77.0, -90.0], 20000.0),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", PAIRS)
def test_distances_are_those_of_the_haversine_formula(name, x64):
    x, z, size = PAIRS[name]
    d = great_circle(x, z)
    kernel = lgp.OnSphere(lgp.Matern12(size), "great-circle")
    found = -size * np.log(np.asarray(kernel.gram(np.array([x]), np.array([z])))[0, 0])
    assert abs(found - d) < 1e-8 + 1e-11 * d  # ten micrometres
    chord = 2 * EARTH_RADIUS * np.sin(d / (2 * EARTH_RADIUS))
    straight = lgp.OnSphere(lgp.Matern12(size))
    found = -size * np.log(np.asarray(straight.gram(np.array([x]), np.array([z])))[0, 0])
    assert abs(found - chord) < 1e-8 + 1e-11 * chord


@pytest.mark.quick
@pytest.mark.parametrize("distance", ["chord", "great-circle"])
def test_a_place_has_many_longitudes(distance, x64):
    kernel = lgp.OnSphere(lgp.Matern12(10.0), distance)
    same = [([180.0, 20.0], [-180.0, 20.0]), ([350.0, -5.0], [-10.0, -5.0])]
    same += [([0.0, 90.0], [123.0, 90.0]), ([-60.0, -90.0], [60.0, -90.0])]
    for x, z in same:
        others = np.concatenate([PLACES[:5], np.add(x, [0.0, 0.01 * -np.sign(x[1])])[None]])
        one, other = (np.asarray(kernel.gram(np.array([at]), others)) for at in (x, z))
        np.testing.assert_allclose(one, other, rtol=1e-9)
        assert kernel(np.array(x), np.array(z)) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize(
    "kernel",
    [
        EXPONENTIAL,
        lgp.OnSphere(lgp.MaternHalfInteger(8000.0, degree=0), "great-circle"),
        lgp.OnSphere(lgp.RBF(2000.0)),
        lgp.OnSphere(lgp.Matern52(8000.0)),
        lgp.OnSphere(lgp.Matern32(0.3), radius=1.0),
    ],
)
def test_500_places_have_a_positive_definite_matrix(kernel, x64):
    K = np.asarray(kernel.gram(PLACES, PLACES))
    assert np.linalg.eigvalsh(0.5 * (K + K.T)).min() > -1e-12 * len(K)


def test_what_is_refused_is_no_covariance(x64):
    """Matrices of the great-circle distance that an eigenvalue tells to be none."""
    ring = np.column_stack([np.linspace(0, 360, 24, endpoint=False), np.zeros(24)])
    angle = np.asarray(
        -np.log(lgp.OnSphere(lgp.Matern12(1.0), "great-circle", 1.0).gram(ring, ring))
    )
    for kernel in (lgp.RBF(1.5), lgp.Matern52(3.0), lgp.RationalQuadratic(1.5)):
        with pytest.raises(lgp.InputError, match="no covariance, or not known") as caught:
            lgp.OnSphere(kernel, "great-circle")
        assert "\n" not in str(caught.value)
        matrix = np.asarray(kernel.correlation((angle / kernel.lengthscale) ** 2))
        assert np.linalg.eigvalsh(matrix)[0] < -1e-4


@pytest.mark.quick
def test_refusals():
    for kernel in (lgp.RBF([1.0, 2.0]), lgp.Periodic(), lgp.Linear(), lgp.RBF() + lgp.RBF()):
        with pytest.raises(lgp.InputError, match="one length-scale"):
            lgp.OnSphere(kernel)
    with pytest.raises(lgp.InputError, match="must be one of chord, great-circle"):
        lgp.OnSphere(lgp.RBF(), "haversine")
    with pytest.raises(lgp.InputError, match="radius must be in"):
        lgp.OnSphere(lgp.RBF(), radius=0.0)
    model = lgp.LatentGP(EXPONENTIAL, lgp.Gaussian())
    with pytest.raises(lgp.InputError, match=r"in this order, got \[52.5, 113.4\]"):
        lgp.fit(model, lgp.Data([[13.4, 52.5], [52.5, 113.4]], np.zeros(2)), key=KEY)
    with pytest.raises(lgp.InputError, match="reads two columns"):
        lgp.fit(model, lgp.Data(np.zeros((2, 3)), np.zeros(2)), key=KEY)


@pytest.mark.quick
def test_lengthscales_are_in_kilometres():
    """Weak priors are around the root mean square distance of the places from their centre."""
    data = lgp.Data(np.column_stack([PLACES, PLACES[:, 0]]), PLACES[:, 1])
    on_sphere = lgp.LatentGP(lgp.OnSphere(lgp.RBF()).on(0, 1), lgp.Gaussian())
    found = weak_priors(on_sphere, scales(on_sphere, data))["kernel.kernel.kernel.lengthscale"]
    points = np.asarray(lgp.OnSphere(lgp.RBF()).place(PLACES))
    expected = np.sqrt(points.var(axis=0).sum())  # kilometres
    assert float(np.exp(found.loc)) == pytest.approx(expected, rel=1e-5)
    expected = [222.39 / 111.195] * 2 + [np.inf]
    kernel = lgp.OnSphere(lgp.RBF(222.39)).on(0, 1)
    np.testing.assert_allclose(lengthscales(kernel, 3), expected, rtol=1e-5)


def test_a_fit_beside_other_columns_finds_a_smooth_surface(tmp_path):
    """Places around longitude 180, and a trend in time."""
    places = np.column_stack([RNG.uniform(170, 190, 60), RNG.uniform(-30, -10, 60)])
    places[:, 0] = (places[:, 0] + 180) % 360 - 180
    time = RNG.uniform(0, 1, 60)
    y = np.sin(np.radians(places[:, 0] * 8)) + np.cos(np.radians(places[:, 1] * 6)) + time
    X = np.column_stack([time, places])
    kernel = lgp.Linear().on(0) + lgp.OnSphere(lgp.Matern52(1000.0)).on(1, 2)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.01))
    posterior = lgp.fit(model, lgp.Data(X[:50], y[:50]), key=KEY).posterior
    assert np.sqrt(np.mean((posterior.mean_f(X[50:]) - y[50:]) ** 2)) < 0.1
    again = lgp.load(lgp.save(posterior, tmp_path / "places.latentgp"))
    np.testing.assert_array_equal(again.mean_f(X), posterior.mean_f(X))


def test_random_features_are_those_of_the_chord(x64):
    kernel = lgp.OnSphere(lgp.RBF(4000.0, 2.0))
    phi = random_features(kernel.on(0, 1), KEY, 2, 40_000)(PLACES[:8])
    np.testing.assert_allclose(phi @ phi.T, kernel.gram(PLACES[:8], PLACES[:8]), atol=0.05)
    with pytest.raises(lgp.InputError, match="of the chord alone"):
        random_features(EXPONENTIAL, KEY, 2, 100)


@pytest.mark.quick
def test_neighbours_are_found_across_180_degrees(x64):
    from latentgp.extensions.neighbours.search import coordinates

    X = np.array([[179.99, 0.0], [-179.99, 0.0], [170.0, 0.0]])
    at = np.asarray(coordinates(lgp.OnSphere(lgp.RBF(100.0)), X, X))
    assert np.linalg.norm(at[0] - at[1]) < 0.1 * np.linalg.norm(at[0] - at[2])


def test_slopes_at_a_place_are_those_of_differences():
    from latentgp import functionals

    kernel = lgp.Functionals(lgp.OnSphere(lgp.Matern52(2000.0)), columns=2)
    at, step = np.array([[10.0, 40.0]]), 1e-4
    rows = np.concatenate([functionals.values(at), functionals.values([[10.0, 40.0 + step]])])
    slope = functionals.derivatives(at, 1)
    with jax.enable_x64(True):
        values = np.asarray(kernel.gram(functionals.values(PLACES[:5]), rows))
        found = np.asarray(kernel.gram(functionals.values(PLACES[:5]), slope))[:, 0]
    np.testing.assert_allclose(found, np.diff(values, axis=1)[:, 0] / step, atol=1e-5)
    rough = lgp.Functionals(lgp.OnSphere(lgp.Matern12(2000.0)), columns=2)
    with pytest.raises(lgp.InputError, match="have no derivative"):
        rough.check_points(slope)


def test_where_longitudes_are_cut_changes_nothing():
    """Rows about the date line, by longitudes from 0 to 360 and from -180 to 180."""
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.uniform(170, 190, 60), rng.uniform(50, 60, 60)])
    y = np.sin(rows[:, 0]) + 0.1 * rng.normal(size=60)
    cut = np.column_stack([(rows[:, 0] + 180) % 360 - 180, rows[:, 1]])
    model = lgp.LatentGP(lgp.OnSphere(lgp.Matern32(500.0)), lgp.Gaussian(0.1))
    fits = [lgp.fit(model, lgp.Data(X, y), key=KEY, method=lgp.ExactGP()) for X in (rows, cut)]
    one, other = ((f.posterior.log_evidence.value, f.model.kernel.kernel.lengthscale) for f in fits)
    np.testing.assert_allclose(one, other, rtol=1e-6)
