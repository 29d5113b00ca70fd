"""Laplace's approximation of hyper-parameters: against brute force, and what it refuses."""

import jax
import numpy as np
import pytest
from numpyro.distributions import LogNormal
from scipy.stats import norm

import latentgp as lgp
from latentgp.extensions.integrated.at_optimum import marginals_at_optimum
from latentgp.setup.shared_log_normal import SharedLogNormal
from latentgp.surfaces.report.hyperparameters import prior_marginals

KEY = jax.random.key(0)
_rng = np.random.default_rng(3)
X = _rng.uniform(-2, 2, (30, 1))
F = 1.5 * np.sin(2 * X[:, 0])
REAL = lgp.Data(X, F + 0.4 * _rng.normal(size=30))
BINARY = lgp.Data(X, (_rng.uniform(size=30) < 1 / (1 + np.exp(-2 * F))).astype(float))
LAWS = {
    "kernel.lengthscale": LogNormal(0.0, 0.7),
    "kernel.variance": LogNormal(0.5, 0.8),
    "likelihood.noise_variance": LogNormal(-2.0, 1.0),
}


@pytest.fixture(scope="module")
def regression():
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.16))
    return lgp.fit(model, REAL, key=KEY, priors=LAWS, method=lgp.ExactGP())


def log_joint(logarithms):
    lengthscale, variance, noise = np.exp(logarithms)
    covariance = variance * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + noise * np.eye(30)
    root = np.linalg.cholesky(covariance)
    half = np.linalg.solve(root, REAL.y)
    found = -0.5 * half @ half - np.log(np.diagonal(root)).sum()
    for place, law in zip(logarithms, LAWS.values(), strict=True):
        found += norm.logpdf(place, float(law.loc), float(law.scale))
    return found


def deviations(log_density, at, step=0.01):
    """Of the normal law with its curvature, by second differences."""
    moves = step * np.eye(len(at))
    hessian = [
        [
            (
                log_density(at + a + b)
                - log_density(at + a - b)
                - log_density(at - a + b)
                + log_density(at - a - b)
            )
            / (4 * step**2)
            for a in moves
        ]
        for b in moves
    ]
    return np.sqrt(np.diagonal(np.linalg.inv(-np.array(hessian))))


def test_the_normal_law_is_that_of_the_curvature(regression):
    found = regression.hyperparameter_marginals()
    assert list(found) == list(LAWS)
    model = regression.model
    values = model.kernel.lengthscale, model.kernel.variance, model.likelihood.noise_variance
    at = np.log(np.array(values, float))
    for own, place, deviation in zip(found.values(), at, deviations(log_joint, at), strict=True):
        logarithms = np.log(own.values)
        assert logarithms.mean() == pytest.approx(place, abs=1e-8)
        assert logarithms.std() == pytest.approx(deviation, rel=0.01)
        ends = np.exp(place + norm.ppf([0.025, 0.975]) * deviation)
        np.testing.assert_allclose(own.interval(), ends, rtol=0.01)
    prior = np.log(found["kernel.variance"].prior.values)
    assert prior.mean() == pytest.approx(0.5, abs=0.05)
    assert prior.std() == pytest.approx(0.8, abs=0.05)


def test_points_of_the_fit_are_taken_again_and_sites_converge():
    """All points at rows: as wide as without points, whatever the key that chose them."""
    model, asked = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli()), {"key": jax.random.key(5)}
    dense = lgp.fit(model, BINARY, method=lgp.VariationalInference(), **asked)
    sparse = lgp.VariationalInference(lgp.Inducing(14, selection="k-dpp"))
    near = lgp.fit(model, BINARY, method=sparse, **asked)
    one, other = (fit.hyperparameter_marginals() for fit in (dense, near))
    for path, own in one.items():
        np.testing.assert_allclose(other[path].interval(), own.interval(), rtol=0.05)
        assert own.prior.std > own.std


def test_integrated_ones_are_those_of_the_posterior():
    model, method = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.16)), lgp.Integrated(lgp.ExactGP())
    held = ["kernel.variance", "likelihood"]
    fit = lgp.fit(model, REAL, key=KEY, method=method, frozen=held)
    assert fit.hyperparameter_marginals() is fit.posterior.hyperparameter_marginals


class TestRefusals:
    def test_other_rows(self, regression):
        method, rows = regression.diagnostics.method, REAL.select(np.arange(29)).merged_rows()
        with pytest.raises(lgp.InputError, match="but that of the fit"):
            marginals_at_optimum(regression.posterior, method, rows, regression.priors)

    def test_a_search_that_was_cut_short(self):
        model = lgp.LatentGP(lgp.RBF(0.3, 2.0), lgp.Bernoulli())
        fit = lgp.fit(model, BINARY, key=KEY, method=lgp.Laplace(), max_evaluations=1)
        with pytest.raises(lgp.InputError, match="nats below the optimum"):
            fit.hyperparameter_marginals()

    def test_nothing_learned_rows_that_are_gone_and_no_evidence(self, regression, tmp_path):
        held = {"key": KEY, "learn_hyperparameters": False}
        fit = lgp.fit(regression.model, REAL, method=lgp.ExactGP(), **held)
        with pytest.raises(lgp.InputError, match="No hyper-parameter was learned"):
            fit.hyperparameter_marginals()
        again = lgp.load(lgp.save(regression, tmp_path / "fit"))
        with pytest.raises(lgp.InputError, match="not in memory"):
            again.hyperparameter_marginals()
        with pytest.raises(lgp.InputError, match="gives no log evidence"):
            marginals_at_optimum(regression.posterior, lgp.BlackBoxVI(), regression.rows, LAWS)


def test_estimators_keep_priors_in_their_files_and_take_targets_far_from_zero(tmp_path):
    inputs = np.concatenate([X, X[::-1] ** 2], axis=1)
    regressor = lgp.GPRegressor(random_state=0).fit(inputs, REAL.y + 1e6)
    again = lgp.load(regressor.save(tmp_path / "regressor"))
    assert isinstance(again.priors_["kernel.lengthscale"], SharedLogNormal)
    one, other = (prior_marginals(r.model_, r.priors_) for r in (regressor, again))
    assert list(one) == list(other)
    for path in one:
        np.testing.assert_array_equal(one[path].values, other[path].values)
    rows = lgp.Data(inputs, REAL.y + 1e6).merged_rows()
    found = marginals_at_optimum(again.posterior_, again.method_, rows, again.priors_)
    near = found["likelihood.noise_variance"].interval(0.5)
    assert near[0] < float(again.model_.likelihood.noise_variance) < near[1]
    unfitted = lgp.load(lgp.GPRegressor().save(tmp_path / "unfitted"))
    assert not hasattr(unfitted, "priors_")
