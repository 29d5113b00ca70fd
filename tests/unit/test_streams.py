"""Posteriors that go on with further rows: what they must equal, and what they say."""

import dataclasses
import warnings
from functools import partial

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.rows import RowsInMemory
from slow import slow_parameters

KEY = jax.random.key(0)


def table(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], rng


def regression():
    X, f, rng = table()
    model = lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0]), lgp.Gaussian(0.05), lgp.ConstantMean(0.3))
    return model, lgp.Data(X, f + 0.2 * rng.normal(size=len(X)))


def classification(classes=2):
    X, f, rng = table()
    y = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-2 * f))).astype(float)
    likelihood = lgp.Bernoulli()
    if classes > 2:
        y = y + (X[:, 0] > 1)
        likelihood = lgp.Softmax(classes)
    return lgp.LatentGP(lgp.RBF(lengthscale=[0.8, 2.0], variance=2.0), likelihood), lgp.Data(X, y)


def halves(data):
    return [data.select(np.arange(start, data.size, 2)) for start in (0, 1)]


def fitted(model, data, method, learn=False):
    return lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=learn).posterior


def streamed(model, data, method, points, learn=False):
    """After one half of the rows, then the other."""
    first, second = halves(data)
    posterior = fitted(model, first, method(lgp.Inducing(points=points)))
    inducing = lgp.Inducing(points=points, remembered=posterior.remembered())
    return fitted(posterior.model, second, method(inducing), learn)


