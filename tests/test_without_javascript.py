"""The built pages where no script runs: text, formulas, code, tables and a still picture of each figure."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from bs4 import BeautifulSoup

from tests import site_tools
from tests.views import FIRST, PAGES, each_page

pytestmark = pytest.mark.site

WIDTHS = (360, 1280)
LEGIBLE = 9  # px, the smallest letters of a picture as it is shown

FACTS = """() => {
  const shown = (element) => element.checkVisibility({visibilityProperty: true}) && element.getClientRects().length > 0;
  const size = (element) => element.getBoundingClientRect();
  return {
    overflow: document.scrollingElement.scrollWidth - innerWidth,
    figures: [...document.querySelectorAll(".ms-figure")].map((figure) => {
      const image = figure.querySelector("img.ms-still");
      const glyphs = figure.querySelector(".ms-pictures[aria-label]");
      const picture = image ?? glyphs;
      return {
        figure: figure.closest("figure")?.id ?? "",
        shown: !!picture && shown(picture) && size(picture).width >= 200 && size(picture).height >= 80,
        loaded: image ? image.complete && image.naturalWidth > 0 : !!glyphs,
        scale: image ? size(image).width / image.naturalWidth : 1,
        words: image?.alt ?? glyphs?.getAttribute("aria-label") ?? "",
        rows: shown(figure.querySelector(".ms-data summary")),
      };
    }),
    formulas: document.querySelectorAll("article .math").length,
    mathml: [...document.querySelectorAll("article .math math")].filter(shown).length,
    unread: [...document.querySelectorAll("article .math")].filter((formula) =>
      !(shown(formula) && size(formula).width > 3)).map((formula) => formula.outerHTML.slice(0, 200)),
    tables: [...document.querySelectorAll("article table")].filter((table) => !table.closest("details")).map(shown),
    code: [...document.querySelectorAll("article pre")].filter((part) => !part.closest("details")).map(shown),
    idle: [...document.querySelectorAll("article :is(button, input)")].filter(shown).map((part) => part.outerHTML),
    text: document.querySelector("article").innerText,
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.querySelector("article p")).color,
    link: getComputedStyle(document.documentElement).getPropertyValue("--pst-color-link").trim(),
  };
}"""


@pytest.fixture(scope="module")
def plain(chromium, addresses):
    """Return what a page shows without JavaScript at each width; each page is opened once."""

    @cache
    def plain(name: str) -> dict[str, Any]:
        context = chromium.new_context(
            java_script_enabled=False, viewport={"width": WIDTHS[0], "height": 800}, color_scheme="dark"
        )
        context.set_default_timeout(site_tools.PATIENCE_MS)
        try:
            seen = site_tools.Visit(context.new_page())
            seen.listen()
            seen.page.goto(f"{addresses['root']}{name}.html", wait_until="load")
            found: dict[Any, Any] = {WIDTHS[0]: seen.page.evaluate(FACTS)}
            seen.page.set_viewport_size({"width": WIDTHS[1], "height": 800})
            seen.page.wait_for_load_state("networkidle")
            found[WIDTHS[1]] = seen.page.evaluate(FACTS)
            # Scripts are named early in the page, and not loaded.
            found["problems"] = [problem for problem in seen.problems if not problem.endswith(" csp")]
        finally:
            context.close()
        return found

    return plain


def each_width():
    return pytest.mark.parametrize("width", WIDTHS)


@each_width()
@each_page(list(PAGES))
def test_every_figure_has_a_picture_in_words_too(plain, name, width):
    figures = plain(name)[width]["figures"]
    wanted = PAGES[name].figures
    assert sorted({figure["figure"] for figure in figures} & set(wanted)) == sorted(wanted)
    for figure in figures:
        assert figure["shown"], figure
        assert figure["loaded"], figure
        assert figure["scale"] * 12 >= LEGIBLE, figure  # the charts' letters have 12 px
        assert len(figure["words"]) >= 20, figure
        assert figure["rows"], figure


@each_width()
@each_page(list(PAGES))
def test_text_formulas_code_and_tables_are_there(plain, name, width):
    found = plain(name)[width]
    assert found["overflow"] <= 0
    assert found["unread"] == []
    assert found["mathml"] >= 0.98 * found["formulas"]
    assert all(found["tables"])
    assert all(found["code"])
    assert found["idle"] == [], "there is something that only a script could answer"
    assert "undefined" not in found["text"]
    assert plain(name)["problems"] == []


@each_page(list(PAGES))
def test_colours_are_the_light_ones(plain, name):
    found = plain(name)[WIDTHS[1]]
    assert found["ground"] == "rgb(255, 255, 255)"
    assert found["link"].startswith("#")
    assert found["ink"] != found["ground"]


def test_there_is_something_to_see(plain):
    found = [plain(name)[WIDTHS[0]] for name in PAGES]
    assert sum(len(page["figures"]) for page in found) >= 10
    assert sum(page["formulas"] for page in found) >= 100
    assert sum(len(page["tables"]) for page in found) >= 10
    assert sum(len(page["code"]) for page in found) >= 10


@each_page(list(PAGES))
def test_a_browser_with_scripts_does_not_ask_for_the_pictures(look, name):
    assert [path for path in look(name, *FIRST)["weight"] if "/_images/chart-" in path] == []


@each_page(list(PAGES))
def test_pictures_stand_alone(site, name):
    soup = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf8"), "html.parser")
    for picture in soup.select("noscript picture"):
        for address in (picture.source["srcset"], picture.img["src"]):
            svg = site_tools.local_file(site, site / f"{name}.html", address).read_text(encoding="utf8")
            assert "var(" not in svg
            assert "currentColor" not in svg
            assert "NaN" not in svg
            assert "http" not in svg.replace("http://www.w3.org/", "")
