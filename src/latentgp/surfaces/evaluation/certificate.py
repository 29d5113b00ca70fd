"""Difference of a fast posterior from the exact one, by chains that start at it."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Key
from numpyro.distributions import constraints
from scipy.special import ndtri

from latentgp.choosing.choice import Choice, choose_method, treating
from latentgp.errors import InputError
from latentgp.hyperparameters.base import entry_labels, parameters
from latentgp.inference import fit
from latentgp.methods.base import Method
from latentgp.methods.result import Fit
from latentgp.modules import stored
from latentgp.posteriors.arviz_versions import import_arviz
from latentgp.representations import Dense
from latentgp.representations.protocols import SamplesCoefficients
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.runtime.progress import Callback
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.evaluation.draws import (
    LatentDraws,
    draws_of_chains,
    probabilities_at_draws,
    scores_of_draws,
)
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.typing import Array
from latentgp.validation import interval_levels

if TYPE_CHECKING:
    from latentgp.extensions.chains.draws import ChainSummary

_DENSE_ROWS = 500  # up to which chains have one coefficient a row, whatever the fit had
_ROWS = 200  # that are compared
_WARMUP, _DRAWS = 300, 2_000
_CONFIDENCE = 0.95  # that all claims hold together
_FEWEST_EFFECTIVE, _LARGEST_R_HAT = 100, 1.05


@stored
class Difference(NamedTuple):
    """A quantity of the fast posterior and of the exact one.

    Attributes:
        fast: of the fit, shape (...).
        exact: by chains.
        error: Monte Carlo standard error of `exact`.
        spread: exact posterior standard deviation of the quantity; NaN of a probability.
    """

    fast: Float[np.ndarray, "*S"]
    exact: Float[np.ndarray, "*S"]
    error: Float[np.ndarray, "*S"]
    spread: Float[np.ndarray, "*S"]

    @property
    def off(self) -> Float[np.ndarray, "*S"]:
        """The fast one less the exact one."""
        return self.fast - self.exact


@stored
@dataclasses.dataclass(frozen=True)
class Certificate:
    """Errors of a fit, with Monte Carlo errors; `str` gives them in words.

    Attributes:
        method: of the fit.
        sampler: whose chains are taken for exact.
        level: of the intervals of f.
        rows: that are compared, counted from 0 among those that count, shape (W,).
        coverage: exact probability of the fit's intervals of f, mean of the rows.
        latent: of f at each row, shape (W, Q).
        predicted: of class probabilities, shape (W, K), or of E[y], shape (W,); None where the
            likelihood has none.
        hyperparameters: of each by path, positive ones as logarithms; empty if they were held.
        logarithmic: paths of these.
        summary: worst R-hat and smallest effective sample sizes of the chains.
        draws: kept of all chains.
        seconds: spent.
        notes: what fit and chains share, and residuals of inner solves.
    """

    method: str
    sampler: str
    level: float
    rows: Int[np.ndarray, "W"]
    coverage: Difference
    latent: Difference
    predicted: Difference | None
    hyperparameters: dict[str, Difference]
    logarithmic: tuple[str, ...]
    summary: ChainSummary
    draws: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether the chains can be taken for exact: R-hat, effective sample sizes."""
        known = np.isfinite(self.summary.r_hat) and self.summary.r_hat < _LARGEST_R_HAT
        return bool(known and self.summary.least >= _FEWEST_EFFECTIVE)

    @property
    def reach(self) -> float:
        """Standard errors such that all claims hold together with probability 0.95 (Bonferroni)."""
        claims = 1 + self.latent.error.size
        claims += 0 if self.predicted is None else self.predicted.error.size
        claims += sum(own.error.size for own in self.hyperparameters.values())
        return float(ndtri(1 - (1 - _CONFIDENCE) / (2 * claims)))

    def most(self, difference: Difference) -> float:
        """Bound on the error of all entries, with that probability."""
        return float(np.max(np.abs(difference.off) + self.reach * difference.error))

    def __str__(self) -> str:
        lines = [
            f"{self.method} against {self.sampler}: {self.draws} draws in {self.seconds:.0f} s, "
            f"worst R-hat {self.summary.r_hat:.3f}, smallest effective sample size "
            f"{self.summary.least:.0f}."
        ]
        if not self.converged:
            said = "The chains have not converged, so that nothing is certified: give more seconds."
            return "\n".join([*lines, said, *self.notes])
        covered, error = 100 * float(self.coverage.exact), 100 * float(self.coverage.error)
        lines.append(
            f"{100 * self.level:.0f} % intervals of f hold {covered:.1f} ± {error:.1f} % of the "
            f"exact posterior, the mean of {len(self.rows)} rows."
        )
        scaled = np.abs(self.latent.off) / self.latent.spread
        lines.append(
            f"Means of f are off by {np.mean(scaled):.2f} exact standard deviations on average, "
            f"{np.max(scaled):.2f} at most."
        )
        if self.predicted is not None:
            what = "Probabilities" if self.predicted.fast.ndim == 2 else "Means of y"
            off = np.abs(self.predicted.off)
            lines.append(
                f"{what} are off by {np.mean(off):.3g} on average and {np.max(off):.3g} at most; "
                f"by less than {self.most(self.predicted):.3g} with probability {_CONFIDENCE:g}."
            )
        for path, own in self.hyperparameters.items():
            named = entry_labels(path, own.fast.shape).items()
            lines += [self._of(path, own, place, label) for place, label in named]
        return "\n".join([*lines, *self.notes])

    def _of(self, path: str, own: Difference, place: tuple[int, ...], label: str) -> str:
        fast, exact, error, spread = (float(values[place]) for values in own)
        ends = exact + ndtri(np.array(interval_levels(self.level))) * spread
        if path in self.logarithmic:
            fast, exact, error = np.exp(fast), np.exp(exact), np.exp(exact) * error
            ends = np.exp(ends)
        return (
            f"{label}: {fast:.4g} fitted; {exact:.4g} ± {error:.2g} by chains, "
            f"{100 * self.level:.0f} % within {ends[0]:.4g} to {ends[1]:.4g}."
        )


