"""Shape annotations are checked in every test; core-level tests run in double precision."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

# Most of the time of the tests goes into compiling programs that then run for milliseconds: little
# optimisation, and what one process has compiled the others take over. Before JAX is imported.
QUICK_TO_COMPILE = "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false"
AS_USERS_HAVE_THEM = "OPTIMISED" in os.environ  # `make test-optimised`
os.environ |= {
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
if not AS_USERS_HAVE_THEM:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
if not AS_USERS_HAVE_THEM and "XLA_FLAGS" not in os.environ:  # those it starts inherit them
    # A compiler that does not know one of them ends the process.
    flags = {**os.environ, "XLA_FLAGS": QUICK_TO_COMPILE}
    known = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=flags, capture_output=True
    )
    os.environ["XLA_FLAGS"] = QUICK_TO_COMPILE if known.returncode == 0 else ""

# Tracing makes many objects that live: looking for waste among them took a tenth of the time.
gc.set_threshold(200_000, 50, 100)

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# Before anything of latentgp is imported. The surfaces above the core (estimators, command line)
# have no shapes to check, and their `Self` is more than beartype can see from a method.
_CORE = (
    "choosing diagnostics differentiable distributions extensions hyperparameters inference "
    "kernels likelihoods means methods model_checks models numerics posteriors representations "
    "rows.arrays rows.data rows.spread runtime setup site_inference sites testing "
    "typing validation"
)
jaxtyping.install_import_hook([f"latentgp.{room}" for room in _CORE.split()], "type_check.check")

from latentgp.runtime import compilation_cache  # noqa: E402
from slow import in_turn, turn_of_commit  # noqa: E402

pytest_plugins = ["without"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Cases whose turn it is, unless they are chosen by marker, word or name."""
    asked = config.option
    if not (asked.markexpr or asked.keyword or any("::" in name for name in config.args)):
        taken = list(in_turn(items, turn_of_commit()))
        left = [item for item, is_taken in zip(items, taken, strict=True) if not is_taken]
        items[:] = [item for item, is_taken in zip(items, taken, strict=True) if is_taken]
        config.hook.pytest_deselected(items=left)


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Tests share what was compiled, as far as the memory maps of a process allow."""
    compilation_cache.make_room_for_programs()


@pytest.fixture
def ctrl_c():
    """What Ctrl-C does, under Python's own handler: workers of pytest-xdist ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def as_users_have_it(monkeypatch):
    """No check of annotations, which stops arguments of other types before the library does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def x64():
    """Double precision for tests of pure functions, which follow the dtype they are given."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compilations(monkeypatch):
    """The names of what JAX compiles while the test runs; no room is made meanwhile."""
    monkeypatch.setattr(compilation_cache, "_MOST_MAPS", Path("/nowhere"))
    seen = []

    def listen(event, duration, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(details.get("fun_name", event))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)
