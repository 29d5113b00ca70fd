"""Shape annotations are checked in every test; core-level tests run in double precision."""

import os

# Most of the time of the tests goes into compiling programs that then run for milliseconds. (JAX's
# cache of compiled programs would save as much again, but jaxlib 0.10 crashes in writing some.)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import jax
import jaxtyping
import pytest

# Before anything of latentgp is imported. The surfaces above the core (estimators, command line)
# have no shapes to check, and their `Self` is more than beartype can see from a method.
_CORE = (
    "arrays augmentations data distributions fit inference kernels latents likelihoods linalg "
    "means models parameters posterior precision questions sampled_posterior sites testing"
)
jaxtyping.install_import_hook([f"latentgp.{room}" for room in _CORE.split()], "beartype.beartype")


@pytest.fixture
def x64():
    """Double precision for tests of pure functions, which follow the dtype they are given."""
    with jax.enable_x64(True):
        yield
