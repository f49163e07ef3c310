"""Sharded measurements: blocks, spans, stages, ranks that are threads, recall, results, and the command.

Real processes under torchrun are in test_torchrun.py, checkpoints in test_checkpoints.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tomllib
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch

from memstore_lib import sharding, theory
from memstore_lib.scores import Exponential, Linear, ReLU, Score
from memstore_lib.sharding import Job, blocks, command, measuring, names, numbers, ranks, results, spans
from memstore_lib.sharpness import Su
from tests import crew
from tests.sources import ROOT
from tests.test_merging import draw, whole

CPU = torch.device("cpu")
SCORES = {"relu2": ReLU(2), "exp": Exponential(4.0), "su": Su(4.0, 64).score}


def job(**options) -> Job:
    grid = [2, 40, 300, 301, 700]
    return Job(**{"scores": SCORES, "grid": grid, "d": 8, "queries": 6, "replicates": 3, "block": 64, **options})


def measure(one: Job, size: int = 1, **options):
    return crew.run(size, lambda member: measuring.measure(one, member, **options))[0]


def same(one, other) -> bool:
    return one[0].replicates.equals(other[0].replicates) and one[1].equals(other[1])


# --- spans -----------------------------------------------------------------------------------------


def test_spans_join_and_complement_each_other():
    assert spans.union([(5, 7), (0, 2), (2, 4), [7, 9]]) == [(0, 4), (5, 9)]
    assert spans.missing((0, 10), [(5, 7), (0, 2)]) == [(2, 5), (7, 10)]
    assert spans.missing((3, 5), []) == [(3, 5)]
    assert spans.missing((3, 5), [(3, 5)]) == []
    assert spans.pieces([(0, 5), (9, 10)], 2) == [(0, 2), (2, 4), (4, 5), (9, 10)]
    assert spans.length([(0, 5), (9, 10)]) == 6


def test_a_block_that_is_done_twice_is_refused():
    with pytest.raises(ValueError, match=r"spans must not overlap, got 3 in \[0, 4\)"):
        spans.union([(0, 4), (3, 6)])


# --- blocks ----------------------------------------------------------------------------------------


def test_each_block_has_a_seed_of_its_own():
    """A random hash of 2¹⁷ blocks to 32 bits would meet itself twice."""
    seeds = {blocks.block_seed(3, 1, block) for block in range(1 << 17)}
    assert len(seeds) == 1 << 17
    far = {blocks.block_seed(3, 1, block) for block in range(blocks.MOST - 1000, blocks.MOST)}
    assert len(far) == 1000
    assert not far & seeds


def test_the_seeds_of_blocks_look_random():
    seeds = np.array([blocks.block_seed(0, 0, block) for block in range(1 << 14)], dtype=np.uint32)
    bits = (seeds[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert (np.abs(bits.mean(0) - 0.5) < 5 * 0.5 / 128).all()
    flips = ((seeds[::2] ^ seeds[1::2])[:, None] >> np.arange(32, dtype=np.uint32)) & 1  # neighbours
    assert (np.abs(flips.mean(0) - 0.5) < 5 * 0.5 / 90).all()


def test_blocks_replicates_and_seeds_have_different_keys():
    drawn = [blocks.keys(*which, 8, size=16, device=CPU) for which in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))]
    assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
    assert torch.equal(drawn[1], blocks.keys(0, 0, 1, 8, size=16, device=CPU))
    assert torch.allclose(drawn[0].norm(dim=1), torch.ones(16))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_cuda_device_draws_its_own_keys():
    device = torch.device("cuda")
    drawn = blocks.keys(0, 0, 5, 64, device=device)
    assert drawn.device.type == "cuda"
    assert torch.equal(drawn, blocks.keys(0, 0, 5, 64, device=device))


@pytest.mark.parametrize("block", [-1, blocks.MOST, 2.0])
def test_a_bad_block_is_refused(block):
    with pytest.raises((ValueError, TypeError), match="block must be"):
        blocks.block_seed(0, 0, block)


# --- the measurement -------------------------------------------------------------------------------


def test_counts_are_those_of_the_keys_of_all_blocks():
    """Against direct computation on the same draws, at each M, with stages that begin and end inside blocks."""
    one = job(bins=1 << 16)
    found, attention = measure(one)
    for replicate in range(3):
        bank = blocks.bank(0, replicate, 6, 8, device=CPU)
        drawn = torch.cat([blocks.keys(0, replicate, block, 8, size=64, device=CPU) for block in range(11)])
        for M in one.grid:
            s = (bank @ drawn[: M - 1].T).double()
            for label, score in one.scores_at(M).items():  # noqa: B007 - the query reads it
                at = found.replicates.query("store == @label and M == @M and replicate == @replicate")
                expected = (score(s) ** 2).sum(1).mean().item() / score(torch.ones(1)).item() ** 2
                assert at["mean_square"].item() == pytest.approx(expected, rel=1e-3, abs=1e-6)
            beta = one.scores_at(M)["su"].beta
            own = torch.exp(beta * torch.ones(6)).double()
            weight = (own / (own + torch.exp(beta * s).sum(1))).mean().item()
            at = attention.query("store == 'su' and M == @M and replicate == @replicate")
            assert at["weight"].item() == pytest.approx(weight, rel=1e-3)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_the_number_of_ranks_changes_nothing(size):
    one = job()
    assert same(measure(one, size), measure(one))


def test_the_grid_changes_no_draws():
    every, last = measure(job())[0].replicates, measure(job(grid=[700]))[0].replicates
    pd.testing.assert_frame_equal(every[every["M"] == 700].reset_index(drop=True), last)


def test_the_law_is_met():
    one = Job(
        {"relu": ReLU(), "exp": Exponential(3.0)}, [64, 2000], d=12, queries=40, replicates=12, cosines=(1.0, 0.8)
    )
    found, _ = measure(one)
    for label, score in one.scores.items():
        for M in one.grid:
            for c in one.cosines:
                assert found.at(label, M, level=0.999, cosine=c).low < theory.isr(score, M, 12, c)
                assert found.at(label, M, level=0.999, cosine=c).high > theory.isr(score, M, 12, c)


GROWTH = """
from memstore_lib import scores, sharding
from memstore_lib.device import peak_memory_mb

