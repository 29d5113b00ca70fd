"""Chains through processes at points in space: conditional draws, the joint law, dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import LogNormal, Normal

import latentgp as lgp
from latentgp.extensions.chains.copies import Copies
from latentgp.extensions.chains.gibbs import GibbsSampler, GibbsState
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations.samplers import BlockUpdate
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.sites.gaussian import GaussianSites, Rows
from problems import mean_and_error
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

LIMIT = 4.5  # standard errors
STATIONS = np.random.default_rng(5).uniform(0, 3, (4, 2))
PRODUCT = lgp.Matern32(lengthscale=1.5, variance=1.3).on(0) * lgp.Matern52(lengthscale=0.8).on(1, 2)
KERNELS = {
    "sum": PRODUCT + lgp.Matern52(lengthscale=3.0).on(0),
    "own": lgp.PerLatent(PRODUCT, 2.0 * (lgp.Matern12().on(0) * lgp.Matern32().on(1))),
}


def rows():
    """Irregular times, stations missing at each, a row twice."""
    t = np.array([0.0, 0.4, 1.5, 1.6, 4.0, 9.0])
    X = np.array([[a, *place] for a in t for place in STATIONS])
    X = X[np.random.default_rng(0).permutation(len(X))[:15]]
    return np.concatenate([X, X[:1]])


def ready_for(kernel, X, points):
    own = lgp.SpaceTime(points=points).initialise(X, None, kernel, jax.random.key(0))
    return own.for_rows(X, None, kernel)


@pytest.mark.parametrize("points", [2, *slow_parameters(4)])
@pytest.mark.parametrize("name", ["own", *slow_parameters("sum")])
def test_draws_given_sites_have_the_moments_of_the_posterior(name, points):
    """Of both latent functions and of one alone, with a site that is all but exact."""
    kernel, X, number = KERNELS[name], rows(), 4_000
    generator = np.random.default_rng(1)
    linear, precision = generator.normal(size=(16, 2)), generator.uniform(0, 3, (16, 2))
    linear[3], precision[3], linear[5], precision[5] = 0.0, 0.0, 0.7e10, 1e10
    sites = GaussianSites(*map(jnp.asarray, (linear, precision, np.zeros(16))))
    ready = ready_for(kernel, X, STATIONS[:points])
    posterior = ready.condition(kernel, jnp.asarray(X), sites)
    read, of_f = posterior.of_states(posterior.prepared), posterior.at_rows
    for block in ((0, 1), (1,)):

        @jax.jit
        def drawn(key, block=block):
            own = ready.sampler(kernel, jnp.asarray(X))
            start = jnp.zeros((len(block), len(own.centres)))

            def one(key):
                of_states, at_rows = jax.random.split(key)
                found = own.draw(BlockUpdate(sites, block, of_states, start)).coefficients
                return own.whitening.at_rows(found, block).T, own.at_rows(found, block, at_rows)

            return jax.lax.map(one, jax.random.split(key, number), batch_size=100)

        for draws, law in zip(drawn(jax.random.key(2)), (read, of_f), strict=True):
            mean, variance = (np.asarray(a)[:, list(block)] for a in law)
            off = (np.mean(draws, axis=0) - mean) / np.sqrt(variance / number)
            assert np.max(np.abs(off)) < LIMIT
            error = np.sqrt(2 / number) * variance
            assert np.max(np.abs(np.var(draws, axis=0) - variance) / error) < LIMIT


@pytest.mark.parametrize("likelihood", [lgp.Bernoulli(), *slow_parameters(lgp.StudentT(0.6, 5.0))])
@pytest.mark.parametrize("update", ["slice", *slow_parameters("metropolis", None)])
def test_sweeps_leave_the_joint_law_as_it_is(likelihood, update):
    """Geweke's (2004) test, all places being points; None holds hyper-parameters."""
    chains, sweeps, origin = 600, 20, np.array([0, 0, 1, 2, 3])
    X = np.array([[0.0, 0, 0], [0.7, 1, 0], [0.7, 0, 0], [2.0, 1, 0]])
    kernel = lgp.Matern32(1.0, 3.0).on(0) * lgp.Matern52(0.7).on(1, 2)
    model = lgp.LatentGP(kernel, likelihood, lgp.ConstantMean(0.3))
    known, ready = parameters(model), ready_for(kernel, X, np.unique(X[:, 1:], axis=0))
    priors = {
        path: Normal(info.value, 0.5) if "mean" in path else LogNormal(np.log(info.value), 0.3)
        for path, info in known.items()
    }
    space = ParameterSpace(model, frozen=() if update else tuple(known), priors=priors)
    centre = space.to_vector()
    spread = np.array([0.5 if "mean" in label else 0.3 for label, _ in space.entries()])
    data = lgp.Data(X, np.zeros(4)).to_device()
    size = len(ready.whitening(kernel, jnp.asarray(X)).centres)

    def observed(vector, f, key):
        draw = space.to_model(vector).likelihood.sample
        return jax.vmap(draw)(jax.random.split(key, 5), f[origin], {})

    def from_prior(key):
        key_vector, key_white, key_y = jax.random.split(key, 3)
        vector = centre + spread * jax.random.normal(key_vector, centre.shape)
        own, white = space.to_model(vector), jax.random.normal(key_white, (1, size))
        f = own.mean(data.X) + ready.whitening(own.kernel, data.X).conditional(white).mean
        return GibbsState(vector, f, white, jnp.log(0.4)), observed(vector, f, key_y)

    def turn(joint, key):
        state, y = joint
        key_sweep, key_y = jax.random.split(key)
        copies = Copies(Rows(y, None, {}), origin)
        settings = jnp.asarray(centre), update or "slice"
        own = GibbsSampler(
            ready, AugmentationRule(), space, data, copies, *settings, over_relaxation=0.3
        )
        state, _ = own.sweep(state, key_sweep)
        joint = state, observed(state.vector, state.f, key_y)
        return joint, figures(joint)

    def figures(joint):
        (vector, f, white, _), y = joint
        squashed = (y / (1 + jnp.abs(y)))[:, None]
        products = f**2, f * jnp.roll(f, 1, 0), f[origin] * squashed, squashed**2, white, white**2
        about = vector, vector**2, vector * jnp.sum(f**2), vector * jnp.sum(squashed**2)
        return jnp.concatenate([a.ravel() for a in (f, squashed, *products, *about)])

    @jax.jit
    def differences(key):
        def chain(key):
            key_prior, key_chain = jax.random.split(key)
            draws = jax.vmap(from_prior)(jax.random.split(key_prior, sweeps + 1))
            independent = jax.vmap(figures)(jax.tree.map(lambda a: a[1:], draws))
            start = jax.tree.map(lambda a: a[0], draws)
            _, dependent = jax.lax.scan(turn, start, jax.random.split(key_chain, sweeps))
            return jnp.mean(dependent - independent, axis=0)

        return jax.vmap(chain)(jax.random.split(key, chains))

    found = np.asarray(differences(jax.random.key(7)))
    error = np.std(found, axis=0, ddof=1) / np.sqrt(chains)
    assert np.max(np.abs(np.mean(found, axis=0)) / np.where(error > 0, error, 1.0)) < LIMIT


