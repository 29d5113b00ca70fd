"""The site of `make docs`: what is on it, and that its parts are right; a slow test builds it."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import checks
import gallery
import make
import reference
from markup import restructured

SITE = Path(__file__).parents[2] / "docs/site"


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    make.gather(folder)
    return folder


@pytest.fixture(scope="module")
def pages(gathered):
    return {path.stem: path.read_text() for path in gathered.glob("reference/*.rst")}


def test_every_public_name_has_a_page_and_is_in_a_table(pages):
    modules = reference.public_modules()
    assert {"latentgp", "latentgp.kernels", "latentgp.surfaces.evaluation.metrics"} <= set(modules)
    tables = "".join(text for name, text in pages.items() if not name.startswith("latentgp."))
    of_value = {}
    for module in modules:
        imported = importlib.import_module(module)
        for name in {*reference.names_of(imported)} - {"__version__"}:
            of_value.setdefault(id(getattr(imported, name)), []).append(f"{module}.{name}")
    assert len(of_value) > 250
    assert len({page.lower() for page in pages}) == len(pages)  # files on any system
    shown = [re.findall(r"^\.\. (?:auto|py:)\w+:: (\S+)$", page, re.M) for page in pages.values()]
    shown = [path for paths in shown for path in paths]
    for names in of_value.values():
        (path,) = [name for name in names if name in shown]
        assert shown.count(path) == 1
        assert f"<{path}>`" in tables


def test_inherited_members_are_on_one_page_only(pages):
    assert ":members: gram" not in pages["latentgp.RBF"]
    assert "`gram <latentgp.Kernel.gram>`" in pages["latentgp.RBF"]
    assert (
        "Arguments as in :class:`Stationary <latentgp.kernels.Stationary>`" in pages["latentgp.RBF"]
    )
    assert re.search(":members: .*predict_interval", pages["latentgp.GPRegressor"])


def test_a_room_without_a_group_is_refused(monkeypatch):
    monkeypatch.delitem(reference.GROUPS, "Kernels")
    with pytest.raises(KeyError, match="kernels"):
        reference.grouped()


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("`a_` of b_ and c * d", r"``a_`` of b\_ and c \* d"),
        ("p(y | f), `x`s", r"p(y \| f), ``x``\ s"),
        ("Args:\n    name_: of it", "Args:\n    name_: of it"),
        (">>> a * `b`\n1\n\n2 * 3", ">>> a * `b`\n1\n\n2 \\* 3"),
        ("l_n f, ``kept``", "l_n f, ``kept``"),
    ],
)
def test_docstrings_become_restructured_text(markdown, expected):
    assert restructured(markdown) == expected


def test_every_picture_is_in_the_gallery_with_its_code():
    shown = gallery.gallery()
    pictures = {path.stem for path in (gallery.DOCS / "images").glob("*.png")}
    assert pictures == set(gallery.MADE_BY)
    assert all(f"](images/{name}.png)" in shown for name in pictures)
    code = gallery.code_of(gallery.DOCS / "pictures.py", "likelihoods")
    assert re.findall(r"^def (\w+)", code, re.MULTILINE) == [
        "real_targets",
        "banded",
        "likelihoods",
    ]


def test_faults_of_a_page_are_found(tmp_path):
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="https://example.org"></a><a href="#top" id="top"></a>'
    )
    assert checks.faults(tmp_path) == []
    (tmp_path / "a.html").write_text(
        '<a href="b.html#gone"></a><a class="x" href="c.html"></a><img src="//example.org/x.png">'
        '<script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "a.css").write_text('@font-face { src: url("https://example.org/f.woff2") }')
    assert checks.faults(tmp_path) == [
        "a.css: fetches https://example.org/f.woff2",
        "a.html: fetches //example.org/x.png",
        "a.html: fetches https://example.org/x.js",
        "a.html: no anchor b.html#gone",
        "a.html: no c.html",
    ]


def test_every_document_is_in_the_navigation_or_a_table(gathered):
    first = (gathered / "index.md").read_text()
    trees = "".join(re.findall(r"```{toctree}\n(.*?)```", first, re.DOTALL))
    listed = set(re.findall(r"^(?:.* <)?([\w/-]+)>?$", trees, re.MULTILINE))
    documents = {str(path.relative_to(gathered).with_suffix("")) for path in gathered.rglob("*.md")}
    tables = "docs/decisions/", "benchmarks/results/", "experiments/sources/", "examples/"
    kept = {name for name in documents if not name.startswith(tables)}
    assert kept - listed == {"index"}
    assert listed - kept == {"reference/index", "examples/README"}
    architecture = (gathered / "docs/architecture.md").read_text()
    assert r"[\[0001\]](decisions/0001-model-method-posterior.md)" in architecture
    scripts = (gathered / "examples/README.md").read_text()
    assert "](regression.md)" in scripts
    assert "\nregression\n" in scripts
    assert "```python\nimport" in (gathered / "examples/regression.md").read_text()


def test_a_folder_that_is_no_site_is_kept(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert make.main(tmp_path) == 1
    assert "something else" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed)
    built = subprocess.run(
        [sys.executable, SITE / "make.py", tmp_path / "site"], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    names = {path.stem for path in (tmp_path / "site/reference").glob("*.html")}
    assert {name.page for name in reference.public_names()} <= names
    guide = (tmp_path / "site/docs/guides/estimators.html").read_text()
    assert 'href="../../reference/latentgp.GPRegressor.html' in guide
    assert "GPRegressor" in (tmp_path / "site/searchindex.js").read_text()
