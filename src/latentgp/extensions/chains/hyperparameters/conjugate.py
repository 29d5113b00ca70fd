"""Exact draws of variances of kernels."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import InverseGamma

from latentgp.errors import InputError
from latentgp.extensions.chains.coordinates import Coordinates
from latentgp.extensions.chains.couplings.base import Place
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.base import parameters, replace_unchecked
from latentgp.kernels import LatentKernel
from latentgp.representations.latent_axis import latent_diagonals, latent_grams
from latentgp.typing import Array, RandomKey, Scalar

_ROWS = 20  # whose covariances show whether a parameter scales a kernel, beside all variances


class ConjugateVariances(eqx.Module):
    """Draws of variances given the latent functions at the rows, one variance after another.

    For K = s Q and s ~ InvGamma(a, b), s | f ~ InvGamma(a + n / 2, b + (f - m)' Q^-1 (f - m) / 2),
    n the number of values of f (Filippone, Zhong & Girolami 2013, A.1). Nothing is rejected.
    """

    entries: tuple[int, ...] = eqx.field(static=True)  # of the vector of hyper-parameters
    latents: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # that each variance scales
    shapes: tuple[Scalar, ...]  # of the priors
    scales: tuple[Scalar, ...]  # of the priors

    @classmethod
    def of(cls, target: WhiteTarget) -> ConjugateVariances:
        """All that a target has; InputError if there is none."""
        space = target.space
        labels = [label for label, _ in space.entries()]
        found = [
            (labels.index(path), latents, jnp.asarray(prior.concentration), jnp.asarray(prior.rate))
            for path, prior in zip(space.prior_paths, space.priors, strict=True)
            if isinstance(prior, InverseGamma) and (latents := _scaled_by(target, path))
        ]
        if not found:
            raise InputError(
                "MCMC(conjugate_variance=True) needs a variance that scales the whole kernel and "
                "has an InverseGamma prior, and the model has none; give one, such as "
                'priors={"kernel.variance": InverseGamma(3.0, 2.0)}, or leave it out.'
            )
        return cls(*(tuple(column) for column in zip(*found, strict=True)))

    def moved(
        self, at: Place, coordinates: Callable[[Array], Coordinates], key: RandomKey
    ) -> Place:
        """The place with new variances and the same latent functions."""
        vector, white = at.vector, at.coordinates.white(at.eps)
        known = zip(self.entries, self.latents, self.shapes, self.scales, strict=True)
        for number, (entry, latents, shape, scale) in enumerate(known):
            rows, variance = np.array(latents), jnp.exp(vector[entry])
            squares = variance * jnp.sum(white[rows] ** 2)
            posterior = jnp.asarray(shape + 0.5 * white[rows].size, vector.dtype)
            draw = jax.random.gamma(jax.random.fold_in(key, number), posterior, dtype=vector.dtype)
            drawn = (scale + 0.5 * squares) / draw
            white = white.at[rows].multiply(jnp.sqrt(variance / drawn))
            vector = vector.at[entry].set(jnp.log(drawn))
        there = coordinates(vector)
        return Place(vector, there.of_white(white), there, at.others)


def _scaled_by(target: WhiteTarget, path: str) -> tuple[int, ...]:
    """Latent functions whose covariances double with a parameter; none if it does anything else."""
    model = target.space.model
    if not path.startswith("kernel.") or np.ndim(parameters(model)[path].value):
        return ()
    doubled = replace_unchecked(model, {path: 2 * jnp.asarray(parameters(model)[path].value)})

    def seen(kernel: LatentKernel) -> Float[np.ndarray, "Q values"]:
        grams = np.asarray(latent_grams(kernel, target.data.X[:_ROWS]))
        variances = np.asarray(latent_diagonals(kernel, target.data.X))
        both = np.concatenate([grams.reshape(len(grams), -1), variances], axis=1)
        return np.broadcast_to(both, (model.likelihood.latent_size, both.shape[1]))

    before, after = seen(model.kernel), seen(doubled.kernel)
    doubles = np.isclose(after, 2 * before, rtol=1e-9, atol=0).all(axis=1)
    same = np.array_equal(before[~doubles], after[~doubles])
    return tuple(np.flatnonzero(doubles).tolist()) if same else ()
