"""Groupings that the rows cannot tell apart, from each other or from noise."""

import jax
import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.kernels import Constant, CorrelatedLinear, Linear, SameGroup
from latentgp.setup.groupings import is_within, known_by_sums

GROUP, OTHER, FINER, X1, ROW = range(5)
NAMES = "person", "card", "visit", "week", "row"


def rows():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, 40)
    finer = 10.0 * group + rng.integers(0, 3, 40)
    columns = [group, (3 * group) % 5 + 100, finer, rng.normal(size=40), np.arange(40)]
    return np.column_stack(columns).astype(float)


def of(*columns):
    return Constant() * SameGroup().on(*columns)


def lines(group, kernel):
    return kernel.on(X1) * SameGroup().on(group)


ALIKE = {
    "one to one": (of(GROUP) + of(OTHER), "person and card"),
    "nested, written twice": (of(FINER) + of(GROUP, FINER), "visit and person:visit"),
    "intercepts beside slopes": (
        of(GROUP) + lines(OTHER, CorrelatedLinear([1.0, 1.0], [0.0])),
        "person and card",
    ),
    "slopes": (lines(GROUP, Linear()) + lines(OTHER, Linear()), "person and card"),
}
APART = {
    "nested": of(GROUP) + of(FINER),
    "intercepts and slopes": of(GROUP) + lines(OTHER, Linear()),
    "a smooth function": lines(GROUP, lgp.RBF()) + lines(OTHER, lgp.RBF(3.0)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_groupings_of_the_same_groups_are_said(name):
    kernel, columns = ALIKE[name]
    (said,) = known_by_sums(kernel, rows(), NAMES, noisy=True)
    assert said.startswith(f"Columns {columns} group the rows alike")


@pytest.mark.parametrize("name", APART)
def test_of_others_nothing_is_said(name):
    assert known_by_sums(APART[name], rows(), NAMES, noisy=True) == ()


def test_a_group_for_every_row_is_said_where_there_is_noise():
    (said,) = known_by_sums(of(ROW), rows(), None, noisy=True)
    assert said.startswith("Column 4 has a group for every row")
    assert known_by_sums(of(ROW), rows(), None, noisy=False) == ()


def test_groups_within_groups_are_found():
    X = rows()
    assert is_within(X[:, [FINER]], X[:, [GROUP]])
    assert not is_within(X[:, [GROUP]], X[:, [FINER]])
    assert is_within(X[:, [GROUP, FINER]], X[:, [FINER]])


def test_a_table_says_which_columns_group_rows_alike():
    names = np.array(["ann", "bea", "cid", "dan", "eva"])
    own = rows()
    table = pd.DataFrame({"person": names[own[:, GROUP].astype(int)], "week": own[:, X1]})
    table["card"] = "of " + table["person"]
    table["y"] = own[:, X1] + own[:, GROUP]
    formula = "y ~ week + (1 | person) + (1 | card)"
    model = lgp.TableModel.fit(table, formula=formula, max_evaluations=2)
    said = [note for note in model.estimator.diagnostics_.notes if "group the rows alike" in note]
    assert said == [
        "Columns person and card group the rows alike: only the sum of their variances is known."
    ]


def test_what_is_said_is_in_the_fit():
    X = rows()
    data = lgp.Data(X, X[:, X1])
    model = lgp.LatentGP(of(ROW), lgp.Gaussian(0.1))
    fit = lgp.fit(model, data, key=jax.random.key(0), max_evaluations=2)
    assert any("a group for every row" in note for note in fit.diagnostics.notes)
    held = lgp.fit(model, data, key=jax.random.key(0), frozen="likelihood")
    assert not any("a group for every row" in note for note in held.diagnostics.notes)
