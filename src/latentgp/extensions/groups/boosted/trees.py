"""A sum of regression trees as a prior mean, in arrays."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.means import Mean
from latentgp.typing import Array


class Trees(Mean):
    """A prior mean that is another one plus a sum of regression trees; these are not learned.

    Every node sends a row with a value up to its threshold to the left. A leaf is its own child.
    Numbers of columns and nodes are floats too, as models are differentiated as wholes.

    Args:
        base: what the sum is added to; its hyper-parameters are learned.
        column: that each node looks at.
        threshold: of each node.
        left: number of each node's left child.
        right: number of its right child.
        value: of each leaf; units of the latent function.
        columns: number of inputs D.
        depth: most nodes between a root and a leaf.

    Raises:
        InputError: inputs of another number of columns.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> lines = [[0.0, 0.0, 0.0]], [[2.0, 0.0, 0.0]], [[1.0, 1.0, 2.0]], [[2.0, 1.0, 2.0]]
        >>> values = [[0.0, -1.0, 5.0]]
        >>> trees = Trees(lgp.ZeroMean(), *map(np.array, (*lines, values)), columns=1, depth=1)
        >>> trees(np.array([[2.0], [3.0]])).tolist()
        [[-1.0], [5.0]]
    """

    base: Mean
    column: Float[Array, "trees nodes"]
    threshold: Float[Array, "trees nodes"]
    left: Float[Array, "trees nodes"]
    right: Float[Array, "trees nodes"]
    value: Float[Array, "trees nodes"]
    columns: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)

    @classmethod
    def of_booster(
        cls,
        booster: Any,
        base: Mean,
        *,
        columns: tuple[int, ...] | None = None,
        inputs: int | None = None,
        number: int | None = None,
    ) -> Trees:
        """The trees of a LightGBM booster, whose raw scores they sum up to.

        Args:
            booster: a `lightgbm.Booster`.
            base: what their sum is added to.
            columns: the input that each of its features is; None where they are the inputs.
            inputs: number of inputs D; None for that of its features.
            number: of trees, the first ones; None for all.

        Raises:
            InputError: splits of categories, zeros that are missing values, linear leaves.
        """
        features = booster.num_feature()
        of_feature = np.arange(features) if columns is None else np.array(columns)
        told = booster.dump_model(num_iteration=-1 if number is None else number)["tree_info"]
        trees = [_nodes(tree["tree_structure"]) for tree in told[:number]]
        width = max((len(nodes) for nodes, _ in trees), default=1)
        table = np.zeros((5, len(trees), width))
        table[2:4] = np.arange(width)
        for own, (nodes, _) in zip(np.moveaxis(table, 1, 0), trees, strict=True):
            own[:, : len(nodes)] = np.array(nodes).T
        table[0] = of_feature[table[0].astype(int)]
        return cls(
            base,
            *table,
            columns=features if inputs is None else inputs,
            depth=max((depth for _, depth in trees), default=0),
        )

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        if X.shape[1] != self.columns:
            raise InputError(
                f"Trees were made for {self.columns} columns but the inputs have {X.shape[1]}; "
                "give as many."
            )
        X = jnp.asarray(X)
        number = jnp.arange(len(X))

        def add(total: Array, tree: tuple[Array, ...]) -> tuple[Array, None]:
            column, threshold, left, right, value = tree

            def down(_: Any, node: Array) -> Array:
                is_left = X[number, column[node]] <= threshold[node]
                return jnp.where(is_left, left[node], right[node])

            leaf = jax.lax.fori_loop(0, self.depth, down, jnp.zeros(len(X), left.dtype))
            return total + value[leaf], None

        # Piecewise constant in X, and held fixed themselves.
        table = self.column, self.threshold, self.left, self.right, self.value
        kinds = jnp.int32, X.dtype, jnp.int32, jnp.int32, X.dtype
        held = (jax.lax.stop_gradient(jnp.asarray(own)) for own in table)
        held = tuple(own.astype(kind) for own, kind in zip(held, kinds, strict=True))
        total, _ = jax.lax.scan(add, jnp.zeros(len(X), X.dtype), held)
        return self.base(X) + total[:, None]

    def __repr__(self) -> str:
        return f"Trees({self.base!r}, {len(self.value)} trees)"


def _nodes(root: dict[str, Any]) -> tuple[list[Any], int]:
    """Column, threshold, left and right child and value of a tree's nodes, and its depth."""
    nodes: list[Any] = []
    deepest = 0
    below = [(root, 0, None)]
    while below:
        node, depth, parent = below.pop()
        place = len(nodes)
        if parent is not None:
            nodes[parent[0]][parent[1]] = place
        if "split_feature" in node:
            if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
                raise InputError(
                    "The booster splits categories, or takes zeros for missing values; fit it to "
                    "numbers, with zero_as_missing=False."
                )
            nodes.append([node["split_feature"], node["threshold"], 0, 0, 0.0])
            below += [(node[f"{side}_child"], depth + 1, (place, k)) for side, k in _SIDES]
        elif "leaf_coeff" in node:
            raise InputError("The booster has linear leaves; fit it with linear_tree=False.")
        else:
            nodes.append([0, 0.0, place, place, node["leaf_value"]])
        deepest = max(deepest, depth)
    return nodes, deepest


_SIDES = ("left", 2), ("right", 3)
