"""A small matrix as a heat map, and recalled vectors split into signal and interference."""

from __future__ import annotations

import numpy as np
import pandas as pd

from . import style
from .figure import Figure, legend
from .inputs import check_domain, check_number, check_numbers, check_table, check_text, records, significant

_LARGEST = 64
# Blue through the paper's own colour to orange: the sign is told by hue, the size by contrast, in either theme.
_DIVERGING = [
    "var(--ms-d0, #134a8e)",
    "var(--ms-d1, #2f74bd)",
    "var(--ms-d2, #74a5d8)",
    "var(--ms-d3, #bfd6ee)",
    "var(--ms-d4, #f4f4f4)",
    "var(--ms-d5, #f5d3ae)",
    "var(--ms-d6, #e29a4f)",
    "var(--ms-d7, #b5651a)",
    "var(--ms-d8, #7a3d05)",
]


def matrix(
    values: object,
    *,
    description: str,
    row_title: str,
    column_title: str,
    domain: float | tuple[float, float] | None = None,
    max_width: int = 420,
) -> Figure:
    """Draw a matrix of up to 64 × 64 as a heat map, blue below zero, orange above.

    Parameters
    ----------
    values : array of float, shape (rows, columns)
    description : str
        What the picture shows, in words.
    row_title, column_title : str
        What a row and a column stand for.
    domain : float or (float, float), optional
        The colours span ±domain (a pair must be symmetric); default the largest absolute entry. Entries beyond are
        drawn in the last colour.
    max_width : int
        px; the picture is no wider.

    Returns
    -------
    Figure
        Its data has the columns ``row``, ``column`` (both from 1) and ``value``.

    Raises
    ------
    TypeError
        Entries that are not real numbers.
    ValueError
        Another shape, no entry, more than 64 rows or columns, NaN or infinity, a domain that is not symmetric.
    """
    check_text(row_title, "row_title")
    check_text(column_title, "column_title")
    v = np.asarray(values)
    if v.dtype.kind not in "fiu":
        raise TypeError(f"values must be real numbers, got an array of {v.dtype}")
    if v.ndim != 2 or not v.size or max(v.shape) > _LARGEST:
        raise ValueError(f"values must have the shape (rows, columns), both 1 ... {_LARGEST}, got {v.shape}")
    if not np.isfinite(v).all():
        raise ValueError(f"values must be finite, got {v[~np.isfinite(v)][0]} at {np.argwhere(~np.isfinite(v))[0]}")
    limit = _limit(domain, v)
    rows, columns = v.shape
    number = {"type": "quantitative", "axis": {"grid": False, "tickMinStep": 1, "format": "d", "tickCount": 6}}
    x = {**number, "title": column_title, "scale": {"domain": [0.5, columns + 0.5], "nice": False}}
    y = {**number, "title": row_title, "scale": {"domain": [0.5, rows + 0.5], "nice": False, "reverse": True}}
    side = max_width - 90
    return Figure(
        {
            "height": max(80, round(side * rows / columns)) if rows < columns else side,
            # A list of plain numbers, row after row: a tenth of the bytes of named cells.
            "data": {"values": [significant(float(e)) for e in v.ravel()]},
            "transform": [
                {"window": [{"op": "row_number", "as": "n"}]},
                {"calculate": f"floor((datum.n - 1) / {columns}) + 1", "as": "row"},
                {"calculate": f"(datum.n - 1) % {columns} + 1", "as": "column"},
                {"calculate": "datum.row - 0.5", "as": "top"},
                {"calculate": "datum.row + 0.5", "as": "bottom"},
                {"calculate": "datum.column - 0.5", "as": "left"},
                {"calculate": "datum.column + 0.5", "as": "right"},
            ],
            "mark": {"type": "rect", "stroke": None, "aria": False, "clip": True},
            "encoding": {
                "x": {"field": "left", **x},
                "x2": {"field": "right"},
                "y": {"field": "top", **y},
                "y2": {"field": "bottom"},
                "color": {
                    "field": "data",
                    "type": "quantitative",
                    "scale": {"type": "quantize", "domain": [-limit, limit], "range": _DIVERGING},
                },
                "tooltip": [
                    {"field": "row", "type": "quantitative", "title": row_title},
                    {"field": "column", "type": "quantitative", "title": column_title},
                    {"field": "data", "type": "quantitative", "title": "value", "format": ",.3~r"},
                ],
            },
        },
        data=pd.DataFrame(
            {
                "row": np.repeat(np.arange(1, rows + 1), columns),
                "column": np.tile(np.arange(1, columns + 1), rows),
                "value": v.ravel().astype(float),
            }
        ),
        description=description,
        legend=_color_key(limit),
        max_width=max_width,
    )


def _limit(domain: object, v: np.ndarray) -> float:
    if domain is None:
        return float(np.abs(v).max()) or 1.0
    if isinstance(domain, (tuple, list)):
        low, high = check_domain(domain, "domain", log=False)
        if low != -high:
            raise ValueError(f"domain must be symmetric about 0, as the colours are, got ({low:g}, {high:g})")
        return high
    limit = check_number(domain, "domain")
    if limit <= 0:
        raise ValueError(f"domain must be positive, got {limit:g}")
    return limit


