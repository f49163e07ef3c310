"""Curves: one quantity against another for several stores, measured and by law, optionally under a slider."""

from __future__ import annotations

import math

import pandas as pd

from . import style
from .figure import RULE, Figure, legend
from .inputs import (
    check_choices,
    check_intervals,
    check_number,
    check_numbers,
    check_table,
    check_text,
    quoted,
    records,
    significant,
)

KINDS = ["measured", "law", "rule"]
_NAMES = 5  # hollow points on a line along which nothing was measured
SIGNAL_LEVEL = "interference as loud as the signal"


def curves(
    table: pd.DataFrame,
    *,
    description: str,
    x: str = "M",
    x_title: str = "stored memories M",
    y_title: str = "interference ÷ signal",
    log_x: bool = True,
    log_y: bool = True,
    signal_line: bool = True,
    slider: str | None = None,
    start: float | None = None,
    floor: float | None = None,
    interval: str = "95 % interval",
    law: str = "exact law",
    rule: str = RULE,
    height: int = 320,
) -> Figure:
    """Draw ``value`` against a column for each store: dots measured, solid lines exact laws, dashed rules of thumb.

    A store of which nothing was measured has its shape, hollow, along its line, so that no store is told by colour
    alone.

    Parameters
    ----------
    table : DataFrame
        Columns ``store`` (label), the one named by ``x`` (in the unit of ``x_title``), ``kind`` ("measured", "law"
        or "rule"), ``value``, ``low``, ``high`` (the interval, in the unit of ``y_title``; NaN both for none).
    description : str
        What the picture shows, in words.
    log_x, log_y : bool
        Logarithmic axes; every drawn number must then be positive.
    signal_line : bool
        Draw the horizontal rule at 1.
    slider : str, optional
        A further numeric column; a slider steps through its distinct values. Rows with NaN there stay always.
        The axes do not move.
    start : float, optional
        The slider's value at rest, one of the column's; default its largest.
    floor : float, optional
        Values below it, zeros included, are drawn on the lower edge, whose tick then says "≤ floor". This is how a
        store without interference gets onto a log axis.
    law, rule : str
        What solid and dashed lines are, where they are not the exact law and the source's rule of thumb.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError
        ``table`` is no DataFrame, or a column is not numeric.
    ValueError
        Missing columns, no rows, an unknown kind, NaN or infinite values, half intervals or ones that miss their
        value, values ≤ 0 on a log axis, an unknown ``start``.
    """
    for text, name in ((x, "x"), (x_title, "x_title"), (y_title, "y_title")):
        check_text(text, name)
    extra = [slider] if slider else []
    rows = check_table(table, "table", ["store", x, "kind", *extra, "value", "low", "high"])
    check_choices(rows, "table", "kind", KINDS)
    check_numbers(rows, "table", x, log=log_x)
    if floor is not None:
        floor = check_number(floor, "floor", positive=log_y)
    check_numbers(rows, "table", "value", log=log_y and floor is None)
    check_intervals(rows, "table", log=log_y and floor is None)
    rows = rows.assign(store=rows["store"].astype(str))
    drawn = rows.assign(named=_names_its_line(rows, x, slider))
    if floor is not None:
        drawn[["value", "low", "high"]] = drawn[["value", "low", "high"]].clip(lower=floor)

    params, controls, show = _stepper(rows, slider, start)
    stores = list(dict.fromkeys(rows["store"]))
    kinds = set(rows["kind"])
    with_intervals = bool((rows["low"].notna() & (rows["kind"] == "measured")).any())
    names = {x: "x", **({slider: "at"} if slider else {})}
    encoding = {
        "x": {"field": "x", "type": "quantitative", "title": x_title, **_axis(drawn[x], log_x, padding=12)},
        "color": {
            "field": "store",
            "type": "nominal",
            "scale": {"domain": stores, "range": [style.style_of(s).color for s in stores]},
        },
        "detail": {"field": "store", "type": "nominal"},
    }
    y = {"type": "quantitative", "title": y_title, **_y_axis(drawn, log_y, signal_line, floor)}
    layers = [_signal_rule(y)] if signal_line else []
    for kind, dash in (("rule", [6, 4]), ("law", [1, 0])):
        if kind not in kinds:
            continue
        layers.append(
            {
                "transform": [{"filter": f"datum.kind === '{kind}'{show}"}],
                "mark": {"type": "line", "strokeWidth": 2, "strokeDash": dash, "clip": True, "aria": False},
                "encoding": {**encoding, "y": {"field": "value", **y}, "order": {"field": "x", "type": "quantitative"}},
            }
        )
    if "measured" in kinds:
        intervals, points = _measured(encoding, y, stores, show, x_title, y_title)
        layers += [intervals, points] if with_intervals else [points]
    if drawn["named"].notna().any():
        layers.append(_line_names(encoding, y, stores, show))
    layers += _signal_words(y) if signal_line else []
    if slider:
        layers.append(_slider_value(controls["at_step"]))
    return Figure(
        {"height": height, "data": {"values": records(drawn, names)}, "params": params, "layer": layers},
        data=rows.drop(columns=[c for c in ("low", "high") if rows[c].isna().all()]),
        description=description,
        legend=legend(stores, list(kinds), interval=interval if with_intervals else "", law=law, rule=rule),
        controls=controls,
        live="slider_value" if slider else None,
    )


