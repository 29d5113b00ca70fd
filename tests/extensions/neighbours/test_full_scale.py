"""Neighbours of what inducing points leave, against dense linear algebra and brute force."""

import functools

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.extensions.neighbours.search import NOBODY

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (40, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * _rng.normal(size=40)
NEW = _rng.uniform(-2, 2, (7, 2))
DATA = lgp.Data(X, Y)
POINTS = _rng.uniform(-2, 2, (6, 2))
LENGTHSCALE, NOISE, MEAN = np.array([0.8, 2.0]), 0.05, 0.2
MODEL = lgp.LatentGP(
    lgp.Matern32(lengthscale=LENGTHSCALE, variance=1.5),
    lgp.Gaussian(NOISE),
    lgp.ConstantMean(MEAN),
)
KEY = jax.random.key(0)


def points(Z=POINTS):
    return lgp.Inducing(points=Z)


def evidence_of(own, model=MODEL, data=DATA):
    """Log evidence and its derivatives in everything."""
    with jax.enable_x64(True):
        own = own.initialise(data.X, data.weights, model.kernel, KEY)
        method = lgp.ExactGP(own.for_rows(data.X, data.weights, model.kernel))
        return jax.jit(jax.value_and_grad(lambda m: lgp.log_evidence(m, data, method)))(model)


def fitted(own, model=MODEL, data=DATA, **settings):
    return lgp.fit(model, data, method=lgp.ExactGP(own), key=KEY, **settings)


def held(own, model=MODEL, data=DATA):
    """The posterior at the hyper-parameters given."""
    return fitted(own, model, data, learn_hyperparameters=False).posterior


def assert_close(ours, theirs, tolerance=1e-8):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "limit"),
    [
        (lgp.Neighbours(39, inducing=6), "exact"),
        (lgp.Neighbours(3, inducing=points(X)), "exact"),
        (lgp.Neighbours(3, search="scaled", inducing=points(POINTS + 100)), "neighbours"),
    ],
    ids=["all neighbours", "a point at every row", "points far away"],
)
def test_what_it_is_at_its_limits(own, limit):
    evidence, marginals = limit_of(limit)
    assert_close(evidence_of(own), evidence)
    assert_close(tuple(held(own).predict_f(NEW)), marginals)


@functools.cache
def limit_of(name):
    own = {"exact": lgp.Dense(), "neighbours": lgp.Neighbours(3)}[name]
    return evidence_of(own), tuple(held(own).predict_f(NEW))


@pytest.fixture(scope="module")
def few():
    return held(lgp.Neighbours(4, number_predicted=5, inducing=points()))


@pytest.mark.slow
def test_evidence_and_predictions_by_brute_force(few):
    kernel, near = MODEL.kernel, np.asarray(few.latent.neighbours)[: len(X), 0]
    rows = np.asarray(few.latent.X)[: len(X)]  # in an order of the fit, and then padded
    y = Y[[int(np.flatnonzero(np.all(x == X, axis=1))[0]) for x in rows]]
    gram = lambda *pair: np.asarray(kernel.gram(*pair), float)  # noqa: E731
    with jax.enable_x64(True):
        K, new = gram(rows, rows), gram(NEW, rows)
        lower = np.linalg.cholesky(gram(POINTS, POINTS))
        phi, phi_new = (np.linalg.solve(lower, gram(POINTS, at)).T for at in (rows, NEW))
    R = K - phi @ phi.T + NOISE * np.eye(len(rows))
    whitening = np.zeros_like(K)
    for row, those in enumerate(near):
        those = those[those != NOBODY]
        weights = np.linalg.solve(R[np.ix_(those, those)], R[those, row])
        whitening[row, those], whitening[row, row] = -weights, 1.0
        whitening[row] /= np.sqrt(R[row, row] - R[row, those] @ weights)
    P = whitening.T @ whitening
    law = multivariate_normal(np.full(len(rows), MEAN), np.linalg.inv(P) + phi @ phi.T)
    assert few.log_evidence.value == pytest.approx(law.logpdf(y), rel=1e-9)
    S = np.linalg.inv(np.eye(len(POINTS)) + phi.T @ P @ phi)
    m = S @ phi.T @ P @ (y - MEAN)
    means, variances = [], []
    for row, x in enumerate(NEW):
        those = np.argsort(np.sum(((rows - x) / LENGTHSCALE) ** 2, axis=1))[:5]
        left = new[row, those] - phi[those] @ phi_new[row]
        weights = np.linalg.solve(R[np.ix_(those, those)], left)
        open_ = phi_new[row] - weights @ phi[those]
        means.append(MEAN + phi_new[row] @ m + weights @ (y - MEAN - phi @ m)[those])
        variances.append(1.5 - phi_new[row] @ phi_new[row] - weights @ left + open_ @ S @ open_)
    assert_close(tuple(few.predict_f(NEW)), (np.array(means), np.array(variances)))