def same_predictions(one, other, X, rtol=1e-7):
    for a, b in zip(one.predict_f(X), other.predict_f(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def test_gaussian_noise_with_fixed_points_equals_all_rows_at_once():
    model, data = regression()
    points = data.X[:25]
    stream = streamed(model, data, lgp.CollapsedVI, points)
    whole = fitted(model, data, lgp.CollapsedVI(lgp.Inducing(points=points)))
    same_predictions(stream, whole, data.X)
    np.testing.assert_allclose(float(stream.log_evidence), float(whole.log_evidence), rtol=1e-8)
    assert stream.log_evidence.kind == "approximation"


@pytest.mark.parametrize(("classes", "coupled"), [(2, False), (3, False), (3, True)])
def test_other_noise_comes_near_all_rows_at_once(classes, coupled):
    """Sites of the first half do not move when the second half comes."""
    model, data = classification(classes)
    points, method = data.X[:25], partial(lgp.VariationalInference, coupled=coupled)
    stream = streamed(model, data, method, points)
    whole = fitted(model, data, method(lgp.Inducing(points=points)))
    for a, b in zip(stream.predict_f(data.X), whole.predict_f(data.X), strict=True):
        np.testing.assert_allclose(a, b, atol=0.35)
    assert abs(float(stream.log_evidence) - float(whole.log_evidence)) < 4


def test_augmented_likelihoods_go_on_too():
    model, data = classification()
    points = data.X[:25]
    stream = streamed(model, data, lgp.AugmentedVI, points)
    whole = fitted(model, data, lgp.AugmentedVI(lgp.Inducing(points=points)))
    for a, b in zip(stream.predict_f(data.X), whole.predict_f(data.X), strict=True):
        np.testing.assert_allclose(a, b, atol=0.35)
    # Sites are lower bounds of the likelihood: with those of the first half held, so is this.
    assert float(stream.log_evidence) < float(whole.log_evidence) + 1e-6


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "case",
    [
        ("Markov", "counts"),
        *slow_parameters(("Markov", "classes"), ("SpaceTime", "counts"), ("SpaceTime", "classes")),
    ],
    ids="-".join,
)
def test_sites_that_are_held_count_once_whatever_remembers_them(case):
    """The evidence after two updates, beside inducing points at all rows."""
    name, counts = case[0], case[1] == "counts"
    rng = np.random.default_rng(0)
    X = np.stack([np.sort(rng.uniform(0, 10, 40)), np.zeros(40)], axis=1)
    f, kernel = np.sin(X[:, 0]), lgp.Matern32(lengthscale=1.0)
    y = rng.poisson(np.exp(f)) if counts else rng.uniform(size=40) < 1 / (1 + np.exp(-2 * f))
    kernel, X = (kernel, X[:, :1]) if name == "Markov" else (kernel.on(0) * lgp.RBF().on(1), X)
    model = lgp.LatentGP(kernel, lgp.Poisson() if counts else lgp.Bernoulli())
    method = lgp.VariationalInference if counts else lgp.AugmentedVI

    def evidences(representation):
        own, found = fitted(model, lgp.Data(X[:25], y[:25]), method(representation)), []
        for rows in (slice(25, 33), slice(33, 40)):
            further = dataclasses.replace(representation, remembered=own.remembered())
            own = fitted(model, lgp.Data(X[rows], y[rows]), method(further))
            found.append(float(own.log_evidence))
        return found

    through_points = evidences(lgp.Inducing(points=X))
    found = evidences(lgp.Markov() if name == "Markov" else lgp.SpaceTime(points=X[:1, 1:]))
    np.testing.assert_allclose(found, through_points, atol=1e-3)


def test_a_dense_posterior_goes_on_exactly_where_points_are_its_rows():
    model, data = regression()
    first, second = halves(data)
    posterior = fitted(model, first, lgp.ExactGP())
    inducing = lgp.Inducing(points=data.X, remembered=posterior.remembered())
    stream = fitted(model, second, lgp.CollapsedVI(inducing))
    whole = fitted(model, data, lgp.ExactGP())
    same_predictions(stream, whole, data.X[:50], rtol=1e-4)
    np.testing.assert_allclose(float(stream.log_evidence), float(whole.log_evidence), rtol=1e-4)


def test_what_other_points_cannot_express_is_the_trace_term():
    model, data = regression()
    first, second = halves(data)
    posterior = fitted(model, first, lgp.CollapsedVI(lgp.Inducing(points=data.X[:60])))
    remembered = posterior.remembered()
    fits = [
        fitted(model, second, lgp.CollapsedVI(lgp.Inducing(points=points, remembered=remembered)))
        for points in (data.X[:60], data.X[30:45])
    ]
    losses = [float(fit.latent.trace_term) for fit in fits]
    assert losses[1] > losses[0] + 10
    assert float(fits[1].log_evidence) < float(fits[0].log_evidence)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_derivatives_are_those_of_finite_differences(covariance):
    from latentgp.hyperparameters.space import ParameterSpace
    from latentgp.site_inference.search.profiled_bound import evaluate, initial_sites

    model, data = regression()
    first, second = halves(data)
    posterior = fitted(model, first, lgp.CollapsedVI(lgp.Inducing(points=data.X[:15])))
    method = lgp.CollapsedVI(
        lgp.Inducing(points=data.X[5:25], remembered=posterior.remembered(), covariance=covariance)
    )
    with jax.enable_x64(True):
        algorithm, space, rows = (
            method.algorithm(model),
            ParameterSpace(model, frozen=("mean",)),
            second.to_device(),
        )
        sites = initial_sites(algorithm, model, rows)
        vector = np.asarray(space.to_vector())
        here = evaluate(algorithm, space, vector, rows, sites)
        steps = 1e-5 * np.eye(len(vector))
        values = [
            [
                float(evaluate(algorithm, space, v, rows, sites).bound)
                for v in (vector + s, vector - s)
            ]
            for s in steps
        ]
    measured = np.array([(up - down) / 2e-5 for up, down in values])
    np.testing.assert_allclose(here.gradient, measured, rtol=2e-4, atol=1e-4)


@pytest.mark.slow
def test_hyper_parameters_are_learned_on_the_way_and_the_mean_is_not():
    model, data = regression()
    first, second = halves(data)
    start = lgp.fit(model, first, key=KEY, method=lgp.CollapsedVI(lgp.Inducing(30))).posterior
    inducing = lgp.Inducing(30, selection="oips", remembered=start.remembered())
    method = lgp.CollapsedVI(inducing)
    after = lgp.fit(start.model, second, key=KEY, method=method)
    assert float(after.model.mean.value) == float(start.model.mean.value)
    assert not np.allclose(after.model.kernel.lengthscale, start.model.kernel.lengthscale)
    held = fitted(start.model, second, method)
    assert float(after.posterior.log_evidence) > float(held.log_evidence)


def test_one_row_more_says_nothing_about_scales():
    """Nor does a part in which an input is constant."""
    _, data = regression()
    units = lgp.Data(1e-4 * data.X, 1e6 * data.y)
    kernel = lgp.RBF(lengthscale=[0.8e-4, 2e-4], variance=1e12)
    model = lgp.LatentGP(kernel, lgp.Gaussian(0.05e12), lgp.ConstantMean(0.3e6))
    start = lgp.fit(model, units, key=KEY, method=lgp.CollapsedVI(lgp.Inducing(30))).posterior
    inducing = lgp.Inducing(30, remembered=start.remembered(), selection="greedy-variance")
    usual = start.mean_f(units.X[:1]) + np.sqrt(start.model.likelihood.noise_variance)
    one = lgp.Data(units.X[:1], usual)
    after = lgp.fit(start.model, one, key=KEY, method=lgp.CollapsedVI(inducing)).model
    for path in ("kernel.variance", "kernel.lengthscale", "likelihood.noise_variance"):
        before, now = (lgp.parameters(m)[path].value for m in (start.model, after))
        assert np.all(np.abs(np.log(now / before)) < np.log(2)), path


@pytest.mark.slow
def test_an_update_says_what_it_lost():
    model, data = regression()
    first = fitted(model, data, lgp.ExactGP())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = first.update([[0.5, 0.5]], [0.1], key=KEY)
    assert len(kept.latent.centres) >= data.size
    with pytest.warns(UserWarning, match="leave about .* nats") as told:
        first.update([[0.5, 0.5]], [0.1], key=KEY, n_inducing=5)
    assert all(warning.filename == __file__ for warning in told)


def test_batches_go_on_from_what_is_remembered():
    model, data = regression()
    points = data.X[:25]
    first, second = halves(data)
    posterior = fitted(model, first, lgp.CollapsedVI(lgp.Inducing(points=points)))
    inducing = lgp.Inducing(points=points, remembered=posterior.remembered())
    method = lgp.Stochastic(lgp.CollapsedVI(inducing), batch_size=40, epochs=3)
    stream = fitted(model, second, method)
    whole = fitted(model, data, lgp.CollapsedVI(lgp.Inducing(points=points)))
    for a, b in zip(stream.predict_f(data.X), whole.predict_f(data.X), strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)
    assert abs(float(stream.log_evidence) - float(whole.log_evidence)) < 2


@pytest.mark.slow
def test_points_so_far_are_candidates_however_many_rows_come():
    model, data = regression()
    left = data.select(np.flatnonzero(data.X[:, 0] < 0))
    first = fitted(model, left, lgp.CollapsedVI(lgp.Inducing(40, selection="greedy-variance")))
    rng = np.random.default_rng(1)
    X = np.stack([rng.uniform(0, 3, 25_000), rng.uniform(-3, 3, 25_000)], axis=1)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=len(X))
    after = first.update(X, y, key=KEY, n_inducing=80)
    assert np.mean(after.latent.centres[:, 0] < 0) > 0.2
    np.testing.assert_allclose(after.mean_f(left.X), first.mean_f(left.X), atol=0.3)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_rows_that_say_nothing_change_nothing(covariance):
    """The evidence too: whatever was lost is lost once."""
    model, data = regression()
    inducing = lgp.Inducing(points=data.X[:20], covariance=covariance)
    first = fitted(model, data, lgp.CollapsedVI(inducing))
    nothing = lgp.Data(data.X[:1], data.y[:1], weights=[1e-12])
    again = lgp.Inducing(points=data.X[:20], covariance=covariance, remembered=first.remembered())
    after = fitted(model, nothing, lgp.CollapsedVI(again))
    same_predictions(after, first, data.X)
    np.testing.assert_allclose(float(after.log_evidence), float(first.log_evidence), rtol=1e-8)


