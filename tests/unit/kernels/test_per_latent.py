"""Own kernels and prior means: one for each latent function."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp import persistence
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations import log_evidence
from latentgp.representations.inducing.selection import select_points
from latentgp.representations.prior_paths import prior_paths
from latentgp.setup.priors import scales, search_bounds, weak_priors
from latentgp.site_inference.search.profiled_bound import converge, evaluate, initial_sites
from latentgp.sites.gaussian import GaussianSites
from latentgp.testing import check_method
from latentgp.testing.numerics import require_gradient
from problems import KERNEL, SMOOTH, Heteroscedastic, X, regression

KEY = jax.random.key(0)
NEW = np.random.default_rng(5).normal(size=(6, 2))
DATA = lgp.Data(X, SMOOTH)
PARTS = (
    lgp.RBF(lengthscale=0.5),
    lgp.Matern32(lengthscale=[0.4, 2.0], variance=3.0),
    lgp.RBF(lengthscale=0.9, variance=0.2),
    lgp.RBF(lengthscale=[0.5, 2.0]),
    2.0 * lgp.RBF().on(1),
    lgp.Matern32(lengthscale=[1.4, 0.2]),
    2.0 * lgp.RBF().on(0),
)
OWN = lgp.PerLatent(*PARTS)
TWO = lgp.PerLatent(lgp.RBF(lengthscale=0.6), lgp.Matern52(lengthscale=1.5, variance=0.4))
REPRESENTATIONS = {"dense": lgp.Dense(), "inducing": lgp.Inducing(points=X[:5] + 0.1)}


def heteroscedastic(kernel=TWO):
    mean = lgp.PerLatentMean(lgp.ZeroMean(), lgp.ConstantMean(-1.0))
    return lgp.LatentGP(kernel, Heteroscedastic(), mean)


@pytest.fixture(scope="module", params=REPRESENTATIONS)
def fitted(request):
    method = lgp.VariationalInference(REPRESENTATIONS[request.param])
    return lgp.fit(heteroscedastic(), DATA, key=KEY, method=method, max_evaluations=30)


class TestGram:
    @pytest.mark.slow
    @pytest.mark.parametrize("compiled", [False, True])
    def test_each_block_is_that_of_the_part(self, x64, compiled):
        wrap = jax.jit if compiled else lambda f: f
        for name, points in {"gram": (X, NEW), "symmetric_gram": (X,), "diagonal": (X,)}.items():
            blocks = wrap(lambda kernel, *p, name=name: getattr(kernel, name)(*p))(OWN, *points)
            each = [getattr(part, name)(*points) for part in PARTS]
            assert blocks.shape == (len(PARTS), *each[0].shape)
            np.testing.assert_allclose(blocks, np.stack(each), rtol=1e-12, atol=1e-14)

    def test_kernels_alike_are_computed_together(self, x64):
        def exponentials(number):
            kernel = lgp.PerLatent(*[lgp.RBF(lengthscale=1.0 + i) for i in range(number)])
            return str(jax.make_jaxpr(lambda k: k.gram(X, NEW))(kernel)).count(" exp ")

        assert exponentials(2) == exponentials(9) == 1

    def test_the_dtype_is_kept(self, x64):
        kernel = jax.tree.map(np.float32, TWO)
        assert kernel.gram(X.astype(np.float32), NEW.astype(np.float32)).dtype == np.float32

    def test_kernels_without_parameters(self, x64):
        kernel = lgp.PerLatent(Brownian(), Brownian())
        np.testing.assert_allclose(kernel.gram(X, NEW)[1], Brownian().gram(X, NEW))
        model = lgp.LatentGP(kernel, Heteroscedastic())
        fit = lgp.fit(model, DATA, key=KEY, learn_hyperparameters=False)
        assert fit.posterior.predict_f(NEW).mean.shape == (6, 2)


class Brownian(lgp.Kernel):
    """A user's kernel that has nothing to learn."""

    def __call__(self, x, z):
        return jnp.sum(jnp.minimum(jnp.abs(x), jnp.abs(z)) * (jnp.sign(x) == jnp.sign(z)))


