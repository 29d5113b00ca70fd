"""The evidence of a posterior, and marginals of latent functions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from latentgp.modules import stored

EvidenceKind = Literal["exact", "lower bound", "approximation"]


@stored
class Evidence(float):
    """Log evidence of the model, in nats, total over rows, with its kind.

    A number: arithmetic, comparisons, formats and arrays take it as they take a float.

    Attributes:
        kind: whether it is exact, a lower bound or an approximation.

    Example:
        >>> import numpy as np
        >>> evidence = Evidence(-3.25, "exact")
        >>> print(f"{evidence - np.float64(1.0):.1f} {np.ones(2) - evidence} {evidence.kind}")
        -4.2 [4.25 4.25] exact
    """

    _fields: ClassVar = ("value", "kind")

    kind: EvidenceKind

    def __new__(cls, value: float, kind: EvidenceKind) -> "Evidence":
        own = super().__new__(cls, value)
        own.kind = kind
        return own

    @property
    def value(self) -> float:
        """The number alone, in nats."""
        return float(self)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.value, self.kind

    def __repr__(self) -> str:
        return f"Evidence(value={self.value!r}, kind={self.kind!r})"

    def __str__(self) -> str:
        return str(self.value)
