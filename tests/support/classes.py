"""Which concrete classes latentgp has: the conformance tests must name every one of them."""

import importlib
import inspect
import pkgutil
import sys

import latentgp

# What a step on some of the classes, or correlated latents, make for themselves; no model has it.
INTERNAL = {"SomeOfLogisticSoftmax", "WhitenedLikelihood"}  # and what begins with "Turned"


def concrete_classes(base, core=False):
    """All concrete subclasses of a base that are defined inside latentgp, or its core, by name."""
    for module in pkgutil.walk_packages(latentgp.__path__, "latentgp."):
        if not module.name.startswith(
            ("latentgp.surfaces.cli.app", "latentgp.testing", "latentgp.__main__")
        ):
            importlib.import_module(module.name)
    found, pending = set(), [base]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        # An example in a docstring may define one of its own, which its module does not hold.
        home = sys.modules.get(cls.__module__) if cls.__module__.startswith("latentgp.") else None
        abstract = inspect.isabstract(cls) or getattr(cls, "__abstractvars__", ())
        outside = core and cls.__module__.startswith("latentgp.extensions.")
        if getattr(home, cls.__name__, None) is cls and not abstract and not outside:
            found.add(cls.__name__)
    return {name for name in found - INTERNAL if not name.startswith("Turned")}
