"""Sphinx extension: docstrings as Markdown, and public names in code that lead to their pages."""

import dataclasses
import re
from typing import Any

import numpyro.distributions
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.transforms import SphinxTransform

from markup import restructured
from reference import public_names

_PREFIX = re.compile(r"^(?:lgp|latentgp)\.")


def _targets() -> dict[str, str]:
    """The path of each public name, by how it is written in code.

    Lower-case names alone are left out, as a function may be named like a method; so are names
    of NumPyro's distributions, of which a prior may be meant.
    """
    written = {}
    for name in reversed(list(public_names())):
        written[name.path] = name.path
        short = name.path.removeprefix("latentgp.").split(".")
        if len(short) > 1:
            written[".".join(short[-2:])] = name.path
        if short[-1][0].isupper() and not hasattr(numpyro.distributions, short[-1]):
            written[short[-1]] = name.path
    return written


class LinkNames(SphinxTransform):
    """Turns code such as `Inducing(100)` into a link to the page of `Inducing`."""

    default_priority = 400
    targets: dict[str, str] | None = None

    def apply(self, **kwargs: Any) -> None:
        if LinkNames.targets is None:
            LinkNames.targets = _targets()
        here = self.env.docname.removeprefix("reference/").removesuffix("-function")
        for literal in list(self.document.findall(nodes.literal)):
            called = literal.astext().split("(")[0]
            path = self.targets.get(called) or self.targets.get(_PREFIX.sub("", called))
            linked = nodes.reference | addnodes.pending_xref | nodes.title
            if path is None or path == here or isinstance(literal.parent, linked):
                continue
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=path, refexplicit=True, refwarn=True
            )
            literal.replace_self(link)
            link += literal


def _as_restructured(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = restructured("\n".join(lines)).split("\n")


def _escape_attributes(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """What napoleon leaves as it is: paths and shapes in types, names such as `model_`."""
    for number, line in enumerate(lines):
        if line.startswith(":vartype "):
            lines[number] = re.sub(r"latentgp[\w.]*\.(\w+)", r"\1", line).replace("*", r"\*")
        lines[number] = re.sub(r"^(:(?:ivar|vartype) \w+)_:", r"\1\\_:", lines[number])


def _with_types(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Types of parameters, which have converters that take anything."""
    if what != "class" or not dataclasses.is_dataclass(value) or not signature:
        return None
    for field in dataclasses.fields(value):
        if isinstance(field.type, str):
            declared = f"{field.name}: {field.type}"
            taken = rf"\b{field.name}: (?:~?typing\.)?Any\b"
            signature = re.sub(taken, lambda _, d=declared: d, signature)
    return signature, returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers and the transform."""
    app.connect("autodoc-process-docstring", _as_restructured, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _escape_attributes, priority=600)  # after it
    app.connect("autodoc-process-signature", _with_types)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_transform(LinkNames)
    return {"parallel_read_safe": True}
