"""Categories of many levels in a table: an effect for each level by default."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.evaluation.comparison import compare
from latentgp.surfaces.report import write_report
from latentgp.surfaces.tables.columns import SeriesColumn

pytestmark = pytest.mark.usefixtures("x64")

LEVELS = 40


def shops_table(rows: int = 200) -> pd.DataFrame:
    """Sales by the day of the year, a weather of three kinds, and shops that differ."""
    rng = np.random.default_rng(0)
    shop, day = rng.permutation(np.arange(rows) % LEVELS), rng.uniform(0, 6, rows)
    of_shop = rng.normal(size=LEVELS)
    table = pd.DataFrame({"shop": [f"s{k}" for k in shop], "day": day})
    table["weather"] = rng.choice(["dry", "wet", "hot"], rows)
    table["sold"] = np.sin(day) + of_shop[shop] + 0.1 * rng.normal(size=rows)
    table["truth"] = np.sin(day) + of_shop[shop]
    return table


TABLE: Any = shops_table()
TRAIN: Any = TABLE[:160]
NEW: Any = TABLE[160:]
GIVEN: dict[str, Any] = {"leave_out": ["truth"], "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return lgp.TableModel.fit(TRAIN, "sold", **GIVEN)


def test_every_level_has_an_effect_and_the_notes_say_so(model):
    notes = " ".join(model.notes)
    assert f"shop: an effect for each of {LEVELS} levels" in notes
    assert "a smooth function of 'day'" in notes
    error = model.predict(NEW)["mean"] - NEW["truth"]
    assert np.sqrt(np.mean(error**2)) < 0.15  # of rows with noise of 0.1
    few = lgp.TableModel.fit(TRAIN, "sold", groups=(), **GIVEN)
    assert "shop: 40 categories" in " ".join(few.notes)
    old = few.predict(NEW)["mean"] - NEW["truth"]
    assert np.mean(error**2) < 0.5 * np.mean(old**2)


def test_effects_of_levels_are_given(model):
    effects = model.group_effects("shop")["intercept"]
    means = TABLE.groupby("shop")["truth"].mean()
    assert np.corrcoef(effects.estimate, means[list(effects.names)])[0, 1] > 0.9
    assert "shop" in str(model.mixed_summary())


def test_unseen_and_missing_levels_have_the_prior(model):
    odd = NEW[:2].assign(shop=["never", None])
    with pytest.warns(UserWarning, match="levels that training never saw"):
        found = model.predict(odd)
    assert (found["std"] > 3 * model.predict(NEW[:2])["std"]).all()


def test_a_missing_level_of_training_is_one_of_the_levels():
    table = TRAIN.assign(shop=TRAIN["shop"].where(TRAIN["shop"] != "s3"))
    table["sold"] += 5.0 * table["shop"].isna()
    model = lgp.TableModel.fit(table, "sold", **GIVEN)
    assert "missing is one of them" in " ".join(model.notes)
    gap = NEW[:1].assign(shop=[None])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict(gap)["mean"].item() > 3.0
    others = SeriesColumn.of_levels(pd.Series(["None", "10", "9", None], name="shop", dtype=object))
    assert others.labels == ("10", "9", "None", " missing")
    assert others.encode(pd.Series([None, "None"], dtype=object))[:, 0].tolist() == [3, 2]


def test_noise_of_a_level_a_row_is_harmless():
    """Nothing is learned from it, and predictions are as good as without it."""
    rng = np.random.default_rng(1)
    table: Any = shops_table().assign(shop=[f"k{k}" for k in rng.permutation(200) // 2 * 2])
    table["sold"] = np.sin(table["day"]) + 0.1 * rng.normal(size=200)
    models = [lgp.TableModel.fit(table[:160], "sold", **GIVEN)]
    given: dict[str, Any] = GIVEN | {"leave_out": ["truth", "shop"]}
    models.append(lgp.TableModel.fit(table[:160], "sold", **given))
    with pytest.warns(UserWarning, match="never saw"):
        one, other = (own.evaluate(table[160:]) for own in models)
    name = "negative log predictive density"
    assert one[name] < other[name] + 0.1


def test_integers_are_levels_where_they_are_named():
    table = TRAIN.assign(shop=TRAIN["shop"].str[1:].astype(int))
    plain = lgp.TableModel.fit(table, "sold", **GIVEN)
    assert "shop: number" in " ".join(plain.notes)
    model = lgp.TableModel.fit(table, "sold", groups={"shop": ["day"]}, **GIVEN)
    assert "shop: an effect for each of 40 levels ('0', '1'" in " ".join(model.notes)
    assert set(model.group_effects("shop")) == {"intercept", "day"}
    with pytest.raises(lgp.InputError, match="there is no column 'shops'"):
        lgp.TableModel.fit(table, "sold", groups=["shops"], **GIVEN)
    with pytest.raises(lgp.InputError, match="there is no column '1': the columns are 'shop'"):
        lgp.TableModel.fit(table, "sold", groups=[1], **GIVEN)  # of encoded columns it is the shop


def test_the_command_line_names_groups(tmp_path):
    TRAIN.assign(shop=TRAIN["shop"].str[1:].astype(int)).to_csv(tmp_path / "t.csv", index=False)
    asked = f"fit {tmp_path}/t.csv --target sold --leave-out truth --out {tmp_path}/m".split()
    said = CliRunner().invoke(app, [*asked, "--groups", "shop"])
    assert "shop: an effect for each of 40 levels" in said.output
    refused = CliRunner().invoke(app, [*asked, "--groups", "shop", "--batch-size", "50"])
    assert "effects of groups are fitted in memory" in str(refused.exception)


def test_levels_of_files_in_batches_are_refused_by_name(tmp_path):
    TRAIN.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(lgp.InputError, match="each level of 'shop' take all rows at once"):
        lgp.TableModel.fit_files(tmp_path / "t.csv", "sold", batch_size=50, groups=["shop"])


@pytest.mark.slow
@pytest.mark.parametrize("side", ["trials", "censored"])
def test_a_likelihood_that_a_side_column_brings_has_effects(side):
    """Nobody asked for another likelihood."""
    rng = np.random.default_rng(0)
    rate = 1 / (1 + np.exp(-TABLE["truth"]))
    table = TABLE.drop(columns="truth").assign(trials=8, censored=rng.integers(0, 2, len(TABLE)))
    table["sold"] = rng.binomial(8, rate) if side == "trials" else rng.exponential(rate)
    given = {"side_columns": {side: side}, "random_state": 0}
    unused = [name for name in ("trials", "censored") if name != side]
    model = lgp.TableModel.fit(table, "sold", leave_out=unused, max_evaluations=30, **given)
    assert "an effect for each of 40 levels" in " ".join(model.notes)
    assert np.isfinite(model.predict(NEW.assign(trials=8))["mean"]).all()


def test_a_comparison_says_who_has_effects():
    own = TRAIN.drop(columns="truth")
    found = compare(own, "sold", likelihoods=["auto", "gaussian"], methods=["auto"])
    notes = {row.name: row.note for row in found.rows}
    assert "Every level of 'shop' has an effect." in notes["auto"]
    assert "effect" not in notes["gaussian"]


def test_what_effects_do_not_go_with_has_columns_of_levels():
    for settings in ({"kernel": lgp.RBF()}, {"n_inducing": 10}, {"likelihood": "student-t"}):
        model = lgp.TableModel.fit(TRAIN, "sold", max_evaluations=2, **settings, **GIVEN)
        assert "the 10 rarest share one" in " ".join(model.notes)


def test_it_is_saved_reported_and_exported(model, tmp_path):
    read = lgp.load(model.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(read.predict(NEW), model.predict(NEW))
    page = write_report(model, TRAIN, tmp_path / "report.html").read_text()
    assert "an effect for each of 40 levels" in page
    exported = model.export(tmp_path / "exported", formats=["numpy"])
    assert exported
    effects = model.effects(TRAIN)
    assert effects


@pytest.mark.slow
@pytest.mark.parametrize("target", ["count", "two", "three"])
def test_other_targets(target):
    rng = np.random.default_rng(3)
    table: Any = shops_table(600)
    truth = table.pop("truth")
    label = np.digitize(truth + 0.5 * rng.normal(size=600), [-0.5, 0.5][: 1 + (target == "three")])
    table["sold"] = (
        rng.poisson(np.exp(truth)) if target == "count" else np.array(list("abc"))[label]
    )
    model = lgp.TableModel.fit(table, "sold", random_state=0)
    assert "an effect for each of 40 levels" in " ".join(model.notes)
    effects = model.group_effects("shop")["intercept"].estimate.reshape(LEVELS, -1)
    means = truth.groupby(table["shop"]).mean()[list(model.encoder.groups[0].labels)]
    assert np.abs(np.corrcoef(effects.T, means)[-1, :-1]).max() > 0.8
