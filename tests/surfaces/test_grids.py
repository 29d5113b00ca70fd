"""Grids of xarray: rows from variables along shared dimensions, predictions as grids again."""

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.surfaces.tables.model import TableModel

xarray = pytest.importorskip("xarray")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_evaluations", "ignore:.*(bound|nats)")
QUICK = {"max_evaluations": 3, "random_state": 0}
EAST, NORTH = np.arange(6.0), np.arange(0.0, 4.0, 0.5)
_generator = np.random.default_rng(0)
HEIGHT = _generator.normal(size=(6, 8))
WARMTH = np.sin(EAST)[:, None] + np.cos(NORTH) - 0.3 * HEIGHT + 0.1 * _generator.normal(size=(6, 8))
DATASET = xarray.Dataset(
    {"warmth": (("east", "north"), WARMTH), "height": (("east", "north"), HEIGHT)},
    coords={"east": EAST, "north": NORTH},
)
ROWS = DATASET.to_dataframe().reset_index()


@pytest.fixture(scope="module")
def of_rows():
    return TableModel.fit(ROWS[["warmth", "height", "east", "north"]], "warmth", **QUICK)


@pytest.fixture(scope="module")
def of_grid():
    return TableModel.fit(DATASET, "warmth", **QUICK)


def test_a_dataset_is_its_rows(of_rows, of_grid):
    assert sorted(of_grid.encoder.feature_names) == ["east", "height", "north"]
    np.testing.assert_allclose(of_grid.predict(ROWS), of_rows.predict(ROWS), atol=1e-8)
    assert of_grid.evaluate(DATASET) == pytest.approx(of_rows.evaluate(ROWS))
    assert "TableModel.fit(frame, 'warmth'" in of_grid.made_by


@pytest.mark.parametrize("estimator", [lgp.GPRegressor(), lgp.GPCountRegressor()])
def test_estimators_name_the_table_that_takes_a_dataset(estimator):
    inputs = DATASET[["height"]]
    with pytest.raises(InputError, match=r"X is a Dataset of xarray; use latentgp\.TableModel"):
        estimator.fit(inputs, DATASET["warmth"])


def test_estimators_take_a_data_array_of_rows_and_columns():
    array = xarray.DataArray(ROWS[["east", "north"]].to_numpy(), dims=("row", "column"))
    found = [
        lgp.GPRegressor(**QUICK).fit(X, y).predict(X)
        for X, y in ((array, xarray.DataArray(ROWS["warmth"])), (array.values, ROWS["warmth"]))
    ]
    np.testing.assert_array_equal(*found)


def test_predictions_of_a_grid_have_its_coordinates(of_grid):
    new = DATASET.drop_vars("warmth").isel(east=[1, 4], north=slice(2, 5))
    found = of_grid.predict(new, level=0.9)
    assert dict(found.sizes) == {"east": 2, "north": 3, "quantile": 2}
    assert found["quantile"].values == pytest.approx([0.05, 0.95])
    expected = of_grid.predict(new.to_dataframe().reset_index(), level=0.9)
    for name in ("mean", "std"):
        assert found[name].dims == ("east", "north")
        np.testing.assert_allclose(found[name].values.ravel(), expected[name])
    np.testing.assert_allclose(found["quantiles"].sel(quantile=0.05).values.ravel(), expected.lower)
    place = found.sel(east=4.0, north=1.5)
    one = of_grid.predict(
        pd.DataFrame({"east": [4.0], "north": [1.5], "height": [HEIGHT[4, 3]]}), level=0.9
    )
    np.testing.assert_allclose(place["mean"], one["mean"][0])
    assert list(of_grid.predict(new, mean_only=True).data_vars) == ["mean"]


def test_dimensions_in_another_order_and_others_beside(of_grid):
    new = DATASET.transpose("north", "east").expand_dims(year=[2020, 2021])
    found = of_grid.predict(new)
    np.testing.assert_allclose(
        found["mean"].sel(year=2020).transpose("east", "north"), of_grid.predict(DATASET)["mean"]
    )
    beside = DATASET.assign(profile=("depth", np.ones(5)))
    assert "year" not in of_grid.predict(beside)["mean"].dims
    assert "depth" not in of_grid.predict(beside)["mean"].dims


