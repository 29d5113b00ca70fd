"""Likelihoods that are Gaussian scale mixtures, given by a completely monotone function.

The class of Galy-Fajou, Wenzel & Opper (2020, eq. 4): p(y | f) = C exp(g f) phi(||h||^2) with
||h||^2 = alpha - beta f + gamma f^2. By the theorem of Bernstein and Widder phi is the Laplace
transform of the law of an auxiliary variable, given which the row is a Gaussian site.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution

from latentgp.distributions import TiltedScaleMixture
from latentgp.likelihoods.base import Likelihood, SideInformation
from latentgp.modules import stored
from latentgp.typing import Array, Latents, Scalar, Values


class CompletelyMonotone(Likelihood):
    """A likelihood made of a function phi that is the Laplace transform of a law on w >= 0."""

    @abstractmethod
    def log_phi(self, r: Array) -> Array:
        """Log phi, elementwise: phi(0) = 1 and completely monotone.

        It must take complex arrays with a positive real part too (the auxiliary variable is
        drawn by inverting this Laplace transform) and have a derivative at r = 0.
        """

    def auxiliary_law(self, r: Values) -> Distribution:
        """Law of the auxiliary variable w tilted by r: proportional to exp(-r w) p(w).

        Drawn by numerical inversion unless a subclass knows the law.
        """
        return TiltedScaleMixture(self.log_phi, r)


@stored
class Form(NamedTuple):
    """One row as C exp(g f) phi(alpha - beta f + gamma f^2), a function of f.

    Attributes:
        log_constant: log C.
        linear: g.
        alpha: of a quadratic that is not negative for any f.
        beta: of the same.
        gamma: of the same; positive.
    """

    log_constant: Values
    linear: Values
    alpha: Values
    beta: Values
    gamma: Values


def form_of_distance(y: Values, precision: Scalar, log_constant: Array, linear: Array) -> Form:
    """C exp(g f) phi(precision (y - f)^2)."""
    quadratic = precision * y**2, 2 * precision * y, jnp.broadcast_to(precision, y.shape)
    return Form(log_constant, jnp.broadcast_to(linear, y.shape), *quadratic)


class ScaleMixture(CompletelyMonotone):
    """A likelihood of one latent, given by `form` and `log_phi`; all else follows from them.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> class LogisticNoise(ScaleMixture):  # the logistic density, of unit scale
        ...     def form(self, y, side):
        ...         return Form(jnp.log(0.25), 0.0, y**2, 2 * y, jnp.ones_like(y))
        ...     def log_phi(self, r):
        ...         return 2 * log_inverse_cosh_root(r)
        >>> LogisticNoise().log_prob(jnp.array(1.0), jnp.array([1.0]), {}).round(4)
        Array(-1.3863, dtype=float32)
    """

    @abstractmethod
    def form(self, y: Scalar, side: SideInformation) -> Form:
        """C, g and the quadratic of one row."""

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        form = self.form(y, side)
        return form.log_constant + form.linear * f[0] + self.log_phi(squared_norm(form, f[0]))


def squared_norm(form: Form, f: Values) -> Values:
    """||h||^2 = alpha - beta f + gamma f^2, written as a square so that it is not negative."""
    centre = 0.5 * form.beta / form.gamma
    least = form.alpha - form.gamma * centre**2
    return jnp.maximum(least, 0.0) + form.gamma * (f - centre) ** 2


def log_inverse_cosh_root(r: Array) -> Array:
    """Log of 1 / cosh(sqrt(r) / 2), elementwise, with its derivatives at zero."""
    small = jnp.abs(r) < 0.1
    half = 0.5 * jnp.sqrt(jnp.where(small, 1.0, r))
    far = -half - jnp.log1p(jnp.exp(-2 * half)) + jnp.log(2.0)
    # log cosh x in powers of x^2 = r / 4 (Abramowitz & Stegun 4.5.83, integrated).
    square = jnp.where(small, r, 0.0) / 4
    near = 0.0
    for coefficient in (10922 / 42567525, -691 / 935550, 31 / 14175, -17 / 2520, 1 / 45):
        near = (near + coefficient) * square
    near = ((near - 1 / 12) * square + 1 / 2) * square
    return jnp.where(small, -near, far)


def log_phi_slope(likelihood: CompletelyMonotone, r: Values) -> Values:
    """D log phi / dr, elementwise; minus the mean of the auxiliary variable."""
    return jax.grad(lambda r: jnp.sum(likelihood.log_phi(r)))(r)
