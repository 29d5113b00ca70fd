"""Two layers of processes with their own covariances, at the rows: hidden values, f given them."""

from __future__ import annotations

from typing import cast

import equinox as eqx
from jaxtyping import Float

from latentgp.extensions.deep.models import DeepGP, Layout
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.representations.dense import Dense, DensePosterior
from latentgp.representations.latent_axis import block_means, latent_grams
from latentgp.representations.prior_paths import prior_paths
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, RandomKey

PATH_FEATURES = 1024


class ProcessLayers(eqx.Module):
    """Both layers of a deep model at its rows, Gaussian noise on top."""

    layout: Layout  # between the layers
    X: Inputs  # inputs of the rows
    sites: GaussianSites  # of the rows, as functions of g = f - prior mean

    def hidden_mean(self, X: Float[Array, "B D"]) -> Float[Array, "B width"]:
        """Prior mean of the hidden functions."""
        return self.layout.standardised(X) @ self.layout.skips[0]

    def last_given(self, model: DeepGP, hidden: Float[Array, "N width"]) -> DensePosterior:
        """Posterior of g in what the last layer sees, given the hidden functions at the rows."""
        seen = self.layout.seen(hidden, self.X)
        return cast(DensePosterior, Dense().condition(model.kernel, seen, self.sites))

    def hidden_elsewhere(
        self, model: DeepGP, hidden: Float[Array, "N width"], key: RandomKey, X: Float[Array, "B D"]
    ) -> Float[Array, "B width"]:
        """A draw of the hidden functions given those at the rows, the same function for one key.

        A draw of the prior plus an update by what it misses at the rows (Matheron's rule; Wilson
        et al. 2020, eq. 13).
        """
        kernel = model.layers[0].kernel
        sizes = {"inputs": self.X.shape[1], "latents": hidden.shape[1]}
        path = prior_paths(kernel, key, **sizes, features=PATH_FEATURES, number=1)
        inverse = jittered_cholesky(latent_grams(kernel, self.X)[0]).factor.inverse
        missed = hidden - self.hidden_mean(self.X) - path(self.X)[0]
        update = inverse.T @ (inverse @ missed)
        of_rows = block_means(latent_grams(kernel, self.X, X), update.T)
        return self.hidden_mean(X) + path(X)[0] + of_rows
