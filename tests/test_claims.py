"""The ledger, the checks of its claims, and the table that closes a chapter."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import bs4
import pytest
import torch
import yaml

from memstore_lib import claims, tables
from memstore_lib import ledger as ledger_file
from memstore_lib.claims import APPROXIMATELY, CAVEAT, HOLDS, Chapter, Claim, ClaimFailed
from memstore_lib.intervals import Interval

BOOK = Path(__file__).parents[1] / "book" / "claims.yml"
ROW = {"id": "a", "chapter": "one", "kind": "identity", "claim": "left is right"}


@pytest.fixture
def ledger(tmp_path):
    """Return a function that writes rows, or a text, as a ledger and gives its path."""

    def write(rows) -> Path:
        path = tmp_path / "claims.yml"
        path.write_text(rows if isinstance(rows, str) else yaml.safe_dump(rows, allow_unicode=True), encoding="utf8")
        return path

    return write


def row(**fields) -> dict:
    return {**ROW, **fields}


# --- the ledger ------------------------------------------------------------------------------------


def test_the_books_ledger_loads():
    found = claims.load(BOOK)
    assert {"op-capacity", "ls-isr", "exp-capacity", "sk-rule"} <= set(found)
    assert found["op-capacity"].article == 64
    assert found["op-capacity"].exact == 65
    assert found["ls-capacity"].caveats == ("noise-and-ridge", "unit-or-gaussian-keys")
    for key, claim in found.items():
        assert key == claim.id
        assert claim.kind in claims.KINDS
        assert (claim.caveat is None) == (claim.where is None)
    for chapter in ("outer-product", "least-squares"):
        for claim in Chapter(chapter, claims=found).rows.values():
            assert not claim.caveats or claim.where, f"{claim.id} names findings, but no section that shows them"


def test_fields_and_order_are_kept(ledger):
    full = row(id="b", kind="law", article=2, exact="√2", note="n", caveats=["x"], caveat="but", where="page#part")
    found = claims.load(ledger([full, row()]))
    assert list(found) == ["b", "a"]
    assert dataclasses.asdict(found["b"]) == {**full, "caveats": ("x",)}
    assert found["a"] == Claim("a", "one", "identity", "left is right")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(), row(claim="again")], r"claims.yml, row 2: id must be unique, got 'a' a second time"),
        ([row(), {**row(id="b"), "claim": None}], r"row 2 \(b\): field 'claim' must be a text, got None"),
        *(
            ([{k: v for k, v in ROW.items() if k != name}], f"row 1 .*: field '{name}' must be a text, got None")
            for name in ROW
        ),
        ([row(claim="  ")], r"row 1 \(a\): field 'claim' must be a text, got '  '"),
        ([row(id=7)], r"row 1 \(7\): field 'id' must be a text, got 7"),
        ([row(kind="guess")], r"row 1 \(a\): kind must be one of 'identity', .*'reported', got 'guess'"),
        ([row(colour="red", size=1)], r"row 1 \(a\): fields must be among id, .*where, got colour, size"),
        ([{**ROW, 1: 2, "x": 3}], r"row 1 \(a\): fields must be among .* got 1, x"),
        ([row(caveat="but")], r"row 1 \(a\): caveat and where must come together, got only one of them"),
        ([row(where="page#part")], r"row 1 \(a\): caveat and where must come together"),
        ([row(caveat="but", where="page")], r"row 1 \(a\): where must be page#section, got 'page'"),
        ([row(caveat="but", where="#part")], "where must be page#section, got '#part'"),
        ([row(caveat="but", where="page#")], "where must be page#section, got 'page#'"),
        ([row(caveat=["but"], where="page#part")], r"caveat must be a text, got \['but'\]"),
        ([row(caveat="but", where=3)], "where must be a text, got 3"),
        ([row(note={})], "note must be a text, got {}"),
        ([row(caveats=None)], "caveats must be a list of short names, got None"),
        ([row(caveats="noise")], "caveats must be a list of short names, got 'noise'"),
        ([row(caveats=[1])], r"caveats must be a list of short names, got \[1\]"),
        ([ROW, "text"], "row 2 must be a mapping of fields, got str"),
        ([None], "row 1 must be a mapping of fields, got NoneType"),
        (ROW, "ledger claims.yml must be a list of rows, got dict"),
        ("just words", "ledger claims.yml must be a list of rows, got str"),
        ("[]", "ledger claims.yml must hold at least one row, got an empty list"),
        ("- {id: a, id: b, chapter: c, kind: law, claim: x}", "ledger claims.yml must be YAML: key 'id' given twice"),
        ("- {id: a, chapter: c, kind: law, claim: x, article: {M: 1, M: 2}}", "key 'M' given twice"),
        ("", "ledger claims.yml must be a list of rows, got NoneType"),
        ("- {id: a,\n- b: [", "ledger claims.yml must be YAML: "),
        ("a: b: c", "ledger claims.yml must be YAML: "),
        ("- !!python/object/apply:os.getcwd []", "ledger claims.yml must be YAML: "),
    ],
)
def test_a_broken_ledger_is_refused(ledger, rows, words):
    with pytest.raises(ValueError, match=words):
        claims.load(ledger(rows))


def test_a_ledger_is_a_file_of_text(tmp_path):
    with pytest.raises(ValueError, match=f"ledger {tmp_path.name} must be a file, got a folder"):
        claims.load(tmp_path)
    (tmp_path / "claims.yml").write_bytes("- {id: a, claim: größer}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"ledger claims.yml must be text in UTF-8: .* byte 0x"):
        claims.load(tmp_path / "claims.yml")


def test_a_key_may_be_given_again_in_another_row_or_by_a_merge(ledger):
    text = "- &one {id: a, chapter: c, kind: law, claim: x}\n- {<<: *one, id: b, claim: y}\n"
    assert {key: row.claim for key, row in claims.load(ledger(text)).items()} == {"a": "x", "b": "y"}


def test_a_missing_ledger_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        claims.load(tmp_path / "none.yml")


def test_the_ledger_is_found_from_where_a_chapter_runs(tmp_path, monkeypatch, ledger):
    own = ledger([ROW])
    monkeypatch.chdir(own.parent)
    assert claims.find() == own
    assert list(claims.load()) == ["a"]
    # In a checkout: the root, the book's folder, and a notebook's folder below it.
    (tmp_path / "book" / "deep").mkdir(parents=True)
    own.rename(tmp_path / "book" / "claims.yml")
    for folder in (tmp_path, tmp_path / "book", tmp_path / "book" / "deep"):
        monkeypatch.chdir(folder)
        assert claims.find() == tmp_path / "book" / "claims.yml"
    empty = tmp_path / "elsewhere"
    (tmp_path / "book" / "claims.yml").unlink()
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert claims.find() == BOOK, "else beside the library"
    monkeypatch.setattr(ledger_file, "__file__", str(tmp_path / "site-packages" / "library" / "ledger.py"))
    with pytest.raises(FileNotFoundError, match=r"claims.yml must be in the working folder, in book/ of a parent"):
        claims.find()
    installed = tmp_path / "site-packages" / "library" / "book" / "claims.yml"
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert claims.find() == installed, "else the copy installed with the library"
    installed.unlink()
    with pytest.raises(FileNotFoundError, match=r"or in the installed library; found none"):
        claims.find()


# --- checks ----------------------------------------------------------------------------------------


def claim(kind="identity", id="a", **fields) -> Claim:
    return Claim(id, "one", kind, "what is claimed", **fields)


def chapter(*rows: Claim, **options) -> Chapter:
    return Chapter("one", claims={one.id: one for one in rows}, **options)


def narrow(value: float, relative: float = 0.001) -> Interval:
    """Return an interval of 20 replicates with this relative standard error."""
    se = abs(value) * relative
    return Interval(value, value - 2.09 * se, value + 2.09 * se, 0.95, 20, se)


BUT = {"caveat": "only just", "where": "page#part"}
LEFT = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(3, 4)


def test_an_identity_holds():
    one = chapter(claim())
    check = one.identity("a", LEFT, LEFT * (1 + 1e-12))
    assert check.verdict == HOLDS
    assert check.gap == pytest.approx(1e-12, rel=0.1)
    assert "1.0e-12" in check.found
    assert check.law == "exact"
    assert chapter(claim(**BUT)).identity("a", LEFT, LEFT).verdict == CAVEAT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_identity_off_by_a_thousandth_fails(dtype):
    one, left = chapter(claim()), LEFT.to(dtype)
    for right in (left * 1.001, left + 1e-3, left.index_fill(1, torch.tensor([2]), 1.5)):
        with pytest.raises(ClaimFailed, match=r"claim 'a' fails: the two sides differ by .*, more than (1e-09|0.0001)"):
            one.identity("a", left, right)
    assert not one.checks
    with pytest.raises(ClaimFailed, match="left open: a"):
        one.close()


def test_the_tolerance_of_an_identity_is_relative_and_fits_the_dtype():
    one = chapter(claim())
    one.identity("a", LEFT.float(), LEFT.float() * (1 + 1e-6))
    with pytest.raises(ClaimFailed, match="more than 1e-09"):
        one.identity("a", LEFT, LEFT * (1 + 1e-6))
    one.identity("a", LEFT * 1e9, LEFT * 1e9 + 0.1)  # relative to the largest entry
    with pytest.raises(ClaimFailed):
        one.identity("a", LEFT * 1e-9, LEFT * 1e-9 + 0.1)
    one.identity("a", LEFT * 1e-12, LEFT * 2e-12)  # but never less than to 1
    one.identity("a", 0 * LEFT, 0 * LEFT)
    with pytest.raises(ClaimFailed, match="more than 1e-15"):
        one.identity("a", LEFT, LEFT * (1 + 1e-12), tolerance=1e-15)
    one.identity("a", LEFT, LEFT * 1.01, tolerance=0.05)


def test_an_identity_checked_in_steps_shows_the_worst():
    one = chapter(claim())
    for gap in (1e-13, 1e-11, 1e-12):
        one.identity("a", LEFT, LEFT * (1 + gap))
    assert one.checks["a"].gap == pytest.approx(1e-11, rel=0.1)
    assert len(one.close().checks) == 1


@pytest.mark.parametrize(
    ("left", "right", "options", "error", "words"),
    [
        (LEFT, LEFT.T, {}, ValueError, r"left and right must have one shape, got \(3, 4\) and \(4, 3\)"),
        (LEFT, LEFT[0], {}, ValueError, r"left and right must have one shape, got \(3, 4\) and \(4,\)"),
        (LEFT[:0], LEFT[:0], {}, ValueError, r"left and right must have entries, got shape \(0, 4\)"),
        (LEFT * math.nan, LEFT, {}, ValueError, "left must be finite, got NaN or infinity"),
        (LEFT, LEFT / 0, {}, ValueError, "right must be finite, got NaN or infinity"),
        (LEFT.long(), LEFT, {}, TypeError, "left must have a floating-point dtype, got torch.int64"),
        (LEFT, 1.0, {}, TypeError, "right must be a torch.Tensor, got float"),
        (LEFT, LEFT, {"tolerance": -1}, ValueError, r"tolerance must lie in \[0, inf\), got -1"),
        (LEFT, LEFT, {"tolerance": math.nan}, ValueError, "tolerance must be finite, got nan"),
        (LEFT, LEFT, {"tolerance": "0"}, TypeError, "tolerance must be a real number, got '0'"),
    ],
)
def test_identities_are_checked(left, right, options, error, words):
    one = chapter(claim())
    with pytest.raises(error, match=words):
        one.identity("a", left, right, **options)
    assert not one.checks


@pytest.mark.parametrize(
    ("article", "exact", "verdict"),
    [
        (64, 64, HOLDS),
        (64, 65, HOLDS),
        (65, 64, HOLDS),
        (2700, 2817, APPROXIMATELY),
        (35000, 38298.6, APPROXIMATELY),
        (-64.0, -65.0, HOLDS),
    ],
)
def test_a_value_is_judged_against_the_law(article, exact, verdict):
    one = chapter(claim("measured", article=article))
    check = one.value("a", narrow(exact), exact)
    assert check.verdict == verdict
    assert one.checks["a"] is check
    assert chapter(claim("law", article=article, **BUT)).value("a", narrow(exact), exact).verdict == CAVEAT


def test_without_a_law_the_source_is_judged_against_the_measurement():
    assert chapter(claim("measured", article=64)).value("a", narrow(64.5)).verdict == HOLDS
    assert chapter(claim("measured", article=64)).value("a", narrow(68)).verdict == APPROXIMATELY
    with pytest.raises(ClaimFailed, match="the source gives 64, this book 80, 20% apart"):
        chapter(claim("measured", article=64)).value("a", narrow(80))


@pytest.mark.parametrize("off", [0.98, 1.02, 1.005])
def test_a_measurement_off_the_law_fails(off):
    one = chapter(claim("measured", article=65, **BUT))
    with pytest.raises(ClaimFailed, match=r"claim 'a' fails: measured .*, the exact law gives 65$"):
        one.value("a", narrow(65 * off), 65)
    assert not one.checks


def test_a_measurement_within_four_standard_errors_agrees():
    one = chapter(claim("measured", article=100))
    one.value("a", narrow(100 / 1.0039), 100)
    with pytest.raises(ClaimFailed):
        one.value("a", narrow(100 / 1.0042), 100)


@pytest.mark.parametrize(
    "found",
    [
        narrow(65, 0.03),
        Interval(math.inf, math.inf, math.inf, 0.95, 20, math.inf),
        Interval(65, math.nan, math.nan, 0.95, 20, math.nan),
        Interval(0.0, -1.0, 1.0, 0.95, 20, 0.5),
    ],
    ids=str,
)
def test_a_measurement_too_wide_to_fail_is_undecided(found):
    one = chapter(claim("measured", article=65, **BUT))
    for exact in (65, None, found.value):
        with pytest.raises(ClaimFailed, match=r"claim 'a' is undecided: .* is wider than ±5%; measure more"):
            one.value("a", found, exact)
    assert not one.checks


@pytest.mark.parametrize(("article", "off"), [(64 * 1.11, "11%"), (64 * 0.89, "11%"), (0, "100%"), (1e9, "")])
def test_a_source_too_far_off_needs_a_caveat(article, off):
    with pytest.raises(ClaimFailed, match=f"claim 'a' fails: the source gives .*, this book 64, {off}.* no caveat"):
        chapter(claim("measured", article=article)).value("a", narrow(64), 64)
    assert chapter(claim("measured", article=article, **BUT)).value("a", narrow(64), 64).verdict == CAVEAT


def test_a_law_of_zero_is_no_multiple():
    zero = Interval(0.0, 0.0, 0.0, 0.95, 20, 0.0)
    with pytest.raises(ClaimFailed, match="the source gives 64, this book 0"):
        chapter(claim("measured", article=64)).value("a", zero, 0)


@pytest.mark.parametrize("article", [None, "~d²", [64, 128], True, {"a": 1}])
def test_a_value_needs_a_number_from_the_source(article):
    with pytest.raises(ValueError, match="claim 'a' must have a number as article, got"):
        chapter(claim("measured", article=article)).value("a", narrow(64), 64)


def test_a_law_is_checked_at_every_point():
    one = chapter(claim("law", article="√M"))
    check = one.law("a", [narrow(2.004), narrow(3), narrow(4)], [2, 3, 4], "M = 4 … 16")
    assert check.verdict == HOLDS
    assert check.found == "within 0.2% of the law at 3 points, M = 4 … 16"
    assert check.law == "2 … 4"
    assert chapter(claim("law", **BUT)).law("a", [narrow(5)], [5], "M = 25").verdict == CAVEAT


@pytest.mark.parametrize(
    ("found", "exact", "words"),
    [
        ([narrow(2), narrow(3 * 1.02)], [2, 3], "claim 'a' fails: measured .*, the exact law gives 3"),
        ([narrow(2 * 0.98), narrow(3)], [2, 3], "claim 'a' fails: measured .*, the exact law gives 2"),
        ([narrow(2), narrow(3, 0.04)], [2, 3], "claim 'a' is undecided"),
        ([narrow(2), narrow(3)], [2, math.nan], "claim 'a' fails: measured .*, the exact law gives nan"),
        ([narrow(2), narrow(3)], [2, math.inf], "claim 'a' fails: measured .*, the exact law gives inf"),
    ],
)
def test_a_law_that_fails_somewhere_fails(found, exact, words):
    one = chapter(claim("law"))
    with pytest.raises(ClaimFailed, match=words):
        one.law("a", found, exact, "M")
    assert not one.checks


def test_a_law_may_be_zero_where_nothing_interferes():
    zero = Interval(0.0, 0.0, 0.0, 0.95, 20, 0.0)
    assert chapter(claim("law")).law("a", [zero, narrow(3)], [0.0, 3], "M").found.startswith("within 0.0%")


@pytest.mark.parametrize(("found", "exact"), [([], []), ([narrow(2)], [2, 3]), ([narrow(2)], [])])
def test_points_of_a_law_are_checked(found, exact):
    with pytest.raises(ValueError, match=f"one length above 0, got {len(found)} and {len(exact)}"):
        chapter(claim("law")).law("a", found, exact, "M")


def test_measurements_must_be_intervals():
    with pytest.raises(TypeError, match="found must be an Interval, got float"):
        chapter(claim("measured", article=64)).value("a", 64.0, 64)
    with pytest.raises(TypeError, match="found must be an Interval, got int"):
        chapter(claim("law")).law("a", [narrow(2), 3], [2, 3], "M")


def test_a_trend_holds_or_fails():
    one = chapter(claim("trend"), claim("law", "b", **BUT))
    assert one.trend("a", True, "4 to 2", law="3").verdict == HOLDS
    assert one.trend("b", torch.tensor(True), "it fell by 3 %").verdict == CAVEAT
    assert one.checks["a"].law == "3"
    with pytest.raises(ClaimFailed, match="claim 'a' fails: 4 to 5"):
        chapter(claim("trend")).trend("a", 4 > 5, "4 to 5")
    with pytest.raises(ValueError, match="found must show the trend by numbers, got 'it fell'"):
        chapter(claim("trend")).trend("a", True, "it fell")


def test_what_another_work_reports_is_quoted():
    check = chapter(claim("reported")).reported("a", "Someone et al.")
    assert (check.verdict, check.found) == ("quoted", "Someone et al.")
    for nobody in ("", " ", None):
        with pytest.raises(ValueError, match="where must name the work, got"):
            chapter(claim("reported")).reported("a", nobody)


def test_a_claim_checked_in_steps_keeps_one_row_with_every_finding():
    one = chapter(claim("law", article=64))
    one.value("a", narrow(64), 64)
    one.law("a", [narrow(5)], [5], "M = 25")
    one.trend("a", True, "3 of 3")
    one.trend("a", True, "3 of 3")
    (check,) = one.close().checks
    assert check.law == "64; 5"
    assert check.found == f"{narrow(64)}; within 0.0% of the law at 1 point, M = 25; 3 of 3"


def test_a_claim_checked_in_steps_keeps_the_worst_verdict():
    for values in ((64, 61), (61, 64)):
        one = chapter(claim("law", article=64))
        assert [one.value("a", narrow(x), x).verdict for x in values].count(APPROXIMATELY) == 1
        assert one.close().checks[0].verdict == APPROXIMATELY
    one = chapter(claim("law", article=64))
    one.value("a", narrow(64), 64)
    with pytest.raises(ClaimFailed):
        one.value("a", narrow(30), 30)
    assert one.close().checks[0].found == str(narrow(64))


@pytest.mark.parametrize(
    "found",
    [
        Interval(64.0, 66.0, 62.0, 0.95, 20, 0.1),
        Interval(64.0, 65.0, 66.0, 0.95, 20, 0.1),
        Interval(64.0, 62.0, 63.0, 0.95, 20, 0.1),
        Interval(64.0, 63.0, 65.0, 0.95, 20, -0.1),
    ],
)
def test_an_interval_holds_its_value(found):
    one = chapter(claim("law", article=64))
    for check in (lambda: one.value("a", found, 64), lambda: one.law("a", [found], [64], "M")):
        with pytest.raises(ValueError, match="found must have low ≤ value ≤ high and no negative standard error, got"):
            check()
    assert not one.checks


def test_an_identity_has_one_dtype():
    for left, right in ((LEFT, LEFT.float()), (LEFT.float(), LEFT)):
        with pytest.raises(TypeError, match=r"left and right must have one dtype, got torch.float\d+ and torch.float"):
            chapter(claim()).identity("a", left, right)


def test_a_chapters_claims_are_a_mapping():
    with pytest.raises(TypeError, match=r"claims must be a mapping of ids to claims, .* got list"):
        Chapter("one", claims=[claim()])


CHECKS = {
    "identity": lambda one, id: one.identity(id, LEFT, LEFT),
    "value": lambda one, id: one.value(id, narrow(64), 64),
    "law": lambda one, id: one.law(id, [narrow(64)], [64], "M"),
    "trend": lambda one, id: one.trend(id, True, "1 of 1"),
    "reported": lambda one, id: one.reported(id, "Someone et al."),
}
KINDS = {
    "identity": {"identity"},
    "value": {"law", "measured"},
    "law": {"law", "measured"},
    "trend": {"trend", "law", "measured"},
    "reported": {"reported"},
}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", claims.KINDS)
def test_each_check_is_for_its_kinds(name, kind):
    one = chapter(claim(kind, article=64))
    if kind in KINDS[name]:
        assert CHECKS[name](one, "a").verdict == ("quoted" if name == "reported" else HOLDS)
    else:
        with pytest.raises(ValueError, match=f"claim 'a' is of kind '{kind}'; this check is for"):
            CHECKS[name](one, "a")
        assert not one.checks


@pytest.mark.parametrize("name", CHECKS)
def test_an_unknown_claim_is_refused(name):
    other = Claim("c", "two", "law", "elsewhere", article=64)
    one = Chapter("one", claims={"a": claim(), "b": claim("law", "b"), "c": other})
    for id in ("z", "c"):
        with pytest.raises(ValueError, match=rf"id must be a claim of chapter 'one' \(a, b\), got '{id}'"):
            CHECKS[name](one, id)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("three", {}, ValueError, r"name must be a chapter of the ledger \(one\), got 'three'"),
        ("one", {"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ("one", {"seed": 1.5}, TypeError, "seed must be an integer, got 1.5"),
    ],
)
def test_chapters_are_checked(name, options, error, words):
    with pytest.raises(error, match=words):
        Chapter(name, claims={"a": claim()}, **options)


def test_a_chapter_finds_the_books_ledger(monkeypatch):
    monkeypatch.chdir(BOOK.parent)
    assert "op-sum" in Chapter("outer-product", seed=1).rows
    assert set(Chapter("least-squares").rows) == {
        k for k, c in claims.load(BOOK).items() if c.chapter == "least-squares"
    }


def test_an_unchecked_claim_keeps_a_chapter_open():
    one = chapter(claim(), claim("trend", "b"), claim("law", "c", article=1))
    with pytest.raises(ClaimFailed, match="chapter 'one' must check every claim; left open: a, b, c"):
        one.close()
    one.trend("b", True, "1")
    with pytest.raises(ClaimFailed, match=r"left open: a, c$"):
        one.close()


def test_a_failed_claim_stops_a_build():
    assert issubclass(ClaimFailed, AssertionError)


# --- the closing table -----------------------------------------------------------------------------


@pytest.fixture
def closing():
    one = chapter(
        dataclasses.replace(claim("trend", "b"), claim="a < b & c"),
        claim("measured", "a", article=[64, "> 2e6"], caveat='"only" <just>', where="02_page#what-noise-does"),
        claim("law", "c", article=2700),
        claim("law", "d", article=1.0),
        seed=3,
    )
    one.value("d", narrow(1.0), 1.0)
    one.value("c", narrow(2817), 2817)
    one.trend("a", True, "1 <script>", law="x > y")
    one.trend("b", True, "2 of 2")
    return one.close()


def test_the_table_has_headers_a_row_a_claim_and_nothing_unescaped(closing):
    page = bs4.BeautifulSoup(closing._repr_html_(), "html.parser")
    heads = page.select("thead th")
    assert [h.text for h in heads] == ["Claim", "The source", "Exact law", "This build", "Verdict"]
    assert all(h["scope"] == "col" for h in heads)
    rows = page.select("tbody tr")
    assert [r.select_one("th[scope=row] code").text for r in rows] == ["b", "a", "c", "d"], "the ledger's order"
    assert all(len(r.find_all("td")) == 4 for r in rows)
    assert rows[0].th.get_text(" ").startswith("a < b & c")
    assert [cell.text for cell in rows[0].find_all("td")] == ["–", "–", "2 of 2", "✓ holds"]
    assert [cell.text for cell in rows[1].find_all("td")[:3]] == ["64, > 2e6", "x > y", "1 <script>"]
    assert [cell.text for cell in rows[2].find_all("td")[:2]] == ["2,700", "2,817"]
    assert rows[2].find_all("td")[3].text == "≈ holds approximately"
    assert not page.find("script")
    region = page.find(attrs={"role": "region"})
    assert region["tabindex"] == "0"
    assert region["aria-label"]


def test_the_table_links_to_where_a_caveat_is_shown(closing):
    page = bs4.BeautifulSoup(closing._repr_html_(), "html.parser")
    (link,) = page.find_all("a")
    assert link["href"] == "02_page.html#what-noise-does"
    cell = link.find_parent("td")
    assert cell.text == '† needs a caveat"only" <just> Shown here.'


def test_the_table_speaks_in_words_too(closing):
    assert closing.counts == {HOLDS: 2, CAVEAT: 1, APPROXIMATELY: 1}
    text = str(closing)
    assert text.startswith("4 claims checked in this build: 2 hold")
    assert text.splitlines()[1] == "b: holds; law –; found 2 of 2"
    assert closing.summary in bs4.BeautifulSoup(closing._repr_html_(), "html.parser").find_all("p")[-1].text


def test_the_costs_of_a_chapter_are_metadata(closing, monkeypatch):
    monkeypatch.setenv("MEMSTORE_DEVICE", "cpu")
    data, metadata = closing._repr_mimebundle_()
    assert set(data) == {"text/html", "text/plain"}
    assert data["text/html"] == closing._repr_html_()
    assert data["text/plain"] == str(closing)
    costs = metadata["memstore"]
    assert costs["chapter"] == "one"
    assert costs["seeds"] == [3]
    assert costs["claims"] == closing.counts
    assert costs["device"]["device"] == "cpu"
    assert costs["peak_memory_mb"] > 50
    assert costs["peak_device_memory_mb"] == 0


# --- plain tables ----------------------------------------------------------------------------------


def test_plain_tables_keep_numbers_short_and_escape():
    table = tables.show([{"a<b": "x&y", "n": 1234.5678}, {"a<b": "z", "n": 7}], label='a "label"')
    assert str(table) == "a<b  n\nx&y  1235\nz  7"
    page = bs4.BeautifulSoup(table._repr_html_(), "html.parser")
    assert [h.text for h in page.select("thead th[scope=col]")] == ["a<b", "n"]
    assert [h.text for h in page.select("tbody th[scope=row]")] == ["x&y", "z"]
    assert [cell.text for cell in page.find_all("td")] == ["1235", "7"]
    assert page.div["aria-label"] == 'a "label"'


@pytest.mark.parametrize(
    ("rows", "label", "words"),
    [
        ([], "x", "rows must hold at least one row, got none"),
        ([{"a": 1}, {"b": 1}], "x", r"rows must all have the keys \['a'\], got \['b'\] in row 1"),
        ([{"a": 1}], " ", "label must say what the table holds, got ' '"),
        ([{"a": 1}], None, "label must say what the table holds, got None"),
    ],
)
def test_plain_tables_are_checked(rows, label, words):
    with pytest.raises(ValueError, match=words):
        tables.show(rows, label)
