"""Conjugate gradients of every kind against Cholesky, and what they say when they fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linear_systems as cases
from latentgp import InputError
from latentgp.extensions.iterative.solvers.block_conjugate_gradients import (
    SplitOperator,
    block_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.conjugate_gradients import (
    conjugate_gradients,
    flexible_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import (
    StoredCovariance,
    in_single_precision,
    noisy_system,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.iterated import Regularised
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom, PivotedCholesky

pytestmark = pytest.mark.usefixtures("x64")

RIGHT = np.column_stack([cases.Y, cases.X, np.zeros(cases.SIZE)])
ROWS = np.array([2, 11, 17, 5, 23])
SOLVERS = {
    "plain": conjugate_gradients,
    "flexible": flexible_conjugate_gradients,
    "block": block_conjugate_gradients,
}


@pytest.fixture(scope="module")
def found():
    """Every solver on both systems, with a preconditioner: solutions to the end."""
    with jax.enable_x64(True):
        made = {}
        for name, system in cases.systems().items():
            P = Nystrom(ROWS)(system)
            for solver, solve in SOLVERS.items():
                made[name, solver] = solve(system, RIGHT, preconditioner=P, tolerance=1e-11)
        return made


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("system", ["noise", "sites"])
def test_to_the_end_it_is_cholesky(found, system, solver):
    solution = found[system, solver]
    A = cases.dense(system, cases.gram())
    np.testing.assert_allclose(solution.value, np.linalg.solve(A, RIGHT), atol=1e-8)
    residual = np.linalg.norm(RIGHT - A @ solution.value, axis=0)[:3]
    of_right = np.linalg.norm(RIGHT, axis=0)[:3]
    np.testing.assert_allclose(solution.relative_residual[:3], residual / of_right, atol=1e-13)
    assert solution.outcomes == ("converged",) * 4
    assert solution.complaint is None
    assert 0 < solution.steps <= cases.SIZE + 2
    assert np.all(solution.value[:, 3] == 0)


def test_shared_directions_take_fewer_steps(found):
    assert found["noise", "block"].steps < found["noise", "plain"].steps


def test_both_sides_and_one_have_the_same_iterates():
    """After each of a few steps (Saad 2003, 9.2.1), and the flexible one as P is fixed."""
    system = cases.systems()["noise"]
    P = Nystrom(ROWS)(system)
    for steps in (1, 4):
        options = {"max_steps": steps, "tolerance": 1e-14}
        left = conjugate_gradients(system, RIGHT, preconditioner=P, **options)
        flexible = flexible_conjugate_gradients(system, RIGHT, preconditioner=P, **options)
        np.testing.assert_allclose(flexible.value, left.value, atol=1e-9)
        split = conjugate_gradients(SplitOperator(system, P), P.solve_root(RIGHT), **options)
        both = P.solve_root(split.value, transposed=True)
        np.testing.assert_allclose(both, left.value, atol=1e-9)
    eigenvalues = np.linalg.eigvals(np.asarray(P.solve(cases.matrix(system))))
    of_split = np.linalg.eigvalsh(cases.matrix(SplitOperator(system, P)))
    np.testing.assert_allclose(np.sort(eigenvalues.real), of_split, rtol=1e-8)


def test_a_preconditioner_and_a_warm_start_save_steps(found):
    system = cases.systems()["noise"]
    plain = conjugate_gradients(system, RIGHT, tolerance=1e-11)
    assert found["noise", "plain"].steps < plain.steps
    exact = np.linalg.solve(cases.dense("noise", cases.gram()), RIGHT)
    start = exact + 1e-6 * RIGHT
    for solve in conjugate_gradients, block_conjugate_gradients:
        near = solve(system, RIGHT, start=start, tolerance=1e-8)
        zero = solve(system, RIGHT, tolerance=1e-8)
        assert near.steps < zero.steps
        np.testing.assert_allclose(near.value, exact, atol=1e-6)
        assert solve(system, RIGHT, start=exact, tolerance=1e-8).steps == 0


def test_inner_iterations_are_counted():
    system = cases.systems()["noise"]
    P = Regularised(0.5)(system)
    solution = flexible_conjugate_gradients(system, RIGHT, preconditioner=P, tolerance=1e-9)
    assert solution.outcomes == ("converged",) * 4
    assert solution.inner_steps > solution.steps > 0
    with pytest.raises(InputError, match="solve with flexible_conjugate_gradients"):
        conjugate_gradients(system, RIGHT, preconditioner=P)


@pytest.mark.parametrize("solver", SOLVERS)
def test_out_of_steps_is_said(solver):
    system = cases.systems()["noise"]
    solution = SOLVERS[solver](system, RIGHT, preconditioner=Identity(), max_steps=2)
    assert solution.outcomes == ("out of steps",) * 3 + ("converged",)
    assert solution.steps == 2
    worst = int(np.argmax(solution.relative_residual))
    assert solution.complaint is not None
    assert solution.complaint.startswith(
        f"3 of 4 solves did not converge: the worst, number {worst}, has a relative residual of "
        f"{solution.relative_residual[worst]:.2g} after 2 steps (out of steps); raise max_steps"
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("entry", [-1.0, np.nan])
def test_breakdown_is_said(solver, entry):
    A = StoredCovariance(jnp.diag(jnp.array([1.0, 2.0, entry])))
    solution = SOLVERS[solver](A, jnp.array([[0.1], [0.1], [1.0]]), preconditioner=Identity())
    assert solution.outcomes == ("breakdown",)
    assert "positive definite" in (solution.complaint or "")


def hard_columns():
    """Columns that repeat, are zero, nearly depend on each other, or differ in size by 1e29."""
    b, c = np.random.default_rng(1).normal(size=(2, cases.SIZE, 1))
    nearly = [b, b + 1e-9 * c, b + 1e-13 * c, b - 1e-6 * c]
    return np.hstack([c, c, 0 * b, *nearly, c, 0 * b, 1e-20 * b, 1e9 * (b + c), 1e-12 * c])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_columns_are_solved(solver, dtype):
    system, right = cases.systems()["noise"], hard_columns()
    A = cases.dense("noise", cases.gram())
    tolerance = 1e-10 if dtype == np.float64 else 1e-4
    if dtype == np.float32:
        system = in_single_precision(system)
    options = {"preconditioner": Nystrom(ROWS)(system), "tolerance": tolerance}
    for columns in (right, np.tile(right[:, 3:4], (1, 40))):
        found = SOLVERS[solver](system, jnp.asarray(columns, dtype), **options)
        assert found.outcomes == ("converged",) * columns.shape[1]
        length = np.linalg.norm(columns, axis=0)
        off = np.linalg.norm(columns - A @ np.asarray(found.value, float), axis=0)
        assert np.all(off <= 3 * tolerance * length)


@pytest.mark.parametrize("solver", ["plain", "block"])
def test_rounding_is_said(solver):
    """A condition of 1e12 in single precision: stalled, with a residual that is true."""
    A = np.diag(np.logspace(0, -12, 20)).astype(np.float32)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0].astype(np.float32)
    A = turn @ A @ turn.T
    b = np.ones((20, 1), np.float32)
    solution = SOLVERS[solver](StoredCovariance(A), b, preconditioner=Identity(), tolerance=1e-6)
    assert solution.outcomes != ("converged",)
    residual = np.linalg.norm(b - A @ np.asarray(solution.value)) / np.linalg.norm(b)
    assert float(solution.relative_residual[0]) == pytest.approx(residual, rel=0.1)
    assert solution.complaint is not None


def test_duplicate_rows_and_hardly_any_noise():
    """A condition of 1e12: a preconditioner solves what plain steps do not."""
    twice = [*range(12), *range(12)]
    K = 100 * cases.gram()[np.ix_(twice, twice)]
    system = noisy_system(StoredCovariance(jnp.asarray(K)), 1e-10)
    right = K @ RIGHT
    P = PivotedCholesky(12)(system)
    solution = conjugate_gradients(system, right, preconditioner=P, tolerance=1e-9)
    assert solution.outcomes == ("converged",) * 4
    assert solution.steps <= 5
    plain = conjugate_gradients(system, RIGHT, tolerance=1e-9, max_steps=24)
    assert plain.outcomes[0] != "converged"


def test_another_tolerance_compiles_nothing(compilations):
    A, right = cases.systems()["noise"], jnp.asarray(RIGHT)
    conjugate_gradients(A, right, tolerance=1e-3, max_steps=5).steps.block_until_ready()
    compilations.clear()
    conjugate_gradients(A, right, tolerance=1e-4, max_steps=6).steps.block_until_ready()
    assert compilations == []
