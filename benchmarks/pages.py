"""What the built pages weigh and how fast their sliders are, in a real browser."""

from __future__ import annotations

from benchmarks.rows import Row, single
from tests import browser, site_tools
from tests.sources import pages

#: The budget of a page with all that it loads, compressed.
PAGE_BYTES = 900_000


def weights_and_sliders() -> tuple[list[tuple[str, int]], list[tuple[str, str, float]]]:
    """Return compressed bytes of each page, and the median milliseconds of each slider's step.

    Raises:
        FileNotFoundError: there is no browser or no built site.
    """
    path = browser.find()
    if path is None:
        raise FileNotFoundError(browser.MISSING)
    if not (site_tools.SITE / "index.html").exists():
        raise FileNotFoundError("there is no built site: run make book first")
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


def rows() -> list[Row]:
    """Return the weights and the slider steps."""
    weights, sliders = weights_and_sliders()
    found = [single("page", name, "KB", size / 1e3, "compressed, at most 900") for name, size in weights]
    return found + [
        single("slider", f"{page}: {name}", "ms", step, "a step, at most 50") for page, name, step in sliders
    ]
