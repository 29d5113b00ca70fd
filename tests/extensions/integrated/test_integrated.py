"""Hyper-parameters integrated over: against brute force, and through every door."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.distributions import LogNormal
from scipy.stats import lognorm, norm
from typer.testing import CliRunner

import latentgp as lgp
from latentgp import plots
from latentgp.choosing.choice import Choice, treating
from latentgp.extensions.integrated.hyperparameter_density import _in_few_sizes
from latentgp.extensions.integrated.method import check_integrable, rows_are_few
from latentgp.surfaces.cli.app import app
from latentgp.testing import check_posterior

KEY = jax.random.key(0)
_rng = np.random.default_rng(3)
X = _rng.uniform(-2, 2, (30, 1))
F = 1.5 * np.sin(2 * X[:, 0])
REAL = F + 0.4 * _rng.normal(size=30)
COUNTS = _rng.poisson(np.exp(F)).astype(float)
BINARY = (_rng.uniform(size=30) < 1 / (1 + np.exp(-2 * F))).astype(float)
NEW = np.linspace(-2, 2, 7)[:, None]
LAWS = {
    "kernel.lengthscale": LogNormal(0.0, 0.7),
    "kernel.variance": LogNormal(0.5, 0.8),
    "likelihood.noise_variance": LogNormal(-2.0, 1.0),
}
OF_KERNEL = {path: law for path, law in LAWS.items() if path.startswith("kernel")}
REGRESSION = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.16))


def integrated(model, y, method, priors=LAWS, **settings):
    settings = {"key": KEY, "method": method, "hyperparameters": "integrate"} | settings
    return lgp.fit(model, lgp.Data(X, y), priors=priors, **settings)


def log_joint(logarithms, frozen_noise=None):
    """Log evidence plus log priors of many logarithms, in NumPy alone."""
    values = np.exp(logarithms)
    lengthscale, variance = values[:, 0, None, None], values[:, 1, None, None]
    noise = values[:, 2, None, None] if frozen_noise is None else frozen_noise
    covariance = variance * np.exp(-0.5 * ((X - X.T) / lengthscale) ** 2) + noise * np.eye(30)
    root = np.linalg.cholesky(covariance)
    half = np.linalg.solve(root, REAL[:, None])[..., 0]
    found = -0.5 * np.sum(half**2, axis=1) - 15 * np.log(2 * np.pi)
    found -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    for place, law in zip(logarithms.T, LAWS.values(), strict=False):
        found += norm.logpdf(place, float(law.loc), float(law.scale))
    return found


def on_lattice(function, centre, reach, number):
    """Places, weights and log integral of a log density, by brute force."""
    axes = [np.linspace(c - r, c + r, number) for c, r in zip(centre, reach, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(centre))
    values = function(places)
    weights = np.exp(values - values.max())
    volume = np.prod([axis[1] - axis[0] for axis in axes])
    log_integral = values.max() + np.log(weights.sum() * volume)
    return places, weights / weights.sum(), log_integral


def assert_marginals(posterior, places, weights, paths, tolerance):
    """Means and deviations on the hyper-parameters' own scales, and three quantiles."""
    for column, path in enumerate(paths):
        found, values = posterior.hyperparameter_marginals[path], np.exp(places[:, column])
        mean = weights @ values
        deviation = np.sqrt(weights @ (values - mean) ** 2)
        assert abs(found.mean - mean) < tolerance * deviation, path
        assert found.std == pytest.approx(deviation, rel=2 * tolerance), path
        steps = np.unique(places[:, column])
        mass = np.array([weights[places[:, column] == step].sum() for step in steps])
        ends = steps + 0.5 * (steps[1] - steps[0])
        for level in (0.1, 0.5, 0.9):
            share = np.interp(np.log(found.quantiles([level])[0]), ends, np.cumsum(mass))
            assert share == pytest.approx(level, abs=0.02), (path, level)


