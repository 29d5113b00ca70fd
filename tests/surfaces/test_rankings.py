"""Pictures of the effects of groups, and comparison of models of a table."""

import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import latentgp as lgp
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.coefficients import GroupEffects

EFFECTS = {
    "intercept": GroupEffects(
        ("low", "high", "unsure"), np.array([-2.0, 3.0, 0.1]), np.array([0.5, 0.5, 1.0])
    ),
    "dose": GroupEffects(("low", "high", "unsure"), np.arange(3.0), np.full(3, 0.1)),
}


def test_groups_are_in_order_with_a_panel_an_effect():
    first, second = lgp.plots.caterpillar(EFFECTS, group="clinic", level=0.9).axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["high", "unsure", "low"]
    assert [tick.get_text() for tick in second.get_yticklabels()] == ["unsure", "high", "low"]
    assert first.get_xlabel() == "intercept, 90 % interval"
    assert first.get_ylabel() == "clinic"
    bars = np.array([bar[:, 0] for bar in first.collections[0].get_segments()])
    np.testing.assert_allclose(bars, EFFECTS["intercept"].table(0.9).iloc[[1, 2, 0], 2:])
    assert len(set(map(tuple, first.collections[0].get_colors()))) == 2


def test_many_groups_have_ranks_and_several_latents_a_panel_each():
    names = tuple(map(str, range(100)))
    own = GroupEffects(names, np.zeros((100, 2)), np.ones((100, 2)))
    first, second = lgp.plots.caterpillar({"intercept": own}).axes
    assert first.get_ylabel() == "rank of 100 groups of group"
    assert second.get_xlabel().startswith("intercept [1]")


GENERATOR = np.random.default_rng(0)
TABLE = pd.DataFrame({"x": GENERATOR.uniform(-2, 2, 60), "g": np.arange(60) % 6})
TABLE["y"] = 1 + TABLE["x"] ** 2 + TABLE["g"] % 3 + 0.3 * GENERATOR.normal(size=60)


def fitted(formula, table=TABLE, **settings):
    return lgp.TableModel.fit(table, formula=formula, random_state=0, **settings)


@pytest.fixture(scope="module")
def models():
    return {"line": fitted("y ~ x"), "curve": fitted("y ~ s(x) + (1 | g)")}


def test_the_command_line_draws_groups(models, tmp_path):
    path = models["curve"].save(tmp_path / "model")
    asked = ["coefficients", str(path), "--groups", "g", "--plot", f"{tmp_path}/ranks.png"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert (tmp_path / "ranks.png").stat().st_size > 1000
    asked = ["coefficients", str(path), "--plot", f"{tmp_path}/ranks.png"]
    refused = CliRunner().invoke(app, asked)
    assert "name their column by --groups" in str(refused.exception)


def test_models_are_compared_by_differences_of_each_row(models):
    found = lgp.TableModel.compare(models, TABLE)
    assert found.names == ("curve", "line")
    one, other = (models[name].leave_one_out(TABLE) for name in found.names)
    away = other.log_density - one.log_density
    assert found.difference[1] == pytest.approx(away.sum())
    # Vehtari, Gelman & Gabry (2017), equation 24
    assert found.difference_error[1] == pytest.approx(np.sqrt(60 * np.var(away, ddof=1)), rel=0.02)
    assert "curve" in str(found).splitlines()[2]


def test_what_does_not_compare_is_refused_in_a_sentence(models):
    compare = lgp.TableModel.compare
    with pytest.raises(lgp.InputError, match="needs two models at least"):
        compare({"line": models["line"]}, TABLE)
    other = fitted("z ~ x", TABLE.assign(z=TABLE["y"] ** 2))
    with pytest.raises(lgp.InputError, match="the models predict 'y', 'z'"):
        compare({**models, "other": other}, TABLE.assign(z=0.0))
    counted = TABLE.assign(y=np.arange(60) % 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_counts = fitted("y ~ x", counted, likelihood="poisson", max_evaluations=3)
    with pytest.raises(lgp.InputError, match="has densities, that of the others probabilities"):
        compare({**models, "counts": of_counts}, counted)
    gaps = TABLE.assign(w=np.where(np.arange(60) < 5, np.nan, 1.0 * np.arange(60)))
    with pytest.raises(lgp.InputError, match=r"line: 60, fewer: 55.*dropna\(subset="):
        compare({"line": models["line"], "fewer": fitted("y ~ x + w", gaps)}, gaps)
