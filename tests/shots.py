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
    parser.add_argument("--pdf", action="store_true", help="print the pages on A4 instead, from the dark theme")
    parser.add_argument("--plain", action="store_true", help="without JavaScript")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    path = browser.find()
    if path is None:
        raise SystemExit(browser.MISSING)
    with site_tools.chromium(path) as chromium, site_tools.served() as home:
        for name in wanted.page or [page.docname for page in pages()]:
            stem, url = wanted.folder / name.replace("/", "-"), f"{home}{name}.html"
            if wanted.pdf:
                write_pdf(chromium, url, stem.with_suffix(".pdf"))
                continue
            for width in wanted.width or (1280, 390):
                for theme in wanted.theme or ("light", "dark"):
                    target = stem.with_name(f"{stem.name}-{width}-{theme}.png")
                    write_png(chromium, url, target, width=width, theme=theme, plain=wanted.plain)


def write_pdf(chromium: site_tools.Chromium, url: str, target: Path) -> None:
    """Print a page as a reader would who has not scrolled."""
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(url)
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    page.pdf(path=target, format="A4", prefer_css_page_size=True)
    context.close()
    print(target)


def write_png(
    chromium: site_tools.Chromium, url: str, target: Path, *, width: int, theme: str, plain: bool = False
) -> None:
    """Draw a whole page, unfolded, or as it is where no script runs."""
    if plain:
        context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=theme, java_script_enabled=False
        )
        page = context.new_page()
        page.goto(url)
        page.screenshot(path=target, full_page=True)
        context.close()
    else:
        with site_tools.visit(chromium, url, width=width, theme=theme) as seen:
            seen.page.screenshot(path=target, full_page=True)
    print(target)


if __name__ == "__main__":
    main()
