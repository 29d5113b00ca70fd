"""The array type that shape annotations use.

Values outside a trace are NumPy arrays (JAX's would be narrowed to float32 outside the x64
context), inside they are JAX arrays, and the same functions take both.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

if TYPE_CHECKING:
    # The stubs of NumPy and JAX share no type; shapes and dtypes are checked when tests run.
    Array: TypeAlias = Any
else:
    Array = jax.Array | np.ndarray | np.generic

__all__ = ["Array"]
