"""Processes in time at inducing points in space against dense algebra and inducing points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.state_space.space_time.representation import SpaceTime
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.extensions.state_space.space_time.variables import ProcessesAtPoints
from latentgp.representations.dense import Dense
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.prior_paths import posterior_paths
from latentgp.representations.site_form import SiteForm
from latentgp.sites.gaussian import GaussianSites
from learned_points import check_slopes_in_points
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")

STATIONS = np.random.default_rng(5).uniform(0, 3, (6, 2))
PRODUCT = lgp.Matern32(lengthscale=1.5, variance=1.3).on(0) * lgp.Matern52(lengthscale=0.8).on(1, 2)
KERNELS = {
    "product": PRODUCT,
    "sum": PRODUCT + lgp.Matern52(lengthscale=3.0).on(0) + 0.5 * lgp.Matern32().on(1, 2),
    "products of sums": (lgp.Matern52() + lgp.Constant(0.4)).on(0)
    * (0.7 * lgp.Matern32().on(1) + lgp.White(0.2).on(2)),
    "a sum in a product": lgp.Matern32().on(1) * (lgp.Matern52().on(0) + lgp.Linear(0.3).on(2)),
    "weighted": lgp.WeightedSum((PRODUCT, lgp.Cosine(period=3.0).on(0)), [0.4, 2.0]),
    "own": lgp.PerLatent(PRODUCT, 2.0 * (lgp.Matern52().on(0) * lgp.Matern32().on(1))),
}


def rows(latents=1, seed=0, least_gap=1e-2):
    """Irregular times, most stations missing at each, ties; and sites, some of them absent."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 10, 15))
    t[5], t[9] = t[4] + least_gap, t[8] + 4.0
    X = np.array([[a, *place] for a in t for place in STATIONS])
    X = X[rng.permutation(len(X))[:40]]
    X = np.concatenate([X, X[:4]])
    linear = rng.normal(size=(len(X), latents))
    precision = rng.uniform(0, 3, (len(X), latents))
    linear[3:8], precision[3:8] = 0.0, 0.0
    sites = GaussianSites(*map(jnp.asarray, (linear, precision, np.zeros(len(X)))))
    new = [[-1.0, 0.3, 0.3], [30.0, 0.0, 0.0], [2.0, 1.0, 1.0], [t[3], *STATIONS[2]], [5.0, 2, 2]]
    return X, sites, np.array(new)


def found(representation, kernel, X, sites, new):
    ready = representation.initialise(X, None, kernel, jax.random.key(0)).for_rows(X, None, kernel)

    def run(kernel):
        posterior = ready.condition(kernel, jnp.asarray(X), sites)
        pullback = ready.pull_back(posterior, jnp.asarray(X), sites)
        at_new = posterior.marginals(jnp.asarray(new)), posterior.covariance(jnp.asarray(new))
        evidence = posterior.log_evidence, posterior.kl, posterior.trace_term
        return evidence, (pullback.kernel, pullback.marginals), at_new

    return jax.jit(run)(jax.tree.map(jnp.asarray, kernel))


def compare(ours, theirs, tolerance):
    pairs = zip(*map(jax.tree.leaves, (ours, theirs)), strict=True)
    for one, other in pairs:
        scale = np.maximum(np.max(np.abs(other)), 1e-2)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize(
    "name", ["sum", *slow_parameters(*(name for name in KERNELS if name != "sum"))]
)
def test_points_at_all_places_are_as_dense_algebra(name):
    X, sites, new = rows(latents=2)
    theirs = found(Dense(), KERNELS[name], X, sites, new)
    places = np.unique(X[:, 1:], axis=0)
    compare(found(SpaceTime(points=places), KERNELS[name], X, sites, new), theirs, 1e-8)


