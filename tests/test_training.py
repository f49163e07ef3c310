"""Training: repeatable to the bit, resumable, refusing what is not its own; settings, schedules and fits."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch

from memstore_lib.language_models import power_law, settings, training
from memstore_lib.language_models.corpus import Corpus
from memstore_lib.language_models.models import MODELS
from memstore_lib.language_models.runs import checkpoint_path, default_workers, one_at_a_time, train_all
from memstore_lib.language_models.runs import seeds as seeds_of
from memstore_lib.language_models.settings import SETTINGS, Settings
from memstore_lib.language_models.training import CheckpointError, schedule, train

TINY = Settings(
    "tiny",
    d_model=12,
    layers=1,
    heads=3,
    sequence=19,
    batch=2,
    steps=20,
    learning_rate=1e-2,
    validation_every=7,
    validation_windows=3,
    vocabulary=31,
)
GDN, SHIFTED_GDN, TRANSFORMER, SHIFTED_TRANSFORMER = MODELS


def made_up(length=900, seed=0, vocabulary=31):
    """A corpus in which each token is mostly followed by its successor, so that there is something to learn."""
    draw = torch.Generator().manual_seed(seed)
    jump = torch.rand(length, generator=draw) < 0.1
    step = torch.where(jump, torch.randint(vocabulary, (length,), generator=draw), 1)
    tokens = step.cumsum(0) % vocabulary
    cut = 2 * length // 3
    return Corpus(tokens[:cut], tokens[cut:], "", (1, 1), {"vocabulary": vocabulary}, f"made up {length} {seed}")


def run(name=GDN, options=TINY, seed=0, corpus=None, **rest):
    return train(name, options, corpus or made_up(), seed=seed, device="cpu", progress=False, **rest)


def same(a, b):
    pd.testing.assert_frame_equal(a.history, b.history, check_exact=True)
    assert all(torch.equal(x, y) for x, y in zip(a.model.parameters(), b.model.parameters(), strict=True))


def test_a_history_is_a_tidy_table():
    history = run().history
    assert list(history) == ["model", "seed", "step", "tokens", "training_loss", "validation_loss"]
    assert len(history) == 20
    assert history["tokens"].tolist() == [38 * step for step in range(1, 21)]
    assert history.loc[history["validation_loss"].notna(), "step"].tolist() == [7, 14, 20]
    assert set(history["model"]) == {GDN}


@pytest.mark.parametrize("name", MODELS)
def test_models_learn_and_repeat_to_the_bit(name):
    longer = dataclasses.replace(TINY, steps=60)
    first = run(name, longer)
    same(first, run(name, longer))
    assert first.validation_loss < 0.8 * math.log(31)
    assert not first.history["training_loss"].equals(run(name, longer, seed=1).history["training_loss"])


def test_models_of_one_seed_read_the_same_text(monkeypatch):
    seen = {GDN: [], TRANSFORMER: []}
    cut = training.windows
    for name, rows in seen.items():
        monkeypatch.setattr(training, "windows", lambda *a, _to=rows, **k: _to.append(cut(*a, **k)) or _to[-1])
        run(name)
    assert all(torch.equal(a, b) for a, b in zip(*seen.values(), strict=True))
    assert not torch.equal(seen[GDN][2], seen[GDN][3])


class Stop(Exception):
    """Somebody pulled the plug."""


def interrupt(monkeypatch, at):
    """Let the step after ``at`` raise, in whatever run comes next."""
    plain, count = training._State.advance, []

    def advance(state):
        if state.step >= at and not count:
            count.append(1)
            raise Stop
        plain(state)

    monkeypatch.setattr(training._State, "advance", advance)


@pytest.mark.parametrize("name", [SHIFTED_GDN, TRANSFORMER])
def test_an_interrupted_run_ends_as_if_it_had_not_been(name, tmp_path, monkeypatch):
    whole = run(name)
    interrupt(monkeypatch, at=13)
    with pytest.raises(Stop):
        run(name, checkpoint=tmp_path / "a.pt", checkpoint_every=5)
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]
    assert torch.load(tmp_path / "a.pt", weights_only=True)["step"] == 10
    same(whole, run(name, checkpoint=tmp_path / "a.pt", checkpoint_every=5))


def test_a_finished_run_is_read_and_not_trained_again(tmp_path, monkeypatch):
    first = run(checkpoint=tmp_path / "a.pt")
    interrupt(monkeypatch, at=0)
    again = run(checkpoint=tmp_path / "a.pt")
    same(first, again)
    assert again.seconds == first.seconds > 0
    assert first.tokens_per_second == pytest.approx(20 * 38 / first.seconds)


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    run(checkpoint=tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()

    def fails(kept, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="disk full"):
        run(seed=1, checkpoint=tmp_path / "b.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]
    assert (tmp_path / "a.pt").read_bytes() == before


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"name": SHIFTED_GDN},
        {"options": dataclasses.replace(TINY, learning_rate=2e-2)},
        {"options": dataclasses.replace(TINY, steps=21)},
        {"corpus": made_up(seed=1)},
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, other):
    run(checkpoint=tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()
    with pytest.raises(CheckpointError, match=r"a\.pt must be a checkpoint of .*: delete it"):
        run(**other, checkpoint=tmp_path / "a.pt")
    assert (tmp_path / "a.pt").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    run(checkpoint=tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(CheckpointError, match="is not a whole checkpoint"):
        run(checkpoint=tmp_path / "a.pt")


def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_kept(tmp_path, monkeypatch):
    loss, calls = training.LanguageModel.loss, []

    def spoilt(model, tokens):
        calls.append(1)
        return loss(model, tokens) * (math.nan if len(calls) == 12 else 1)

    monkeypatch.setattr(training.LanguageModel, "loss", spoilt)
    with pytest.raises(FloatingPointError, match="training loss of 'Gated DeltaNet', seed 0, must be finite, got nan"):
        run(checkpoint=tmp_path / "a.pt", checkpoint_every=1, options=dataclasses.replace(TINY, validation_every=20))
    kept = torch.load(tmp_path / "a.pt", weights_only=True)
    assert kept["step"] == 11
    assert all(torch.isfinite(x).all() for x in kept["model"].values())


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_corpus_too_small_for_one_window_is_refused(part):
    small = dataclasses.replace(made_up(), **{part: torch.arange(19)})
    with pytest.raises(ValueError, match=r"at least length \+ 1 = 20 tokens for one window, got 19"):
        run(corpus=small)
    enough = dataclasses.replace(made_up(), **{part: torch.arange(20)})
    assert len(run(corpus=enough).history) == 20


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"name": "RNN"}, "name must be one of"),
        ({"corpus": made_up(vocabulary=30)}, "corpus must have 31 kinds of tokens, got 30"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        run(**wrong)


@pytest.mark.parametrize("workers", [1, 2])
def test_several_runs_in_processes_are_the_runs_of_one(tmp_path, monkeypatch, workers):
    names, seeds = [GDN, SHIFTED_TRANSFORMER], (0, 3)
    options = {"seeds": seeds, "folder": tmp_path, "device": "cpu", "workers": workers, "progress": False}
    runs = train_all(names, TINY, made_up(), **options)
    assert list(runs) == [(name, seed) for name in names for seed in seeds]
    same(runs[GDN, 3], run(seed=3))
    assert sorted(tmp_path.iterdir()) == sorted(
        checkpoint_path(tmp_path, name, TINY, made_up(), seed) for name, seed in runs
    )
    interrupt(monkeypatch, at=0)
    same(runs[GDN, 3], train_all(names, TINY, made_up(), **options | {"workers": 1})[GDN, 3])


def test_finished_runs_start_no_process(tmp_path, monkeypatch):
    options = {"seeds": (0, 1), "folder": tmp_path, "device": "cpu", "workers": 2, "progress": False}
    first = train_all([GDN], TINY, made_up(), **options)
    monkeypatch.setattr("memstore_lib.language_models.runs.ProcessPoolExecutor", None)
    interrupt(monkeypatch, at=0)
    same(first[GDN, 1], train_all([GDN], TINY, made_up(), **options)[GDN, 1])


def test_workers_are_as_many_as_the_variable_says_or_as_there_are_cores(monkeypatch):
    monkeypatch.setenv("MEMSTORE_WORKERS", "7")
    assert default_workers() == 7
    monkeypatch.delenv("MEMSTORE_WORKERS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert default_workers() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5}, raising=False)
    assert default_workers() == 1


def test_a_single_core_trains_one_seed(monkeypatch):
    monkeypatch.setenv("MEMSTORE_WORKERS", "1")
    three = dataclasses.replace(TINY, seeds=3)
    assert one_at_a_time("cpu")
    assert seeds_of(three, "cpu") == range(1)
    monkeypatch.setenv("MEMSTORE_WORKERS", "2")
    assert not one_at_a_time("cpu")
    assert seeds_of(three, "cpu") == range(3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_trains_every_seed(monkeypatch):
    monkeypatch.setenv("MEMSTORE_WORKERS", "1")
    assert not one_at_a_time("cuda")


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "1.5"])
def test_a_variable_that_is_no_number_of_workers_is_refused(monkeypatch, tmp_path, wrong):
    monkeypatch.setenv("MEMSTORE_WORKERS", wrong)
    with pytest.raises(ValueError, match=f"MEMSTORE_WORKERS must be a whole number of at least 1, got '{wrong}'"):
        train_all([GDN], TINY, made_up(), seeds=[0], folder=tmp_path, device="cpu")


STOPPED = """
import dataclasses, sys
from memstore_lib.language_models.runs import train_all
from tests.test_training import GDN, TINY, made_up

