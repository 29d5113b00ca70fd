"""Dates, times of day, durations and long whole numbers in columns, however they are written."""

import calendar
import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import latentgp as lgp
from latentgp.errors import InputError
from latentgp.persistence import load, save
from latentgp.surfaces.tables import TableEncoder, guess_task, read_table
from latentgp.surfaces.tables.encoder import TableEncoder as Encoder
from latentgp.surfaces.tables.notation import seconds_of
from latentgp.surfaces.tables.rows import Frames

pytestmark = pytest.mark.quick

ROWS = 36
MONTHS = pd.date_range("2015-01-01", periods=ROWS, freq="MS")
DAYS = pd.date_range("2022-12-01", periods=ROWS)
QUARTERS = pd.date_range("2015-01-01", periods=ROWS, freq="QS")
WEEKS = pd.date_range("2023-01-02", periods=ROWS, freq="7D")
NAMES, GERMAN = calendar.month_abbr, {1: "Januar", 12: "Dezember"}
SECOND = pd.Timedelta(1, "s")


def arrow(values, kind):
    return pd.Series(list(values), dtype=pd.ArrowDtype(kind))


DATES = {
    "2015-01": (MONTHS, MONTHS.strftime("%Y-%m")),
    "2015-1": (MONTHS, [f"{t.year}-{t.month}" for t in MONTHS]),
    "2015/01": (MONTHS, MONTHS.strftime("%Y/%m")),
    "01/2015": (MONTHS, MONTHS.strftime("%m/%Y")),
    "01.2015": (MONTHS, MONTHS.strftime("%m.%Y")),
    "2015M01": (MONTHS, MONTHS.strftime("%YM%m")),
    "201501 text": (MONTHS, MONTHS.strftime("%Y%m")),
    "201501": (MONTHS, MONTHS.strftime("%Y%m").astype(int)),
    "Jan 2015": (MONTHS, [f"{NAMES[t.month]} {t.year}" for t in MONTHS]),
    "january 2015": (MONTHS, [f"{calendar.month_name[t.month].lower()} {t.year}" for t in MONTHS]),
    "2015-Jan": (MONTHS, [f"{t.year}-{NAMES[t.month]}" for t in MONTHS]),
    "Period": (MONTHS, MONTHS.to_period("M")),
    "Period objects": (MONTHS, pd.Series(list(MONTHS.to_period("M")), dtype=object)),
    "2015Q1": (QUARTERS, [f"{t.year}Q{t.quarter}" for t in QUARTERS]),
    "2015-Q1": (QUARTERS, [f"{t.year}-Q{t.quarter}" for t in QUARTERS]),
    "Q1 2015": (QUARTERS, [f"Q{t.quarter} {t.year}" for t in QUARTERS]),
    "2023-W01": (WEEKS, WEEKS.strftime("%G-W%V")),
    "2023W01": (WEEKS, WEEKS.strftime("%GW%V")),
    "W1/2023": (WEEKS, [f"W{t.week}/{t.year}" for t in WEEKS]),
    "weekly Period": (WEEKS, WEEKS.to_period("W").astype(str)),
    "20221231": (DAYS, DAYS.strftime("%Y%m%d").astype(int)),
    "20221231 text": (DAYS, DAYS.strftime("%Y%m%d")),
    "202212310830": (DAYS + 30600 * SECOND, [int(f"{t:%Y%m%d}0830") for t in DAYS]),
    "1 Dec 2022": (DAYS, [f"{t.day} {NAMES[t.month]} {t.year}" for t in DAYS]),
    "01DEC2022": (DAYS, [f"{t.day:02}{NAMES[t.month].upper()}{t.year}" for t in DAYS]),
    "1. Dezember 2022": (DAYS, [f"{t.day}. {GERMAN[t.month]} {t.year}" for t in DAYS]),
    "Dec 1, 2022 9:30 PM": (
        DAYS + 77400 * SECOND,
        [f"{NAMES[t.month]} {t.day}, {t.year} 9:30 PM" for t in DAYS],
    ),
    "date objects": (DAYS, DAYS.date),
    "date32": (DAYS, arrow(DAYS.date, pa.date32())),
    "date64": (DAYS, arrow(DAYS.date, pa.date64())),
    "timestamp": (DAYS, pd.Series(DAYS).astype(pd.ArrowDtype(pa.timestamp("us")))),
}  # fmt: skip