@pytest.mark.slow
def test_negative_precisions_are_as_dense_algebra():
    X, sites, new = rows(latents=2)
    sites = sites._replace(precision=sites.precision.at[10, 0].set(-0.02).at[20, 1].set(-0.05))
    own, dense = SpaceTime(6).for_sites(SiteForm(signed=True)), Dense(signed=True)
    compare(*(found(r, KERNELS["own"], X, sites, new) for r in (own, dense)), 1e-8)


@pytest.mark.parametrize("power", [0.0, *slow_parameters(1.0)])
def test_fewer_points_are_as_inducing_points_at_every_time(power):
    X, sites, new = rows(least_gap=0.1)  # nearer ones need jitter in theirs
    times = np.unique(np.append(X[:, 0], new[:, 0]))
    everywhere = np.array([[time, *place] for time in times for place in STATIONS[:3]])
    both = Inducing(points=everywhere), SpaceTime(points=STATIONS[:3])
    configured = [own.for_sites(SiteForm(power=power)) for own in both]
    compare(*(found(own, PRODUCT, X, sites, new) for own in configured), 1e-8)


@pytest.mark.slow
def test_rows_that_are_not_known_have_a_step_each():
    X, sites, new = rows()
    ready = SpaceTime(points=STATIONS).initialise(X, None, PRODUCT, jax.random.key(0))

    def evidence(ready, X):
        posterior = ready.condition(PRODUCT, X, sites)
        return posterior.log_evidence, posterior.marginals(jnp.asarray(new))

    known = evidence(ready.for_rows(X, None, PRODUCT), jnp.asarray(X))
    compare(jax.jit(lambda X: evidence(ready.for_rows(X, None, PRODUCT), X))(X), known, 1e-10)


def test_slots_hold_every_row_once():
    X, _, _ = rows()
    X = np.concatenate([X, [[X[0, 0], 9.0 + k, 0.0] for k in range(30)]])
    slots = Slots.of(X, 0)
    steps, width = slots.place.shape
    assert width < 30  # the time of many places takes several steps
    assert steps == int(np.sqrt(steps)) ** 2
    assert np.all(np.diff(slots.times) >= 0)
    distinct, first = np.unique(X, axis=0, return_index=True)
    assert len(np.unique(slots.slot)) == len(np.unique(slots.slot[first])) == len(distinct)
    assert slots.is_of(X, 0)
    assert not slots.is_of(X[::-1], 0)
    sums = slots.sums(jnp.ones((2, len(X))))
    assert float(jnp.sum(sums)) == 2 * len(X)
    np.testing.assert_array_equal(slots.at_rows(sums)[0, :4], 2.0)  # seen twice


@pytest.mark.slow
def test_many_places_at_one_time_are_as_dense_algebra():
    X, sites, new = rows()
    X = np.concatenate([X, [[X[0, 0], *place] for place in STATIONS[:, ::-1]]])
    sites = jax.tree.map(lambda a: jnp.concatenate([a, a[:6] + 0.5]), sites)
    places = np.unique(X[:, 1:], axis=0)
    compare(*(found(r, PRODUCT, X, sites, new) for r in (SpaceTime(points=places), Dense())), 1e-8)


def test_single_precision_is_within_its_own_error():
    X, sites, new = rows()
    exact = found(Dense(), PRODUCT, X, sites, new)
    narrow = jax.tree.map(lambda a: np.asarray(a, np.float32), (PRODUCT, X, sites, new))
    with jax.enable_x64(False):
        ours = found(SpaceTime(6), *narrow)
        assert ours[0][0].dtype == jnp.float32
        compare(ours, exact, 5e-4)


@pytest.mark.slow
def test_little_noise_keeps_its_digits():
    X, _, new = rows(least_gap=0.1)
    X = np.unique(X, axis=0)
    f = np.linalg.cholesky(PRODUCT.gram(X, X)) @ np.random.default_rng(2).normal(size=len(X))
    data = lgp.Data(X, f)
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    model = lgp.LatentGP(PRODUCT, lgp.Gaussian(1e-8))
    own, dense = (
        lgp.fit(model, data, method=method, **settings).posterior
        for method in (lgp.CollapsedVI(SpaceTime(points=STATIONS)), lgp.ExactGP())
    )
    np.testing.assert_allclose(float(own.log_evidence), float(dense.log_evidence), rtol=1e-6)
    np.testing.assert_allclose(own.mean_f(new), dense.mean_f(new), atol=1e-6)


