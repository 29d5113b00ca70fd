"""Pages of the reference: one for every public name, in groups by the room that it comes from."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import latentgp
from markup import restructured

# A group: its subject, and the rooms of `latentgp` whose names are in it; the longest path counts.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Estimators and tables": (
        "Scikit-learn's interface, data frames and reports.",
        ("surfaces.estimators", "surfaces.tables", "surfaces.report"),
    ),
    "Models": (
        "Kernel, likelihood and prior mean; fits.",
        ("models", "means", "inference", "prior", "differentiable"),
    ),
    "Kernels": ("Prior covariances of latent functions.", ("kernels", "extensions.areas")),
    "Likelihoods": (
        "Laws of a target given the latent functions, and their augmentations.",
        ("likelihoods", "sites.augmentations", "extensions.black_box.external"),
    ),
    "Methods": (
        "Inference algorithms with their settings, as values.",
        ("methods", "site_inference", "extensions"),
    ),
    "Representations": (
        "Coefficients of latent functions: rows, inducing variables, neighbours, states.",
        (
            *("representations", "extensions.inter_domain", "extensions.neighbours"),
            *("extensions.state_space", "extensions.iterative.matrix_free"),
            "extensions.deep.random_features",
        ),
    ),
    "Posteriors": (
        "Distributions given the data, and files of them.",
        ("posteriors", "persistence", "surfaces.export", "extensions.chains.posterior"),
    ),
    "Evaluation": (
        "Scores, validation on held-out rows, plots, chains.",
        (
            *("surfaces.evaluation", "surfaces.coefficients", "extensions.chains.measures"),
            *("extensions.fields.variograms", "extensions.fields.places"),
        ),
    ),
    "Parameters": (
        "Hyper-parameters: declaration, priors, summaries.",
        ("hyperparameters", "surfaces.priors"),
    ),
    "Rows": (
        "Tables of rows, files, point patterns, functionals, data sets.",
        ("rows", "datasets", "surfaces.files", "surfaces.point_process"),
    ),
    "Running": (
        "Errors, devices, processes, kept programs, array types.",
        ("errors", "runs", "runtime", "typing"),
    ),
    "Tools for authors": (
        "Conformance suites for what you add, and distributions of auxiliary variables.",
        ("testing", "distributions"),
    ),
}
# Programs, not interfaces.
NOT_IMPORTED = ("latentgp.surfaces.cli", "latentgp.surfaces.demo")


@dataclass(frozen=True)
class Name:
    """A public name: its import, its value, and the module that defines it."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def page(self) -> str:
        """Name of its page; `fit` and `Fit` are one name where case does not count."""
        return f"{self.path}-function" if self.kind == "function" else self.path

    @property
    def kind(self) -> str:
        if not getattr(self.value, "__module__", "").startswith("latentgp."):
            return "data"
        if inspect.isclass(self.value):
            return "class"
        return "function" if callable(self.value) else "data"

    @property
    def home(self) -> str:
        """The module that defines it, within `latentgp`."""
        home = self.module if self.kind == "data" else self.value.__module__
        return home.removeprefix("latentgp.")

    @property
    def summary(self) -> str:
        """First paragraph of the docstring, in reStructuredText; of data what they are."""
        if self.kind == "data":
            return _described(self.value)
        text = inspect.getdoc(self.value) or ""
        return restructured(" ".join(text.split("\n\n")[0].split()))


def _described(value: Any) -> str:
    """Names in a collection, or what an alias stands for."""
    if isinstance(value, Mapping | Set | Sequence):
        return f"Names: {', '.join(f'``{item}``' for item in value if item)}."
    shown = value.__qualname__ if inspect.isclass(value) else str(value)
    return f"Short for ``{re.sub(r'[a-z_]+[.]', '', shown)}``."


