"""Builds the documentation's site: `python docs/site/make.py FOLDER`.

Pages are gathered in a folder of their own: the documents as they are, the README as the first one,
the reference, the pictures with their code and the examples. Sphinx makes HTML of them; a warning
fails, and so does what `checks.py` finds in the HTML.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from checks import faults
from gallery import DOCS, ROOT, example, gallery
from reference import write_reference

HERE = Path(__file__).parent
_DATA = shutil.ignore_patterns("*.csv", "*.jsonl")
COPIED = (
    *("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
    *("benchmarks/README.md", "experiments/README.md", "src/latentgp/datasets/SOURCES.md"),
)
PROJECT = (
    *("docs/glossary", "docs/architecture", "docs/benchmarks", "docs/arena"),
    *("Scripts of benchmarks <benchmarks/README>", "Experiments <experiments/README>"),
    *("CONTRIBUTING", "CHANGELOG", "SECURITY", "src/latentgp/datasets/SOURCES"),
)


def contents(caption: str, pages: list[str]) -> str:
    """A hidden table of contents, which the navigation shows."""
    lines = [f":caption: {caption}", ":hidden:", ":titlesonly:", "", *pages]
    return "\n".join(["", "```{toctree}", *lines, "```", ""])


def with_decisions(text: str, page: str) -> str:
    """Numbers such as [0001] in the text of a page as links to the decision."""
    numbered = {path.name[:4]: path for path in DOCS.glob("decisions/*.md")}

    def link(found: re.Match[str]) -> str:
        decision = numbered.get(found[1])
        path = decision and os.path.relpath(decision, (ROOT / page).parent)
        return f"[\\[{found[1]}\\]]({path})" if path else found[0]

    return re.sub(r"\[(\d{4})\](?!\()", link, text)


def gather(folder: Path) -> None:
    """Write the sources of all pages into an empty folder."""
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("site", "*.py"))
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "benchmarks/results", folder / "benchmarks/results", ignore=_DATA)
    shutil.copytree(ROOT / "experiments/sources", folder / "experiments/sources")
    (folder / "docs/gallery.md").write_text(gallery().replace("../README.md", "../index.md"))
    for path in folder.rglob("*.md"):
        path.write_text(with_decisions(path.read_text(), str(path.relative_to(folder))))
    # An index or a decision links to these, the navigation does not.
    tables = "docs/decisions", "benchmarks/results", "experiments/sources"
    for page in [page for table in tables for page in folder.glob(f"{table}/*.md")]:
        page.write_text(f"---\norphan: true\n---\n\n{page.read_text()}")
    (folder / "examples").mkdir()
    scripts = sorted(ROOT.glob("examples/*.py"))
    for script in scripts:
        (folder / "examples" / f"{script.stem}.md").write_text(example(script))
    listed = re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", (ROOT / "examples/README.md").read_text())
    of_scripts = contents("Examples", [script.stem for script in scripts])
    (folder / "examples/README.md").write_text(listed + of_scripts)
    write_reference(folder / "reference")
    guides = dict.fromkeys(re.findall(r"\]\((guides/[\w-]+)\.md", (DOCS / "index.md").read_text()))
    (folder / "index.md").write_text(
        (ROOT / "README.md").read_text()
        + contents("Guides", ["docs/index", *(f"docs/{guide}" for guide in guides)])
        + contents("Pictures and code", ["docs/gallery", "examples/README"])
        + contents("Reference", ["reference/index"])
        + contents("Project", list(PROJECT))
    )


def main(out: Path) -> int:
    """Build into a folder, which takes the place of an earlier site; the exit status."""
    if out.exists() and any(out.iterdir()) and not (out / ".buildinfo").exists():
        print(f"{out} holds something else than a site; give another folder", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    from sphinx.cmd.build import main as sphinx

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pages"
        folder.mkdir()
        gather(folder)
        strict = "-W", "--keep-going", "-q", "-c", str(HERE), "-d", f"{name}/doctrees"
        if sphinx(["-b", "html", *strict, str(folder), str(out)]):
            return 1
    found = faults(out)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
