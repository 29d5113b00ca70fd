"""Python blocks of the README, the guides and CONTRIBUTING run, so do examples; links are right."""

import csv
import re
import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

from latentgp.choosing.registry import METHODS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/guides/*.md"))]
# Blocks that run whole conformance suites, long chains or many fits.
LONG = (
    *(
        "elsewhere.md",
        "estimators.md",
        "from-geostatistics.md",
        "from-stan-and-inla.md",
        "maps.md",
        "own-likelihood.md",
    ),
    *("priors-to-loo.md", "sampling.md", "scale.md", "deep.md", "time-series.md"),
)
MARKS = {"CONTRIBUTING.md": pytest.mark.always} | dict.fromkeys(LONG, pytest.mark.slow)
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("[be]*/README.md")),
    *sorted(ROOT.glob("benchmarks/results/*.md")),
    *sorted(ROOT.glob("experiments/sources/*.md")),
]
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a file as a script in a folder of its own and gives what it prints."""

    def run(path):
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("MPLBACKEND", "agg")
    before = dict(jax.config.values)
    yield run
    for name, value in before.items():
        if jax.config.values[name] != value:
            jax.config.update(name, value)


@pytest.mark.parametrize(
    "document",
    [pytest.param(path, marks=MARKS.get(path.name, ())) for path in DOCUMENTS],
    ids=lambda path: path.name,
)
def test_blocks_run(document, run, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)
    if document.name not in ("command-line.md", "cost.md"):
        assert blocks
    (tmp_path / "blocks.py").write_text("\n".join(blocks))
    printed = run(tmp_path / "blocks.py")
    shown = re.findall(r"```text\n(.*?)```", document.read_text(), flags=re.DOTALL)
    if shown:
        assert_printed(printed, "".join(shown))


def assert_printed(printed, shown):
    """The same words, and the same numbers but for what another processor rounds otherwise."""
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", shown)
    found = (re.findall(NUMBER, page) for page in (printed, shown))
    numbers = [[float(text.replace(",", "")) for text in page] for page in found]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=0.01)


def test_output_that_is_not_as_shown_is_found():
    assert_printed("mean 2.001, 95 %\n", "mean 2.00, 95 %\n")
    for printed in ("mean 2.1, 95 %\n", "mode 2.00, 95 %\n", "mean 2.00, 95 %\nmore\n"):
        with pytest.raises(AssertionError):
            assert_printed(printed, "mean 2.00, 95 %\n")


def table_of_methods() -> str:
    """The methods by name, how data enter and for which likelihoods, as a table of Markdown."""
    rows = [
        f"| `{entry.name}` (`{name}`) | {entry.data_enter} | {entry.likelihoods} |"
        for name, entry in METHODS.items()
    ]
    classes = dict.fromkeys(entry.method for entry in METHODS.values())
    in_batches = ", ".join(f"`{own.__name__}`" for own in classes if own.works_in_batches)
    last = f"| `Stochastic` of {in_batches} | the same, a batch of rows at a time | as theirs |"
    by_sites = ", ".join(f"`{own.__name__}`" for own in classes if own.makes_sites)
    integrated = f"| `Integrated` of {by_sites} | the same, averaged over hyper-parameters |"
    heads = "| method | data enter by | likelihoods |", "|---|---|---|"
    return "\n".join([*heads, *rows, last, f"{integrated} as theirs |"])


def test_the_first_page_is_short_and_shows_what_its_examples_print():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```python") == 2
    assert all(shown.strip() for _, shown in examples)
    first, second = (example.splitlines() for example, _ in examples)
    assert len(list(filter(None, first))) <= 4
    assert len(second) <= 15
    _, _, rest = text.partition("<!-- methods: begin -->\n")
    table, end, _ = rest.partition("\n<!-- methods: end -->")
    assert end
    assert table == table_of_methods(), "write what table_of_methods() gives into README.md"


def test_every_figure_of_the_summary_is_in_its_section_of_the_benchmarks():
    page = (ROOT / "docs/benchmarks.md").read_text()
    parts = [part.partition("\n") for part in re.split(r"^## ", page, flags=re.MULTILINE)]
    sections = {name: text.replace(",", "") for name, _, text in parts}
    with (ROOT / "benchmarks/results/summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 50
    for row in rows:
        section = sections[row["section"]]
        figures = row["latentgp"], row["peer_value"], row["ratio"] and f"{row['ratio']}x"
        assert any(figures[1:]), row
        for figure in filter(None, figures):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]\d)", section), (figure, row)
        assert re.split("[,:]", row["task"])[0] in section, row
        assert row["date"] in section, row
        assert row["machine"].lower() in section.lower(), row


@pytest.mark.always
def test_every_script_that_measures_is_among_the_benchmarks():
    named = set(re.findall(r"benchmarks/(\w+)\.py", (ROOT / "docs/benchmarks.md").read_text()))
    scripts = {path.stem: path.read_text() for path in ROOT.glob("benchmarks/*.py")}
    main = {name for name, text in scripts.items() if 'if __name__ == "__main__"' in text}
    assert named <= set(scripts)
    without_peers = {"defaults", "input_warping", "kernel_families", "small_tables"}
    assert main - named <= {"ours"} | without_peers


def links_of(document):
    """The files and headings of this repository that a document points at."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text)
    return [((document.parent / path if path else document).resolve(), at) for path, at in links]


def anchors_of(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target, heading in links_of(page):
        assert target.exists(), target
        assert not heading or heading in anchors_of(target), (target, heading)


def test_the_index_has_every_page():
    indexes = ROOT / "docs/index.md", ROOT / "docs/decisions/index.md"
    listed = {target for index in indexes for target, _ in links_of(index)}
    assert not set(ROOT.glob("docs/**/*.md")) - {indexes[0]} - listed


@pytest.mark.parametrize(
    "example",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem == "thompson_sampling")) for p in EXAMPLES],
    ids=lambda path: path.name,
)
def test_examples_run(example, run):
    run(example)


def test_thompson_sampling_finds_higher_places():
    example = runpy.run_path(str(ROOT / "examples/thompson_sampling.py"))
    X, y = example["optimised"](np.random.default_rng(0), rounds=2, number=500)
    assert 16 < len(X) <= 32
    assert y[16:].max() > y[:16].max()
