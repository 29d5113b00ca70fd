"""Laws of the latent functions at each row, given all rows but that one.

Cavities are the marginals of a Gaussian posterior divided by the row's site; the other rows' sites
are held (Vehtari et al. 2016, 3.1). Of Gaussian noise the sites are the likelihood itself, and
cavities are exact (Rasmussen & Williams 2006, 5.10 to 5.12). Elsewhere that moves the answer by up
to some tenths of a nat where rows are few and tell much. There `without_rows` lets the sites
converge anew, from where they were, at the same hyper-parameters: what a fit without the row says.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Marginals, SideInformation
from latentgp.models import LatentGP
from latentgp.representations.base import LatentPosterior
from latentgp.representations.dense import DensePosterior
from latentgp.rows.data import Data, padded_size
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.mesh import number_of_shards
from latentgp.site_inference.rules.base import SiteRule
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.site_inference.search.fixed_point import SETTLED
from latentgp.site_inference.search.profiled_bound import converge
from latentgp.sites.coupled import CoupledSites, Sites, sites_of
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array

_STRONG = 0.5  # of the precision at a row, a site's share from which division loses digits
_IMPROPER = 1e-9  # precision of a cavity as a share of the marginal's
_WORK = 3e10  # multiplications in all: a second or two
_UPDATES = 15  # of the sites, about, from where they were
_ALIKE = 1e-4  # in deviations: a posterior of these sites is the one that is asked about


class _Rows(NamedTuple):
    """Rows with their targets."""

    X: Float[Array, "N D"]
    y: Float[Array, "N *P"]
    side: SideInformation
    weight: Float[Array, "N"]
    copy: Float[Array, "N"]  # share of the weight that is left out: that of one copy
    sites: Any  # linear terms and precisions with row weights; None where the rule makes them


def cavities(
    model: LatentGP, latent: LatentPosterior, data: Data, rule: SiteRule, sites: Sites | None
) -> tuple[AnyMarginals, Bool[np.ndarray, "N"]]:
    """Laws of f at every row without one copy of it, and which of them are improper.

    A row of weight w is w copies; of one below one all is left out. Where the law is improper it is
    NaN. `sites` are of the merged rows as functions of f, with row weights; None for those that the
    rule makes of the marginals.
    """
    weight = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    given = None if sites is None else tuple(np.asarray(part) for part in sites[:2])
    told = _Rows(data.X, data.y, data.side_information, weight, 1 / np.maximum(weight, 1.0), given)
    columns = len(latent.centres) * model.likelihood.latent_size
    found = apply_in_buckets(_cavities, model, latent, rule, rows=told, columns=columns)
    law, linear, precision, share = found
    law = JointMarginals(*law) if law[1].ndim == 3 else Marginals(*law)
    if model.likelihood.latent_size == 1 and isinstance(law, Marginals):
        law, share = _by_residuals(law, latent, told, linear, precision, share)
    variance = np.asarray(law.variance)
    known = np.isfinite(law.mean) & np.isfinite(variance) & (variance >= 0)
    improper = ~np.all(known & (share > _IMPROPER), axis=1)
    return law, improper


def _by_residuals(
    law: Marginals,
    latent: LatentPosterior,
    told: _Rows,
    linear: Float[np.ndarray, "N Q"],
    precision: Float[np.ndarray, "N Q"],
    share: Float[np.ndarray, "N Q"],
) -> tuple[Marginals, Float[np.ndarray, "N Q"]]:
    """Cavities of rows with strong sites by residuals, which lose no digits.

    With them what is left of the precision, which is known well enough there.
    """
    strong = np.flatnonzero((share[:, 0] < 1 - _STRONG) & (precision[:, 0] > 0))
    # A coefficient that several rows share is left out with all of them.
    shared = isinstance(latent, DensePosterior) and len(latent.X) < len(told.X)
    residuals = latent.left_out(strong) if strong.size and not shared else None
    if residuals is None:
        return law, share
    rest = 1 - told.copy[strong, None]
    linear, precision = linear[strong], precision[strong]
    residual, alone = (part[:, None] for part in residuals)
    others = rest * linear, rest * precision
    with_copies = Marginals(linear / precision - residual, alone).given(*others)
    mean, variance, share = np.array(law.mean), np.array(law.variance), np.array(share)
    mean[strong], variance[strong] = with_copies
    share[strong] = 1.0
    return Marginals(mean, variance), share


def _cavities(
    model: LatentGP, latent: LatentPosterior, rule: SiteRule, told: _Rows
) -> tuple[tuple[Array, Array], Array, Array, Array]:
    """Mean and spread of the cavities, the sites, and what is left of the marginals' precision."""
    marginals = latent.marginals(told.X)
    marginals = marginals.shifted(jnp.broadcast_to(model.mean(told.X), marginals.mean.shape))
    sites = _sites(model, rule, told, marginals)
    opened = jnp.broadcast_to(latent.open_variances(told.X), marginals.mean.shape)
    without: Any = _without_jointly if isinstance(marginals, JointMarginals) else _without
    law, left = without(marginals, sites, opened, (1 - told.copy)[:, None], rule.power)
    return tuple(law), sites.linear, sites.precision, left


