"""The one theme: who has which colour and shape, how axes read, how numbers are written.

Colours are CSS variables with a fallback, ``var(--ms-target, #d6201f)``. On the book's pages ``book.css``
defines the variables for light and dark, so a chart follows the theme without being drawn again. In a notebook
nobody defines them: the fallbacks are of middle lightness, at least 3 : 1 on white and on JupyterLab's black,
and text falls back to ``currentColor``, whatever the notebook writes with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from zlib import crc32

INK = "var(--ms-ink, currentColor)"
MUTED = "var(--ms-muted, currentColor)"
GRID = "var(--ms-grid, #80808040)"
AXIS = "var(--ms-axis, #808080)"
TARGET = "var(--ms-target, #d6201f)"
TARGET_TEXT = "var(--ms-target-text, currentColor)"
OTHER = "var(--ms-other, #7f8794)"
PAPER = "var(--ms-paper, transparent)"

# charts.js replaces this by the font of the page it finds itself on. It cannot be `inherit`: Vega measures text
# on a canvas, which does not know that word.
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

# Vega's own shapes, and a few more in its unit square (-1 ... 1) for the stores that a reader adds.
_PATHS = {
    "star": "M0,-1.1L0.3,-0.4L1.05,-0.34L0.48,0.15L0.65,0.89L0,0.5L-0.65,0.89L-0.48,0.15L-1.05,-0.34L-0.3,-0.4Z",
    "x": "M-0.9,-0.5L-0.5,-0.9L0,-0.4L0.5,-0.9L0.9,-0.5L0.4,0L0.9,0.5L0.5,0.9L0,0.4L-0.5,0.9L-0.9,0.5L-0.4,0Z",
    "hexagon": "M0,-1L0.87,-0.5L0.87,0.5L0,1L-0.87,0.5L-0.87,-0.5Z",
    "hourglass": "M-0.85,-0.85L0.85,-0.85L0.25,0L0.85,0.85L-0.85,0.85L-0.25,0Z",
    "pentagon": "M0,-1L0.95,-0.31L0.59,0.81L-0.59,0.81L-0.95,-0.31Z",
    "wedge": "M-0.9,-0.9L0.9,0L-0.9,0.9L-0.4,0Z",
    "circle": "M-0.85,0A0.85,0.85,0,1,1,0.85,0A0.85,0.85,0,1,1,-0.85,0Z",
    "square": "M-0.8,-0.8L0.8,-0.8L0.8,0.8L-0.8,0.8Z",
    "diamond": "M0,-1.1L0.8,0L0,1.1L-0.8,0Z",
    "triangle-up": "M0,-0.95L0.95,0.75L-0.95,0.75Z",
    "triangle-down": "M0,0.95L0.95,-0.75L-0.95,-0.75Z",
    "triangle-right": "M0.95,0L-0.75,0.95L-0.75,-0.95Z",
    "cross": "M-0.95,-0.32L-0.32,-0.32L-0.32,-0.95L0.32,-0.95L0.32,-0.32L0.95,-0.32L0.95,0.32L0.32,0.32L0.32,0.95"
    "L-0.32,0.95L-0.32,0.32L-0.95,0.32Z",
}


@dataclass(frozen=True)
class Style:
    """How one store looks, everywhere: ``color`` is a CSS colour, a variable with its fallback."""

    color: str
    shape_name: str

    @property
    def shape(self) -> str:
        """An SVG path in the square -1 ... 1, which both Vega and the HTML legend draw."""
        return _PATHS[self.shape_name]


STORE_STYLES: dict[str, Style] = {
    "outer product": Style("var(--ms-outer-product, #2e92ff)", "circle"),
    "least squares": Style("var(--ms-least-squares, #c88005)", "square"),
    "ridge": Style("var(--ms-ridge, #a18d5d)", "diamond"),
    "ReLU": Style("var(--ms-relu, #3d9890)", "triangle-up"),
    "ReLU²": Style("var(--ms-relu2, #8d4cc2)", "triangle-down"),
    "ReLU³": Style("var(--ms-relu3, #ee4dce)", "triangle-right"),
    "SwiGLU": Style("var(--ms-swiglu, #3a7144)", "cross"),
    "softmax": Style("var(--ms-softmax, #69707b)", "star"),
}

# What the aside on shifted keys compares, in hues of stores that it does not draw beside them.
OTHER_STYLES: dict[str, Style] = {
    "delta rule": Style(STORE_STYLES["ReLU"].color, "hourglass"),
    "gated delta rule": Style(STORE_STYLES["ReLU³"].color, "wedge"),
    "fading outer product": Style(STORE_STYLES["least squares"].color, "x"),
    "no shift": Style(STORE_STYLES["outer product"].color, "x"),
    "shifted keys": Style(STORE_STYLES["least squares"].color, "pentagon"),
    "Gated DeltaNet": Style(STORE_STYLES["outer product"].color, "hexagon"),
    "Gated DeltaNet, shifted keys": Style(STORE_STYLES["least squares"].color, "pentagon"),
    "transformer": STORE_STYLES["softmax"],
    "transformer, shifted keys": Style(STORE_STYLES["ReLU²"].color, "x"),
}

# For stores that are not the book's own. Shapes first: the colours of a fourteenth store cannot all be told apart.
_SPARE = [
    Style("var(--ms-spare-1, #4d7cc7)", "x"),
    Style("var(--ms-spare-2, #a8742c)", "hexagon"),
    Style("var(--ms-spare-3, #2f8f5b)", "hourglass"),
    Style("var(--ms-spare-4, #9a63b8)", "pentagon"),
    Style("var(--ms-spare-5, #64798a)", "wedge"),
]
#: What a control is called that changes one of the book's letters.
SYMBOLS = {"M": "stored memories M", "d": "key dimension d", "β": "sharpness β", "ρ": "common share ρ"}

_given: dict[str, Style] = {}


def known(label: str) -> bool:
    """Whether a label is one of the book's own."""
    return label in STORE_STYLES or label in OTHER_STYLES


