"""Real processes: ranks under torchrun with gloo, and what happens when they are killed."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from memstore_lib import sharding
from memstore_lib.sharding import command, launching, ranks
from tests import on_ranks
from tests.test_merging import whole
from tests.test_sharding import SCORES

LIMIT_S = 120  # of any wait; a run takes some ten seconds on two slow cores


# --- agreement -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone():
    with sharding.opened("cpu") as one:
        return sharding.measure(sharding.Job(SCORES, on_ranks.GRID, **on_ranks.JOB), one)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_agree_with_one_process(tmp_path, alone, size):
    launching.launch(size, [str(tmp_path / "found.json")], module="tests.on_ranks", timeout=LIMIT_S)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["size"] == size
    for table, expected in zip(found["measured"], alone, strict=True):
        expected = expected if isinstance(expected, type(alone[1])) else expected.replicates
        assert table == expected.to_dict("list")  # counts are whole numbers: equal to the last digit
    for dtype, within in ((torch.float32, 3e-7), (torch.float64, 1e-12)):
        recalled = torch.tensor(found["recalled"][str(dtype)], dtype=dtype)
        assert (recalled - whole(*on_ranks.memories(dtype), on_ranks.BETA)).norm(dim=1).max() < within


# --- killing ---------------------------------------------------------------------------------------

ARGUMENTS = [
    *("--memories", "9000,40000,100000", "--dimension", "8", "--queries", "8", "--replicates", "20"),
    *("--scores", "relu2", "--rules", "su", "--device", "cpu", "--every", "0"),
]


@contextmanager
def running(size: int, arguments: list[str]) -> Iterator[subprocess.Popen]:
    """Start torchrun; whatever happens, none of its processes is left."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(launching.command(size, arguments), env=launching.environment(), **pipes) as torchrun:
        family = psutil.Process(torchrun.pid)
        members = [family]
        try:
            yield torchrun
        finally:
            if torchrun.poll() is None:
                members += family.children(recursive=True)
            for member in members:
                if member.is_running():
                    member.kill()


def wait_for(what: Callable[[], bool], torchrun: subprocess.Popen) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        assert torchrun.poll() is None, torchrun.stderr.read()
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def ranks_of(torchrun: subprocess.Popen) -> list[psutil.Process]:
    return [child for child in psutil.Process(torchrun.pid).children() if "memstore_lib.sharding" in child.cmdline()]


def stage(folder: Path) -> str:
    return sharding.checkpoints.Folder(folder, {}).token()


def test_killed_ranks_lose_nothing_and_count_nothing_twice(tmp_path):
    """One of two ranks is killed at a random moment, then torchrun with all of three; one process does the rest."""
    kept, output = tmp_path / "kept", tmp_path / "found.csv"
    arguments = [*ARGUMENTS, "--output", str(output), "--checkpoint", str(kept)]
    with running(2, arguments) as torchrun:
        wait_for(lambda: any(kept.glob("part-*")), torchrun)
        time.sleep(random.uniform(0, 1))
        random.choice(ranks_of(torchrun)).send_signal(signal.SIGKILL)
        _, said = torchrun.communicate(timeout=LIMIT_S)
        assert torchrun.returncode not in (0, None)
        assert "Signal 9 (SIGKILL) received" in said
        assert re.search(r"memstore: .*; what .*kept holds is whole, and the same command goes on from it", said)
    assert not output.exists()
    before = stage(kept)
    with running(3, arguments) as torchrun:
        wait_for(lambda: stage(kept) != before, torchrun)
        time.sleep(random.uniform(0, 1))
        together = [psutil.Process(torchrun.pid), *ranks_of(torchrun)]
        for process in together:
            process.kill()
        psutil.wait_procs(together, timeout=LIMIT_S)
    assert not output.exists()
    command.main(arguments)
    command.main([*ARGUMENTS, "--output", str(tmp_path / "undisturbed.csv")])
    assert output.read_bytes() == (tmp_path / "undisturbed.csv").read_bytes()


def test_a_rank_that_fails_says_why(tmp_path):
    """All ranks end, and the reason is said once."""
    with pytest.raises(RuntimeError) as failed:
        launching.launch(2, [*ARGUMENTS, "--memories", "4000", "--output", str(tmp_path / "a.csv")], timeout=LIMIT_S)
    said = str(failed.value)
    assert said.count("memstore: ") == 1
    assert "memstore: error on rank 0: ranks must be at most the 1 block(s) of 4,096 keys" in said
    assert not list(tmp_path.iterdir())


def test_a_rank_that_waits_in_vain_gives_up(monkeypatch):
    """Without torchrun to end it: the others never come."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(ranks.LostContact, match="the ranks cannot meet at MASTER_ADDR:MASTER_PORT"),
        sharding.opened("cpu", patience=1),
    ):
        pass


def test_a_launch_that_takes_too_long_is_ended(tmp_path):
    with pytest.raises(TimeoutError, match=r"on 1 ranks must end within 0\.5 s, and did not"):
        launching.launch(1, [*ARGUMENTS, "--output", str(tmp_path / "a.csv")], timeout=0.5)
    assert not [p for p in psutil.Process().children(recursive=True) if "memstore_lib.sharding" in p.cmdline()]


@pytest.mark.parametrize(("count", "kind"), [(0, ValueError), ("two", TypeError)])
def test_a_bad_number_of_ranks_is_refused(count, kind):
    with pytest.raises(kind, match="ranks must be"):
        launching.launch(count, [])