def _sites(model: LatentGP, rule: SiteRule, told: _Rows, marginals: AnyMarginals) -> Sites:
    if told.sites is not None:
        linear, precision = told.sites
        return sites_of(linear, precision, jnp.zeros_like(told.weight))
    rows = Rows(told.y, None, told.side)
    kind = CoupledSites if isinstance(marginals, JointMarginals) else GaussianSites
    made: Sites = rule.sites(model.likelihood, rows, marginals, kind.none(marginals.mean))
    if made.precision.ndim == 2:  # one for all latents where they share it
        made = made._replace(precision=jnp.broadcast_to(made.precision, made.linear.shape))
    return made.weighted(told.weight)


def _without(
    marginals: Marginals, sites: Sites, opened: Float[Array, "N Q"], rest: Array, power: float
) -> tuple[Marginals, Float[Array, "N Q"]]:
    """Cavities of each latent alone.

    Of the prior variance that the coefficients leave open a site to the power a tells about the
    share a (Bui, Yan & Turner 2017, 4); it stands for no more than f less that.
    """
    linear, precision, _ = sites
    seen = power * opened
    told = 1 + seen * precision
    inner = Marginals(marginals.mean, jnp.maximum(marginals.variance - opened, 0.0))
    left = 1 - precision / told * inner.variance
    inner = inner.given(-linear / told, -precision / told)
    inner = Marginals(inner.mean, inner.variance + seen).given(rest * linear, rest * precision)
    return Marginals(inner.mean, inner.variance + opened - seen), left


def _without_jointly(
    marginals: JointMarginals, sites: Sites, opened: Float[Array, "N Q"], rest: Array, power: float
) -> tuple[JointMarginals, Float[Array, "N Q"]]:
    """The same of the latents of a row together; improper ones are NaN."""
    linear, precision, _ = sites
    nothing = jnp.zeros_like(opened)
    own = JointMarginals.independent(Marginals(nothing, opened)).covariance
    seen = JointMarginals(nothing, power * own)
    inner = JointMarginals(marginals.mean, marginals.covariance - own)
    told_linear, told = linear, precision
    if power:
        pulled = precision @ seen.given(nothing, precision).covariance
        told = precision - pulled @ precision
        told_linear = linear - (pulled @ linear[:, :, None])[:, :, 0]
    inner = inner.given(-told_linear, -told)
    inner = JointMarginals(inner.mean, inner.covariance + seen.covariance)
    inner = inner.given(rest * linear, rest[:, :, None] * precision)
    return JointMarginals(inner.mean, inner.covariance + (1 - power) * own), jnp.ones_like(opened)


def affordable(data: Data, latents: int, components: int = 1) -> int:
    """Number of rows that can be left out by converging anew."""
    each = 2.0 * _UPDATES * padded_size(data.size) ** 3 * latents * components
    return int(min(_WORK // each, data.size))


def without_rows(
    algorithm: SiteInference,
    model: LatentGP,
    latent: LatentPosterior,
    data: Data,
    sites: Sites,
    chosen: Int[np.ndarray, "chosen"],
) -> AnyMarginals | None:
    """Law of f at each chosen row, without one copy of it, shape (chosen, Q).

    `sites` are of the merged rows as functions of f, with row weights; hyper-parameters stay. None
    where the sites do not give the posterior again, or updates do not converge.
    """
    given = data.X, data.weights, model.kernel
    ready = algorithm.representation.initialise(*given, jax.random.key(0))
    rows = data.padded(number_of_shards()).to_device()
    ready = ready.for_rows(rows.X, rows.weights, model.kernel)
    algorithm = dataclasses.replace(algorithm.until_converged(), representation=ready)
    held = [np.zeros((rows.size, *np.shape(part)[1:])) for part in sites]
    for whole, part in zip(held, sites, strict=True):
        whole[: data.size] = part
    if not _same(algorithm, model, latent, rows, type(sites)(*map(jnp.asarray, held)), data):
        return None
    weights = np.asarray(rows.weights)
    found = []
    for n in chosen:
        left = weights.copy()
        left[n] -= min(1.0, weights[n])
        own = [part.copy() for part in held]
        for part in own:
            part[n] *= left[n] / weights[n]
        others = rows.reweighted(left).to_device()
        start = type(sites)(*map(jnp.asarray, own))
        converged = converge(algorithm, model, others, start)
        settled = np.isfinite(converged.bound) and converged.change <= SETTLED
        known = not algorithm.representation.traits.estimates_variances
        if not settled or (known and np.isnan(converged.moved)) or converged.improper_cavities:
            return None
        at = data.select(np.array([n]))
        marginals = converged.posterior.marginals(at.X)
        found.append(marginals.shifted(prior_mean(model, at)))
    together: Any = map(np.concatenate, zip(*found, strict=True))
    return type(found[0])(*together)


def _same(
    algorithm: SiteInference,
    model: LatentGP,
    latent: LatentPosterior,
    rows: Data,
    sites: Sites,
    data: Data,
) -> bool:
    """Whether these sites give this posterior."""
    again = algorithm.resume(model, rows, sites).posterior.marginals(data.X)
    before = latent.marginals(data.X)
    spread = before.variance
    return bool(
        np.all(np.abs(again.mean - before.mean) <= _ALIKE * np.sqrt(spread) + 1e-9)
        and np.all(np.abs(again.variance - spread) <= _ALIKE * spread + 1e-9)
    )
