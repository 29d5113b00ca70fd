"""The gap between an augmented bound and the bound without augmentation."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood, Marginals
from latentgp.modules import stored
from latentgp.numerics.quadrature import Nodes, expectation, sobol_nodes, trapezoidal_nodes
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.coupled import CoupledPosterior
from latentgp.rows.data import Data
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.sites.augmentations import Augmentation
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, PerRow
from latentgp.validation import checked_side, checked_targets

_NODES = {1: 2001, 2: 81}
_SOBOL_NODES = 4096


@stored
class AugmentationGap(NamedTuple):
    """The gap of a posterior over some rows, in nats.

    Attributes:
        total: over the rows, each as often as it weighs.
        rows: of each row once, shape (N,).
        error: how far `total` moves if half the nodes of its quadrature are left out.
    """

    total: float
    rows: PerRow
    error: float


@double_precision
def augmentation_gap(
    posterior: Posterior, data: Data, *, augmentation: Augmentation | None = None
) -> AugmentationGap:
    """Gap of the augmented bound: E_q log p(y | f) minus its augmented counterpart.

    It is E_q(f) KL(q(w) || p(w | y, f)) at the best q(w) (Galy-Fajou et al. 2020, 5.2), so the
    bound without augmentation is the augmented one plus the gap, and never less. Any Gaussian
    posterior has one, however it was fitted.

    Args:
        posterior: of a model whose likelihood has an augmentation.
        data: the rows; those of the fit make the gap that of its bound.
        augmentation: which one, where a likelihood has several; None is the registered one.

    Raises:
        InputError: the posterior is made of draws, or couples the latents of a row; the likelihood
            has no augmentation.

    Example:
        >>> import jax, latentgp as lgp
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), method=lgp.AugmentedVI())
        >>> bool(lgp.augmentation_gap(fit.posterior, data).total > 0)
        True
    """
    if not posterior.is_gaussian:
        raise InputError(
            "augmentation_gap needs a Gaussian posterior, and this one is made of draws, which "
            "have no bound; fit with AugmentedVI or VariationalInference."
        )
    if isinstance(posterior.latent, CoupledPosterior):
        raise InputError(
            "augmentation_gap needs latents of a row that are independent, as those of augmented "
            "bounds are; fit with AugmentedVI or VariationalInference(coupled=False)."
        )
    likelihood = posterior.model.likelihood
    augmentation = AugmentationRule(augmentation=augmentation).chosen(likelihood)
    side = checked_side(likelihood, dict(data.side_information), data.size)
    checked_targets(likelihood, data.y, data.size)
    f = posterior.predict_f(data.X)
    marginals = Marginals(*(part.reshape(data.size, -1) for part in f))
    gap, coarse = apply_in_buckets(
        _gap,
        augmentation,
        likelihood,
        rows=(np.asarray(data.y), marginals, side),
        columns=_nodes(likelihood.latent_size)[1].size * likelihood.latent_size,
    ).T
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    return AugmentationGap(float(gap @ weights), gap, abs(float((gap - coarse) @ weights)))


@jax.jit
def _gap(
    augmentation: Augmentation,
    likelihood: Likelihood,
    rows: tuple[Array, Marginals, dict[str, Array]],
) -> Float[Array, "N 2"]:
    """The gap a row with all nodes and with half of them."""
    y, marginals, side = rows
    sites = augmentation.bind(likelihood, Rows(y, None, side)).expected_sites(marginals)
    log_prob = likelihood._along_nodes(likelihood.log_prob, y, side)
    each = (_nodes(likelihood.latent_size, share) for share in (1, 2))
    values = [expectation(log_prob, *marginals, nodes) for nodes in each]
    return jnp.stack(values, axis=1) - sites.expected(marginals)[:, None]


@lru_cache
def _nodes(latent_size: int, share: int = 1) -> Nodes:
    """The trapezoidal rule, which a kink does not upset much, or Sobol points for Q > 2."""
    if latent_size > 2:
        return sobol_nodes(latent_size, _SOBOL_NODES // share)
    return trapezoidal_nodes(latent_size, _NODES[latent_size] // share)
