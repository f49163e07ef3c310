"""The benchmarks: that contestants do the same work, and that the table says what was measured. No times here."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import chapters, delta, recall, rows, speed
from memstore_lib import _files
from tests.sources import ROOT

SAMPLE = [rows.ratio("measurement", "ours / floor", [2.0, 6.0, 3.0], [1.0, 2.0, 1.0], "a note")]


@pytest.fixture
def page(monkeypatch):
    """The part of the Sphinx extension that shows the table."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    import memstore_bench

    return memstore_bench


@pytest.fixture
def parts(monkeypatch):
    """Put other parts in the place of the real ones."""

    def missing():
        raise FileNotFoundError("there is no built book: run make book first")

    fakes = {"speed": lambda: SAMPLE, "chapters": missing, "builds": lambda: pytest.fail("was not chosen")}
    monkeypatch.setattr(bench, "PARTS", fakes)
    monkeypatch.setattr(bench, "USUAL", ["speed", "chapters"])


# --- rows ----------------------------------------------------------------------------------------------


def test_ratios_are_taken_within_each_run():
    (row,) = SAMPLE
    assert (row.median, row.low, row.high, row.runs, row.unit) == (3.0, 2.0, 3.0, 3, "×")


def test_runs_take_turns_and_the_first_is_thrown_away(monkeypatch):
    calls, ticks = [], iter([0, 100, 100, 107, 200, 203, 300, 310, 400, 404, 500, 511])
    monkeypatch.setattr(rows, "clock", lambda device: next(ticks))
    taken = rows.alternate({"a": lambda run: calls.append(("a", run)), "b": lambda run: calls.append(("b", run))}, 2)
    assert calls == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert taken == {"a": [3, 4], "b": [10, 11]}


# --- contestants -----------------------------------------------------------------------------------------


def test_the_measurement_and_its_rivals_run():
    found = speed.ratios(queries=20, runs=2, grid=[16, 256, 1024, 2048])
    assert [row.name for row in found] == [
        "20 queries: ours / floor",
        "20 queries: obvious way / ours",
        "20 queries, 4 cosines: obvious way / ours",
    ]
    for row in found:
        assert 0 < row.low <= row.median <= row.high
        assert row.runs == 2
    assert "extrapolated from M ≤ 1,024" in found[1].note


def test_the_obvious_way_is_extrapolated_in_proportion_to_M(monkeypatch):
    """Works that take a second a memory, and an M of ours that takes one second in all."""

    def alternate(works, runs, device):
        return {name: [float(name.split()[1])] if name.startswith("obvious") else [1.0] for name in works}

    monkeypatch.setattr(speed, "alternate", alternate)
    monkeypatch.setattr(speed, "default_device", lambda: torch.device("cpu"))
    _, whole, with_cosines = speed.ratios(queries=20, runs=1)
    assert whole.median == sum(2**k for k in range(8, 22))
    assert with_cosines.median == 4 * whole.median
    assert "M ≤ 16,384" in whole.note


def test_everything_asked_for_is_nine_scores_and_five_rules():
    assert len(speed.asked()) == 14
    assert sum(callable(entry) and not hasattr(entry, "latex") for entry in speed.asked().values()) == 5


def test_recall_and_the_delta_rule_run():
    found = recall.rows(runs=1, sizes=(8, 100, 300))
    assert len(found) == 5
    assert all(row.low > 0 for row in found)


def test_a_rival_that_recalls_something_else_is_refused():
    drawn = [recall.stored(40, seed) for seed in range(2)]
    forms = {
        "ours": recall.least_squares,
        "wrong": lambda keys, values, queries: 2 * recall.solver(keys, values, queries),
    }
    with pytest.raises(AssertionError, match="not close"):
        recall.compared(drawn, forms, "cpu")


def test_a_delta_rule_that_computes_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(delta, "recurrence", lambda *tensors: (2 * delta.chunked(*tensors)[0], None))
    with pytest.raises(AssertionError, match="not close"):
        delta.rows(runs=1)


def test_without_a_build_there_are_no_chapters(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no built book: run make book first"):
        chapters.rows(tmp_path)
    assert chapters.seconds(tmp_path) == {}


# --- the table -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("parts")
def test_the_table_says_what_was_measured_where_and_when(tmp_path, capsys, page):
    assert bench.main([], tmp_path) == 1  # a part is missing
    results = json.loads((tmp_path / "bench.json").read_text())
    assert results["results"] == [
        {
            "part": "measurement",
            "name": "ours / floor",
            "unit": "×",
            "median": 3.0,
            "low": 2.0,
            "high": 3.0,
            "runs": 3,
            "note": "a note",
        }
    ]
    assert results["missing"] == {"chapters": "there is no built book: run make book first"}
    assert results["library"] == _files.digest(ROOT / "memstore_lib")
    assert page.FIELDS == set(results)
    text = (tmp_path / "bench.md").read_text()
    assert "| measurement | ours / floor | 3 × | 2 × | 3 × | 3 | a note |" in text
    assert results["date"] in text
    assert results["device"] in text
    assert "Not measured: chapters, as there is no built book: run make book first" in text
    assert text.strip() in capsys.readouterr().out


@pytest.mark.usefixtures("parts")
def test_one_part_can_be_chosen(tmp_path):
    assert bench.main(["--only", "speed"], tmp_path) == 0
    assert json.loads((tmp_path / "bench.json").read_text())["missing"] == {}
    with pytest.raises(SystemExit):
        bench.main(["--only", "luck"], tmp_path)


def test_the_page_shows_the_table_and_its_origin(page, tmp_path):
    results = {
        **{name: name.upper() for name in page.FIELDS},
        "missing": {"pages": "no browser"},
        "results": [
            {"part": "p", "name": "a / b", "unit": "×", "median": 1.234, "low": 1, "high": 2, "runs": 5, "note": ""},
            {"part": "p", "name": "c", "unit": "s", "median": 9, "low": 9, "high": 9, "runs": 1, "note": "n"},
        ],
    }
    (tmp_path / "bench.json").write_text(json.dumps(results))
    seen = page.read(tmp_path / "bench.json")
    origin, table = page.shown(seen, "LIBRARY")
    assert "Measured DATE on DEVICE, MACHINE" in origin.astext()
    assert "commit COMMIT. The library is the one of this build. Not measured: pages." in origin.astext()
    assert table.astext().split("\n\n")[-14:] == [
        *("a / b", "p", "1.23 ×", "1 ×", "2 ×", "5", "–"),
        *("c", "p", "9 s", "–", "–", "1", "n"),
    ]
    older, _ = page.shown(seen, "another")
    assert "The library has changed since" in older.astext()


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"results": []}'])
def test_without_results_the_page_says_how_to_make_them(page, tmp_path, text):
    path = tmp_path / "bench.json"
    if text is not None:
        path.write_text(text)
    assert page.read(path) is None
    (only,) = page.shown(None, "")
    assert "Run make bench" in only.astext()


def test_a_digest_changes_with_names_and_contents(tmp_path):
    seen = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "2"), ("c/b.py", "2")):
        for path in tmp_path.rglob("*.py"):
            path.unlink()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        seen.add(_files.digest(tmp_path))
        (tmp_path / "notes.txt").write_text(text)
        assert _files.digest(tmp_path) in seen
    assert len(seen) == 4