if __name__ == "__main__":
    endless = dataclasses.replace(TINY, steps=10**7)
    train_all([GDN], endless, made_up(), seeds=(0, 1), folder=sys.argv[1], device="cpu", workers=2, progress=False)
"""


def children(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if "spawn_main" in str(child.cmdline())]


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    started = subprocess.Popen([sys.executable, str(script), str(tmp_path / "runs")], env=environment)
    try:
        deadline = time.monotonic() + 60
        while len(workers := children(started.pid)) < 2 or sum(w.cpu_times().user for w in workers) < 8:
            assert time.monotonic() < deadline
            assert started.poll() is None
            time.sleep(0.2)
    finally:
        started.kill()
        started.wait()  # as an unwaited process is a warning, and a warning an error
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


@pytest.mark.parametrize(("names", "seeds", "words"), [([GDN], [], "got 1 and 0"), ([], [0], "got 0 and 1")])
def test_no_runs_at_all_are_refused(tmp_path, names, seeds, words):
    with pytest.raises(ValueError, match=f"names and seeds must hold at least one each, {words}"):
        train_all(names, TINY, made_up(), seeds=seeds, folder=tmp_path, device="cpu")


# --- settings, schedule and fit --------------------------------------------------------------------


def test_the_schedule_warms_up_and_ends_at_a_tenth():
    shares = [schedule(step, 400) for step in range(400)]
    assert shares[0] == pytest.approx(1 / 20)
    assert max(shares) == shares[19] == shares[20] == 1
    assert shares[-1] == pytest.approx(0.1, abs=1e-3)
    assert shares[20 + 190] == pytest.approx(0.55)
    assert all(a >= b for a, b in itertools.pairwise(shares[20:]))
    assert schedule(0, 1) == 1


def test_settings_are_chosen_by_device_and_by_one_variable(monkeypatch):
    monkeypatch.delenv("MEMSTORE_TRAINING", raising=False)
    assert settings.choose("cpu").name == "small"
    monkeypatch.setattr(settings, "resolve", lambda device: torch.device("cuda"))
    assert settings.choose().name == "large"
    monkeypatch.setenv("MEMSTORE_TRAINING", "medium")
    assert settings.choose().name == "medium"
    monkeypatch.setenv("MEMSTORE_TRAINING", "huge")
    with pytest.raises(ValueError, match="MEMSTORE_TRAINING must be one of 'small', 'medium', 'large', got 'huge'"):
        settings.choose()


def test_the_large_setting_is_the_sources():
    large = SETTINGS["large"]
    assert large.tokens == pytest.approx(30e6, rel=1e-3)
    assert (large.size(GDN).layers, large.size(SHIFTED_TRANSFORMER).layers) == (6, 8)
    assert (large.batch, large.sequence, large.rate(GDN)) == (4, 2048, 6e-4)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"sequence": 1.5}, TypeError, "sequence must be an integer"),
        ({"learning_rate": 0}, ValueError, r"learning_rate must lie in \(0, "),
        ({"rates": {"transformer": math.nan}}, ValueError, "transformer must be finite"),
        ({"heads": 5}, ValueError, "d_model must be a multiple of heads, got d_model 12 and 5 heads"),
    ],
)
def test_bad_settings_are_refused(change, kind, words):
    with pytest.raises(kind, match=words):
        dataclasses.replace(TINY, **change)


def history(losses):
    return pd.DataFrame({"step": np.arange(1, len(losses) + 1), "training_loss": losses})


def test_a_power_law_is_found_again():
    steps = np.arange(1, 3001)
    noise = np.random.default_rng(0).normal(0, 0.05, len(steps))
    law = power_law.fit(history(5 * steps**-0.2 + noise), window=20)
    assert law.exponent == pytest.approx(0.2, abs=0.005)
    assert law.end == pytest.approx(5 * 3000**-0.2, rel=0.005)
    assert law(100) == pytest.approx(5 * 100**-0.2, rel=0.02)


def test_only_the_last_part_of_a_run_is_fitted():
    steps = np.arange(1, 1001)
    losses = np.where(steps <= 200, 50.0, 5 * steps**-0.3)
    assert power_law.fit(history(losses), window=1).end == pytest.approx(5 * 1000**-0.3, rel=1e-6)
    assert power_law.fit(history(losses), window=1, share=1.0).end != pytest.approx(5 * 1000**-0.3, rel=1e-2)


def test_smoothing_is_a_mean_over_the_steps_before():
    np.testing.assert_allclose(power_law.smooth([1, 2, 3, 6], 2), [1.5, 2.5, 4.5])


@pytest.mark.parametrize(
    ("losses", "options", "words"),
    [
        ([3.0, 2.0, 1.0], {"window": 4}, "losses must hold at least 4, the window, got 3"),
        ([3.0, math.nan, 1.0], {"window": 1}, "losses must be a finite sequence"),
        ([3.0, 2.0, 1.0], {"window": 3}, "at least two smoothed losses to fit, got 1"),
        ([3.0, 2.0, 1.0], {"window": 0}, "window must be at least 1"),
        ([3.0, 2.0, 1.0], {"window": 1, "share": 0}, r"share must lie in \(0, 1\]"),
    ],
)
def test_bad_fits_are_refused(losses, options, words):
    with pytest.raises(ValueError, match=words):
        power_law.fit(history(losses), **options)


def test_a_fit_takes_one_run():
    both = pd.concat([history([3.0, 2.0]), history([3.0, 2.0])])
    with pytest.raises(ValueError, match="history must hold one run"):
        power_law.fit(both, window=1)
