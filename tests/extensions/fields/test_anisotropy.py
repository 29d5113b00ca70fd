"""Anisotropy at any angle: by turning places by hand, learned, and among neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, logm

import latentgp as lgp
from latentgp.extensions.neighbours.search import NOBODY, coordinates
from latentgp.kernels import Anisotropic
from latentgp.kernels.features import random_features
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
PLACES = RNG.uniform(-2, 2, (40, 2))


@pytest.mark.quick
@pytest.mark.parametrize(("angle", "ratio"), [(0, 3.0), (30, 5.0), (90, 2.0), (179, 4.0), (50, 1)])
def test_two_columns_are_turned_and_stretched(angle, ratio):
    kernel = Anisotropic.at_angle(lgp.Matern32(1.5, 0.7), angle, ratio)
    c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    own = PLACES @ np.array([[c, -s], [s, c]])  # along the longest range, and across
    along = lgp.Matern32([1.5 * np.sqrt(ratio), 1.5 / np.sqrt(ratio)], 0.7)
    np.testing.assert_allclose(kernel.gram(PLACES, PLACES), along.gram(own, own), atol=1e-12)
    np.testing.assert_allclose(kernel.ranges, along.lengthscale, rtol=1e-12)
    assert float(kernel.ratio) == pytest.approx(ratio)
    if ratio > 1:
        assert float(kernel.angle) == pytest.approx(angle)
        assert abs(kernel.axes[0] @ np.array([c, s])) == pytest.approx(1)


@pytest.mark.quick
def test_three_columns_have_any_ranges_along_any_axes():
    turn = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    ranges = np.array([6.0, 1.5, 0.5])
    M = logm(turn @ np.diag(ranges**2) @ turn.T)
    size = np.trace(M) / 3
    M = M - size * np.eye(3)
    stretch = [(M[0, 0] - M[1, 1]) / 2, M[0, 1], M[0, 2], M[1, 2], -M[2, 2] * np.sqrt(3) / 2]
    kernel = Anisotropic(lgp.Matern12(np.exp(size / 2)), stretch)
    np.testing.assert_allclose(kernel.ranges, ranges)
    np.testing.assert_allclose(abs(kernel.axes @ turn), np.eye(3), atol=1e-10)
    x = RNG.normal(size=(2, 3))
    apart = np.linalg.norm((x[0] - x[1]) @ turn / ranges)
    assert float(kernel(*x)) == pytest.approx(np.exp(-apart))
    steep = Anisotropic(lgp.RBF(), 4 * RNG.normal(size=5))
    expected = expm(-0.5 * np.asarray(steep._exponent(jnp.asarray(steep.stretch))))
    np.testing.assert_allclose(steep.place(np.eye(3)), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.quick
@pytest.mark.parametrize("stretch", [np.zeros(2), np.zeros(5), [0.0, 1e-9]])
def test_nothing_is_singular_without_anisotropy(stretch):
    X = RNG.normal(size=(5, 2 if len(stretch) == 2 else 3))
    X[1] = X[0]

    def total(v):
        return jnp.sum(jnp.sin(Anisotropic(lgp.Matern32(), v).gram(X, X)))

    slope, curvature = (
        jax.grad(total)(jnp.asarray(stretch)),
        jax.hessian(total)(jnp.asarray(stretch)),
    )
    steps = 1e-5 * np.eye(len(stretch))
    by_steps = [(total(stretch + e) - total(stretch - e)) / 2e-5 for e in steps]
    np.testing.assert_allclose(slope, by_steps, atol=1e-8)
    assert np.all(np.isfinite(curvature))


def test_what_is_refused():
    for kernel in (lgp.RBF([1.0, 2.0]), lgp.Periodic(), lgp.Linear(), lgp.RBF() + lgp.RBF()):
        with pytest.raises(lgp.InputError, match="one length-scale"):
            Anisotropic(kernel)
    with pytest.raises(lgp.InputError, match=r"shape \(2,\) for two columns"):
        Anisotropic(lgp.RBF(), np.zeros(3))
    with pytest.raises(lgp.InputError, match="at least 1, got"):
        Anisotropic.at_angle(lgp.RBF(), 30, 0.5)
    model = lgp.LatentGP(Anisotropic(lgp.RBF()), lgp.Gaussian())
    with pytest.raises(lgp.InputError, match="reads 2 columns of places, got 3"):
        lgp.fit(model, lgp.Data(np.zeros((2, 3)), np.zeros(2)), key=KEY)


@pytest.mark.quick
def test_neighbours_are_near_in_ranges():
    kernel = Anisotropic.at_angle(lgp.Matern12(0.5), 30, 9.0)
    X = np.random.default_rng(1).uniform(0, 5, (300, 2))
    at = np.asarray(coordinates(2.0 * kernel.on(0, 1), jnp.asarray(X), X))
    apart = np.linalg.norm(at[:, None] - at, axis=-1)
    np.testing.assert_allclose(np.exp(-apart), kernel.gram(X, X), atol=1e-6)
    own = lgp.Neighbours(6).for_rows(X, None, kernel)
    rows, place = np.asarray(own.rows_found(300))[:, 0], np.argsort(own.found.order)
    correlation = np.asarray(kernel.gram(X, X))
    for row in range(300):
        earlier = np.flatnonzero(place < place[row])
        best = np.sort(correlation[row, earlier])[::-1][:6]
        seen = rows[row][rows[row] != NOBODY]
        np.testing.assert_allclose(np.sort(correlation[row, seen])[::-1], best, rtol=1e-6)


def test_random_features_have_the_anisotropy():
    kernel = Anisotropic.at_angle(lgp.RBF(1.0, 2.0), 30, 4.0)
    phi = random_features(kernel, KEY, 2, 40_000)(PLACES[:8])
    np.testing.assert_allclose(phi @ phi.T, kernel.gram(PLACES[:8], PLACES[:8]), atol=0.06)


@pytest.mark.parametrize(
    "method",
    [
        lgp.ExactGP(),
        *slow_parameters(lgp.ExactGP(lgp.Neighbours(25)), lgp.Laplace(lgp.Neighbours(25))),
    ],
    ids=["dense", "neighbours", "latent neighbours"],
)
def test_angle_and_ratio_are_learned(method):
    truth = Anisotropic.at_angle(lgp.Matern32(1.0), 25.0, 4.0)
    X = np.random.default_rng(2).uniform(0, 8, (500, 2))
    rng = np.random.default_rng(3)
    f = np.linalg.cholesky(truth.gram(X, X) + 1e-9 * np.eye(500)) @ rng.normal(size=500)
    data = lgp.Data(X, f + 0.2 * rng.normal(size=500))
    model = lgp.LatentGP(Anisotropic(lgp.Matern32(0.5)), lgp.Gaussian(0.1))
    run = lgp.fit(model, data, method=method, key=KEY)
    found = run.model.kernel
    assert abs((float(found.angle) - 25 + 90) % 180 - 90) < 5
    assert abs(np.log(found.ratio / 4)) < 0.3
    assert abs(np.log(found.kernel.lengthscale)) < 0.3


@pytest.mark.slow
def test_axes_of_space_are_learned(tmp_path):
    truth = Anisotropic(lgp.Matern32(1.0), [0.5, 0.8, -0.6, 0.5, 0.7])
    X = np.random.default_rng(2).uniform(0, 4, (500, 3))
    rng = np.random.default_rng(3)
    f = np.linalg.cholesky(truth.gram(X, X) + 1e-9 * np.eye(500)) @ rng.normal(size=500)
    data = lgp.Data(X, f + 0.1 * rng.normal(size=500))
    model = lgp.LatentGP(Anisotropic(lgp.Matern32(1.5), np.zeros(5)), lgp.Gaussian(0.1))
    run = lgp.fit(model, data, key=KEY, method=lgp.ExactGP())
    found = run.model.kernel
    np.testing.assert_allclose(np.log(found.ranges / truth.ranges), 0, atol=0.3)
    turned = np.rad2deg(np.arccos(abs(np.sum(found.axes * truth.axes, axis=1))))
    assert turned.max() < 12
    again = lgp.load(lgp.save(run.posterior, tmp_path / "space.latentgp"))
    np.testing.assert_array_equal(again.mean_f(X[:5]), run.posterior.mean_f(X[:5]))
