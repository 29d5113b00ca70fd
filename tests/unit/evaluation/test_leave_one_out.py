"""Leave-one-out predictions beside fits without each row."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import latentgp as lgp
from arviz_figures import loo_of, waic_of
from latentgp.extensions.chains.methods import sampling
from latentgp.rows.arrays import evenly
from latentgp.surfaces.evaluation import cavities

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 30))
F = 2 * np.sin(X)
REAL = lgp.Data(X, F + 0.3 * RNG.normal(size=30))
BINARY = lgp.Data(X, (RNG.uniform(size=30) < 1 / (1 + np.exp(-F))).astype(float))
COUNTS = lgp.Data(X, RNG.poisson(np.exp(0.7 * F)).astype(float))
CLASSES = lgp.Data(X, np.argmax(np.stack([F, -F, 0 * F], 1) + RNG.gumbel(size=(30, 3)), 1) * 1.0)
GAUSSIAN = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09), lgp.ConstantMean(0.5))
POINTS = lgp.Inducing(points=np.linspace(0, 6, 8)[:, None])
SOME = (0, 11, 29)


def held(model, data, method):
    return lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)


def refitted(model, data, method, rows=SOME):
    """Log density, mean and standard deviation of rows by fits without a copy of each."""
    found = []
    for row in rows:
        weights = np.ones(data.size) if data.weights is None else np.array(data.weights)
        weights[row] = max(weights[row] - 1, 0)
        posterior = held(model, data.reweighted(weights), method).posterior
        own = data.select([row])
        predictive = posterior.predict(own.X, **own.side_information)
        found.append((predictive.log_prob(own.y)[0], predictive))
    return found


@pytest.mark.parametrize(
    "method",
    [
        lgp.ExactGP(),
        lgp.CollapsedVI(POINTS),
        pytest.param(lgp.CollapsedVI(lgp.RandomFeatures(40)), marks=pytest.mark.slow),
        pytest.param(lgp.ExactGP(lgp.Neighbours(8)), marks=pytest.mark.slow),
        pytest.param(lgp.ExpectationPropagation(POINTS), marks=pytest.mark.slow),
        pytest.param(lgp.Laplace(POINTS), marks=pytest.mark.slow),
    ],
    ids=repr,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_gaussian_noise_is_exact(method, weighted):
    weights = np.ones(30)
    weights[11] = 3
    data = REAL.reweighted(weights) if weighted else REAL
    loo = lgp.leave_one_out(held(GAUSSIAN, data, method))
    for row, (density, predictive) in zip(SOME, refitted(GAUSSIAN, data, method), strict=True):
        if weighted and row == 11 and isinstance(method, lgp.Laplace | lgp.ExpectationPropagation):
            continue  # under FITC copies tell of what is left open at the row, a new row does not
        assert loo.log_density[row] == pytest.approx(density, abs=1e-8)
        assert loo.mean[row] == pytest.approx(predictive.mean[0], abs=1e-8)
        assert loo.std[row] == pytest.approx(np.sqrt(predictive.variance[0]), abs=1e-8)
        assert loo.pit[row] == pytest.approx(predictive.cdf(data.y[[row]])[0], abs=1e-8)
    assert loo.elpd == pytest.approx(np.sum(loo.weights * loo.log_density))
    assert loo.warnings == ()
    assert loo.pareto_k is None


def test_formulas_of_rasmussen_and_williams():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09))
    loo = lgp.leave_one_out(held(model, REAL, lgp.ExactGP()))
    with jax.enable_x64(True):
        gram = np.asarray(model.kernel.gram(REAL.X, REAL.X))
    inverse = np.linalg.inv(gram + 0.09 * np.eye(30))
    variance = 1 / np.diagonal(inverse)
    residual = variance * (inverse @ REAL.y)
    np.testing.assert_allclose(loo.mean, REAL.y - residual, atol=1e-10)
    np.testing.assert_allclose(loo.std**2, variance, atol=1e-10)


def test_strong_sites_lose_no_digits():
    model = lgp.LatentGP(lgp.Matern12(1.0, variance=1.0), lgp.Gaussian(1e-9))
    loo = lgp.leave_one_out(held(model, REAL, lgp.ExactGP()))
    for row, (density, _) in zip(SOME, refitted(model, REAL, lgp.ExactGP()), strict=True):
        assert loo.log_density[row] == pytest.approx(density, abs=1e-8)


SITES = [
    (lgp.Bernoulli(), BINARY, lgp.VariationalInference(), 0.01),
    (lgp.Bernoulli(), BINARY, lgp.ExpectationPropagation(), 0.01),
    (lgp.Poisson(), COUNTS, lgp.Laplace(), 0.02),
    (lgp.Bernoulli(), BINARY, lgp.AugmentedVI(), 0.04),
    (lgp.Poisson(), COUNTS, lgp.VariationalInference(POINTS), 0.04),
    (lgp.Poisson(), COUNTS, lgp.Laplace(POINTS), 0.04),  # of all points the error is 0.0351
    (lgp.Bernoulli(), BINARY, lgp.ExpectationPropagation(POINTS), 0.01),
    (lgp.Softmax(3), CLASSES, lgp.VariationalInference(coupled=True), 0.03),
    (lgp.Softmax(3), CLASSES, lgp.Laplace(coupled=True), 0.03),
    (lgp.Softmax(3), CLASSES, lgp.ExpectationPropagation(POINTS, coupled=True), 0.03),
    (lgp.BernoulliProbit(), BINARY, lgp.VariationalInference(lgp.LatentNeighbours(8)), 0.02),
]


@pytest.mark.parametrize(
    ("likelihood", "data", "method", "tolerance"),
    [
        case if place in (2, 4) else pytest.param(*case, marks=pytest.mark.slow)
        for place, case in enumerate(SITES)
    ],
)
def test_sites_are_near_refits(likelihood, data, method, tolerance):
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), likelihood)
    loo = held(model, data, method).leave_one_out()
    for row, (density, _) in zip(SOME, refitted(model, data, method), strict=True):
        assert loo.log_density[row] == pytest.approx(density, abs=tolerance)
    assert 0 < loo.parameters < 15


FEW = lgp.Data(X[::3][:10], np.array([0, 9, 3, 30, 5, 0, 1, 0, 14, 2.0]))


def test_few_rows_are_refits(monkeypatch):
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson())
    method = lgp.VariationalInference()
    fit = held(model, FEW, method)
    loo = fit.leave_one_out()
    right = [density for density, _ in refitted(model, FEW, method, range(10))]
    np.testing.assert_allclose(loo.log_density, right, atol=1e-3)
    assert np.abs(loo.cavity_error).max() > 0.1  # what holding the other rows' sites would cost
    monkeypatch.setattr("latentgp.surfaces.evaluation.cavities._WORK", 2.0 * 15 * 64**3 * 4)
    some = fit.leave_one_out()
    done = np.isfinite(some.cavity_error)
    assert done.sum() == 4
    np.testing.assert_allclose(some.log_density[done], loo.log_density[done])
    np.testing.assert_allclose(
        some.log_density[~done], (loo.log_density + loo.cavity_error)[~done], atol=1e-9
    )
    assert some.how == "sites of the other rows, converged anew in 4 rows and held in 6"
    assert "Holding the sites of the other rows would be off by" in some.warnings[0]
    alone = lgp.leave_one_out(held(model, FEW, lgp.VariationalInference(POINTS)))
    assert alone.cavity_error is None
    assert alone.how == "cavities of the sites, whose error is not known"


def test_sites_that_have_not_converged_anew_are_not_taken(monkeypatch):
    fit = held(lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson()), FEW, lgp.Laplace())
    converge = cavities.converge

    def unsettled(*given):
        return converge(*given)._replace(change=0.1)

    assert fit.leave_one_out().how == "sites of the other rows, converged anew"
    monkeypatch.setattr(cavities, "converge", unsettled)
    assert fit.leave_one_out().how == "cavities of the sites, whose error is not known"


@pytest.mark.parametrize(
    ("likelihood", "method", "tolerance"),
    [
        (lgp.Softmax(3), lgp.Laplace(coupled=True), 0.03),
        (lgp.Ordinal([-1.0, 1.0]), lgp.ExpectationPropagation(), 0.03),
        pytest.param(
            *(lgp.Softmax(3), lgp.NUTS(chains=2, warmup=300, draws=1500), 0.06),
            marks=pytest.mark.slow,
        ),
    ],
    ids=repr,
)
def test_classes_have_probabilities_without_the_row(likelihood, method, tolerance):
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), likelihood)
    loo = held(model, CLASSES, method).leave_one_out()
    assert loo.probabilities.shape == (30, 3)
    np.testing.assert_allclose(loo.probabilities.sum(axis=1), 1, atol=1e-6)
    own = np.take_along_axis(loo.probabilities, CLASSES.y.astype(int)[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(np.log(own), loo.log_density, atol=1e-6)
    for row, (_, predictive) in zip(SOME, refitted(model, CLASSES, method), strict=True):
        np.testing.assert_allclose(
            loo.probabilities[row], predictive.probabilities[0], atol=tolerance
        )


def test_equal_rows_are_rows_of_their_own():
    twice = lgp.Data(np.append(X, X[5]), np.append(REAL.y, REAL.y[5]))
    weights = np.ones(30)
    weights[5] = 2
    weighted = REAL.reweighted(weights)
    one, other = (lgp.leave_one_out(held(GAUSSIAN, d, lgp.ExactGP())) for d in (twice, weighted))
    assert one.log_density[5] == one.log_density[30] == pytest.approx(other.log_density[5])
    assert one.elpd == pytest.approx(other.elpd)
    assert one.standard_error == pytest.approx(other.standard_error)


def test_rows_that_do_not_count_are_nan():
    weights = np.ones(30)
    weights[3] = 0
    loo = lgp.leave_one_out(held(GAUSSIAN, REAL.reweighted(weights), lgp.ExactGP()))
    assert np.flatnonzero(np.isnan(loo.log_density)).tolist() == [3]
    assert np.isfinite(loo.elpd)
    assert loo.weights.sum() == 29


def test_counts_have_intervals_of_the_transform():
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson())
    loo = held(model, COUNTS, lgp.Laplace()).leave_one_out()
    np.testing.assert_allclose(np.log(loo.up_to - loo.below), loo.log_density, atol=1e-6)
    assert np.all(loo.below[COUNTS.y == 0] == 0)
    np.testing.assert_allclose(loo.pit, (loo.below + loo.up_to) / 2)


def test_integrated_hyperparameters_are_averaged_without_the_row():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09))
    method = lgp.Integrated(lgp.ExactGP())
    loo = lgp.fit(model, REAL, key=KEY, method=method).leave_one_out()
    for row in (0, 11):
        rest = REAL.select(np.arange(30) != row)
        posterior = lgp.fit(model, rest, key=KEY, method=method).posterior
        density = posterior.predict(REAL.X[[row]]).log_prob(REAL.y[[row]])[0]
        assert loo.log_density[row] == pytest.approx(density, abs=0.05)


@pytest.mark.slow
def test_integrated_laplace_is_near_refits_where_importance_sampling_is_not():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Bernoulli())
    method = lgp.Integrated(lgp.Laplace())
    loo = lgp.fit(model, BINARY, key=KEY, method=method).leave_one_out()
    rest = BINARY.select(np.arange(30) != 29)
    posterior = lgp.fit(model, rest, key=KEY, method=method).posterior
    density = posterior.predict(BINARY.X[[29]]).log_prob(BINARY.y[[29]])[0]
    assert loo.log_density[29] == pytest.approx(density, abs=0.05)


@pytest.mark.slow
def test_chains_agree_with_arviz_and_with_sites():
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Bernoulli())
    fit = held(model, BINARY, lgp.GibbsSampling(chains=2, warmup=200, draws=1500))
    loo = fit.leave_one_out()
    theirs = loo_of(fit.posterior.to_arviz())
    np.testing.assert_allclose(loo.log_density, theirs.pointwise, atol=1e-10)
    np.testing.assert_allclose(loo.pareto_k, theirs.pareto_k, atol=1e-10)
    assert loo.parameters == pytest.approx(theirs.parameters)
    assert loo.standard_error == pytest.approx(theirs.standard_error)
    waic = waic_of(fit.posterior.to_arviz()) or loo.waic
    assert loo.waic == pytest.approx(waic, abs=1e-2)
    sites = held(model, BINARY, lgp.ExpectationPropagation()).leave_one_out()
    np.testing.assert_allclose(loo.log_density, sites.log_density, atol=0.1)
    np.testing.assert_allclose(loo.pit, sites.pit, atol=0.05)
    assert sites.waic == pytest.approx(waic, abs=0.3)
    again = lgp.leave_one_out(fit.posterior)
    np.testing.assert_array_equal(again.log_density, loo.log_density)


def test_chains_keep_draws_and_rows_together(monkeypatch):
    """Of rows without weight, or that were not watched, there are no draws: others moved up."""
    data = REAL.reweighted(np.where(np.isin(np.arange(30), (0, 4)), 0.0, 1.0))
    monkeypatch.setattr(sampling, "watched_rows", lambda size, _: evenly(size, 9))
    fit = held(GAUSSIAN, data, lgp.GibbsSampling(chains=2, warmup=20, draws=200))
    exact, loo = held(GAUSSIAN, data, lgp.ExactGP()).leave_one_out(), fit.leave_one_out()
    own = fit.posterior.watched
    assert np.flatnonzero(np.isfinite(loo.log_density)).tolist() == own.tolist()
    np.testing.assert_allclose(loo.mean[own], exact.mean[own], atol=0.3)
    np.testing.assert_array_equal(loo.mean, lgp.leave_one_out(fit, data).mean)
    np.testing.assert_array_equal(loo.mean[own], lgp.leave_one_out(fit.posterior).mean)


def test_posteriors_without_sites():
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson())
    fit = held(model, COUNTS, lgp.Laplace())
    alone = lgp.leave_one_out(fit.posterior, COUNTS)
    # Without sites the other rows' cannot converge anew.
    np.testing.assert_allclose(alone.log_density, fit.leave_one_out().log_density, atol=0.15)
    both = lgp.Posterior.mixture([fit.posterior, fit.posterior], [0.5, 0.5])
    drawn = lgp.leave_one_out(both, COUNTS)
    assert drawn.how == "smoothed importance sampling"
    assert drawn.pareto_k is not None
    np.testing.assert_allclose(drawn.log_density, alone.log_density, atol=0.3)
    gaussian = held(GAUSSIAN, REAL, lgp.ExactGP()).posterior
    same = lgp.Posterior.mixture([gaussian, gaussian], [0.3, 0.7])
    np.testing.assert_allclose(
        lgp.leave_one_out(same, REAL).log_density,
        lgp.leave_one_out(gaussian, REAL).log_density,
        atol=1e-10,
    )


def test_improper_cavities_are_named():
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson())
    found = held(model, COUNTS, lgp.VariationalInference(POINTS))
    stronger = np.where(np.arange(30)[:, None] == 4, 50, 1) * found.sites.precision
    found = replace(found, sites=found.sites._replace(precision=stronger))
    loo = found.leave_one_out()
    assert "improper in 1 row(s) (from 0: " in loo.warnings[0]
    assert np.isfinite(loo.log_density).all()
    assert np.sum(~np.isnan(loo.pareto_k)) == 1


def test_a_pseudo_likelihood_has_no_waic_by_sites():
    labels = lgp.Data(REAL.X, np.arange(REAL.size) % 3.0)
    fit = held(lgp.LatentGP(lgp.RBF(1.0), lgp.LeastSquares(3)), labels, lgp.ExactGP())
    loo = fit.leave_one_out()
    assert np.isnan(loo.waic)
    assert np.isfinite(loo.elpd)
    assert np.isfinite(loo.parameters)
    assert np.all(loo.log_density_seen < 0)


def test_refusals():
    fit = held(GAUSSIAN, REAL, lgp.ExactGP())
    with pytest.raises(lgp.InputError, match="not in memory"):
        lgp.leave_one_out(fit.posterior)
    with pytest.raises(lgp.InputError, match="needs a Fit or a posterior"):
        lgp.leave_one_out(REAL)
    counts = held(lgp.LatentGP(lgp.RBF(1.0), lgp.Poisson()), COUNTS, lgp.Laplace())
    with pytest.raises(lgp.InputError, match="but the fit had 30"):
        lgp.leave_one_out(counts, COUNTS.select(np.arange(20)))


def test_a_saved_fit_has_its_sites_but_no_rows(tmp_path):
    model = lgp.LatentGP(lgp.RBF(1.0, variance=3.0), lgp.Poisson())
    fit = held(model, COUNTS, lgp.Laplace())
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    assert again.rows is None
    np.testing.assert_array_equal(
        again.leave_one_out(COUNTS).log_density, fit.leave_one_out().log_density
    )


def test_classes_that_were_seen_have_the_probability_of_their_rows_own_law():
    """Beside draws of the prior weighted by the likelihood; a Gaussian is far off."""
    x, labels, epsilon = np.linspace(0, 4, 6), np.array([0, 0, 1, 1, 2, 2]), 0.05
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.RobustMax(3, epsilon=epsilon))
    method = lgp.ExpectationPropagation(lgp.Dense(), coupled=True)
    fit = held(model, lgp.Data(x, labels.astype(float)), method)
    gram = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-10 * np.eye(6)
    noise = np.random.default_rng(1).normal(size=(400_000, 3, 6))
    largest = np.argmax(noise @ np.linalg.cholesky(gram).T, axis=1)
    each = np.where(largest == labels, 1 - epsilon, epsilon / 2)
    weights = np.prod(each, axis=1)
    known = weights @ each / weights.sum()
    seen = np.exp(lgp.leave_one_out(fit).log_density_seen)
    by_gaussian = np.exp(fit.posterior.predict(x[:, None]).log_prob(labels.astype(float)))
    error, gaussian = (np.max(np.abs(found - known)) for found in (seen, by_gaussian))
    assert gaussian > 0.03
    assert error < 0.3 * gaussian
