"""Pictures that stores recall, side by side: the true one first, then one for each store, as M grows."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Mapping
from html import escape
from importlib import resources

import numpy as np

from memstore_lib.glyphs import CHOSEN, Recalls, needed

from . import style
from .figure import Figure
from .inputs import check_numbers, check_table, check_text

#: How the pictures' captions call a store, where that is not its name.
LABELS = {"ReLU": "ReLU MLP", "ReLU²": "gated MLP", "SwiGLU": "gated MLP", "softmax": "attention"}

_GREYS = 16
_figures = itertools.count(1)


def glyph_recalls(
    recalls: Recalls,
    *,
    description: str,
    M: int | None = None,
    meanings: Mapping[str, str] = CHOSEN,
    data_note: str = "",
) -> Figure:
    """Draw recalled glyphs side by side, with a slider for M, a button that plays through M, and a choice of kanji.

    Under each picture stand the ratio of interference to signal, with ✓ below 1 and ✗ else, and the cosine to the true
    glyph. Pictures are shown as :class:`memstore_lib.glyphs.Recalls` brings them, in 16 greys. Without JavaScript, and
    in print, the figure shows its state at rest.

    Parameters
    ----------
    recalls : Recalls
        What :func:`memstore_lib.glyphs.recall` returns; a choice of kanji is offered where there is more than one.
    description : str
        What the picture shows, in words.
    M : int, optional
        The number of memories at rest, one of those in ``recalls``; default the largest.
    meanings : mapping of kanji to a word
        Written under a kanji in the choice; a kanji that is not in it stands alone.
    data_note : str
        Said beside the number of rows of data.

    Raises
    ------
    TypeError
        ``recalls`` or ``description`` of another type.
    ValueError
        An empty description; a table that lacks a column or a row, or holds NaN; pictures of another shape, not square
        or outside [0, 1]; an M that was not recalled.
    ImportError
        Pillow is not installed.
    """
    if not isinstance(recalls, Recalls):
        raise TypeError(f"recalls must be glyphs.Recalls, got {type(recalls).__name__}")
    return GlyphFigure(recalls, check_text(description, "description").strip(), M, meanings, data_note)


class GlyphFigure(Figure):
    """What :func:`glyph_recalls` returns: HTML with its own pictures and script, which need nothing from elsewhere."""

    def __init__(
        self, recalls: Recalls, description: str, M: int | None, meanings: Mapping[str, str], data_note: str
    ) -> None:
        self.description, self._data_note = description, data_note
        self.data = check_table(recalls.table, "recalls.table", ["kanji", "store", "M", "ratio", "cosine"])
        for column in ("ratio", "cosine"):
            check_numbers(self.data, "recalls.table", column)
        self._kanji, self._stores, self._grid = ([*dict.fromkeys(self.data[c])] for c in ("kanji", "store", "M"))
        self._pictures, self._truth = _check_pictures(recalls, len(self._kanji), len(self._stores), len(self._grid))
        self._at = len(self._grid) - 1 if M is None else self._place(M)
        self._meanings = {k: meanings.get(k, "") for k in self._kanji}
        self._names = [LABELS.get(store, store) for store in self._stores]
        self._id = f"ms-glyphs-{next(_figures)}"

    def _place(self, M: int) -> int:
        if M not in self._grid:
            raise ValueError(f"M must be one of {[int(m) for m in self._grid]}, got {M!r}")
        return self._grid.index(M)

    def _numbers(self) -> list:
        """For each store, kanji and M: ratio and cosine as they are written, and whether recall succeeds."""
        written = [
            [_ratio(ratio), f"{cosine:.3f}", int(ratio < 1)]
            for ratio, cosine in zip(self.data["ratio"], self.data["cosine"], strict=True)
        ]
        steps, stores = len(self._grid), len(self._stores)
        row = lambda k, s: written[(k * stores + s) * steps : (k * stores + s + 1) * steps]  # noqa: E731
        return [[row(k, s) for k in range(len(self._kanji))] for s in range(stores)]

    def html(self) -> str:
        """The figure as HTML, complete in itself."""
        numbers = self._numbers()
        size = self._truth.shape[1]
        facts = {
            "size": size,
            "M": [f"{m:,}" for m in self._grid],
            "kanji": self._kanji,
            "names": self._names,
            "numbers": numbers,
        }
        own = resources.files(__package__)
        files = {kind: own.joinpath(f"glyphs.{kind}").read_text(encoding="utf8") for kind in ("css", "js")}
        truth = _sprite(self._truth[:, None])
        pictures = [self._true(truth)]
        for s, (store, name) in enumerate(zip(self._stores, self._names, strict=True)):
            pictures.append(self._recalled(_sprite(self._pictures[:, s]), store, name, numbers[s][0][self._at]))
        return (
            f'<div class="ms-figure ms-glyphs" id="{self._id}"><style>{files["css"]}</style>{self._controls()}'
            f'<div class="ms-chart"><div class="ms-pictures" role="graphics-document" '
            f'aria-label="{escape(self.description, quote=True)}">{"".join(pictures)}</div></div>'
            '<p class="ms-live ms-hide" aria-live="polite"></p>'
            "<noscript>Other M and other kanji need JavaScript; their numbers are here without.</noscript>"
            f'{self._details()}<script type="application/json">{_json(facts)}</script>'
            f"<script>{files['js']}</script></div>"
        )

    def _controls(self) -> str:
        """Hidden until the script is there to answer them."""
        choice = ""
        if len(self._kanji) > 1:
            labels = "".join(map(self._option, range(len(self._kanji))))
            choice = f'<fieldset class="ms-choice"><legend>kanji</legend>{labels}</fieldset>'
        last, at = len(self._grid) - 1, self._at
        return (
            f'<div class="ms-controls" hidden>{choice}<div class="ms-range"><label><span>stored memories M</span>'
            f'<input type="range" min="0" max="{last}" step="1" value="{at}" aria-valuetext="{self._grid[at]:,}">'
            f"<output>{self._grid[at]:,}</output></label></div>"
            '<button type="button" class="ms-play">Play</button></div>'
        )

    def _option(self, k: int) -> str:
        kanji, meaning = (escape(text) for text in (self._kanji[k], self._meanings[self._kanji[k]]))
        checked = " checked" * (k == 0)
        drawn = _window(_sprite(self._truth[k : k + 1, None]), self._truth.shape[1], (1, 1), 0, 0)
        return (
            f'<label><input type="radio" name="{self._id}" value="{k}"{checked}><svg aria-hidden="true" '
            f'viewBox="0 0 1 1">{drawn}</svg><span class="ms-hide" lang="ja">{kanji}</span>{meaning}</label>'
        )

    def _true(self, truth: str) -> str:
        drawn = _window(truth, self._truth.shape[1], (len(self._kanji), 1), 0, 0)
        label = f"{self._kanji[0]}, as it was stored"
        return f'<div class="ms-picture ms-true">{_picture(drawn, label)}<p class="ms-words"><b>stored</b></p></div>'

    def _recalled(self, sprite: str, store: str, name: str, numbers: list) -> str:
        ratio, cosine, good = numbers
        drawn = _window(sprite, self._truth.shape[1], (len(self._kanji), len(self._grid)), 0, self._at)
        label = (
            f"{self._kanji[0]} recalled from {name} with M = {self._grid[self._at]:,}: ratio {ratio}, cosine {cosine}"
        )
        return (
            f'<div class="ms-picture">{_picture(drawn, label)}<p class="ms-words">'
            f"<b>{style.icon(store)}{escape(name)}</b>"
            f'<span>ratio <span class="ms-ratio" style="display:inline">{ratio}</span> '
            f'<span class="ms-mark" style="display:inline" aria-hidden="true">{"✓" if good else "✗"}</span></span>'
            f'<span>cosine <span class="ms-cosine" style="display:inline">{cosine}</span></span></p></div>'
        )


def _ratio(ratio: float) -> str:
    """A ratio with two digits, or more above 100: "5.6", "0.90", "0.037"."""
    decimals = 0 if ratio >= 10 else 1 if ratio >= 1 else 2 if ratio >= 0.1 else 3 if ratio >= 0.01 else 4
    return f"{ratio:,.{decimals}f}"


def _check_pictures(recalls: Recalls, kanji: int, stores: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    pictures, truth = np.asarray(recalls.pictures), np.asarray(recalls.truth)
    if len(recalls.table) != kanji * stores * steps:
        raise ValueError(
            f"recalls.table must hold {kanji} kanji × {stores} stores × {steps} M, got {len(recalls.table)} rows"
        )
    for name, array, shape in (("pictures", pictures, (kanji, stores, steps)), ("truth", truth, (kanji,))):
        *outer, high, wide = array.shape if array.ndim > 2 else (*array.shape, 0, 0)
        if tuple(outer) != shape or high != wide or not high:
            expected = ", ".join(map(str, (*shape, "size", "size")))
            raise ValueError(f"recalls.{name} must have the shape ({expected}), got {array.shape}")
        if not ((array >= 0) & (array <= 1)).all():
            raise ValueError(f"recalls.{name} must be ink in [0, 1], got {array.min():g} to {array.max():g}")
    if pictures.shape[-1] != truth.shape[-1]:
        raise ValueError(f"recalls.pictures and truth must have one size, got {pictures.shape} and {truth.shape}")
    return pictures, truth


def _sprite(pictures: np.ndarray) -> str:
    """Pictures (rows, columns, size, size) as one PNG of 16 inks on transparent paper, in a data address."""
    needed("PIL", "pillow")
    from PIL import Image

    rows, columns, size, _ = pictures.shape
    whole = pictures.transpose(0, 2, 1, 3).reshape(rows * size, columns * size)
    inks = np.round(whole * (_GREYS - 1)).astype(np.uint8)
    image = Image.fromarray(inks)
    image.putpalette([0] * 3 * _GREYS)
    alpha = bytes(round(255 * k / (_GREYS - 1)) for k in range(_GREYS))
    out = io.BytesIO()
    image.save(out, "png", bits=4, transparency=alpha, optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def _window(sprite: str, size: int, shape: tuple[int, int], row: int, column: int) -> str:
    """One picture of a sprite: an SVG that shows a part of it, which the script moves."""
    rows, columns = shape
    return (
        f'<svg class="ms-window" width="1" height="1" viewBox="{column * size} {row * size} {size} {size}">'
        f'<image href="{sprite}" width="{columns * size}" height="{rows * size}"/></svg>'
    )


def _picture(drawn: str, label: str) -> str:
    return (
        f'<svg class="marks" viewBox="-0.02 -0.02 1.04 1.04" role="img" aria-label="{escape(label, quote=True)}">'
        '<g class="mark-image role-mark"><rect class="ms-paper" width="1" height="1" stroke-width="0.015"/>'
        f"{drawn}</g></svg>"
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