def style_of(label: str) -> Style:
    """The style of a store, by its label.

    A label that is not one of the book's stores gets a spare style, chosen by the label itself, so that it looks
    the same on every page whatever else is drawn there. Only when that one is taken already (in this process)
    does it move on to the next free one.
    """
    if known(label):
        return STORE_STYLES.get(label) or OTHER_STYLES[label]
    if label not in _given:
        start = crc32(label.encode()) % len(_SPARE)
        order = _SPARE[start:] + _SPARE[:start]
        _given[label] = next((s for s in order if s not in _given.values()), order[0])
    return _given[label]


def icon(label: str, *, size: int = 14) -> str:
    """An inline SVG of a store's point, for legends in HTML; hidden from screen readers, which read the label."""
    style = style_of(label)
    return (
        f'<svg aria-hidden="true" width="{size}" height="{size}" viewBox="-1.2 -1.2 2.4 2.4">'
        f'<path d="{style.shape}" fill="{style.color}"/></svg>'
    )


def config() -> dict:
    """Vega-Lite's ``config`` for every chart: fonts of at least 11 px, no frame, quiet grid, ink that follows."""
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12.5,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": GRID,
            "gridOpacity": 1,
            "domainColor": AXIS,
            "tickColor": AXIS,
            "tickSize": 5,
            "labelPadding": 4,
            "labelOverlap": "greedy",
        },
        "text": {"fill": INK, "fontSize": 12},
        "legend": {"disable": True},  # legends are HTML: they wrap, and follow the page's font and theme
    }


def log_ticks(low: float, high: float, *, at_most: int = 7) -> list[float]:
    """Tick values between two positive numbers that people read: powers of two for counts, else 1, 2, 5 or decades.

    Powers of two are taken when both ends are integers ≥ 1, at least a factor of 4 apart and not powers of ten. Where
    fewer than two of these fall between the ends, as between 2.8 and 4.4, the ticks are evenly spaced round numbers.
    """
    powers_of_ten = all(math.isclose(math.log10(v), round(math.log10(v)), abs_tol=1e-9) for v in (low, high))
    if float(low).is_integer() and float(high).is_integer() and low >= 1 and high / low >= 4 and not powers_of_ten:
        first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
        step = next(s for s in (1, 2, 5, 10, 20) if (last - first) // s < at_most)
        return [2.0**k for k in range(first, last + 1) if k % step == 0]  # 64, 1,024, 1 million: not 2,048 or 524,288
    decades = math.log10(high / low)
    steps = [1, 2, 5] if decades <= 1.7 else [1, 3] if decades <= 3 else [1]
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, math.ceil(decades / (at_most - 1)))
    values = [s * 10.0**e for e in exponents[::every] for s in steps]
    inside = [float(f"{v:.12g}") for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
    return inside if len(inside) >= 2 else _even_ticks(low, high, at_most)


def _even_ticks(low: float, high: float, at_most: int) -> list[float]:
    """Evenly spaced round numbers between two that lie close together."""
    unit = 10.0 ** math.floor(math.log10((high - low) / at_most))
    step = next(s * unit for s in (1, 2, 5, 10, 20) if (high - low) / (s * unit) < at_most)
    return [float(f"{k * step:.12g}") for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


# 0.01, 16, 1,024, "1 million": written out, as long as that is shorter than counting zeros.
READABLE = (
    "abs(datum.value) >= 1e9 ? format(datum.value / 1e9, ',.2~r') + ' billion' : "
    "abs(datum.value) >= 1e6 ? format(datum.value / 1e6, ',.2~r') + ' million' : "
    "format(datum.value, ',.6~r')"
)


def number(value: float, digits: int = 3) -> str:
    """A number as the book writes it: ``number(1272264)`` is "1.27 million", ``number(0.0038471)`` is "0.00385"."""
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if abs(value) >= size:
            return f"{float(f'{value / size:.{digits}g}'):g}{word}"
    rounded = float(f"{value:.{digits}g}")
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:,.12f}".rstrip("0")


def with_interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A measurement and its interval with as many decimals as the interval deserves: "65.0", "64.6", "65.4"."""
    half = (high - low) / 2
    if half <= 0 or abs(value) >= 1e6:
        return number(value), number(low), number(high)
    decimals = max(0, -math.floor(math.log10(half)))
    return f"{value:,.{decimals}f}", f"{low:,.{decimals}f}", f"{high:,.{decimals}f}"


def number_expr(expression: str, digits: int = 3) -> str:
    """The same in Vega's expression language, for an expression whose value changes with a control."""
    e = f"({expression})"
    return (
        f"({e} >= 1e9 ? format({e} / 1e9, ',.{digits}~r') + ' billion' : "
        f"{e} >= 1e6 ? format({e} / 1e6, ',.{digits}~r') + ' million' : format({e}, ',.{digits}~r'))"
    )
