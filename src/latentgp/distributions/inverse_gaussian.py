"""The inverse Gaussian distribution, with the Lévy distribution as its limit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.distributions.base import Law, as_floats
from latentgp.typing import Array, Draws, RandomKey, Values


class InverseGaussian(Law):
    """Density sqrt(k / (2 pi w^3)) exp(-k (w - m)^2 / (2 m^2 w)), m = loc, k = concentration.

    Args:
        loc: the mean, in units of w; infinity gives the Lévy distribution of scale k.
        concentration: in units of w; the variance is m^3 / k.

    Example:
        >>> float(InverseGaussian(2.0, 4.0).variance)
        2.0
    """

    arg_constraints: dict[str, Any] = {  # noqa: RUF012
        "loc": constraints.positive,
        "concentration": constraints.positive,
    }
    _support = constraints.positive

    def __init__(
        self, loc: ArrayLike, concentration: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        self.loc, self.concentration = as_floats(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def sample(self, key: RandomKey | None, sample_shape: tuple[int, ...] = ()) -> Draws:
        loc = jnp.broadcast_to(self.loc, self.shape(sample_shape))
        return sample_inverse_gaussian(key, loc, self.concentration)

    def log_density(self, value: Float[Array, "*S"]) -> Float[Array, "*S"]:
        k = self.concentration
        square = (value / self.loc - 1) ** 2
        return 0.5 * (jnp.log(k / (2 * jnp.pi)) - 3 * jnp.log(value) - k * square / value)

    def log_laplace_transform(self, t: Float[Array, "*#S"]) -> Float[Array, "*S"]:
        # k / m - sqrt(k^2 / m^2 + 2 k t), times the sum of the two over their sum.
        rate = self.concentration / self.loc
        root = jnp.sqrt(rate**2 + 2 * self.concentration * t)
        return -2 * self.concentration * t / jnp.where(t == 0, 1.0, rate + root)

    @property
    def mean(self) -> Float[Array, "*S"]:
        return self.loc

    @property
    def variance(self) -> Float[Array, "*S"]:
        return self.loc**3 / self.concentration


@jax.jit
def sample_inverse_gaussian(
    key: RandomKey, loc: Float[Array, "*#S"], concentration: Float[Array, "*#S"]
) -> Float[Array, "*S"]:
    """Draws from the inverse Gaussian law, finite for every mean up to infinity.

    Example:
        >>> sample_inverse_gaussian(jax.random.key(0), jnp.inf * jnp.ones(3), jnp.ones(3)).shape
        (3,)
    """
    loc, concentration = as_floats(loc, concentration)
    key_normal, key_uniform = jax.random.split(key)
    z = jax.random.normal(key_normal, loc.shape, loc.dtype)
    u = jax.random.uniform(key_uniform, loc.shape, loc.dtype)
    return concentration / reciprocal(z, u, concentration / loc)


def reciprocal(z: Values, u: Values, rate: Values) -> Values:
    """1 / w, w inverse Gaussian of mean 1 / rate and concentration one; z normal, u uniform.

    Michael, Schucany & Haas (1976): w and 1 / (rate^2 w) solve (rate w - 1)^2 = z^2 w, and the
    smaller root is taken with probability 1 / (1 + rate w). Written without differences, so that
    the rate may be zero or huge.
    """
    # A normal draw of zero stands for a cell of about this width.
    square = jnp.maximum(z**2, (0.25 * float(jnp.finfo(rate.dtype).eps)) ** 2)
    larger = 0.5 * (square + 2 * rate + jnp.sqrt(square * (square + 4 * rate)))
    return jnp.where(u * (larger + rate) <= larger, larger, rate * (rate / larger))
