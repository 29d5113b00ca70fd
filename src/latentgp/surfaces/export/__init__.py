"""Export of fitted models as files that need no latentgp."""

from __future__ import annotations

from latentgp.surfaces.export.front import Exported, export_predictor

__all__ = ["Exported", "export_predictor"]
