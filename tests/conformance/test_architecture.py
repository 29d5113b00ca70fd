"""Imports point one way, importing is light, and every public name says what it is."""

import ast
import builtins
import inspect
import subprocess
import symtable
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import latentgp as lgp
from latentgp.representations import Representation

pytestmark = pytest.mark.quick

ROOT = Path(lgp.__file__).parent
EXTENSIONS = sorted(path.name for path in ROOT.joinpath("extensions").iterdir() if path.is_dir())
# Who imports from which other extension.
REQUIRED = {
    "deep": {"batches", "chains", "iterative"},
    "groups": {"inter_domain", "iterative"},
    "fields": {"inter_domain", "iterative", "neighbours", "state_space"},
    "flows": {"chains"},
    "iterative": {"chains"},
    "neighbours": {"iterative"},
}
# A module may import at its top from lower levels and from its own room, nothing else.
LEVELS = {
    room: level
    for level, rooms in enumerate(
        [
            "errors typing _version datasets",
            "modules extension",
            "runtime",
            "numerics",
            "rows hyperparameters",
            "distributions kernels means",
            "likelihoods",
            "models sites",
            "validation",
            "representations model_checks",
            "site_inference.rules",
            "posteriors",
            "setup",
            "site_inference.search",
            "diagnostics",
            "methods",
            "site_inference.methods",
            "choosing",
            "runs",
            "inference differentiable prior",
            "streams",
            "persistence",
            "extensions",
            "surfaces.evaluation.metrics surfaces.options surfaces.files surfaces.priors "
            "surfaces.coefficients surfaces.point_process",
            "surfaces.estimators",
            "surfaces.evaluation",
            "surfaces.tables",
            "surfaces.evaluation.pilot surfaces.export",
            "surfaces.evaluation.comparison",
            "surfaces.report",
            "surfaces.demo",
            "surfaces.cli testing",
            "extensions.chains.testing",
        ]
    )
    for room in rooms.split()
}
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py")
)


def room_of(module):
    """The room a module is in: the longest beginning of its name that has a level."""
    parts = ["extension"] if module.removesuffix(".__init__") == "extensions" else module.split(".")
    beginnings = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in beginnings if name in LEVELS), None)


def imports_at_the_top(source):
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = ROOT.parent.joinpath(*whole.split(".")).with_suffix(".py").exists()
                is_room = ROOT.parent.joinpath(*whole.split("."), "__init__.py").exists()
                yield whole if is_module or is_room else node.module


def is_wrong(module, other):
    """Whether an import of one module by another is against the levels."""
    own, its = room_of(module), room_of(other)
    if own == its == "extensions":
        here, there = module.split(".")[1], other.split(".")[1]
        return there not in {here, *REQUIRED.get(here, ())}
    return own is not None and its is not None and own != its and LEVELS[its] >= LEVELS[own]


def wrong_imports(module, source):
    own = (name for name in imports_at_the_top(source) if name.startswith("latentgp."))
    names = (name.removeprefix("latentgp.") for name in own)
    return [name for name in names if room_of(name) and is_wrong(module, name)]


@pytest.mark.parametrize(
    "module",
    [m for m in MODULES if m not in ("__init__", "surfaces.__init__", "site_inference.__init__")],
)
def test_imports_point_one_way(module):
    assert room_of(module), f"{module} is in no room: give it a level here"
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert list(wrong_imports(module, source)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kernels.new", "from latentgp.likelihoods import Gaussian"),
        ("likelihoods.new", "import latentgp.sites.augmentations"),
        ("posteriors.new", "from latentgp.site_inference.methods.exact import ExactGP"),
        ("numerics.new", "from latentgp.inference import fit"),
        ("surfaces.tables.new", "from latentgp.surfaces.report import write_report"),
    ],
)
def test_an_import_the_wrong_way_is_seen(module, source):
    assert list(wrong_imports(module, source))


def types_of_rules_asked_for(source):
    """Names of rules that a module tells apart by `isinstance`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "isinstance":
            names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            yield from (name for name in names if name.endswith("Rule"))


def test_no_module_asks_a_rule_for_its_type():
    asked = {
        str(path): [*types_of_rules_asked_for(path.read_text())] for path in ROOT.rglob("*.py")
    }
    assert not any(asked.values()), asked
    assert [*types_of_rules_asked_for("if isinstance(rule, LaplaceRule | MomentRule): pass")]


def test_importing_is_light_and_touches_no_flag():
    program = """
