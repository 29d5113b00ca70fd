"""What users of mixed models read first: variance components and fixed effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extensions.groups.inference.contrasts import Contrasts
from latentgp.extensions.groups.inference.r_squared import RSquared
from latentgp.kernels import (
    CorrelatedLinear,
    FixedEffects,
    Kernel,
    Linear,
    MultipleMembership,
    SameGroup,
)
from latentgp.kernels.terms import Part, terms_of
from latentgp.likelihoods import Gaussian
from latentgp.posteriors.posterior import Posterior
from latentgp.runtime.x64 import double_precision


class VarianceComponent(NamedTuple):
    """Effects of the levels of one grouping: their variances and correlations.

    Attributes:
        group: name of the grouping.
        effects: names of what the effects multiply, the intercept first.
        variance: of each, shape (E,); units of the latent function squared, over those of the
            column squared.
        correlation: of the effects, shape (E, E).
        members: number of groups that a row has.
    """

    group: str
    effects: tuple[str, ...]
    variance: Float[np.ndarray, "E"]
    correlation: Float[np.ndarray, "E E"]
    members: int = 1


class MixedSummary(NamedTuple):
    """Variance components, fixed effects and shares of variance of a mixed model.

    Attributes:
        components: of each grouping; empty without groups.
        residual: variance of Gaussian noise; None of other likelihoods.
        names: of the fixed effects.
        estimate: posterior means of these, shape (coefficients,).
        standard_error: posterior deviations given the hyper-parameters, likewise.
        log_evidence: in nats, fixed effects integrated over; None where there is none.
        degrees: of freedom of tests of the fixed effects, shape (coefficients,); infinite where
            these are by the normal law.
        r_squared: shares of variance that are explained; None where rows or likelihood have none.
        notes: sentences on what tests of the fixed effects leave out, and on priors of variances.
    """

    components: tuple[VarianceComponent, ...]
    residual: float | None
    names: tuple[str, ...]
    estimate: Float[np.ndarray, "coefficients"]
    standard_error: Float[np.ndarray, "coefficients"]
    log_evidence: float | None
    degrees: Float[np.ndarray, "coefficients"]
    r_squared: RSquared | None = None
    notes: tuple[str, ...] = ()

    @property
    def tests(self) -> Contrasts:
        """T tests of the fixed effects, of several latent functions one after another."""
        names, degrees = self.names, self.degrees
        if self.estimate.ndim > 1:
            latents = range(self.estimate.shape[1])
            names = tuple(f"{name} [{q}]" for name in names for q in latents)
            degrees = np.repeat(degrees, len(latents))
        return Contrasts.of(names, self.estimate.ravel(), self.standard_error.ravel(), degrees)

    def intraclass(self) -> dict[str, float]:
        """Correlation of two targets of one level, of each grouping with an intercept.

        The intercept's variance over that of all intercepts and the noise, or of classes and
        counts the rest that `r_squared` has on the scale of the latent function (Nakagawa, Johnson
        & Schielzeth 2017). InputError where there is neither, or rows have several groups.
        """
        rest = self.residual
        if rest is None and self.r_squared is not None:
            rest = self.r_squared.residual
        if rest is None or any(part.members > 1 for part in self.components):
            raise InputError(
                "Intraclass correlations need one group a row, and Gaussian noise or a likelihood "
                "and rows that R2 is known of: give mixed_summary() the rows of the fit, or "
                "compare the variances of groups."
            )
        own: dict[str, float] = {}
        for part in self.components:
            if part.effects[0] == _ONE:
                own[part.group] = own.get(part.group, 0.0) + float(part.variance[0])
        total = sum(own.values()) + rest
        return {group: variance / total for group, variance in own.items()}

    def __str__(self) -> str:
        title = "Random effects:" if self.components else "Noise:"
        head = f"{'Groups':<16}{'Name':<16}{'Variance':>12}{'Std.Dev.':>12}  Corr"
        lines = [title, head] if self.components or self.residual is not None else []
        for own in self.components:
            for k, (name, variance) in enumerate(zip(own.effects, own.variance, strict=True)):
                group = own.group if k == 0 else ""
                along = " ".join(f"{value:6.2f}" for value in own.correlation[k, :k])
                lines.append(_row(group, name, variance, along))
        if self.residual is not None:
            lines.append(_row("Residual", "", self.residual))
        if self.names:
            lines += ["", "Fixed effects:", str(self.tests)]
        lines += self.notes
        if self.log_evidence is not None:
            lines += ["", f"Log evidence: {self.log_evidence:.2f} nats"]
        if self.r_squared is not None:
            lines.append(str(self.r_squared))
        return "\n".join(lines).lstrip("\n")


_ONE = "(Intercept)"
_OF_GROUPS = SameGroup, MultipleMembership


@double_precision
def mixed_summary(posterior: Posterior, names: Sequence[str] | None = None) -> MixedSummary:
    """Variance components and fixed effects of a posterior, as mixed models have them.

    Args:
        posterior: of one kernel with groups or fixed effects.
        names: of all columns of the inputs; their numbers unless given.

    Raises:
        InputError: several kernels, or one with neither groups nor fixed effects.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.column_stack([np.arange(60.0) % 6, np.ones(60)])
        >>> kernel = FixedEffects(1e4).on(1) + 0.5 * SameGroup().on(0)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian(0.25))
        >>> data = lgp.Data(X, X[:, 0] + np.cos(np.arange(60.0)))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), learn_hyperparameters=False)
        >>> found = lgp.groups.mixed_summary(fit.posterior, ["clinic", "one"])
        >>> print(str(found).splitlines()[2])
        clinic          (Intercept)              0.5     0.70711
    """
    kernel, likelihood = posterior.model.kernel, posterior.model.likelihood
    columns = posterior.components.inputs
    names = [str(column) for column in range(columns)] if names is None else list(names)
    one = isinstance(kernel, Kernel)
    components = variance_components(kernel, names) if one else ()
    linear = one and any(
        len(term.parts) == 1 and isinstance(term.parts[0].kernel, FixedEffects | Linear)
        for term in terms_of(kernel, tuple(range(columns)))
    )
    if not (components or linear):
        raise InputError(
            "A mixed summary needs one kernel with groups or fixed effects; add them to it, or to "
            "a formula as (1 | column) or a column."
        )
    own = posterior.coefficients(names) if linear else None
    nothing = np.zeros(0)
    return MixedSummary(
        components,
        float(likelihood.noise_variance) if isinstance(likelihood, Gaussian) else None,
        () if own is None else own.names,
        nothing if own is None else own.estimate,
        nothing if own is None else own.standard_error,
        None if posterior.evidence is None else float(posterior.evidence.value),
        nothing if own is None else np.full(len(own.names), np.inf),
    )


def variance_components(kernel: Kernel, names: Sequence[str]) -> tuple[VarianceComponent, ...]:
    """The variance components of a kernel of columns with these names, smooth parts left out.

    Example:
        >>> kernel = CorrelatedLinear([4.0, 1.0], [0.5]).on(0) * SameGroup().on(1)
        >>> (found,) = variance_components(kernel, ["dose", "clinic"])
        >>> found.group, found.effects, found.correlation.round(2).tolist()
        ('clinic', ('(Intercept)', 'dose'), [[1.0, 0.5], [0.5, 1.0]])
    """
    found = []
    for term in terms_of(kernel, tuple(range(len(names)))):
        groups = [part for part in term.parts if isinstance(part.kernel, _OF_GROUPS)]
        others = [part for part in term.parts if part not in groups]
        if not groups or len(others) > 1:
            continue
        scale = float(term.scale)
        effects, covariance = [_ONE], np.full((1, 1), scale)
        if others:
            own: Any = others[0].kernel
            effects = [names[column] for column in others[0].columns]
            if isinstance(own, CorrelatedLinear):
                effects = [_ONE, *effects] if own.intercept else effects
                covariance = scale * np.asarray(own.covariance())
            elif isinstance(own, Linear | FixedEffects):
                each = np.broadcast_to(np.asarray(own.variance), len(effects))
                covariance = scale * np.diag(each)
            else:
                continue
        variance = np.diagonal(covariance)
        deviation = np.sqrt(variance)
        name = ":".join(_name(part, names) for part in groups)
        members = max(getattr(part.kernel, "members", 1) for part in groups)
        divisor = np.where(deviation > 0, deviation, 1.0)
        correlation = covariance / divisor / divisor[:, None]
        found.append(VarianceComponent(name, tuple(effects), variance, correlation, members))
    return tuple(found)


def _name(part: Part, names: Sequence[str]) -> str:
    """Names of the columns of groups, as a formula has them."""
    kernel: Any = part.kernel
    if isinstance(kernel, SameGroup):
        return ":".join(names[column] for column in part.columns)
    return f"mm({', '.join(names[column] for column in part.columns[: kernel.members])})"


def _row(group: str, name: str, variance: float, along: str = "") -> str:
    row = f"{group:<16}{name:<16}{variance:>12.5g}{np.sqrt(variance):>12.5g}  {along}"
    return row.rstrip()
