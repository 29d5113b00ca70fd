"""Places on the globe among neighbours: the date line and the poles are places like others."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours.search import NOBODY
from latentgp.kernels import OnSphere
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)
ROWS = 300


def near(kind, rows=ROWS, seed=0):
    """Places within 15 degrees of the date line, or of a pole, some of them there twice."""
    rng = np.random.default_rng(seed)
    if kind == "date line":
        longitude, latitude = rng.uniform(165, 195, rows), rng.uniform(-15, 15, rows)
        places = np.column_stack([(longitude + 180) % 360 - 180, latitude])
        places[:4] = [[180, 1], [-180, 1], [179.999, -3], [-179.999, -3]]
        return places
    latitude = 90 - 15 * np.sqrt(rng.uniform(0, 1, rows))
    latitude = latitude if kind == "north pole" else -latitude
    places = np.column_stack([rng.uniform(-180, 180, rows), latitude])
    places[:4, 1] = np.sign(latitude[0]) * 90
    return places


def on_unit_sphere(places):
    east, north = np.deg2rad(places).T
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], 1)


PLACES = ("date line", "north pole", "south pole")


@pytest.mark.quick
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("distance", ["chord", "great-circle"])
def test_neighbours_are_near_along_the_globe(kind, distance):
    X, kernel = near(kind), OnSphere(lgp.Matern12(800.0), distance)
    own = lgp.Neighbours(8).for_rows(X, None, kernel)
    rows, place = np.asarray(own.rows_found(ROWS))[:, 0], np.argsort(own.found.order)
    apart = np.arccos(np.clip(on_unit_sphere(X) @ on_unit_sphere(X).T, -1, 1))
    across = 0
    for row in range(ROWS):
        earlier = np.flatnonzero(place < place[row])
        seen = rows[row][rows[row] != NOBODY]
        nearest = np.sort(apart[row, earlier])[:8]
        np.testing.assert_allclose(np.sort(apart[row, seen]), nearest, atol=1e-6)
        across += np.sum(np.abs(X[seen, 0] - X[row, 0]) > 180)
    assert across > 100


def simulated(X, kernel, seed=1):
    rng, one = np.random.default_rng(seed), np.eye(len(X))
    return np.linalg.cholesky(kernel.gram(X, X) + 1e-9 * one) @ rng.normal(size=len(X))


def run(method, X, y, new, likelihood):
    kernel = OnSphere(lgp.Matern32(1500.0))
    model = lgp.LatentGP(kernel, likelihood)
    found = lgp.fit(model, lgp.Data(X, y), method=method, key=KEY, learn_hyperparameters=False)
    return float(found.posterior.log_evidence), np.stack(found.posterior.predict_f(new))


METHODS = {
    "neighbours": (lgp.ExactGP, lgp.Gaussian(0.1)),
    "latent neighbours": (lgp.Laplace, lgp.Poisson()),
}


@pytest.mark.parametrize("kind", [PLACES[0], *slow_parameters(*PLACES[1:])])
@pytest.mark.parametrize("name", [*METHODS][:1] + slow_parameters(*[*METHODS][1:]))
def test_few_neighbours_are_close_to_dense_algebra_wherever_places_lie(name, kind):
    (method, likelihood), X = METHODS[name], near(kind)
    f = simulated(X, OnSphere(lgp.Matern32(1500.0)))
    rng = np.random.default_rng(2)
    poisson = name == "latent neighbours"
    y = rng.poisson(np.exp(f)) if poisson else f + 0.3 * rng.normal(size=ROWS)
    new = near(kind, rows=12, seed=3)
    evidence, at_new = run(method(), X, y, new, likelihood)
    whole, by_all = run(method(lgp.Neighbours(ROWS - 1)), X, y, new, likelihood)
    assert whole == pytest.approx(evidence, rel=1e-6)
    np.testing.assert_allclose(by_all, at_new, atol=1e-5)
    some, by_some = run(method(lgp.Neighbours(20)), X, y, new, likelihood)
    assert some == pytest.approx(evidence, abs=0.02 * ROWS)
    np.testing.assert_allclose(by_some, at_new, atol=0.05)


@pytest.mark.parametrize(
    "X", [[[180.0, 90.0]], [[180.0, 0.0]] * 3, [[e, 0.0] for e in range(175, 186)]]
)
@pytest.mark.parametrize("name", METHODS)
def test_few_places_and_places_in_a_line(name, X):
    (method, likelihood), X = METHODS[name], np.asarray(X)
    y = np.arange(len(X)) % 3.0
    new = np.array([[-179.0, 0.0], [0.0, -90.0]])
    _, at_new = run(method(), X, y, new, likelihood)
    _, ours = run(method(lgp.Neighbours(20)), X, y, new, likelihood)
    np.testing.assert_allclose(ours, at_new, atol=1e-5)