RULES = {
    "collapsed": (lgp.Gaussian(0.05), lgp.CollapsedVI),
    "augmented": (lgp.Bernoulli(), lgp.AugmentedVI),
    "variational": (lgp.Poisson(), lgp.VariationalInference),
    "laplace": (lgp.StudentT(), lgp.Laplace),
    "moments": (lgp.Bernoulli(), lgp.ExpectationPropagation),
    "heteroscedastic": (lgp.HeteroscedasticGaussian(), lgp.AugmentedVI),
}


def seen(likelihood):
    rng = np.random.default_rng(3)
    X, _, _ = rows(least_gap=0.1)
    f = np.sin(X[:, 0]) + X[:, 1] - 1
    if isinstance(likelihood, lgp.Bernoulli):
        return lgp.Data(X, (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-2 * f))).astype(int))
    if isinstance(likelihood, lgp.Poisson):
        return lgp.Data(X, rng.poisson(np.exp(f)))
    return lgp.Data(X, f + 0.2 * rng.normal(size=len(X)))


@pytest.mark.parametrize(
    "name", ["augmented", *slow_parameters(*(name for name in RULES if name != "augmented"))]
)
@pytest.mark.parametrize("points", [3, *slow_parameters(6)])
@pytest.mark.slow
def test_every_rule_is_as_with_other_algebra(name, points):
    """Inducing points at all times, or dense algebra where all places are points."""
    likelihood, method = RULES[name]
    data, model = seen(likelihood), lgp.LatentGP(PRODUCT, likelihood)
    X, new = data.X, np.array([[2.0, 1.0, 1.0], [12.0, 0.3, 2.0]])
    times = np.unique(np.append(X[:, 0], new[:, 0]))
    everywhere = np.array([[time, *place] for time in times for place in STATIONS[:points]])
    other = Dense() if points == 6 else Inducing(points=everywhere)
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    own, theirs = (
        lgp.fit(model, data, method=method(representation), **settings).posterior
        for representation in (SpaceTime(points=STATIONS[:points]), other)
    )
    np.testing.assert_allclose(float(own.log_evidence), float(theirs.log_evidence), rtol=1e-7)
    for one, another in zip(own.predict_f(new)[:2], theirs.predict_f(new)[:2], strict=True):
        np.testing.assert_allclose(one, another, atol=1e-6)


def test_a_search_ends_where_dense_algebra_does(tmp_path):
    model = lgp.LatentGP(PRODUCT, lgp.Gaussian(0.05))
    data, key = seen(model.likelihood), jax.random.key(0)
    own, dense = (
        lgp.fit(model, data, method=method, key=key)
        for method in (lgp.CollapsedVI(SpaceTime(6)), lgp.ExactGP())
    )
    bounds = [float(each.posterior.log_evidence) for each in (own, dense)]
    np.testing.assert_allclose(*bounds, rtol=1e-4)
    new = np.array([[2.0, 1.0, 1.0], [12.0, 0.3, 2.0]])
    np.testing.assert_allclose(own.posterior.mean_f(new), dense.posterior.mean_f(new), atol=0.02)
    drawn = own.posterior.sample_f(new, key=key, number=2_000)
    variance = own.posterior.predict_f(new).variance
    np.testing.assert_allclose(np.var(drawn, 0), variance, rtol=0.15)
    again = lgp.load(lgp.save(own.posterior, tmp_path / "posterior.latentgp"))
    np.testing.assert_array_equal(again.predict(new).mean, own.posterior.predict(new).mean)
    assert "inducing points in space" in own.posterior.latent.notes[-1]


UPDATES = {"collapsed": lgp.Gaussian(0.05), "moments": lgp.Bernoulli(), "laplace": lgp.StudentT()}


