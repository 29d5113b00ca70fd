"""What an augmentation is, and which likelihood has one."""

from abc import abstractmethod
from functools import singledispatch

import equinox as eqx
from jaxtyping import Float

from latentgp.arrays import Array
from latentgp.likelihoods.base import Likelihood
from latentgp.sites.base import GaussianSites, Rows


class Augmentation(eqx.Module):
    """A likelihood written as an integral over an auxiliary variable w, conjugate given w.

    p(y | f) = integral of exp(linear(w) f - precision(w) f^2 / 2) p(w) dw up to a constant, so
    that given w a row is a Gaussian site, and given f the law of w is known.
    """

    @abstractmethod
    def expected_sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> GaussianSites:
        """Sites averaged over the optimal law of w for f ~ N(mean, diag(variance)).

        `log_constant` holds what is left of the bound: `expected(mean, variance)` is the
        greatest lower bound on E log p(y | f) that the augmentation gives.
        """

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether no auxiliary variable is needed: the sites do not depend on f."""


@singledispatch
def augmentation_of(likelihood: Likelihood) -> Augmentation | None:
    """The augmentation of a likelihood, or None. Register one for a class of your own.

    Example:
        >>> from latentgp import Bernoulli
        >>> augmentation_of(Bernoulli())
        PolyaGamma()
    """
    return None
