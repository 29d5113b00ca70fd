# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Inducing variables of functions that are fixed before anything is learned."""

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import block_diag

from latentgp.errors import lacks
from latentgp.extensions.inter_domain.operators import BlockDiagonal, Diagonal, Kronecker, Operator
from latentgp.kernels import Kernel, LatentKernel
from latentgp.kernels.parts import PartsOfEach, PartsOfKernel, as_wholes, parts_of
from latentgp.kernels.per_latent import kernel_groups, of_kernel_groups
from latentgp.kernels.terms import Part, Term, terms_of
from latentgp.modules import stored
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.representations.variables import InducingVariables
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, Inputs, Scalar

_TWICE, _NOTHING = 2.0, 1e-7  # shares of it


class InterDomainVariables(InducingVariables):
    """Inducing variables of an `InterDomain` kind."""

    # some of the rows, where the variance that is left open is looked at
    sample: eqx.AbstractVar[Float[Array, "places D"]]
    words: eqx.AbstractVar[str]  # what they are of, such as "B-splines"

    @property
    def dtype(self) -> Any:
        return self.sample.dtype

    @property
    def places(self) -> Float[Array, "places D"]:
        return self.sample

    @property
    def are_fixed(self) -> bool:
        """Whether they are `FixedFunctions`, so that sums over rows can be made once for all."""
        return False

    def between(self, kernel: LatentKernel, others: Any) -> Float[Array, "#Q M M"]:
        lacks(
            self,
            "no inputs, so it takes neither streams nor learn_points; use Inducing(number=...), or "
            "the sums of all rows (summarise)",
        )

    @double_precision
    def left_open(self, kernel: LatentKernel) -> Float[np.ndarray, "#Q places"]:
        """Shares of the prior variance that are left open at the sample."""
        places = jnp.asarray(self.sample)
        blocks, prior = self.cross_covariance(kernel, places), latent_diagonals(kernel, places)
        return np.asarray(vmap_latents(_shares_left, self.covariance(kernel), blocks, prior))

    def notes(self, kernel: LatentKernel) -> tuple[str, ...]:
        return (self.note_of(self.left_open(kernel)),)

    def note_of(self, left: Any) -> str:
        """Note on the shares of the prior variance left open at the sample."""
        return (
            f"{self.shape[0]} inducing variables of {self.words} leave open {np.mean(left):.2g} of "
            f"the prior variance (mean of {len(self.sample)} rows; at most {np.max(left):.2g})."
        )


class Basis(eqx.Module):
    """Functions of some columns that stand for one part of a kernel."""

    # whether the variables are standard normal and `scales` hold the hyper-parameters; else these
    # are in `operator`
    is_white: ClassVar[bool] = False
    # whether `fixed` is there: no hyper-parameter is in the functions
    has_fixed_functions: ClassVar[bool] = True

    @property
    @abstractmethod
    def number(self) -> int:
        """Number of functions."""

    @property
    def bandwidth(self) -> int | None:
        """Most by which numbers of functions differ that are not zero together; None for any."""
        return None

    @property
    def domain(self) -> tuple[float, float]:
        """Ends of the interval of functions of one column; none unless overridden."""
        return -np.inf, np.inf

    @property
    def turn(self) -> Float[np.ndarray, "M M"] | None:
        """Coefficients of the functions, a column each, in those that `local` gives, if others."""
        return None

    def in_bands(self) -> "Basis":
        """The same with a `bandwidth`, where it has one and that pays."""
        return self

    def carries(self, kernel: Kernel) -> Bool[Array, ""]:
        """Whether doubles carry the algebra of the functions at a kernel's hyper-parameters."""
        return jnp.ones((), bool)

    def serves_as(self, other: "Basis", kernel: Kernel, x: Inputs) -> bool:
        """Whether it does as well as another one for a kernel at rows, and for a smoother kernel.

        Unless overridden, it is the same, or leaves at most twice as much open.
        """
        if self == other:
            return True
        longer = 2.0 * np.asarray(getattr(kernel, "lengthscale", 1.0))
        kernels = kernel, at_lengthscale(kernel, longer)
        own, others = (sum(b.left_open(k, x) for k in kernels) for b in (self, other))
        return own <= max(_TWICE * others, _NOTHING)

    @double_precision
    def left_open(self, kernel: Kernel, x: Inputs) -> float:
        """Mean share of the prior variance at rows that the functions leave open."""
        values, prior = self.values(kernel, jnp.asarray(x)), kernel.diagonal(jnp.asarray(x))
        if self.is_white:
            half = values * self.scales(kernel)[:, None]
            return float(jnp.mean(1 - jnp.sum(half**2, axis=0) / prior))
        K = self.operator(kernel).matrix()
        norms = jnp.sqrt(jnp.diagonal(K))
        left = _shares_left(K / norms / norms[:, None], values / norms[:, None], prior)
        return float(jnp.mean(left))

    def fixed(self, x: Inputs) -> Float[Array, "M N"]:
        """The functions at rows inside the domain, whatever the hyper-parameters.

        Overridden unless not `has_fixed_functions`.
        """
        lacks(self, "no sums over rows for all hyper-parameters; fit the rows themselves")

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        """The same at rows anywhere, where a kernel says how they go on; without `scales`."""
        return self.fixed(x)

    def local(self, x: Inputs) -> tuple[Int[Array, "N band"], Float[Array, "N band"]] | None:
        """Numbers and values of the functions that are not zero; None where most are not."""
        return None

    def operator(self, kernel: Kernel) -> Operator:
        """K_uu of the part."""
        return Diagonal(jnp.ones(self.number))

    def scales(self, kernel: Kernel) -> Float[Array, "M"]:
        """Factors of the functions."""
        return jnp.ones(self.number)


