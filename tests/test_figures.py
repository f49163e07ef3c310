"""The chart forms: each draws its data, refuses bad input, looks the same everywhere, and offers its data."""

from __future__ import annotations

import copy
import csv
import io
import itertools
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import vl_convert
from altair.utils._importers import vl_version_for_vl_convert
from hypothesis import given
from hypothesis import strategies as st

from memstore_lib import figures
from memstore_lib.figures import Figure, rendering, style
from memstore_lib.figures.inputs import records, significant
from memstore_lib.figures.recall import SLIDER_M

CSS = Path(__file__).parents[1] / "book" / "_static" / "book.css"
NAN = np.nan
WORDS = "What the picture shows."


def curve_table() -> pd.DataFrame:
    rows = []
    for store, scale in (("outer product", 64), ("least squares", 70)):
        for m in (4, 16, 64, 256, 1024):
            value = np.sqrt(m / scale)
            rows.append((store, m, "law", value, NAN, NAN))
            rows.append((store, m, "measured", value * 1.01, value * 0.97, value * 1.05))
    rows += [("outer product", m, "rule", np.sqrt(m / 60), NAN, NAN) for m in (4, 1024)]
    return pd.DataFrame(rows, columns=["store", "M", "kind", "value", "low", "high"])


def dot_table() -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("outer product", "measured", 65.0, 64.1, 66.0),
            ("outer product", "law", 65.0, NAN, NAN),
            ("outer product", "rule", 64.0, NAN, NAN),
            ("a new store", "measured", 1_272_264.0, 1.1e6, 1.4e6),
        ],
        columns=["label", "kind", "value", "low", "high"],
    )


def histogram_table() -> pd.DataFrame:
    edges = np.linspace(-1, 1, 9)
    one = pd.DataFrame({"left": edges[:-1], "right": edges[1:], "density": np.arange(8) / 10})
    return pd.concat([one.assign(series="before"), one.assign(series="after", density=one["density"][::-1].to_numpy())])


def similarities() -> np.ndarray:
    rng = np.random.default_rng(5)
    k = rng.standard_normal((4095, 64))
    return k[:, 0] / np.linalg.norm(k, axis=1)


def guess(**changes) -> Figure:
    asked = {"question": "How many?", "answer": 65.0, "low": 64.6, "high": 65.4, "domain": (1, 10_000)}
    return figures.guess(**{**asked, "unit": "memories", "description": WORDS, **changes})


def vector_table() -> pd.DataFrame:
    return pd.DataFrame({"label": ["M = 4", "M = 64"], "signal": [1.0, 1.0], "interference": [0.2165, 0.9922]})


S = similarities()
FORMS = {
    "curves": lambda: figures.curves(curve_table(), description=WORDS),
    "slider": lambda: figures.curves(
        pd.concat([curve_table().assign(cosine=c) for c in (0.5, 1.0)]), slider="cosine", description=WORDS
    ),
    "recall_bars": lambda: figures.recall_bars(S, description=WORDS),
    "guess": guess,
    "dots": lambda: figures.dots(dot_table(), x_title="capacity", description=WORDS),
    "histogram": lambda: figures.histogram(
        histogram_table(),
        x_title="similarity",
        description=WORDS,
        law=pd.DataFrame({"series": "before", "x": [-1.0, 0.0, 1.0], "density": [0.1, 0.5, 0.1]}),
    ),
    "matrix": lambda: figures.matrix(np.eye(5) - 0.2, row_title="i", column_title="j", description=WORDS),
    "vectors": lambda: figures.vectors(vector_table(), description=WORDS),
}


def draw(figure: Figure, **signals: object) -> ElementTree.Element:
    """The figure's SVG, with the params named set to other values than those at rest."""
    spec = copy.deepcopy(figure.spec)
    for name, value in signals.items():
        (param,) = (p for p in spec["params"] if p["name"] == name)
        param["value"] = value
    return ElementTree.fromstring(vl_convert.vegalite_to_svg(spec, vl_version=vl_version_for_vl_convert()))


def shapes(svg: ElementTree.Element) -> Counter:
    """How many shapes of each mark type are drawn, by colour."""
    drawn: Counter = Counter()
    for group in svg.iter():
        classes = group.get("class", "").split()
        if "role-mark" in classes:
            kind = next(c for c in classes if c.startswith("mark-"))
            for shape in group:
                drawn[kind, shape.get("fill") or shape.get("stroke")] += 1
                drawn[kind] += 1
    return drawn


def rules(svg: ElementTree.Element) -> list[ElementTree.Element]:
    """Every straight line drawn from the data."""
    return [e for g in svg.iter() if "mark-rule role-mark" in g.get("class", "") for e in g]


def words(svg: ElementTree.Element, mark: str = "") -> str:
    groups = (g for g in svg.iter() if not mark or f"{mark}_marks" in g.get("class", "").split())
    return " | ".join(t for g in groups for e in g.iter() if (t := (e.text or "").strip()))


# ── each form draws what it is given ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMS)
def test_form_is_valid_and_says_what_it_shows(form):
    figure = FORMS[form]()
    assert figure.chart.to_dict()["description"] == WORDS  # from_dict checks Vega-Lite's schema
    html = figure._repr_mimebundle_()["text/html"]
    assert set(figure._repr_mimebundle_()) == {"text/html", "text/plain"}
    assert html.startswith('<div class="ms-figure"')
    plain = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert plain.count("<div") == plain.count("</div>") >= 3
    assert '"width":"container"' in html
    assert '"renderer": "svg"' in html
    assert '"actions": false' in html


