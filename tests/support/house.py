"""Counts of the code, each with a limit beyond which `make check` fails.

    python tests/support/house.py            # the table
    python tests/support/house.py --names    # and the names behind the counts
    python tests/support/house.py --cases    # and the number of test cases, which takes a minute

A commit that lowers a count lowers its limit too.

Calls, files and functions are those of the package during the first fit of a process by
`GPClassifier(method=AugmentedVI())`: frames on the stack where `LogisticPowers.expected_sites` is
first called, files entered until then, and distinct functions entered during `SiteMethod.run`.
"""

import argparse
import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE, TESTS, DOCS = ROOT / "src" / "latentgp", ROOT / "tests", ROOT / "docs"


class Limit(NamedTuple):
    """The greatest value that passes, None for any; and the value aimed at, None for none."""

    most: int | None = None
    goal: int | None = None


# Lines and files of extensions grow as code moves there; all lines together must not.
LIMITS = {
    "lines of src": Limit(98_978, 79_000),
    "lines of core": Limit(31_960, 32_000),
    "lines of extensions": Limit(),
    "lines of surfaces": Limit(23_923),
    "files of src": Limit(),
    "hooks of Representation": Limit(10, 10),
    "hooks of LatentPosterior": Limit(17),
    "hooks of SiteRule": Limit(21),
    "protocols of representations": Limit(4, 4),
    "most hooks of such a protocol": Limit(3, 5),
    "public names at the top": Limit(107, 110),
    "classes in the table of persistence": Limit(0, 0),
    "private constants": Limit(854),
    "calls of isinstance": Limit(721),
    "raise InputError": Limit(544),
    "raise InputError in rooms of inference": Limit(60, 60),
    "functions that only raise": Limit(23),
    "classes named by a participle": Limit(14),
    "names of several classes": Limit(28),
    "writers of checkpoints": Limit(1, 1),
    "classes of progress": Limit(1, 1),
    "circles of imports": Limit(0, 0),
    "modules in circles": Limit(0, 0),
    "imports upward": Limit(0, 0),
    "lines loaded by import": Limit(1_123, 30_000),
    "calls from fit to Pólya-Gamma": Limit(20, 20),
    "files entered until then": Limit(68),
    "functions entered by SiteMethod.run": Limit(315),
    "slow marks of tests": Limit(317),
    "rows of the glossary": Limit(119, 120),
    "words of the architecture": Limit(1_500, 1_500),
    "bytes of the changelog": Limit(6_000, 6_000),
    "decisions over 250 words": Limit(0, 0),
    "test cases": Limit(),
}

SURFACES = {"surfaces", "testing"}
# Rooms whose refusals mostly say that a method, a representation and a model do not go together.
INFERENCE = {"methods", "representations", "site_inference", "choosing", "extensions"}
# Kernels, likelihoods and functions of extensions, whose refusals are of arguments as in the core.
MODELS_OF_EXTENSIONS = (
    *("extensions.areas.", "extensions.black_box.external:", "extensions.fields."),
    *("extensions.groups.boosted.", "extensions.groups.summary:", "extensions.sharded.processes:"),
)
# Participles that do not end in -ed or -en, and nouns that do.
IRREGULAR = {
    *("Begun", "Bound", "Built", "Cut", "Done", "Drawn", "Found", "Gone", "Heard", "Held", "Kept"),
    *("Known", "Laid", "Left", "Lost", "Made", "Met", "Put", "Read", "Said", "Sent", "Shown"),
    *("Sought", "Spent", "Split", "Told", "Understood", "Won", "Worn"),
}
NOUNS = {"Feed", "Need", "Pen", "Seed", "Speed", "Token"}


