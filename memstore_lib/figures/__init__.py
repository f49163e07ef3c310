"""Chart forms of the book: tidy tables in, accessible interactive figures out. Nothing is computed here."""

from .curves import curves
from .distributions import dots, histogram
from .figure import Figure
from .glyphs import glyph_recalls
from .guess import guess
from .linear_algebra import matrix, vectors
from .recall import recall_bars
from .style import style_of

__all__ = [
    "Figure",
    "curves",
    "dots",
    "glyph_recalls",
    "guess",
    "histogram",
    "matrix",
    "recall_bars",
    "style_of",
    "vectors",
]
