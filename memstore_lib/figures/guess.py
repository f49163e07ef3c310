"""Predict, then reveal: the reader's guess beside the measurement, without a kernel."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd

from . import style
from .figure import Figure
from .inputs import check_domain, check_number, check_text, quoted

_STEPS = 120


def guess(
    *,
    question: str,
    answer: float,
    low: float,
    high: float,
    domain: tuple[float, float],
    description: str,
    unit: str = "",
    log: bool = True,
    start: float | None = None,
    interval: str = "95 % interval",
) -> Figure:
    """Ask for a number with a slider; a checkbox shows the measured one beside it and says how far off it was.

    Parameters
    ----------
    question : str
        Shown above the picture.
    answer, low, high : float
        The measurement and its interval, in ``unit``.
    domain : (float, float)
        What can be guessed, in ``unit``; it must hold the interval.
    description : str
        What the picture shows, in words, without giving the answer away.
    unit : str
        Written after the numbers, such as "memories".
    log : bool
        A logarithmic axis, and "times too high" instead of a difference.
    start : float, optional
        Where the slider rests; default the middle of the axis.

    Raises
    ------
    TypeError
        An argument of another type.
    ValueError
        Numbers that are not finite, ≤ 0 on a log axis, or outside the domain; an interval that misses the answer.
    """
    check_text(question, "question")
    ends = check_domain(domain, "domain", log=log)
    named = {"answer": answer, "low": low, "high": high}
    measured = {name: check_number(value, name, positive=log) for name, value in named.items()}
    if not measured["low"] <= measured["answer"] <= measured["high"]:
        raise ValueError(f"answer must lie in its interval [low, high] = [{low:g}, {high:g}], got {answer:g}")
    for name, value in measured.items():
        if not ends[0] <= value <= ends[1]:
            raise ValueError(f"{name} must lie in the domain ({ends[0]:g}, {ends[1]:g}), got {value:g}")
    grid = _grid(*ends, log)
    start = float(grid[len(grid) // 2]) if start is None else check_number(start, "start", positive=log)
    if not ends[0] <= start <= ends[1]:
        raise ValueError(f"start must lie in the domain ({ends[0]:g}, {ends[1]:g}), got {start:g}")
    at = int(np.abs(np.log(grid / start) if log else grid - start).argmin())
    params = [
        {
            "name": "guess_step",
            "value": at,
            "bind": {"input": "range", "min": 0, "max": len(grid) - 1, "step": 1, "name": "your guess (drag)"},
        },
        {"name": "guess", "expr": f"[{','.join(f'{g:.12g}' for g in grid)}][guess_step]"},
        {"name": "reveal", "value": False, "bind": {"input": "checkbox", "name": "show the measurement"}},
    ]
    after = f" {unit}" if unit else ""
    data = {"x": "guess", **{k: f"{v!r}" for k, v in measured.items()}}
    return Figure(
        {
            "height": 124,
            "data": {"values": [{"one": 1}]},
            "params": params,
            "transform": [{"calculate": e, "as": name} for name, e in data.items()],
            "layer": [_pointer(ends, log, unit), *_marks(), _yours(after), _sentence(measured, after, log)],
        },
        data=pd.DataFrame([{"measured": answer, "low": low, "high": high, "unit": unit}]),
        description=description,
        lead=f'<p class="ms-question">{escape(question)}</p>',
        controls={
            "guess_step": {"label": "your guess", "labels": [style.number(g) + after for g in grid]},
            "reveal": {"label": "show the measurement"},
        },
        live="readout",
        data_note=f"· gives the answer away, with its {interval}" if interval else "· gives the answer away",
    )


def _grid(low: float, high: float, log: bool) -> np.ndarray:
    """What the slider steps through: round numbers, evenly spread over the axis, both ends among them."""
    raw = np.geomspace(low, high, _STEPS + 1) if log else np.linspace(low, high, _STEPS + 1)
    rounded = [float(f"{g:.2g}") for g in raw] if log else [float(f"{g:.3g}") for g in raw]
    return np.unique(np.clip([low, *rounded, high], low, high))


def _pointer(ends: tuple[float, float], log: bool, unit: str) -> dict:
    scale = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale |= {"domain": list(ends), "nice": False, "padding": 14}
    axis: dict = {"labelExpr": style.READABLE, "grid": False, "offset": 0}
    axis |= {"values": style.log_ticks(*ends)} if log else {"tickCount": 6}
    return {
        "name": "guess",
        "mark": {"type": "point", "shape": "triangle-down", "filled": True, "size": 170, "aria": False, "y": 115},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": unit or None, "scale": scale, "axis": axis},
            "color": {"value": style.INK},
        },
    }


def _marks() -> list[dict]:
    """The measurement: a dot with its interval, and the stretch from the guess to it. Drawn only when asked for."""
    shown = [{"filter": "reveal"}]
    x = {"field": "answer", "type": "quantitative"}
    rule = {"type": "rule", "stroke": style.TARGET, "aria": False}
    words = {"type": "text", "fontWeight": "bold", "aria": False}
    return [
        {
            "transform": shown,
            "mark": {**rule, "stroke": style.INK, "strokeWidth": 1.5, "strokeDash": [2, 3], "y": 66},
            "encoding": {"x": x, "x2": {"field": "x"}},
        },
        {
            "transform": shown,
            "mark": {**rule, "strokeWidth": 3, "y": 66},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "transform": shown,
            "mark": {
                "type": "point",
                "filled": True,
                "size": 110,
                "color": style.TARGET,
                "opacity": 1,
                "y": 66,
                "aria": False,
            },
            "encoding": {"x": x},
        },
        {
            "transform": shown,
            "mark": {**words, "text": "measured", "y": 52, "fill": style.TARGET_TEXT},
            "encoding": {"x": x},
        },
    ]


def _yours(after: str) -> dict:
    """The guess in words above its pointer, which a notebook's plain slider does not show."""
    return {
        "mark": {
            "type": "text",
            "y": 96,
            "align": {"expr": "guess_step < 25 ? 'left' : guess_step > 85 ? 'right' : 'center'"},
            "text": {"expr": f"'your guess: ' + {style.number_expr('guess')} + {quoted(after)}"},
            "aria": False,
        },
        "encoding": {"x": {"field": "x", "type": "quantitative"}},
    }


