"""Posterior of effects of groups, of which predictions read a few a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.groups.crossed import CrossedEffects
from latentgp.extensions.groups.design import EffectDesign, RowEffects
from latentgp.extensions.groups.elimination import EliminatedEffects
from latentgp.extensions.groups.open_variance import open_variance
from latentgp.extensions.iterative.solvers.solution import CONVERGED
from latentgp.kernels import Kernel, LatentKernel
from latentgp.kernels.parts import as_wholes, telling_parts
from latentgp.kernels.per_latent import in_latent_order, kernel_groups
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.variables import Centres
from latentgp.runtime.row_scan import in_chunks
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, RowLatents, Scalar


@stored
class EffectsPosterior(LatentPosterior):
    """Posterior with the effects of every level as coefficients.

    Effects of a level that no row had are those of the prior, and so is what functions of other
    parts leave open of the prior variance.
    """

    kernel: LatentKernel
    designs: tuple[EffectDesign, ...]  # of each structure of kernels
    found: tuple[
        EliminatedEffects | CrossedEffects, ...
    ]  # of the latent functions of each, stacked
    latents: int = eqx.field(static=True)
    row: Float[Array, "1 D"]
    log_evidence: Scalar
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar
    strays: Any  # number of rows whose groups the designs have not, or nest otherwise
    # mean and greatest share of the prior variance that effects leave open, of each latent
    left_open: Float[Array, "moments Q"]
    sites: GaussianSites | None  # where rows know of their own what effects leave open

    @property
    def evidence_error(self) -> Scalar:
        return jnp.sqrt(sum(jnp.sum(own.evidence_error**2) for own in self._crossed))

    @property
    def notes(self) -> tuple[str, ...]:
        found = tuple(map(note_of, self.designs, self.found))
        if not all(design.is_whole for design in self.designs):
            mean, most = np.max(np.asarray(self.left_open), axis=1)
            found += (
                f"Points of smooth parts leave open {mean:.2g} of the prior variance (mean of the "
                f"rows; at most {most:.2g}).",
            )
        return tuple(dict.fromkeys(found))

    @property
    def complaints(self) -> tuple[str, ...]:
        found = []
        if int(self.strays):
            found.append(
                f"{int(self.strays)} rows have groups that the effects were not laid out for, or "
                "nested otherwise, and the posterior is wrong; fit all rows anew."
            )
        for own in self._crossed:
            if failed := int(np.sum(np.asarray(own.code) != CONVERGED)):
                found.append(
                    f"{failed} of {np.size(own.code)} solves for effects did not converge in "
                    f"{int(np.max(own.steps))} steps: a relative residual of "
                    f"{float(np.max(own.relative_residual)):.1e} is left; give SparseEffects a "
                    "larger max_steps."
                )
        return tuple(found)

    @property
    def _crossed(self) -> list[CrossedEffects]:
        return [own for own in self.found if isinstance(own, CrossedEffects)]

    @property
    def centres(self) -> Centres:
        """A row: effects have no places."""
        return self.row

    def mean(self, X: Inputs) -> RowLatents:
        def means(kernel: Kernel, found: Any, x: Inputs, design: EffectDesign) -> PerRow:
            return _mean(found, design, design.of(kernel, x))

        return in_chunks(lambda x: self._each(means, x), X, self._width).T

    def marginals(self, X: Inputs) -> Marginals:
        def moments(
            kernel: Kernel, found: Any, x: Inputs, design: EffectDesign
        ) -> Float[Array, "moments N"]:
            rows = design.of(kernel, x)
            each = found.means_of(design, rows), found.covariances_of(design, rows)
            return moments_of(design, kernel, found, x, rows, *each)[:2]

        both = in_chunks(lambda x: self._each(moments, x), X, self._width)
        return Marginals(both[:, 0].T, both[:, 1].T)

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        def left(kernel: Kernel, found: Any, x: Inputs, design: EffectDesign) -> PerRow:
            return open_variance(design, kernel, x, design.of(kernel, x).values)

        return self._each(left, X).T

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        def between(
            kernel: Kernel, found: Any, x: Inputs, design: EffectDesign
        ) -> Float[Array, "N N"]:
            rows = design.of(kernel, x)
            total = found.between(design, rows)
            total = total + jnp.diag(open_variance(design, kernel, x, rows.values))
            for t, (term, u) in enumerate(zip(design.terms, rows.values, strict=True)):
                new = jnp.where(rows.known(design, t), 0.0, u)
                pieces = jnp.split(new, term.row_width // term.width, axis=1)
                members = list(zip(term.groups(x), pieces, strict=True))
                for (groups, own), (others, other) in product(members, members):
                    same = jnp.all(groups[:, None] == others[None], axis=2)
                    total = total + jnp.where(same, own @ other.T, 0.0)
            return total

        return self._each(between, X)

    def telling_parts(self, number: int) -> EffectsPosterior:
        own = telling_parts(self.kernel, number), as_wholes(self.row, number)
        return eqx.tree_at(lambda p: (p.kernel, p.row), self, own)

    @property
    def _width(self) -> int:
        """Numbers that a row needs."""
        beside = (own.row_width for own in self.found if isinstance(own, EliminatedEffects))
        return max(design.row_width for design in self.designs) + max(beside, default=0)

    def _each(self, function: Callable[..., Array], X: Inputs) -> Float[Array, "Q *S"]:
        """Values of a function of kernel, effects, rows and design for every latent function."""
        groups = kernel_groups(self.kernel, self.latents)
        values = [
            vmap_latents(partial(function, x=X, design=design), group.kernels, found)
            for group, design, found in zip(groups, self.designs, self.found, strict=True)
        ]
        return in_latent_order([group.latents for group in groups], values)


def _mean(found: Any, design: EffectDesign, rows: RowEffects) -> PerRow:
    return jnp.zeros(len(rows.levels[0])) + times(found.means_of(design, rows), rows)


def times(effects: tuple[Array, ...], rows: RowEffects) -> Any:
    """What effects of each row's levels, or covariances of these, are of f there."""
    return sum(jnp.sum(b * u, axis=1) for b, u in zip(effects, rows.values, strict=True))


