"""The posterior of inducing variables whose prior and posterior precisions are banded."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.inter_domain import banded
from latentgp.extensions.inter_domain.functions import FixedFunctions
from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.variables import Centres, cross_covariance, prior_covariance
from latentgp.typing import Array, Inputs, PerRow, Scalar


@stored
class BandedPosterior(LatentPosterior):
    """Posterior of M splines of one column: O(M) memory, and for marginals O(M) time a row.

    With K = K_uu and the sums P over rows, f(x) has the mean phi' (K + P)^-1 b and the variance
    k(x, x) - phi' (K^-1 - (K + P)^-1) phi; phi touches neighbouring splines, so that of both
    inverses no more than the band is needed (Durrande et al. 2019). What takes O(M) is phi itself.
    """

    kernel: LatentKernel
    variables: FixedFunctions  # the splines
    prior_bands: Float[Array, "band M"]  # of K
    prior_inverse: Float[Array, "band M"]  # of K^-1 within the band
    bands: Float[Array, "band M"]  # of K + P
    inverse: Float[Array, "band M"]  # of its inverse within the band
    mean_weights: Float[Array, "M"]  # (K + P)^-1 b
    log_evidence: Scalar
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        variables: FixedFunctions,
        K: Float[Array, "band M"],
        P: Float[Array, "band M"],
        b: Float[Array, "M"],
        loss: Scalar,
    ) -> "BandedPosterior":
        """Given the bands of K and P, the linear terms b and the sum of w_n k(x_n, x_n)."""
        prior, lower = banded.factor(K), banded.factor(K + P)
        prior_inverse, inverse = banded.inverse_within(prior), banded.inverse_within(lower)
        half = banded.solve_factor(lower, b)
        weights = banded.solve_transposed(lower, half)
        trace_term = 0.5 * (loss - banded.inner(prior_inverse, P))
        ratio = jnp.sum(jnp.log(lower[0])) - jnp.sum(jnp.log(prior[0]))
        quadratic = half @ half - banded.quadratic(P, weights)
        make: Any = cls  # whose abstract properties are fields
        return make(
            kernel=kernel,
            variables=variables,
            prior_bands=K,
            prior_inverse=prior_inverse,
            bands=K + P,
            inverse=inverse,
            mean_weights=weights,
            log_evidence=0.5 * half @ half - ratio - trace_term,
            kl=0.5 * (quadratic - banded.inner(inverse, P)) + ratio,
            jitter=jnp.zeros((), K.dtype),
            trace_term=trace_term,
        )

    @property
    def _kernel(self) -> Kernel:
        assert isinstance(self.kernel, Kernel)
        return self.kernel

    @property
    def notes(self) -> tuple[str, ...]:
        places = jnp.asarray(self.variables.places)
        left = self.open_variances(places)[:, 0] / latent_diagonals(self.kernel, places)[0]
        return (self.variables.note_of(left),)

    @property
    def centres(self) -> Centres:
        return self.variables

    def mean(self, X: Inputs) -> Float[Array, "N 1"]:
        numbers, values = self._touched(X)
        return jnp.sum(values * jnp.asarray(self.mean_weights)[numbers], axis=1)[:, None]

    def marginals(self, X: Inputs) -> Marginals:
        prior = latent_diagonals(self.kernel, X)[0]
        reduced = self._within(jnp.asarray(self.prior_inverse) - self.inverse, X)
        return Marginals(self.mean(X), jnp.clip(prior - reduced, 0.0, prior)[:, None])

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        prior = latent_diagonals(self.kernel, X)[0]
        return jnp.maximum(prior - self._within(self.prior_inverse, X), 0.0)[:, None]

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        cross = self._cross(X)
        prior = prior_covariance(self.kernel, self.variables, X)[0]
        known, seen = (
            banded.solve_factor(banded.factor(jnp.asarray(bands)), cross)
            for bands in (self.prior_bands, self.bands)
        )
        return (prior - known.T @ known + seen.T @ seen)[None]

    def _touched(self, X: Inputs) -> tuple[Any, Float[Array, "N band"]]:
        """Numbers and values of the splines that tell of f at rows, also outside of the domain."""
        found = self.variables.local(self.variables.clipped(X, self._kernel), self._kernel)
        assert found is not None
        numbers = found[0]
        return numbers, jnp.take_along_axis(self._cross(X), numbers.T, axis=0).T

    def _cross(self, X: Inputs) -> Float[Array, "M N"]:
        """The splines at rows as they are, not in the units that jitter needs."""
        cross = cross_covariance(self.kernel, self.variables, X)[0]
        return cross / self.variables.units(self._kernel)[:, None]

    def _within(self, bands: Float[Array, "band M"], X: Inputs) -> PerRow:
        """Quadratic forms phi' B phi for a symmetric B that is known within the band."""
        numbers, values = self._touched(X)
        one, other = numbers[:, :, None], numbers[:, None]
        entries = jnp.asarray(bands)[jnp.abs(one - other), jnp.minimum(one, other)]
        return jnp.einsum("ni,nij,nj->n", values, entries, values)
