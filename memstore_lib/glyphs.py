"""Kanji as memories: real glyph images as values, and what stores recall of them.

::

    text     the kanji, one a memory, no repeats: row i of everything below is text[i]
    images   ink in [0, 1], (M, d_v) with d_v = size · size, row by row from the top left
    values   what is stored, (M, d_v): images without the mean glyph, each of length 1
    mean     the mean glyph, (d_v,)

Glyphs are drawn by Pillow from Noto Sans CJK, which the package ``noto-cjk-sans-jp-regular`` carries. Both are imported
when a glyph is first drawn, so that the rest of the library works without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks
from memstore_lib.stores import Store, empty_stores

#: The kanji that a reader can choose from, first of all kanji, with what they mean.
CHOSEN = {
    "記": "record",
    "憶": "remember",
    "忘": "forget",
    "鍵": "key",
    "値": "value",
    "問": "ask",
    "答": "answer",
    "夢": "dream",
}

# JIS X 0208: rows 16 to 47 hold the kanji in common use, by reading; rows 48 to 84 the others, by radical.
_ROWS, _CELLS = range(16, 85), range(1, 95)
_SMALLEST, _LARGEST = 8, 1024  # pixels; below, strokes run into each other; beyond, one glyph fills a screen
# Noto Sans CJK's em box, the square that a kanji fills, reaches this share of the font size above the baseline.
_ASCENT = 0.88
_ABSENT = "\U0010fffd"  # a private character: no font has it, so it is drawn as the font's sign for a missing glyph


@lru_cache(maxsize=1)
def _all_kanji() -> tuple[str, ...]:
    found = list(CHOSEN)
    for row in _ROWS:
        for cell in _CELLS:
            try:
                found.append(bytes([0xA0 + row, 0xA0 + cell]).decode("euc_jp"))
            except UnicodeDecodeError:  # the last row of each half is not full
                continue
    return tuple(dict.fromkeys(found))


def kanji(count: int = 2048) -> str:
    """Return distinct kanji in a fixed order: those of :data:`CHOSEN`, then JIS X 0208's in its own order.

    Args:
        count: how many, at least 1 and at most the 6,355 of the standard.

    Raises:
        ValueError: count out of range.
        TypeError: count not an integer.
    """
    count, known = _checks.integer("count", count), _all_kanji()
    if count > len(known):
        raise ValueError(f"count must be at most {len(known):,}, the kanji of JIS X 0208, got {count:,}")
    return "".join(known[:count])


def side(d_v: int) -> int:
    """Return the side of a square image of d_v pixels.

    Raises:
        ValueError: d_v below 1 or no square.
        TypeError: d_v not an integer.
    """
    d_v = _checks.integer("d_v", d_v)
    root = math.isqrt(d_v)
    if root * root != d_v:
        raise ValueError(
            f"d_v must be a square such as {root * root} = {root} · {root} to be seen as an image, got {d_v}"
        )
    return root


def needed(module: str, package: str) -> Any:
    """Import a module that only glyphs need, or say which package brings it.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"glyphs need the package {package}, which is not installed: pip install {package}", name=module
        ) from error


def _check_text(text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"text must be a string of kanji, got {type(text).__name__}")
    if not text:
        raise ValueError("text must hold at least one character, got an empty string")
    seen: set[str] = set()
    for place, character in enumerate(text):
        if not character.isprintable() or character.isspace():
            raise ValueError(f"text must hold characters that can be seen, got {character!r} at place {place}")
        if character in seen:
            raise ValueError(f"text must not repeat a character, got {character!r} again at place {place}")
        seen.add(character)
    return text


def images(text: str, size: int = 32) -> torch.Tensor:
    """Draw each character as a grey image, (M, size · size): 0 is paper, 1 is ink.

    Args:
        text: characters, no repeats.
        size: pixels along each side, from 8 to 1,024.

    Raises:
        ValueError: an empty text, a repeated or invisible character, one that the font lacks, two that look the same
            at this size, a size out of range, or more pixels in all than memory holds.
        TypeError: text not a string, size not an integer.
        ImportError: Pillow or the font's package is not installed.
    """
    size = _checks.integer("size", size, minimum=_SMALLEST, maximum=_LARGEST)
    _checks.size(characters=len(_check_text(text)), size=size, pixels=size)
    return _images(text, size).clone()


