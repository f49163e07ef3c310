"""The picture that returns in every chapter: one recall, a bar for each stored memory, the target in red."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from . import style
from .figure import Figure
from .inputs import check_number, quoted, significant
from .rendering import check_drawing

SCORES = {
    "linear": "s",
    "ReLU": "max(s, 0)",
    "ReLU²": "pow(max(s, 0), 2)",
    "ReLU³": "pow(max(s, 0), 3)",
    "softmax": "exp(beta * s)",
}
SLIDER_M = [round(2 ** (i / 2)) for i in range(8, 25)]  # 16, 23, 32, 45, 64 ... 4096: even steps on a log scale
_BARS = 192  # beyond so many memories a bar spans the largest and smallest weight of a group
_HEADER = 104  # px kept free above the bars for the readout


def recall_bars(
    similarities: object,
    *,
    description: str,
    scores: Mapping[str, str] | list | None = None,
    score: str = "linear",
    M: int = 64,
    beta: float = 8.0,
    height: int = 340,
) -> Figure:
    """Draw one recall: every stored memory's weight relative to the target's, under sliders for M and sharpness.

    The same draws serve all slider settings: M memories are the target and the first M - 1 of the others. A readout
    gives M, the ratio of interference to signal √(Σ w²)/w_target, the interference's share of the recalled vector's
    energy, ratio²/(1 + ratio²), and whether recall succeeds (ratio < 1).

    Parameters
    ----------
    similarities : array of float, shape (N,) with N ≥ 4095
        Similarities kᵢ·q of the other stored keys with the query, unit keys, each in [-1, 1]. The target's own
        similarity is 1 and not in it.
    description : str
        What the picture shows, in words.
    scores : mapping of label to Vega expression in ``s`` and ``beta``, or list of objects with ``name`` and
        ``vega``, optional
        What the chooser offers; default linear, ReLU, ReLU², ReLU³ and softmax.
    score, M, beta
        The setting at rest: a label of ``scores``, a step of the slider (16, 23, 32 ... 4096), and 1 ≤ β ≤ 16 in
        steps of 0.5.

    Returns
    -------
    Figure
        Its data is the column ``similarity``, in order.

    Raises
    ------
    TypeError
        ``similarities`` are not real numbers, or ``scores`` are neither mapping nor list of scores.
    ValueError
        Another shape, too few, NaN, infinite or outside [-1, 1]; an unknown score, or one whose target weight is 0;
        an M or beta that the sliders do not offer.
    """
    s = _check_similarities(similarities)
    scores = _check_scores(scores, score)
    if M not in SLIDER_M:
        raise ValueError(f"M must be a step of the slider, {SLIDER_M}, got {M}")
    beta = check_number(beta, "beta")
    if not 1 <= beta <= 16 or not (2 * beta).is_integer():
        raise ValueError(f"beta must lie in 1 ... 16 in steps of 0.5, as on its slider, got {beta:g}")
    _check_values(scores, beta)
    uses_beta = [label for label, e in scores.items() if re.search(r"\bbeta\b", e)]
    params, controls = _controls(scores, score, M, beta, uses_beta)

    weights = [
        {"window": [{"op": "row_number", "as": "n"}]},
        {"filter": "datum.n < M"},
        {"calculate": f"({_weight(scores, 'datum.data')}) / target_weight", "as": "w"},
    ]
    return Figure(
        {
            "height": height,
            "data": {"name": "similarities", "values": [significant(float(v)) for v in s]},
            "params": params,
            # One pass over the weights for bars and readout: a slider step has 50 ms.
            "layer": [{"transform": weights, "layer": [_bars(float(s.min())), _readout()]}, _zero(), _target()],
        },
        data=pd.DataFrame({"similarity": s}),
        description=description,
        controls=controls,
        live="readout",
    )


def _check_similarities(similarities: object) -> np.ndarray:
    s = np.asarray(similarities)
    if s.dtype.kind not in "fiu":
        raise TypeError(f"similarities must be real numbers, got an array of {s.dtype}")
    if s.ndim != 1 or len(s) < SLIDER_M[-1] - 1:
        raise ValueError(f"similarities must have the shape (N,) with N ≥ {SLIDER_M[-1] - 1}, got {s.shape}")
    s = s[: SLIDER_M[-1] - 1].astype(float)
    if not np.isfinite(s).all():
        raise ValueError(f"similarities must be finite, got {s[~np.isfinite(s)][0]}")
    if np.abs(s).max() > 1 + 1e-6:
        raise ValueError(f"similarities of unit keys lie in [-1, 1], got {s[np.abs(s).argmax()]:g}")
    return s


def _check_scores(scores: object, score: str) -> dict[str, str]:
    if scores is None:
        scores = SCORES
    if not isinstance(scores, Mapping):
        if not isinstance(scores, (list, tuple)) or not all(getattr(f, "vega", None) for f in scores):
            raise TypeError(
                "scores must map labels to Vega expressions in s and beta, or list objects with name and vega, "
                f"got {scores!r}"
            )
        scores = {f.name: f.vega for f in scores}
    if not scores or not all(isinstance(k, str) and isinstance(e, str) for k, e in scores.items()):
        raise TypeError(f"scores must map at least one label to a Vega expression, got {scores!r}")
    for label, expression in scores.items():
        if not re.search(r"\bs\b", expression):
            raise ValueError(f"scores[{label!r}] must be a Vega expression in s, got {expression!r}")
    if score not in scores:
        raise ValueError(f"score must be one of {list(scores)}, got {score!r}")
    return dict(scores)


def _check_values(scores: dict[str, str], beta: float) -> None:
    """Every score must give numbers, and the target a weight to divide by; the chart itself draws only one score."""
    for label, expression in scores.items():
        at, target = (re.sub(r"\bs\b", s, expression) for s in ("datum.data", "1"))
        try:
            check_drawing(
                {
                    "data": {"values": [-1, -0.5, 0, 0.5, 1]},
                    "params": [{"name": "beta", "value": beta}],
                    "transform": [{"calculate": f"'' + ({at}) / ({target})", "as": "w"}],
                    "layer": [{"mark": "point"}, {"mark": "text", "encoding": {"text": {"field": "w"}}}],
                }
            )
        except ValueError as error:
            raise ValueError(f"scores[{label!r}] = {expression!r} gives no finite weight: {error}") from error


def _weight(scores: dict[str, str], s: str) -> str:
    """The chosen score of a similarity, as one Vega expression."""
    cases = [(label, re.sub(r"\bs\b", s, e)) for label, e in scores.items()]
    expression = f"({cases[-1][1]})"
    for label, case in reversed(cases[:-1]):
        expression = f"score === {quoted(label)} ? ({case}) : {expression}"
    return expression


def _controls(scores: dict, score: str, M: int, beta: float, uses_beta: list[str]) -> tuple[list, dict]:
    log2 = 4 + SLIDER_M.index(M) / 2
    params: list[dict] = [
        {
            "name": "log2_M",
            "value": log2,
            "bind": {"input": "range", "min": 4, "max": 12, "step": 0.5, "name": "stored memories M, as log₂ M"},
        },
        {"name": "M", "expr": "round(pow(2, log2_M))"},
    ]
    controls: dict[str, dict] = {"log2_M": {"label": "stored memories M", "labels": [f"{m:,}" for m in SLIDER_M]}}
    if len(scores) > 1:
        params.append(
            {"name": "score", "value": score, "bind": {"input": "radio", "options": list(scores), "name": "score"}}
        )
        controls["score"] = {"label": "score"}
    else:
        params.append({"name": "score", "value": score})
    label = f"sharpness β ({', '.join(uses_beta)} only)" if len(uses_beta) < len(scores) else "sharpness β"
    bind = {"input": "range", "min": 1, "max": 16, "step": 0.5, "name": label}
    params.append({"name": "beta", "value": beta, **({"bind": bind} if uses_beta else {})})
    if uses_beta:
        # Of no effect for the other scores: charts.js then switches it off, the label says so where it cannot.
        controls["beta"] = {"label": label, "only": {"score": uses_beta} if len(uses_beta) < len(scores) else None}
    params.sort(key=lambda p: p["name"] != "score")  # the chooser first: it decides whether β matters
    return [*params, {"name": "target_weight", "expr": _weight(scores, "1")}], controls


def _bars(lowest: float) -> dict:
    """The others, laid out to both sides of the target so that growing M leaves the inner ones where they are."""
    side = "(datum.n % 2 ? 1 : -1)"
    group = f"ceil((M - 1) / {_BARS})"
    transform = [
        {"calculate": f"{side} * ceil(ceil(datum.n / 2) / {group})", "as": "g"},
        {
            "aggregate": [{"op": "min", "field": "w", "as": "least"}, {"op": "max", "field": "w", "as": "most"}],
            "groupby": ["g"],
        },
        {"calculate": "min(datum.least, 0)", "as": "bottom"},
        {"calculate": "max(datum.most, 0)", "as": "top"},
        {"calculate": f"(datum.g > 0 ? 1 : -1) * ((abs(datum.g) - 1) * {group} + ({group} + 1) / 2)", "as": "place"},
    ]
    y = {
        "type": "quantitative",
        "title": "weight ÷ the target’s weight",
        "scale": {"domain": [min(-0.55, lowest - 0.05), 1], "rangeMax": _HEADER, "nice": False},
        "axis": {"values": [-0.5, 0, 0.5, 1], "titleAnchor": "start", "labelExpr": style.READABLE},
    }
    x = {
        "type": "quantitative",
        "title": "the other M − 1 memories, in no particular order",
        "scale": {"domainMin": {"expr": "-(M + 1) / 2"}, "domainMax": {"expr": "(M + 1) / 2"}, "nice": False},
        "axis": {"labels": False, "ticks": False, "grid": False, "domain": False},
    }
    width = {"expr": f"max(0.8, min(14, 0.72 * {group} * width / (M + 1)))"}
    return {
        "transform": transform,
        "mark": {"type": "rule", "stroke": style.OTHER, "strokeWidth": width, "clip": True, "aria": False},
        "encoding": {"x": {"field": "place", **x}, "y": {"field": "bottom", **y}, "y2": {"field": "top"}},
    }


def _zero() -> dict:
    return {
        "data": {"values": [{"zero": 0}]},
        "mark": {"type": "rule", "stroke": style.AXIS, "aria": False},
        "encoding": {"y": {"field": "zero", "type": "quantitative"}},
    }


def _target() -> dict:
    here = {"x": {"field": "place", "type": "quantitative"}}
    return {
        "data": {"values": [{"place": 0, "foot": 0, "head": 1}]},
        "layer": [
            {
                "mark": {
                    "type": "rule",
                    "stroke": style.TARGET,
                    "strokeWidth": {"expr": "max(4, min(14, 0.72 * width / (M + 1)))"},
                    "aria": False,
                },
                "encoding": {
                    **here,
                    "y": {"field": "foot", "type": "quantitative"},
                    "y2": {"field": "head"},
                },
            },
            {
                "mark": {
                    "type": "text",
                    "text": "target",
                    "fill": style.TARGET_TEXT,
                    "fontWeight": "bold",
                    "align": "left",
                    "dx": 12,
                    "dy": 6,
                    "aria": False,
                },
                "encoding": {**here, "y": {"field": "head", "type": "quantitative"}},
            },
        ],
    }


def _readout() -> dict:
    """Three lines and a strip: how much of the recalled vector is signal (red) and how much is interference."""
    transform = [
        {"calculate": "datum.w * datum.w", "as": "w2"},
        {"aggregate": [{"op": "sum", "field": "w2", "as": "energy"}]},
        {"calculate": "sqrt(datum.energy)", "as": "ratio"},
        {"calculate": "datum.energy / (1 + datum.energy)", "as": "share"},
        {
            "calculate": "[(datum.ratio < 1 ? '✓ recall succeeds' : '✗ recall fails') + ' at M = ' + format(M, ','), "
            "'interference ÷ signal = ' + format(datum.ratio, ',.3r'), "
            "format(100 * datum.share, datum.share > 0.995 || datum.share < 0.01 ? '.3~r' : '.0f') + "
            "' % of the recalled vector is interference']",
            "as": "words",
        },
    ]
    strip = {"type": "rect", "y": 62, "y2": 74, "aria": False}
    cut = {"expr": "width * (1 - datum.share)"}
    lines = {"type": "text", "align": "left", "baseline": "top", "x": 0, "y": 0, "fontSize": 13, "lineHeight": 19}
    return {
        "transform": transform,
        "layer": [
            {"name": "readout", "mark": {**lines, "aria": False}, "encoding": {"text": {"field": "words"}}},
            {"mark": {**strip, "x": 0, "x2": cut, "fill": style.TARGET}},
            {"mark": {**strip, "x": cut, "x2": {"expr": "width"}, "fill": style.OTHER}},
        ],
    }
