"""Sums over rows of fixed functions: all that Gaussian noise needs of the rows, made once."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from latentgp.errors import InputError, refuse
from latentgp.extensions.inter_domain import banded
from latentgp.extensions.inter_domain.banded_posterior import BandedPosterior
from latentgp.extensions.inter_domain.functions import FixedFunctions
from latentgp.extensions.inter_domain.operators import Banded
from latentgp.kernels import Kernel
from latentgp.kernels.terms import terms_of
from latentgp.likelihoods import Gaussian
from latentgp.means import ConstantMean, LinearMean, ZeroMean
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import cholesky
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.features import InducingFeatures
from latentgp.representations.inducing.natural_parameters import Statistics
from latentgp.representations.inducing.posterior import posterior_given
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.summary import RowsAsSums
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.runtime.x64 import double_precision, usual_settings
from latentgp.typing import Array, Inputs, PerRow, RandomKey, Scalar

_BLOCK = 1 << 15  # rows that are read at a time
_SAMPLE = 4_096


class RowSums(RowsAsSums):
    """Sums over rows of products of fixed functions, targets, ones and inputs.

    They hold all that a fit with Gaussian noise needs of the rows, whatever the hyper-parameters:
    give them to `fit` in place of data, as often as you like.

    Attributes:
        features: the kind of the functions.
        variables: the functions.
        sample: some of the rows, which count as all: for priors and diagnostics.
        products: sums of (phi, y, 1, x) (phi, y, 1, x)' over rows, y and x about their centre;
            where bands are kept, the rows behind those of phi alone.
        centre: of y, and of each input.
        layout: of the kernel that they are for.
        bands: lower diagonals of the sums of phi phi', of many splines of one column; else None.
    """

    features: InducingFeatures
    variables: FixedFunctions
    sample: Data
    products: Float[Array, "products size"]
    centre: Float[Array, "columns"]
    layout: Any = eqx.field(static=True)
    bands: Float[Array, "band M"] | None = None

    @property
    def representation(self) -> Inducing:
        return Inducing(features=self.features, variables=self.variables, sums=self)

    def check(self, model: LatentGP) -> None:
        """Raise InputError unless these are the sums that a model needs."""
        check_summable(model, self.sample)
        kernel: Any = model.kernel
        same = layout_of(model, self.variables.shape[1]) == self.layout
        sentences = {
            "These sums are for another kernel: hyper-parameters may differ, but other parts "
            "or columns need a new summarise(...).": not same,
            f"Sums of {len(self.variables)} splines cannot represent length-scales as long as "
            f"{kernel!r} has; summarise the rows anew for this model, which takes fewer.": (
                same and not self.variables.carries(kernel)
            ),
        }
        refuse(sentences)

    def evidence(self, model: LatentGP) -> Scalar:
        """The collapsed bound (Titsias 2009, eq. 9), in nats, with derivatives.

        O(M^3), or O(M) for many splines of one column, whose matrices are banded.

        Of the sum K + P of prior and data alone a factor is made; of K its structure gives the
        determinant and the trace.
        """
        terms = self._terms(model)
        operator = self.variables.operator(terms.kernel)
        if isinstance(operator, Banded) and self.bands is not None:
            of_weights = banded.half_worth(operator.bands + terms.products, terms.linear)
            left = 0.5 * (terms.loss - banded.solved_trace(operator.bands, terms.products))
            half = 0.5 * banded.log_determinant(operator.bands)
            value = of_weights + half - left + terms.constant
            return jnp.where(self.variables.carries(terms.kernel), value, jnp.nan)
        of_weights = _half_worth(operator.matrix() + terms.products, terms.linear)
        left = 0.5 * (terms.loss - operator.solved_trace(terms.products))
        return of_weights + 0.5 * operator.log_determinant() - left + terms.constant

    def posterior(self, model: LatentGP) -> tuple[LatentPosterior, Scalar]:
        """The posterior as rows give it, and its log evidence with the noise's constants."""
        terms = self._terms(model)
        operator = self.variables.operator(terms.kernel)
        if isinstance(operator, Banded) and self.bands is not None:
            own = operator.bands, terms.products, terms.linear, terms.loss
            found = BandedPosterior.of(terms.kernel, self.variables, *own)
            return found, found.log_evidence + terms.constant
        units = self.variables.units(terms.kernel)
        products = units[:, None] * terms.products * units
        statistics = Statistics(products[None], (units * terms.linear)[None], terms.loss[None])
        posterior = posterior_given(
            terms.kernel, self.variables, None, statistics, signed=False, covariance="full"
        )
        return posterior, posterior.log_evidence + terms.constant

    def _terms(self, model: LatentGP) -> "_Terms":
        kernel: Any = model.kernel
        size = len(self.variables)
        precision = 1 / model.likelihood.noise_variance  # pyright: ignore
        scales = self.variables.scales(kernel)
        residual = residual_of(model.mean, self.centre)
        others = self.products[len(self.products) - len(residual) :]
        corner, rest = others[:, :size].T, others[:, size:]
        weight, squares = rest[1, 1], residual @ rest @ residual
        variance = kernel.diagonal(jnp.asarray(self.variables.sample)[:1])[0]
        inner = self.bands
        if inner is None:
            inner = scales[:, None] * self.products[:size, :size] * scales
        return _Terms(
            kernel,
            precision * inner,
            precision * scales * (corner @ residual),
            precision * weight * variance,
            0.5 * weight * jnp.log(precision / (2 * jnp.pi)) - 0.5 * precision * squares,
        )


