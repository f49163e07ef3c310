"""The built pages for those who use the keyboard, a screen reader, other eyes or a screen of another size."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup

from tests import access_tools, site_tools
from tests.views import DARK, FIRST, FURTHER_WIDTHS, NAMES, PAGES, PLACES, VIEWS, each_page, each_view

pytestmark = pytest.mark.site

LINE = 120  # characters; the eye loses longer ones
AXES = 4  # of a chart, the only shapes in it that a screen reader is told of
GLYPHS = 5  # pictures of recalled kanji side by side, each with its words
DOWNLOAD = re.compile(r"data:text/csv;charset=utf-8,(.*)", re.DOTALL)


def built(site, name: str) -> BeautifulSoup:
    return BeautifulSoup((site / f"{name}.html").read_text(encoding="utf8"), "html.parser")


@each_page()
def test_the_keyboard_reaches_everything_and_one_sees_where_it_is(look, name):
    found = look(name, *FIRST)["keyboard"]
    assert found["reached"] >= 10
    assert found["unreached"] == []
    assert found["unseen"] == []


@each_page()
def test_one_sees_the_focus_in_the_dark(look, name):
    assert look(name, *DARK)["unseen"] == []


@each_page()
def test_arrows_move_sliders_which_say_their_name_and_value(look, name):
    found = look(name, *FIRST)
    assert found["keyboard"]["unmoved"] == []
    for slider in found["spoken"]["sliders"]:
        assert len(slider["name"]) > 1, slider
        assert slider["value"], slider
        if "guess" in slider["name"]:
            assert re.fullmatch(r"[-\d.,]+( million)? [a-z ]+", slider["value"]), f"{slider} has no unit"


def test_there_are_sliders(look):
    assert sum(len(look(name, *FIRST)["spoken"]["sliders"]) for name in PAGES) >= 10


@each_page(list(PAGES))
def test_a_screen_reader_is_told_what_a_chart_shows_and_not_each_of_its_marks(look, name):
    charts = look(name, *FIRST)["spoken"]["charts"]
    assert len(charts) >= len(PAGES[name].figures)
    for chart in charts:
        assert chart["role"] == "graphics-document", chart
        assert len(chart["name"]) >= 20, chart
        inside = Counter(chart["inside"])
        assert inside["graphics-symbol"] <= AXES, chart
        assert inside["image"] + inside["img"] <= GLYPHS, chart


@each_page()
def test_tables_have_headers_that_say_of_what(look, name):
    found = look(name, *FIRST)["tables"]
    assert found["headless"] == []
    assert found["unscoped"] == []


def test_there_are_tables(look):
    assert sum(look(name, *FIRST)["tables"]["count"] for name in NAMES) >= 10


@each_view([FIRST, DARK])
@each_page(list(PAGES))
def test_lines_and_points_have_contrast(look, name, view):
    assert look(name, *view)["pale"] == []


@each_page()
def test_nothing_moves_for_those_who_ask_for_less_motion(look, name):
    assert look(name, *FIRST)["moving"] == []


@each_page()
def test_from_phones_to_very_wide_screens(look, name):
    found = look(name, *FIRST)["spread"]
    assert list(found) == list(FURTHER_WIDTHS)
    for width, facts in found.items():
        assert facts["overflow"] <= 0, width
        assert facts["line"] <= LINE, width


def charts(site, name: str) -> list[dict]:
    return access_tools.charts((site / f"{name}.html").read_text(encoding="utf8"))


@each_page(list(PAGES))
def test_no_series_is_told_by_its_colour_alone(site, name):
    for chart in charts(site, name):
        rows = chart.get("data", {}).get("values", [])
        if not rows or not isinstance(rows[0], dict) or "store" not in rows[0]:
            continue
        shapes = {}
        for node in access_tools.walk(chart["layer"]):
            if isinstance(shape := node.get("shape"), dict):
                shapes |= zip(shape["scale"]["domain"], shape["scale"]["range"], strict=True)
        stores = {row["store"] for row in rows}
        with_points = {row["store"] for row in rows if row["kind"] == "measured" or row.get("named")}
        assert with_points == stores, chart["description"]
        assert len({shapes[store] for store in stores}) == len(stores), chart["description"]


@each_page(list(PAGES))
def test_every_figure_offers_its_rows(site, name):
    page = built(site, name)
    figures = page.select(".ms-figure")
    assert len(figures) >= len(PAGES[name].figures)
    for figure in figures:
        link = figure.select_one("a.ms-download")
        rows = list(csv.reader(io.StringIO(unquote(DOWNLOAD.fullmatch(link["href"])[1]))))
        stated = int(re.search(r"Data \(([\d,]+) row", figure.select_one("summary").text)[1].replace(",", ""))
        assert len(rows) == 1 + stated
        assert link["download"].endswith(".csv")


@each_view([VIEWS[0], *PLACES])
def test_the_rows_are_saved_as_a_file(chromium, addresses, view):
    name = next(name for name, page in PAGES.items() if page.figures)
    with site_tools.visit(chromium, f"{addresses[view[0]]}{name}.html") as seen:
        link = seen.page.locator("a.ms-download").first
        with seen.page.expect_download() as download:
            link.click()
        assert download.value.suggested_filename == link.get_attribute("download")
        rows = list(csv.reader(download.value.path().read_text(encoding="utf8").splitlines()))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1
