"""Fields: processes of places."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.fields.thresholds import Exceedance as Exceedance
    from latentgp.extensions.fields.thresholds import exceedance as exceedance
    from latentgp.extensions.fields.totals import Totals as Totals
    from latentgp.extensions.fields.totals import total as total

EXTENSION = Extension(
    __name__,
    names={"thresholds": "Exceedance exceedance", "totals": "Totals total"},
    verbs={
        "exceedance": f"{__name__}.thresholds:exceedance",
        "total": f"{__name__}.totals:total",
    },
    apart="Exceedance exceedance Totals total",
)
__getattr__ = EXTENSION.attribute
