"""The whole ledger on one page: who is counted, what is shown, and when the page is written again.

The page is built from a small copy of the repository, with a ledger of five claims. A chapter checks three of them, the
page itself one, and the last belongs to a chapter that the book does not have.
"""

from __future__ import annotations

import pytest

from tests.test_build import PAGES, Book, copy

pytestmark = pytest.mark.build

TOC = """\
format: jb-book
root: book/intro
chapters:
  - file: book/01_first
  - file: book/02_second
"""

CLAIMS = """\
- {id: one, chapter: first, kind: trend, claim: "a < b & c"}
- {id: two, chapter: first, kind: measured, claim: two, article: 2700, caveat: "Only <here>.", where: "02_second#shown"}
- {id: three, chapter: first, kind: reported, claim: three, article: 0.1}
- {id: four, chapter: second, kind: measured, claim: four, article: 64}
- {id: five, chapter: not-yet, kind: law, claim: five, article: 7, caveat: "Later.", where: "03_third#later"}
"""

HEAD = PAGES["book/chapter.md"].partition("# A chapter")[0]

FIRST = f"""\
{HEAD}
# The first one

```{{code-cell}} ipython3
from memstore_lib import claims, measure
from memstore_lib.probe import FOUND
chapter = claims.Chapter("first", seed=1)
chapter.trend("one", True, FOUND + " <script>", law="x > y")
chapter.value("two", measure.interval([2816, 2818]), exact=2817)
chapter.reported("three", "somebody else")
chapter.close()
```
"""

SECOND = f"""\
{HEAD}
# The second one

```{{code-cell}} ipython3
from memstore_lib import claims, measure
chapter = claims.Chapter("second", seed=2)
chapter.value("four", measure.interval([68.9, 69.1]), exact=69)
```

(shown)=
## Where it is shown

## All of them

```{{ledger}}
```

```{{code-cell}} ipython3
chapter.close()
```
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    root = tmp_path_factory.mktemp("ledger")
    copy(root)
    for name, text in {
        "_toc.yml": TOC,
        "book/claims.yml": CLAIMS,
        "book/intro.md": PAGES["book/intro.md"],
        "book/01_first.md": FIRST,
        "book/02_second.md": SECOND,
        "memstore_lib/probe.py": 'FOUND = "1 of 2"\n',
    }.items():
        (root / name).write_text(text, encoding="utf8")
    built = Book(root)
    built.built()
    return built


def ledger(book: Book):
    return book.page("02_second").select_one(".ms-ledger")


def texts(cells) -> list[str]:
    return [cell.get_text(" ", strip=True) for cell in cells]


def rows(book: Book) -> dict[str, list[str]]:
    tables = ledger(book).select(".ms-claims")
    found = {}
    for row in (row for table in tables for row in table.select("tbody tr")):
        found[row.select_one("th[scope=row] code").text] = texts(row.find_all("td"))
    return found


def test_counts_stand_at_the_top(book):
    first = ledger(book).find(True)
    assert first.text == (
        "5 claims: 1 holds, 1 holds approximately, 1 needs a caveat, 1 quoted, 1 not checked in this edition."
    )
    counts = ledger(book).select_one(".ms-table")
    assert texts(counts.select("thead th"))[0] == "Chapter"
    assert [texts(row.find_all(["th", "td"])) for row in counts.select("tbody tr")] == [
        ["The first one", "1", "0", "1", "1", "0"],
        ["The second one", "0", "1", "0", "0", "0"],
        ["Not yet", "0", "0", "0", "0", "1"],
        ["All", "1", "1", "1", "1", "1"],
    ]


def test_every_claim_has_a_row_and_nothing_is_unescaped(book):
    assert rows(book) == {
        "one": ["–", "x > y", "1 of 2 <script>", "✓ holds"],
        "two": ["2,700", "2,817", "2,817 [2,804, 2,830]", "† needs a caveat Only <here>. Shown here ."],
        "three": ["0.1", "–", "somebody else", "“” quoted"],
        "four": ["64", "69", "69 [67.73, 70.27]", "≈ holds approximately"],
        "five": ["7", "–", "–", "– not checked in this edition Later."],
    }
    assert ledger(book).find("script") is None


def test_links_lead_to_places_that_are_there(book):
    """Chapters by their pages, headings on the page itself, and caveats where they are shown."""
    page, root = book.page("02_second"), book.root / "_build/html/book"
    links = [link["href"] for link in ledger(book).find_all("a")]
    assert "02_second.html#shown" in links or "#shown" in links
    assert "01_first.html" in links
    assert not any("third" in link for link in links), "a page that this edition does not have"
    for link in links:
        name, _, anchor = link.partition("#")
        target = book.page(name.removesuffix(".html")) if name else page
        assert not name or (root / name).is_file()
        assert not anchor or target.find(id=anchor), link


def test_tables_can_be_read_aloud_and_scrolled_by_keyboard(book):
    tables = ledger(book).select(".ms-table")
    assert len(tables) == 4
    assert all(table["role"] == "region" and table["tabindex"] == "0" for table in tables)
    labels = [table["aria-label"] for table in tables]
    assert len(set(labels)) == 4
    assert [heading.text for heading in ledger(book).find_all("h3")] == ["The first one", "The second one", "Not yet"]
    assert all(head["scope"] in ("col", "row") for table in tables for head in table.find_all("th"))


def test_ledger_follows_a_chapter_that_runs_again(book):
    book.edit("memstore_lib/probe.py", "1 of 2", "3 of 4")
    assert book.built().executed == 2
    assert rows(book)["one"][2] == "3 of 4 <script>"
    book.edit("memstore_lib/probe.py", "3 of 4", "1 of 2")
    assert book.built().executed == 0
    assert rows(book)["one"][2] == "1 of 2 <script>"


def test_ledger_follows_a_chapter_that_alone_was_edited(book):
    """Its page is written again although it was not read again."""
    book.edit("book/01_first.md", 'FOUND + "', 'FOUND + " or 5 of 6')
    book.built()
    assert rows(book)["one"][2] == "1 of 2 or 5 of 6 <script>"
    book.edit("book/01_first.md", 'FOUND + " or 5 of 6', 'FOUND + "')
    assert book.built().executed == 0
    assert rows(book)["one"][2] == "1 of 2 <script>"


def test_caveat_shown_nowhere_fails_the_build(book):
    book.edit("book/02_second.md", "(shown)=\n", "")
    outcome = book.build()
    book.edit("book/02_second.md", "## Where it is shown", "(shown)=\n## Where it is shown")
    assert outcome.status != 0
    assert "02_second#shown" in outcome.log
