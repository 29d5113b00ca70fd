"""Likelihood given by a log-density function."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import equinox as eqx

from latentgp.errors import InputError, check_choices
from latentgp.likelihoods.base import Likelihood, SideInformation, Targets
from latentgp.modules import forwarded, takes
from latentgp.typing import Latents, Scalar


class CustomLikelihood(Likelihood):
    """p(y | f) by your own function; a subclass of `Likelihood` can have parameters too.

    Args:
        function: log p(y | f) in nats, of one target and its latents, shape (Q,), in JAX.
        latents: Q.
        kind: of the targets: "real", "count" or "class".

    Raises:
        InputError: something that is not a function, no latents, or an unknown kind.

    Example:
        >>> import jax.numpy as jnp
        >>> cauchy = CustomLikelihood(lambda y, f: -jnp.log(jnp.pi * (1 + (y - f[0]) ** 2)))
        >>> round(float(cauchy.log_prob(jnp.array(1.0), jnp.array([1.0]), {})), 4)
        -1.1447
    """

    function: Callable[[Scalar, Latents], Scalar] = eqx.field(static=True)
    latents: int = eqx.field(static=True, default=1)
    kind: Targets = eqx.field(static=True, default="real")

    def __check_init__(self) -> None:
        if not callable(self.function) or self.latents < 1:
            raise InputError(
                "CustomLikelihood needs a function log_prob(y, f) and at least one latent, got "
                f"{self.function!r} and {self.latents}."
            )
        if not takes(self.function, 2):
            raise InputError(
                "CustomLikelihood needs a function of (y, f), a target and its latents; one that "
                "reads more of a row is the log_prob(self, y, f, side) of a class of Likelihood."
            )
        check_choices(self, kind=get_args(Targets))

    latent_size = forwarded("latents")
    targets = forwarded("kind")

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.function(y, f)
