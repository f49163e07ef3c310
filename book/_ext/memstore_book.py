"""The one local Sphinx extension of the book.

It holds what ``_config.yml`` cannot say, in parts, each a module beside this one:

* ``memstore_cache``    chapters are executed again when anything that their numbers depend on has changed;
* ``memstore_offline``  no page asks another host for anything: MathJax and Vega come from the site itself;
* ``memstore_icons``    the theme's icon fonts shrink to the icons that are used;
* ``memstore_report``   the ``{build-report}`` directive, and the seconds each chapter took at the end of a build;
* ``memstore_bench``    the ``{bench-table}`` directive: what ``make bench`` last measured;
* ``memstore_ledger``   the ``{ledger}`` directive: every claim of the sources, and how it fared in this build.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

import memstore_bench
import memstore_cache
import memstore_icons
import memstore_ledger
import memstore_offline
import memstore_report
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

DESCRIPTION_LENGTH = 160  # about what a search engine shows

REDIRECT = """\
<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta http-equiv="refresh" content="0; url={page}">
    <title>{title}</title>
  </head>
  <body><p><a href="{page}">{title}</a></p></body>
</html>
"""


def calm_kernels(app: Sphinx, config: Config) -> None:
    """Give each chapter's kernel one thread: its matrices are small, and threads would mostly wait for one another."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MEMSTORE_BUILD", "1")  # nobody watches a progress bar


def name_the_site(app: Sphinx, config: Config) -> None:
    """Show the title beside the logo, and point the buttons at the repository that is being built."""
    options = config.html_theme_options
    options["logo"] = {"text": config.html_title, "alt_text": f"{config.html_title} - home"}
    repository = os.environ.get("GITHUB_REPOSITORY")
    if repository:
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        options["repository_url"] = f"{server}/{repository}"


def describe_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the page a description for search engines and previews: its first paragraph without formulas."""
    if doctree is None or 'name="description"' in context.get("metatags", ""):
        return
    paragraphs = (p for p in doctree.findall(nodes.paragraph) if p.next_node(nodes.math) is None)
    text = " ".join(next((p.astext() for p in paragraphs), "").split())
    if len(text) > DESCRIPTION_LENGTH:
        text = text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + " …"
    if text:
        context["metatags"] = context.get("metatags", "") + f'\n<meta name="description" content="{escape(text)}">'


def mend_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Take the list role from bibliographies: docutils puts entries in it that are no list items."""
    for kind in ("citation", "footnote"):
        context["body"] = context.get("body", "").replace(
            f'<div role="list" class="{kind}-list">', f'<div class="{kind}-list">'
        )


def finish_site(app: Sphinx, exception: Exception | None) -> None:
    """Write what hosts need: a first page at the root, and the file that keeps Jekyll from dropping ``_static``."""
    if exception is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    (site / ".nojekyll").touch()
    first = app.config.root_doc
    if first != "index":
        page = REDIRECT.format(page=app.builder.get_target_uri(first), title=escape(app.config.html_title))
        (site / "index.html").write_text(page, encoding="utf8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("config-inited", calm_kernels)
    app.connect("config-inited", name_the_site)
    app.add_css_file("site.css")
    app.add_js_file("reach.js", loading_method="defer")
    app.connect("html-page-context", describe_page)
    app.connect("html-page-context", mend_page)
    app.connect("build-finished", finish_site, priority=400)  # before the table of contents writes its own index
    memstore_cache.setup(app)
    memstore_offline.setup(app)
    memstore_icons.setup(app)
    memstore_report.setup(app)
    memstore_bench.setup(app)
    memstore_ledger.setup(app)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
