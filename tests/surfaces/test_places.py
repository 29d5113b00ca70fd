"""Tables with geometry or degrees: coordinate systems, what is guessed, what is refused."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.kernels.sphere import EARTH_RADIUS
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.tables.model import TableModel

geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_evaluations", "ignore:.*(bound|nats)")
ROWS = 40
_generator = np.random.default_rng(0)
LON, LAT = _generator.uniform(5, 15, ROWS), _generator.uniform(45, 55, ROWS)
DEPTH = _generator.normal(size=ROWS)
TARGET = np.sin(LON / 2) + np.cos(LAT / 3) + 0.2 * DEPTH + 0.1 * _generator.normal(size=ROWS)
PLAIN = pd.DataFrame({"depth": DEPTH, "y": TARGET})
NAMED = PLAIN.assign(lon=LON, lat=LAT)
ON_GLOBE = geopandas.GeoDataFrame(PLAIN, geometry=geopandas.points_from_xy(LON, LAT), crs=4326)
ON_PLANE = ON_GLOBE.to_crs(3035)
QUICK = {"max_evaluations": 3, "random_state": 0}


def fitted(frame, **settings):
    return TableModel.fit(frame, settings.pop("target", "y"), **QUICK | settings)


def has_sphere(model):
    return "OnSphere" in repr(model.estimator.model_.kernel)


def said(model):
    return "\n".join(model.notes)


class TestGeometry:
    def test_degrees_are_on_the_globe_and_equal_the_kernel_by_hand(self):
        model = fitted(ON_GLOBE)
        assert model.places.columns == ("longitude", "latitude")
        assert "places of the geometry in WGS 84, in degrees" in said(model)
        assert "length-scale in kilometres" in said(model)
        X = np.column_stack([LON, LAT, DEPTH])
        learned = model.estimator.model_.kernel
        space = lgp.kernels.OnSphere(learned.kernel).on(0, 1)
        others = lgp.kernels.OtherColumns((2,), learned.others.lengthscale)
        by_hand = lgp.kernels.MetricKernel(space, others)
        there = lgp.LatentGP(
            by_hand, model.estimator.model_.likelihood, model.estimator.model_.mean
        )
        found = lgp.fit(
            there, lgp.Data(X, TARGET), key=jax.random.key(0), learn_hyperparameters=False
        )
        expected = found.posterior.predict(X).mean
        np.testing.assert_allclose(model.predict(ON_GLOBE)["mean"], expected, atol=1e-8)

    def test_a_plane_keeps_its_unit(self):
        model = fitted(ON_PLANE)
        assert model.places.columns == ("easting", "northing")
        assert not has_sphere(model)
        assert "ETRS89-extended / LAEA Europe, in metres" in said(model)
        assert not any("guessed" in note for note in model.notes)

    @pytest.mark.parametrize("trained", [ON_GLOBE, ON_PLANE], ids=["globe", "plane"])
    def test_predictions_are_re_projected(self, trained):
        model = fitted(trained)
        expected = model.predict(trained)
        for other in (ON_GLOBE, ON_PLANE, ON_GLOBE.to_crs(32632)):
            np.testing.assert_allclose(model.predict(other), expected, atol=1e-6)

    def test_what_is_kept_in_a_file(self, tmp_path):
        model = fitted(ON_PLANE)
        model.save(tmp_path / "map.latentgp")
        again = lgp.load(tmp_path / "map.latentgp")
        assert again.places == model.places
        np.testing.assert_array_equal(again.predict(ON_GLOBE), model.predict(ON_GLOBE))

    def test_coordinate_systems_that_are_lacking(self):
        bare = ON_PLANE.set_crs(None, allow_override=True)
        with pytest.raises(InputError, match="has no coordinate system and training had EPSG:3035"):
            fitted(ON_PLANE).predict(bare)
        with pytest.raises(InputError, match="has WGS 84 coordinate system and training had none"):
            fitted(bare).predict(ON_GLOBE)

    def test_no_coordinate_system_but_degrees_is_said(self):
        bare = ON_GLOBE.set_crs(None, allow_override=True)
        model = fitted(bare)
        assert "taken as a plane (guessed); frame.set_crs(4326)" in said(model)
        assert not has_sphere(model)
        assert has_sphere(fitted(bare, globe=True))

    def test_degrees_taken_for_metres_are_said(self):
        wrong = ON_GLOBE.set_crs(3035, allow_override=True)
        assert "degrees taken for another unit" in said(fitted(wrong))
        with pytest.raises(InputError, match="is taken as degrees but has"):
            fitted(ON_PLANE.set_crs(4326, allow_override=True))

    def test_a_plane_on_the_globe_and_degrees_on_a_plane_if_asked(self):
        assert has_sphere(fitted(ON_PLANE, globe=True))
        assert not has_sphere(fitted(ON_GLOBE, globe=False))

    def test_areas_are_a_point_inside(self):
        areas = ON_PLANE.assign(geometry=ON_PLANE.buffer(100.0))
        model = fitted(areas)
        assert "40 Polygon of the geometry as a point inside it" in said(model)
        np.testing.assert_allclose(model.predict(areas), model.predict(ON_PLANE), atol=1e-2)

    def test_missing_and_empty_geometry(self):
        gaps = ON_GLOBE.copy()
        gaps.loc[3, "geometry"] = None
        gaps.loc[5, "geometry"] = shapely.Point()
        model = fitted(gaps)
        assert "left out 2 row(s) without geometry" in model.notes
        with pytest.raises(InputError, match="missing or empty in row\\(s\\) 3, 5: give it"):
            model.predict(gaps)
        empty = gaps.iloc[[3, 5]]
        with pytest.raises(InputError, match="no row has a geometry"):
            fitted(empty)
        assert has_sphere(fitted(geopandas.GeoDataFrame(NAMED)))

    def test_coordinates_that_are_columns_too_are_used_once(self):
        model = fitted(ON_GLOBE.assign(lon=LON, lat=LAT))
        assert model.encoder.feature_names == ["depth", "lon", "lat"]
        with pytest.raises(InputError, match="column 'longitude' that differs"):
            fitted(ON_GLOBE.assign(longitude=LON + 1))

    def test_equal_places_and_one_place(self):
        twice = pd.concat([ON_GLOBE, ON_GLOBE], ignore_index=True)
        assert np.isfinite(fitted(twice).predict(twice)["std"]).all()
        one = ON_GLOBE.assign(geometry=shapely.Point(10, 50))
        model = fitted(one)
        assert "not on the globe, because one of them is constant" in said(model)
        one_place = fitted(one, target=None, formula="y ~ depth + gp(longitude, latitude)")
        assert np.isfinite(one_place.predict(one)["mean"]).all()

    def test_a_formula(self):
        formula = "y ~ depth + gp(longitude, latitude)"
        model = fitted(ON_GLOBE, target=None, formula=formula)
        assert has_sphere(model)
        other = fitted(ON_GLOBE, target=None, formula="y ~ gp(longitude, latitude, kernel=rbf)")
        assert not has_sphere(other)
        assert "has no gp(longitude, latitude) without a kernel" in said(other)


class TestNames:
    def test_degrees_by_name_are_on_the_globe_and_said(self):
        model = fitted(NAMED)
        assert has_sphere(model)
        assert "lon, lat: longitude and latitude in degrees by their names" in said(model)
        assert "(globe=False: a plane)" in said(model)
        kernel = model.estimator.model_.kernel.kernel
        assert 100 < float(kernel.lengthscale) < EARTH_RADIUS
        np.testing.assert_allclose(model.predict(ON_PLANE), model.predict(NAMED), atol=1e-6)

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"globe": False}, None),
            ({"kernel": lgp.RBF([1.0, 1.0, 1.0])}, None),
            ({"representation": lgp.Inducing(10)}, "because representation is given; globe=True"),
        ],
        ids=["asked", "kernel", "representation"],
    )
    def test_a_plane(self, settings, says):
        model = fitted(NAMED, **settings)
        assert not has_sphere(model)
        assert says in said(model) if says else "globe" not in said(model)

    def test_a_representation_on_the_globe(self):
        assert has_sphere(fitted(NAMED, globe=True, representation=lgp.Inducing(10)))

    def test_names_without_degrees(self):
        far = NAMED.assign(lon=1e5 * LON)
        assert "are called degrees but are not within them" in said(fitted(far))
        with pytest.raises(InputError, match="globe=True, but lon and lat are not within degrees"):
            fitted(far, globe=True)
        with pytest.raises(InputError, match="needs one column of longitudes"):
            fitted(PLAIN, globe=True)

    def test_both_orders_in_a_formula(self):
        models = [
            fitted(NAMED, target=None, formula=f"y ~ depth + gp({inputs})")
            for inputs in ("lon, lat", "lat, lon", "lon, lat, kernel=globe")
        ]
        predictions = [model.predict(NAMED) for model in models]
        np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-8)
        np.testing.assert_allclose(predictions[0], predictions[2], atol=1e-8)

    @pytest.mark.parametrize("first", [0.0, 20.0])
    def test_longitudes_from_elsewhere_are_the_same_places(self, first):
        """From 0 to 360 and, as in atlases of the oceans, from 20 to 380."""
        across = NAMED.assign(lon=(11 * LON + 270) % 360 - 180)
        other = across.assign(lon=(across["lon"] - first) % 360 + first)
        assert other["lon"].max() > 180 + first
        one, two = fitted(across), fitted(other)
        assert has_sphere(two)
        np.testing.assert_allclose(one.predict(other), one.predict(across), atol=1e-8)
        np.testing.assert_allclose(two.predict(across), one.predict(across), atol=1e-5)

    def test_the_date_line_and_the_poles_are_places_like_others(self):
        """With rows there twice, as 180 and as -180, and at a pole with any longitude."""
        where = NAMED.assign(lon=18 * LON - 180, lat=9 * LAT - 450)
        where.loc[:7, "lon"], where.loc[:7, "lat"] = (
            [180, -180] * 4,
            [5, 5, 40, 40, 90, 90, -90, -90],
        )
        where["y"] = np.sin(np.radians(where["lat"])) + 0.1 * np.cos(17 * LON)
        model = fitted(where)
        for lat, turned in ((5.0, 360.0), (40.0, 360.0), (90.0, 77.0), (-90.0, 123.0)):
            here = pd.DataFrame({"lon": [-180.0, turned - 180.0], "lat": lat, "depth": 0.0})
            found = model.predict(here)
            np.testing.assert_allclose(found.iloc[0], found.iloc[1], rtol=1e-9)
        np.testing.assert_allclose(model.predict(where)["mean"], where["y"], atol=0.4)

    def test_one_latitude_across_180_degrees_is_said(self):
        """A latitude that is constant is no input, and longitudes are on a line."""
        parallel = NAMED.assign(lat=0.0, lon=(LON + 170 + 180) % 360 - 180)
        assert "write longitudes on from 180" in said(fitted(parallel))
        for lon in (LON, 24 * LON - 240):
            assert "write longitudes" not in said(fitted(parallel.assign(lon=lon)))

    @pytest.mark.parametrize("kind", ["polars", "arrow"])
    def test_tables_of_others(self, kind):
        table = pytest.importorskip("polars").from_pandas(NAMED)
        table = table.to_arrow() if kind == "arrow" else table
        np.testing.assert_allclose(fitted(table).predict(table), fitted(NAMED).predict(NAMED))

    def test_effects_of_a_mean_and_groups_are_kept(self):
        model = fitted(NAMED, mean=["depth"])
        assert has_sphere(model)
        assert model.coefficients().names == ("depth",)


class TestEstimators:
    def test_degrees_are_on_the_globe(self):
        inputs = ON_GLOBE[["depth", "geometry"]]
        model = lgp.GPRegressor(**QUICK).fit(inputs, TARGET)
        assert "OnSphere" in repr(model.model_.kernel)
        expected = fitted(ON_GLOBE).predict(ON_GLOBE)["mean"]
        np.testing.assert_allclose(model.predict(inputs.to_crs(3035)), expected, atol=1e-6)

    def test_what_is_doubtful_is_warned_of(self):
        inputs = ON_GLOBE[["geometry"]].set_crs(None, allow_override=True)
        with pytest.warns(UserWarning, match=r"taken as a plane \(guessed\)"):
            model = lgp.GPRegressor(**QUICK).fit(inputs, TARGET)
        assert not model.places_.on_globe

    def test_missing_geometry(self):
        gaps = ON_GLOBE[["geometry"]].copy()
        gaps.loc[3, "geometry"] = None
        with pytest.raises(InputError, match="missing or empty in row"):
            lgp.GPRegressor(**QUICK).fit(gaps, TARGET)

    def test_counts_and_classes(self):
        inputs = ON_GLOBE[["geometry"]]
        counts = lgp.GPCountRegressor(**QUICK).fit(inputs, np.arange(ROWS) % 5)
        classes = lgp.GPClassifier(**QUICK).fit(inputs, LON > 10)
        for model in (counts, classes):
            assert "OnSphere" in repr(model.model_.kernel)
            assert len(model.predict(inputs)) == ROWS


@pytest.fixture(scope="module")
def model():
    return fitted(NAMED)


class TestAreas:
    CELLS = pd.DataFrame(
        [(x, y) for x in np.arange(5.25, 15, 0.5) for y in np.arange(45.25, 55, 0.5)],
        columns=["lon", "lat"],
    ).assign(depth=0.0, size=lambda cells: np.cos(np.radians(cells["lat"])))
    HALVES = geopandas.GeoDataFrame(
        {"half": ["west", "east"]},
        geometry=[shapely.box(5, 45, 10, 55), shapely.box(10, 45, 15, 55)],
        crs=4326,
    )

    def test_polygons_are_labels(self, model):
        found = model.totals(self.CELLS, weights="size", areas=self.HALVES, by="half")
        half = np.where(self.CELLS["lon"] < 10, "west", "east")
        expected = model.totals(self.CELLS.assign(half=half), weights="size", by="half")
        assert found.labels == expected.labels == ("east", "west")
        np.testing.assert_allclose(found.estimate, expected.estimate)
        np.testing.assert_allclose(found.covariance, expected.covariance)
        size = self.CELLS["size"].to_numpy()
        one = lgp.fields.total(
            model.estimator.posterior_, model.encoder.encode(self.CELLS), weights=size, by=half
        )
        np.testing.assert_allclose(found.estimate, one.estimate)

    def test_polygons_of_another_system_and_longitudes_from_0_to_360(self, model):
        expected = model.totals(self.CELLS, areas=self.HALVES, by="half").estimate
        finer = self.HALVES.assign(geometry=self.HALVES.segmentize(0.05)).to_crs(3035)
        found = model.totals(self.CELLS, areas=finer, by="half").estimate
        np.testing.assert_allclose(found, expected)
        turned = self.CELLS.assign(lon=self.CELLS["lon"] - 360)
        found = model.totals(turned, areas=self.HALVES, by="half").estimate
        np.testing.assert_allclose(found, expected)

    def test_cells_on_borders_count_once_and_overlaps_twice(self, model):
        border = self.CELLS.assign(lon=self.CELLS["lon"].replace(9.75, 10.0))
        found = model.totals(border, areas=self.HALVES)
        assert found.weight.sum() == len(border)
        both = pd.concat([self.HALVES, self.HALVES.dissolve().assign(half="all")])
        found = model.totals(self.CELLS, areas=both, by="half")
        assert found.labels == ("all", "east", "west")
        np.testing.assert_allclose(found.estimate[0], found.estimate[1:].sum())
        np.testing.assert_allclose(found.covariance[0, 0], found.covariance[1:, 1:].sum())

    def test_areas_beyond_the_date_line_to_either_side(self):
        moved = NAMED.assign(lon=(LON + 170 + 180) % 360 - 180)  # from 175 to 185
        model = fitted(moved)
        west = np.sum(moved["lon"] > 0)
        for ends in ((170, 180, 180, 190), (-190, -180, -180, -170), (170, 180, -180, -170)):
            boxes = [shapely.box(a, 40, b, 60) for a, b in (ends[:2], ends[2:])]
            areas = geopandas.GeoDataFrame({"half": ["w", "z"]}, geometry=boxes, crs=4326)
            found = model.totals(moved, areas=areas, by="half")
            np.testing.assert_array_equal(found.weight, [west, ROWS - west])

    def test_areas_of_one_name_count_a_row_once(self, model):
        both = pd.concat([self.HALVES, self.HALVES])
        found = model.totals(self.CELLS, areas=both, by="half")
        expected = model.totals(self.CELLS, areas=self.HALVES, by="half")
        np.testing.assert_allclose(found.estimate, expected.estimate)
        with pytest.raises(InputError, match="Totals need rows"):
            model.totals(self.CELLS, areas=self.HALVES.iloc[:0])

    def test_an_exposure_that_is_not_there_is_said(self):
        counts = NAMED.assign(days=2.0 + np.arange(ROWS) % 3, y=np.arange(ROWS) % 4)
        model = fitted(counts, side_columns={"exposure": "days"})
        less = counts.drop(columns="days")
        for asked in (model.totals, lambda rows: model.exceedance(rows, 1.0)):
            with pytest.warns(UserWarning, match="no column 'days'.*one unit of exposure"):
                asked(less)

    def test_rows_outside_are_said_and_areas_without_rows_refused(self, model):
        west = self.HALVES.iloc[:1]
        with pytest.warns(UserWarning, match="none of the areas: 200 of 400 are left out"):
            model.totals(self.CELLS, areas=west)
        far = pd.concat([self.HALVES, west.translate(80).to_frame("geometry").assign(half="far")])
        with pytest.raises(InputError, match="no row lies in 'far'"):
            model.totals(self.CELLS, areas=far, by="half")
        with pytest.raises(InputError, match="knows of no places"):
            fitted(NAMED.drop(columns=["lon", "lat"])).totals(NAMED, areas=west)
        with pytest.raises(InputError, match="areas must be a GeoDataFrame"):
            model.totals(self.CELLS, areas=self.CELLS)
        with pytest.raises(InputError, match="must both have a coordinate system, or none"):
            model.totals(self.CELLS, areas=west.set_crs(None, allow_override=True))

    def test_counts_with_an_exposure(self):
        table = NAMED.assign(n=np.arange(ROWS) % 5, days=2.0).drop(columns="y")
        model = fitted(table, target="n", side_columns={"exposure": "days"}, method="laplace")
        one = model.totals(self.CELLS.assign(days=1.0))
        two = model.totals(self.CELLS.assign(days=2.0))
        np.testing.assert_allclose(two.estimate, 2 * one.estimate)
        assert (one.standard_error_error > 0).all()

    def test_exceedance(self, model):
        found = model.exceedance(self.CELLS, 0.5)
        f = model.estimator.posterior_.predict_f(model.encoder.encode(self.CELLS))
        expected = norm.sf(0.5, f.mean, np.sqrt(f.variance))
        np.testing.assert_allclose(found["probability"], expected, atol=1e-10)
        assert not found["error"].any()
        grid = {"lon": [6.0, 7.0], "lat": [46.0, 47.0, 48.0], "depth": [0.0]}
        assert dict(model.exceedance(grid, 0.5)["probability"].sizes) == {
            "lon": 2,
            "lat": 3,
            "depth": 1,
        }

    def test_the_command_line(self, model, tmp_path):
        model.save(tmp_path / "map.latentgp")
        self.CELLS.assign(half=self.CELLS["lon"] < 10).to_csv(tmp_path / "cells.csv", index=False)
        self.HALVES.to_file(tmp_path / "halves.gpkg")
        given = [str(tmp_path / "map.latentgp"), str(tmp_path / "cells.csv")]
        runner, table = CliRunner(), str(tmp_path / "totals.csv")
        asked = ["totals", *given, "--weights", "size", "--by", "half", "--out", table]
        said = runner.invoke(app, asked, catch_exceptions=False).output
        assert "exact for the posterior" in said
        by_column = pd.read_csv(table)
        asked += ["--areas", str(tmp_path / "halves.gpkg")]
        assert "west" in runner.invoke(app, asked, catch_exceptions=False).output
        assert by_column["total"].to_numpy() == pytest.approx(pd.read_csv(table)["total"])
        out = str(tmp_path / "above.csv")
        asked = ["exceedance", *given, "--above", "0.5", "--out", out, "--with-inputs"]
        assert runner.invoke(app, asked, catch_exceptions=False).output.startswith("400 prob")
        found = pd.read_csv(out)["predicted_probability"]
        np.testing.assert_allclose(found, model.exceedance(self.CELLS, 0.5)["probability"])

    def test_the_command_line_says_what_it_guesses(self, tmp_path):
        NAMED.to_csv(tmp_path / "rows.csv", index=False)
        asked = ["fit", str(tmp_path / "rows.csv"), "--target", "y", "--out"]
        asked += [str(tmp_path / "map.latentgp")]
        said = CliRunner().invoke(app, asked, catch_exceptions=False).output
        assert "in degrees by their names and values (guessed)" in said
        said = CliRunner().invoke(app, [*asked, "--no-globe"], catch_exceptions=False).output
        assert "globe" not in said


def field(kernel, X, seed=3):
    """A frame with a field of the kernel at places, and with days in a third column."""
    generator = np.random.default_rng(seed)
    with jax.enable_x64(True):
        gram = np.asarray(kernel.gram(X, X))
    root = np.linalg.cholesky(gram + 1e-9 * np.eye(len(X)))
    frame = pd.DataFrame(X, columns=["lon", "lat", "day"][: X.shape[1]])
    return frame.assign(
        level=root @ generator.normal(size=len(X)) + 0.01 * generator.normal(size=len(X))
    )


@pytest.mark.parametrize("family", [lgp.Matern12, lgp.Matern52])
@pytest.mark.parametrize("days", [False, True])
def test_the_kernel_on_the_globe_is_chosen_by_evidence(family, days):
    generator = np.random.default_rng(3)
    X = np.column_stack([generator.uniform(160, 220, 600), generator.uniform(30, 60, 600)])
    X[:, 0] = (X[:, 0] + 180) % 360 - 180
    kernel = lgp.kernels.OnSphere(family(lengthscale=1500.0)).on(0, 1)
    if days:
        X = np.column_stack([X, generator.uniform(0, 30, 600)])
        kernel = lgp.kernels.MetricKernel(kernel, lgp.kernels.OtherColumns((2,), lengthscale=20.0))
    found = lgp.TableModel.fit(field(kernel, X), "level", max_evaluations=5)
    learned = found.estimator.model_.kernel
    assert isinstance(learned, type(kernel))
    space = learned.space if days else learned
    assert isinstance(space.kernel.kernel, family)
    assert 500 < float(space.kernel.kernel.lengthscale) < 4500
    assert found.estimator.kernel_choice_.family == family.__name__
