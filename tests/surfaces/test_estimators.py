"""scikit-learn's contract and what the estimators add to it."""

import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.distributions import LogNormal
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import latentgp as lgp
from latentgp import (
    GPClassifier,
    GPCountRegressor,
    GPOrdinalClassifier,
    GPRegressor,
    InputError,
)
from latentgp.choosing.choice import choose_for
from latentgp.choosing.registry import method_from_name
from latentgp.rows import RowsInMemory
from latentgp.surfaces.estimators import MULTICLASS, REGRESSION
from latentgp.surfaces.estimators.base import row_weights

ROWS = 30


def inputs(seed=0, rows=ROWS):
    return np.random.default_rng(seed).normal(size=(rows, 2))


def targets(X, seed=1):
    return 5 + np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(seed).normal(size=len(X))


def labels(X):
    return np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no")


@pytest.fixture(scope="module")
def regressor():
    X = inputs()
    return GPRegressor(random_state=0).fit(X, targets(X))


@pytest.fixture(scope="module")
def classifier():
    X = inputs()
    return GPClassifier(random_state=0).fit(X, labels(X))


class CountsOfChecks(GPCountRegressor):
    """Targets of scikit-learn's checks are real numbers; each is made a count of its own."""

    def fit(self, X, y, sample_weight=None, **side):
        return super().fit(X, _counts(y), sample_weight, **side)

    def partial_fit(self, X, y, sample_weight=None, **side):
        return super().partial_fit(X, _counts(y), sample_weight, **side)

    def score(self, X, y, sample_weight=None, **side):
        return super().score(X, _counts(y), sample_weight, **side)


def _counts(y):
    values = np.asarray(y)
    numbers = values.dtype.kind in "fiu" and np.isfinite(values).all()
    return np.rint(np.maximum(8 + 3 * values, 0)) if numbers else y


class LevelsOfChecks(GPOrdinalClassifier):
    """Labels of scikit-learn's checks are text now and then, in the order of the alphabet."""

    def fit(self, X, y, sample_weight=None):
        text = np.asarray(y).dtype.kind in "OU"
        order, self.order = self.order, sorted(set(np.ravel(y))) if text else self.order
        try:
            return super().fit(X, y, sample_weight)
        finally:
            self.order = order