def test_a_long_and_a_short_range_need_both():
    generator = np.random.default_rng(1)
    inputs = generator.uniform(0, 10, (300, 2))
    kernel = 4.0 * lgp.RBF(3.0) + 0.5 * lgp.RBF(0.4)
    with jax.enable_x64(True):
        gram = np.asarray(kernel.gram(inputs, inputs))
    y = np.linalg.cholesky(gram + 0.05 * np.eye(300)) @ generator.normal(size=300)
    model, data = lgp.LatentGP(kernel, lgp.Gaussian(0.05)), lgp.Data(inputs, y)
    exact, near, low, both = (
        held(own, model, data).log_evidence.value
        for own in (
            lgp.Dense(),
            lgp.Neighbours(8),
            lgp.Inducing(40),
            lgp.Neighbours(8, inducing=40),
        )
    )
    assert abs(both - exact) < 0.7 * min(abs(near - exact), abs(low - exact))


def test_derivatives_with_copies_and_rows_of_weight_zero():
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=(24, 3))
    inputs[5:9] = inputs[4]  # not merged here
    weights = generator.uniform(0.5, 2.0, 24)
    weights[[3, 20]] = 0.0
    data = lgp.Data(inputs, np.sin(inputs[:, 0]), weights=weights)
    kernel = lgp.Matern52(lengthscale=np.full(3, 1.2), variance=0.8)
    model = lgp.LatentGP(kernel, lgp.Gaussian(1e-3), lgp.ConstantMean(0.1))
    # Points among the copies: what is left of these rows is nothing.
    own = lgp.Neighbours(6, inducing=points(inputs[[0, 4, 11]]))
    with jax.enable_x64(True):
        own = own.initialise(data.X, data.weights, kernel, KEY)
        method = lgp.ExactGP(own.for_rows(data.X, data.weights, kernel))
        value_and_slope = jax.jit(jax.value_and_grad(lambda m: lgp.log_evidence(m, data, method)))
        value, slope = value_and_slope(model)
        for path in ("kernel.variance", "likelihood.noise_variance", "mean.value"):
            at = float(lgp.parameters(model)[path].value)
            step = 1e-5 * at
            ends = [
                float(value_and_slope(lgp.replace(model, {path: moved}))[0])
                for moved in (at + step, at - step)
            ]
            part = slope
            for name in path.split("."):
                part = getattr(part, name)
            assert float(part) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)
    kept = np.flatnonzero(weights)
    fewer = lgp.Data(inputs[kept], data.y[kept], weights=weights[kept])
    same = lgp.Neighbours(6, inducing=points(inputs[[0, 4, 11]]))
    assert float(evidence_of(same, model, fewer)[0]) == pytest.approx(float(value), rel=1e-9)


def test_classes_by_least_squares_share_their_precisions():
    model = lgp.LatentGP(lgp.Matern32(), lgp.LeastSquares(3))
    data = lgp.Data(X[:20], np.digitize(Y[:20], [-0.5, 0.5]))
    ours, exact = (held(own, model, data) for own in (lgp.Neighbours(19, inducing=4), lgp.Dense()))
    assert ours.log_evidence.value == pytest.approx(exact.log_evidence.value, rel=1e-10)
    assert_close(tuple(ours.predict_f(NEW)), tuple(exact.predict_f(NEW)))


@pytest.fixture(scope="module")
def fit():
    astray = lgp.replace(MODEL, {"kernel.lengthscale": [4.0, 0.2]})
    return fitted(lgp.Neighbours(8, inducing=6), astray)


def test_hyper_parameters_are_learned(fit):
    exact = fitted(lgp.Dense())
    assert fit.diagnostics.converged
    assert fit.posterior.log_evidence.kind == "approximation"
    assert fit.posterior.log_evidence.value == pytest.approx(
        exact.posterior.log_evidence.value, abs=1.0
    )
    ours, theirs = (f.posterior.predict_f(NEW) for f in (fit, exact))
    assert np.max(np.abs(ours.mean - theirs.mean)) < 0.2 * np.std(Y)


def test_joint_draws_and_paths(fit):
    posterior = fit.posterior
    marginals = posterior.predict_f(NEW)
    draws = posterior.sample_f(NEW, key=jax.random.key(1), number=4000)
    np.testing.assert_allclose(draws.mean(axis=0), marginals.mean, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), marginals.variance, rtol=0.15)


def test_a_file(fit, tmp_path):
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    assert_close(tuple(again.posterior.predict_f(NEW)), tuple(fit.posterior.predict_f(NEW)), 0)
    assert repr(again.diagnostics.method) == repr(fit.diagnostics.method)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(lgp.InputError, match="leave the rest out"):
        lgp.Neighbours(5, inducing=lgp.Inducing(5, approximation="fitc"))
    with pytest.raises(lgp.InputError, match="points that are held"):
        lgp.Neighbours(5, inducing=lgp.Inducing(5, learn_points=True))
    with pytest.raises(lgp.InputError, match="have not been chosen yet"):
        lgp.Neighbours(5, inducing=5).for_rows(X, None, MODEL.kernel)
