"""Groupings that the rows cannot tell apart, from each other or from the classes."""

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp
from latentgp.extensions.groups.groupings import is_within, untold_variances
from latentgp.kernels import Constant, CorrelatedLinear, FixedEffects, Linear, SameGroup

GROUP, OTHER, FINER, X1 = range(4)
NAMES = "person", "card", "visit", "week"


def rows():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, 40)
    finer = 10.0 * group + rng.integers(0, 3, 40)
    columns = [group, (3 * group) % 5 + 100, finer, rng.normal(size=40)]
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
    "intercepts and lines without": of(GROUP)
    + lines(OTHER, CorrelatedLinear([1.0], intercept=False)),
    "a smooth function": lines(GROUP, lgp.RBF()) + lines(OTHER, lgp.RBF(3.0)),
}


def said_of(kernel, y=None, likelihood=None):
    model = lgp.LatentGP(kernel, likelihood or lgp.Gaussian())
    return untold_variances(model, lgp.Data(rows(), np.arange(40.0) if y is None else y), NAMES)


@pytest.mark.parametrize("name", ALIKE)
def test_groupings_of_the_same_groups_are_said(name):
    kernel, columns = ALIKE[name]
    (said,) = said_of(kernel)
    assert said.startswith(f"Columns {columns} group the rows alike")


@pytest.mark.parametrize("name", APART)
def test_of_others_nothing_is_said(name):
    assert said_of(APART[name]) == ()


@pytest.mark.parametrize("likelihood", [lgp.Bernoulli(), lgp.Ordinal([0.0]), lgp.Poisson()])
def test_groups_that_tell_classes_apart_are_said(likelihood):
    apart = (rows()[:, GROUP] > 2).astype(float)
    said = said_of(of(GROUP), apart, likelihood)
    assert [line[:34] for line in said] == (
        []
        if isinstance(likelihood, lgp.Poisson)
        else ["Column person tells the classes apart"[:34]]
    )
    apart[0] = 1 - apart[0]
    assert said_of(of(GROUP), apart, likelihood) == ()


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


FIXED = FixedEffects(np.full(2, 100.0)).on(OTHER, X1)
SAYS = {
    "one column": (lambda X: X[:, X1] > 0.3, "Column week separates the classes: its coefficient"),
    "some together": (
        lambda X: X[:, X1] + X[:, OTHER] / 2 > 51,
        "Columns card and week separate the classes: coefficients are",
    ),
    "none": (lambda X: np.arange(40) % 2 == 0, None),
}


@pytest.mark.parametrize("name", SAYS)
@pytest.mark.parametrize("likelihood", [lgp.Bernoulli(), lgp.Poisson()])
def test_fixed_effects_that_separate_classes_are_said(name, likelihood):
    law, sentence = SAYS[name]
    y = law(rows()).astype(float)
    model = lgp.LatentGP(FIXED, likelihood, lgp.ConstantMean())
    said = untold_variances(model, lgp.Data(rows(), y), NAMES)
    if sentence is None or isinstance(likelihood, lgp.Poisson):
        assert said == ()
    else:
        assert [line[: len(sentence)] for line in said] == [sentence]


def test_a_formula_says_which_column_separates_classes():
    table = pd.DataFrame({"y": ["a"] * 10 + ["b"] * 10, "x": np.arange(20.0) ** 1.1})
    model = lgp.TableModel.fit(table, formula="y ~ x", learn_hyperparameters=True)
    told = [note for note in model.estimator.diagnostics_.notes if "separates" in note]
    assert told == [
        "Column x separates the classes: its coefficient is bounded by the prior alone."
    ]