def peak(M):
    with sharding.opened("cpu") as alone:
        sharding.measure(sharding.Job({"relu": scores.ReLU()}, [M], queries=4, replicates=2), alone)
    return peak_memory_mb()

print(-peak(1 << 13) + peak(1 << 17))
"""


def test_memory_does_not_grow_with_the_number_of_memories():
    """In a process of its own, as a peak is never taken back; all keys of a replicate would be 34 MB."""
    done = subprocess.run([sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 16


def test_progress_counts_every_key_once():
    told = []
    measure(job(), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == job().keys == 3 * 699
    told.clear()
    measure(job(grid=[700], replicates=2), progress=told.append)  # two blocks of 64 at a time; the last is cut short
    of_one = [128, 256, 384, 512, 640, 699]
    assert told == of_one + [699 + keys for keys in of_one]


def test_another_counter_can_be_put_in():
    class Slow:
        def __init__(self, bank, bins):
            self.bank, self.bins, self.counts = bank, bins, torch.zeros(len(bank), bins)

        def add(self, keys):
            at = ((self.bank @ keys.T + 1) * self.bins / 2).long().clamp(0, self.bins - 1)
            self.counts.scatter_add_(1, at, torch.ones(at.shape))

        def flush(self):
            return self.counts

    found = measure(job(), make=Slow)[0].replicates["mean_square"]
    assert np.allclose(found, measure(job())[0].replicates["mean_square"], rtol=1e-2)


def test_a_counter_that_loses_keys_is_noticed():
    class Lossy(measuring.histograms.default):
        def add(self, keys):
            super().add(keys[1:])

    with pytest.raises(RuntimeError, match=r"every query must have met 1 keys once, got 0\.0"):
        measure(job(), make=Lossy)


class Steep(Score):
    name, latex = "steep", "?"

    def __call__(self, s):
        return 1e200 * s


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"scores": {}}, ValueError, "scores must hold at least one score, got none"),
        ({"scores": [Linear()]}, TypeError, "scores must be a mapping of labels to scores, got list"),
        ({"scores": {"a": 3}}, TypeError, r"scores\['a'\] must be a Score or return one, got int"),
        ({"grid": [1]}, ValueError, r"grid\[0\] must be at least 2, got 1"),
        ({"grid": [9, 9]}, ValueError, "grid must increase"),
        ({"grid": [1 << 50]}, ValueError, "grid must end by 274,877,906,945 memories, 2³² blocks of 64 keys"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"queries": 0}, ValueError, "queries must be at least 1, got 0"),
        ({"queries": 1 << 32}, ValueError, "queries · bins must be at most 2"),
        ({"replicates": 1}, ValueError, "replicates must be at least 2, got 1"),
        ({"cosines": [2.0]}, ValueError, "cosine must lie in"),
        ({"cosines": []}, ValueError, "cosines must be at least one and all different"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"bins": 8}, ValueError, "bins must be at least 16, got 8"),
        ({"block": 0}, ValueError, "block must be at least 1, got 0"),
    ],
)
def test_bad_jobs_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        job(**options)


@pytest.mark.parametrize("size", [1, 3])
def test_a_score_that_overflows_ends_all_ranks(size):
    with pytest.raises(ValueError, match="score 'steep' must have finite squares, got overflow"):
        measure(job(scores={"steep": Steep()}), size)


def test_more_ranks_than_blocks_are_refused():
    with pytest.raises(ValueError, match=r"ranks must be at most the 2 block\(s\) of 64 keys that M = 100 has, got 3"):
        measure(job(grid=[100]), 3)


# --- recall ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 3e-7), (torch.float64, 1e-12)])
@pytest.mark.parametrize("beta", [0.0, 5.0, 1e5])
@pytest.mark.parametrize("shares", [[40], [10, 30], [0, 40, 0], [1, 2, 3, 34]], ids=str)
def test_recall_over_ranks_equals_recall_over_all_keys(dtype, within, beta, shares):
    Q, K, V = draw(40, dtype=dtype)
    mask = torch.rand(5, 40, generator=torch.Generator().manual_seed(3)) < 0.5

    def work(member):
        k, v = K.split(shares)[member.rank], V.split(shares)[member.rank]
        seen = mask.split(shares, dim=1)[member.rank]
        options = {"chunk": 7}
        return sharding.recall(Q, k, v, beta, member, **options), sharding.recall(
            Q, k, v, beta, member, mask=seen, **options
        )

    for plain, masked in crew.run(len(shares), work):
        assert (plain - whole(Q, K, V, beta)).norm(dim=1).max() < within
        assert (masked - whole(Q, K, V, beta, mask)).norm(dim=1).max() < within


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"beta": -1.0}, ValueError, r"beta must lie in \[0, inf\)"),
        ({"keys": torch.zeros(4)}, ValueError, r"keys must have two axes, also where a rank has none, got \(4,\)"),
        ({"keys": torch.zeros(4, 3)}, ValueError, r"keys must have d_k = 16 columns like the queries, got \(4, 3\)"),
        ({"keys": torch.zeros(4, 16).double()}, TypeError, "keys and queries must have one dtype"),
        ({"values": torch.zeros(3, 2)}, ValueError, "keys and values must be of one number"),
        ({"keys": torch.zeros(0, 16), "values": torch.zeros(0, 3)}, ValueError, "must see at least one key"),
    ],
)
def test_bad_recalls_are_refused(change, kind, words):
    Q, K, V = draw(4, dtype=torch.float32)
    with pytest.raises(kind, match=words):
        sharding.recall(**{"queries": Q, "keys": K, "values": V, "beta": 1.0, "ranks": ranks.Ranks(CPU), **change})


# --- ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "device", "words"),
    [
        ("abacus", "cpu", "backend must be one of 'gloo', 'nccl', got 'abacus'"),
        ("nccl", "cpu", "backend nccl (is missing in this build of torch|needs a CUDA device for each rank)"),
    ],
)
def test_a_bad_backend_is_refused(wish, device, words):
    with pytest.raises(ValueError, match=words):
        ranks._backend(wish, torch.device(device))


def test_a_torch_without_a_backend_is_told_apart(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: False)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(ValueError, match="backend gloo is missing in this build of torch; there is none"):
        ranks._backend(None, CPU)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"torchrun needs a torch with torch\.distributed"):
        ranks._backend(None, CPU)


def test_ranks_of_a_machine_with_gpus_take_one_each(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert ranks._own_device("cuda", 1) == torch.device("cuda", 1)
    assert ranks._own_device("cpu", 5) == CPU
    with pytest.raises(ValueError, match="each rank needs a CUDA device of its own, got 2 for local rank 2"):
        ranks._own_device("cuda", 2)


# --- the command -----------------------------------------------------------------------------------

ARGUMENTS = ["--memories", "40,700", "--d", "8", "--queries", "6", "--replicates", "3", "--device", "cpu"]


def run(tmp_path, *more: str, output: str = "found.csv") -> pd.DataFrame:
    path = tmp_path / output
    command.main([*ARGUMENTS, "--output", str(path), *more])
    return pd.read_csv(path) if path.suffix == ".csv" else pd.DataFrame(json.loads(path.read_text()))


def refused(capsys, tmp_path, *more: str) -> str:
    with pytest.raises(SystemExit) as left:
        run(tmp_path, *more)
    assert left.value.code not in (0, None)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--scores", "exp=1e151"], "must be at most 1e150"),
        (
            ["--scores", "exp", "--checkpoint", ""],
            "--checkpoint: must be the name of a file or folder, got ''",
        ),
        (["--scores", "exp", "--backend", "abacus"], "argument --backend: invalid choice: 'abacus'"),
        (["--scores", "exp", "--patience", "1e30"], "patience must lie in (0, 1e+09], got 1e+30"),
        (["--scores", "exp", "--replicates", "1e8"], "must be at most 1,048,576"),
    ],
)
def test_what_would_fail_late_is_refused_before_any_key_is_drawn(capsys, tmp_path, monkeypatch, more, words):
    monkeypatch.setattr(blocks, "keys", None)
    assert words in refused(capsys, tmp_path, *more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["", "kept"])
def test_the_output_lies_apart_from_the_checkpoint(capsys, tmp_path, inside):
    said = refused(capsys, tmp_path, "--scores", "exp", "--checkpoint", str(tmp_path / "found.csv" / inside))
    assert "output must be a file apart from the folder checkpoint" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_half_of_what_torchrun_sets_is_refused(capsys, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert "RANK and WORLD_SIZE must both be set" in refused(capsys, tmp_path, "--scores", "exp")


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"])
def test_a_variable_of_torchrun_that_is_no_number_is_refused(capsys, tmp_path, monkeypatch, name):
    for one in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(one, "0")
    monkeypatch.setenv(name, "many")
    assert f"{name} must be a whole number, as torchrun sets it, got 'many'" in refused(
        capsys, tmp_path, "--scores", "exp"
    )


def test_a_closed_pipe_does_not_turn_success_into_failure(tmp_path, monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert len(run(tmp_path, "--scores", "exp")) > 0
    sys.stdout.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_is_printed_in_any_encoding(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command_line = [sys.executable, "-m", "memstore_lib.sharding", "--help"]
    done = subprocess.run(command_line, cwd=ROOT, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"--memories" in done.stdout


def test_a_link_goes_on_leading_to_the_results(tmp_path):
    (tmp_path / "found.csv").symlink_to(tmp_path / "elsewhere.csv")
    run(tmp_path, "--scores", "exp")
    assert (tmp_path / "found.csv").is_symlink()
    assert len(pd.read_csv(tmp_path / "elsewhere.csv")) > 0


def test_the_command_writes_a_tidy_table(tmp_path, capsys):
    found = run(
        tmp_path, "--scores", "exp,relu2,exp=12", "--rules", "su,yarn-clamped", "--cosines", "1,.8", "--seed", "4"
    )
    assert list(found.columns) == [*results.COLUMNS, "seed", "replicates", "queries"]
    assert set(found["store"]) == {"exp", "relu2", "exp=12", "su", "yarn-clamped"}
    assert len(found) == 2 * 2 * (4 * 4 + 2)
    assert not found.duplicated(["store", "M", "cosine", "quantity"]).any()
    assert (found[["d", "seed", "replicates", "queries"]] == [8, 4, 3, 6]).all(axis=None)
    row = found.query("store == 'relu2' and M == 700 and quantity == 'isr' and cosine == .8").iloc[0]
    assert row["low"] < row["value"] < row["high"]
    assert row["law"] == pytest.approx(theory.isr(ReLU(2), 700, 8, 0.8))
    assert found.query("store == 'exp'")["beta"].unique().tolist() == [math.sqrt(8)]
    assert found.query("store == 'relu2'")["beta"].isna().all()
    weight = found.query("store == 'su' and M == 700 and quantity == 'weight' and cosine == 1").iloc[0]
    assert weight["value"] == pytest.approx(weight["law"], rel=0.2)
    assert "3 × 700 memories at d = 8, 6 queries a replicate" in capsys.readouterr().out


def test_json_holds_the_same(tmp_path):
    one, other = run(tmp_path, "--rules", "fixed"), run(tmp_path, "--rules", "fixed", output="found.json")
    pd.testing.assert_frame_equal(one, other, check_dtype=False)


def test_a_single_number_brings_the_powers_of_two_below(tmp_path):
    assert run(tmp_path, "--memories", "100", "--scores", "linear")["M"].unique().tolist() == [16, 32, 64, 100]


def test_the_results_are_those_of_the_library(tmp_path):
    found = run(tmp_path, "--scores", "relu2").query("quantity == 'isr'")["value"].to_numpy()
    one = Job({"relu2": ReLU(2)}, [40, 700], d=8, queries=6, replicates=3)
    assert np.allclose(found, measure(one)[0].table()["value"], rtol=1e-12)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--scores", "softmax"], "scores must be among linear, relu, relu2, relu3, swiglu, exp or exp=BETA"),
        (["--scores", "relu=2"], "scores must be among"),
        (["--scores", "exp=sharp"], "exp=BETA must give a sharpness of at least 0, got 'exp=sharp'"),
        (["--scores", "exp=-1"], "exp=BETA must give a sharpness of at least 0, got 'exp=-1'"),
        (["--scores", "exp,exp"], "scores and rules must each stand once, got exp, exp"),
        (["--rules", "sue"], "rules must be among fixed, su, qwen, yarn, yarn-clamped, got 'sue'"),
        ([], "scores or rules must name at least one, known are linear"),
        (
            ["--scores", "exp", "--memories", "2.5"],
            "argument --memories: must be a whole number of at most 300 digits",
        ),
        (["--scores", "exp", "--memories", "1e13,5e13"], "memories must end by 17,592,186,044,417 memories"),
        (["--scores", "exp", "--memories", ""], "memories must hold at least one M"),
        (["--scores", "exp", "--cosines", "1,x"], "argument --cosines: must be numbers with commas between them"),
        (["--scores", "exp", "--replicates", "1"], "replicates must be at least 2, got 1"),
        (["--scores", "exp", "--device", "abacus"], "device must be one of cuda, mps, cpu, got 'abacus'"),
        (["--scores", "exp", "--output", "results.xls"], "output must end in .csv or .json, got '.xls'"),
        (["--scores", "exp", "--output", "/"], "output must end in .csv or .json, got ''"),
        (["--scores", "exp", "--every", "-1"], "every must lie in"),
        (["--scores", "exp", "--patience", "0"], "patience must lie in"),
        (["--scores", "exp", "--beta", "-3"], "beta must lie in"),
        (["--rules", "su", "--length", "1"], "length must lie in"),
        (["--scores", "exp", "--speed", "9"], "unrecognized arguments: --speed 9"),
    ],
)
def test_bad_arguments_are_refused(capsys, tmp_path, monkeypatch, more, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(capsys, tmp_path, *more)
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_drawn(capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(blocks, "keys", None)
    said = refused(capsys, tmp_path, "--scores", "exp", "--output", str(tmp_path / "file" / "found.csv"))
    assert "Not a directory" in said or "exists" in said
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "folder.csv").mkdir()
    said = refused(capsys, tmp_path, "--scores", "exp", "--output", str(tmp_path / "folder.csv"))
    assert "output must be a file, got the folder" in said


def test_results_that_cannot_be_written_are_printed(capsys, tmp_path, monkeypatch):
    def full(table, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(results, "write", full)
    with pytest.raises(SystemExit):
        run(tmp_path, "--scores", "relu2")
    out, err = capsys.readouterr()
    assert "relu2,8,700,1.0,,isr," in out
    assert "No space left on device" in err


def test_the_script_of_the_package_is_the_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["memstore"].partition(":")
    assert getattr(import_module(module), name) is command.main


def test_help_names_what_is_known(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in (*names.SCORES, *names.RULES, "torchrun", "--checkpoint", "2**30"))


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("2**30", 1 << 30), ("2^5", 32), ("1e9", 10**9), ("1.5e3", 1500), ("1_000", 1000)]
)
def test_numbers_are_read_as_people_write_them(text, value):
    assert numbers.whole_number(text) == value


@pytest.mark.parametrize("text", ["", "x", "1.5", "-3", "2**", "9**99999999", "1e400", "1e-3", "0x10", "2**-1"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number"):
        numbers.whole_number(text)


def test_the_rules_are_the_library_s():
    made = names.chosen(["exp", "exp=3"], list(names.RULES), beta=8.0, L=1024)
    assert made["exp"] == Exponential(8.0)
    assert made["exp=3"] == Exponential(3.0)
    assert [made[rule](1024) for rule in names.RULES] == [Exponential(8.0)] * 5
    assert made["yarn-clamped"](16) == Exponential(8.0) != made["yarn"](16)
