"""Class subsampling: batches that update some of very many classes.

Given the auxiliary variables the latent functions of different classes are independent (Galy-Fajou
et al. 2020, 4.2), and the logistic-softmax has a sum over classes for its normaliser. So a step
draws classes, and moves these alone, the terms of the others held. Held terms need the others'
means, M numbers a class and row, and their variances, for which the mean of the drawn ones stands.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import refuse
from latentgp.extensions.batches.natural_gradient import (
    BatchInfo,
    BatchState,
    SparseInference,
    StochasticInference,
)
from latentgp.kernels import OwnKernels
from latentgp.likelihoods.base import Marginals
from latentgp.likelihoods.multiclass import LogisticSoftmax, SomeOfLogisticSoftmax
from latentgp.models import LatentGP
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.representations.inducing.coupled import AnyInducingPosterior
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.inducing.posterior import kernel_blocks, no_rows, posterior_given
from latentgp.rows.data import Data
from latentgp.runtime.mesh import number_of_shards
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.sites.augmentations.polya_gamma import expected_sigmoids, logistic_bound
from latentgp.typing import Array, HyperVector, RandomKey, Scalar


class ClassesState(NamedTuple):
    """State of inference with subsampled classes."""

    looked_at: BatchState  # the state of the classes drawn in the last step
    # the rows' factor for every class, white under the prior of when the class was last drawn
    white: WhiteSites
    inverse: Float[Array, "K M M"]  # of the factor of that prior
    mean_weights: Float[Array, "K M"]  # with which k(x, Z) gave every class's mean at x then

    @property
    def vector(self) -> HyperVector:
        """Hyper-parameters, unconstrained."""
        return self.looked_at.vector

    @property
    def steps(self) -> Int[Array, ""]:
        """Number of steps so far."""
        return self.looked_at.steps


class SomeClassesInference(SparseInference):
    """The algorithm for batches of rows and of classes."""

    inference: StochasticInference  # of a model of as many classes as are looked at
    model: LatentGP  # of all classes
    key: RandomKey  # random key of the classes that are drawn

    def representation(self, state: ClassesState) -> ByVariables:
        """Through the inducing variables of a state."""
        return self.inference.representation(state.looked_at)

    def init(self, vector: HyperVector, posterior: AnyInducingPosterior) -> ClassesState:
        """The state in which a posterior of the classes looked at is that of every class."""
        looked_at = self.inference.init(vector, posterior)
        classes = self.model.likelihood.latent_size

        def of_all(leaf: Array) -> Array:
            return jnp.broadcast_to(leaf[:1], (classes, *leaf.shape[1:]))

        of_some = looked_at.white, looked_at.prior.factor.inverse, posterior.mean_weights
        return ClassesState(looked_at, *jax.tree.map(of_all, of_some))

    def step(
        self, state: ClassesState, batch: Data, weight: Scalar
    ) -> tuple[ClassesState, BatchInfo]:
        before = state.looked_at
        classes, some = len(state.inverse), len(before.white.linear)
        key = jax.random.fold_in(self.key, before.steps)
        drawn = jax.random.choice(key, classes, (some,), replace=False)
        white = jax.tree.map(lambda a: a[drawn], state.white)
        white = white.carried(state.inverse[drawn], before.prior.factor)
        # A class has been looked at in so many of the steps.
        visits = before.steps * some // classes
        before = before._replace(white=white, factor=white.factor(), schedule=visits)
        after, info = self.inference.step(before, self.among(state, before, batch, drawn), weight)
        model = self.inference.space.to_model(after.vector)
        mean_weights = self.inference.posterior(after, model).mean_weights
        inverse = jnp.broadcast_to(after.prior.factor.inverse, state.inverse[drawn].shape)
        new = jax.tree.map(
            lambda all_, drawn_: all_.at[drawn].set(drawn_),
            (state.white, state.inverse, state.mean_weights),
            (after.white, inverse, mean_weights),
        )
        return ClassesState(after, *new), info

    def among(
        self, state: ClassesState, before: BatchState, batch: Data, drawn: Int[Array, "S"]
    ) -> Data:
        """Rows with classes renumbered among those drawn, and the terms of the others."""
        model = self.inference.space.to_model(before.vector)
        posterior = self.inference.posterior(before, model)
        block, prior = (a[0] for a in kernel_blocks(model.kernel, before.centres, batch.X))
        reduction = sum_over_first(posterior.reduction) / len(posterior.reduction)
        variance = jnp.clip(prior - sum_over_first((reduction @ block) * block), 0.0, prior)
        means = state.mean_weights @ block + prior_mean(model, batch)[:, 0]
        _, terms = expected_sigmoids(means, jnp.broadcast_to(variance, means.shape))
        y = batch.y.astype(int)
        number = jnp.full(len(terms), len(drawn)).at[drawn].set(jnp.arange(len(drawn)))
        others = jnp.sum(jnp.where((number == len(drawn))[:, None], terms, 0.0), axis=0)
        own = Marginals(jnp.take_along_axis(means, y[None], axis=0).T, variance[:, None])
        one = jnp.ones_like(own.mean)
        own = logistic_bound(one, jnp.zeros_like(one), own)
        return eqx.tree_at(
            lambda data: (data.y, data.side_information),
            batch,
            (number[y].astype(batch.y.dtype), {"others": others, "own": own}),
            is_leaf=lambda node: node is batch.side_information,
        )

    def posterior_at(self, state: ClassesState) -> tuple[LatentGP, AnyInducingPosterior]:
        """The model of all classes at a state's hyper-parameters, and the posterior."""
        return _believed(self, state)