@pytest.mark.parametrize("number", [2, 3])
def test_regression_is_that_of_quadrature_over_the_exact_evidence(number):
    frozen = () if number == 3 else ("likelihood.noise_variance",)
    found = integrated(REGRESSION, REAL, lgp.ExactGP(), frozen=frozen)
    posterior, integration = found.posterior, found.diagnostics.finding("integration")
    noise = 0.16 if number == 2 else None
    centre, reach = [-0.2, 0.9, -1.9][:number], [2.2, 3.8, 1.6][:number]
    places, weights, log_integral = on_lattice(
        lambda places: log_joint(places, noise), centre, reach, 80 if number == 2 else 26
    )
    assert float(posterior.log_evidence) == pytest.approx(log_integral, abs=0.03)
    assert posterior.log_evidence.kind == "approximation"
    assert_marginals(posterior, places, weights, list(LAWS)[:number], 0.03)
    assert found.diagnostics.converged
    assert (integration.left_out, integration.flat, integration.without_prior) == (0, 0, ())
    assert 1 < integration.effective_points <= integration.points
    assert "integrated over" in found.diagnostics.verdict
    assert found.diagnostics.reason.endswith("hyper-parameters integrated over")


def test_predictions_average_over_the_hyper_parameters():
    frozen = ("likelihood.noise_variance",)
    found = integrated(REGRESSION, REAL, lgp.ExactGP(), frozen=frozen).posterior
    places, weights, _ = on_lattice(
        lambda places: log_joint(places, 0.16), [-0.2, 0.9], [2.0, 3.5], 25
    )
    means, squares = np.zeros(7), np.zeros(7)
    for (lengthscale, variance), weight in zip(np.exp(places), weights, strict=True):
        if weight < 1e-6:
            continue

        def gram(a, b, s=variance, scale=lengthscale):
            return s * np.exp(-0.5 * ((a - b.T) / scale) ** 2)

        gain = np.linalg.solve(gram(X, X) + 0.16 * np.eye(30), gram(X, NEW))
        mean, spread = gain.T @ REAL, variance - np.sum(gain * gram(X, NEW), axis=0)
        means += weight * mean
        squares += weight * (mean**2 + spread)
    marginals = found.predict_f(NEW)
    deviations = np.sqrt(squares - means**2)
    np.testing.assert_allclose((marginals.mean - means) / deviations, 0, atol=0.02)
    np.testing.assert_allclose(np.sqrt(marginals.variance) / deviations, 1, atol=0.03)
    check_posterior(found, NEW)


@pytest.mark.parametrize(
    ("likelihood", "y", "method"),
    [
        pytest.param(lgp.Poisson(), COUNTS, lgp.Laplace(), id="Poisson"),
        pytest.param(lgp.Bernoulli(), BINARY, lgp.ExpectationPropagation(), id="logistic"),
    ],
)
def test_an_approximate_evidence_is_integrated_as_it_is(likelihood, y, method):
    model = lgp.LatentGP(lgp.RBF(), likelihood)
    found = integrated(model, y, method, OF_KERNEL)
    data = lgp.Data(X, y)

    @jax.jit
    def log_joint(place):
        kernel = lgp.RBF(jnp.exp(place[0]), jnp.exp(place[1]))
        at = lgp.LatentGP(kernel, likelihood)
        laws = zip(place, OF_KERNEL.values(), strict=True)
        prior = sum(law.log_prob(jnp.exp(p)) + p for p, law in laws)
        return lgp.log_evidence(at, data, method) + prior

    with jax.enable_x64(True):
        places, weights, log_integral = on_lattice(
            lambda places: np.array([float(log_joint(jnp.asarray(p))) for p in places]),
            [-0.3, 0.7],
            [2.2, 2.9],
            21,
        )
    assert float(found.posterior.log_evidence) == pytest.approx(log_integral, abs=0.05)
    assert_marginals(found.posterior, places, weights, list(OF_KERNEL), 0.05)


