"""What each chapter cost in the build that lies in ``_build``: seconds out of the execution cache, and peak memory."""

from __future__ import annotations

from pathlib import Path

import nbformat
from jupyter_cache import get_cache

from benchmarks.builds import ROOT, peak_memory
from benchmarks.rows import Row, single


def seconds(build: Path) -> dict[str, float]:
    """Return the seconds of each page by its file's stem, out of the cache that the last build used."""
    caches = [path for path in (build / ".jupyter_cache").glob("*") if path.is_dir()]
    if not caches:
        return {}
    cache = get_cache(max(caches, key=lambda path: path.stat().st_mtime))
    records = sorted(cache.list_cache_records(), key=lambda record: record.created)
    return {Path(record.uri).stem: float(record.data.get("execution_seconds", float("nan"))) for record in records}


def rows(build: Path = ROOT / "_build") -> list[Row]:
    """Return seconds and peak memory of every executed page.

    Raises:
        FileNotFoundError: there is no build.
    """
    notebooks = sorted((build / "jupyter_execute" / "book").glob("*.ipynb"))
    if not notebooks:
        raise FileNotFoundError("there is no built book: run make book first")
    took, found = seconds(build), []
    for path in notebooks:
        if not any(cell.get("outputs") for cell in nbformat.read(path, as_version=4).cells):
            continue
        if path.stem in took:
            found.append(single("chapter", f"{path.stem}: execution", "s", took[path.stem], "in the last build"))
        found.append(single("chapter", f"{path.stem}: peak memory", "MB", peak_memory(path), "at most 1,000"))
    return found
