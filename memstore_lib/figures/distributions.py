"""Rows of measured values, and distributions as bars that the caller has already counted."""

from __future__ import annotations

from html import escape

import pandas as pd

from . import style
from .curves import KINDS, _axis
from .figure import Figure, legend
from .inputs import check_choices, check_intervals, check_numbers, check_table, check_text, records

_ROW = 52  # px a category of `dots` takes: its label, and the line under it


def dots(
    table: pd.DataFrame,
    *,
    description: str,
    x_title: str,
    log: bool = True,
    interval: str = "95 % interval",
) -> Figure:
    """Draw a value per category: dot with interval measured, stroke up the exact law, dashed stroke down the rule.

    Parameters
    ----------
    table : DataFrame
        Columns ``label`` (the category; a store's label takes its colour and shape), ``kind`` ("measured", "law" or
        "rule"), ``value``, ``low``, ``high`` in the unit of ``x_title``, NaN both for no interval. Categories keep
        the order of the table.
    description : str
        What the picture shows, in words.
    log : bool
        A logarithmic axis; every number must then be positive.

    Raises
    ------
    TypeError, ValueError
        As for ``curves``; also two rows of one kind for a label.
    """
    check_text(x_title, "x_title")
    rows = check_table(table, "table", ["label", "kind", "value", "low", "high"])
    check_choices(rows, "table", "kind", KINDS)
    check_numbers(rows, "table", "value", log=log)
    check_intervals(rows, "table", log=log)
    twice = rows[rows.duplicated(["label", "kind"])]
    if len(twice):
        raise ValueError(f"table has more than one {twice.iloc[0]['kind']!r} row for {twice.iloc[0]['label']!r}")
    rows = rows.assign(label=rows["label"].astype(str))
    labels = list(dict.fromkeys(rows["label"]))
    every = pd.concat([rows["value"], rows["low"].dropna(), rows["high"].dropna()])
    scale = _axis(every, log, padding=14)
    drawn = rows.assign(y=[_ROW * labels.index(v) + 36 for v in rows["label"]])
    x = {"field": "value", "type": "quantitative", "title": x_title, **scale}
    y = {"field": "y", "type": "quantitative", "scale": None}
    known = [style.style_of(v) if style.known(v) else None for v in labels]
    look = {
        "color": [s.color if s else style.INK for s in known],
        "shape": [s.shape if s else "circle" for s in known],
    }
    color, shape = (
        {"field": "label", "type": "nominal", "scale": {"domain": labels, "range": look[c]}} for c in ("color", "shape")
    )
    tooltip = [
        {"field": "label", "type": "nominal", "title": "of"},
        {"field": "value", "type": "quantitative", "format": ",.3~r", "title": x_title},
    ]
    with_intervals = bool((rows["low"].notna() & (rows["kind"] == "measured")).any())
    intervals = {
        "transform": [{"filter": "datum.kind === 'measured' && isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2.5, "aria": False},
        "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": color},
    }
    point = {"type": "point", "filled": True, "size": 130, "opacity": 1, "stroke": style.PAPER, "aria": False}
    points = {
        "transform": [{"filter": "datum.kind === 'measured'"}],
        "mark": point,
        "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip},
    }
    strokes = [_stroke("law", [1, 0], -16, x, y), _stroke("rule", [4, 2], 16, x, y)]
    return Figure(
        {
            "height": _ROW * len(labels) + 6,
            "data": {"values": records(drawn)},
            "layer": [_names(labels), *strokes, *([intervals] if with_intervals else []), points],
        },
        data=rows.drop(columns=[] if with_intervals else ["low", "high"]),
        description=description,
        legend=legend([], list(rows["kind"]), upright=True, interval=interval if with_intervals else ""),
    )


def _names(labels: list[str]) -> dict:
    """Category names above their lines instead of beside them: on a phone the picture keeps its width."""
    words = {"type": "text", "align": "left", "baseline": "top", "x": 0, "fontWeight": 600, "aria": False}
    return {
        "data": {"values": [{"label": v, "y": _ROW * i + 6, "line": _ROW * i + 36} for i, v in enumerate(labels)]},
        "layer": [
            {
                "mark": {"type": "rule", "stroke": style.GRID, "x": 0, "x2": {"expr": "width"}, "aria": False},
                "encoding": {"y": {"field": "line", "type": "quantitative", "scale": None}},
            },
            {
                "mark": words,
                "encoding": {
                    "text": {"field": "label"},
                    "y": {"field": "y", "type": "quantitative", "scale": None},
                },
            },
        ],
    }


def _stroke(kind: str, dash: list[int], length: int, x: dict, y: dict) -> dict:
    """A stroke up from the line for the law, down for the rule: both stay in sight where they agree."""
    return {
        "transform": [
            {"filter": f"datum.kind === '{kind}'"},
            {"calculate": f"datum.y + {length}", "as": "tip"},
        ],
        "mark": {"type": "rule", "stroke": style.INK, "strokeWidth": 2, "strokeDash": dash, "aria": False},
        "encoding": {"x": x, "y": y, "y2": {"field": "tip"}},
    }


def histogram(
    table: pd.DataFrame,
    *,
    description: str,
    x_title: str,
    y_title: str = "density",
    law: pd.DataFrame | None = None,
    height: int = 260,
) -> Figure:
    """Draw one to three counted distributions over each other, the first filled, the others outlined; laws as lines.

    Parameters
    ----------
    table : DataFrame
        Columns ``series`` (label), ``left``, ``right`` (edges of a bin, in the unit of ``x_title``), ``density``.
    description : str
        What the picture shows, in words.
    law : DataFrame, optional
        Columns ``series``, ``x``, ``density``: exact densities.

    Raises
    ------
    TypeError
        A table of another type, a column that is not numeric.
    ValueError
        Missing columns, no rows, NaN or infinite values, a negative density, a bin whose left edge is not below its
        right, more than three series, a law of an unknown series.
    """
    check_text(x_title, "x_title")
    rows = check_table(table, "table", ["series", "left", "right", "density"])
    series = list(dict.fromkeys(rows["series"].astype(str)))
    if len(series) > 3:
        raise ValueError(f"table['series'] must name at most 3 series to be told apart, got {series}")
    for column in ("left", "right", "density"):
        check_numbers(rows, "table", column)
    if (rows["left"] >= rows["right"]).any():
        row = int((rows["left"] >= rows["right"]).to_numpy().argmax())
        raise ValueError(f"table['left'] must be below table['right'], got {rows.loc[row].to_dict()} in row {row}")
    if (rows["density"] < 0).any():
        raise ValueError(f"table['density'] must not be negative, got {rows['density'].min():g}")
    curve = _check_law(law, series)
    ends = pd.concat([rows["left"], rows["right"]])
    x = {"type": "quantitative", "title": x_title, **_axis(ends, False)}
    top = max(rows["density"].max(), curve["density"].max() if len(curve) else 0)
    y = {
        "type": "quantitative",
        "title": y_title,
        "scale": {"domain": [0, float(top) * 1.05]},
        "axis": {"tickCount": 4},
    }
    colors = [style.style_of(s).color if style.known(s) else _SERIES[i] for i, s in enumerate(series)]
    layers = [
        layer
        for i, s in enumerate(series)
        for layer in _bars(rows[rows["series"].astype(str) == s], colors[i], i, x, y)
    ]
    if len(curve):
        layers.append(
            {
                "data": {"values": records(curve)},
                "mark": {"type": "line", "stroke": style.INK, "strokeWidth": 1.75, "clip": True, "aria": False},
                "encoding": {
                    "x": {"field": "x", **x},
                    "y": {"field": "density", **y},
                    "detail": {"field": "series", "type": "nominal"},
                },
            }
        )
    return Figure(
        {"height": height, "layer": layers},
        data=rows,
        description=description,
        legend=_legend(series, colors, bool(len(curve))),
    )


_SERIES = ["var(--ms-other, #7f8794)", "var(--ms-outer-product, #2e92ff)", "var(--ms-least-squares, #c88005)"]


def _check_law(law: pd.DataFrame | None, series: list[str]) -> pd.DataFrame:
    if law is None:
        return pd.DataFrame(columns=["series", "x", "density"])
    curve = check_table(law, "law", ["series", "x", "density"])
    check_choices(curve, "law", "series", series)
    for column in ("x", "density"):
        check_numbers(curve, "law", column)
    return curve


def _bars(rows: pd.DataFrame, color: str, index: int, x: dict, y: dict) -> list[dict]:
    """One distribution: filled bars for the first, a stepped outline for the others."""
    if index == 0:
        bars = {"type": "rect", "fill": color, "fillOpacity": 0.9, "aria": False}
        encoding = {
            "x": {"field": "left", **x},
            "x2": {"field": "right"},
            "y": {"field": "density", **y},
            "y2": {"datum": 0},
        }
        return [{"data": {"values": records(rows[["left", "right", "density"]])}, "mark": bars, "encoding": encoding}]
    rows = rows.sort_values("left")
    ends = [(rows["left"].iloc[0], 0.0)]
    for left, right, density in zip(rows["left"], rows["right"], rows["density"], strict=True):
        ends += [(left, density), (right, density)]
    outline = pd.DataFrame([*ends, (rows["right"].iloc[-1], 0.0)], columns=["edge", "density"])
    line = {"type": "line", "stroke": color, "strokeWidth": 2.25, "strokeDash": _dash(index), "aria": False}
    encoding = {"x": {"field": "edge", **x}, "y": {"field": "density", **y}}
    order = outline.assign(order=range(len(outline)))
    return [
        {
            "data": {"values": records(order)},
            "mark": line,
            "encoding": {**encoding, "order": {"field": "order", "type": "quantitative"}},
        }
    ]


def _dash(index: int) -> list[int]:
    return [1, 0] if index == 1 else [6, 2]


def _legend(series: list[str], colors: list[str], law: bool) -> str:
    pictures = []
    for i, color in enumerate(colors):
        if i == 0:
            shape = f'<rect x="1" y="1" width="20" height="10" fill="{color}" fill-opacity=".9"/>'
        else:
            dash = ",".join(map(str, _dash(i)))
            shape = (
                f'<path d="M1,11V2H21V11" fill="none" stroke="{color}" stroke-width="2.25" stroke-dasharray="{dash}"/>'
            )
        pictures.append(f'<svg aria-hidden="true" width="22" height="12">{shape}</svg>')
    named = list(zip(pictures, map(escape, series), strict=True))
    return legend([], ["law"] if law else [], extra=named)
