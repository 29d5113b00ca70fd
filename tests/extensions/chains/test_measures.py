"""R-hat at checkpoints, and samplers ranked by their figures."""

import doctest

import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains import measures as chains

pytestmark = pytest.mark.quick
GENERATOR = np.random.default_rng(0)


@pytest.mark.slow
def test_docstring_examples_hold():
    assert doctest.testmod(chains).failed == 0


def test_r_hat_falls_as_chains_leave_their_starts():
    draws = GENERATOR.normal(size=(4, 2000, 2))
    draws[:, :, 1] += 5 * np.arange(4)[:, None] * np.exp(-np.arange(2000) / 60)
    found = chains.r_hat_at(draws, [50, 200, 2000])
    assert found.shape == (3, 2)
    assert np.all(found[:, 0] < 1.05)
    assert found[0, 1] > 2
    assert np.all(np.diff(found[:, 1]) < 0)


@pytest.mark.parametrize(
    ("draws", "checkpoints", "message"),
    [
        (np.zeros(9), [4], "compares two chains"),
        (np.zeros((1, 9)), [4], "compares two chains"),
        (np.zeros((2, 9)), [10], "checkpoints holds 10"),
        (np.zeros((2, 9)), [3], "checkpoints holds 3"),
    ],
)
def test_r_hat_refuses(draws, checkpoints, message):
    with pytest.raises(lgp.InputError, match=message):
        chains.r_hat_at(draws, checkpoints)


def test_samplers_are_ranked_and_ties_are_left_open():
    figures = {
        "slow": GENERATOR.normal(10, 2, 10),
        "fast": GENERATOR.normal(100, 2, 10),
        "as fast": GENERATOR.normal(100, 2, 10),
    }
    ranking = chains.rank_samplers(figures)
    assert set(ranking.names[:2]) == {"fast", "as fast"}
    assert ranking.names[2] == "slow"
    assert str(ranking).endswith(" > slow")
    assert " ~ " in str(ranking)
    np.testing.assert_array_equal(ranking.p_values, ranking.p_values.T)
    assert ranking.better[0, 2]
    assert not ranking.better[2, 0]


def test_equal_figures_are_no_difference():
    assert str(chains.rank_samplers({"a": [1.0, 1.0], "b": [1.0, 1.0]})) == "a ~ b"


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"a": [1.0]}, "two at least"),
        ({"a": [1.0], "b": []}, "'b'"),
        ({"a": [1.0], "b": [np.nan]}, "'b'"),
    ],
)
def test_ranking_refuses(figures, message):
    with pytest.raises(lgp.InputError, match=message):
        chains.rank_samplers(figures)
