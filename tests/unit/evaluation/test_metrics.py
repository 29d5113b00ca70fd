import doctest
import itertools
import math

import numpy as np
import pytest
import sklearn.metrics
from scipy import integrate, stats

from latentgp import errors, metrics
from latentgp.errors import InputError

pytestmark = pytest.mark.quick


def softmax_rows(generator, rows, classes):
    scores = generator.normal(size=(rows, classes)) * 2
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("module", [errors, metrics])
def test_docstring_examples_hold(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(("y", "mean", "std"), [(0.3, 0.0, 1.0), (-4.0, 1.0, 0.7), (9.0, 2.0, 3.0)])
def test_crps_equals_its_integral(y, mean, std):
    law = stats.norm(mean, std)
    below = integrate.quad(lambda t: law.cdf(t) ** 2, -np.inf, y)[0]
    above = integrate.quad(lambda t: law.sf(t) ** 2, y, np.inf)[0]
    assert metrics.crps_gaussian([y], [mean], [std]) == pytest.approx(below + above, abs=1e-8)


@pytest.mark.parametrize("law", [stats.norm(1, 2), stats.t(1.3), stats.expon()])
def test_crps_of_quantiles_equals_its_integral(law):
    y = np.array([-3.0, 0.1, 0.9, 6.0])
    expected = np.mean(
        [
            integrate.quad(lambda t: law.cdf(t) ** 2, -np.inf, value)[0]
            + integrate.quad(lambda t: law.sf(t) ** 2, value, np.inf)[0]
            for value in y
        ]
    )
    quantiles = np.tile(law.ppf((np.arange(99) + 0.5) / 99), (4, 1))
    assert metrics.crps_quantiles(y, quantiles) == pytest.approx(expected, rel=2e-3)


def test_crps_of_a_point_prediction_is_the_absolute_error():
    assert metrics.crps_gaussian([1.0, 2.0], [3.0, 2.0], [0.0, 0.0]) == 1.0


def test_nlpd_counts_infinite_loss_but_not_at_weight_zero():
    assert metrics.negative_log_predictive_density([-np.inf, -1.0]) == np.inf
    assert metrics.negative_log_predictive_density([-np.inf, -1.0], sample_weight=[0, 2]) == 1.0


def test_interval_coverage_counts_the_ends_as_inside():
    assert metrics.interval_coverage([0.0, 1.0, 2.0, 3.0], [1, 1, 1, -np.inf], [2, 2, 2, 9]) == 0.75


def concordance_of_all_pairs(y, predicted, censored):
    right = known = 0.0
    for i, j in itertools.combinations(range(len(y)), 2):
        if y[i] == y[j]:
            if censored[i] == censored[j]:
                continue
            first, second = (i, j) if censored[j] else (j, i)
        else:
            first, second = (i, j) if y[i] < y[j] else (j, i)
            if censored[first]:
                continue
        known += 1
        right += np.sign(predicted[second] - predicted[first]) / 2 + 0.5
    return right / known


def test_concordance_counts_the_pairs_of_known_order():
    generator = np.random.default_rng(0)
    y, predicted = generator.integers(1, 9, (2, 40)).astype(float)  # with ties in both
    censored = generator.integers(0, 2, 40)
    ours = metrics.concordance_index(y, predicted, censored=censored)
    assert ours == pytest.approx(concordance_of_all_pairs(y, predicted, censored), rel=1e-12)
    assert metrics.concordance_index(y, y, censored=np.zeros(40)) == 1.0
    assert metrics.concordance_index(y, -y) == 0.0
    assert metrics.concordance_index(y, np.ones(40), censored=censored) == 0.5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.concordance_index([1, 2], [1, 2], censored=[1, 0]), "no two rows have"),
        (lambda: metrics.concordance_index([1, 2], [1, 2], censored=[0, 2]), "else than 0 and 1"),
        (lambda: metrics.poisson_deviance([-1, 2], [1, 2]), "y holds a negative count in 1 row"),
        (lambda: metrics.poisson_deviance([1, 2], [1, 0]), "mean holds a mean that is not pos"),
        (
            lambda: metrics.mean_absolute_error(np.array(["2020-01-01"], "M8[D]"), [1.0]),
            "y holds something that is not a number",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_absolute_error_and_poisson_deviance_equal_scikit_learn():
    generator = np.random.default_rng(0)
    y, mean = generator.poisson(2, 50).astype(float), generator.uniform(0.1, 5, 50)
    weight = generator.uniform(size=50)
    for ours, theirs in (
        (metrics.mean_absolute_error, sklearn.metrics.mean_absolute_error),
        (metrics.poisson_deviance, sklearn.metrics.mean_poisson_deviance),
    ):
        expected = theirs(y, mean, sample_weight=weight)
        assert ours(y, mean, sample_weight=weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_log_loss_and_rmse_equal_scikit_learn(classes):
    generator = np.random.default_rng(0)
    probabilities = softmax_rows(generator, 60, classes)
    labels = np.concatenate([np.arange(classes), generator.integers(classes, size=60 - classes)])
    weight = generator.uniform(size=60)
    expected = sklearn.metrics.log_loss(labels, probabilities, sample_weight=weight)
    ours = metrics.log_loss(labels, probabilities, sample_weight=weight)
    assert ours == pytest.approx(expected, rel=1e-12)
    if classes == 2:
        binary = metrics.log_loss(labels, probabilities[:, 1], sample_weight=weight)
        assert binary == pytest.approx(expected, rel=1e-12)
    y, mean = generator.normal(size=(2, 60))
    expected = sklearn.metrics.root_mean_squared_error(y, mean, sample_weight=weight)
    assert metrics.root_mean_squared_error(y, mean, sample_weight=weight) == pytest.approx(expected)


def test_log_loss_is_clipped_at_tiny_only():
    assert metrics.log_loss([1], [1e-300]) == pytest.approx(300 * math.log(10))
    assert metrics.log_loss([1], [0.0]) == pytest.approx(-math.log(np.finfo(np.float64).tiny))
    single = metrics.log_loss([1], np.array([0.0], dtype=np.float32))
    assert single == pytest.approx(-math.log(np.finfo(np.float32).tiny))


def test_brier_sums_over_classes():
    labels, second = np.array([0, 1, 1]), np.array([0.2, 0.7, 0.4])
    expected = 2 * sklearn.metrics.brier_score_loss(labels, second)
    assert metrics.brier_score(labels, second) == pytest.approx(expected)
    assert metrics.brier_score([2], [[1.0, 0.0, 0.0]]) == 2.0


def test_calibration_error_by_hand_and_alike_for_both_shapes():
    second = np.array([0.95, 0.95, 0.05, 0.35, 0.35])
    labels = np.array([1, 0, 0, 0, 1])
    # Confidence 0.95 three times (two right), 0.65 twice (one right).
    expected = 3 / 5 * (0.95 - 2 / 3) + 2 / 5 * (0.65 - 0.5)
    assert metrics.expected_calibration_error(labels, second) == pytest.approx(expected)
    both = np.stack([1 - second, second], axis=1)
    assert metrics.expected_calibration_error(labels, both) == pytest.approx(expected)


def test_calibration_error_is_small_when_labels_follow_the_probabilities():
    generator = np.random.default_rng(1)
    probabilities = softmax_rows(generator, 20_000, 4)
    labels = (probabilities.cumsum(axis=1) < generator.uniform(size=(20_000, 1))).sum(axis=1)
    assert metrics.expected_calibration_error(labels, probabilities) < 0.02


def test_reliability_curve_bins_and_edges():
    curve = metrics.reliability_curve([0, 0, 1, 1], [0.0, 0.5, 0.50001, 1.0], bins=2)
    np.testing.assert_allclose(curve.probability, [0.25, 0.750005])
    np.testing.assert_array_equal(curve.frequency, [0.0, 1.0])
    np.testing.assert_array_equal(curve.rows, [2, 2])
    assert curve.weight.sum() == pytest.approx(1.0)


def test_an_integer_weight_equals_copies_of_the_row():
    generator = np.random.default_rng(2)
    probabilities, labels = softmax_rows(generator, 12, 3), generator.integers(3, size=12)
    y, mean, std = generator.normal(size=12), generator.normal(size=12), generator.uniform(size=12)
    weight = generator.integers(0, 4, size=12)
    copies = np.repeat(np.arange(12), weight)
    for score in (metrics.log_loss, metrics.brier_score, metrics.expected_calibration_error):
        weighted = score(labels, probabilities, sample_weight=weight)
        assert weighted == pytest.approx(score(labels[copies], probabilities[copies]), rel=1e-12)
    for score, rows in (
        (metrics.crps_gaussian, (y, mean, std)),
        (metrics.interval_coverage, (y, mean - std, mean + std)),
        (metrics.root_mean_squared_error, (y, mean)),
        (metrics.negative_log_predictive_density, (y,)),
    ):
        repeated = score(*(row[copies] for row in rows))
        assert score(*rows, sample_weight=weight) == pytest.approx(repeated, rel=1e-12)


def test_named_classes():
    probabilities = [[0.9, 0.1], [0.2, 0.8]]
    named = metrics.log_loss(["no", "yes"], probabilities, classes=["no", "yes"])
    assert named == metrics.log_loss([0, 1], probabilities)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: metrics.root_mean_squared_error([1.0, 2.0], [1.0]), "y has 2 rows, mean has 1"),
        (lambda: metrics.root_mean_squared_error([[1.0]], [1.0]), "y has shape"),
        (lambda: metrics.root_mean_squared_error([], []), "y has no rows"),
        (lambda: metrics.root_mean_squared_error([1, np.nan], [1, 1]), r"y holds NaN .*from 0: 1"),
        (lambda: metrics.root_mean_squared_error(["a"], [1]), "y holds something that is not a"),
        (lambda: metrics.crps_quantiles([1.0], [1.0]), "quantiles has shape"),
        (lambda: metrics.crps_quantiles([1.0], [[1.0], [2.0]]), "y has 1 rows, quantiles has 2"),
        (lambda: metrics.crps_gaussian([1.0], [1.0], [-1.0]), "std holds a negative standard"),
        (lambda: metrics.interval_coverage([1.0], [2.0], [1.0]), "lower holds a lower end above"),
        (lambda: metrics.negative_log_predictive_density([np.inf]), r"holds \+inf"),
        (lambda: metrics.log_loss([0, 1], [0.5]), "labels has shape"),
        (lambda: metrics.log_loss([0], [1.5]), r"outside \[0, 1\]"),
        (lambda: metrics.log_loss([0], [np.nan]), r"outside \[0, 1\]"),
        (lambda: metrics.log_loss([0], [[0.5, 0.4]]), "a sum other than 1"),
        (lambda: metrics.log_loss([2], [0.5]), "labels holds 2, not one of the classes"),
        (lambda: metrics.log_loss([0], [[1.0]]), "probabilities has shape"),
        (lambda: metrics.log_loss([0], [0.5], classes=["a"]), "classes has shape"),
        (lambda: metrics.log_loss([0], [0.5], sample_weight=[1, 2]), "sample_weight has 2 rows"),
        (lambda: metrics.log_loss([0], [0.5], sample_weight=[0]), "sample_weight is zero"),
        (lambda: metrics.log_loss([0], [0.5], sample_weight=[-1]), "a negative weight"),
        (lambda: metrics.expected_calibration_error([0], [0.5], 0), "bins is 0"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(call, says):
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
