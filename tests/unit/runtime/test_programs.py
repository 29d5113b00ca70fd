"""Which options of XLA's a program is compiled with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from latentgp.runtime import programs
from latentgp.runtime.programs import Program


@pytest.fixture
def compiled_with(monkeypatch):
    """The options of every program that is compiled from now on."""
    seen, jit = [], jax.jit

    def spy(function, **settings):
        options = settings.get("compiler_options")

        def traced(*arguments):
            seen.append(options)
            return function(*arguments)

        return jit(traced, **settings)

    monkeypatch.setattr(jax, "jit", spy)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield seen
    jax.config.update("jax_disable_most_optimizations", before)


def twice(x):
    return 2 * x


def test_few_rows_are_compiled_by_the_quicker_code_generator(compiled_with):
    program = Program(twice)
    few, many = np.ones(programs._FEW_ROWS), np.ones(programs._FEW_ROWS + 1)
    for rows in (few, many, few):
        np.testing.assert_array_equal(program(rows), 2 * rows)
    assert compiled_with == [programs.QUICK_TO_COMPILE, None]


def test_more_rows_can_count_as_few(compiled_with):
    program, many = Program(twice, has_few=lambda x: True), np.ones(programs._FEW_ROWS + 1)
    np.testing.assert_array_equal(program(many), 2 * many)
    assert compiled_with == [programs.QUICK_TO_COMPILE]


def test_whoever_asks_for_the_least_optimisation_gets_it(compiled_with):
    jax.config.update("jax_disable_most_optimizations", True)
    np.testing.assert_array_equal(Program(twice)(np.ones(3)), 2 * np.ones(3))
    assert compiled_with == [None]


def test_a_program_inside_another_one_takes_its_options():
    program = Program(twice)
    np.testing.assert_array_equal(jax.jit(lambda x: program(x) + 1)(np.ones(3)), 3 * np.ones(3))
    assert jax.grad(lambda x: jnp.sum(program(x)))(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_program_of_constants_inside_another_one_takes_its_options(compiled_with):
    program, rows = Program(twice), np.ones(3)
    np.testing.assert_array_equal(jax.jit(lambda x: program(rows) + x)(rows), 3 * rows)
    assert jax.eval_shape(lambda: program(rows)).shape == (3,)


def test_a_compiler_that_does_not_know_the_options_is_not_asked_again(monkeypatch, compiled_with):
    monkeypatch.setattr(programs, "QUICK_TO_COMPILE", {"xla_cpu_of_another_time": False})
    monkeypatch.setattr(Program, "_xla_knows_options", True)
    for function in (twice, lambda x: 2 * x):
        np.testing.assert_array_equal(Program(function)(np.ones(3)), 2 * np.ones(3))
    assert compiled_with == [programs.QUICK_TO_COMPILE, None, None]


def test_errors_of_a_program_are_raised(monkeypatch):
    monkeypatch.setattr(Program, "_xla_knows_options", True)

    def fail(x):
        raise JaxRuntimeError("out of memory")

    with pytest.raises(JaxRuntimeError, match="out of memory"):
        Program(fail)(np.ones(3))
