"""The book's sources: figures captioned, named and referenced; no plotting code and no typed results in chapters."""

from __future__ import annotations

import re

import pytest
import yaml
from pybtex.database import parse_file

from memstore_lib import figures
from tests.sources import ROOT, Page, calls_of, imported_roots, pages

PAGES = pages()
CHAPTERS = [page for page in PAGES if page.path.exists() and page.executable]
TEXTS = [page for page in PAGES if page.path.exists()]

#: What draws. A chapter calls the chart forms of memstore_lib.figures and nothing below them.
DRAWING = {"altair", "matplotlib", "seaborn", "plotly", "bokeh", "vega", "vl_convert"}
CHART_FORMS = {name for name in figures.__all__ if name.islower() and name not in {"style_of", "legend"}}

#: Decimal numbers that are definitions, not results, and so may stand in prose as they are.
DEFINITIONS = {"4.0", "3.11"}  # CC BY 4.0, Python 3.11
TYPED_RESULT = re.compile(r"(?<![\w.])\d[\d,]*\.\d+")

CITATION = re.compile(r"\{cite[\w:]*\}`([^`]+)`")


def each(pages: list[Page]):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.docname)


def test_every_page_of_the_table_of_contents_exists():
    assert [page.docname for page in PAGES if not page.path.exists()] == []


def test_there_are_chapters():
    assert len(CHAPTERS) >= 2


@each(CHAPTERS)
def test_front_matter_opens_as_a_notebook(page):
    text = page.front_matter["jupytext"]["text_representation"]
    assert (text["extension"], text["format_name"]) == (".md", "myst")
    assert page.front_matter["kernelspec"]["name"] == "python3"


@each(CHAPTERS)
def test_every_figure_is_captioned_named_and_referenced(page):
    for cell in page.cells:
        drawn = CHART_FORMS.intersection(calls_of(cell.tree, {"figures"}))
        if drawn and cell.source.rstrip().endswith((")", "]")):
            assert cell.figure, f"the cell that draws {drawn} needs mystnb: figure: metadata\n{cell.source}"
        if cell.figure:
            assert drawn, f"a figure must come from one of {sorted(CHART_FORMS)}:\n{cell.source}"
            assert cell.figure.get("caption", "").strip(), f"{cell.figure} needs a caption"
            assert re.fullmatch(r"fig-[a-z0-9-]+", cell.figure.get("name", "")), f"{cell.figure} needs a fig-… name"
    assert len(set(page.figures)) == len(page.figures)
    referenced = set(re.findall(r"\{numref\}`(?:[^`<]*<)?(fig-[a-z0-9-]+)>?`", page.text))
    assert set(page.figures) <= referenced, "no {numref} in the text"


def test_figure_names_are_unique_in_the_book():
    names = [name for page in CHAPTERS for name in page.figures]
    assert sorted(set(names)) == sorted(names)


@each(CHAPTERS)
def test_no_plotting_code(page):
    for cell in page.cells:
        assert not DRAWING.intersection(imported_roots(cell)), cell.source
        assert not re.search(r"\.(mark_\w+|encode|plot|savefig)\(", cell.source), cell.source


@each(CHAPTERS)
def test_code_is_no_wider_than_a_page(page):
    wide = [line for cell in page.cells for line in cell.source.splitlines() if len(line) > 92]
    assert not wide


@each(CHAPTERS)
def test_a_figure_costs_the_reader_at_most_eight_lines(page):
    for cell in page.cells:
        for statement in cell.tree.body:
            if CHART_FORMS.intersection(calls_of(statement, {"figures"})):
                assert statement.end_lineno - statement.lineno < 8, cell.source


@each(CHAPTERS)
def test_no_results_are_typed_into_the_prose(page):
    """Measured numbers come out of the run. In prose, a decimal number of three digits or more looks like one."""
    typed = [n for n in TYPED_RESULT.findall(page.prose) if len(re.sub(r"\D", "", n).lstrip("0")) >= 3]
    assert sorted(set(typed) - DEFINITIONS) == []


@each(CHAPTERS)
def test_random_numbers_are_seeded_by_hand(page):
    assert not re.search(r"np\.random\.(seed|rand)|torch\.(manual_seed|seed)\(|random\.seed", page.code)


@each(TEXTS)
def test_every_solution_follows_its_exercise(page):
    exercises = re.findall(r"\{exercise(?:-start)?\}[^\n]*\n(?::[^\n]*\n)*?:label: (\S+)", page.text)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)", page.text)
    assert sorted(solutions) == sorted(set(solutions)), "two solutions of one exercise"
    assert sorted(exercises) == sorted(solutions), "an exercise without a solution, or the reverse"
    for label in exercises:
        start = page.text.index(f":label: {label}")
        assert start < re.search(rf"\{{solution(?:-start)?\}} {re.escape(label)}\b", page.text).start()
    folded = re.findall(r"\{solution(?:-start)?\} \S+\n((?::[^\n]*\n)*)", page.text)
    assert all("dropdown" in options for options in folded), "solutions are folded: :class: dropdown"


def bibliography():
    return parse_file(ROOT / "book" / "references.bib").entries


@each(TEXTS)
def test_every_citation_is_in_the_bibliography(page):
    cited = {key.strip() for keys in CITATION.findall(page.text) for key in keys.split(",")}
    assert cited <= set(bibliography())


def test_every_reference_can_be_found():
    """A DOI or an arXiv identifier; for works published on the web alone, where they are."""
    for key, entry in bibliography().items():
        fields = {name.lower() for name in entry.fields}
        assert fields & {"doi", "eprint"} or (entry.type == "misc" and fields & {"url", "howpublished"}), key


def test_every_reference_is_cited():
    cited = {key.strip() for page in TEXTS for keys in CITATION.findall(page.text) for key in keys.split(",")}
    nocite = any("{nocite}" in page.text or ":all:" in page.text for page in TEXTS)
    assert nocite or set(bibliography()) <= cited


def ledger() -> list[dict]:
    return yaml.safe_load((ROOT / "book" / "claims.yml").read_text(encoding="utf8"))


def chapter_of(page: Page) -> str:
    """Return the chapter's name in the ledger: what its code says, else its file's, such as ``outer-product``."""
    named = re.search(r"claims\.Chapter\(\s*[\"']([a-z-]+)", page.code)
    return named.group(1) if named else re.sub(r"^\d+_", "", page.path.stem).replace("_", "-")


@each(CHAPTERS)
def test_every_claim_of_the_chapter_is_checked_in_its_code(page):
    rows = [row["id"] for row in ledger() if row["chapter"] == chapter_of(page)]
    assert [row for row in rows if f'"{row}"' not in page.code and f"'{row}'" not in page.code] == []


def test_numbered_chapters_have_rows_in_the_ledger():
    known = {row["chapter"] for row in ledger()}
    numbered = {chapter_of(page) for page in CHAPTERS if re.match(r"\d+_", page.path.stem)}
    assert numbered <= known


@each(TEXTS)
def test_nothing_is_loaded_from_other_hosts(page):
    assert not re.search(r"<(script|img|iframe|link)[^>]+https?://", page.text)
    assert not re.search(r"!\[[^\]]*\]\(https?://|\{(image|figure)\} https?://", page.text)


@each(TEXTS)
def test_no_placeholders(page):
    assert not re.search(r"\b(TODO|FIXME|TBD|XXX|lorem ipsum|coming soon)\b", page.text, re.IGNORECASE)
