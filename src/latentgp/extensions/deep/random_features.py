"""The latent functions as weighted sums of random features: O(N R^2), streamed over the rows."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import Any, ClassVar, cast, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, check_choices, refuse
from latentgp.kernels import Kernel, LatentKernel
from latentgp.kernels.directions import DirectionKind, Directions
from latentgp.kernels.features import Features, Spectrum, draw_spectra, features_of
from latentgp.kernels.per_latent import kernel_groups, of_kernel_groups
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.representations.inducing.posterior import Covariance, Prior
from latentgp.representations.latent_axis import latent_diagonals, latent_grams
from latentgp.representations.needs import chosen
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Products, Traits
from latentgp.representations.variables import Centres, InducingVariables
from latentgp.rows.arrays import evenly
from latentgp.typing import Array, Inputs, PerRow, RandomKey

_PLACES = 64  # rows at which the covariances of features are compared with the kernel's
_STRUCTURED_FROM = 256  # input columns


@stored
class FeatureWeights(InducingVariables):
    """Weights w ~ N(0, I) of random features, f(x) = phi(x)' w.

    Latent functions whose kernels have the same structure share what is random in their features;
    the weights are each one's own.
    """

    @property
    def usual_representation(self) -> Any:
        """The representation that goes on from a summary of them."""
        return RandomFeatures()

    spans_prior: ClassVar[bool] = True

    directions: tuple[tuple[Directions, ...], ...]  # of each random part of each group of kernels
    sample: Float[Array, "sample D"]  # some of the rows
    # R, of weights of a latent function; features that a kernel lacks are zero
    number: int = eqx.field(static=True)
    # of the mixing variables of each group
    seeds: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return self.number, self.sample.shape[1]

    @property
    def dtype(self) -> Any:
        return self.sample.dtype

    @property
    def places(self) -> Float[Array, "sample D"]:
        return self.sample

    def features(self, kernel: Kernel, group: int = 0) -> Features:
        """Feature map of a kernel of a group."""
        own = zip(self.directions[group], self.seeds[group], strict=True)
        spectra = [Spectrum(directions, jax.random.key(seed)) for directions, seed in own]
        return features_of(kernel, spectra, jax.lax.stop_gradient(jnp.mean(self.sample, axis=0)))

    def covariance(self, kernel: LatentKernel) -> Float[Array, "1 M M"]:
        return jnp.eye(self.number, dtype=self.dtype)[None]

    def between(self, kernel: LatentKernel, others: "FeatureWeights") -> Float[Array, "1 M M"]:
        """Weights of the same features are the same, whatever the hyper-parameters."""
        return self.covariance(kernel)

    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q M N"]:
        def features(kernel: Kernel, group: int) -> Float[Array, "M N"]:
            values = self.features(kernel, group)(X).astype(self.dtype)
            return jnp.pad(values, ((0, 0), (0, self.number - values.shape[1]))).T

        return of_kernel_groups(kernel, features)

    def prior_variances(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q N"]:
        return jnp.sum(self.cross_covariance(kernel, X) ** 2, axis=1)

    def prior_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q N N"]:
        features = self.cross_covariance(kernel, X)
        return jnp.swapaxes(features, 1, 2) @ features

    def notes(self, kernel: LatentKernel) -> tuple[str, ...]:
        places = jnp.asarray(self.sample)
        grams = latent_grams(kernel, places)
        off = jnp.sqrt(jnp.mean((self.prior_covariance(kernel, places) - grams) ** 2, axis=(1, 2)))
        error = float(jnp.max(off / jnp.mean(latent_diagonals(kernel, places), axis=1)))
        return (
            f"Covariances are those of {self.number} random features, which are off by "
            f"{error:.2g} prior variances (root mean square between {len(places)} rows).",
        )


class RandomFeatures(ByVariables):
    """Weights of random features in place of inducing variables (Rahimi & Recht 2007).

    The covariance of the features stands for the kernel's, at every input: the root mean square
    error falls as R^-1/2 and is told in the result's notes. Given the features everything is exact,
    and nothing of a function is left open between points. Frequencies are drawn once and scaled by
    hyper-parameters, which are learned as ever; `Stochastic(..., learn_points=True)` learns the
    frequencies too, as the sparse spectrum (Lázaro-Gredilla et al. 2010) does.

    Args:
        number: R, of features of each part of a kernel that has random ones; an even number.
        kind: "orthogonal" directions (Yu et al. 2016), or "fourier" ones, which are independent,
            "structured" ones by Hadamard matrices, or those of a "quasi-monte-carlo" sequence. None
            is orthogonal, and structured from 256 input columns.
        covariance: of the weights: "full", or "diagonal", the mean-field family.
        remembered: summary of the data seen so far, `Posterior.remembered()`.
        weights: what is drawn; `initialise` draws it.
        signed: whether precisions of sites can be negative; a method sets it.
        power: of the prior that the weights leave open, of which there is none; a method sets it.

    Raises:
        InputError: a number that is not even and positive; an unknown kind.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.RandomFeatures(50))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    number: int = eqx.field(static=True, default=500)
    kind: DirectionKind | None = eqx.field(static=True, default=None)
    weights: FeatureWeights | None = None

    def __check_init__(self) -> None:
        even = isinstance(self.number, Integral) and self.number >= 2 and self.number % 2 == 0
        sentence = (
            "RandomFeatures.number must be a positive even number, a cosine and a sine for each "
            f"frequency, got {self.number!r}."
        )
        refuse({sentence: not even})
        kinds = (None, *get_args(DirectionKind))
        check_choices(self, kind=kinds, covariance=Covariance)

    def continues(self, remembered: Any) -> bool:
        return remembered is not None and isinstance(remembered.centres, FeatureWeights)

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> RandomFeatures:
        if self.remembered is not None:
            earlier = self.remembered.centres
            if not isinstance(earlier, FeatureWeights) or earlier.shape[1] != X.shape[1]:
                raise InputError(
                    f"The stored summary must be of RandomFeatures of {X.shape[1]} input columns; "
                    "give posterior.remembered() of such a fit."
                )
            return dataclasses.replace(self, weights=earlier)
        if self.weights is not None:
            return self
        columns = X.shape[1]
        kind = self.kind or ("structured" if columns >= _STRUCTURED_FROM else "orthogonal")
        directions, seeds, sizes = [], [], []
        latents = 1 if isinstance(kernel, Kernel) else len(kernel.each)
        for index, group in enumerate(kernel_groups(kernel, latents)):
            one = jax.tree.map(lambda leaf: leaf[0], group.kernels)
            own = draw_spectra(one, jax.random.fold_in(key, index), columns, self.number, kind)
            drawn = tuple(spectrum.directions for spectrum in own)
            directions.append(jax.tree.map(lambda leaf: np.asarray(leaf, X.dtype), drawn))
            seeds.append(tuple(int(np.ravel(jax.random.key_data(s.key))[-1]) for s in own))
            features = features_of(one, own)
            sizes.append(jax.eval_shape(features, jnp.zeros((1, columns))).shape[1])
        real = np.arange(len(X)) if weights is None else np.flatnonzero(np.asarray(weights) > 0)
        chosen = real[evenly(len(real), _PLACES)]
        places = np.asarray(X)[chosen]
        drawn = FeatureWeights(tuple(directions), places, max(sizes), tuple(seeds))
        return dataclasses.replace(self, weights=drawn)

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(
            super().traits,
            evidence="approximation",
            spreads_rows=True,
            needs_rows=self.weights is None,
            products=Products(self.number**2, self.number),
        )

    def for_sites(self, form: SiteForm) -> RandomFeatures:
        nothing_open = dataclasses.replace(form, power=0.0)
        return cast(RandomFeatures, super().for_sites(nothing_open))

    @property
    def centres(self) -> FeatureWeights:
        return chosen(self.weights, "Random features")

    def units(self, X: Float[np.ndarray, "N D"]) -> Float[Array, "1"]:
        """Directions are in length-scales."""
        return jnp.ones(1, self.centres.dtype)

    def at(self, centres: Centres) -> RandomFeatures:
        return eqx.tree_at(lambda r: r.weights, self, centres, is_leaf=lambda leaf: leaf is None)

    def prior(self, kernel: LatentKernel) -> Prior:
        identity = self.centres.covariance(kernel)
        return Prior(Factor(identity, identity), jnp.zeros(1, identity.dtype))

    def _prior(self, kernel: LatentKernel) -> Prior:
        """Known before the rows are: nothing has to be factorised."""
        return self.prior(kernel)

    def _residuals(
        self,
        precision: Float[Array, "#Q M M"] | None,
        blocks: Float[Array, "#Q M B"],
        variances: Float[Array, "#Q B"],
    ) -> Float[Array, "#Q B"]:
        return jnp.zeros_like(variances)