@pytest.mark.always
@parametrize_with_checks([GPRegressor(), GPClassifier(), CountsOfChecks(), LevelsOfChecks()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


class TestWithScikitLearn:
    def test_pipeline_and_cross_validation(self):
        X = inputs(rows=2 * ROWS)
        scores = cross_val_score(
            make_pipeline(StandardScaler(), GPRegressor(random_state=0)), X, targets(X), cv=2
        )
        assert scores.mean() > 0.8  # R^2; noise alone leaves 0.98

    def test_grid_search_over_methods(self):
        X = inputs(rows=2 * ROWS)
        search = GridSearchCV(
            GPClassifier(random_state=0),
            {"method": ["augmented", "variational"]},
            cv=2,
            scoring="neg_log_loss",
            refit=False,
        ).fit(X, labels(X))
        scores = search.cv_results_["mean_test_score"]
        assert np.all(scores > -np.log(2))  # better than a coin
        assert scores[0] != scores[1]  # so the parameter was passed on

    def test_get_set_and_clone(self):
        kernel = lgp.RBF(lengthscale=0.5)
        estimator = GPRegressor(kernel, method="exact", restarts=2, random_state=3)
        copy = clone(estimator)
        assert copy.get_params() == estimator.get_params() | {"kernel": copy.kernel}
        assert float(copy.kernel.lengthscale) == 0.5
        assert not hasattr(copy, "posterior_")
        assert copy.set_params(restarts=1).restarts == 1

    def test_columns_of_a_data_frame_are_remembered(self):
        X = inputs()
        frame = pd.DataFrame(X, columns=["left", "right"])
        estimator = GPRegressor(random_state=0).fit(frame, pd.Series(targets(X)))
        assert estimator.feature_names_in_.tolist() == ["left", "right"]
        assert estimator.n_features_in_ == 2
        with pytest.raises(ValueError, match="same order"):
            estimator.predict(frame[["right", "left"]])


@pytest.mark.parametrize("method", [lgp.VariationalInference, lgp.Laplace])
def test_three_classes_through_neighbours(method):
    """Given all rows before each they are those of dense algebra, with single sites."""
    X = inputs(rows=24)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    settings = {"kernel": lgp.Matern32(), "max_evaluations": 3, "random_state": 0}
    near = GPClassifier(method=method(lgp.Neighbours(23)), **settings).fit(X, y)
    dense = GPClassifier(method=method(coupled=False), **settings).fit(X, y)
    np.testing.assert_allclose(near.predict_proba(X), dense.predict_proba(X), atol=1e-4)


class TestRegressor:
    def test_deviation_is_the_root_of_the_variance_of_y(self, regressor):
        X = inputs(2)
        mean, deviation = regressor.predict(X, return_std=True)
        predictive = regressor.posterior_.predict(X)
        np.testing.assert_array_equal(deviation, np.sqrt(predictive.variance))
        latent = regressor.posterior_.predict_f(X)
        noise = float(regressor.model_.likelihood.noise_variance)
        np.testing.assert_allclose(deviation**2, latent.variance + noise, rtol=1e-12)
        assert mean.shape == deviation.shape == (ROWS,)

    def test_mean_alone_is_the_same_mean(self, regressor):
        X = inputs(2)
        mean, _ = regressor.predict(X, return_std=True)
        # Another compiled program, so rounding may differ.
        np.testing.assert_allclose(regressor.predict(X), mean, rtol=1e-10)

    def test_functions_without_noise_are_interpolated(self):
        X = np.linspace(0, 6, 30)[:, None]
        new = np.linspace(0.1, 5.9, 50)[:, None]
        fitted = GPRegressor(random_state=0).fit(X, 100 + 7 * np.sin(X[:, 0]))
        # The noise variance stopped at 1e-5 of the variance of y.
        assert float(fitted.model_.likelihood.noise_variance) < 1e-7 * 49
        error = fitted.predict(new) - 100 - 7 * np.sin(new[:, 0])
        assert np.sqrt(np.mean(error**2)) < 7e-5

    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
    def test_intervals_hold_what_they_promise(self, level):
        X, y = load_diabetes(return_X_y=True)
        train, test = np.arange(0, 442, 3), np.arange(1, 442, 3)
        estimator = GPRegressor(random_state=0).fit(X[train], y[train])
        lower, upper = estimator.predict_interval(X[test], level)
        covered = np.mean((lower <= y[test]) & (y[test] <= upper))
        # Three binomial standard errors, doubled in variance for what the fit itself is off.
        assert abs(covered - level) < 3 * np.sqrt(2 * level * (1 - level) / len(test))

    def test_interval_is_the_normal_one(self, regressor):
        X = inputs(2)
        mean, deviation = regressor.predict(X, return_std=True)
        lower, upper = regressor.predict_interval(X, 0.8)
        expected = stats.norm(mean, deviation).interval(0.8)
        np.testing.assert_allclose([lower, upper], expected, rtol=1e-9)

    def test_log_density_is_a_number_a_row_that_adds_up(self, regressor):
        X = inputs(2)
        y = targets(X)
        density = regressor.log_predictive_density(X, y)
        mean, deviation = regressor.predict(X, return_std=True)
        assert density.shape == (ROWS,)
        np.testing.assert_allclose(density.sum(), stats.norm.logpdf(y, mean, deviation).sum())

    def test_draws_have_the_moments_of_the_prediction(self, regressor):
        X = inputs(2)[:4]
        draws = regressor.sample_y(X, 4000, random_state=0)
        mean, deviation = regressor.predict(X, return_std=True)
        assert draws.shape == (4, 4000)
        assert regressor.sample_y(X).shape == (4, 1)
        # Four standard errors of a mean and of a standard deviation.
        assert np.all(np.abs(draws.mean(axis=1) - mean) < 4 * deviation / np.sqrt(4000))
        assert np.all(np.abs(draws.std(axis=1) / deviation - 1) < 4 / np.sqrt(8000))

    def test_known_noise_of_a_row_is_added_at_fit_and_at_prediction(self):
        X = inputs()
        y = targets(X)
        y[:6] += np.array([3, -3, 3, -3, 3, -3])
        noise = np.r_[np.full(6, 9.0), np.zeros(ROWS - 6)]
        informed = GPRegressor(random_state=0).fit(X, y, noise_variance=noise)
        blind = GPRegressor(random_state=0).fit(X, y)
        truth = 5 + np.sin(2 * X[:, 0])
        error = [np.mean((e.predict(X) - truth) ** 2) for e in (informed, blind)]
        assert error[0] < 0.2 * error[1]
        _, quiet = informed.predict(X, return_std=True)
        _, loud = informed.predict(X, return_std=True, noise_variance=np.full(ROWS, 4.0))
        np.testing.assert_allclose(loud**2 - quiet**2, 4.0)

    def test_hyperparameters_are_in_the_units_of_the_user(self):
        X = inputs()
        metres = GPRegressor(random_state=0).fit(X, targets(X))
        millimetres = GPRegressor(random_state=0).fit(1000 * X, 100 * targets(X))
        ours, theirs = metres.model_, millimetres.model_
        np.testing.assert_allclose(
            theirs.kernel.lengthscale, 1000 * ours.kernel.lengthscale, rtol=1e-4
        )
        np.testing.assert_allclose(theirs.kernel.variance, 1e4 * ours.kernel.variance, rtol=1e-4)
        np.testing.assert_allclose(
            theirs.likelihood.noise_variance, 1e4 * ours.likelihood.noise_variance, rtol=1e-4
        )

    def test_the_kernel_given_is_where_the_search_starts(self):
        X = 1000 * inputs()
        kernel = lgp.Matern52(lengthscale=[700.0, 2000.0], variance=0.5)
        start = GPRegressor(kernel, learn_hyperparameters=False).fit(X, targets(X))
        learned = GPRegressor(kernel, random_state=0).fit(X, targets(X))
        assert isinstance(learned.model_.kernel, lgp.Matern52)
        evidence = start.posterior_.log_evidence.value
        assert learned.history_.bound[0] == pytest.approx(evidence, rel=1e-9)
        assert learned.posterior_.log_evidence.value > evidence
        assert kernel.lengthscale.tolist() == [700.0, 2000.0]  # the user's own is untouched

    def test_a_kernel_of_another_dimension_is_refused(self):
        X = inputs()
        with pytest.raises(InputError, match=r"has shape \(3,\) but the inputs have 2 columns"):
            GPRegressor(lgp.RBF(lengthscale=np.ones(3))).fit(X, targets(X))


class TestClassifier:
    @pytest.mark.parametrize("kind", ["text", "boolean", "number"])
    def test_labels_come_back_as_they_were_given(self, kind):
        X = inputs()
        y = {"text": labels(X), "boolean": X[:, 0] > 0, "number": np.where(X[:, 0] > 0, 7, -3)}
        estimator = GPClassifier(random_state=0).fit(X, y[kind])
        predicted = estimator.predict(X)
        assert predicted.dtype == y[kind].dtype
        assert estimator.classes_.tolist() == sorted(set(y[kind].tolist()))
        assert np.mean(predicted == y[kind]) > 0.9

    def test_probabilities_sum_to_one_and_agree_with_the_labels(self, classifier):
        X = inputs(2)
        probabilities = classifier.predict_proba(X)
        assert probabilities.shape == (ROWS, 2)
        assert np.all((probabilities > 0) & (probabilities < 1))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
        most_probable = classifier.classes_[np.argmax(probabilities, axis=1)]
        np.testing.assert_array_equal(classifier.predict(X), most_probable)
        np.testing.assert_array_equal(probabilities, classifier.predict_proba(X))

    def test_log_density_is_the_log_of_the_probability(self, classifier):
        X = inputs(2)
        y = labels(X)
        chosen = classifier.predict_proba(X)[np.arange(ROWS), (y == "yes").astype(int)]
        # Both by quadrature, one of them of the log: equal to their common error.
        np.testing.assert_allclose(
            classifier.log_predictive_density(X, y), np.log(chosen), atol=1e-6
        )
        with pytest.raises(InputError, match="'maybe'"):
            classifier.log_predictive_density(X[:1], ["maybe"])

    def test_draws_have_the_frequencies_of_the_prediction(self, classifier):
        X = inputs(2)[:4]
        draws = classifier.sample_y(X, 4000, random_state=0)
        assert draws.shape == (4, 4000)
        assert set(draws.ravel()) == {"no", "yes"}
        probability = classifier.predict_proba(X)[:, 1]
        error = np.sqrt(probability * (1 - probability) / 4000)
        assert np.all(np.abs((draws == "yes").mean(axis=1) - probability) < 4 * error + 1e-3)

    def test_one_class_is_an_error_that_names_it(self):
        with pytest.raises(InputError, match=r"one class only \(\['yes'\]\)"):
            GPClassifier().fit(inputs(), np.full(ROWS, "yes"))

    def test_a_class_a_row_is_an_error(self):
        with pytest.raises(InputError, match="classes in 30 rows, too many to learn"):
            GPClassifier().fit(inputs(), [f"name {n}" for n in range(ROWS)])

    def test_several_classes_of_any_label(self):
        X = inputs()
        labels = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
        classifier = GPClassifier(random_state=0).fit(X, labels)
        probabilities = classifier.predict_proba(X)
        assert list(classifier.classes_) == ["high", "low", "middle"]
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
        assert np.mean(classifier.predict(X) == labels) > 0.9
        density = classifier.log_predictive_density(X, labels)
        column = np.searchsorted(classifier.classes_, labels)
        np.testing.assert_allclose(np.exp(density), probabilities[np.arange(ROWS), column])
        assert set(np.unique(classifier.sample_y(X[:3], 20))) <= set(labels)

    @pytest.mark.parametrize("likelihood", ["logit", "probit", "logistic-softmax", "robust-max"])
    def test_far_from_all_rows_a_rare_class_stays_rare(self, likelihood):
        rng = np.random.default_rng(2)
        X = rng.uniform(-2, 2, (200, 1))
        y = np.isin(np.arange(200), rng.choice(200, 6, replace=False))
        classifier = GPClassifier(likelihood=likelihood, random_state=0).fit(X, y)
        assert classifier.predict_proba([[60.0]])[0, 1] < 0.15  # 0.5 by a prior mean of zero

    def test_far_from_all_rows_classes_have_their_shares(self):
        rng = np.random.default_rng(3)
        X = rng.uniform(-2, 2, (150, 1))
        classifier = GPClassifier(random_state=0).fit(X, np.repeat([0, 1, 2], [105, 37, 8]))
        far = classifier.predict_proba([[60.0]])[0]
        np.testing.assert_allclose(far, [0.7, 0.25, 0.05], atol=0.1)

    def test_classes_without_overlap_do_not_run_off(self):
        X = inputs()
        classifier = GPClassifier(random_state=0).fit(X, X[:, 0] > np.sort(X[:, 0])[2])
        means = lgp.parameters(classifier.model_)["mean.value"].value
        assert abs(float(means) - np.log(27.5 / 3.5)) < 3  # within the weak prior around it


class TestLeaveOneOut:
    def test_a_row_is_predicted_as_by_a_fit_without_it(self, regressor):
        X = inputs()
        y = targets(X)
        found = regressor.leave_one_out(X, y)
        kernel, likelihood = regressor.model_.kernel, regressor.model_.likelihood
        others = np.arange(ROWS) != 7
        model = lgp.LatentGP(kernel, likelihood, lgp.ConstantMean(y.mean()))
        rows = lgp.Data(X, y).select(others)
        held = {"key": jax.random.key(0), "learn_hyperparameters": False}
        without = lgp.fit(model, rows, **held).posterior.predict(X[[7]])
        assert found.mean[7] == pytest.approx(without.mean[0], abs=1e-8)
        assert found.log_density[7] == pytest.approx(without.log_prob(y[[7]])[0], abs=1e-8)

    def test_labels_have_probabilities(self, classifier):
        X = inputs()
        found = classifier.leave_one_out(X, labels(X))
        own = found.probabilities[np.arange(ROWS), classifier.numbered(labels(X)).astype(int)]
        np.testing.assert_allclose(np.log(own), found.log_density, rtol=1e-8)
        seen = classifier.log_predictive_density(X, labels(X))
        assert np.mean(found.log_density) < np.mean(seen)

    def test_a_table_with_exposure_and_weights(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"speed": rng.uniform(size=40), "days": rng.uniform(1, 9, 40)})
        frame["n"] = rng.poisson(frame["days"] * np.exp(np.sin(5 * frame["speed"])))
        frame["w"] = np.where(np.arange(40) < 3, 2.0, 1.0)
        sides = {"exposure": "days"}
        model = lgp.TableModel.fit(
            frame, "n", task="count", side_columns=sides, weights="w", random_state=0
        )
        found = model.leave_one_out(frame, weights="w")
        assert found.weights[:4].tolist() == [2, 2, 2, 1]
        gaps = model.estimator.log_predictive_density(
            frame[["speed"]].to_numpy(), frame["n"], exposure=frame["days"]
        )
        assert np.all(found.log_density < gaps + 1e-6)
        with pytest.raises(InputError, match="The fit had exposure"):
            model.estimator.leave_one_out(frame[["speed"]].to_numpy(), frame["n"])

    def test_a_gram_matrix_is_refused(self):
        X = inputs()
        gram = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
        regressor = GPRegressor("precomputed", random_state=0).fit(gram, targets(X))
        with pytest.raises(InputError, match="leave_one_out needs covariances"):
            regressor.leave_one_out(gram, targets(X))


@pytest.mark.quick
def test_weights_that_look_like_shares_are_warned_of():
    X = inputs()
    with pytest.warns(UserWarning, match=f"weights of {len(X)} rows add up to 1 rows, as a weight"):
        row_weights(np.full(len(X), 1 / len(X)), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row_weights(np.full(len(X), 0.5), X)


class TestCounts:
    @pytest.mark.parametrize("name", ["poisson", "negative-binomial"])
    def test_exposure_scales_the_count(self, name):
        X = inputs(rows=60)
        exposure = np.random.default_rng(3).uniform(1, 5, size=60)
        rate = np.exp(1 + np.sin(2 * X[:, 0]))
        y = np.random.default_rng(4).poisson(exposure * rate)
        counts = GPCountRegressor(likelihood=name, random_state=0).fit(X, y, exposure=exposure)
        one, five = counts.predict(X), counts.predict(X, exposure=np.full(60, 5.0))
        np.testing.assert_allclose(five, 5 * one, rtol=1e-10)
        assert np.corrcoef(one, rate)[0, 1] > 0.9
        assert counts.score(X, y, exposure=exposure) == pytest.approx(
            r2_score(y, counts.predict(X, exposure=exposure))
        )
        with pytest.raises(InputError, match="The fit had exposure"):
            counts.score(X, y)
        lower, upper = counts.predict_interval(X, 0.9, exposure=exposure)
        assert np.mean((lower <= y) & (y <= upper)) > 0.8
        assert np.all(counts.log_predictive_density(X, y, exposure=exposure) < 0)
        draws = counts.sample_y(X[:2], 500, exposure=[1.0, 5.0])
        assert draws[1].mean() == pytest.approx(five[1], rel=0.2)

    def test_successes_among_trials(self):
        X = inputs(rows=60)
        trials = np.random.default_rng(3).integers(1, 30, 60)
        share = 1 / (1 + np.exp(-1.5 * np.sin(2 * X[:, 0])))
        y = np.random.default_rng(4).binomial(trials, share)
        counts = GPCountRegressor(likelihood="binomial", random_state=0).fit(X, y, trials=trials)
        assert np.corrcoef(counts.predict(X), share)[0, 1] > 0.9
        np.testing.assert_allclose(
            counts.predict(X, trials=trials), trials * counts.predict(X), rtol=1e-10
        )
        lower, upper = counts.predict_interval(X, 0.9, trials=trials)
        assert np.mean((lower <= y) & (y <= upper)) > 0.8
        assert np.all(upper <= trials)
        with pytest.raises(InputError, match="at most the trials of their row"):
            counts.fit(X, y + trials, trials=trials)
        with pytest.raises(InputError, match="exposure"):
            counts.fit(X, y, exposure=trials)

    @pytest.mark.parametrize("name", ["binomial", "negative-binomial", "scaled-logistic-poisson"])
    def test_far_from_the_data_counts_are_as_usual(self, name):
        X = np.random.default_rng(1).uniform(size=(60, 1))
        y = np.random.default_rng(2).binomial(1000, 0.002, 60)
        trials = {"trials": np.full(60, 1000)} if name == "binomial" else {}
        counts = GPCountRegressor(likelihood=name, random_state=0).fit(X, y, **trials)
        far = counts.predict([[100.0]], **{name: values[:1] for name, values in trials.items()})
        assert 1 < far[0] < 4

    def test_counts_of_a_million_and_none(self):
        X = inputs()
        for y in (np.zeros(ROWS), np.full(ROWS, 1e6) + np.arange(ROWS)):
            counts = GPCountRegressor(random_state=0).fit(X, y)
            np.testing.assert_allclose(counts.predict(X), y, rtol=0.01, atol=0.2)

    @pytest.mark.parametrize(
        ("y", "exposure", "says"),
        [
            (-1.0, 1.0, r"counts 0, 1, 2, .* not -1 as in 30 row\(s\), .*; leave"),
            (0.5, 1.0, r"counts 0, 1, 2, .* not 0.5 as in 30 row\(s\), .*; round"),
            (1.0, 0.0, "exposure must be positive"),
        ],
    )
    def test_what_is_no_count_is_refused(self, y, exposure, says):
        X = inputs()
        with pytest.raises(InputError, match=says):
            GPCountRegressor().fit(X, np.full(ROWS, y), exposure=np.full(ROWS, exposure))


class TestCovariance:
    X = inputs(seed=3, rows=4)

    def test_is_that_of_joint_draws(self, regressor):
        mean, covariance = regressor.predict(self.X, return_cov=True)
        np.testing.assert_allclose(mean, regressor.predict(self.X), rtol=1e-10)
        std = regressor.predict(self.X, return_std=True)[1]
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-10)
        draws = regressor.posterior_.sample_f(self.X, key=jax.random.key(0), number=20_000)
        noise = regressor.model_.likelihood.noise_variance
        found = np.cov(draws.T) + noise * np.eye(4)
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 1e-4
        np.testing.assert_allclose(covariance, found, atol=0.05 * np.diag(covariance).max())

    def test_is_refused_where_there_is_none(self, regressor):
        with pytest.raises(InputError, match="one of return_std and return_cov"):
            regressor.predict(self.X, return_std=True, return_cov=True)
        X = inputs()
        gamma = GPRegressor(likelihood="gamma", learn_hyperparameters=False, random_state=0)
        gamma.fit(X, np.exp(X[:, 0]))
        with pytest.raises(InputError, match="this is Gamma by VariationalInference; use sample_y"):
            gamma.predict(self.X, return_cov=True)


class TestOrdinal:
    GRADES = ("low", "middle", "high")

    def test_labels_in_an_order(self):
        X = inputs(rows=60)
        grades = np.array(self.GRADES)[np.digitize(X[:, 0], [-0.5, 0.5])]
        ordinal = GPOrdinalClassifier(order=self.GRADES, random_state=0).fit(X, grades)
        assert ordinal.classes_.tolist() == list(self.GRADES)
        assert ordinal.score(X, grades) > 0.9
        probabilities = ordinal.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
        chosen = probabilities[np.arange(60), np.digitize(X[:, 0], [-0.5, 0.5])]
        density = ordinal.log_predictive_density(X, grades)
        np.testing.assert_allclose(density, np.log(chosen), rtol=1e-10, atol=1e-15)
        assert set(ordinal.sample_y(X, 3).ravel()) <= set(self.GRADES)

    def test_a_level_without_rows_keeps_its_place(self):
        X = inputs(rows=60)
        grades = np.array(["low", "high"])[(X[:, 0] > 0).astype(int)]
        ordinal = GPOrdinalClassifier(order=self.GRADES, method="laplace", random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the data leave open how wide the middle is
            ordinal.fit(X, grades)
        assert ordinal.classes_.tolist() == list(self.GRADES)
        probabilities = ordinal.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
        assert np.all((probabilities[:, 1] > 0) & (probabilities[:, 1] < 0.2))
        assert set(ordinal.predict(X)) == {"low", "high"}
        assert np.all(np.isfinite(ordinal.log_predictive_density(X, ["middle"] * 60)))
        with pytest.raises(InputError, match="one class only"):
            GPOrdinalClassifier(order=self.GRADES).fit(X, ["low"] * 60)

    @pytest.mark.parametrize("kind", [pd.Series, pd.Categorical])
    def test_the_order_of_a_categorical_is_taken(self, kind):
        X = inputs(rows=60)
        grades = np.array(self.GRADES)[np.digitize(X[:, 0], [-0.5, 0.5])]
        y = kind(pd.Categorical(grades, categories=self.GRADES, ordered=True))
        ordinal = GPOrdinalClassifier(random_state=0, max_evaluations=5, method="laplace")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the search was cut short
            assert ordinal.fit(X, y).classes_.tolist() == list(self.GRADES)

    @pytest.mark.parametrize("kind", [np.array, pd.Categorical])
    def test_text_without_an_order_is_refused(self, kind):
        X = inputs()
        grades = np.array(self.GRADES)[np.digitize(X[:, 0], [-0.5, 0.5])]
        with pytest.raises(InputError, match="text, which has no order of its own; give order="):
            GPOrdinalClassifier().fit(X, kind(grades))

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"order": ["low", "high"]}, "missing from"),
            ({"order": ["low", "middle", "high", "low"]}, "twice in"),
            ({"likelihood": lgp.Ordinal([0.0])}, "3 ordered classes"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, settings, says):
        X = inputs()
        grades = np.array(self.GRADES)[np.digitize(X[:, 0], [-0.5, 0.5])]
        with pytest.raises(InputError, match=says):
            GPOrdinalClassifier(**{"order": self.GRADES, **settings}).fit(X, grades)


