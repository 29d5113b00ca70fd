"""Programs around a search: its first state, and what its last one is worth and gives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.deep.posterior import DeepComponents
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data
from latentgp.rows.source import blocks_of
from latentgp.runtime.programs import Program
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

if TYPE_CHECKING:  # Optax takes long to import
    from latentgp.extensions.batches.loop import Plan
    from latentgp.extensions.deep.inference.steps import DeepInference, DeepState

_DRAWS, _ROWS = 8, 400_000  # of the hidden layers, and rows, for the bound


@partial(Program, static_argnums=(4, 5, 6))
def begun(
    inference: DeepInference,
    vector: HyperVector,
    key: RandomKey,
    last: WhiteSites | None,
    natural: bool,
    factorised: bool,
    spread: bool,
) -> DeepState:
    """The state before the first step, at some hyper-parameters."""
    model, settings = inference.space.model, {"factorised": factorised, "spread": spread}
    start = inference.architecture.start
    return inference.begin(start(model, vector, key, natural=natural, **settings), model, last)


@partial(Program, static_argnums=(3,))
def components_of(
    inference: DeepInference, state: DeepState, key: RandomKey, number: int
) -> DeepComponents:
    """So many draws of the hidden layers at a state."""
    keys = jax.random.split(key, number)
    model, architecture = inference.space.to_model(state.vector), inference.architecture
    hidden, features = jax.vmap(partial(architecture.layers_drawn, state.learned))(keys)
    if architecture.frequencies != "resampled":  # all draws share them
        hidden = tuple(
            eqx.tree_at(lambda d: d.features, own, jax.tree.map(lambda a: a[:1], own.features))
            for own in hidden
        )
        features = jax.tree.map(lambda a: a[:1], features)
    last = jax.tree.map(lambda a: a[None], state.last)
    models, own = model, state.learned.spread is not None
    if own:
        vectors = jax.vmap(lambda key: inference.at_draw(state.learned, key).vector)(keys)
        models = jax.vmap(inference.space.to_model)(vectors)
    drawn = architecture.layout, hidden, features, last, len(keys)
    return DeepComponents(model, models, own, *drawn)


@Program
def _bounds(
    inference: DeepInference, state: DeepState, block: Data, key: RandomKey, first: Any
) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """Expected log likelihood of the batches of a block, by some draws, and what is subtracted.

    `first` is the number of its first batch.
    """
    assert block.weights is not None
    numbers = first + jnp.arange(len(block.weights))

    def of_draw(key: RandomKey) -> tuple[Scalar, Scalar]:
        def add(total: Scalar, batch: tuple[Array, Data]) -> tuple[Scalar, None]:
            return total + inference.bound_of(state, batch[1], key, batch[0]), None

        terms = jax.lax.scan(add, jnp.zeros(()), (numbers, block))[0]
        return terms, inference.kl(state, key)

    return jax.lax.map(of_draw, jax.random.split(key, _DRAWS))


def bound_at_the_end(
    inference: DeepInference, state: DeepState, source: RowSource, plan: Plan, key: RandomKey
) -> tuple[float, float, int]:
    """Bound by all rows or a sample of very many, its standard error, and the number of rows."""
    of_some = source.size > _ROWS and jax.process_count() == 1
    rows = RowsInMemory(source.sample(_ROWS)) if of_some else source
    batches = plan.round_size
    if of_some:  # enough blocks to tell an error
        batches = min(batches, max(1, rows.size // 20 // plan.batch_size))
    blocks = blocks_of(rows, (0,), batches * plan.batch_size, axes=(batches,))
    found = [
        _bounds(inference, state, block, key, number * batches)
        for number, block in enumerate(blocks)
    ]
    terms = np.array([own for own, _ in found])
    totals = np.sum(terms, axis=0) - np.asarray(found[0][1])
    error = np.std(totals, ddof=1) / np.sqrt(_DRAWS)
    if of_some and len(terms) > 1:  # blocks are samples too
        error = np.hypot(error, np.sqrt(len(terms)) * np.std(terms.mean(axis=1), ddof=1))
    return float(np.mean(totals)), float(error), rows.size
