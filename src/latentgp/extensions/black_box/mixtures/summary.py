"""Terms of a mixture's bound, and posteriors of its components."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.diagnostics import Finding
from latentgp.extensions.black_box.mixtures.bound import MixtureBound, Terms
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.own_points import OwnPoints, among_all, whitening_of
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.numerics.triangular import inverse_of_lower, solve_lower
from latentgp.representations.inducing.posterior import InducingPosterior, Prior, posterior_of_white
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.whitening import whitening_from
from latentgp.runtime.programs import Program
from latentgp.typing import Array, Coefs, HyperVector, RandomKey

_DRAWS, _FINER = 512, 4


@stored
@dataclasses.dataclass(frozen=True)
class MixtureTerms(Finding):
    """The bound of a mixture at the end, in nats, and the bound by draws.

    Attributes:
        entropy: of one Gaussian; of several components the lower bound of Huber et al. (2008).
        entropy_by_draws: an estimate of the entropy itself; `entropy` for one component.
        entropy_error: its standard error.
        cross: E log p(c), the negative cross-entropy to the prior.
        expected: E log p(y | f).
        expected_error: its standard error where it is found by draws.
        weights: of the components.
    """

    name: ClassVar[str] = "terms"

    entropy: float
    entropy_by_draws: float
    entropy_error: float
    cross: float
    expected: float
    expected_error: float
    weights: tuple[float, ...]

    @property
    def bound(self) -> float:
        """Entropy, or its lower bound, plus the other two: a bound on the log evidence."""
        return self.entropy + self.cross + self.expected

    @property
    def bound_by_draws(self) -> float:
        """The same with the entropy by draws: an estimate of the evidence lower bound itself."""
        return self.entropy_by_draws + self.cross + self.expected

    @property
    def verdict(self) -> str:
        """The bound and its terms in a sentence."""
        error = f" (standard error {self.expected_error:.2g})" if self.expected_error else ""
        return (
            f"Bound {self.bound:.4f} nats: entropy {self.entropy:.4f}, cross-entropy "
            f"{self.cross:.4f}, expected log likelihood {self.expected:.4f}{error}."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The entropy by draws in a sentence, where there are several components."""
        if len(self.weights) == 1:
            return ()
        weights = ", ".join(f"{weight:.3f}" for weight in self.weights)
        return (
            f"The entropy of {len(self.weights)} components (weights {weights}) is a lower "
            f"bound; by draws it is {self.entropy_by_draws:.4f}, standard error "
            f"{self.entropy_error:.2g}, the evidence lower bound {self.bound_by_draws:.4f}.",
        )


def terms_of(
    bound: MixtureBound, vector: HyperVector, mixture: GaussianMixture, key: RandomKey
) -> MixtureTerms:
    """The bound's terms on all rows; expectations by draws with four times as many of them."""
    own = bound.expectations
    own = dataclasses.replace(own, samples=_FINER * own.samples)
    finer = dataclasses.replace(bound, expectations=own)
    terms, entropies = jax.tree.map(np.asarray, _terms(finer, vector, mixture, key))
    weights = np.exp(np.asarray(mixture.log_weights))
    by_draws, error = float(terms.entropy), 0.0
    if len(weights) > 1:
        by_draws = float(weights @ entropies.mean(axis=1))
        variances = entropies.var(axis=1) / (entropies.shape[1] - 1)
        error = float(np.sqrt(weights**2 @ variances))
    return MixtureTerms(
        float(terms.entropy),
        by_draws,
        error,
        float(terms.cross),
        float(terms.expected),
        float(terms.error),
        tuple(weights.tolist()),
    )


@Program
def _terms(
    bound: MixtureBound, vector: HyperVector, mixture: GaussianMixture, key: RandomKey
) -> tuple[Terms, Float[Array, "K S"]]:
    """The bound, and minus the log density of the mixture at draws of each component."""
    model = bound.space.to_model(vector)
    key_rows, key_draws = jax.random.split(key)
    terms = bound.terms(model, mixture, key_rows)
    if len(mixture.mean) == 1:
        return terms, jnp.zeros((1, 2), mixture.mean.dtype)
    known = mixture.factorised()
    logs = known.log_densities(known.draws(key_draws, _DRAWS))
    mixed = jax.scipy.special.logsumexp(logs + mixture.log_weights[None, :, None], axis=1)
    return terms, -mixed


def posteriors_of(
    bound: MixtureBound, model: LatentGP, mixture: GaussianMixture
) -> list[InducingPosterior]:
    """Posteriors of the components."""
    given = bound.representation
    united = given.united() if isinstance(given, OwnPoints) else None
    parts = zip(mixture.mean, mixture.precision, strict=True)
    return [_posterior(bound, model, mean, precision, united) for mean, precision in parts]


@Program
def _posterior(
    bound: MixtureBound,
    model: LatentGP,
    mean: Coefs,
    precision: Float[Array, "Q M *M"],
    united: tuple[Float[Array, "points D"], Int[Array, "Q M"]] | None,
) -> InducingPosterior:
    X = bound.data.X
    rows = X if bound.representation.traits.one_coefficient_a_row else X[:1]
    whitening = whitening_of(bound.representation, model.kernel, rows)
    lower = whitening.lower
    if precision.ndim == 2:
        precision = jax.vmap(jnp.diag)(precision)
    if bound.coordinates == "values":
        mean = vmap_latents(lambda L, m: solve_lower(L, m[:, None])[:, 0], lower, mean)
        precision = vmap_latents(lambda L, P: L.T @ P @ L, lower, precision)
    linear = jnp.einsum("qij,qj->qi", precision, mean)
    if united is not None:
        whitening = whitening_from(model.kernel, united[0], bound.data.X[:1])
        linear, precision = among_all(lower, whitening.lower, united[1], mean, precision)
        lower = whitening.lower
    inverse = vmap_latents(inverse_of_lower, lower)
    prior = Prior(Factor(lower, inverse), jnp.broadcast_to(whitening.jitter, (len(lower),)))
    factor = jax.vmap(cholesky)(precision)
    return posterior_of_white(
        model.kernel, whitening.centres, prior, linear, factor, signed=True, covariance="full"
    )