@cache
def sources() -> dict[str, str]:
    """Text of each module of the package, by dotted name."""
    return {module_at(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def module_at(path: Path) -> str:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


@cache
def trees() -> dict[str, ast.Module]:
    return {module: ast.parse(text) for module, text in sources().items()}


def nodes(kind: type) -> Iterator[tuple[str, ast.AST]]:
    for module, tree in trees().items():
        yield from ((module, node) for node in ast.walk(tree) if isinstance(node, kind))


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Classes that modules define at their top."""
    for module, tree in trees().items():
        yield from ((module, node) for node in tree.body if isinstance(node, ast.ClassDef))


def place(module: str, node: ast.AST) -> str:
    return f"{module}:{node.lineno}"


def room(module: str) -> str:
    return module.split(".")[0]


def last_name(node: ast.AST | None) -> str:
    """The name itself of a dotted or subscripted name; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return getattr(node, "attr", getattr(node, "id", ""))


# Size


def lines() -> Counter[str]:
    """Lines of core, extensions and surfaces."""
    counts = Counter()
    for module, text in sources().items():
        own = room(module)
        part = own if own == "extensions" else "surfaces" if own in SURFACES else "core"
        counts[part] += len(text.splitlines())
    return counts


# Interfaces


def hooks(name: str) -> list[str]:
    """Public methods and properties that a class itself defines."""
    found = [node for _, node in classes() if node.name == name]
    if not found:
        raise LookupError(f"There is no class {name}: name the one that took its place.")
    return [
        member.name
        for node in found
        for member in node.body
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
    ]


def protocols() -> list[str]:
    """Protocols that representations may implement."""
    return [
        node.name
        for module, node in classes()
        if "representations" in module.split(".")
        and any(last_name(base) == "Protocol" for base in node.bases)
    ]


# Code


def private_constants() -> list[str]:
    """Statements at a module's top that assign to names like `_TINY`."""
    found = []
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                name = last_name(target.elts[0] if isinstance(target, ast.Tuple) else target)
                if re.fullmatch(r"_[A-Z][A-Z0-9_]*", name):
                    found.append(f"{module}.{name}")
    return found


def isinstance_calls() -> list[str]:
    return [place(m, n) for m, n in nodes(ast.Call) if getattr(n.func, "id", "") == "isinstance"]


def refusals() -> list[str]:
    """Statements `raise InputError(...)`."""
    return [
        place(module, node)
        for module, node in nodes(ast.Raise)
        if isinstance(node.exc, ast.Call) and last_name(node.exc.func) == "InputError"
    ]


def functions_that_only_raise() -> list[str]:
    """Functions whose body, less its docstring, is one `raise`."""
    found = []
    for module, node in nodes(ast.FunctionDef):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if len(body) == 1 and isinstance(body[0], ast.Raise):
            found.append(f"{module}.{node.name}")
    return found


def internal_names() -> list[str]:
    """Classes that the table of `persistence` names by hand."""
    return sorted(
        name
        for module, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) == "_INTERNAL"
        for text in ast.literal_eval(node.value).values()
        for name in text.split()
    )


# Names


def participles() -> list[str]:
    """Classes named by one word that is a past participle."""
    words = [(module, node.name.lstrip("_")) for module, node in classes()]
    return sorted(
        f"{word} ({module})"
        for module, word in words
        if word in IRREGULAR or (re.fullmatch(r"[A-Z][a-z]*(ed|en)", word) and word not in NOUNS)
    )


def names_of_several_classes() -> list[str]:
    """Names of classes that two modules or more define."""
    modules = defaultdict(set)
    for module, node in classes():
        modules[node.name].add(module)
    return sorted(f"{n} ({', '.join(sorted(m))})" for n, m in modules.items() if len(m) > 1)


# Runs


def checkpoint_writers() -> list[str]:
    """Places that hand tensors to a `Checkpoint`."""
    return [
        place(module, node)
        for module, node in nodes(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "write"
        and last_name(node.func.value) == "checkpoint"
    ]


def progress_classes() -> list[str]:
    """Classes that say where some work is."""
    return sorted(f"{n.name} ({m})" for m, n in classes() if n.name.endswith("Progress"))


# Imports


def imports(tree: ast.AST, known: set[str]) -> set[str]:
    """Known modules of the package that a module imports, in functions too, but not for types."""
    found = set()
    if isinstance(tree, ast.Import):
        found = {alias.name for alias in tree.names}
    elif isinstance(tree, ast.ImportFrom) and tree.module:
        whole = {f"{tree.module}.{alias.name}" for alias in tree.names}
        found = {name if name.removeprefix("latentgp.") in known else tree.module for name in whole}
    found = {n.removeprefix("latentgp.") for n in found if n.startswith("latentgp.")} & known
    children = ast.iter_child_nodes(tree)
    if isinstance(tree, ast.If) and last_name(tree.test) == "TYPE_CHECKING":
        children = tree.orelse
    return found.union(*(imports(child, known) for child in children))


@cache
def arrows() -> dict[str, set[str]]:
    known = set(trees())
    return {module: imports(tree, known) - {module} for module, tree in trees().items()}


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of two modules or more."""

    def reached(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            left += arrows[left.pop()] - seen
            seen.update(left)
        return seen

    onward = {module: reached(module) for module in arrows}
    components = {
        frozenset(other for other in onward[module] if module in onward[other]) for module in arrows
    }
    return sorted(sorted(component) for component in components if len(component) > 1)


def upward_arrows() -> list[str]:
    """Imports against the levels of the conformance suite, in functions too."""
    path = TESTS / "conformance" / "test_architecture.py"
    spec = importlib.util.spec_from_file_location("test_architecture", path)
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)

    pairs = ((module, other) for module in arrows() for other in sorted(arrows()[module]))
    return [f"{module} -> {other}" for module, other in pairs if suite.is_wrong(module, other)]


# Tests and documents


def slow_marks() -> list[str]:
    """Uses of `pytest.mark.slow`, and the tests that `slow.py` thins by name."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "slow":
                if last_name(node.value) == "mark":
                    found.append(place(path.stem, node))
            elif isinstance(node, ast.Assign) and last_name(node.targets[0]) == "EVERY":
                found += ast.literal_eval(node.value)
    return found


def cases_of_tests() -> int:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n0", "-m", ""]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sum(int(line.rpartition(": ")[2]) for line in listed.splitlines() if ".py: " in line)


def glossary_rows() -> int:
    """Rows of its tables, without their heads."""
    table = [line.startswith("|") for line in (DOCS / "glossary.md").read_text().splitlines()]
    heads = sum(row and not before for before, row in zip([False, *table], table, strict=False))
    return sum(table) - 2 * heads


def long_decisions() -> list[str]:
    """Decisions of more than 250 words."""
    paths = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    return [path.stem for path in paths if len(path.read_text().split()) > 250]


# Programs

IMPORT = """
import json, sys, time
start = time.perf_counter()
import latentgp
seconds = time.perf_counter() - start
own = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "latentgp"]
lines = sum(len(open(module.__file__).readlines()) for module in own)
print(json.dumps({"seconds": seconds, "lines": lines, "public": sorted(latentgp.__all__)}))
"""

FIT = """
import json, sys
import numpy as np
import latentgp

ROOT = latentgp.__file__.removesuffix("__init__.py")
files, stack, visited = set(), [], set()
outer = None


def is_own(frame):
    code = frame.f_code
    return code.co_filename.startswith(ROOT) and not code.co_name.startswith("<")


def profile(frame, event, _):
    global outer
    name = frame.f_code.co_qualname
    if event == "return" and frame is outer:
        outer = None
    if event != "call" or not is_own(frame):
        return
    if name == "SiteMethod.run" and outer is None:
        outer = frame
    if outer is not None:
        visited.add(f"{frame.f_code.co_filename.removeprefix(ROOT)}:{name}")
    if stack:
        return
    files.add(frame.f_code.co_filename.removeprefix(ROOT))
    if name == "LogisticPowers.expected_sites":
        while frame is not None:
            if is_own(frame):
                stack.append(frame.f_code.co_qualname)
            frame = frame.f_back


X = np.random.default_rng(0).normal(size=(30, 2))
model = latentgp.GPClassifier(method=latentgp.AugmentedVI())
sys.setprofile(profile)
model.fit(X, X[:, 0] > 0)
sys.setprofile(None)
assert stack and visited, "LogisticPowers.expected_sites or SiteMethod.run has another name"
print(json.dumps({"calls": stack[::-1], "files": sorted(files), "visited": sorted(visited)}))
"""


def printed_by(program: str) -> dict:
    """What a program prints, with this checkout's package and the programs that tests compiled."""
    own = {
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "compiled"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


# The table

Count = int | list


def counts() -> dict[str, Count]:
    """All but test cases; lists of names where there are some."""
    size, refused = lines(), refusals()
    found = circles(arrows())
    loaded, fitted = printed_by(IMPORT), printed_by(FIT)
    return {
        "lines of src": size.total(),
        "lines of core": size["core"],
        "lines of extensions": size["extensions"],
        "lines of surfaces": size["surfaces"],
        "files of src": len(sources()),
        "hooks of Representation": hooks("Representation"),
        "hooks of LatentPosterior": hooks("LatentPosterior"),
        "hooks of SiteRule": hooks("SiteRule"),
        "protocols of representations": protocols(),
        "most hooks of such a protocol": max((len(hooks(name)) for name in protocols()), default=0),
        "public names at the top": loaded["public"],
        "classes in the table of persistence": internal_names(),
        "private constants": private_constants(),
        "calls of isinstance": isinstance_calls(),
        "raise InputError": refused,
        "raise InputError in rooms of inference": [
            n
            for n in refused
            if room(n.split(":")[0]) in INFERENCE and not n.startswith(MODELS_OF_EXTENSIONS)
        ],
        "functions that only raise": functions_that_only_raise(),
        "classes named by a participle": participles(),
        "names of several classes": names_of_several_classes(),
        "writers of checkpoints": checkpoint_writers(),
        "classes of progress": progress_classes(),
        "circles of imports": found,
        "modules in circles": sum(map(len, found)),
        "imports upward": upward_arrows(),
        "lines loaded by import": loaded["lines"],
        "calls from fit to Pólya-Gamma": fitted["calls"],
        "files entered until then": fitted["files"],
        "functions entered by SiteMethod.run": fitted["visited"],
        "slow marks of tests": slow_marks(),
        "rows of the glossary": glossary_rows(),
        "words of the architecture": len((DOCS / "architecture.md").read_text().split()),
        "bytes of the changelog": (ROOT / "CHANGELOG.md").stat().st_size,
        "decisions over 250 words": long_decisions(),
    }


def report(counts: Mapping[str, Count], limits: Mapping[str, Limit]) -> list[str]:
    """Print the table; gives the counts above their limits."""
    wide = max(map(len, counts))
    print(f"{'count':{wide}}  {'now':>7}  {'limit':>7}  {'goal':>7}")
    above = []
    for name, count in counts.items():
        now = count if isinstance(count, int) else len(count)
        most, goal = limits[name]
        note = ""
        if most is not None and now > most:
            note = "  above its limit"
            above.append(name)
        elif most is not None and now < most != goal:
            note = "  lower the limit"
        figures = ("-" if figure is None else f"{figure:,}" for figure in (now, most, goal))
        print(f"{name:{wide}}  " + "  ".join(f"{figure:>7}" for figure in figures) + note)
    return above


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="print the names that are counted")
    parser.add_argument("--cases", action="store_true", help="count test cases too")
    asked = parser.parse_args()
    found = counts()
    if asked.cases:
        found["test cases"] = cases_of_tests()
    above = report(found, LIMITS)
    print(f"`import latentgp` takes {printed_by(IMPORT)['seconds']:.2f} s here.")
    if asked.names:
        for name, count in found.items():
            if isinstance(count, list):
                print(f"\n{name}:", *count, sep="\n  ")
    if above:
        print(f"Above their limits: {', '.join(above)}. Make them smaller (`--names` lists them).")
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
