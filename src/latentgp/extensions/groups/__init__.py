"""Effects of groups: mixed models of any number of levels, by a sparse design."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.groups.representation import SparseEffects as SparseEffects

EXTENSION = Extension(
    __name__,
    names={"representation": "SparseEffects"},
    requires=("inter_domain",),
    apart="SparseEffects",
)
__getattr__ = EXTENSION.attribute