def _names_its_line(rows: pd.DataFrame, x: str, slider: str | None) -> pd.Series:
    """1 for the rows whose places get the store's shape where nothing was measured: a line alone has only a colour.

    A few a line, and no two lines at the same places, as lines like to meet.
    """
    chosen = pd.Series(math.nan, index=rows.index)
    bare = [s for s, its in rows.groupby("store", sort=False) if "measured" not in set(its["kind"])]
    for i, store in enumerate(bare):
        line = rows[rows["store"] == store]
        line = line[line["kind"] == ("law" if (line["kind"] == "law").any() else "rule")]
        for _, part in line.groupby(slider, dropna=False) if slider else [("", line)]:
            ordered = part.sort_values(x).index
            places = {round((k + (i + 1) / (len(bare) + 1)) * (len(ordered) - 1) / _NAMES) for k in range(_NAMES)}
            chosen[ordered[sorted(places)]] = 1
    return chosen


def _stepper(rows: pd.DataFrame, slider: str | None, start: float | None) -> tuple[list, dict, str]:
    """The slider over a column's values: Vega's params, what charts.js says of it, and the filter it adds."""
    if slider is None:
        if start is not None:
            raise ValueError("start was given without slider, the column whose values the slider steps through")
        return [], {}, ""
    check_numbers(rows, "table", slider, gaps=True)
    values = sorted(rows[slider].dropna().unique())
    if not values:
        raise ValueError(f"table[{slider!r}] has no value for the slider to step through")
    start = values[-1] if start is None else check_number(start, "start")
    at = [i for i, v in enumerate(values) if math.isclose(v, start, rel_tol=1e-9, abs_tol=1e-12)]
    if not at:
        raise ValueError(f"start must be a value of table[{slider!r}], {[float(v) for v in values]}, got {start:g}")
    shown = [significant(v) for v in values]
    label = style.SYMBOLS.get(slider, slider)
    bind = {"input": "range", "min": 0, "max": len(values) - 1, "step": 1, "name": f"{label} (step)"}
    controls = {"at_step": {"label": label, "labels": [style.number(float(v), 4) for v in values]}}
    show = f" && (!isValid(datum.at) || datum.at === {shown}[at_step])"
    return [{"name": "at_step", "value": at[0], "bind": bind}], controls, show


