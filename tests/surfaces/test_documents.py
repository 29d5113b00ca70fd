"""Python blocks of the README, the guides and CONTRIBUTING run, so do examples; links are right."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/guides/*.md"))]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def run(code: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "document",
    [
        # Whose blocks run whole conformance suites.
        pytest.param(path, marks=[pytest.mark.slow] * (path.name == "CONTRIBUTING.md"))
        for path in DOCUMENTS
    ],
    ids=lambda path: path.name,
)
def test_blocks_run(document, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)
    if document.name not in ("command-line.md", "cost.md"):
        assert blocks
    run("\n".join(blocks), tmp_path)


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
    index = ROOT / "docs/index.md"
    pages = set(ROOT.glob("docs/**/*.md")) - {index}
    assert not pages - {target for target, _ in links_of(index)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    run(example.read_text(), tmp_path)
