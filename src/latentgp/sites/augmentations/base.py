"""Augmentations: the contract, and which likelihood has one."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from functools import singledispatch
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
from jaxtyping import PyTree

from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.modules import Module
from latentgp.sites.gaussian import Block, GaussianSites, Rows
from latentgp.typing import PerRow, RandomKey, RowLatents

LikelihoodT = TypeVar("LikelihoodT", bound=Likelihood)
AugmentationT = TypeVar("AugmentationT", bound="Augmentation")


class Augmentation(Module, Generic[LikelihoodT]):
    """A likelihood written as an integral over auxiliary variables w, conjugate given w.

    p(y | f) = integral of exp(linear(w) f - precision(w) f^2 / 2 + log_constant(w)) dmu(w), so
    that given w a row is a Gaussian site, and given f the law of w is known. Where only some
    latents are Gaussian given the others and w, `blocks` says which go together.

    Attributes:
        likelihood: that of the rows; None before `bind`, in a method's setting.
        rows: N of them; None before `bind`.
        sites_are_fixed: the sites do not depend on f, so that no auxiliary variable is needed.
        shares_precisions: a row's sites have one precision for all latents.
        is_tight: the bound is log p(y | f) where f is known: w's law is not factorised.
    """

    sites_are_fixed: ClassVar[bool] = False
    shares_precisions: ClassVar[bool] = False
    is_tight: ClassVar[bool] = True

    likelihood: LikelihoodT = eqx.field(kw_only=True, default=None)
    rows: Rows = eqx.field(kw_only=True, default=None)

    def bind(self: AugmentationT, likelihood: Likelihood, rows: Rows) -> AugmentationT:
        """Augmentation of rows under a likelihood that it fits; the other methods read both."""
        return dataclasses.replace(self, likelihood=likelihood, rows=rows)

    @abstractmethod
    def expected_sites(self, marginals: Marginals) -> GaussianSites:
        """Sites averaged over the optimal law of w for f ~ N(mean, diag(variance)).

        `log_constant` holds what is left of the bound: `expected(marginals)` is the
        greatest lower bound on E log p(y | f) that the augmentation gives.
        """

    @abstractmethod
    def draw(self, f: RowLatents, key: RandomKey, block: Block) -> PyTree:
        """Auxiliary variables of the block's conditional: one draw of p(w | y, f) a row."""

    @abstractmethod
    def conditional_sites(self, auxiliary: PyTree, f: RowLatents, block: Block) -> GaussianSites:
        """The rows as functions of the block's latents, given w and the other latents.

        Columns outside the block are zero. `log_constant` is such that the site is
        log p(y, w | f) with respect to the measure that `log_conditional` uses.
        """

    @abstractmethod
    def log_conditional(self, auxiliary: PyTree, f: RowLatents, block: Block) -> PerRow:
        """Log p(w | y, f) with respect to a measure on w that does not depend on f."""

    def fits(self, likelihood: Likelihood) -> bool:
        """Whether this is an augmentation of the likelihood."""
        return True

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        """Groups of latents updated together, in order; all at once unless overridden."""
        return (tuple(range(likelihood.latent_size)),)

    def starting_variance(self, prior: RowLatents) -> RowLatents:
        """Variance of f that the first sites are made for; the prior's unless overridden."""
        return prior


@singledispatch
def augmentation_of(likelihood: Likelihood) -> Augmentation | None:
    """Augmentation of a likelihood, or None; register one for your own class.

    Example:
        >>> from latentgp import Bernoulli
        >>> augmentation_of(Bernoulli())
        PolyaGamma()
    """
    return None
