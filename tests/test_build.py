"""What a build does after edits: when chapters execute again, and what stops a build.

The builds are of a small copy of the repository, with its configuration, its extension, its library and two short
pages. They are one story, told in the order of the tests; each leaves the copy as it found it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup

from tests.sources import ROOT

pytestmark = pytest.mark.build

COPIED = (
    "_config.yml",
    "requirements.lock",
    "pyproject.toml",
    "memstore_lib",
    "book/_ext",
    "book/_static",
    "book/_templates",
    "book/claims.yml",
    "book/references.bib",
)

TOC = """\
format: jb-book
root: book/intro
chapters:
  - file: book/chapter
  - file: book/reproducibility
"""

PAGES = {
    "book/intro.md": "# A small book\n\nFirst page.\n",
    "book/reproducibility.md": "# Reproducibility\n\n```{build-report}\n```\n\n```{bench-table}\n```\n",
    "book/chapter.md": """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
# A chapter

Some prose.

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-small
    caption: The first caption.
---
import pandas as pd
from memstore_lib import figures
from memstore_lib.probe import PROBE
table = pd.DataFrame({"x": [1]})
figures.matrix([[1.0, 2.0], [3.0, 4.0]], row_title="row", column_title="column",
               description="A matrix of four cells, which grow from left to right.")
```

```{code-cell} ipython3
from IPython.display import display
cost = {"chapter": "chapter", "device": {"device": "cpu"}, "seeds": [11], "peak_memory_mb": 123.0,
        "claims": {"holds": 3}}
