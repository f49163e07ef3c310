"""What the models read: Python's own source files, which every reader has, cut into 1,024 kinds of tokens.

Files are split into training and validation by a hash of their path, a byte-level BPE is trained on the training files
alone, and the tokens are kept in one file, whose name depends on the Python version, on the settings, and on the paths
and sizes of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sysconfig
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from memstore_lib import _checks
from memstore_lib._files import whole

FORMAT = "memstore corpus 1"
END_OF_FILE = "<|end of file|>"
BYTES = 256
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
NOT_CODE = {"pydoc_data", "encodings"}  # a manual in one string, and tables: large enough to be most of what validates
MACHINE_MADE = ("_sysconfigdata", "config-")  # differ from machine to machine


class CorpusError(ValueError):
    """A cached corpus that is corrupt, or is not what its name says."""


@dataclass(frozen=True)
class Corpus:
    """Tokens of the training and the validation files.

    Attributes:
        train, validation: tokens, (n,), int64.
        tokenizer: the trained tokenizer, as JSON.
        characters: characters of the training and of the validation files.
        settings: what it was made from.
        checksum: SHA-256 of tokens and tokenizer, which names exactly this corpus.
    """

    train: torch.Tensor
    validation: torch.Tensor
    tokenizer: str
    characters: tuple[int, int]
    settings: dict[str, object]
    checksum: str

    @property
    def vocabulary(self) -> int:
        """The number of kinds of tokens."""
        return int(self.settings["vocabulary"])  # type: ignore[call-overload]

    def encode(self, text: str) -> torch.Tensor:
        """Return the tokens of a text, (n,)."""
        return torch.tensor(_tokenizer(self.tokenizer).encode(text).ids)

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text of tokens, (n,)."""
        return _tokenizer(self.tokenizer).decode(tokens.tolist())


def windows(tokens: torch.Tensor, batch: int, length: int, *, generator: torch.Generator) -> torch.Tensor:
    """Cut random windows.

    Args:
        tokens: (n,).
        batch: windows to cut.
        length: tokens that a window's model is to see; one more is cut as the last target.
        generator: where each window starts.

    Returns:
        (batch, length + 1) tokens.

    Raises:
        ValueError: fewer tokens than one window has, or batch or length below 1.
    """
    batch, length = _checks.integer("batch", batch), _checks.integer("length", length)
    if len(tokens) < length + 1:
        raise ValueError(
            f"corpus must hold at least length + 1 = {length + 1} tokens for one window, got {len(tokens)}"
        )
    starts = torch.randint(len(tokens) - length, (batch, 1), generator=generator)
    return tokens[starts + torch.arange(length + 1)]


def default_folder() -> Path:
    """Return ``_build/corpus`` of the book that the working directory or this package lies in, else of the former."""
    here = Path.cwd()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / "_toc.yml").is_file():
            return folder / "_build" / "corpus"
    return here / "_build" / "corpus"


def standard_library() -> list[Path]:
    """Return the standard library's .py files in a fixed order, without tests, manual and encoding tables."""
    return _python_files(Path(sysconfig.get_path("stdlib")))


