"""Report what each chapter cost and where its numbers come from.

``{build-report}`` writes two tables: the environment, and a row for each executed chapter. Times come from the
execution cache, so they are right also when nothing was executed; seeds, device and peak memory come from the
chapter's closing cell, whose output carries ``{"memstore": {...}}`` as metadata.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)

CLOSING_KEY = "memstore"

#: Shown with their versions, in this order.
PACKAGES = (
    "numpy",
    "torch",
    "scipy",
    "pandas",
    "altair",
    "vl-convert-python",
    "jupyter-book",
    "sphinx",
    "myst-nb",
    "ipykernel",
    "sphinx-book-theme",
)


class Run(TypedDict):
    """How one chapter's numbers came about."""

    seconds: float | None
    computed: datetime | None
    read: datetime
    closing: dict[str, Any]


class BuildReportNode(nodes.General, nodes.Element):
    """Stands where the report goes until every chapter has been executed."""


class BuildReport(SphinxDirective):
    """``{build-report}``: the environment of this build, and what each chapter took."""

    def run(self) -> list[nodes.Node]:
        """Leave a placeholder and note the page, so that it is written in every build."""
        _reports(self.env).add(self.env.docname)
        return [BuildReportNode()]


def _runs(env: BuildEnvironment) -> dict[str, Run]:
    if not hasattr(env, "memstore_runs"):
        env.memstore_runs = {}
    return env.memstore_runs


def _reports(env: BuildEnvironment) -> set[str]:
    if not hasattr(env, "memstore_reports"):
        env.memstore_reports = set()
    return env.memstore_reports


# --- collecting -------------------------------------------------------------------------------------------------


def note_start(app: Sphinx) -> None:
    """Remember when the build began, to tell chapters executed now from chapters out of the cache."""
    app.env.memstore_started = datetime.now(UTC)


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """Note how the page just read was executed, and complete the notebook that readers can download."""
    env = app.env
    data = NbMetadataCollector.get_exec_data(env, env.docname)
    if not data:
        return
    path = Path(env.mystnb_config.output_folder, *env.docname.split("/")).with_suffix(".ipynb")
    notebook = nbformat.read(path, as_version=4)
    run = Run(seconds=data["runtime"], computed=None, read=datetime.now(UTC), closing={})
    cache = get_cache(env.mystnb_config.execution_cache_path)
    try:
        record = cache.match_cache_notebook(notebook)
    except KeyError:  # executed without a cache, or not at all
        pass
    else:
        # The cache stores UTC without saying so; MyST-NB reads that as local time.
        run["computed"] = record.created.replace(tzinfo=UTC)
        # MyST-NB writes a notebook out of the cache without its outputs. The cell metadata stays the page's own.
        _, notebook = cache.merge_match_into_notebook(notebook, cell_meta=())
        nbformat.write(notebook, path)
    run["closing"] = closing_data(notebook)
    _runs(env)[env.docname] = run


