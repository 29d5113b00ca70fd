"""The run of all experiments: its parts exist, failures are recorded, what has ended is kept."""

import ast
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NOT_ITS_PARTS = {"all", "common", "seismic_forward"}
whole = importlib.import_module("all")
PARTS = list(whole.parts_of(whole.TABLE))

pytestmark = pytest.mark.quick


def flags_of(script):
    """Flags of a script, and of all experiments."""
    texts = ((EXPERIMENTS / name).read_text() for name in (script, "common.py"))
    return {flag for text in texts for flag in re.findall(r'add_argument\(\s*"(--[\w-]+)"', text)}


def choices_of_parts(script):
    """Values that `--parts` takes: those of PARTS or its keys, else the default."""
    tree = ast.parse((EXPERIMENTS / script).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "PARTS":
            value = node.value
            if isinstance(value, ast.DictComp):  # of functions by their names
                return [name.id for name in value.generators[0].iter.elts]
            return [key.value for key in getattr(value, "keys", None) or value.elts]
        if (
            isinstance(node, ast.Call)
            and node.args
            and getattr(node.args[0], "value", 0) == "--parts"
        ):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "choices" not in given:
                return ast.literal_eval(given["default"])
    return []


@pytest.mark.always
def test_every_script_has_a_part_and_every_name_once():
    scripts = {path.stem for path in EXPERIMENTS.glob("*.py")} - NOT_ITS_PARTS
    assert {part.script for part in PARTS} == scripts
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_options_of_a_part_exist(part):
    script, *options = shlex.split(part.command)
    flags = [option for option in options if option.startswith("--")]
    assert set(flags) <= flags_of(script)
    if "--parts" in flags:
        values = options[options.index("--parts") + 1 :]
        after = [place for place, value in enumerate(values) if value.startswith("--")]
        named = values[: after[0]] if after else values
        assert named
        assert set(named) <= set(choices_of_parts(script))


def test_choices_of_parts_are_found():
    assert choices_of_parts("neighbour_chains.py") == ["moves", "joint", "data"]
    assert "crash" in choices_of_parts("time_series.py")
    assert "over-points" in choices_of_parts("black_box_at_size.py")
    assert "network" in choices_of_parts("particle_flows.py")
    assert "classifiers" in choices_of_parts("pseudo_marginal.py")


def test_the_list_has_every_part_and_the_hours(capsys):
    assert whole.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [part.name for part in PARTS]
    hours = sum(float(part.minutes.lstrip("~")) for part in PARTS) / 60
    assert lines[-1] == f"{len(PARTS)} parts, {hours:.1f} hours"
    assert f"about {hours:.0f} hours" in (EXPERIMENTS / "README.md").read_text()


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a table of two scripts, of which one fails; status, records and what is printed."""
    out = tmp_path / "results"
    (tmp_path / "good.py").write_text("import sys; print('seen', *sys.argv[1:])")
    (tmp_path / "bad.py").write_text("# real_data=False\nimport sys; sys.exit(3)")

    def run(*arguments):
        table = "good/a ~1; bad 2\ngood/b ~1 --many 1 2"
        given = ["--data-dir", "folder", "--out", str(out), *arguments]
        status = whole.main(given, table, tmp_path)
        lines = (out / "all.jsonl").read_text().splitlines()
        return status, [json.loads(line) for line in lines], capsys.readouterr().out

    run.folder = tmp_path
    return run


def test_a_part_that_fails_is_recorded_and_what_ended_is_not_run_again(run):
    status, records, printed = run()
    assert status == 1
    assert [(r["part"], r["status"]) for r in records] == [("good/a", 0), ("bad", 3), ("good/b", 0)]
    assert "failed: bad" in printed
    seen = (run.folder / "results/good/b/printed.txt").read_text()
    assert "--many 1 2 --data-dir folder --out" in seen
    assert "--parts a" in (run.folder / "results/good/a/printed.txt").read_text()
    status, records, _ = run()
    assert status == 1
    assert [record["part"] for record in records[3:]] == ["bad"]
    (run.folder / "bad.py").write_text("# real_data=False")
    status, records, printed = run()
    assert status == 0
    assert len(records) == 5
    assert "failed: none" in printed
    assert len(run()[1]) == 5
    assert [r["part"] for r in run("--again", "--only", "good")[1][5:]] == ["good/a", "good/b"]
    assert [r["part"] for r in run("--again", "--only", "good/b")[1][7:]] == ["good/b"]


def test_names_that_are_not_there_are_refused(run):
    with pytest.raises(SystemExit):
        run("--only", "nothing")
    with pytest.raises(SystemExit):
        whole.main([])
