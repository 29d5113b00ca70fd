"""Predictions of every row given all others, without refits, for every kind of posterior."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from latentgp.errors import InputError
from latentgp.hyperparameters.summary import aligned
from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Likelihood, Marginals
from latentgp.likelihoods.joint import jointly
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.quadrature import expectation, prediction_nodes
from latentgp.posteriors.components import Components, Gaussians, Mixture, OneComponent, OneGaussian
from latentgp.posteriors.posterior import Posterior
from latentgp.posteriors.predictive import Predictive
from latentgp.representations.base import LatentPosterior
from latentgp.representations.coupled import CoupledPosterior
from latentgp.representations.needs import sites_are_known
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.rules.base import SiteRule
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.sites.coupled import Sites
from latentgp.surfaces.evaluation.cavities import affordable, cavities, without_rows
from latentgp.surfaces.evaluation.draws import (
    draws_at,
    draws_of_chains,
    efficiency_of,
    scores_of_draws,
    smoothed,
)
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.surfaces.evaluation.row_scores import (
    RowPredictions,
    RowScores,
    mixed,
    scattered,
    scores_of,
    standard_error,
    total,
)
from latentgp.typing import Array
from latentgp.validation import check_data

_DRAWS = 4_000
_ROWS_AT_ONCE = 1_000  # of which all draws are looked at together
_PARETO_K = 0.7
_FEWEST_SMOOTHED = 50  # components whose weights have a tail
_ROUGH = 0.05  # nats, of a row by held sites
_CONCENTRATED = 0.9  # weight of one component without a row


@stored
class LeaveOneOut(RowPredictions):
    """Predictions of every row given all others; arrays have the order of the rows as given.

    Rows of weight zero, without a target, or that chains did not watch are NaN. `str` makes a
    table of the sums.

    Attributes:
        pareto_k: of importance weights, shape (N,), reliable below 0.7; None where there are none.
        log_density_seen: log p(y_n | all rows), shape (N,). By sites the row's latents have the law
            without it times its own likelihood, which need not be Gaussian (Cseke & Heskes 2011).
        spread_seen: posterior variance of log p(y_n | f), whose sum is WAIC's number of
            parameters, shape (N,); NaN of pseudo-likelihoods by sites, which have no WAIC.
        how: what the predictions rest on, in a few words.
        cavity_error: what holding the other rows' sites would have made of the log density, less
            what it is after they have converged anew, shape (N,); NaN of rows where they are held;
            None where nothing is held, or the error is not known.
    """

    pareto_k: Float[np.ndarray, "N"] | None
    log_density_seen: Float[np.ndarray, "N"]
    spread_seen: Float[np.ndarray, "N"]
    how: str = eqx.field(static=True)
    cavity_error: Float[np.ndarray, "N"] | None = None

    @property
    def parameters(self) -> float:
        """Effective number of parameters: what the rows' log densities lose by leaving them out."""
        return total(self.log_density_seen - self.log_density, self.weights)

    @property
    def waic(self) -> float:
        """Widely applicable information criterion as a sum of log densities (Watanabe 2010)."""
        return total(self.log_density_seen - self.spread_seen, self.weights)

    @property
    def waic_parameters(self) -> float:
        """Effective number of parameters of WAIC."""
        return total(self.spread_seen, self.weights)

    def __str__(self) -> str:
        error = f"{self.standard_error:.1f}"
        spread = standard_error(self.log_density_seen - self.spread_seen, self.weights)
        cells = [
            ["", "log density", "standard error", "parameters"],
            ["leave one out", f"{self.elpd:.1f}", error, f"{self.parameters:.1f}"],
            ["WAIC", f"{self.waic:.1f}", f"{spread:.1f}", f"{self.waic_parameters:.1f}"],
        ]
        rows = f"{np.sum(self.weights):g} rows, by {self.how}."
        return "\n".join([rows, aligned(cells), *self.warnings])