@pytest.mark.parametrize("form", FORMS)
def test_every_colour_is_a_variable_of_the_theme(form):
    figure = FORMS[form]()
    svg = ElementTree.tostring(draw(figure), encoding="unicode")
    for color in re.findall(r'(?:fill|stroke)="([^"]*)"', svg):
        assert color in {"none", "transparent", "currentColor"} or color.startswith("var(--ms-"), color
    defined = set(re.findall(r"(--ms-[\w-]+):", CSS.read_text()))
    assert set(re.findall(r"var\((--ms-[\w-]+)", svg + figure.html())) <= defined


@pytest.mark.parametrize("form", FORMS)
def test_no_text_below_eleven_pixels(form):
    sizes = [float(e.get("font-size")[:-2]) for e in draw(FORMS[form]()).iter() if e.get("font-size")]
    assert sizes
    assert min(sizes) >= 11


def test_curves_draw_a_dot_with_interval_per_measurement_and_a_line_per_law():
    drawn = shapes(draw(FORMS["curves"]()))
    assert drawn["mark-symbol", style.style_of("outer product").color] == 5
    assert drawn["mark-symbol"] == 10
    assert drawn["mark-line", "none"] or drawn["mark-line"] == 3  # two laws, one rule of thumb
    assert drawn["mark-rule", style.INK] == 1
    assert drawn["mark-rule"] == 10 + 1
    assert "interference as loud as the signal" in words(draw(FORMS["curves"]()))


def test_laws_are_solid_and_rules_of_thumb_dashed():
    lines = [
        e
        for g in draw(FORMS["curves"]()).iter()
        if "mark-line" in g.get("class", "")
        for e in g
        if e.tag.endswith("path")
    ]
    dashes = Counter(e.get("stroke-dasharray") for e in lines)
    assert dashes == {"6,4": 1, "1,0": 2}


def test_curves_legend_names_only_what_is_drawn():
    table = curve_table()
    assert "rule of thumb" in figures.curves(table, description=WORDS).html()
    fewer = figures.curves(table[table["kind"] == "law"], description=WORDS).html()
    assert "rule of thumb" not in fewer
    assert "measured" not in fewer.split("<style")[0]
    assert "exact law" in fewer


def test_axes_stay_while_the_slider_moves():
    figure = FORMS["slider"]()
    wide = pd.concat([curve_table().assign(cosine=1.0), curve_table().assign(cosine=0.5, value=lambda t: t["value"])])
    wide.loc[wide["cosine"] == 0.5, ["value", "low", "high"]] *= 7
    figure = figures.curves(wide, slider="cosine", description=WORDS)
    low, high = draw(figure, at_step=0), draw(figure, at_step=1)
    axes = [[e.text for g in svg.iter() if "role-axis-label" in g.get("class", "") for e in g] for svg in (low, high)]
    assert axes[0] == axes[1]
    assert words(low, "slider_value") == "cosine = 0.5"
    assert words(high, "slider_value") == "cosine = 1"
    assert shapes(low)["mark-symbol"] == 10  # one slider value at a time
    places = [
        [e.get("transform") for g in svg.iter() if "mark-symbol" in g.get("class", "") for e in g]
        for svg in (low, high)
    ]
    assert not set(places[0]) & set(places[1])


def test_slider_rests_at_start_and_keeps_rows_without_a_value():
    table = pd.concat([curve_table().assign(cosine=c) for c in (0.5, 0.9, 1.0)])
    table.loc[table["kind"] == "rule", "cosine"] = NAN
    table = table.drop_duplicates()
    figure = figures.curves(table, slider="cosine", start=0.9, description=WORDS)
    svg = draw(figure)
    assert words(svg, "slider_value") == "cosine = 0.9"
    assert shapes(svg)["mark-line"] == 3


def test_floor_puts_zero_on_the_lower_edge_and_says_so():
    table = curve_table()
    table.loc[table["M"] == 4, ["value", "low", "high"]] = 0.0
    table.loc[(table["M"] == 4) & (table["kind"] != "measured"), ["low", "high"]] = NAN
    figure = figures.curves(table, floor=0.1, description=WORDS)
    assert "≤ 0.1" in words(draw(figure))
    assert (figure.data.loc[figure.data["M"] == 4, "value"] == 0).all()  # the data stays what it was


@pytest.mark.parametrize("score", ["linear", "ReLU²", "softmax"])
@pytest.mark.parametrize("M", [16, 64, 1024, 4096])
def test_recall_readout_is_the_ratio_of_the_first_others(M, score):
    beta = 4.0
    weigh = {"linear": lambda s: s, "ReLU²": lambda s: np.maximum(s, 0) ** 2, "softmax": lambda s: np.exp(beta * s)}
    w = weigh[score](S[: M - 1]) / weigh[score](1.0)
    ratio = np.sqrt((w**2).sum())
    said = words(draw(figures.recall_bars(S, description=WORDS, score=score, M=M, beta=beta)), "readout")
    assert float(re.search(r"signal = ([\d.]+)", said).group(1)) == pytest.approx(ratio, rel=0.006)
    share = float(re.search(r"([\d.]+) % of", said).group(1))
    assert share == pytest.approx(100 * ratio**2 / (1 + ratio**2), abs=0.6)
    assert ("✓ recall succeeds" in said) == (ratio < 1)
    assert ("✗ recall fails" in said) == (ratio >= 1)
    assert f"M = {M:,}" in said


