"""Effects of groups as a representation: a sparse design in place of a matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, UInt32

from latentgp.errors import InputError, check_whole
from latentgp.extensions.groups.crossed import CrossedSettings, crossed
from latentgp.extensions.groups.design import EffectDesign, RowEffects, designs_of
from latentgp.extensions.groups.elimination import EliminatedEffects, eliminated
from latentgp.extensions.groups.open_variance import given_effects, open_variance
from latentgp.extensions.groups.posterior import EffectsPosterior, moments_of, times
from latentgp.kernels import Kernel, LatentKernel
from latentgp.kernels.per_latent import KernelGroup, in_latent_order, kernel_groups
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, Representation
from latentgp.representations.latent_axis import over_sharing, vmap_latents
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.rows.arrays import evenly
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, RandomKey, RowLatents

_MOST_NUMBERS = 3e8
_MANY_FUNCTIONS = 100  # of a row: a search on some levels takes little beside one on all


class SparseEffects(Representation):
    """Effects of groups and coefficients, each row of which touches a few: O(N) a pass.

    Every term of a sum of kernels has effects of its own: a random intercept or slopes of each
    level of a group, a coefficient of a fixed effect, values at inducing points of a smooth part.
    The posterior of all of them is exact given the sites. Effects of the largest grouping, and of
    groupings that it is nested in, are eliminated level by level, the others by a dense factor
    (Bates, Maechler, Bolker & Walker 2015, 5, whose sparse factor has a general order).

    Args:
        number: inducing points of each part that is neither linear nor of groups; of a product of
            such parts as many together, of a function of every group's own at most 20.
        exact: whether the other effects have a dense factor; where not, all are solved for by
            conjugate gradients, log-determinants and variances are estimates. None for a dense
            factor where that takes a second at most.
        probes: number of probe vectors of these estimates.
        max_steps: the most steps of a solve.
        key: data of the random key of probe vectors; `initialise` sets it.
        designs: of the effects; `initialise` makes them.
        power: of what they leave open, as in `SiteForm`; a method sets it.
        means_only: whether nothing but means is asked for; likewise.

    Raises:
        InputError: a number out of its range; on use effects that need too much memory.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> clinic, week = np.arange(600.0) % 200, np.arange(600.0) // 200
        >>> kernel = lgp.kernels.FixedEffects(10.0).on(1)
        >>> kernel = kernel + lgp.Constant() * lgp.kernels.SameGroup().on(0)
        >>> data = lgp.Data(np.column_stack([clinic, week]), np.cos(clinic) + 0.5 * week)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian(noise_variance=0.01))
        >>> method = lgp.CollapsedVI(lgp.groups.SparseEffects())
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), method=method)
        >>> bool(abs(fit.posterior.mean_f([[0.0, 2.0]])[0] - 2.0) < 0.05)
        True
    """

    number: int = eqx.field(static=True, default=100)
    exact: bool | None = eqx.field(static=True, default=None)
    probes: int = eqx.field(static=True, default=32)
    max_steps: int = eqx.field(static=True, default=300)
    key: UInt32[Array, "2"] | None = None
    designs: tuple[EffectDesign, ...] | None = None
    power: float = eqx.field(static=True, default=0.0)
    means_only: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_whole(self, number=1, probes=2, max_steps=1)

    @property
    def traits(self) -> Traits:
        of_bound = "exact" if self._is_whole else "approximation" if self.power else "bound"
        return Traits(
            evidence=of_bound if self._is_exact else "approximation",
            estimates_evidence=not self._is_exact,
            one_gaussian=self._is_exact,
            dense_factors=False,
            coordinates_of_sites=False,
            paths=False,
            needs_all_rows=self._functions < _MANY_FUNCTIONS,
            needs_rows=True,
            powers=True,
        )

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> SparseEffects:
        if self.designs is not None:
            return self
        own = jax.random.key_data(key)
        designs = designs_of(kernel, X, self.number, self.exact)
        most = max(design.blocks for design in designs)
        if most > _MOST_NUMBERS:
            raise InputError(
                f"Effects of one level each need {8 * most / 2**30:.1f} GiB of covariances; give "
                "SparseEffects fewer points (number=), or groups fewer slopes."
            )
        return dataclasses.replace(self, designs=designs, key=own)

    def on_some_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, number: int
    ) -> tuple[Int[np.ndarray, "M"], SparseEffects]:
        """All rows of some levels, about so many, and the representation for these.

        Of most levels evenly spaced rows say little. Levels are of the grouping with most effects,
        so that a part has as many rows of one. Elimination passes over what has no sites, so that
        one layout serves all rows and a part; for conjugate gradients effects are laid out anew.
        """
        design, rows = max(self._designs, key=lambda own: own.number), evenly(len(X), number)
        if (first := design.first) is not None:
            columns = np.asarray(X)[:, list(design.terms[first].columns)]
            levels, level = np.unique(columns, axis=0, return_inverse=True)
            chosen = evenly(len(levels), -(-len(levels) * number // len(X)))
            rows = np.flatnonzero(np.isin(level.ravel(), chosen))
        if self._is_exact:
            return rows, self
        own = dataclasses.replace(self, designs=None)
        weights = None if weights is None else weights[rows]
        return rows, own.initialise(X[rows], weights, kernel, self._key)

    @property
    def _functions(self) -> int:
        """Number of effects that a row touches, at most."""
        each = (sum(term.row_width for term in own.terms) for own in self.designs or ())
        return max(each, default=0)

    @property
    def _is_whole(self) -> bool:
        return self.designs is not None and all(design.is_whole for design in self.designs)

    @property
    def _is_exact(self) -> bool:
        """Whether effects are eliminated."""
        if self.exact is None:
            return self.designs is None or all(design.is_small for design in self.designs)
        return self.exact

    @property
    def _key(self) -> RandomKey:
        return jax.random.key(0) if self.key is None else jax.random.wrap_key_data(self.key)

    def for_sites(self, form: SiteForm) -> SparseEffects:
        return dataclasses.replace(self, power=form.power, means_only=form.means_alone)

    def condition(self, kernel: LatentKernel, X: Inputs, sites: GaussianSites) -> EffectsPosterior:
        latents = sites.linear.shape[1]
        groups = kernel_groups(kernel, latents)
        found, left, loss = [], [], jnp.zeros((), sites.linear.dtype)
        keys = jax.random.key_data(jax.random.split(self._key, latents))
        for group, design in self._with_designs(groups):
            own = partial(self._condition, design, X)
            several = keys[jnp.array(group.latents)]
            given = *_of_group(group, sites), several
            effects, lost, share = vmap_latents(own, group.kernels, *given)
            found.append(effects)
            left.append(share)
            loss = loss + jnp.sum(lost)
        log_evidence = sum(jnp.sum(effects.log_evidence) for effects in found) - loss
        lost = jnp.zeros_like(loss) if self.power else loss
        strays = sum(jnp.sum(design.strays(_levels(design, X))) for design in self._designs)
        return EffectsPosterior(
            kernel=kernel,
            designs=tuple(dataclasses.replace(own, incidence=None) for own in self._designs),
            found=tuple(found),
            latents=latents,
            row=X[:1],
            log_evidence=log_evidence,
            kl=sum(jnp.sum(effects.kl) for effects in found),
            jitter=jnp.zeros_like(loss),
            trace_term=lost,
            strays=jnp.asarray(strays),
            left_open=in_latent_order([group.latents for group in groups], left).T,
            sites=sites if self.power and not self._is_whole else None,
        )

    def marginals_at_rows(self, posterior: EffectsPosterior, X: Inputs) -> Marginals:
        if not self.means_only:
            found, own = self._of_fitted_rows(posterior), posterior.sites
            left = 0.0 if own is None else posterior.open_variances(X)
            return _knowing_sites(found.marginals(X), left, own, self.power)
        mean = posterior.mean(X)
        return Marginals(mean, jnp.ones_like(mean))

    def pull_back(self, posterior: EffectsPosterior, X: Inputs, sites: GaussianSites) -> Pullback:
        """In the functions z_n of a row: r_n E[b] - w_n Cov[b, f_n], r_n the site's slope there."""

        def stacked(kernel: LatentKernel) -> list[Kernel]:
            return [group.kernels for group in kernel_groups(kernel, posterior.latents)]

        posterior = self._of_fitted_rows(posterior)
        kernels, pull = jax.vjp(stacked, posterior.kernel)
        groups = kernel_groups(posterior.kernel, posterior.latents)
        slopes, moments = [], []
        for (group, design), found, like in zip(
            self._with_designs(groups), posterior.found, kernels, strict=True
        ):
            own = partial(_pull_back, design, X, self.power)
            each, at_rows = vmap_latents(own, group.kernels, found, *_of_group(group, sites))
            slopes.append(jax.tree.map(over_sharing, each, like))
            moments.append(at_rows)
        (in_kernel,) = pull(slopes)
        mean, variance, left = in_latent_order([g.latents for g in groups], moments).T
        marginals = _knowing_sites(Marginals(mean, variance), left, posterior.sites, self.power)
        return Pullback(in_kernel, None, marginals)

    def linearised(
        self, posterior: EffectsPosterior, X: Inputs, sites: GaussianSites
    ) -> Callable[[RowLatents], tuple[LatentKernel, RowLatents]]:
        """By a solve for means alone: along s effects move by those of linear terms s."""
        alone = dataclasses.replace(self, means_only=True)

        def means_of(posterior: EffectsPosterior) -> Any:
            return [mean for found in posterior.found for mean in found.all_means]

        def move(along: RowLatents) -> tuple[LatentKernel, RowLatents]:
            moves = alone.condition(posterior.kernel, X, sites._replace(linear=along))

            def pulled(linear: RowLatents, means: Any) -> tuple[LatentKernel, RowLatents]:
                at = sites._replace(linear=linear)
                own = dataclasses.replace(moves, sites=None if posterior.sites is None else at)
                pullback = self.pull_back(eqx.tree_at(means_of, own, means), X, at)
                return pullback.kernel, pullback.marginals.mean

            start = sites.linear, means_of(posterior)
            return jax.jvp(pulled, start, (along, means_of(moves)))[1]

        return move

    def _condition(
        self,
        design: EffectDesign,
        X: Inputs,
        kernel: Kernel,
        linear: PerRow,
        precision: PerRow,
        key: UInt32[Array, "2"],
    ) -> tuple[Any, Array, Array]:
        """Effects of one latent function, what is lost of its bound, and shares left open."""
        loss, shares = jnp.zeros((), linear.dtype), jnp.zeros(2, linear.dtype)
        own = design, kernel, X, linear, precision
        how = {"power": self.power, "means_only": self.means_only}
        if self._is_exact:
            found, left = eliminated(*own, **how)
        else:
            settings = CrossedSettings(jax.random.wrap_key_data(key), self.probes, self.max_steps)
            found, left = crossed(*own, settings, **how)
        if not design.is_whole:
            share = left / kernel.diagonal(X)
            shares = jnp.stack([jnp.mean(share), jnp.max(share)])
            loss = -jnp.sum(given_effects(linear, precision, left, self.power)[2])
        return found, loss, shares

    def _of_fitted_rows(self, posterior: EffectsPosterior) -> EffectsPosterior:
        """The same, whose covariances are those of the fit's rows alone."""
        if not self._is_exact:
            return posterior
        of_fitted = EliminatedEffects.of_fitted_rows
        each = zip(self._designs, posterior.found, strict=True)
        found = [vmap_latents(partial(of_fitted, design=design), own) for design, own in each]
        return dataclasses.replace(posterior, found=tuple(found))

    @property
    def _designs(self) -> tuple[EffectDesign, ...]:
        assert self.designs is not None
        return self.designs

    def _with_designs(self, groups: list[KernelGroup]) -> Any:
        return zip(groups, self._designs, strict=True)


