# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Inducing variables u: values of the latent functions at points, or other functionals of them.

Their covariances, those with the latent functions at rows, and the prior that a representation has
by them. An array of points stands for the values there.
"""

from abc import abstractmethod
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import lacks
from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import as_wholes
from latentgp.representations.latent_axis import latent_diagonals, latent_grams
from latentgp.typing import Array, Inputs, RandomKey


class InducingVariables(eqx.Module):
    """Inducing variables other than values at points, such as weights of features.

    Its leaves are what can be learned of it.
    """

    spans_prior: ClassVar[bool] = False  # whether the latent functions are combinations of these
    by_transform: ClassVar[bool] = False  # whether a mean at a row takes no number of each

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of inducing variables of a latent function, and of input columns."""

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """Type of its numbers."""

    @property
    @abstractmethod
    def places(self) -> Float[Array, "places D"]:
        """Inputs that stand for where the variables tell of the latent functions."""

    def notes(self, kernel: LatentKernel) -> tuple[str, ...]:
        """Sentences on what they approximate, for the user; none unless overridden. In NumPy."""
        return ()

    @abstractmethod
    def covariance(self, kernel: LatentKernel) -> Float[Array, "#Q M M"]:
        """Covariance of the inducing variables, K_mm."""

    @abstractmethod
    def between(self, kernel: LatentKernel, others: Any) -> Float[Array, "#Q _ _"]:
        """Covariances with other inducing variables of the same kind."""

    @abstractmethod
    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q M N"]:
        """Covariances with the latent functions at rows, K_mn."""

    def prior_variances(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q N"]:
        """Prior variances of the latent functions at rows: the kernel's unless overridden."""
        return latent_diagonals(kernel, X)

    def prior_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q N N"]:
        """The same with all covariances between rows."""
        return latent_grams(kernel, X)

    def prior_paths(
        self, kernel: LatentKernel, key: RandomKey, *, latents: int, features: int, number: int
    ) -> tuple[Any, Float[Array, "S _ Q"]]:
        """Draws of the prior as functions, None where these span it, and the variables' values."""
        if not self.spans_prior:
            advice = "use sample_f for joint draws at given inputs, or Inducing(number=...)"
            lacks(self, f"no values that paths could be updated by; {advice}")
        return None, jnp.zeros((number, len(self), latents), self.dtype)

    def telling_parts(self, number: int) -> "InducingVariables":
        """The same for rows with coefficients of so many parts as last columns; refused here."""
        lacks(self, "no posterior of the parts of f; fit with Dense() or Inducing(...)")

    def __len__(self) -> int:
        return self.shape[0]


Centres: TypeAlias = Float[Array, "_ D"] | InducingVariables


def numbers_a_row(centres: Centres) -> int:
    """How many numbers a posterior mean at a row takes."""
    by_transform = isinstance(centres, InducingVariables) and centres.by_transform
    return 1 if by_transform else len(centres)


def covariance_of(kernel: LatentKernel, centres: Centres) -> Float[Array, "#Q M M"]:
    """K_mm: at points, or of other inducing variables."""
    if isinstance(centres, InducingVariables):
        return centres.covariance(kernel)
    return latent_grams(kernel, centres)


def covariance_between(
    kernel: LatentKernel, centres: Centres, others: Centres
) -> Float[Array, "#Q _ _"]:
    """Covariances between two sets of inducing variables of one kind."""
    if isinstance(centres, InducingVariables):
        return centres.between(kernel, others)
    assert not isinstance(others, InducingVariables)
    return latent_grams(kernel, centres, others)


def cross_covariance(kernel: LatentKernel, centres: Centres, X: Inputs) -> Float[Array, "#Q M N"]:
    """K_mn: of inducing variables with the latent functions at rows."""
    if isinstance(centres, InducingVariables):
        return centres.cross_covariance(kernel, X)
    return latent_grams(kernel, centres, X)


def prior_variances(kernel: LatentKernel, centres: Centres, X: Inputs) -> Float[Array, "#Q N"]:
    """Variances at rows of the prior that a representation by inducing variables has."""
    if isinstance(centres, InducingVariables):
        return centres.prior_variances(kernel, X)
    return latent_diagonals(kernel, X)


def prior_covariance(kernel: LatentKernel, centres: Centres, X: Inputs) -> Float[Array, "#Q N N"]:
    """Covariances between rows, likewise."""
    if isinstance(centres, InducingVariables):
        return centres.prior_covariance(kernel, X)
    return latent_grams(kernel, X)


def spans_prior(centres: Centres) -> bool:
    """Whether inducing variables leave nothing of the latent functions open, wherever."""
    return isinstance(centres, InducingVariables) and centres.spans_prior


def wholes_at(
    centres: Float[Array, "*N D"] | InducingVariables, number: int
) -> Float[Array, "*N columns"] | InducingVariables:
    """Points as rows with all of so many parts of f, or variables; InputError if they know none."""
    if isinstance(centres, InducingVariables):
        return centres.telling_parts(number)
    return as_wholes(centres, number)


def places_of(centres: Centres) -> Float[Array, "places D"]:
    """The points themselves, or inputs that stand for where other variables are."""
    return centres.places if isinstance(centres, InducingVariables) else centres
