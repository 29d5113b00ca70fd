"""Page of the pictures, each with the code that makes it, and a page for each example."""

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

# The script of each picture of docs/images, and its function where it has several.
MADE_BY: dict[str, tuple[str, str | None]] = {
    "co2-forecast": ("src/latentgp/surfaces/demo/forecast.py", None),
    "likelihoods": ("docs/pictures.py", "likelihoods"),
    "methods": ("docs/pictures.py", "methods"),
    "representations": ("docs/pictures.py", "representations"),
    "time-series": ("docs/pictures.py", "time_series"),
    "field-variogram": ("docs/pictures.py", "field_variogram"),
    "field-maps": ("docs/pictures.py", "field_maps"),
    "field-draws": ("docs/pictures.py", "field_draws"),
    "caterpillar": ("docs/pictures.py", "caterpillar"),
    "smooths": ("benchmarks/smooths.py", "drawn"),
    "report-classifier": ("docs/report_pictures.py", None),
    "report-counts": ("docs/report_pictures.py", None),
    "report-series": ("docs/report_pictures.py", None),
    "calibration": ("experiments/calibration.py", "picture"),
    "benchmarks": ("benchmarks/summary.py", "drawn"),
    "arena-m3": ("benchmarks/arena/report.py", "m3"),
    "arena-categories": ("benchmarks/arena/report.py", "categories"),
    "arena-duqling": ("benchmarks/arena/report.py", "duqling"),
    "arena-uci": ("benchmarks/arena/report.py", "uci"),
    "arena-survival": ("benchmarks/arena/report.py", "survival"),
    "arena-srbench": ("benchmarks/arena/report.py", "srbench"),
    "arena-heaton": ("benchmarks/arena/report.py", "heaton"),
    "arena-classification": ("benchmarks/arena/report.py", "classification"),
}
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*images/([\w-]+)\.png\)")
_INTRODUCTION = """# Pictures

Every picture of this documentation with the code that makes it. `python docs/pictures.py` makes
those of the guides again, `python docs/report_pictures.py` those of reports. Scripts to copy are
among the [examples](../examples/README.md).
"""


def gallery() -> str:
    """Markdown of a page in `docs`: every picture, its text, where it is used, and its code.

    Raises:
        KeyError: a picture that no page shows.
    """
    parts = [_INTRODUCTION]
    shown = _uses()
    for name, (file, function) in MADE_BY.items():
        text, page = shown[name]
        title = page.read_text().split("\n")[0].removeprefix("# ")
        parts += [
            f"## {name.replace('-', ' ').capitalize().replace('Co2', 'CO2')}\n",
            f"![{text}](images/{name}.png)\n",
            f"{text}. From [{title}]({os.path.relpath(page, DOCS)}).\n",
            f"<details><summary>Code, of <code>{file}</code></summary>\n",
            f"```python\n{code_of(ROOT / file, function)}\n```\n\n</details>\n",
        ]
    return "\n".join(parts)


def _uses() -> dict[str, tuple[str, Path]]:
    """The text of each picture, and the page that shows it."""
    pages = [README, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("guides/*.md"))]
    return {
        name: (text, page) for page in pages for text, name in _PICTURE.findall(page.read_text())
    }


def code_of(file: Path, function: str | None) -> str:
    """Source of a function and of the functions of its file that it calls; of all without one."""
    source = file.read_text()
    if function is None:
        return source.strip()
    defined = {node.name: node for node in ast.parse(source).body if hasattr(node, "name")}
    wanted, todo = set(), [function]
    while todo:
        name = todo.pop()
        if name in defined and name not in wanted:
            wanted.add(name)
            called = (node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name))
            todo.extend(called)
    parts = (ast.get_source_segment(source, defined[name]) for name in defined if name in wanted)
    return "\n\n\n".join(part for part in parts if part)


def example(script: Path) -> str:
    """Markdown of an example's page: its docstring, and its code."""
    source = script.read_text()
    title, _, rest = (ast.get_docstring(ast.parse(source)) or script.stem).partition("\n")
    _, _, code = source.partition('"""\n\n')
    return f"# {title.rstrip('.')}\n\n{rest.strip()}\n\n```python\n{code.strip()}\n```\n"
