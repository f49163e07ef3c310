"""Draw the whole ledger: every claim of the book's sources, and how it fared in this build.

``{ledger}`` writes the counts, a table of them by chapter, and a table of claims for each chapter. What a chapter found
comes from its closing cell, which ``memstore_report`` collects; the rest is the ledger itself. Claims of chapters that
this edition does not have are shown as not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from memstore_lib.claims import Claim

LOGGER = logging.getLogger(__name__)

FOLDER = "book"  # of the ledger and of the pages that it names


class LedgerNode(nodes.General, nodes.Element):
    """Stands where the ledger goes until every chapter has been executed."""


class Ledger(SphinxDirective):
    """``{ledger}``: every claim with its verdict, in the order of the ledger."""

    def run(self) -> list[nodes.Node]:
        """Leave a placeholder and note the page, so that it is written in every build."""
        _pages(self.env).add(self.env.docname)
        node = LedgerNode()
        self.set_source_info(node)
        return [node]


def _pages(env: BuildEnvironment) -> set[str]:
    if not hasattr(env, "memstore_ledgers"):
        env.memstore_ledgers = set()
    return env.memstore_ledgers


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Drop a page that is about to be read again, or was removed."""
    _pages(env).discard(docname)


def merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: BuildEnvironment) -> None:
    """Take over what a parallel reader noted."""
    _pages(env).update(_pages(other).intersection(docnames))


def refresh(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have the ledger written in every build, as any chapter may have been executed again."""
    return sorted(_pages(env))


@dataclass(frozen=True)
class Part:
    """The claims of one chapter.

    Attributes:
        name: the chapter's name in the ledger.
        docname: its page; None if this edition has none.
        rows: each claim with its verdict, and what law and build say.
    """

    name: str
    docname: str | None
    rows: list[tuple[Claim, str, str, str]]

    @property
    def counts(self) -> Counter[str]:
        """How many claims got each verdict."""
        return Counter(verdict for _, verdict, _, _ in self.rows)

    @property
    def anchor(self) -> str:
        """The id of the chapter's heading in the ledger."""
        return f"ledger-{nodes.make_id(self.name)}"

    def title(self, env: BuildEnvironment) -> str:
        """The title of the chapter's page, or its name in the ledger."""
        if self.docname is None:
            return self.name.replace("-", " ").capitalize()
        return env.titles[self.docname].astext()


def parts(env: BuildEnvironment, ledger: dict[str, Claim]) -> list[Part]:
    """Join the ledger with what the chapters of this build reported."""
    from memstore_lib.closing import NOT_CHECKED

    closings: dict[str, tuple[str, dict[str, Any]]] = {}
    for docname, run in getattr(env, "memstore_runs", {}).items():
        if name := run["closing"].get("chapter"):
            closings[name] = docname, {row["id"]: row for row in run["closing"].get("rows", [])}
    found = []
    for name in dict.fromkeys(claim.chapter for claim in ledger.values()):
        docname, checked = closings.get(name, (None, {}))
        rows = []
        for claim in (claim for claim in ledger.values() if claim.chapter == name):
            row = checked.get(claim.id, {"verdict": NOT_CHECKED, "law": "", "found": ""})
            rows.append((claim, row["verdict"], row["law"], row["found"]))
        found.append(Part(name, docname, rows))
    return found


class WriteLedger(SphinxPostTransform):
    """Put the tables where the directive stood."""

    default_priority = 8

    def run(self, **kwargs: Any) -> None:
        """Replace each placeholder of the page."""
        for node in list(self.document.findall(LedgerNode)):
            node.replace_self(nodes.raw("", self._html(node), format="html"))

    def _html(self, node: LedgerNode) -> str:
        from memstore_lib import claims, closing, tables

        ledger = claims.load(Path(self.env.srcdir, FOLDER, "claims.yml"))
        places = self._places(node, ledger)
        chapters = parts(self.env, ledger)
        total = sum((part.counts for part in chapters), Counter())
        verdicts = [verdict for verdict in closing.VERDICTS if total[verdict]]
        words = closing.in_words({verdict: total[verdict] for verdict in verdicts})
        html = [
            f'<p class="ms-ledger-counts">{total.total()} claims: {escape(words)}.</p>',
            tables.markup(
                ["Chapter", *(escape(verdict.capitalize()) for verdict in verdicts)],
                [[self._link(part), *(str(part.counts[v]) for v in verdicts)] for part in chapters]
                + [["All", *(str(total[verdict]) for verdict in verdicts)]],
                "Verdicts by chapter",
            ),
        ]
        for part in chapters:
            title = part.title(self.env)
            head = escape(title)
            if part.docname is not None:
                head = f'<a href="{escape(self._uri(part.docname))}">{head}</a>'
            rows = [closing.cells(claim, *row, places.get(claim.id)) for claim, *row in part.rows]
            html.append(f'<h3 id="{part.anchor}">{head}</h3>')
            html.append(tables.markup(closing.HEADS, rows, f"Claims and verdicts: {title}", "ms-claims"))
        # The class gives these tables the style of those that cells put out.
        return f'<div class="ms-ledger cell_output">{"".join(html)}</div>'

    def _link(self, part: Part) -> str:
        return f'<a href="#{part.anchor}">{escape(part.title(self.env))}</a>'

    def _uri(self, docname: str) -> str:
        return self.app.builder.get_relative_uri(self.env.docname, docname)

    def _places(self, node: LedgerNode, ledger: dict[str, Claim]) -> dict[str, str]:
        """Return where each caveat is shown, as far as this edition has the page; a missing section is warned of."""
        places, anchors = {}, {}
        for claim in ledger.values():
            page, _, anchor = (claim.where or "").partition("#")
            docname = f"{FOLDER}/{page}"
            if docname not in self.env.found_docs:
                continue
            if docname not in anchors:
                elements = self.env.get_doctree(docname).findall(nodes.Element)
                anchors[docname] = {name for element in elements for name in element.get("ids", ())}
            if anchor not in anchors[docname]:
                text = "the ledger's claim %r is shown at %s, which is not there"
                LOGGER.warning(text, claim.id, claim.where, location=node)
            places[claim.id] = f"{self._uri(docname)}#{anchor}"
        return places


def setup(app: Sphinx) -> None:
    """Connect the ledger to Sphinx."""
    app.add_node(LedgerNode)
    app.add_directive("ledger", Ledger)
    app.add_post_transform(WriteLedger)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-updated", refresh)
