"""Files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latentgp.errors import InputError, in_a_line


def check_writable(path: str | Path, *, makes_folders: bool = False) -> Path:
    """The path, if a file can be written there; nothing is left behind, none there is touched.

    InputError if it is a folder or a device, or its folder cannot be written to, or is missing and
    not made (`makes_folders`) when the file is written.

    Example:
        >>> import tempfile
        >>> check_writable(tempfile.mkdtemp() + "/new/table.csv", makes_folders=True).name
        'table.csv'
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise InputError(f"{path} is {what}: name a file to write")
    folder = path.parent
    if makes_folders:
        folder = next(above for above in (folder, *folder.parents) if above.exists())
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        raise InputError(f"the folder {folder} {what}: make it, or name another")
    trial = folder / _beside(path).name
    with writing(path):
        if not trial.exists():  # or it is left of a process that was killed in writing
            trial.open("xb").close()
            trial.unlink()
    return path


@contextmanager
def written_whole(path: Path, *errors: type[Exception]) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place once it is whole.

    What the disk, or the writer by `errors` of its own, refuses is raised as InputError; nothing is
    left behind then, and an earlier file stays.
    """
    partial = _beside(path)
    try:
        with writing(path, *errors):
            yield partial
            partial.chmod(_mode(path))  # some writers make files that their owner alone can read
            partial.replace(path)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            partial.unlink()
        raise


@contextmanager
def writing(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn a disk's or writer's errors into an InputError."""
    try:
        yield
    except (OSError, *errors) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"{path} cannot be written: {in_a_line(reason)}; make room for it, or name "
            "another file to write"
        ) from error


def _mode(path: Path) -> int:
    """Mode of the file, or of a new one there; `path` itself is touched by nothing unfinished."""
    if path.exists():
        return path.stat().st_mode
    trial = _beside(_beside(path))
    trial.touch()
    mode = trial.stat().st_mode
    trial.unlink()
    return mode


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")
