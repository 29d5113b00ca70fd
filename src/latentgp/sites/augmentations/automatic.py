"""Automatic augmentation: from the function phi of a scale mixture, everything else.

Galy-Fajou, Wenzel & Opper (2020): expected sites by differentiating log phi, draws of the
auxiliary variable from the law that phi is the Laplace transform of.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.likelihoods.scale_mixture import (
    CompletelyMonotone,
    Form,
    ScaleMixture,
    log_phi_slope,
    squared_norm,
)
from latentgp.runtime.x64 import double_precision
from latentgp.sites.augmentations.base import Augmentation, augmentation_of
from latentgp.sites.gaussian import Block, GaussianSites
from latentgp.typing import PerRow, RandomKey, RowLatents

_RADII = np.logspace(-4, 4, 49)
_ORDERS = 8
_POINTS = 64
_REACH = 0.8  # of the distance to the imaginary axis
_ROUNDING = 1e-11


class Automatic(Augmentation[ScaleMixture]):
    """p(y | f) = C exp(g f) E exp(-w ||h||^2), w of the law whose Laplace transform is phi.

    Given w the site has linear = g + w beta and precision = 2 w gamma (2020, eq. 11). Its law
    given f is tilted by ||h||^2; the optimal one is tilted by E ||h||^2, with mean
    -(log phi)' there (2020, algorithm 1).
    """

    def fits(self, likelihood: Likelihood) -> bool:
        return isinstance(likelihood, ScaleMixture)

    def expected_sites(self, marginals: Marginals) -> GaussianSites:
        mean, variance = marginals
        form = self._form()
        tilt = squared_norm(form, mean[:, 0]) + form.gamma * variance[:, 0]
        sites = _sites_given(form, -log_phi_slope(self.likelihood, tilt))
        value = form.log_constant + form.linear * mean[:, 0] + self.likelihood.log_phi(tilt)
        return sites._replace(log_constant=value).worth(marginals)

    def draw(self, f: RowLatents, key: RandomKey, block: Block) -> PyTree:
        return self.law(f).sample(key)

    def conditional_sites(self, auxiliary: PyTree, f: RowLatents, block: Block) -> GaussianSites:
        return _sites_given(self._form(), auxiliary)

    def log_conditional(self, auxiliary: PyTree, f: RowLatents, block: Block) -> PerRow:
        tilt = squared_norm(self._form(), f[:, 0])
        return -tilt * auxiliary - self.likelihood.log_phi(tilt)

    def law(self, f: RowLatents) -> Distribution:
        """P(w | y, f), N laws."""
        return self.likelihood.auxiliary_law(squared_norm(self._form(), f[:, 0]))

    def _form(self) -> Form:
        """The form of every row, fields of shape (N,)."""
        form = jax.vmap(self.likelihood.form)(self.rows.y, dict(self.rows.side))
        return Form(*(jnp.broadcast_to(field, self.rows.y.shape) for field in form))


augmentation_of.register(ScaleMixture, lambda likelihood: Automatic())


def _sites_given(form: Form, w: PerRow) -> GaussianSites:
    return GaussianSites(
        (form.linear + w * form.beta)[:, None],
        (2 * w * form.gamma)[:, None],
        form.log_constant - w * form.alpha,
    )


@double_precision
def check_completely_monotone(likelihood: CompletelyMonotone) -> None:
    """Check numerically that phi(0) = 1 and that its derivatives alternate in sign.

    Derivatives of order 0 to 8 at 49 radii between 1e-4 and 1e4, each from the values on a
    circle (Cauchy's formula). A function that passes may still fail elsewhere; one that fails
    is no Laplace transform of a law, and sites made of it would be no bound.

    Raises:
        InputError: a condition fails; the message names it, and where.

    Example:
        >>> from latentgp import StudentT
        >>> check_completely_monotone(StudentT())
    """
    name = type(likelihood).__name__
    at_zero = float(likelihood.log_phi(jnp.zeros(())))
    if not abs(at_zero) <= 1e-8:
        raise InputError(
            f"{name}.log_phi(0) is {at_zero:.3g} where phi(0) = 1 is needed, so 0; move the "
            "factor into form(...).log_constant."
        )
    # Circles short of the imaginary axis, on which phi varies by a factor that doubles resolve.
    decay = np.abs(np.asarray(log_phi_slope(likelihood, jnp.asarray(_RADII)))) * _RADII
    angles = 2j * np.pi * np.arange(_POINTS) / _POINTS
    circle = _RADII[:, None] * (1 + (_REACH / (1 + decay))[:, None] * np.exp(angles))
    try:
        relative = np.asarray(likelihood.log_phi(jnp.asarray(circle)))
    except TypeError:  # a function of JAX's that takes real arrays only
        relative = np.full(circle.shape, np.nan)
    relative = np.exp(relative - np.asarray(likelihood.log_phi(jnp.asarray(_RADII)))[:, None])
    if not np.all(np.isfinite(relative)):
        raise InputError(
            f"{name}.log_phi is not finite for complex arguments with a positive real part, which "
            "the auxiliary variable's law needs; write it with functions that take complex arrays."
        )
    # Coefficient k of the Taylor series, times a power of -radius: positive if it is.
    coefficients = np.fft.fft(relative, axis=1)[:, : _ORDERS + 1] / _POINTS
    signed = coefficients.real * (-1.0) ** np.arange(_ORDERS + 1)
    noise = _ROUNDING * np.max(np.abs(relative), axis=1, keepdims=True)
    wrong = (signed < -noise) | (np.abs(coefficients.imag) > noise)
    if wrong.any():
        radius, order = np.argwhere(wrong)[0]
        raise InputError(
            f"{name}.log_phi is not that of a completely monotone function: derivative {order} of "
            f"phi has the wrong sign at r = {_RADII[radius]:.3g}, so it is no Laplace transform of "
            "a law and this likelihood has no such augmentation; use VariationalInference."
        )
