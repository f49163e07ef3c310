"""What search engines, link previews and citations need to know of a page, and the files that go with it.

Each page gets a description and the tags of a link preview; the site gets ``sitemap.xml``, ``robots.txt``, the picture
of ``memstore_preview`` and a ``CITATION.cff`` with its own address and date. Addresses are those of this copy, as
``memstore_repository`` finds them. Where none is known, what needs one is left out rather than wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import memstore_preview
import yaml
from docutils import nodes
from sphinx.application import Sphinx

DESCRIPTION_LENGTH = 160  # about what a search engine shows
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
CITATION = "CITATION.cff"

REDIRECT = """\
<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta http-equiv="refresh" content="0; url={page}">
    {canonical}<title>{title}</title>
  </head>
  <body><p><a href="{page}">{title}</a></p></body>
</html>
"""


def describe(doctree: nodes.document) -> str:
    """Return a page's description: its first paragraph without formulas, cut at a word."""
    paragraphs = (p for p in doctree.findall(nodes.paragraph) if p.next_node(nodes.math) is None)
    text = " ".join(next((p.astext() for p in paragraphs), "").split())
    if len(text) > DESCRIPTION_LENGTH:
        text = text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + " …"
    return text


def _tags(app: Sphinx, pagename: str, doctree: nodes.document) -> Iterator[tuple[str, str, str]]:
    """Yield the tags of a page: the attribute that names it, the name, the content."""
    config, site = app.config, app.config.html_baseurl
    text = describe(doctree)
    yield "name", "description", text
    yield "property", "og:title", app.env.titles[pagename].astext()
    yield "property", "og:description", text
    yield "property", "og:site_name", config.html_title
    yield "property", "og:type", "website" if pagename == config.root_doc else "article"
    if site:
        width, height = memstore_preview.SIZE
        yield "property", "og:url", site + app.builder.get_target_uri(pagename)
        yield "property", "og:image", site + memstore_preview.FILE
        yield "property", "og:image:type", "image/png"
        yield "property", "og:image:width", str(width)
        yield "property", "og:image:height", str(height)
        yield "property", "og:image:alt", memstore_preview.describe(app)
        yield "name", "twitter:card", "summary_large_image"


def tag_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Tell search engines and link previews about a page; keep search and indices out of search results."""
    tags = [("name", "robots", "noindex")] if doctree is None else _tags(app, pagename, doctree)
    known = context.get("metatags", "")
    lines = [
        f'<meta {kind}="{name}" content="{escape(content)}">'
        for kind, name, content in tags
        if content and f'{kind}="{name}"' not in known
    ]
    context["metatags"] = "\n".join([known, *lines])


def sitemap(addresses: list[str]) -> bytes:
    """Return a sitemap of pages."""
    root = ElementTree.Element("urlset", xmlns=SITEMAP)
    for address in addresses:
        ElementTree.SubElement(ElementTree.SubElement(root, "url"), "loc").text = address
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def citation(app: Sphinx, text: str) -> str:
    """Return ``CITATION.cff`` completed with this copy's repository, address, version and date.

    Args:
        app: of the build.
        text: of the repository's file.
    """
    from memstore_lib import __version__

    computed = [run["computed"] for run in getattr(app.env, "memstore_runs", {}).values() if run["computed"]]
    about = yaml.safe_load(text) | {
        "version": __version__,
        "date-released": max(computed, default=datetime.now(UTC)).date(),
        "repository-code": app.config.html_theme_options["repository_url"],
    }
    if app.config.html_baseurl:
        about["url"] = app.config.html_baseurl
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=120)


def finish_site(app: Sphinx, exception: Exception | None) -> None:
    """Write what hosts, search engines and readers need beside the pages."""
    if exception is not None or app.builder.format != "html":
        return
    site, address, root = Path(app.outdir), app.config.html_baseurl, app.config.root_doc
    (site / ".nojekyll").touch()  # hosts that run Jekyll would drop _static
    docnames = [root, *sorted(app.env.found_docs - {root})]
    files = {"robots.txt": b"User-agent: *\nAllow: /\n"}
    if address:
        files["sitemap.xml"] = sitemap([address + app.builder.get_target_uri(name) for name in docnames])
        files["robots.txt"] += f"Sitemap: {address}sitemap.xml\n".encode()
        files[memstore_preview.FILE] = memstore_preview.draw(app)
    else:
        (site / "sitemap.xml").unlink(missing_ok=True)  # of an earlier build
    if (source := Path(app.srcdir) / CITATION).is_file():
        files[CITATION] = citation(app, source.read_text(encoding="utf8")).encode()
    if root != "index":
        page = app.builder.get_target_uri(root)
        canonical = f'<link rel="canonical" href="{escape(address + page)}">\n    ' if address else ""
        title = escape(app.config.html_title)
        files["index.html"] = REDIRECT.format(page=page, title=title, canonical=canonical).encode()
    for name, content in files.items():
        (site / name).write_bytes(content)


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    memstore_preview.setup(app)
    app.connect("html-page-context", tag_page)
    app.connect("build-finished", finish_site, priority=400)  # before the table of contents writes its own index
