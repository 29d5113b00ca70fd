"""Means of a target at the levels of a factor, others averaged over with equal weights."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import refuse
from latentgp.extensions.groups.inference.contrasts import Contrasts
from latentgp.extensions.groups.inference.law import EffectsLaw
from latentgp.likelihoods import Likelihood
from latentgp.runtime.x64 import double_precision

if TYPE_CHECKING:
    import pandas as pd


class MarginalMeans(NamedTuple):
    """Estimated marginal means (Searle, Speed & Milliken 1980), on the latent function's scale.

    Attributes:
        levels: of the factor, one for each mean.
        within: the levels of other factors at which a mean is, as text; empty for none.
        weights: of the fixed effects, shape (sums, effects).
        law: estimates of the fixed effects, and their tests.
        likelihood: of the targets, which has the response scale.
    """

    levels: tuple[str, ...]
    within: tuple[str, ...]
    weights: Float[np.ndarray, "sums effects"]
    law: EffectsLaw
    likelihood: Likelihood

    @property
    def means(self) -> Contrasts:
        """The means; their p values are of tests that a mean is zero."""
        each = zip(self.levels, self.within, strict=True)
        names = [f"{level} | {own}" if own else level for level, own in each]
        return self.law.contrasts(self.weights, names)

    def pairs(self, adjust: str = "tukey") -> Contrasts:
        """Differences of the levels, two by two.

        Args:
            adjust: of p values, "tukey", "holm" or "none"; for the differences within levels of
                other factors at a time.

        Raises:
            InputError: another adjustment; a factor of one level.
        """
        one = f"Differences need two levels, got {self.levels[0]!r} alone."
        refuse({one: len(set(self.levels)) < 2})
        parts = []
        for block in dict.fromkeys(self.within):
            own = [place for place, name in enumerate(self.within) if name == block]
            pairs = list(combinations(own, 2))
            names = [f"{self.levels[a]} - {self.levels[b]}" for a, b in pairs]
            names = [f"{name} | {block}" if block else name for name in names]
            first, second = (list(places) for places in zip(*pairs, strict=True))
            weights = self.weights[first] - self.weights[second]
            parts.append(self.law.contrasts(weights, names).adjusted(adjust, len(own)))
        names = tuple(name for part in parts for name in part.names)
        columns = zip(*(part[1:5] for part in parts), strict=True)
        estimate, error, degrees, p = (np.concatenate(column) for column in columns)
        return Contrasts(names, estimate, error, degrees, p, parts[0].adjustment)

    @double_precision
    def response(self, level: float = 0.95) -> pd.DataFrame:
        """Expectations of y at the means of f, in one unit of exposure, of one trial.

        Classes are numbered from zero. Ends of intervals are carried over by the link; standard
        errors are by its slope.
        """
        import pandas as pd

        found = self.means

        @jax.vmap
        def expected(f: jax.Array) -> jax.Array:
            return self.likelihood.conditional_moments(f[None], {})[0]

        ends = map(jnp.asarray, (found.estimate, *found.interval(level)))
        mean, lower, upper = (np.asarray(expected(f)) for f in ends)
        slope = jax.jvp(expected, (jnp.asarray(found.estimate),), (jnp.ones(len(mean)),))[1]
        error = np.abs(np.asarray(slope)) * found.standard_error
        columns = {"mean": mean, "standard_error": error, "df": found.degrees}
        return pd.DataFrame(columns | {"lower": lower, "upper": upper}, index=list(found.names))

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """A data frame with a row a mean: mean, standard error, df, ends of intervals."""
        table = self.means.table(level).rename(columns={"estimate": "mean"})
        return table.drop(columns=["statistic", "p_value"])

    def __str__(self) -> str:
        return self.table().to_string(float_format=lambda value: f"{value:.5g}")
