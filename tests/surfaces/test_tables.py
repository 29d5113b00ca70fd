import datetime
import decimal
import errno
import warnings

import numpy as np
import pandas as pd
import pytest

from latentgp.errors import InputError
from latentgp.persistence import load, save
from latentgp.surfaces.tables import (
    TableEncoder,
    guess_task,
    read_table,
    split_target,
    write_table,
)
from latentgp.surfaces.tables.rows import Frames
from latentgp.surfaces.tables.start import _several, sides_of

pytestmark = pytest.mark.quick


def csv_file(folder, text, name="table.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def mixed_table(rows=40):
    generator = np.random.default_rng(0)
    age = generator.normal(40, 10, size=rows)
    age[[3, 7]] = np.nan
    colour = generator.choice(["red", "blue", "grün"], size=rows).astype(object)
    colour[5] = None
    return pd.DataFrame(
        {
            "age": age,
            "count": generator.integers(0, 9, size=rows),
            "colour": colour,
            "smoker": generator.integers(0, 2, size=rows).astype(bool),
            "visited": pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(rows), unit="D"),
            "size": pd.Categorical(generator.choice(["small", "large"], size=rows)),
            "code": [str(number) for number in generator.integers(0, 999, size=rows)],
            "identifier": [f"patient {row}" for row in range(rows)],
            "always": 1.0,
            "never": [None] * rows,
        }
    )


def test_bounds_are_read_after_what_says_where_they_are():
    frame = pd.DataFrame({"kind": [0.0, 2, 1], "end": [np.nan, 3.0, np.nan]})
    for columns in ({"upper": "end", "censored": "kind"}, {"censored": "kind", "upper": "end"}):
        assert sides_of(frame, columns)["upper"].tolist() == [0.0, 3.0, 0.0]