def test_a_mapping_of_coordinates():
    model = TableModel.fit(DATASET.drop_vars("height"), "warmth", **QUICK)
    found = model.predict({"north": [0.25, 1.25], "east": [0.0, 1.0, 2.0]})
    assert dict(found["mean"].sizes) == {"north": 2, "east": 3}
    row = pd.DataFrame({"east": [2.0], "north": [1.25]})
    np.testing.assert_allclose(found["mean"][1, 2], model.predict(row)["mean"][0])
    with pytest.raises(InputError, match="lacks 1 column"):
        model.predict({"north": [0.25]})
    with pytest.raises(InputError, match="coordinates must be a row of values each"):
        model.predict({"north": [[0.25]], "east": [1.0]})


def test_gaps_are_missing_targets():
    gaps = DATASET.where(DATASET["east"] != 3.0)
    model = TableModel.fit(gaps.assign(height=DATASET["height"]), "warmth", **QUICK)
    assert "left out 8 row(s) without 'warmth'" in model.notes
    assert np.isfinite(model.predict(DATASET)["mean"]).all()


def test_variables_of_other_dimensions_are_left_out_and_said():
    beside = DATASET.assign(profile=("depth", np.ones(5))).assign_coords(depth=np.arange(5.0))
    notes = TableModel.fit(beside, "warmth", **QUICK).notes
    assert "profile: left out, it has dimensions that 'warmth' lacks" in notes
    assert not any(note.startswith("left out") for note in notes)


def test_a_data_array_and_its_places():
    degrees = DATASET["warmth"].rename(east="lon", north="lat")
    model = TableModel.fit(degrees, **QUICK)
    assert model.target == "warmth"
    assert model.places.on_globe
    assert list(model.predict(degrees)["mean"].dims) == ["lon", "lat"]
    formula = TableModel.fit(degrees, formula="warmth ~ gp(lon, lat)", **QUICK)
    assert formula.places.on_globe
    with pytest.raises(InputError, match="no variable None to predict: name one of"):
        TableModel.fit(DATASET, **QUICK)
    bare = TableModel.fit(DATASET.drop_vars("north"), "warmth", **QUICK)
    assert "dimension north: no input, it has no coordinate" in bare.notes


def test_classes_are_grids_too():
    labels = DATASET.assign(warm=DATASET["warmth"] > 0).drop_vars("warmth")
    model = TableModel.fit(labels, "warm", **QUICK)
    found = model.predict(labels)
    assert found["prediction"].dims == ("east", "north")
    assert {"probability_False", "probability_True"} <= set(found.data_vars)


def test_variables_that_the_model_does_not_read_add_no_rows(of_grid):
    bands = {"band": ("band", np.arange(3.0)), "light": (("band", "east"), np.ones((3, 6)))}
    size = DATASET.assign(size=("north", NORTH))
    found = of_grid.totals(size.assign(bands), weights="size")
    assert found.weight == pytest.approx(6 * NORTH.sum())
    assert found.estimate == pytest.approx(of_grid.totals(size, weights="size").estimate)


def test_a_coordinate_with_the_name_of_a_prediction_gives_way(of_grid):
    named = DATASET.assign_coords(mean=("north", NORTH))
    found = of_grid.predict(named)
    np.testing.assert_array_equal(found["mean"], of_grid.predict(DATASET)["mean"])
    assert found["mean"].dims == ("east", "north")
    assert "mean" in found.data_vars


def test_descending_coordinates_stay_so(of_grid):
    turned = DATASET.sel(north=NORTH[::-1]).transpose()
    found = of_grid.predict(turned)["mean"]
    np.testing.assert_array_equal(found["north"], NORTH[::-1])
    expected = of_grid.predict(DATASET)["mean"]
    np.testing.assert_allclose(found.sortby("north").transpose(*expected.dims), expected)
