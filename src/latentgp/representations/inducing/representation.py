"""The latent functions through M inducing points: O(N M^2), streamed over the rows."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any, Literal, cast, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, PyTree

from latentgp.errors import check_choices, check_kinds, check_ranges, check_whole, refuse
from latentgp.kernels import LatentKernel
from latentgp.representations.base import Pullback, Representation, SiteUpdate
from latentgp.representations.inducing import pitc
from latentgp.representations.inducing.algebra import ByVariables, RowsOrBlocks
from latentgp.representations.inducing.coupled import AnyInducingPosterior, CoupledInducingPosterior
from latentgp.representations.inducing.features import InducingFeatures
from latentgp.representations.inducing.posterior import Covariance
from latentgp.representations.inducing.selection import Selection, select_points
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.learned_points import spread_of
from latentgp.representations.needs import Needs, chosen
from latentgp.representations.site_form import SiteForm
from latentgp.representations.summary import RowsAsSums
from latentgp.representations.traits import Products, Traits
from latentgp.representations.variables import Centres, InducingVariables
from latentgp.rows.arrays import check_shape, evenly
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, Inputs, PerRow, Points, RandomKey, RowLatents

_AN_INPUT = 20  # distances along an input, in products of a row of M
_COARSE_POINTS = 128


Approximation = Literal["vfe", "fitc", "pitc"]


class Inducing(ByVariables):
    """Inducing points Z, held while hyper-parameters are learned unless told (Titsias 2009).

    Or inter-domain inducing variables, such as `BSplines`: projections of the latent functions on
    others, which some kernels have.

    Args:
        number: how many points to choose; not needed where `points` or `features` are given.
        points: shape (M, D), units of the inputs.
        selection: how points are chosen among the rows: "k-means++" takes the centres of
            clusters, "greedy-variance" the rows with the largest prior variance given those
            already chosen (Burt et al. 2020, 4.2), "k-dpp" about a draw of a determinantal point
            process (the same, 4.1), "grid" a regular grid, "oips" rows that resemble none chosen
            so far, up to `number` (Galy-Fajou & Opper 2021).
        resemblance: the correlation with a point at which a row resembles it, for "oips".
        covariance: of the white inducing variables: "full", or "diagonal", the mean-field family,
            which has the same mean given the sites and too small variances.
        approximation: how the prior variance that the points leave open counts, for Gaussian noise
            and classes by least squares: "vfe", the variational bound (Titsias 2009), or "fitc",
            an independent latent a row, whose evidence is no bound (Snelson & Ghahramani 2006), or
            "pitc", the same for blocks of rows near each other (Quiñonero-Candela & Rasmussen
            2005). None is what the method does, the bound but for `ExpectationPropagation`.
        block_size: at most so many rows in a block, for "pitc"; as many as points unless given.
        blocks: rows of each block; `for_rows` finds them.
        remembered: summary of the data seen so far, `Posterior.remembered()`, for streaming
            updates. Use selection="greedy-variance" or "oips", which take the old inducing
            points into account.
        features: inter-domain inducing variables in place of points: `BSplines`,
            `FourierFeatures`, `HilbertSpace`, `SphericalHarmonics` or `MultiScale`.
        variables: those of the features; `initialise` makes them.
        sums: over rows, of `summarise`, which stand for them with Gaussian noise.
        learn_points: whether a search moves the points with the hyper-parameters, by the bound's
            derivatives (Snelson & Ghahramani 2006; Titsias 2009): fewer are enough, at more
            evaluations, and from many starts to local optima. Batches have `learn_points` of their
            own; `Laplace`, chains, features and remembered data have none.
        spread: of the rows, a column, in units of which points move; `initialise` finds it.
        signed: whether precisions of sites can be negative; a method sets it.
        power: how the prior variance that the points leave open counts; a method sets it.

    Raises:
        InputError: neither a number nor points nor features; an unknown selection or covariance;
            features or remembered data whose points are to be learned.

    Example:
        >>> Inducing(number=100).number
        100
    """

    number: int | None = eqx.field(static=True, default=None)
    points: Points | None = None
    selection: Selection = eqx.field(static=True, default="k-means++")
    resemblance: float = eqx.field(static=True, default=0.95)
    approximation: Approximation | None = eqx.field(static=True, default=None, kw_only=True)
    block_size: int | None = eqx.field(static=True, default=None, kw_only=True)
    blocks: Int[Array, "blocks B"] | None = eqx.field(default=None, kw_only=True)
    features: InducingFeatures | None = eqx.field(default=None, kw_only=True)
    variables: InducingVariables | None = eqx.field(default=None, kw_only=True)
    sums: RowsAsSums | None = eqx.field(default=None, kw_only=True)
    learn_points: bool = eqx.field(static=True, default=False, kw_only=True)
    spread: Float[Array, "D"] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        check_kinds(
            self,
            features=(InducingFeatures | None, "inter-domain variables such as BSplines(100)"),
            remembered=(StreamingPrior | None, "the result of posterior.remembered()"),
        )
        check_whole(self, number=1, block_size=1)
        check_ranges(self, resemblance="(0, 1)")
        given = [name for name in ("number", "points") if getattr(self, name) is not None]
        of_bound = self.remembered is not None or self.covariance == "diagonal"
        sentences = {
            "Inducing needs points, features, or a number of points to choose; give for example "
            "Inducing(number=200).": self.features is None and not given,
            "Inducing(features=...) has a number of its own and neither points nor blocks of "
            'rows; leave number, points and approximation="pitc" out.': (
                self.features is not None and (given or self.approximation == "pitc")
            ),
            'Inducing.block_size is for approximation="pitc", got approximation='
            f"{self.approximation!r}; leave block_size out.": (
                self.block_size is not None and self.approximation != "pitc"
            ),
            f'Inducing(approximation="{self.approximation}") takes neither remembered data nor '
            'covariance="diagonal", which rest on the variational bound; leave one of them out.': (
                of_bound and self.approximation in ("fitc", "pitc")
            ),
            "Inducing(learn_points=True) moves points of all rows at once; leave learn_points out "
            "with features and remembered data.": (
                self.learn_points and (self.features is not None or self.remembered is not None)
            ),
        }
        refuse(sentences)
        check_choices(
            self,
            selection=get_args(Selection),
            covariance=get_args(Covariance),
            approximation=(None, *get_args(Approximation)),
        )

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "Inducing":
        earlier = None if self.remembered is None else self.remembered.centres
        if self.remembered is not None:
            self.remembered.check_columns(X.shape[1])
            by_variables = isinstance(earlier, InducingVariables)
            sentences = {
                "The stored summary was made with inter-domain variables, which have no streams; "
                "use Inducing(number=...), or fit the sums of all rows (summarise).": (
                    by_variables and self.features is None
                ),
                "The stored summary was made with inducing points; continue with "
                "Inducing(number=...).": not by_variables and self.features is not None,
            }
            refuse(sentences)
        Needs(any_inputs=True).check("Inducing", kernel=kernel)
        if self.features is not None:
            known: Any = self.variables if earlier is None else earlier
            if known is None:
                known = self.features.initialise(X, weights, kernel, key)
            return dataclasses.replace(self, variables=known)
        if self.points is not None:
            points = np.asarray(self.points, X.dtype)
            check_shape("Inducing.points", points, ("M", X.shape[1]), "with the inputs' columns")
        else:
            assert self.number is not None
            kept = None if earlier is None else np.asarray(earlier)
            points = select_points(
                X, weights, kernel, self.number, self.selection, key, kept, self.resemblance
            )
        spread = spread_of(X) if self.learn_points else None
        return dataclasses.replace(self, number=len(points), points=points, spread=spread)

    def for_rows(self, X: Inputs, weights: PerRow | None, kernel: LatentKernel) -> "Inducing":
        if self.approximation != "pitc" or (self.blocks is not None and isinstance(X, Tracer)):
            return self
        found = pitc.blocks_for(X, weights, self.block_size or len(self.centres))
        return dataclasses.replace(self, blocks=found)

    def renewed(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, share: float = 1.0
    ) -> "Inducing | None":
        """As for any representation; at most so great a share of what is open is to be left so."""
        if self.features is None or self.remembered is not None or self.variables is None:
            return None
        others = self.features.renewed(self.variables, X, weights, kernel, share)
        return None if others is None else dataclasses.replace(self, variables=others, sums=None)

    @property
    def traits(self) -> Traits:
        one = self.approximation not in ("fitc", "pitc")
        bound = one and (self.features is None or self.features.evidence_is_bound)
        usual = super().traits
        return dataclasses.replace(
            usual,
            evidence="bound" if bound else "approximation",
            one_gaussian=one,
            spreads_rows=self.approximation != "pitc",
            needs_rows=self.points is None and self.variables is None,
            only_fixed="" if one else "approximation",
            powers=usual.powers and self.approximation != "vfe",
            products=self._products,
        )

    @property
    def _products(self) -> Products | None:
        if self.features is not None and self.variables is None:
            return None
        number = self.number or len(self.centres)
        return Products(number**2, _AN_INPUT * number)

    def for_sites(self, form: SiteForm) -> "Inducing":
        own = form if self.traits.one_gaussian else dataclasses.replace(form, power=1.0)
        return cast(Inducing, super().for_sites(own))

    def kept(self, kernel: LatentKernel, X: Inputs, sites: Sites) -> RowsOrBlocks:
        return X if self.approximation == "pitc" else super().kept(kernel, X, sites)

    def condition(
        self, kernel: LatentKernel, X: RowsOrBlocks, sites: Sites
    ) -> AnyInducingPosterior:
        if self.approximation != "pitc" or isinstance(sites, CoupledSites):
            return super().condition(kernel, X, sites)
        prior, in_blocks = self.prior(kernel), (cast(Any, X), sites, self._blocks())
        sums = pitc.condition(kernel, self.centres, prior, *in_blocks)
        return self._posterior(kernel, prior, sums)

    def update_sites(
        self,
        posterior: AnyInducingPosterior,
        X: RowsOrBlocks,
        rows: Rows,
        sites: Sites,
        offset: RowLatents,
        update: SiteUpdate,
    ) -> tuple[Sites, AnyInducingPosterior, PyTree]:
        if self.approximation != "pitc" or isinstance(posterior, CoupledInducingPosterior):
            return super().update_sites(posterior, X, rows, sites, offset, update)
        marginals = self.pull_back(posterior, cast(Any, X), sites.about(offset)).marginals
        sites, other = update(rows, marginals, sites, offset)
        return sites, self.condition(posterior.kernel, X, sites.about(offset)), other

    def pull_back(self, posterior: AnyInducingPosterior, X: Inputs, sites: Sites) -> Pullback:
        if self.approximation != "pitc" or isinstance(posterior, CoupledInducingPosterior):
            return super().pull_back(posterior, X, sites)
        own = cast(GaussianSites, sites)
        through_rows, in_prior, marginals = pitc.pull_back(posterior, X, own, self._blocks())
        return self._pulled(posterior, through_rows, in_prior, marginals)

    @property
    def has_sums(self) -> bool:
        """Whether sums over rows can be made once for all hyper-parameters, under this bound."""
        fixed = self.features is not None and self.features.has_sums(self.variables)
        whole = self.traits.one_gaussian and self.covariance == "full"
        return fixed and whole and self.remembered is None

    def _blocks(self) -> Int[Array, "blocks B"]:
        return jnp.asarray(chosen(self.blocks, "Blocks of rows"))

    @property
    def centres(self) -> Centres:
        if self.variables is not None:
            return self.variables
        return jnp.asarray(chosen(self.points, "Inducing points"))

    def units(self, X: Inputs) -> Float[Array, "#D"]:
        return jnp.ones(1) if self.features is not None else jnp.asarray(np.std(X, axis=0))

    def extended(
        self, number: int | None, selection: Selection, remembered: StreamingPrior | None
    ) -> "Inducing":
        if self.features is not None:
            return dataclasses.replace(self, remembered=remembered, sums=None)
        number = number or self.number
        own = {"number": number, "selection": selection, "remembered": remembered}
        return dataclasses.replace(self, **own, learn_points=False)

    def at(self, centres: Centres) -> "Inducing":
        place = "points" if self.variables is None else "variables"
        return eqx.tree_at(attrgetter(place), self, centres, is_leaf=lambda leaf: leaf is None)


def coarse(own: Representation) -> Representation:
    """The same with few inducing points, for initial hyper-parameters."""
    if not isinstance(own, Inducing) or own.features is not None or own.remembered is not None:
        return own
    points = np.asarray(own.centres)
    if len(points) <= _COARSE_POINTS:
        return own
    few = points[evenly(len(points), _COARSE_POINTS)]
    return dataclasses.replace(own, number=_COARSE_POINTS, points=few)