def test_negative_precisions_go_on_from_dense_posteriors():
    model, data = regression()
    model = lgp.LatentGP(model.kernel, lgp.StudentT(scale=0.2))
    first, second = halves(data)
    posterior = fitted(model, first, lgp.VariationalInference())
    assert posterior.latent.precision.min() < 0
    remembered = posterior.remembered()
    nothing = lgp.Data(data.X[:1], data.y[:1], weights=[1e-12])
    for rows, points, limit in [(nothing, first.X, 0.13), (second, data.X, 0.1)]:
        inducing = lgp.Inducing(points=points, remembered=remembered)
        after = fitted(model, rows, lgp.VariationalInference(inducing))
        error = after.mean_f(first.X) - np.sin(2 * first.X[:, 0]) - 0.5 * first.X[:, 1]
        assert np.sqrt(np.mean(error**2)) < limit
        if rows is nothing:
            np.testing.assert_allclose(
                float(after.log_evidence), float(posterior.log_evidence), atol=1e-3
            )


@pytest.mark.slow
def test_an_output_may_be_missing_from_a_part():
    X, f, rng = table(200)
    y = np.stack([f, f + 0.5], axis=1) + 0.1 * rng.normal(size=(200, 2))
    stream = lgp.GPRegressor(random_state=0, n_inducing=30).partial_fit(X[:100], y[:100])
    y[100:, 1] = np.nan
    stream.partial_fit(X[100:], y[100:])
    assert np.mean((stream.predict(X)[:, 1] - f - 0.5) ** 2) < 0.1
    with pytest.raises(lgp.InputError, match="missing in all rows of column"):
        lgp.GPRegressor().fit(X[100:], y[100:])