class TestReading:
    def test_quotes_unicode_missing_markers_and_byte_order_mark(self, tmp_path):
        text = 'größe [m],"name, full",flag\n1.5,"Ada ""A"" Byron",yes\n?,N/A,\n\n'
        frame = read_table(csv_file(tmp_path, text, encoding="utf-8-sig"))
        assert list(frame.columns) == ["größe [m]", "name, full", "flag"]
        assert frame["name, full"][0] == 'Ada "A" Byron'
        assert frame["größe [m]"].tolist()[0] == 1.5
        assert frame.iloc[1].isna().all()

    @pytest.mark.parametrize("separator", [",", ";", "\t", ", ", "|"])
    def test_separators(self, tmp_path, separator):
        rows = [["a", '"b; c, d"'], ["1", "x"], ["2", "y"]]
        text = "\n".join(separator.join(row) for row in rows)
        frame = read_table(csv_file(tmp_path, text))
        assert frame.to_dict("list") == {"a": [1, 2], "b; c, d": ["x", "y"]}

    @pytest.mark.parametrize(
        "text",
        [
            "sep=;\na;y\n0,5;1\n1,5;3\n",
            '"sep=;"\r\na;y\r\n0,5;1\r\n1,5;3\r\n',
            "\ufeffsep=\t\na\ty\n0,5\t1\n1,5\t3\n",
            "# a logger's, 2024\n#\n\na;y\n0,5;1\n# note; with; more\n1,5;3\n# end\n",
            "# a;y\n0,5;1\n1,5;3\n",
        ],
    )
    def test_lines_before_the_header(self, tmp_path, text):
        path = csv_file(tmp_path, text)
        for frame in (read_table(path), pd.concat(Frames(path), ignore_index=True)):
            assert frame.to_dict("list") == {"a": ["0,5", "1,5"], "y": [1, 3]}

    def test_names_have_no_spaces_around_them(self, tmp_path):
        path = csv_file(tmp_path, ' a ,"b ", the c \n1,2,3\n')
        for frame in (read_table(path), *Frames(path)):
            assert frame.to_dict("list") == {"a": [1], "b": [2], "the c": [3]}

    def test_a_name_may_be_the_sign_of_a_comment(self, tmp_path):
        path = csv_file(tmp_path, "#,name\n1,a\n2,b\n#3,c\n")
        for frame in (read_table(path), pd.concat(Frames(path))):
            assert frame.columns.tolist() == ["#", "name"]
            assert len(frame) == 3

    def test_values_may_begin_with_the_sign_of_a_comment(self, tmp_path):
        path = csv_file(tmp_path, "a,y\n#1,2\n#2,3\n")
        for frame in (read_table(path), *Frames(path)):
            assert frame["a"].tolist() == ["#1", "#2"]

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_round_trip_keeps_every_digit(self, tmp_path, ending):
        numbers = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
        frame = pd.DataFrame({"zahl": numbers, "wört, er": ['a"b', "c,d"] * 25})
        path = write_table(frame, tmp_path / "new" / f"table.{ending}")
        pd.testing.assert_frame_equal(read_table(path), frame, check_dtype=False)

    def test_single_row_and_single_column(self, tmp_path):
        assert read_table(csv_file(tmp_path, "a\n1\n"))["a"].tolist() == [1]

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("a.csv", None, "does not exist"),
            ("a.xlsx", b"x", r"does not end in \.csv"),
            ("a.csv", b"", "is empty"),
            ("a.csv", b"a,b\n", "no rows"),
            ("a.csv", b"a,b,a\n1,2,3\n", "more than one column named 'a'"),
            ("a.csv", b"a,b\n1,2\n1,2,3\n", "cannot be read as csv: .*line 3"),
            ("a.csv", b"a,b\n1,2,3\n4,5,6\n", "more fields than its header: begin with"),
            ("a.csv", b"Houses, 2024\n\na,b,c\n1,2,3\n", "more fields than its header"),
            ("a.csv", b"a,b\n1,\xff\xfe\n", "is not UTF-8"),
            ("a.csv", b"\n\n", "is empty"),
            ("a.parquet", b"a,b\n1,2\n", "cannot be read as parquet"),
        ],
    )
    def test_unreadable_files_are_answered_in_one_sentence(self, tmp_path, name, content, says):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=says) as caught:
            read_table(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_folder_is_not_a_table(self, tmp_path):
        (tmp_path / "a.csv").mkdir()
        with pytest.raises(InputError, match="is a folder"):
            read_table(tmp_path / "a.csv")

    def test_duplicate_names_in_parquet(self, tmp_path):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(InputError, match="more than one column named 'a'"):
            read_table(tmp_path / "a.parquet")

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_a_full_disk_leaves_the_old_file(self, tmp_path, monkeypatch, ending):
        def fail(self, path, **_):
            path.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

        old = write_table(pd.DataFrame({"a": [1]}), tmp_path / f"table.{ending}").read_bytes()
        monkeypatch.setattr(pd.DataFrame, f"to_{ending}", fail)
        with pytest.raises(InputError, match="cannot be written: No space left on device; make"):
            write_table(pd.DataFrame({"a": [2]}), tmp_path / f"table.{ending}")
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [old]

    def test_writing_to_an_unknown_ending(self, tmp_path):
        with pytest.raises(InputError, match="does not end in"):
            write_table(pd.DataFrame({"a": [1]}), tmp_path / "a.txt")


class TestTarget:
    def test_rows_without_a_target_are_dropped_and_counted(self):
        frame = pd.DataFrame({"a": [1, 2, 3, 4], "y": ["no", None, "?", "yes "]})
        split = split_target(frame, "y")
        assert split.rows_dropped == 2
        assert split.inputs["a"].tolist() == [1, 4]
        assert split.target.tolist() == ["no", "yes"]
        assert list(split.inputs.index) == [0, 3]

    @pytest.mark.parametrize(
        ("columns", "says"),
        [
            (["Strength", "age"], "did you mean 'Strength'"),
            (["a", "b"], "the columns are 'a', 'b'"),
        ],
    )
    def test_a_missing_target_names_the_near_columns(self, columns, says):
        with pytest.raises(InputError, match=says):
            split_target(pd.DataFrame([[1, 2]], columns=columns), "strenght")

    def test_a_target_alone_or_empty(self):
        with pytest.raises(InputError, match="only column"):
            split_target(pd.DataFrame({"y": [1]}), "y")
        with pytest.raises(InputError, match="missing in every row"):
            split_target(pd.DataFrame({"a": [1], "y": [None]}), "y")

    @pytest.mark.parametrize(
        ("values", "task", "because"),
        [
            (["a", "b", "c"], "classification", "text with 3"),
            (["0", "1", "1"], "classification", "text with 2"),
            (["0.5", "1.5", "2"], "regression", "numbers with 3"),
            ([True, False], "classification", "true or false"),
            ([True, None, False], "classification", "true or false"),
            (pd.Categorical([1, 2, 3]), "classification", "category"),
            ([0, 1, 0], "classification", "2 distinct"),
            ([0.0, 1.0, np.nan], "classification", "2 distinct"),
            (pd.array([1, 2, None], dtype="Int64"), "classification", "2 distinct"),
            ([0, 1, 2], "count", "whole numbers from 0 up with 3"),
            ([1, 2, 3], "regression", "whole numbers with 3"),
            (pd.Categorical([1, 2, 3], ordered=True), "ordinal", "with an order"),
            ([0.5, 1.5], "regression", "numbers with 2"),
            ([3], "regression", "1 distinct"),
            ([decimal.Decimal("1.5"), decimal.Decimal("2.5")], "regression", "numbers"),
        ],
    )
    def test_guess(self, values, task, because):
        guess = guess_task(pd.Series(values))
        assert guess.task == task
        assert because in guess.reason

    def test_targets_that_cannot_be_learned(self):
        with pytest.raises(InputError, match="missing in every row"):
            guess_task(pd.Series([None, np.nan]))
        with pytest.raises(InputError, match="is a date"):
            guess_task(pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"])))


class TestEncoding:
    def test_categories_that_a_reader_would_take_for_numbers_stay_text(self, tmp_path):
        table = pd.DataFrame({"mix": ["2.0", "3.50", "x"] * 4, "plain": ["2", "3", "x"] * 4})
        encoder = TableEncoder.fit(table)
        assert encoder.read_as_text == ["mix"]
        few = table[table["mix"] != "x"]
        few.to_csv(tmp_path / "few.csv", index=False)
        again = read_table(tmp_path / "few.csv", encoder.read_as_text)
        np.testing.assert_array_equal(encoder.encode(again), encoder.encode(few))

    def test_a_mixed_table(self):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        assert encoder.feature_names == [
            *("age", "age is missing", "count"),
            *("colour = blue", "colour = grün", "colour = red", "colour is missing"),
            *("smoker", "visited [days]", "size = large", "size = small", "code"),
        ]
        encoded = encoder.encode(frame)
        assert encoded.dtype == np.float64
        assert encoded.shape == (40, 12)
        assert np.isfinite(encoded).all()
        of = dict(zip(encoder.feature_names, encoded.T, strict=True))
        assert of["age"][3] == np.nanmedian(frame["age"])
        np.testing.assert_array_equal(np.flatnonzero(of["age is missing"]), [3, 7])
        np.testing.assert_array_equal(np.flatnonzero(of["colour is missing"]), [5])
        np.testing.assert_array_equal(of["colour = red"], frame["colour"] == "red")
        np.testing.assert_array_equal(of["smoker"], frame["smoker"])
        np.testing.assert_array_equal(of["visited [days]"], np.arange(40))
        np.testing.assert_array_equal(of["code"], frame["code"].astype(float))
        reasons = dict(encoder.left_out)
        assert reasons.keys() == {"identifier", "always", "never"}
        assert "identifier" in reasons["identifier"]
        assert "constant (1.0)" in reasons["always"]
        assert "no value" in reasons["never"]

    def test_the_description_has_a_line_a_column(self):
        lines = TableEncoder.fit(mixed_table()).describe()
        assert len(lines) == 10
        text = "\n".join(lines)
        assert "age: number, missing values become the median" in text
        assert "colour: 3 categories ('blue', 'grün', 'red')" in text
        assert "visited: days since 2024-03-01" in text
        assert "identifier: left out" in text

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_files_encode_as_the_frame_they_hold(self, tmp_path, ending):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        stored = read_table(write_table(frame, tmp_path / f"table.{ending}"))
        np.testing.assert_array_equal(encoder.encode(stored), encoder.encode(frame))
        assert TableEncoder.fit(stored).feature_names == encoder.feature_names
        np.testing.assert_array_equal(TableEncoder.fit(stored).encode(frame), encoder.encode(frame))

    def test_saving_and_loading_is_exact(self, tmp_path):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        restored = load(save(encoder, tmp_path / "encoder.latentgp"))
        assert restored == encoder
        np.testing.assert_array_equal(restored.encode(frame), encoder.encode(frame))

    def test_the_order_of_rows_and_columns_does_not_matter(self):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        assert TableEncoder.fit(frame.sample(frac=1, random_state=0)) == encoder
        shuffled = frame[frame.columns[::-1]].assign(extra="ignored")
        np.testing.assert_array_equal(encoder.encode(shuffled), encoder.encode(frame))

    def test_it_is_immutable(self):
        encoder = TableEncoder.fit(mixed_table())
        with pytest.raises(AttributeError):
            encoder.columns = ()

    def test_unseen_categories_are_zero_and_named_once(self):
        encoder = TableEncoder.fit(pd.DataFrame({"c": ["a", "b", "a"]}))
        with pytest.warns(UserWarning, match="never saw: 'x', 'y'") as caught:
            encoded = encoder.encode(pd.DataFrame({"c": ["x", "a", "y", "x"]}))
        assert len(caught) == 1
        np.testing.assert_array_equal(encoded, [[0, 0], [1, 0], [0, 0], [0, 0]])

    def test_missing_values_new_at_prediction_warn(self):
        encoder = TableEncoder.fit(pd.DataFrame({"c": ["a", "b", "a"], "n": [1, 2, 4]}))
        with pytest.warns(UserWarning, match="never was in training") as caught:
            encoded = encoder.encode(pd.DataFrame({"c": [None, "b"], "n": [5, None]}))
        assert sorted(str(each.message).split("'")[1] for each in caught) == ["c", "n"]
        np.testing.assert_array_equal(encoded, [[0, 0, 5], [0, 1, 2]])

    def test_rare_categories_share_a_column(self):
        common = [f"common {number:02}" for number in range(30)]
        frame = pd.DataFrame({"c": [*common * 2, "rare 1", "rare 2"]})
        encoder = TableEncoder.fit(frame)
        assert encoder.feature_names == [*(f"c = {name}" for name in common), "c = other"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            encoded = encoder.encode(pd.DataFrame({"c": ["rare 2", "common 03"]}))
        assert encoded[0, 30] == 1
        assert encoded[1, 3] == 1
        assert encoded.sum() == 2

    def test_a_category_is_the_same_as_integer_float_or_text(self):
        encoder = TableEncoder.fit(pd.DataFrame({"c": pd.Categorical([1, 2, 1])}))
        for values in ([2, 1], [2.0, 1.0], ["2", " 1"], pd.Categorical(["2", "1"])):
            encoded = encoder.encode(pd.DataFrame({"c": values}))
            np.testing.assert_array_equal(encoded, [[0, 1], [1, 0]])

    def test_mixed_objects(self):
        frame = pd.DataFrame({"c": [1, "a", 2.0, None, "a", True]})
        encoder = TableEncoder.fit(frame)
        assert encoder.feature_names == ["c = 1", "c = 2", "c = True", "c = a", "c is missing"]
        assert (encoder.encode(frame).sum(axis=1) == 1).all()

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (["1", " 2", "3.5", "1"], [1, 2, 3.5, 1]),
            ([1, "2", 3.5, 1], [1, 2, 3.5, 1]),
            ([decimal.Decimal("1"), decimal.Decimal("2.5")], [1, 2.5]),
            (pd.array([True, False, True], dtype="boolean"), [1, 0, 1]),
            (pd.array([1, 2, 3], dtype="Int8"), [1, 2, 3]),
            (np.array([1, 2, 4], dtype=np.float16), [1, 2, 4]),
            (pd.to_timedelta(["1s", "1min"]), [1, 60]),
            (["2024-01-01", "2024-01-03 12:00"], [0, 2.5]),
            ([datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)], [0, 31]),
            (pd.to_datetime(["2024-01-01 00:00:01", "2024-01-01 00:01:00"]), [0, 59]),
            (pd.to_datetime(["2024-01-01", "2024-01-11"]).tz_localize("Asia/Tokyo"), [0, 10]),
            (pd.period_range("2024-01", periods=3, freq="M"), [0, 31, 60]),
        ],
    )
    def test_what_becomes_a_number(self, values, expected):
        frame = pd.DataFrame({"n": values})
        encoded = TableEncoder.fit(frame).encode(frame)
        np.testing.assert_array_equal(encoded, np.array(expected, dtype=float)[:, None])

    @pytest.mark.parametrize(
        ("zone", "said"),
        [
            (None, ""),
            ("UTC", ""),
            ("Asia/Tokyo", "times of Asia/Tokyo are taken in UTC"),
        ],
    )
    def test_dates_of_a_zone_are_said_to_be_taken_in_utc(self, zone, said):
        """As such and as text, whose offset is named."""
        days = pd.to_datetime(["2024-01-01", "2024-01-11"]).tz_localize(zone)
        (line,) = TableEncoder.fit(pd.DataFrame({"n": days})).describe()
        assert line.partition("; ")[2] == said
        texts = pd.DataFrame({"n": ["2023-12-01T00:00:00+00:00", *map(str, days)]})
        (line,) = TableEncoder.fit(texts).describe()
        assert line.partition("; ")[2] == said.replace("Asia/Tokyo", "+09:00")

    def test_one_name_may_stand_alone(self):
        """As text, or a number of Python or NumPy."""
        for name in ("cost", 3, np.int64(3)):
            assert _several(name) == [name]
        assert _several(pd.Index(["cost", 3])) == ["cost", 3]

    def test_missing_markers_and_gaps_in_every_kind(self):
        frame = pd.DataFrame(
            {
                "text": ["1", "?", "4", "NA"],
                "flag": [True, None, False, True],
                "date": ["2024-01-01", None, "2024-01-05", ""],
            }
        )
        encoder = TableEncoder.fit(frame)
        np.testing.assert_array_equal(
            encoder.encode(frame),
            [[1, 0, 1, 0, 0, 0], [2.5, 1, 1, 1, 2, 1], [4, 0, 0, 0, 4, 0], [2.5, 1, 1, 0, 2, 1]],
        )
        empty = pd.DataFrame({name: [np.nan, np.nan] for name in frame.columns})
        np.testing.assert_array_equal(encoder.encode(empty), [[2.5, 1, 1, 1, 2, 1]] * 2)

    def test_booleans_as_text_or_numbers_at_prediction(self):
        encoder = TableEncoder.fit(pd.DataFrame({"b": [True, False]}))
        for values in (["True", "false"], [1, 0], ["1", "0"]):
            encoded = encoder.encode(pd.DataFrame({"b": values}))
            np.testing.assert_array_equal(encoded, [[1], [0]])

    def test_a_single_row_keeps_its_columns(self):
        frame = pd.DataFrame({"a": [1.5], "c": ["x"], "d": pd.to_datetime(["2024-01-01"])})
        encoder = TableEncoder.fit(frame)
        np.testing.assert_array_equal(encoder.encode(frame), [[1.5, 1, 0]])

    def test_no_rows_at_prediction(self):
        frame = mixed_table()
        assert TableEncoder.fit(frame).encode(frame.iloc[:0]).shape == (0, 12)

    def test_a_saved_index_is_left_out(self, tmp_path):
        pd.DataFrame({"a": [3, 1, 2, 1]}).to_csv(tmp_path / "a.csv")
        frame = read_table(tmp_path / "a.csv").iloc[[2, 0, 3]]
        assert TableEncoder.fit(frame).feature_names == ["a"]

    def test_names_that_are_not_text(self):
        frame = pd.DataFrame(np.arange(6.0).reshape(3, 2))
        assert TableEncoder.fit(frame).feature_names == ["0", "1"]

    @pytest.mark.parametrize(
        ("frame", "says"),
        [
            (
                pd.DataFrame({"a": [1.0, np.inf, -np.inf]}),
                r"'a' holds infinity in 2 rows \(index 1, 2\)",
            ),
            (pd.DataFrame({"a": ["1", "inf"]}), r"'a' holds infinity in 1 row "),
            (pd.DataFrame({"a": [1.0, 1.0]}), r"no usable input column \(a: it is constant"),
            (pd.DataFrame({"a": [None, None]}), "it has no value"),
            (pd.DataFrame({"a": []}), "no rows"),
            (pd.DataFrame(index=[0, 1]), "no columns"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column named 'a'"),
            (pd.DataFrame([[1, 2]], columns=[1, "1"]), "more than one column named '1'"),
            (pd.DataFrame({"a": [1j, 2j]}), "complex"),
            (np.zeros((2, 2)), "is a ndarray"),
            (pd.Series([1.0, 2.0]), "is a Series"),
            (pd.Series([1.0, "red"]), "is a Series"),
        ],
    )
    def test_tables_that_cannot_be_learned_from(self, frame, says):
        with pytest.raises(InputError, match=says) as caught:
            TableEncoder.fit(frame)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"age": np.inf}, "'age' holds infinity"),
            ({"age": "old"}, "'age' was numeric in training and holds 'old' in 40 rows"),
            ({"visited": "soon"}, "'visited' was a date in training and holds 'soon'"),
        ],
    )
    def test_wrong_values_at_prediction(self, change, says):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        with pytest.raises(InputError, match=says):
            encoder.encode(frame.assign(**change))

    def test_missing_columns_at_prediction_are_listed(self):
        frame = mixed_table()
        encoder = TableEncoder.fit(frame)
        encoder.encode(frame.drop(columns=["identifier", "always"]))
        with pytest.raises(InputError, match=r"lacks 2 column\(s\).*'age', 'code'"):
            encoder.encode(frame.drop(columns=["age", "code"]))