@double_precision
def certify(
    result: Fit,
    *,
    key: Key[Array, ""],
    seconds: float = 60.0,
    data: Data | None = None,
    level: float = 0.9,
    callback: Callback | None = None,
    verbose: int = 0,
) -> Certificate:
    """Compare a fit with chains that start at it, in its coordinates.

    Up to 500 rows the chains have one coefficient a row, so that what inducing points or neighbours
    leave out counts too; above, they share the representation of the fit, which the notes say.
    Hyper-parameters are sampled where the fit learned them, under the same priors.

    Args:
        result: the fit.
        key: random key.
        seconds: for the chains; warm-up and some draws are made in any case.
        data: the rows; None for those that were fitted.
        level: of the intervals.
        callback: as in `fit`.
        verbose: as in `fit`.

    Raises:
        InputError: rows that are not known; a model that no sampler takes; a level outside (0, 1).

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 20)
        >>> data = lgp.Data(X, (np.sin(X) > 0).astype(float))
        >>> model = lgp.LatentGP(lgp.RBF(variance=4.0), lgp.Bernoulli())
        >>> held = {"learn_hyperparameters": False, "method": lgp.AugmentedVI()}
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), **held)
        >>> certificate = fit.certify(seconds=5)
        >>> bool(0.5 < certificate.coverage.exact < 0.9)  # intervals by augmentation are narrow
        True
    """
    rows = result.rows if data is None else data.merged_rows()
    if rows is None:
        said = "The rows of this fit are not kept in memory (files, sums, or a saved model)"
        raise InputError(f"{said}; give data=.")
    lower, upper = interval_levels(level)
    names = "learn_hyperparameters", "priors", "frozen"
    settings: dict[str, Any] = {name: getattr(result.asked, name) for name in names}
    settings |= {"max_seconds": seconds, "callback": callback, "verbose": verbose}
    sampler, why = _sampler_for(result, rows.merged.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the chains have to say is said by R-hat
        chains = fit(result.model, rows, key=key, method=sampler, **settings)
    exact: Any = chains.posterior
    if not isinstance(exact, HoldsDraws) or exact.f.shape[2] == 0:
        raise InputError(f"{sampler!r} keeps no draws of f to compare with; use MCMC.")
    places = evenly(exact.f.shape[2], _ROWS)
    seen = exact.rows.select(places)
    moments = result.posterior.predict_f(seen.X)
    mean, variance = (np.asarray(m).reshape(len(places), -1) for m in moments)
    draws = exact.f[:, :, places]
    ends = [mean + ndtri(q) * np.sqrt(variance) for q in (lower, upper)]
    inside = np.mean((draws > ends[0]) & (draws < ends[1]), axis=(2, 3))
    logarithmic, learned = _hyperparameters(result, exact)
    return Certificate(
        method=repr(result.diagnostics.method),
        sampler=repr(sampler),
        level=level,
        rows=exact.watched[places],
        coverage=_difference(np.asarray(level), inside),
        latent=_difference(mean, draws),
        predicted=_predicted(result, exact, seen, places),
        hyperparameters=learned,
        logarithmic=logarithmic,
        summary=exact.summary,
        draws=draws.shape[0] * draws.shape[1],
        seconds=float(chains.diagnostics.seconds),
        notes=(why, *_shared(result)),
    )


def _sampler_for(result: Fit, rows: int) -> tuple[Method, str]:
    """The sampler, and a sentence on what it shares with the fit."""
    model, method = result.model, result.diagnostics.method
    own: Any = getattr(method, "method", method)  # what is integrated over
    if not getattr(own, "makes_sites", False):
        own = choose_method(model, rows).method
    representation = own.representation
    few = rows <= _DENSE_ROWS
    own = dataclasses.replace(own, representation=Dense()) if few else own
    shared = isinstance(own.representation, SamplesCoefficients)
    otherwise = None if shared else choose_method(model, rows)
    choice = Choice(own, "for the certificate", otherwise)
    chosen: Any = treating("sample", choice, model).method
    chosen = dataclasses.replace(chosen, warmup=_WARMUP, draws=_DRAWS)
    if few:
        return chosen, "The chains have one coefficient a row: nothing is left out."
    own = representation if shared else chosen.representation
    said = f"{'Fit and chains share' if shared else 'Chains go through'} {own!r}"
    said = f"{said}: what it leaves out is not in these figures."
    return chosen, said


def _shared(result: Fit) -> tuple[str, ...]:
    """Notes on the fit's solves and inducing points."""
    posterior = result.posterior
    if not posterior.is_gaussian:
        return ()
    latent = posterior.latent
    lost = float(np.sum(np.asarray(latent.trace_term)))
    left = (f"The representation loses {lost:.3g} nats of the bound.",) if lost > 0 else ()
    return (*left, *latent.notes, *latent.complaints)


def _difference(fast: Any, draws: Float[np.ndarray, "C S *P"]) -> Difference:
    """Difference of means of draws, with Monte Carlo errors by effective sample sizes."""
    arviz = import_arviz()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        error = arviz.mcse(arviz.convert_to_dataset(draws), method="mean")["x"].values
    spread = np.std(draws, axis=(0, 1), ddof=1)
    mean = np.mean(draws, axis=(0, 1))
    # What no effective sample size is known of has one draw's error; of a constant that is none.
    error = np.where(np.isfinite(error), error, spread)
    return Difference(np.asarray(fast, np.float64), mean, error, spread)


def _predicted(
    result: Fit, exact: HoldsDraws, seen: Data, places: Int[np.ndarray, "W"]
) -> Difference | None:
    """Class probabilities or means of y, under each draw and under the fit."""
    chains, draws = exact.f.shape[:2]
    drawn: LatentDraws = draws_of_chains(exact, places)
    predictive = result.posterior.predict(seen.X, **seen.side_information)
    if predictive.likelihood.targets == "class":
        values = probabilities_at_draws(drawn, seen.side_information)
        fast: Any = predictive.probabilities
    else:
        values = scores_of_draws(drawn, seen.y, seen.side_information).mean
        fast = predictive.mean
    if values is None or not np.all(np.isfinite(values)):
        return None
    return _difference(fast, values.reshape(chains, draws, *values.shape[1:]))


def _hyperparameters(
    result: Fit, exact: HoldsDraws
) -> tuple[tuple[str, ...], dict[str, Difference]]:
    """Fitted values, or means where the fit integrates, and those of the chains."""
    known = parameters(exact.model)
    fitted = {path: info.value for path, info in parameters(result.model).items()}
    logarithmic, found = [], {}
    for path, values in exact.hyperparameters.items():
        fast = np.asarray(fitted[path], np.float64)
        if known[path].support is constraints.positive:
            logarithmic.append(path)
            values, fast = np.log(values), np.log(fast)
        found[path] = _difference(fast, values)
    return tuple(logarithmic), found
