"""Show what ``make bench`` last measured.

``{bench-table}`` reads ``_build/bench/bench.json``. The page is true whatever lies there: it says when, on what and of
which commit the numbers are, whether the library has changed since, and without a file how to make one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from memstore_report import _table, _text
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)

HEAD = ("What", "Part", "Median", "Low", "High", "Runs", "Note")
NONE = "No benchmark was at hand when this page was written. Run make bench; the next build shows its table here."
FIELDS = {"date", "device", "machine", "python", "torch", "version", "commit", "library", "missing", "results"}


class BenchNode(nodes.General, nodes.Element):
    """Stands where the table goes until the page is written."""


class BenchTable(SphinxDirective):
    """``{bench-table}``: the ratios that ``make bench`` measured."""

    def run(self) -> list[nodes.Node]:
        """Leave a placeholder, so that the page shows the results of the day it is written."""
        if not hasattr(self.env, "memstore_benches"):
            self.env.memstore_benches = set()
        self.env.memstore_benches.add(self.env.docname)
        return [BenchNode()]


def refresh(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have the page written in every build: a benchmark may have been run since."""
    return sorted(getattr(env, "memstore_benches", set()) & env.found_docs)


def read(path: Path) -> dict[str, Any] | None:
    """Return the results, or None where there are none that can be read."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        results = None
    if not isinstance(results, dict) or not FIELDS <= results.keys():
        LOGGER.info("%s holds no benchmark that this version can read; make bench writes another", path)
        return None
    return results


def shown(results: dict[str, Any] | None, library: str) -> list[nodes.Node]:
    """Return what the page says of the results, for the library of a given digest."""
    if results is None:
        return [_text(NONE)]
    origin = (
        "Measured {date} on {device}, {machine}, with Python {python}, torch {torch}, memstore_lib {version}, "
        "commit {commit}. "
    ).format(**results)
    same = (
        "The library is the one of this build."
        if results["library"] == library
        else ("The library has changed since, so the numbers of this build may differ.")
    )
    missing = "".join(f" Not measured: {name}." for name in results["missing"])
    rows = ([_text(text) for text in _cells(row)] for row in results["results"])
    return [_text(origin + same + missing), _table("What make bench measured", HEAD, rows)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row as text; low and high say nothing where there was one run."""
    numbers = [f"{row[key]:,.3g} {row['unit']}" for key in ("median", "low", "high")]
    if row["runs"] == 1:
        numbers[1:] = ["–", "–"]
    return (row["name"], row["part"], *numbers, str(row["runs"]), row["note"] or "–")


class WriteBench(SphinxPostTransform):
    """Put the table where the directive stood."""

    default_priority = 8

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder of the page."""
        import memstore_lib
        from memstore_lib._files import digest

        for node in list(self.document.findall(BenchNode)):
            results = read(Path(self.app.srcdir) / "_build" / "bench" / "bench.json")
            node.replace_self(shown(results, digest(Path(memstore_lib.__file__).parent)))


def setup(app: Sphinx) -> None:
    """Connect the table to Sphinx."""
    app.add_node(BenchNode)
    app.add_directive("bench-table", BenchTable)
    app.add_post_transform(WriteBench)
    app.connect("env-updated", refresh)
