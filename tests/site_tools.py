"""Open built pages in a browser and say what is to be seen on them. Shared by the tests, the benchmarks and shots."""

from __future__ import annotations

import gzip
import re
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import BrowserContext, Page, Playwright, Response, sync_playwright

from tests.sources import ROOT

SITE = ROOT / "_build" / "html"
PATIENCE_MS = 60_000
ALREADY_COMPRESSED = (".woff", ".woff2", ".png", ".jpg", ".gz")

#: What a progress bar of tqdm cannot do without: " 40%|████      | 2/5 [00:01<00:02,  1.50it/s]".
PROGRESS = re.compile(r"\d%\||\[\d+:\d\d<")

#: Without these Chromium looks for its maker's hosts on its own, and a sandbox needs rights that containers lack.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


class Chromium:
    """A Chromium that can be killed from another thread when it hangs, and is started again at the next use.

    Playwright bounds most waits but not the scripts that a page runs: on a small machine one of them once kept a test
    waiting for an hour. Killing the browser ends that wait with an error.
    """

    def __init__(self, playwright: Playwright, path: str) -> None:
        self._launch = partial(playwright.chromium.launch, executable_path=path, args=FLAGS)
        self._browser = self._launch()

    def new_context(self, **options: Any) -> BrowserContext:
        """Return a new context, as :meth:`playwright.sync_api.Browser.new_context`."""
        if not self._browser.is_connected():
            self._browser = self._launch()
        return self._browser.new_context(**options)

    def new_page(self, **options: Any) -> Page:
        """Return a page in a context of its own."""
        return self.new_context(**options).new_page()

    def kill(self) -> None:
        """End the browser's processes, whatever they are doing."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if "chrom" in process.name().lower():
                    process.kill()

    @contextmanager
    def watched(self, seconds: float) -> Iterator[None]:
        """Kill the browser when the block takes longer than so many seconds."""
        watchdog = threading.Timer(seconds, self.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            watchdog.join()

    def close(self) -> None:
        """Close the browser."""
        self._browser.close()


@contextmanager
def chromium(path: str) -> Iterator[Chromium]:
    """Start a Chromium."""
    with sync_playwright() as playwright:
        browser = Chromium(playwright, path)
        try:
            yield browser
        finally:
            browser.close()


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder under a path, and nothing outside that path."""

    def __init__(self, *args: Any, prefix: str, **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(*args, **kwargs)

    def send_head(self) -> Any:
        if not self.path.startswith(self.prefix):
            self.send_error(404)
            return None
        self.path = "/" + self.path.removeprefix(self.prefix)
        return super().send_head()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path = SITE, prefix: str = "/") -> Iterator[str]:
    """Serve a folder on this machine under a path that begins and ends with a slash; yield its address."""
    handler = partial(_Handler, prefix=prefix, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Visit:
    """An open page, with what it asked for and complained about."""

    page: Page
    responses: list[Response] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Note requests, failures, and errors or warnings in the console."""
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("response", self._note)
        self.page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url} {request.failure}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        self.page.on("console", self._hear)

    def _note(self, response: Response) -> None:
        self.responses.append(response)
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")

    def _hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console {message.type}: {message.text}")

    def weight(self) -> dict[str, int]:
        """Return the compressed bytes of everything that the page asked for, by the path of its address."""
        sizes = {}
        for response in self.responses:
            path = urlsplit(response.url).path
            if response.ok and not response.url.startswith("data:"):
                body = response.body()
                sizes[path] = len(body) if path.endswith(ALREADY_COMPRESSED) else len(gzip.compress(body, 6))
        return sizes


@contextmanager
def visit(browser: Chromium, url: str, *, width: int = 1280, theme: str = "light") -> Iterator[Visit]:
    """Open an address in a window of its own, unfold and scroll through the page, and wait until all is drawn."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    try:
        seen = Visit(context.new_page())
        seen.listen()
        seen.page.goto(url)
        settle(seen.page)
        yield seen
    finally:
        context.close()


UNFOLD = """() => {
  document.querySelectorAll("details").forEach((part) => (part.open = true));
  document.querySelectorAll("button.toggle-button-hidden").forEach((button) => button.click());
}"""

SCROLL = """async () => {
  // A browser that has stopped drawing calls no frame: then a second has to do.
  const frame = () => new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done, 15));
    setTimeout(done, 1000);
  });
  for (let y = 0; y < document.scrollingElement.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await frame();
  }
  scrollTo(0, 0);
  await frame();
}"""

DRAWN = """() => [...document.querySelectorAll(".ms-figure .ms-chart")].every(
  (chart) => chart.querySelector("svg.marks, .ms-error"))"""


def settle(page: Page) -> None:
    """Unfold everything, scroll through the page, and wait for formulas and charts."""
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    page.evaluate(UNFOLD)
    page.evaluate(SCROLL)
    page.wait_for_function(DRAWN)
    page.evaluate("() => document.fonts.ready.then(() => true)")


FACTS = r"""() => {
  const shown = (element) => element.checkVisibility?.() ?? true;
  const text = (() => {
    const copy = document.querySelector("main, body").cloneNode(true);
    copy.querySelectorAll("script, style, noscript, mjx-container, pre, code, svg").forEach((part) => part.remove());
    return copy.textContent;
  })();

  const parse = (colour) => {
    const parts = colour.match(/[\d.]+%?/g)?.map(Number) ?? [0, 0, 0, 0];
    const scale = colour.startsWith("color(") ? 255 : 1;
    return {rgb: parts.slice(0, 3).map((part) => part * scale), alpha: parts[3] ?? 1};
  };
  const over = (top, alpha, below) => top.map((part, index) => part * alpha + below[index] * (1 - alpha));
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const {rgb, alpha} = parse(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => part / 255).map((part) =>
      part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, two) => {
    const [low, high] = [light(one), light(two)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [];
  const words = [...document.querySelectorAll(".ms-figure svg.marks text")].filter(
    (element) => element.textContent.trim() && shown(element));
  const outlined = (element) => getComputedStyle(element).stroke !== "none";
  const plain = new Set(words.filter((element) => !outlined(element)).map((element) => element.textContent));
  words.forEach((element) => {
    // Words on a chart are drawn twice: first as an outline in the paper's colour, to part them from the marks.
    if (outlined(element) && plain.has(element.textContent)) return;
    const style = getComputedStyle(element);
    let {rgb, alpha} = parse(style.fill);
    alpha *= style.fillOpacity;
    for (let at = element; at && at.tagName !== "svg"; at = at.parentElement) alpha *= getComputedStyle(at).opacity;
    if (alpha === 0) return;
    const behind = background(element.closest("svg").parentElement);
    const ratio = contrast(over(rgb, alpha, behind), behind);
    if (ratio < 4.5) faint.push(`${element.textContent} ${ratio.toFixed(2)}`);
  });

  const charts = [...document.querySelectorAll(".ms-figure .ms-chart")].map((chart) => {
    const svg = chart.querySelector("svg.marks");
    const drawn = svg ? svg.querySelectorAll(
      ".role-mark:not(.mark-text):not(.mark-group) > path, .role-mark > rect, .role-mark > line").length : 0;
    const bad = svg ? svg.outerHTML.match(/\b(NaN|undefined|Infinity)\b/g) : null;
    const box = chart.getBoundingClientRect();
    return {
      figure: chart.closest("figure")?.id || chart.closest("[id^=fig-]")?.id || "",
      drawn, bad: bad?.length ?? 0,
      width: box.width,
      label: chart.querySelector("[role=graphics-document][aria-label]")?.getAttribute("aria-label") ?? "",
    };
  });

  const levels = [...document.querySelectorAll("article h1, article h2, article h3, article h4, article h5")]
    .filter(shown).map((heading) => Number(heading.tagName[1]));
  const unlabelled = [...document.querySelectorAll("article input, article select, article button")].filter((control) =>
    shown(control) && !control.labels?.length && !control.getAttribute("aria-label") && !control.title
    && !control.getAttribute("aria-labelledby") && !control.textContent.trim()).map((control) => control.outerHTML);

  return {
    overflow: document.scrollingElement.scrollWidth - innerWidth,
    raw_tex: text.match(/\\[a-zA-Z]{2,}|\\\(|\\\[|\$/g) ?? [],
    math: document.querySelectorAll(".math").length,
    untypeset: [...document.querySelectorAll(".math")].filter((part) => !part.querySelector("mjx-container"))
      .map((part) => part.textContent),
    math_errors: [...document.querySelectorAll("mjx-merror")].map((part) => part.textContent),
    charts, faint, levels, unlabelled,
    errors: [...document.querySelectorAll(".ms-error")].map((part) => part.textContent),
    without_alt: [...document.images].filter((image) => !image.hasAttribute("alt")).map((image) => image.src),
    language: document.documentElement.lang,
    theme: document.documentElement.dataset.theme,
    title: document.title,
    description: document.querySelector("meta[name=description]")?.content ?? "",
  };
}"""


def facts(page: Page) -> dict[str, Any]:
    """Return what is to be seen on a settled page."""
    return page.evaluate(FACTS)


#: The insides of formulas are left out: thousands of elements, for which MathJax gives screen readers MathML instead.
#: Without `preload: false` axe fetches stylesheets itself, some from addresses that do not exist.
AXE = """(options) => axe.run(
  {exclude: [["mjx-container > mjx-math"]]},
  {resultTypes: ["violations"], preload: false, ...options})"""

#: Contrast takes most of the time, depends on the theme and not on the width; all else is the other way round.
COLOURS_ONLY = {"runOnly": ["color-contrast"]}
NO_COLOURS = {"rules": {"color-contrast": {"enabled": False}}}


def accessibility(page: Page, options: dict[str, Any] | None = None) -> list[str]:
    """Return what axe finds serious or critical, one line for each element.

    Args:
        page: a settled page.
        options: which rules; all of them without.
    """
    page.evaluate(AXE_SCRIPT)
    found = page.evaluate(AXE, options or {})["violations"]
    return [
        f"{violation['id']}: {' '.join(map(str, node['target']))} {node['html'][:160]} | {node['failureSummary'][:300]}"
        for violation in found
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


SLIDE = """async ([index, share]) => {
  const input = [...document.querySelectorAll(".ms-figure input[type=range]")][index];
  const svg = input.closest(".ms-figure").querySelector("svg.marks");
  const low = Number(input.min), high = Number(input.max), step = Number(input.step) || 1;
  const before = svg.outerHTML;
  let changed = () => {};
  const observer = new MutationObserver(() => changed());
  observer.observe(svg, {subtree: true, childList: true, attributes: true, characterData: true});
  const start = performance.now();
  const drawn = new Promise((done) => { changed = done; setTimeout(done, 3000); });
  input.value = low + step * Math.round((share * (high - low)) / step);
  input.dispatchEvent(new Event("input", {bubbles: true}));
  await drawn;
  const took = performance.now() - start;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  observer.disconnect();
  const positions = Math.round((high - low) / step);
  return {changed: svg.outerHTML !== before, took, name: input.name, disabled: input.disabled, positions};
}"""

SLIDERS = "() => document.querySelectorAll('.ms-figure input[type=range]').length"


def slide(page: Page, index: int, share: float) -> dict[str, Any]:
    """Move a slider to a share of its range, and say whether its chart changed and after how many milliseconds."""
    return page.evaluate(SLIDE, [index, share])


def slider_step_ms(page: Page, index: int, steps: int = 25) -> float:
    """Return the median milliseconds from a slider's input to the changed chart, over steps across its range."""
    positions = slide(page, index, 0.0)["positions"]
    steps = min(steps, positions)  # a step that moves nothing would be waited for in vain
    taken = [slide(page, index, round(step * positions / steps) / positions) for step in range(1, steps + 1)]
    moved = [step["took"] for step in taken if step["changed"]]
    return statistics.median(moved) if moved else float("nan")


def other_hosts(requested: list[str], home: str) -> list[str]:
    """Return the requests that left the site."""
    return [url for url in requested if not url.startswith((home, "data:", "blob:", "about:"))]


def local_file(site: Path, page: Path, reference: str) -> Path | None:
    """Return the file that a reference on a page points to, or None when it leads to another host."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return None
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page