def closing_data(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """Return what the chapter's closing cell reported, or an empty dictionary."""
    found: dict[str, Any] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            found = dict(output.get("metadata", {}).get(CLOSING_KEY, found))
    return found


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Drop what is known of a page that is about to be read again, or was removed."""
    _runs(env).pop(docname, None)
    _reports(env).discard(docname)


def merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: BuildEnvironment) -> None:
    """Take over what a parallel reader collected."""
    for docname in docnames:
        if docname in _runs(other):
            _runs(env)[docname] = _runs(other)[docname]
    _reports(env).update(_reports(other).intersection(docnames))


def refresh(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have the report written in every build: it is one small page, and any chapter may have changed."""
    return sorted(_reports(env))


# --- writing ----------------------------------------------------------------------------------------------------


class WriteReport(SphinxPostTransform):
    """Put the tables where the directive stood."""

    default_priority = 8  # before references are resolved, as the table refers to the chapters

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder of the page."""
        for node in list(self.document.findall(BuildReportNode)):
            node.replace_self([_environment_table(self.env), _chapter_table(self.env)])


def _environment_table(env: BuildEnvironment) -> nodes.table:
    from memstore_lib import device

    here = device.describe()
    chosen = here["chosen"] if here["chosen"] == "automatically" else f"by {here['chosen']}"
    rows = [
        ("Device", f"{here['device']} ({here['name']}), chosen {chosen}"),
        ("Threads", here["threads"]),
        ("System", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        *((name, metadata.version(name)) for name in PACKAGES),
        ("Fingerprint of library, versions, ledger and device", Path(env.config.nb_execution_cache_path).name),
    ]
    return _table("The environment of this build", ("What", "Value"), ([_text(a), _text(b)] for a, b in rows))


def _chapter_table(env: BuildEnvironment) -> nodes.table:
    head = ("Chapter", "Seconds", "Peak memory (MB)", "Seeds", "Device", "Claims", "Computed (UTC)")
    rows = ([_link(env, docname), *map(_text, _row(run))] for docname, run in _in_order(env))
    return _table("What each chapter took", head, rows)


def _row(run: Run) -> tuple[str, ...]:
    closing = run["closing"]
    memory, seconds, computed = closing.get("peak_memory_mb"), run["seconds"], run["computed"]
    return (
        "–" if seconds is None else f"{seconds:.1f}",
        "–" if memory is None else f"{memory:,.0f}",
        ", ".join(map(str, closing.get("seeds", []))) or "–",
        closing.get("device", {}).get("device", "–"),
        ", ".join(f"{count} {verdict}" for verdict, count in closing.get("claims", {}).items()) or "–",
        "–" if computed is None else computed.strftime("%Y-%m-%d %H:%M"),
    )


def _in_order(env: BuildEnvironment) -> Iterator[tuple[str, Run]]:
    """Yield the executed chapters in the order of the book."""
    order = [env.config.root_doc, *env.toctree_includes.get(env.config.root_doc, [])]
    place = {docname: index for index, docname in enumerate(order)}
    yield from sorted(_runs(env).items(), key=lambda item: (place.get(item[0], len(place)), item[0]))


def _table(title: str, head: Iterable[str], rows: Iterable[list[nodes.Node]]) -> nodes.table:
    """Return a table with a caption, whose first row and first column are headers."""
    head, rows = list(head), list(rows)
    group = nodes.tgroup("", cols=len(head))
    group += nodes.colspec(colwidth=1, stub=1)
    group += [nodes.colspec(colwidth=1) for _ in head[1:]]
    group += nodes.thead("", nodes.row("", *(nodes.entry("", _text(name)) for name in head)))
    group += nodes.tbody("", *(nodes.row("", *(nodes.entry("", cell) for cell in row)) for row in rows))
    return nodes.table("", nodes.title(title, title), group, ids=[nodes.make_id(title)], classes=["colwidths-auto"])


def _text(text: str) -> nodes.paragraph:
    return nodes.paragraph(text, text)


def _link(env: BuildEnvironment, docname: str) -> nodes.paragraph:
    title = env.titles[docname].astext()
    reference = addnodes.pending_xref(
        "",
        nodes.inline(title, title),
        refdoc=env.docname,
        refdomain="std",
        reftype="doc",
        reftarget=f"/{docname}",
        refexplicit=True,
        refwarn=True,
    )
    return nodes.paragraph("", "", reference)


def announce(app: Sphinx, exception: Exception | None) -> None:
    """Say at the end of a build where the site is and how long each chapter took."""
    if exception is not None or app.builder.format != "html":
        return
    LOGGER.info("")
    for docname, run in _in_order(app.env):
        LOGGER.info("%-32s %s", docname, _status(run, app.env.memstore_started))
    LOGGER.info("The site: %s", Path(app.outdir) / "index.html")


def _status(run: Run, started: datetime) -> str:
    seconds = "      –  " if run["seconds"] is None else f"{run['seconds']:7.1f} s"
    if run["read"] < started:
        return f"{seconds}  when it was executed; the page is unchanged"
    # The cache keeps whole seconds on some systems.
    if run["computed"] is None or run["computed"] >= started.replace(microsecond=0):
        return f"{seconds}  executed now"
    return f"{seconds}  when it was executed; from the cache now"


def setup(app: Sphinx) -> None:
    """Connect the report to Sphinx."""
    app.add_node(BuildReportNode)
    app.add_directive("build-report", BuildReport)
    app.add_post_transform(WriteReport)
    app.connect("builder-inited", note_start)
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", refresh)
    app.connect("build-finished", announce)