@double_precision
def leave_one_out(fitted: Fit | Posterior, data: Data | None = None) -> LeaveOneOut:
    """Predict every row from all others, without refits.

    Hyper-parameters are held at their values; posteriors with several (`Integrated`, chains)
    average over them, by weights without the row. Of one Gaussian by sites the row's site is
    divided out of the marginal: exact for Gaussian noise (Rasmussen & Williams 2006, 5.10 to 5.12),
    an approximation for what else is by sites (Vehtari et al. 2016). Where a fit is dense and its
    rows are few, the other rows' sites converge anew, so that it is what a fit without the row
    says; `cavity_error` has the difference. One Gaussian whose sites are not known has those that a
    variational fit would have. Of draws and of other mixtures it is importance sampling with
    Pareto-smoothed weights (Vehtari, Gelman & Gabry 2017), which takes the posterior for exact.

    A row of weight w is w rows, one of which is left out; its log density counts w times. Equal
    rows are told apart in the same way.

    Args:
        fitted: a `Fit`, or a posterior. Sites that are not the likelihood itself are the fit's, so
            that a posterior alone is answered less exactly.
        data: the rows that were fitted; None for those that a fit, or chains, have in memory.

    Raises:
        InputError: no rows, or others than those that were fitted.

    Example:
        >>> import jax, latentgp as lgp
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> loo = lgp.leave_one_out(fit)
        >>> loo.log_density.round(2), loo.mean.round(2)
        (array([-0.82, -0.7 , -0.83]), array([0.32, 0.44, 0.56]))
    """
    posterior = fitted.posterior if isinstance(fitted, Fit) else fitted
    rows = _rows_of(fitted, posterior, data)
    merged, model = rows.merged, posterior.model
    check_data(model.likelihood, merged)
    if isinstance(posterior, HoldsDraws) and posterior.f.shape[2]:
        found = _of_chains(posterior, rows)
    else:
        found = _by_sites(fitted, posterior, merged)
    if not model.likelihood.is_normalised:
        name = type(model.likelihood).__name__
        told = f"{name} is no normalised density: log densities compare with no other model."
        found = found._replace(warnings=(*found.warnings, told))
    return found.as_given(rows)


def _rows_of(fitted: Any, posterior: Posterior, data: Data | None) -> MergedRows:
    """The rows as they were merged for the fit."""
    if not isinstance(posterior, Posterior):
        raise InputError(f"leave_one_out needs a Fit or a posterior, got {type(fitted).__name__}.")
    if data is not None:
        return data.merged_rows()
    if isinstance(fitted, Fit) and fitted.rows is not None:
        return fitted.rows
    if isinstance(posterior, HoldsDraws) and len(posterior.watched):
        return posterior.rows.merged_rows()
    raise InputError("The rows are not in memory; give them: leave_one_out(fitted, data).")


class _Scores(NamedTuple):
    """Scores of the merged rows."""

    scores: RowScores  # given the other rows
    pareto_k: Float[np.ndarray, "N"]  # NaN where there are no importance weights
    seen: Float[np.ndarray, "N"]  # log p(y | all rows)
    spread: Float[np.ndarray, "N"]  # posterior variance of log p(y | f)
    how: str  # what was done
    warnings: tuple[str, ...] = ()  # sentences
    cavity_error: Float[np.ndarray, "N"] | None = None  # as in `LeaveOneOut`

    def as_given(self, rows: MergedRows) -> LeaveOneOut:
        """In the order of the rows as they were given."""
        gone = rows.origin < 0
        given = rows.given.weights
        weights = np.ones(len(gone)) if given is None else np.array(given)

        def each(values: Any) -> Any:
            values = np.array(np.asarray(values)[rows.origin])
            values[gone] = np.nan
            return values

        scores = self.scores.mapped(each)
        weights[gone | np.isnan(scores.log_density)] = 0.0
        k = None if np.all(np.isnan(self.pareto_k)) else each(self.pareto_k)
        told = (*self.warnings, *_about_weights(k))
        return LeaveOneOut(
            **scores.as_predictions(),
            pareto_k=k,
            log_density_seen=each(self.seen),
            spread_seen=each(self.spread),
            weights=weights,
            how=self.how,
            warnings=told,
            cavity_error=None if self.cavity_error is None else each(self.cavity_error),
        )


