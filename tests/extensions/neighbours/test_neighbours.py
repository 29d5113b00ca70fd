"""Nearest neighbours against dense linear algebra, and what a user does with them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.neighbours import near
from latentgp.extensions.neighbours.near import places_of_largest
from latentgp.extensions.neighbours.search import (
    NOBODY,
    coordinates,
    earlier_neighbours,
    order_of,
)
from latentgp.representations.protocols import coefficients_of
from latentgp.site_inference.search import hyperparameters

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (40, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * _rng.normal(size=40)
NEW = _rng.uniform(-2, 2, (7, 2))
DATA = lgp.Data(X, Y)
MODEL = lgp.LatentGP(
    lgp.Matern32(lengthscale=[0.8, 2.0], variance=1.5), lgp.Gaussian(0.05), lgp.ConstantMean(0.2)
)
ASTRAY = lgp.replace(MODEL, {"kernel.lengthscale": [4.0, 0.2]})
KEY = jax.random.key(0)


_value_and_slope = eqx.filter_jit(jax.value_and_grad(lgp.log_evidence))


def evidence_of(method, model=MODEL, data=DATA):
    """Log evidence and its derivatives in everything."""
    with jax.enable_x64(True):
        return _value_and_slope(model, data, method)


def found(number, data=DATA, model=MODEL, **settings):
    with jax.enable_x64(True):
        own = lgp.Neighbours(number, **settings)
        return lgp.ExactGP(own.for_rows(data.X, data.weights, model.kernel))


def fitted(method, model=MODEL, data=DATA, **settings):
    return lgp.fit(model, data, method=method, key=KEY, **settings)


@pytest.mark.parametrize(("ordering", "columns"), [("random", 2), ("maximin", 3), ("random", 16)])
def test_the_nearest_earlier_rows_are_found(ordering, columns):
    points = np.random.default_rng(1).normal(size=(700, columns))
    points[30] = points[10]
    order = order_of(points, ordering)
    assert sorted(order) == list(range(700))
    rows = earlier_neighbours(points, order, 5)
    place = np.argsort(order)
    for row in (*order[:7], 10, 30, 500):
        earlier = np.flatnonzero(place < place[row])
        distances = np.sort(np.sum((points[earlier] - points[row]) ** 2, axis=1))[:5]
        own = rows[row][rows[row] != NOBODY]
        assert np.all(place[own] < place[row])
        np.testing.assert_allclose(np.sum((points[own] - points[row]) ** 2, axis=1), distances)
    some = np.isin(np.arange(700), [10, 500, *order[-3:]])
    np.testing.assert_array_equal(earlier_neighbours(points, order, 5, some)[some], rows[some])


def test_maximin_takes_the_farthest_row():
    points = np.random.default_rng(2).normal(size=(60, 2))
    order = order_of(points, "maximin")
    for size in (1, 5, 30):
        gaps = np.min(
            np.sum((points[order[size:], None] - points[order[:size]]) ** 2, axis=2), axis=1
        )
        assert gaps[0] == pytest.approx(gaps.max())


def test_the_largest_of_groups_are_the_largest_of_all():
    values = np.random.default_rng(3).normal(size=(3, 500)).astype(np.float32)
    values[1, :400] = -np.inf
    places = np.asarray(jax.jit(places_of_largest, static_argnums=1)(values, 12))
    np.testing.assert_array_equal(places, np.argsort(-values, axis=1)[:, :12])


def test_coordinates_are_inputs_over_length_scales():
    ours = np.asarray(coordinates(2.0 * lgp.RBF(lengthscale=[0.5, 4.0]), jnp.asarray(X), X))
    np.testing.assert_allclose(ours - ours[0], (X - X[0]) / [0.5, 4.0], atol=1e-6)
    both = lgp.RBF(lengthscale=2.0, variance=3.0).on(0) + lgp.Matern12().on(1)
    ours = np.asarray(coordinates(both, jnp.asarray(X), X))
    np.testing.assert_allclose(
        ours - ours[0], (X - X[0]) * np.sqrt([0.75, 0.25]) / [2.0, 1.0], atol=1e-6
    )


def test_all_neighbours_are_the_exact_process():
    dense = evidence_of(lgp.ExactGP())
    value, slope = evidence_of(found(39))
    assert float(value) == pytest.approx(float(dense[0]), rel=1e-10)
    for one, other in zip(jax.tree.leaves(slope), jax.tree.leaves(dense[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    methods = lgp.ExactGP(lgp.Neighbours(39)), lgp.ExactGP()
    ours, exact = (fitted(m, learn_hyperparameters=False).posterior for m in methods)
    for one, other in zip(ours.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    assert (ours.log_evidence.kind, exact.log_evidence.kind) == ("approximation", "exact")


def test_the_error_falls_with_more_neighbours():
    sets = [lgp.Data(np.random.default_rng(seed).uniform(-2, 2, (40, 2)), Y) for seed in range(5)]
    exact = [value_of(lgp.ExactGP(), data) for data in sets]

    def error(number):
        ours = [value_of(found(number, data), data) for data in sets]
        return np.mean(np.abs(np.subtract(ours, exact)))

    assert error(2) > 2 * error(8) > 4 * error(24)


def value_of(method, data, model=MODEL):
    return float(evidence_of(method, model, data)[0])


@pytest.mark.parametrize("columns", [1, 30])
def test_derivatives_with_copies_and_rows_of_weight_zero(columns):
    generator = np.random.default_rng(columns)
    inputs = generator.normal(size=(24, columns))
    inputs[5:9] = inputs[4]  # not merged here
    weights = generator.uniform(0.5, 2.0, 24)
    weights[[3, 20]] = 0.0
    data = lgp.Data(inputs, np.sin(inputs[:, 0]), weights=weights)
    kernel = lgp.Matern52(lengthscale=np.full(columns, 0.7 * columns**0.5), variance=0.8)
    model = lgp.LatentGP(kernel, lgp.Gaussian(1e-3), lgp.ConstantMean(0.1))
    method = found(6, data, model)
    value, slope = evidence_of(method, model, data)
    kept = np.flatnonzero(weights)
    fewer = lgp.Data(inputs[kept], data.y[kept], weights=weights[kept])
    assert value_of(found(6, fewer, model), fewer, model) == pytest.approx(float(value), rel=1e-9)
    for path in ("kernel.variance", "likelihood.noise_variance", "mean.value"):
        at = float(lgp.parameters(model)[path].value)
        step = 1e-5 * at
        ends = [
            value_of(method, data, lgp.replace(model, {path: moved}))
            for moved in (at + step, at - step)
        ]
        part = slope
        for name in path.split("."):
            part = getattr(part, name)
        assert float(part) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


@pytest.fixture(scope="module")
def fit():
    own = lgp.Neighbours(10, ordering="maximin", search="correlation")
    return fitted(lgp.ExactGP(own), ASTRAY)


def test_hyper_parameters_are_learned(fit):
    exact = fitted(lgp.ExactGP())
    assert fit.diagnostics.converged
    assert fit.diagnostics.ending.endswith("neighbours were found 2 times")
    assert fit.posterior.log_evidence.value == pytest.approx(
        exact.posterior.log_evidence.value, abs=1.0
    )
    ours, theirs = (f.posterior.predict_f(NEW) for f in (fit, exact))
    assert np.max(np.abs(ours.mean - theirs.mean)) < 0.2 * np.std(Y)


def test_neighbours_are_found_again_where_length_scales_have_changed():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0, 10, (400, 2))
    y = np.sin(inputs[:, 0]) + 0.1 * inputs[:, 1] + 0.1 * rng.normal(size=400)
    model = lgp.LatentGP(lgp.Matern32(lengthscale=[1.0, 1.0]), lgp.Gaussian(0.1))
    found = fitted(lgp.ExactGP(lgp.Neighbours(10)), model, lgp.Data(inputs, y))
    assert found.diagnostics.ending.endswith(" times")
    first, second = found.model.kernel.lengthscale
    assert second > 5 * first


def test_a_search_that_was_interrupted_ends_as_if_it_had_not_been(fit, tmp_path):
    method, file = fit.diagnostics.method, tmp_path / "search"
    made = len(fit.history.seconds)
    for most in (made // 3, 1000):
        again = fitted(method, ASTRAY, checkpoint=file, max_evaluations=most)
    assert len(again.history.seconds) == made
    np.testing.assert_array_equal(again.model.kernel.lengthscale, fit.model.kernel.lengthscale)


def test_classes_by_least_squares_share_their_precisions():
    model = lgp.LatentGP(lgp.Matern32(), lgp.LeastSquares(3))
    data = lgp.Data(X[:20], np.digitize(Y[:20], [-0.5, 0.5]))
    ours, exact = (
        fitted(lgp.ExactGP(own), model, data, learn_hyperparameters=False).posterior
        for own in (lgp.Neighbours(19), lgp.Dense())
    )
    assert ours.log_evidence.value == pytest.approx(exact.log_evidence.value, rel=1e-10)
    for one, other in zip(ours.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_joint_draws_and_paths(fit):
    posterior = fit.posterior
    marginals = posterior.predict_f(NEW)
    draws = posterior.sample_f(NEW, key=jax.random.key(1), number=4000)
    np.testing.assert_allclose(draws.mean(axis=0), marginals.mean, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), marginals.variance, rtol=0.15)
    paths = posterior.sample_paths(key=jax.random.key(2), number=3)
    assert np.all(np.isfinite(paths(NEW)))


def test_a_file_and_an_estimator(fit, tmp_path):
    again = lgp.load(lgp.save(fit, tmp_path / "fit"))
    for one, other in zip(
        again.posterior.predict_f(NEW), fit.posterior.predict_f(NEW), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    regressor = lgp.GPRegressor(method="neighbours", random_state=0, learn_hyperparameters=False)
    regressor.fit(X, Y)
    assert repr(regressor.method_) == "ExactGP(Neighbours())"
    again = lgp.load(regressor.save(tmp_path / "regressor"))
    np.testing.assert_array_equal(again.predict(NEW), regressor.predict(NEW))


@pytest.mark.slow
def test_errors_together_by_all_rows_are_those_by_pairs(fit, monkeypatch):
    found = []
    for products in (1e-9, 1e9):  # that take as long as a kernel value
        monkeypatch.setattr(near, "_PRODUCTS_A_KERNEL_VALUE", products)
        with jax.enable_x64(True):
            found.append(fit.posterior.latent.covariance(NEW))
    np.testing.assert_allclose(*found, atol=1e-12)


def test_further_rows_are_learned_as_by_the_exact_process():
    held = {"learn_hyperparameters": False}
    seen = fitted(lgp.ExactGP(lgp.Neighbours(29)), data=lgp.Data(X[:30], Y[:30]), **held)
    updated = seen.posterior.update(X[30:], Y[30:], key=KEY, n_inducing=40)
    exact = fitted(lgp.ExactGP(), **held).posterior
    for ours, theirs in zip(updated.predict_f(NEW), exact.predict_f(NEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("weights", [None, np.where(np.arange(40) % 5 == 0, 0.0, 1.5)])
def test_terms_of_some_rows_are_an_unbiased_estimate(weights):
    data = lgp.Data(X, Y, weights=weights)
    whole = found(6, data)
    neighbours = whole.representation
    order = np.asarray(neighbours.found.order)
    real = np.arange(40) if weights is None else np.flatnonzero(weights > 0)
    parts = [
        dataclasses.replace(
            neighbours, found=neighbours.found._replace(terms=jnp.asarray(order[k::4]))
        )
        for k in range(4)
    ]
    estimates = [evidence_of(lgp.ExactGP(part), data=data) for part in parts]
    mean = jax.tree.map(lambda *each: np.mean([np.asarray(a) for a in each], axis=0), *estimates)
    for one, other in zip(
        jax.tree.leaves(mean), jax.tree.leaves(evidence_of(whole, data=data)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    with jax.enable_x64(True):
        chosen, own = neighbours.on_some_rows(data.X, weights, MODEL.kernel, 9)
        some = own.for_rows(data.X, weights, MODEL.kernel)
        assert some.for_rows(data.X, weights, MODEL.kernel) is some
    assert chosen is None
    assert len(some.found.terms) == len(set(some.found.terms.tolist())) == 9
    assert set(some.found.terms.tolist()) <= set(real.tolist())
    assert some.traits.terms == 9
    kept = np.asarray(some.found.terms)
    np.testing.assert_array_equal(some.found.rows[kept], neighbours.found.rows[kept])


def test_a_search_has_not_converged_where_other_rows_are_nearest_at_its_end(monkeypatch, fit):
    """The limit of renewals is no end, unless no other is due there."""
    method = fit.diagnostics.method
    monkeypatch.setattr(hyperparameters, "_MOST_RENEWALS", 1)
    assert fitted(method, ASTRAY).diagnostics.ending == fit.diagnostics.ending
    monkeypatch.setattr(hyperparameters, "_MOST_RENEWALS", 0)
    cut = fitted(method, ASTRAY).diagnostics
    assert not cut.converged
    assert cut.ending.endswith(f"as often as they may be, {hyperparameters.OF_OTHER_ROWS}")
    assert any("continue from the fitted model" in said for said in cut.warnings)


@pytest.mark.slow
def test_a_short_search_sees_all_rows_from_some():
    """Hyper-parameters from a tenth of the terms are near those of all rows."""
    generator = np.random.default_rng(4)
    inputs = generator.uniform(0, 20, (1500, 2))
    data = lgp.Data(inputs, np.sin(2 * inputs).sum(axis=1) + 0.2 * generator.normal(size=1500))
    short = lgp.ShortSearch(300, evaluations=None)
    whole = fitted(lgp.ExactGP(lgp.Neighbours(10)), data=data)
    part = fitted(lgp.ExactGP(lgp.Neighbours(10), search=short), data=data)
    assert part.diagnostics.converged
    assert "neighbours were found" in part.diagnostics.ending
    values = (
        np.append(fit.model.kernel.lengthscale, fit.model.likelihood.noise_variance)
        for fit in (part, whole)
    )
    np.testing.assert_allclose(*values, rtol=0.3)
    loss = float(whole.posterior.log_evidence) - float(part.posterior.log_evidence)
    assert 0 <= loss < 10


def test_what_it_cannot_do_is_refused(fit):
    counts = lgp.Data(X, np.arange(40.0))
    poisson = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    with pytest.raises(lgp.InputError, match="leave inducing out"):
        fitted(lgp.NUTS(representation=lgp.Neighbours(5, inducing=3)), poisson, counts)
    with pytest.raises(lgp.InputError, match="no white coefficients"):
        coefficients_of(lgp.Neighbours(5))
    with pytest.raises(lgp.InputError, match="cannot be found inside grad"):
        evidence_of(lgp.ExactGP(lgp.Neighbours(5)))
    with pytest.raises(lgp.InputError, match="number must be at least 1"):
        lgp.Neighbours(0)
    with pytest.raises(lgp.InputError, match="probes must be a whole number from 2, got 1"):
        lgp.LatentNeighbours(5, probes=1)
    numbers = lgp.Data(np.arange(3.0), np.ones(3))
    tabulated = lgp.LatentGP(lgp.Precomputed(np.eye(3)), lgp.Gaussian(0.1))
    with pytest.raises(lgp.InputError, match="values between rows"):
        fitted(lgp.ExactGP(lgp.Neighbours(2)), tabulated, numbers)


def test_predictions_have_derivatives_in_the_inputs(fit):
    with jax.enable_x64(True):
        pure = fit.posterior.as_jax()

        @jax.jit
        def answer(x):
            return pure.mean(x[None])[0] + pure.variance(x[None])[0]

        x, step = jnp.asarray(NEW[0]), 1e-5 * jnp.eye(2)
        slope = jax.jit(jax.grad(answer))(x)
        ends = [(answer(x + one) - answer(x - one)) / 2e-5 for one in step]
    np.testing.assert_allclose(slope, ends, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("columns", [(), (2, 0)], ids=["all columns", "some columns"])
@pytest.mark.parametrize(
    "method",
    [lgp.ExactGP(lgp.Neighbours(5)), lgp.Laplace(lgp.neighbours.LatentNeighbours(5))],
    ids=["targets", "latents"],
)
def test_rows_are_warped_once_for_all_that_are_near(method, columns):
    """The evidence and its derivatives are those of warped rows; a warping took all the time."""
    generator = np.random.default_rng(5)
    whole = np.exp(generator.normal(size=(40, 3)))
    rows = whole[:, list(columns)] if columns else whole
    kernel = lgp.kernels.InputWarping.by_scores(
        lgp.Matern32(np.linspace(0.8, 2.0, rows.shape[1])), rows, range(rows.shape[1])
    )
    with jax.enable_x64(True):
        warped = np.asarray(kernel.warp(rows))
    y, values = generator.normal(size=40), []
    outer = kernel.on(*columns) if columns else kernel
    near = method.representation  # which keeps the order of the first
    for own, inputs in ((outer, whole), (kernel.kernel, warped)):
        model = lgp.LatentGP(own, lgp.Gaussian(0.1))
        data = lgp.Data(inputs, y)
        with jax.enable_x64(True):
            near = near.for_rows(data.X, data.weights, own)
        ready = dataclasses.replace(method, representation=near)
        values.append(evidence_of(ready, model, data))
    (one, in_one), (other, in_other) = values
    np.testing.assert_allclose(one, other, rtol=1e-9)
    inner = in_one.kernel.kernel.kernel if columns else in_one.kernel.kernel
    for found_slope, slope in zip(
        jax.tree.leaves(inner), jax.tree.leaves(in_other.kernel), strict=True
    ):
        np.testing.assert_allclose(found_slope, slope, rtol=1e-6, atol=1e-9)
