"""Expectations where the latents of a row are correlated: f = m + R z with independent z."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float

from latentgp.likelihoods.base import (
    AnyMarginals,
    JointMarginals,
    Likelihood,
    Marginals,
    SideInformation,
)
from latentgp.modules import forwarded
from latentgp.numerics.quadrature import expectation, hermite_nodes, nodes_near, sobol_nodes
from latentgp.numerics.small_matrices import small_eigh, small_solve_lower
from latentgp.typing import Array, PerRow, RowLatents

_MEAN, _ROOT = "mean of f", "root of the covariance of f"
_NODES_ALONG = {1: 121, 2: 40, 3: 17}  # of a grid; quasi-random points for more latents
_HERMITE, _HERMITE_NODES = 3, 10  # latents of which bounds take a grid, and its nodes along each
_POINTS = 4096
_WIDER = 1.25  # than the law that they are near, those points


def _of_f(name: str) -> Any:
    """Method of one row that is that of the likelihood of f; latents and side information last."""

    def of_z(self: Any, *given: Any) -> Any:
        *first, z, side = given
        f = side[_MEAN] + side[_ROOT] @ z
        return getattr(self.own, name)(*first, f, _without(side))

    return of_z


class WhitenedLikelihood(Likelihood):
    """A likelihood as a function of independent standard normal z, where f = m + R z.

    What a row's m and R are comes as side information. So every default by quadrature serves
    correlated latents too.
    """

    own: Likelihood  # the likelihood of f

    latent_size = forwarded("own.latent_size")
    output_shape = forwarded("own.output_shape")
    targets = forwarded("own.targets")
    atoms = forwarded("own.atoms")

    log_prob = _of_f("log_prob")
    conditional_moments = _of_f("conditional_moments")
    sample = _of_f("sample")
    cdf = _of_f("cdf")
    class_probabilities = _of_f("class_probabilities")

    def expected_log_prob(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> PerRow:
        if self.latent_size != _HERMITE:
            return super().expected_log_prob(y, marginals, side)
        # Quasi-random points would leave sites of the softmax a negative eigenvalue.
        nodes = hermite_nodes(_HERMITE, _HERMITE_NODES)
        return expectation(self._along_nodes(self.log_prob, y, side), *marginals, nodes)

    def _quantiles_around(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N *P"], Float[Array, "N *P"]]:
        if self.targets == "real" and not self.output_shape:
            joint, _ = self.of_f(side)
            marginals = Marginals(joint.mean, joint.variance)
        return super()._quantiles_around(marginals, side)

    @property
    def has_sure_moments(self) -> bool:
        """Whether `tilted` is by a grid or in closed form; not by quasi-random points."""
        return self.latent_size in _NODES_ALONG

    @property
    def has_sure_bounds(self) -> bool:
        """Whether E log p(y | f) is by quadrature that a search cannot exploit, or closed."""
        return self.latent_size <= 2

    @property
    def nodes(self) -> int:
        """Number of nodes of `tilted`."""
        latents = self.latent_size
        return _NODES_ALONG[latents] ** latents if latents in _NODES_ALONG else _POINTS

    def of_f(self, side: SideInformation) -> tuple[JointMarginals, SideInformation]:
        """The law of f, and the side information of the likelihood of f."""
        root = side[_ROOT]
        joint = JointMarginals(side[_MEAN], root @ jnp.swapaxes(root, -1, -2))
        return joint, _without(side)

    def tilted(
        self,
        y: Float[Array, "N *P"],
        cavity: JointMarginals,
        side: SideInformation,
        power: float,
        near: JointMarginals,
    ) -> tuple[PerRow, JointMarginals]:
        """Log mass, means and covariances of cavity times p(y | f)^power, a row; power in (0, 1].

        On a grid for up to three latents, at quasi-random points for more, dense where `near` is.
        The cavity and the side information are those of f.
        """
        f, log_weights = _nodes_near(cavity, near)
        log_prob = self.own._along_nodes(self.own.log_prob, y, side)(f)
        log_terms = power * log_prob + log_weights
        log_mass = logsumexp(log_terms, axis=1)
        share = jnp.exp(log_terms - log_mass[:, None])
        mean = jnp.einsum("ns,nsq->nq", share, f)
        away = f - mean[:, None]
        return log_mass, JointMarginals(mean, jnp.einsum("ns,nsq,nsr->nqr", share, away, away))


def jointly(
    likelihood: Likelihood, marginals: AnyMarginals, side: SideInformation
) -> tuple[Likelihood, Marginals, SideInformation]:
    """Likelihood, independent marginals and side information that stand for correlated latents.

    Expectations of the first under the second are those of `likelihood` under `marginals`; what is
    independent already is given back as it is.
    """
    if isinstance(marginals, Marginals):
        return likelihood, marginals, side
    mean, root = marginals.mean, marginals.root()
    with_law = {**side, _MEAN: mean, _ROOT: root}
    return turned(likelihood), Marginals(jnp.zeros_like(mean), jnp.ones_like(mean)), with_law


def turned(likelihood: Likelihood) -> WhitenedLikelihood:
    """A likelihood as a function of independent latents."""
    own = likelihood.turned()
    return own if isinstance(own, WhitenedLikelihood) else WhitenedLikelihood(likelihood)


def _without(side: SideInformation) -> SideInformation:
    return {name: values for name, values in side.items() if name not in (_MEAN, _ROOT)}


def _nodes_near(
    law: JointMarginals, near: JointMarginals
) -> tuple[Float[Array, "N S Q"], Float[Array, "N S"]]:
    """Nodes and log weights for expectations under a law, dense near another one."""
    latents = law.mean.shape[1]
    root = near.root()
    # In t, with f = root V t, latents are independent under both laws.
    half = small_solve_lower(root, law.root())
    variance, V = small_eigh(half @ jnp.swapaxes(half, 1, 2))
    variance = jnp.maximum(variance, float(jnp.finfo(variance.dtype).tiny))

    def to_t(f: RowLatents) -> RowLatents:
        return (jnp.swapaxes(V, 1, 2) @ small_solve_lower(root, f[:, :, None]))[:, :, 0]

    mean, near_mean = to_t(law.mean), to_t(near.mean)
    if latents in _NODES_ALONG:
        along = _NODES_ALONG[latents]
        t, log_weights = nodes_near(mean, variance, near_mean, jnp.ones_like(mean), along)
    else:
        points = jnp.asarray(sobol_nodes(latents, _POINTS)[0], mean.dtype)
        t = near_mean[:, None] + _WIDER * points
        scaled = (t - mean[:, None]) ** 2 / variance[:, None]
        log_ratio = 0.5 * (points**2 - scaled) - 0.5 * jnp.log(variance)[:, None]
        log_weights = jnp.sum(log_ratio + np.log(_WIDER), axis=2) - np.log(len(points))
    return t @ jnp.swapaxes(root @ V, 1, 2), log_weights
