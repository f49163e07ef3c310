"""A test that hangs the first time and passes the second; ``test_watchdog`` runs it, no other run collects it."""

from __future__ import annotations

import itertools

import pytest

pytestmark = pytest.mark.site

tries = itertools.count()


def test_that_hangs_once(chromium):
    page = chromium.new_page()
    with chromium.watched(1.0):
        page.evaluate("() => 1" if next(tries) else "() => new Promise(() => {})")
    page.context.close()
