"""Formulas: what is read, what is refused, and what a table becomes by one."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.estimators.initial_model import starting_model
from latentgp.surfaces.report.terms import terms
from latentgp.surfaces.tables.formula.arithmetic import FUNCTIONS, columns_in, steps_of, value_of
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder, rows_without_gaps
from latentgp.surfaces.tables.formula.parser import parse
from latentgp.surfaces.tables.formula.terms import GroupTerm, SmoothTerm, TermFactor
from latentgp.surfaces.tables.start import takes_exposure
from slow import slow_parameters

FORMULA = "y ~ `my dose` * sex + log(age) + gp(east, kernel=matern52) + (1 + `my dose` | clinic)"
GENERATOR = np.random.default_rng(0)
ROWS = 90
CLINIC = GENERATOR.integers(0, 6, ROWS)
DOSE = GENERATOR.normal(size=ROWS)
MALE = GENERATOR.integers(0, 2, ROWS)
AGE = GENERATOR.uniform(20, 80, ROWS)
EAST = GENERATOR.uniform(0, 3, ROWS)
EFFECT = np.array([-1.0, -0.6, -0.2, 0.3, 0.6, 0.9])
TABLE = pd.DataFrame(
    {
        "y": 20
        + 0.8 * DOSE
        + 0.5 * MALE
        + np.log(AGE)
        + 0.3 * np.sin(2 * EAST)
        + EFFECT[CLINIC]
        + 0.1 * GENERATOR.normal(size=ROWS),
        "my dose": DOSE,
        "sex": np.where(MALE, "m", "f"),
        "age": AGE,
        "east": EAST,
        "clinic": [f"clinic {number}" for number in CLINIC],
    }
)


def column(name):
    return TermFactor(name, (name,))


def texts(formula):
    return [tuple(factor.text for factor in term) for term in parse(formula).fixed]


def test_every_kind_of_term_is_read():
    formula = "y ~ a * b + I(a**2) + C(d) - 1 + gp(`x 1`, log(x2), by=g) + (1 | g) + (0 + a || h)"
    read = parse(formula)
    assert read.target == "y"
    assert texts(formula) == [("a",), ("b",), ("I(a ** 2)",), ("C(d)",), ("a", "b")]
    assert [factor.kind for factor in read.factors] == ["column"] * 2 + ["arithmetic", "levels"]
    inputs = column("x 1"), TermFactor("log(x2)", ("x2",), "arithmetic")
    assert read.smooth == (SmoothTerm(inputs, by=("g",), text="gp(`x 1`, log(x2), by=g)"),)
    assert read.groups == (
        GroupTerm(("g",), (), intercept=True, correlated=True),
        GroupTerm(("h",), (column("a"),), intercept=False, correlated=False),
    )
    assert parse("y ~ gp(t, kernel='periodic', period=365)").smooth[0].period == 365
    assert parse("y ~ (x | g)").groups[0] == GroupTerm(("g",), (column("x"),), True, True)
    assert [term.columns for term in parse("y ~ (1 | a/b) + (1 | c:`d e`)").groups] == [
        *(("a",), ("a", "b")),
        ("c", "d e"),
    ]
    slope = parse("y ~ (1 + I(year - 2000) | g)").groups[0].slopes[0]
    assert slope == TermFactor("I(year - 2000)", ("year",), "arithmetic")


def test_quoted_columns_may_have_any_name():
    assert texts("y ~ I(`body weight`**2) + `1` + log(`log(x)`):`gp(b c` + g0_ + (1 | `(`)") == [
        (),
        ("I(`body weight` ** 2)",),
        ("1",),
        ("g0_",),
        ("log(`log(x)`)", "gp(b c"),
    ]
    assert parse("y ~ 0 + `1`").factors == (column("1"),)


def test_words_that_python_has_no_names_for():
    assert texts("y ~ body.weight + log(größe) + class + ﬁt") == [
        (),
        ("body.weight",),
        ("log(`größe`)",),
        ("class",),
        ("ﬁt",),
    ]
    read = parse("y ~ gp(class, log(body.weight), by=in_town) + (1 | body.weight)")
    assert read.columns == ("class", "body.weight", "in_town")


def test_columns_taken_as_numbers_and_as_categories():
    table = TABLE.assign(grade=[f"{10 * (n % 3) + 1}" for n in range(ROWS)])
    encoder = FormulaEncoder.fit(table, "y ~ C(grade) + grade + I(grade**2) + `my dose`:sex - 1")
    assert encoder.feature_names == [
        *("C(grade)[1]", "C(grade)[11]", "C(grade)[21]", "grade", "I(grade ** 2)"),
        *("my dose:sex[f]", "my dose:sex[m]"),
    ]
    grade = 10.0 * (np.arange(ROWS) % 3) + 1
    design = [*(grade == np.array([[1], [11], [21]])), grade, grade**2]
    design += [DOSE * (MALE == 0), DOSE * MALE]
    np.testing.assert_allclose(encoder.encode(table), np.stack(design, axis=1))
    doubts = encoder.doubts(encoder.encode(table))
    assert len(doubts) == 1
    assert doubts[0].startswith("'grade', 'I(grade ** 2)' of the formula follow(s) from")


def test_levels_are_in_the_order_of_the_column():
    size = pd.Categorical(
        np.where(MALE, "small", "large"), categories=["small", "middle", "large"], ordered=True
    )
    encoder = FormulaEncoder.fit(TABLE.assign(size=size), "y ~ size")
    assert encoder.levels[0].levels == ("small", "large")
    assert encoder.feature_names == ["Intercept", "size[T.large]"]
    np.testing.assert_allclose(encoder.encode(TABLE.assign(size=size))[:, 1], 1 - MALE)


def test_arithmetic_in_smooth_terms_and_slopes_and_nested_groups():
    formula = "y ~ gp(log(age)) + (1 + I(age - 50) | clinic/sex)"
    encoder = FormulaEncoder.fit(TABLE, formula)
    names = ["Intercept", "log(age)", "I(age - 50)", "clinic [number]", "clinic:sex [number]"]
    assert encoder.feature_names == names
    encoded = encoder.encode(TABLE)
    np.testing.assert_allclose(encoded[:, 1:3], np.stack([np.log(AGE), AGE - 50], axis=1))
    pairs = [f"clinic {c}:{'m' if male else 'f'}" for c, male in zip(CLINIC, MALE, strict=True)]
    assert [encoder.groups[1].labels[int(place)] for place in encoded[:, 4]] == pairs
    (smooth,), of_groups = encoder.terms().smooth, encoder.terms().groups
    assert smooth.columns == (1,)
    assert [(term.column, term.slopes) for term in of_groups] == [(3, (2,)), (4, (2,))]
    days = TABLE.assign(day=pd.date_range("2024-01-01", periods=ROWS), n="a:b", m="c")
    encoder = FormulaEncoder.fit(days, "y ~ day + (1 | day) + (1 | n:m)")
    assert encoder.feature_names[1] == "day [days]"
    of_text = encoder.encode(days.assign(day=days["day"].dt.date.astype(str)))
    np.testing.assert_array_equal(of_text, encoder.encode(days))
    other = days.assign(n="a", m="b:c")
    with pytest.warns(UserWarning, match="groups that training never saw"):
        assert not np.any(encoder.encode(other)[:, -1] == encoder.encode(days)[:, -1])
    years = TABLE.assign(year=2000 + DOSE)
    far = FormulaEncoder.fit(years, "y ~ (1 + year | clinic)")
    assert far.doubts(far.encode(years))[0].startswith("intercepts of groups are at year = 0, far")
    assert far.doubts(far.encode(years))[0].endswith("write I(year - 2000) for its slopes")
    near = FormulaEncoder.fit(years, "y ~ (1 + I(year - 2000) | clinic)")
    assert near.doubts(near.encode(years)) == []


def test_groups_whose_variance_the_rows_do_not_tell_are_named():
    x = np.arange(6.0)
    table = pd.DataFrame({"y": x, "x": x, "g": ["a"] * 6, "row": list("abcdef")})
    for formula, words in {
        "y ~ (1 | g)": ["g has one group"],
        "y ~ (1 | row)": ["row has a group for each row: Gaussian noise is not told"],
        "y ~ (0 + x | row)": [],
    }.items():
        encoder = FormulaEncoder.fit(table, formula)
        found = [said for said in encoder.doubts(encoder.encode(table)) if "group" in said]
        assert len(found) == len(words)
        assert all(said.startswith(start) for said, start in zip(found, words, strict=True))


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("y ~ x + (1 | g) * z", "groups are added, and gp"),
        ("y ~ gp(x):gp(z)", "multiplied by numbers alone"),
        ("y ~ x | g", "groups stand in brackets"),
        ("y ~ x - (1 | g)", "groups can be added alone"),
        ("y ~ (1 | g + h)", "the group must be a column, or some as a:b"),
        ("y ~ (0 | g)", "nothing stands before"),
        ("y ~ (a:x | g)", "before | stand columns and 1"),
        ("y ~ gp(C(x))", "stands where numbers are needed"),
        ("y ~ (1 + x | g) + (1 | g)", "g has an intercept twice"),
        ("y ~ (x | g) + (0 + x | g)", "g has a slope of x twice"),
        ("log(y) ~ x", "in place of log(y) make it a column, or take likelihood='log-normal'"),
        ("", "the left side must be one column"),
        ("y ~ .", "name the columns"),
        ("y ~ gp(x, kernel=unknown)", "kernel must be one of rbf"),
        ("y ~ gp(x, period=0)", "a period must be a positive number"),
        ("y ~ gp(x, x)", "names a column twice"),
        ("y ~ gp(x, kernel=globe)", "takes longitude and latitude"),
        ("y ~ gp()", "names no column"),
        ("y ~ gp(x, by=2)", "must be the name of a column"),
        ("y ~ gp(x, by=g, by=h)", "each once"),
        ("y ~ gp(x, period=7)", "kernel=rbf has no period"),
        ("y ~ gp(x, kernel=periodic, period=1e400)", "a period must be a positive number"),
        ("y ~ gp(x, size=3)", "the settings kernel, period and by, each once"),
        ("y ~ open(x)", "offset(column), gp, s, te and ti of columns, (1 | group)"),
        ("y ~ poly(x, 2)", "I(x**2) or s(x) in place of poly"),
        ("y ~ I(x > 0)", "more than arithmetic"),
        ("y ~ 0", "it has no term"),
        ("y ~ x + log(y)", "the target 'y' is on the right side too"),
        ("y ~ (1 | a:b) + (1 | b:a)", "has an intercept twice"),
        ("y ~ I(2)", "has no column in it"),
        ("y ~ __import__('os').system('true')", "cannot be read"),
        ("y ~ [x for x in y]", "cannot be read"),
        ("y ~ I(" + "-" * 1500 + "x)", "cannot be read"),
        ("y ~ I(x * 1" + "0" * 400 + ")", "too large a number"),
        ("y ~ x +" + " x +" * 999, "characters"),
        ("y ~ (a + b + c + d + e + f + g + h + i + j)**10", "more than 2000 terms"),
        ("y ~ (a + b)**9999999999", "a power above 10"),
        ("y ~ " + " * ".join("abcdefghijklmnop"), "more than 2000 terms"),
    ],
)
def test_what_is_no_formula_is_refused_in_a_sentence(formula, sentence):
    with pytest.raises(lgp.InputError, match=re.escape(sentence)) as refused:
        parse(formula)
    assert "\n" not in str(refused.value)


def test_arbitrary_text_is_read_or_refused():
    pieces = ["y", "x", "~", "+", "-", "*", ":", "(", ")", "|", "`", "gp(", "C(", "1", "**", "^"]
    pieces += [" ", "%in%", "/", ",", "=", "'", "{", "}", "[", "]", ".", "lambda", "\n", "é", "\\"]
    generator = np.random.default_rng(1)
    refused = []
    for _ in range(400):
        text = "y ~ " + "".join(generator.choice(pieces, generator.integers(1, 12)))
        try:
            parse(text)
        except lgp.InputError as error:
            refused.append(str(error))
    assert 100 < len(refused) < 400
    assert not [sentence for sentence in refused if "\n" in sentence]


def test_expressions_are_arithmetic_of_columns():
    columns = {"a": np.array([1.0, 4.0]), "b c": np.array([2.0, 2.0])}
    assert columns_in("log(a) ** 2 / `b c` - a") == ("a", "b c")
    found = value_of(steps_of("-sqrt(a) + 3 * `b c` ** 2"), columns.__getitem__)
    np.testing.assert_allclose(found, [11.0, 10.0])
    for name, function in FUNCTIONS.items():
        np.testing.assert_allclose(
            value_of(steps_of(f"{name}(a)"), columns.__getitem__), function(columns["a"])
        )


def test_a_table_becomes_the_columns_of_the_terms():
    encoder = FormulaEncoder.fit(TABLE, FORMULA)
    names = encoder.feature_names
    assert names == [
        *("Intercept", "my dose", "sex[T.m]", "log(age)", "my dose:sex[T.m]"),
        *("east", "my dose", "clinic [number]"),
    ]
    design = [np.ones(ROWS), DOSE, MALE, np.log(AGE), DOSE * MALE, EAST, DOSE, CLINIC]
    np.testing.assert_allclose(encoder.encode(TABLE), np.stack(design, axis=1))
    few = TABLE.iloc[:2].assign(sex=["x", "m"], clinic=["elsewhere", "clinic 0"])
    with pytest.warns(UserWarning, match="training never saw"):
        encoded = encoder.encode(few)
    assert encoded[:, 2].tolist() == [0.0, 1.0]  # what is not known is as the first level
    assert encoded[:, -1].tolist() == [6.0, 0.0]
    with pytest.raises(lgp.InputError, match="not finite in 90 rows"):
        encoder.encode(TABLE.assign(age=-1.0))
    with pytest.raises(lgp.InputError, match="the table lacks 1 column"):
        encoder.encode(TABLE.drop(columns="age"))
    with pytest.raises(lgp.InputError, match="holds text, but its place in the formula"):
        FormulaEncoder.fit(TABLE, "y ~ gp(sex)")
    with pytest.raises(lgp.InputError, match="there is no column 'agee': did you mean 'age'"):
        FormulaEncoder.fit(TABLE, "y ~ agee")
    gaps = TABLE.astype({"age": object})
    gaps.loc[3, "age"] = "NA"
    kept, notes = rows_without_gaps(gaps, FORMULA)
    assert len(kept) == ROWS - 1
    assert notes == ["left out 1 of 90 row(s), with gaps in 'age'"]


def test_slopes_of_categories_are_of_levels():
    """All of them without an intercept, of a second category all but the first."""
    table = TABLE.assign(grade=[f"{n % 3}" for n in range(ROWS)])
    formula = "y ~ (0 + sex + C(grade) + age | clinic) + (sex || clinic:grade)"
    encoder = FormulaEncoder.fit(table, formula)
    levels = ["sex[f]", "sex[m]", *(f"C(grade)[{n}]" for n in range(3))]
    groups = ["clinic [number]", "clinic:grade [number]"]
    assert encoder.feature_names == ["Intercept", *levels, "age", *groups]
    encoded, grade = encoder.encode(table), np.arange(ROWS) % 3
    expected = [1 - MALE, MALE, *(grade == np.arange(3)[:, None]), AGE]
    np.testing.assert_array_equal(encoded[:, 1:7], np.stack(expected, axis=1))
    one, two = encoder.terms().groups
    assert (one.slopes, one.intercept, one.correlated) == ((1, 2, 4, 5, 6), False, True)
    assert (two.slopes, two.intercept, two.correlated) == ((2,), True, False)
    few = table.iloc[:2].assign(sex=["x", None])
    with pytest.warns(UserWarning, match="column 'sex'") as told:
        np.testing.assert_array_equal(encoder.encode(few)[:, 1:3], [[1, 0], [1, 0]])
    said = [str(each.message) for each in told]
    assert "'sex' holds categories that training never saw: 'x'; they are taken as 'f'" in said[1]
    assert "'sex' is missing in 1 row and never was in training: taken as 'f'" in said[0]
    with pytest.raises(lgp.InputError, match="holds text, but its place in the formula"):
        FormulaEncoder.fit(table, "y ~ gp(sex) + (sex | clinic)")


def test_missing_groups_and_numbers_stored_as_text_are_said():
    table = TABLE.assign(grade=[f"{n % 3}" for n in range(ROWS)])
    encoder = FormulaEncoder.fit(table, "y ~ grade + log(age) + (1 | clinic)")
    with pytest.warns(UserWarning, match=r"'clinic' is missing in 2 rows") as told:
        assert encoder.encode(table.iloc[:2].assign(clinic=None))[:, -1].tolist() == [6.0, 6.0]
    assert len(told) == 1
    assert "taken as one number: write C(grade) for categories" in " ".join(encoder.describe())
    assert "C(age)" not in " ".join(encoder.describe())


def test_numbers_as_categories():
    encoder = FormulaEncoder.fit(TABLE.assign(grade=CLINIC % 3), "y ~ C(grade) - 1")
    assert encoder.feature_names == ["C(grade)[0]", "C(grade)[1]", "C(grade)[2]"]


def test_many_columns_of_fixed_effects_are_refused():
    many = pd.DataFrame({name: np.arange(60) % 12 for name in "abcdefgh"}).assign(y=0.0)
    with pytest.raises(lgp.InputError, match="up to 429981697 columns"):
        FormulaEncoder.fit(many, "y ~ " + ":".join(f"C({name})" for name in "abcdefgh"))


LOGARITHMS = {
    "poisson": lambda mean: GENERATOR.poisson(mean),
    "gamma": lambda mean: GENERATOR.gamma(2.0, mean / 2),
    "log-noise": lambda mean: np.log(mean) + 0.1 * GENERATOR.normal(size=ROWS),
    "stochastic-volatility": lambda mean: mean * GENERATOR.normal(size=ROWS),
    "tweedie": lambda mean: GENERATOR.gamma(2.0, mean / 2),
}


@pytest.mark.parametrize("name", ["poisson", *slow_parameters(*list(LOGARITHMS)[1:])])
def test_a_vague_prior_of_logarithms_is_no_bad_start(name):
    target = LOGARITHMS[name](np.exp(1 + 0.5 * DOSE))
    table = pd.DataFrame({"dose": DOSE, "target": target})
    model = lgp.TableModel.fit(table, formula="target ~ dose", likelihood=name, random_state=0)
    found = model.coefficients()
    estimate = found.estimate.reshape(2, -1)[1, 0]
    assert abs(estimate - 0.5) < 4 * found.standard_error.reshape(2, -1)[1, 0]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formula")
    TABLE.to_csv(folder / "table.csv", index=False)
    asked = ["fit", f"{folder}/table.csv", "--formula", FORMULA, "--out", f"{folder}/model"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    return folder


def test_a_formula_on_the_command_line_gives_effects_with_errors(fitted):
    model = lgp.load(fitted / "model")
    found = model.coefficients()
    truth = {"my dose": 0.8, "sex[T.m]": 0.5, "log(age)": 1.0, "my dose:sex[T.m]": 0.0}
    for name, value in truth.items():
        place = found.names.index(name)
        assert abs(found.estimate[place] - value) < 4 * found.standard_error[place]
        assert found.standard_error[place] < 0.15
    effects = model.group_effects("clinic")
    assert list(effects) == ["intercept", "my dose"]
    estimate = effects["intercept"].estimate
    assert effects["intercept"].names[2] == "clinic 2"
    np.testing.assert_allclose(estimate - estimate.mean(), EFFECT - EFFECT.mean(), atol=0.15)
    said = CliRunner().invoke(app, ["coefficients", f"{fitted}/model"])
    assert "log(age)" in said.output
    asked = ["coefficients", f"{fitted}/model", "--groups", "clinic", "--out", f"{fitted}/c.csv"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert len(pd.read_csv(fitted / "c.csv")) == 12
    predicted = model.predict(TABLE)
    assert np.mean(np.abs(predicted["mean"] - TABLE["y"])) < 0.12


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"formula": "y ~ age", "target": "age"}, "predicts 'y', but the target is 'age'"),
        ({}, "name the column to predict, or give a formula"),
        ({"formula": "y ~ age", "time": "age"}, "leave time out"),
        ({"formula": "y ~ age", "mean": "linear"}, "leave mean out"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.TableModel.fit(TABLE, **settings)


def test_terms_of_several_classes_are_named_by_them():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30)})
    frame["y"] = np.array(["a", "b", "c"])[np.digitize(frame["x"], [-0.4, 0.4])]
    settings = {"method": "laplace", "learn_hyperparameters": False}
    model = lgp.TableModel.fit(frame, formula="y ~ x", random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # on precision that is lost
        _, table = terms(model).blocks
    assert [row[0] for row in table.rows][:3] == ["Intercept [a]", "x [a]", "Intercept [b]"]
    assert "differences between classes" in table.caption


def test_the_terms_are_in_the_report(fitted):
    section = terms(lgp.load(fitted / "model"))
    text, fixed, picture, intercepts, other, slopes = section.blocks
    assert "clinic 3" in picture.svg
    assert "intervals" in other.caption
    assert text.words == FORMULA
    assert [row[0] for row in fixed.rows][-1] == "my dose:sex[T.m]"
    assert len(intercepts.rows) == len(slopes.rows) == 6


def test_models_without_such_terms_say_so(fitted):
    model = lgp.load(fitted / "model")
    with pytest.raises(lgp.InputError, match="no column of groups 'sex': there are 'clinic'"):
        model.group_effects("sex")


def test_places_on_the_globe_start_in_kilometres():
    east, north = GENERATOR.uniform(5, 15, ROWS), GENERATOR.uniform(47, 55, ROWS)
    table = TABLE.assign(east=east, north=north)
    terms = FormulaEncoder.fit(table, "y ~ gp(east, north, kernel=globe)").terms()
    data = lgp.Data(np.column_stack([np.ones(ROWS), east, north]), TABLE["y"])
    model = starting_model(data, lgp.Gaussian(), lgp.ZeroMean(), terms)
    kernel = model.kernel.parts[1]
    assert isinstance(kernel.kernel, lgp.OnSphere)
    assert 100 < float(kernel.kernel.kernel.lengthscale) < 2_000


def test_an_intercept_is_at_zero():
    x = 2000 + 10 * GENERATOR.normal(size=60)
    y = 3.0 + 2.0 * x + 0.1 * GENERATOR.normal(size=60)
    table = pd.DataFrame({"x": x, "y": y})
    found = lgp.TableModel.fit(table, formula="y ~ x").coefficients()
    assert found.names == ("Intercept", "x")
    slope, level = np.polyfit(x, y, 1)
    np.testing.assert_allclose(found.estimate[1], slope, rtol=1e-4)
    np.testing.assert_allclose(found.estimate[0], level, atol=0.2 * found.standard_error[0])


class TestLevel:
    """The constant is one thing: an intercept, all levels of a category, or nothing."""

    GENERATOR = np.random.default_rng(1)
    TABLE = pd.DataFrame({"dose": GENERATOR.uniform(2, 9, 60), "clinic": ["a", "b", "c"] * 20})
    TABLE["y"] = 1.162 * TABLE["dose"] + 0.3 * GENERATOR.normal(size=60)
    TABLE["high"] = 1e4 + TABLE["y"] + 2 * (TABLE["clinic"] == "b")
    TABLE["count"] = GENERATOR.poisson(np.exp(0.3 * TABLE["dose"]))
    TABLE["ill"] = np.where(GENERATOR.uniform(size=60) < 0.7, "yes", "no")
    LEVELS = pd.get_dummies(TABLE["clinic"]).to_numpy(float)

    def fitted(self, formula, **more):
        settings = {"random_state": 0, "max_evaluations": 30, **more}
        return lgp.TableModel.fit(self.TABLE, formula=formula, **settings)

    @pytest.mark.parametrize("formula", ["y ~ dose - 1", "y ~ 0 + dose", "y ~ dose + 0"])
    def test_a_line_through_the_origin(self, formula):
        model = self.fitted(formula)
        right, *_ = np.linalg.lstsq(self.TABLE[["dose"]], self.TABLE["y"])
        np.testing.assert_allclose(model.coefficients().estimate, right, rtol=1e-4)
        assert model.predict(pd.DataFrame({"dose": [0.0]}))["mean"][0] == pytest.approx(0, abs=1e-9)
        assert isinstance(model.estimator.model_.mean, lgp.ZeroMean)

    @pytest.mark.parametrize(
        ("formula", "columns"),
        [
            ("high ~ clinic + dose", [np.ones((60, 1)), LEVELS[:, 1:], TABLE[["dose"]]]),
            ("high ~ 0 + clinic + dose", [LEVELS, TABLE[["dose"]]]),
        ],
    )
    def test_far_from_zero_levels_are_those_of_least_squares(self, formula, columns):
        found = self.fitted(formula).coefficients()
        right, *_ = np.linalg.lstsq(np.hstack(columns), self.TABLE["high"])
        np.testing.assert_allclose(found.estimate, right, atol=0.02)

    @pytest.mark.parametrize("formula", ["count ~ dose - 1", "count ~ dose", "ill ~ dose - 1"])
    def test_of_counts_and_classes(self, formula):
        model = self.fitted(formula, **({"task": "count"} if "count" in formula else {}))
        assert not any(path.startswith("mean") for path in model.estimator.priors_)
        if formula.endswith("1"):
            assert isinstance(model.estimator.model_.mean, lgp.ZeroMean)
        at_zero = model.estimator.posterior_.mean_f(
            model.encoder.encode(pd.DataFrame({"dose": [0.0]}))
        )
        if formula == "count ~ dose":
            estimate = model.coefficients().estimate
            np.testing.assert_allclose(at_zero.ravel(), estimate[:1])
            np.testing.assert_allclose(estimate, [0, 0.3], atol=0.3)
        else:
            np.testing.assert_allclose(at_zero, 0, atol=1e-9)

    def test_thresholds_of_ordered_classes_have_the_level(self):
        grade = np.digitize(self.TABLE["y"] + np.random.default_rng(2).normal(size=60), [5, 8])
        table = self.TABLE.assign(grade=grade)
        settings = {"task": "ordinal", "random_state": 0, "max_evaluations": 60}
        with_one, without = (
            lgp.TableModel.fit(table, formula=formula, **settings)
            for formula in ("grade ~ dose + clinic", "grade ~ clinic + dose + 1")
        )
        found = with_one.coefficients()
        assert found.names == ("dose", "clinic[T.b]", "clinic[T.c]")
        np.testing.assert_allclose(found.estimate[0], 1.162, atol=0.5)
        rows = table.iloc[[0, 30, 59]]
        pd.testing.assert_frame_equal(with_one.predict(rows), without.predict(rows), rtol=1e-3)
        assert "with thresholds in place of an intercept" in " ".join(with_one.notes)

    def test_a_second_latent_function(self):
        hurdle = lgp.Hurdle(lgp.Poisson(), 0.3, varying=True)
        model = self.fitted("count ~ dose", likelihood=hurdle, max_evaluations=3)
        assert not any(path.startswith("mean") for path in model.estimator.priors_)
        assert model.coefficients().estimate.shape == (2, 2)

    def test_which_columns_sum_to_one(self):
        table = self.TABLE.assign(ward=["p", "q"] * 30)
        for formula, number in {
            "y ~ dose": 1,
            "y ~ 0 + dose": 0,
            "y ~ 0 + dose + clinic": 3,
            "y ~ 0 + clinic:ward": 6,
            "y ~ 0 + clinic:dose": 0,
            "y ~ gp(dose) - 1": 0,
        }.items():
            encoder = FormulaEncoder.fit(table, formula)
            assert len(encoder.ones) == number, formula
            if number:
                columns = encoder.encode(table)[:, list(encoder.ones)]
                np.testing.assert_array_equal(columns.sum(axis=1), 1.0)


class TestOffset:
    GENERATOR = np.random.default_rng(0)
    TABLE = pd.DataFrame({"x": GENERATOR.normal(size=50), "e": GENERATOR.choice([1.0, 5.0], 50)})
    TABLE["y"] = GENERATOR.poisson(TABLE["e"] * np.exp(1 + TABLE["x"]))

    def test_the_logarithm_of_a_column_is_the_exposure(self):
        settings = {"random_state": 0, "max_evaluations": 5}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lgp.TableModel.fit(self.TABLE, formula="y ~ x + offset(log(e))", **settings)
            other = lgp.TableModel.fit(
                self.TABLE, formula="y ~ x", side_columns={"exposure": "e"}, **settings
            )
        assert model.task == "count"
        assert model.side_columns == {"exposure": "e"}
        np.testing.assert_allclose(model.coefficients().estimate, [1, 1], atol=0.2)
        pd.testing.assert_frame_equal(model.predict(self.TABLE), other.predict(self.TABLE))

    @pytest.mark.parametrize(("offset", "value"), [("3", 3.0), ("log(2) - 1", np.log(2) - 1)])
    def test_a_number_shifts_the_intercept(self, offset, value):
        settings = {"random_state": 0, "max_evaluations": 5, "likelihood": "gaussian"}
        formulas = f"y ~ x + offset({offset})", "y ~ x"
        models = [lgp.TableModel.fit(self.TABLE, formula=own, **settings) for own in formulas]
        one, other = (own.coefficients().estimate for own in models)
        np.testing.assert_allclose(one - other, [-value, 0], atol=1e-6)
        one, other = (own.predict(self.TABLE)["mean"] for own in models)
        np.testing.assert_allclose(one, other, atol=1e-6)

    @pytest.mark.parametrize("offset", ["offset('a')", "offset(log(-1))"])
    def test_an_offset_that_is_no_number_is_refused(self, offset):
        with pytest.raises(InputError, match=r"more than arithmetic|not finite in 50 rows"):
            lgp.TableModel.fit(self.TABLE, formula=f"y ~ x + {offset}", random_state=0)

    @pytest.mark.parametrize("offset", ["offset()", "offset(log(e), x)", "offset(x, scale=2)"])
    def test_what_is_no_offset_is_refused(self, offset):
        with pytest.raises(InputError, match="an offset is of one column, or arithmetic"):
            parse(f"y ~ x + {offset}")

    @pytest.mark.parametrize(
        "case",
        [
            ("gaussian", lambda f: f + 0.1 * GENERATOR.normal(size=50)),
            *slow_parameters(
                ("student-t", lambda f: f + 0.1 * GENERATOR.standard_t(4, 50)),
                ("poisson", lambda f: GENERATOR.poisson(np.exp(f / 4))),
                ("logit", lambda f: GENERATOR.uniform(size=50) < 1 / (1 + np.exp(-f))),
                ("gamma", lambda f: GENERATOR.gamma(5.0, np.exp(f / 4) / 5)),
                ("heteroscedastic", lambda f: f + 0.1 * GENERATOR.normal(size=50)),
            ),
        ],
    )
    def test_an_offset_is_a_term_whose_coefficient_is_one(self, case):
        likelihood, target = case
        table = self.TABLE.assign(z=GENERATOR.normal(size=50), w=1000 + GENERATOR.normal(size=50))
        table["y"] = target(2 + table["x"] + table["z"] + 3 * (table["w"] - 1000))
        formula = "y ~ x + offset(z) + offset(I(3 * (w - 1000)))"
        settings = {"random_state": 0, "max_evaluations": 5, "likelihood": likelihood}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lgp.TableModel.fit(table, formula=formula, **settings)
        X = model.encoder.encode(table)
        assert model.encoder.feature_names == ["Intercept", "x", "z", "I(3 * (w - 1000))"]
        posterior = model.estimator.posterior_
        shift = np.array([0.0, 0.0, 0.5, -2.0])
        before, after = posterior.predict_f(X), posterior.predict_f(X + shift)
        first = (after[0] - before[0]).reshape(50, -1)
        np.testing.assert_allclose(first[:, 0], -1.5, rtol=1e-9)
        np.testing.assert_allclose(first[:, 1:], 0.0, atol=1e-9)
        np.testing.assert_allclose(after[1], before[1], rtol=1e-9)
        with pytest.raises(InputError, match=r"the table lacks 1 column.*'z'"):
            model.predict(table.drop(columns="z"))

    def test_an_offset_is_taken_off_targets_with_noise(self):
        """A Gaussian model of y with an offset is one of y less the offset."""
        table = self.TABLE.assign(z=100 * GENERATOR.normal(size=50))
        table["rest"] = 2 + np.sin(table["x"]) + 0.1 * GENERATOR.normal(size=50)
        table["y"] = table["rest"] + table["z"]
        one = lgp.TableModel.fit(table, formula="y ~ gp(x) + offset(z)", random_state=0)
        other = lgp.TableModel.fit(table, formula="rest ~ gp(x)", random_state=0)
        ours, theirs = one.predict(table), other.predict(table)
        np.testing.assert_allclose(ours["mean"] - table["z"], theirs["mean"], atol=1e-3)
        np.testing.assert_allclose(ours["std"], theirs["std"], rtol=1e-3)
        np.testing.assert_allclose(
            one.coefficients().estimate, other.coefficients().estimate, atol=1e-3
        )

    def test_offsets_beside_an_exposure(self):
        table = self.TABLE.assign(z=0.0)
        settings = {"random_state": 0, "max_evaluations": 3}
        formula = "y ~ x + offset(log(e)) + offset(log(e)) + offset(z)"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = lgp.TableModel.fit(table, formula=formula, **settings)
            real = lgp.TableModel.fit(table.assign(y=table["y"] + 0.5), formula=formula, **settings)
        assert model.side_columns == {"exposure": "e"}
        assert model.encoder.feature_names == ["Intercept", "x", "z"]
        assert real.side_columns == {}
        assert real.encoder.feature_names == ["Intercept", "x", "log(e)", "z"]

    @pytest.mark.parametrize(
        "case",
        [
            ([0, 1, 2, 0, 5], {}, True),
            ([3, 1, 2, 4, 5], {}, True),
            ([0, 1, 1, 0, 1], {"task": "count"}, True),
            ([0, 1, 1, 0, 1], {"likelihood": "poisson"}, True),
            ([0, 1, 1, 0, 1], {}, False),
            ([True, False, True, True, False], {}, False),
            (pd.Categorical([0, 1, 2, 0, 5]), {}, False),
            (list("abcab"), {}, False),
            ([0, 1, 2, 0, 5], {"task": "regression"}, False),
            ([0, 1, 2, 0, 2], {"order": ["0", "1", "2"]}, False),
            ([0, 1, 2, 0, 5], {"side_columns": {"trials": "n"}}, False),
        ],
    )
    def test_only_counts_have_an_exposure(self, case):
        target, given, expected = case
        usual = {"task": "auto", "likelihood": "auto", "order": None, "side_columns": {}}
        assert takes_exposure(pd.DataFrame({"y": target}), "y", **usual | given) is expected

    def test_of_two_classes_an_offset_is_added_to_the_latent_function(self):
        table = self.TABLE.assign(y=(self.TABLE["y"] > 5).astype(int))
        settings = {"random_state": 0, "max_evaluations": 3}
        model = lgp.TableModel.fit(table, formula="y ~ x + offset(log(e))", **settings)
        assert model.task == "classification"
        assert model.side_columns == {}
        assert model.encoder.feature_names == ["Intercept", "x", "log(e)"]

    def test_thresholds_do_not_depend_on_the_level_of_an_offset(self):
        table = self.TABLE.assign(z=GENERATOR.normal(size=50))
        table["y"] = np.digitize(table["x"] + table["z"] + GENERATOR.logistic(size=50), [-1, 1])
        settings = {"task": "ordinal", "random_state": 0, "max_evaluations": 5}
        one, other = (
            lgp.TableModel.fit(table, formula=f"y ~ x + offset(I(z + {level}))", **settings)
            for level in (0, 100)
        )
        pd.testing.assert_frame_equal(one.predict(table), other.predict(table), rtol=1e-6)
        np.testing.assert_allclose(
            one.coefficients().estimate, other.coefficients().estimate, rtol=1e-6
        )

    def test_an_offset_has_no_place_among_classes(self):
        table = self.TABLE.assign(y=np.tile(list("abcde"), 10))
        with pytest.raises(InputError, match="has one a class: leave it out"):
            lgp.TableModel.fit(table, formula="y ~ x + offset(e)", random_state=0)

    def test_two_exposures_are_refused(self):
        with pytest.raises(InputError, match="the exposure is 'x': leave one of them out"):
            lgp.TableModel.fit(
                self.TABLE, formula="y ~ offset(log(e))", side_columns={"exposure": "x"}
            )


def test_pairs_of_columns_and_members_of_them_are_different_groups():
    read = parse("y ~ x + (1 | a:b) + (1 | mm(a, b))")
    assert [term.name for term in read.groups] == ["a:b", "mm(a, b)"]


def test_functions_of_numbers_in_place_of_groups_are_doubted():
    table = pd.DataFrame({"x": np.arange(9.0), "z": np.arange(9.0) ** 2, "g": list("aab") * 3})
    table["y"] = table["x"]
    doubted = FormulaEncoder.fit(table, "y ~ x + s(x, by=z)")
    (said,) = doubted.doubts(doubted.encode(table))
    assert said.startswith("s(x, by=z) has a function for each value of z, and few rows")
    assert said.endswith("write z:s(...) to multiply by its numbers")
    groups = FormulaEncoder.fit(table, "y ~ x + s(x, by=g)")
    assert groups.doubts(groups.encode(table)) == []