def counted():
    rng, X = np.random.default_rng(3), rows()
    f = np.sin(X[:, 0]) + X[:, 1] - 1
    return lgp.Data(X, (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-2 * f))).astype(int))


METHODS = {
    "gibbs": lambda own: lgp.GibbsSampling(own, draws=800, warmup=100, thin=2),
    "nuts": lambda own: lgp.NUTS(representation=own, draws=800, warmup=300),
    "slices": lambda own: lgp.EllipticalSlice(own, draws=800, warmup=300, thin=4),
}


@pytest.mark.parametrize("name", ["gibbs", *slow_parameters("nuts", "slices")])
def test_chains_are_those_of_dense_algebra(name, tmp_path):
    """All places being points; at the rows, between them, and after the last one."""
    model, data, key = lgp.LatentGP(PRODUCT, lgp.Bernoulli()), counted(), jax.random.key(1)
    settings, new = (
        {"key": key, "learn_hyperparameters": False},
        np.array([[2.0, 1, 1], [12, 0.3, 2]]),
    )
    own, dense = (
        lgp.fit(model, data, method=method, **settings).posterior
        for method in (METHODS[name](lgp.SpaceTime(4)), lgp.GibbsSampling(draws=800, thin=4))
    )
    pairs = [mean_and_error(np.concatenate([p.f, p.f**2], axis=3)[..., :2]) for p in (own, dense)]
    (a, a_error), (b, b_error) = pairs
    assert np.max(np.abs(a - b) / np.hypot(a_error, b_error)) < LIMIT
    ours, theirs = (p.predict_f(new) for p in (own, dense))
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=0.15)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=0.15)
    drawn = own.sample_f(np.concatenate([new, new]), key=key, number=400)
    np.testing.assert_allclose(drawn[:, :2], drawn[:, 2:], atol=1e-3)  # joint draws
    again = lgp.load(lgp.save(own, tmp_path / "posterior.latentgp"))
    np.testing.assert_array_equal(again.predict(new).mean, own.predict(new).mean)


def test_fewer_points_are_as_inducing_points_at_every_time():
    model, data, key = lgp.LatentGP(PRODUCT, lgp.Bernoulli()), counted(), jax.random.key(1)
    everywhere = np.array([[t, *z] for t in np.unique(data.X[:, 0]) for z in STATIONS[:2]])
    settings = {"key": key, "learn_hyperparameters": False}
    own, theirs = (
        lgp.fit(model, data, method=METHODS["gibbs"](representation), **settings).posterior.f
        for representation in (lgp.SpaceTime(points=STATIONS[:2]), lgp.Inducing(points=everywhere))
    )
    (a, a_error), (b, b_error) = map(mean_and_error, (own[..., 0], theirs[..., 0]))
    assert np.max(np.abs(a - b) / np.hypot(a_error, b_error)) < LIMIT
    np.testing.assert_allclose(np.var(own, axis=(0, 1)), np.var(theirs, axis=(0, 1)), rtol=0.2)


def test_what_chains_cannot_do_is_said():
    model, data = lgp.LatentGP(PRODUCT, lgp.HeteroscedasticGaussian()), counted()
    with pytest.raises(lgp.InputError, match="sampled through inducing points only with power=0"):
        lgp.fit(model, data, method=lgp.GibbsSampling(lgp.SpaceTime(3)), key=jax.random.key(0))