@pytest.mark.parametrize("written", DATES)
def test_dates_are_days_however_they_are_written(tmp_path, written):
    dates, values = DATES[written]
    frame = pd.DataFrame({"when": values})
    encoder = load(save(TableEncoder.fit(frame), tmp_path / "encoder"))
    right = (dates - dates[0]).to_numpy() / np.timedelta64(1, "D")
    np.testing.assert_allclose(encoder.encode(frame)[:, 0], right)
    assert encoder.describe()[0].startswith(f"when: days since {dates[0].isoformat()}")
    # Whatever the dress at the fit: a date as such, the same in ISO 8601, and one not seen before.
    new = pd.DataFrame({"when": [dates[3], pd.Timestamp("2031-02-01")]})
    ahead = (new["when"] - dates[0]).to_numpy() / np.timedelta64(1, "D")
    np.testing.assert_allclose(encoder.encode(new)[:, 0], ahead)
    np.testing.assert_allclose(encoder.encode(new.astype(str))[:, 0], ahead)
    np.testing.assert_allclose(encoder.encode(pd.DataFrame({"when": [20310201]})), ahead[1:, None])
    np.testing.assert_array_equal(TableEncoder.fit(frame[::-1]).encode(frame)[:, 0], right)
    # Gaps, and the column of a series of time.
    with_gap = pd.concat([frame, pd.DataFrame({"when": [None]})], ignore_index=True)
    assert TableEncoder.fit(with_gap).feature_names == ["when [days]", "when is missing"]
    np.testing.assert_allclose(Encoder.of_series(frame, "when", None).encode(frame)[:, 0], right)


TIMES = [datetime.time(8, 30), datetime.time(23, 59), datetime.time(0)]
CLOCKS = {
    "08:30": ["08:30", "23:59", "0:00"],
    "08:30:15": ["08:30:00", "23:59:00.0", "00:00:00"],
    "AM, PM": ["8:30 AM", "11:59 pm", "12:00 a.m."],
    "time": TIMES,
    "time32": arrow(TIMES, pa.time32("s")),
    "time64": arrow(TIMES, pa.time64("us")),
}


@pytest.mark.parametrize("written", CLOCKS)
def test_times_of_day_are_hours(written):
    frame = pd.DataFrame({"at": CLOCKS[written]})
    encoder = TableEncoder.fit(frame)
    assert encoder.describe() == ["at: hours since midnight"]
    assert encoder.feature_names == ["at [hours]"]
    np.testing.assert_allclose(encoder.encode(frame)[:, 0], [8.5, 24 - 1 / 60, 0])
    others = pd.DataFrame({"at": ["10:15", datetime.time(10, 15), "10:15 AM", 10.25]})
    np.testing.assert_allclose(encoder.encode(others)[:, 0], 10.25)
    with pytest.raises(InputError, match="holds 'noon'"):
        encoder.encode(pd.DataFrame({"at": ["noon"]}))


