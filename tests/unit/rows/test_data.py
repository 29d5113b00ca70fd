import jax
import numpy as np
import pytest
from scipy import sparse

import latentgp as lgp
import latentgp.rows.data as data_module
from problems import BINARY, SMOOTH, X, classification, regression

pytestmark = pytest.mark.quick

ROWS = np.arange(12.0)


def hidden(*rows):
    """What is behind a mask is a value that nobody measured."""
    mask = np.isin(np.arange(12), rows)
    return np.ma.array(np.where(mask, -9999, ROWS.astype(int)), mask=mask)


def with_nan(*rows):
    values = ROWS.copy()
    values[list(rows)] = np.nan
    return values


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"X": with_nan(3, 7), "y": ROWS}, r"X has NaN or infinity in 2 row\(s\).*: 3, 7;"),
        ({"X": ROWS, "y": with_nan(5)}, r"y has NaN or infinity in 1 row\(s\).*: 5;"),
        ({"X": ROWS, "y": ROWS, "weights": with_nan(2)}, r"weights has NaN .*: 2;"),
        ({"X": ROWS, "y": ROWS, "noise_variance": with_nan(4)}, r"noise_variance has NaN .*: 4;"),
        ({"X": hidden(3, 7), "y": ROWS}, r"X has NaN or infinity in 2 row\(s\).*: 3, 7;"),
        ({"X": ROWS, "y": hidden(5)}, r"y has NaN or infinity in 1 row\(s\).*: 5;"),
        ({"X": ROWS, "y": ROWS, "weights": hidden(2)}, r"weights has NaN .*: 2;"),
        ({"X": ROWS, "y": ROWS, "noise_variance": hidden(4)}, r"noise_variance has NaN .*: 4;"),
        ({"X": with_nan(*range(8)), "y": ROWS}, r"in 8 row\(s\).*: 0, 1, 2, 3, 4 \.\.\.;"),
        ({"X": np.full((12, 1), np.inf), "y": ROWS}, r"in 12 row\(s\)"),
        ({"X": ROWS, "y": ROWS[:5]}, r"y must have one number a row, shape \(12,\), got .*\(5,\)"),
        ({"X": ROWS, "y": ROWS[:, None, None]}, r"y must have one number a row"),
        ({"X": ROWS, "y": ROWS, "weights": ROWS[:5]}, r"weights must have one number a row"),
        ({"X": ROWS, "y": ROWS, "weights": ROWS - 1}, "weights must not be negative"),
        ({"X": ROWS, "y": ROWS, "weights": 0 * ROWS}, "nor zero in every row"),
        ({"X": ROWS[:0], "y": ROWS[:0]}, "X has no rows"),
        ({"X": np.zeros((12, 0)), "y": ROWS}, "at least one column"),
        ({"X": np.zeros((12, 2, 2)), "y": ROWS}, r"got shape \(12, 2, 2\)"),
        ({"X": [["a"]] * 12, "y": ROWS}, "X must be an array of numbers"),
        ({"X": ROWS + 1j, "y": ROWS}, "X holds complex numbers"),
        ({"X": sparse.eye(12).tocsr(), "y": ROWS}, r"X is a sparse matrix.*toarray"),
    ],
)
def test_wrong_data_are_refused_with_a_sentence_that_names_them(arguments, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.Data(**arguments)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint64, bool, object])
def test_any_numbers_become_double_precision(dtype):
    data = lgp.Data(BINARY[:, None].astype(dtype), BINARY.astype(dtype))
    assert data.X.dtype == data.y.dtype == np.float64
    np.testing.assert_array_equal(data.y, BINARY)


def test_lists_fortran_order_and_read_only_arrays_are_fine():
    values = np.asfortranarray(X)
    values.flags.writeable = False
    np.testing.assert_array_equal(lgp.Data(values, SMOOTH).X, X)
    np.testing.assert_array_equal(lgp.Data(X.tolist(), SMOOTH.tolist()).X, X)


def test_rows_are_selected_with_all_that_belongs_to_them():
    data = lgp.Data(X, SMOOTH, weights=np.arange(11) + 1.0, noise_variance=np.arange(11) / 10)
    chosen = data.select(data.X[:, 0] > 0)
    mask = X[:, 0] > 0
    assert chosen.size == mask.sum()
    np.testing.assert_array_equal(chosen.weights, (np.arange(11) + 1.0)[mask])
    np.testing.assert_array_equal(
        chosen.side_information["noise_variance"], np.arange(11)[mask] / 10
    )