class TestRefusals:
    """One sentence where what is remembered does not fit."""

    def test_other_columns(self):
        _, data = regression()
        model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.05))
        posterior = fitted(model, data, lgp.CollapsedVI(lgp.Inducing(points=data.X[:9])))
        with pytest.raises(lgp.InputError, match="input columns"):
            posterior.update([[1.0, 2.0, 3.0]], [0.0], key=KEY)

    def test_other_latents(self):
        model, data = classification()
        posterior = fitted(model, data, lgp.VariationalInference(lgp.Inducing(points=data.X[:9])))
        inducing = lgp.Inducing(points=data.X[:9], remembered=posterior.remembered())
        several = lgp.LatentGP(model.kernel, lgp.Softmax(3))
        with pytest.raises(lgp.InputError, match="1 latent function"):
            fitted(several, data, lgp.VariationalInference(inducing))


def test_update_keeps_what_it_knows_and_takes_points_where_rows_are_new():
    model, data = regression()
    left, right = (
        data.select(np.flatnonzero(mask)) for mask in (data.X[:, 0] < 0, data.X[:, 0] >= 0)
    )
    first = fitted(model, left, lgp.CollapsedVI(lgp.Inducing(30, selection="oips")))
    after = first.update(right.X, right.y, key=KEY, selection="oips")
    kept = first.latent.centres
    np.testing.assert_array_equal(after.latent.centres[: len(kept)], kept)
    assert len(after.latent.centres) > len(kept)
    assert np.all(after.latent.centres[len(kept) :, 0] >= 0)
    error = [np.mean((p.mean_f(right.X) - right.y) ** 2) for p in (first, after)]
    assert error[1] < 0.1 < error[0]
    np.testing.assert_allclose(after.mean_f(left.X), first.mean_f(left.X), atol=0.3)


@pytest.mark.parametrize("selection", ["k-means++", "grid", "greedy-variance", "k-dpp"])
def test_every_selection_covers_old_rows_and_new(selection):
    model, data = regression()
    left, right = (
        data.select(np.flatnonzero(mask)) for mask in (data.X[:, 0] < 0, data.X[:, 0] >= 0)
    )
    first = fitted(model, left, lgp.CollapsedVI(lgp.Inducing(36, selection=selection)))
    after = first.update(right.X, right.y, key=KEY, selection=selection, n_inducing=72)
    errors = [
        np.mean((after.mean_f(part.X) - first.mean_f(part.X)) ** 2)
        if part is left
        else np.mean((after.mean_f(part.X) - part.y) ** 2)
        for part in (left, right)
    ]
    assert errors[0] < 0.01
    assert errors[1] < 0.1 < np.mean((first.mean_f(right.X) - right.y) ** 2)


