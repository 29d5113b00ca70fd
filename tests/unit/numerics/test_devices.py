"""What a GPU runs gives what a processor runs; both programs run here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from latentgp.numerics import devices
from latentgp.numerics.cholesky import cholesky, lower_cholesky
from latentgp.numerics.eigen import eigenvectors
from latentgp.numerics.triangular import congruence, solve_lower, transpose_times_itself

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("x64")]


def both(monkeypatch, run, *arguments):
    """What a processor and what a GPU would compute, each traced anew, and the programs."""
    found = []
    for on_processor in (True, False):
        monkeypatch.setattr(devices, "on_processor", lambda answer=on_processor: answer)
        traced = jax.jit(lambda *values: run(*values))
        found += [traced(*arguments), str(traced.trace(*arguments).jaxpr)]
    return found


def test_a_matrix_is_taken_whole(monkeypatch):
    root = np.tril(np.random.default_rng(0).normal(size=(300, 300))) + 20 * np.eye(300)

    def run(A):
        factor = cholesky(A)
        product = transpose_times_itself(factor.lower)
        return factor, product, congruence(factor.lower, A)

    ours, in_halves, theirs, whole = both(monkeypatch, run, jnp.asarray(root @ root.T))
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-8 * np.abs(a).max()), ours, theirs)
    assert in_halves.count("dot_general") > whole.count("dot_general") == 3


def test_many_matrices_are_taken_at_once(monkeypatch):
    roots = np.random.default_rng(1).normal(size=(5, 4, 4)) + 4 * np.eye(4)
    matrices = jnp.asarray(roots @ np.swapaxes(roots, 1, 2))

    def run(matrices):
        def one(A):
            lower = lower_cholesky(A)
            return lower, solve_lower(lower, A), solve_lower(lower, A[0], transposed=True)

        values, vectors = jax.vmap(eigenvectors)(matrices)
        return jax.vmap(one)(matrices), jax.vmap(jax.grad(lambda A: one(A)[1].sum()))(matrices), (
            values,
            jnp.abs(vectors),
        )  # fmt: skip

    ours, in_turn, theirs, at_once = both(monkeypatch, run, matrices)
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-10), ours, theirs)
    assert "scan" in in_turn
    assert "scan" not in at_once