def public_modules() -> list[str]:
    """`latentgp`, its modules with an `__all__` but for programs, and packages of extensions."""
    root = Path(latentgp.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("latentgp", *path.relative_to(root).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        text = path.read_text()
        named = "\n__all__ = " in text or "\nEXTENSION = " in text
        if named and module not in NOT_IMPORTED:
            found.append(module)
    return found


def names_of(module: Any) -> list[str]:
    """Public names of a module."""
    own = getattr(module, "EXTENSION", None)
    return module.__all__ if own is None else [*own.places]


def public_names() -> Iterator[Name]:
    """Every name of an `__all__` once, under the first module that has it, `latentgp` first."""
    seen = []
    for module in public_modules():
        imported = importlib.import_module(module)
        for name in names_of(imported):
            value = getattr(imported, name)
            if name != "__version__" and not any(value is other for other in seen):
                seen.append(value)
                yield Name(module, name, value)


def grouped() -> dict[str, list[Name]]:
    """Names of each group, those of `latentgp` itself first.

    Raises:
        KeyError: a room that no group has.
    """
    group_of = {room: group for group, (_, rooms) in GROUPS.items() for room in rooms}
    groups: dict[str, list[Name]] = {group: [] for group in GROUPS}
    for name in public_names():
        rooms = [room for room in group_of if f"{name.home}.".startswith(f"{room}.")]
        if not rooms:
            raise KeyError(name.home)
        groups[group_of[max(rooms, key=len)]].append(name)
    return groups


def _members(name: Name, pages: dict[Any, Name]) -> tuple[list[str], dict[Name, list[str]]]:
    """Members with an entry of their own, and those described at a public base, by that base."""
    own, elsewhere = [], {}
    for member in dir(name.value):
        if member.startswith("_") and member != "__call__":
            continue
        found = [(base, vars(base)[member]) for base in name.value.__mro__ if member in vars(base)]
        described = [base for base, value in found if _has_doc(value)]
        if not found or not described or not described[0].__module__.startswith("latentgp."):
            continue
        home = described[0]
        if home is not name.value and home in pages:
            elsewhere.setdefault(pages[home], []).append(member)
        else:
            own.append(member)
    return own, elsewhere


def _has_doc(value: Any) -> bool:
    routine = inspect.isroutine(value) or isinstance(value, property | classmethod | staticmethod)
    return (routine or hasattr(value, "__wrapped__")) and bool(value.__doc__)


def _page(name: Name, group: str, pages: dict[Any, Name]) -> str:
    lines = [":orphan:", "", name.name, "=" * len(name.name), ""]
    lines += [f":doc:`Reference <index>` / :doc:`{_file(group)}`", ""]
    if name.kind == "data":
        return "\n".join([*lines, f".. py:data:: {name.path}", "", f"   {name.summary}", ""])
    lines.append(f".. auto{name.kind}:: {name.path}")
    if name.kind == "function":
        return "\n".join([*lines, ""])
    own, elsewhere = _members(name, pages)
    public = [member for member in own if member != "__call__"]
    lines += [f"   :members: {', '.join(public)}"] if public else []
    lines += ["   :special-members: __call__"] if "__call__" in own else []
    explained = [base for base in name.value.__mro__ if "Args:" in (base.__dict__["__doc__"] or "")]
    if explained and explained[0] is not name.value and explained[0] in pages:
        base = pages[explained[0]]
        lines += ["", f"Arguments as in :class:`{base.name} <{base.path}>`."]
    for base, members in elsewhere.items():
        links = ", ".join(f":meth:`{m} <{base.path}.{m}>`" for m in members)
        lines += ["", f"As in :class:`{base.name} <{base.path}>`: {links}."]
    return "\n".join([*lines, ""])


def _file(group: str) -> str:
    return group.lower().replace(" ", "-")


def _table(names: list[Name]) -> list[str]:
    lines = [".. list-table::", "   :widths: 30 70", ""]
    for name in names:
        role = {"class": "class", "function": "func", "data": "data"}[name.kind]
        lines += [f"   * - :{role}:`{name.name} <{name.path}>`", f"     - {name.summary}"]
    return [*lines, ""]


def write_reference(folder: Path) -> None:
    """Write a page a name, a page a group with a table of its names, and the first page.

    Pages of names are not in the navigation, which every page repeats.
    """
    folder.mkdir()
    groups = grouped()
    pages = {name.value: name for names in groups.values() for name in names if name.kind != "data"}
    first = ["Reference", "=========", "", "Every public name, by what it is about.", ""]
    first += [".. toctree::", "   :maxdepth: 1", ""]
    for group, names in groups.items():
        first.append(f"   {_file(group)}")
        lines = [group, "=" * len(group), "", GROUPS[group][0], ""]
        modules = dict.fromkeys(name.module for name in names)
        for module in modules:
            lines += [f"``{module}``", "-" * (len(module) + 4), ""]
            lines += _table([name for name in names if name.module == module])
        (folder / f"{_file(group)}.rst").write_text("\n".join(lines))
        for name in names:
            (folder / f"{name.page}.rst").write_text(_page(name, group, pages))
    (folder / "index.rst").write_text("\n".join([*first, ""]))
