"""Records of runs: tidy tables, whole files, refused when they are another's; and the one that the book keeps."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

from memstore_lib.language_models import __main__ as command
from memstore_lib.language_models import corpus, records, runs
from memstore_lib.language_models.models import ABLATIONS, MODELS
from memstore_lib.language_models.settings import SETTINGS
from tests.sources import Page
from tests.test_training import GDN, SHIFTED_TRANSFORMER, TINY, made_up, run

NAMES = (GDN, SHIFTED_TRANSFORMER)


@pytest.fixture(scope="module")
def trained():
    return {(name, seed): run(name, seed=seed) for name in NAMES for seed in (0, 1)}


def test_tables_of_runs(trained):
    history, table = records.tabulate(trained, TINY)
    assert list(zip(table["model"], table["seed"], strict=True)) == list(trained)
    assert table["parameters"].tolist() == [one.parameters for one in trained.values()]
    for (name, seed), one in trained.items():
        mine = history[(history["model"] == name) & (history["seed"] == seed)]
        looked = one.history[one.history["validation_loss"].notna()]
        assert mine["step"].tolist() == looked["step"].tolist()
        assert mine["validation_loss"].tolist() == looked["validation_loss"].tolist()
        edges = [0, *looked["step"]]
        losses = one.history["training_loss"].to_numpy()
        means = [losses[a:b].mean() for a, b in itertools.pairwise(edges)]
        assert mine["training_loss"].to_numpy() == pytest.approx(means)


def test_a_record_comes_back(trained, tmp_path):
    path = tmp_path / "sub" / "record.json"
    records.save(path, trained, TINY, "made up")
    record = records.load(path, TINY)
    history, table = records.tabulate(trained, TINY)
    assert np.allclose(record.history["validation_loss"], history["validation_loss"], atol=1e-5)
    assert record.runs["model"].tolist() == table["model"].tolist()
    assert record.corpus == "made up"
    assert record.machine
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_a_record_of_other_settings_is_refused(trained, tmp_path):
    records.save(tmp_path / "record.json", trained, TINY, "made up")
    with pytest.raises(records.RecordError, match="must be of"):
        records.load(tmp_path / "record.json", dataclasses.replace(TINY, steps=TINY.steps + 1))
    more_seeds = dataclasses.replace(TINY, seeds=5)  # not what decides about one run
    assert len(records.load(tmp_path / "record.json", more_seeds).runs) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "another"}', "\x00"])
def test_a_corrupt_record_is_refused(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(records.RecordError, match=r"record\.json is not a whole record"):
        records.load(path, TINY)
    assert path.read_text() == text


def test_a_record_without_a_column_is_refused(trained, tmp_path):
    path = tmp_path / "record.json"
    records.save(path, trained, TINY, "made up")
    kept = json.loads(path.read_text())
    del kept["history"]["validation_loss"]
    path.write_text(json.dumps(kept))
    with pytest.raises(records.RecordError, match="validation_loss"):
        records.load(path, TINY)


def test_a_missing_record_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        records.load(tmp_path / "none.json", TINY)


def test_the_window_of_a_fit_is_the_sources_share_of_a_run():
    assert records.window(dataclasses.replace(TINY, steps=3662)) == 500
    assert records.window(dataclasses.replace(TINY, steps=4)) == 2


def of_the_chapter() -> set[str]:
    """The models that chapter 6 compares: the four, and those that its code names."""
    code = Page("book/06_shifted_key").code
    return set(MODELS) | {name for name in ABLATIONS if f'"{name}"' in code}


def test_the_books_records_are_of_the_books_settings():
    for name in ("small", "medium"):
        record = records.published(SETTINGS[name])
        assert record.history["step"].max() == SETTINGS[name].steps
        assert set(record.runs["model"]) >= set(MODELS)
        assert {(model, 0) for model in MODELS} <= set(record.validation_losses)
    assert records.published(TINY) is None


def test_the_small_record_holds_every_run_of_the_chapter():
    small = SETTINGS["small"]
    assert set(records.published(small).validation_losses) == {
        (name, seed) for name in of_the_chapter() for seed in range(small.seeds if name in MODELS else 1)
    }


def test_the_small_record_is_what_a_build_trains():
    small, text = SETTINGS["small"], corpus.load()
    record = records.published(small)
    if text.checksum[:12] not in record.corpus:
        pytest.skip("this Python's standard library is not the one that the record was made with")
    folder, seen = runs.default_folder(), 0
    for (name, seed), loss in record.validation_losses.items():
        path = runs.checkpoint_path(folder, name, small, text, seed)
        if path.is_file():
            kept = torch.load(path, weights_only=True)
            if kept["step"] == small.steps:
                seen += 1
                # Another processor rounds otherwise.
                assert kept["validation"][-1][1] == pytest.approx(loss, abs=0.1), name
    if not seen:
        pytest.skip("nothing is trained here yet: make book")


def test_validation_losses_are_those_of_the_last_look(trained, tmp_path):
    records.save(tmp_path / "record.json", trained, TINY, "made up")
    record = records.load(tmp_path / "record.json", TINY)
    shuffled = dataclasses.replace(record, history=record.history.sample(frac=1, random_state=0))
    for one in (record, shuffled):
        losses = one.validation_losses
        assert set(losses) == set(trained)
        assert all(losses[key] == pytest.approx(run.validation_loss, abs=1e-5) for key, run in trained.items())


def test_the_command_trains_and_writes_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SETTINGS, "medium", TINY)
    monkeypatch.setattr(command.corpus, "load", lambda packages: made_up())
    monkeypatch.setattr(runs, "default_folder", lambda: tmp_path / "training")
    path = tmp_path / "record.json"
    command.main(["medium", str(path), "--device", "cpu", "--workers", "1"])
    assert set(records.load(path, TINY).runs["model"]) == set(MODELS)
    assert "tokens_per_second" in capsys.readouterr().out
    further = "transformer, short convolutions"
    command.main(["medium", str(path), "--device", "cpu", "--workers", "1", "--also", further])
    assert list(records.load(path, TINY).validation_losses) == [(name, 0) for name in (*MODELS, further)]


@pytest.mark.parametrize("arguments", [[], ["tiny", "x.json"], ["medium"], ["medium", "x.json", "--also", "ours"]])
def test_the_command_refuses_what_it_does_not_know(arguments):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
