"""Numbers and dates in other dress, codes and identifiers: recognised, and spoken of."""

import numpy as np
import pandas as pd
import pytest

from latentgp.errors import InputError
from latentgp.persistence import load, save
from latentgp.surfaces.tables import TableEncoder, guess_task, read_table, split_target
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.prediction import predict_files
from latentgp.surfaces.tables.rows import Frames

ROWS = 40
_generator = np.random.default_rng(0)


def encoder_of(values, name="v", **more):
    return TableEncoder.fit(pd.DataFrame({name: values, **more}))


@pytest.mark.parametrize(
    ("values", "expected", "says"),
    [
        (["9.876,54", "12,34"], [9876.54, 12.34], "number, written with a decimal comma"),
        (["1,200.00", "3.5"], [1200, 3.5], "number, written with a decimal point"),
        (["-1.234.567", "12,5"], [-1234567, 12.5], "decimal comma"),
        (["1 200,5", "1\u202f300,25", "7"], [1200.5, 1300.25, 7], "decimal comma"),
        (["1'200.50", "3"], [1200.5, 3], "decimal point"),
        (["$1,200", "-$3.50", "$ 7"], [1200, -3.5, 7], "number in $, written with a decimal point"),
        (["€ 9,50", "€1.000,00"], [9.5, 1000], "number in €, written with a decimal comma"),
        (["CHF 12", "CHF 12.50"], [12, 12.5], "number in CHF, written with a decimal point"),
        (["12 €", "9,50 €"], [12, 9.5], "number in €, written with a decimal comma"),
        (["12.5%", "3 %"], [12.5, 3], "number in percent (50 % is 50)"),
        (["1,5e3", "2"], [1500, 2], "decimal comma"),
        (["1.200", "1.200.000"], [1200, 1200000], "decimal comma"),
        (["1,200", "950"], [1200, 950], "'1,200' is taken as 1200, though it could be 1.2"),
        (["0,200", "1,950"], [0.2, 1.95], "decimal comma"),
        (["12,345 %", "1 %"], [12.345, 1], "'12,345 %' is taken as 12.345, though it could be 12"),
        (["1,200.5", None, "?", "2"], None, "decimal point, missing values become the median"),
        (["31.12.2024", "4.1.2025"], [0, 4], "days since 2024-12-31T00:00:00, written as day, mon"),
        (["12/31/2024", "1/4/2025"], [0, 4], "written as month, day, year"),
        (["31/12/2024", "04/01/2025"], [0, 4], "written as day, month, year"),
        (["31-12-2024 18:00", "01-01-2025 6:00"], [0, 43200], "seconds since 2024-12-31T18:00:00"),
        (["12/31/2024 11:30 PM", "12/31/2024 12:00 AM"], [84600, 0], "written as month, day, year"),
        (["2024/12/31", "2025/1/4"], [0, 4], "written as year, month, day"),
        (["01/02/2024", "02/03/2024"], [0, 30], "'01/02/2024' is taken with the day first"),
        (["01.02.2024", "02.03.2024"], [0, 30], "written as day, month, year"),
        (["31/12/24", "4/1/25"], [0, 4], "year of two digits; '31/12/24' is taken as 2024-12-31"),
        (
            ["12/31/24", "1/4/25"],
            [0, 4],
            "year of two digits; '1/4/25' is taken as 2025-01-04",
        ),
        (["31.12.99", "04.01.00"], [0, 4], "'04.01.00' is taken as 2000-01-04"),
        (["1/2/24", "2/3/24"], [0, 30], "'1/2/24' is taken with the day first"),
        (["12.5 kg", "3 kg"], [12.5, 3], "number in kg, written with a decimal point"),
        (["12,5°C", "−3°C"], [12.5, -3], "number in °C, written with a decimal comma"),
        (["7 m²", *(f"{n}.5 m²" for n in range(3))], [7, 0.5, 1.5, 2.5], "number in m²"),
        ([f"{n} km" for n in range(17)], range(17), "number in km, written with a decimal point"),
    ],
)
def test_numbers_and_dates_in_other_dress(tmp_path, values, expected, says):
    frame = pd.DataFrame({"v": values})
    encoder = load(save(TableEncoder.fit(frame), tmp_path / "encoder"))
    (line,) = encoder.describe()
    assert says in line
    assert ("taken" in line) == ("taken" in says)
    encoded = encoder.encode(frame)
    expected = [[1200.5, 0], [601.25, 1], [601.25, 1], [2, 0]] if expected is None else expected
    expected = np.array(expected, dtype=float).reshape(len(values), -1)
    np.testing.assert_allclose(encoded, expected)
    for row in range(len(values)):  # one row is written as all are
        np.testing.assert_array_equal(encoder.encode(frame.iloc[[row]]), encoded[[row]])
    shuffled = frame.iloc[::-1]
    assert TableEncoder.fit(shuffled) == TableEncoder.fit(frame)