def moments_of(
    design: EffectDesign,
    kernel: Kernel,
    found: Any,
    X: Inputs,
    rows: RowEffects,
    means: tuple[Array, ...],
    covariances: tuple[Array, ...],
) -> Float[Array, "moments N"]:
    """Mean and variance of f at rows, and the prior variance that effects leave open.

    A variance that is an estimate may fall below its error, and below zero.
    """
    left = open_variance(design, kernel, X, rows.values)
    least, prior = found.variance_errors(rows), kernel.diagonal(X)
    return jnp.stack(
        [times(means, rows), jnp.clip(times(covariances, rows) + left, least, prior), left]
    )


def note_of(design: EffectDesign, found: Any) -> str:
    """How the effects were solved for."""
    if isinstance(found, CrossedEffects):
        beside = f" but those of {found.known} coefficients" if found.known else ""
        return (
            f"{design.number} crossed effects by at most {int(np.max(found.steps))} steps of "
            f"conjugate gradients; the log evidence has a standard error of "
            f"{float(np.sqrt(np.sum(np.square(found.evidence_error)))):.2g} nats, "
            f"deviations{beside} are means over {found.probes} probe vectors, off by "
            f"{found.relative_error(design.first):.1%} (root mean square), and so are those that "
            "sites are made of, but those of Laplace(correct_mean=False)."
        )
    levels = ", ".join(
        f"{design.terms[t].levels} levels of {design.terms[t].width}" for t in design.chain
    )
    way = f"{levels} eliminated level by level, " if levels else ""
    return f"{design.number} effects: {way}{design.left} by a dense factor."
