"""Every case of the tests, or of folders that are named, a process a file.

What failed and what was skipped is printed last. A file that has passed at this commit is not run
again, unless there are changes that are not committed.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVERY_CASE = "slow or not slow"


def run(file, report):
    """Run a file of tests, unless its report has no failure; returns its path."""
    path = report / f"{'.'.join(file.with_suffix('').parts)}.xml"
    if not path.exists() or any(problems(path)):
        path.unlink(missing_ok=True)
        arguments = ["-n0", "-m", EVERY_CASE, "--durations=0", f"--junitxml={path}", str(file)]
        with path.with_suffix(".log").open("w") as log:
            subprocess.run([sys.executable, "-m", "pytest", *arguments], stdout=log, stderr=log)
    said = "did not end" if not path.exists() else f"{len(list(cases(path)))} cases"
    print(f"{file}: {said}, {len(list(problems(path)))} failed", flush=True)
    return path


def cases(path):
    return ET.parse(path).iter("testcase") if path.exists() else ()


def named(case):
    return f"{case.get('classname')}::{case.get('name')}"


def problems(path):
    """Names of cases that failed, or of a file that did not end."""
    if not path.exists():
        yield f"{path.stem} did not end: see {path.with_suffix('.log')}"
    for case in cases(path):
        if case.find("failure") is not None or case.find("error") is not None:
            yield named(case)


def left_out(path):
    """Reasons for which cases were skipped, each with the file."""
    for case in cases(path):
        if (skipped := case.find("skipped")) is not None:
            yield path.stem, skipped.get("message")


def main():
    state = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    commit = subprocess.run(state, capture_output=True, text=True, check=True).stdout.strip()
    report = ROOT / ".pytest_cache" / "all" / commit
    report.mkdir(parents=True, exist_ok=True)
    if commit.endswith("-dirty"):
        for path in report.iterdir():
            path.unlink()
    os.chdir(ROOT)
    folders = sys.argv[1:] or ["tests"]
    files = sorted(file for folder in folders for file in Path(folder).rglob("test_*.py"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = list(pool.map(lambda file: run(file, report), files))
    skipped = Counter(reason for path in paths for reason in left_out(path))
    failed = [name for path in paths for name in problems(path)]
    print(f"\n{sum(len(list(cases(path))) for path in paths)} cases in {len(files)} files")
    print(f"Left out, {skipped.total()} cases:")
    for (file, reason), number in sorted(skipped.items()):
        print(f"  {number} of {file}: {reason}")
    print(f"Failed, {len(failed)}:", *failed, sep="\n  ")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
