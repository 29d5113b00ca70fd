"""What a verdict says about the law of the noise."""

import jax
import numpy as np
import pytest
from scipy import stats

import latentgp as lgp
from latentgp.setup.residuals import (
    Residuals,
    excess_variation,
    heavy_tails,
    in_local_units,
    residuals_of,
    student_gain,
    wider_law,
)
from slow import slow_parameters

KEY = jax.random.key(0)
TAILS, PLACES = "Residuals have heavy tails", "The size of residuals varies with the inputs"


def table(rows, seed, noise="gaussian"):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 6, rows)
    e = 0.3 * rng.normal(size=rows)
    if noise == "outliers":
        e = np.where(rng.uniform(size=rows) < 0.08, 5 * rng.normal(size=rows), e / 3)
    if noise == "places":
        e = e * np.exp(0.6 * (x - 3))
    return lgp.Data(x, 2 * np.sin(x) + e)


def said(data, method="auto", likelihood=None):
    model = lgp.LatentGP(lgp.RBF(), likelihood or lgp.Gaussian(0.1))
    told = lgp.fit(model, data, key=KEY, method=method).diagnostics.warnings
    return [warning for warning in told if warning.startswith((TAILS, PLACES, "Student-t"))]


@pytest.mark.parametrize("rows", [200, *slow_parameters(50, 1000)])
class TestVerdict:
    def test_outliers_are_said(self, rows):
        for seed in range(2):
            (warning,) = said(table(rows, seed, "outliers"))
            assert warning.startswith(TAILS)
            assert "StudentT()" in warning
            assert "likelihood='student-t'" in warning

    def test_gaussian_noise_is_not(self, rows):
        for seed in range(4):
            assert said(table(rows, seed)) == []

    def test_noise_of_its_own_in_every_place_has_another_remedy(self, rows):
        if rows > 50:
            (warning,) = said(table(rows, 0, "places"))
            assert warning.startswith(PLACES)
            assert "HeteroscedasticGaussian()" in warning


def test_inducing_points_and_batches_say_it_too():
    points = lgp.CollapsedVI(lgp.Inducing(20))
    for method in (points, lgp.Stochastic(points, batch_size=500, epochs=4)):
        assert any(TAILS in warning for warning in said(table(1500, 0, "outliers"), method))
        assert said(table(1500, 0), method) == []


def test_what_is_as_good_as_interpolated_is_left_alone():
    x = np.linspace(0, 6, 200)
    assert said(lgp.Data(x, np.sin(x))) == []


@pytest.mark.slow
def test_the_gain_is_what_the_remedy_gives_on_other_rows():
    """Within a third: the remedy also finds another f."""
    data, new = table(400, 0, "outliers"), table(2000, 1, "outliers")
    (warning,) = said(data)
    promised = float(warning.split("about ")[1].split(" nats")[0])
    densities = []
    for likelihood in (lgp.Gaussian(0.1), lgp.StudentT(0.3)):
        model = lgp.LatentGP(lgp.RBF(), likelihood)
        predictive = lgp.fit(model, data, key=KEY).posterior.predict(new.X)
        densities.append(predictive.log_prob(new.y).mean())
    assert promised == pytest.approx(densities[1] - densities[0], rel=0.33)


def test_residuals_of_an_exact_posterior_leave_their_row_out():
    rng = np.random.default_rng(0)
    X, known = rng.uniform(0, 6, 12), rng.uniform(0.01, 0.2, 12)
    weights = np.where(np.arange(12) % 3, 1.0, 2.0)
    data = lgp.Data(
        X, np.sin(X) + 0.3 * rng.normal(size=12), weights=weights, noise_variance=known
    ).merged()
    settings = {"key": KEY, "method": lgp.ExactGP(), "learn_hyperparameters": False}
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    posterior = lgp.fit(model, data, **settings).posterior
    rows = np.array([0, 5, 11])
    found = residuals_of(posterior, data, rows, posterior.mean_f(data.X[rows]))
    for value, row in zip(found.value, rows, strict=True):
        others = np.arange(12) != row
        without = lgp.fit(model, data.select(others), **settings).posterior
        there = without.predict(
            data.X[[row]], noise_variance=data.side_information["noise_variance"][[row]]
        )
        expected = (data.y[row] - there.mean[0]) / np.sqrt(there.variance[0])
        assert value == pytest.approx(expected, rel=1e-6)


