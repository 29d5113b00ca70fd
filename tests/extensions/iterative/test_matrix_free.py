"""All rows by products and solves, against dense linear algebra."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.representations import log_evidence
from latentgp.sites.gaussian import GaussianSites

SIZE = 200
_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (SIZE, 2))
F = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
Y = F + 0.1 * _rng.normal(size=SIZE)
NEW = _rng.uniform(-2, 2, (7, 2))
MODEL = lgp.LatentGP(
    lgp.Matern32(lengthscale=[0.8, 2.0], variance=1.5), lgp.Gaussian(0.05), lgp.ConstantMean(0.2)
)
KEY = jax.random.key(0)
PRECISE = lgp.MatrixFree(tolerance=1e-9, exact_up_to=0)  # as of many rows


def _precise(**settings):
    return dataclasses.replace(PRECISE, **settings)


_value_and_slope = eqx.filter_jit(jax.value_and_grad(lgp.log_evidence))


def evidence_of(method, model=MODEL, y=Y):
    """Log evidence and its derivatives in everything."""
    with jax.enable_x64(True):
        return _value_and_slope(model, lgp.Data(X, y), method)


def fitted(method, model=MODEL, x=X, y=Y, **settings):
    """Posterior without learning, by `fit`."""
    fit = lgp.fit(
        model, lgp.Data(x, y), method=method, key=KEY, learn_hyperparameters=False, **settings
    )
    return fit.posterior, fit.diagnostics


@eqx.filter_jit
def _estimates(representation, kernel, sites, keys):
    """Evidence, its error and its slope, one after another for many random keys."""

    def of_key(key):
        own = representation.initialise(X, None, kernel, key)
        posterior = own.condition(kernel, X, sites)
        pullback = own.pull_back(posterior, X, sites)
        return posterior.log_evidence, posterior.evidence_error, pullback

    return jax.lax.map(of_key, keys)


@pytest.fixture(scope="module")
def estimates():
    """The exact evidence and slope of two latents' sites, and estimates of 40 random keys."""
    with jax.enable_x64(True):
        generator = np.random.default_rng(3)
        precision = generator.gamma(1.0, 8.0, (SIZE, 1))
        precision[4] = 0.0
        linear = precision * F[:, None] + np.sqrt(precision) * generator.normal(size=(SIZE, 1))
        sites = GaussianSites(jnp.asarray(linear), jnp.asarray(precision), jnp.zeros(SIZE))
        kernel = jax.tree.map(jnp.asarray, MODEL.kernel)
        dense = lgp.Dense()
        exact = dense.condition(kernel, X, sites)
        slope = dense.pull_back(exact, X, sites)
        own = lgp.MatrixFree(structured=False, exact_up_to=0)
        keys = jax.random.split(KEY, 40)
        return exact, slope, jax.device_get(_estimates(own, kernel, sites, keys)), precision


def test_evidence_is_within_its_own_errors(estimates):
    exact, _, (value, error, _), _ = estimates
    off = np.abs(value - float(exact.log_evidence)) / error
    assert np.mean(off < 4) >= 0.95
    assert np.std(value) == pytest.approx(np.mean(error), rel=0.5)
    mean_error = np.std(value) / np.sqrt(len(value))
    assert abs(np.mean(value) - float(exact.log_evidence)) < 4 * mean_error


def test_slopes_are_unbiased(estimates):
    _, exact, (_, _, pullback), precision = estimates
    there = precision[:, 0] > 0
    for ours, right in zip(
        jax.tree.leaves(pullback.kernel), jax.tree.leaves(exact.kernel), strict=True
    ):
        error = np.std(ours, axis=0) / np.sqrt(len(ours))
        assert np.all(np.abs(np.mean(ours, axis=0) - right) < 4 * error)
        assert np.all(error < 0.1 * np.abs(right) + 0.1)
    ours, right = pullback.marginals.variance[:, there, 0], exact.marginals.variance[there, 0]
    error = np.std(ours, axis=0) / np.sqrt(len(ours))
    assert np.mean(np.abs(np.mean(ours, axis=0) - right) < 4 * error) > 0.97
    np.testing.assert_allclose(
        pullback.marginals.mean[0, :, 0], exact.marginals.mean[:, 0], atol=1e-4
    )


