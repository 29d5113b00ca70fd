"""The Gaussian likelihood is a Gaussian site already."""

import jax.numpy as jnp
from jaxtyping import Float, Key, PyTree

from latentgp.arrays import Array
from latentgp.augmentations.base import Augmentation, augmentation_of
from latentgp.likelihoods.base import Likelihood
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.sites.base import Block, GaussianSites, Rows


class Conjugate(Augmentation):
    """No auxiliary variable: N(y | f, s) as a function of f, term by term."""

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, Gaussian)

    def expected_sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> GaussianSites:
        assert isinstance(likelihood, Gaussian)
        noise = jnp.broadcast_to(likelihood.total_noise_variance(rows.side), rows.y.shape)
        return GaussianSites(
            (rows.y / noise)[:, None],
            (1 / noise)[:, None],
            -0.5 * (jnp.log(2 * jnp.pi * noise) + rows.y**2 / noise),
        )

    def draw(
        self,
        likelihood: Likelihood,
        rows: Rows,
        f: Float[Array, "N Q"],
        key: Key[Array, ""],
        block: Block,
    ) -> PyTree:
        return ()

    def conditional_sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        auxiliary: PyTree,
        f: Float[Array, "N Q"],
        block: Block,
    ) -> GaussianSites:
        return self.expected_sites(likelihood, rows, f, f)

    def log_conditional(
        self,
        likelihood: Likelihood,
        rows: Rows,
        auxiliary: PyTree,
        f: Float[Array, "N Q"],
        block: Block,
    ) -> Float[Array, "N"]:
        return jnp.zeros_like(rows.y)

    @property
    def is_exact(self) -> bool:
        return True


@augmentation_of.register
def _(likelihood: Gaussian) -> Augmentation:
    return Conjugate()
