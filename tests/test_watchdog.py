"""A browser that hangs is killed and started again, so that a test run ends."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import Error

from tests.sources import ROOT

pytestmark = pytest.mark.site

NEVER = "() => new Promise(() => {})"
BUSY = "() => { for (;;); }"


@pytest.mark.parametrize("script", [NEVER, BUSY])
def test_a_page_that_hangs_is_ended_and_the_next_one_opens(chromium, script):
    page = chromium.new_page()
    with chromium.watched(1.0), pytest.raises(Error, match="closed"):
        page.evaluate(script)
    context = chromium.new_context()
    assert context.new_page().evaluate("() => 1 + 1") == 2
    context.close()


def test_a_browser_in_time_is_left_alone(chromium):
    page = chromium.new_page()
    with chromium.watched(60.0):
        page.evaluate("() => 1")
    assert page.evaluate("() => 2") == 2
    page.context.close()


def test_a_test_whose_browser_was_killed_runs_again():
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/hangs_once.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert "1 passed, 1 rerun in" in done.stdout, done.stdout