@pytest.mark.parametrize(
    ("values", "unit", "right"),
    [
        (["08:30", "25:15"], "hours", [8.5, 25.25]),
        (["PT10M", "PT1H30M"], "minutes", [10, 90]),
        (["1 days 02:00:00", "0 days 20:00:00"], "hours", [26, 20]),
        (["-1 days +23:00:00", "-3 days"], "days", [-1 / 24, -3]),
        (pd.to_timedelta([10, 90], "min"), "minutes", [10, 90]),
        (pd.to_timedelta([0, 3, 40], "D"), "days", [0, 3, 40]),
        (pd.to_timedelta([250, None, 500], "ms"), "seconds", [0.25, 0.375, 0.5]),
        (arrow([datetime.timedelta(days=d) for d in (3, 4)], pa.duration("us")), "days", [3, 4]),
    ],
)
def test_durations_keep_a_unit_that_is_named(values, unit, right):
    frame = pd.DataFrame({"wait": values, "z": np.arange(len(values))})
    encoder = TableEncoder.fit(frame)
    assert encoder.describe()[0].startswith(f"wait: duration in {unit}")
    np.testing.assert_allclose(encoder.encode(frame)[:, 0], right)
    guess = guess_task(frame["wait"])
    assert guess.task == "regression"
    assert unit in guess.reason


def test_seconds_of_text():
    assert seconds_of("P1DT1H1M1.5S") == 90061.5
    assert seconds_of("12:00 AM") == 0
    assert seconds_of("12:30 PM") == 45_000
    for text in ("", "8", "8.5", "24:60", "13:00 PM", "P", "1 days 5", "a", "1:2"):
        assert seconds_of(text) is None


@pytest.mark.parametrize(
    "values",
    [
        [20221399 + n for n in range(ROWS)],  # some are no days
        [200_000 + 997 * n for n in range(ROWS)],
        [202_013, 202_014, 202_020],
        [12_345_678, 23_456_789, 34_567_890],
        [201_501, 201_502],  # two months, or two numbers
        [1900 + n for n in range(ROWS)],
        [201_501.5, 201_502.5, 201_503.5],
    ],
)
def test_numbers_that_only_look_like_dates_stay_numbers(values):
    np.testing.assert_array_equal(TableEncoder.fit(pd.DataFrame({"v": values})).encode(
        pd.DataFrame({"v": values}))[:, 0], values)  # fmt: skip


def test_codes_are_no_dates_or_durations():
    frame = pd.DataFrame(
        {
            "format": ["2D", "3D", "4D"] * 12,
            "shutter": ["1/60", "1/1000", "1/2000"] * 12,
            "case": ["1234/05", "9876/11", "5555/01"] * 12,
            "item_id": DAYS.strftime("%Y%m%d").astype(int),
        }
    )
    encoder = TableEncoder.fit(frame)
    assert [line.split(" categories")[0] for line in encoder.describe()[:3]] == [
        *("format: 3", "shutter: 3", "case: 3")
    ]
    assert encoder.left_out[0][1].startswith("it is an identifier by its name")


def test_a_few_that_are_wrong_are_named():
    months = MONTHS.strftime("%Y-%m").tolist()
    frame = pd.DataFrame(
        {
            "month": [*months, "2015-13"] * 2,
            "few": ["2015-01", "2015-02", "?", "soon"] * 18 + ["soon"] * 2,
            "clock": [f"{n % 24}:30" for n in range(ROWS)] * 2 + ["noon"] * 2,
            "day": [*DAYS.strftime("%Y%m%d").astype(int), 20221399] * 2,
        }
    )
    of = dict(line.split(": ", 1) for line in TableEncoder.fit(frame).describe())
    assert "72 of 74 values look like dates, such as '2015-01', unlike '2015-13'" in of["month"]
    assert "36 of 56 values look like dates, such as '2015-01', unlike 'soon'" in of["few"]
    assert "72 of 74 values look like times, such as '0:30', unlike 'noon'" in of["clock"]
    assert "72 of 74 values look like dates, such as 20221201, unlike 20221399" in of["day"]
    with pytest.raises(InputError, match=r"'month' must hold .* unlike '2015-13'"):
        TableEncoder.of_series(frame, "month", None)


BIG = 2**53 + 1