@pytest.mark.parametrize("M", SLIDER_M)
def test_recall_draws_few_bars_and_always_the_target(M):
    drawn = shapes(draw(figures.recall_bars(S, description=WORDS, M=M)))
    assert drawn["mark-rule", style.TARGET] == 1
    bars = drawn["mark-rule", style.OTHER]
    assert bars == M - 1 if M <= 192 else 64 < bars <= 200


def test_recall_groups_show_their_extremes():
    s = np.full(4095, 0.01)
    s[1777], s[3001] = 0.5, -0.45
    svg = draw(figures.recall_bars(s, description=WORDS, M=4096))
    heights = [float(e.get("y2")) for e in rules(svg)]
    unit = max(abs(h) for h in heights)  # the target's, for a weight of 1
    assert sum(abs(abs(h) / unit - 0.5) < 0.01 for h in heights) == 1
    assert sum(abs(abs(h) / unit - 0.46) < 0.01 for h in heights) == 1  # from +0.01 of its group to -0.45


def test_recall_slider_steps_evenly_on_a_log_scale():
    assert SLIDER_M[0] == 16
    assert SLIDER_M[-1] == 4096
    assert np.diff(np.log2(SLIDER_M)) == pytest.approx(0.5, abs=0.05)


def test_recall_takes_scores_as_objects_and_says_which_use_beta():
    class Square:
        name, vega = "square", "s * s"

    class Exponential:
        name, vega = "exponential", "exp(beta * (s - 1))"

    figure = figures.recall_bars(S, scores=[Square(), Exponential()], score="square", description=WORDS)
    assert figure.spec["usermeta"]["memstore"]["controls"]["beta"]["only"] == {"score": ["exponential"]}
    names = [p["bind"]["name"] for p in figure.spec["params"] if "bind" in p]
    assert "sharpness β (exponential only)" in names
    both = draw(figure, score="exponential", beta=2)
    ratio = np.sqrt((np.exp(2 * (S[:63] - 1)) ** 2).sum())
    assert float(re.search(r"signal = ([\d.]+)", words(both, "readout")).group(1)) == pytest.approx(ratio, rel=0.006)


def test_guess_hides_the_answer_until_asked():
    figure = guess()
    hidden, shown = draw(figure), draw(figure, reveal=True)
    assert "65" not in words(hidden)
    assert shapes(hidden)["mark-symbol", style.TARGET] == 0
    assert shapes(shown)["mark-symbol", style.TARGET] == 1
    assert "measured 65.0 [64.6, 65.4] memories" in words(shown, "readout")
    assert "your guess is 1.5 times too high" in words(shown, "readout")


@pytest.mark.parametrize(
    ("start", "verdict"), [(1000, "15 times too high"), (6.5, "10 times too low"), (65, "✓ your guess is right")]
)
def test_guess_says_how_far_off(start, verdict):
    assert verdict in words(draw(guess(start=start), reveal=True), "readout")


def test_guess_on_a_linear_axis_gives_a_difference():
    figure = guess(answer=0.5, low=0.45, high=0.55, domain=(0, 1), log=False, start=0.9, unit="bits")
    assert "your guess is 0.4 bits too high" in words(draw(figure, reveal=True), "readout")


def test_dots_draw_the_law_up_and_the_rule_down():
    svg = draw(FORMS["dots"]())
    drawn = shapes(svg)
    assert drawn["mark-symbol"] == 2
    ticks = [float(e.get("y2")) for e in rules(svg)]
    assert sorted(t for t in ticks if t) == [-16, 16]
    assert drawn["mark-symbol", style.style_of("outer product").color] == 1
    assert drawn["mark-symbol", style.INK] == 1  # no store of the book


def test_histogram_draws_the_first_filled_and_the_others_outlined():
    drawn = shapes(draw(FORMS["histogram"]()))
    assert drawn["mark-rect"] == 8
    assert drawn["mark-line"] == 2  # one outline, one law


def test_matrix_colours_by_sign_and_keeps_the_order_of_rows():
    svg = draw(figures.matrix([[1, 0], [-1, 0]], row_title="i", column_title="j", description=WORDS))
    cells = [e for g in svg.iter() if "mark-rect" in g.get("class", "") for e in g]
    assert [re.search(r"--ms-d(\d)", c.get("fill")).group(1) for c in cells] == ["8", "4", "0", "4"]
    first, third = (tuple(map(float, re.match(r"M([\d.]+),([\d.]+)", cells[i].get("d")).groups())) for i in (0, 2))
    assert first[1] < third[1]  # row 1 on top
    assert first[0] == third[0]