def _about_weights(k: Float[np.ndarray, "N"] | None) -> tuple[str, ...]:
    high = [] if k is None else np.flatnonzero(k > _PARETO_K).tolist()
    said = (
        f"Pareto k is above {_PARETO_K} in {_listed(high)}, whose importance weights are not "
        "reliable; fit without each of them, or use cross_validate."
    )
    return (said,) if high else ()


def _listed(rows: Sequence[int]) -> str:
    more = "" if len(rows) <= 5 else ", ..."
    return f"{len(rows)} row(s) (from 0: {', '.join(map(str, rows[:5]))}{more})"


# Gaussian components by sites


def _by_sites(fitted: Any, posterior: Posterior, data: Data) -> _Scores:
    """By cavities where there are sites; by importance sampling elsewhere."""
    seen, spread = _given_all(posterior, data)
    parts = _parts(posterior.components)
    rule, sites = _rule_and_sites(fitted, posterior, data, len(parts or ()))
    if parts is None or rule is None:
        found = _by_draws(posterior, data)
        known = posterior.model.likelihood.is_normalised  # else scores of draws are another density
        return found._replace(seen=seen, spread=spread) if known else found
    log_weights = np.concatenate([np.atleast_1d(part.log_weight) for part in parts])
    scores, laws, wrong, by_rows = [], [], np.zeros(data.size, bool), []
    for k, part in enumerate(parts):
        own = None if sites is None else type(sites)(*(a[k] for a in sites))
        law, improper = cavities(part.model, part.latent, data, rule, own)
        wrong |= improper
        laws.append(law)
        scores.append(scores_of(predictive_at(part.model, law, data), np.asarray(data.y)))
        columns = part.model.likelihood.latent_size
        given = law, np.asarray(data.y), data.side_information
        by_rows.append(apply_in_buckets(_log_seen, part.model, rows=given, columns=columns))
    exact = sites_are_known(posterior.model.likelihood)
    if not exact and posterior.model.likelihood.is_normalised:
        own: Any = logsumexp(np.stack(by_rows) + log_weights[:, None], axis=0)
        seen = np.where(np.isfinite(own) & ~wrong, own, seen)
    how = "cavities, which are exact" if exact else "cavities of the sites"
    found = _combined(scores, log_weights, how)
    if not exact and sites is None:
        found = found._replace(how=f"{found.how}, whose error is not known")
    elif not exact and sites is not None:
        found, done = _anew(fitted, parts, laws, sites, data, log_weights, found, seen)
        wrong[done] = False
    found = found._replace(seen=seen, spread=spread)
    wrong |= ~np.isfinite(found.scores.log_density)
    return _mended(found, posterior, data, np.flatnonzero(wrong)) if wrong.any() else found


def _anew(
    fitted: Fit,
    parts: "Sequence[_Part]",
    laws: Sequence[AnyMarginals],
    sites: Sites,
    data: Data,
    log_weights: Float[np.ndarray, "K"],
    held: _Scores,
    seen: Float[np.ndarray, "N"],
) -> tuple[_Scores, Any]:
    """With the other rows' sites converged anew, first of the rows that tell most; and which.

    `laws` are the cavities under each of the parts, `held` the scores by them, `seen` the log
    densities given all rows.
    """
    used: Any = fitted.diagnostics.method
    model, nothing = parts[0].model, np.zeros(0, int)
    settled = used.site_method.settled(model, data.size)
    told = seen - held.scores.log_density
    told = np.where(np.isnan(told), np.inf, told)
    size = affordable(data, model.likelihood.latent_size, len(parts))
    chosen = np.sort(np.argsort(-told, kind="stable")[:size])
    unknown = held._replace(how=f"{held.how}, whose error is not known")
    if not len(chosen) or not settled.representation.traits.one_coefficient_a_row:
        return unknown, nothing
    scores = []
    for k, (part, law) in enumerate(zip(parts, laws, strict=True)):
        own = type(sites)(*(a[k] for a in sites))
        algorithm = settled.algorithm(part.model)
        found = without_rows(algorithm, part.model, part.latent, data, own, chosen)
        if found is None:
            return unknown, nothing
        mended = type(law)(*map(np.array, law))
        for whole_part, new in zip(mended, found, strict=True):
            np.asarray(whole_part)[chosen] = new
        scores.append(scores_of(predictive_at(part.model, mended, data), np.asarray(data.y)))
    left = data.size - len(chosen)
    how = "sites of the other rows, converged anew"
    how = f"{how} in {len(chosen)} rows and held in {left}" if left else how
    anew = _combined(scores, log_weights, how)
    error = np.full(data.size, np.nan)
    error[chosen] = (held.scores.log_density - anew.scores.log_density)[chosen]
    warnings, off = anew.warnings, np.abs(error[np.isfinite(error)])
    if left and off.size and off.max() > _ROUGH:
        said = (
            f"Holding the sites of the other rows would be off by {np.mean(off):.2f} nats on "
            f"average, and {off.max():.2f} at most, in the {len(chosen)} rows that tell most; they "
            f"are held in the other {left}."
        )
        warnings = (*warnings, said)
    return anew._replace(warnings=warnings, cavity_error=error), chosen