@pytest.mark.parametrize("points", [3, *slow_parameters(6)])
@pytest.mark.parametrize("rule", ["collapsed", *slow_parameters("moments", "laplace")])
def test_an_update_is_as_all_rows_at_once(rule, points, tmp_path):
    """Exactly for Gaussian noise, else from the sites so far; at new times, between and before."""
    method = RULES[rule][1](SpaceTime(points=STATIONS[:points]))
    model, new = lgp.LatentGP(PRODUCT, UPDATES[rule]), np.array([[2.0, 1, 1], [12.0, 0.3, 2.0]])
    data, key = seen(model.likelihood), jax.random.key(0)
    settings = {"key": key, "learn_hyperparameters": False, "method": method}

    def of_rows(a, b):
        return lgp.Data(data.X[a:b], data.y[a:b])

    whole = lgp.fit(model, data, **settings).posterior
    own = lgp.fit(model, of_rows(0, 20), **settings).posterior
    first = own.predict_f(new)
    for a, b in ((20, 32), (32, 44)):
        own = own.update(data.X[a:b], data.y[a:b], key=key, method=method)
    tolerance = {"rtol": 1e-8} if rule == "collapsed" else {"rtol": 0.2}
    for ours, theirs in zip(own.predict_f(new)[:2], whole.predict_f(new)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8 if rule == "collapsed" else 0.2)
    np.testing.assert_allclose(float(own.log_evidence), float(whole.log_evidence), **tolerance)
    assert np.max(np.abs(own.mean_f(new) - first.mean)) > 0.02
    again = lgp.load(lgp.save(own, tmp_path / "posterior.latentgp"))
    np.testing.assert_array_equal(again.predict(new).mean, own.predict(new).mean)
    nothing = again.update(new[:1], [0.0], weights=[1e-12], key=key)  # by the usual rule
    for ours, theirs in zip(nothing.predict_f(new)[:2], own.predict_f(new)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


def ready_for(kernel, X, points, power=0.0):
    ready = SpaceTime(points=points).for_sites(SiteForm(power=power))
    return ready.initialise(X, None, kernel, jax.random.key(0)).for_rows(X, None, kernel)


@pytest.mark.parametrize("power", [0.0, *slow_parameters(1.0)])
@pytest.mark.parametrize("name", ["sum", *slow_parameters("own")])
def test_paths_have_the_moments_of_the_posterior(name, power):
    """At rows, between and beyond times and places, for two latent functions."""
    kernel, number = KERNELS[name], 2_000
    X, sites, new = rows(latents=2)
    ready, new = ready_for(kernel, X, STATIONS[:3], power), np.concatenate([new, X[:3]])
    posterior = jax.jit(lambda sites: ready.condition(kernel, X, sites))(sites)
    sizes = {"latents": 2, "features": 1024, "number": number}
    paths = jax.jit(lambda key: posterior_paths(posterior, kernel, key, **sizes))(jax.random.key(1))
    draws = np.asarray(paths(kernel, posterior.centres, jnp.asarray(new)))
    mean, covariance = np.asarray(posterior.mean(new)), np.asarray(posterior.covariance(new))
    for q, C in enumerate(covariance):
        variance = np.diagonal(C)
        off = (draws[..., q].mean(axis=0) - mean[:, q]) / np.sqrt(variance / number)
        assert np.max(np.abs(off)) < 4
        error = np.sqrt((np.outer(variance, variance) + C**2) / number)
        assert np.max(np.abs(np.cov(draws[..., q].T) - C) / error) < 5  # features' error included
    apart = np.mean(draws[..., 0] * draws[..., 1], axis=0) - np.prod(mean, axis=1)
    assert np.max(np.abs(apart)) < 4 * np.max(np.diagonal(covariance, 0, 1, 2)) / np.sqrt(number)


@pytest.mark.parametrize("name", ["a sum in a product", *slow_parameters("product", "sum", "own")])
def test_what_rows_read_of_prior_paths_is_their_projection(name):
    """The paths themselves where all places are points."""
    kernel, sizes, (X, _, _) = KERNELS[name], {"latents": 2, "features": 16, "number": 3}, rows()
    for points in (STATIONS, STATIONS[:3]):
        own = ready_for(kernel, X, points)
        processes = ProcessesAtPoints(own.prior.points, own.slots, 0, own.truncation)
        draw = jax.jit(lambda key, own=processes: own.prior_paths(kernel, key, **sizes))
        paths, read = draw(jax.random.key(1))
        if len(points) == 6:
            np.testing.assert_allclose(read, paths(X), atol=1e-10)
        elif name == "product":
            space = lgp.Matern52(lengthscale=0.8)
            shares = np.linalg.solve(space.gram(points, points), space.gram(points, X[:, 1:]))
            grid = np.array([[time, *place] for time in X[:, 0] for place in points])
            at_points = np.reshape(paths(grid), (3, len(X), 3, 2))
            np.testing.assert_allclose(
                read, np.einsum("mn,snmq->snq", shares, at_points), atol=1e-10
            )


def test_paths_are_consistent_functions():
    model = lgp.LatentGP(PRODUCT, lgp.StudentT())
    data, new = seen(model.likelihood), np.array([[2.0, 1.0, 1.0], [12.0, 0.3, 2.0]])
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    posterior = lgp.fit(model, data, method=lgp.Laplace(SpaceTime(4)), **settings).posterior
    paths = posterior.sample_paths(key=jax.random.key(1), number=32, features=64)
    both = paths(np.concatenate([new, data.X]))
    np.testing.assert_allclose(paths(new), both[:, :2], atol=1e-12)
    off = np.mean(both, axis=0) - posterior.mean_f(np.concatenate([new, data.X]))
    assert np.max(np.abs(off)) < 5 * np.max(np.std(both, axis=0)) / np.sqrt(32)
    pure = posterior.as_jax().paths(jax.random.key(1), 32, 64)
    slopes = jax.jit(jax.grad(lambda x: pure(x[None])[0, 0]))(jnp.asarray(new[0]))
    step = np.array([0.0, 1e-5, 0.0])
    near = pure(np.array([new[0] + step, new[0] - step]))[0]
    np.testing.assert_allclose(slopes[1], (near[0] - near[1]) / 2e-5, rtol=1e-5)


@pytest.mark.slow
def test_parts_of_a_sum_are_those_of_dense_algebra():
    model = lgp.LatentGP(KERNELS["sum"], lgp.Gaussian(0.05))
    data, new = seen(model.likelihood), np.array([[2.0, 1.0, 1.0], [12.0, 0.3, 2.0]])
    settings = {"key": jax.random.key(0), "learn_hyperparameters": False}
    own, dense = (
        lgp.fit(model, data, method=method, **settings).posterior.parts(new)
        for method in (lgp.CollapsedVI(SpaceTime(6)), lgp.ExactGP())
    )
    for ours, theirs in zip(own.values(), dense.values(), strict=True):
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-8)
        np.testing.assert_allclose(ours.variance, theirs.variance, atol=1e-8)