def test_vectors_keep_one_scale_and_write_the_ratio():
    svg = draw(FORMS["vectors"]())
    assert "ratio 0.992" in words(svg)
    signal = [float(e.get("x2")) for e in rules(svg) if e.get("stroke") == style.TARGET]
    upright = [-float(e.get("y2")) for e in rules(svg) if e.get("stroke") == style.OTHER]
    assert signal[0] == signal[1]
    assert upright[0] / signal[0] == pytest.approx(0.2165, rel=1e-3)
    assert upright[1] / signal[1] == pytest.approx(0.9922, rel=1e-3)


# ── bad input is refused in words ───────────────────────────────────────────────────────────────────────────────────


def change(table: pd.DataFrame, column: str, value: object, row: int = 1) -> pd.DataFrame:
    table = table.reset_index(drop=True)
    table[column] = table[column].astype(object) if isinstance(value, str) else table[column].astype(float)
    table.loc[row, column] = value
    return table


def bad_curves(column: str, value: object, **options):
    return lambda: figures.curves(change(curve_table(), column, value), description=WORDS, **options)


BAD = [
    (lambda: figures.curves([1], description=WORDS), TypeError, "table must be a pandas DataFrame, got list"),
    (lambda: figures.curves(curve_table().drop(columns=["low", "M"]), description=WORDS), ValueError, "'M', 'low'"),
    (lambda: figures.curves(curve_table().head(0), description=WORDS), ValueError, "table is empty"),
    (bad_curves("kind", "guessed"), ValueError, r"must be one of \['measured', 'law', 'rule'\], got \['guessed'\]"),
    (bad_curves("value", NAN), ValueError, r"table\['value'\] must be finite, got nan in row 1"),
    (bad_curves("value", np.inf), ValueError, r"table\['value'\] must be finite, got inf in row 1"),
    (bad_curves("value", -1.0), ValueError, "must be positive on a log axis, got -1 in row 1"),
    (bad_curves("M", 0.0), ValueError, r"table\['M'\] must be positive on a log axis, got 0"),
    (bad_curves("value", "much"), TypeError, r"table\['value'\] must be numbers, got object"),
    (bad_curves("low", NAN), ValueError, "half an interval in row 1"),
    (bad_curves("low", 0.9), ValueError, r"interval \[0.9, .*\] that misses its value"),
    (bad_curves("low", -0.1), ValueError, r"table\['low'\] must be positive on a log axis"),
    (bad_curves("value", 1.0, slider="cosine"), ValueError, "lacks the column 'cosine'"),
    (bad_curves("low", 0.2, start=3), ValueError, "start was given without slider"),
    (
        lambda: figures.curves(curve_table().assign(c=1.0), slider="c", start=2, description=WORDS),
        ValueError,
        r"start must be a value of table\['c'\], \[1.0\], got 2",
    ),
    (lambda: figures.curves(curve_table(), description=" "), ValueError, "description must say something"),
    (lambda: figures.curves(curve_table(), description=3), TypeError, "description must be a string, got int"),
    (lambda: figures.curves(curve_table(), description=WORDS, floor=0), ValueError, "floor must be positive"),
    (lambda: figures.recall_bars(S[:100], description=WORDS), ValueError, r"N ≥ 4095, got \(100,\)"),
    (lambda: figures.recall_bars(S[None], description=WORDS), ValueError, r"got \(1, 4095\)"),
    (lambda: figures.recall_bars(S * NAN, description=WORDS), ValueError, "similarities must be finite, got nan"),
    (lambda: figures.recall_bars(S * 9, description=WORDS), ValueError, r"unit keys lie in \[-1, 1\]"),
    (lambda: figures.recall_bars(S.astype(str), description=WORDS), TypeError, "similarities must be real numbers"),
    (lambda: figures.recall_bars(S, score="cubic", description=WORDS), ValueError, "score must be one of .*'cubic'"),
    (lambda: figures.recall_bars(S, scores=["s"], description=WORDS), TypeError, "scores must map labels"),
    (lambda: figures.recall_bars(S, scores={}, description=WORDS), TypeError, "at least one label"),
    (lambda: figures.recall_bars(S, scores={"linear": "3"}, description=WORDS), ValueError, "must be a Vega express"),
    (lambda: figures.recall_bars(S, scores={"linear": "s +"}, description=WORDS), ValueError, "no finite weight"),
    (lambda: figures.recall_bars(S, scores={"linear": "sqrt(s)"}, description=WORDS), ValueError, "no finite weight"),
    (lambda: figures.recall_bars(S, scores={"linear": "s - 1"}, description=WORDS), ValueError, "no finite weight"),
    (lambda: figures.recall_bars(S, M=100, description=WORDS), ValueError, "M must be a step of the slider"),
    (lambda: figures.recall_bars(S, beta=0.7, description=WORDS), ValueError, "beta must lie in 1 ... 16"),
    (lambda: guess(question=""), ValueError, "question must say something"),
    (lambda: guess(answer="65"), TypeError, "answer must be a number, got str"),
    (lambda: guess(low=66.0), ValueError, r"answer must lie in its interval"),
    (lambda: guess(low=NAN), ValueError, "low must be finite, got nan"),
    (lambda: guess(domain=(1, 50)), ValueError, r"must lie in the domain \(1, 50\)"),
    (lambda: guess(domain=(0, 100)), ValueError, r"domain\[0\] must be positive on a log axis"),
    (lambda: guess(domain=(9, 1)), ValueError, "domain must be increasing"),
    (lambda: guess(domain=9), TypeError, r"domain must be a pair"),
    (lambda: guess(start=0.5), ValueError, "start must lie in the domain"),
    (
        lambda: figures.dots(pd.concat([dot_table()] * 2), x_title="x", description=WORDS),
        ValueError,
        "more than one 'measured' row for 'outer product'",
    ),
    (
        lambda: figures.histogram(change(histogram_table(), "left", 3.0), x_title="x", description=WORDS),
        ValueError,
        "must be below",
    ),
    (
        lambda: figures.histogram(change(histogram_table(), "density", -1.0), x_title="x", description=WORDS),
        ValueError,
        "must not be negative, got -1",
    ),
    (
        lambda: figures.histogram(
            pd.concat([histogram_table().assign(series=str(i)) for i in range(4)]), x_title="x", description=WORDS
        ),
        ValueError,
        "at most 3 series",
    ),
    (
        lambda: figures.histogram(
            histogram_table(),
            x_title="x",
            description=WORDS,
            law=pd.DataFrame({"series": ["other"], "x": [0.0], "density": [1.0]}),
        ),
        ValueError,
        r"law\['series'\] must be one of",
    ),
    (lambda: figures.matrix(np.eye(65), row_title="i", column_title="j", description=WORDS), ValueError, "64"),
    (
        lambda: figures.matrix([[NAN]], row_title="i", column_title="j", description=WORDS),
        ValueError,
        "must be finite, got nan",
    ),
    (
        lambda: figures.matrix(np.eye(2), row_title="i", column_title="j", domain=(-1, 2), description=WORDS),
        ValueError,
        "symmetric",
    ),
    (
        lambda: figures.vectors(change(vector_table(), "signal", 0.0), description=WORDS),
        ValueError,
        r"table\['signal'\] must be positive, as a length, got 0",
    ),
    (lambda: figures.vectors(pd.concat([vector_table()] * 3), description=WORDS), ValueError, "at most 4 rows"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ── a chart that would reach readers blank or broken fails its cell ─────────────────────────────────────────────────


def small(**changes) -> Figure:
    spec = {
        "height": 100,
        "data": {"values": [{"a": 1, "b": 2}, {"a": 2, "b": 3}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}},
    }
    return Figure({**spec, **changes}, data=pd.DataFrame({"a": [1, 2], "b": [2, 3]}), description=WORDS)


def test_a_plain_chart_passes():
    assert small().data.shape == (2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transform": [{"filter": "datum.a > 5"}]}, "blank"),
        ({"data": {"values": []}}, "asks for"),
        ({"encoding": {"x": {"field": "missing", "type": "quantitative"}}}, r"\['missing'\]"),
        ({"transform": [{"calculate": "datum.nothing * 2", "as": "c"}]}, r"\['nothing'\]"),
        ({"transform": [{"calculate": "datum.a +* 2", "as": "c"}]}, "cannot be drawn"),
        ({"mark": {"type": "text", "text": {"expr": "'' + sqrt(-1)"}}}, "NaN"),
        ({"mark": {"type": "text", "text": "only words"}}, "blank"),
    ],
)
def test_blank_or_broken_charts_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_check_svg_finds_undefined_and_infinity():
    good = '<svg><g class="mark-rule role-mark"><line x2="{}"/></g></svg>'
    rendering.check_svg(good.format(3))
    for bad in ("NaN", "undefined", "-Infinity"):
        with pytest.raises(ValueError, match=bad):
            rendering.check_svg(good.format(bad))


# ── one look through the whole book ─────────────────────────────────────────────────────────────────────────────────


def test_each_store_has_a_colour_and_a_shape_of_its_own():
    looks = [*style.STORE_STYLES.values(), *style._SPARE]
    assert len({s.shape for s in looks}) == len(looks) == 13
    assert len({s.color for s in looks}) == len(looks)
    assert list(style.STORE_STYLES) == [
        "outer product", "least squares", "ridge", "ReLU", "ReLU²", "ReLU³", "SwiGLU", "softmax"
    ]  # fmt: skip


def test_what_one_figure_compares_is_told_apart():
    models = ["Gated DeltaNet", "Gated DeltaNet, shifted keys", "transformer", "transformer, shifted keys"]
    writes = ["outer product", "least squares", "delta rule", "gated delta rule"]
    fading = ["outer product", "delta rule", "gated delta rule", "fading outer product"]
    for together in (models, writes, fading, ["no shift", "shifted keys"]):
        looks = [style.style_of(label) for label in together]
        assert len({s.shape for s in looks}) == len({s.color for s in looks}) == len(together)
    assert not style.known("my own store")


def test_a_store_keeps_its_look_whatever_else_is_drawn():
    alone = figures.curves(curve_table()[lambda t: t["store"] == "least squares"], description=WORDS)
    both = FORMS["curves"]()
    color = style.style_of("least squares").color
    assert shapes(draw(alone))["mark-symbol", color] == shapes(draw(both))["mark-symbol", color] == 5


def test_a_new_store_looks_the_same_on_every_page(monkeypatch):
    monkeypatch.setattr(style, "_given", {})
    alone = style.style_of("my own store")
    monkeypatch.setattr(style, "_given", {})
    others = [style.style_of(f"store {i}") for i in range(3)]
    assert len({s.shape for s in others}) == 3
    assert style.style_of("store 1") == others[1]
    monkeypatch.setattr(style, "_given", {})
    elsewhere = next(s for s in map(str, range(9)) if style.style_of(s) != alone)
    monkeypatch.setattr(style, "_given", {})
    style.style_of(elsewhere)
    assert style.style_of("my own store") == alone  # whatever came before it


def variables(selector: str) -> dict[str, str]:
    css = CSS.read_text()
    start = css.index(selector)
    return dict(re.findall(r"--ms-([\w-]+): (#\w{6});", css[start : css.index("}", start)]))


def linear(color: str) -> np.ndarray:
    c = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, two: str) -> float:
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