def _levels(design: EffectDesign, X: Inputs) -> tuple[Array, ...]:
    return tuple(term.index(X) for term in design.terms)


def _of_group(group: KernelGroup, sites: GaussianSites) -> tuple[Array, Array]:
    own = jnp.array(group.latents)
    return sites.linear.T[own], sites.precision.T[own]


def _knowing_sites(
    found: Marginals, left: RowLatents | float, sites: GaussianSites | None, power: float
) -> Marginals:
    """Marginals of f at the rows, which know of their own sites to the power too."""
    if sites is None:
        return found
    share = 1 + power * left * sites.precision
    mean = (found.mean + power * left * sites.linear) / share
    return Marginals(mean, (found.variance - left) / share**2 + left / share)


def _pull_back(
    design: EffectDesign,
    X: Inputs,
    power: float,
    kernel: Kernel,
    found: Any,
    linear: PerRow,
    precision: PerRow,
) -> tuple[Kernel, Float[Array, "N moments"]]:
    """Derivative of the log evidence in the kernel of one latent function, and `moments_of` it.

    Of rows without a site the latter are those of the prior.
    """

    def step(total: Any, rows: Any, real: Array) -> tuple[Any, Array]:
        x, s, w = rows
        s, w = jnp.where(real, s, 0.0), jnp.where(real, w, 0.0)

        def added(total: Any) -> tuple[Any, Array]:
            more, moments = _pulled(design, power, kernel, found, x, s, w)
            return jax.tree.map(jnp.add, total, more), moments.T

        def passed_over(total: Any) -> tuple[Any, Array]:
            nothing = jnp.zeros_like(s)
            return total, jnp.stack([nothing, kernel.diagonal(x), nothing], axis=1)

        return jax.lax.cond(jnp.any((s != 0) | (w != 0)), added, passed_over, total)

    nothing = jax.tree.map(jnp.zeros_like, kernel)
    return scan_rows(step, nothing, (X, linear, precision), columns=2 * design.row_width)


