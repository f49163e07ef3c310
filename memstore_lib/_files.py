"""Writing files so that one of a given name is always whole."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".memstore-"  # begins the name of a file that is being written
_MASK = os.umask(0o077)  # can be asked for only by setting it
os.umask(_MASK)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` for writing, and move it there when all is written; else leave nothing."""
    path = path.resolve()  # a link goes on leading to the file
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_MASK)  # as any other new file: a temporary one is for its owner alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def digest(folder: Path) -> str:
    """Return a short hash over the Python files of a folder and their names, the same on every machine."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        text = path.read_bytes()
        found.update(f"{path.relative_to(folder).as_posix()} {hashlib.sha256(text).hexdigest()}\n".encode())
    return found.hexdigest()[:16]
