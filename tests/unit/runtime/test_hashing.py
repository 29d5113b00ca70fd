"""Digests: equal for equal values in any process, and for nothing else."""

import subprocess
import sys
from functools import partial, wraps

import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.runtime.hashing import digest

pytestmark = pytest.mark.quick

PROGRAM = """
import jax, jax.numpy as jnp
import latentgp as lgp
from latentgp.runtime.hashing import digest
def made(scale):
    return lambda y, f: -jnp.abs(y - scale * f[0]) if str(y) in {"a", "b", "c"} else f[0]
model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 2.0]), lgp.CustomLikelihood(made(2.0)))
print(digest(model, {"b": 1, "a": {"x", "y", "z"}}, jax.jit(made(1.0)), lgp.RBF))
"""


def test_every_process_finds_the_same():
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def scaled(scale):
    return lambda f: scale * f


def plus_one(f, by=1):
    return f + by


def itself():
    def again(f):
        return again(f - 1) if f else f

    return again


def by_name(first):
    return (lambda *, a, b: a - b) if first == "a" else (lambda *, b, a: b - a)


def wrapped(scale):
    @wraps(plus_one)
    def times(f):
        return scale * plus_one(f)

    return times


VALUES = [
    by_name("a"),
    by_name("b"),
    wrapped(2.0),
    wrapped(3.0),
    None,
    0,
    0.0,
    "0",
    np.zeros(2),
    np.zeros(2, np.float32),
    np.zeros((2, 1)),
    jnp.ones(2),
    np.array(["no", "yes"], object),
    np.array([0, 1], object),
    [1, [2]],
    [[1], 2],
    (1, [2]),
    {"a": 1},
    {"b": 1},
    scaled(1.0),
    scaled(2.0),
    lambda f: f + 1,
    lambda f: f + 2,
    lambda f: [g + 1 for g in f],
    lambda f: [g + 2 for g in f],
    plus_one,
    partial(plus_one, by=2),
    partial(plus_one, by=3),
    itself(),
    lgp.RBF,
    lgp.RBF(),
    lgp.Matern32(),
    lgp.RBF(lengthscale=2.0),
    lgp.RBF().gram,
    lgp.Data([[0.0]], [1.0], weights=[2.0]),
    lgp.Data([[0.0]], [1.0], noise_variance=[2.0]),
]


def test_no_two_values_have_the_same():
    digests = [digest(value) for value in VALUES]
    assert len(set(digests)) == len(VALUES)


@pytest.mark.parametrize("make", [lambda: scaled(2.0), itself, lambda: {"a": {1, 2}}, lgp.RBF])
def test_equal_values_have_the_same(make):
    assert digest(make()) == digest(make())


def test_a_record_of_calls_is_no_part_of_a_likelihood():
    likelihood = lgp.ExternalLikelihood(lambda y, f: -np.abs(y - f[:, 0]))
    before = digest(likelihood)
    likelihood.host.values(np.zeros(2), np.zeros((2, 1)), {})
    assert likelihood.calls.calls == 1
    assert digest(likelihood) == before