# Names with other targets, in tests of their own: returns, times, shares, excesses, zeros.
ELSEWHERE = {
    *("gaussian", "beta", "stochastic-volatility", "weibull"),
    *("zero-one-inflated-beta", "tweedie", "hurdle-gamma", "generalised-pareto"),
}


class TestLikelihood:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[pytest.mark.slow] * name.startswith(("asym", "censored")))
            for name in sorted(set(REGRESSION) - ELSEWHERE)
        ],
    )
    def test_every_name_fits_a_regressor(self, name):
        X = inputs()
        y = 1000 * targets(X)
        y[3] += 8000
        estimator = GPRegressor(likelihood=name, random_state=0).fit(X, y)
        assert type(estimator.model_.likelihood) is type(REGRESSION[name]())
        good = np.arange(ROWS) != 3
        mean, std = estimator.predict(X, return_std=True)
        assert np.sqrt(np.mean((mean - y)[good] ** 2)) < 600
        assert np.all(std > 0)
        lower, upper = estimator.predict_interval(X, 0.9)
        assert 0.7 < np.mean((lower < y) & (y < upper)) <= 1
        assert np.all(np.isfinite(estimator.log_predictive_density(X, y)))

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["hurdle-gamma", "zero-one-inflated-beta"])
    def test_zeros_and_ends(self, name):
        X = inputs()
        draw = np.random.default_rng(2)
        share = 1 / (1 + np.exp(-np.sin(2 * X[:, 0]) - 0.3 * draw.normal(size=ROWS)))
        y = np.where(draw.uniform(size=ROWS) < 0.3, 0.0, share)
        fitted = GPRegressor(likelihood=name, random_state=0).fit(X, y)
        assert type(fitted.model_.likelihood) is type(REGRESSION[name]())
        assert float(fitted.model_.likelihood.inflation) == pytest.approx(np.mean(y == 0), rel=1e-2)
        lower, upper = fitted.predict_interval(X, 0.9)
        assert np.all(lower == 0)
        assert np.mean(y <= upper) > 0.85

    def test_shares_and_volatility(self):
        X = inputs()
        f = np.sin(2 * X[:, 0])
        shares = GPRegressor(likelihood="beta", random_state=0).fit(X, 1 / (1 + np.exp(-f)))
        assert np.abs(shares.predict(X) - 1 / (1 + np.exp(-f))).max() < 0.05
        noise = np.random.default_rng(2).normal(size=ROWS)
        moving = GPRegressor(likelihood="stochastic-volatility", random_state=0)
        std = moving.fit(X, 100 * np.exp(2 * f) * noise).predict(X, return_std=True)[1]
        assert np.corrcoef(np.log(std), f)[0, 1] > 0.5

    def test_censored_times(self):
        X = np.linspace(0, 1, 80)[:, None]
        generator = np.random.default_rng(0)
        times = 10 * generator.weibull(1.5, size=80)
        ends = 10 * generator.weibull(1.5, size=80)
        seen, censored = np.minimum(times, ends), (ends < times).astype(float)
        told = GPRegressor(likelihood="weibull", random_state=0).fit(X, seen, censored=censored)
        untold = GPRegressor(likelihood="weibull", random_state=0).fit(X, seen)
        truth = times.mean()
        assert abs(told.predict(X).mean() - truth) < 0.25 * truth < truth - untold.predict(X).mean()
        with pytest.raises(InputError, match=r"must be positive, not .* as in 1 row"):
            told.fit(X, np.where(np.arange(80) == 3, 0.0, seen))

    @pytest.mark.slow
    def test_a_likelihood_without_a_bound_gets_its_moments_matched(self):
        X = inputs()
        kinds = np.digitize(X[:, 0], [-0.5, 0.5])
        classifier = GPClassifier(likelihood="heaviside", random_state=0).fit(X, kinds)
        assert isinstance(classifier.method_, lgp.ExpectationPropagation)
        assert classifier.posterior_.log_evidence.kind == "approximation"
        assert np.mean(classifier.predict(X) == kinds) > 0.9

    @pytest.mark.parametrize("name", ["logistic-softmax"])
    def test_a_name_fits_a_classifier(self, name):
        X = inputs()
        kinds = np.digitize(X[:, 0], [-0.5, 0.5])
        classifier = GPClassifier(likelihood=name, random_state=0).fit(X, kinds)
        assert isinstance(classifier.model_.likelihood, MULTICLASS[name])
        np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
        assert np.mean(classifier.predict(X) == kinds) > 0.9

    @pytest.mark.parametrize("method", ["augmented", lgp.GibbsSampling(draws=100, warmup=50)])
    @pytest.mark.filterwarnings("ignore:.*:UserWarning")
    def test_conjugate_methods_take_the_likelihood_that_they_can(self, method):
        X = inputs()
        kinds = np.digitize(X[:, 0], [-0.5, 0.5])
        classifier = GPClassifier(method=method, random_state=0).fit(X, kinds)
        assert isinstance(classifier.model_.likelihood, lgp.LogisticSoftmax)
        assert np.mean(classifier.predict(X) == kinds) > 0.9

    def test_an_object_says_where_the_search_starts(self):
        X = inputs()
        likelihood = lgp.StudentT(scale=0.1, degrees_of_freedom=3.0)
        estimator = GPRegressor(likelihood=likelihood, random_state=0).fit(X, targets(X))
        assert isinstance(estimator.model_.likelihood, lgp.StudentT)

    @pytest.mark.parametrize(
        ("estimator", "says"),
        [
            (GPRegressor(likelihood="cauchy"), "must be one of auto, gaussian, .*got 'cauchy'"),
            (GPRegressor(likelihood=lgp.Bernoulli()), "real"),
            (GPRegressor(likelihood="poisson"), "'poisson' is for GPCountRegressor .task count"),
            (
                GPRegressor(likelihood="coregionalisation"),
                "is for GPRegressor with several outputs",
            ),
            (GPCountRegressor(likelihood="student-t"), "is for GPRegressor .task regression"),
            (GPClassifier(likelihood="ordinal"), "is for GPOrdinalClassifier"),
            (GPClassifier(likelihood=lgp.Softmax(4)), "which Softmax is not a likelihood of"),
            (GPClassifier(likelihood=lgp.StudentT()), "which StudentT is not a likelihood of"),
        ],
    )
    def test_wrong_ones_are_named(self, estimator, says):
        X = inputs()
        with pytest.raises(InputError, match=says):
            estimator.fit(X, (X[:, 0] > 0).astype(float))

    def test_those_of_two_classes_are_named_with_three(self):
        X = inputs()
        with pytest.raises(InputError, match="'probit' is for GPClassifier with two classes"):
            GPClassifier(likelihood="probit").fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))


