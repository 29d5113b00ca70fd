"""Survival times: curves, quantiles and scores that know of censoring; what scikit-learn routes."""

import numpy as np
import pytest
import sklearn
from scipy.stats import weibull_min
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latentgp as lgp
from latentgp import metrics

generator = np.random.default_rng(0)
X = generator.uniform(0, 4, (90, 1))
SCALE = np.exp(1 + np.sin(X[:, 0]))
EVENT = SCALE * generator.exponential(size=90) ** (1 / 1.5)
LIMIT = generator.exponential(8, 90)
TIME, CENSORED = np.minimum(EVENT, LIMIT), (LIMIT < EVENT).astype(float)
NEW = np.linspace(0.5, 3.5, 4)[:, None]


def regressor():
    return lgp.GPRegressor(likelihood="weibull", random_state=0, max_evaluations=30)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, TIME, censored=CENSORED)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_survival_curves_are_the_law_averaged_over_the_latent_function(fitted):
    times = np.array([0.5, 2.0, 8.0])
    f = fitted.posterior_.predict_f(NEW)
    draws = f.mean + np.sqrt(f.variance) * np.random.default_rng(1).normal(size=(20_000, 4))
    shape = fitted.model_.likelihood.shape
    expected = weibull_min.sf(times, shape, scale=np.exp(draws)[..., None]).mean(axis=0)
    curves = fitted.predict_survival(NEW, times)
    assert curves.shape == (4, 3)
    np.testing.assert_allclose(curves, expected, atol=0.01)
    assert np.all(np.diff(curves, axis=1) < 0)


def test_quantiles_are_where_the_curve_is_at_their_level(fitted):
    quantiles = fitted.predict_quantiles(NEW, [0.1, 0.5])
    assert quantiles.shape == (4, 2)
    for row, own in zip(NEW, quantiles, strict=True):
        survival = fitted.predict_survival(row[None], own)[0]
        np.testing.assert_allclose(survival, [0.9, 0.5], atol=1e-9)
    assert fitted.predict_survival(NEW, 2.0).shape == (4, 1)


def test_the_score_of_censored_times_is_the_concordance_index(fitted):
    median = fitted.predict_quantiles(X, 0.5)[:, 0]
    expected = metrics.concordance_index(TIME, median, censored=CENSORED)
    assert fitted.score(X, TIME, censored=CENSORED) == expected
    assert expected > 0.65


def test_the_density_of_a_censored_time_is_the_probability_of_surviving_it(fitted):
    rows = np.flatnonzero(CENSORED)[:3]
    density = fitted.log_predictive_density(X[rows], TIME[rows], censored=np.ones(3))
    survival = np.diag(fitted.predict_survival(X[rows], TIME[rows]))
    np.testing.assert_allclose(density, np.log(survival), rtol=1e-8)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda r: r.score(X, TIME), "The fit had censored, .* give score.*metadata_routing"),
        (lambda r: r.score(X, TIME, np.ones(90), censored=CENSORED), "takes no weights"),
        (lambda r: r.score(X, TIME, censored=2 * CENSORED), "something else than 0 and 1"),
        (lambda r: r.predict_survival(X, [1.0, np.nan]), "times holds NaN"),
        (lambda r: r.predict_quantiles(X, 1.5), "strictly between 0 and 1"),
    ],
)
def test_what_a_survival_model_refuses(fitted, call, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        call(fitted)


def test_censored_rows_that_come_later_count_too():
    seen = CENSORED == 0
    stream = lgp.GPRegressor(
        likelihood="weibull", random_state=0, n_inducing=8, max_evaluations=10
    ).fit(X[seen], TIME[seen])
    assert 0 < stream.score(X[seen], TIME[seen]) < 1  # R^2, as no row was censored
    stream.partial_fit(X[~seen], TIME[~seen], censored=CENSORED[~seen])
    with pytest.raises(lgp.InputError, match="The fit had censored"):
        stream.score(X, TIME)


def test_a_gaussian_fit_scores_as_before_and_knows_no_censoring():
    plain = lgp.GPRegressor(random_state=0, max_evaluations=20).fit(X, np.log(TIME))
    assert plain.score(X, np.log(TIME)) == pytest.approx(
        sklearn.metrics.r2_score(np.log(TIME), plain.predict(X))
    )
    with pytest.raises(lgp.InputError, match="reads no per-row 'censored'"):
        plain.score(X, np.log(TIME), censored=CENSORED)
    above = plain.predict_survival(NEW, [0.0, 1.0])
    law = plain.posterior_.predict(NEW)
    np.testing.assert_allclose(above[:, 1], 1 - law.cdf(np.ones(4)))


@pytest.mark.usefixtures("routing")
def test_cross_validation_routes_what_belongs_to_a_row():
    scores = cross_val_score(
        make_pipeline(StandardScaler(), regressor()),
        X,
        TIME,
        cv=2,
        params={"censored": CENSORED},
        error_score="raise",
    )
    assert np.all(scores > 0.6)
    exposure = generator.uniform(1, 10, 90)
    counts = generator.poisson(exposure * SCALE)
    counting = lgp.GPCountRegressor(random_state=0, max_evaluations=20)
    params = {"exposure": exposure}
    scores = cross_val_score(counting, X, counts, cv=2, params=params, error_score="raise")
    assert np.all(scores > 0.7)
    with pytest.raises(UnsetMetadataPassedError):  # of weights scikit-learn leaves the choice
        cross_val_score(counting, X, counts, cv=2, params={"sample_weight": exposure})
