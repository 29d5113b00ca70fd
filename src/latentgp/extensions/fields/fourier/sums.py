"""Sums over places of equispaced functions: all that Gaussian noise needs of the rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.fields.fourier.conditioned import (
    SolveSettings,
    WhiteWeights,
    white_weights,
)
from latentgp.extensions.fields.fourier.frequencies import (
    FrequencyGrid,
    prior_variances,
    variance_left_open,
)
from latentgp.extensions.fields.fourier.posterior import FourierPosterior
from latentgp.extensions.fields.fourier.toeplitz import ToeplitzGram
from latentgp.extensions.inter_domain.sums import (
    centre_of,
    check_summable,
    columns_about,
    residual_of,
    weights_of,
)
from latentgp.models import LatentGP
from latentgp.representations.base import LatentPosterior
from latentgp.representations.summary import RowsAsSums
from latentgp.rows import RowSource
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.typing import Array, Inputs, PerRow, Scalar

_BLOCK = 1 << 20  # rows that are read at a time
_SAMPLE = 4_096
# What frequencies leave open counts as noise, up to a share of it: were all of it to, the evidence
# would be highest by few frequencies, with a prior variance whose remainder is the noise.
MOST_OF_NOISE = 0.25


class PlaceSums(RowsAsSums):
    """Sums over rows of the functions, of their products, and of targets: N is in none of them.

    Give them to `fit` in place of data, as often as you like.

    Attributes:
        functions: the representation, without the sums.
        sample: some of the rows, which count as all: for priors and diagnostics.
        products: sums of w phi phi' over rows, as sums at doubled frequencies.
        linear: sums of w phi (y, 1, x), y and x about their centre.
        squares: sums of w (y, 1, x)(y, 1, x)'.
        centre: of y, and of each input.
    """

    functions: Any
    sample: Data
    products: Float[Array, "doubled"]
    linear: Float[Array, "M columns"]
    squares: Float[Array, "columns columns"]
    centre: Float[Array, "others"]

    @property
    def representation(self) -> Any:
        return dataclasses.replace(self.functions, sums=self)

    def check(self, model: LatentGP) -> None:
        """Raise InputError unless these are the sums that a model needs."""
        check_summable(model, self.sample)
        self.functions.check_kernel(model.kernel, self.sample.X.shape[1])

    def evidence(self, model: LatentGP) -> Scalar:
        """Log evidence, in nats, an estimate by probe vectors, with derivatives by the same."""
        terms = self._terms(model)
        gram = ToeplitzGram(self.functions.grid, self.products)
        return _evidence(terms, gram, self.functions.settings.loose())

    def posterior(self, model: LatentGP) -> tuple[LatentPosterior, Scalar]:
        """The posterior as rows give it, and its log evidence with the noise's constants."""
        terms, settings = self._terms(model), self.functions.settings
        gram = ToeplitzGram(self.functions.grid, self.products)
        system, near = settings.system(gram, terms.variances / terms.noise)
        found = white_weights(settings, system, near, terms.right)
        solver = system, near
        posterior = FourierPosterior.of(
            self.functions, model.kernel, solver, terms.variances, terms.noise, found
        )
        return posterior, terms.value(found)

    def _terms(self, model: LatentGP) -> "_EvidenceTerms":
        kernel: Any = model.kernel
        variances = prior_variances(kernel, self.functions.grid)
        left_open = variance_left_open(kernel, self.functions.grid, variances)
        noise = model.likelihood.noise_variance  # pyright: ignore
        noise = noise + jnp.minimum(left_open, MOST_OF_NOISE * noise)
        residual = residual_of(model.mean, self.centre)
        right = jnp.sqrt(variances) * (self.linear @ residual) / noise
        return _EvidenceTerms(
            variances, noise, right, residual @ self.squares @ residual, self.squares[1, 1]
        )


class _EvidenceTerms(NamedTuple):
    """What the evidence is of, at some hyper-parameters."""

    variances: PerRow  # of the weights
    noise: Scalar  # variance, with what the frequencies leave open
    right: PerRow  # b = S Phi' r / noise, S the roots of the variances
    square: Scalar  # sum of the squared residuals r of the prior mean
    weight: Scalar  # number of rows

    def value(self, found: WhiteWeights) -> Scalar:
        """Log evidence, in nats."""
        outer = self.weight * jnp.log(2 * jnp.pi * self.noise) + self.square / self.noise
        return found.gain - 0.5 * (found.log_determinant.value + outer)


@jax.custom_vjp
def _evidence(terms: _EvidenceTerms, gram: ToeplitzGram, settings: SolveSettings) -> Scalar:
    return _evidence_forward(terms, gram, settings)[0]


def _evidence_forward(terms: _EvidenceTerms, gram: ToeplitzGram, settings: SolveSettings) -> Any:
    system, near = settings.system(gram, terms.variances / terms.noise)
    found = white_weights(settings, system, near, terms.right)
    failed = jnp.any(found.solution.relative_residual[:1] > 1e3 * settings.tolerance)
    value = jnp.where(failed, jnp.nan, terms.value(found))
    return value, (terms, found.mean, found.inverse_diagonal)


def _evidence_backward(residuals: Any, cotangent: Scalar) -> Any:
    """With v = B^-1 b, in log s_j: (v_j^2 + [B^-1]_jj - 1) / 2, b held apart.

    b holds a root of s_j and 1 / noise itself; its own share v_j b_j comes back through it.
    """
    terms, v, diagonal = residuals
    b, noise = terms.right, terms.noise
    in_log = 0.5 * (v * v + diagonal - 1) - 0.5 * v * b
    s = jnp.where(terms.variances > 0, terms.variances, 1.0)
    # B = I + S T S / noise: minus the sum of derivatives in log s is that in log noise
    in_noise = -jnp.sum(in_log) / noise
    in_noise = in_noise + 0.5 * (terms.square / noise - terms.weight) / noise
    slope = _EvidenceTerms(in_log / s, in_noise, v, -0.5 / noise, jnp.zeros_like(terms.weight))
    return jax.tree.map(lambda a: cotangent * a, slope), None, None


_evidence.defvjp(_evidence_forward, _evidence_backward)


def sums_of(representation: Any, source: RowSource) -> PlaceSums:
    """Sums over the rows of a source, in one pass."""
    sample = source.sample(_SAMPLE)
    centre = centre_of(sample)
    products, linear, squares = 0.0, 0.0, 0.0
    grid, rows = representation.grid, min(_BLOCK, source.size)
    for block in source.epoch((0,), rows):
        counts, columns = weights_of(block), columns_about(block, centre)
        found = _of_block(grid, np.asarray(block.X), counts, columns)
        products, linear = products + found[0], linear + found[1]
        squares = squares + (columns * counts[:, None]).T @ columns
    return PlaceSums(
        functions=dataclasses.replace(representation, sums=None),
        sample=sample,
        products=products,
        linear=linear,
        squares=squares,
        centre=centre,
    )


@Program
def _of_block(
    grid: FrequencyGrid, X: Inputs, weights: PerRow, columns: Float[Array, "N columns"]
) -> tuple[Float[Array, "doubled"], Float[Array, "M columns"]]:
    of_ones = grid.doubled().sums(X, weights[:, None])[:, 0]
    return of_ones, grid.sums(X, columns * weights[:, None])