STORE_VARIABLES = [re.search(r"--ms-([\w-]+)", s.color).group(1) for s in style.STORE_STYLES.values()]
SPARE_VARIABLES = [re.search(r"--ms-([\w-]+)", s.color).group(1) for s in style._SPARE]
THEMES = [("html {", "#ffffff"), ('html[data-theme="dark"] {', "#121212"), ('html[data-theme="dark"] {', "#14181e")]


@pytest.mark.parametrize(("selector", "background"), THEMES)
def test_contrast_in_both_themes(selector, background):
    colors = variables(selector)
    for name in [*STORE_VARIABLES, *SPARE_VARIABLES, "target", "other", "axis", "control"]:
        assert contrast(colors[name], background) >= 3, name
    for name in ("ink", "muted", "target-text"):
        assert contrast(colors[name], background) >= 4.5, name


def test_fallback_colours_show_on_white_and_on_black():
    for look in [*style.STORE_STYLES.values(), *style._SPARE]:
        fallback = re.search(r"#\w{6}", look.color).group()
        assert contrast(fallback, "#ffffff") >= 3, look
        assert contrast(fallback, "#111111") >= 3, look


# Machado, Oliveira and Fernandes 2009, full severity: normal sight, protanopia, deuteranopia, tritanopia.
SIGHT = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def oklab(rgb: np.ndarray) -> np.ndarray:
    to_cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    to_lab = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ rgb)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("selector", ["html {", 'html[data-theme="dark"] {'])
