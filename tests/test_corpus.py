"""The corpus: deterministic, split by file, cached whole or not at all."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from memstore_lib.language_models import corpus as corpora
from memstore_lib.language_models.corpus import CorpusError, load, read, windows


def write_files(root, count=40, size=60):
    for i in range(count):
        path = root / ("a" if i % 2 else "b") / f"m{i}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def function_{i}(x):\n    return x + {i}  # é\n" * size, encoding="utf8")
    return sorted(root.rglob("*.py"))


@pytest.fixture
def made(tmp_path):
    """A corpus of made-up files, and how to load it again."""
    root = tmp_path / "files"
    files = write_files(root)

    def again(**options):
        return load(tmp_path / "cache", **{"vocabulary": 300, "files": files, "root": root} | options)

    return again(), again, tmp_path


def cached(folder):
    (path,) = (folder / "cache").iterdir()
    return path


def test_a_corpus_is_what_its_files_say(made):
    corpus, _, folder = made
    text = corpus.decode(corpus.train) + corpus.decode(corpus.validation)
    for i in range(40):
        assert f"def function_{i}(x)" in text
    assert sum(corpus.characters) == sum(len(p.read_text("utf8")) for p in (folder / "files").rglob("*.py"))
    assert corpus.vocabulary == 300
    assert 256 <= corpus.train.max() < 300
    assert corpus.train.dtype == torch.int64
    assert len(corpus.train) < corpus.characters[0] / 2  # merges are used


def test_any_text_survives_the_tokenizer(made):
    text = "def f(x):\n\treturn '記 é \\x00'  \r\n\n"
    tokens = made[0].encode(text)
    assert tokens.max() < 300
    assert made[0].decode(tokens) == text


def test_files_are_split_whole(made):
    corpus, _, _ = made
    sides = [corpus.decode(tokens) for tokens in (corpus.train, corpus.validation)]
    for i in range(40):
        assert sorted(side.count(f"def function_{i}(x)") for side in sides) == [0, 60]
    assert all("def function" in side for side in sides)
    ends = [
        int((tokens == corpus.encode(corpora.END_OF_FILE)[0]).sum()) for tokens in (corpus.train, corpus.validation)
    ]
    assert sum(ends) == 40


def test_the_tokenizer_has_not_seen_the_validation_files(made):
    corpus, again, folder = made
    held_out = [i for i in range(40) if f"function_{i}(" in corpus.decode(corpus.validation)]
    for path in (folder / "files").rglob("*.py"):
        if int(path.stem[1:]) in held_out:
            path.write_text("zqzqzqzqzqzqzqzq\n" * 500, encoding="utf8")
    assert again().tokenizer == corpus.tokenizer


def test_a_corpus_is_the_same_each_time_and_in_any_place(made, tmp_path):
    first, again, _ = made
    elsewhere = tmp_path / "elsewhere"
    files = write_files(elsewhere)
    second = load(tmp_path / "other cache", vocabulary=300, files=files, root=elsewhere)
    assert second.checksum == first.checksum
    assert again(vocabulary=301).checksum != first.checksum


def test_a_cache_is_read_and_not_built_again(made, monkeypatch):
    first, again, _ = made
    monkeypatch.setattr(corpora, "_build", lambda *a: pytest.fail("built again"))
    second = again()
    assert torch.equal(first.train, second.train)
    assert torch.equal(first.validation, second.validation)
    assert (first.checksum, first.tokenizer, first.settings) == (second.checksum, second.tokenizer, second.settings)


def test_other_sources_or_settings_have_a_cache_of_their_own(made):
    _, again, folder = made
    again(vocabulary=310)
    again(validation_share=0.2)
    next((folder / "files").rglob("*.py")).write_text("x = 1\n" * 999, encoding="utf8")
    again()
    assert len(list((folder / "cache").iterdir())) == 4


def test_nothing_half_written_is_left(made, monkeypatch):
    _, again, folder = made
    before = cached(folder).read_bytes()

    def fails(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", fails)
    with pytest.raises(KeyboardInterrupt):
        again(vocabulary=310)
    assert cached(folder).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"not a corpus", None])
def test_a_damaged_cache_is_refused_by_name(made, content):
    _, again, folder = made
    path = cached(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(CorpusError, match=rf"{path.name} is not a whole cached corpus .*: delete it"):
        again()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a: a | {"train": a["train"][::-1]}, "must have checksum"),
        (lambda a: a | {"meta": np.frombuffer(b'{"format": "another"}', dtype=np.uint8)}, "must be of format"),
        (lambda a: a | {"meta": np.frombuffer(b"[]", dtype=np.uint8)}, "must be of format"),
        (lambda a: {"meta": a["meta"]}, "is not a whole cached corpus"),
    ],
)
def test_a_foreign_cache_is_refused(made, spoil, words):
    _, again, folder = made
    path = cached(folder)
    with np.load(path) as stored:
        arrays = dict(stored)
    with path.open("wb") as file:
        np.savez(file, **spoil(arrays))
    with pytest.raises(CorpusError, match=words):
        again()


def test_a_cache_under_anothers_name_is_refused(made):
    _, again, folder = made
    first = cached(folder)
    again(vocabulary=310)
    (second,) = set((folder / "cache").iterdir()) - {first}
    os.replace(second, first)
    with pytest.raises(CorpusError, match=r"must be made from .*'vocabulary': 300.*, got .*'vocabulary': 310"):
        again()
    with pytest.raises(FileNotFoundError):
        read(second)


def test_files_that_are_not_utf8_are_left_out(made):
    _, again, folder = made
    path = next((folder / "files").rglob("*.py"))
    path.write_bytes("# é secret_word\n".encode("latin-1"))
    corpus = again()
    assert "secret_word" not in corpus.decode(corpus.train) + corpus.decode(corpus.validation)


def test_the_standard_library_comes_without_tests():
    files = corpora.standard_library()
    names = {path.name for path in files}
    assert {"dataclasses.py", "ast.py", "argparse.py"} <= names
    assert not [
        p
        for p in files
        if {"test", "tests", "site-packages", "pydoc_data", "encodings"} & set(p.parts)
        or p.name.startswith("_sysconfig")
    ]
    assert files == corpora.standard_library()
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) < 0.03 * sum(sizes)  # no single file decides what validation says


def test_installed_packages_are_found():
    names = {path.as_posix() for path in corpora.installed_packages()}
    assert any(name.endswith("torch/nn/functional.py") for name in names)
    assert not any("/tests/" in name for name in names)


def test_the_default_folder_is_the_books(tmp_path, monkeypatch):
    (tmp_path / "book").mkdir()
    (tmp_path / "_toc.yml").touch()
    monkeypatch.chdir(tmp_path / "book")
    assert corpora.default_folder() == tmp_path / "_build" / "corpus"


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"vocabulary": 256}, ValueError, "vocabulary must be at least 258, got 256"),
        ({"vocabulary": "1k"}, TypeError, "vocabulary must be an integer"),
        ({"validation_share": 1.5}, ValueError, r"validation_share must lie in \[0, 1\], got 1.5"),
        ({"validation_share": 0.0}, ValueError, "some for training and some for validation, got 40 and 0"),
        ({"files": []}, ValueError, "some for training and some for validation, got 0 and 0"),
        ({"root": None}, ValueError, "root must be given with files"),
    ],
)
def test_bad_arguments_are_refused(made, options, kind, words):
    with pytest.raises(kind, match=words):
        made[1](**options)


def test_windows_are_cut_from_every_place_and_end_with_a_target():
    draw = torch.Generator().manual_seed(0)
    rows = windows(torch.arange(13), 500, 10, generator=draw)
    assert rows.shape == (500, 11)
    assert set(rows[:, 0].tolist()) == {0, 1, 2}
    assert torch.equal(rows[:, 1:], rows[:, :-1] + 1)


@pytest.mark.parametrize(
    ("batch", "length", "words"),
    [
        (2, 13, r"at least length \+ 1 = 14 tokens for one window, got 13"),
        (0, 3, "batch must be at least 1"),
        (1, 0, "length must be at least 1"),
    ],
)
def test_bad_windows_are_refused(batch, length, words):
    with pytest.raises(ValueError, match=words):
        windows(torch.arange(13), batch, length, generator=torch.Generator())