Pairs = list[tuple[Part, Basis]]  # of a term


@stored
class FixedFunctions(InterDomainVariables):
    """Variables of functions that do not depend on hyper-parameters, K_uf = scales * functions."""

    sample: Float[Array, "places D"]  # some of the rows
    # of each part of each term of each group of kernels
    bases: tuple[tuple[tuple[Basis, ...], ...], ...]
    # M, of variables of a latent function; those that a kernel lacks are zero
    number: int = eqx.field(static=True)
    words: str = eqx.field(static=True)  # what the functions are

    @property
    def shape(self) -> tuple[int, int]:
        return self.number, self.sample.shape[1]

    @property
    def are_fixed(self) -> bool:
        every = [basis for terms in self.bases for own in terms for basis in own]
        return len(self.bases) == 1 and all(basis.has_fixed_functions for basis in every)

    def operator(self, kernel: Kernel, group: int = 0) -> Operator:
        """K_uu of a kernel of a group, without filling up."""
        blocks = [_operator(*own) for own in self._with_terms(kernel, group)]
        return blocks[0] if len(blocks) == 1 else BlockDiagonal(tuple(blocks))

    @property
    def bandwidth(self) -> int | None:
        """Bandwidth of K_uu and of sums over rows, for a single basis, such as splines."""
        match self.bases:
            case (((basis,),),):
                return basis.bandwidth

    def in_bands(self) -> "FixedFunctions":
        """The same with a `bandwidth`, where it has one and that pays."""
        match self.bases:
            case (((basis,),),):
                return dataclasses.replace(self, bases=(((basis.in_bands(),),),))
        return self

    def turn(self) -> Float[np.ndarray, "M M"] | None:
        """Coefficients of the functions in those that `local` gives; None if they are these."""
        if all(basis.turn is None for own in self.bases[0] for basis in own):
            return None

        def block(own: tuple[Basis, ...]) -> Float[np.ndarray, "_ _"]:
            each = [np.eye(b.number) if b.turn is None else b.turn for b in own]
            return reduce(np.kron, each, np.ones((1, 1)))

        return np.asarray(block_diag(*map(block, self.bases[0])))

    def carries(self, kernel: Kernel) -> Bool[Array, ""]:
        """Whether doubles carry the algebra of the functions at a kernel's hyper-parameters."""
        found = jnp.ones((), bool)
        for _, pairs in self._with_terms(kernel):
            for part, basis in pairs:
                found &= basis.carries(part.kernel)
        return found

    def serve_as(self, others: "FixedFunctions", kernel: LatentKernel) -> bool:
        """Whether they do as well as others that were made for a kernel."""
        return all(
            one.serves_as(other, part.kernel, np.asarray(_of(part, others.sample)))
            for group, own, new in zip(groups_of(kernel), self.bases, others.bases, strict=True)
            for term, ones, news in zip(self._terms(group), own, new, strict=True)
            for part, one, other in zip(term.parts, ones, news, strict=True)
        )

    def clipped(self, X: Inputs, kernel: Kernel) -> Inputs:
        """Rows moved into the domain of the only basis."""
        (term,), basis = self._terms(kernel), self.bases[0][0][0]
        (column,) = term.parts[0].columns
        return X.at[:, column].set(jnp.clip(X[:, column], *basis.domain))

    def scales(self, kernel: Kernel, group: int = 0) -> Float[Array, "_"]:
        """Factors of the functions of a kernel of a group."""
        return jnp.concatenate([_scales(*own) for own in self._with_terms(kernel, group)])

    def functions(self, X: Inputs, kernel: Kernel) -> Float[Array, "_ N"]:
        """The functions at rows inside the domain; of the kernel its structure alone matters."""
        blocks = [
            times_columns([basis.fixed(_of(part, X)) for part, basis in pairs], len(X))
            for _, pairs in self._with_terms(kernel)
        ]
        return jnp.concatenate(blocks).astype(X.dtype)

    def local(
        self, X: Inputs, kernel: Kernel
    ) -> tuple[Int[Array, "N band"], Float[Array, "N band"]] | None:
        """Numbers and values of the functions that are not zero at rows; None if most are not."""
        start, numbers, values = 0, [], []
        for _, pairs in self._with_terms(kernel):
            number, value = jnp.zeros((len(X), 1), int), jnp.ones((len(X), 1))
            for part, basis in pairs:
                found = basis.local(_of(part, X))
                if found is None:
                    return None
                number = number[:, :, None] * basis.number + found[0][:, None, :]
                value = value[:, :, None] * found[1][:, None, :]
                number, value = (a.reshape(len(X), -1) for a in (number, value))
            numbers.append(start + number)
            values.append(value)
            start += prod(basis.number for _, basis in pairs)
        return jnp.concatenate(numbers, axis=1), jnp.concatenate(values, axis=1)

    def covariance(self, kernel: LatentKernel) -> Float[Array, "#Q M M"]:
        def of_group(kernel: Kernel, group: int) -> Float[Array, "M M"]:
            units, size = self.units(kernel, group), self._size(kernel)
            own = units[:, None] * self.operator(kernel, group).matrix() * units
            more = self.number - len(own)
            filled = jnp.pad(own.astype(self.dtype), ((0, more), (0, more)))
            return filled + jnp.diag(jnp.where(jnp.arange(self.number) >= len(own), size, 0.0))

        return of_kernel_groups(kernel, of_group)

    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q M N"]:
        return of_kernel_groups(
            kernel, lambda own, group: self._filled(self.blocks(own, group, X), own, group)
        )

    def units(self, kernel: Kernel, group: int = 0) -> Float[Array, "_"]:
        """Factors that give each variable of a group the prior variance of f.

        Inner products of functions differ by many orders of magnitude. In these units jitter is
        what it is of values at points: a share of the prior variance, the same for every variable.
        """
        return jnp.sqrt(self._size(kernel) / self.operator(kernel, group).diagonal())

    def _size(self, kernel: Kernel) -> Scalar:
        return jnp.mean(kernel.diagonal(jnp.asarray(self.sample)))

    def blocks(self, kernel: Kernel, group: int, X: Inputs) -> list[Float[Array, "_ N"]]:
        """K_mn of a kernel of a group, term by term."""
        return [
            times_columns([b.values(part.kernel, _of(part, X)) for part, b in pairs], len(X))
            * _scales(term, pairs)[:, None]
            for term, pairs in self._with_terms(kernel, group)
        ]

    def cross_covariance_of_parts(
        self, kernel: LatentKernel, X: Inputs, shares: Float[Array, "N parts"]
    ) -> Float[Array, "#Q M N"]:
        """Covariances with sums of the kernel's parts, each times its share of a row."""

        def of_group(kernel: Kernel, group: int) -> Float[Array, "M N"]:
            each = [len(self._terms(part)) for part in parts_of(kernel)]
            parts = np.repeat(np.arange(len(each)), each)
            blocks = zip(self.blocks(kernel, group, X), parts, strict=True)
            return self._filled([shares[:, part] * b for b, part in blocks], kernel, group)

        return of_kernel_groups(kernel, of_group)

    def telling_parts(self, number: int) -> "FunctionsOfParts":
        return FunctionsOfParts(self, number)

    def _filled(
        self, blocks: list[Float[Array, "_ N"]], kernel: Kernel, group: int
    ) -> Float[Array, "M N"]:
        values = jnp.concatenate(blocks) * self.units(kernel, group)[:, None]
        values = values.astype(self.dtype)
        return jnp.pad(values, ((0, self.number - len(values)), (0, 0)))

    def _terms(self, kernel: Kernel) -> tuple[Term, ...]:
        return terms_of(kernel, tuple(range(self.sample.shape[1])))

    def _with_terms(self, kernel: Kernel, group: int = 0) -> list[tuple[Term, Pairs]]:
        """Terms of a kernel of a group, and their parts with their bases."""
        terms = zip(self._terms(kernel), self.bases[group], strict=True)
        return [(term, list(zip(term.parts, own, strict=True))) for term, own in terms]