def test_stores_and_target_are_told_apart_by_colour(selector, sight):
    colors = variables(selector)
    seen = {n: oklab(np.clip(SIGHT[sight] @ linear(colors[n]), 0, 1)) for n in ["target", *STORE_VARIABLES]}
    for one, two in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[two]) > 0.05, (one, two)


def test_shapes_alone_tell_the_stores_apart():
    """In grey, or to eyes that see few colours."""
    own = [*style.STORE_STYLES.values(), *style._SPARE]
    assert len({look.shape for look in style.STORE_STYLES.values()}) == len(style.STORE_STYLES)
    assert len({look.shape for look in style._SPARE}) == len(style._SPARE)
    assert {look.shape for look in style._SPARE}.isdisjoint(look.shape for look in style.STORE_STYLES.values())
    assert len({look.color for look in own}) == len(own)


def hollow(figure: Figure, **signals: object) -> list[str]:
    """The shapes that are drawn hollow, each as its path without a place."""
    symbols = [g for g in draw(figure, **signals).iter() if "mark-symbol" in g.get("class", "").split()]
    return [shape.get("d") for g in symbols for shape in g if "--ms-paper" in shape.get("fill", "")]


def test_lines_along_which_nothing_was_measured_carry_shapes():
    law = curve_table().query("kind == 'law'")
    assert hollow(figures.curves(curve_table(), description=WORDS)) == []
    both = hollow(figures.curves(law, description=WORDS))
    assert len(set(both)) == 2
    assert len(both) >= 6
    half = pd.concat([law, curve_table().query("store == 'outer product' and kind == 'measured'")])
    assert len(set(hollow(figures.curves(half, description=WORDS)))) == 1
    stepped = pd.concat([law.assign(cosine=c) for c in (0.5, 1.0)])
    assert len(hollow(figures.curves(stepped, description=WORDS, slider="cosine"))) == len(both)


def test_sliders_of_letters_are_named_in_words():
    table = pd.concat([curve_table().assign(d=d) for d in (16, 64)])
    spec = figures.curves(table, description=WORDS, slider="d").spec
    assert spec["usermeta"]["memstore"]["controls"]["at_step"]["label"] == "key dimension d"
    assert spec["params"][0]["bind"]["name"] == "key dimension d (step)"


def test_ticks_are_numbers_that_people_read():
    assert style.log_ticks(16, 4096) == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096][::2]
    assert style.log_ticks(1, 10_000) == [1, 10, 100, 1000, 10_000]
    assert style.log_ticks(0.09, 8.3) == [0.1, 0.3, 1, 3]
    assert style.log_ticks(0.5, 4) == [0.5, 1, 2]
    assert 2**20 in style.log_ticks(16, 2**20)
    assert style.log_ticks(2.8, 4.4) == [3.0, 3.5, 4.0]
    million = curve_table().replace({"M": {1024: 2**20}})
    said = words(draw(figures.curves(million, description=WORDS)))
    assert "1 million" in said
    assert "1,024" in said


@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e6))
def test_every_log_axis_has_a_few_ticks_within_its_ends(low, factor):
    ticks = style.log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 8
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)