class TestGain:
    """Against SciPy's own fit of Student's law, whatever the scale and the weights."""

    def of(self, value, weights=None):
        weights = np.ones(len(value)) if weights is None else weights / weights.mean()
        return Residuals(value, 1.0, np.arange(len(value), dtype=float)[:, None], weights)

    @pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
    def test_equals_that_of_the_best_laws(self, scale):
        value = scale * stats.t.rvs(2.5, size=300, random_state=1)
        nu, _, width = stats.t.fit(value, floc=0)
        best = stats.t.logpdf(value, nu, 0, width).mean()
        gaussian = stats.norm.logpdf(value, 0, np.sqrt(np.mean(value**2))).mean()
        assert student_gain(self.of(value)) == pytest.approx(best - gaussian, rel=1e-4)

    def test_weights_are_copies(self):
        value = stats.t.rvs(2.5, size=60, random_state=1)
        weights = np.where(np.arange(60) % 2, 1.0, 3.0)
        copies = np.repeat(value, weights.astype(int))
        gains = student_gain(self.of(value, weights)), student_gain(self.of(copies))
        assert gains[0] == pytest.approx(gains[1], rel=1e-5)

    def test_none_of_no_residuals_at_all(self):
        assert student_gain(self.of(np.zeros(40))) == 0.0
        assert heavy_tails(self.of(np.zeros(0))) == []

    def test_neighbours_tell_places_from_outliers(self):
        heavy = self.of(stats.t.rvs(1.5, size=300, random_state=1))
        assert student_gain(in_local_units(heavy)) > 0.5 * student_gain(heavy)
        e = stats.norm.rvs(size=300, random_state=1)
        places = self.of(np.exp(np.arange(300) / 75) * e)
        assert student_gain(in_local_units(places)) < 0.1 * student_gain(places)


class TestNoVariance:
    @pytest.mark.parametrize(
        ("freedom", "lacks"), [(0.9, "no mean and no variance"), (1.8, "no variance")]
    )
    def test_is_said(self, freedom, lacks):
        data = table(40, 0, "outliers")
        model = lgp.LatentGP(lgp.RBF(), lgp.StudentT(0.2, degrees_of_freedom=freedom))
        result = lgp.fit(model, data, key=KEY, learn_hyperparameters=False)
        (warning,) = [w for w in result.diagnostics.warnings if w.startswith("Student-t")]
        assert lacks in warning
        assert "intervals and quantiles" in warning
        predictive = result.posterior.predict(data.X)
        assert np.all(np.isposinf(predictive.variance))
        assert np.all(np.isfinite(predictive.quantiles([0.05, 0.95])))
        # What is called mean is the median.
        median = predictive.quantiles([0.5])[:, 0]
        np.testing.assert_allclose(predictive.mean, median, atol=1e-6)

    def test_is_not_said_of_more_freedom(self):
        assert said(table(40, 0), likelihood=lgp.StudentT(0.2)) == []


class TestExcessVariation:
    """Counts that vary by more than their law."""

    def rows(self, name, wide, size=300):
        rng = np.random.default_rng(0)
        f, sizes = np.sin(np.arange(size) / 20), rng.integers(5, 12, size).astype(float)
        if name == "exposure":
            y = rng.poisson(sizes * np.exp(f) * (rng.gamma(2.0, 0.5, size) if wide else 1))
            return f, lgp.Data(f, y, exposure=sizes), lgp.Poisson()
        p = 1 / (1 + np.exp(-f))
        p = rng.beta(3 * p, 3 * (1 - p)) if wide else p
        return f, lgp.Data(f, rng.binomial(sizes.astype(int), p), trials=sizes), lgp.Binomial()

    @pytest.mark.parametrize("name", ["exposure", "trials"])
    def test_is_said_with_the_gain_of_the_best_law(self, name):
        f, data, likelihood = self.rows(name, wide=True)
        law, y, sizes = wider_law(likelihood), data.y, data.side_information[name]
        p, own = 1 / (1 + np.exp(-f)), np.exp(np.linspace(-2, 6, 400))[:, None]
        if name == "exposure":
            mean = sizes * np.exp(f)
            gains = stats.nbinom.logpmf(y, own, own / (own + mean)) - stats.poisson.logpmf(y, mean)
        else:
            own_laws = stats.betabinom.logpmf(y, sizes.astype(int), own * p, own * (1 - p))
            gains = own_laws - stats.binom.logpmf(y, sizes, p)
        (warning,) = excess_variation(law, data, f)
        promised = float(warning.split("about ")[1].split(" nats")[0])
        assert promised == pytest.approx(gains.mean(axis=1).max(), rel=0.06)  # two digits

    @pytest.mark.parametrize("name", ["exposure", "trials"])
    def test_is_not_of_the_law_itself(self, name):
        f, data, likelihood = self.rows(name, wide=False)
        assert excess_variation(wider_law(likelihood), data, f) == []

    def test_a_row_weight_counts_copies(self):
        """Few distinct counts of many rows: variance 12 about a mean of 2.2."""
        y, weights = np.array([0.0, 1, 2, 9]), np.array([500.0, 200, 100, 200])
        data = lgp.Data(np.zeros(4), y, weights=weights)
        f, law = np.full(4, np.log(2.2)), wider_law(lgp.Poisson())
        assert "vary by more" in excess_variation(law, data, f)[0]
        assert excess_variation(law, data.reweighted(weights / 100), f) == []  # ten rows

    def test_a_verdict_has_it(self):
        rng = np.random.default_rng(0)
        x = np.repeat(np.arange(6.0), 10)
        y = rng.poisson(np.exp(1 + np.sin(x)) * rng.gamma(0.7, 1 / 0.7, 60))
        told = [
            lgp.fit(lgp.LatentGP(lgp.RBF(), law), lgp.Data(x, y), key=KEY, method=lgp.Laplace())
            for law in (lgp.Poisson(), lgp.LogNegativeBinomial())
        ]
        first, second = (" ".join(fit.diagnostics.warnings) for fit in told)
        assert "likelihood='negative-binomial'" in first
        assert "vary by more" not in second
