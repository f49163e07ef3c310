"""What a page shows without JavaScript: a still picture of each chart, formulas as their source, light colours.

The pictures are drawn by the Vega of the charts themselves, at the setting at rest, and lie beside the page as SVG
files, which only a browser without JavaScript asks for: a wide one, and a narrow one for phones.
"""

from __future__ import annotations

import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import Any

import vl_convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

STYLES = Path(__file__).parents[1] / "_static" / "book.css"
FOLDER = "_images"
WIDE, NARROW = 680, 320  # px; a chart scaled down to a phone would have letters half as large
PHONE = "(max-width: 600px)"

#: Where Altair's script takes the chart.
SPEC = re.compile(r'\}\)\((?=\{"\$schema")')
#: What a figure says instead of its picture (memstore_lib/figures/figure.py), with the room kept for it.
INSTEAD = re.compile(r"<noscript>The picture needs JavaScript;[^<]*</noscript>")
VARIABLE = re.compile(r"var\(--(ms-[\w-]+)(?:,[^()]*)?\)")
MAX_WIDTH = re.compile(r'<div class="ms-figure" style="max-width:(\d+)px')

PICTURE = (
    '<noscript><picture><source media="{phone}" srcset="{narrow}"><img class="ms-still" src="{wide}" '
    'width="{width}" height="{height}" alt="{alt}"></picture>{note}</noscript>'
)
NOTE = '<p class="ms-still-note">The controls of this figure need JavaScript. This is how it rests.</p>'


def light_colours() -> dict[str, str]:
    """Return the figures' colours on a light page, by the name of their CSS variable."""
    first_rule = STYLES.read_text(encoding="utf8").split("}", 1)[0]
    return dict(re.findall(r"--(ms-[\w-]+):\s*(#\w+);", first_rule))


def draw(spec: dict[str, Any], width: int, colours: dict[str, str]) -> str:
    """Return a chart as an SVG that stands alone, on paper of its own, legible on a page of either theme.

    Args:
        spec: a Vega-Lite chart whose colours are CSS variables.
        width: px.
        colours: the variables' values.

    Raises:
        ExtensionError: a colour that is none of the variables.
    """
    config = {**spec.get("config", {}), "background": colours["ms-paper"]}
    svg = vl_convert.vegalite_to_svg({**spec, "width": width, "config": config}, vl_version=vega_lite())
    unknown = {name for name in VARIABLE.findall(svg) if name not in colours}
    if unknown:
        raise ExtensionError(f"a chart asks for colours that book.css does not have: {sorted(unknown)}")
    svg = VARIABLE.sub(lambda variable: colours[variable[1]], svg)
    return svg.replace("currentColor", colours["ms-ink"])


def vega_lite() -> str:
    """Return the Vega-Lite version, among those of vl-convert, that Altair's charts are written for."""
    from memstore_offline import bundled_versions

    return bundled_versions()["vega-lite"]


def write(folder: Path, spec: dict[str, Any], width: int, colours: dict[str, str]) -> tuple[str, int, int]:
    """Write a chart's picture unless it is there; return its file name and its size in px."""
    content = json.dumps([spec, width, colours, vl_convert.__version__], sort_keys=True)
    path = folder / f"chart-{hashlib.sha256(content.encode()).hexdigest()[:16]}.svg"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(draw(spec, width, colours), encoding="utf8")
        unfinished.replace(path)
    wide, high = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', path.read_text(encoding="utf8")).groups()
    return path.name, round(float(wide)), round(float(high))


def still(figure: str, folder: Path, address: str, colours: dict[str, str]) -> str:
    """Return a figure's HTML with its picture where it said that there is none.

    Args:
        figure: HTML from the beginning of one figure to the next.
        folder: where pictures go.
        address: the folder as the page sees it, with a slash at its end.
        colours: the CSS variables' values.
    """
    start = SPEC.search(figure)
    if start is None:
        return figure
    spec, _ = json.JSONDecoder().raw_decode(figure, start.end())
    limit = MAX_WIDTH.match(figure)
    width = min(WIDE, int(limit[1])) if limit else WIDE
    wide, pixels, height = write(folder, spec, width, colours)
    narrow, _, _ = write(folder, spec, NARROW, colours)
    picture = PICTURE.format(
        phone=PHONE,
        narrow=address + narrow,
        wide=address + wide,
        width=pixels,
        height=height,
        alt=escape(spec["description"], quote=True),
        note=NOTE if spec["usermeta"]["memstore"]["controls"] else "",
    )
    mended, times = INSTEAD.subn(lambda _: picture, figure, count=1)
    if not times:
        raise ExtensionError(f"no place for the picture of the figure {spec['description']!r}")
    return mended


def add_stills(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Give every chart of a page its picture, and the page the styles that hold without JavaScript."""
    styles = context["pathto"]("_static/noscript.css", True)
    context["metatags"] = (
        context.get("metatags", "") + f'\n<noscript><link rel="stylesheet" href="{styles}"></noscript>'
    )
    parts = re.split(r'(?=<div class="ms-figure)', context.get("body") or "")
    if len(parts) > 1:
        folder, address = Path(app.outdir) / FOLDER, context["pathto"](f"{FOLDER}/", True)
        colours = light_colours()
        context["body"] = "".join(still(part, folder, address, colours) for part in parts)


def light_without_javascript(app: Sphinx, exception: Exception | None) -> None:
    """Write the light theme into the finished pages: of "auto" only a script can make colours, and it comes first."""
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf8")
        if (lit := re.sub(r'(<html\b[^>]*) data-theme="auto"', r'\1 data-theme="light"', text, count=1)) != text:
            page.write_text(lit, encoding="utf8")


def setup(app: Sphinx) -> None:
    """Connect the pictures to the writing of pages."""
    app.connect("html-page-context", add_stills)
    app.connect("build-finished", light_without_javascript)