def test_a_dashed_line_can_be_something_else_than_a_rule_of_thumb():
    table = curve_table().assign(kind="rule", low=np.nan, high=np.nan)
    assert "rule of thumb" in figures.curves(table, description=WORDS).html()
    fitted = figures.curves(table, description=WORDS, rule="fitted power law").html()
    assert "fitted power law" in fitted
    assert "rule of thumb" not in fitted


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_272_264, "1.27 million"), (65, "65"), (2817, "2,820"), (0.0038471, "0.00385"), (0, "0"), (3e9, "3 billion")],
)
def test_numbers_in_words(value, text):
    assert style.number(value) == text


def test_intervals_decide_the_decimals():
    assert style.with_interval(65.03, 64.62, 65.41) == ("65.0", "64.6", "65.4")
    assert style.with_interval(2817.2, 2650.1, 2950.9) == ("2,817", "2,650", "2,951")
    assert style.with_interval(65.0, 65.0, 65.0) == ("65", "65", "65")


# ── the data goes along ─────────────────────────────────────────────────────────────────────────────────────────────


def test_download_is_the_data_with_four_significant_digits():
    figure = figures.curves(curve_table().assign(unused=1.23456789), description="Ratio, against M: two stores!")
    html = figure.html()
    (link,) = re.findall(r'<a class="ms-download" download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]+)"', html)
    assert link[0] == "ratio-against-m-two-stores.csv"
    rows = list(csv.reader(io.StringIO(unquote(link[1]))))
    assert rows[0] == ["store", "M", "kind", "value", "low", "high"]
    assert rows[1] == ["outer product", "4", "law", "0.25", "", ""]
    assert rows[4] == ["outer product", "16", "measured", "0.505", "0.485", "0.525"]
    assert len(rows) == 1 + len(curve_table())
    assert max(len(re.sub(r"\D", "", r[3]).lstrip("0")) for r in rows[1:]) <= 4
    assert "unused" not in html


def test_short_data_is_a_table_that_scrolls_and_takes_focus():
    html = FORMS["curves"]().html()
    assert '<div class="ms-table" role="region" tabindex="0" aria-label="Data: What the picture shows."' in html
    assert html.count('<th scope="col">') == 6
    assert html.count("<tr>") == 1 + 22
    assert "<table" not in FORMS["recall_bars"]().html()


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1 / 3, 0.3333), (4096, 4096), (np.float32(0.125), 0.125), (1_272_264.0, 1_272_000), (NAN, None), ("a", "a")],
)
def test_significant(value, rounded):
    assert significant(value) == rounded


def test_records_leave_out_what_is_not_there():
    table = pd.DataFrame({"a": [1 / 3, 2.0], "b": [NAN, 5.0]})
    assert records(table, {"a": "x"}) == [{"x": 0.3333}, {"x": 2, "b": 5}]


def test_ids_are_unique_and_scripts_cannot_be_closed_from_within():
    figure = figures.curves(curve_table(), description='Ends </script><script>alert("x")</script> & "quotes"')
    one, two = figure.html(), figure.html()
    ids = [re.search(r'<div id="([^"]+)"', html).group(1) for html in (one, two)]
    assert ids[0] != ids[1]
    assert one.count("</script>") == 1
    assert "<script>alert" not in one.split("<script type")[0]


def test_weight_of_a_recall_figure():
    assert len(FORMS["recall_bars"]().html().encode()) < 120_000


