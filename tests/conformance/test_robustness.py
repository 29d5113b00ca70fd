"""The battery of hard inputs: a finite answer, a clear warning or a clear error, never NaN."""

import gc
import resource
import warnings

import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp import GPClassifier, GPRegressor, InputError
from latentgp.rows.spread import robust_spread

ROWS = 20
_generator = np.random.default_rng(0)
X = _generator.normal(size=(ROWS, 2))
SIGNAL = np.sin(X[:, 0])
Y = SIGNAL + 0.1 * _generator.normal(size=ROWS)
LABELS = np.where(SIGNAL > 0, "yes", "no")
WIDE = _generator.normal(size=(ROWS, 1000))
TWICE = np.repeat(np.arange(ROWS // 2), 2)
NEARLY = X[TWICE] + 1e-8 * np.tile([[0.0], [1.0]], (ROWS // 2, 1))


def answer(make, X, y, new=None, **settings):
    """Fit and predict; everything said must be finite, and no warning but ours may come."""
    fit_settings = {k: settings.pop(k) for k in ("sample_weight",) if k in settings}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UserWarning)
        estimator = make(random_state=0, **settings).fit(X, y, **fit_settings)
        new = X if new is None else new
        if make is GPClassifier:
            probabilities = estimator.predict_proba(new)
            assert np.all((probabilities > 0) & (probabilities < 1))
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
            return probabilities[:, 1]
        mean, deviation = estimator.predict(new, return_std=True)
        assert np.all(np.isfinite(mean))
        assert np.all(np.isfinite(deviation) & (deviation > 0))
        return mean


def accuracy(probability, y):
    classes = np.unique(y)
    return np.mean(classes[(probability > 0.5).astype(int)] == np.asarray(y))


INPUTS = {
    "as it is": X,
    "times 1e6": X * 1e6,
    "times 1e-6": X * 1e-6,
    "plus 1e8": X + 1e8,
    "a constant column": np.c_[X, np.full(ROWS, 0.1)],
    "a column of rounding errors": np.c_[X, 0.3 + np.arange(ROWS) % 2 * 5e-17],
    "float16": X.astype(np.float16),
    "float32": X.astype(np.float32),
    "objects": X.astype(object),
    "Fortran order": np.asfortranarray(X),
    "lists": X.tolist(),
    "a data frame": pd.DataFrame(X, columns=["a", "b"]),
    "categories that are numbers": pd.DataFrame(
        {"a": X[:, 0], "b": pd.Categorical((X[:, 1] > 0).astype(int))}
    ),
    "one column": X[:, :1],
}


TIMES = np.sort(_generator.uniform(0, 9, ROWS))
SERIES = {
    "as it is": TIMES,
    "backwards": TIMES[::-1],
    "times 1e6": TIMES * 1e6,
    "seconds since 1970": TIMES * 86400 + 1.7e9,
    "repeated": TIMES[TWICE],
    "gaps of 1e-9": TIMES[TWICE] + 1e-9 * np.tile([0.0, 1.0], ROWS // 2),
    "a jump of 1e6": np.where(np.arange(ROWS) < ROWS // 2, TIMES, TIMES + 1e6),
    "one time": np.zeros(ROWS),
    "one row": TIMES[:1],
}


@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_as_with_dense_algebra(name):
    t = SERIES[name]
    scale = (np.ptp(np.unique(t)[: max(2, len(np.unique(t)) // 2)]) or 1.0) / 6
    y = np.sin(TIMES)[: len(t)] + 0.1 * _generator.normal(size=len(t))
    answers = [
        answer(
            GPRegressor,
            t[:, None],
            y,
            kernel=lgp.Matern52(lengthscale=scale),
            representation=representation,
            learn_hyperparameters=False,
        )
        for representation in (lgp.Dense(), lgp.Markov())
    ]
    # Dense distances by a matrix product lose digits where inputs are far apart.
    np.testing.assert_allclose(*answers, atol=5e-3 if "jump" in name else 1e-7)


class TestInputs:
    @pytest.mark.parametrize("name", INPUTS)
    def test_a_regressor_finds_the_signal(self, name):
        mean = answer(GPRegressor, INPUTS[name], Y)
        assert np.mean((mean - SIGNAL) ** 2) < 0.1 * np.var(SIGNAL)

    @pytest.mark.parametrize("name", INPUTS)
    def test_a_classifier_finds_the_signal(self, name):
        assert accuracy(answer(GPClassifier, INPUTS[name], LABELS), LABELS) > 0.9

    @pytest.mark.parametrize(("make", "y"), [(GPRegressor, Y), (GPClassifier, LABELS)])
    def test_integers_and_truth_values(self, make, y):
        for kind in (int, bool):
            rounded = (2 * X).astype(kind)
            np.testing.assert_array_equal(
                answer(make, rounded, y), answer(make, rounded.astype(float), y)
            )

    @pytest.mark.parametrize(("make", "y"), [(GPRegressor, Y), (GPClassifier, LABELS)])
    def test_a_read_only_memory_map(self, make, y, tmp_path):
        np.save(tmp_path / "X.npy", X)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        np.testing.assert_array_equal(answer(make, mapped, y), answer(make, X, y))

    def test_constant_columns_only(self):
        mean = answer(GPRegressor, np.ones((ROWS, 2)), Y)
        np.testing.assert_allclose(mean, Y.mean(), atol=0.1 * Y.std())
        probability = answer(GPClassifier, np.ones((ROWS, 2)), LABELS)
        share = np.mean(LABELS == "yes")
        np.testing.assert_allclose(probability, share, atol=0.05)

    def test_more_columns_than_rows(self):
        # No column matters more than another, so nothing can be learned; but nothing breaks.
        answer(GPRegressor, WIDE, Y)
        answer(GPClassifier, WIDE, LABELS)

    @pytest.mark.parametrize("make", [GPRegressor, GPClassifier])
    def test_text_is_an_error_that_says_what_to_do(self, make):
        frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(LABELS)})
        with pytest.raises(
            InputError, match=r"X holds text .*'(yes|no)'.*TableModel.*OneHotEncoder"
        ):
            make().fit(frame, LABELS if make is GPClassifier else Y)

    def test_dates_beside_numbers_are_an_error_that_says_what_to_do(self):
        frame = pd.DataFrame({"a": X[:, 0], "b": pd.date_range("2024-01-01", periods=len(X))})
        with pytest.raises(InputError, match=r"X holds dates beside numbers; use .*TableModel"):
            GPRegressor().fit(frame, Y)

    @pytest.mark.parametrize("factor", [1e200, 1e-200])
    def test_squares_outside_double_precision(self, factor):
        with pytest.raises(InputError, match=r"X varies on a scale.*change its unit"):
            GPRegressor().fit(factor * X, Y)
        with pytest.raises(InputError, match=r"y varies on a scale.*change its unit"):
            GPRegressor().fit(X, factor * Y)


class TestRows:
    @pytest.mark.parametrize("make", [GPRegressor, GPClassifier])
    def test_none_is_an_error(self, make):
        with pytest.raises(ValueError, match=r"no rows|0 sample"):
            make().fit(X[:0], Y[:0])

    def test_one(self):
        assert answer(GPRegressor, X[:1], [7.0])[0] == pytest.approx(7.0)
        with pytest.raises(InputError, match="one class only"):
            GPClassifier().fit(X[:1], ["yes"])

    def test_two(self):
        low, high = answer(GPRegressor, X[:2], [3.0, 9.0])
        assert 2 < low < high < 10
        low, high = answer(GPClassifier, X[:2], ["no", "yes"])
        assert low < 0.5 < high

    def test_fewer_than_inducing_points(self):
        sparse = answer(GPRegressor, X, Y, n_inducing=50)
        # A point at every row: the exact posterior up to jitter, found by a search of its own.
        np.testing.assert_allclose(sparse, answer(GPRegressor, X, Y), atol=1e-2)
        sparse = answer(GPClassifier, X, LABELS, n_inducing=50)
        np.testing.assert_allclose(sparse, answer(GPClassifier, X, LABELS), atol=1e-2)

    @pytest.mark.parametrize("settings", [{}, {"n_inducing": 8}])
    def test_duplicates_that_agree(self, settings):
        mean = answer(GPRegressor, X[TWICE], Y[TWICE], **settings)
        np.testing.assert_array_equal(mean[::2], mean[1::2])
        probability = answer(GPClassifier, X[TWICE], LABELS[TWICE], **settings)
        assert accuracy(probability, LABELS[TWICE]) == 1

    @pytest.mark.parametrize("rows", [X[TWICE], NEARLY], ids=["exact", "1e-8 apart"])
    @pytest.mark.parametrize("settings", [{}, {"n_inducing": ROWS}])
    def test_duplicates_that_conflict(self, rows, settings):
        conflict = np.tile([-1.0, 1.0], ROWS // 2)
        mean = answer(GPRegressor, rows, conflict, **settings)
        np.testing.assert_allclose(mean, 0, atol=0.1)
        probability = answer(GPClassifier, rows, conflict, **settings)
        np.testing.assert_allclose(probability, 0.5, atol=0.02)

    @pytest.mark.parametrize("make", [GPRegressor, GPClassifier])
    def test_weights(self, make):
        y = LABELS if make is GPClassifier else Y
        with pytest.raises(ValueError, match="nor zero in every row"):
            make().fit(X, y, sample_weight=np.zeros(ROWS))
        with pytest.raises(InputError, match="must not be negative"):
            make().fit(X, y, sample_weight=np.full(ROWS, -1.0))
        with pytest.raises(ValueError, match="NaN"):
            make().fit(X, y, sample_weight=np.full(ROWS, np.nan))
        # With hardly any data what is left is the prior.
        faint = answer(make, X, y, sample_weight=np.full(ROWS, 1e-300))
        expected = 0.5 if make is GPClassifier else Y.mean()
        np.testing.assert_allclose(faint, expected, atol=1e-6)

    def test_weights_beyond_double_precision_are_warned_of(self):
        with pytest.warns(UserWarning, match="beyond double precision"):
            GPRegressor().fit(X, Y, sample_weight=np.full(ROWS, 1e15))


class TestTargets:
    @pytest.mark.parametrize("value", [0.0, 0.1, -3e12])
    def test_constant(self, value):
        mean = answer(GPRegressor, X, np.full(ROWS, value))
        np.testing.assert_allclose(mean, value, rtol=1e-12)
        with pytest.warns(UserWarning, match="The target has one value"):
            GPRegressor().fit(X, np.full(ROWS, value))

    def test_huge(self):
        mean = answer(GPRegressor, X, Y * 1e12)
        np.testing.assert_allclose(mean / 1e12, answer(GPRegressor, X, Y), atol=1e-3)

    def test_one_outlier(self):
        y = np.r_[1e6, Y[1:]]
        mean = answer(GPRegressor, X, y)
        # Gaussian noise cannot ignore it, but the others are not thrown as far.
        assert np.max(np.abs(mean[1:] - Y[1:])) < 0.05 * 1e6

    def test_one_class(self):
        with pytest.raises(InputError, match=r"one class only \(\['no'\]\).*two classes"):
            GPClassifier().fit(X, np.full(ROWS, "no"))

    def test_a_class_of_one_row(self):
        probability = answer(GPClassifier, X, np.arange(ROWS) == 4)
        assert np.argmax(probability) == 4
        assert np.median(probability) < 0.2

    def test_separable(self):
        probability = answer(GPClassifier, X, X[:, 0] > 0)
        assert accuracy(probability, X[:, 0] > 0) == 1

    def test_a_thousand_to_one(self):
        rows = np.random.default_rng(1).normal(size=(1001, 2))
        probability = answer(GPClassifier, rows, np.arange(1001) == 0, n_inducing=20)
        assert np.mean(probability) == pytest.approx(1 / 1001, rel=0.5)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_number_that_is_none_names_its_rows(self, bad):
        y = Y.copy()
        y[[4, 9]] = bad
        with pytest.raises(InputError, match=r"y has NaN or infinity in 2 row.*: 4, 9;"):
            GPRegressor().fit(X, y)

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
    def test_a_missing_label_names_its_row(self, missing):
        y = LABELS.astype(object)
        y[4] = missing
        with pytest.raises(InputError, match=r"y is missing in 1 row.*: 4;"):
            GPClassifier().fit(X, y)

    def test_text_is_no_number(self):
        with pytest.raises(InputError, match=r"y must be an array of numbers: .*'(yes|no)'"):
            GPRegressor().fit(X, LABELS)

    def test_numbers_are_no_labels(self):
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            GPClassifier().fit(X, Y)


@pytest.mark.parametrize("make", [GPRegressor, GPClassifier])
class TestPrediction:
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_number_that_is_none_names_its_rows(self, make, bad):
        y = LABELS if make is GPClassifier else Y
        broken = X.copy()
        broken[[3, 7], 1] = bad
        with pytest.raises(InputError, match=r"X has NaN or infinity in 2 row.*: 3, 7;"):
            make().fit(broken, y)
        estimator = make(random_state=0).fit(X, y)
        with pytest.raises(InputError, match=r"X has NaN or infinity in 2 row.*: 3, 7;"):
            estimator.predict(broken)

    def test_no_rows_and_one_row(self, make):
        y = LABELS if make is GPClassifier else Y
        estimator = make(random_state=0).fit(X, y)
        assert estimator.predict(X[:0]).shape == (0,)
        assert estimator.predict(X[:1]).shape == (1,)
        assert estimator.log_predictive_density(X[:0], y[:0]).shape == (0,)
        if make is GPClassifier:
            assert estimator.predict_proba(X[:0]).shape == (0, 2)
        else:
            assert estimator.predict_interval(X[:0])[1].shape == (0,)

    def test_far_from_the_data_is_the_prior(self, make):
        y = LABELS if make is GPClassifier else Y
        prediction = answer(make, X, y, new=np.array([[1e6, -1e6], [1e100, 1e100]]))
        if make is GPClassifier:  # the same everywhere, between the share of the class and a half
            share = np.mean(LABELS == "yes")
            np.testing.assert_allclose(prediction, prediction[0], atol=1e-9)
            assert min(share, 0.5) < prediction[0] < max(share, 0.5)
        else:
            np.testing.assert_allclose(prediction, Y.mean(), atol=1e-9)

    def test_a_far_row_does_not_blur_the_others_in_its_batch(self, make):
        y = LABELS if make is GPClassifier else Y
        alone = answer(make, X, y)
        with_far = answer(make, X, y, new=np.r_[X, [[1e12, -1e12]]])
        np.testing.assert_allclose(with_far[:-1], alone, rtol=1e-9)

    def test_wrong_columns(self, make):
        estimator = make(random_state=0).fit(X, LABELS if make is GPClassifier else Y)
        with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2"):
            estimator.predict(X[:, :1])


def test_a_million_rows_are_predicted_in_pieces():
    rows = np.random.default_rng(1).normal(size=(150, 2))
    estimator = GPRegressor(n_inducing=100, max_evaluations=2, random_state=0)
    with pytest.warns(UserWarning, match="ended early"):
        estimator.fit(rows, np.sin(rows[:, 0]))
    new = np.random.default_rng(2).normal(size=(1_000_000, 2))
    estimator.predict(new[:5000], return_std=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mean, deviation = estimator.predict(new, return_std=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kB
    assert np.all(np.isfinite(mean))
    assert np.all(deviation > 0)
    # The kernel block of all rows at once would take 800 MB, the results take 16.
    assert grown < 300_000


class TestKnownBugsOfOthers:
    def test_one_row_with_its_mean_taken_off(self):
        estimator = GPRegressor(random_state=0).fit([[1.0]], [1e6])
        mean, deviation = estimator.predict([[1.0], [50.0]], return_std=True)
        np.testing.assert_allclose(mean, 1e6, rtol=1e-9)
        assert deviation[0] < deviation[1]

    def test_deviation_is_the_root_of_the_diagonal_of_the_covariance(self):
        posterior = GPRegressor(random_state=0).fit(X, Y).posterior_
        with jax.enable_x64(True):
            covariance = np.asarray(posterior.latent.covariance(jax.numpy.asarray(X)))[0]
        np.testing.assert_allclose(np.diag(covariance), posterior.predict_f(X).variance, atol=1e-9)

    def test_the_mean_alone_solves_nothing(self):
        latent = GPRegressor(random_state=0).fit(X, Y).posterior_.latent
        program = str(jax.make_jaxpr(lambda X: latent.mean(X))(X.astype(np.float32)))
        assert "dot_general" in program
        assert "cholesky" not in program
        assert "triangular_solve" not in program

    def test_a_bound_stays_below_the_evidence(self):
        # Inducing points at all rows and a smooth kernel: the bound is as tight as it is badly
        # conditioned.
        model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 15.0]), lgp.Gaussian(0.005))
        data, key = lgp.Data(X, Y), jax.random.key(0)
        bound, evidence = (
            lgp.fit(model, data, key=key, method=m, learn_hyperparameters=False)
            for m in (lgp.CollapsedVI(lgp.Inducing(number=ROWS)), lgp.ExactGP())
        )
        gap = evidence.posterior.log_evidence.value - bound.posterior.log_evidence.value
        # Rounding in sums of raw kernel products costs up to 1e-3 nats here, with a jitter.
        assert -1e-3 < gap < 0.01

    @pytest.mark.slow
    def test_many_fits_take_no_more_memory_and_compile_nothing(self):
        compiled = []

        def listen(event, seconds, **_):
            if event.endswith("backend_compile_duration"):
                compiled.append(event)

        def fit_again(number):
            for seed in range(number):
                GPRegressor(random_state=seed).fit(X, Y + 0.01 * seed).predict(X)

        jax.monitoring.register_event_duration_secs_listener(listen)
        jax.clear_caches()
        fit_again(3)
        assert compiled
        compiled.clear()
        gc.collect()
        before = resident()
        fit_again(20)
        gc.collect()
        assert not compiled
        assert resident() - before < 20e6


def resident():
    """Memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class TestWildInputs:
    """Few values far from all others, such as -999 for what is missing."""

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (200, 3))
    Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=200)
    NEW = rng.uniform(0, 10, (200, 3))
    TRUE = np.sin(NEW[:, 0]) + 0.3 * NEW[:, 1]

    @pytest.mark.parametrize("share", [0.005, 0.05])
    def test_they_cost_little_and_are_said(self, share):
        wild = pd.DataFrame(self.X, columns=["a", "b", "c"])
        wild.loc[: round(share * 200) - 1, "a"] = -999.0
        with pytest.warns(UserWarning, match=r"The column 'a' has \d+ value\(s\) far from all"):
            regressor = lgp.GPRegressor(random_state=0).fit(wild, self.Y)
        new = pd.DataFrame(self.NEW, columns=["a", "b", "c"])
        assert regressor.score(new, self.TRUE) > 0.99  # with ordinary spreads 0.65
        assert np.all(regressor.model_.kernel.lengthscale[:2] < 50)

    def test_spreads_are_standard_deviations_where_nothing_is_wild(self):
        normal, one_hot = self.rng.normal(size=200), self.rng.uniform(size=200) < 0.04
        columns = np.stack([*self.X.T, normal, one_hot, np.exp(normal), np.ones(200)], axis=1)
        spread, stretch = robust_spread(columns, None)
        np.testing.assert_array_equal(spread[:-1], columns.std(axis=0)[:-1])
        np.testing.assert_array_equal(stretch, 1.0)

    def test_sparse_columns_are_not_wild(self):
        """Many values that are far from zero, where zero is usual, are no outliers."""
        filled = self.rng.uniform(size=(400, 5)) < np.array([0.3, 0.2, 0.12, 0.04, 0.01])
        columns = filled * self.rng.uniform(1, 2, (400, 5))
        np.testing.assert_array_equal(robust_spread(columns, None)[1], 1.0)

    def test_weights_are_copies(self):
        wild = np.where(np.arange(200)[:, None] < 5, 1e6, self.X)
        weights = np.arange(200) % 4
        one = robust_spread(wild, weights.astype(float))
        other = robust_spread(np.repeat(wild, weights, axis=0), None)
        np.testing.assert_allclose(one, other, rtol=1e-12)
        assert np.all(one[0] < 5)
