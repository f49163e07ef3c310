"""Write pictures of every page, for people: ``python -m tests.shots FOLDER``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests import browser, site_tools
from tests.sources import pages


def main() -> None:
    """Write each page at two widths in both themes, unfolded and drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="append", help="such as book/intro; every page without it")
    parser.add_argument("--width", action="append", type=int, help="in pixels; 1280 and 390 without it")
    parser.add_argument("--theme", action="append", choices=("light", "dark"), help="both without it")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    path = browser.find()
    if path is None:
        raise SystemExit(browser.MISSING)
    with site_tools.chromium(path) as chromium, site_tools.served() as home:
        for name in wanted.page or [page.docname for page in pages()]:
            for width in wanted.width or (1280, 390):
                for theme in wanted.theme or ("light", "dark"):
                    target = wanted.folder / f"{name.replace('/', '-')}-{width}-{theme}.png"
                    with site_tools.visit(chromium, f"{home}{name}.html", width=width, theme=theme) as seen:
                        seen.page.screenshot(path=target, full_page=True)
                    print(target)


if __name__ == "__main__":
    main()
