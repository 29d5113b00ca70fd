"""Stochastic natural gradients from batches of rows."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.batches.method import Stochastic as Stochastic
    from latentgp.extensions.batches.step_sizes import Adaptive as Adaptive
    from latentgp.extensions.batches.step_sizes import RobbinsMonro as RobbinsMonro
    from latentgp.extensions.batches.step_sizes import Schedule as Schedule

EXTENSION = Extension(
    __name__,
    names={"method": "Stochastic", "step_sizes": "Adaptive RobbinsMonro Schedule"},
    offers={"batches": f"{__name__}.method:Stochastic"},
    apart="Adaptive RobbinsMonro Schedule",
)
__getattr__ = EXTENSION.attribute
