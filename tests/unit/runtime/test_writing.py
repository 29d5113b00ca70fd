"""Files are whole or not there."""

import os

import pytest

from latentgp.runtime.writing import written_whole


@pytest.fixture(params=[None, 0o640])
def path(request, tmp_path):
    path = tmp_path / "table.csv"
    if request.param is not None:
        path.write_text("earlier")
        path.chmod(request.param)
    return path


def test_a_name_stands_for_nothing_but_a_whole_file(path, monkeypatch):
    """At every call that a killed process may have made last."""
    earlier = path.read_text() if path.exists() else None
    seen = []

    def look(*_):
        seen.append(path.read_text() if path.exists() else None)

    chmod = os.chmod
    monkeypatch.setattr(os, "chmod", lambda *args, **named: (look(), chmod(*args, **named), look()))
    with written_whole(path) as partial:
        look()
        partial.write_text("new")
        look()
    assert len(seen) == 4
    assert seen == [earlier] * 4
    assert path.read_text() == "new"


def test_others_can_read_what_its_writer_kept_to_itself(path, tmp_path):
    (tmp_path / "other").touch()
    mode = (path if path.exists() else tmp_path / "other").stat().st_mode
    with written_whole(path) as partial:
        partial.write_text("new")
        partial.chmod(0o600)
    assert path.stat().st_mode == mode


def test_an_error_leaves_what_was_there(path, tmp_path):
    earlier = path.read_text() if path.exists() else None

    def interrupted():
        with written_whole(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (path.read_text() if path.exists() else None) == earlier
    assert sorted(tmp_path.iterdir()) == ([path] if earlier else [])