@pytest.mark.parametrize("gap", ["-", "--", ".", "*", "—", "missing", "#DIV/0!"])
@pytest.mark.parametrize(("one", "other"), [("1.5", "2.5"), ("1,5", "2,5"), ("1.5 kg", "2.5 kg")])
def test_dashes_among_numbers_are_missing(gap, one, other):
    encoder = encoder_of([one, gap, other])
    (line,) = encoder.describe()
    assert "missing values become the median 2" in line
    frame = pd.DataFrame({"v": [gap, one]})
    np.testing.assert_array_equal(encoder.encode(frame), [[2, 1], [1.5, 0]])
    alone = encoder_of([one, other])
    for rows in (frame, frame[:1]):
        with pytest.warns(UserWarning, match="'v' is missing in 1 row"):
            np.testing.assert_array_equal(alone.encode(rows), [[2], [1.5]][: len(rows)])
    split = split_target(pd.DataFrame({"x": range(3), "y": [one, gap, other]}), "y")
    assert (split.rows_dropped, guess_task(split.target).task) == (1, "regression")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([4, -999, 8, 5], "-999 may stand for missing in 1 row (index 1)"),
        ([0.5, 1.5, 9999, 2.5, 9999], "9999 may stand for missing in 2 rows"),
        ([-5, -99, 3, 2], ""),
        ([250, 999, 400, 600], ""),
    ],
)
def test_codes_of_missing_values_are_said(values, told):
    (line,) = encoder_of(values).describe()
    assert told in line if told else "missing" not in line


def test_signs_are_categories():
    assert encoder_of(["+", "-", "+", "-"]).describe() == [
        "v: 2 categories ('+', '-') as 0/1 columns"
    ]
    assert "3 categories" in encoder_of(["-", "1+", "2+", "-"]).describe()[0]


def test_numbers_and_dates_as_such_at_prediction():
    encoder = encoder_of(["1.200,5", "2"], d=["31.12.2024", "4.1.2025"])
    other = pd.DataFrame({"v": [1.2, 1200.0], "d": pd.to_datetime(["2025-01-02", "2024-12-31"])})
    np.testing.assert_array_equal(encoder.encode(other), [[1.2, 2], [1200, 0]])
    np.testing.assert_array_equal(
        encoder.encode(other.assign(d=["2025-01-02", "31.12.2024"])), [[1.2, 2], [1200, 0]]
    )


@pytest.mark.parametrize(
    ("values", "wrong", "says"),
    [
        (["$5", "$7.50"], "€5", "'v' was numeric in training and holds '€5' in 1 row"),
        (["1,5", "2"], "2.5.5", "holds '2.5.5'"),
        (["31.12.2024", "1.1.2025"], "12/31/2024", "was a date in training and holds '12/31/2024'"),
    ],
)
def test_another_dress_at_prediction_is_refused(values, wrong, says):
    with pytest.raises(InputError, match=says):
        encoder_of(values).encode(pd.DataFrame({"v": [wrong]}))


