"""The one local Sphinx extension of the book.

It holds what ``_config.yml`` cannot say, in parts, each a module beside this one:

* ``memstore_cache``    chapters are executed again when anything that their numbers depend on has changed;
* ``memstore_offline``  no page asks another host for anything: MathJax and Vega come from the site itself;
* ``memstore_still``    still pictures of the charts, and what else a page needs to be read without JavaScript;
* ``memstore_mathml``   its formulas;
* ``memstore_icons``    the theme's icon fonts shrink to the icons that are used;
* ``memstore_report``   the ``{build-report}`` directive, and the seconds each chapter took at the end of a build;
* ``memstore_bench``    the ``{bench-table}`` directive: what ``make bench`` last measured;
* ``memstore_ledger``   the ``{ledger}`` directive: every claim of the sources, and how it fared in this build;
* ``memstore_repository``  buttons and links lead to the repository of this copy, a fork's to the fork;
* ``memstore_share``    what search engines, link previews and citations need, with the picture of ``memstore_preview``.
"""

from __future__ import annotations

import os
import re
from typing import Any

import memstore_bench
import memstore_cache
import memstore_icons
import memstore_ledger
import memstore_mathml
import memstore_offline
import memstore_report
import memstore_repository
import memstore_share
import memstore_still
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

TABLE_PART = re.compile(r"<(thead|tbody)\b.*?</\1>", re.DOTALL)


def calm_kernels(app: Sphinx, config: Config) -> None:
    """Give each chapter's kernel one thread: its matrices are small, and threads would mostly wait for one another."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MEMSTORE_BUILD", "1")  # nobody watches a progress bar


def name_the_site(app: Sphinx, config: Config) -> None:
    """Show the title beside the logo."""
    logo = {"text": config.html_title, "alt_text": f"{config.html_title} - home"}
    config.html_theme_options["logo"] = logo


def mend_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Take the list role from bibliographies, in which docutils puts entries that are no list items; scope tables."""
    body = context.get("body") or ""
    for kind in ("citation", "footnote"):
        body = body.replace(f'<div role="list" class="{kind}-list">', f'<div class="{kind}-list">')
    context["body"] = TABLE_PART.sub(scope_headers, body)


def scope_headers(part: re.Match[str]) -> str:
    """Say in a table's head or body what its header cells are the headers of, where nobody has said it."""
    scope = "col" if part[1] == "thead" else "row"
    return re.sub(r"<th(?=[\s>])(?![^>]*\bscope=)", f'<th scope="{scope}"', part[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("config-inited", calm_kernels)
    app.connect("config-inited", name_the_site)
    app.add_css_file("site.css")
    app.add_css_file("print.css", media="print")
    app.add_js_file("reach.js", loading_method="defer")
    app.add_js_file("print.js", priority=480)  # before the charts: what is folded has no room for them
    app.connect("html-page-context", mend_page)
    memstore_cache.setup(app)
    memstore_offline.setup(app)
    memstore_still.setup(app)
    memstore_mathml.setup(app)
    memstore_icons.setup(app)
    memstore_report.setup(app)
    memstore_bench.setup(app)
    memstore_ledger.setup(app)
    memstore_repository.setup(app)
    memstore_share.setup(app)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
