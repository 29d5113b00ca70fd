"""Every Python block of the README, the guides and CONTRIBUTING runs; so do the examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/guides/*.md"))]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    run(example.read_text(), tmp_path)
