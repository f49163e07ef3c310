"""Serve MathJax and Vega from the site itself, so that no page asks another host for anything.

Pages then work on a plane, from ``file://``, and in ten years. In a notebook (Binder, JupyterLab) nothing changes:
there the charts load Vega in Altair's usual way.
"""

from __future__ import annotations

import json
import shutil
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import vl_convert
from altair.vegalite.v6 import display
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

MATHJAX_PACKAGE = "sphinx-mathjax-offline"

#: The parts of MathJax that pages can ask for; the whole package is eight times as large.
MATHJAX_PARTS = (
    "startup.js",
    "core.js",
    "input/tex.js",
    "input/tex/extensions",
    "output/chtml.js",
    "output/chtml/fonts",
    "a11y/assistive-mml.js",
)

VEGA_BUNDLE = "vega-bundle.js"
CHART_LOADER = "charts.js"

#: What marks a page with a chart: the class of the book's figures, or a plain Altair chart.
CHART_MARKS = ("ms-figure", "vegaEmbed")

#: The versions that Altair's renderer asks for. When these are announced as loaded, it loads nothing.
ALTAIR_ASKS = {
    "vega": display.VEGA_VERSION,
    "vega-lite": display.VEGALITE_VERSION,
    "vega-embed": display.VEGAEMBED_VERSION,
}


def copy_mathjax(app: Sphinx) -> None:
    """Copy MathJax from its package into the site."""
    if app.builder.format != "html":
        return
    spec = find_spec(MATHJAX_PACKAGE)
    if spec is None or spec.origin is None:
        raise ExtensionError(f"the package {MATHJAX_PACKAGE} is not installed")
    source = Path(spec.origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX_PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, dirs_exist_ok=True)
        else:
            shutil.copy2(source / part, target / part)


def bundled_versions() -> dict[str, str]:
    """Return the exact versions of Vega, Vega-Lite and Vega-Embed in the bundle.

    Raises:
        ExtensionError: they are not the ones that this Altair writes charts for.
    """
    wanted = ALTAIR_ASKS["vega-lite"]
    have = {
        "vega": vl_convert.get_vega_version(),
        "vega-lite": next((v for v in vl_convert.get_vegalite_versions() if wanted.startswith(v)), "none"),
        "vega-embed": vl_convert.get_vega_embed_version(),
    }
    for name in ("vega", "vega-embed"):
        if have[name].split(".")[0] != ALTAIR_ASKS[name].split(".")[0]:
            raise ExtensionError(f"Altair asks for {name} {ALTAIR_ASKS[name]}, vl-convert brings {have[name]}")
    if have["vega-lite"] == "none":
        raise ExtensionError(f"Altair asks for vega-lite {wanted}, which vl-convert does not bring")
    return have


def write_vega(app: Sphinx) -> None:
    """Write Vega, Vega-Lite and Vega-Embed as one script, which sets ``window.MEMSTORE_VEGA`` when it is loaded."""
    if app.builder.format != "html":
        return
    versions = bundled_versions()
    head = f"/* {json.dumps(versions)}, vl-convert {vl_convert.__version__} */\n"
    target = Path(app.outdir) / "_static" / VEGA_BUNDLE
    if target.is_file() and target.read_text(encoding="utf8").startswith(head):
        return  # making it takes a second or two
    bundle = vl_convert.javascript_bundle(
        "window.MEMSTORE_VEGA = {vega, vegaLite, vegaEmbed};", vl_version=versions["vega-lite"]
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    # In a function, as the bundle's short names would otherwise be global variables of every page.
    target.write_text(f"{head}(function () {{\n{bundle}\n}})();\n", encoding="utf8")


def add_chart_loader(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Give a page with charts the loader, and tell the loader where Vega is and which versions it stands for."""
    body = context.get("body") or ""
    if not any(mark in body for mark in CHART_MARKS):
        return
    checksum = zlib.crc32((Path(app.outdir) / "_static" / VEGA_BUNDLE).read_bytes())
    url = context["pathto"](f"_static/{VEGA_BUNDLE}", True) + f"?v={checksum:08x}"
    settings = json.dumps({"bundle": url, "versions": ALTAIR_ASKS})
    app.add_js_file(None, body=f"window.MEMSTORE_CHARTS = {settings};", priority=490)
    app.add_js_file(CHART_LOADER, priority=491)


def drop_thebe(app: Sphinx, config: Config) -> None:
    """Leave Thebe out: it would run code on another host, and its script is written twice, an error in the console."""
    app.registry.css_files = [entry for entry in app.registry.css_files if entry[0] != "sphinx-thebe.css"]
    for listeners in app.events.listeners.values():
        for listener in list(listeners):
            if listener.handler.__module__ == "sphinx_thebe":
                app.disconnect(listener.id)


def setup(app: Sphinx) -> None:
    """Connect MathJax, Vega and the stylesheet to Sphinx."""
    app.add_css_file("book.css")
    app.connect("config-inited", drop_thebe)
    app.connect("builder-inited", copy_mathjax)
    app.connect("builder-inited", write_vega)
    app.connect("html-page-context", add_chart_loader)
