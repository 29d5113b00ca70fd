"""Columns that are places, and grids over them."""

import numpy as np
import pytest

import latentgp as lgp
from latentgp.errors import InputError

fields = lgp.fields
pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("kernel", "columns", "degrees"),
    [
        (lgp.RBF(), (0, 1), False),
        (lgp.Linear().on(0) + 2.0 * lgp.Matern32(np.ones(2)).on(2, 1), (2, 1), False),
        (lgp.RBF().on(0) * lgp.kernels.OnSphere(lgp.RBF(500.0)).on(1, 2), (1, 2), True),
        (lgp.PerLatent(lgp.RBF().on(1, 2), lgp.RBF().on(0)), (1, 2), False),
    ],
)
def test_the_part_of_two_columns_has_the_places(kernel, columns, degrees):
    found = fields.places_of(kernel, 2 if isinstance(kernel, lgp.RBF) else 3)
    assert (found.columns, found.degrees) == (columns, degrees)


@pytest.mark.parametrize("kernel", [lgp.RBF(), lgp.Linear().on(0, 1), lgp.RBF().on(0)])
def test_other_kernels_have_none(kernel):
    assert fields.places_of(kernel, 3) is None


def test_distances_are_in_length_scales_where_columns_have_their_own():
    X = np.array([[1.0, 9.0], [3.0, 9.0]])
    own = fields.places_of(lgp.RBF(np.array([2.0, 1.0])), 2)
    assert own.in_lengthscales
    assert np.ptp(own.metric(X), axis=0).tolist() == [1.0, 0.0]
    shared = fields.places_of(lgp.RBF(2.0), 2)
    assert not shared.in_lengthscales
    assert shared.metric(X).tolist() == X.tolist()


def test_cells_far_from_all_places_are_left_out():
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.uniform(0, 1, (200, 2)), generator.uniform(9, 10, (200, 2))])
    grid = fields.grid_over(X, cells=400)
    shown = grid.values(np.arange(400.0))
    assert grid.points.shape == (400, 2)
    assert np.isfinite(shown[0, 0])
    assert np.isfinite(shown[-1, -1])
    assert np.isnan(shown[0, -1])
    assert np.isnan(shown[10, 10])


def test_a_grid_across_the_date_line_goes_on_beyond_180():
    generator = np.random.default_rng(0)
    X = np.column_stack([generator.uniform(170, 190, 100), generator.uniform(-5, 5, 100)])
    X[:, 0] = (X[:, 0] + 180) % 360 - 180
    grid = fields.grid_over(X, cells=200, degrees=True)
    assert 169 < grid.across.min() < 172
    assert 188 < grid.across.max() < 191
    assert np.abs(grid.points[:, 0]).min() > 169
    assert grid.near.all()


def test_one_place_has_a_grid():
    grid = fields.grid_over(np.array([[2.0, 3.0], [2.0, 3.0]]), cells=4)
    assert len(grid.points) == 4
    np.testing.assert_allclose(grid.points, [[2.0, 3.0]] * 4)


@pytest.mark.parametrize("space", [lgp.Matern32(2.0), lgp.kernels.OnSphere(lgp.Matern32(500.0))])
def test_those_of_space_and_time_together_are_those_of_space(space):
    kernel = lgp.kernels.Gneiting(space.on(1, 0), lgp.kernels.TemporalDecay(2)).on(3, 2, 0)
    found = fields.places_of(kernel, 4)
    assert found.columns == (2, 3)
    assert found.kernel is space
    assert found.degrees == (not isinstance(space, lgp.Matern32))


def test_longitudes_are_counted_as_those_of_the_places():
    X = np.array([[200.0, 0.0], [210.0, 5.0], [205.0, 2.0]])
    grid = fields.grid_over(X, cells=9, degrees=True)
    assert 200 < grid.across.min() < grid.across.max() < 210
    assert 200 < grid.points[:, 0].min() < grid.points[:, 0].max() < 210
    across_zero = fields.grid_over(np.array([[355.0, 0.0], [5.0, 5.0]]), cells=9, degrees=True)
    assert 355 < across_zero.across.min() < 360 < across_zero.across.max() < 365
    assert set(np.round(across_zero.across % 360, 9)) == set(np.round(across_zero.points[:, 0], 9))


@pytest.mark.usefixtures("as_users_have_it")
def test_a_grid_of_a_table_of_one_place_and_what_is_refused():
    assert fields.grid_over([[2.0, 3.0]], cells=4).near.all()
    for places, given, words in (
        (np.ones((3, 3)), {}, "two columns, got 3"),
        ([[0.0, np.nan]], {}, "places has NaN"),
        ([[0.0, 1.0]], {"cells": 0}, "cells must be a whole number from 1"),
        ([[0.0, 1.0]], {"cells": "x"}, "cells must be a whole number from 1"),
        ("x", {}, "places must be an array of numbers"),
        ([[50.0, 100.0]], {"degrees": True}, "latitudes from -90 to 90"),
    ):
        with pytest.raises(InputError, match=words):
            fields.grid_over(places, **given)
    with pytest.raises(InputError, match="one value for each of the grid's 4 points"):
        fields.grid_over([[2.0, 3.0]], cells=4).values(np.ones(3))
    for kernel, columns, words in (
        ("x", 2, "kernel must be a kernel"),
        (lgp.RBF(), "x", "columns must be a whole number from 1, got 'x'"),
        (lgp.RBF().on(2), 2, "2"),
    ):
        with pytest.raises(InputError, match=words):
            fields.places_of(kernel, columns)
