"""The array type that shape annotations use.

Values outside a trace are NumPy arrays (JAX's would be narrowed to float32 outside the x64
context), inside they are JAX arrays, and the same functions take both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, Key

if TYPE_CHECKING:
    # The stubs of NumPy and JAX share no type; shapes and dtypes are checked when tests run.
    Array: TypeAlias = Any
else:
    Array = jax.Array | np.ndarray | np.generic

__all__ = ["Array", "in_double_precision"]

# In signatures that many classes share: of one row, N rows, M points, S columns, elementwise.
Scalar: TypeAlias = Float[Array, ""]
Latents: TypeAlias = Float[Array, "Q"]
PerRow: TypeAlias = Float[Array, "N"]
Inputs: TypeAlias = Float[Array, "N D"]
Points: TypeAlias = Float[Array, "M D"]
RowLatents: TypeAlias = Float[Array, "N Q"]
Vectors: TypeAlias = Float[Array, "N S"]
Square: TypeAlias = Float[Array, "M M"]
PerClass: TypeAlias = Float[Array, "N K"]
NeighbourRows: TypeAlias = Int[Array, "N #Q V"]
RowMoments: TypeAlias = tuple[PerRow, PerRow]
Values: TypeAlias = Float[Array, "*N"]
Draws: TypeAlias = Float[Array, "..."]
# A point, samples, coefficients of latent functions, hyper-parameters, one random key.
Point: TypeAlias = Float[Array, "D"]
Samples: TypeAlias = Float[Array, "S D"]
Coefs: TypeAlias = Float[Array, "Q M"]
PerColumn: TypeAlias = Float[Array, "#D"] | Float[Array, ""]
HyperVector: TypeAlias = Float[Array, "H"]
HyperMatrix: TypeAlias = Float[Array, "H H"]
RandomKey: TypeAlias = Key[Array, ""]


def in_double_precision(value: Any) -> Any:
    """NumPy float64 unless traced: JAX arrays made outside the x64 context would be float32."""
    return value if isinstance(value, Tracer) else np.asarray(value, dtype=np.float64)
