"""Chapters in the JupyterLab of Binder: the launch button opens a notebook, which runs from top to end.

Altair's charts ask a public host for Vega in a notebook, as on Binder. Here the tests answer in its place, with the
same versions of Vega from the built site; nothing else may be asked for.
"""

from __future__ import annotations

import re
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest
from bs4 import BeautifulSoup

from tests import lab, site_tools
from tests.sources import pages

pytestmark = [pytest.mark.site, pytest.mark.patience(1800)]

CHAPTERS = {page.docname: page for page in pages() if page.executable}
CHEAPEST = "book/intro"
RUN_MS = 1_500_000  # a chapter may take minutes; the fixture ends a browser that hangs
VEGA = re.compile(r"https://cdn\.jsdelivr\.net/npm/(vega|vega-lite|vega-embed)@[\d.]+\?noext")

PANEL = "const panel = window.jupyterapp?.shell.currentWidget;"
READY = f"() => {{ {PANEL} return panel?.sessionContext?.session?.kernel?.status === 'idle'; }}"

CELLS = (
    PANEL
    + """
  const cells = panel.content.widgets.filter((cell) => cell.model.type === "code").map((cell) => ({
    count: cell.model.executionCount, outputs: cell.model.outputs.toJSON()}));"""
)
DONE = f"""() => {{ {CELLS}
  const failed = cells.some((cell) => cell.outputs.some((output) => output.output_type === "error"));
  return panel.sessionContext.session.kernel.status === "idle" && (failed || cells.every((cell) => cell.count));
}}"""
OUTPUTS = f"() => {{ {CELLS} return cells; }}"

#: Cells out of sight are not on the page: go to each that has charts, and wait until they are drawn.
CHARTS = (
    "async () => {"
    + PANEL
    + """
  const pause = () => new Promise((done) => setTimeout(done, 100));
  const found = [];
  for (const [index, cell] of panel.content.widgets.entries()) {
    const html = JSON.stringify(cell.model.outputs?.toJSON() ?? "");
    if (!html.includes("ms-chart")) continue;
    panel.content.activeCellIndex = index;
    await panel.content.scrollToItem(index);
    const charts = () => [...cell.node.querySelectorAll(".ms-chart")];
    const drawn = (chart) => chart.querySelector("svg.marks, .error");
    for (let tries = 0; tries < 300 && !(charts().length && charts().every(drawn)); tries++) await pause();
    found.push(...charts().map((chart) => ({
      marks: chart.querySelectorAll("svg.marks .role-mark > path, svg.marks .role-mark > rect").length,
      error: chart.querySelector(".error")?.textContent ?? "",
      bad: chart.querySelector("svg.marks")?.outerHTML.match(/\\b(NaN|undefined|Infinity)\\b/g) ?? [],
      width: chart.getBoundingClientRect().width,
    })));
  }
  return found;
}"""
)


@pytest.fixture(scope="module")
def server(binder_lab, site, tmp_path_factory):
    """A JupyterLab on a copy of the book, with a HOME of its own: its address and that HOME."""
    home = tmp_path_factory.mktemp("home")
    book = lab.copy_of_the_book(tmp_path_factory.mktemp("book"))
    with lab.running(book, home) as address:
        yield address, home


@pytest.fixture
def launched(chromium, server, site):
    """Return a function that opens a chapter at the path of its launch button, in a browser that has seen nothing."""
    address, home = server
    contexts = []

    def launch(name: str):
        shutil.rmtree(home / ".jupyter" / "lab" / "workspaces", ignore_errors=True)
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.strangers = answer_for_vega(context, site, address)
        page.goto(address + launch_path(site, name))
        page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell")
        page.wait_for_function(READY)
        return page

    yield launch
    for context in contexts:
        context.pages[0].evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
        context.close()


def answer_for_vega(context, site, address: str) -> list[str]:
    """Answer requests for Vega with the site's copy, refuse all other hosts; return the list that the latter go to."""
    refused: list[str] = []
    bundle = (site / "_static" / "vega-bundle.js").read_text(encoding="utf8")
    script = bundle + "window.vegaEmbed = window.MEMSTORE_VEGA.vegaEmbed;"

    def answer(route):
        if VEGA.fullmatch(route.request.url):
            route.fulfill(body=script, content_type="text/javascript")
        else:
            refused.append(route.request.url)
            route.abort()

    context.route(lambda url: urlsplit(url).netloc != urlsplit(address).netloc and url.startswith("http"), answer)
    return refused


def launch_path(site, name: str) -> str:
    """Return what a chapter's launch button asks Binder to open."""
    soup = BeautifulSoup((site / f"{name}.html").read_text(encoding="utf8"), "html.parser")
    (button,) = soup.select("a[href*='mybinder.org']")
    return parse_qs(urlsplit(button["href"]).query)["urlpath"][0]


def choose(page, menu: str, item: str) -> None:
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.get_by_text(item, exact=True).click()


def wait_until_run(page) -> list[dict]:
    """Wait until all cells have run or one failed; return cells with their outputs."""
    page.wait_for_function(DONE, timeout=RUN_MS, polling=500)
    cells = page.evaluate(OUTPUTS)
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error", "\n".join(output["traceback"])
    return cells


@pytest.mark.parametrize("name", CHAPTERS)
def test_button_opens_a_notebook_whose_cells_all_run_and_draw(launched, name):
    page = launched(name)
    chapter = CHAPTERS[name]
    assert page.evaluate(OUTPUTS) == [{"count": None, "outputs": []}] * len(chapter.cells), "opened as it is"
    choose(page, "Run", "Run All Cells")
    cells = wait_until_run(page)
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    said = "".join(o["text"] for cell in cells for o in cell["outputs"] if o.get("name") == "stderr")
    lines = [line for line in re.split(r"[\r\n]", said) if line.strip()]
    assert [line for line in lines if not site_tools.PROGRESS.search(line)] == [], "only progress may go there"
    assert lines or "train_all" not in chapter.code, "whoever waits for a training run wants to see it advance"
    charts = page.evaluate(CHARTS)
    assert len(charts) >= len(chapter.figures)
    for chart in charts:
        assert chart["error"] == ""
        assert chart["bad"] == []
        assert chart["marks"] > 0
        assert chart["width"] >= 200
    assert page.strangers == []


def test_restart_and_run_all(launched):
    page = launched(CHEAPEST)
    choose(page, "Run", "Restart Kernel and Run All Cells…")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    cells = wait_until_run(page)
    assert [cell["count"] for cell in cells] == list(range(1, len(CHAPTERS[CHEAPEST].cells) + 1))
