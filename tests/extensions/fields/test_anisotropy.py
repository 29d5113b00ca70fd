"""Anisotropy at any angle: by turning places by hand, learned, and among neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, logm
from scipy.optimize import minimize

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


@pytest.mark.quick
def test_the_weak_prior_is_a_law_of_angle_and_ratio():
    """By quadrature over ratios and angles: log ratio and twice the angle are polar coordinates."""
    prior = Anisotropic(lgp.Matern32()).weak_prior("stretch", 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    r, angle = 5 * (nodes + 1), np.linspace(0, 180, 64, endpoint=False)
    R, double = np.meshgrid(r, np.deg2rad(2 * angle), indexing="ij")
    v = np.stack([R * np.cos(double), R * np.sin(double)], axis=-1)
    density = np.exp(np.sum(prior.log_prob(jnp.asarray(v)), axis=-1)) * R * 2 * np.pi / 64
    of_angles = 5 * weights @ density
    assert np.sum(of_angles) == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(of_angles, 1 / 64, rtol=1e-9)  # no direction is preferred
    moments = [5 * weights @ (r**p * density.sum(1)) for p in (1, 2)]
    np.testing.assert_allclose(moments, [np.sqrt(np.pi / 2), 2.0], rtol=1e-8)
    above = [np.exp(-0.5 * np.log(ratio) ** 2) for ratio in (3.2, 10.0)]  # of a law of Rayleigh
    np.testing.assert_allclose(above, [0.508, 0.071], atol=1e-3)
    drawn = prior.sample(KEY, (20_000,))
    kernels = [Anisotropic(lgp.Matern32(), one) for one in drawn[:300]]
    ratios = np.exp(np.linalg.norm(drawn, axis=1))
    np.testing.assert_allclose([float(k.ratio) for k in kernels], ratios[:300], rtol=1e-6)
    np.testing.assert_allclose(np.mean(ratios > 3.2), above[0], atol=0.015)


def test_the_weak_prior_counts_in_a_fit():
    """The stretch that is found is that of evidence times prior, by a search of its own."""
    y = np.sin(PLACES @ [1.0, 0.3]) + 0.3 * np.random.default_rng(4).normal(size=40)
    start = lgp.LatentGP(Anisotropic(lgp.RBF(1.2)), lgp.Gaussian(0.1))
    data, held = lgp.Data(PLACES, y), ["kernel.kernel", "likelihood"]

    @jax.jit
    def lost(v, scale):
        K = Anisotropic(lgp.RBF(1.2), v).gram(PLACES, PLACES) + 0.1 * jnp.eye(40)
        fit = y @ jnp.linalg.solve(K, y) + jnp.linalg.slogdet(K)[1]
        return 0.5 * fit + 0.5 * scale * jnp.sum(v**2)

    for priors, scale in (("weak", 1.0), (None, 0.0)):
        found = lgp.fit(start, data, key=KEY, method=lgp.ExactGP(), frozen=held, priors=priors)
        ends = [
            minimize(lost, v, (scale,), jac=jax.jit(jax.grad(lost)), tol=1e-9)
            for v in ([0.5, 0.5], [-1.0, 0.0])
        ]
        best = min(ends, key=lambda end: end.fun).x
        np.testing.assert_allclose(found.model.kernel.stretch, best, atol=1e-2)


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