# ── in a browser: charts.js ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def page_of(chromium, tmp_path_factory):
    """A page with the given figures as the book has them: loader in the head, Vega beside it, no other host."""
    import json

    import altair as alt

    folder = tmp_path_factory.mktemp("figures")
    bundle = vl_convert.javascript_bundle(
        "window.MEMSTORE_VEGA = {vega, vegaLite, vegaEmbed};", vl_version=vl_version_for_vl_convert()
    )
    (folder / "vega.js").write_text("(function () {" + bundle + "})();", encoding="utf8")
    versions = {"vega": alt.VEGA_VERSION, "vega-lite": alt.VEGALITE_VERSION, "vega-embed": alt.VEGAEMBED_VERSION}
    pages = []

    def open_page(body: str, bundle: str = "vega.js", width: int = 700):
        setup = f"window.MEMSTORE_CHARTS = {json.dumps({'bundle': bundle, 'versions': versions})}"
        html = (
            f'<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>t</title>'
            f'<link rel="stylesheet" href="{CSS.as_uri()}"><script>{setup}</script>'
            f'<script src="{(CSS.parent / "charts.js").as_uri()}"></script></head>'
            f'<body style="font-family:Georgia"><main><h1>t</h1>{body}</main></body></html>'
        )
        path = folder / f"{len(pages)}.html"
        path.write_text(html, encoding="utf8")
        page = chromium.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.complaints, page.requested = [], []
        page.on("console", lambda m: page.complaints.append(m.text) if m.type in {"error", "warning"} else None)
        page.on("pageerror", lambda e: page.complaints.append(str(e)))
        page.on("request", lambda r: page.requested.append(r.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()


def test_page_draws_all_forms_without_other_hosts(page_of):
    from axe_playwright_python.sync_playwright import Axe

    page = page_of("".join(make().html() for make in FORMS.values()), width=360)
    for i in range(len(FORMS)):
        page.locator(".ms-figure").nth(i).scroll_into_view_if_needed()
        page.locator(".ms-figure").nth(i).locator(".ms-drawn svg").wait_for()
    assert page.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in page.requested)
    assert sum("vega.js" in url for url in page.requested) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    fonts = page.evaluate(
        "[...new Set([...document.querySelectorAll('svg.marks text')].map(t => t.getAttribute('font-family')))]"
    )
    assert fonts == ["Georgia"]
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        page.evaluate(
            "document.body.style.background = getComputedStyle(document.documentElement).getPropertyValue('--ms-paper')"
        )
        page.evaluate(
            "document.body.style.color = getComputedStyle(document.documentElement).getPropertyValue('--ms-ink')"
        )
        found = Axe().run(page).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


def test_controls_say_what_they_are_and_set_to(page_of):
    page = page_of(FORMS["recall_bars"]().html() * 2)
    page.locator(".ms-drawn").nth(1).wait_for()
    figure = page.locator(".ms-figure").first
    slider = figure.get_by_label("stored memories M")
    assert slider.get_attribute("aria-valuetext") == "64"
    sharpness = figure.get_by_label("sharpness β (softmax only)")
    assert sharpness.is_disabled()
    slider.focus()
    before = figure.locator(".readout_marks").text_content()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "4,096"
    assert figure.locator("output").first.text_content() == "4,096"
    page.wait_for_function("document.querySelector('.ms-live').textContent.includes('recall fails at M = 4,096; ')")
    assert figure.locator(".readout_marks").text_content() != before
    figure.get_by_label("softmax", exact=True).check()
    assert sharpness.is_enabled()
    other = page.locator(".ms-figure").nth(1)
    assert other.get_by_label("linear", exact=True).is_checked()  # each figure has its own choice
    assert other.get_by_label("stored memories M").get_attribute("aria-valuetext") == "64"


def test_theme_changes_colours_without_a_redraw(page_of):
    page = page_of(FORMS["recall_bars"]().html())
    page.locator(".ms-drawn").wait_for()
    page.get_by_label("stored memories M").fill("12")
    red = "getComputedStyle(document.querySelector('line[stroke*=\"--ms-target,\"]')).stroke"
    light = page.evaluate(red)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert page.evaluate(red) != light
    assert page.get_by_label("stored memories M").input_value() == "12"


FOLDED = {
    "dropdown": (
        "<details id='fold'><summary>more</summary>{}</details>",
        "document.querySelector('#fold').open = true",
    ),
    "tab": ("<div id='fold' style='display:none'>{}</div>", "document.querySelector('#fold').style.display = 'block'"),
}


@pytest.mark.parametrize("kind", FOLDED)
def test_a_folded_chart_waits_for_its_width(page_of, kind):
    fold, unfold = FOLDED[kind]
    page = page_of(fold.format(FORMS["dots"]().html()) + FORMS["vectors"]().html())
    page.locator(".ms-drawn").first.wait_for(state="attached")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # not even printing draws what has no width
    page.wait_for_timeout(300)
    assert page.locator("#fold .ms-drawn").count() == 0
    page.evaluate(unfold)
    page.locator("#fold .ms-drawn svg").wait_for()
    assert int(page.locator("#fold .ms-drawn svg").get_attribute("width")) > 500
    assert page.complaints == []


def test_a_narrower_box_is_followed(page_of):
    page = page_of(FORMS["dots"]().html())
    page.locator(".ms-drawn svg").wait_for()
    page.evaluate("document.querySelector('main').style.width = '400px'")
    page.wait_for_function("+document.querySelector('.ms-drawn svg').getAttribute('width') <= 400")
    assert page.complaints == []


def test_charts_far_below_are_drawn_without_scrolling(page_of):
    page = page_of(f'{FORMS["vectors"]().html()}<div style="height:9000px"></div>{FORMS["dots"]().html()}')
    page.locator(".ms-drawn").nth(1).wait_for(state="attached")
    assert page.evaluate("scrollY") == 0
    assert sum("vega.js" in url for url in page.requested) == 1


def test_a_failure_is_seen(page_of):
    page = page_of(FORMS["dots"]().html(), bundle="missing.js")
    page.get_by_role("alert").wait_for()
    assert "could not be drawn" in page.get_by_role("alert").text_content()
    assert any("A figure could not be drawn" in c for c in page.complaints)


def test_slider_step_is_quick(page_of):
    page = page_of(FORMS["recall_bars"]().html())
    page.locator(".ms-drawn").wait_for()
    steps = page.evaluate(
        """async () => {
          const slider = document.querySelector('input[name=log2_M]');
          const said = () => document.querySelector('.readout_marks').textContent;
          const times = [];
          for (let round = 0; round < 3; round++) for (let v = 4; v <= 12; v += 0.5) {
            if (+slider.value === v) continue;
            const before = said(), start = performance.now();
            slider.value = v;
            slider.dispatchEvent(new Event('input', {bubbles: true}));
            while (said() === before && performance.now() - start < 1000) await new Promise(requestAnimationFrame);
            times.push(performance.now() - start);
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    assert len(steps) >= 48
    assert steps[len(steps) // 2] <= 50  # the median: other programs share the machine