class _Terms(NamedTuple):
    """Sums at some hyper-parameters, as `Statistics`, and what does not depend on f, in nats.

    Products are (M, M), or their lower diagonals (band, M).
    """

    kernel: Kernel
    products: Float[Array, "_ M"]
    linear: Float[Array, "M"]
    loss: Scalar
    constant: Scalar


@double_precision
def summarise(
    model: LatentGP, data: Data | RowSource, features: InducingFeatures, *, key: RandomKey
) -> RowSums:
    """Sums over rows that replace them in fits with Gaussian noise: one pass.

    `fit(model, sums, key=key)` then costs O(M^3) an evaluation, whatever the number of rows, also
    under other priors or with other hyper-parameters held. Rows of a file are read twice, first for
    the ranges of the columns.

    Args:
        model: Gaussian noise, no or a linear prior mean, and a kernel with fixed functions. From
            the values of its hyper-parameters follow domains and numbers of functions.
        data: the rows, or a source such as `FileRows`.
        features: `BSplines`, of which a row touches few, so that sums are fast, `FourierFeatures`
            or `HilbertSpace`.
        key: random key.

    Raises:
        InputError: another likelihood or prior mean; features that depend on hyper-parameters.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 1000)
        >>> model, key = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian()), jax.random.key(0)
        >>> splines = lgp.inter_domain.BSplines(30)
        >>> sums = lgp.inter_domain.summarise(model, lgp.Data(X, np.sin(X)), splines, key=key)
        >>> result = lgp.fit(model, sums, key=key)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.01)
        True
    """
    source = data if isinstance(data, RowSource) else RowsInMemory(data)
    sample = source.sample(_SAMPLE)
    check_summable(model, sample)
    lower, upper = ranges_of(data)
    seen, weights = sample.X, sample.weights
    if np.any(lower < seen.min(axis=0)) or np.any(upper > seen.max(axis=0)):
        seen = np.concatenate([seen, lower[None], upper[None]])
        least = np.full(2, np.finfo(float).tiny)  # they are there for the range alone
        weights = np.append(np.ones(sample.size) if weights is None else weights, least)
    found = features.initialise(seen, weights, model.kernel, key)
    if not (isinstance(found, FixedFunctions) and found.are_fixed):
        raise InputError(
            f"{features!r} depends on hyper-parameters, so its sums over rows cannot be made "
            "once; use BSplines, FourierFeatures or HilbertSpace, or fit the rows themselves."
        )
    return sums_of(model, source, found, features)


