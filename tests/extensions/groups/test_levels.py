"""Groups as pandas categories: levels that no row has, and columns that have none."""

import numpy as np
import pandas as pd
import pytest

import latentgp as lgp

FORMULA = "y ~ x + (1 | g)"


def table_of(groups):
    rng = np.random.default_rng(0)
    g, x = rng.integers(0, 6, 120), rng.normal(size=120)
    y = x + rng.normal(size=6)[g] + 0.3 * rng.normal(size=120)
    return pd.DataFrame({"y": y, "x": x, "g": groups(np.array([f"clinic {k}" for k in g]))})


def with_unused(names):
    return pd.Categorical(names, categories=["never", *np.unique(names), "empty"])


@pytest.mark.parametrize("settings", [{"formula": FORMULA}, {"target": "y", "groups": ["g"]}])
def test_levels_that_no_row_has_are_none(settings):
    """They are no groups of the fit; rows of them are as those of any group it never saw."""
    plain, table = table_of(np.array), table_of(with_unused)
    ours, theirs = (
        lgp.TableModel.fit(own, **settings, random_state=0, max_evaluations=4)
        for own in (table, plain)
    )
    effects, expected = (own.group_effects("g")["intercept"] for own in (ours, theirs))
    assert effects.names == expected.names == tuple(f"clinic {k}" for k in range(6))
    np.testing.assert_array_equal(effects.estimate, expected.estimate)
    with pytest.warns(UserWarning, match="never saw: 'never'"):
        found = ours.predict(table.iloc[:2].assign(g=pd.Categorical(["never", "never"])))
    with pytest.warns(UserWarning, match="never saw: 'new'"):
        unseen = theirs.predict(plain.iloc[:2].assign(g="new"))
    np.testing.assert_array_equal(found["std"], unseen["std"])


@pytest.mark.parametrize("categories", [[], ["a", "b"]])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"formula": FORMULA}, "every row has a gap in a column of the formula"),
        ({"target": "y", "groups": ["g"]}, "is of columns that are left out"),
    ],
)
def test_a_column_of_no_level_is_refused(categories, settings, sentence):
    table = table_of(lambda names: pd.Categorical([None] * len(names), categories=categories))
    with pytest.raises(lgp.InputError, match=sentence):
        lgp.TableModel.fit(table, **settings)
