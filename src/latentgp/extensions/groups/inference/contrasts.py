"""t and F tests, alone and several together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, fdtrc, ndtr, ndtri, stdtr, stdtrit

from latentgp.errors import refuse
from latentgp.validation import interval_levels

if TYPE_CHECKING:
    import pandas as pd


class Contrasts(NamedTuple):
    """Weighted sums of fixed effects, each with a t test of zero.

    Attributes:
        names: of the sums.
        estimate: shape (sums,), units of the latent function.
        standard_error: likewise.
        degrees: of freedom, infinite where the test is that of a normal law, shape (sums,).
        p_value: two-sided, adjusted where `adjustment` says so, shape (sums,).
        adjustment: for several tests: "none", "holm" or "tukey".
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, "sums"]
    standard_error: Float[np.ndarray, "sums"]
    degrees: Float[np.ndarray, "sums"]
    p_value: Float[np.ndarray, "sums"]
    adjustment: str = "none"

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        estimate: Float[np.ndarray, "sums"],
        error: Float[np.ndarray, "sums"],
        degrees: Float[np.ndarray, "sums"],
    ) -> Contrasts:
        """With p values of each test by itself.

        Example:
            >>> found = Contrasts.of(["slope"], np.array([2.0]), np.ones(1), np.array([10.0]))
            >>> found.p_value.round(4)
            array([0.0734])
        """
        p = 2 * _by_degrees(ndtr, stdtr, degrees, -np.abs(estimate / error))
        return cls(tuple(names), estimate, error, degrees, p)

    @property
    def statistic(self) -> Float[np.ndarray, "sums"]:
        """Estimate over standard error."""
        return self.estimate / self.standard_error

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "sums"], Float[np.ndarray, "sums"]]:
        """Ends of central intervals, each by itself."""
        ends = (_by_degrees(ndtri, stdtrit, self.degrees, p) for p in interval_levels(level))
        lower, upper = (self.estimate + end * self.standard_error for end in ends)
        return lower, upper

    def adjusted(self, adjustment: str, means: int) -> Contrasts:
        """With p values for all tests together.

        Args:
            adjustment: "tukey", for all differences of so many means (Tukey 1953), exact where
                these are equally precise; "holm" (Holm 1979); "none".
            means: number of the means.

        Raises:
            InputError: another adjustment.
        """
        known = adjustment in ("none", "holm", "tukey")
        refuse({f"adjust must be tukey, holm or none, got {adjustment!r}.": not known})
        p = self.p_value
        if adjustment == "holm":
            order, count = np.argsort(p), len(p)
            raised = np.maximum.accumulate((count - np.arange(count)) * p[order])
            p = np.empty(count)
            p[order] = np.minimum(raised, 1.0)
        elif adjustment == "tukey":
            from scipy.stats import studentized_range

            found = studentized_range.sf(np.sqrt(2) * np.abs(self.statistic), means, self.degrees)
            p = np.clip(found, p, means * (means - 1) / 2 * p)  # quadrature ends at 1e-9 or so
        return self._replace(p_value=np.asarray(p), adjustment=adjustment)

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """A data frame with a row a sum: estimate, standard error, df, t, p, ends of intervals."""
        import pandas as pd

        lower, upper = self.interval(level)
        columns = {
            "estimate": self.estimate,
            "standard_error": self.standard_error,
            "df": self.degrees,
            "statistic": self.statistic,
            "p_value": self.p_value,
            "lower": lower,
            "upper": upper,
        }
        return pd.DataFrame(columns, index=list(self.names))

    def __str__(self) -> str:
        width, with_t = max([24, *map(len, self.names)]) + 1, np.isfinite(self.degrees).any()
        law, shown = ("t", f"{'df':>9}") if with_t else ("z", "")
        head = f"{'Estimate':>12}{'Std. Error':>12}{shown}{f'{law} value':>10}"
        lines = [f"{'':<{width}}{head}{f'Pr(>|{law}|)':>12}"]
        for name, e, s, d, p, t in zip(*self[:5], self.statistic, strict=True):
            freedom = f"{d:>9.2f}" if with_t else ""
            lines.append(f"{name:<{width}}{e:>12.5g}{s:>12.5g}{freedom}{t:>10.3f}{p:>12.3g}")
        if self.adjustment != "none":
            lines.append(f"p values adjusted by {self.adjustment}")
        return "\n".join(lines)


class TermTest(NamedTuple):
    """F test that all of some weighted sums are zero.

    Attributes:
        numerator: degrees of freedom, the rank of the weights.
        denominator: degrees of freedom, infinite for a chi-squared law.
        statistic: F.
        p_value: of a greater one.
    """

    numerator: float
    denominator: float
    statistic: float
    p_value: float

    @classmethod
    def of(cls, statistic: Any, numerator: float, denominator: Any) -> TermTest:
        """With its p value."""
        if np.isinf(denominator):
            p = chdtrc(numerator, numerator * statistic)
        else:
            p = fdtrc(numerator, denominator, statistic)
        return cls(float(numerator), float(denominator), float(statistic), float(p))


class TermTests(dict[str, TermTest]):
    """F tests of the terms of a formula by name, type III."""

    def table(self) -> pd.DataFrame:
        """A data frame with a row a term."""
        import pandas as pd

        return pd.DataFrame.from_dict(self, orient="index", columns=list(TermTest._fields))

    def __str__(self) -> str:
        width = max([24, *map(len, self)]) + 1
        lines = [f"{'':<{width}}{'NumDF':>6}{'DenDF':>9}{'F value':>10}{'Pr(>F)':>12}"]
        lines += [
            f"{name:<{width}}{own[0]:>6.0f}{own[1]:>9.2f}{own[2]:>10.3f}{own[3]:>12.3g}"
            for name, own in self.items()
        ]
        return "\n".join(lines)


def _by_degrees(normal: Any, student: Any, degrees: Float[np.ndarray, "sums"], at: Any) -> Any:
    """Values of Student's law, of the normal one where degrees of freedom are infinite."""
    infinite = np.isinf(degrees)
    return np.where(infinite, normal(at), student(np.where(infinite, 1.0, degrees), at))
