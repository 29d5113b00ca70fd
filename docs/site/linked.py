"""Sphinx extension: docstrings as Markdown, and public names in code that lead to their pages."""

import re
from typing import Any

import numpyro.distributions
from docutils import nodes
from markup import restructured
from reference import public_names
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

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
        here = self.env.docname.removeprefix("reference/")
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


def _escape_types(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Shapes in types that napoleon adds to attributes, such as "*N D"."""
    lines[:] = [
        line.replace("*", r"\*") if line.startswith(":vartype ") else line for line in lines
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers and the transform."""
    app.connect("autodoc-process-docstring", _as_restructured, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", _escape_types, priority=600)  # after it
    app.add_transform(LinkNames)
    return {"parallel_read_safe": True}
