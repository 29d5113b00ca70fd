"""Shape annotations are checked in every test; core-level tests run in double precision."""

import jax
import jaxtyping
import pytest

# Before anything of latentgp is imported.
jaxtyping.install_import_hook("latentgp", "beartype.beartype")


@pytest.fixture
def x64():
    """Double precision for tests of pure functions, which follow the dtype they are given."""
    with jax.enable_x64(True):
        yield
