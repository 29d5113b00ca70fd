"""Rows that a first look takes: evenly spaced ones, and patches of near ones."""

import numpy as np
import pytest
from scipy.spatial import KDTree

import latentgp as lgp
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.search import far_and_near
from latentgp.rows.arrays import evenly

X = np.random.default_rng(0).uniform(size=(20_000, 2)) * [1.0, 300.0]


def nearest(X):
    """Distance of each row from the nearest other one, in shares of the ranges."""
    Z = X / [1.0, 300.0]
    return KDTree(Z).query(Z, 2)[0][:, 1]


def test_half_of_a_first_look_is_as_dense_as_all_rows():
    """The other half is all over, as evenly spaced rows are, which are farther apart."""
    rows = far_and_near(X, 2_000)
    assert 1_900 <= len(rows) == len(np.unique(rows)) <= 2_000
    usual, own = nearest(X), nearest(X[rows])
    assert np.mean(own <= usual[rows] * (1 + 1e-9)) > 0.4
    assert np.mean(nearest(X[::10])) > 2.5 * np.mean(usual)
    cells = (X[rows] / [1.0, 300.0] * 10).astype(int)
    assert len(np.unique(cells, axis=0)) >= 95


@pytest.mark.parametrize("number", [1, 300, 600])
def test_few_rows_are_at_most_as_many_as_asked_for(number):
    assert len(far_and_near(X, number)) <= number


@pytest.mark.quick
@pytest.mark.parametrize("neighbours", [5, 15, 20])
def test_places_are_looked_at_in_patches_whatever_the_number_of_neighbours(neighbours):
    own = LatentNeighbours(neighbours)
    rows, _ = own.on_some_rows(X, None, lgp.Matern32(), 2_000)
    np.testing.assert_array_equal(rows, far_and_near(X, 2_000))
    rows, _ = own.on_some_rows(np.hstack([X, X]), None, lgp.Matern32(), 2_000)
    np.testing.assert_array_equal(rows, evenly(len(X), 2_000))