def test_the_usual_method_has_a_name_and_others_are_refused():
    model, data = regression()
    first = fitted(model, data, lgp.CollapsedVI(lgp.Inducing(points=data.X[:9])))
    one, other = (first.update([[0.5, 0.5]], [0.1], key=KEY, method=m) for m in (None, "auto"))
    same_predictions(one, other, data.X[:5])
    with pytest.raises(lgp.InputError, match='must be "auto" or a method'):
        first.update([[0.5, 0.5]], [0.1], key=KEY, method="collapsed")


@pytest.mark.parametrize("method", [lgp.Laplace, lgp.ExpectationPropagation, lgp.GibbsSampling])
def test_methods_that_cannot_go_on_say_so(method):
    model, data = classification()
    first, second = halves(data)
    posterior = fitted(model, first, lgp.VariationalInference(lgp.Inducing(10)))
    inducing = lgp.Inducing(10, remembered=posterior.remembered())
    with pytest.raises(lgp.InputError, match=r"needs all rows|remembered data"):
        fitted(model, second, method(inducing))


class TestEstimators:
    def test_regression_goes_on(self):
        X, f, rng = table(300)
        y = f + 0.2 * rng.normal(size=len(X)) + 100
        stream = lgp.GPRegressor(random_state=0, n_inducing=60)
        for rows in np.array_split(np.argsort(X[:, 0]), 3):
            stream.partial_fit(X[rows], y[rows])
        whole = lgp.GPRegressor(random_state=0).fit(X, y)
        error = [np.mean((e.predict(X) - f - 100) ** 2) ** 0.5 for e in (stream, whole)]
        assert error[0] < 1.3 * error[1] + 0.02

    def test_hyper_parameters_move_only_if_asked(self):
        X, f, rng = table(400)
        y = f + 0.2 * rng.normal(size=len(X))
        stream = lgp.GPRegressor(random_state=0, n_inducing=40).partial_fit(X[:200], y[:200])
        before = stream.model_
        stream.partial_fit(X[200:], y[200:])
        assert jax.tree.all(jax.tree.map(np.array_equal, stream.model_, before))
        stream.partial_fit(X[200:], y[200:], learn_hyperparameters=True)
        assert not jax.tree.all(jax.tree.map(np.array_equal, stream.model_, before))

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["nominal", "ordinal"])
    def test_labels_that_come_later_are_known_from_the_first_call(self, kind):
        X, f, _ = table(300)
        y = np.array(["a", "b", "c"])[np.digitize(f, [-1.0, 0.8])]
        estimator = (
            lgp.GPClassifier(random_state=0, n_inducing=30)
            if kind == "nominal"
            else lgp.GPOrdinalClassifier(order=["a", "b", "c"], random_state=0, n_inducing=30)
        )
        first = np.flatnonzero(y != "c")[:100]
        rest = np.setdiff1d(np.arange(len(y)), first)
        estimator.partial_fit(X[first], y[first], classes=["a", "b", "c"])
        estimator.partial_fit(X[rest], y[rest])
        assert estimator.predict_proba(X).shape == (300, 3)
        assert np.mean(estimator.predict(X) == y) > 0.85
        with pytest.raises(lgp.InputError, match="not fitted to"):
            estimator.partial_fit(X[:2], ["a", "z"])

    def test_counts_go_on_with_their_exposure(self):
        X, f, rng = table(300)
        exposure = rng.uniform(1, 4, len(X))
        y = rng.poisson(exposure * np.exp(f))
        stream = lgp.GPCountRegressor(random_state=0, n_inducing=40)
        for rows in np.array_split(np.arange(len(X)), 3):
            stream.partial_fit(X[rows], y[rows], exposure=exposure[rows])
        assert np.corrcoef(np.log(stream.predict(X)), f)[0, 1] > 0.95

    def test_exposure_is_not_forgotten(self):
        X, f, rng = table(100)
        y = rng.poisson(2 * np.exp(f))
        stream = lgp.GPCountRegressor(random_state=0, n_inducing=20)
        stream.partial_fit(X, y, exposure=np.full(100, 2.0))
        with pytest.raises(lgp.InputError, match="exposure"):
            stream.partial_fit(X, y)

    def test_bounds_are_not_taken_for_events(self):
        X, f, _ = table(60)
        stream = lgp.GPRegressor(likelihood="weibull", random_state=0, n_inducing=10)
        stream.set_params(learn_hyperparameters=False)
        stream.partial_fit(X, np.exp(f), censored=np.zeros(60))
        with pytest.raises(lgp.InputError, match=r"partial_fit\(\.\.\., censored="):
            stream.partial_fit(X, np.exp(f))
        with pytest.raises(lgp.InputError, match="reads no per-row 'upper'"):
            stream.partial_fit(X, np.exp(f), censored=np.zeros(60), upper=np.ones(60))
        assert stream.side_information_ == ["censored"]

    def test_no_point_is_not_the_usual_number(self):
        _, data = regression()
        posterior = lgp.fit(
            lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1)), data, key=KEY, learn_hyperparameters=False
        ).posterior
        with pytest.raises(lgp.InputError, match="number"):
            posterior.update(data.X, data.y, key=KEY, n_inducing=0)

    def test_a_stream_is_saved_and_goes_on(self, tmp_path):
        X, f, rng = table(200)
        y = f + 0.2 * rng.normal(size=len(X)) + 1e6
        stream = lgp.GPRegressor(random_state=0, n_inducing=30).partial_fit(X[:100], y[:100])
        stream.partial_fit(X[100:], y[100:])
        again = lgp.load(stream.save(tmp_path / "stream"))
        np.testing.assert_array_equal(again.predict(X), stream.predict(X))
        assert again.method_.representation.remembered is None
        for estimator in (stream, again):
            estimator.partial_fit(X[:50], y[:50])
        np.testing.assert_allclose(again.predict(X), stream.predict(X), rtol=1e-12)

    def test_the_size_of_the_first_part_bounds_nothing(self):
        _, data = regression()
        regressor = lgp.GPRegressor(method="collapsed", random_state=0)
        regressor.partial_fit(data.X[:20], data.y[:20])
        regressor.partial_fit(data.X[20:], data.y[20:])
        assert len(regressor.posterior_.latent.centres) > 100

    @pytest.mark.slow
    def test_few_rows_go_on_with_many(self):
        """From one coefficient a row to batches through inducing points."""
        _, data = classification()
        classifier = lgp.GPClassifier(n_inducing=20, method="variational", random_state=0)
        classifier.set_params(n_inducing=None).fit(data.X[:60], data.y[:60])
        assert isinstance(classifier.method_.representation, lgp.Dense)
        rows = RowsInMemory(lgp.Data(data.X, data.y.astype(float)))
        classifier.set_params(n_inducing=20).continue_with(rows, batch_size=50, epochs=2)
        assert len(classifier.posterior_.latent.centres) == 20

    def test_draws_cannot_go_on(self):
        X, f, _ = table(20)
        method = lgp.EllipticalSlice(chains=1, warmup=10, draws=10)
        estimator = lgp.GPClassifier(method=method, random_state=0).fit(X, f > 0)
        with pytest.raises(lgp.InputError, match="has no sites"):
            estimator.partial_fit(X, f > 0)


def test_targets_without_noise_go_on_with_a_word():
    X = np.linspace(0, 1, 30)[:, None]
    y = np.sin(5 * X[:, 0])
    model = lgp.LatentGP(lgp.RBF(0.5, 3.0), lgp.Gaussian(1e-12))
    first = lgp.fit(model, lgp.Data(X[:20], y[:20]), key=KEY, learn_hyperparameters=False)
    with pytest.warns(UserWarning, match="1e-12 is less than .* 3e-08 takes its place"):
        later = first.posterior.update(X[20:], y[20:], key=KEY)
    assert float(later.model.likelihood.noise_variance) == pytest.approx(3e-8)
    np.testing.assert_allclose(later.predict_f(X).mean, y, atol=1e-3)
