"""Derivatives of the bound in a model's hyper-parameters with the sites held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import AnyMarginals
from latentgp.models import LatentGP
from latentgp.numerics.quadrature import training_nodes
from latentgp.runtime.row_scan import scan_rows
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.sites.coupled import Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, Scalar


def slope_of_sites(
    algorithm: SiteInference, model: LatentGP, rows: tuple[Rows, AnyMarginals, Sites]
) -> LatentGP:
    """Derivative of the rows' terms in a model, sites and marginals of f held fixed.

    Rows come with the marginals of f, and the sites that these contain.
    """

    def terms(model: LatentGP, rows: Any) -> Float[Array, "B"]:
        rows, marginals, sites = rows
        return algorithm.new_sites(model, rows, marginals, sites).expected(marginals)

    return slope_of_rows(terms, model, rows)


def with_kernel(in_model: LatentGP, through_kernel: Any) -> LatentGP:
    """Derivative in a model, with the part through the kernel added."""
    in_kernel = jax.tree.map(jnp.add, in_model.kernel, through_kernel)
    return eqx.tree_at(lambda m: m.kernel, in_model, in_kernel)


def slope_of_rows(
    terms: Callable[[LatentGP, Any], Float[Array, "B"]], model: LatentGP, rows: Any
) -> LatentGP:
    """The derivative in a model of the sum over rows of terms of theirs."""

    def add_rows(in_model: LatentGP, rows: Any, real: Bool[Array, "B"]) -> tuple[LatentGP, None]:
        def total(model: LatentGP) -> Scalar:
            return jnp.sum(jnp.where(real, terms(model, rows), 0.0))

        return jax.tree.map(jnp.add, in_model, jax.grad(total)(model)), None

    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), model)
    numbers = training_nodes(model.likelihood.latent_size)[0].size
    return scan_rows(add_rows, nothing, rows, columns=numbers)[0]
