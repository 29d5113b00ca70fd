"""`latentgp arena`: a tiny folder of made-up sets, and ranks beside made-up systems."""

import numpy as np
import pytest
from typer.testing import CliRunner

from latentgp import InputError
from latentgp.surfaces.cli.app import app
from latentgp.surfaces.cli.arena import mean_ranks, published, ranked, split

PUBLISHED = """algorithm,dataset,r2_test
Linear,line,0.5
Forest,line,0.2
Linear,wave,nan
Forest,wave,0.9999
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("arena") / "srbench"
    path.mkdir()
    generator = np.random.default_rng(0)
    x = np.linspace(-2, 2, 60)
    for name, y in ("line", x), ("wave", np.sin(2 * x)):
        y = y + 0.1 * generator.normal(size=60)
        np.savez(path / f"{name}.npz", X=x[:, None], y=y)
    np.savez(path / "larger.npz", X=generator.normal(size=(200, 9)), y=np.zeros(200))
    (path / "published.csv").write_text(PUBLISHED)
    return path


def test_a_line_a_set_the_smallest_first_and_mean_ranks(folder):
    done = CliRunner().invoke(app, ["arena", str(folder.parent), "--sets", "2"])
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    of_sets = {words[0]: words for words in lines if words[0] in ("line", "wave", "larger")}
    assert set(of_sets) == {"line", "wave"}
    assert of_sets["line"][1] == "45"
    assert float(of_sets["line"][2]) > 0.9
    assert of_sets["line"][3:6] == ["1", "of", "3"]
    assert of_sets["line"][6:8] == ["Linear", "0.500"]
    assert of_sets["wave"][3:6] == ["2", "of", "2"]
    assert "Mean ranks: latentgp 1.5, Linear 2.0, Forest 2.0." in done.output


def test_no_folder_is_one_sentence(folder, tmp_path):
    with pytest.raises(InputError, match=r"no table of SRBench: give the folder with published"):
        published(tmp_path)
    (tmp_path / "published.csv").write_text(PUBLISHED)
    with pytest.raises(InputError, match=r"no table of SRBench"):
        published(tmp_path)
    done = CliRunner().invoke(app, ["arena", str(tmp_path / "nowhere")])
    assert isinstance(done.exception, InputError)


def test_scores_that_are_not_known_are_left_out(folder):
    assert published(folder) == {"line": {"Linear": 0.5, "Forest": 0.2}, "wave": {"Forest": 0.9999}}


def test_equal_scores_share_a_rank():
    assert ranked({"a": 0.9, "b": 0.5001, "c": 0.5002, "d": 0.1}) == {
        "a": 1,
        "b": 2.5,
        "c": 2.5,
        "d": 4,
    }
    ranks = mean_ranks({"x": {"a": 1.0, "b": 0.0}, "y": {"b": 1.0, "c": 0.5, "a": 0.0}})
    assert list(ranks.items()) == [("b", 1.5), ("a", 2), ("c", 2)]


def test_a_split_is_in_deviations_of_what_is_learned_from():
    generator = np.random.default_rng(1)
    X, y = generator.normal(3, 2, (12_000 + 2_001, 2)), generator.normal(5, 4, 14_001)
    X[:, 1] = 7
    X, y, X_test, y_test = split(X, y, 860)
    assert len(X) == len(y) == 10_000
    assert len(X_test) == len(y_test) == 3_501
    assert np.allclose([X.mean(0), X.std(0)], [[0, 0], [1, 0]])
    assert np.allclose([y.mean(), y.std()], [0, 1])
    assert not np.any(X_test[:, 1])