def installed_packages() -> list[Path]:
    """Return the .py files of the installed packages without their tests, in a fixed order."""
    folders = sorted({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
    return [path for folder in folders for path in _python_files(folder)]


def _python_files(root: Path) -> list[Path]:
    found = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in LEFT_OUT | NOT_CODE and not name.startswith(MACHINE_MADE)]
        found += [Path(folder) / f for f in files if f.endswith(".py") and not f.startswith(MACHINE_MADE)]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def load(
    folder: str | Path | None = None,
    *,
    vocabulary: int = 1024,
    validation_share: float = 0.05,
    packages: bool = False,
    files: Sequence[Path] | None = None,
    root: str | Path | None = None,
) -> Corpus:
    """Return the corpus, from its cache if there is one, and build and cache it else.

    Args:
        folder: where the cache is kept; :func:`default_folder` if None.
        vocabulary: kinds of tokens, above 257: every byte, a mark at the end of a file, and what is merged.
        validation_share: the share of files kept for validation, in (0, 1).
        packages: whether the installed packages' sources are read too.
        files: read these instead, whose paths count from ``root``.
        root: the folder that ``files`` lie in.

    Raises:
        CorpusError: the cached file is corrupt or is another's; the message says which file to delete.
        ValueError: no file for training or for validation, or an argument out of range.
        TypeError: an argument of another type.
    """
    vocabulary = _checks.integer("vocabulary", vocabulary, minimum=BYTES + 2)
    share = _checks.real("validation_share", validation_share, low=0.0, high=1.0)
    if files is None:
        named = _named(standard_library(), Path(sysconfig.get_path("stdlib")))
        if packages:
            named |= _named(installed_packages(), None)
    elif root is None:
        raise ValueError("root must be given with files, got None")
    else:
        named = _named(files, Path(root))
    settings: dict[str, object] = {
        "vocabulary": vocabulary,
        "validation_share": share,
        "python": platform.python_version(),
        "packages": packages,
        "sources": _digest(f"{name} {path.stat().st_size}" for name, path in named.items()),
    }
    key = _digest([json.dumps(settings, sort_keys=True)])[:12]
    cache = Path(folder if folder is not None else default_folder()) / f"corpus-{settings['python']}-{key}.npz"
    if cache.is_file():
        return read(cache, settings)
    corpus = _build(named, settings)
    _write(cache, corpus)
    return corpus


def _named(files: Iterable[Path], root: Path | None) -> dict[str, Path]:
    """Name files by their path from a root, or from the folder of packages they lie in."""
    roots = [root] if root is not None else [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
    return {
        path.relative_to(next(r for r in roots if path.is_relative_to(r))).as_posix(): path for path in map(Path, files)
    }


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _build(named: dict[str, Path], settings: dict[str, object]) -> Corpus:
    texts: dict[bool, list[str]] = {True: [], False: []}
    for name, path in named.items():
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:  # a few files are in another encoding
            continue
        in_validation = int(_digest([name])[:8], 16) < settings["validation_share"] * 2**32  # type: ignore[operator]
        if text.strip():
            texts[in_validation].append(text)
    if not texts[True] or not texts[False]:
        raise ValueError(
            f"files must leave some for training and some for validation, got {len(texts[False])} and "
            f"{len(texts[True])}"
        )
    tokenizer = _train_tokenizer(texts[False], int(settings["vocabulary"]))  # type: ignore[call-overload]
    train, validation = (_encode(tokenizer, texts[which]) for which in (False, True))
    characters = tuple(sum(map(len, texts[which])) for which in (False, True))
    return _corpus(train, validation, tokenizer.to_str(), characters, settings)


def _corpus(train, validation, tokenizer: str, characters, settings: dict[str, object]) -> Corpus:
    """Put a corpus together from arrays of uint16."""
    digest = hashlib.sha256()
    for part in (train.tobytes(), b"|", validation.tobytes(), b"|", tokenizer.encode()):
        digest.update(part)
    tensors = (torch.from_numpy(tokens.astype(np.int64)) for tokens in (train, validation))
    return Corpus(*tensors, tokenizer, tuple(characters), settings, digest.hexdigest())


def _tokenizers():
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("the corpus needs the tokenizers package: pip install 'memstore_lib[language-models]'") from (
            error
        )
    return tokenizers


def _tokenizer(text: str):
    return _tokenizers().Tokenizer.from_str(text)


def _train_tokenizer(texts: list[str], vocabulary: int):
    t = _tokenizers()
    tokenizer = t.Tokenizer(t.models.BPE())
    tokenizer.pre_tokenizer = t.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = t.decoders.ByteLevel()
    trainer = t.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_FILE],
        initial_alphabet=sorted(t.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _encode(tokenizer, texts: list[str]) -> np.ndarray:
    end = [tokenizer.token_to_id(END_OF_FILE)]
    parts = []
    for text in texts:  # one by one: a batch of all would hold every token's string and offsets in memory
        parts += [np.array(tokenizer.encode(text).ids, dtype=np.uint16), np.array(end, dtype=np.uint16)]
    return np.concatenate(parts)


def _write(path: Path, corpus: Corpus) -> None:
    """Write to a file beside it and move that into place: a file of this name is always whole."""
    meta = {
        "format": FORMAT,
        "settings": corpus.settings,
        "characters": corpus.characters,
        "checksum": corpus.checksum,
    }
    with whole(path) as file:
        np.savez_compressed(
            file,
            train=corpus.train.numpy().astype(np.uint16),
            validation=corpus.validation.numpy().astype(np.uint16),
            tokenizer=np.frombuffer(corpus.tokenizer.encode(), dtype=np.uint8),
            meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        )


def read(path: str | Path, settings: dict[str, object] | None = None) -> Corpus:
    """Read a cached corpus and check that it is whole, and made from ``settings`` where these are given.

    Raises:
        CorpusError: it is corrupt, or is not a corpus, or is one made from other settings.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    advice = "delete it, and it will be built again"
    try:
        # Opened here: numpy leaves a file that it cannot read open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            meta = json.loads(stored["meta"].tobytes())
            arrays = stored["train"], stored["validation"]
            tokenizer = stored["tokenizer"].tobytes().decode()
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CorpusError(f"{path} is not a whole cached corpus ({error}): {advice}") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CorpusError(f"{path} must be of format {FORMAT!r}, got another: {advice}")
    if settings is not None and meta["settings"] != settings:
        raise CorpusError(f"{path} must be made from {settings}, got {meta['settings']}: {advice}")
    corpus = _corpus(*arrays, tokenizer, meta["characters"], meta["settings"])
    if corpus.checksum != meta["checksum"]:
        raise CorpusError(f"{path} must have checksum {meta['checksum']}, got {corpus.checksum}: {advice}")
    return corpus