@pytest.mark.parametrize(
    ("kernel", "settings", "words"),
    [
        (lgp.Matern32(), {}, "sees column 0, which is time"),
        (lgp.Matern32().on(0) * lgp.RBF().on(0, 1), {}, "sees column 0, which is time"),
        (lgp.RationalQuadratic().on(0) * lgp.RBF().on(1), {}, "no state-space form"),
        (lgp.Matern32().on(0) * lgp.RBF().on(1), {"time": 5}, "one of the 3 input columns"),
        (lgp.Matern32().on(0) * lgp.RBF().on(1), {"points": np.ones((4, 3))}, r"shape \(M, 2\)"),
    ],
)
def test_what_it_cannot_do_is_said(kernel, settings, words):
    own = SpaceTime(**({"number": 3} | settings))
    with pytest.raises(lgp.InputError, match=words):
        own.initialise(np.zeros((3, 3)), None, kernel, jax.random.key(0))


def test_batches_are_refused():
    with pytest.raises(lgp.InputError, match="Stochastic needs dense factors"):
        lgp.Stochastic(lgp.CollapsedVI(SpaceTime(3)))


def test_settings_are_whole_numbers():
    for settings in ({}, {"number": 0}, {"number": 3, "harmonics": 0}):
        with pytest.raises(lgp.InputError, match="SpaceTime"):
            SpaceTime(**settings)