def sums_of(
    model: LatentGP, source: RowSource, variables: FixedFunctions, features: InducingFeatures
) -> RowSums:
    """The sums over the rows of a source, for functions that are known."""
    variables, sample = variables.in_bands(), source.sample(_SAMPLE)
    centre = centre_of(sample)
    size, kernel = len(variables), model.kernel
    more, width = len(centre) + 1, variables.bandwidth
    bands = None if width is None else np.zeros((width + 1, size))
    products = np.zeros((more + size * (bands is None), size + more))
    for block in source.epoch((0,), min(_BLOCK, source.size)):
        others = columns_about(block, centre)
        if bands is None:
            products += _sums_of_block(variables, kernel, block, others)
        else:
            inner, behind = _sums_of_touched(variables, kernel, block, others)
            products += behind
            for shift, band in enumerate(bands):
                band[: size - shift] += inner.diagonal(-shift)
    layout, turn = layout_of(model, variables.shape[1]), variables.turn()
    if turn is not None:
        whole = np.asarray(block_diag(turn, np.eye(more)))
        products = whole.T @ products @ whole
    return RowSums(
        sample=sample,
        features=features,
        variables=variables,
        products=products,
        centre=centre,
        layout=layout,
        bands=bands,
    )


def check_summable(model: LatentGP, sample: Data) -> None:
    """Raise InputError unless sums over rows say all of a model's rows."""
    linear = isinstance(model.mean, ZeroMean | ConstantMean | LinearMean)
    sentences = {
        "Sums over rows stand for these with Gaussian noise of one variance; give the rows "
        "themselves, without side information for sums.": (
            type(model.likelihood) is not Gaussian or sample.side_information
        ),
        "Sums over rows take a constant or linear prior mean, but got "
        f"{type(model.mean).__name__}; give the rows themselves.": not linear,
    }
    refuse(sentences)


def is_summable(model: LatentGP, sample: Data) -> bool:
    """Whether `check_summable` finds nothing wrong."""
    try:
        check_summable(model, sample)
    except InputError:
        return False
    return True


def layout_of(model: LatentGP, columns: int) -> tuple[Any, ...]:
    """Kinds and columns of the parts of a model's kernel, without their hyper-parameters."""
    kernel: Any = model.kernel
    terms = terms_of(kernel, tuple(range(columns)))
    return tuple(tuple((type(p.kernel).__name__, p.columns) for p in t.parts) for t in terms)


def ranges_of(data: Data | RowSource) -> tuple[Float[np.ndarray, "D"], Float[np.ndarray, "D"]]:
    """Least and greatest value of every column; rows of a source are read."""
    if isinstance(data, Data):
        return data.X.min(axis=0), data.X.max(axis=0)
    lower, upper = np.inf, -np.inf
    for block in data.epoch((0,), min(_BLOCK, data.size)):
        lower = np.minimum(lower, np.min(block.X, axis=0))
        upper = np.maximum(upper, np.max(block.X, axis=0))
    return np.asarray(lower), np.asarray(upper)


def weights_of(rows: Data) -> PerRow:
    """Weights of rows, ones unless given."""
    return np.ones(rows.size) if rows.weights is None else np.asarray(rows.weights)


def centre_of(sample: Data) -> Float[np.ndarray, "others"]:
    """Means of y and of each input, about which sums keep their digits."""
    return np.average(np.column_stack([sample.y, sample.X]), axis=0, weights=weights_of(sample))


