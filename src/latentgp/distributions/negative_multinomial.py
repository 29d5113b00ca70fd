"""The negative multinomial distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from latentgp.distributions.base import Law, as_floats
from latentgp.distributions.gamma import sample_gamma
from latentgp.distributions.poisson import sample_poisson
from latentgp.typing import Array, Draws, RandomKey


class _PartsOfLessThanOne(constraints.ParameterFreeConstraint):
    """Vectors without a negative entry whose sum is below one."""

    event_dim = 1

    def __call__(self, x: Float[Array, "*S K"]) -> Bool[Array, "*S"]:
        return jnp.all(x >= 0, axis=-1) & (jnp.sum(x, axis=-1) < 1)

    def feasible_like(self, prototype: Float[Array, "*S K"]) -> Float[Array, "*S K"]:
        return jnp.full_like(prototype, 1 / (1 + prototype.shape[-1]))


class NegativeMultinomial(Law):
    """Counts x_1..x_K of K kinds of trial until x0 of the kind 0, of probability p0 = 1 - sum p.

    Probability Gamma(x0 + sum x) / Gamma(x0) p0^x0 prod_j p_j^x_j / x_j!. Draws are
    floating-point numbers.

    Args:
        x0: any real number > 0, without a unit.
        p: probabilities of the K kinds on the last axis; their sum is below one.

    Example:
        >>> NegativeMultinomial(2.0, jnp.array([0.25, 0.25])).mean
        Array([1., 1.], dtype=float32)
    """

    arg_constraints: dict[str, Any] = {  # noqa: RUF012
        "x0": constraints.positive,
        "p": _PartsOfLessThanOne(),
    }
    _support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, x0: ArrayLike, p: ArrayLike, *, validate_args: bool | None = None) -> None:
        number, self.p = as_floats(jnp.asarray(x0)[..., None], p)
        self.x0 = number[..., 0]
        super().__init__(self.x0.shape, self.p.shape[-1:], validate_args=validate_args)

    def sample(self, key: RandomKey | None, sample_shape: tuple[int, ...] = ()) -> Draws:
        shape = self.shape(sample_shape)
        x0, p = jnp.broadcast_to(self.x0, shape[:-1]), jnp.broadcast_to(self.p, shape)
        return sample_negative_multinomial(key, x0, p)

    def log_density(self, value: Float[Array, "*S K"]) -> Float[Array, "*S"]:
        total = jnp.sum(value, axis=-1)
        ways = gammaln(self.x0 + total) - gammaln(self.x0) - jnp.sum(gammaln(value + 1), axis=-1)
        return ways + self.x0 * jnp.log(self._rest) + jnp.sum(xlogy(value, self.p), axis=-1)

    def log_laplace_transform(self, t: Float[Array, "*#S K"]) -> Float[Array, "*S"]:
        growth = jnp.sum(self.p * -jnp.expm1(-t), axis=-1)
        return -self.x0 * jnp.log1p(growth / self._rest)

    @property
    def mean(self) -> Float[Array, "*S K"]:
        return self.x0[..., None] * self._odds

    @property
    def variance(self) -> Float[Array, "*S K"]:
        return self.mean * (1 + self._odds)

    @property
    def _rest(self) -> Float[Array, "*S"]:
        return 1 - jnp.sum(self.p, axis=-1)

    @property
    def _odds(self) -> Float[Array, "*S K"]:
        return self.p / self._rest[..., None]


@jax.jit
def sample_negative_multinomial(
    key: RandomKey,
    x0: Float[Array, "*S"],
    p: Float[Array, "*S K"],
    p0: Float[Array, "*S"] | None = None,
) -> Float[Array, "*S K"]:
    """Draws of the counts: Poisson of rates lambda p_j, given lambda ~ Ga(x0, rate p0).

    Args:
        key: the random key.
        x0: the number of trials of kind 0.
        p: the probabilities of the other kinds.
        p0: that of kind 0, where it is known better than as 1 - sum p.

    Example:
        >>> sample_negative_multinomial(jax.random.key(0), jnp.ones(3), jnp.full((3, 2), 0.2)).shape
        (3, 2)
    """
    p0 = 1 - jnp.sum(p, axis=-1) if p0 is None else p0
    key_rate, key_counts = jax.random.split(key)
    rate = sample_gamma(key_rate, x0) / p0
    return sample_poisson(key_counts, rate[..., None] * p)
