"""Seconds of a cold build, of a build after an edit of prose, and what each chapter cost."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat

from benchmarks.rows import Row, single

ROOT = Path(__file__).parents[1]
SKIPPED = shutil.ignore_patterns(".git", ".venv", "_build", "__pycache__", ".*_cache", ".hypothesis")


def build(folder: Path) -> float:
    """Build the book of a folder strictly and return the seconds it took.

    Raises:
        RuntimeError: the build failed; the message ends with its last lines.
    """
    start = time.monotonic()
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", ".", "-n", "-W"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError("the build failed:\n" + "\n".join((run.stdout + run.stderr).splitlines()[-20:]))
    return time.monotonic() - start


def cold_and_prose() -> tuple[float, float, list[tuple[str, float]]]:
    """Build a copy of the book from nothing, then again after a prose edit of every chapter.

    Returns:
        Seconds of the first build, of the second, and peak memory in MB of each chapter's kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "book"
        shutil.copytree(ROOT, copy, ignore=SKIPPED)
        cold = build(copy)
        for chapter in copy.glob("book/0*.md"):
            chapter.write_text(chapter.read_text(encoding="utf-8") + "\nOne more sentence.\n", encoding="utf-8")
        prose = build(copy)
        notebooks = sorted((copy / "_build" / "jupyter_execute" / "book").glob("0*.ipynb"))
        return cold, prose, [(path.stem, peak_memory(path)) for path in notebooks]


def rows() -> list[Row]:
    """Return seconds of both builds, and the peak memory of each chapter in the first."""
    cold, prose, memory = cold_and_prose()
    found = [
        single("build", "cold, all chapters executed", "s", cold, "language models trained, too"),
        single("build", "after a prose edit of every chapter", "s", prose, "at most 15"),
    ]
    return found + [single("build", f"{name}: peak memory", "MB", peak, "at most 1,000") for name, peak in memory]


def peak_memory(path: Path) -> float:
    """Return the peak memory in MB that a chapter's closing cell recorded."""
    notebook = nbformat.read(path, as_version=4)
    for cell in reversed(notebook.cells):
        for output in cell.get("outputs", []):
            if "memstore" in output.get("metadata", {}):
                return float(output["metadata"]["memstore"]["peak_memory_mb"])
    return float("nan")
