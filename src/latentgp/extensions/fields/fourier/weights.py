"""Weights of equispaced functions as inducing variables, of which posterior draws are paths."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.fields.fourier.frequencies import FrequencyGrid, prior_variances
from latentgp.representations.variables import InducingVariables
from latentgp.typing import Array, Inputs


class FourierWeights(InducingVariables):
    """White weights v ~ N(0, I) of the functions, f(x) = sum_j s_j^1/2 cas(w_j'(x - c)) v_j.

    What the frequencies leave open of f is no part of it.
    """

    spans_prior: ClassVar[bool] = True
    by_transform: ClassVar[bool] = True

    grid: FrequencyGrid

    @property
    def shape(self) -> tuple[int, int]:
        return self.grid.number, len(self.grid.most)

    @property
    def dtype(self) -> Any:
        return jnp.asarray(self.grid.spacing).dtype

    @property
    def places(self) -> Float[Array, "1 D"]:
        """The middle of the box: the functions have no places."""
        return 0.5 * (jnp.asarray(self.grid.lower) + self.grid.upper)[None]

    def covariance(self, kernel: Any) -> Float[Array, "1 M M"]:
        return jnp.eye(len(self))[None]

    def between(self, kernel: Any, others: FourierWeights) -> Float[Array, "1 M M"]:
        return self.covariance(kernel)

    def cross_covariance(self, kernel: Any, X: Inputs) -> Float[Array, "1 M N"]:
        roots = jnp.sqrt(prior_variances(kernel, self.grid))
        return (roots * self.grid.functions(X)).T[None]
