"""Elliptical slice sampling."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from latentgp.extensions.chains.coordinates import starting_point
from latentgp.extensions.chains.latents.elliptical_slice import EllipticalSampler
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.typing import Coefs, RandomKey, Scalar


class EllipticalSlice(SamplingMethod):
    """Elliptical slice sampling (Murray, Adams & MacKay 2010): any likelihood, nothing to tune.

    A step moves the white coefficients along an ellipse through the present ones and a draw of the
    prior, to a point whose likelihood is above a random share of the present one's. It needs no
    gradient and is never rejected. Hyper-parameters that are to be learned are learned by
    `VariationalInference` and then held. With `Inducing` the target is the free-form variational
    posterior of the inducing variables.

    Args:
        representation: `Dense()`, `Neighbours(...)` or `Inducing(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that are thrown away.
        thin: keeps every `thin`-th state.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 2.0, 7.0])
        >>> method = lgp.EllipticalSlice(chains=2, draws=100)
        >>> result = lgp.fit(model, rows, key=jax.random.key(0), method=method)
        >>> result.posterior.predict([0.0, 2.0]).mean.shape
        (2,)
    """

    samples_hyperparameters: ClassVar[bool] = False

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=5)

    @property
    def needs(self) -> Needs:
        return Needs(positive=True)

    def sampler(self, target: WhiteTarget) -> EllipticalSliceSampler:
        return EllipticalSliceSampler(target)


class EllipticalSliceSampler(EllipticalSampler):
    """Chains of the white coefficients of latent functions."""

    target: WhiteTarget

    def start(self, key: RandomKey) -> Coefs:
        return starting_point(self.target, key).white

    def log_likelihood(self, white: Coefs) -> Scalar:
        return self.target.log_likelihood(self.target.space.model, white)
