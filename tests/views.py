"""The pages of the built book in the views that tests take of them; each is opened once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests import access_tools, site_tools
from tests.sources import pages

PAGES = {page.docname: page for page in pages()}
NAMES = [*PAGES, "search"]
WIDTHS = (1280, 360)
FURTHER_WIDTHS = (2560, 768, 390)
THEMES = ("light", "dark")

VIEWS = [("root", width, theme) for width in WIDTHS for theme in THEMES]
#: What axe looks for where: between them everything, in both themes; it takes seconds a page.
AXE_VIEWS = {
    ("root", 1280, "light"): {},
    ("root", 1280, "dark"): site_tools.COLOURS_ONLY,
    ("root", 360, "light"): site_tools.NO_COLOURS,
}
PLACES = [("sub-path", 1280, "light"), ("file", 1280, "light")]
FIRST, DARK = VIEWS[0], VIEWS[1]

Look = Callable[[str, str, int, str], dict[str, Any]]


def each_page(names: list[str] = NAMES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names)


def each_view(views) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("view", views, ids=lambda view: "-".join(map(str, view)))


def looker(chromium: site_tools.Chromium, addresses: dict[str, str]) -> Look:
    """Return a function that says what a page shows in one view."""

    @cache
    def look(name: str, place: str, width: int, theme: str) -> dict[str, Any]:
        home, view = addresses[place], (place, width, theme)
        with site_tools.visit(chromium, f"{home}{name}.html", width=width, theme=theme) as seen:
            found = site_tools.facts(seen.page)
            if view == FIRST:
                found["weight"] = seen.weight()
            if view in AXE_VIEWS:
                found["axe"] = site_tools.accessibility(seen.page, AXE_VIEWS[view])
            if view in (FIRST, DARK):
                found["pale"] = seen.page.evaluate(access_tools.PALE)
            if view == FIRST:
                found["moving"] = seen.page.evaluate(access_tools.MOVING)
                found["tables"] = seen.page.evaluate(access_tools.TABLES)
                found["spoken"] = access_tools.spoken(seen.page)
                found["keyboard"] = access_tools.keyboard(seen.page)
                found["spread"] = access_tools.spread(seen.page, FURTHER_WIDTHS)
            if view == DARK:
                found["unseen"] = access_tools.unseen_focus(seen.page)
            found["problems"] = list(seen.problems)
            found["strangers"] = site_tools.other_hosts(seen.requested, home)
        return found

    return look
