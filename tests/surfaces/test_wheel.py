"""The wheel of `make wheel`: what is in it, and that it works in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import latentgp

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FIT = """
import numpy as np, latentgp as lgp
years, co2 = lgp.datasets.mauna_loa_co2()
regressor = lgp.GPRegressor(random_state=0).fit(years[-30:, None], co2[-30:])
assert np.isfinite(regressor.predict(years[-30:, None])).all()
print(lgp.__file__)
"""


def run(*command, **settings):
    """Without the path on which the tests find the working copy."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as a user would; pip fetches the build backend."""
    folder = tmp_path_factory.mktemp("dist")
    run("make", "wheel", f"BIN={Path(sys.executable).parent}", f"DIST={folder}", cwd=ROOT)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Empty but for the wheel; what it depends on is found where the tests find it."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    pip = sys.executable, "-m", "pip", "--python", python
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")[:-1]
    )
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        described = {Path(name).name for name in set(archive.namelist()) - names}
    package = (path for path in (SOURCE / "latentgp").rglob("*") if path.is_file())
    kept = {
        path.relative_to(SOURCE).as_posix() for path in package if path.parent.name != "__pycache__"
    }
    assert names == kept
    assert {Path(name).suffix for name in names} == {".py", ".csv", ".md", ".typed"}
    assert names >= {
        "latentgp/py.typed",
        "latentgp/datasets/SOURCES.md",
        "latentgp/datasets/mauna_loa_co2.csv",
        "latentgp/datasets/coal_mine_disasters.csv",
    }
    assert described == {"METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt"}


def test_the_installed_wheel_fits_and_has_its_command(environment, tmp_path):
    said = run(environment / "bin/latentgp", "--version", cwd=tmp_path)
    assert said == f"latentgp {latentgp.__version__}\n"
    where = run(environment / "bin/python", "-c", FIT, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(environment)
