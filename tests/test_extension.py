"""What the local Sphinx extension makes of a page's HTML, without a build."""

from __future__ import annotations

import math
import re
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from memstore_lib import figures
from tests.sources import ROOT

EXTENSION = ROOT / "book" / "_ext"


@pytest.fixture(autouse=True)
def _extension(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXTENSION), *sys.path])


def context(body: str) -> dict:
    return {"body": body, "pathto": lambda path, resource: "../" + path}


def figure() -> figures.Figure:
    rows = [("outer product", m, "law", m / 8, math.nan, math.nan) for m in (4, 8, 16)]
    table = pd.DataFrame(rows, columns=["store", "M", "kind", "value", "low", "high"])
    return figures.curves(table, description='It rises, "quickly" & well.')


def test_a_chart_gets_a_wide_and_a_narrow_picture(tmp_path):
    import memstore_still

    page = context(f"<p>before</p>{figure().html()}<p>between</p>{figure().html()}<p>after</p>")
    memstore_still.add_stills(SimpleNamespace(outdir=tmp_path), "book/page", "page.html", page, None)
    assert page["body"].count("<noscript><picture>") == 2
    assert page["body"].count("needs JavaScript") == 0
    assert 'alt="It rises, &quot;quickly&quot; &amp; well."' in page["body"]
    assert page["body"].startswith("<p>before</p>")
    assert "<p>between</p>" in page["body"]
    assert 'href="../_static/noscript.css"' in page["metatags"]
    pictures = re.findall(r'(?:srcset|src)="../(_images/chart-\w+\.svg)"', page["body"])
    assert len(set(pictures)) == 2  # the same chart twice on a page is one picture, at two widths
    widths = set()
    for picture in pictures:
        svg = (tmp_path / picture).read_text(encoding="utf8")
        assert "var(" not in svg
        widths.add(int(re.search(r'width="(\d+)', svg)[1]))
    assert widths == {memstore_still.WIDE, memstore_still.NARROW}
    assert list(tmp_path.rglob("*.part")) == []


def test_pictures_are_drawn_once(tmp_path, monkeypatch):
    import memstore_still

    def add():
        page = context(figure().html())
        memstore_still.add_stills(SimpleNamespace(outdir=tmp_path), "page", "page.html", page, None)

    add()
    monkeypatch.setattr(memstore_still, "draw", None)
    add()


def test_a_figure_without_a_place_for_its_picture_stops_the_build(tmp_path):
    import memstore_still
    from sphinx.errors import ExtensionError

    page = context(figure().html().replace("<noscript>", "<div>").replace("</noscript>", "</div>"))
    with pytest.raises(ExtensionError, match="no place for the picture of the figure"):
        memstore_still.add_stills(SimpleNamespace(outdir=tmp_path), "page", "page.html", page, None)


def test_a_colour_that_the_stylesheet_lacks_stops_the_build():
    import memstore_still
    from sphinx.errors import ExtensionError

    colours = memstore_still.light_colours()
    del colours["ms-outer-product"]
    with pytest.raises(ExtensionError, match="ms-outer-product"):
        memstore_still.draw(figure().spec, 400, colours)


def test_pages_are_written_in_light_colours(tmp_path):
    import memstore_still

    builder = SimpleNamespace(format="html")
    page = tmp_path / "page.html"
    page.write_text('<html lang="en" data-theme="auto"><body data-theme="auto">x</body></html>', encoding="utf8")
    memstore_still.light_without_javascript(SimpleNamespace(outdir=tmp_path, builder=builder), None)
    assert page.read_text(encoding="utf8").startswith('<html lang="en" data-theme="light"><body data-theme="auto">')


def formulas(html: str) -> str:
    import memstore_mathml

    page = context(html)
    memstore_mathml.add_mathml(None, "page", "page.html", page, None)
    return page["body"]


def test_formulas_get_mathml_beside_their_source():
    made = formulas(r'<p><span class="math notranslate nohighlight">\(M &lt; d_k\)</span></p>')
    assert re.search(r"<noscript><math.*<mi>M</mi><mo>&#x0003C;</mo>.*</math></noscript>", made)
    assert r'<span class="ms-tex">\(M &lt; d_k\)</span></span>' in made


def test_numbered_equations_keep_their_number_and_place():
    made = formulas(
        '<div class="math notranslate nohighlight" id="equation-a">\n<span class="eqno">(2.1)<a href="#a">#</a>'
        "</span>\\[\\arg\\min_W \\Big\\| W \\Big\\|^2\\]</div>"
    )
    assert made.startswith('<div class="math notranslate nohighlight" id="equation-a">\n<span class="eqno">(2.1)')
    assert 'display="block"' in made
    assert "<mo>arg</mo>" in made
    assert made.count("<noscript>") == 1


def test_what_cannot_be_translated_stays_as_it_is():
    unknown = r'<span class="math notranslate nohighlight">\(\nosuchcommand{x}\)</span>'
    assert formulas(unknown) == unknown
    broken = r'<span class="math notranslate nohighlight">\(\frac{1}{\)</span>'
    assert formulas(broken) == broken


def test_table_headers_get_their_scope():
    import memstore_book

    table = (
        '<table><thead><tr><th class="head"><p>a</p></th><th scope="col">b</th></tr></thead>'
        "<tbody><tr><th>c</th><td>d</td></tr></tbody></table>"
    )
    page = context(table)
    memstore_book.mend_page(None, "page", "page.html", page, None)
    assert re.findall(r"<th\b[^>]*>", page["body"]) == [
        '<th scope="col" class="head">',
        '<th scope="col">',
        '<th scope="row">',
    ]
