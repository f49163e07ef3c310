"""Fixtures for the tests that open the built book in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import browser as browsers
from tests import lab, site_tools, views

SUB_PATH = "/a/path/of/its/own/"
HUNG_S = 240  # of one test; the slowest takes some 20 s on two slow cores


def pytest_collection_modifyitems(items) -> None:
    """Repeat a test whose browser was killed for hanging: once, and the closing lines count it."""
    for item in items:
        if "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["TargetClosedError"]))


def _need(condition: bool, reason: str) -> None:
    """Skip where something is missing on this machine, but fail where nothing may be skipped."""
    if not condition:
        if browsers.in_ci():
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def site():
    """The folder of the built book."""
    _need((site_tools.SITE / "index.html").is_file(), "the book is not built: run make book")
    return site_tools.SITE


@pytest.fixture(scope="session")
def chromium() -> Iterator[site_tools.Chromium]:
    """A browser for all tests."""
    path = browsers.find()
    _need(path is not None, browsers.MISSING)
    with site_tools.chromium(path) as browser:
        yield browser


@pytest.fixture(scope="session")
def binder_lab():
    """The Python of an environment with the JupyterLab of Binder."""
    path = lab.provide()
    _need(path is not None, lab.MISSING)
    return path


@pytest.fixture(scope="session")
def addresses(site) -> Iterator[dict[str, str]]:
    """Where the built book is to be had: at a host's root, under a path, and as files."""
    with site_tools.served(site) as root, site_tools.served(site, SUB_PATH) as below:
        yield {"root": root, "sub-path": below, "file": site.resolve().as_uri() + "/"}


@pytest.fixture(scope="session")
def look(chromium, addresses) -> views.Look:
    """What a page shows in one view; each is opened once for all tests."""
    return views.looker(chromium, addresses)


@pytest.fixture(autouse=True)
def watchdog(request) -> Iterator[None]:
    """Kill a browser that hangs; the marker ``patience`` says when that is, for a test that takes long."""
    if "chromium" not in request.fixturenames:
        yield
        return
    marker = request.node.get_closest_marker("patience")
    with request.getfixturevalue("chromium").watched(marker.args[0] if marker else HUNG_S):
        yield
