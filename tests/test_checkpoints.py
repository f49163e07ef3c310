"""Checkpoints of sharded measurements: killed anywhere, nothing is lost or counted twice."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import numpy as np
import pytest

from memstore_lib import _files
from memstore_lib.scores import Exponential, ReLU
from memstore_lib.sharding import Job, blocks, checkpoints, measuring
from memstore_lib.sharding.checkpoints import Folder, State
from memstore_lib.sharding.ranks import FirstFailed, LostContact
from tests import crew

SCORES = {"relu2": ReLU(2), "exp": Exponential(4.0)}
JOB = Job(SCORES, [40, 300, 700], d=4, queries=2, replicates=2, bins=16, block=64)


class Killed(BaseException):
    """Stands for a kill -9: nothing that runs afterwards is allowed to tidy up."""


def measure(size: int = 1, job: Job = JOB, **options):
    return crew.run(size, lambda ranks: measuring.measure(job, ranks, every=0.0, **options))[0]


def same(one, other) -> bool:
    return one[0].replicates.equals(other[0].replicates) and one[1].equals(other[1])


@pytest.fixture(scope="module")
def undisturbed():
    return measure()


@contextmanager
def dies(monkeypatch, at: int, when: str):
    """Let the n-th write of a checkpoint die: in the middle of it, or when it has just been done."""
    written = 0

    @contextmanager
    def whole(path):
        nonlocal written
        written += 1
        if written == at and when == "within":
            path.parent.mkdir(exist_ok=True)
            (path.parent / f".memstore-{at}.part").write_bytes(b"half of a fi")
            raise Killed
        with _files.whole(path) as file:
            yield file
        if written == at and when == "after":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "whole", whole)
        yield lambda: written


def writes(tmp_path, monkeypatch) -> int:
    with dies(monkeypatch, -1, "never") as written:
        measure(checkpoint=tmp_path / "counted")
    return written()


@pytest.mark.parametrize("when", ["within", "after"])
def test_a_run_that_dies_at_any_write_goes_on_from_there(tmp_path, monkeypatch, undisturbed, when):
    every = writes(tmp_path, monkeypatch)
    assert every > 25
    for at in range(1, every + 1):
        folder = tmp_path / f"{when}-{at}"
        with dies(monkeypatch, at, when), pytest.raises(Killed):
            measure(checkpoint=folder)
        again = measure(1 + at % 3, checkpoint=folder)
        assert same(again, undisturbed), at
        assert {path.name for path in folder.iterdir()} == {"state.npz", ".lock"}


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_die_again_and_again_get_there(tmp_path, monkeypatch, undisturbed, size):
    """Each attempt dies at its third write, whichever rank that is, and the next has another number of ranks."""
    for _ in range(40):
        try:
            with dies(monkeypatch, 3, "after"):
                found = measure(size, checkpoint=tmp_path / "kept")
            break
        except (Killed, LostContact, FirstFailed):
            size = 1 + (size + 2) % 4
    else:
        pytest.fail("no attempt got to the end")
    assert same(found, undisturbed)


def test_work_that_was_saved_is_not_done_again(tmp_path, monkeypatch):
    drawn = []
    draw = blocks.keys
    monkeypatch.setattr(blocks, "keys", lambda *which, **how: drawn.append(which) or draw(*which, **how))
    with dies(monkeypatch, 12, "after"), pytest.raises(Killed):
        measure(checkpoint=tmp_path / "kept")
    before = len(drawn)
    measure(checkpoint=tmp_path / "kept")
    stages = [stage.blocks for stage in JOB.stages]
    assert len(drawn) == sum(stop - start for start, stop in stages)
    assert 0 < before < len(drawn)


def test_a_finished_measurement_is_read_and_not_repeated(tmp_path, monkeypatch, undisturbed):
    measure(checkpoint=tmp_path / "kept")
    monkeypatch.setattr(blocks, "keys", None)
    assert same(measure(3, checkpoint=tmp_path / "kept"), undisturbed)


def test_progress_goes_on_where_it_was(tmp_path, monkeypatch):
    with dies(monkeypatch, 12, "after"), pytest.raises(Killed):
        measure(checkpoint=tmp_path / "kept")
    told = []
    measure(checkpoint=tmp_path / "kept", progress=told.append)
    assert told[0] > 128
    assert told[-1] == JOB.keys


# --- parts -----------------------------------------------------------------------------------------


def state(**options) -> State:
    return State(np.zeros((2, 16), dtype=np.int64), **options)


def test_parts_count_until_a_new_state_takes_them_in(tmp_path):
    folder, ones = Folder(tmp_path / "kept", {"d": 4}), np.ones((2, 16), dtype=np.int64)
    one = state()
    folder.commit(one)
    folder.save_part(one.token, 0, [(0, 1), (3, 4)], ones)
    folder.save_part(one.token, 1, [(1, 2)], ones)
    folder.save_part("another", 2, [(0, 9)], ones)
    taken = folder.load()
    assert taken.done == [(0, 2), (3, 4)]
    assert (taken.counts == 2).all()
    kept = {path.name: path.read_bytes() for path in folder.path.glob("part-*")}
    folder.commit(taken)
    for name, content in kept.items():  # as if the run had died before it removed them
        (folder.path / name).write_bytes(content)
    assert (folder.load().counts == 2).all()


def test_blocks_of_two_parts_are_not_counted_twice(tmp_path):
    folder, one = Folder(tmp_path / "kept", {}), state()
    folder.commit(one)
    for rank in (0, 1):
        folder.save_part(one.token, rank, [(0, 2)], one.counts)
    with pytest.warns(UserWarning, match=r"spans must not overlap.*its blocks are counted again"):
        found = folder.load()
    assert (found.counts == 2 * one.counts).all()
    assert [tuple(span) for span in found.done] == [(0, 2)]


def test_files_of_others_stay(tmp_path, undisturbed):
    folder = tmp_path / "kept"
    folder.mkdir()
    others = [folder / name for name in ("tmpmine.part", "part-of-my-thesis.npz", "notes.txt")]
    for other in others:
        other.write_text("mine")
    assert same(measure(checkpoint=folder), undisturbed)
    assert [other.read_text() for other in others] == ["mine"] * 3


@pytest.mark.parametrize("size", [1, 2])
def test_a_folder_serves_one_run_at_a_time(tmp_path, undisturbed, size):
    folder = tmp_path / "kept"
    with Folder(folder, {}).held(), pytest.raises(ValueError, match="must be free, but another run is using it"):
        measure(size, checkpoint=folder)
    assert same(measure(size, checkpoint=folder), undisturbed)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": 99},
        {"stage": -1},
        {"rows": []},
        {"stage": "first"},
        {"done": 3},
    ],
)
def test_a_state_of_another_hand_is_refused(tmp_path, change):
    folder = tmp_path / "kept"
    with pytest.MonkeyPatch.context() as patched, dies(patched, 12, "after"), pytest.raises(Killed):
        measure(checkpoint=folder)
    meta, counts = checkpoints._read(folder / "state.npz")
    checkpoints._write(folder / "state.npz", {**meta, "state": {**meta["state"], **change}}, counts)
    with pytest.raises((ValueError, TypeError), match=r"is damaged|checkpoint"):
        measure(checkpoint=folder)


@pytest.mark.parametrize("meta", [{}, {"state": {}}, {"state": {}, "parameters": 3}, []])
def test_a_state_without_its_entries_is_refused(tmp_path, meta):
    folder = tmp_path / "kept"
    checkpoints._write(folder / "state.npz", meta, np.zeros((2, 16), dtype=np.int64))
    with pytest.raises(ValueError, match=r"is damaged .*; remove this file to start over"):
        measure(checkpoint=folder)


def test_a_damaged_part_is_counted_again(tmp_path, monkeypatch, undisturbed):
    folder = tmp_path / "kept"
    with dies(monkeypatch, 2, "after"), pytest.raises(Killed):
        measure(checkpoint=folder)
    (part,) = folder.glob("part-*")
    part.write_bytes(part.read_bytes()[:100])
    with pytest.warns(UserWarning, match=r"is damaged .* its blocks are counted again"):
        found = measure(checkpoint=folder)
    assert same(found, undisturbed)


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 7}, "seed = 0 there, 7 here"),
        ({"d": 5}, "d = 4 there, 5 here"),
        ({"grid": [40, 300, 701]}, r"grid = \[40, 300, 700\] there, \[40, 300, 701\] here"),
        ({"scores": {**SCORES, "exp": Exponential(5.0)}}, "scores = "),
        ({"scores": {"relu2": ReLU(2)}}, "scores = "),
        ({"queries": 3, "replicates": 4}, "queries = 2 there, 3 here; replicates = 2 there, 4 here"),
    ],
)
def test_a_checkpoint_of_other_parameters_is_refused(tmp_path, monkeypatch, undisturbed, change, words):
    folder = tmp_path / "kept"
    with dies(monkeypatch, 9, "after"), pytest.raises(Killed):
        measure(checkpoint=folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    options = {name: getattr(JOB, name) for name in ("scores", "grid", "d", "queries", "replicates", "bins", "block")}
    for size in (1, 2):
        with pytest.raises(ValueError, match=f"must be one of this measurement, got one of other parameters .*{words}"):
            measure(size, Job(**{**options, **change}), checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert same(measure(checkpoint=folder), undisturbed)


@pytest.mark.parametrize("content", [b"", b"half of", "short"], ids=str)
def test_a_damaged_state_is_refused(tmp_path, content):
    folder = tmp_path / "kept"
    measure(checkpoint=folder)
    kept = (folder / "state.npz").read_bytes()
    (folder / "state.npz").write_bytes(kept[: len(kept) // 2] if content == "short" else content)
    with pytest.raises(ValueError, match=r"is damaged .*; remove this file to start over"):
        measure(checkpoint=folder)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(ValueError, match="checkpoint must be a folder, got the file"):
        measure(checkpoint=tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "mine"


def test_a_rank_that_does_not_see_the_folder_is_told(tmp_path):
    def work(ranks):
        return measuring.measure(JOB, ranks, checkpoint=tmp_path / str(ranks.rank))

    with pytest.raises(ValueError, match="must be a folder that every rank sees, but rank 1 does not find"):
        crew.run(2, work)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("place", [(os, "fsync"), (_files.tempfile, "mkstemp")], ids=["writing", "opening"])
@pytest.mark.parametrize("at", [1, 2, 9])
def test_a_disk_that_is_full_or_read_only_loses_nothing(tmp_path, monkeypatch, undisturbed, reason, place, at):
    calls, real = 0, getattr(*place)

    def refuse(*given, **how):
        nonlocal calls
        calls += 1
        if calls >= at:
            raise OSError(reason, os.strerror(reason))
        return real(*given, **how)

    folder = tmp_path / "kept"
    with monkeypatch.context() as patched:
        patched.setattr(*place, refuse)
        with pytest.raises(OSError, match=os.strerror(reason)):
            measure(checkpoint=folder)
    assert not list(folder.glob(".memstore-*"))
    assert same(measure(2, checkpoint=folder), undisturbed)