class TestMethod:
    @pytest.mark.parametrize("name", ["exact", "collapsed", "augmented", "variational"])
    def test_every_name_fits_a_regressor(self, name, regressor):
        X = inputs()
        estimator = GPRegressor(method=name, random_state=0).fit(X, targets(X))
        assert type(estimator.method_).__name__.lower().startswith(name)
        # Inducing points at all rows (with a jitter), and sites that are exact: all are the exact
        # posterior, each found by a search that stops at a gain of 1e-6 nats a row.
        np.testing.assert_allclose(estimator.predict(X), regressor.predict(X), atol=2e-2)

    def test_auto_says_what_it_chose_and_why(self, capsys):
        X = inputs()
        estimator = GPRegressor(verbose=1, random_state=0).fit(X, targets(X))
        assert f"{ROWS} rows are few enough" in estimator.method_reason_
        printed = capsys.readouterr().out
        assert "ExactGP" in printed
        assert estimator.method_reason_ in printed
        assert "Converged after" in printed

    @pytest.mark.parametrize(
        ("name", "method"),
        [
            ("black-box", lgp.BlackBoxVI),
            pytest.param("particle-flow", lgp.DensityApproximation, marks=pytest.mark.slow),
        ],
    )
    @pytest.mark.filterwarnings("ignore:.*:UserWarning")
    def test_methods_without_sites_fit_ordered_classes(self, name, method):
        X = inputs()
        kinds = np.digitize(X[:, 0], [-0.5, 0.5])
        ordinal = GPOrdinalClassifier(method=name, random_state=0).fit(X, kinds)
        assert type(ordinal.method_) is method
        np.testing.assert_allclose(ordinal.predict_proba(X).sum(axis=1), 1, rtol=1e-6)
        assert np.mean(ordinal.predict(X) == kinds) > 0.85

    @pytest.mark.parametrize(
        ("make", "targets_of", "method"),
        [
            (GPRegressor, targets, lgp.CollapsedVI),
            (GPClassifier, labels, lgp.ExpectationPropagation),
        ],
    )
    def test_n_inducing_asks_for_a_sparse_method(self, make, targets_of, method):
        X = inputs()
        estimator = make(n_inducing=9, random_state=0).fit(X, targets_of(X))
        assert isinstance(estimator.method_, method)
        assert estimator.posterior_.latent.centres.shape == (9, 2)
        assert "9 inducing points" in estimator.method_reason_

    def test_a_method_object_is_used_as_it_is(self):
        X = inputs()
        method = lgp.CollapsedVI(lgp.Inducing(number=9, selection="greedy-variance"))
        estimator = GPRegressor(method=method, random_state=0).fit(X, targets(X))
        assert estimator.method_ is method
        centres = estimator.posterior_.latent.centres
        assert all(any(np.array_equal(centre, row) for row in X) for centre in centres)

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"method": "magic"}, r"must be one of auto, exact, .*got 'magic'"),
            ({"n_inducing": 0}, "n_inducing must be a positive number or None, got 0"),
            ({"method": "exact", "kernel": lgp.RBF().on(5)}, "looks at column 5"),
        ],
    )
    def test_wrong_settings_are_named(self, settings, says):
        X = inputs()
        with pytest.raises(InputError, match=says):
            GPRegressor(**settings).fit(X, targets(X))

    @pytest.mark.parametrize(
        ("likelihood", "representation", "method"),
        [
            (lgp.Gaussian(), lgp.Dense(), lgp.ExactGP),
            (lgp.Gaussian(), lgp.Inducing(9), lgp.CollapsedVI),
            (lgp.Gaussian(), lgp.Neighbours(9), lgp.ExactGP),
            (lgp.LeastSquares(12), lgp.Neighbours(9), lgp.ExactGP),
            (lgp.Bernoulli(), lgp.Neighbours(9), lgp.VariationalInference),
            (lgp.BayesianSVM(), lgp.Inducing(9), lgp.AugmentedVI),
            (lgp.HeavisideMulticlass(3), lgp.Dense(), lgp.ExpectationPropagation),
        ],
    )
    def test_the_usual_method_through_a_representation(self, likelihood, representation, method):
        model = lgp.LatentGP(lgp.RBF(), likelihood)
        choice = choose_for(model, (5_000, 2), representation=representation)
        assert type(choice.method) is method
        assert choice.method.representation == representation
        named = method_from_name("laplace", model, 5_000, representation=representation).method
        assert named == lgp.Laplace(representation)

    def test_a_representation_is_taken_and_kept(self, tmp_path):
        X, own = inputs(), lgp.Neighbours(4)
        settings = {"learn_hyperparameters": False, "random_state": 0}
        found = clone(GPRegressor(representation=own, **settings)).fit(X, targets(X))
        assert found.method_ == lgp.ExactGP(own)
        assert "through Neighbours(number=4)" in found.diagnostics_.verdict
        again = lgp.load(found.save(tmp_path / "m"))
        assert again.representation == own
        by_hand = GPRegressor(method=lgp.ExactGP(own), **settings).fit(X, targets(X))
        np.testing.assert_array_equal(found.predict(X), by_hand.predict(X))

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"representation": "dense"}, r"must be one such as Inducing\(200\).* got 'dense'"),
            ({"representation": lgp.Dense(), "n_inducing": 9}, "and n_inducing both set the"),
            ({"representation": lgp.Dense(), "method": lgp.ExactGP()}, "and a method object both"),
        ],
    )
    def test_a_representation_is_said_once(self, settings, says):
        X = inputs()
        with pytest.raises(InputError, match=says):
            GPRegressor(**settings).fit(X, targets(X))

    def test_a_whole_float_is_a_number_of_points(self):
        X = inputs()
        settings = {"max_evaluations": 2, "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the search was cut short
            found = GPRegressor(n_inducing=8.0, **settings).fit(X, targets(X))
        assert len(found.posterior_.latent.centres) == 8
        with pytest.raises(InputError, match=r"positive number or None, got 8\.5"):
            GPRegressor(n_inducing=8.5).fit(X, targets(X))

    def test_text_as_targets_is_told_where_it_belongs(self):
        X = inputs()
        for y in (labels(X), labels(X).astype(object)):
            with pytest.raises(InputError, match=r"y .*GPClassifier.*GPOrdinalClassifier"):
                GPRegressor().fit(X, y)

    def test_gibbs_sampling_of_counts_names_what_can(self):
        X = inputs()
        with pytest.raises(InputError, match="use NUTS for draws, or VariationalInference"):
            GPCountRegressor(method="gibbs").fit(X, np.arange(ROWS))

    def test_rows_at_fault_are_those_that_were_given(self):
        X, y = inputs(), np.ones(ROWS)
        y[[3, 17]] = -2
        with pytest.raises(InputError, match=r"not -2 as in 2 row\(s\), counted from 0: 3, 17"):
            GPCountRegressor().fit(X, y)

    def test_warnings_point_at_the_line_of_the_user(self):
        X = inputs()
        steps = make_pipeline(StandardScaler(), GPRegressor(max_evaluations=2, random_state=0))
        with pytest.warns(UserWarning, match="max_evaluations=2") as told:
            steps.fit(X, targets(X))
        assert all(warning.filename == __file__ for warning in told)

    @pytest.mark.parametrize("name", ["exact", "collapsed"])
    def test_gaussian_methods_refuse_counts(self, name):
        X = inputs()
        with pytest.raises(InputError, match=r"needs Gaussian noise.*use VariationalInference"):
            GPCountRegressor(method=name).fit(X, X[:, 0] > 0)

    @pytest.mark.parametrize("name", ["exact", "collapsed"])
    def test_gaussian_methods_refuse_a_classifier(self, name):
        X = inputs()
        with pytest.raises(InputError, match=r"needs Gaussian noise.*use VariationalInference"):
            GPClassifier(method=name).fit(X, labels(X))


class TestRowsInBatches:
    def test_targets_far_from_zero_lose_no_digits(self):
        X = inputs(rows=400)
        bounds, means = [], []
        for centre in (0.0, 1e8):
            regressor = GPRegressor(n_inducing=10, random_state=0, max_evaluations=3, verbose=1)
            regressor.fit(X, targets(X) + centre)
            rows = RowsInMemory(lgp.Data(X, targets(X) + centre))
            regressor.continue_with(rows, batch_size=100, epochs=1, verbose=1)
            bounds.append(float(regressor.posterior_.log_evidence))
            means.append(regressor.predict(X) - centre)
        assert bounds[1] == pytest.approx(bounds[0], abs=0.05)
        np.testing.assert_allclose(means[1], means[0], atol=1e-3)

    def test_the_reason_counts_the_rows_of_the_source(self):
        X = inputs(rows=200)
        regressor = GPRegressor(n_inducing=5, random_state=0, max_evaluations=3)
        regressor.fit(X[:50], targets(X)[:50])
        rows = RowsInMemory(lgp.Data(X, targets(X)))
        regressor.continue_with(rows, batch_size=100, epochs=1)
        beginning = "200 rows in batches, begun with 50 rows through 5 inducing points"
        assert regressor.method_reason_.startswith(beginning)
        for nothing in ("batch_size", "epochs"):
            with pytest.raises(InputError, match=f"{nothing} must be at least 1, got 0"):
                regressor.continue_with(rows, **{nothing: 0})


@pytest.mark.parametrize(
    ("kind", "target"), [(GPRegressor, targets), (GPClassifier, labels)], ids=["real", "class"]
)
class TestMethods:
    @pytest.mark.parametrize("method", [3, None])
    def test_what_is_no_method_is_refused(self, kind, target, method):
        X = inputs()
        with pytest.raises(InputError, match=f"method must be .* got {method}"):
            kind(method=method).fit(X, target(X))

    def test_an_approximation_stands_for_a_method(self, kind, target):
        X, settings = inputs(), {"learn_hyperparameters": False, "random_state": 0}
        flow = lgp.GaussianParticleFlow()
        found = [kind(method=m, **settings).fit(X, target(X)) for m in (flow, flow.as_method())]
        np.testing.assert_array_equal(*(each.predict(X) for each in found))


class TestState:
    @pytest.mark.parametrize(
        ("make", "targets_of"), [(GPRegressor, targets), (GPClassifier, labels)]
    )
    def test_one_seed_gives_the_same_bits(self, make, targets_of):
        X = inputs()
        settings = {"n_inducing": 9, "restarts": 1}
        first, second = (make(**settings, random_state=5).fit(X, targets_of(X)) for _ in "ab")
        np.testing.assert_array_equal(
            first.posterior_.predict_f(X).variance, second.posterior_.predict_f(X).variance
        )
        other = make(**settings, random_state=6).fit(X, targets_of(X))
        assert np.any(
            first.posterior_.predict_f(X).variance != other.posterior_.predict_f(X).variance
        )

    def test_restarts_never_end_worse(self):
        X = inputs()
        without, with_two = (
            GPRegressor(random_state=0, restarts=r).fit(X, targets(X)) for r in (0, 2)
        )
        best = [e.history_.value.max() for e in (without, with_two)]
        assert best[1] >= best[0]
        assert set(with_two.history_.restart) == {-4, -3, -2, 0, 1, 2}  # three openings

    def test_a_second_fit_forgets_the_first(self):
        X = inputs()
        y = targets(X)
        fresh = GPRegressor(random_state=0).fit(X, y)
        used = GPRegressor(random_state=0).fit(inputs(7, rows=12), np.arange(12.0)).fit(X, y)
        np.testing.assert_array_equal(used.predict(X), fresh.predict(X))
        assert used.history_.bound.tolist() == fresh.history_.bound.tolist()

    def test_the_data_given_are_not_changed(self):
        X = inputs()
        y = targets(X)
        copies = X.copy(), y.copy()
        GPRegressor(random_state=0).fit(X, y)
        np.testing.assert_array_equal(X, copies[0])
        np.testing.assert_array_equal(y, copies[1])


def test_a_kernel_of_another_library_is_refused():
    from sklearn.gaussian_process import kernels

    with pytest.raises(lgp.InputError, match="kernel must be a latentgp kernel"):
        lgp.GPRegressor(kernels.RBF()).fit(np.arange(4.0)[:, None], np.arange(4.0))


def test_an_unknown_argument_of_predict_is_refused():
    regressor = lgp.GPRegressor(random_state=0).fit(np.arange(4.0)[:, None], np.arange(4.0))
    with pytest.raises(lgp.InputError, match="noise_varience"):
        regressor.predict([[1.0]], noise_varience=[0.1])


@pytest.mark.parametrize("name", ["exposre", "trials"])
def test_side_information_that_a_count_does_not_have_is_refused(name):
    counts = lgp.GPCountRegressor(random_state=0).fit(np.arange(4.0)[:, None], np.arange(4))
    with pytest.raises(lgp.InputError, match=f"{name}.*exposure"):
        counts.predict_interval([[1.0]], 0.9, **{name: [1.0]})


def test_a_constant_column_leaves_every_length_scale_in_its_place():
    rng = np.random.default_rng(0)
    inputs = np.c_[rng.uniform(0, 3, 60), np.ones(60), rng.uniform(0, 3, 60)]
    regressor = GPRegressor(random_state=0).fit(inputs, np.sin(3 * inputs[:, 2]) + inputs[:, 0])
    found = regressor.lengthscales_
    assert found.shape == (3,)
    assert np.isinf(found[1])
    assert 0 < found[2] < found[0] < np.inf
    np.testing.assert_array_equal(found[[0, 2]], regressor.model_.kernel.kernel.lengthscale)
    bars = lgp.plots.relevance(None, found, ["a", "b", "c"])
    assert [tick.get_text() for tick in bars.get_yticklabels()] == ["c", "a", "b"]


def test_an_input_that_hardly_matters_is_named():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 3, (80, 2)), columns=["dose", "noise"])
    with pytest.warns(UserWarning, match=r"lengthscale\[1\] \(of 'noise'\) is at its upper"):
        GPRegressor(priors=None, random_state=0).fit(frame, np.sin(2 * frame["dose"]))


