"""Checkpoints of chains: draws whose numbers, shapes or types are not those of the chains."""

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from latentgp import InputError
from latentgp.extensions.chains.loop import ChainLoop, Draw
from latentgp.runtime.checkpoint import Checkpoint, checksum
from latentgp.runtime.loop import run_loop
from latentgp.runtime.progress import RunControl
from latentgp.runtime.x64 import double_precision

CHAINS, NUMBER = 2, 5
COLD, WARM = 1, 3

pytestmark = pytest.mark.quick


def drawn(index):
    """Draws and statistics of a piece."""
    values = np.full((CHAINS, NUMBER, 1), float(index))
    return Draw(values, values[..., None], values), {"lp": values[..., 0]}


def piece(state, index):
    draws, told = drawn(index)
    return state + 1, draws if index >= COLD else None, told


@double_precision
def run(path, ends_after=None):
    """Chains of four pieces, one of them the warm-up, or what a callback leaves of them."""
    made = 0

    def callback(progress):
        nonlocal made
        made += 1
        return made == ends_after

    control = RunControl(0.0, callback=callback, checkpoint=Checkpoint(path))
    loop = ChainLoop(piece, lambda: jnp.zeros(CHAINS), lambda: drawn(0), (COLD, WARM), NUMBER)
    return run_loop(loop, control)[0]


def forged(path, **tensors):
    """A checkpoint with other tensors, and the checksum of these."""
    stored = {name.replace("_", "."): value for name, value in tensors.items()}
    stored = load_file(path) | stored
    save_file(stored | {"digest": checksum(stored)}, path)


@pytest.fixture
def path(tmp_path):
    run(tmp_path / "chains", ends_after=3)
    return tmp_path / "chains"


def test_chains_go_on_with_the_draws_of_their_checkpoint(path):
    columns, told = run(path).joined()
    whole = [drawn(index)[0] for index in range(COLD, COLD + WARM)]
    for own, other in zip(columns, zip(*whole, strict=True), strict=True):
        np.testing.assert_array_equal(own, np.concatenate(other, axis=1))
    np.testing.assert_array_equal(told["lp"], columns[0][..., 0])


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"draws_f": np.zeros((CHAINS, 2 * NUMBER))}, r"draws.f has shape \(2, 10\) and type"),
        ({"draws_f": np.zeros((CHAINS, NUMBER, 1))}, r"not \(2, 10, 1\) and float64"),
        ({"draws_vector": np.zeros((CHAINS, 2 * NUMBER, 1), "f4")}, "type float32, not"),
        ({"statistics_lp": np.zeros(3)}, r"statistics.lp has shape \(3,\)"),
        ({"pieces": np.array([7])}, "it says that 7 of 4 pieces were made"),
        ({"pieces": np.array([-1])}, "it says that -1 of 4 pieces were made"),
        ({"pieces": np.array([4])}, r"not \(2, 15, 1\)"),
    ],
)
def test_forged_draws_are_refused_in_one_sentence(path, tensors, words):
    forged(path, **tensors)
    with pytest.raises(InputError, match=words) as refused:
        run(path)
    assert "remove it to start afresh" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