def _sentence(measured: dict[str, float], after: str, log: bool) -> dict:
    """What was measured and how far off the guess is, two lines so that they fit on a phone."""
    answer, low, high = style.with_interval(measured["answer"], measured["low"], measured["high"])
    if log:
        off = style.number_expr("max(guess / datum.answer, datum.answer / guess)", 2) + " + ' times too '"
        near = "abs(log(guess / datum.answer)) < 0.05"
    else:
        off = style.number_expr("abs(guess - datum.answer)", 2) + f" + {quoted(after)} + ' too '"
        near = f"abs(guess - datum.answer) <= {0.01 * abs(measured['answer'])!r}"
    # As near as the slider allows is right: nobody can hit an interval narrower than a step.
    right = f"({near}) || (guess >= datum.low && guess <= datum.high)"
    verdict = f"{right} ? '✓ your guess is right' : 'your guess is ' + {off} + (guess > datum.answer ? 'high' : 'low')"
    shown = f"[{quoted(f'measured {answer} [{low}, {high}]{after}')}, {verdict}]"
    return {
        "transform": [
            {"calculate": f"reveal ? {shown} : ['move the slider, then show the measurement']", "as": "words"}
        ],
        "name": "readout",
        "mark": {
            "type": "text",
            "align": "left",
            "baseline": "top",
            "x": 0,
            "y": 0,
            "fontSize": 13,
            "lineHeight": 19,
            "aria": False,
        },
        "encoding": {"text": {"field": "words"}},
    }
