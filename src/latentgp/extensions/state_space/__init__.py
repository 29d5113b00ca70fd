"""State-space forms of kernels: series, and series at points in space."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.state_space.markov.representation import Markov as Markov
    from latentgp.extensions.state_space.space_time.representation import SpaceTime as SpaceTime

EXTENSION = Extension(
    __name__,
    names={"markov.representation": "Markov", "space_time.representation": "SpaceTime"},
    offers={
        "rows": f"{__name__}.offers:long_series",
        "series": f"{__name__}.offers:is_long_series",
        "representation of a series": f"{__name__}.markov.representation:Markov",
        "settings for a table of series": f"{__name__}.tables:with_series",
    },
)
__getattr__ = EXTENSION.attribute
