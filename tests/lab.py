"""The JupyterLab of Binder: provide it, and run it on a copy of the book.

On Binder one environment holds all: repo2docker's JupyterLab, then the book on top, at the versions of
``requirements.lock``. Here a small environment in ``_build/lab`` holds the packages of ``binder/requirements.lock`` and
sees those of the environment that runs the tests, so that server and kernel share one Python, as there.

``python -m tests.lab`` provides it and prints where it is, or why it is not there: the tests then skip, except under
``CI=true``, where that is a failure.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.browser import in_ci
from tests.sources import ROOT

LOCK = ROOT / "tests" / "binder" / "requirements.lock"
HOME = ROOT / "_build" / "lab"
STAMP = HOME / "installed"
PYTHON = HOME / ("Scripts" if os.name == "nt" else "bin") / "python"
INSTALL_LIMIT = 600  # seconds
START_LIMIT = 120

MISSING = "the JupyterLab of Binder could not be installed; make test does this where packages can be had"

#: Variables that a reader on Binder does not have, or that ``start`` sets there.
FOREIGN = ("JUPYTER", "IPYTHON", "XDG_", "OMP_", "MEMSTORE_BUILD", "MEMSTORE_WORKERS")
#: What a chapter needs to run; the rest of the repository stays out of the copy.
COPIED = ("book", "memstore_lib", "_toc.yml", "start")
#: Trained models and what they read: chapter 6 would train for minutes without.
SHARED = ("_build/training", "_build/corpus")


def _state() -> str:
    """Return what the environment was made from; it can be neither moved nor used by another Python."""
    return f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()} {sys.prefix} {sys.version} {HOME}\n"


def find() -> Path | None:
    """Return the Python of the environment, or None when it is not there or made from something else."""
    ready = STAMP.is_file() and STAMP.read_text(encoding="utf8") == _state()
    return PYTHON if ready and PYTHON.is_file() else None


def provide() -> Path | None:
    """Return the Python of the environment, making the environment if need be; None when that fails."""
    found = find()
    if found:
        return found
    STAMP.unlink(missing_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)]
    try:
        _call([sys.executable, "-m", "venv", "--clear", "--without-pip", str(HOME)])
        _call([*pip, "install", "--quiet", "--no-deps", "-r", str(LOCK)])
    except (OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return None
    # A path alone would not do: the book's own package is one that such a file in the other environment points to.
    site = sysconfig.get_path("purelib")
    own = Path(sysconfig.get_path("purelib", vars={"base": str(HOME), "platbase": str(HOME)}))
    (own / "book.pth").write_text(f"import site; site.addsitedir({site!r})\n", encoding="utf8")
    STAMP.write_text(_state(), encoding="utf8")
    return PYTHON


def _call(command: list[str]) -> None:
    print("+", " ".join(command), file=sys.stderr, flush=True)
    subprocess.run(command, stdout=sys.stderr, timeout=INSTALL_LIMIT, check=True)


def copy_of_the_book(folder: Path) -> Path:
    """Copy what chapters need: JupyterLab saves what it has open, which must not be the repository's own."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        else:
            shutil.copy2(source, folder / name)
    for name in SHARED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
    return folder


def post_build_settings() -> list[str]:
    """Return the command of ``postBuild`` that sets up JupyterLab."""
    text = (ROOT / "postBuild").read_text(encoding="utf8")
    return re.search(r"^jupytext-config .+$", text, re.MULTILINE).group().split()


def environment(book: Path, home: Path) -> dict[str, str]:
    """Return the environment variables of a reader on Binder: a HOME with nothing in it, and no trace of a build."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    path = os.pathsep.join([str(PYTHON.parent), ours.get("PATH", "")])
    return ours | {"HOME": str(home), "PATH": path, "PYTHONPATH": str(book), "MEMSTORE_DEVICE": "cpu"}


@contextmanager
def running(book: Path, home: Path) -> Iterator[str]:
    """Start JupyterLab in a folder, set up as ``postBuild`` and ``start`` do; yield its address.

    Args:
        book: the folder that it shows.
        home: an empty folder.

    Raises:
        RuntimeError: it ends, or does not answer in time.
    """
    variables = environment(book, home)
    subprocess.run(post_build_settings(), cwd=book, env=variables, check=True, capture_output=True, timeout=START_LIMIT)
    with socket.socket() as free:  # the server moves on to another port if this one is taken in the meantime
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=", "--expose-app-in-browser"]
    command = [str(book / "start"), str(PYTHON), "-m", "jupyterlab", *options, f"--ServerApp.root_dir={book}"]
    log = home / "lab.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=book, env=variables, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _address(server, home, log)
    finally:
        server.terminate()  # which shuts down its kernels
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _address(server: subprocess.Popen, home: Path, log: Path) -> str:
    """Wait until the server answers, and return its address."""
    end = time.monotonic() + START_LIMIT
    while time.monotonic() < end and server.poll() is None:
        for file in home.glob(".local/share/jupyter/runtime/jpserver-*.json"):
            try:
                url = json.loads(file.read_text(encoding="utf8"))["url"]
                urlopen(f"{url}api/status", timeout=10).close()
                return url
            except (URLError, OSError, ValueError):  # not yet written, or not yet listening
                pass
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start: {log.read_text(encoding='utf8')[-2000:]}")


def main() -> int:
    """Provide the environment and say where it is; return the exit status."""
    path = provide()
    print(f"JupyterLab for the tests: {path}" if path else f"Tests in JupyterLab are skipped: {MISSING}")
    return 1 if path is None and in_ci() else 0


if __name__ == "__main__":
    sys.exit(main())