class TestErrors:
    @pytest.mark.parametrize("own", [lgp.PerLatent, lgp.PerLatentMean])
    def test_no_part(self, own):
        with pytest.raises(lgp.InputError, match=r"takes one (Kernel|Mean) for each latent"):
            own()

    # What follows is checked in production; in the tests, annotations are checked before it.
    @pytest.mark.parametrize("part", [3.0, lgp.ZeroMean(), TWO, [lgp.RBF(), lgp.RBF()]])
    def test_a_part_that_is_no_kernel(self, part):
        given = SimpleNamespace(parts=(lgp.RBF(), part), part_type=lgp.Kernel)
        with pytest.raises(lgp.InputError, match="takes one Kernel for each latent function"):
            lgp.PerLatent.__mro__[1].__check_init__(given)

    def test_a_mean_within_a_mean(self):
        with pytest.raises(lgp.InputError, match="takes one Mean for each latent function"):
            lgp.PerLatentMean(lgp.PerLatentMean(lgp.ZeroMean()))

    @pytest.mark.parametrize(
        ("kernel", "mean", "sentence"),
        [
            (OWN, lgp.ZeroMean(), "has 2 latent function.*PerLatent was given 7 part"),
            (TWO, lgp.PerLatentMean(lgp.ZeroMean()), "2 latent.*PerLatentMean was given 1 part"),
        ],
    )
    def test_another_number_than_that_of_the_latent_functions(self, kernel, mean, sentence):
        with pytest.raises(lgp.InputError, match=sentence):
            lgp.LatentGP(kernel, Heteroscedastic(), mean)

    def test_a_model_whose_kernel_is_none(self):
        given = SimpleNamespace(kernel=3.0, likelihood=Heteroscedastic(), mean=lgp.ZeroMean())
        with pytest.raises(lgp.InputError, match=r"kernel must be a latentgp kernel.*got 3\.0"):
            lgp.LatentGP.__check_init__(given)

    def test_inputs_that_do_not_fit(self):
        with pytest.raises(lgp.InputError, match="the inputs have 1 columns"):
            lgp.fit(heteroscedastic(lgp.PerLatent(*PARTS[:2])), lgp.Data(X[:, :1], SMOOTH), key=KEY)

    @pytest.mark.parametrize("combine", [lambda k: k + TWO, lambda k: k * TWO])
    def test_algebra_with_one_kernel(self, combine):
        with pytest.raises(lgp.InputError, match="combined with kernels and numbers, got PerLat"):
            combine(lgp.RBF())


class TestParameters:
    def test_paths_say_whose_they_are(self):
        known = lgp.parameters(heteroscedastic())
        assert {path: info.latent for path, info in known.items()} == {
            "kernel.parts[0].lengthscale": 0,
            "kernel.parts[0].variance": 0,
            "kernel.parts[1].lengthscale": 1,
            "kernel.parts[1].variance": 1,
            "mean.parts[1].value": 1,
        }
        shared = lgp.parameters(regression()).values()
        assert all(info.latent is None for info in shared)

    def test_they_are_replaced_frozen_and_flattened(self, x64):
        model = lgp.replace(heteroscedastic(), {"kernel.parts[1].lengthscale": [0.3, 0.4]})
        assert model.kernel.parts[1].lengthscale.tolist() == [0.3, 0.4]
        assert model.kernel.parts[0].lengthscale == 0.6
        space = ParameterSpace(model, frozen=("kernel.parts[0]", "mean"))
        assert space.size == 3
        moved = space.to_model(jnp.asarray(space.to_vector()) + 1.0)
        np.testing.assert_allclose(moved.kernel.parts[1].variance, 0.4 * np.e)
        assert moved.kernel.parts[0].variance == 1.0

    def test_one_kernel_given_twice_is_learned_twice(self, x64):
        space = ParameterSpace(lgp.PerLatent(KERNEL, KERNEL))
        moved = space.to_model(jnp.arange(6.0))
        assert moved.parts[0].scale != moved.parts[1].scale

    def test_scales_are_those_of_the_parameters_own_latent_function(self):
        class Scaled(Heteroscedastic):
            def latent_scale(self, spread):
                return 10.0 * spread, 0.5

        model = lgp.LatentGP(TWO, Scaled())
        scale = scales(model, DATA)
        spread = DATA.y.std()
        np.testing.assert_allclose(scale.latent, [10 * spread, 0.5])
        paths = [f"kernel.parts[{q}].variance" for q in (0, 1)]
        priors = weak_priors(model, scale)
        expected = 2 * np.log(scale.latent)
        np.testing.assert_allclose([priors[p].loc for p in paths], expected, rtol=1e-6)
        with jax.enable_x64(True):
            space = ParameterSpace(
                model, frozen=[p for p in lgp.parameters(model) if p not in paths]
            )
            lower, upper = search_bounds(space, scale)
        np.testing.assert_allclose((lower + upper) / 2, expected)
        shared = weak_priors(lgp.LatentGP(KERNEL, Scaled()), scale)
        np.testing.assert_allclose(shared["kernel.kernel.variance"].loc, expected[0], rtol=1e-6)

    def test_one_scale_is_that_of_every_latent_function(self):
        assert scales(heteroscedastic(), DATA).latent.tolist() == [2.0, 2.0]


