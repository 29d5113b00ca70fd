"""What "auto" takes, and how it keeps to a budget."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing import choice
from latentgp.choosing.choice import choose_method, treating
from latentgp.extensions.neighbours import offers

REGRESSION = lgp.LatentGP(lgp.RBF(), lgp.Gaussian())
CLASSES = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
KEY = jax.random.key(0)


def chosen(model, rows, seconds=None):
    choice = choose_method(model, rows)
    return choice, choice.within(seconds, model, (rows, 20))


@pytest.mark.parametrize(("model", "rows"), [(REGRESSION, 2_000), (REGRESSION, 20_000)])
def test_what_fits_into_the_budget_is_left_alone(model, rows):
    before, after = chosen(model, rows)
    assert after is before


def test_a_search_that_takes_too_long_sees_a_part_of_the_rows():
    before, after = chosen(REGRESSION, 200_000)
    assert after.method.representation == before.method.representation
    part = after.method.search.rows
    assert after.method.search.evaluations is None
    assert 10_000 <= part < 200_000
    assert f"hyper-parameters from {part} of them" in after.reason
    _, with_more = chosen(REGRESSION, 200_000, seconds=200.0)
    assert part < with_more.method.search.rows < 200_000
    _, with_less = chosen(REGRESSION, 50_000, seconds=10.0)
    assert (
        with_less.method.search.rows
        < chosen(REGRESSION, 50_000, seconds=30.0)[1].method.search.rows
    )


def test_rows_are_read_in_batches_where_the_posterior_alone_takes_too_long():
    _, after = chosen(CLASSES, 2_000_000)
    assert isinstance(after.method, lgp.Stochastic)
    assert "in batches" in after.reason
    _, patient = chosen(CLASSES, 2_000_000, seconds=1e5)
    assert patient.method == choose_method(CLASSES, 2_000_000).method


def test_what_batches_cannot_do_is_not_done_in_batches():
    steps = lgp.LatentGP(lgp.RBF(), lgp.HeavisideMulticlass(3))
    before, after = chosen(steps, 2_000_000)
    assert type(after.method) is type(before.method)
    assert after.method.search is not None


@pytest.mark.parametrize(
    ("model", "method"),
    [(REGRESSION, lgp.CollapsedVI), (CLASSES, lgp.VariationalInference)],
    ids=["regression", "classes"],
)
def test_hyperparameters_of_a_part_and_a_posterior_of_all(model, method):
    X = np.linspace(0, 6, 60)[:, None]
    noisy = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=60)
    y = noisy if model is REGRESSION else (noisy > 0).astype(float)
    of_a_part = method(lgp.Inducing(8), search=lgp.ShortSearch(20, evaluations=None))
    found = lgp.fit(model, lgp.Data(X, y), key=KEY, method=of_a_part, priors=None)
    part = lgp.Data(X, y).merged().evenly(20)
    points = found.posterior.latent.centres
    own = method(lgp.Inducing(points=points))
    alone = lgp.fit(model, part, key=KEY, method=own, priors=None)
    np.testing.assert_allclose(
        found.model.kernel.lengthscale, alone.model.kernel.lengthscale, rtol=1e-4
    )
    held = lgp.fit(
        found.model,
        lgp.Data(X, y),
        key=KEY,
        method=own,
        learn_hyperparameters=False,
    )
    for of_all, of_these in zip(
        held.posterior.predict_f(X), found.posterior.predict_f(X), strict=True
    ):
        np.testing.assert_allclose(of_these, of_all, rtol=1e-3, atol=1e-6)


def test_regression_is_by_neighbours_and_by_points_where_these_are_needed():
    regression = choose_method(REGRESSION, 20_000)
    assert isinstance(regression.method.representation, lgp.Neighbours)
    # Of many inputs a search of nearest rows compares all distances: 35 s, and 100 s.
    assert isinstance(
        choose_method(REGRESSION, 50_000, None, 100).method.representation, lgp.Neighbours
    )
    assert isinstance(choose_method(REGRESSION, 70_000, None, 220).method, lgp.CollapsedVI)
    assert regression.method.representation.number_predicted is None
    for hyperparameters in ("integrate", "sample"):
        treated = treating(hyperparameters, regression, REGRESSION)
        assert "500 inducing points" in treated.reason
        own = getattr(treated.method, "method", treated.method)
        assert isinstance(own.representation, lgp.Inducing)
    for by_points in (
        choose_method(REGRESSION, 20_000, 50),
        choose_method(REGRESSION, 200_000),
        choose_method(CLASSES, 20_000),
    ):
        assert isinstance(by_points.method.representation, lgp.Inducing)


@pytest.mark.parametrize("likelihood", [lgp.Bernoulli(), lgp.Poisson()])
def test_counts_and_classes_at_many_places_are_by_neighbours_of_latents(likelihood):
    model = lgp.LatentGP(lgp.Matern32(), likelihood)
    for shape in ((3_000, 2), (20_000, 3), (200_000, 2)):
        chosen = choice.choose_for(model, shape, searched=True)
        assert isinstance(chosen.method, lgp.Laplace)
        assert chosen.method.representation == lgp.Neighbours()
        for hyperparameters in ("integrate", "sample"):
            by_rows = choose_method(model, shape[0], None, shape[1])
            assert "200 inducing points" in treating(hyperparameters, by_rows, model).reason
    for shape in ((1_500, 2), (20_000, 8), (20_000, 1), (400_000, 2)):
        chosen = choice.choose_for(model, shape, searched=True).method
        assert not isinstance(chosen, lgp.Laplace)
    assert not isinstance(choose_method(model, 20_000, 50, 2).method, lgp.Laplace)
    grouped = lgp.LatentGP(lgp.Matern32().on(0, 1) + lgp.SameGroup().on(2), likelihood)
    assert not isinstance(choose_method(grouped, 20_000, None, 3).method, lgp.Laplace)


@pytest.mark.parametrize("likelihood", [lgp.Softmax(3), lgp.StudentT(), lgp.BayesianSVM()])
def test_latents_that_are_several_or_have_several_modes_are_not(likelihood):
    model = lgp.LatentGP(lgp.Matern32(), likelihood)
    assert not isinstance(choose_method(model, 20_000, None, 2).method, lgp.Laplace)


def test_a_search_takes_as_long_as_a_posterior_that_takes_long():
    """Unless seconds are given, which it keeps to as far as it can."""
    model = lgp.LatentGP(lgp.Matern32(), lgp.Bernoulli())
    rows = [
        choice.choose_for(model, (200_000, 2), searched=True, seconds=seconds).method.search.rows
        for seconds in (None, 60.0, 600.0)
    ]
    assert 10_000 < rows[0] < 60_000
    assert rows[1] < rows[0] < rows[2] < 200_000


def test_a_search_by_neighbours_keeps_to_a_budget():
    before, after = chosen(REGRESSION, 90_000)
    assert after.method.representation == before.method.representation
    assert 10_000 <= after.method.search.rows < 90_000


@pytest.mark.slow
def test_further_rows_after_a_fit_by_neighbours_are_learned_through_points(monkeypatch):
    monkeypatch.setattr(choice, "_DENSE_REGRESSION", 150)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (200, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=200)
    regressor = lgp.GPRegressor(lgp.RBF(), random_state=0).fit(X[:160], y[:160])
    assert "20 nearest" in regressor.method_reason_
    regressor.partial_fit(X[160:], y[160:])
    assert "earlier ones are remembered through" in regressor.method_reason_
    assert np.mean((regressor.predict(X) - np.sin(2 * X[:, 0])) ** 2) < 0.05**2


@pytest.mark.slow
def test_places_of_classes_are_learned_from_a_part_of_them_and_gone_on_with(monkeypatch):
    """By neighbours, whose hyper-parameters are said to be of a part, and then through points."""
    monkeypatch.setattr(choice, "DENSE_OTHERWISE", 150)
    monkeypatch.setattr(choice, "_BUDGET", 1.0)
    monkeypatch.setattr(offers, "_FEWEST_OF_LATENTS", 150)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (900, 2))
    p = 1 / (1 + np.exp(-4 * np.sin(2 * X[:, 0]) * np.sin(X[:, 1])))
    y = rng.uniform(size=900) < p
    own = lgp.GPClassifier(lgp.Matern32(), random_state=0).fit(X[:700], y[:700])
    assert "700 rows, each given its 20 nearest" in own.method_reason_
    part = own.method_.search.rows
    assert any(f"at most {part} of 700 rows" in note for note in own.diagnostics_.notes)
    own.partial_fit(X[700:], y[700:])
    assert "earlier ones are remembered through" in own.method_reason_
    assert np.mean(np.abs(own.predict_proba(X)[:, 1] - p)) < 0.08


class TestTwoClasses:
    """Moments in place of the bound, and one coefficient a row where rows are few."""

    @pytest.mark.parametrize(
        ("shape", "seconds", "representation"),
        [
            ((1_500, 8), None, lgp.Dense()),
            ((1_500, 2), None, lgp.Inducing(number=200)),  # of few inputs points leave nothing
            ((1_500, 8), 10.0, lgp.Inducing(number=200)),
            ((8_000, 8), None, lgp.Inducing(number=200)),
        ],
    )
    def test_rows_in_memory(self, shape, seconds, representation):
        chosen = choice.choose_for(CLASSES, shape, searched=True, seconds=seconds)
        assert chosen.method == lgp.ExpectationPropagation(representation)
        assert "moments predict two classes better" in chosen.reason
        # Chains and grids of hyper-parameters go through the usual number of coefficients.
        assert type(chosen.otherwise.method) is lgp.VariationalInference
        assert chosen.otherwise.method.representation == lgp.Inducing(number=200)

    @pytest.mark.parametrize("likelihood", [lgp.Poisson(), lgp.Softmax(3), lgp.BayesianSVM()])
    def test_other_likelihoods_keep_their_own(self, likelihood):
        model = lgp.LatentGP(lgp.RBF(), likelihood)
        chosen = choice.choose_for(model, (1_500, 8), searched=True)
        assert chosen.method == choose_method(model, 1_500).method

    def test_many_rows_keep_the_bound(self):
        chosen = choice.choose_for(CLASSES, (20_000, 8), searched=True)
        assert chosen.method == choose_method(CLASSES, 20_000).method

    def test_further_rows_go_on_with_the_bound(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(240, 4))
        y = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=240) > 0.5
        first = lgp.GPClassifier(random_state=0).fit(X[:120], y[:120])
        assert type(first.method_) is lgp.ExpectationPropagation
        before = first.score(X[120:], y[120:])
        first.partial_fit(X[120:], y[120:])
        assert type(first.method_) is lgp.VariationalInference
        whole = lgp.GPClassifier(random_state=0).fit(X, y)
        p, q = first.predict_proba(X), whole.predict_proba(X)
        assert np.mean(np.abs(p - q)) < 0.05
        assert first.score(X[120:], y[120:]) >= before
        asked = lgp.GPClassifier(method="ep", random_state=0).fit(X[:120], y[:120])
        with pytest.raises(lgp.InputError, match="ExpectationPropagation"):
            asked.partial_fit(X[120:], y[120:])

    def test_a_search_begins_on_some_of_many_rows(self):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(1_030, 4))
        y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=1_030) > 0
        fitted = lgp.GPClassifier(random_state=0).fit(X, y)
        assert fitted.method_ == lgp.ExpectationPropagation(lgp.Dense())
        assert fitted.diagnostics_.converged
        runs = fitted.history_.restart
        first = np.flatnonzero(runs == 0)
        assert np.all(runs[: first[0]] == -1)
        # Few evaluations of all rows are left: the start is nearly the end.
        assert np.ptp(fitted.history_.value[first]) < 0.02 * len(y)
