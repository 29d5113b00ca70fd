"""Tries the wheel on every Python that is found, with the lowest and the newest dependencies.

`make test-wheels` runs it: `python tests/packaging/wheels.py dist/latentgp-*.whl`. Environments are
made by uv, and `smoke.py` runs in each, outside of the checkout.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py")
RESOLUTIONS = ("lowest-direct", "highest")


def described(wheel: Path) -> list[tuple[str, str]]:
    """Fields of the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode()).items()


def run(*words: object, **settings) -> subprocess.CompletedProcess:
    """Without variables that lead to the checkout, with uv and the interpreters of pyenv."""
    hidden = "PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    pyenv = Path(environment.get("PYENV_ROOT", Path.home() / ".pyenv"))
    search = Path(sys.executable).parent, environment["PATH"], *pyenv.glob("versions/*/bin")
    environment["PATH"] = os.pathsep.join(map(str, search))
    words = tuple(map(str, words))
    return subprocess.run(words, capture_output=True, text=True, env=environment, **settings)


def tried(wheel: Path, version: str, resolution: str) -> str | None:
    """Installs and runs; what went wrong, None if nothing."""
    requirements = [text for name, text in described(wheel) if name == "Requires-Dist"]
    direct = [text for text in requirements if "extra ==" not in text]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = folder / "environment/bin/python"
        (folder / "direct.txt").write_text("\n".join(direct))
        (folder / "work").mkdir()
        installing = "uv", "pip", "install", "--python", python, "--only-binary", ":all:"
        for words in (
            ("uv", "venv", "--python", version, folder / "environment"),
            (*installing, "--resolution", resolution, wheel, "-r", folder / "direct.txt"),
            (python, SMOKE, folder / "work"),
        ):
            done = run(*words, cwd=folder)
            if done.returncode:
                return done.stdout[-2000:] + done.stderr[-4000:]
        listed = run("uv", "pip", "freeze", "--python", python).stdout
        names = {re.split(r"[^\w.-]", text)[0].lower() for text in direct}
        print(*(line for line in listed.split() if line.split("==")[0].lower() in names))
    return None


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("wheel", type=Path)
    asked.add_argument("--python", nargs="+", default=["3.11", "3.12", "3.13"])
    asked.add_argument("--resolution", nargs="+", default=list(RESOLUTIONS), choices=RESOLUTIONS)
    given = asked.parse_args()
    wheel, wrong, missing = given.wheel.resolve(), 0, []
    for version in given.python:
        if all(run("uv", "python", how, version).returncode for how in ("find", "install")):
            missing.append(version)
            continue
        for resolution in given.resolution:
            began = time.perf_counter()
            failure = tried(wheel, version, resolution)
            seconds = time.perf_counter() - began
            wrong += failure is not None
            said = "works" if failure is None else f"fails:\n{failure}"
            print(f"Python {version}, {resolution}: {said} ({seconds:.0f} s)", flush=True)
    if missing:
        print("Not tried, for want of an interpreter: Python", ", ".join(missing))
    return 1 if wrong or len(missing) == len(given.python) else 0


if __name__ == "__main__":
    sys.exit(main())