def columns_about(
    rows: Data, centre: Float[np.ndarray, "others"]
) -> Float[np.ndarray, "N columns"]:
    """(y, 1, x) of rows, y and x about their centre."""
    return np.insert(np.column_stack([rows.y, rows.X]) - centre, 1, 1.0, axis=1)


def residual_of(mean: Any, centre: Float[Array, "others"]) -> Float[Array, "columns"]:
    """Coefficients of those in y - m(x) = (y - y_0) + (y_0 - m(x_0)) 1 - slope'(x - x_0)."""
    intercept, slope = _as_linear(mean, len(centre) - 1)
    constant = centre[0] - intercept - slope @ centre[1:]
    return jnp.concatenate([jnp.ones(1), constant[None], -slope])


def _sums_of_block(
    variables: FixedFunctions, kernel: Any, block: Data, others: Float[np.ndarray, "N columns"]
) -> Float[np.ndarray, "size size"]:
    """Sums over a block; by products of sparse matrices where a row touches few functions."""
    found = _sums_of_touched(variables, kernel, block, others)
    if found is None:
        return np.asarray(_dense_sums(variables, kernel, block.X, others, weights_of(block)))
    inner, behind = found
    return np.concatenate([np.hstack([inner.toarray(), behind[:, : len(variables)].T]), behind])


def _sums_of_touched(
    variables: FixedFunctions, kernel: Any, block: Data, others: Float[np.ndarray, "N columns"]
) -> Any:
    """Sums of phi phi' as a sparse matrix, and the rows of sums behind; None where phi is dense."""
    from scipy.sparse import csr_array  # takes long to import

    found = _local(variables, kernel, block.X)
    if found is None:
        return None
    weights = weights_of(block)
    numbers, values = map(np.asarray, found)
    touched = numbers.shape[1]
    starts = np.arange(0, numbers.size + 1, touched)
    shape = (len(others), len(variables))
    phi, weighted = (
        csr_array((own.ravel(), numbers.ravel(), starts), shape=shape)
        for own in (values, values * weights[:, None])
    )
    corner = weighted.T @ others
    behind = np.hstack([corner.T, others.T @ (others * weights[:, None])])
    return phi.T @ weighted, behind


@Program
def _local(variables: FixedFunctions, kernel: Any, X: Inputs) -> Any:
    return variables.local(X, kernel)


@Program
def _dense_sums(
    variables: FixedFunctions,
    kernel: Any,
    X: Inputs,
    others: Float[Array, "N columns"],
    weights: PerRow,
) -> Float[Array, "size size"]:
    whole = jnp.concatenate([variables.functions(X, kernel), others.T])
    return (whole * weights) @ whole.T


def _as_linear(mean: Any, inputs: int) -> tuple[Scalar, Float[Array, "D"]]:
    """Intercept and slope of a prior mean."""
    none = jnp.zeros(inputs)
    if isinstance(mean, LinearMean):
        return jnp.asarray(mean.intercept), jnp.asarray(mean.slope)
    return (jnp.asarray(mean.value) if isinstance(mean, ConstantMean) else jnp.zeros(())), none


@jax.custom_vjp
def _half_worth(A: Float[Array, "M M"], b: Float[Array, "M"]) -> Scalar:
    """(b' A^-1 b - log|A|) / 2; its derivatives take the inverse that the factor comes with."""
    return _half_worth_forward(A, b)[0]


def _half_worth_forward(A: Any, b: Any) -> tuple[Any, Any]:
    factor = cholesky(A)
    half = factor.inverse @ b
    value = 0.5 * half @ half - factor.half_log_determinant
    return value, (factor, factor.inverse.T @ half)


@usual_settings()
def _half_worth_backward(residuals: Any, cotangent: Any) -> tuple[Any, Any]:
    factor, solved = residuals
    slope = -0.5 * (jnp.outer(solved, solved) + factor.inverse_of_product())
    return cotangent * slope, cotangent * solved


_half_worth.defvjp(_half_worth_forward, _half_worth_backward)
