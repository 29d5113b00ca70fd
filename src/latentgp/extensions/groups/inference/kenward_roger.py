"""Covariances and degrees of freedom adjusted for estimated variances (Kenward & Roger 1997)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Float

from latentgp.errors import refuse
from latentgp.extensions.groups.inference.contrasts import TermTest
from latentgp.extensions.groups.inference.design import FixedDesign
from latentgp.extensions.groups.inference.law import EffectsLaw
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels.parts import parts_of
from latentgp.likelihoods import Gaussian, SideInformation
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import Data
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, HyperVector, Inputs, PerRow

_MOST_ROWS = 2_000
_NO_SHARE = 1e-10  # of the greatest eigenvalue: what is not inverted


class KenwardRoger(EffectsLaw):
    """Fixed effects with Kenward & Roger's covariance, and F tests scaled as theirs.

    Attributes:
        names: of the fixed effects.
        estimate: of these, shape (effects,).
        covariance: adjusted for the estimated variances, shape (effects, effects).
        plain: the same given the variances, shape (effects, effects).
        slopes: derivatives of its inverse in the H variance parameters, shape
            (H, effects, effects).
        spread: covariance of these parameters by the expected information, shape (H, H).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    estimate: Float[np.ndarray, "effects"]
    covariance: Float[np.ndarray, "effects effects"]
    plain: Float[np.ndarray, "effects effects"]
    slopes: Float[np.ndarray, "H effects effects"]
    spread: Float[np.ndarray, "H H"]

    def degrees(self, weights: Float[np.ndarray, "sums effects"]) -> Float[np.ndarray, "sums"]:
        """Those of an F test of each sum by itself."""
        return np.array([self.f_test(row[None]).denominator for row in weights])

    def f_test(self, weights: Float[np.ndarray, "rank effects"]) -> TermTest:
        """A scaled Wald statistic whose first two moments are those of F (1997, 3)."""
        q, moved = len(weights), weights @ self.estimate
        wald = moved @ np.linalg.solve(weights @ self.covariance @ weights.T, moved) / q
        theta = weights.T @ np.linalg.solve(weights @ self.plain @ weights.T, weights)
        u = np.einsum("ij,jk,hkl,lm->him", theta, self.plain, self.slopes, self.plain)
        traces = np.einsum("hii->h", u)
        first = traces @ self.spread @ traces
        second = np.einsum("hk,hij,kji->", self.spread, u, u)
        if second <= 0:
            return TermTest.of(wald, q, np.inf)
        B = (first + 6 * second) / (2 * q)
        g = ((q + 1) * first - (q + 4) * second) / ((q + 2) * second)
        c1, c2, c3 = np.array([g, q - g, q + 2 - g]) / (3 * q + 2 * (1 - g))
        top, left, right = 1 + c1 * B, 1 - c2 * B, 1 - c3 * B
        mean = 1 - second / q
        # Both are zero in the balanced designs where F is exact.
        share = 1.0 if abs(mean) < _NO_SHARE and abs(left) < _NO_SHARE else mean / left
        rho = share**2 * top / right / q
        degrees = 4 + (q + 2) / (q * rho - 1)
        scale = 1.0 if abs(degrees - 2) < 0.01 else degrees * mean / (degrees - 2)
        return TermTest.of(scale * wald, q, degrees)


