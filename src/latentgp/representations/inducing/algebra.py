"""The algebra of inducing variables, whatever they are: O(N M^2), streamed over the rows."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, PyTree

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals
from latentgp.numerics.cholesky import Factor, jittered_cholesky
from latentgp.representations.base import BatchUpdate, Pullback, Representation, SiteUpdate
from latentgp.representations.inducing import coupled
from latentgp.representations.inducing.coupled import AnyInducingPosterior, CoupledInducingPosterior
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
from latentgp.representations.inducing.natural_parameters import (
    Memory,
    Statistics,
    WhiteSites,
    for_all,
    of_each,
)
from latentgp.representations.inducing.posterior import (
    Covariance,
    InducingPosterior,
    Prior,
    RowSites,
    kernel_blocks,
    posterior_given,
    posterior_of_white,
    scales_of,
)
from latentgp.representations.inducing.projected import RowsAlone
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import over_sharing, vmap_latents
from latentgp.representations.samplers import InducingSampler, inducing_sampler
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.representations.variables import Centres, covariance_of
from latentgp.representations.whitening import Whitening, whitening_from
from latentgp.rows.data import Data
from latentgp.runtime.mesh import number_of_shards
from latentgp.runtime.row_scan import in_chunks, scan_rows
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, Inputs, RowLatents, Scalar

# Kept of rows that are read many times: 16 MiB, of 20,000 rows at most. A pass takes as much again.
_KEPT_NUMBERS, _LEAST_COLUMNS = 1 << 21, 100


class KeptBlocks(NamedTuple):
    """Kernel blocks of rows that are read many times."""

    blocks: Float[Array, "#Q M N"]  # k(Z, X)
    variances: Float[Array, "#Q N"]  # k(x, x)


RowsOrBlocks = Inputs | KeptBlocks


class RowsRead(NamedTuple):
    """Sums over a batch of rows."""

    white: WhiteSites  # the rows' Gaussian factor of the white inducing variables
    sums: PyTree  # of the update's other results over the rows
    kernel: LatentKernel | None  # derivative of the bound in the kernel
    representation: PyTree  # the same in the inducing points


class ByVariables(Representation):
    """The latent functions given M inducing variables of each."""

    # of the white inducing variables: "full", or "diagonal", the mean-field family, which has the
    # same mean given the sites and too small variances
    covariance: Covariance = eqx.field(static=True, default="full", kw_only=True)
    # summary of the data seen so far; None without any
    remembered: StreamingPrior | None = eqx.field(default=None, kw_only=True)
    # whether precisions of sites can be negative; a method sets it
    signed: bool = eqx.field(static=True, default=False, kw_only=True)
    # how the prior variance that the variables leave open counts; a method sets it
    power: float = eqx.field(static=True, default=0.0, kw_only=True)

    @property
    @abstractmethod
    def centres(self) -> Centres:
        """The inducing variables.

        Raises:
            InputError: they have not been chosen yet.
        """

    def continues(self, remembered: Any) -> bool:
        """Whether a summary is of its kind, so that further rows can be added to it."""
        return remembered is None or remembered.usual_representation is None

    @abstractmethod
    def at(self, centres: Centres) -> "ByVariables":
        """The same with other inducing variables of the same kind."""

    def slope_in(self, centres: Centres) -> "ByVariables":
        """Derivatives in the inducing variables, in the shape of this representation."""
        return dataclasses.replace(self.at(centres), remembered=None)

    @abstractmethod
    def units(self, X: Inputs) -> Float[Array, "#D"]:
        """Units of steps of learned inducing variables, from some rows."""

    def extended(
        self, number: int | None, selection: Selection, remembered: StreamingPrior | None
    ) -> "ByVariables":
        """The same for further rows, with a summary of those before."""
        return dataclasses.replace(self, remembered=remembered)

    @property
    def traits(self) -> Traits:
        full = self.covariance == "full"
        powers = full and self.remembered is None
        return Traits(evidence="bound", signed_sites=True, powers=powers, coupled_sites=full)

    def for_sites(self, form: SiteForm) -> "ByVariables":
        known = None if self.remembered is None else self.remembered.for_sites(form.coupled)
        signed = form.signed or (known is not None and known.signed)
        return dataclasses.replace(self, signed=signed, power=form.power, remembered=known)

    @property
    def streaming_prior(self) -> StreamingPrior | None:
        return self.remembered

    def kept(self, kernel: LatentKernel, X: Inputs, sites: Sites) -> RowsOrBlocks:
        centres = self.centres
        # In one chunk, which several latent functions would make too long for a core's cache.
        numbers = max(len(centres), _LEAST_COLUMNS) * len(X)
        if sites.linear.shape[1] > 1 or number_of_shards() > 1 or numbers > _KEPT_NUMBERS:
            return X
        return KeptBlocks(*in_chunks(partial(kernel_blocks, kernel, centres), X, len(centres)))

    def condition(
        self, kernel: LatentKernel, X: RowsOrBlocks, sites: Sites
    ) -> AnyInducingPosterior:
        centres, (of_rows, finish) = self.centres, self._of_sites(kernel, sites)

        def step(sums, chunk, real):
            x, *own = chunk
            return of_rows.add(sums, RowSites(*_blocks_of(kernel, centres, x), *own), real), None

        start, columns = of_rows.none(sites.linear.shape[1], centres)
        sums, _ = _scan(step, start, columns, X, (sites.linear, sites.precision))
        return finish(sums)

    def update_sites(
        self,
        posterior: AnyInducingPosterior,
        X: RowsOrBlocks,
        rows: Rows,
        sites: Sites,
        offset: RowLatents,
        update: SiteUpdate,
    ) -> tuple[Sites, AnyInducingPosterior, PyTree]:
        kernel, centres = posterior.kernel, self.centres
        of_rows, finish = self._of_sites(kernel, sites, posterior)

        def step(sums, chunk, real):
            x, rows, sites, offset = chunk
            blocks = _blocks_of(kernel, centres, x)
            own = RowSites(*blocks, *sites.about(offset)[:2])
            sites, other = update(rows, of_rows.marginals(posterior, own), sites, offset)
            own = RowSites(*blocks, *sites.about(offset)[:2])
            return of_rows.add(sums, own, real), (sites, other)

        start, columns = of_rows.none(sites.linear.shape[1], centres)
        sums, (sites, other) = _scan(step, start, columns, X, (rows, sites, offset))
        return sites, finish(sums), other

    def pull_back(self, posterior: AnyInducingPosterior, X: Inputs, sites: Sites) -> Pullback:
        if self.power or isinstance(posterior, CoupledInducingPosterior):
            (*through_rows, in_inverse), marginals = self._pull_open(posterior, X, sites)
            memory = self.memory(posterior.kernel, posterior.factor)
            if memory is not None:
                earlier = self._pull_remembered(posterior)
                through_rows = jax.tree.map(jnp.add, tuple(through_rows), earlier)
                own = of_each(memory.white.precision, memory.white.together(len(self.centres)))
                through = vmap_latents(lambda L, A: 0.5 * L @ A @ L.T, posterior.factor.lower, own)
                in_inverse = in_inverse + over_sharing(through, in_inverse)
            return self._pulled(posterior, tuple(through_rows), in_inverse, marginals)
        through_rows, marginals = pull_rows(posterior, (X, sites.linear, sites.precision))
        if self.remembered is not None:
            earlier = self._pull_remembered(posterior)
            through_rows = jax.tree.map(jnp.add, through_rows, earlier)
        precisions = vmap_latents(without_prior, posterior.white_lower)
        through_prior = vmap_latents(slope_of_trace, posterior.factor, precisions)
        slopes = self._slope_of_evidence(posterior), through_prior
        in_kernel, in_centres = self._pull_prior(posterior, through_rows, *slopes)
        return Pullback(in_kernel, self.slope_in(in_centres), marginals)

    def _pulled(
        self,
        posterior: AnyInducingPosterior,
        through_rows: Any,
        in_inverse: Float[Array, "#Q M M"],
        marginals: AnyMarginals,
    ) -> Pullback:
        """Derivatives, given those through rows and in K_mm^-1 through what they leave open."""
        inverse = posterior.prior_precision
        through_prior = vmap_latents(lambda i, s: -i @ s @ i, inverse, in_inverse)
        slopes = self._slope_of_evidence(posterior), through_prior
        in_kernel, in_centres = self._pull_prior(posterior, through_rows, *slopes)
        return Pullback(in_kernel, self.slope_in(in_centres), marginals)

    def read_batch(
        self,
        posterior: AnyInducingPosterior,
        held: WhiteSites,
        data: Data,
        update: BatchUpdate,
        nothing: PyTree,
        *,
        learning: bool = True,
        moving: bool = False,
    ) -> RowsRead:
        """White sites of a batch and derivatives of the bound: one pass, one reduction.

        The posterior before this batch is the prior times a factor of u that is held fixed, `held`.
        Derivatives of its bound are unbiased if rows are weighted to count as all. (With a diagonal
        covariance the rows' sites are held fixed, which gives the same once they have converged.)
        The update gives sites of g, and sums over the rows, for a chunk of rows and the marginals
        of g there; `nothing` is such sums over no rows. Without `learning` derivatives are None;
        `moving` are those in the inducing variables, with the factor held as a function of g.
        """

        def step(carry, chunk, real):
            read = reader.of(posterior, chunk.X)
            chunk = chunk.reweighted(chunk.weights * real)
            sites, here = update(chunk, read.marginals)
            pulled = read.pull(sites) if learning else None
            return jax.tree.map(jnp.add, carry, (read.white(sites), pulled, here)), None

        together = held.together(len(posterior.centres))
        reader: Any = BlockRead if together == 1 else coupled.CoupledBlockRead
        learned = (posterior.kernel, posterior.centres) if learning else None
        still = jax.tree.map(jnp.zeros_like, learned)
        start = jax.tree.map(jnp.zeros_like, held), still, nothing
        columns = len(posterior.centres) * together
        (white, through_rows, sums), _ = scan_rows(step, start, data, columns=columns)
        memory = self.memory(posterior.kernel, posterior.factor)
        if memory is not None:
            white = white.plus(memory.white)
        if not learning:
            return RowsRead(white, sums, None, None)
        if memory is not None:
            through_rows = jax.tree.map(jnp.add, through_rows, self._pull_remembered(posterior))
        # What sites tie is one factor, of block-diagonal prior.
        factor = jax.tree.map(lambda part: for_all(part, together), posterior.factor)
        mean, root = posterior.white_mean, posterior.white_root
        known = mean.reshape(held.linear.shape), root.reshape(held.precision.shape), held, white
        if self.covariance == "full":
            weights = posterior.mean_weights.reshape(held.linear.shape)
            slopes = [of_each(vmap_latents(slope_of_bound, factor, weights, *known), together)]
        else:
            through_prior = vmap_latents(slope_of_trace, posterior.factor, white.precision)
            slopes = [self._slope_of_evidence(posterior), through_prior]
        in_kernel, places = self._pull_prior(posterior, through_rows, *slopes)
        if moving:
            slope = of_each(vmap_latents(slope_of_held, factor, *known), together)
            change = pull_moved(posterior, slope)
            places = jax.tree.map(jnp.add, places, change)
        return RowsRead(white, sums, in_kernel, self.slope_in(places))

    def _slope_of_evidence(self, posterior: Any) -> Float[Array, "Q M M"]:
        """Derivative of the log evidence in K_mm, sums over raw blocks held fixed."""
        if self.covariance == "full":
            in_determinant = 0.5 * posterior.own_reduction
        else:
            white = posterior.factor, posterior.white_lower, posterior.white_root
            in_determinant = vmap_latents(slope_of_precisions, *white)
        weights = posterior.mean_weights
        return in_determinant - 0.5 * weights[:, :, None] * weights[:, None]

    def _pull_prior(
        self, posterior: AnyInducingPosterior, through_rows: Any, *slopes: Float[Array, "#Q M M"]
    ) -> tuple[LatentKernel, Centres]:
        """Derivatives in kernel and variables: those through rows, and parts of that in K_mm."""
        grams, pull_grams = jax.vjp(covariance_of, posterior.kernel, self.centres)
        slope = sum(over_sharing(part, grams) for part in slopes)
        # The jitter is relative to the prior variance.
        relative_jitter = posterior.jitter / jnp.max(scales_of(grams))
        size = len(posterior.centres)
        traces = jnp.trace(slope, axis1=1, axis2=2)[:, None, None] / size
        slope = slope + relative_jitter * traces * jnp.eye(size, dtype=grams.dtype)
        return jax.tree.map(jnp.add, pull_grams(slope), through_rows)

    def _pull_remembered(self, posterior: AnyInducingPosterior) -> tuple[LatentKernel, Centres]:
        """Derivatives of the log evidence through what is remembered, in kernel and variables."""
        assert self.remembered is not None
        remembered = self.remembered

        def worth(kernel: LatentKernel, centres: Centres) -> Scalar:
            def of(turn, loss, reduction, weights, sites):
                mean = weights @ turn
                squares = jnp.sum((reduction @ turn) * (turn @ sites.precision))
                squares = squares - mean @ sites.precision @ mean
                return 0.5 * squares + sites.linear @ mean - 0.5 * loss

            seen = remembered.seen(kernel, centres)
            weights = posterior.mean_weights.reshape(len(remembered.white.linear), -1)
            reduction = posterior.reduction.reshape(*weights.shape, -1)
            return jnp.sum(vmap_latents(of, *seen, reduction, weights, remembered.white))

        return jax.grad(worth, (0, 1))(posterior.kernel, posterior.centres)

    def _pull_open(
        self, posterior: AnyInducingPosterior, X: Inputs, sites: Sites
    ) -> tuple[Any, AnyMarginals]:
        """Derivatives through the rows' blocks in kernel, variables and K_mm^-1; marginals of f."""
        of_rows, _ = self._of_sites(posterior.kernel, sites, posterior)
        slopes = posterior.slope_in_sums
        places = posterior.kernel, posterior.centres, posterior.prior_precision

        def step(sums, chunk, real):
            x, *own = chunk

            def value(kernel, centres, inverse):
                rows = RowSites(*kernel_blocks(kernel, centres, x), *own)
                return of_rows.worth(posterior, slopes, inverse, rows, real)

            here = jax.grad(value, (0, 1, 2))(*places)
            rows = RowSites(*kernel_blocks(*places[:2], x), *own)
            return jax.tree.map(jnp.add, sums, here), of_rows.marginals(posterior, rows)

        start = jax.tree.map(jnp.zeros_like, places)
        _, columns = of_rows.none(len(slopes), posterior.centres)
        return scan_rows(step, start, (X, sites.linear, sites.precision), columns=columns)

    def whitening(self, kernel: LatentKernel, X: Inputs) -> Whitening:
        return whitening_from(kernel, self.centres, X)

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> InducingSampler:
        if self.covariance == "diagonal":
            raise InputError(
                f'{type(self).__name__}(covariance="diagonal") is no family to sample from; leave '
                "covariance out."
            )
        return inducing_sampler(kernel, self.centres, X, power)

    def prior(self, kernel: LatentKernel) -> Prior:
        """K_mm factorised and inverted, with as much jitter as makes that safe."""
        jittered = vmap_latents(jittered_cholesky, covariance_of(kernel, self.centres))
        return Prior(jittered.factor, jittered.jitter)

    def memory(self, kernel: LatentKernel, prior: Factor) -> Memory | None:
        """Factor of white inducing variables from earlier rows; None without a streaming prior."""
        if self.remembered is None:
            return None
        return self.remembered.memory(self.remembered.seen(kernel, self.centres), prior)

    def _of_sites(
        self, kernel: LatentKernel, sites: Sites, posterior: AnyInducingPosterior | None = None
    ) -> tuple[Any, Callable[[Any], AnyInducingPosterior]]:
        """What rows of a kind of sites give, and the posterior by sums over them.

        K_mm is factorised here only where sites are projected by it and no posterior has it.
        """
        prior: Any = None
        is_coupled = isinstance(sites, CoupledSites)
        if self.power or is_coupled:
            known = None if posterior is None else Prior(posterior.factor, posterior.jitter)
            prior = known or self.prior(kernel)
        if is_coupled:
            memory = self.memory(kernel, prior.factor)
            settings = kernel, self.centres, prior, self.power, self.signed, memory
            return coupled.CoupledRows(prior, self.power), partial(
                coupled.posterior_given, *settings
            )
        inverse = None if prior is None else prior.precision
        return RowsAlone(inverse, self.power), partial(self._posterior, kernel, prior)

    def of_white(
        self, kernel: LatentKernel, prior: Prior, linear: Float[Array, "K M"], factor: Factor
    ) -> AnyInducingPosterior:
        """The posterior given `WhiteSites`: their linear terms, and the factor of I + A."""
        centres, memory = self.centres, self.memory(kernel, prior.factor)
        own: Any = {"signed": self.signed, "memory": memory}
        if linear.shape[1] > len(centres):
            return coupled.posterior_of_white(kernel, centres, prior, linear, factor, **own)
        own |= {"covariance": self.covariance}
        return posterior_of_white(kernel, centres, prior, linear, factor, **own)

    def _posterior(
        self, kernel: LatentKernel, prior: Prior | None, statistics: Statistics
    ) -> InducingPosterior:
        return posterior_given(
            kernel, self.centres, prior, statistics, self.signed, self.covariance, self.remembered
        )


def _blocks_of(
    kernel: LatentKernel, centres: Centres, rows: RowsOrBlocks
) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
    """Kernel blocks of a chunk of rows; taken as they are if kept."""
    return rows if isinstance(rows, KeptBlocks) else kernel_blocks(kernel, centres, rows)


def _scan(
    step: Callable[..., tuple[Any, Any]], start: Any, columns: int, rows: RowsOrBlocks, rest: PyTree
) -> tuple[Any, Any]:
    """`scan_rows` over rows and the rest of them, or one step if their blocks are kept."""
    if isinstance(rows, KeptBlocks):
        return step(start, (rows, *rest), jnp.ones(rows.variances.shape[1], bool))
    return scan_rows(step, start, (rows, *rest), columns=columns)
