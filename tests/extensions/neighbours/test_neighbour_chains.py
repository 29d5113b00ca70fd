"""Chains through nearest neighbours of latents against dense linear algebra."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.extensions.chains.coordinates import coordinates_at, coordinates_at_centre
from latentgp.extensions.chains.couplings.base import Place, log_joint, no_others
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.near_draws import NearDraws
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations.samplers import BlockUpdate
from latentgp.sites.gaussian import GaussianSites

ROWS = 30
rng = np.random.default_rng(0)
X = rng.uniform(0, 8, (ROWS, 2))
F = np.sin(X[:, 0]) + 0.5
SHARED = 1.5 * lgp.Matern32(lengthscale=[0.9, 1.4])
OWN = lgp.PerLatent(lgp.Matern12(0.9), 2.0 * lgp.Matern32(lengthscale=1.3))
KERNELS = {"shared": SHARED, "own": OWN}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def ready(kernel, rows=X, weights=None, number=ROWS - 1, **settings):
    own = LatentNeighbours(number, **settings)
    return own.initialise(rows, weights, kernel, jax.random.key(0)).for_rows(rows, weights, kernel)


def value_and_slope(target):
    return eqx.filter_jit(jax.value_and_grad(lambda position: target(position)))


@pytest.mark.parametrize("name", KERNELS)
def test_chains_have_the_density_of_dense_where_all_rows_are_neighbours(name):
    rows, y = X[:9], rng.normal(size=9)
    kernel = KERNELS[name]
    model = lgp.LatentGP(kernel, lgp.HeteroscedasticGaussian())
    own = ready(kernel, rows, number=8)
    order = np.asarray(own.found.order)
    space = ParameterSpace(model)
    target = WhiteTarget.of(space, own, lgp.Data(rows, y).to_device())
    dense = WhiteTarget.of(space, lgp.Dense(), lgp.Data(rows[order], y[order]).to_device())
    ours, theirs = value_and_slope(target), value_and_slope(dense)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        vector = space.to_vector() + 0.3 * generator.normal(size=space.size)
        white = generator.normal(size=(2, 9))
        value, slope = ours(Position(jnp.asarray(vector), jnp.asarray(white)))
        known, expected = theirs(Position(jnp.asarray(vector), jnp.asarray(white[:, order])))
        np.testing.assert_allclose(value, known, rtol=1e-8)
        np.testing.assert_allclose(slope.vector, expected.vector, rtol=1e-8, atol=1e-7)
        np.testing.assert_allclose(slope.white[:, order], expected.white, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("name", KERNELS)
def test_the_map_to_white_coefficients_and_its_inverse(name):
    kernel = KERNELS[name]
    whitening = eqx.filter_jit(ready(kernel, number=5).whitening)(kernel, X)
    white = rng.normal(size=(2, ROWS))
    f, variance = whitening.conditional(jnp.asarray(white))
    np.testing.assert_allclose(whitening.white_of(f), white, atol=1e-12)
    assert not variance.any()
    units = jnp.eye(ROWS)[:, None] * jnp.ones((1, 2, 1))
    matrices = jax.vmap(lambda v: whitening.conditional(v).mean)(units)
    logs = [np.linalg.slogdet(matrices[:, :, q])[1] for q in range(2)]
    assert float(whitening.log_determinant(2)) == pytest.approx(sum(logs))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("sites", "own"),
        pytest.param("partial", "own", marks=pytest.mark.slow),
        pytest.param("sites", "shared", marks=pytest.mark.slow),
    ],
)
def test_coordinates_of_sites_have_the_density_of_the_white_ones(name, kind):
    """With the Jacobian of the map between them, at other hyper-parameters than the anchor's."""
    rows, y = X[:9], rng.normal(size=9)
    kernel = KERNELS[name]
    space = ParameterSpace(lgp.LatentGP(kernel, lgp.HeteroscedasticGaussian()))
    target = WhiteTarget.of(space, ready(kernel, rows, number=4), lgp.Data(rows, y).to_device())
    anchor = coordinates_at_centre(target, kind).marginals
    vector = jnp.asarray(space.to_vector() + 0.2)
    eps = jnp.asarray(np.random.default_rng(5).normal(size=(2, 9)))

    @eqx.filter_jit
    def both():
        coordinates = coordinates_at(target, space.to_model(vector), kind, anchor)
        white = coordinates.white(eps)
        jacobian = jax.jacfwd(lambda e: coordinates.white(e))(eps).reshape(18, 18)
        known = target(Position(vector, white)) + jnp.linalg.slogdet(jacobian)[1]
        ours = log_joint(target, Place(vector, eps, coordinates, no_others(eps)))
        return ours - 0.5 * jnp.sum(eps**2), known, coordinates.of_white(white)

    ours, known, back = both()
    assert float(ours) == pytest.approx(float(known), abs=1e-9)
    np.testing.assert_allclose(back, eps, atol=1e-10)