@pytest.mark.parametrize(
    "values",
    [
        ["$5", "€5", "$6", "€5"],  # two currencies
        ["5%", "0.5", "6%", "5%"],
        ["1.200,5", "1,200.5", "7", "7"],
        ["31/12/2024", "12/31/2024", "1/1/2024", "1/1/2024"],
        ["1,20,000", "1", "1", "2"],
    ],
)
def test_mixed_dress_stays_categories(values):
    assert "3 categories" in encoder_of(values).describe()[0]


def test_what_looks_like_numbers_or_dates_is_said():
    km = [f"<{n % 17} km" for n in range(ROWS)]
    dirty = [str(n % 19) for n in range(ROWS - 1)] + ["none"]
    days = [f"{n % 28 + 1}-12-24" for n in range(ROWS)]
    differ = [f"<{n} km" for n in range(ROWS)]
    grade = [f"{n % 3}WD" for n in range(ROWS)]
    frame = pd.DataFrame({"km": km, "dirty": dirty, "day": days, "far": differ, "grade": grade})
    of = dict(line.split(": ", 1) for line in TableEncoder.fit(frame).describe())
    assert (
        "though 40 of 40 values look like numbers, such as '<0 km': write all as 1234.5" in of["km"]
    )
    assert "39 of 40 values look like numbers, such as '0', unlike 'none'" in of["dirty"]
    assert "40 of 40 values look like dates, such as '1-12-24'" in of["day"]
    assert "left out, it looks like an identifier (all 40 values differ), though 40" in of["far"]
    assert "look" not in of["grade"]  # few categories may be named as they like
    levels = TableEncoder.fit(
        pd.DataFrame({"w": [f"<{n}" for n in range(39)] + ["<1"]}), levels=None
    )
    assert "39 levels" in levels.describe()[0]
    assert "40 of 40 values look like numbers" in levels.describe()[0]


def test_codes_keep_their_zeros(tmp_path):
    posts = ["01067", "10115", "80331", "01067"]
    pd.DataFrame({"post": posts, "month": ["01", "02", "11", "12"]}).to_csv(tmp_path / "a.csv")
    frame = read_table(tmp_path / "a.csv")
    encoder = TableEncoder.fit(frame)
    names = ["post = 01067", "post = 10115", "post = 80331", "month"]
    assert encoder.feature_names == names
    (tmp_path / "b.csv").write_text("post,month\n10115,1\n")  # none that shows
    for new in (read_table(tmp_path / "b.csv"), *Frames(tmp_path / "b.csv")):
        np.testing.assert_array_equal(encoder.encode(new), [[0, 1, 0, 1]])
    # What is a number elsewhere stays one, zeros in front or not.
    np.testing.assert_array_equal(encoder_of([7, 9]).encode(pd.DataFrame({"v": ["007"]})), [[7]])


def test_codes_in_one_file_of_a_folder_are_text_in_all(tmp_path):
    for number, post in enumerate(["01067", "10115"]):
        (tmp_path / f"{number}.csv").write_text(f"post,x\n{post},1\n")
    assert pd.concat(Frames(tmp_path))["post"].tolist() == ["01067", "10115"]


