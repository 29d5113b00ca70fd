"""Kernels of what mixed models add up: fixed effects, effects of groups, centred smooths."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Beta, Distribution, TransformedDistribution, constraints
from numpyro.distributions.transforms import AffineTransform

from latentgp.errors import InputError, check_whole
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import Kernel, contains
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, PerColumn, in_double_precision


class FixedEffects(Kernel):
    """Linear functions with vague coefficients, sum_d v_d (x_d - c_d) (z_d - c_d).

    The prior variances are not learned, so that coefficients are fixed effects in the sense of
    mixed models: the evidence integrates over them, as restricted maximum likelihood does
    (Rasmussen & Williams 2006, 2.7). Use it on chosen columns, one of ones for the intercept, and
    read the coefficients by `posterior.coefficients()`.

    Args:
        variance: prior variance of each coefficient, scalar or shape (D,); units of the latent
            function squared over those of the inputs squared. Ten times the latent function's
            spread over the column's, squared, is vague.
        centre: of the columns, where the prior of the intercept is; scalar or shape (D,).

    Raises:
        InputError: a variance that is not positive, or values that are not finite.

    Example:
        >>> import numpy as np
        >>> kernel = FixedEffects(variance=[4.0, 1.0], centre=[0.0, 2.0])
        >>> float(kernel(np.array([1.0, 3.0]), np.array([1.0, 4.0])))
        6.0
    """

    variance: PerColumn
    centre: PerColumn

    def __init__(self, variance: Any, centre: Any = 0.0):
        self.variance = in_double_precision(variance)
        self.centre = in_double_precision(centre)

    def __check_init__(self) -> None:
        known = isinstance(self.variance, np.ndarray) and isinstance(self.centre, np.ndarray)
        if known and not (np.all(self.variance > 0) and np.all(np.isfinite(self.centre))):
            raise InputError(
                "FixedEffects needs positive variances and finite centres, got "
                f"{self.variance.tolist()} and {self.centre.tolist()}."
            )

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.sum(self.variance * (x - self.centre) * (z - self.centre))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return (self.variance * (X - self.centre)) @ (Z - self.centre).T

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.sum(self.variance * (X - self.centre) ** 2, axis=1)

    def __repr__(self) -> str:
        return f"FixedEffects({np.size(self.variance)} coefficients)"


class SameGroup(Kernel):
    """One where all columns agree, zero elsewhere: an independent function for every group.

    `Constant(v) * SameGroup().on(g)` is a random intercept, `Linear().on(x) * SameGroup().on(g)`
    a random slope, and `RBF().on(x) * SameGroup().on(g)` a smooth function of every group's own.

    Example:
        >>> import numpy as np
        >>> SameGroup().gram(np.array([[1.0], [2.0]]), np.array([[2.0]])).tolist()
        [[0.0], [1.0]]
    """

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return jnp.where(jnp.all(x == z), 1.0, 0.0).astype(x.dtype)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.ones(len(X), X.dtype)


class MultipleMembership(Kernel):
    """Groups of which a row has several: the weighted mean of independent functions of these.

    sum_ab w_a u_b [x_a = z_b] for rows with members x_a and z_b of one grouping (Browne, Goldstein
    & Rasbash 2001, 2): pupils who changed schools, papers of several authors. In place of
    `SameGroup`, `Constant(v) * MultipleMembership(2).on(a, b)` is a random intercept.

    Args:
        members: columns of groups, the first ones. As many columns of weights may follow; without
            them every weight is one over the number of members.
        standardised: whether the weights of a row are divided by their sum.

    Raises:
        InputError: no member, other columns than these, weights whose sum is zero.

    Example:
        >>> import numpy as np
        >>> rows = np.array([[1.0, 2.0, 3.0, 1.0], [2.0, 2.0, 1.0, 1.0]])
        >>> MultipleMembership(2).gram(rows, rows).tolist()
        [[0.625, 0.25], [0.25, 1.0]]
    """

    members: int = eqx.field(static=True)
    standardised: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_whole(self, members=1)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        (x, w), (z, u) = self.shares(X), self.shares(Z)
        total = jnp.zeros((len(X), len(Z)), X.dtype)
        for a in range(self.members):
            for b in range(self.members):
                same = x[:, a, None] == z[None, :, b]
                total = total + jnp.where(same, w[:, a, None] * u[None, :, b], 0.0)
        return total

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.sum(self.shares(X)[1] ** 2, axis=1)

    def shares(
        self, X: Float[Array, "N D"]
    ) -> tuple[Float[Array, "N members"], Float[Array, "N members"]]:
        """Groups of each row, and their weights: of one that is there twice all at the first."""
        groups, weights = X[:, : self.members], X[:, self.members :]
        if weights.shape[1] not in (0, self.members):
            raise InputError(
                f"MultipleMembership({self.members}) sees {X.shape[1]} columns; give one for each "
                "member, or as many weights too."
            )
        if not weights.shape[1]:
            weights = jnp.full_like(groups, 1 / self.members)
        elif self.standardised:
            weights = weights / jnp.sum(weights, axis=1, keepdims=True)
        same = groups[:, :, None] == groups[:, None]
        again = jnp.any(jnp.tril(same, -1), axis=2)
        return groups, jnp.where(again, 0.0, jnp.einsum("nab,nb->na", same, weights))

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        if X.shape[1] > self.members and self.standardised:
            wrong = int(np.sum(np.sum(X[:, self.members :], axis=1) == 0))
            if wrong:
                raise InputError(
                    f"Weights of members add up to zero in {wrong} row(s); correct them, or take "
                    "standardised=False."
                )


class CorrelatedLinear(Kernel):
    """Lines whose intercept and slopes are correlated, (1, x)' S (1, z).

    S has the given variances on its diagonal, and correlations by partial ones (Lewandowski,
    Kurowicka & Joe 2009, 2), which take any values between -1 and 1. Times `SameGroup` it is the
    term (1 + x | group) of mixed models; without an intercept x' S z, the term (0 + x | group).

    Args:
        variance: of the intercept and the slope of each column, shape (E,); units of the latent
            function squared, over those of the inputs squared.
        partial_correlation: shape (E (E - 1) / 2,), the lower triangle by rows; zeros if not given.
        intercept: whether there is one, before the slopes.

    Raises:
        InputError: not as many as the variances need.

    Example:
        >>> import numpy as np
        >>> kernel = CorrelatedLinear(variance=[4.0, 1.0], partial_correlation=[0.5])
        >>> kernel.covariance().round(3).tolist()
        [[4.0, 1.0], [1.0, 1.0]]
    """

    variance: Float[Array, "E"] = parameter(constraints.positive)
    partial_correlation: Float[Array, "pairs"] = parameter(
        constraints.interval(-1.0, 1.0), role="correlation"
    )
    intercept: bool = eqx.field(static=True, default=True)

    def __init__(self, variance: Any, partial_correlation: Any = None, intercept: bool = True):
        self.intercept = intercept
        self.variance = in_double_precision(variance)
        pairs = np.size(variance) * (np.size(variance) - 1) // 2
        given = np.zeros(pairs) if partial_correlation is None else partial_correlation
        self.partial_correlation = in_double_precision(given)

    def __check_init__(self) -> None:
        pairs = np.size(self.variance) * (np.size(self.variance) - 1) // 2
        if np.ndim(self.variance) == 1 and np.shape(self.partial_correlation) != (pairs,):
            raise InputError(
                f"CorrelatedLinear of {np.size(self.variance)} variances needs {pairs} partial "
                f"correlation(s), got {np.shape(self.partial_correlation)}."
            )

    @double_precision
    def covariance(self) -> Float[Array, "E E"]:
        """S, of the intercept and the slopes."""
        root = self.root()
        return root @ root.T

    def prior_of_correlation(self, concentration: float = 2.0) -> Distribution:
        """LKJ prior of the correlations, |R|^(concentration - 1), as a law of the partial ones.

        Those given k others are independent Beta(b, b) on (-1, 1), b = concentration +
        (D - 1 - k) / 2 of D slopes (Lewandowski, Kurowicka & Joe 2009, 2.4). One of 1 is uniform.

        Raises:
            InputError: a concentration that is not positive.

        Example:
            >>> kernel = CorrelatedLinear([1.0, 1.0, 1.0])
            >>> kernel.prior_of_correlation(2.0).base_dist.concentration1.tolist()
            [2.5, 2.5, 2.0]
        """
        if not concentration > 0:
            raise InputError(f"An LKJ prior's concentration must be positive, got {concentration}.")
        slopes = len(np.asarray(self.variance)) - 1
        given = np.array([k for place in range(slopes + 1) for k in range(place)])
        shape = concentration + (slopes - 1 - given) / 2
        between = AffineTransform(-1.0, 2.0, domain=constraints.unit_interval)
        return TransformedDistribution(Beta(shape, shape), between)

    def weak_prior(self, name: str, latent: float) -> Distribution | None:
        has_pairs = name == "partial_correlation" and np.size(self.partial_correlation)
        return self.prior_of_correlation() if has_pairs else None

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        root = self.root()
        return (self.effects(X) @ root) @ (self.effects(Z) @ root).T

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.sum((self.effects(X) @ self.root()) ** 2, axis=1)

    def effects(self, X: Float[Array, "N D"]) -> Float[Array, "N E"]:
        """What intercept and slopes multiply: ones before the columns, if there is an intercept."""
        return jnp.pad(X, ((0, 0), (1, 0)), constant_values=1.0) if self.intercept else X

    def root(self) -> Float[Array, "E E"]:
        """Lower root of S: each row on the unit sphere, one partial correlation after another."""
        rows, start = [], 0
        for place in range(self.variance.shape[0]):
            left, row = jnp.ones((), self.variance.dtype), []
            for partial in self.partial_correlation[start : start + place]:
                row.append(partial * left)
                left = left * jnp.sqrt(1 - partial**2)
            start += place
            filled = [*row, left, *[jnp.zeros_like(left)] * (self.variance.shape[0] - place - 1)]
            rows.append(jnp.stack(filled))
        return jnp.sqrt(self.variance)[:, None] * jnp.stack(rows)


class ZeroAverage(Kernel):
    """A kernel given that the average over some points is zero, k(x, z) - m(x) m(z) / c.

    m(x) is the mean of k(x, p) over the points p, and c that of m(p) (Durrande, Ginsbourger,
    Roustant & Carraro 2013, 3.2). A product of such kernels of one column each is of interactions
    alone: the average of f over one column is zero at every value of the others.

    Args:
        kernel: of the functions without that condition.
        points: as many as the average needs, shape (P, D), such as quantiles of the rows.

    Example:
        >>> import jax.numpy as jnp, latentgp as lgp, numpy as np
        >>> points = np.array([[0.0], [1.0], [2.0]])
        >>> kernel = lgp.kernels.ZeroAverage(lgp.RBF(), points)
        >>> bool(jnp.all(jnp.abs(jnp.mean(kernel.gram(points, points), axis=0)) < 1e-6))
        True
    """

    kernel: Kernel
    points: Float[Array, "P D"]

    def __init__(self, kernel: Kernel, points: Any):
        self.kernel, self.points = kernel, in_double_precision(points)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.kernel.gram(X, Z) - self._scaled(X)[:, None] * self._scaled(Z)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.maximum(self.kernel.diagonal(X) - self._scaled(X) ** 2, 0.0)

    def __repr__(self) -> str:
        return f"ZeroAverage({self.kernel!r}, {len(self.points)} points)"

    def _scaled(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        """m(x) / sqrt(c)."""
        points = jnp.asarray(self.points, X.dtype)
        variance = jnp.mean(self.kernel.gram(points, points))
        return jnp.mean(self.kernel.gram(X, points), axis=1) / jnp.sqrt(variance)


def has_effects(kernel: Any) -> bool:
    """Whether a kernel, or a part of it, is of fixed effects or of groups."""
    return contains(kernel, (FixedEffects, CorrelatedLinear, SameGroup, MultipleMembership))
