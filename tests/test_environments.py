"""Where a build has to work: odd paths, a HOME of no use, no git, another build beside it, a build killed before it.

The copies of the book are those of ``test_build``. They have no git metadata, as in a source archive.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import psutil
import pytest

from tests.test_build import Book, ended, small_book

pytestmark = pytest.mark.build

PATIENCE_S = 240  # until a build has reached a cell, or a kernel has noticed that its build is gone
WAITS = """\
import os, pathlib, time
seen, hold = pathlib.Path("seen"), pathlib.Path("hold")
if hold.exists():
    seen.write_text(str(os.getpid()))
    while hold.exists():
        time.sleep(0.1)
cost = {"""


def wait_for(condition, what: str):
    """Return what a condition returns, once that is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    root = tmp_path_factory.mktemp("a path") / "記憶 book"
    root.mkdir()
    return small_book(root)


def test_a_path_with_spaces_and_kanji_and_no_git(book):
    assert not any((folder / ".git").exists() for folder in (book.root, *book.root.parents))
    outcome = book.built()
    assert outcome.executed == 1
    assert "the probe is green" in book.text()
    assert f"The site: {book.root / '_build/html/index.html'}" in outcome.log


def test_a_home_that_cannot_be_written(book, tmp_path):
    """A file in its place: unlike a folder without permission this stops root as well."""
    home = tmp_path / "home"
    home.touch()
    shutil.rmtree(book.root / "_build", ignore_errors=True)
    outcome = book.built(HOME=str(home), **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), ""))
    assert outcome.executed == 1
    assert "the probe is green" in book.text()
    assert home.read_bytes() == b""


def test_two_builds_at_once_in_two_clones(book, tmp_path):
    clone = Book(tmp_path / "clone")
    shutil.copytree(book.root, clone.root, ignore=shutil.ignore_patterns("_build"))
    shutil.rmtree(book.root / "_build", ignore_errors=True)
    clone.edit("memstore_lib/probe.py", "green", "yellow")
    running = [one.start() for one in (book, clone)]
    for outcome in map(ended, running):
        assert outcome.status == 0, outcome.log
        assert outcome.executed == 1
    assert "the probe is green" in book.text()
    assert "the probe is yellow" in clone.text()


def test_a_build_that_was_killed_can_be_repeated(book):
    """Killed while a cell runs, a build leaves no kernel behind, and nothing that spoils the next one."""
    hold, seen = (book.root / "book" / name for name in ("hold", "seen"))
    book.edit("book/chapter.md", "cost = {", WAITS)
    hold.touch()
    build = book.start()
    try:
        kernel = psutil.Process(int(wait_for(lambda: read(seen), "the cell runs")))
    finally:
        build.kill()
        build.stdout.close()  # a kernel that lives on would keep it open
        build.wait()
    wait_for(lambda: not kernel.is_running(), "the kernel ends")
    assert hold.exists(), "or else the cell would have ended by itself"
    hold.unlink()
    outcome = book.built()
    assert outcome.executed == 1
    assert "the probe is green" in book.text()
    assert book.built().executed == 0


def read(path: Path) -> str:
    return path.read_text(encoding="utf8") if path.is_file() else ""