def _axis(values: pd.Series, log: bool, *, padding: int = 0) -> dict:
    """Scale and axis over the data, and no further, so that nothing moves under a slider."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 1, high + 1)
    scale = {"type": "log", "base": 10} if log else {"type": "linear", "zero": False}
    scale |= {"domain": [low, high], "nice": False, "padding": padding}
    axis: dict = {"labelExpr": style.READABLE, "grid": False}
    if log:
        axis["values"] = style.log_ticks(low, high)
    else:
        axis["tickCount"] = 6
    return {"scale": scale, "axis": axis}


def _y_axis(rows: pd.DataFrame, log: bool, signal_line: bool, floor: float | None) -> dict:
    ends = pd.concat([rows["value"], rows["low"].dropna(), rows["high"].dropna()])
    if signal_line:
        ends = pd.concat([ends, pd.Series([1.0])])
    if log:
        low, high = float(ends.min()), float(ends.max())
        room = (high / low) ** 0.04 if high > low else 2
        low, high = (low if floor else low / room), high * room
        axis = _axis(pd.Series([low, high]), True)
        if floor:
            ticks = [t for t in axis["axis"]["values"] if t > floor * 1.3]
            axis["axis"]["values"] = [floor, *ticks]
            axis["axis"]["labelExpr"] = f"datum.value <= {floor!r} ? '≤ {style.number(floor)}' : {style.READABLE}"
        axis["axis"]["grid"] = True
        return axis
    low, high = min(0.0, float(ends.min())), float(ends.max())
    axis = _axis(pd.Series([low, high + 0.04 * (high - low or 1)]), False)
    axis["axis"]["grid"] = True
    return axis


def _signal_rule(y: dict) -> dict:
    """The level at which the interference is as long as the signal."""
    return {
        "data": {"values": [{"one": 1}]},
        "mark": {"type": "rule", "stroke": style.INK, "strokeWidth": 1.25, "aria": False},
        "encoding": {"y": {"datum": 1, **y}},
    }


def _signal_words(y: dict) -> list[dict]:
    """What the rule says, over everything else and haloed, so that curves may pass behind it."""
    words = {"type": "text", "align": "left", "x": 6, "dy": -8, "text": SIGNAL_LEVEL, "aria": False}
    halo = {"stroke": style.PAPER, "strokeWidth": 4, "strokeJoin": "round", "fill": style.PAPER}
    return [
        {"data": {"values": [{"one": 1}]}, "mark": {**words, **look}, "encoding": {"y": {"datum": 1, **y}}}
        for look in (halo, {"fill": style.INK})
    ]


def _measured(encoding: dict, y: dict, stores: list[str], show: str, x_title: str, y_title: str) -> list[dict]:
    """Interval bars, and over them one point shape a store, haloed so that a line behind does not hide it."""
    tooltip = [
        {"field": "store", "type": "nominal", "title": "store"},
        {"field": "x", "type": "quantitative", "format": ",.4~r", "title": x_title},
        {"field": "value", "type": "quantitative", "format": ",.3~r", "title": y_title},
    ]
    return [
        {
            "transform": [{"filter": f"datum.kind === 'measured' && isValid(datum.low){show}"}],
            "mark": {"type": "rule", "strokeWidth": 2, "clip": True, "aria": False},
            "encoding": {**encoding, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {
            "transform": [{"filter": f"datum.kind === 'measured'{show}"}],
            "mark": {
                "type": "point",
                "filled": True,
                "size": 90,
                "opacity": 1,
                "stroke": style.PAPER,
                "strokeWidth": 1,
                "aria": False,
            },
            "encoding": {**encoding, "y": {"field": "value", **y}, "shape": _shape(stores), "tooltip": tooltip},
        },
    ]


def _shape(stores: list[str]) -> dict:
    shapes = [style.style_of(s).shape for s in stores]
    return {"field": "store", "type": "nominal", "scale": {"domain": stores, "range": shapes}}


def _line_names(encoding: dict, y: dict, stores: list[str], show: str) -> dict:
    """The store's shape on a line along which nothing was measured: hollow, as dots that are filled are measured."""
    return {
        "transform": [{"filter": f"datum.named === 1{show}"}],
        "mark": {"type": "point", "filled": False, "size": 80, "opacity": 1, "fill": style.PAPER, "aria": False},
        "encoding": {**encoding, "y": {"field": "value", **y}, "shape": _shape(stores)},
    }


def _slider_value(control: dict) -> dict:
    """The slider's value inside the picture: a notebook's plain slider shows only its step."""
    text = f"{quoted(control['label'] + ' = ')} + {control['labels']}[at_step]"
    mark = {"type": "text", "align": "left", "x": 8, "y": 12, "fontWeight": "bold", "fontSize": 13}
    return {
        "name": "slider_value",
        "data": {"values": [{"one": 1}]},
        "mark": {**mark, "text": {"expr": text}, "aria": False},
    }
