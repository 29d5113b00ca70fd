"""Simulation-based calibration (Cook, Gelman & Rubin 2006; Talts et al. 2018).

Latent functions drawn from the prior and targets given them have the joint law of the model. So
what an exact posterior says of the latents, averaged over many such data, is right: the true value
has a uniform rank in its marginal posterior, and a 90 % interval holds it in 90 % of the cases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Bool, Float, Key

from latentgp.hyperparameters.base import parameters
from latentgp.inference import fit
from latentgp.methods.base import Method
from latentgp.models import LatentGP
from latentgp.posteriors.components import Components, variances_of
from latentgp.posteriors.hyperparameters import entries_of, space_of_priors
from latentgp.prior import draw_rows, moments_before
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.site_inference.search.profiled_bound import converge
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.testing.numerics import require
from latentgp.typing import Array

LEVELS = (0.5, 0.9, 0.95)
_BINS = 10
_AT_ONCE = 20


class Shares(NamedTuple):
    """Shares of true latents, and their standard errors over replications; shape (levels,)."""

    share: Float[np.ndarray, "levels"]
    error: Float[np.ndarray, "levels"]


class Calibration(NamedTuple):
    """Ranks of true latent functions in their marginal posteriors.

    Attributes:
        below: posterior probability of a latent below the true one, for each replication; uniform
            in [0, 1] where posteriors are exact. NaN where there was no finite posterior.
        converged: whether each fit converged.
    """

    below: Float[np.ndarray, "replications N Q"]
    converged: Bool[np.ndarray, "replications"]

    @property
    def failed(self) -> float:
        """Share of the replications without a finite posterior; no other figure knows of them."""
        return 1 - len(self.known) / len(self.below)

    @property
    def known(self) -> Float[np.ndarray, "levels N Q"]:
        """`below` of the other replications."""
        return self.below[np.isfinite(self.below).all(axis=(1, 2))]

    def coverage(self) -> Shares:
        """Coverage of the central intervals of 50, 90 and 95 %."""
        off = 2 * np.abs(self.known - 0.5)
        return _shares(off[..., None] <= np.array(LEVELS))

    def histogram(self, bins: int = _BINS) -> Shares:
        """Rank histogram: number of true latents in each of equal bins."""
        bin_of = np.minimum((bins * self.known).astype(int), bins - 1)
        return _shares(bin_of[..., None] == np.arange(bins))


def _shares(hit: Bool[np.ndarray, "replications N Q levels"]) -> Shares:
    """Rows of one replication depend on each other, replications do not."""
    of_each = hit.mean(axis=(1, 2))
    return Shares(of_each.mean(axis=0), of_each.std(axis=0, ddof=1) / np.sqrt(len(hit)))


@double_precision
def simulate_calibration(
    method: Method,
    model: LatentGP,
    X: Any,
    *,
    key: Key[Array, ""],
    replications: int = 200,
    side_information: Mapping[str, float] | None = None,
) -> Calibration:
    """Fit data drawn from the model many times, with the hyper-parameters as they are.

    Args:
        method: what is calibrated. A sampler's draws should be nearly independent: many chains of
            a few thinned draws each.
        model: whose prior the latents are drawn from; its likelihood must have `sample`.
        X: inputs, shape (N, D), no two rows equal, at most 200 rows for a sampler.
        key: random key.
        replications: how many data sets.
        side_information: a value for the numbers a row that the likelihood reads.
    """
    size = len(X)
    side = {name: np.full(size, float(value)) for name, value in (side_information or {}).items()}
    # In the order in which a fit keeps its rows, as a sampler's draws are.
    given = Data(X, np.zeros((size, *model.likelihood.output_shape)), **side).merged()
    require(given.size == size, "Inputs of simulate_calibration have equal rows.")
    key_data, key_fits, key_ties = jax.random.split(key, 3)
    f, y = from_prior(model, model.layout(given.X), given, jax.random.split(key_data, replications))
    keys = jax.random.split(key_fits, replications)
    if method.makes_sites:
        settled = cast(SiteMethod, method).settled(model, size)
        algorithm = settled.algorithm(model).until_converged()
        ready = algorithm.representation.initialise(given.X, None, model.kernel, keys[0])
        ready = ready.for_rows(given.X, None, model.kernel)
        algorithm = dataclasses.replace(algorithm, representation=ready)
        return Calibration(*map(np.asarray, _settled(algorithm, model, given, f, y)))
    ties = jax.random.uniform(key_ties, f.shape)
    below, converged = [], []
    for own_f, own_y, own_ties, own_key in zip(f, y, ties, keys, strict=True):
        data = Data(given.X, own_y, **side)
        result = fit(model, data, key=own_key, method=method, learn_hyperparameters=False)
        if isinstance(result.posterior, HoldsDraws):
            draws = result.posterior.f.reshape(-1, *own_f.shape)
            below.append((np.sum(draws < own_f, axis=0) + own_ties) / (len(draws) + 1))
        else:
            below.append(np.asarray(_below_components(result.posterior.components, given.X, own_f)))
        converged.append(result.diagnostics.converged)
    return Calibration(np.stack(below), np.array(converged))


@double_precision
def simulate_hyperparameter_calibration(
    method: Method,
    model: LatentGP,
    X: Any,
    priors: Mapping[str, Any],
    *,
    key: Key[Array, ""],
    replications: int = 100,
) -> dict[str, Calibration]:
    """Fit data drawn from the model with hyper-parameters drawn from their priors.

    Args:
        method: one that integrates over hyper-parameters or samples them; of a sampler's draws
            there should be many that are nearly independent.
        model: whose hyper-parameters without a prior are held; its likelihood must have `sample`.
        X: inputs, shape (N, D).
        priors: NumPyro's distributions, by path.
        key: random key.
        replications: how many data sets.

    Returns:
        Ranks of each true hyper-parameter in its marginal, shape (replications, 1, 1), by path; of
        an array by entry, such as "kernel.variance[0]".
    """
    space = space_of_priors(model, priors)
    held = tuple(path for path in parameters(model) if path not in priors)
    key_truth, key_data, key_fits = jax.random.split(key, 3)
    truths = space.prior_vectors(key_truth, replications)
    keys = jax.random.split(key_data, replications), jax.random.split(key_fits, replications)
    given = Data(X, np.zeros((len(X), *model.likelihood.output_shape)))
    below: dict[str, list[float]] = {}
    converged = []
    for vector, own, own_fit in zip(truths, *keys, strict=True):
        truth = space.to_model(jnp.asarray(vector))
        _, y = from_prior(truth, truth.layout(given.X), given, own[None])
        data = Data(X, y[0])
        found = fit(model, data, key=own_fit, method=method, priors=dict(priors), frozen=held)
        marginals = cast(Any, found.posterior).hyperparameter_marginals
        true = {path: np.asarray(parameters(truth)[path].value)[None] for path in priors}
        for name, (value,) in entries_of(true):
            below.setdefault(name, []).append(float(marginals[name].cdf(value)))
        converged.append(found.diagnostics.converged)
    ends = np.array(converged)
    return {name: Calibration(np.array(v)[:, None, None], ends) for name, v in below.items()}


@eqx.filter_jit
def _below_components(
    components: Components, X: Float[Array, "N D"], f: Float[Array, "N Q"]
) -> Float[Array, "N Q"]:
    """Probabilities, under weighted Gaussians, of latents below the given ones."""
    mean, spread = components.marginals(X)
    away = (f[:, None] - mean) / jnp.sqrt(variances_of(spread))
    return jnp.einsum("nkq,k->nq", ndtr(away), jnp.exp(components.law.log_weights))


def check_calibration(
    method: Method,
    model: LatentGP,
    X: Any,
    *,
    key: Key[Array, ""],
    replications: int = 200,
    side_information: Mapping[str, float] | None = None,
    standard_errors: float = 4.5,
) -> None:
    """Check that the posteriors of a method that is exact on a model are calibrated.

    Args:
        method: as in `simulate_calibration`, like all that follow but the last.
        model: whose prior the latents are drawn from.
        X: inputs, shape (N, D).
        key: random key.
        replications: how many data sets.
        side_information: a value for the numbers a row that the likelihood reads.
        standard_errors: by which a share may differ from what it should be.

    Raises:
        AssertionError: a posterior is not finite; intervals hold too many or too few true
            latents, or their ranks are not uniform.
    """
    given = {"replications": replications, "side_information": side_information}
    found = simulate_calibration(method, model, X, key=key, **given)
    name = f"{type(method).__name__} with {type(model.likelihood).__name__}"
    check_ranks(found, name, standard_errors=standard_errors)


def check_ranks(found: Calibration, name: str, *, standard_errors: float = 4.5) -> None:
    """Raise AssertionError unless ranks of true latents are those in exact posteriors.

    A share of them may differ from what it should be by so many standard errors.
    """
    share = f"{found.failed:.1%}"
    require(found.failed == 0, f"{name} has no finite posterior in {share} of the cases.")
    for what, shares, expected in (
        (f"the intervals of {LEVELS} hold", found.coverage(), np.array(LEVELS)),
        ("the bins of the rank histogram hold", found.histogram(), np.full(_BINS, 1 / _BINS)),
    ):
        share, error = shares
        # Where all replications agree, one of them more or less.
        error = np.where(error > 0, error, 1 / len(found.known))
        require(
            np.all(np.abs(share - expected) <= standard_errors * error),
            f"{name} is not calibrated: {what} {share.round(3)} of the true latents, with "
            f"standard errors {error.round(4)}.",
        )


@jax.jit
def from_prior(
    model: LatentGP, layout: Any, given: Data, keys: Key[Array, "replications"]
) -> tuple[Float[Array, "replications N Q"], Float[Array, "replications N *P"]]:
    """Latents drawn from the prior at the rows of `given`, and targets given them."""

    def one(key: Key[Array, ""]) -> tuple[Array, Array]:
        before = moments_before(model, layout, given, key)
        return draw_rows(model.likelihood, *before, given, key)

    return jax.lax.map(one, keys)


@jax.jit
def _settled(
    algorithm: SiteInference,
    model: LatentGP,
    given: Data,
    f: Float[Array, "replications N Q"],
    y: Float[Array, "replications N *P"],
) -> tuple[Float[Array, "replications N Q"], Bool[Array, "replications"]]:
    """The fit of one data set, compiled once for all."""

    def one(own: tuple[Array, Array]) -> tuple[Array, Array]:
        data = eqx.tree_at(lambda data: data.y, given, own[1])
        converged = converge(algorithm, model, data, algorithm.init(model, data).sites)
        marginals = converged.posterior.marginals(data.X)
        away = own[0] - prior_mean(model, data) - marginals.mean
        below = ndtr(away / jnp.sqrt(marginals.variance))
        return below, converged.change <= algorithm.tolerance

    return jax.lax.map(one, (f, y), batch_size=_AT_ONCE)