import sys
import latentgp

print(sorted({name.partition(".")[0] for name in sys.modules} & {"jax", "numpy", "scipy"}))
import jax, equinox, numpyro.distributions, scipy.spatial

compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "compile" in event else None
)
modules, flags = set(sys.modules), dict(jax.config.values)
for name in latentgp.CORE.places:
    getattr(latentgp, name)
packages = {name.partition(".")[0] for name in set(sys.modules) - modules}
print(sorted(packages - set(sys.stdlib_module_names)))
heavy = {"sklearn", "pandas", "matplotlib", "pyarrow", "typer", "rich"}
print(sorted((heavy | {"scipy.optimize", "scipy.stats"}) & set(sys.modules)))
print([name for name, value in jax.config.values.items() if flags[name] != value])
print(compiled)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    light = "['latentgp', 'safetensors', 'threadpoolctl']"
    assert done.stdout.splitlines() == ["[]", light, "[]", "[]", "[]"]


ROOMS = lgp.kernels, lgp.likelihoods, lgp.means, lgp.augmentations, lgp.errors, lgp.prior, lgp.runs
PUBLIC = {*lgp.__all__, *lgp._PLACES}.union(*(room.__all__ for room in ROOMS))


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_every_public_name_says_what_it_is(name):
    thing = getattr(lgp, name)
    # A class's own docstring: Python would otherwise show its parent's.
    text = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert text
    assert len(text.split()) >= 4


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lgp.nothing


def test_no_imports_go_in_a_circle():
    """Within a room too, where levels say nothing."""
    known = {m.removesuffix(".__init__") for m in MODULES}
    arrows = {}
    for module in known:
        path = ROOT.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        names = (n.removeprefix("latentgp.") for n in imports_at_the_top(path.read_text()))
        arrows[module] = {name for name in names if name in known - {module}}
    try:
        tuple(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        pytest.fail(f"imports go in a circle: {error.args[1]}")


def test_fit_is_short_and_asks_no_method_for_its_type():
    source = ROOT.joinpath("inference.py").read_text()
    assert len(source.splitlines()) < 150
    kinds = {name for name, thing in vars(lgp).items() if is_kind(thing)} - {"Method"}
    for path in ROOT.rglob("*.py"):
        own = {"choosing", "methods", "representations", "inducing", "extensions", "testing"}
        if own & set(path.relative_to(ROOT).parts[:-1]):
            continue  # where they are defined and chosen
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "isinstance":
                named = {getattr(node, "id", "") for node in ast.walk(call.args[1])}
                assert not named & kinds, f"{path.name} asks for {named & kinds}: use a capability"


def is_kind(thing):
    return inspect.isclass(thing) and issubclass(thing, lgp.Method | Representation)


@pytest.mark.parametrize("module", sorted(ROOT.rglob("*.py")), ids=lambda p: p.stem)
def test_abstract_variables_are_in_evaluated_annotations(module):
    """Equinox does not see `AbstractVar` in a string: the field would be a field like any other."""
    source = module.read_text()
    if "eqx.AbstractVar" in source or "eqx.AbstractClassVar" in source:
        assert "from __future__ import annotations" not in source


class WithoutAnnotations(ast.NodeTransformer):
    """Shapes are strings that no linter can tell from names."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        self.generic_visit(node)
        return node


def undefined_names(source):
    """Names that a module's code reads and that nothing defines."""
    tree = ast.fix_missing_locations(WithoutAnnotations().visit(ast.parse(source)))
    known = {"__file__", "__name__", "__path__", *vars(builtins)}
    module = symtable.symtable(ast.unparse(tree), "module", "exec")
    known |= {s.get_name() for s in module.get_symbols() if not s.is_referenced() or s.is_local()}

    def within(table):
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and symbol.get_name() not in known:
                yield symbol.get_name()
        for child in table.get_children():
            yield from within(child)

    return set(within(module))


def test_undefined_names_are_found():
    assert undefined_names("import a\ndef f(x: 'N D') -> 'Q': return a + x + b(c for c in x)") == {
        "b"
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_defined(module):
    """The linters' own rule is off, as it takes the shapes of annotations for names."""
    source = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert not undefined_names(source)