@pytest.mark.parametrize(
    "ids",
    [
        [BIG + n % 3 for n in range(ROWS)],
        np.array([2**64 - 1 - n % 3 for n in range(ROWS)], np.uint64),
        [10**30 + n % 3 for n in range(ROWS)],
        [str(BIG + n % 3) for n in range(ROWS)],
        arrow([BIG + n % 3 for n in range(ROWS)], pa.int64()),
        pd.Series([None, *(BIG + n % 3 for n in range(ROWS))], dtype="Int64"),
    ],
)
def test_whole_numbers_beyond_those_of_floats_are_kept_apart(ids):
    frame = pd.DataFrame({"sensor": ids})
    encoder = TableEncoder.fit(frame)
    encoded = encoder.encode(frame)
    assert len(np.unique(encoded, axis=0)) == frame["sensor"].nunique(dropna=False)
    assert (
        "whole numbers beyond 2**53 lie closer than the precision of a float"
        in (encoder.describe()[0])
    )


def test_months_with_a_point_keep_their_zeros_in_csv(tmp_path):
    months = pd.DataFrame({"m": MONTHS.strftime("%m.%Y"), "y": 1})
    months.to_csv(tmp_path / "a.csv", index=False)
    months[9:12].to_csv(tmp_path / "b.csv", index=False)
    frame = read_table(tmp_path / "a.csv")
    encoder = TableEncoder.fit(frame)
    right = encoder.encode(frame)
    assert right[11] == 334
    for rows in (read_table(tmp_path / "b.csv", encoder.read_as_text), *Frames(tmp_path / "a.csv")):
        np.testing.assert_array_equal(
            encoder.encode(rows), right[9:12] if len(rows) == 3 else right
        )


def test_long_numbers_keep_their_digits_in_files(tmp_path):
    (tmp_path / "a.csv").write_text(f"id,y\n{BIG},1\n{BIG + 1},2\n,3\n")
    assert read_table(tmp_path / "a.csv")["id"].tolist()[:2] == [str(BIG), str(BIG + 1)]
    table = pa.table({"id": [BIG, BIG + 1, None]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet")["id"].tolist()[:2] == [BIG, BIG + 1]
    stamps = pd.DataFrame({"ns": DAYS.astype("datetime64[ns]").astype("int64")})
    assert TableEncoder.fit(stamps).describe()[0].startswith("ns: number")


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [3]] * 9,
        [{"a": 1}, {"a": 2}] * 9,
        arrow([[1, 2], [3]] * 9, pa.list_(pa.int64())),
        arrow([{"a": 1}, {"a": 2}] * 9, pa.struct({"a": pa.int64()})),
    ],
)
def test_lists_are_left_out_and_refused_as_targets(values):
    frame = pd.DataFrame({"v": values, "x": np.arange(18.0) ** 2})
    encoder = TableEncoder.fit(frame)
    assert encoder.left_out == (
        ("v", "it holds lists or mappings: give each of their parts a column"),
    )
    with pytest.raises(InputError, match="'v' holds lists or mappings"):
        lgp.TableModel.fit(frame, "v")
    with pytest.raises(InputError, match="'v' holds lists or mappings"):
        lgp.TableModel.fit(frame, formula="x ~ v")


def test_tables_of_several_levels_and_of_other_libraries():
    plain = pd.DataFrame({"a_x": [1.0, 2.0, 4.0], "b": ["p", "q", "q"]})
    levels = plain.set_axis(pd.MultiIndex.from_tuples([("a", "x"), ("b", "")]), axis=1)
    table = pa.Table.from_pandas(plain)
    right = TableEncoder.fit(plain)

    class Stream:  # as a DataFrame of Polars has it
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    for frame in (levels, table, Stream()):
        assert TableEncoder.fit(frame) == right
        np.testing.assert_array_equal(right.encode(frame), right.encode(plain))

    class Lazy:
        def collect(self):
            return table

    with pytest.raises(InputError, match=r"a Lazy: pass a DataFrame .*\.collect\(\)"):
        TableEncoder.fit(Lazy())
