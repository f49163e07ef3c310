"""Cut the theme's icon fonts down to the icons that the site shows.

The theme ships three fonts of Font Awesome with some two thousand icons, 300 KB on every page, of which a page shows
about twenty. What is used is read off the finished site: classes such as ``fa-bars`` in the pages, and code points in
the stylesheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ICON_CLASS = re.compile(r"\bfa-[a-z0-9-]+")
RULE = re.compile(r"((?:\.fa-[\w-]+::?before,?)+)\{content:\"\\([0-9a-f]+)\"")
PRIVATE_USE = re.compile(r"[\ue000-\uf8ff]")
ESCAPED = re.compile(r"\\([ef][0-9a-f]{3})\b", re.IGNORECASE)


def icon_codes(stylesheet: str) -> dict[str, int]:
    """Return the code point of each icon class of Font Awesome's stylesheet."""
    codes = {}
    for selectors, code in RULE.findall(stylesheet):
        codes.update(dict.fromkeys(ICON_CLASS.findall(selectors), int(code, 16)))
    return codes


def _used(site: Path, codes: dict[str, int]) -> Iterator[int]:
    """Yield the code points that the pages and the stylesheets of the theme and the book use."""
    scripts = (site / "_static" / "scripts").glob("*.js")  # the theme's, which exchange icons
    for page in [*site.rglob("*.html"), *scripts]:
        yield from (codes[name] for name in ICON_CLASS.findall(page.read_text(encoding="utf8")) if name in codes)
    for sheet in [*(site / "_static").glob("*.css"), *(site / "_static" / "styles").glob("*.css")]:
        text = sheet.read_text(encoding="utf8")
        yield from map(ord, PRIVATE_USE.findall(text))
        yield from (int(code, 16) for code in ESCAPED.findall(text))


def cut(font: Path, wanted: set[int]) -> None:
    """Rewrite a font in place with the wanted code points alone."""
    options = subset.Options(flavor="woff2", layout_features=["*"], notdef_outline=True)
    with TTFont(font) as face:
        worker = subset.Subsetter(options)
        worker.populate(unicodes=wanted & set(face.getBestCmap()))
        worker.subset(face)
        face.flavor = "woff2"
        face.save(font)


def cut_fonts(app: Sphinx, exception: Exception | None) -> None:
    """Cut the fonts of a finished site."""
    if exception is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    try:
        folder = next((site / "_static" / "vendor" / "fontawesome").iterdir())
    except (FileNotFoundError, StopIteration):
        raise ExtensionError("the theme brings no Font Awesome any more: drop memstore_icons") from None
    wanted = set(_used(site, icon_codes((folder / "css" / "all.min.css").read_text(encoding="utf8"))))
    for font in (folder / "webfonts").glob("*.woff2"):
        cut(font, wanted)
    for unused in [*folder.rglob("*.ttf"), *folder.glob("js/*")]:  # for browsers of another age; see _templates
        unused.unlink()


def setup(app: Sphinx) -> None:
    """Connect the cutting to the end of a build."""
    app.connect("build-finished", cut_fonts)
