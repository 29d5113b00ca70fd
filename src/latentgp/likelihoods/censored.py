"""Targets of which only a bound, or two, is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, SideInformation
from latentgp.likelihoods.of_base import OfBase
from latentgp.modules import forwarded
from latentgp.numerics.log_space import log_interval
from latentgp.rows.arrays import check_values
from latentgp.typing import Latents, PerRow, Scalar

_SIDES = "censored", "upper", "entry"
_LEFT, _SEEN, _RIGHT, _INTERVAL = -1.0, 0.0, 1.0, 2.0


def _of_base(side: SideInformation) -> SideInformation:
    return {name: values for name, values in side.items() if name not in _SIDES}


def _without_bounds(name: str) -> Any:
    """Method that is the base's, without side information of our own, which comes last."""
    return lambda self, *given: getattr(self.base, name)(*given[:-1], _of_base(given[-1]))


class Censored(OfBase):
    """The base's law with partly censored targets.

    The rows carry `censored`: 0 where y was seen, 1 where the target is above y (right censoring),
    -1 where it is at most y (left censoring), and 2 where it is above y and at most `upper`
    (interval censoring). Without it all were seen. Rows that were observed from a time on carry
    `entry`, which the target is known to exceed, as it would not be among the rows else (left
    truncation; Klein & Moeschberger 2003, 3.4). Predictions are of the target itself.

    Args:
        base: with `log_tails`, such as `Gaussian()`, `StudentT()`, `LogNormal()` or `Weibull()`.

    Raises:
        InputError: a base without them.

    Example:
        >>> from latentgp import Gaussian
        >>> row = {"censored": jnp.array(1.0)}
        >>> law = Censored(Gaussian(1.0))
        >>> round(float(law.log_prob(jnp.array(0.0), jnp.array([0.0]), row)), 4)
        -0.6931
    """

    def __check_init__(self) -> None:
        if isinstance(self.base, Likelihood) and type(self.base).log_tails is Likelihood.log_tails:
            raise InputError(
                "Censored needs a likelihood with log_tails, such as Gaussian(), StudentT(), "
                f"LogNormal() or Weibull(), got {self.base!r}."
            )

    @property
    def side_information(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return tuple(dict.fromkeys([*_SIDES, *self.base.side_information]))

    is_location = forwarded("base.is_location")
    # Of a location family, perhaps of a function of y, so are integrals (Prékopa 1973).
    is_log_concave = forwarded("base.is_log_concave")

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        own = _of_base(side)
        value = self.base.log_prob(y, f, own)
        if "entry" in side:
            # At zero the logarithm of a positive target has no derivatives.
            entry = jnp.where(side["entry"] == 0, jnp.finfo(f.dtype).tiny, side["entry"])
            return (
                self.log_prob(y, f, {n: own for n, own in side.items() if n != "entry"})
                - (self.base.log_tails(entry, f, own)[1])
            )
        if "censored" not in side:
            return value
        kind = side["censored"]
        below, above = self.base.log_tails(y, f, own)
        if "upper" in side:
            both = kind == _INTERVAL
            upper = self.base.log_tails(jnp.where(both, side["upper"], y), f, own)
            # An interval without width has no third derivative: others are between quartiles.
            tails, (low, high) = ((below, above), upper), np.log([0.25, 0.75])
            lower, upper = jax.tree.map(
                lambda tail, other: jnp.where(both, tail, other), tails, ((low, high), (high, low))
            )
            value = jnp.where(both, log_interval(lower, upper), value)
        value = jnp.where(kind == _LEFT, below, value)
        return jnp.where(kind == _RIGHT, above, value)

    conditional_moments = _without_bounds("conditional_moments")
    sample = _without_bounds("sample")
    cdf = _without_bounds("cdf")
    predictive_moments = _without_bounds("predictive_moments")
    predictive_cdf = _without_bounds("predictive_cdf")
    predictive_quantiles = _without_bounds("predictive_quantiles")
    latent_start = _without_bounds("latent_start")

    def check_side_information(self, side: SideInformation) -> None:
        self.base.check_side_information(_of_base(side))
        censored = side.get("censored", 0.0)
        accepted = np.isin(censored, [_LEFT, _SEEN, _RIGHT, _INTERVAL])
        kind = "0 (seen), 1 (above y), -1 (at most y) or 2 (above y and at most upper)"
        check_values("censored", censored, accepted, kind, "give one of these in every row")

    def check_rows(self, y: PerRow, side: SideInformation) -> None:
        self.base.check_rows(y, _of_base(side))
        between = np.broadcast_to(side.get("censored", 0.0), y.shape) == _INTERVAL
        upper = np.broadcast_to(side.get("upper", -np.inf), y.shape)
        kind = "above y where censored is 2, as targets are between them"
        advice = "give Data(..., upper=...), with any number in other rows"
        check_values("upper", upper, ~between | (y < upper), kind, advice)
        entry = np.broadcast_to(side.get("entry", 0.0), y.shape)
        late = (entry >= 0) | self.is_location
        late &= "entry" not in side or (y > entry)
        kind = "below y" if self.is_location else "at least zero and below y"
        advice = "leave out rows that ended before they began"
        check_values("entry", entry, late, kind, advice)