@pytest.mark.slow
def test_absent_rows_weigh_nothing():
    """Padding, anywhere, moves neither the other latents nor the likelihood."""
    more = np.concatenate([X, X[:3] + 0.01])
    weights = np.concatenate([np.ones(ROWS), np.zeros(3)])
    white = rng.normal(size=(1, ROWS + 3))
    own, padded = ready(SHARED, number=6), ready(SHARED, more, weights, number=6)
    alone = own.whitening(SHARED, X).conditional(white[:, :ROWS]).mean
    both = padded.whitening(SHARED, more).conditional(white).mean
    np.testing.assert_allclose(both[:ROWS], alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "block"), [("own", (1,)), pytest.param("shared", (0, 1), marks=pytest.mark.slow)]
)
def test_a_draw_given_sites_is_a_solve_with_their_precision(name, block):
    """With the same noise, by matrices; the mean is where it has no noise."""
    kernel, size = KERNELS[name], len(block)
    sites = GaussianSites(
        jnp.asarray(rng.normal(size=(ROWS, 2))),
        jnp.asarray(rng.uniform(0.1, 2.0, (ROWS, 2))),
        jnp.zeros(ROWS),
    )
    own = ready(kernel, number=7)
    sampler = eqx.filter_jit(own.sampler)(kernel, X)
    start = jnp.zeros((size, ROWS))
    draw = eqx.filter_jit(
        lambda key, relaxed: (
            sampler.draw(BlockUpdate(sites, block, key, start, relaxed)).coefficients
        )
    )
    keys = jax.random.split(jax.random.key(1), 200)
    drawn = np.asarray(jax.lax.map(lambda key: draw(key, 0.0), keys))
    posterior = eqx.filter_jit(own.condition)(kernel, X, sites)
    mean, variance = np.asarray(posterior.at_rows.mean), np.asarray(posterior.at_rows.variance)
    for place, q in enumerate(block):
        error = np.sqrt(variance[:, q] / len(keys))
        assert np.abs((drawn[:, place].mean(0) - mean[:, q]) / error).max() < 4.5
        ratio = drawn[:, place].var(0) / variance[:, q]
        assert np.abs(ratio - 1).max() < 4.5 * np.sqrt(2 / len(keys))
    # Far past the mean there is next to no noise, and twice the mean less where it was.
    relaxed = draw(keys[0], 1 - 1e-14)
    np.testing.assert_allclose(relaxed, 2 * mean.T[jnp.asarray(block)], atol=1e-5)
    white = sampler.white(jnp.asarray(mean.T))
    expected = own.whitening(kernel, X).white_of(jnp.asarray(mean))
    np.testing.assert_allclose(white, expected, atol=1e-10)


def dense_conditional(kernel, f, new):
    K, cross = (np.asarray(kernel.gram(X, other)) for other in (X, new))
    solved = np.linalg.solve(K + 1e-9 * K[0, 0] * np.eye(ROWS), cross)
    return solved.T @ f, np.asarray(kernel.gram(new, new)) - cross.T @ solved


def test_predictions_from_draws_condition_on_the_rows():
    new = np.array([[1.0, 2.0], [1.2, 2.1], [4.0, 9.0]])
    own = dataclasses.replace(ready(SHARED), number_predicted=ROWS)
    model = lgp.LatentGP(SHARED, lgp.Poisson(), lgp.ConstantMean(0.3))
    g = np.random.default_rng(1).normal(size=(2, ROWS, 1))
    draws = NearDraws(model, model, False, own.rows_seen(X), g)
    other = lgp.LatentGP(0.5 * lgp.Matern32([1.2, 0.9]), lgp.Poisson(), lgp.ConstantMean(0.1))
    each = jax.tree.map(lambda *leaves: jnp.stack(leaves), model, other)
    kernels, offsets = {False: (SHARED, SHARED), True: (SHARED, other.kernel)}, (0.3, 0.1)
    for has_own, of_draws in kernels.items():
        draws = NearDraws(model, each if has_own else model, has_own, own.rows_seen(X), g)
        means, variances = eqx.filter_jit(lambda d, x: d.marginals(x))(draws, new)
        for s, kernel in enumerate(of_draws):
            mean, covariance = dense_conditional(kernel, g[s, :, 0], new)
            offset = offsets[s if has_own else 0]
            np.testing.assert_allclose(means[:, s, 0], mean + offset, atol=1e-6)
            column = s if has_own else 0
            np.testing.assert_allclose(variances[:, column, 0], np.diag(covariance), atol=1e-6)
        joint, picked = draws.joint(new, jax.random.key(2), 4000)
        mean, covariance = dense_conditional(of_draws[1], g[1, :, 0], new)
        found = np.cov(joint[picked == 1][:, :, 0].T)
        error = np.sqrt(2 * np.outer(np.diag(covariance), np.diag(covariance)) / 2000)
        assert np.abs((found - covariance) / error).max() < 4


