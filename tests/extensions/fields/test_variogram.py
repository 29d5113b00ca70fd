"""Variograms beside brute force, gstat of R and closed forms."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.kernels.sphere import EARTH_RADIUS

fields = lgp.fields


def places_and_values():
    """Sixty places of a low-discrepancy sequence, and values, that R makes with the same lines."""
    i = np.arange(60)
    X = np.column_stack([(i * 0.618034) % 1 * 10, (i * 0.754878) % 1 * 6])
    z = np.sin(X[:, 0]) + np.cos(X[:, 1] / 2) + 0.3 * (((i * 7) % 11) / 11 - 0.5)
    return X, z


# gstat 2.1-0 of R 4.2.2, `variogram(z ~ 1, d, cutoff = 4, width = 1)`, also with `cressie = TRUE`,
# and with `width = 2, alpha = c(0, 45, 90, 135), tol.hor = 22.5`: clockwise from north.
PAIRS = [76, 203, 226, 354]
DISTANCE = [0.7253111345, 1.4366285250, 2.5124251388, 3.5569427549]
CLASSICAL = [0.08205035617, 0.31593164194, 0.96674322554, 1.60561989533]
ROBUST = [0.1020167529, 0.3619230151, 1.3268840261, 2.1394022947]
DIRECTED_PAIRS = [[76, 112], [29, 169], [26, 92], [148, 207]]
DIRECTED = [
    [0.1276349955, 1.2618150984],
    [0.1523328607, 1.6322046146],
    [0.3936177602, 0.9340296551],
    [0.3109322703, 1.3709024771],
]
# `variogram(z ~ 1, d)`, whose bins without pairs are not listed.
USUAL_PAIRS = [46, 53, 72, 16, 39, 75, 38, 53, 65, 81, 97, 19, 131]


@pytest.mark.quick
class TestBesideGstat:
    def test_both_estimators(self):
        found = fields.variogram(*places_and_values(), bins=[0, 1, 2, 3, 4])
        assert found.pairs.tolist() == [PAIRS]
        np.testing.assert_allclose(found.distance[0], DISTANCE, rtol=1e-9)
        np.testing.assert_allclose(found.classical[0], CLASSICAL, rtol=1e-9)
        np.testing.assert_allclose(found.robust[0], ROBUST, rtol=1e-9)
        assert found.is_whole

    def test_directions(self):
        ways = [90, 45, 0, 135 - 180]
        found = fields.variogram(*places_and_values(), bins=2, cutoff=4.0, directions=ways)
        assert found.tolerance == 22.5
        assert found.pairs.tolist() == DIRECTED_PAIRS
        np.testing.assert_allclose(found.classical, DIRECTED, rtol=1e-9)

    def test_usual_bins(self):
        found = fields.variogram(*places_and_values())
        assert found.pairs[found.pairs > 0].tolist() == USUAL_PAIRS


@pytest.mark.quick
class TestOnTheGlobe:
    def test_distances_are_along_great_circles(self):
        generator = np.random.default_rng(0)
        X = np.column_stack([generator.uniform(170, 190, 40), generator.uniform(50, 80, 40)])
        z = generator.normal(size=40)
        found = fields.variogram(X, z, bins=6, cutoff=1500.0, degrees=True)
        i, j = np.triu_indices(40, 1)
        longitude, latitude = np.radians(X).T
        haversine = (
            np.sin((latitude[i] - latitude[j]) / 2) ** 2
            + np.cos(latitude[i])
            * np.cos(latitude[j])
            * np.sin((longitude[i] - longitude[j]) / 2) ** 2
        )
        distance = 2 * EARTH_RADIUS * np.arcsin(np.sqrt(haversine))
        for b in range(6):
            own = (distance > 250 * b) & (distance <= 250 * (b + 1))
            assert found.pairs[0, b] == own.sum()
            assert found.distance[0, b] == pytest.approx(distance[own].mean())
            half = np.mean((z[i] - z[j])[own] ** 2) / 2
            assert found.classical[0, b] == pytest.approx(half)
        turned = X.copy()
        turned[:, 0] = (turned[:, 0] + 180) % 360 - 180
        again = fields.variogram(turned, z, bins=6, cutoff=1500.0, degrees=True)
        np.testing.assert_allclose(again.classical, found.classical)

    def test_directions_are_east_and_north(self):
        north = np.column_stack([np.full(20, 30.0), np.linspace(60, 62, 20)])
        east = np.column_stack([np.linspace(30, 34, 20), np.full(20, 60.0)])
        for line, way in ((north, 0), (east, 1)):
            found = fields.variogram(
                line, np.arange(20.0), directions=[90, 0], tolerance=5, degrees=True
            )
            assert found.pairs[way].sum() > 0
            assert found.pairs[1 - way].sum() == 0


@pytest.mark.quick
def test_pairs_of_many_places_are_drawn_and_said():
    generator = np.random.default_rng(1)
    X = generator.uniform(0, 10, (6_000, 2))
    z = np.sin(X[:, 0]) + generator.normal(size=6_000)
    every = fields.variogram(X, z, most_pairs=10**9)
    some = fields.variogram(X, z, most_pairs=400_000, key=jax.random.key(0))
    assert every.is_whole
    assert not some.is_whole
    assert some.pairs.sum() < 700_000
    assert some.pairs.min() > 1_000
    assert "drawn at random, of 6,000 to 6,000 places a bin, of 6,000." in str(some)
    # The deviation of a mean over P pairs is gamma sqrt(2 / P) and some more for shared places.
    np.testing.assert_allclose(some.classical, every.classical, rtol=0.04)
    np.testing.assert_allclose(some.distance[0, 2:], every.distance[0, 2:], rtol=0.01)
    with pytest.raises(InputError, match="17,997,000 pairs, more than most_pairs"):
        fields.variogram(X, z)


@pytest.mark.quick
def test_places_that_coincide_are_in_the_first_bin_of_every_direction():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    found = fields.variogram(X, np.array([0.0, 2.0, 1.0]), bins=[0, 0.5, 1], directions=[90, 0])
    assert found.pairs.tolist() == [[1, 0], [1, 2]]
    assert found.classical[:, 0].tolist() == [2.0, 2.0]


@pytest.mark.quick
@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"directions": [0.0]}, "read two columns, got 3"),
        ({"degrees": True}, "degrees=True reads two columns"),
        ({"bins": 2.5}, "bins must be a whole number from 1"),
        ({"tolerance": 10.0}, "give directions="),
        ({"most_pairs": 0}, "most_pairs must be a whole number from 1"),
        ({"most_pairs": "x"}, "most_pairs must be a whole number from 1, got 'x'"),
        ({"bins": "x"}, "bins must be an array of numbers"),
        ({"bins": [0.0, "x"]}, "bins must be an array of numbers"),
        ({"cutoff": "x"}, "cutoff must be a finite number, got 'x'"),
        ({"cutoff": [1.0, 2.0]}, "cutoff must be a finite number"),
        ({"directions": "x"}, "directions must be an array of numbers"),
        ({"directions": [np.nan]}, "directions has NaN"),
        ({"directions": [0.0], "tolerance": "x"}, "tolerance must be a finite number"),
        ({"bins": 0}, "bins must be a whole number from 1"),
        ({"bins": [1.0, 2.0]}, "edges that rise from zero"),
        ({"bins": [0.0, 2.0, 2.0]}, "edges that rise from zero"),
    ],
)
def test_arguments_out_of_range(given, words):
    with pytest.raises(InputError, match=words):
        fields.variogram(np.eye(3), np.ones(3), **given)
    X, z = places_and_values()
    with pytest.raises(InputError, match="tolerance from 0 to 90"):
        fields.variogram(X, z, directions=[0.0], tolerance=100.0)
    for given, words in (
        ({"distance": [-1.0]}, "must not be negative"),
        ({"distance": "x"}, "distance must be an array of numbers"),
        ({"noise_variance": None}, "noise_variance must be a finite number"),
        ({"noise_variance": -1.0}, "must not be negative"),
        ({"columns": (0, 1.5)}, "two numbers of columns"),
        ({"columns": "x"}, "two numbers of columns"),
        ({"at": "x"}, "at must be an array of numbers"),
        ({"kernel": "x"}, "kernel must be a kernel"),
        ({"kernel": lgp.PerLatent(lgp.RBF(), lgp.RBF())}, "kernel is one a latent function"),
        ({"directions": [np.inf]}, "directions has NaN or infinity"),
    ):
        with pytest.raises(InputError, match=words):
            fields.model_variogram(**{"kernel": lgp.RBF(), "distance": [1.0], **given})
    with pytest.raises(InputError, match="latitudes from -90 to 90"):
        fields.variogram([[50.0, 100.0], [51.0, 120.0]], [0.0, 1.0], degrees=True)
    for columns in ((0, 5), (1, 1)):
        with pytest.raises(InputError, match="columns must be two of the 2 inputs"):
            fields.model_variogram(lgp.RBF(), [1.0], columns=columns, at=[[0.0, 0.0]])


class TestOfAModel:
    def test_a_stationary_kernel(self):
        h = np.array([0.0, 0.5, 2.0])
        found = fields.model_variogram(lgp.Matern32(2.0, variance=3.0), h, noise_variance=0.4)
        s = np.sqrt(3) * h / 2
        expected = np.where(h > 0, 3 * (1 - (1 + s) * np.exp(-s)) + 0.4, 0)
        np.testing.assert_allclose(found.gamma[0], expected, rtol=1e-12)

    def test_directions_of_length_scales(self):
        kernel = lgp.Matern12(lengthscale=np.array([1.0, 4.0]))
        found = fields.model_variogram(kernel, [2.0], directions=[90, 0])
        np.testing.assert_allclose(found.gamma[:, 0], 1 - np.exp([-0.5, -2.0]), rtol=1e-12)

    def test_further_columns_and_kernels_that_are_not_stationary(self):
        kernel = lgp.Linear(variance=2.0).on(1) + lgp.RBF().on(0)
        at = np.array([[5.0, 0.0, 0.0], [7.0, 3.0, 1.0]])
        found = fields.model_variogram(kernel, [1.0], directions=[90], columns=(2, 1), at=at)
        # Second column up by one: (x - z)^2 / 2 for the line, nothing for the column left alone.
        np.testing.assert_allclose(found.gamma, [[1.0]], atol=1e-12)

    def test_the_globe(self):
        kernel = lgp.kernels.OnSphere(lgp.Matern12(500.0), distance="great-circle")
        at = np.array([[179.0, 70.0], [0.0, -89.0]])
        found = fields.model_variogram(kernel, [300.0], at=at, degrees=True)
        assert found.gamma[0, 0] == pytest.approx(1 - np.exp(-0.6), rel=1e-9)

    def test_places_are_those_of_the_kernel(self):
        sphere = lgp.kernels.OnSphere(lgp.Matern12(500.0))
        expected = 1 - np.exp(-2 * EARTH_RADIUS * np.sin(300 / (2 * EARTH_RADIUS)) / 500)
        found = fields.model_variogram(sphere, [300.0])
        assert found.gamma[0, 0] == pytest.approx(expected, rel=1e-9)
        further = sphere.on(2, 1) + lgp.RBF().on(0)
        found = fields.model_variogram(further, [300.0], at=np.zeros((1, 3)))
        assert found.gamma[0, 0] == pytest.approx(expected, rel=1e-9)

    def test_it_is_the_expectation_of_the_empirical_one(self):
        generator = np.random.default_rng(2)
        X = generator.uniform(0, 10, (150, 2))
        kernel = lgp.Matern32(lengthscale=np.array([3.0, 1.0]))
        covariance = np.asarray(kernel.gram(X, X)) + 0.2 * np.eye(150)
        values = generator.multivariate_normal(np.zeros(150), covariance, size=400)
        settings = {"bins": 5, "cutoff": 4.0, "directions": [0, 90], "tolerance": 10.0}
        every = np.stack([fields.variogram(X, z, **settings).classical for z in values])
        distance = fields.variogram(X, values[0], **settings).distance
        curve = [
            fields.model_variogram(kernel, distance[a], directions=[way], noise_variance=0.2)
            for a, way in enumerate([0, 90])
        ]
        error = every.std(axis=0) / np.sqrt(len(every))
        mean = np.concatenate([each.gamma for each in curve])
        # Beyond chance, pairs up to 10 degrees beside the direction and over the width of a bin.
        assert np.all(np.abs(every.mean(axis=0) - mean) < 4 * error + 0.04)
