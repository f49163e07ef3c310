"""What the built pages weigh and how fast their sliders are, in a real browser."""

from __future__ import annotations

from tests import browser, site_tools
from tests.sources import pages

#: The budget of a page with all that it loads, compressed.
PAGE_BYTES = 900_000


def weights_and_sliders() -> tuple[list[tuple[str, int]], list[tuple[str, str, float]]]:
    """Return compressed bytes of each page, and the median milliseconds of each slider's step.

    Raises:
        SystemExit: there is no browser or no built site.
    """
    path = browser.find()
    if path is None:
        raise SystemExit(browser.MISSING)
    weights, sliders = [], []
    with site_tools.chromium(path) as chromium, site_tools.served() as home:
        for page in pages():
            with site_tools.visit(chromium, f"{home}{page.docname}.html") as seen:
                weights.append((page.docname, sum(seen.weight().values())))
                for index in range(seen.page.evaluate(site_tools.SLIDERS)):
                    step = site_tools.slide(seen.page, index, 0.5)
                    if not step["disabled"]:
                        sliders.append((page.docname, step["name"], site_tools.slider_step_ms(seen.page, index)))
    return weights, sliders