def batch_errors(f, parts=10):
    means = f.reshape(f.shape[0] * parts, -1, *f.shape[2:]).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(len(means))


def held(method, model, y):
    key, data = jax.random.key(0), lgp.Data(X, y)
    return lgp.fit(model, data, key=key, method=method, learn_hyperparameters=False)


@pytest.mark.slow
def test_white_chains_have_the_moments_of_the_exact_posterior(tmp_path):
    model = lgp.LatentGP(SHARED, lgp.Gaussian(0.3))
    y = F + 0.5 * np.random.default_rng(2).normal(size=ROWS)
    size = {"chains": 2, "draws": 200, "warmup": 100}
    fit = held(lgp.MCMC(lgp.Neighbours(ROWS - 1), **size), model, y)
    exact = held(lgp.ExactGP(), model, y).posterior
    f, mean, variance = fit.posterior.f[..., 0], *exact.predict_f(X)
    assert np.abs((f.mean((0, 1)) - mean) / batch_errors(f)).max() < 4.5
    squares = (f - mean) ** 2
    assert np.abs((squares.mean((0, 1)) - variance) / batch_errors(squares)).max() < 4.5
    assert "neighbours that are nearest" in fit.diagnostics.verdict
    elsewhere, known = fit.posterior.predict_f(X + 0.1), exact.predict_f(X + 0.1)
    np.testing.assert_allclose(elsewhere.mean, known.mean, atol=0.25)
    lgp.save(fit.posterior, tmp_path / "chains")
    again = lgp.load(tmp_path / "chains").predict_f(X + 0.1)
    np.testing.assert_array_equal(again.variance, elsewhere.variance)


@pytest.mark.parametrize("learn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gibbs_sampling_agrees_with_dense(learn):
    y = (np.random.default_rng(3).uniform(size=ROWS) < 1 / (1 + np.exp(-2 * F))).astype(float)
    model = lgp.LatentGP(SHARED, lgp.Bernoulli())
    draws = 2000 if learn else 100
    found = []
    for representation in (lgp.Neighbours(ROWS - 1), lgp.Dense()):
        method = lgp.GibbsSampling(representation, chains=4, draws=draws, warmup=draws // 4)
        fit = lgp.fit(
            model, lgp.Data(X, y), key=jax.random.key(0), method=method, learn_hyperparameters=learn
        )
        f = fit.posterior.f[..., 0]
        found.append((f.mean((0, 1)), batch_errors(f)))
    (ours, error), (theirs, other) = found
    assert np.abs((ours - theirs) / np.hypot(error, other)).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("coupling", ["partial", "sites", "interwoven"])
def test_sampled_hyperparameters_agree_with_dense(coupling):
    y = np.random.default_rng(4).poisson(np.exp(F)).astype(float)
    model = lgp.LatentGP(SHARED, lgp.Poisson())
    size = {"chains": 4, "draws": 2000, "warmup": 500}
    methods = lgp.MCMC(lgp.Neighbours(ROWS - 1), coupling=coupling, **size), lgp.MCMC(**size)
    found = []
    for method in methods:
        posterior = lgp.fit(model, lgp.Data(X, y), key=jax.random.key(0), method=method).posterior
        logs = [np.log(v).reshape(*v.shape[:2], -1) for v in posterior.hyperparameters.values()]
        draws = np.concatenate([*logs, posterior.f[..., 0]], axis=2)
        found.append((draws.mean((0, 1)), batch_errors(draws)))
    (ours, error), (theirs, other) = found
    assert np.abs((ours - theirs) / np.hypot(error, other)).max() < 4.5


@pytest.mark.quick
def test_coordinates_by_sites_are_usual():
    assert lgp.MCMC(lgp.Neighbours(5))._coupling == "partial"
    lgp.MCMC(lgp.Neighbours(5), coupling="sites")


@pytest.mark.quick
@pytest.mark.parametrize(
    "make",
    [
        lambda own: lgp.MCMC(own, coupling="pseudo-marginal"),
        lambda own: lgp.MCMC(own, coupling="surrogate"),
        lambda own: lgp.MCMC(own, latents="riemannian-hmc"),
        lambda own: lgp.MCMC(own, hyperparameters="manifold-mala"),
        lambda own: lgp.NUTS(representation=own, coupling="sites"),
        lambda own: lgp.HMC(own, coupling="partial"),
    ],
)
def test_what_needs_dense_factors_is_refused(make):
    with pytest.raises(InputError, match=r"dense factors, but Neighbours has none.*whitened"):
        make(lgp.Neighbours(5))