def _color_key(limit: float) -> str:
    cells = "".join(f'<rect x="{i * 18}" width="18" height="12" fill="{c}"/>' for i, c in enumerate(_DIVERGING))
    end = style.number(limit, 2)
    return (
        '<div class="ms-legend" style="display:flex;align-items:center;gap:.5em;margin:0 0 .4em;font-size:.875em">'
        f"<span>−{end}</span>"
        f'<svg role="img" aria-label="colours from blue at −{end} through neutral at 0 to orange at {end}" width="162" '
        f'height="12" style="outline:1px solid {style.AXIS}">{cells}</svg><span>{end}</span></div>'
    )


def vectors(table: pd.DataFrame, *, description: str, height: int = 300) -> Figure:
    """Draw recalled vectors side by side, each as its signal (level) plus its interference (upright), to one scale.

    Parameters
    ----------
    table : DataFrame
        Columns ``label`` (such as "M = 64"), ``signal`` and ``interference`` (lengths in one unit). One to four rows.
    description : str
        What the picture shows, in words.

    Raises
    ------
    TypeError
        A table of another type, a column that is not numeric.
    ValueError
        Missing columns, no row or more than four, NaN, infinite or negative lengths, a signal of 0.
    """
    rows = check_table(table, "table", ["label", "signal", "interference"])
    if len(rows) > 4:
        raise ValueError(f"table must have at most 4 rows to fit side by side on a phone, got {len(rows)}")
    check_numbers(rows, "table", "signal", log=False)
    check_numbers(rows, "table", "interference")
    for column, least in (("signal", "positive"), ("interference", "not negative")):
        value = float(rows[column].min())
        if value < 0 or (value == 0 and column == "signal"):
            raise ValueError(f"table[{column!r}] must be {least}, as a length, got {value:g}")
    n, widest, tallest = len(rows), float(rows["signal"].max()), float(rows["interference"].max())
    drawn = rows.assign(i=range(n))
    floor = height - 52  # px from the top to the line all vectors start from; words go below
    unit = f"min(0.6 * width / {n * widest!r}, {(floor - 12) / max(tallest, 1e-9)!r})"  # px for a length of 1
    transform = [
        {"calculate": f"width * (datum.i + 0.14) / {n}", "as": "x0"},
        {"calculate": f"datum.x0 + {unit} * datum.signal", "as": "x1"},
        {"calculate": f"{floor} - {unit} * datum.interference", "as": "y1"},
        {"calculate": f"{floor}", "as": "y0"},
        {"calculate": "atan2(datum.y1 - datum.y0, datum.x1 - datum.x0) * 180 / PI", "as": "angle"},
        {
            "calculate": "[datum.label, 'ratio ' + format(datum.interference / datum.signal, ',.3r')]",
            "as": "words",
        },
    ]
    words = {"type": "text", "align": "left", "baseline": "top", "lineHeight": 17, "fontSize": 12.5, "aria": False}
    position = {c: {"field": f"{c}0", "type": "quantitative", "scale": None} for c in "xy"}
    return Figure(
        {
            "height": height,
            "data": {"values": records(drawn)},
            "transform": transform,
            "layer": [
                *_arrow(("x1", "y0"), ("x1", "y1"), style.OTHER, 3, "datum.interference > 0", "0"),
                *_arrow(("x0", "y0"), ("x1", "y1"), style.INK, 2, "true", "datum.angle + 90"),
                *_arrow(("x0", "y0"), ("x1", "y0"), style.TARGET, 4, "true", "90"),
                {"mark": {**words, "dy": 14}, "encoding": {**position, "text": {"field": "words"}}},
            ],
        },
        data=rows.assign(ratio=rows["interference"] / rows["signal"]),
        description=description,
        legend=_arrow_key(),
    )


def _arrow(start: tuple, end: tuple, color: str, width: float, when: str, angle: str) -> list[dict]:
    """A line and its head, in pixels; the head's tip lies on the end."""
    (xa, ya), (xb, yb) = start, end
    pixel = {"type": "quantitative", "scale": None}
    shown = [{"filter": when}]
    return [
        {
            "transform": shown,
            "mark": {"type": "rule", "stroke": color, "strokeWidth": width, "aria": False},
            "encoding": {
                "x": {"field": xa, **pixel},
                "y": {"field": ya, **pixel},
                "x2": {"field": xb},
                "y2": {"field": yb},
            },
        },
        {
            "transform": shown,
            "mark": {
                "type": "point",
                "shape": "M0,-0.2L0.9,1.9L0,1.5L-0.9,1.9Z",
                "filled": True,
                "fill": color,
                "size": 45 + 15 * width,
                "opacity": 1,
                "angle": {"expr": angle},
                "aria": False,
            },
            "encoding": {"x": {"field": xb, **pixel}, "y": {"field": yb, **pixel}},
        },
    ]


def _arrow_key() -> str:
    line = '<svg aria-hidden="true" width="26" height="12"><path d="M0,6H18" stroke="{c}" stroke-width="{w}"/>{h}</svg>'
    head = '<path d="M26,6L15,1.5L17,6L15,10.5Z" fill="{c}"/>'
    named = [
        (style.TARGET, 4, "signal"),
        (style.OTHER, 3, "interference"),
        (style.INK, 2, "recalled vector, their sum"),
    ]
    return legend([], extra=[(line.format(c=c, w=w, h=head.format(c=c)), text) for c, w, text in named])