@double_precision
@one_blas_thread()
def kenward_roger(
    posterior: Posterior,
    data: Data,
    learned: Collection[str],
    names: Sequence[str] | None = None,
) -> KenwardRoger:
    """Fixed effects of a fit with Gaussian noise, with Kenward & Roger's covariance.

    Second derivatives of the covariance V of the targets in the variance parameters are left out,
    which are zero for effects of groups: V is linear in their variances and covariances. O(N^3).

    Args:
        posterior: of the fit.
        data: rows that were fitted, at most 2,000.
        learned: paths of the hyper-parameters that were learned.
        names: of all columns of the inputs; their numbers unless given.

    Raises:
        InputError: another likelihood, more rows, no fixed effects.

    Example:
        >>> import latentgp as lgp
        >>> from latentgp.kernels import FixedEffects, SameGroup
        >>> group, treated = np.arange(40) // 4, np.arange(40) % 2
        >>> y = np.sin(group) + 0.3 * treated + 0.1 * np.cos(7 * np.arange(40))
        >>> kernel = FixedEffects(1e4).on(0, 1) + lgp.Constant() * SameGroup().on(2)
        >>> data = Data(np.column_stack([np.ones(40), treated, group]), y)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), priors=None)
        >>> lgp.groups.kenward_roger(fit.posterior, data, fit.priors).coefficients().degrees.round()
        array([ 9., 29.])
    """
    model = posterior.model
    is_small = isinstance(model.likelihood, Gaussian) and data.size <= _MOST_ROWS
    refuse(
        {
            f"Kenward and Roger's degrees of freedom take Gaussian noise and at most {_MOST_ROWS} "
            f"rows, got {type(model.likelihood).__name__} and {data.size}; take "
            'degrees="satterthwaite".': not is_small
        }
    )
    design = FixedDesign.of(model.kernel, data.X.shape[1])
    own = design.effects(posterior, names)
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    data, weights = data.select(weights > 0), weights[weights > 0]
    columns = design.columns(data.X)
    refuse(
        {
            "Columns of the fixed effects follow from others, which Kenward and Roger's covariance "
            "does not take; leave these out.": np.linalg.matrix_rank(columns) < len(own.names)
        }
    )
    held = tuple(path for path in parameters(model) if path not in learned)
    space = ParameterSpace(model, frozen=held)
    vector = jnp.asarray(space.to_vector())
    given = jnp.asarray(data.X), jnp.asarray(weights), data.side_information
    found = _information(space, vector, jnp.asarray(columns), *given, design.others)
    plain, slopes, twice, information = map(np.asarray, found)
    spread = 2 * _inverse(information)
    inner = twice - np.einsum("hij,jk,gkl->hgil", slopes, plain, slopes)
    more = plain @ np.einsum("hg,hgij->ij", spread, inner) @ plain
    return KenwardRoger(own.names, own.estimate, plain + more + more.T, plain, slopes, spread)


@partial(jax.jit, static_argnames="others")
def _information(
    space: ParameterSpace,
    vector: HyperVector,
    design: Float[Array, "N effects"],
    X: Inputs,
    weights: PerRow,
    side: SideInformation,
    others: tuple[int, ...],
) -> tuple[Array, Array, Array, Array]:
    """C, slopes P of its inverse, second moments Q of these, and twice the information (1997, 2).

    Expected information of the restricted likelihood; signs of P cancel wherever it is used. A row
    of weight w is w rows: their mean has the noise over w, the w - 1 differences the whole of it.
    """

    def noise(vector: HyperVector) -> PerRow:
        likelihood: Any = space.to_model(vector).likelihood
        return likelihood.total_noise_variance(side) + jnp.zeros_like(weights)

    def covariance(vector: HyperVector) -> Float[Array, "N N"]:
        kernels, start = parts_of(space.to_model(vector).kernel), jnp.diag(noise(vector) / weights)
        return sum((kernels[j].gram(X, X) for j in others), start=start)

    factor = cho_factor(covariance(vector), lower=True)
    moved = jnp.moveaxis(jax.jacfwd(covariance)(vector), 2, 0)
    solved = cho_solve(factor, design)
    plain = jnp.linalg.inv(design.T @ solved)
    along = moved @ solved  # V_h V^-1 X
    slopes = jnp.einsum("np,hnq->hpq", solved, along)
    again = jax.lax.map(lambda own: cho_solve(factor, own), along)
    twice = jnp.einsum("hnp,gnq->hgpq", along, again)
    whole = jax.lax.map(lambda own: cho_solve(factor, own), moved)
    information = jnp.einsum("hnm,gmn->hg", whole, whole)
    information -= 2 * jnp.einsum("pq,hgqp->hg", plain, twice)
    relative = jax.jacfwd(noise)(vector) / noise(vector)[:, None]
    information += jnp.einsum("n,nh,ng->hg", weights - 1, relative, relative)
    half = jnp.einsum("pq,hqr->hpr", plain, slopes)
    return plain, slopes, twice, information + jnp.einsum("hpq,gqp->hg", half, half)


def _inverse(information: Float[np.ndarray, "H H"]) -> Float[np.ndarray, "H H"]:
    """Inverse, but for directions without any."""
    scale = np.sqrt(np.maximum(np.diagonal(information), np.finfo(float).tiny))
    return np.linalg.pinv(information / np.outer(scale, scale), _NO_SHARE) / np.outer(scale, scale)
