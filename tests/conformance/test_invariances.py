"""What must not change a prediction does not, and what changes the units changes them alike.

The search for hyper-parameters ends where an iteration gains less than 1e-6 nats a row, so two
searches that differ by rounding may stop about 1e-4 apart; `CLOSE` leaves a factor of ten. What
is the same to the computer (rows in another order, weights) has to give the same bits.
"""

import functools

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp import RBF, Data, Gaussian, GPClassifier, GPRegressor, LatentGP, Periodic
from latentgp.setup.priors import scales, weak_priors

ROWS = 24
CLOSE = 1e-3

pytestmark = pytest.mark.filterwarnings("ignore:The inducing variables leave:UserWarning")

_generator = np.random.default_rng(3)
X = _generator.normal(size=(ROWS, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * _generator.normal(size=ROWS)
LABELS = np.where(X[:, 0] + 0.8 * _generator.normal(size=ROWS) > 0, "b", "a")
NEW = _generator.normal(size=(40, 2))

KINDS = ["regressor", "sparse regressor", "classifier", "sparse classifier"]
REGRESSORS, CLASSIFIERS = KINDS[:2], KINDS[2:]


def fitted(kind, X=X, y=None, **weights):
    make, target = (GPRegressor, Y) if "regressor" in kind else (GPClassifier, LABELS)
    sparse = 8 if "sparse" in kind else None
    return make(n_inducing=sparse, random_state=0).fit(X, target if y is None else y, **weights)


def predicted(estimator, new=NEW):
    """Everything a prediction says, in columns."""
    if isinstance(estimator, GPRegressor):
        return np.stack(estimator.predict(new, return_std=True), axis=1)
    return estimator.predict_proba(new)


@functools.cache
def as_it_is(kind):
    return fitted(kind)


@pytest.mark.parametrize("kind", KINDS)
class TestNothingChanges:
    @pytest.mark.parametrize(("factor", "shift"), [(1e6, 0.0), (1e-6, 0.0), (-3.0, 1e8)])
    def test_in_other_units_of_the_inputs(self, kind, factor, shift):
        moved = predicted(fitted(kind, factor * X + shift), factor * NEW + shift)
        np.testing.assert_allclose(moved, predicted(as_it_is(kind)), atol=CLOSE)

    def test_with_columns_in_another_order(self, kind):
        swapped = predicted(fitted(kind, X[:, ::-1]), NEW[:, ::-1])
        np.testing.assert_allclose(swapped, predicted(as_it_is(kind)), atol=CLOSE)

    def test_with_rows_in_another_order(self, kind):
        order = np.random.default_rng(0).permutation(ROWS)
        y = (Y if kind in REGRESSORS else LABELS)[order]
        np.testing.assert_array_equal(
            predicted(fitted(kind, X[order], y)), predicted(as_it_is(kind))
        )

    def test_when_a_batch_is_split(self, kind):
        estimator = as_it_is(kind)
        whole = predicted(estimator, np.tile(NEW, (20, 1)))  # 800 rows, more than one bucket
        parts = np.concatenate([predicted(estimator, NEW[:7]), predicted(estimator, NEW[7:])])
        np.testing.assert_allclose(whole, np.tile(parts, (20, 1)), rtol=1e-9)

    def test_between_a_row_twice_and_a_weight_of_two(self, kind):
        y = Y if kind in REGRESSORS else LABELS
        twice = fitted(kind, np.r_[X, X[:5]], np.r_[y, y[:5]])
        weighted = fitted(kind, X, y, sample_weight=np.r_[np.full(5, 2), np.ones(ROWS - 5)])
        np.testing.assert_array_equal(predicted(twice), predicted(weighted))
        assert np.any(predicted(twice) != predicted(as_it_is(kind)))

    def test_between_a_weight_of_zero_and_absence(self, kind):
        y = Y if kind in REGRESSORS else LABELS
        extended = np.r_[X, 50 + X[:3]], np.r_[y, y[-3:]]
        weighted = fitted(kind, *extended, sample_weight=np.r_[np.ones(ROWS), np.zeros(3)])
        np.testing.assert_array_equal(predicted(weighted), predicted(as_it_is(kind)))


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize(("factor", "shift"), [(1e12, 0.0), (1e-9, 0.0), (-2.0, 1e9)])
def test_predictions_move_with_the_units_of_y(kind, factor, shift):
    # In other units the bound is another number of nats (660 less at 1e12), and so the search's
    # relative tolerance allows another error, whose root the predictions show.
    close = 10 * CLOSE
    mean, deviation = predicted(as_it_is(kind)).T
    moved = predicted(fitted(kind, y=factor * Y + shift))
    np.testing.assert_allclose((moved[:, 0] - shift) / factor, mean, atol=close)
    np.testing.assert_allclose(moved[:, 1] / abs(factor), deviation, atol=close)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_evidence_moves_with_the_units_of_y(kind):
    moved = fitted(kind, y=1000 * Y)
    difference = as_it_is(kind).posterior_.log_evidence.value - moved.posterior_.log_evidence.value
    assert difference == pytest.approx(ROWS * np.log(1000), abs=CLOSE)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_swap_with_the_labels(kind):
    swapped = fitted(kind, y=np.where(LABELS == "a", "y", "x"))
    assert swapped.classes_.tolist() == ["x", "y"]  # "x" stands for "b"
    np.testing.assert_allclose(predicted(swapped)[:, ::-1], predicted(as_it_is(kind)), atol=CLOSE)


def test_one_variance_of_a_product_has_the_units_of_y():
    kernel = 1.0 * RBF() * Periodic()
    model = LatentGP(kernel, Gaussian())

    def centres(factor):
        priors = weak_priors(model, scales(model, Data(X, factor * Y)))
        return {path: float(prior.loc) for path, prior in priors.items()}

    moved = {
        path: centre - centres(1.0)[path]
        for path, centre in centres(1000.0).items()
        if "lengthscale" not in path and "period" not in path
    }
    shift = pytest.approx(2 * np.log(1000.0))
    assert sorted(moved.values()) == [pytest.approx(0.0), pytest.approx(0.0), shift, shift]


@pytest.mark.filterwarnings("ignore:The search for hyper-parameters ended:UserWarning")
def test_a_warp_is_learned_wherever_the_targets_lie():
    rng = np.random.default_rng(0)
    inputs = np.sort(rng.uniform(0, 6, 60))[:, None]
    targets = 1000 + np.exp(1.5 * np.sin(inputs[:, 0]) + 0.3 * rng.normal(size=60))
    plain, warped = (
        GPRegressor(likelihood=name, max_evaluations=30).fit(inputs, targets)
        for name in ("gaussian", "warped")
    )
    gain = warped.log_predictive_density(inputs, targets) - plain.log_predictive_density(
        inputs, targets
    )
    assert gain.mean() > 0.5


@pytest.mark.parametrize(
    "scaled",
    [
        lambda c: lgp.StudentT(0.2 * c, 4.0),
        lambda c: lgp.MaternNoise(0.2 * c),
        pytest.param(lambda c: lgp.HeteroscedasticGaussian(9.0 / c**2), marks=pytest.mark.slow),
    ],
    ids=["Student-t", "Matern", "heteroscedastic"],
)
def test_a_bound_by_quadrature_in_other_units_of_the_targets(scaled):
    def bound(c):
        kernel = RBF(1.0, c**2)
        if scaled(c).latent_size > 1:
            kernel = lgp.PerLatent(kernel, RBF(1.0, 1.0))
        return lgp.fit(
            *(LatentGP(kernel, scaled(c)), Data(X, c * Y)),
            key=jax.random.key(0),
            method=lgp.VariationalInference(),
            learn_hyperparameters=False,
        ).posterior.log_evidence.value + ROWS * np.log(c)

    one = bound(1.0)
    for c in (1e-8, 1e8):
        np.testing.assert_allclose(bound(c), one, atol=1e-4)