class _Part(NamedTuple):
    model: LatentGP
    latent: LatentPosterior
    log_weight: float


def _parts(components: Components) -> list[_Part] | None:
    """Gaussian components one by one; None where there are draws, or hidden layers."""
    if isinstance(components, OneGaussian):
        return [_Part(components.own_model, components.latent, 0.0)]
    if isinstance(components, Gaussians):
        pair = components.models, components.latents
        found = []
        for k, log_weight in enumerate(components.log_weights):
            model, latent = jax.tree.map(lambda a, k=k: np.asarray(a)[k], pair)
            found.append(_Part(model, latent, float(log_weight)))
        return found
    if isinstance(components, Mixture):
        found = []
        for part, log_weight in zip(components.parts, components.log_weights, strict=True):
            own = _parts(part)
            if own is None:
                return None
            found += [p._replace(log_weight=p.log_weight + float(log_weight)) for p in own]
        return found
    return None


def _rule_and_sites(
    fitted: Any, posterior: Posterior, data: Data, parts: int
) -> tuple[SiteRule | None, Sites | None]:
    """The rule that made the sites, and the fit's sites, components first; None without any."""
    likelihood = posterior.model.likelihood
    used: Any = fitted.diagnostics.method if isinstance(fitted, Fit) else None
    if used is None or used.site_method is None:
        return _rule_alone(posterior), None
    method = used.site_method
    rule = method.settled(posterior.model, data.size).algorithm(posterior.model).rule
    rule = rule.at_the_mode() or rule
    sites: Any = fitted.sites
    if sites is not None:
        if sites.linear.ndim == 2:
            sites = type(sites)(*(np.asarray(a)[None] for a in sites))
        if sites.linear.shape[:2] == (parts, data.size):
            return rule, sites
        if not sites_are_known(likelihood):
            raise InputError(
                f"data has {data.size} different rows, but the fit had {sites.linear.shape[1]}; "
                "give the rows that were fitted."
            )
    derived = rule.sites_are_fixed(likelihood) or (rule.is_variational and not rule.power)
    return (rule if derived else None), None


def _rule_alone(posterior: Posterior) -> SiteRule | None:
    """A rule for sites that are not known; None where there is no telling what a row has said."""
    likelihood, components = posterior.model.likelihood, posterior.components
    if sites_are_known(likelihood):
        return AugmentationRule()
    informative = likelihood.is_positive and likelihood.is_continuous and likelihood.has_gradient
    if not (isinstance(components, OneGaussian) and informative):
        return None
    return VariationalRule(coupled=isinstance(components.latent, CoupledPosterior))


