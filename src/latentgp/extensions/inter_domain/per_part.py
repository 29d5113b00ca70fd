"""Variables of each part of a sum of kernels: coefficients, effects of groups, points."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import check_whole
from latentgp.extensions.inter_domain.base import Demands, FixedFeatures
from latentgp.extensions.inter_domain.functions import Basis
from latentgp.kernels import (
    CorrelatedLinear,
    FixedEffects,
    Kernel,
    Linear,
    MultipleMembership,
    SameGroup,
    White,
)
from latentgp.kernels.terms import Part, Term
from latentgp.modules import stored
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations import Inducing
from latentgp.representations.inducing.selection import select_points
from latentgp.typing import Array, Inputs

GROUPS = SameGroup | White
LINEAR = Linear | FixedEffects | CorrelatedLinear
OF_FINITE_RANK = GROUPS | LINEAR | MultipleMembership
_JITTER = 1e-9  # of the variance, on the diagonal of points that may be close


class PerPart(FixedFeatures):
    """Inducing variables of every part of a sum of kernels, exact where a part has finite rank.

    Fixed effects and slopes have their coefficients as variables, groups their effects, and other
    kernels inducing points in the columns that they see; a product has all products. So a mixed
    model with a smooth part costs what the smooth part costs, however many rows and groups there
    are, and without one nothing is approximated.

    Args:
        number: inducing points of each kernel that is none of these; of a product of such kernels
            as many together.

    Raises:
        InputError: no point.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> x, clinic = np.arange(60) / 10, np.arange(60) % 3
        >>> X, y = np.column_stack([x, clinic]), np.sin(x) + clinic
        >>> kernel = lgp.RBF().on(0) + lgp.Constant() * lgp.kernels.SameGroup().on(1)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=0.01))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.PerPart(20)))
        >>> fit = lgp.fit(model, lgp.Data(X, y), key=jax.random.key(0), method=method)
        >>> bool(abs(fit.posterior.mean_f([[3.0, 2.0]])[0] - np.sin(3.0) - 2) < 0.05)
        True
    """

    words = "parts of the kernel"
    fewer = "every group has one function for each of its effects: leave out slopes, or groups"
    number: int = eqx.field(static=True, default=100)

    def __check_init__(self) -> None:
        check_whole(self, number=1)

    def _of_term(self, term: Term, X: Inputs, demands: Demands) -> tuple[Basis, ...]:
        smooth = sum(not isinstance(part.kernel, OF_FINITE_RANK) for part in term.parts)
        demands = demands._replace(share=smooth)
        return tuple(self.basis(part, X[:, part.columns], demands) for part in term.parts)

    def basis(self, part: Part, columns: Inputs, demands: Demands) -> Basis:
        kernel: Any = part.kernel
        if isinstance(kernel, GROUPS):
            return GroupMembers(np.unique(columns, axis=0))
        if isinstance(kernel, MultipleMembership):
            return Memberships(np.unique(columns[:, : kernel.members]))
        if isinstance(kernel, LINEAR):
            return Coordinates(columns.shape[1] + getattr(kernel, "intercept", False))
        number = max(1, round(self.number ** (1 / demands.share)))
        key = jax.random.key(0)  # the same points for the same rows
        return Points(select_points(columns, None, kernel, number, "k-means++", key))


class WhiteFunctions(Basis):
    """Functions whose variables are standard normal, hyper-parameters being in the functions.

    So no part's units make another's numbers small. No sums over rows can be made of them.
    """

    is_white = True
    has_fixed_functions = False


@stored
class Coordinates(WhiteFunctions):
    """The columns themselves, whose coefficients a linear kernel has; ones first where asked."""

    size: int = eqx.field(static=True)

    @property
    def number(self) -> int:
        return self.size

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        own: Any = kernel
        if isinstance(own, CorrelatedLinear):
            return (own.effects(x) @ own.root()).T
        centred = x - own.centre if isinstance(own, FixedEffects) else x
        return (jnp.sqrt(own.variance) * centred).T


@stored
class GroupMembers(WhiteFunctions):
    """One function a group, which is zero at other groups' rows; groups seen later have none."""

    groups: Float[Array, "groups D"]

    @property
    def number(self) -> int:
        return self.groups.shape[0]

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        same = jnp.all(jnp.asarray(self.groups)[:, None] == x[None], axis=-1)
        variance = kernel.variance if isinstance(kernel, White) else 1.0
        return jnp.where(same, jnp.sqrt(jnp.asarray(variance, x.dtype)), 0.0)


@stored
class Memberships(WhiteFunctions):
    """The weight of each group at a row, which may have several of them."""

    groups: Float[Array, "groups"]

    @property
    def number(self) -> int:
        return self.groups.shape[0]

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        own: Any = kernel
        groups, weights = own.shares(x)
        same = jnp.asarray(self.groups)[:, None, None] == groups
        return jnp.sum(jnp.where(same, weights, 0.0), axis=2)


@stored
class Points(WhiteFunctions):
    """Whitened values at inducing points, of a kernel without a form of its own."""

    points: Float[Array, "M D"]

    @property
    def number(self) -> int:
        return self.points.shape[0]

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        points = jnp.asarray(self.points, x.dtype)
        gram = kernel.symmetric_gram(points)
        root = lower_cholesky(gram + _JITTER * jnp.diag(jnp.diagonal(gram)))
        return solve_lower(root, kernel.gram(points, x))


def of_each_part(number: int) -> Inducing:
    """So many points, and the coefficients of the other parts."""
    return Inducing(features=PerPart(number))