@stored
class FunctionsOfParts(InducingVariables):
    """`FixedFunctions` of rows whose last columns are shares of the kernel's parts."""

    functions: FixedFunctions  # those of rows without shares
    number: int = eqx.field(static=True)  # of parts

    @property
    def shape(self) -> tuple[int, int]:
        own = self.functions.shape
        return own[0], own[1] + self.number

    @property
    def dtype(self) -> Any:
        return self.functions.dtype

    @property
    def places(self) -> Float[Array, "places D"]:
        return as_wholes(jnp.asarray(self.functions.places), self.number)

    def covariance(self, kernel: LatentKernel) -> Float[Array, "#Q M M"]:
        return self.functions.covariance(_whole_of(kernel))

    def between(self, kernel: LatentKernel, others: Any) -> Float[Array, "#Q M M"]:
        return self.functions.between(_whole_of(kernel), others)

    def cross_covariance(self, kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q M N"]:
        rows, shares = X[:, : -self.number], X[:, -self.number :]
        return self.functions.cross_covariance_of_parts(_whole_of(kernel), rows, shares)


def at_lengthscale(kernel: Any, lengthscale: Any) -> Any:
    """A kernel at other length-scales, if it has any."""
    if not hasattr(kernel, "lengthscale"):
        return kernel
    return eqx.tree_at(lambda k: k.lengthscale, kernel, lengthscale)


@jax.jit
def _shares_left(
    K: Float[Array, "M M"], blocks: Float[Array, "M places"], prior: Float[Array, "places"]
) -> Float[Array, "places"]:
    """Shares of the prior variance that variables with this covariance leave open."""
    return 1 - jnp.sum((jittered_cholesky(K).factor.inverse @ blocks) ** 2, axis=0) / prior


def groups_of(kernel: LatentKernel) -> list[Kernel]:
    """One kernel of each structure: of the shortest length-scales, so that one basis is enough."""
    latents = 1 if isinstance(kernel, Kernel) else len(kernel.each)
    return [
        jax.tree.map(lambda leaf: np.min(leaf, axis=0), group.kernels)
        for group in kernel_groups(kernel, latents)
    ]


def _of(part: Part, X: Inputs) -> Float[Array, "N columns"]:
    return X[:, np.array(part.columns)]


def _is_white(pairs: Pairs) -> bool:
    return bool(pairs) and all(basis.is_white for _, basis in pairs)


def _operator(term: Term, pairs: Pairs) -> Operator:
    if _is_white(pairs):
        return Diagonal(jnp.ones(prod(basis.number for _, basis in pairs)))
    operators = tuple(basis.operator(part.kernel) for part, basis in pairs)
    if not operators:  # a constant function
        return Diagonal(1 / jnp.reshape(term.scale, 1))
    whole = operators[0] if len(operators) == 1 else Kronecker(operators)
    return whole.over(term.scale)


def _scales(term: Term, pairs: Pairs) -> Float[Array, "M"]:
    if not _is_white(pairs):
        return jnp.ones(prod(basis.number for _, basis in pairs))
    own = [basis.scales(part.kernel)[:, None] for part, basis in pairs]
    return jnp.sqrt(term.scale) * times_columns(own, 1)[:, 0]


def times_columns(parts: Sequence[Float[Array, "_ N"]], rows: int) -> Float[Array, "M N"]:
    """Products of each function of one part with each of the others, at every row."""
    product = jnp.ones((1, rows))
    for part in parts:
        product = (product[:, None, :] * part[None, :, :]).reshape(-1, rows)
    return product


def _whole_of(kernel: LatentKernel) -> LatentKernel:
    """The kernel whose parts another one tells apart."""
    assert isinstance(kernel, PartsOfKernel | PartsOfEach)
    return kernel.kernel
