"""Kernels of discrete times: autoregressions and random walks, with state-space forms."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError, check_ranges
from latentgp.extensions.state_space.kernels import StateSpace, Transition, state_space
from latentgp.extensions.state_space.lanes import UnrolledMatrix, identity
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import Kernel, same_variance
from latentgp.kernels.functionals import rough, rough_along
from latentgp.kernels.index import check_one_column
from latentgp.modules import stored
from latentgp.typing import Array, Values


class _OfTime(Kernel):
    """Base of kernels of one column of times."""

    def check_inputs(self, columns: int) -> None:
        check_one_column(self, columns, "times")


rough_along.register(_OfTime, rough)


class AR1(_OfTime):
    """Autoregression of order one at whole numbers of time, variance * rho^|t - u|.

    f(t + 1) = rho f(t) + e with e of variance (1 - rho^2) variance (Box & Jenkins 1970, 3.2.3). At
    rho > 0 it is `Matern12` of length-scale -1 / log(rho), at rho < 0 signs alternate. Times a
    kernel of space it is the spatio-temporal field "ar1" of R-INLA and sdmTMB.

    Args:
        correlation: rho of consecutive times, between -1 and 1; (1 + rho) / 2 has the weak prior
            Beta(2, 2).
        variance: of f at every time.

    Raises:
        InputError: times that are no whole numbers, several columns.

    Example:
        >>> import numpy as np
        >>> AR1(correlation=-0.5).gram(np.zeros((1, 1)), np.arange(3.0)[:, None]).tolist()
        [[1.0, -0.5, 0.25]]
    """

    correlation: Float[Array, ""] = parameter(
        constraints.interval(-1.0, 1.0), role="correlation", default=0.5
    )
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance * _power(self.correlation, jnp.abs(x[0] - z[0]))

    diagonal = same_variance

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        wrong = X[:, 0][X[:, 0] != np.round(X[:, 0])]
        if len(wrong):
            raise InputError(
                f"AR1 knows whole numbers of time, got {wrong[0]:g}; divide times by their step, "
                "or use Matern12, which is the same at any time."
            )


class RandomWalk(_OfTime):
    """Random walk from zero at a start, variance * (min(t, u) - start).

    Steps of length one are independent, each of the variance; between them it is Brownian motion.
    Its level at the start is a `Constant` beside it, or the model's mean.

    Args:
        variance: of a step of length one; units of the latent function squared.
        start: the time at which it is zero, before the first row or at it.

    Raises:
        InputError: times before the start, several columns.

    Example:
        >>> import numpy as np
        >>> float(RandomWalk(variance=0.5)(np.array([2.0]), np.array([7.0])))
        1.0
    """

    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)
    start: float = eqx.field(static=True, default=0.0, converter=float)

    def __check_init__(self) -> None:
        check_ranges(self, start="(-inf, inf)")

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance * (jnp.minimum(x[0], z[0]) - self.start)

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        early = X[:, 0][X[:, 0] < self.start]
        if len(early):
            raise InputError(
                f"RandomWalk starts at {self.start:g}, got the time {early.min():g}; give "
                "start=, a time before all rows."
            )


def _power(correlation: Float[Array, "*#S"], gap: Float[Array, "*#S"]) -> Float[Array, "*#S"]:
    """A correlation to a whole number.

    An odd one has the correlation itself as a factor, so that it has a slope at zero.
    """
    is_odd = jnp.round(gap) % 2 == 1
    even = jnp.exp((gap - is_odd) * _log_size(correlation))
    return jnp.where(is_odd, correlation, 1.0) * even


def _log_size(correlation: Float[Array, "*S"]) -> Float[Array, "*S"]:
    return jnp.log(jnp.maximum(jnp.abs(correlation), 1e-30))  # of zero there is none


@stored
class AutoregressiveSpace(StateSpace):
    """A value that is multiplied by a correlation at each step."""

    correlation: Values
    variance: Values

    @property
    def measurement(self) -> tuple[float, ...]:
        return (1.0,)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return UnrolledMatrix([[self.variance + 0 * t]])

    def transition(self, t: Values, gap: Values) -> Transition:
        left = -jnp.expm1(2 * gap * _log_size(self.correlation))
        moved = _power(self.correlation, gap)
        return UnrolledMatrix([[moved]]), UnrolledMatrix([[self.variance * left]])


@stored
class WalkSpace(StateSpace):
    """A value to which independent steps are added."""

    variance: Values  # of a step of length one
    start: float = eqx.field(static=True)

    @property
    def measurement(self) -> tuple[float, ...]:
        return (1.0,)

    def covariance(self, t: Values) -> UnrolledMatrix:
        return UnrolledMatrix([[self.variance * (t - self.start)]])

    def transition(self, t: Values, gap: Values) -> Transition:
        return identity(1), UnrolledMatrix([[self.variance * gap]])


@state_space.register
def _(kernel: AR1, truncation: Any) -> StateSpace:
    return AutoregressiveSpace(kernel.correlation, kernel.variance)


@state_space.register
def _(kernel: RandomWalk, truncation: Any) -> StateSpace:
    return WalkSpace(kernel.variance, kernel.start)