@jax.jit
def _believed(
    inference: SomeClassesInference, state: ClassesState
) -> tuple[LatentGP, AnyInducingPosterior]:
    some = inference.inference
    white = state.white.carried(state.inverse, state.looked_at.prior.factor)
    every = state.looked_at._replace(white=white, factor=white.factor())
    model = some.space.to_model(state.vector)
    whole = eqx.tree_at(lambda m: m.likelihood, model, inference.model.likelihood)
    return whole, some.posterior(every, model)


def model_of_some(model: LatentGP, classes: int, columns: int) -> LatentGP:
    """Model of a few classes of another; InputError if they cannot be drawn."""
    likelihood = model.likelihood
    means = jax.eval_shape(model.mean, jnp.zeros((1, columns))).shape[1]
    own = isinstance(model.kernel, OwnKernels) or means > 1
    most = likelihood.latent_size - 1
    sentences = {
        f"Stochastic(classes=...) draws classes of LogisticSoftmax, not of "
        f"{type(likelihood).__name__}; leave classes out, or choose that likelihood.": (
            type(likelihood) is not LogisticSoftmax
        ),
        "Stochastic(classes=...) runs on one device; leave devices out, or classes.": (
            number_of_shards() > 1
        ),
        "Stochastic(classes=...) needs a kernel and a prior mean that all classes share; leave "
        "PerLatent and PerLatentMean out.": own,
        f"Stochastic.classes must be from 2 to {most}, fewer than there are, got {classes}.": (
            not 2 <= classes <= most
        ),
    }
    refuse(sentences)
    return eqx.tree_at(lambda m: m.likelihood, model, SomeOfLogisticSoftmax(classes))


@jax.jit
def prior_of_some(algorithm: SiteInference, model: LatentGP) -> AnyInducingPosterior:
    """Prior of the sampled classes, as a posterior without data."""
    inducing = cast(ByVariables, algorithm.representation)
    centres = inducing.centres
    nothing = no_rows(model.likelihood.latent_size, centres)
    return posterior_given(model.kernel, centres, None, nothing, inducing.signed, "full")


def some_classes(
    inference: StochasticInference, model: LatentGP, key: RandomKey
) -> SomeClassesInference:
    """The algorithm that draws classes, from that of the classes drawn and the full model."""
    every, some = model.likelihood.latent_size, inference.space.model.likelihood.latent_size
    inference = eqx.tree_at(lambda i: i.copies, inference, every / some)
    return SomeClassesInference(inference, model, key)
