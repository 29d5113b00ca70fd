"""Pólya-Gamma augmentation of the logit link."""

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.arrays import Array
from latentgp.augmentations.base import Augmentation, augmentation_of
from latentgp.likelihoods.base import Likelihood
from latentgp.likelihoods.bernoulli import Bernoulli
from latentgp.sites.base import GaussianSites, Rows


class PolyaGamma(Augmentation):
    """sigma(z) = 1/2 E exp(z/2 - w z^2/2) under w ~ PG(1, 0) (Polson, Scott & Windle 2013, 2).

    The optimal law of w is PG(1, c) with c^2 = E f^2 (Wenzel et al. 2019, eq. 11), and its mean
    is the site's precision. The bound is that of Jaakkola & Jordan (2000).
    """

    def expected_sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> GaussianSites:
        tilt = jnp.sqrt(mean**2 + variance)
        precision = expected_polya_gamma(tilt)
        # log(1/2) - log cosh(c/2) + c^2 E[w] / 2, without overflow.
        log_constant = -jnp.logaddexp(tilt / 2, -tilt / 2) + 0.5 * tilt**2 * precision
        return GaussianSites((rows.y - 0.5)[:, None], precision, log_constant[:, 0])

    @property
    def is_exact(self) -> bool:
        return False


@augmentation_of.register
def _(likelihood: Bernoulli) -> Augmentation:
    return PolyaGamma()


def expected_polya_gamma(tilt: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Mean of PG(1, c), tanh(c/2) / (2 c), 1/4 at c = 0 (Polson et al. 2013, 2.2)."""
    small = jnp.abs(tilt) < 1e-3
    safe = jnp.where(small, 1.0, tilt)
    return jnp.where(small, 0.25 - tilt**2 / 48, jnp.tanh(safe / 2) / (2 * safe))