class TestHowTheSearchGoes:
    """Priors, frozen values and limits are for estimators as they are for `fit`."""

    @pytest.mark.parametrize("make", [lgp.GPRegressor, lgp.GPClassifier])
    def test_settings_of_fit(self, make):
        rng = np.random.default_rng(0)
        inputs = rng.uniform(-2, 2, (40, 1))
        y = (np.sin(inputs[:, 0]) > 0) * 1.0 if make is lgp.GPClassifier else np.sin(inputs[:, 0])
        kernel = lgp.RBF(lengthscale=0.7, variance=2.0)
        frozen = make(kernel, frozen=["kernel.lengthscale"], max_evaluations=5).fit(inputs, y)
        assert frozen.model_.kernel.lengthscale == 0.7
        assert frozen.model_.kernel.variance != 2.0
        still = make(kernel, learn_hyperparameters=False).fit(inputs, y)
        assert still.model_.kernel.variance == 2.0
        assert len(still.history_.bound) == 0
        narrow = {"kernel.lengthscale": LogNormal(np.log(9.0), 1e-3)}
        told = make(kernel, priors=narrow, max_evaluations=30).fit(inputs, y)
        assert 8.9 < told.model_.kernel.lengthscale < 9.1
        seen = []
        ended = make(callback=lambda p: seen.append(p) or len(seen) == 2).fit(inputs, y)
        assert len(ended.history_.bound) == 2
        ended = make(max_seconds=0.0).fit(inputs, y)
        assert len(ended.history_.bound) == 1


def test_text_in_place_of_a_list_is_not_cut_into_letters():
    inputs = np.arange(8.0)[:, None]
    labels = np.where(inputs[:, 0] > 3, "a", "b")
    with pytest.raises(InputError, match=r"order must be a list of labels, such as \['a', 'b'\]"):
        GPOrdinalClassifier(order="a,b").fit(inputs, labels)
    frozen = GPRegressor(lgp.RBF(0.7), frozen="kernel.lengthscale", max_evaluations=2)
    assert frozen.fit(inputs, np.sin(inputs[:, 0])).model_.kernel.lengthscale == 0.7
