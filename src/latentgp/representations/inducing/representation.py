"""The latent functions through M inducing points: O(N M^2), streamed over the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, Key, PyTree

from latentgp.errors import InputError, check_choices
from latentgp.kernels import LatentKernel, is_tabulated
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import Factor, jittered_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.base import BatchUpdate, Pullback, Representation, SiteUpdate
from latentgp.representations.inducing import coupled, pitc
from latentgp.representations.inducing.coupled import CoupledInducingPosterior
from latentgp.representations.inducing.derivatives import (
    BlockRead,
    pull_moved,
    pull_rows,
    slope_of_bound,
    slope_of_held,
    slope_of_precisions,
    slope_of_trace,
    without_prior,
)
from latentgp.representations.inducing.natural_parameters import Memory, Statistics, WhiteSites
from latentgp.representations.inducing.posterior import (
    Covariance,
    InducingPosterior,
    Prior,
    kernel_blocks,
    no_rows,
    posterior_given,
    residuals,
    scales_of,
)
from latentgp.representations.inducing.selection import Selection, select_points
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import latent_grams, over_sharing, vmap_latents
from latentgp.representations.samplers import InducingSampler, inducing_sampler
from latentgp.representations.whitening import Whitening, whitening_from
from latentgp.rows.data import Data
from latentgp.runtime.mesh import number_of_shards
from latentgp.runtime.row_scan import in_chunks, scan_rows
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array

_AN_INPUT = 20  # distances along an input, in products of a row of M
_COARSE_POINTS = 128
# Kept of rows that are read many times: 16 MiB, of 20,000 rows at most. A pass takes as much again.
_KEPT_NUMBERS, _LEAST_COLUMNS = 1 << 21, 100


class KeptBlocks(NamedTuple):
    """Kernel blocks of rows that are read many times.

    Attributes:
        blocks: k(Z, X).
        variances: k(x, x).
    """

    blocks: Float[Array, "#Q M N"]
    variances: Float[Array, "#Q N"]


Approximation = Literal["vfe", "fitc", "pitc"]
RowsOrBlocks = Float[Array, "N D"] | KeptBlocks


class Projected(NamedTuple):
    """Sites for g = k' K_mm^-1 u that are left of sites for f = g + e, e ~ N(0, residual).

    Bui, Yan & Turner (2017, 4): with power a they are [E_e site(g + e)^a]^(1 / a).

    Attributes:
        linear: shape (Q, B).
        precision: shape (Q, B).
        loss: minus twice the log of the factor that does not depend on g, shape (Q, B).
    """

    linear: Float[Array, "Q B"]
    precision: Float[Array, "Q B"]
    loss: Float[Array, "Q B"]

    @classmethod
    def of(
        cls,
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        residual: Float[Array, "#Q B"],
        power: float,
    ) -> "Projected":
        """For a power above zero."""
        shrunk = power * precision * residual
        loss = jnp.log1p(shrunk) / power - power * linear**2 * residual / (1 + shrunk)
        return cls(linear / (1 + shrunk), precision / (1 + shrunk), loss)


class RowsRead(NamedTuple):
    """Sums over a batch of rows.

    Attributes:
        white: the rows' Gaussian factor of the white inducing variables.
        sums: of the update's other results over the rows.
        kernel: derivative of the bound in the kernel.
        representation: the same in the inducing points.
    """

    white: WhiteSites
    sums: PyTree
    kernel: LatentKernel | None
    representation: PyTree


class Inducing(Representation):
    """Inducing points Z, fixed while hyper-parameters are learned (Titsias 2009).

    Args:
        number: how many points to choose; not needed where `points` are given.
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
        signed: whether precisions of sites can be negative; a method sets it.
        power: how the prior variance that the points leave open counts; a method sets it.

    Raises:
        InputError: neither a number nor points; an unknown selection or covariance.

    Example:
        >>> Inducing(number=100).number
        100
    """

    number: int | None = eqx.field(static=True, default=None)
    points: Float[Array, "M D"] | None = None
    selection: Selection = eqx.field(static=True, default="k-means++")
    resemblance: float = eqx.field(static=True, default=0.95)
    covariance: Covariance = eqx.field(static=True, default="full")
    approximation: Approximation | None = eqx.field(static=True, default=None, kw_only=True)
    block_size: int | None = eqx.field(static=True, default=None, kw_only=True)
    blocks: Int[Array, "K B"] | None = eqx.field(default=None, kw_only=True)
    remembered: StreamingPrior | None = None
    signed: bool = eqx.field(static=True, default=False)
    power: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        if self.points is None and (self.number is None or self.number < 1):
            raise InputError(
                f"Inducing needs points, or a positive number of them to choose, got "
                f"number={self.number}; give for example Inducing(number=200)."
            )
        if not isinstance(self.remembered, StreamingPrior | None):
            raise InputError(
                f"Inducing.remembered must be the result of posterior.remembered(), got a "
                f"{type(self.remembered).__name__}."
            )
        if self.block_size is not None and (self.block_size < 1 or self.approximation != "pitc"):
            raise InputError(
                f'Inducing.block_size must be at least 1 and is for approximation="pitc", got '
                f"{self.block_size} with approximation={self.approximation!r}."
            )
        if not 0 < self.resemblance < 1:
            raise InputError(f"Inducing.resemblance must be in (0, 1), got {self.resemblance}.")
        check_choices(
            self,
            selection=get_args(Selection),
            covariance=get_args(Covariance),
            approximation=(None, *get_args(Approximation)),
        )

    def initialise(
        self,
        X: Float[Array, "N D"],
        weights: Float[Array, "N"] | None,
        kernel: LatentKernel,
        key: Key[Array, ""],
    ) -> "Inducing":
        if self.remembered is not None and self.remembered.points.shape[1] != X.shape[1]:
            raise InputError(
                f"What is remembered is of {self.remembered.points.shape[1]} input columns, but "
                f"the rows have {X.shape[1]}; give rows of the same columns."
            )
        if is_tabulated(kernel):
            raise InputError(
                "Inducing points lie between rows, where Precomputed has no value; use Dense()."
            )
        if self.points is not None:
            points = np.asarray(self.points, X.dtype)
            if points.ndim != 2 or points.shape[1] != X.shape[1]:
                raise InputError(
                    f"Inducing points must have shape (M, {X.shape[1]}) like the inputs, "
                    f"got shape {points.shape}."
                )
        else:
            assert self.number is not None
            kept = None if self.remembered is None else np.asarray(self.remembered.points)
            points = select_points(
                X, weights, kernel, self.number, self.selection, key, kept, self.resemblance
            )
        return dataclasses.replace(self, number=len(points), points=points)

    def for_rows(
        self, X: Float[Array, "N D"], weights: Float[Array, "N"] | None, kernel: LatentKernel
    ) -> "Inducing":
        if self.approximation != "pitc":
            return self
        if self.blocks is not None and isinstance(X, Tracer):
            return self
        found = pitc.blocks_for(X, weights, self.block_size or len(self._points()))
        return dataclasses.replace(self, blocks=found)

    def configured_for(self, *, signed: bool, power: float) -> "Inducing":
        if power and self.approximation == "vfe":
            raise InputError(
                'Inducing(approximation="vfe") is a variational bound, which Laplace and '
                "ExpectationPropagation do not work with; leave approximation out, or use "
                "VariationalInference."
            )
        if not self.is_one_gaussian:
            if self.remembered is not None or self.covariance == "diagonal":
                raise InputError(
                    f'Inducing(approximation="{self.approximation}") takes neither remembered data '
                    'nor covariance="diagonal", which rest on the variational bound; leave one of '
                    "them out."
                )
            power = 1.0
        if power and self.remembered is not None:
            raise InputError(
                "Laplace and ExpectationPropagation have no streaming updates; use "
                "VariationalInference, AugmentedVI or CollapsedVI."
            )
        if power and self.covariance == "diagonal":
            raise InputError(
                'Inducing(covariance="diagonal") is a variational family, which Laplace and '
                "ExpectationPropagation have no use for; leave covariance out, or use "
                "VariationalInference."
            )
        signed = signed or (self.remembered is not None and self.remembered.signed)
        return dataclasses.replace(self, signed=signed, power=power)

    def products_a_row(self, inputs: int) -> float | None:
        number = self.number or len(self._points())
        return number * (number + _AN_INPUT * inputs)

    def coarse(self) -> "Inducing":
        points = np.asarray(self._points())
        if len(points) <= _COARSE_POINTS or self.remembered is not None:
            return self
        chosen = np.linspace(0, len(points) - 1, _COARSE_POINTS).astype(int)
        return dataclasses.replace(self, number=_COARSE_POINTS, points=points[chosen])

    def kept(self, kernel: LatentKernel, X: Float[Array, "N D"], latents: int) -> RowsOrBlocks:
        points = self._points()
        # In one chunk, which several latent functions would make too long for a core's cache.
        numbers = max(len(points), _LEAST_COLUMNS) * len(X)
        many = latents > 1 or number_of_shards() > 1 or numbers > _KEPT_NUMBERS
        if many or self.approximation == "pitc":
            return X
        return KeptBlocks(*in_chunks(partial(kernel_blocks, kernel, points), X, len(points)))

    def coupling(self) -> "Inducing":
        if self.remembered is not None or self.covariance == "diagonal":
            raise InputError(
                "Sites that couple the latents of a row take neither streaming updates nor a "
                "diagonal covariance; use coupled=False."
            )
        return self

    def condition(
        self, kernel: LatentKernel, X: RowsOrBlocks, sites: Sites
    ) -> InducingPosterior | CoupledInducingPosterior:
        if isinstance(sites, CoupledSites):
            known, settings = self.prior(kernel), {"power": self.power, "signed": self.signed}
            return coupled.condition(kernel, self._points(), known, cast(Any, X), sites, **settings)
        points, prior = self._points(), self._prior(kernel)
        if self.approximation == "pitc":
            own = self.prior(kernel)
            in_blocks = cast(Any, X), sites, self._blocks()
            return self._posterior(kernel, own, pitc.condition(kernel, points, own, *in_blocks))
        precision_of_prior = None if prior is None else prior.precision

        def step(statistics, rows, real):
            x, linear, precision = rows
            blocks, variances = _blocks_of(kernel, points, x)
            linear, precision = linear.T * real, precision.T * real
            residuals = self._residuals(precision_of_prior, blocks, variances)
            return statistics.add(blocks, *self._project(residuals, linear, precision)), None

        start = no_rows(sites.linear.shape[1], points)
        statistics, _ = _scan(step, start, X, (sites.linear, sites.precision), len(points))
        return self._posterior(kernel, prior, statistics)

    def update_sites(
        self,
        posterior: InducingPosterior | CoupledInducingPosterior,
        X: RowsOrBlocks,
        rows: Rows,
        sites: Sites,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
    ) -> tuple[Sites, InducingPosterior | CoupledInducingPosterior, PyTree]:
        if isinstance(posterior, CoupledInducingPosterior):
            prior = Prior(posterior.factor, posterior.jitter)
            of_rows = cast(Any, X), rows, cast(CoupledSites, sites), offset
            return coupled.update_sites(posterior, prior, *of_rows, update, power=self.power)
        kernel, points = posterior.kernel, self._points()
        if self.approximation == "pitc":
            marginals = self.pull_back(posterior, cast(Any, X), sites.about(offset)).marginals
            sites, other = update(rows, marginals, sites, offset)
            return sites, self.condition(kernel, X, sites.about(offset)), other
        prior = self._prior(kernel)
        precision_of_prior = None if prior is None else prior.precision

        def step(statistics, chunk, real):
            x, rows, sites, offset = chunk
            blocks, variances = _blocks_of(kernel, points, x)
            marginals = posterior.block_marginals(blocks, variances)
            residuals = self._residuals(precision_of_prior, blocks, variances)
            if self.power:
                about = sites.about(offset)
                marginals = self._row_marginals(residuals, marginals, about.linear, about.precision)
            sites, other = update(rows, marginals, sites, offset)
            about = sites.about(offset)
            linear, precision = about.linear.T * real, about.precision.T * real
            projected = self._project(residuals, linear, precision)
            return statistics.add(blocks, *projected), (sites, other)

        start = no_rows(sites.linear.shape[1], points)
        rest = rows, sites, offset
        statistics, (sites, other) = _scan(step, start, X, rest, len(points))
        return sites, self._posterior(kernel, prior, statistics), other

    def pull_back(
        self,
        posterior: InducingPosterior | CoupledInducingPosterior,
        X: Float[Array, "N D"],
        sites: Sites,
    ) -> Pullback:
        if isinstance(posterior, CoupledInducingPosterior):
            prior, own = Prior(posterior.factor, posterior.jitter), cast(CoupledSites, sites)
            pulled = coupled.pull_back(posterior, prior, X, own, power=self.power)
            slopes = pulled.prior, pulled.evidence
            return Pullback(*self._pull_prior(posterior, pulled.rows, *slopes), pulled.marginals)
        rows = (X, sites.linear, sites.precision)
        if self.approximation == "pitc":
            found = pitc.pull_back(posterior, X, cast(Any, sites), self._blocks())
            through_rows, in_prior, marginals = found
            inverse = posterior.prior_precision
            through_prior = vmap_latents(lambda i, s: -i @ s @ i, inverse, in_prior)
        elif self.power:
            (through_rows, in_prior), marginals = self._pull_rows_of_power(posterior, rows)
            inverse = posterior.prior_precision
            through_prior = vmap_latents(lambda i, s: -i @ s @ i, inverse, in_prior)
        else:
            through_rows, marginals = pull_rows(posterior, rows)
            if self.remembered is not None:
                earlier = self._pull_remembered(posterior)
                through_rows = jax.tree.map(jnp.add, through_rows, earlier)
            precisions = vmap_latents(without_prior, posterior.white_lower)
            through_prior = vmap_latents(slope_of_trace, posterior.factor, precisions)
        slopes = self._slope_of_evidence(posterior), through_prior
        return Pullback(*self._pull_prior(posterior, through_rows, *slopes), marginals)

    def read_batch(
        self,
        posterior: InducingPosterior,
        held: WhiteSites,
        data: Data,
        update: BatchUpdate,
        nothing: PyTree,
        *,
        learning: bool = True,
        moving: bool = False,
    ) -> RowsRead:
        """White sites of a batch and derivatives of the bound: one pass, one reduction.

        The posterior is the prior times a factor of u that is held fixed. Derivatives of its bound
        are unbiased if rows are weighted to count as all. (With a diagonal covariance the rows'
        sites are held fixed, which gives the same once they have converged.)

        Args:
            posterior: before this batch.
            held: its factor of the white inducing variables.
            data: rows with weights; a row of weight zero does not count.
            update: gives sites of g, and sums over the rows, for a chunk of rows and the
                marginals of g there.
            nothing: such sums over no rows.
            learning: whether derivatives are wanted at all; without, they are None.
            moving: whether derivatives in the inducing points are wanted, with the factor held as a
                function of g instead of the inducing variables.
        """

        def step(carry, chunk, real):
            read = BlockRead.of(posterior, chunk.X)
            chunk = chunk.reweighted(chunk.weights * real)
            sites, here = update(chunk, Marginals(read.mean.T, read.variance.T))
            linear, precision = sites.linear.T, sites.precision.T
            said = WhiteSites.of_rows(read.blocks, linear, precision, posterior.factor)
            pulled = read.pull(linear, precision) if learning else None
            return jax.tree.map(jnp.add, carry, (said, pulled, here)), None

        learned = (posterior.kernel, posterior.points) if learning else None
        still = jax.tree.map(jnp.zeros_like, learned)
        start = jax.tree.map(jnp.zeros_like, held), still, nothing
        (white, through_rows, sums), _ = scan_rows(step, start, data, columns=len(posterior.points))
        memory = self.memory(posterior.kernel, posterior.factor)
        if memory is not None:
            white = white.plus(memory.white)
        if not learning:
            return RowsRead(white, sums, None, None)
        if memory is not None:
            through_rows = jax.tree.map(jnp.add, through_rows, self._pull_remembered(posterior))
        known = posterior.white_mean, posterior.white_root, held, white
        if self.covariance == "full":
            inputs = posterior.mean_weights, *known
            slopes = [vmap_latents(slope_of_bound, posterior.factor, *inputs)]
        else:
            through_prior = vmap_latents(slope_of_trace, posterior.factor, white.precision)
            slopes = [self._slope_of_evidence(posterior), through_prior]
        in_kernel, places = self._pull_prior(posterior, through_rows, *slopes)
        if moving:
            slope = vmap_latents(slope_of_held, posterior.factor, *known)
            change = pull_moved(posterior, slope)
            places = eqx.tree_at(lambda r: r.points, places, places.points + change)
        return RowsRead(white, sums, in_kernel, places)

    def _slope_of_evidence(self, posterior: InducingPosterior) -> Float[Array, "Q M M"]:
        """Derivative of the log evidence in K_mm, sums over raw blocks held fixed."""
        if self.covariance == "full":
            in_determinant = 0.5 * posterior.reduction
        else:
            white = posterior.factor, posterior.white_lower, posterior.white_root
            in_determinant = vmap_latents(slope_of_precisions, *white)
        return vmap_latents(
            lambda slope, weights: slope - 0.5 * jnp.outer(weights, weights),
            in_determinant,
            posterior.mean_weights,
        )

    def _pull_prior(
        self,
        posterior: InducingPosterior | CoupledInducingPosterior,
        through_rows: Any,
        *slopes: Float[Array, "#Q M M"],
    ) -> tuple[LatentKernel, "Inducing"]:
        """Derivatives in kernel and points, given those through rows and parts of that in K_mm."""
        grams, pull_grams = jax.vjp(latent_grams, posterior.kernel, self._points())
        slope = sum(over_sharing(part, grams) for part in slopes)
        # The jitter is relative to the prior variance.
        relative_jitter = posterior.jitter / jnp.max(scales_of(grams))
        size = len(posterior.points)
        traces = jnp.trace(slope, axis1=1, axis2=2)[:, None, None] / size
        through_grams = pull_grams(
            slope + relative_jitter * traces * jnp.eye(size, dtype=grams.dtype)
        )
        in_kernel, in_points = jax.tree.map(jnp.add, through_grams, through_rows)
        return in_kernel, dataclasses.replace(self, points=in_points, remembered=None)

    def _pull_remembered(
        self, posterior: InducingPosterior
    ) -> tuple[LatentKernel, Float[Array, "M D"]]:
        """Derivatives of the log evidence through what is remembered, in kernel and points."""
        assert self.remembered is not None
        remembered = self.remembered

        def worth(kernel: LatentKernel, points: Float[Array, "M D"]) -> Float[Array, ""]:
            def of(turn, loss, reduction, weights, sites):
                mean = weights @ turn
                squares = jnp.sum((reduction @ turn) * (turn @ sites.precision))
                squares = squares - mean @ sites.precision @ mean
                return 0.5 * squares + sites.linear @ mean - 0.5 * loss

            seen = remembered.seen(kernel, points)
            weights, reduction = posterior.mean_weights, posterior.reduction
            return jnp.sum(vmap_latents(of, *seen, reduction, weights, remembered.white))

        return jax.grad(worth, (0, 1))(posterior.kernel, posterior.points)

    def _pull_rows_of_power(
        self, posterior: InducingPosterior, rows: tuple[Array, Array, Array]
    ) -> tuple[Any, Marginals]:
        """Derivatives through the rows' blocks in kernel, points and K_mm^-1; marginals of f."""
        precision_of_prior = posterior.prior_precision
        in_sums = vmap_latents(
            lambda inverse, weights, reduction: (
                -0.5 * (jnp.outer(weights, weights) + inverse - reduction)
            ),
            precision_of_prior,
            posterior.mean_weights,
            posterior.reduction,
        )

        def step(slopes, chunk, real):
            x, linear, precision = chunk

            def value(kernel, points, inverse):
                blocks, variances = kernel_blocks(kernel, points, x)
                residuals = self._residuals(inverse, blocks, variances)
                projected = self._project(residuals, linear.T * real, precision.T * real)

                def worth(block, linear, precision, loss, in_products, weights):
                    products = sum_over_first((in_products @ block) * block) @ precision
                    return products + linear @ (weights @ block) - 0.5 * jnp.sum(loss)

                return jnp.sum(
                    vmap_latents(worth, blocks, *projected, in_sums, posterior.mean_weights)
                )

            *here, in_prior = jax.grad(value, (0, 1, 2))(
                posterior.kernel, posterior.points, precision_of_prior
            )
            blocks, variances = kernel_blocks(posterior.kernel, posterior.points, x)
            marginals = self._row_marginals(
                self._residuals(precision_of_prior, blocks, variances),
                posterior.block_marginals(blocks, variances),
                linear,
                precision,
            )
            return jax.tree.map(jnp.add, slopes, (tuple(here), in_prior)), marginals

        places = (posterior.kernel, posterior.points)
        start = jax.tree.map(jnp.zeros_like, (places, precision_of_prior))
        return scan_rows(step, start, rows, columns=len(posterior.points))

    def whitening(self, kernel: LatentKernel, X: Float[Array, "N D"]) -> Whitening:
        self._check_samples()
        return whitening_from(kernel, self._points(), X)

    def sampler(
        self, kernel: LatentKernel, X: Float[Array, "N D"], power: float = 0.0
    ) -> InducingSampler:
        self._check_samples()
        if self.covariance == "diagonal":
            raise InputError(
                'Inducing(covariance="diagonal") is no family to sample from; leave covariance out.'
            )
        return inducing_sampler(kernel, self._points(), X, power)

    @property
    def evidence_is_exact(self) -> bool:
        return False

    def of_latents(self) -> "Inducing":
        """The same, for sites that updates move; refused of FITC and PITC."""
        if not self.is_one_gaussian:
            raise InputError(
                f"{self!r} works with ExactGP and CollapsedVI alone, for Gaussian noise and "
                "classes by least squares; leave approximation out (ExpectationPropagation has "
                "FITC's prior)."
            )
        return self

    @property
    def is_one_gaussian(self) -> bool:
        """Not of FITC and PITC: updates of sites that move need the method's own power."""
        return self.approximation not in ("fitc", "pitc")

    @property
    def evidence_is_bound(self) -> bool:
        return self.is_one_gaussian

    @property
    def streaming_prior(self) -> StreamingPrior | None:
        return self.remembered

    @property
    def spreads_rows(self) -> bool:
        return self.approximation != "pitc"

    @property
    def needs_rows(self) -> bool:
        return self.points is None

    def _check_samples(self) -> None:
        if not self.is_one_gaussian:
            raise InputError(
                f'Inducing(approximation="{self.approximation}") is for ExactGP and CollapsedVI; '
                "leave approximation out for sampling (GibbsSampling has a power of its own)."
            )
        if self.remembered is not None:
            raise InputError(
                "Samplers have no streaming updates; use VariationalInference, AugmentedVI or "
                "CollapsedVI, or give all rows."
            )

    def prior(self, kernel: LatentKernel) -> Prior:
        """K_mm factorised and inverted, with as much jitter as makes that safe."""
        jittered = vmap_latents(jittered_cholesky, latent_grams(kernel, self._points()))
        return Prior(jittered.factor, jittered.jitter)

    def memory(self, kernel: LatentKernel, prior: Factor) -> Memory | None:
        """Factor of white inducing variables from earlier rows; None without a streaming prior."""
        if self.remembered is None:
            return None
        return self.remembered.memory(self.remembered.seen(kernel, self._points()), prior)

    def _prior(self, kernel: LatentKernel) -> Prior | None:
        """The factor of K_mm, where sites cannot be projected without it."""
        return self.prior(kernel) if self.power else None

    def _residuals(
        self,
        precision: Float[Array, "#Q M M"] | None,
        blocks: Float[Array, "#Q M B"],
        variances: Float[Array, "#Q B"],
    ) -> Float[Array, "#Q B"]:
        """Rows' variance given u, K_mm^-1 known; the whole prior variance, see `Statistics`."""
        return variances if precision is None else residuals(precision, blocks, variances)

    def _project(
        self,
        residuals: Float[Array, "#Q B"],
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
    ) -> Projected:
        """Sites of some rows for k' K_mm^-1 u."""
        if not self.power:
            return Projected(linear, precision, precision * residuals)
        return Projected.of(linear, precision, residuals, self.power)

    def _row_marginals(
        self,
        residuals: Float[Array, "#Q B"],
        marginals: Marginals,
        linear: Float[Array, "B Q"],
        precision: Float[Array, "B Q"],
    ) -> Marginals:
        """Marginals of rows' f whose own sites^power tell about its variance given u, too."""
        mean, variance = marginals
        residual = residuals.T
        shrunk = 1 + self.power * precision * residual
        shift = self.power * residual * (linear - precision * mean) / shrunk
        given = jnp.maximum(variance - residual, 0.0) / shrunk**2
        return Marginals(mean + shift, given + residual / shrunk)

    def _posterior(
        self, kernel: LatentKernel, prior: Prior | None, statistics: Statistics
    ) -> InducingPosterior:
        return posterior_given(
            kernel,
            self._points(),
            prior,
            statistics,
            self.signed,
            self.covariance,
            self.remembered,
        )

    def _blocks(self) -> Int[Array, "K B"]:
        if self.blocks is None:
            raise InputError("Blocks have not been found yet; call for_rows(X, weights, kernel).")
        return jnp.asarray(self.blocks)

    def _points(self) -> Float[Array, "M D"]:
        if self.points is None:
            raise InputError(
                "These inducing points have not been chosen yet; call initialise(...) first, "
                "or fit the model with latentgp.fit."
            )
        return jnp.asarray(self.points)


def _blocks_of(
    kernel: LatentKernel, points: Float[Array, "M D"], rows: RowsOrBlocks
) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
    """Kernel blocks of a chunk of rows; taken as they are if kept."""
    return rows if isinstance(rows, KeptBlocks) else kernel_blocks(kernel, points, rows)


def _scan(
    step: Callable[..., tuple[Any, Any]], start: Any, rows: RowsOrBlocks, rest: PyTree, columns: int
) -> tuple[Any, Any]:
    """`scan_rows` over rows and the rest of them, or one step if their blocks are kept."""
    if isinstance(rows, KeptBlocks):
        return step(start, (rows, *rest), jnp.ones(rows.variances.shape[1], bool))
    return scan_rows(step, start, (rows, *rest), columns=columns)
