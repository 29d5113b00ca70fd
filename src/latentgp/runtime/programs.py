"""Functions compiled by JAX; programs for few rows in less time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, ClassVar

import jax
from jax.core import Tracer
from jax.errors import JaxRuntimeError

# The usual code generator of jaxlib 0.10 takes about twice as long, and what levels of optimisation
# above the first one add is not seen in a fit.
QUICK_TO_COMPILE = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
_FEW_ROWS = 8192


class Program:
    """A function under `jax.jit`, which XLA's options for few rows hold for.

    What runs for milliseconds is compiled by the quicker of XLA's code generators; with more
    rows, or inside another program, which has the options of its own, it is `jax.jit`. Arguments
    are given by position; `static_argnums` are those that are no arrays, and `has_few` says of the
    first one whether the quicker one takes any number of rows with it.

    Example:
        >>> import numpy as np
        >>> program = Program(lambda x: 2 * x)
        >>> program(np.ones(3)).tolist()
        [2.0, 2.0, 2.0]
    """

    _xla_knows_options: ClassVar[bool] = True

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Sequence[int] = (),
        has_few: Callable[[Any], bool] = lambda first: False,
    ):
        update_wrapper(self, function)
        self._has_few = has_few
        compiled = partial(jax.jit, function, static_argnums=static_argnums)
        self._usual, self._quick = compiled(), compiled(compiler_options=QUICK_TO_COMPILE)
        self.lower = self._usual.lower

    def __call__(self, *arguments: Any) -> Any:
        least = jax.config.read("jax_disable_most_optimizations")  # who asks for less gets it
        if least or not Program._xla_knows_options or not self._knows_few(arguments):
            return self._usual(*arguments)
        try:
            return self._quick(*arguments)
        except JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            Program._xla_knows_options = False
        except ValueError as error:
            if "only be passed to top-level" not in str(error):
                raise  # else it is inside another program, which traces no argument of this one
        return self._usual(*arguments)

    def for_rows(self, rows: int) -> Callable[..., Any]:
        """The function for so many rows, which its arguments may have in blocks."""
        return self if rows <= _FEW_ROWS else self._usual

    def _knows_few(self, arguments: tuple[Any, ...]) -> bool:
        """Whether arrays have few rows, and none is traced by a program around this one."""
        leaves = jax.tree.leaves(arguments)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return False
        shapes = (getattr(leaf, "shape", ()) for leaf in leaves)
        few = all(max(shape, default=0) <= _FEW_ROWS for shape in shapes)
        return few or self._has_few(arguments[0])