class TestIdentifiers:
    @pytest.mark.parametrize(
        "name", ["id", "house_id", "PassengerId", "HouseID", "Order No.", "row index", "Kunden-Nr"]
    )
    @pytest.mark.parametrize("kind", [int, str])
    def test_by_their_name(self, name, kind):
        numbers = (10_001 + 7 * _generator.permutation(ROWS)).astype(kind)
        encoder = encoder_of(numbers, name, x=np.arange(ROWS) % 7)
        assert encoder.feature_names == ["x"]
        assert "all 40 values differ and are whole: rename the column to" in encoder.describe()[-1]

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("lot area", 5 * _generator.permutation(1000)[:ROWS]),
            ("humid", 3 + np.arange(ROWS)),
            ("grid", _generator.permutation(ROWS)),
            ("month", np.arange(ROWS)),
            ("store_id", np.arange(ROWS) % 9),
            ("price_index", np.arange(ROWS) + 0.5),
        ],
    )
    def test_measurements_are_kept(self, name, values):
        assert encoder_of(values, name).feature_names == [name]

    def test_doubts_are_said(self):
        (line,) = encoder_of(10_001 + _generator.permutation(ROWS), "house").describe()
        assert "looks like an identifier (it numbers the rows): if it is one, leave" in line
        frame = pd.DataFrame({"house": np.arange(ROWS), "x": np.arange(ROWS) % 7})
        encoder = TableEncoder.fit(frame, leave_out=["house"])
        assert encoder.describe()[-1] == "house: left out, as asked for"
        assert encoder.feature_names == ["x"]
        with pytest.raises(InputError, match="no column 'hous': did you mean 'house'"):
            TableEncoder.fit(frame, leave_out=["hous"])


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["9.876,54", "12,34", "7"], "regression"),
        (["$1,200", "$900", "$0"], "count"),
        (["12.5%", "3%"], "regression"),
        (["01067", "10115", "01067"], "classification"),
    ],
)
def test_targets_in_other_dress(values, task):
    assert guess_task(pd.Series(values)).task == task


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["31.12.2024", "1.1.2025"], "the target is a date"),
        ([f"<{n} km" for n in range(ROWS)], "is text, though 40 of 40 values look like numbers"),
    ],
)
def test_targets_that_look_like_something_else(values, says):
    with pytest.raises(InputError, match=says):
        guess_task(pd.Series(values, name="y"))


@pytest.mark.filterwarnings("ignore")
def test_a_table_in_german_is_fitted_predicted_and_scored(tmp_path):
    x = _generator.uniform(500, 5000, ROWS).round()
    y = 2 * x + 100 * _generator.normal(size=ROWS)

    def german(value):
        return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))

    frame = pd.DataFrame({"Fläche": map(german, x), "Preis": [f"{german(v)} €" for v in y]})
    frame.to_csv(tmp_path / "a.csv", sep=";", index=False)
    model = TableModel.fit(read_table(tmp_path / "a.csv"), "Preis", max_evaluations=20)
    assert "Preis: number in €, written with a decimal comma" in model.notes
    assert model.evaluate(read_table(tmp_path / "a.csv"))["root mean squared error"] < 300
    save(model, tmp_path / "m")
    model = load(tmp_path / "m")
    # Whole thousands, which every reader takes as fractions if it is not told.
    (tmp_path / "b.csv").write_text("Fläche\n1.200\n3.400\n")
    expected = model.predict(pd.DataFrame({"Fläche": [1200.0, 3400.0]}))["mean"]
    found = model.predict(read_table(tmp_path / "b.csv", model.read_as_text))["mean"]
    np.testing.assert_array_equal(found, expected)
    predict_files(model, tmp_path / "b.csv", tmp_path / "p.csv")
    np.testing.assert_allclose(read_table(tmp_path / "p.csv")["mean"], expected)
    np.testing.assert_allclose(expected, [2400, 6800], rtol=0.1)


@pytest.mark.filterwarnings("ignore")
def test_batches_read_what_the_sample_has_taught(tmp_path):
    x = _generator.uniform(1, 5, 200)
    frame = pd.DataFrame({"x": [f"{v:.3f}".replace(".", ",") for v in x]})
    frame["y"] = [f"{100 * v:.2f} %".replace(".", ",") for v in np.sin(x)]
    frame.to_csv(tmp_path / "a.csv", index=False)
    settings = {"n_inducing": 10, "batch_size": 50, "epochs": 2, "random_state": 0}
    model = TableModel.fit_files(tmp_path / "a.csv", "y", **settings)
    assert model.evaluate(frame)["root mean squared error"] < 20