@pytest.mark.parametrize("alike", [False, True])
def test_equal_rows_are_merged_whatever_their_order(alike, monkeypatch):
    """Rows that are told apart by nothing but a fingerprint, too."""
    if alike:
        monkeypatch.setattr(data_module, "_fingerprints", lambda bits: np.zeros(len(bits), "u8"))
    rng = np.random.default_rng(0)
    table = rng.integers(0, 3, size=(60, 3)).astype(float)
    y = np.where(rng.uniform(size=(60, 2)) < 0.3, np.nan, rng.integers(0, 2, size=(60, 2)))
    y[:, 0] = np.where(np.isnan(y).all(axis=1), 0.0, y[:, 0])
    merged = [lgp.Data(table[o], y[o]).merged() for o in (slice(None), rng.permutation(60))]
    for one, other in zip(*map(jax.tree.leaves, merged), strict=True):
        np.testing.assert_array_equal(one, other)
    rows = [tuple(row) for row in np.nan_to_num(np.hstack([table, y]), nan=-1.0)]
    found = np.nan_to_num(np.hstack([merged[0].X, merged[0].y]), nan=-1.0)
    assert merged[0].weights is not None
    weights = dict(zip(map(tuple, found), merged[0].weights, strict=True))
    assert weights == {row: rows.count(row) for row in rows}


def test_the_order_of_merged_rows_follows_from_distinct_inputs_alone():
    one, other = (lgp.Data(X, y).merged() for y in (SMOOTH, BINARY))
    np.testing.assert_array_equal(one.X, other.X)
    assert not np.array_equal(one.X, X)


def test_zeros_of_either_sign_are_equal_rows():
    assert lgp.Data([0.0, -0.0, 1.0], np.ones(3)).merged().size == 2


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (classification(), lgp.Data(X, SMOOTH), "targets must be 0 or 1"),
        (regression(), lgp.Data(X, SMOOTH, exposure=BINARY + 1), "reads no per-row 'exposure'"),
        (
            regression(kernel=lgp.RBF(lengthscale=[1.0, 1.0, 1.0])),
            lgp.Data(X, SMOOTH),
            r"lengthscale has shape \(3,\) but the inputs have 2",
        ),
        (
            regression(mean=lgp.LinearMean(slope=[1.0, 1.0, 1.0])),
            lgp.Data(X, SMOOTH),
            r"slope has shape \(3,\) but the inputs have 2",
        ),
    ],
)
def test_data_that_do_not_fit_the_model_are_refused(model, data, sentence):
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.fit(model, data, key=jax.random.key(0))


def test_a_negative_known_noise_variance_is_refused():
    with pytest.raises(lgp.InputError, match=r"noise_variance must be at least 0, not .* in 7 row"):
        lgp.fit(regression(), lgp.Data(X, SMOOTH, noise_variance=-BINARY), key=jax.random.key(0))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 512, 513, 2000, 2048, 2049, 100_000])
def test_padded_rows_weigh_nothing_and_are_few(size):
    data = lgp.Data(np.arange(float(size)), np.arange(float(size)))
    for shards in (1, 3):
        padded = data.padded(shards)
        assert padded.size % shards == 0
        assert size <= padded.size < max(1.04 * size, size + 64) + shards
        assert padded.total_weight == size
        np.testing.assert_array_equal(padded.merged().X[:, 0], data.merged().X[:, 0])
    sizes = {data.select(slice(n)).padded().size for n in range(max(1, size // 2), size + 1, 7)}
    assert len(sizes) <= 33


def test_what_a_mask_hides_of_several_outputs_is_missing():
    y = np.ma.stack([hidden(5), np.ma.array(ROWS)], axis=1)
    seen = lgp.Data(ROWS, y).y
    assert np.isnan(seen[5, 0])
    assert np.isfinite(seen).sum() == 23
    np.testing.assert_array_equal(lgp.Data(np.ma.array(ROWS), np.ma.array(ROWS)).y, ROWS)


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (lgp.GPRegressor(), hidden(5)),
        (lgp.GPCountRegressor(), hidden(5)),
        (lgp.GPClassifier(), np.ma.array(hidden(5).data % 2, mask=hidden(5).mask)),
        (lgp.GPClassifier(), np.ma.array(["a", "b"] * 6, mask=hidden(5).mask)),
        (lgp.GPOrdinalClassifier(), np.ma.array(hidden(5).data % 3, mask=hidden(5).mask)),
    ],
)
def test_estimators_see_the_mask(estimator, y):
    X = ROWS[:, None]
    with pytest.raises(lgp.InputError, match=r"y .* in 1 row\(s\).*: 5;"):
        estimator.fit(X, y)
    with pytest.raises(lgp.InputError, match=r"X has .* in 1 row\(s\).*: 4;"):
        estimator.fit(hidden(4)[:, None], y.data)


def test_bounds_move_with_their_targets():
    data = lgp.Data(ROWS, ROWS, upper=ROWS + 1, entry=ROWS - 1, noise_variance=ROWS)
    for by in (-100.0, ROWS):
        moved = data.shifted(by).side_information
        np.testing.assert_array_equal(data.shifted(by).y, ROWS + by)
        np.testing.assert_array_equal(moved["upper"], ROWS + by + 1)
        np.testing.assert_array_equal(moved["entry"], ROWS + by - 1)
        np.testing.assert_array_equal(moved["noise_variance"], ROWS)
    offset = lgp.means.OffsetMean(lgp.means.ZeroMean(), (0,)).taken_off(data)
    np.testing.assert_array_equal(offset.side_information["upper"], 1.0)
    centred = data.merged_rows().centred(5.0)
    np.testing.assert_array_equal(centred.merged.side_information["upper"], centred.merged.y + 1)
