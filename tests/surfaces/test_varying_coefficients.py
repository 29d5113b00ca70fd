"""Coefficients that vary with place: x:gp(lon, lat) beside the kernel by hand and the truth."""

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.surfaces.tables.formula.parser import parse
from latentgp.surfaces.tables.model import TableModel

ROWS = 150
_generator = np.random.default_rng(0)
EAST, NORTH = _generator.uniform(0, 10, ROWS), _generator.uniform(0, 10, ROWS)
DOSE = _generator.normal(size=ROWS)
SLOPE = 1 + np.sin(EAST / 2) + np.cos(NORTH / 3)
TABLE = pd.DataFrame(
    {
        "dose": DOSE,
        "east": EAST,
        "north": NORTH,
        "clinic": _generator.choice(["a", "b"], ROWS),
        "y": 2 + SLOPE * DOSE + 0.1 * _generator.normal(size=ROWS),
    }
)
FORMULA = "y ~ dose + dose:gp(east, north)"


@pytest.fixture(scope="module")
def model():
    return TableModel.fit(TABLE, formula=FORMULA, random_state=0)


def test_it_equals_the_kernel_by_hand(model):
    fixed, varying = model.estimator.model_.kernel.parts
    assert model.encoder.feature_names == ["Intercept", "dose", "east", "north", "dose"]
    field = varying.parts[1].kernel

    class Weighted(lgp.Kernel):
        def __call__(self, x, z):
            return x[4] * z[4] * field(x[2:4], z[2:4]) + fixed(x, z)

    X = model.encoder.encode(TABLE)
    fitted = model.estimator.model_
    by_hand = lgp.LatentGP(Weighted(), fitted.likelihood, fitted.mean)
    data = lgp.Data(X, TABLE["y"].to_numpy())
    found = lgp.fit(by_hand, data, key=jax.random.key(0), learn_hyperparameters=False)
    predictive = found.posterior.predict(X)
    own = model.predict(TABLE)
    np.testing.assert_allclose(own["mean"], predictive.mean, atol=1e-8)
    np.testing.assert_allclose(own["std"], np.sqrt(predictive.variance), atol=1e-8)
    value = model.estimator.posterior_.evidence.value
    assert found.posterior.evidence.value == pytest.approx(value, abs=1e-6)


def test_the_simulated_coefficient_is_recovered(model):
    whole = model.varying_coefficient("dose", TABLE)
    fixed = model.coefficients()
    slope = fixed.estimate[fixed.names.index("dose")]
    error = slope + whole["estimate"] - SLOPE
    assert np.sqrt(np.mean(error**2)) < 0.1
    assert np.ptp(whole["estimate"]) > 2
    alone = TableModel.fit(TABLE, formula="y ~ dose:gp(east, north)", random_state=0)
    found = alone.varying_coefficient("dose:gp(east, north)", TABLE)
    inside = (found["lower"] < SLOPE) & (found["upper"] > SLOPE)
    assert inside.mean() > 0.85
    far = TABLE.iloc[:1].assign(east=1e4)
    far_away = alone.varying_coefficient("dose", far)
    assert abs(far_away["estimate"].iloc[0]) < 1e-6


def test_a_regressor_in_place_of_fixed_effects_leaves_it_its_part():
    """The kernel has no fixed effects then: its first part is the coefficient's."""
    from latentgp.surfaces.report.terms import terms

    formula, line = "y ~ dose + dose:gp(east, north) + (1 | clinic)", LinearRegression()
    model = TableModel.fit(TABLE, formula=formula, mean=line, random_state=0)
    found = model.varying_coefficient("dose", TABLE)["estimate"]
    of_line = line.fit(DOSE[:, None], TABLE["y"]).coef_[0]
    assert np.sqrt(np.mean((found + of_line - SLOPE) ** 2)) < 0.2
    said = str(terms(model).blocks)
    assert "is in the prior mean" in said
    assert "coefficient that varies" in said


def test_what_it_is_called(model):
    from latentgp.surfaces.report.terms import terms

    assert list(model.encoder.varying) == ["dose:gp(east, north)"]
    said = str(terms(model).blocks)
    assert "coefficient that varies" in said
    assert "dose:gp(east, north)" in said
    effects = model.effects(TABLE.iloc[:30])
    assert "dose" in str(effects.columns)


def test_a_product_is_all_of_its_terms():
    read = parse("y ~ dose * gp(east, north)")
    assert [[factor.text for factor in term.times] for term in read.smooth] == [[], ["dose"]]
    assert [factor.text for term in read.fixed for factor in term] == ["dose"]
    several = parse("y ~ log(dose):age:gp(east, kernel=matern32, by=clinic)").smooth[0]
    assert [factor.text for factor in several.times] == ["log(dose)", "age"]
    assert several.by == ("clinic",)
    assert several.name == "log(dose):age:gp(east, kernel=matern32, by=clinic)"


@pytest.mark.parametrize(
    "term", ["gp(east):gp(north)", "gp(east):(1 | clinic)", "C(clinic):gp(east)", "clinic:gp(east)"]
)
def test_what_cannot_be_multiplied(term):
    with pytest.raises(InputError, match=r"multiplied by numbers alone|numbers are needed|text"):
        TableModel.fit(TABLE, formula=f"y ~ {term}")


def test_numbers_far_from_zero_are_said():
    far = TABLE.assign(year=2000 + DOSE)
    settings = {"max_evaluations": 2, "random_state": 0}
    with pytest.warns(UserWarning, match="max_evaluations"):
        model = TableModel.fit(far, formula="y ~ year:gp(east, north)", **settings)
    assert any("year:gp(east, north) is zero at year = 0, far" in note for note in model.notes)


def test_a_term_that_is_not_there(model):
    with pytest.raises(InputError, match="name one of 'dose:gp\\(east, north\\)'"):
        model.varying_coefficient("age", TABLE)


@pytest.mark.filterwarnings("ignore:.*max_evaluations")
def test_on_the_globe_of_polars_and_of_counts():
    polars = pytest.importorskip("polars")
    table = polars.from_pandas(
        TABLE.rename(columns={"east": "lon", "north": "lat"}).assign(n=np.arange(ROWS) % 4)
    )
    settings = {"max_evaluations": 2, "random_state": 0}
    model = TableModel.fit(table, formula="n ~ dose:gp(lon, lat)", method="laplace", **settings)
    assert "OnSphere" in repr(model.estimator.model_.kernel)
    assert model.places.on_globe
    assert np.isfinite(model.varying_coefficient("dose", table)).all(axis=None)
    points = TableModel.fit(
        table, formula="n ~ dose:gp(lon, lat)", representation=lgp.Inducing(20), **settings
    )
    assert np.isfinite(points.varying_coefficient("dose", table)).all(axis=None)


def test_a_coefficient_that_varies_with_what_it_multiplies_is_refused():
    settings = {"random_state": 0, "max_evaluations": 2}
    with pytest.warns(UserWarning, match="max_evaluations"):
        model = TableModel.fit(TABLE, formula="y ~ dose + east:gp(east)", **settings)
    with pytest.raises(InputError, match="varies with what it multiplies"):
        model.varying_coefficient("east", TABLE)
    with pytest.warns(UserWarning, match="max_evaluations"):
        model = TableModel.fit(TABLE, formula="y ~ dose + east:gp(I(1 * east))", **settings)
    found = model.varying_coefficient("east", TABLE)
    assert found["estimate"].nunique() > 100