class TestFewRows:
    """By "auto", as tables are fitted."""

    def test_twenty_rows_a_hyper_parameter_are_few(self):
        assert rows_are_few(REGRESSION, 60, ())
        assert not rows_are_few(REGRESSION, 61, ())
        assert not rows_are_few(REGRESSION, 60, ("kernel.lengthscale",))
        assert not rows_are_few(REGRESSION, 10, ("kernel", "likelihood"))
        several = lgp.LatentGP(lgp.RBF(np.ones(7)), lgp.Gaussian())
        assert not rows_are_few(several, 20, ())  # nine
        assert rows_are_few(several, 20, ("kernel.variance",))
        assert not rows_are_few(lgp.LatentGP(lgp.RBF(), lgp.Poisson()), 20, ())
        assert not rows_are_few(lgp.LatentGP(lgp.SameGroup(), lgp.Gaussian()), 20, ())

    @pytest.mark.parametrize(
        "settings", [{"learn_hyperparameters": False}, {"method": lgp.ExactGP()}, {"priors": None}]
    )
    def test_not_where_something_else_is_asked_for(self, settings):
        settings = {"hyperparameters": "auto", "method": "auto", "key": KEY} | settings
        found = lgp.fit(REGRESSION, lgp.Data(X, REAL), **settings)
        assert not isinstance(found.diagnostics.method, lgp.Integrated)

    def test_the_same_as_by_its_own_word(self):
        auto = integrated(REGRESSION, REAL, "auto", hyperparameters="auto").posterior
        own = integrated(REGRESSION, REAL, "auto").posterior
        for one, other in zip(auto.predict_f(NEW), own.predict_f(NEW), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_a_table_is_integrated_and_goes_on_with_further_rows(self, tmp_path):
        frame = pd.DataFrame({"x": X[:, 0], "y": REAL})
        model = lgp.TableModel.fit(frame, "y", random_state=0)
        assert isinstance(model.estimator.method_, lgp.Integrated)
        assert "Hyper-parameters are averaged over, as 30 rows" in "".join(
            model.estimator.diagnostics_.remarks
        )
        loaded = lgp.load(model.save(tmp_path / "model"))
        pd.testing.assert_frame_equal(loaded.predict(frame), model.predict(frame))
        assert np.all(np.isfinite(model.leave_one_out(frame).log_density))
        mode = lgp.TableModel.fit(frame, "y", random_state=0, hyperparameters="optimise")
        assert not isinstance(mode.estimator.method_, lgp.Integrated)
        assert np.mean(model.predict(frame)["std"]) > np.mean(mode.predict(frame)["std"])
        estimator, at = model.estimator, model.estimator.model_
        estimator.partial_fit(X[:8] + 0.1, REAL[:8], learn_hyperparameters=False)
        assert "at the point of the greatest weight" in estimator.method_reason_
        # A Gaussian process of all rows with these hyper-parameters.
        both = lgp.Data(np.concatenate([X, X[:8] + 0.1]), np.concatenate([REAL, REAL[:8]]))
        expected = lgp.fit(at, both, key=KEY, learn_hyperparameters=False).posterior
        for one, other in zip(
            estimator.posterior_.predict_f(NEW), expected.predict_f(NEW), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_mixtures_have_few_sizes_and_the_weights_of_their_points():
    weights = np.random.default_rng(0).dirichlet(np.ones(21))
    own, kept = _in_few_sizes(weights)
    assert own.shape == (32,)
    np.testing.assert_allclose(np.bincount(kept, own), weights)
    assert np.argmax(own) == np.argmax(weights)
    assert _in_few_sizes(np.full(16, 1 / 16))[1].tolist() == list(range(16))


class TestDoors:
    def test_a_method_as_a_value_and_the_word_are_one(self):
        words = integrated(REGRESSION, REAL, lgp.ExactGP()).posterior
        value = integrated(
            REGRESSION, REAL, lgp.Integrated(lgp.ExactGP()), hyperparameters="optimise"
        ).posterior
        for one, other in zip(words.predict_f(NEW), value.predict_f(NEW), strict=True):
            np.testing.assert_array_equal(one, other)  # the same key, the same bits
        assert words.log_evidence == value.log_evidence

    def test_a_second_fit_compiles_nothing(self, compilations):
        integrated(REGRESSION, REAL, lgp.ExactGP()).posterior.predict_f(NEW)
        before = len(compilations)
        # Elsewhere, so that there are other points and another number of them.
        again = integrated(REGRESSION, REAL + 0.3 * X[:, 0], lgp.ExactGP())
        assert again.diagnostics.finding("integration").points > 5
        assert compilations[before:] == []

    def test_a_file_brings_back_the_same_bits(self, tmp_path):
        found = integrated(REGRESSION, REAL, lgp.ExactGP())
        loaded = lgp.load(lgp.save(found, tmp_path / "fit"))
        for one, other in zip(
            loaded.posterior.predict_f(NEW), found.posterior.predict_f(NEW), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        assert loaded.diagnostics.verdict == found.diagnostics.verdict
        one, other = (f.posterior.hyperparameter_marginals for f in (loaded, found))
        assert one.keys() == other.keys()
        path = "kernel.lengthscale"
        assert one[path].interval() == other[path].interval()
        assert one[path].prior.mean == other[path].prior.mean

    def test_estimators(self, tmp_path):
        regressor = lgp.GPRegressor(hyperparameters="integrate", random_state=0)
        regressor.fit(X, REAL + 100)
        assert isinstance(regressor.method_, lgp.Integrated)
        assert isinstance(regressor.posterior_, lgp.IntegratedPosterior)
        optimised = lgp.GPRegressor(random_state=0).fit(X, REAL + 100)
        np.testing.assert_allclose(regressor.predict(NEW), optimised.predict(NEW), atol=0.3)
        again = lgp.load(regressor.save(tmp_path / "m"))
        np.testing.assert_array_equal(again.predict(NEW), regressor.predict(NEW))
        with pytest.raises(lgp.InputError, match="Batches cannot integrate hyper-parameters"):
            regressor.continue_with(None)
        classifier = lgp.GPClassifier(hyperparameters="integrate", random_state=0)
        assert classifier.fit(X, BINARY).predict_proba(NEW).shape == (7, 2)

    def test_the_command_line(self, tmp_path):
        pd.DataFrame({"x": X[:, 0], "y": REAL}).to_csv(tmp_path / "rows.csv", index=False)
        line = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--out", str(tmp_path / "m")]
        asked = [*line, "--hyperparameters", "integrate"]
        said = CliRunner().invoke(app, asked, catch_exceptions=False)
        assert said.exit_code == 0, said.output
        assert "Hyper-parameters were integrated over" in said.output
        refused = CliRunner().invoke(app, [*asked, "--batch-size", "10"])
        assert isinstance(refused.exception, lgp.InputError)

    def test_sampled_instead(self):
        choice = Choice(lgp.VariationalInference(), "few rows")
        chains = treating("sample", choice, REGRESSION)
        assert chains.method == lgp.MCMC()
        assert chains.reason == (
            "few rows; hyper-parameters sampled by MCMC in coordinates of sites"
        )
        steps = lgp.LatentGP(lgp.RBF(), lgp.RobustMax(3))
        slices = lgp.MCMC(latents="elliptical-slice", coupling="whitened")
        assert treating("sample", choice, steps).method == slices
        zero = lgp.LatentGP(lgp.RBF(), lgp.HeavisideMulticlass(3))
        assert isinstance(treating("sample", choice, zero).method, lgp.GibbsSampling)
        points = lgp.Inducing(7)
        counts = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        sparse = treating("sample", Choice(lgp.VariationalInference(points), "rows"), counts)
        assert sparse.method == lgp.MCMC(points)
        own = lgp.NUTS(draws=10)
        assert treating("sample", Choice(own, "asked for"), counts).method is own
        assert treating("optimise", Choice(own, "asked for"), counts).method is own

    def test_a_picture(self):
        marginals = integrated(REGRESSION, REAL, lgp.ExactGP()).posterior.hyperparameter_marginals
        ax = plots.hyperparameter(None, marginals["kernel.lengthscale"], x_label="length-scale")
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["95 % interval", "posterior", "prior", "posterior mean"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"learn_hyperparameters": False}, "nothing to integrate over"),
            ({"frozen": ("kernel", "likelihood")}, "nothing to integrate over"),
            ({"method": lgp.NUTS()}, "NUTS gives no log evidence"),
            ({"method": lgp.Stochastic(lgp.CollapsedVI())}, "Stochastic gives no log evidence"),
            ({"devices": jax.devices()}, "cannot spread rows"),
            (
                {"method": lgp.EllipticalSlice(), "hyperparameters": "sample"},
                "EllipticalSlice gives no log evidence; use MCMC",
            ),
        ],
    )
    def test_in_a_sentence(self, settings, words):
        with pytest.raises(lgp.InputError, match=words):
            integrated(REGRESSION, REAL, settings.pop("method", lgp.ExactGP()), **settings)

    def test_another_word(self):
        with pytest.raises(
            lgp.InputError, match='must be "auto", "optimise", "integrate" or "sample"'
        ):
            lgp.GPRegressor(hyperparameters="marginalise").fit(X, REAL)

    def test_a_method_without_sites_as_a_value(self):
        with pytest.raises(lgp.InputError, match="GibbsSampling gives no log evidence"):
            check_integrable(lgp.GibbsSampling())

    def test_too_many_hyper_parameters(self):
        rows = lgp.Data(np.random.default_rng(0).normal(size=(20, 10)), REAL[:20])
        model = lgp.LatentGP(lgp.RBF(lengthscale=np.ones(10)), lgp.Gaussian(0.1))
        with pytest.raises(lgp.InputError, match="12 hyper-parameters are too many"):
            lgp.fit(
                model, rows, key=KEY, hyperparameters="integrate", max_evaluations=1
            )  # fmt: skip


