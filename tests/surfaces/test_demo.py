"""The demo persuades: what its page says of each data set holds, and the page is whole."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from latentgp.surfaces import demo
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.demo.forecast import SeasonalDrift


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "pictures"
    sections, print_section = [], demo._print
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            demo, "_print", lambda console, s: (sections.append(s), print_section(console, s))
        )
        done = CliRunner().invoke(app, ["demo", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder, done.output, sections


def test_ours_predicts_best_and_is_beside_baselines(ran):
    _, _, sections = ran
    assert len(sections) == 3
    for section in sections:
        ours, *baselines = section.rows
        assert "latentgp" in ours.name
        assert len(baselines) >= 2
        assert all(ours.nlpd.mean() < row.nlpd.mean() for row in baselines), section.title
        assert ours.again is not None
        assert all(row.again is None for row in baselines)


def test_what_the_lessons_say_holds(ran):
    _, _, (forecast, digits, counts) = ran
    covered = [float(row.scores[-1].rstrip(" %")) for row in forecast.rows]
    assert covered[0] >= 95
    assert covered[1] < 65
    read, wrong = map(int, re.findall(r"\d+", digits.rows[0].scores[-1]))
    assert read > 0.85 * digits.rows[0].nlpd.size
    assert wrong < 0.01 * read
    shares = [float(row.scores[0].rstrip(" %")) for row in digits.rows]
    assert shares[0] == min(shares)
    for row in counts.rows[1:]:
        above, spread = map(float, row.scores[0].split(" ± "))
        assert (above > spread) == (row.name == "constant rate")


def test_the_page_has_every_table_and_picture(ran):
    folder, output, sections = ran
    page = (folder / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'<img src="([^"]+)"', page)
    assert sorted(named) == sorted(path.name for path in folder.glob("*.png"))
    assert len(named) == 3
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in named)
    for section in sections:
        assert all(f"<td>{row.name}</td>" in page for row in section.rows)
        assert all(row.name in output for row in section.rows)
    assert "…" not in output  # no cell was cut
    assert "index.html" in output


def test_a_seasonal_series_with_steady_growth_is_forecast_exactly():
    month = np.arange(60)
    series = np.sin(2 * np.pi * month / 12) + month / 6
    X = month[:, None] / 12
    mean, std = SeasonalDrift().fit(X[:36], series[:36]).predict(X[36:], return_std=True)
    np.testing.assert_allclose(mean, series[36:])
    np.testing.assert_allclose(std, 0, atol=1e-9)
    series[:36] += np.random.default_rng(0).normal(size=36)
    _, std = SeasonalDrift().fit(X[:36], series[:36]).predict(X[36:], return_std=True)
    assert std[12] > std[11] == std[0] > 0