def _pulled(
    design: EffectDesign,
    power: float,
    kernel: Kernel,
    found: Any,
    X: Inputs,
    linear: PerRow,
    precision: PerRow,
) -> tuple[Kernel, Float[Array, "moments N"]]:
    """The same of a chunk of rows."""

    def functions(kernel: Kernel) -> Any:
        rows = design.of(kernel, X)
        return (rows.values, kernel.diagonal(X)), rows.levels

    (values, _), pull, levels = jax.vjp(functions, kernel, has_aux=True)
    rows = RowEffects(levels, values)
    means, spread = found.means_of(design, rows), found.covariances_of(design, rows)
    f, variance = times(means, rows), times(spread, rows)

    def rest(left: PerRow) -> Array:
        s, w, constant = given_effects(linear, precision, left, power)
        return jnp.sum(s * f - 0.5 * w * (f**2 + variance) + constant)

    s, w, in_left = linear, precision, jnp.zeros_like(linear)
    if not design.is_whole:
        left = open_variance(design, kernel, X, values)
        in_left = jax.grad(rest)(left)
        s, w, _ = given_effects(linear, precision, left, power)
    slope = s - w * f
    moved = tuple(
        slope[:, None] * b - w[:, None] * c - 2 * in_left[:, None] * u
        for b, c, u in zip(means, spread, values, strict=True)
    )
    moments = moments_of(design, kernel, found, X, rows, means, spread)
    return pull((moved, in_left))[0], moments
