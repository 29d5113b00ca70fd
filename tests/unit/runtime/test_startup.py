"""What a new process does first, and what it takes over from others."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import latentgp as lgp
from latentgp.runtime import compilation_cache as programs

JAX_KEEPS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
FIRST_MODEL = """
import numpy as np
import latentgp as lgp

X = np.random.default_rng(0).normal(size=(500, 4))
estimator = lgp.GPRegressor(random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * X[:, 1])
mean, deviation = estimator.predict(X[:10], return_std=True)
assert np.all(np.abs(mean - np.sin(X[:10, 0]) - 0.1 * X[:10, 1]) < 0.1)
"""


def without_settings():
    """The environment less what the tests tell JAX: programs are optimised, as a user's are."""
    return {name: v for name, v in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}


def first_model(**environment):
    """Run the first model of a process, and give what it says."""
    command = [sys.executable, "-c", FIRST_MODEL]
    done = subprocess.run(
        command,
        check=True,
        timeout=300,
        env=without_settings() | environment,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_the_first_model_of_a_process_predicts_well_and_keeps_its_programs(tmp_path):
    assert "cache" not in first_model(XDG_CACHE_HOME=str(tmp_path))
    kept = list(tmp_path.glob("latentgp/programs-*/*-program"))
    assert any(file.name.startswith("jit__evaluate_exact") for file in kept)
    assert len(list(kept[0].parent.iterdir())) == len(kept)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["switched off", "no folder", "no home"])
def test_a_first_model_needs_no_cache(tmp_path, way):
    (tmp_path / "file").touch()
    ways = {
        "switched off": {"XDG_CACHE_HOME": str(tmp_path), "LATENTGP_CACHE": "0"},
        "no folder": {"XDG_CACHE_HOME": str(tmp_path / "file")},
        "no home": {"XDG_CACHE_HOME": "", "HOME": "/proc/nowhere"},
    }
    assert "cache" not in first_model(**ways[way])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


A_FIT = """
import pathlib, sys
import jax
import numpy as np
import latentgp as lgp
from numpyro.distributions import LogNormal

assert lgp.keep_programs(sys.argv[1]) == pathlib.Path(sys.argv[1])
X = np.random.default_rng(0).normal(size=(300, 2))
model = lgp.LatentGP(lgp.RBF(lengthscale=[1.0, 1.0]), lgp.Bernoulli())
method = lgp.Stochastic(lgp.VariationalInference(lgp.Inducing(20)), batch_size=100, epochs=2)
result = lgp.fit(model, lgp.Data(X, X[:, 0] > 0), key=jax.random.key(0), method=method)
print(result.posterior.log_evidence, LogNormal.gather_pytree_data_fields(), sep="|")
"""


def test_another_process_takes_compiled_programs_over(tmp_path):
    """Whatever order its sets have."""

    def run(seed):
        environment = without_settings() | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", A_FIT, str(tmp_path)]
        process = subprocess.run(
            command, check=True, timeout=300, env=environment, capture_output=True, text=True
        )
        return *process.stdout.split("|"), len(list(tmp_path.glob("jit_run_batches-*-program")))

    first, second = run("1"), run("6")
    assert first[1] != second[1]  # NumPyro's order of a prior's numbers
    assert first[0] == second[0]
    assert first[2] == second[2] == 1


@pytest.mark.slow
def test_the_command_line_keeps_programs_and_survives_broken_ones(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b", comments="")

    def run():
        environment = without_settings() | {"XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-c", "from latentgp.surfaces.cli.app import main; main()"]
        command += ["fit", "rows.csv", "--target", "b", "--out", "b.model"]
        process = subprocess.run(
            command, check=True, timeout=300, env=environment, capture_output=True, cwd=tmp_path
        )
        assert b"compilation cache" not in process.stderr
        return sorted(tmp_path.glob("latentgp/programs-*/*-program"))

    kept = run()
    assert kept
    for file in kept:
        os.truncate(file, 100)
    run()
    assert not any(file.exists() and file.stat().st_size == 100 for file in kept)


@pytest.mark.parametrize("name", ["", ".", "cache", "~/cache"])
def test_a_relative_folder_of_caches_is_ignored(tmp_path, monkeypatch, untold, name):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", name)
    monkeypatch.chdir(tmp_path)
    folder = lgp.keep_programs()
    assert folder is not None
    assert folder.is_relative_to(tmp_path / "home" / ".cache")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.fixture
def untold():
    """As if JAX had not been told where to keep programs."""
    told = {name: jax.config.values[name] for name in JAX_KEEPS}
    jax.config.update(JAX_KEEPS[0], None)
    yield
    for name, value in told.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_programs_are_kept_nowhere_that_cannot_be_written_to(tmp_path, untold):
    (tmp_path / "file").touch()
    assert lgp.keep_programs(tmp_path / "file") is None
    assert jax.config.values[JAX_KEEPS[0]] is None


def test_the_older_half_is_deleted_from_a_folder_that_holds_many(tmp_path, untold, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_BYTES", 40)
    for age, name in enumerate(["new-program", "old-program", "other-program", "old.part"]):
        (tmp_path / name).write_text("some twenty bytes...")
        os.utime(tmp_path / name, (0, 10_000 - age))
    (tmp_path / "more").mkdir()
    (tmp_path / "now.part").touch()
    assert lgp.keep_programs(tmp_path) == tmp_path
    assert sorted(f.name for f in tmp_path.iterdir()) == ["more", "new-program", "now.part"]


def test_another_folder_can_be_taken_later(tmp_path, untold):
    assert lgp.keep_programs(tmp_path / "a") == tmp_path / "a"
    assert lgp.keep_programs(tmp_path / "b") == tmp_path / "b"
    assert jax.config.values[JAX_KEEPS[0]] == str(tmp_path / "b")
    jax.config.update(JAX_KEEPS[1], 0.0)
    jax.jit(lambda x: jax.numpy.sin(x) @ x)(np.ones(3))
    assert [*(tmp_path / "a").iterdir()] == []
    assert [*(tmp_path / "b").iterdir()] != []


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    kept = programs.ProgramFiles(tmp_path)
    assert kept.get("jit_f-1") is None
    kept.put("jit_f-1", b"a program")
    assert kept.get("jit_f-1") == b"a program"
    (file,) = tmp_path.iterdir()
    os.truncate(file, 20)
    assert kept.get("jit_f-1") is None
    assert [*tmp_path.iterdir()] == []

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(type(tmp_path), "replace", full)
    kept.put("jit_f-1", b"a program")
    assert [*tmp_path.iterdir()] == []
