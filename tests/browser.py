"""Find a Chromium for the tests that open pages, or provide one.

``python -m tests.browser`` looks for one that is there (``MEMSTORE_CHROMIUM``, the usual commands, playwright's own),
else installs Debian's package where apt can be used, else downloads playwright's. It prints the path, or why there is
none: the tests then skip, except under ``CI=true``, where a missing browser is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OVERRIDE = "MEMSTORE_CHROMIUM"
COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
INSTALL_LIMIT = 600  # seconds for a package manager or a download

MISSING = (
    f"no Chromium found: install one (apt install chromium), or set {OVERRIDE} to the path of its program; "
    "make test does this where it can"
)


def in_ci() -> bool:
    """Return whether this runs in continuous integration, where nothing may be skipped for want of a browser."""
    return os.environ.get("CI", "").lower() == "true"


def _candidates() -> Iterator[str | None]:
    yield from map(shutil.which, COMMANDS)
    yield MACOS
    yield _playwrights_own()


def _playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def _runs(path: str | None) -> bool:
    """Return whether the program starts: some distributions ship a stand-in that only asks for a snap."""
    if not path or not Path(path).is_file():
        return False
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def find() -> str | None:
    """Return the path of a Chromium on this machine, or None.

    Raises:
        ValueError: ``MEMSTORE_CHROMIUM`` is set to something that does not run.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        if not _runs(override):
            raise ValueError(f"{OVERRIDE} must be the path of a Chromium that runs, got {override!r}")
        return override
    return next(filter(_runs, _candidates()), None)


def _apt() -> list[str] | None:
    """Return how apt-get is called here, or None where it cannot be used."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ["apt-get"]
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n", "apt-get"]
    return None


def _try(command: list[str]) -> bool:
    print("+", " ".join(command), file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(command, env=environment, stdout=sys.stderr, timeout=INSTALL_LIMIT).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return False


def provide() -> str | None:
    """Return the path of a Chromium, installing one if need be, or None when there is no way to get one."""
    found = find()
    apt = None if found else _apt()
    if apt:
        # A package list that cannot be refreshed may still be good enough.
        _try([*apt, "update"])
        # Without a font of its own a bare machine would show no text.
        _try([*apt, "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"])
        found = find()
    if not found:
        _try([sys.executable, "-m", "playwright", "install", "chromium"])
        found = find()
    return found


def main() -> int:
    """Provide a browser and say which; return the exit status."""
    path = provide()
    print(f"Browser for the tests: {path}" if path else f"Tests in a browser are skipped: {MISSING}")
    return 1 if path is None and in_ci() else 0


if __name__ == "__main__":
    sys.exit(main())
