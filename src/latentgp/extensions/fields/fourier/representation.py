"""Places by equispaced Fourier functions, as a representation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt32

from latentgp.errors import InputError, check_ranges, check_whole
from latentgp.extensions.fields.fourier.conditioned import SolveSettings, white_weights
from latentgp.extensions.fields.fourier.frequencies import (
    FrequencyGrid,
    grid_for,
    kernel_error,
    prior_variance,
    prior_variances,
    stationary_terms,
    transforms,
)
from latentgp.extensions.fields.fourier.posterior import FourierPosterior
from latentgp.extensions.fields.fourier.sums import MOST_OF_NOISE
from latentgp.extensions.fields.fourier.toeplitz import ToeplitzGram
from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.representations.base import Pullback, Representation
from latentgp.representations.site_form import SiteForm
from latentgp.representations.summary import RowsAsSums
from latentgp.representations.traits import Traits
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, RandomKey, RowLatents

LEAST_OPEN = 1e-6  # share of the prior variance that frequencies are to leave open at least
# Times the tolerance, that another grid is made for; times as many functions at once, and to see
# whether more gain.
_WORSE, _GROWTH, _FINER = 3.0, 12.0, 3.0


class EquispacedFourier(Representation):
    """Weights of Fourier functions on a grid of frequencies, for stationary kernels of places.

    The kernel's inverse Fourier transform by the trapezoidal rule: sum_j s_j cos(w_j'(x - z)) over
    equispaced frequencies in up to three columns (Greengard, Rachh & Barnett 2025). The Gram matrix
    of the functions over N rows is Toeplitz (plus Hankel), by one non-uniform Fourier transform of
    the rows, so that products with it cost O(M log M), and with Gaussian noise nothing else does
    depend on N (`FourierGP`). `Laplace` takes it for log-concave likelihoods of one latent
    function, by two transforms of the rows a Newton step. Solves are by conjugate gradients,
    log-determinants by Lanczos quadrature. What the frequencies leave open of the prior variance is
    an independent part of each row with Gaussian noise, up to a quarter of that, and of
    predictions, and no part of paths; with other likelihoods it is no part of the rows, which is
    said where it is not small beside what a row tells.

    Args:
        tolerance: what images of places, a period away, may add to the kernel, in prior variances.
        left: what left-out frequencies may leave open of the prior variance, a share; with Gaussian
            noise also at most a quarter of the noise variance.
        most: at most so many functions; the error is in the notes where more would be needed.
        margin: share of the range of a column that is added to it on each side, for predictions
            there.
        probes: number of probe vectors of log-determinants and gradients.
        draws: number of draws that variances are found by.
        block: so many functions are solved for together, as a preconditioner, and up to so many
            everything is exact.
        max_steps: the most steps of a solve.
        key: data of the random key of probe vectors; `initialise` sets it.
        grid: the frequencies; `initialise` makes them.
        sums: over rows, which stand for them with Gaussian noise; methods make them.
        means_only: whether nothing but means is asked for; a method sets it.

    Raises:
        InputError: a number out of its range; on use a kernel that is not stationary in all
            columns, more than three columns, or no jax-finufft.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> generator = np.random.default_rng(0)
        >>> X, noise = generator.uniform(0, 6, (300, 2)), 0.1 * generator.normal(size=300)
        >>> data = lgp.Data(X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + noise)
        >>> model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(noise_variance=0.01))
        >>> method = lgp.fields.FourierGP()
        >>> result = lgp.fit(model, data, key=jax.random.key(0), method=method)
        >>> found = result.posterior.mean_f([[3.0, 3.0]])[0]
        >>> bool(abs(found - np.sin(3.0) * np.cos(3.0)) < 0.1)
        True
    """

    tolerance: float = eqx.field(static=True, default=1e-3)
    left: float = eqx.field(static=True, default=1e-2)
    most: int = eqx.field(static=True, default=60_000)
    margin: float = eqx.field(static=True, default=0.02)
    probes: int = eqx.field(static=True, default=8)
    draws: int = eqx.field(static=True, default=32)
    block: int = eqx.field(static=True, default=1000)
    max_steps: int = eqx.field(static=True, default=300)
    key: UInt32[Array, "2"] | None = None
    grid: FrequencyGrid | None = None
    sums: RowsAsSums | None = None
    means_only: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_whole(self, probes=2, draws=2, block=1, most=1, max_steps=1)
        check_ranges(self, tolerance="(0, 1)", left="(0, 1)", margin="at least 0")

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> EquispacedFourier:
        transforms()
        self.check_kernel(kernel, X.shape[1])
        if self.grid is not None:
            return self
        own = dataclasses.replace(self, key=jax.random.key_data(key))
        return own.around(np.min(X, axis=0), np.max(X, axis=0), kernel)

    def around(self, lower: Any, upper: Any, kernel: Any) -> EquispacedFourier:
        """The same with frequencies for places between two corners."""
        ranges = np.where(upper > lower, upper - lower, 1.0)
        corners = lower - self.margin * ranges, upper + self.margin * ranges
        own = self.tolerance, self.left, self.most
        return dataclasses.replace(self, grid=grid_for(kernel, *corners, *own), sums=None)

    def for_noise(self, model: LatentGP) -> EquispacedFourier:
        """The same with frequencies that leave open no more than a share of the noise variance."""
        return self.renewed(model, growth=np.inf) or self

    def renewed(self, model: LatentGP, growth: float = _GROWTH) -> EquispacedFourier | None:
        """The same with frequencies for another model; None where those that there are will do.

        At most so many times as many.
        """
        grid, kernel = self._grid, cast(Kernel, model.kernel)
        variance = float(prior_variance(kernel, grid))
        noise = float(model.likelihood.noise_variance)  # pyright: ignore
        left = max(min(self.left, MOST_OF_NOISE * noise / variance), LEAST_OPEN)
        corners = np.asarray(grid.lower), np.asarray(grid.upper)
        most = int(min(self.most, growth * grid.number))
        other = grid_for(kernel, *corners, self.tolerance, left, most)
        added, now = kernel_error(kernel, grid)
        fits = added <= _WORSE * self.tolerance and now <= added + _WORSE * left
        if fits or other.most == grid.most:
            return None
        return dataclasses.replace(self, grid=other, sums=None)

    def finer(self, times: float = _FINER) -> EquispacedFourier | None:
        """The same with so many times as many functions; None where these are too many."""
        grid = self._grid
        more = tuple(int(np.ceil(m * times ** (1 / len(grid.most)))) for m in grid.most)
        other = dataclasses.replace(grid, most=more)
        if other.number > self.most:
            return None
        return dataclasses.replace(self, grid=other, sums=None)

    @property
    def _grid(self) -> FrequencyGrid:
        assert self.grid is not None
        return self.grid

    def check_kernel(self, kernel: Any, columns: int) -> None:
        """Raise InputError unless there are frequencies for a kernel of so many columns."""
        if not isinstance(kernel, Kernel):
            raise InputError(
                "EquispacedFourier takes one latent function, or several that share a kernel; use "
                "Neighbours(20) for latent functions with kernels of their own."
            )
        stationary_terms(kernel, columns)

    @property
    def settings(self) -> SolveSettings:
        """The settings of solves."""
        key = jax.random.key_data(jax.random.key(0)) if self.key is None else self.key
        own = {"probes": self.probes, "max_steps": self.max_steps, "block": self.block}
        return SolveSettings(jnp.asarray(key), **own)

    @property
    def traits(self) -> Traits:
        return Traits(
            evidence="approximation",
            estimates_evidence=self.grid is None or self.grid.number > self.block,
            estimates_variances=True,
            one_gaussian=False,
            coordinates_of_sites=False,
            predicts_by_all_centres=False,
            powers=True,
        )

    def for_sites(self, form: SiteForm) -> EquispacedFourier:
        return dataclasses.replace(self, means_only=form.means_alone)

    def condition(self, kernel: LatentKernel, X: Inputs, sites: GaussianSites) -> FourierPosterior:
        """By two non-uniform transforms of the rows, which sites of other likelihoods take anew."""
        grid, own = self._grid, self.settings
        gram = ToeplitzGram(grid, grid.doubled().sums(X, sites.precision)[:, 0])
        variances = _variances(kernel, grid)
        if self.means_only:
            own = dataclasses.replace(own, probes=0)
        system, near = own.system(gram, variances)
        right = jnp.sqrt(variances) * grid.sums(X, sites.linear)[:, 0]
        found = white_weights(own, system, near, right)
        told = jnp.sum(sites.precision) / jnp.maximum(jnp.sum(sites.precision > 0), 1)
        solver, noise = (system, near), jnp.ones(())
        return FourierPosterior.of(self, kernel, solver, variances, noise, found, told)

    def marginals_at_rows(self, posterior: FourierPosterior, X: Inputs) -> Marginals:
        mean = posterior.mean(X)
        return Marginals(mean, jnp.ones_like(mean)) if self.means_only else posterior.marginals(X)

    def pull_back(self, posterior: FourierPosterior, X: Inputs, sites: GaussianSites) -> Pullback:
        """In log s_j, of prior variances s: (v_j^2 + [B^-1]_jj - 1) / 2, v the white mean.

        Variances at the rows are those of draws, or exact.
        """
        v = posterior.white
        in_log = 0.5 * (v * v + posterior.inverse_diagonal - 1)
        return Pullback(self._in_kernel(posterior, in_log), None, posterior.marginals(X))

    def linearised(
        self, posterior: FourierPosterior, X: Inputs, sites: GaussianSites
    ) -> Callable[[RowLatents], tuple[LatentKernel, RowLatents]]:
        """By one more solve: along s the white mean v moves by B^-1 S Phi' s."""

        def move(along: RowLatents) -> tuple[LatentKernel, RowLatents]:
            right = posterior.root[:, None] * self._grid.sums(X, along)
            change = posterior.solve(right, "Gradients of the log evidence")
            shift = self._grid.combined(X, posterior.root[:, None] * change)
            return self._in_kernel(posterior, posterior.white * change[:, 0]), shift

        return move

    def _in_kernel(self, posterior: FourierPosterior, in_log: PerRow) -> LatentKernel:
        """Derivative in the kernel of what has the given one in log prior variances."""
        variances, pull = jax.vjp(lambda k: _variances(k, self._grid), posterior.kernel)
        return pull(in_log / jnp.where(variances > 0, variances, 1.0))[0]


def _variances(kernel: LatentKernel, grid: FrequencyGrid) -> PerRow:
    assert isinstance(kernel, Kernel)
    return prior_variances(kernel, grid)


def of_places(model: LatentGP, rows: int, inducing: int | None) -> EquispacedFourier:
    """The representation of the method named "fourier"."""
    return EquispacedFourier()
