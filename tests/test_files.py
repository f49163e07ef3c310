"""A file of a given name is always whole, and like any other file."""

from __future__ import annotations

import stat

import pytest

from memstore_lib._files import whole


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_whole_file_may_be_read_by_whom_other_new_files_may(tmp_path):
    with whole(tmp_path / "one") as file:
        file.write(b"all of it")
    (tmp_path / "other").touch()
    assert mode(tmp_path / "one") == mode(tmp_path / "other")


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
