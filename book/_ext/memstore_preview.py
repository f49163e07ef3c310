"""The picture that a link to the book shows elsewhere: its title over one of its own figures, as this build drew it.

``memstore_preview`` in ``_config.yml`` names the page and the figure. The chart comes out of the executed notebook, so
the picture shows this build's measurement.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import vl_convert
from altair.utils._importers import vl_version_for_vl_convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

FILE = "_static/preview.png"
SIZE = (1200, 630)  # what link previews ask for
MARGIN, HEAD = 60, 150  # pixels; the head holds logo and title
ZOOM = 1.5  # of the chart, whose letters are made for a page
INK, FONT = "#1f2937", "Arial, sans-serif"
VARIABLE = re.compile(r"var\(--[\w-]+,\s*((?:[^()]|\([^()]*\))+)\)")  # a colour of the page, with its fallback

CARD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">
<rect width="{width}" height="{height}" fill="white"/>
<svg x="{margin}" y="44" width="80" height="80" {logo}
<text x="{text}" y="106" font-family="{font}" font-size="56" font-weight="bold" fill="{ink}">{title}</text>
{chart}
</svg>
"""


def chart_in(html: str) -> dict[str, Any]:
    """Return the Vega-Lite chart in the HTML that Altair embeds it with.

    Raises:
        ValueError: there is none.
    """
    start = html.rindex("})({") + len("})(")
    return json.JSONDecoder().raw_decode(html[start:].replace("<\\/", "</"))[0]


@cache
def _chart(notebook: Path, figure: str, changed: float) -> dict[str, Any]:
    """Return a figure of an executed notebook; ``changed`` is its time, so that a later build reads it again."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("name") == figure:
            for output in cell.get("outputs", []):
                if "text/html" in output.get("data", {}):
                    return chart_in(output["data"]["text/html"])
    raise ValueError(f"{notebook.stem} shows no figure {figure}")


def chosen(app: Sphinx) -> dict[str, Any] | None:
    """Return the chart that ``memstore_preview`` names; None in a book without that page.

    Raises:
        ExtensionError: the page does not have that figure.
    """
    page, figure = app.config.memstore_preview.get("page"), app.config.memstore_preview.get("figure")
    if page not in app.env.found_docs:
        return None
    notebook = Path(app.env.mystnb_config.output_folder, *page.split("/")).with_suffix(".ipynb")
    try:
        return _chart(notebook, figure, notebook.stat().st_mtime)
    except (OSError, ValueError) as error:
        raise ExtensionError(
            f"memstore_preview must name a figure and its page, got {figure} of {page}: {error}"
        ) from error


def describe(app: Sphinx) -> str:
    """Return the picture's description in words."""
    chart = chosen(app)
    return f"{app.config.html_title}. {chart['description'] if chart else ''}".strip()


def _drawn(chart: dict[str, Any]) -> str:
    """Return a chart as SVG within the card."""
    spec = json.loads(VARIABLE.sub(r"\1", json.dumps(chart)).replace("currentColor", INK))
    spec |= {"width": (SIZE[0] - 2 * MARGIN) / ZOOM, "height": (SIZE[1] - HEAD - MARGIN) / ZOOM}
    spec |= {"autosize": {"type": "fit", "contains": "padding"}}
    spec["config"] = {**spec.get("config", {}), "font": FONT}
    svg = vl_convert.vegalite_to_svg(spec, vl_version=vl_version_for_vl_convert())
    return f'<g transform="translate({MARGIN} {HEAD}) scale({ZOOM})">{svg}</g>'


def draw(app: Sphinx) -> bytes:
    """Return the picture as PNG."""
    chart = chosen(app)
    logo = (Path(app.srcdir) / app.config.html_logo).read_text(encoding="utf8").split("<svg ", 1)[1]
    card = CARD.format(
        width=SIZE[0],
        height=SIZE[1],
        margin=MARGIN,
        text=MARGIN + 108,
        ink=INK,
        font=FONT,
        logo=logo,
        title=escape(app.config.html_title),
        chart=_drawn(chart) if chart else "",
    )
    return vl_convert.svg_to_png(card)


def setup(app: Sphinx) -> None:
    """Add the setting."""
    app.add_config_value("memstore_preview", {}, "html", [dict])