display({"text/plain": "the probe is " + PROBE}, raw=True, metadata={"memstore": cost})
```

The figure is {numref}`fig-small`.
""",
}


@dataclass
class Outcome:
    """How a build ended, and what it executed."""

    status: int
    log: str

    @property
    def executed(self) -> int:
        return self.log.count("Executing notebook using")


def ended(process: subprocess.Popen) -> Outcome:
    """Wait for a build."""
    with process:
        try:
            log, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    return Outcome(process.returncode, log)


@dataclass
class Book:
    """A small copy of the repository."""

    root: Path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", "."]
        return subprocess.Popen(
            [*command, *(arguments or ("-n", "-W"))],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), "MEMSTORE_DEVICE": "cpu", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def build(self, *arguments: str, **environment: str) -> Outcome:
        return ended(self.start(*arguments, **environment))

    def built(self, **environment: str) -> Outcome:
        outcome = self.build(**environment)
        assert outcome.status == 0, outcome.log
        return outcome

    def refused(self, reason: str, times: int = 2) -> None:
        """A build that fails must fail again when nothing has been repaired."""
        for _ in range(times):
            outcome = self.build()
            assert outcome.status != 0, outcome.log
            assert re.search(reason, outcome.log), outcome.log

    def page(self, name: str = "chapter") -> BeautifulSoup:
        return BeautifulSoup((self.root / f"_build/html/book/{name}.html").read_text(encoding="utf8"), "html.parser")

    def text(self, name: str = "chapter") -> str:
        return self.page(name).get_text(" ", strip=True)

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text(encoding="utf8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf8")


def copy(root: Path, names: Iterable[str] = COPIED) -> None:
    """Copy files and folders of the repository into a folder."""
    for name in names:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)


def small_book(root: Path) -> Book:
    """Make a small copy of the repository in a folder."""
    copy(root)
    (root / "_toc.yml").write_text(TOC, encoding="utf8")
    for name, text in PAGES.items():
        (root / name).write_text(text, encoding="utf8")
    (root / "memstore_lib/probe.py").write_text('PROBE = "green"\n', encoding="utf8")
    return Book(root)


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    built = small_book(tmp_path_factory.mktemp("small book"))
    outcome = built.built()
    assert outcome.executed == 1
    assert "executed now" in outcome.log
    assert f"The site: {built.root / '_build/html/index.html'}" in outcome.log
    assert "the probe is green" in built.text()
    return built


@pytest.fixture
def edited(book):
    """Edit files of the book for one test."""
    kept = {}

    def edit(path: str, old: str, new: str) -> None:
        kept.setdefault(path, (book.root / path).read_text(encoding="utf8"))
        book.edit(path, old, new)

    yield edit
    for path, text in kept.items():
        (book.root / path).write_text(text, encoding="utf8")


def report_row(book: Book) -> list[str]:
    tables = book.page("reproducibility").find_all("table")
    table = next(table for table in tables if "Peak memory" in table.get_text())
    row = table.find("tbody").find("tr")
    return [cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])]


def test_report_says_what_the_chapter_cost(book):
    name, seconds, memory, seeds, device, claims, computed = report_row(book)
    assert name == "A chapter"
    assert float(seconds) > 0
    assert (memory, seeds, device, claims) == ("123", "11", "cpu", "3 holds")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", computed)


def test_report_names_the_environment(book):
    text = book.text("reproducibility")
    assert torch.__version__ in text
    assert "cpu" in text
    assert "MEMSTORE_DEVICE" in text


def test_nothing_changed_executes_nothing(book):
    outcome = book.built()
    assert outcome.executed == 0
    assert "the page is unchanged" in outcome.log


def test_a_benchmark_is_shown_by_the_next_build(book):
    assert "Run make bench" in book.text("reproducibility")
    row = {"part": "p", "name": "ours / floor", "unit": "×", "median": 1.5, "low": 1, "high": 2, "runs": 7, "note": ""}
    told = ("date", "device", "machine", "python", "torch", "version", "commit", "library")
    path = book.root / "_build/bench/bench.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**{name: f"some {name}" for name in told}, "missing": {}, "results": [row]}))
    assert book.built().executed == 0
    shown = book.text("reproducibility")
    assert "ours / floor p 1.5 × 1 × 2 × 7 –" in shown
    assert "Measured some date on some device" in shown
    assert "commit some commit. The library has changed since" in shown
    path.unlink()
    assert book.built().executed == 0
    assert "Run make bench" in book.text("reproducibility")


def test_plain_build_gives_the_same_pages(book, tmp_path):
    outcome = book.build("--path-output", str(tmp_path))
    assert outcome.status == 0
    for name in ("chapter", "intro"):
        plain, strict = (
            re.sub(r"\?v=[0-9a-f]{8}", "", (folder / f"_build/html/book/{name}.html").read_text(encoding="utf8"))
            for folder in (tmp_path, book.root)
        )
        assert plain == strict


def test_prose_edit_executes_nothing(book, edited):
    before = report_row(book)
    caches = plant_old_caches(book)
    edited("book/chapter.md", "Some prose.", "Other prose.")
    outcome = book.built()
    assert outcome.executed == 0
    assert "from the cache now" in outcome.log
    assert "Other prose." in book.text()
    assert report_row(book) == before
    assert "the probe is green" in downloaded_outputs(book), "the notebook to download lost its outputs"
    assert len(list(caches.iterdir())) <= 5, "old caches stay"


def plant_old_caches(book: Book) -> Path:
    caches = book.root / "_build/.jupyter_cache"
    for name in "abcdefgh":
        (caches / name).mkdir()
        os.utime(caches / name, (0, 0))
    return caches


def downloaded_outputs(book: Book) -> list[str]:
    notebook = nbformat.read(book.root / "_build/html/_sources/book/chapter.ipynb", as_version=4)
    return [output["data"]["text/plain"] for cell in notebook.cells for output in cell.get("outputs", [])]


def test_library_edit_executes_again_and_reverting_comes_from_the_cache(book, edited):
    first = report_row(book)
    edited("book/chapter.md", "The first caption.", "The second caption.")
    edited("memstore_lib/probe.py", "green", "yellow")
    assert book.built().executed == 1
    assert "the probe is yellow" in book.text()
    assert "The second caption." in book.text()
    book.edit("memstore_lib/probe.py", "yellow", "green")
    book.edit("book/chapter.md", "The second caption.", "The first caption.")
    assert book.built().executed == 0
    assert "the probe is green" in book.text()
    assert report_row(book) == first


def test_ledger_edit_executes_again(book, edited):
    edited("book/claims.yml", "# The claims ledger", "# A claims ledger")
    assert book.built().executed == 1


def test_failing_cell_fails_the_first_and_the_second_build(book, edited):
    edited("book/chapter.md", "import pandas as pd", "raise RuntimeError('planted')")
    book.refused("planted")


def test_warning_in_a_cell_fails_the_build(book, edited):
    edited("book/chapter.md", "cost = {", "import warnings\nwarnings.warn('planted')\ncost = {")
    book.refused("stderr was found in the cell outputs|planted")


def test_chart_with_a_missing_field_fails_the_build(book, edited):
    edited(
        "book/chapter.md",
        "cost = {",
        "spec = {'data': {'values': [{'x': 1}]}, 'mark': 'point', 'height': 90,\n"
        "        'encoding': {'x': {'field': 'planted', 'type': 'quantitative'}}}\n"
        "figures.Figure(spec, data=table, description='A chart that asks for what is not there.')\n"
        "cost = {",
    )
    book.refused("planted", times=1)


def test_reference_to_nothing_fails_the_build(book, edited):
    edited("book/chapter.md", "{numref}`fig-small`", "{numref}`fig-planted`")
    book.refused("fig-planted")


def test_unknown_device_fails_the_build_and_is_named(book):
    outcome = book.build(MEMSTORE_DEVICE="planted")
    assert outcome.status != 0
    assert "MEMSTORE_DEVICE" in outcome.log
    assert "planted" in outcome.log


def test_all_is_well_again(book):
    """Nothing of the above is left behind, and none of it spoiled what was cached."""
    outcome = book.built()
    assert outcome.executed == 0
    assert "the probe is green" in book.text()
