"""The built pages in a browser: narrow and wide, light and dark, under a path, and as files."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from bs4 import BeautifulSoup

from tests import site_tools
from tests.sources import Page
from tests.views import AXE_VIEWS, PAGES, PLACES, THEMES, VIEWS, each_page, each_view

pytestmark = pytest.mark.site

BUDGET = 900_000  # bytes, compressed, of a page with everything that it asks for
LINK_ATTRIBUTES = (("a", "href"), ("link", "href"), ("script", "src"), ("img", "src"))
MEMORY_MB = 1000  # of a chapter's kernel: Binder has one or two gigabytes for everything
SPOKEN = 20  # characters; a shorter description of a chart says nothing


@each_view(VIEWS + PLACES)
@each_page()
def test_page_asks_no_other_host_and_raises_no_error(look, name, view):
    found = look(name, *view)
    assert found["strangers"] == []
    # The search page reads its index with fetch, which browsers refuse to do on files.
    if not (name == "search" and view[0] == "file"):
        assert found["problems"] == []


@each_view(VIEWS + PLACES)
@each_page(list(PAGES))
def test_every_figure_of_the_sources_is_drawn(look, name, view):
    charts = look(name, *view)["charts"]
    wanted = PAGES[name].figures
    assert sorted({chart["figure"] for chart in charts} & set(wanted)) == sorted(wanted)
    assert len(charts) >= len(wanted)
    for chart in charts:
        assert chart["drawn"] > 0, f"{chart['figure']} is blank"
        assert chart["bad"] == 0, f"{chart['figure']} draws NaN or undefined"
        assert len(chart["label"]) >= SPOKEN, f"{chart['figure']} says nothing to a screen reader"
        assert chart["width"] >= 200, f"{chart['figure']} is too small to read"
    assert look(name, *view)["errors"] == []


def test_there_are_figures_to_draw():
    assert sum(len(page.figures) for page in PAGES.values()) >= 2


@each_view(VIEWS)
@each_page(list(PAGES))
def test_formulas_are_typeset(look, name, view):
    found = look(name, *view)
    assert found["raw_tex"] == []
    assert found["untypeset"] == []
    assert found["math_errors"] == []
    if "$" in PAGES[name].text:
        assert found["math"] > 0


@each_view(VIEWS)
@each_page()
def test_page_does_not_scroll_sideways(look, name, view):
    assert look(name, *view)["overflow"] <= 0


@each_view(AXE_VIEWS)
@each_page()
def test_axe_finds_nothing_serious(look, name, view):
    assert look(name, *view)["axe"] == []


@each_view(VIEWS)
@each_page()
def test_text_in_charts_has_contrast(look, name, view):
    """axe measures the contrast of all other text, and leaves out what is inside a picture."""
    assert look(name, *view)["faint"] == []


@each_page()
def test_theme_follows_the_reader(look, name):
    assert [look(name, "root", 1280, theme)["theme"] for theme in THEMES] == list(THEMES)


@each_page(list(PAGES))
def test_headings_labels_and_texts_for_those_who_do_not_see(look, name):
    found = look(name, "root", 1280, "light")
    levels = found["levels"]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels
    assert found["unlabelled"] == []
    assert found["without_alt"] == []
    assert found["language"] == "en"
    assert found["title"]
    assert found["description"]


@each_page()
def test_page_is_light(look, name):
    weight = look(name, "root", 1280, "light")["weight"]
    largest = sorted(weight.items(), key=lambda item: -item[1])[:6]
    assert sum(weight.values()) <= BUDGET, f"{sum(weight.values()):,} bytes, mostly {largest}"


def with_sliders() -> list[str]:
    """Return the pages whose sources say that they have an interactive figure, from their chart forms."""
    return [name for name, page in PAGES.items() if "figures.recall_bars" in page.code]


@each_page(with_sliders())
def test_sliders_change_the_chart(chromium, addresses, name):
    with site_tools.visit(chromium, f"{addresses['root']}{name}.html") as seen:
        count = seen.page.evaluate(site_tools.SLIDERS)
        assert count > 0
        for index in range(count):
            moves = [site_tools.slide(seen.page, index, share) for share in (0.0, 1.0, 0.5)]
            assert moves[0]["disabled"] or any(move["changed"] for move in moves), moves
        assert seen.problems == []


def test_the_first_page_is_found_from_the_root(chromium, addresses):
    for home in addresses.values():
        page = chromium.new_page()
        page.goto(f"{home}index.html")
        page.wait_for_url("**/book/intro.html")
        page.close()


def test_hosts_that_run_jekyll_serve_the_styles(site):
    assert (site / ".nojekyll").is_file()


def test_links_and_downloads_resolve(site):
    broken = []
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        soup = BeautifulSoup(path.read_text(encoding="utf8"), "html.parser")
        for tag, attribute in LINK_ATTRIBUTES:
            for element in soup.find_all(tag, **{attribute: True}):
                broken += check_link(site, path, element[attribute])
    assert broken == []


def check_link(site, path, reference: str) -> list[str]:
    target = site_tools.local_file(site, path, reference)
    where = f"{path.relative_to(site)} -> {reference}"
    if target is None:
        return []
    if not target.is_file():
        return [where]
    _, _, fragment = reference.partition("#")
    if fragment and target.suffix == ".html":
        ids = identifiers(target)
        return [] if fragment in ids else [f"{where} (no such place on the page)"]
    return []


@cache
def identifiers(path) -> set[str]:
    soup = BeautifulSoup(path.read_text(encoding="utf8"), "html.parser")
    return {element["id"] for element in soup.find_all(id=True)} | {"", "top"}


@each_page([name for name, page in PAGES.items() if page.path.exists() and page.executable])
def test_downloaded_notebook_has_the_outputs(site, name):
    import nbformat

    notebook = nbformat.read(site / "_sources" / f"{name}.ipynb", as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells)


def test_nothing_of_other_hosts_is_loaded_by_the_pages(site):
    for path in site.rglob("*.html"):
        soup = BeautifulSoup(path.read_text(encoding="utf8"), "html.parser")
        for tag, attribute in (*LINK_ATTRIBUTES[1:], ("iframe", "src"), ("source", "src")):
            for element in soup.find_all(tag, **{attribute: True}):
                if element.get("rel") not in (["canonical"], ["license"]):
                    assert not element[attribute].startswith(("http:", "https:", "//")), (path, element)


@each_page(list(PAGES))
def test_no_progress_bar_is_printed_into_the_page(site, name):
    soup = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf8"), "html.parser")
    assert site_tools.PROGRESS.findall(soup.get_text()) == []


def test_the_report_has_a_row_for_each_chapter(site):
    soup = BeautifulSoup((site / "book" / "reproducibility.html").read_text(encoding="utf8"), "html.parser")
    table = next(t for t in soup.find_all("table") if "Peak memory" in t.get_text())
    rows = {row.find("th").get_text(strip=True): row for row in table.find("tbody").find_all("tr")}
    chapters: list[Page] = [page for page in PAGES.values() if page.executable]
    assert len(rows) == len(chapters)
    for row in rows.values():
        cells = [cell.get_text(strip=True) for cell in row.find_all("td")]
        assert float(cells[0]) > 0, "seconds"
        assert 50 < float(cells[1].replace(",", "")) < MEMORY_MB, "peak memory"
    assert table.find("thead").find("th") is not None