def _combined(
    scores: Sequence[RowScores], log_weights: Float[np.ndarray, "K"], how: str
) -> _Scores:
    """Components together, by their weights without the row: w_k / p_k(y_n | the other rows)."""
    size = len(scores[0].log_density)
    nothing = np.full(size, np.nan)
    if len(scores) == 1:
        return _Scores(scores[0], nothing, nothing, nothing, how)
    each: Any = jax.tree.map(lambda *parts: np.stack(parts), *scores)
    log_ratios: Any = log_weights[:, None] - each.log_density
    k, told = nothing, ()
    if len(scores) >= _FEWEST_SMOOTHED and np.ptp(log_weights) < 1e-9:
        without, k = smoothed(log_ratios)
        log_density = logsumexp(without + each.log_density, axis=0)
    else:
        log_density = -np.asarray(logsumexp(log_ratios, axis=0))
        without = log_ratios + log_density
        concentrated = np.max(without, axis=0) > np.log(_CONCENTRATED)
        alone = np.flatnonzero(concentrated & (np.max(log_weights) < np.log(0.5))).tolist()
        if alone:
            told = (
                f"Without {_listed(alone)} one set of hyper-parameters has nearly all weight, so "
                "that these predictions are rough; fit without each of them.",
            )
    together = mixed(each, without)._replace(log_density=log_density)
    how = f"{how}, over {len(scores)} sets of hyper-parameters"
    return _Scores(together, k, nothing, nothing, how, told)


def _mended(found: _Scores, posterior: Posterior, data: Data, rows: Any) -> _Scores:
    """Rows with improper cavities by importance sampling."""
    others = _by_draws(posterior, data.select(rows))

    def put(values: Any, new: Any) -> Any:
        if values is None or new is None:
            return values
        values = np.array(values)
        values[rows] = new
        return values

    scores = RowScores(*(put(*pair) for pair in zip(found.scores, others.scores, strict=True)))
    named = _listed(rows.tolist())
    told = f"The law without the row is improper in {named}; these are by importance sampling."
    each = {n: put(getattr(found, n), getattr(others, n)) for n in ("pareto_k", "seen", "spread")}
    return found._replace(scores=scores, warnings=(*found.warnings, told), **each)


class _AtRows(OneComponent):
    """One component whose marginals at rows are known; rows are packed as its inputs."""

    @property
    def inputs(self) -> int:
        return 2 * self.own_model.likelihood.latent_size

    @property
    def columns(self) -> int:
        return 1

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Array, Array]:
        Q = self.own_model.likelihood.latent_size
        mean, spread = X[:, :Q], X[:, Q:]
        spread = spread if spread.shape[1] == Q else spread.reshape(-1, Q, Q)
        return mean[:, None], spread[:, None]

    def joint(self, X: Any, key: Any, number: int) -> Any:
        raise InputError("Marginals at rows have no joint draws.")

    def shifted(self, centre: float) -> Components:
        raise InputError("Marginals at rows are not shifted.")


def predictive_at(model: LatentGP, law: AnyMarginals, data: Data) -> Predictive:
    """Predictive distribution of y where the latents have a law that is known."""
    mean, spread = (np.asarray(part) for part in law)
    packed = np.concatenate([mean, spread.reshape(len(mean), -1)], axis=1)
    return Predictive(_AtRows(model), packed, data.side_information)


