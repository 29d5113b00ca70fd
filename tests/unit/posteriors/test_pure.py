"""The posterior and the log evidence as pure functions: grad, jit, vmap, and both precisions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.validation import checked_inputs
from problems import BINARY, SMOOTH, Heteroscedastic, X, classification, regression

KEY = jax.random.key(0)
NEW = np.random.default_rng(5).normal(size=(6, 2))
FEW = lgp.Inducing(points=X[:6])
MEAN = lgp.ConstantMean(0.7)
GAUSSIAN, LOGIT = regression(mean=MEAN), classification(mean=MEAN)
METHODS = {
    "exact": (GAUSSIAN, SMOOTH, lgp.ExactGP()),
    "collapsed": (GAUSSIAN, SMOOTH, lgp.CollapsedVI(FEW)),
    "variational": (LOGIT, BINARY, lgp.VariationalInference()),
    "sparse augmented": (LOGIT, BINARY, lgp.AugmentedVI(FEW)),
    "Laplace": (LOGIT, BINARY, lgp.Laplace()),
    "expectation propagation": (LOGIT, BINARY, lgp.ExpectationPropagation(FEW)),
}


def posterior_of(model, y, method="auto"):
    data = lgp.Data(X, y)
    return lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False).posterior


@pytest.fixture(scope="module", params=["exact", "sparse augmented"])
def posterior(request):
    return posterior_of(*METHODS[request.param])


@pytest.mark.usefixtures("x64")
class TestPosterior:
    def test_the_same_numbers_as_the_public_ones(self, posterior):
        pure = posterior.as_jax()
        mean, variance = posterior.predict_f(NEW)
        np.testing.assert_allclose(pure.mean(NEW), mean, rtol=1e-10)
        np.testing.assert_allclose(pure.variance(NEW), variance, rtol=1e-10)
        np.testing.assert_allclose(jnp.diagonal(pure.covariance(NEW)), variance, rtol=1e-8)
        predictive = posterior.predict(NEW)
        np.testing.assert_allclose(pure.predict(NEW)[0], predictive.mean, rtol=1e-8)
        np.testing.assert_allclose(pure.predict(NEW)[1], predictive.variance, rtol=1e-8)
        paths = posterior.sample_paths(key=KEY, number=20, features=32)
        values = pure.paths(KEY, number=20, features=32)(NEW)
        assert values.shape == (20, 6)
        np.testing.assert_allclose(values, paths(NEW), rtol=1e-7, atol=1e-9)

    def test_gradients_are_those_of_differences(self, posterior):
        pure, step = posterior.as_jax(), 1e-5
        path = pure.paths(KEY, number=2, features=16)

        def upper_confidence_bound(x):
            return pure.mean(x[None])[0] + 2 * jnp.sqrt(pure.variance(x[None])[0])

        for function in (
            lambda x: pure.mean(x[None])[0],
            upper_confidence_bound,
            lambda x: path(x[None])[1, 0],
            lambda x: pure.predict(x[None])[1][0],
        ):
            for x in NEW[:2]:
                ahead, behind = (
                    np.array([function(x + s * step * e) for e in np.eye(2)]) for s in (1, -1)
                )
                slope = jax.jit(jax.grad(function))(x)
                np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), atol=1e-6)

    def test_it_can_be_mapped_and_passed_to_a_compiled_function(self, posterior):
        pure = posterior.as_jax()
        one_by_one = jax.vmap(lambda x: pure.mean(x[None])[0])(jnp.asarray(NEW))
        np.testing.assert_allclose(one_by_one, posterior.mean_f(NEW), rtol=1e-10)
        passed = jax.jit(lambda posterior, X: posterior.variance(X))(pure, NEW)
        np.testing.assert_allclose(passed, posterior.predict_f(NEW).variance, rtol=1e-10)

    def test_several_latents_have_an_axis_each(self):
        pure = posterior_of(lgp.LatentGP(lgp.RBF(0.6), Heteroscedastic()), SMOOTH).as_jax()
        assert pure.mean(NEW).shape == pure.variance(NEW).shape == (6, 2)
        assert pure.covariance(NEW).shape == (2, 6, 6)
        assert pure.paths(KEY, number=3, features=8)(NEW).shape == (3, 6, 2)


def test_in_single_precision_where_jax_is(posterior):
    found = jax.jit(posterior.as_jax().mean)(jnp.asarray(NEW, jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, posterior.mean_f(NEW), atol=1e-4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", METHODS)
class TestLogEvidence:
    def test_value_and_gradient(self, name):
        model, y, method = METHODS[name]
        data = lgp.Data(X, y)
        expected = float(posterior_of(*METHODS[name]).log_evidence)

        @jax.jit
        def evidence(model):
            return lgp.log_evidence(model, data, method)

        value, slope = jax.value_and_grad(evidence)(model)
        np.testing.assert_allclose(value, expected, rtol=1e-8)
        known, step = lgp.parameters(model), 1e-4
        for path, info in lgp.parameters(slope).items():
            at = known[path].value
            ends = (lgp.replace(model, {path: at + s * step}) for s in (1, -1))
            up, down = map(evidence, ends)
            np.testing.assert_allclose(info.value, (up - down) / (2 * step), atol=2e-3, rtol=2e-3)

    def test_over_models_and_data_sets(self, name):
        model, y, method = METHODS[name]
        data = lgp.Data(X, y)

        def at(scale):
            changed = lgp.LatentGP(lgp.RBF(scale), model.likelihood, model.mean)
            return lgp.log_evidence(changed, data, method)

        scales = jnp.array([0.5, 1.0])
        np.testing.assert_allclose(jax.vmap(at)(scales), [at(s) for s in scales], rtol=1e-8)
        flipped = lgp.Data(X, 1 - y)
        both = jax.tree.map(lambda *arrays: jnp.stack(arrays), data, flipped)
        found = jax.vmap(lambda data: lgp.log_evidence(model, data, method))(both)
        expected = [lgp.log_evidence(model, d, method) for d in (data, flipped)]
        np.testing.assert_allclose(found, expected, rtol=1e-8)

    def test_there_is_no_derivative_in_the_inputs(self, name):
        model, y, method = METHODS[name]

        def evidence(inputs):
            data = eqx.tree_at(lambda d: d.X, lgp.Data(X, y), inputs)
            return lgp.log_evidence(model, data, method)

        assert np.isfinite(evidence(jnp.asarray(X)))
        with pytest.raises(lgp.InputError, match="no derivative in the inputs"):
            jax.grad(evidence)(jnp.asarray(X))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_what_has_no_log_evidence_is_refused():
    data = lgp.Data(X, BINARY)
    with pytest.raises(lgp.InputError, match="NUTS gives no log evidence"):
        lgp.log_evidence(LOGIT, data, lgp.NUTS())
    with pytest.raises(lgp.InputError, match=r"give them as Inducing\(points=Z\)"):
        jax.grad(lgp.log_evidence)(LOGIT, data, lgp.VariationalInference(lgp.Inducing(4)))
    value = lgp.log_evidence(LOGIT, data, lgp.VariationalInference(lgp.Inducing(4)), key=KEY)
    assert value < lgp.log_evidence(LOGIT, data)


def test_a_tracer_is_told_where_to_go():
    with pytest.raises(lgp.InputError, match=r"use posterior.as_jax\(\) for predictions there"):
        jax.jit(lambda X: checked_inputs(X, 2))(NEW)
    with pytest.raises(lgp.InputError, match=r"use posterior.as_jax\(\)"):
        jax.grad(lambda y: lgp.Data(X, y).size * 1.0)(SMOOTH)
    regressor = lgp.GPRegressor(learn_hyperparameters=False).fit(X, SMOOTH)
    with pytest.raises(lgp.InputError, match=r"X is traced by jax.jit, grad or vmap"):
        jax.grad(lambda new: regressor.predict(new)[0])(NEW)
    with pytest.raises(lgp.InputError, match=r"model is traced by jax.jit, grad or vmap"):
        jax.grad(lambda s: float(lgp.fit(traced(s), lgp.Data(X, SMOOTH), key=KEY)))(1.0)


def traced(lengthscale):
    return lgp.LatentGP(lgp.RBF(lengthscale), lgp.Gaussian())