def test_learned_points_raise_the_bound_along_its_gradient():
    """Above what a search of hyper-parameters alone ends at; slopes are finite differences."""
    likelihood, key = lgp.Gaussian(0.05), jax.random.key(0)
    model, data = lgp.LatentGP(PRODUCT, likelihood), seen(likelihood)
    held, learned = (
        lgp.fit(model, data, method=lgp.CollapsedVI(own), key=key)
        for own in (SpaceTime(2), SpaceTime(2, learn_points=True))
    )
    bounds = [float(each.posterior.log_evidence) for each in (held, learned)]
    assert bounds[1] > bounds[0] + 1
    best = learned.history.bound[np.argmax(learned.history.value)]
    assert best == pytest.approx(bounds[1], abs=1e-6)
    places = np.asarray(learned.posterior.latent.points)[:, 1:]
    again = lgp.CollapsedVI(SpaceTime(points=places))
    settings = {"key": key, "learn_hyperparameters": False}
    fixed = lgp.fit(learned.model, data, method=again, **settings).posterior
    assert float(fixed.log_evidence) == pytest.approx(bounds[1], abs=1e-6)


@pytest.mark.parametrize("name", ["collapsed", *slow_parameters("augmented", "variational")])
def test_slopes_in_points_are_finite_differences(name):
    likelihood, method = RULES[name]
    model, data = lgp.LatentGP(PRODUCT, likelihood), seen(likelihood)
    check_slopes_in_points(model, data, method, SpaceTime(3, learn_points=True))


def test_points_are_not_learned_where_they_cannot_be():
    data = seen(lgp.Bernoulli())
    for method in (lgp.Laplace, lgp.GibbsSampling):
        with pytest.raises(lgp.InputError, match=r"learn_points|points that are held"):
            lgp.fit(
                lgp.LatentGP(PRODUCT, lgp.Bernoulli()),
                data,
                method=method(SpaceTime(3, learn_points=True)),
                key=jax.random.key(0),
            )


def test_updates_know_what_points_leave_open_of_earlier_rows():
    """The evidence at other hyper-parameters is that of all rows at once, its slopes too."""
    kernels = PRODUCT, lgp.Matern32(1.0, 0.7).on(0) * lgp.Matern52(lengthscale=1.4).on(1, 2)
    method, key = lgp.CollapsedVI(SpaceTime(points=STATIONS[:3])), jax.random.key(0)
    likelihood = lgp.Gaussian(0.05)
    data, settings = seen(likelihood), {"key": key, "learn_hyperparameters": False}
    first = lgp.Data(data.X[:20], data.y[:20])
    one = lgp.fit(lgp.LatentGP(kernels[0], likelihood), first, method=method, **settings).posterior
    later = SpaceTime(points=STATIONS[:3], remembered=one.remembered())
    rest, constants = lgp.Data(data.X[20:], data.y[20:]), []
    for kernel in kernels:
        model = lgp.LatentGP(kernel, likelihood)
        both = lgp.fit(model, rest, method=lgp.CollapsedVI(later), **settings).posterior
        whole = lgp.fit(model, data, method=method, **settings).posterior
        constants.append(float(both.log_evidence) - float(whole.log_evidence))
        np.testing.assert_allclose(both.mean_f(data.X), whole.mean_f(data.X), atol=1e-8)
    np.testing.assert_allclose(constants, 0.0, atol=1e-7)
