"""The array type that shape annotations use.

Values outside a trace are NumPy arrays (JAX's would be narrowed to float32 outside the x64
context), inside they are JAX arrays, and the same functions take both.
"""

from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np

if TYPE_CHECKING:
    # To a type checker an array is JAX's: the two share all that the library uses of them.
    Array: TypeAlias = jax.Array
else:
    Array = jax.Array | np.ndarray | np.generic

__all__ = ["Array"]
