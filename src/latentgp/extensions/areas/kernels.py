"""Kernels of areas with neighbours, by the graph of which area borders on which."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpyro.distributions import Distribution, Weibull, constraints

from latentgp.errors import InputError
from latentgp.extensions.areas.graphs import GraphMatrix, adjacency_matrix, intrinsic, normalised
from latentgp.extensions.areas.penalised_share import PenalisedShare
from latentgp.hyperparameters.base import parameter
from latentgp.kernels.base import ActiveDimensions, Constant, Product, Scaled, Sum
from latentgp.kernels.index import IndexKernel, numbers_of
from latentgp.kernels.per_latent import LatentKernel
from latentgp.typing import Array

_MOST_DEPENDENT = 1 - 1e-6  # alpha, above which the level of a component is anything


class Areal(IndexKernel):
    """Base of kernels of areas: the one input column has their numbers, from 0.

    Rows read their covariances from a matrix of areas by areas, however many rows an area has.
    """

    things: ClassVar[str] = "areas"
    remedy: ClassVar[str] = (
        "a new area needs a graph that has it and its neighbours, with or without rows"
    )
    graph: GraphMatrix

    @property
    def size(self) -> int:
        return self.graph.areas

    @abstractmethod
    def between(self, a: Int[Array, "N"], b: Int[Array, "M"]) -> Float[Array, "N M"]:
        """Covariances between areas."""

    @abstractmethod
    def variances(self) -> Float[Array, "A"]:
        """Prior variance of every area."""

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return self.between(numbers_of(X), numbers_of(Z))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return self.variances()[numbers_of(X)]


class CAR(Areal):
    """Proper conditional autoregression: precision (D - alpha W) / variance (Besag 1974).

    W is the adjacency, D has the numbers of neighbours. Given all others, f of an area with n
    neighbours has mean alpha times theirs and variance `variance` / n. An area without any is
    independent of all others, with variance `variance`.

    Args:
        adjacency: symmetric matrix of 0 and 1, dense or of SciPy, shape (A, A); or pairs of
            neighbours, shape (pairs, 2), in one or both directions, with `areas`.
        variance: units of the latent function squared.
        alpha: dependence on the neighbours, between 0 and 1.
        areas: number of areas A, of pairs.

    Raises:
        InputError: an adjacency that is not symmetric, has other entries than 0 and 1, an area as
            its own neighbour or no pair at all.

    Example:
        >>> import numpy as np
        >>> kernel, areas = CAR([(0, 1), (1, 2)], alpha=0.5, areas=3), np.arange(3.0)[:, None]
        >>> precision = np.linalg.inv(kernel.gram(areas, areas))
        >>> [round(float(entry), 3) for entry in (*np.diagonal(precision), precision[0, 1])]
        [1.0, 2.0, 1.0, -0.5]
    """

    variance: Float[Array, ""] = parameter(constraints.positive, role="variance")
    alpha: Float[Array, ""] = parameter(constraints.interval(0.0, _MOST_DEPENDENT), role="share")

    def __init__(
        self, adjacency: Any, variance: Any = 1.0, alpha: Any = 0.9, *, areas: int | None = None
    ):
        self.graph = normalised(adjacency_matrix(adjacency, areas))
        self.variance, self.alpha = variance, alpha

    def between(self, a: Int[Array, "N"], b: Int[Array, "M"]) -> Float[Array, "N M"]:
        basis, spread = self.graph.held, self._spread()
        if len(a) * len(b) < self.graph.areas**2:
            return (basis[a] * spread) @ basis[b].T
        return ((basis * spread) @ basis.T)[a[:, None], b[None, :]]

    def variances(self) -> Float[Array, "A"]:
        return self.graph.held**2 @ self._spread()

    def _spread(self) -> Float[Array, "A"]:
        return self.variance / (1 - self.alpha * self.graph.eigenvalues)


class ICAR(Areal):
    """Intrinsic conditional autoregression: `CAR` as alpha goes to 1 (Besag et al. 1991).

    Its covariance is `variance` times the generalised inverse of D - W, so that the values of a
    connected component have sum zero: add `Constant` or a `ConstantMean` for their level. Scaled,
    each component of several areas has variances whose geometric mean is `variance`, which so means
    the same on every graph (Sørbye & Rue 2014; Freni-Sterrantino et al. 2018). An area without
    neighbours is independent of all others, with variance `variance`.

    Args:
        adjacency: as for `CAR`.
        variance: units of the latent function squared.
        scaled: whether variances are of a geometric mean.
        areas: number of areas A, of pairs.

    Raises:
        InputError: an adjacency that `CAR` does not take.

    Example:
        >>> import numpy as np
        >>> kernel = ICAR([(0, 1), (1, 2)], areas=3)
        >>> variances = kernel.diagonal(np.arange(3.0)[:, None])
        >>> round(float(np.exp(np.mean(np.log(variances)))), 6)
        1.0
    """

    variance: Float[Array, ""] = parameter(constraints.positive, role="variance")
    scaled: bool = eqx.field(static=True, default=True)

    def __init__(
        self, adjacency: Any, variance: Any = 1.0, *, scaled: bool = True, areas: int | None = None
    ):
        self.graph = intrinsic(adjacency_matrix(adjacency, areas), scaled=scaled)
        self.variance, self.scaled = variance, scaled

    def between(self, a: Int[Array, "N"], b: Int[Array, "M"]) -> Float[Array, "N M"]:
        return self.variance * self.graph.held[a[:, None], b[None, :]]

    def variances(self) -> Float[Array, "A"]:
        return self.variance * jnp.diagonal(self.graph.held)


class BYM2(Areal):
    """Effects of areas with a spatially structured share, the rest independent.

    The covariance is variance * (rho R + (1 - rho) I), R that of a scaled `ICAR` (Riebler et al.
    2016): `variance` is the variance of the effects whatever the graph, and `rho` the share
    that neighbours have in common. Components of the graph are scaled one by one, and an area
    without neighbours has the variance `variance` (Freni-Sterrantino et al. 2018).

    The default priors have penalised complexity: the standard deviation is exponential, its mean
    the latent function's typical size, and rho is below 1/2 with probability 2/3 (`prior_of_rho`).

    Args:
        adjacency: as for `CAR`.
        variance: units of the latent function squared.
        rho: share of the structured effects, between 0 and 1.
        areas: number of areas A, of pairs.

    Raises:
        InputError: an adjacency that `CAR` does not take.

    Example:
        >>> import numpy as np
        >>> kernel = BYM2([(0, 1), (1, 2)], variance=2.0, rho=0.0, areas=4)
        >>> kernel.diagonal(np.arange(4.0)[:, None]).tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    variance: Float[Array, ""] = parameter(constraints.positive, role="variance")
    rho: Float[Array, ""] = parameter(constraints.unit_interval, role="share")

    def __init__(
        self, adjacency: Any, variance: Any = 1.0, rho: Any = 0.5, *, areas: int | None = None
    ):
        self.graph = intrinsic(adjacency_matrix(adjacency, areas), scaled=True)
        self.variance, self.rho = variance, rho

    def between(self, a: Int[Array, "N"], b: Int[Array, "M"]) -> Float[Array, "N M"]:
        structured = self.graph.held[a[:, None], b[None, :]]
        own = a[:, None] == b[None, :]
        return self.variance * (self.rho * structured + (1 - self.rho) * own)

    def variances(self) -> Float[Array, "A"]:
        return self.variance * (self.rho * jnp.diagonal(self.graph.held) + 1 - self.rho)

    def prior_of_rho(self, below: float = 0.5, probability: float = 2 / 3) -> Distribution:
        """Penalised-complexity prior of rho, below a number with a probability.

        Raises:
            InputError: a number or a probability that is not between 0 and 1.

        Example:
            >>> kernel = BYM2([(0, 1), (1, 2)], areas=3)
            >>> float(kernel.prior_of_rho(below=0.2, probability=0.9).rate) > 0
            True
        """
        if not (0 < below < 1 and 0 < probability < 1):
            raise InputError(
                "A prior of rho needs below and probability between 0 and 1, got "
                f"below={below}, probability={probability}."
            )
        return PenalisedShare.from_statement(
            np.asarray(self.graph.eigenvalues, np.float64), below, probability
        )

    def weak_prior(self, name: str, latent: float) -> Distribution | None:
        return Weibull(latent**2, 0.5) if name == "variance" else self.prior_of_rho()


def areas_alone(kernel: LatentKernel) -> int | None:
    """Number of areas, if all that a kernel reads is which area a row is of."""
    if isinstance(kernel, Areal):
        return kernel.graph.areas
    if isinstance(kernel, Scaled | ActiveDimensions):
        return areas_alone(kernel.kernel)
    if not isinstance(kernel, Sum | Product):
        return None
    found = [areas_alone(part) for part in kernel.parts if not isinstance(part, Constant)]
    return max((number for number in found if number), default=None) if all(found) else None
