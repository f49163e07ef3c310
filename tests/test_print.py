"""Chapters on paper: printed from a dark page, at once, without scrolling and with everything folded."""

from __future__ import annotations

import io
import unicodedata
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import TimeoutError
from pypdf import PdfReader

from tests import site_tools
from tests.views import PAGES, each_page

pytestmark = pytest.mark.site

#: What @page in print.css leaves, in CSS px, of the narrower and of the lower of A4 and Letter, 15 mm free all around.
PAPER_WIDTH, PAPER_HEIGHT = 680, 942

STUB = """() => {
  window.print = () => {
    window.printed = document.querySelectorAll(".ms-figure .ms-chart:not(:has(svg.marks))").length;
  };
}"""

#: Of each figure: what is written in its charts, as it would be found in a file's text.
WORDS = """() => [...document.querySelectorAll(".ms-figure")].map((figure) => {
  const words = [...figure.querySelectorAll(".ms-chart svg.marks text, .ms-words span")];
  const caption = figure.closest("figure")?.querySelector(".caption-number");
  return {
    figure: figure.closest("figure")?.id ?? "",
    marks: figure.querySelectorAll(".role-mark:not(.mark-text) > :is(path, line, rect)").length,
    words: words.flatMap((text) => text.children.length ? [...text.children] : [text]).map((text) => text.textContent),
    caption: caption?.textContent ?? "",
  };
})"""

LAYOUT = """(most) => {
  const shown = (element) =>
    element.checkVisibility({visibilityProperty: true, opacityProperty: true}) && element.getClientRects().length > 0;
  const name = (element) => element.outerHTML.slice(0, 120);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const whole = all("figure, .ms-figure, .ms-chart, div.math");
  const dark = (element) => {
    const [red, green, blue, alpha = 1] = getComputedStyle(element).backgroundColor.match(/[\\d.]+/g).map(Number);
    return 255 + (Math.min(red, green, blue) - 255) * alpha < 200; // a tint lies on white paper
  };
  return {
    overflow: document.scrollingElement.scrollWidth - innerWidth,
    cut: all("article :is(pre, table, .ms-chart svg, .ms-chart img, mjx-container[display])").filter((element) =>
      shown(element) && element.getBoundingClientRect().right > innerWidth + 1).map(name),
    tall: whole.filter((element) => element.getBoundingClientRect().height > most).map(name),
    split: whole.filter((element) => getComputedStyle(element).breakInside !== "avoid").map(name),
    chrome: all("body header, nav, .bd-sidebar, footer, button, input, select, summary, .headerlink, .copybtn")
      .filter(shown).map(name),
    folded: all("article .solution > *, article details:not(.ms-data) > *:not(summary)")
      .filter((element) => element.textContent.trim() && !shown(element)).map(name),
    solutions: all("article .solution").length,
    dark: all("body, article, article .admonition, article pre, article .highlight").filter(dark).map(name),
    theme: document.documentElement.dataset.theme,
    undrawn: all(".ms-figure .ms-chart:not(:has(svg.marks))").length,
  };
}"""


def plain(text: str) -> str:
    """Return a text as it can be compared: without blanks, ligatures and the like."""
    return "".join(unicodedata.normalize("NFKC", text).split())


@pytest.fixture(scope="module")
def printed(chromium, addresses):
    """Return a page's printed file, its figures, and its layout on paper; each page is opened once."""

    @cache
    def printed(name: str) -> dict[str, Any]:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme="dark")
        context.set_default_timeout(site_tools.PATIENCE_MS)
        context.add_init_script(f"({STUB})()")
        try:
            page = context.new_page()
            page.goto(f"{addresses['root']}{name}.html", wait_until="load")
            before = page.evaluate("document.documentElement.dataset.theme")
            # A printer does not wait for charts; it does for formulas, which the page's text needs anyway.
            page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
            file = page.pdf(format="A4", prefer_css_page_size=True)
            found = {"pages": [plain(sheet.extract_text()) for sheet in PdfReader(io.BytesIO(file)).pages]}
            found["figures"] = page.evaluate(WORDS)
            found["numbers"] = page.locator("article .eqno").all_text_contents()
            found["themes"] = [before, page.evaluate("document.documentElement.dataset.theme")]
            page.set_viewport_size({"width": PAPER_WIDTH, "height": PAPER_HEIGHT})
            page.emulate_media(media="print")
            # As print.js hears of the medium at the browser's next drawing; without it the layout says what is wrong.
            with suppress(TimeoutError):
                page.wait_for_function("document.documentElement.dataset.theme === 'light'", timeout=5000)
            page.wait_for_timeout(100)
            found["layout"] = page.evaluate(LAYOUT, PAPER_HEIGHT)
        finally:
            context.close()
        return found

    return printed


@each_page(list(PAGES))
def test_every_figure_is_whole_on_one_sheet(printed, name):
    found = printed(name)
    assert sorted({f["figure"] for f in found["figures"]} & set(PAGES[name].figures)) == sorted(PAGES[name].figures)
    for figure in found["figures"]:
        assert figure["marks"] > 0, f"{figure['figure']} is blank"
        wanted = {plain(word.removesuffix("#")) for word in (*figure["words"], figure["caption"])}
        assert wanted, figure
        missing = [{word for word in wanted if word not in sheet} for sheet in found["pages"]]
        assert set() in missing, f"{figure['figure']} lacks {min(missing, key=len)}"


@each_page(list(PAGES))
def test_numbered_equations_are_on_paper(printed, name):
    found = printed(name)
    text = "".join(found["pages"])
    assert [number for number in found["numbers"] if plain(number.removesuffix("#")) not in text] == []


@each_page(list(PAGES))
def test_paper_is_light_and_the_screen_dark_again(printed, name):
    found = printed(name)
    assert found["themes"] == ["dark", "dark"]
    assert found["layout"]["theme"] == "light"
    assert found["layout"]["dark"] == []


@each_page(list(PAGES))
def test_nothing_is_cut_or_folded_and_nothing_can_be_pressed(printed, name):
    layout = printed(name)["layout"]
    for fault in ("cut", "tall", "split", "chrome", "folded"):
        assert layout[fault] == [], fault
    assert layout["overflow"] <= 0
    assert layout["undrawn"] == 0


def test_there_are_solutions_and_equations_to_print(printed):
    assert sum(printed(name)["layout"]["solutions"] for name in PAGES) >= 5
    assert sum(len(printed(name)["numbers"]) for name in PAGES) >= 10


def test_the_page_s_own_button_prints_after_the_charts_are_drawn(chromium, addresses):
    name = max(PAGES, key=lambda name: len(PAGES[name].figures))
    context = chromium.new_context()
    try:
        context.add_init_script(f"({STUB})()")
        page = context.new_page()
        page.goto(f"{addresses['root']}{name}.html")
        page.locator(".btn-download-pdf-button").dispatch_event("click")
        page.wait_for_function("window.printed !== undefined")
        assert page.evaluate("window.printed") == 0
    finally:
        context.close()
