"""Marginal posteriors of hyper-parameters, and models of many draws of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, constraints

from latentgp.hyperparameters.base import entry_labels, parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels.index import Invariant
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.typing import Array, HyperVector
from latentgp.validation import checked_levels, interval_levels

_NARROWER = 0.9  # Silverman's rule


@stored
class HyperparameterMarginal(eqx.Module):
    """Marginal posterior of one hyper-parameter on its own scale, from weighted draws.

    Attributes:
        values: draws in ascending order, shape (S,).
        weights: of the draws, with a sum of one, shape (S,).
        positive: whether its density is smoothed on the scale of its logarithm.
        prior: its marginal before the data; None without a prior.

    Example:
        >>> import numpy as np
        >>> draws = np.random.default_rng(0).gamma(4.0, size=20_000)
        >>> marginal = HyperparameterMarginal.of(draws, positive=True)
        >>> round(marginal.mean, 1), round(marginal.std, 1)
        (4.0, 2.0)
        >>> marginal.quantiles([0.5]).round(1)
        array([3.7])
    """

    values: Float[np.ndarray, "S"]
    weights: Float[np.ndarray, "S"]
    positive: bool = eqx.field(static=True)
    prior: "HyperparameterMarginal | None" = None

    @classmethod
    def of(
        cls,
        draws: Any,
        weights: Any = None,
        *,
        positive: bool,
        prior: "HyperparameterMarginal | None" = None,
    ) -> "HyperparameterMarginal":
        """Marginal of draws, shape (S,), of equal weight if none are given."""
        draws = np.asarray(draws, np.float64)
        weights = np.ones(len(draws)) if weights is None else np.asarray(weights, np.float64)
        order = np.argsort(draws, kind="stable")
        return cls(draws[order], weights[order] / weights.sum(), positive, prior)

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return float(self.weights @ self.values)

    @property
    def std(self) -> float:
        """Posterior standard deviation."""
        return float(np.sqrt(self.weights @ (self.values - self.mean) ** 2))

    def cdf(self, x: Any) -> Float[np.ndarray, "*S"]:
        """Probability of a value of at most x."""
        x = np.asarray(x, np.float64)
        return np.asarray(np.interp(x, self.values, self._upto, left=0.0, right=1.0))

    def quantiles(self, probabilities: Any) -> Float[np.ndarray, "levels"]:
        """Quantiles at probabilities in (0, 1)."""
        return np.interp(checked_levels(probabilities), self._upto, self.values)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Ends of the central interval that holds the value with the given probability."""
        lower, upper = self.quantiles(interval_levels(level))
        return float(lower), float(upper)

    def pdf(self, x: Any) -> Float[np.ndarray, "*S"]:
        """Density at x, by a kernel estimate that keeps mean and variance (Jones 1991)."""
        x = np.asarray(x, np.float64)
        if not self.positive:
            return np.asarray(self._smoothed(x, self.values))
        inside = x > 0
        place = np.where(inside, x, 1.0)
        return np.where(inside, self._smoothed(np.log(place), np.log(self.values)) / place, 0.0)

    @property
    def _upto(self) -> Float[np.ndarray, "S"]:
        return np.cumsum(self.weights) - 0.5 * self.weights

    def _smoothed(self, x: Any, values: Float[np.ndarray, "S"]) -> Any:
        x = np.asarray(x)
        mean = self.weights @ values
        spread = np.sqrt(self.weights @ (values - mean) ** 2)
        if not spread:
            return np.where(x == mean, np.inf, 0.0)
        middle = np.interp([0.25, 0.75], self._upto, values)
        usual = min(spread, (middle[1] - middle[0]) / 1.34) or spread
        width = _NARROWER * usual * np.sum(self.weights**2) ** 0.2
        centres = mean + (values - mean) * np.sqrt(1 - (width / spread) ** 2)
        apart = (x.reshape(-1, 1) - centres) / width
        density = np.exp(-0.5 * apart**2) @ self.weights / (width * np.sqrt(2 * np.pi))
        return density.reshape(x.shape)


def marginals_of(
    draws: Mapping[str, Float[np.ndarray, "S ..."]],
    weights: Float[np.ndarray, "S"] | None = None,
    *,
    positive: Collection[str],
    prior: Mapping[str, Float[np.ndarray, "prior_draws ..."]],
) -> dict[str, HyperparameterMarginal]:
    """Marginals of every entry of hyper-parameters, such as "kernel.lengthscale[0]".

    From weighted draws by path, and draws of the prior where there are some; those of positive
    paths are smoothed on the scale of the logarithm.
    """
    found, before = {}, dict(entries_of(prior))
    for path, values in draws.items():
        of = partial(HyperparameterMarginal.of, positive=path in positive)
        for label, own in entries_of({path: values}):
            past = of(before[label]) if label in before else None
            found[label] = of(own, weights, prior=past)
    return found


def entries_of(
    draws: Mapping[str, Float[np.ndarray, "S ..."]],
) -> Iterator[tuple[str, Float[np.ndarray, "S"]]]:
    """Draws of each entry, such as "kernel.lengthscale[0]", of draws by path."""
    for path, values in draws.items():
        for place, label in entry_labels(path, values.shape[1:]).items():
            yield label, values[:, *place]


def space_of_priors(model: LatentGP, priors: Mapping[str, Distribution | None]) -> ParameterSpace:
    """The hyper-parameters that have an entry among the priors."""
    held = tuple(path for path in parameters(model) if path not in priors)
    return ParameterSpace(model, frozen=held, priors=priors)


def positive_paths(space: ParameterSpace) -> list[str]:
    """Paths of what is smoothed on the scale of its logarithm."""
    return [p for p in space.paths if space.supports[p] is constraints.positive]


@jax.jit
def stacked_models(space: ParameterSpace, vectors: Float[Array, "S H"]) -> LatentGP:
    """The model of every draw, S first in every leaf; 1 in matrices that all share."""
    leaves, structure = jax.tree.flatten(space.model, is_leaf=_is_shared)

    def drawn(vector: HyperVector) -> list[Array]:
        own = jax.tree.leaves(space.to_model(vector), is_leaf=_is_shared)
        return [leaf for leaf in own if not _is_shared(leaf)]

    each = iter(jax.vmap(drawn)(vectors))
    stacked = [
        jax.tree.map(lambda a: jnp.asarray(a)[None], leaf) if _is_shared(leaf) else next(each)
        for leaf in leaves
    ]
    return jax.tree.unflatten(structure, stacked)


def _is_shared(node: Any) -> bool:
    return isinstance(node, Invariant)
