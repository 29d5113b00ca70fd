"""What inducing points leave open, in its three treatments, against dense formulas."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.rows.subsets import blocks_of_rows

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (23, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * _rng.normal(size=23)
NEW = _rng.uniform(-2, 2, (5, 2))
POINTS = _rng.uniform(-2, 2, (6, 2))
MODEL = lgp.LatentGP(lgp.Matern32(lengthscale=[0.8, 2.0], variance=1.5), lgp.Gaussian(0.05))
DATA = lgp.Data(X, Y)
KEY = jax.random.key(0)


def grams(model=MODEL):
    kernel = model.kernel
    with jax.enable_x64(True):
        K = {
            name: np.asarray(kernel.gram(a, b))
            for name, (a, b) in {
                "uu": (POINTS, POINTS),
                "uf": (POINTS, X),
                "us": (POINTS, NEW),
                "ff": (X, X),
                "ss": (NEW, NEW),
            }.items()
        }
    Q = {
        pair: K["u" + pair[0]].T @ np.linalg.solve(K["uu"], K["u" + pair[1]])
        for pair in ("ff", "sf", "ss")
    }
    return K, Q


def dense(approximation, model=MODEL, noise=0.05):
    """Evidence and predictions of f by dense formulas (Quinonero-Candela & Rasmussen 2005)."""
    K, Q = grams(model)
    open_ = K["ff"] - Q["ff"]
    D = noise * np.eye(len(X))
    if approximation == "fitc":
        D = D + np.diag(np.diag(open_))
    if approximation == "pitc":
        for rows in blocks_of_rows(X / X.std(axis=0), 5):
            own = np.ix_(rows[rows < 23], rows[rows < 23])
            D[own] += open_[own]
    A = Q["ff"] + D
    solved = np.linalg.solve(A, Y)
    evidence = -0.5 * (Y @ solved + np.linalg.slogdet(A)[1] + len(Y) * np.log(2 * np.pi))
    if approximation == "vfe":
        evidence -= 0.5 * np.trace(open_) / noise
    mean = Q["sf"] @ solved
    variance = np.diag(K["ss"] - Q["sf"] @ np.linalg.solve(A, Q["sf"].T))
    return evidence, mean, variance


def method_of(approximation, **settings):
    if approximation == "pitc":
        settings["block_size"] = 5
    return lgp.CollapsedVI(lgp.Inducing(points=POINTS, approximation=approximation, **settings))


def fitted(method, **settings):
    return lgp.fit(MODEL, DATA, method=method, key=KEY, **settings)


@pytest.mark.parametrize("approximation", ["vfe", "fitc", "pitc"])
def test_evidence_and_predictions_are_those_of_dense_formulas(approximation):
    fit = fitted(method_of(approximation), learn_hyperparameters=False)
    evidence, mean, variance = dense(approximation)
    assert float(fit.posterior.log_evidence) == pytest.approx(evidence, rel=1e-9)
    assert fit.posterior.log_evidence.kind == (
        "lower bound" if approximation == "vfe" else "approximation"
    )
    found = fit.posterior.predict_f(NEW)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-7)


@pytest.mark.parametrize("approximation", ["fitc", "pitc"])
def test_its_gradient_is_that_of_dense_formulas(approximation):
    method = method_of(approximation)
    with jax.enable_x64(True):
        ready = method.representation.for_rows(X, None, MODEL.kernel)
        method = lgp.CollapsedVI(ready)
        slope = jax.jit(jax.grad(lambda model: lgp.log_evidence(model, DATA, method)))(MODEL)
    step = 1e-5
    for path, found in (
        ("kernel.lengthscale", np.asarray(slope.kernel.lengthscale)),
        ("kernel.variance", float(slope.kernel.variance)),
        ("likelihood.noise_variance", float(slope.likelihood.noise_variance)),
    ):
        value = np.asarray(lgp.parameters(MODEL)[path].value, float)
        for place in np.ndindex(value.shape):
            shift = np.zeros(value.shape)
            shift[place] = step
            ends = []
            for sign in (1, -1):
                model = lgp.replace(MODEL, {path: value + sign * shift})
                ends.append(dense(approximation, model, float(model.likelihood.noise_variance))[0])
            assert np.asarray(found)[place] == pytest.approx(
                (ends[0] - ends[1]) / (2 * step), rel=1e-5
            )


@pytest.mark.parametrize("approximation", ["fitc", "pitc"])
def test_hyperparameters_are_learned_by_name(approximation, tmp_path):
    fit = fitted(lgp.CollapsedVI(lgp.Inducing(8, approximation=approximation)))
    assert fit.diagnostics.converged
    assert approximation in repr(fit.diagnostics.method)
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    before, after = (f.posterior.predict_f(NEW).mean for f in (fit, again))
    np.testing.assert_array_equal(before, after)


def test_one_block_is_the_exact_process():
    pitc = lgp.Inducing(points=POINTS, approximation="pitc", block_size=23)
    exact = fitted(lgp.ExactGP(), learn_hyperparameters=False).posterior
    found = fitted(lgp.CollapsedVI(pitc), learn_hyperparameters=False).posterior
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-9)


def test_what_it_cannot_do_is_refused():
    fitc = lgp.Inducing(4, approximation="fitc")
    counts, poisson = lgp.Data(X, np.arange(23.0)), lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    binary = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    for method in (lgp.VariationalInference, lgp.ExpectationPropagation):
        with pytest.raises(lgp.InputError, match="works with ExactGP"):
            lgp.fit(poisson, counts, method=method(fitc), key=KEY)
    vfe = lgp.ExpectationPropagation(lgp.Inducing(4, approximation="vfe"))
    with pytest.raises(lgp.InputError, match="rest on the variational bound"):
        lgp.fit(poisson, counts, method=vfe, key=KEY)
    with pytest.raises(lgp.InputError, match="needs the variational bound"):
        lgp.Stochastic(lgp.CollapsedVI(fitc))
    with pytest.raises(lgp.InputError, match="ExactGP"):
        lgp.fit(binary, lgp.Data(X, Y > 0), method=lgp.GibbsSampling(fitc), key=KEY)
    with pytest.raises(lgp.InputError, match='covariance="diagonal"'):
        fitted(lgp.CollapsedVI(lgp.Inducing(4, approximation="fitc", covariance="diagonal")))
    with pytest.raises(lgp.InputError, match="block_size"):
        lgp.Inducing(4, block_size=3)
    with pytest.raises(lgp.InputError, match="cannot be found inside grad"):
        jax.jit(
            lambda x: lgp.Inducing(points=POINTS, approximation="pitc").for_rows(
                x, None, MODEL.kernel
            )
        )(X)