@lru_cache(maxsize=2)
def _images(text: str, size: int) -> torch.Tensor:
    needed("PIL", "pillow")
    image, image_draw, image_font = (import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont"))
    path = needed("noto_cjk_sans_jp_regular", "noto-cjk-sans-jp-regular").FONT_PATH
    # The basic layout engine is part of every Pillow; another one could place glyphs a pixel further.
    font = image_font.truetype(str(path), size=size, layout_engine=image_font.Layout.BASIC)

    def drawn(character: str) -> bytes:
        paper = image.new("L", (size, size))
        image_draw.Draw(paper).text((0, _ASCENT * size), character, fill=255, font=font, anchor="ls")
        return paper.tobytes()

    absent, by_picture = drawn(_ABSENT), {}
    for character in text:
        picture = drawn(character)
        if picture == absent:
            raise ValueError(
                f"text must hold characters that the font {path.name} has, got {character!r} (U+{ord(character):04X})"
            )
        if not any(picture):
            raise ValueError(f"text must hold characters that can be seen, got {character!r} (U+{ord(character):04X})")
        other = by_picture.setdefault(picture, character)
        if other != character:
            raise ValueError(f"text must hold glyphs that differ at size = {size}, got {other!r} and {character!r}")
    ink = np.frombuffer(b"".join(by_picture), dtype=np.uint8).reshape(len(text), size * size)
    return torch.from_numpy(ink.astype(np.float32) / 255)


class Glyphs:
    """Characters as values: images without their mean glyph, each of length 1.

    Attributes:
        text: the characters, one a memory.
        values: (M, d_v), rows of length 1, float32 on the CPU.
        mean: the mean glyph, (d_v,); zero where it was left in.
        length: the mean length of an image once the mean glyph is removed; what :meth:`pictures` stretches to.
        share: the share of the values' energy that all have in common, in [0, 1]; nearly 0 without the mean glyph.

    Args:
        text: characters, no repeats.
        size: pixels along each side, so that d_v = size².
        remove_mean: False leaves the mean glyph in, which breaks what the yardstick assumes of values.

    Raises:
        ValueError, TypeError, ImportError: as :func:`images`; and a single character without its mean is nothing.
    """

    def __init__(self, text: str, size: int = 32, *, remove_mean: bool = True) -> None:
        ink = images(text, size)
        if remove_mean and len(text) < 2:
            raise ValueError(f"text must hold at least 2 characters for a mean glyph to remove, got {text!r}")
        self.text = text
        self.mean = ink.mean(0) if remove_mean else torch.zeros(ink.shape[1])
        rest = ink - self.mean
        lengths = rest.norm(dim=1, keepdim=True)
        self.length = lengths.mean().item()
        self.values = rest / lengths
        self.share = self.values.mean(0).square().sum().item()

    def __len__(self) -> int:
        """The number of characters, M."""
        return len(self.text)

    def pictures(self, recalled: torch.Tensor) -> torch.Tensor:
        """Return recalled values as images, (n, size, size), ink in [0, 1].

        A recall is stretched to the length of a stored image, the mean glyph is put back, and what lies beyond paper
        or ink is cut. Every recall is treated alike, so no store is flattered, and only its direction is seen.

        Args:
            recalled: (n, d_v).

        Raises:
            ValueError: another shape, not finite, a d_v that is no square or not that of these glyphs.
            TypeError: not a floating-point tensor.
        """
        recalled = _checks.matrix("recalled", recalled, "(n, d_v)")
        size = side(recalled.shape[1])
        if recalled.shape[1] != len(self.mean):
            raise ValueError(
                f"recalled must have d_v = {len(self.mean)} columns like these glyphs, got {tuple(recalled.shape)}"
            )
        rows = recalled.cpu()
        top = rows.abs().amax(1, keepdim=True).double()
        far = (top > 0) & ((top < 1e-15) | (top > 1e15))  # its square would not fit float32; only its direction counts
        rows = torch.where(far, rows / torch.where(far, top, 1.0), rows).to(self.mean.dtype)
        lengths = rows.norm(dim=1, keepdim=True)
        direction = rows / torch.where(lengths > 0, lengths, torch.ones_like(lengths))  # nothing recalled: the mean
        return (self.mean + self.length * direction).clamp(0, 1).reshape(-1, size, size)


@dataclass(frozen=True)
class Recalls:
    """Characters recalled from several stores at several M, as numbers and as images.

    Attributes:
        table: a row for each recall: kanji, store, M, ratio (interference over signal, from the recalled vectors) and
            cosine (of the recall with the true value).
        pictures: ink in [0, 1], (kanji, store, M, size, size), in the order of the table.
        truth: the stored images of the same kanji, (kanji, size, size).
    """

    table: pd.DataFrame
    pictures: np.ndarray
    truth: np.ndarray


def recall(
    stores: Store | Sequence[Store],
    keys: torch.Tensor,
    glyphs: Glyphs,
    grid: Iterable[int],
    targets: Iterable[str] = tuple(CHOSEN),
) -> Recalls:
    """Recall characters from stores that hold the first M of them, for each M of a grid.

    Args:
        stores: empty stores with different names.
        keys: (N, d_k); key i answers with character i.
        glyphs: the characters, at least as many as the largest M.
        grid: increasing numbers of memories.
        targets: which characters to ask for, all among the first that are stored.

    Returns:
        :class:`Recalls`.

    Raises:
        ValueError: an empty or unsorted grid, one that asks for more kanji or keys than there are, a target that is
            not stored at the smallest M, no or a repeated target; keys or stores that a store refuses.
        TypeError: arguments of another type.
    """
    stores, grid = empty_stores(stores), _checks.grid(grid)
    keys = _checks.matrix("keys", keys, "(N, d_k)")
    if not isinstance(glyphs, Glyphs):
        raise TypeError(f"glyphs must be Glyphs, got {type(glyphs).__name__}")
    for name, have in (("glyphs", len(glyphs)), ("keys", len(keys))):
        if grid[-1] > have:
            raise ValueError(f"grid must not go beyond the {have:,} {name}, got M = {grid[-1]:,}")
    asked = _places(targets, glyphs.text[: grid[0]])
    q, values = keys[list(asked.values())], glyphs.values.to(keys.device, keys.dtype)
    true = values[list(asked.values())]
    rows, seen = [], np.empty((len(asked), len(stores), len(grid), *glyphs.pictures(true[:1]).shape[1:]), np.float32)
    for s, empty in enumerate(stores):
        for m, M in enumerate(grid):
            store = empty.fresh().write(keys[:M], values[:M])
            found = store.recall(q)
            weight = store.weights(q)[torch.arange(len(q)), list(asked.values())]
            signal = weight[:, None] * true
            ratio = (found - signal).norm(dim=1) / signal.norm(dim=1)
            cosine = torch.nn.functional.cosine_similarity(found, true)
            seen[:, s, m] = glyphs.pictures(found).numpy()
            rows += [(k, s, m, *pair) for k, pair in enumerate(zip(ratio.tolist(), cosine.tolist(), strict=True))]
    table = pd.DataFrame(sorted(rows), columns=["kanji", "store", "M", "ratio", "cosine"])
    for column, names in (("kanji", list(asked)), ("store", [store.name for store in stores]), ("M", grid)):
        table[column] = [names[at] for at in table[column]]
    return Recalls(table, seen, glyphs.pictures(true).numpy())


def _places(targets: Iterable[str], stored: str) -> dict[str, int]:
    targets = list(targets)
    if not targets:
        raise ValueError("targets must hold at least one character, got none")
    if len(set(targets)) < len(targets):
        raise ValueError(f"targets must not repeat a character, got {''.join(map(str, targets))!r}")
    for target in targets:
        if not isinstance(target, str) or len(target) != 1 or target not in stored:
            raise ValueError(
                f"targets must be among the {len(stored)} characters stored at the smallest M, got {target!r}"
            )
    return {target: stored.index(target) for target in targets}
