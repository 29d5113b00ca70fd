"""The pseudo-marginal coupling: latent functions are integrated out by importance sampling."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Float

from latentgp.extensions.chains.couplings.ancillary import Sites
from latentgp.extensions.chains.couplings.base import Place, chosen, log_joint
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.typing import Array, Coefs, RandomKey, Scalar


class PseudoMarginal(Sites):
    """Pseudo-marginal moves of hyper-parameters (Filippone & Girolami 2014, Alg. 1).

    p(y | theta) is estimated by `samples` draws of a Gaussian approximation; a proposal has draws
    of its own, and the estimate of the present hyper-parameters is carried, never made anew. With a
    correlation the draws of a proposal are near the present ones (Deligiannidis, Doucet & Pitt
    2018). A draw taken by its weight is one of f given the hyper-parameters (Andrieu, Doucet &
    Holenstein 2010). One sample without correlation is the joint proposal of Knorr-Held & Rue
    (2002).
    """

    samples: int = eqx.field(static=True, default=8)  # S, of the estimate
    correlation: float = eqx.field(static=True, default=0.0)  # with the present draws, in [0, 1)

    def others(self, eps: Coefs, key: RandomKey) -> Float[Array, "S Q M"]:
        return jax.random.normal(key, (self.samples - 1, *eps.shape), eps.dtype)

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> Place:
        fresh = jax.random.normal(key, (self.samples, *at.eps.shape), at.eps.dtype)
        share = (1 - self.correlation**2) ** 0.5
        eps = self.correlation * at.eps + share * fresh[0]
        others = self.correlation * at.others + share * fresh[1:]
        return at._replace(eps=eps, others=others)

    def here(
        self, target: WhiteTarget, at: Place, held: Place, differentiable: bool
    ) -> tuple[Scalar, Place]:
        return log_joint(target, at), at

    def selected(self, target: WhiteTarget, at: Place, key: RandomKey) -> Place:
        return chosen(target, at, key)