@pytest.mark.parametrize(
    "representation",
    [
        PRECISE,
        _precise(solver="conjugate-gradients", preconditioner="fitc"),
        _precise(preconditioner="pivoted-cholesky", rank=20, store=True),
        _precise(precision="single"),
        _precise(precision="single", solver="conjugate-gradients", store=True),
    ],
    ids=["block", "plain", "stored", "single", "single, plain"],
)
def test_predictions_are_those_of_the_exact_process(representation):
    (ours, _), (exact, _) = fitted(lgp.ExactGP(representation)), fitted(lgp.ExactGP())
    for one, other in zip(ours.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    latent = ours.latent
    off = float(ours.log_evidence) - float(exact.log_evidence)
    assert abs(off) < 4 * float(latent.evidence_error)
    assert (ours.log_evidence.kind, exact.log_evidence.kind) == ("approximation", "exact")


@pytest.mark.parametrize("together", [1, 5, 40, 65])
def test_variances_do_not_depend_on_how_many_are_asked(exact_posterior, together):
    """Rows of the data, one of them many times, and others: copies fill the last piece up."""
    new = np.concatenate([X[:3], np.tile(X[3], (30, 1)), NEW, X[100:130]])[:65]
    ours, exact = exact_posterior
    parts = [ours.predict_f(new[i : i + together]) for i in range(0, 65, together)][-13:]
    found = np.concatenate([part.variance for part in parts])
    np.testing.assert_allclose(found, exact.predict_f(new[-len(found) :]).variance, rtol=1e-4)


@pytest.fixture(scope="module")
def exact_posterior():
    """Posteriors by the settings of many rows, and by dense algebra."""
    own = lgp.MatrixFree(exact_up_to=0)
    return fitted(lgp.ExactGP(own))[0], fitted(lgp.ExactGP())[0]


def test_what_predictions_rest_on_is_said():
    """Variances and paths of a solve that was stopped after two steps."""
    posterior, _ = fitted(lgp.ExactGP(_precise(max_steps=2)))
    with pytest.warns(UserWarning, match=r"Variances rest on a linear solve .*\(out of steps\)"):
        posterior.predict_f(NEW)
    with pytest.warns(UserWarning, match="Paths rest on a linear solve"):
        posterior.sample_paths(key=KEY)


def test_residuals_of_products_in_single_precision_are_true():
    """The certificate is that of the exact matrix, which single precision alone does not reach."""
    right = _rng.normal(size=(SIZE, 2))
    with jax.enable_x64(True):
        kernel = jax.tree.map(jnp.asarray, MODEL.kernel)
        own = dataclasses.replace(PRECISE, precision="single").solves
        ready = own.prepared(kernel, jnp.asarray(X), jnp.full(SIZE, 30.0))
        solution = jax.device_get(own.solve(*ready, jnp.asarray(right)))
        B = np.eye(SIZE) + 900 * np.asarray(kernel.symmetric_gram(X))
    off = np.linalg.norm(right - B @ solution.value, axis=0) / np.linalg.norm(right, axis=0)
    np.testing.assert_allclose(solution.relative_residual, off, rtol=0.01)
    assert solution.outcomes == ("converged",) * 2


def test_joint_predictions_and_paths():
    (ours, _), (exact, _) = fitted(lgp.ExactGP(PRECISE)), fitted(lgp.ExactGP())
    with jax.enable_x64(True):
        one, other = (p.latent.covariance(jnp.asarray(NEW)) for p in (ours, exact))
        np.testing.assert_allclose(one, other, atol=1e-6)

        @jax.jit
        def update(posterior, prior):
            return posterior.pathwise_update(KEY, lambda _: prior)

        prior = jnp.asarray(_rng.normal(size=(len(ours.latent.centres), 1)))
        ours, exact = (update(p.latent.without_fillers(), prior[:SIZE]) for p in (ours, exact))
        np.testing.assert_allclose(ours, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (lgp.Bernoulli(), "sign"),
        pytest.param(lgp.BernoulliProbit(), "sign", marks=pytest.mark.slow),
        pytest.param(lgp.Poisson(), "count", marks=pytest.mark.slow),
    ],
    ids=["logit", "probit", "poisson"],
)
def test_laplace_by_solves_is_laplace(likelihood, targets):
    """Mode, evidence, gradient with the implicit term, and predictions (Cutajar et al. 2016, B)."""
    generator = np.random.default_rng(1)
    noise = generator.logistic(size=SIZE)
    y = {"sign": (F + 0.2 * noise > 0) * 1.0, "count": 1.0 * generator.poisson(np.exp(F))}[targets]
    model = lgp.LatentGP(MODEL.kernel, likelihood, MODEL.mean)
    ours = evidence_of(lgp.Laplace(lgp.MatrixFree(probes=100, exact_up_to=0)), model, y)
    exact = evidence_of(lgp.Laplace(), model, y)
    assert float(ours[0]) == pytest.approx(float(exact[0]), abs=0.3)
    for one, other in zip(jax.tree.leaves(ours[1]), jax.tree.leaves(exact[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.12, atol=0.35)
    (ours, diagnostics), (exact, _) = (
        fitted(lgp.Laplace(own, correct_mean=False), model, y=y) for own in (PRECISE, lgp.Dense())
    )
    for one, other in zip(ours.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    off = float(ours.log_evidence) - float(exact.log_evidence)
    assert abs(off) < 4 * diagnostics.evidence_error
    assert "standard error" in diagnostics.verdict


def test_few_rows_leave_nothing_to_estimate():
    few = slice(None, 60)
    methods = lgp.ExactGP(lgp.MatrixFree()), lgp.ExactGP()
    (ours, diagnostics), (exact, _) = (fitted(m, x=X[few], y=Y[few]) for m in methods)
    assert float(ours.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-9)
    assert diagnostics.evidence_error == 0.0
    assert "nothing was estimated" in diagnostics.verdict


def far_apart(size):
    """Rows of a hundred inputs, at a length-scale from which no row knows of another."""
    x = np.random.default_rng(0).normal(size=(size, 100))
    kernel = lgp.Matern52(lengthscale=np.ones(100))
    return lgp.LatentGP(kernel, lgp.Gaussian(0.1)), x, np.sin(2 * x[:, 0])


def test_few_rows_are_searched_as_by_dense_algebra():
    """Out of a plateau at -56 nats, where a rough search ends."""
    model, x, y = far_apart(50)
    ours, exact = (
        lgp.fit(model, lgp.Data(x, y), method=lgp.ExactGP(own), key=KEY)
        for own in (lgp.MatrixFree(), lgp.Dense())
    )
    assert float(exact.posterior.log_evidence) > 100
    np.testing.assert_allclose(
        float(ours.posterior.log_evidence), float(exact.posterior.log_evidence), atol=0.01
    )
    assert ours.diagnostics.evidence_error == 0


@pytest.mark.slow
def test_estimates_lead_out_of_a_plateau_too():
    """At -56 nats with normal probe vectors; signs know what rows that are far apart have."""
    model, x, y = far_apart(50)
    own = lgp.MatrixFree(exact_up_to=0)
    fit = lgp.fit(model, lgp.Data(x, y), method=lgp.ExactGP(own), key=KEY)
    with jax.enable_x64(True):
        assert float(lgp.log_evidence(fit.model, lgp.Data(x, y), lgp.ExactGP())) > 145
    assert any("of the bound" in warning for warning in fit.diagnostics.warnings)


@pytest.mark.slow
def test_hyper_parameters_are_learned():
    astray = lgp.replace(MODEL, {"kernel.lengthscale": [2.0, 0.8]})
    methods = lgp.ExactGP(lgp.MatrixFree(probes=60, exact_up_to=0)), lgp.ExactGP()
    ours, exact = (
        lgp.fit(astray, lgp.Data(X, Y), method=m, key=KEY, tolerance=1e-4) for m in methods
    )
    where = ours.model, exact.model
    ours, exact = (float(evidence_of(lgp.ExactGP(), model)[0]) for model in where)
    assert ours > exact - 1.0


def test_duplicate_rows_and_classes_by_least_squares():
    """Three latents whose systems are one, and two rows in the same place."""
    x, labels = X.copy(), np.digitize(F, [-0.5, 0.5])
    x[5] = x[6]
    model = lgp.LatentGP(lgp.RBF(lengthscale=0.8), lgp.LeastSquares(3))
    (ours, _), (exact, _) = (
        fitted(m, model, x=x, y=labels) for m in (lgp.ExactGP(PRECISE), lgp.ExactGP())
    )
    assert len(ours.latent.root) == 1
    np.testing.assert_allclose(ours.predict_f(NEW)[0], exact.predict_f(NEW)[0], atol=1e-5)
    off = float(ours.log_evidence) - float(exact.log_evidence)
    assert abs(off) < 5 * float(ours.latent.evidence_error)


@pytest.mark.parametrize("columns", [pytest.param(1, marks=pytest.mark.slow), 100])
def test_any_number_of_inputs(columns):
    x = np.random.default_rng(2).uniform(-1, 1, (SIZE, columns))
    y = np.sin(3 * x[:, 0])
    model = lgp.LatentGP(lgp.Matern52(lengthscale=columns**0.5), lgp.Gaussian(0.05))
    new = 0.9 * x[:5]
    (ours, _), (exact, _) = (
        fitted(m, model, x=x, y=y) for m in (lgp.ExactGP(PRECISE), lgp.ExactGP())
    )
    np.testing.assert_allclose(ours.predict_f(new)[0], exact.predict_f(new)[0], atol=1e-5)


def test_what_did_not_converge_is_said():
    """A condition number of about 1e12: noise of 1e-10 under a smooth function."""
    hopeless = lgp.LatentGP(lgp.RBF(lengthscale=3.0), lgp.Gaussian(1e-10))
    own = lgp.MatrixFree(preconditioner="none", max_steps=20, exact_up_to=0)
    _, diagnostics = fitted(lgp.ExactGP(own), hopeless)
    assert not diagnostics.converged
    said = [warning for warning in diagnostics.warnings if "did not converge" in warning]
    assert len(said) == 1
    assert "relative residual" in said[0]
    assert "not to be trusted" in said[0]


def test_rows_on_a_line():
    """Products by Fourier transforms, found by itself: evidence and means are those of tiles."""
    x = 0.1 * np.delete(np.arange(230.0), slice(40, 70))[:, None]
    model = lgp.LatentGP(lgp.Matern32(lengthscale=0.7), lgp.Gaussian(0.1))
    found = []
    for structured, words in ((True, "Toeplitz products on 230"), (False, "tiled products")):
        own = _precise(structured=structured)
        posterior, diagnostics = fitted(lgp.ExactGP(own), model, x=x, y=np.sin(2 * x[:, 0]))
        found.append((float(posterior.log_evidence), posterior.mean_f(x[:3] + 0.01)))
        assert words in diagnostics.verdict
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_no_matrix_is_kept():
    """Working memory of evidence and gradient of 4,000 rows is a small part of the matrix."""
    size = 4000
    own = lgp.MatrixFree(rank=30, probes=4, max_steps=50, structured=False)
    sites = GaussianSites(np.zeros((size, 1)), np.ones((size, 1)), np.zeros(size))

    def value(kernel, own, x, sites):
        return log_evidence(own, kernel, x, sites)

    with jax.enable_x64(True):
        kernel = jax.tree.map(np.float64, lgp.RBF(lengthscale=1.0))
        x = np.zeros((size, 3))
        ready = own.initialise(x, None, kernel, KEY)
        program = jax.jit(jax.value_and_grad(value)).lower(kernel, ready, x, sites)
    used = program.compile().memory_analysis().temp_size_in_bytes
    assert used < 0.25 * 8 * size**2


@pytest.mark.parametrize(
    ("method", "model", "complaint"),
    [
        (lgp.VariationalInference(PRECISE), lgp.Bernoulli(), "noisy estimates"),
        (lgp.ExpectationPropagation(PRECISE), lgp.Bernoulli(), "noisy estimates"),
        (lgp.Laplace(PRECISE), lgp.StudentT(), "not log-concave"),
        (lgp.Laplace(PRECISE), lgp.Softmax(2), "of one latent function"),
    ],
    ids=["variational", "moments", "no mode", "two latents"],
)
def test_what_it_cannot_do_is_refused(method, model, complaint):
    with pytest.raises(lgp.InputError, match=complaint):
        fitted(method, lgp.LatentGP(MODEL.kernel, model), y=(Y > 0) * 1.0)


@pytest.mark.parametrize(
    "settings",
    [{"probes": 1}, {"tolerance": 0.0}, {"rank": 0}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(lgp.InputError, match=r"MatrixFree.* must be"):
        lgp.MatrixFree(**settings)


def test_a_posterior_is_saved(tmp_path):
    posterior, _ = fitted(lgp.ExactGP(PRECISE))
    again = lgp.load(lgp.save(posterior, tmp_path / "posterior"))
    for one, other in zip(again.predict_f(NEW), posterior.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert dataclasses.is_dataclass(again.latent)
