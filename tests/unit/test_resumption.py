"""Every method of the registry, killed in its middle, goes on to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import latentgp as lgp
from latentgp.runtime.hashing import digest
from method_cases import FORMS

SCRIPT = Path(__file__).parents[1] / "support" / "killed.py"
OFTEN = ["laplace, neighbours", "solves", "gibbs"]
OTHERS = [name for name in FORMS if name not in OFTEN]
GROUPS = [OFTEN, *(OTHERS[start : start + 6] for start in range(0, len(OTHERS), 6))]


def started(what, folder, names):
    paths = os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, SCRIPT, what, folder, *names],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.mark.parametrize(
    "names",
    [pytest.param(g, marks=[pytest.mark.slow] * (g is not OFTEN), id=g[0]) for g in GROUPS],
)
def test_what_is_killed_goes_on_to_the_same_bits(names, tmp_path):
    """`Laplace(Neighbours(8))` could not be written: an array of keys."""
    with started("hang", tmp_path, names) as killed:
        assert killed.stdout.readline() == "hangs\n"
        killed.kill()
    output, _ = started("resume", tmp_path, names).communicate(timeout=400)
    answers = [json.loads(line) for line in output.splitlines()]
    assert [name for name, *_ in answers] == names
    for name, told, told_in_all, same in answers:
        assert 0 < told < told_in_all, name
        assert same, name


def test_a_key_of_ones_own_has_a_digest_and_is_taken():
    one, other = jax.random.key(0), jax.random.key(1)
    assert digest(one) == digest(jax.random.key(0)) != digest(other)
    rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
    fit = lgp.fit(
        lgp.LatentGP(lgp.RBF(), lgp.Gaussian()),
        rows,
        method=lgp.ExactGP(lgp.MatrixFree()),
        key=jax.random.key(0, impl="rbg"),
        learn_hyperparameters=False,
    )
    assert isinstance(fit.posterior.log_evidence.value, float)