def test_prior_means_are_side_by_side(x64):
    mean = lgp.PerLatentMean(lgp.ConstantMean(3.0), lgp.LinearMean([1.0, -1.0]))
    np.testing.assert_allclose(mean(X), np.stack([np.full(11, 3.0), X[:, 0] - X[:, 1]], axis=1))


@pytest.mark.parametrize("representation", REPRESENTATIONS)
class TestEqualParts:
    """Own kernels that happen to be equal are the shared one."""

    def ready(self, representation, kernel):
        model = heteroscedastic(kernel)
        algorithm = lgp.VariationalInference(REPRESENTATIONS[representation]).algorithm(model)
        algorithm = dataclasses.replace(algorithm, tolerance=1e-13, max_updates=100)
        rows = DATA.to_device()
        return algorithm, model, rows, initial_sites(algorithm, model, rows)

    def test_posteriors(self, x64, representation):
        shared, own = (
            converge(*self.ready(representation, kernel))
            for kernel in (KERNEL, lgp.PerLatent(KERNEL, KERNEL))
        )
        np.testing.assert_allclose(own.bound, shared.bound, rtol=1e-10)
        for name in ("log_evidence", "kl", "jitter", "trace_term"):
            one, other = (getattr(s.posterior, name) for s in (own, shared))
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
        for one, other in zip(
            own.posterior.marginals(NEW), shared.posterior.marginals(NEW), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
        for points in (NEW, X):
            np.testing.assert_allclose(
                own.posterior.covariance(points), shared.posterior.covariance(points), atol=1e-10
            )

    def test_gradients(self, x64, representation):
        found = []
        for kernel in (KERNEL, lgp.PerLatent(KERNEL, KERNEL)):
            algorithm, model, rows, sites = self.ready(representation, kernel)
            space = ParameterSpace(model, frozen=("mean",))
            vector = jnp.asarray(space.to_vector())
            found.append(evaluate(algorithm, space, vector, rows, sites))
        shared, own = found
        np.testing.assert_allclose(own.bound, shared.bound, rtol=1e-10)
        total = own.gradient.reshape(2, -1).sum(axis=0)
        np.testing.assert_allclose(total, shared.gradient, rtol=1e-10, atol=1e-10)
        assert np.abs(own.gradient[:3] - own.gradient[3:]).max() > 1e-3

    def test_a_single_latent_function(self, x64, representation):
        ready = REPRESENTATIONS[representation]
        sites = GaussianSites(jnp.asarray(SMOOTH)[:, None], jnp.ones((11, 1)), jnp.zeros(11))
        one, other = (
            log_evidence(ready, kernel, X, sites) for kernel in (KERNEL, lgp.PerLatent(KERNEL))
        )
        np.testing.assert_allclose(one, other, rtol=1e-12)


class TestJitter:
    """Points so near each other that K_mm needs jitter, which is relative to each scale."""

    POINTS = lgp.Inducing(points=np.linspace(0, 1, 12)[:, None])
    INPUTS = np.linspace(0, 1, 30)[:, None]

    def problem(self, scale):
        generator = np.random.default_rng(0)
        linear, precision = generator.normal(size=(30, 2)), generator.uniform(0.5, 2.0, (30, 2))
        units = np.array([1.0, scale])
        sites = GaussianSites(
            *map(jnp.asarray, (linear / units, precision / units**2)), jnp.zeros(30)
        )
        kernel = lgp.PerLatent(lgp.RBF(), lgp.RBF(variance=scale**2))
        return kernel, sites

    @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
    def test_units_of_one_latent_function_change_nothing(self, x64, scale):
        kernel, sites = self.problem(scale)
        own = self.POINTS.condition(kernel, self.INPUTS, sites)
        shared = self.POINTS.condition(lgp.RBF(), self.INPUTS, self.problem(1.0)[1])
        assert shared.jitter > 0
        np.testing.assert_allclose(own.jitter, shared.jitter * max(1.0, scale**2), rtol=1e-10)
        np.testing.assert_allclose(own.log_evidence, shared.log_evidence, rtol=1e-6)

    def test_the_gradient_takes_it_along(self, x64):
        kernel, sites = self.problem(3.0)
        space = ParameterSpace(kernel)
        value = jax.jit(lambda v: log_evidence(self.POINTS, space.to_model(v), self.INPUTS, sites))
        vector = jnp.asarray(space.to_vector())
        gradient = jax.grad(value)(vector)
        require_gradient(value, vector, gradient, "the gradient with jitter", rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_a_method_conforms(representation):
    check_method(lgp.VariationalInference(REPRESENTATIONS[representation]), heteroscedastic(), DATA)


@pytest.mark.slow
def test_a_fit_learns_each_kernel(fitted):
    kernel = fitted.model.kernel
    assert kernel.parts[0].lengthscale != 0.6
    assert kernel.parts[1].lengthscale != 1.5
    assert fitted.history.value.max() > fitted.history.value[0]
    assert np.isfinite(fitted.posterior.log_evidence.value)


def test_predictions_have_the_latents_in_order(fitted):
    mean, variance = fitted.posterior.predict_f(NEW)
    far = fitted.posterior.predict_f(NEW + 1e3)
    assert mean.shape == variance.shape == (6, 2)
    with jax.enable_x64(True):
        prior = fitted.model.kernel.diagonal(NEW).T
        np.testing.assert_allclose(far.variance, prior, rtol=1e-9)
        np.testing.assert_allclose(far.mean, fitted.model.mean(NEW), atol=1e-9)
    np.testing.assert_allclose(fitted.posterior.mean_f(NEW), mean, rtol=1e-9, atol=1e-12)


def test_draws_and_paths_have_the_posterior_moments(fitted):
    mean, variance = fitted.posterior.predict_f(NEW)
    number = 600
    draws = fitted.posterior.sample_f(NEW, key=KEY, number=number)
    values = fitted.posterior.sample_paths(key=KEY, number=number, features=128)(NEW)
    for sample in (draws, values):
        assert sample.shape == (number, 6, 2)
        error = np.sqrt(variance / number)
        assert np.all(np.abs(sample.mean(axis=0) - mean) < 5 * error + 0.01)
        np.testing.assert_allclose(sample.var(axis=0), variance, rtol=0.35)


def test_draws_of_the_prior_have_the_covariance_of_each_part(x64):
    parts = (lgp.RBF(0.6), lgp.RBF(0.5) + lgp.Linear(), lgp.RBF(2.0, 9.0), 2.0 * lgp.RBF().on(1))
    kernel, number = lgp.PerLatent(*parts), 4000

    @jax.vmap
    def draw(key):
        return prior_paths(kernel, key, inputs=2, latents=4, features=32, number=1)(NEW)[0]

    draws = np.asarray(draw(jax.random.split(KEY, number)))
    assert draws.shape == (number, 6, 4)
    for q, part in enumerate(parts):
        K = np.asarray(part.gram(NEW, NEW))
        error = np.sqrt((np.outer(np.diagonal(K), np.diagonal(K)) + K**2) / number)
        assert np.all(np.abs(np.cov(draws[:, :, q].T) - K) < 5 * error)
    between = np.corrcoef(draws[:, 0].T) - np.eye(4)
    assert np.abs(between).max() < 5 / np.sqrt(number)


def test_saved_and_loaded_it_predicts_the_same_bits(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "_REGISTERED", {})
    persistence.register(Heteroscedastic)
    loaded = lgp.load(lgp.save(fitted, tmp_path / "fit"))
    for one, other in zip(
        loaded.posterior.predict_f(NEW), fitted.posterior.predict_f(NEW), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert lgp.parameters(loaded.model).keys() == lgp.parameters(fitted.model).keys()


class TestSelection:
    LONG = lgp.RBF(lengthscale=[0.1, 10.0])
    WIDE = lgp.RBF(lengthscale=[10.0, 0.1], variance=100.0)

    def points(self, kernel):
        inputs = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
        return select_points(inputs, None, kernel, 20, "greedy-variance", KEY)

    def test_equal_kernels_choose_as_the_shared_one(self, x64):
        own = lgp.PerLatent(self.LONG, self.LONG)
        np.testing.assert_array_equal(self.points(own), self.points(self.LONG))

    def test_every_kernel_has_a_say(self, x64):
        def left(points, kernel):
            at = np.random.default_rng(1).uniform(-1, 1, size=(100, 2))
            K, cross = kernel.gram(points, points), kernel.gram(points, at)
            explained = np.sum(cross * np.linalg.solve(K + 1e-9 * np.eye(len(K)), cross), axis=0)
            return np.mean(1 - explained / kernel.diagonal(at))

        both = self.points(lgp.PerLatent(self.LONG, self.WIDE))
        assert len(np.unique(both, axis=0)) == 20
        for kernel, other in ((self.LONG, self.WIDE), (self.WIDE, self.LONG)):
            assert left(both, kernel) < left(self.points(other), kernel)
