"""What fits through points leave for neighbours, and "auto", which goes on with these."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing import choice
from latentgp.extensions.neighbours import left, offers
from latentgp.extensions.neighbours.left import moran, near_rows_instead

pytestmark = pytest.mark.usefixtures("x64")

_PLACES = np.random.default_rng(0).uniform(0, 1, (240, 2))
X = np.hstack([_PLACES, _PLACES + 0.01 * np.random.default_rng(4).normal(size=(240, 2))])


def counts(frequency: float) -> lgp.Data:
    rate = np.exp(2.5 + np.sin(frequency * X[:, 0]) * np.cos(frequency * X[:, 1]))
    return lgp.Data(X, np.random.default_rng(1).poisson(rate).astype(float))


def model_of(lengthscale: float) -> lgp.LatentGP:
    lengthscales = np.array([lengthscale, lengthscale, 50.0, 50.0])
    return lgp.LatentGP(lgp.RBF(lengthscales), lgp.Poisson(), lgp.ConstantMean(2.5))


@pytest.fixture(autouse=True)
def few_rows_count_as_many(monkeypatch):
    monkeypatch.setattr(offers, "_FEWEST_OF_LATENTS", 100)
    monkeypatch.setattr(choice, "DENSE_OTHERWISE", 100)
    monkeypatch.setattr(choice, "usual_number_of_points", lambda model: 12)


def by_points(frequency: float, lengthscale: float) -> lgp.Fit:
    return lgp.fit(
        model_of(lengthscale),
        counts(frequency),
        method=lgp.VariationalInference(lgp.Inducing(12)),
        key=jax.random.key(0),
        learn_hyperparameters=False,
    )


def test_morans_statistic():
    """By its definition, with weights of a fifth for the five nearest of each row."""
    generator = np.random.default_rng(2)
    places, score = generator.normal(size=(60, 2)), generator.normal(size=60)
    distance = np.linalg.norm(places[:, None] - places, axis=-1) + np.diag(np.full(60, np.inf))
    weights = np.zeros((60, 60))
    np.put_along_axis(weights, np.argsort(distance, axis=1)[:, :5], 0.2, axis=1)
    found, error = moran(places, score)
    np.testing.assert_allclose(found, score @ weights @ score / (score @ score), rtol=1e-12)
    assert 0 < error < 0.2
    at_one_place = np.repeat(places[:10], 6, axis=0)
    np.testing.assert_allclose(moran(at_one_place, np.repeat(score[:10], 6))[0], 1.0, rtol=1e-12)
    assert moran(places, np.zeros(60)) == (0.0, 0.0)


def test_independent_scores_are_not_alike():
    """Moran's I has at most the standard error that it is given, and half the variance at least."""
    generator = np.random.default_rng(3)
    places = generator.normal(size=(400, 3))
    found = np.array([moran(places, generator.normal(size=400)) for _ in range(200)])
    assert 0.6 < found[:, 0].std() / found[:, 1].mean() < 1.1
    assert abs(found[:, 0].mean()) < 4 * found[:, 0].std() / 200**0.5 + 1 / 400


def test_what_points_leave_is_for_neighbours():
    better = near_rows_instead(by_points(12.0, 0.5))
    assert better is not None
    assert better.method == lgp.Laplace(lgp.Neighbours())
    assert "12 inducing points" in better.reason
    assert near_rows_instead(by_points(2.0, 0.5)) is None


def test_other_fits_are_left(monkeypatch):
    fit = by_points(12.0, 0.5)
    monkeypatch.setattr(offers, "_FEWEST_OF_LATENTS", 1_000)
    assert near_rows_instead(fit) is None
    monkeypatch.undo()
    assert near_rows_instead(fit.not_converged()) is None
    monkeypatch.setattr(left, "_MOST_ROWS", 100)
    assert near_rows_instead(fit) is None


@pytest.mark.slow
def test_auto_goes_on_by_neighbours():
    data, held_out = counts(16.0), slice(0, 60)
    learned = data.select(np.arange(60, 240))
    fit = lgp.fit(model_of(0.3), learned, key=jax.random.key(0))
    assert fit.diagnostics.method == lgp.Laplace(lgp.Neighbours())
    assert "Moran's I" in fit.diagnostics.reason
    points = lgp.fit(model_of(0.3), learned, key=jax.random.key(0), max_seconds=600.0)
    assert type(points.diagnostics.method) is lgp.VariationalInference
    assert any("With more time" in said for said in points.diagnostics.notes)
    losses = [
        -np.mean(own.posterior.predict(X[held_out]).log_prob(np.asarray(data.y)[held_out]))
        for own in (points, fit)
    ]
    assert losses[1] < losses[0]