def _given_all(
    posterior: Posterior, data: Data
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Log p(y | all rows), and posterior variance of log p(y | f).

    NaN where there are draws, or a pseudo-likelihood, whose predictions are another density.
    """
    y = np.asarray(data.y)
    log_density = posterior.predict(data.X, **data.side_information).log_prob(y)
    components, law = posterior.components.prepared(), posterior.components.law
    if not (law.by_quadrature and posterior.model.likelihood.is_normalised):
        return log_density, np.full(data.size, np.nan)
    columns, rows = components.columns * components.size, (data.X, y, data.side_information)
    first, second = apply_in_buckets(_log_prob_moments, components, rows=rows, columns=columns)
    weights = np.exp(np.asarray(law.log_weights))
    return log_density, np.maximum(second @ weights - (first @ weights) ** 2, 0.0)


def _log_seen(model: LatentGP, rows: Any) -> Array:
    """Log p(y | all rows) where f has its law without a row, times the row's likelihood."""
    law, y, side = rows
    likelihood, marginals, side = jointly(model.likelihood, law, side)
    twice, once = (
        likelihood.log_expected_power(y, marginals, side, power, marginals) for power in (2.0, 1.0)
    )
    return twice - once


def _log_prob_moments(components: Components, rows: Any) -> tuple[Array, Array]:
    """Mean and mean square of log p(y | f) under every component, shape (N, K)."""
    X, y, side = rows
    law = components.law
    mean, spread = components.marginals(X)
    spread = jnp.broadcast_to(spread, (*mean.shape, *spread.shape[3:]))
    kind = JointMarginals if spread.ndim == 4 else Marginals

    def of_one(likelihood: Likelihood, mean: Array, spread: Array) -> tuple[Array, Array]:
        own, marginals, its_side = jointly(likelihood, kind(mean, spread), side)
        log_prob = own._along_nodes(own.log_prob, y, its_side)

        def powers(f: Any) -> Array:
            values = log_prob(f)
            return jnp.stack([values, values**2], axis=-1)

        found = expectation(powers, *marginals, prediction_nodes(own.latent_size))
        return found[:, 0], found[:, 1]

    along = jax.vmap(of_one, (0 if law.own else None, 1, 1), out_axes=1)
    return along(law.likelihood, mean, spread)


# Draws


def _by_draws(posterior: Posterior, data: Data) -> _Scores:
    """By importance sampling under the posterior's marginals, which are taken for exact."""
    X, key = np.asarray(data.X), jax.random.key(0)
    return _reweighted(lambda chunk: draws_at(posterior, X[chunk], key, _DRAWS), data, 1.0)


def _of_chains(posterior: HoldsDraws, rows: MergedRows) -> _Scores:
    """By importance sampling under the chains' draws at the rows that they watched."""
    merged, own = rows.merged, posterior.rows
    watched = np.arange(own.size) if rows.given is own else posterior.watched
    if watched[-1] >= rows.given.size or not (
        np.allclose(np.asarray(rows.given.y)[watched], own.y, rtol=1e-9, equal_nan=True)
    ):
        raise InputError("data are not the rows that were fitted; give these, in their order.")
    first, origin = np.full(merged.size, -1), rows.origin[watched]
    backwards = np.flatnonzero(origin >= 0)[::-1]  # of equal rows the first is kept
    first[origin[backwards]] = backwards
    seen = np.flatnonzero(first >= 0)

    own_rows, places = merged.select(seen), first[seen]
    draws = partial(draws_of_chains, posterior)
    found = _reweighted(lambda chunk: draws(places[chunk]), own_rows, efficiency_of(posterior))
    if len(seen) == merged.size:
        return found
    spread = partial(scattered, places=seen, size=merged.size)
    told = f"The chains watched {len(seen)} of {merged.size} rows, which the sums are about."
    return found._replace(
        scores=found.scores.mapped(spread),
        pareto_k=spread(found.pareto_k),
        seen=spread(found.seen),
        spread=spread(found.spread),
        warnings=(*found.warnings, told),
    )


def _reweighted(draws: Any, data: Data, efficiency: float) -> _Scores:
    """Smoothed importance sampling, some rows after others; `draws` of f are by their numbers."""
    pieces = []
    for start in range(0, data.size, _ROWS_AT_ONCE):
        chunk = np.arange(start, min(start + _ROWS_AT_ONCE, data.size))
        own = data.select(chunk)
        each = scores_of_draws(draws(chunk), np.asarray(own.y), own.side_information)
        weight = np.ones(len(chunk)) if own.weights is None else np.asarray(own.weights)
        lowest = np.where(np.isneginf(each.log_density), -1e300, each.log_density)
        without, k = smoothed(-np.minimum(weight, 1.0) * lowest, efficiency)
        log_density = logsumexp(without + each.log_density, axis=0)
        seen = logsumexp(each.log_density, axis=0) - np.log(len(each.log_density))
        scores = mixed(each, without)._replace(log_density=log_density)
        pieces.append((scores, k, seen, np.var(each.log_density, axis=0, ddof=1)))
    scores, k, seen, spread = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    return _Scores(scores, k, seen, spread, "smoothed importance sampling")