class TestDiagnostics:
    def test_what_has_no_prior_is_said(self):
        found = integrated(
            lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.16), lgp.ConstantMean(0.0)),
            REAL,
            lgp.ExactGP(),
            frozen=("kernel.variance",),
        )
        assert found.diagnostics.finding("integration").without_prior == ("mean.value",)
        assert any("mean.value had no prior" in w for w in found.diagnostics.warnings)
        assert found.posterior.hyperparameter_marginals["mean.value"].prior is None

    def test_a_callback_ends_it_with_what_there_is(self):
        seen = []

        def callback(progress):
            if progress.phase == "integrating over hyper-parameters":
                seen.append(progress)
            return len(seen) >= 30

        found = integrated(REGRESSION, REAL, lgp.ExactGP(), callback=callback)
        assert seen[-1].evaluations == 30
        assert found.diagnostics.finding("integration").left_out > 0 or len(seen) == 30
        assert not found.diagnostics.converged
        assert np.all(np.isfinite(found.posterior.predict_f(NEW).mean))

    def test_a_limit_of_time_leaves_the_design(self):
        full = integrated(REGRESSION, REAL, lgp.ExactGP())
        hasty = integrated(REGRESSION, REAL, lgp.ExactGP(), max_seconds=1e-9)
        few = hasty.diagnostics.finding("integration").evaluations
        assert few < full.diagnostics.finding("integration").evaluations
        assert any("still moved" in w for w in hasty.diagnostics.warnings)

    @pytest.mark.slow
    def test_a_mixture_through_points_is_one_program_of_any_size(self):
        model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0]), lgp.Gaussian(0.16))
        found = integrated(model, REAL, lgp.CollapsedVI(lgp.Inducing(12)))
        check_posterior(found.posterior, NEW)
        assert "kernel.lengthscale[0]" in found.posterior.hyperparameter_marginals
        shifted = found.posterior.shifted(5.0)
        np.testing.assert_allclose(
            shifted.predict_f(NEW).mean, found.posterior.predict_f(NEW).mean + 5, atol=1e-9
        )


def test_the_density_of_a_marginal_is_that_of_its_draws():
    law = lognorm(0.6, scale=2.0)
    draws = law.ppf((np.arange(4000) + 0.5) / 4000)
    marginal = lgp.HyperparameterMarginal.of(draws[::-1], positive=True)
    x = np.array([0.8, 2.0, 4.0])
    np.testing.assert_allclose(marginal.pdf(x), law.pdf(x), rtol=0.03)
    np.testing.assert_allclose(marginal.cdf(x), law.cdf(x), atol=1e-3)
    np.testing.assert_allclose(marginal.quantiles([0.05, 0.9]), law.ppf([0.05, 0.9]), rtol=1e-2)
    assert marginal.pdf(-1.0) == 0
    weighted = lgp.HyperparameterMarginal.of([0.0, 1.0, 2.0], [1.0, 0.0, 3.0], positive=False)
    assert (weighted.mean, weighted.std) == pytest.approx((1.5, np.sqrt(0.75)))
    fine = np.linspace(-4, 6, 2001)
    density = weighted.pdf(fine)
    assert np.trapezoid(density, fine) == pytest.approx(1, abs=1e-3)
    assert np.trapezoid(fine * density, fine) == pytest.approx(1.5, abs=1e-3)
