"""Kanji as values, what stores recall of them, and the figure that shows it, in a browser too."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from PIL import Image

from memstore_lib import figures, glyphs, memories, scores, stores, theory
from tests import site_tools

GRID = [16, 64, 256]
FOUR = [stores.OuterProduct(), stores.MLP(scores.ReLU()), stores.MLP(scores.ReLU(2)), stores.Attention(beta=8.0)]
WORDS = "A kanji as it was stored, and as four stores recall it."
STATIC = Path(__file__).parents[1] / "book" / "_static"


@pytest.fixture(scope="module")
def few():
    return glyphs.Glyphs(glyphs.kanji(256), size=16)


@pytest.fixture(scope="module")
def keys():
    return memories.unit_keys(256, 64, seed=3, device="cpu")


@pytest.fixture(scope="module")
def recalls(few, keys):
    return glyphs.recall(FOUR, keys, few, GRID)


# --- kanji ------------------------------------------------------------------------------------------------------


def test_kanji_are_distinct_real_and_in_a_fixed_order():
    text = glyphs.kanji(6355)
    assert len(set(text)) == len(text) == 6355
    assert all(0x4E00 <= ord(character) <= 0x9FFF or character in "々〇" for character in text)
    assert glyphs.kanji(2048) == text[:2048]
    assert text[0] == "記"
    assert text[:8] == "".join(glyphs.CHOSEN)
    assert len(glyphs.CHOSEN) >= 8
    assert text[8:11] == "亜唖娃"  # where JIS X 0208 begins


def test_one_kanji():
    assert glyphs.kanji(1) == "記"


@pytest.mark.parametrize("count", [0, -1, 6356, 10**9])
def test_kanji_count_out_of_range(count):
    with pytest.raises(ValueError, match=r"count must be at (least 1|most 6,355), .*got"):
        glyphs.kanji(count)


def test_kanji_count_of_another_type():
    with pytest.raises(TypeError, match=r"count must be an integer, got 2048\.0 of type float"):
        glyphs.kanji(2048.0)


# --- images -----------------------------------------------------------------------------------------------------


def test_images_are_ink_on_paper_and_differ():
    ink = glyphs.images(glyphs.kanji(2048), size=32)
    assert ink.shape == (2048, 1024)
    assert (ink.min().item(), ink.max().item()) == (0, 1)
    assert len({row.numpy().tobytes() for row in ink}) == 2048
    assert ink.mean(1).min() > 0.03  # none is blank
    square = ink.mean(0).reshape(32, 32)
    border = torch.cat([square[0], square[-1], square[:, 0], square[:, -1]])
    assert border.max() < 0.05, "glyphs are cut off at the rim"
    assert square[4:-4, 4:-4].min() > 0.15


def test_rows_run_from_the_top_left():
    """一 is one stroke across the middle; 丨 one from top to bottom."""
    across, down = glyphs.images("一丨", size=24).reshape(2, 24, 24)
    assert across.sum(1).argmax() in range(9, 15)
    assert (across.sum(1) > 0).sum() < 8 < (across.sum(0) > 0).sum()
    assert (down.sum(0) > 0).sum() < 8 < (down.sum(1) > 0).sum()


def test_images_are_the_callers_own():
    before = glyphs.images("記憶", size=16)
    before.zero_()
    assert glyphs.images("記憶", size=16).sum() > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "text must hold at least one character, got an empty string"),
        ("記憶記", "text must not repeat a character, got '記' again at place 2"),
        ("記 憶", "text must hold characters that can be seen, got ' ' at place 1"),
        ("記\n", r"text must hold characters that can be seen, got '\\n' at place 1"),
        ("記\u3000", "text must hold characters that can be seen"),
        ("記\ue000", "text must hold characters that can be seen"),
        ("記\ud800", "text must hold characters that can be seen"),
        ("記🙂", r"text must hold characters that the font NotoSansCJKjp-Regular.otf has, got '🙂' \(U\+1F642\)"),
        ("記ა", r"that the font .* has, got 'ა' \(U\+10D0\)"),
        ("A\u0410", "text must hold glyphs that differ at size = 16, got 'A' and 'А'"),  # Cyrillic А
    ],
)
def test_text_that_cannot_be_drawn(text, words):
    with pytest.raises(ValueError, match=words):
        glyphs.images(text, size=16)


@pytest.mark.parametrize("text", [None, 5, ["記", "憶"], b"abc"])
def test_text_of_another_type(text):
    with pytest.raises(TypeError, match="text must be a string of kanji, got"):
        glyphs.images(text)


@pytest.mark.parametrize("size", [0, -4, 7])
def test_size_too_small(size):
    with pytest.raises(ValueError, match=f"size must be at least 8, got {size}"):
        glyphs.images("記", size=size)


def test_size_of_another_type():
    with pytest.raises(TypeError, match="size must be an integer"):
        glyphs.images("記", size=16.5)


@pytest.mark.parametrize(("d_v", "root"), [(1, 1), (64, 8), (1024, 32)])
def test_side(d_v, root):
    assert glyphs.side(d_v) == root


@pytest.mark.parametrize("d_v", [2, 63, 65, 1000])
def test_side_of_no_square(d_v):
    with pytest.raises(ValueError, match=f"d_v must be a square such as .*, got {d_v}"):
        glyphs.side(d_v)


def test_side_below_one():
    with pytest.raises(ValueError, match="d_v must be at least 1, got 0"):
        glyphs.side(0)


def test_the_library_does_without_pillow_and_font_until_a_glyph_is_drawn():
    code = """
import sys
sys.modules["PIL"] = sys.modules["noto_cjk_sans_jp_regular"] = None  # as if not installed
import memstore_lib, memstore_lib.figures
from memstore_lib import glyphs
assert glyphs.kanji(9)[0] == "記"
for module, package in (("PIL", "pillow"), ("noto_cjk_sans_jp_regular", "noto-cjk-sans-jp-regular")):
    try:
        glyphs.images("記")
    except ImportError as error:
        assert f"pip install {package}" in str(error), error
    else:
        raise AssertionError(f"drawn without {module}")
    del sys.modules[module]
glyphs.images("記")
"""
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- values -----------------------------------------------------------------------------------------------------


def test_values_have_length_one_and_no_common_part(few):
    assert few.values.shape == (256, 256)
    assert torch.allclose(few.values.norm(dim=1), torch.ones(256), atol=1e-5)
    assert few.share < 1e-3
    assert torch.allclose(few.mean, glyphs.images(few.text, 16).mean(0))


def test_with_the_mean_glyph_values_share_much():
    raw = glyphs.Glyphs(glyphs.kanji(256), size=16, remove_mean=False)
    assert raw.mean.abs().max() == 0
    assert 0.3 < raw.share < 0.8
    assert torch.allclose(raw.values.norm(dim=1), torch.ones(256), atol=1e-5)


def test_a_single_glyph_has_nothing_left_without_its_mean():
    with pytest.raises(ValueError, match="text must hold at least 2 characters for a mean glyph to remove, got '記'"):
        glyphs.Glyphs("記")
    assert len(glyphs.Glyphs("記", remove_mean=False)) == 1


def test_pictures_of_the_values_are_the_images(few):
    seen = few.pictures(few.values)
    ink = glyphs.images(few.text, 16).reshape(-1, 16, 16)
    assert seen.shape == ink.shape
    assert (seen - ink).abs().mean() < 0.02  # lengths differ a little from their mean
    assert (seen.min().item(), seen.max().item()) == (0, 1)


def test_pictures_show_direction_alone(few):
    assert torch.allclose(few.pictures(1e-4 * few.values), few.pictures(7.0 * few.values), atol=1e-5)
    nothing = few.pictures(torch.zeros(1, 256))
    assert torch.allclose(nothing.flatten(), few.mean)


@pytest.mark.parametrize(
    ("recalled", "words"),
    [
        (torch.zeros(2, 250), "d_v must be a square such as 225 = 15 · 15 to be seen as an image, got 250"),
        (torch.zeros(2, 64), r"recalled must have d_v = 256 columns like these glyphs, got \(2, 64\)"),
        (torch.zeros(256), r"recalled must have shape \(n, d_v\), got \(256,\)"),
        (torch.full((1, 256), torch.nan), "recalled must be finite"),
    ],
)
def test_pictures_of_something_else(few, recalled, words):
    with pytest.raises(ValueError, match=words):
        few.pictures(recalled)


def test_pictures_of_another_type(few):
    with pytest.raises(TypeError, match="recalled must have a floating-point dtype"):
        few.pictures(torch.zeros(2, 256, dtype=torch.int64))


# --- recall -----------------------------------------------------------------------------------------------------


def test_table_and_pictures_agree_with_a_store_asked_by_hand(few, keys, recalls):
    assert recalls.pictures.shape == (8, 4, 3, 16, 16)
    assert recalls.truth.shape == (8, 16, 16)
    rows = list(itertools.product(glyphs.CHOSEN, [store.name for store in FOUR], GRID))
    assert list(recalls.table[["kanji", "store", "M"]].itertuples(index=False, name=None)) == rows
    for k, s, m in ((0, 0, 0), (5, 1, 2), (7, 2, 1), (3, 3, 2)):
        M, at = GRID[m], few.text.index(list(glyphs.CHOSEN)[k])
        w = torch.softmax(8 * keys[:M] @ keys[at], 0) if s == 3 else FOUR[s].score(keys[:M] @ keys[at])
        found, signal = w @ few.values[:M], w[at] * few.values[at]
        row = recalls.table.iloc[(k * 4 + s) * 3 + m]
        assert row["ratio"] == pytest.approx(((found - signal).norm() / signal.norm()).item(), rel=1e-3)
        assert row["cosine"] == pytest.approx((found @ few.values[at] / found.norm()).item(), abs=1e-4)
        assert np.abs(recalls.pictures[k, s, m] - few.pictures(found[None])[0].numpy()).max() < 1e-3


def test_ratios_follow_the_laws():
    """Root mean square of eight kanji over eight draws of keys, below the M at which the values add up to nothing."""
    text, four = glyphs.Glyphs(glyphs.kanji(1024), size=16), [*FOUR[:3], stores.MLP(scores.Exponential(8.0))]
    squares = []
    for seed in range(8):
        draw = memories.unit_keys(1024, 64, seed=seed, device="cpu")
        table = glyphs.recall(four, draw, text, [64]).table
        squares.append(table.assign(square=table["ratio"] ** 2).groupby("store")["square"].mean())
    for store in four:
        typical = (sum(squares)[store.name] / len(squares)) ** 0.5
        assert typical == pytest.approx(theory.isr(store.score, 64, 64), rel=0.12)


def test_the_mean_glyph_drowns_scores_that_are_never_negative(keys, recalls):
    raw = glyphs.recall(FOUR, keys, glyphs.Glyphs(glyphs.kanji(256), size=16, remove_mean=False), [256]).table
    bare = raw.groupby("store")["ratio"].median()
    clean = recalls.table.query("M == 256").groupby("store")["ratio"].median()
    for name in ("ReLU", "ReLU²", "softmax"):
        assert bare[name] > 3 * clean[name]
    assert bare["outer product"] < 2 * clean["outer product"]


def test_stores_stay_empty_and_glyphs_unchanged(few, keys):
    store, before = stores.OuterProduct(), few.values.clone()
    glyphs.recall(store, keys, few, [16], targets="憶")
    assert len(store) == 0
    assert torch.equal(few.values, before)


def test_recall_in_double_precision(few, keys, recalls):
    table = glyphs.recall(FOUR, keys.double(), few, GRID).table
    assert np.allclose(table["ratio"], recalls.table["ratio"], rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": [16, 257]}, "grid must not go beyond the 256 glyphs, got M = 257"),
        ({"keys": torch.eye(20)}, "grid must not go beyond the 20 keys, got M = 256"),
        ({"grid": []}, "grid must hold at least one M"),
        ({"grid": [64, 16]}, "grid must increase"),
        ({"grid": [4, 16]}, "targets must be among the 4 characters stored at the smallest M, got '値'"),
        ({"targets": ""}, "targets must hold at least one character, got none"),
        ({"targets": "記記"}, "targets must not repeat a character, got '記記'"),
        ({"targets": "山"}, "targets must be among the 16 characters stored at the smallest M, got '山'"),
        ({"targets": ["記憶"]}, "targets must be among the 16 characters .*, got '記憶'"),
        ({"targets": [3]}, "targets must be among the 16 characters .*, got 3"),
        ({"keys": torch.zeros(256, 64)}, "keys must not be zero"),
        ({"stores": [stores.OuterProduct(), stores.OuterProduct()]}, "stores must have different names"),
        ({"stores": []}, "stores must hold at least one store"),
    ],
)
def test_recalls_that_make_no_sense(few, keys, changes, words):
    asked = {"stores": FOUR, "keys": keys, "glyphs": few, "grid": GRID} | changes
    with pytest.raises(ValueError, match=words):
        glyphs.recall(**asked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"glyphs": "記憶"}, "glyphs must be Glyphs, got str"),
        ({"keys": [[1.0]]}, "keys must be a torch.Tensor"),
        ({"stores": ["outer product"]}, r"stores\[0\] must be a Store"),
        ({"grid": [16.5]}, r"grid\[0\] must be an integer"),
    ],
)
def test_recalls_of_other_types(few, keys, changes, words):
    asked = {"stores": FOUR, "keys": keys, "glyphs": few, "grid": GRID} | changes
    with pytest.raises(TypeError, match=words):
        glyphs.recall(**asked)


# --- the figure -------------------------------------------------------------------------------------------------


def soup(figure: figures.Figure) -> BeautifulSoup:
    return BeautifulSoup(figure.html(), "html.parser")


def shown(picture) -> np.ndarray:
    """The ink that a picture of the figure shows: the part of its sprite that its window is over."""
    window = picture.select_one(".ms-window")
    x, y, wide, high = map(int, window["viewbox"].split())
    data = base64.b64decode(window.select_one("image")["href"].removeprefix("data:image/png;base64,"))
    sprite = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
    assert (sprite[..., :3] == 0).all()
    return sprite[y : y + high, x : x + wide, 3] / 255


@pytest.mark.parametrize(("M", "m"), [(None, 2), (16, 0), (64, 1)])
def test_figure_shows_the_recalls_without_a_script(recalls, M, m):
    page = soup(figures.glyph_recalls(recalls, description=WORDS, M=M))
    true, *others = page.select(".ms-picture")
    assert np.abs(shown(true) - recalls.truth[0]).max() < 1 / 29
    assert len(others) == 4
    for s, picture in enumerate(others):
        assert np.abs(shown(picture) - recalls.pictures[0, s, m]).max() < 1 / 29  # half a step of 16 greys
        row = recalls.table.iloc[s * 3 + m]
        assert float(picture.select_one(".ms-ratio").text) == pytest.approx(row["ratio"], rel=0.06)
        assert float(picture.select_one(".ms-cosine").text) == pytest.approx(row["cosine"], abs=6e-4)
        assert picture.select_one(".ms-mark").text == ("✓" if row["ratio"] < 1 else "✗")


def test_figure_offers_its_numbers_and_says_what_it_shows(recalls):
    figure = figures.glyph_recalls(recalls, description=f" {WORDS} ", data_note="· of this build")
    page = soup(figure)
    assert page.select_one("[role=graphics-document]")["aria-label"] == WORDS
    lines = figure.csv().splitlines()
    assert lines[0] == "kanji,store,M,ratio,cosine"
    assert len(lines) == 1 + 8 * 4 * 3
    assert "Data (96 rows) · of this build" in page.select_one("details summary").text
    facts = json.loads(page.select_one("script[type='application/json']").string)
    assert facts["kanji"] == list(glyphs.CHOSEN)
    assert facts["M"] == ["16", "64", "256"]
    for s, k, m in itertools.product(range(4), range(8), range(3)):
        row, written = recalls.table.iloc[(k * 4 + s) * 3 + m], facts["numbers"][s][k][m]
        assert float(written[0]) == pytest.approx(row["ratio"], rel=0.06)
        assert float(written[1]) == pytest.approx(row["cosine"], abs=6e-4)
        assert written[2] == (row["ratio"] < 1)
    assert [label.text.strip() for label in page.select(".ms-choice label")] == [
        k + w for k, w in glyphs.CHOSEN.items()
    ]
    names = [picture.select_one("b").text for picture in page.select(".ms-picture")]
    assert names == ["stored", "outer product", "ReLU MLP", "gated MLP", "attention"]


def test_figure_is_complete_in_itself_and_light(recalls):
    html = figures.glyph_recalls(recalls, description=WORDS).html()
    assert not re.search(r"(?:src|href)=['\"](?!data:)", html)
    assert "http" not in re.sub(r"data:[^\"]*", "", html)
    assert len(html) < 100_000  # 8 kanji, 4 stores, 3 M, 16 pixels


def test_figures_of_one_page_do_not_share_a_choice(recalls):
    one, two = (soup(figures.glyph_recalls(recalls, description=WORDS)) for _ in range(2))
    assert one.select_one("input[type=radio]")["name"] != two.select_one("input[type=radio]")["name"]


def test_a_single_kanji_needs_no_choice(few, keys):
    page = soup(figures.glyph_recalls(glyphs.recall(FOUR, keys, few, GRID, targets="夢"), description=WORDS))
    assert page.select("input[type=radio]") == []
    assert page.select_one(".ms-true svg.marks")["aria-label"] == "夢, as it was stored"


def test_text_from_the_caller_is_escaped(recalls):
    page = soup(figures.glyph_recalls(recalls, description='a "<b>" of strokes & more', meanings={"記": "<i>x</i>"}))
    assert page.select_one("[role=graphics-document]")["aria-label"] == 'a "<b>" of strokes & more'
    assert page.select("i") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, pictures=r.pictures[:, :3]), r"recalls.pictures must have the shape \(8, 4, 3, size"),
        (lambda r: replace(r, pictures=r.pictures[..., :9]), r"recalls.pictures must have the shape"),
        (lambda r: replace(r, pictures=r.pictures[0, 0, 0]), r"recalls.pictures must have the shape"),
        (lambda r: replace(r, truth=r.truth[:7]), r"recalls.truth must have the shape \(8, size, size\)"),
        (lambda r: replace(r, truth=r.truth[:, :8, :8]), "recalls.pictures and truth must have one size"),
        (lambda r: replace(r, pictures=r.pictures * 2), r"recalls.pictures must be ink in \[0, 1\]"),
        (lambda r: replace(r, pictures=r.pictures * np.nan), r"recalls.pictures must be ink in \[0, 1\]"),
        (
            lambda r: replace(r, table=r.table.iloc[:-1]),
            "recalls.table must hold 8 kanji × 4 stores × 3 M, got 95",
        ),
        (lambda r: replace(r, table=r.table.iloc[:0]), "recalls.table is empty"),
        (lambda r: replace(r, table=r.table.drop(columns="cosine")), "recalls.table lacks the column 'cosine'"),
        (lambda r: replace(r, table=r.table.assign(ratio=np.nan)), r"recalls.table\['ratio'\] must be finite"),
    ],
)
def test_recalls_that_cannot_be_drawn(recalls, change, words):
    with pytest.raises(ValueError, match=words):
        figures.glyph_recalls(change(recalls), description=WORDS)


def test_an_m_that_was_not_recalled(recalls):
    with pytest.raises(ValueError, match=r"M must be one of \[16, 64, 256\], got 128"):
        figures.glyph_recalls(recalls, description=WORDS, M=128)


def test_figure_without_words(recalls):
    with pytest.raises(ValueError, match="description must say something"):
        figures.glyph_recalls(recalls, description=" ")
    with pytest.raises(TypeError, match="description must be a string"):
        figures.glyph_recalls(recalls, description=None)


def test_figure_of_another_type(recalls):
    with pytest.raises(TypeError, match=r"recalls must be glyphs.Recalls, got DataFrame"):
        figures.glyph_recalls(recalls.table, description=WORDS)


# --- in a browser -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def document(recalls, tmp_path_factory):
    """A page with the figure alone, in the book's colours."""
    figure = figures.glyph_recalls(recalls, description=WORDS, M=64).html()
    style = (STATIC / "book.css").read_text(encoding="utf8")
    page = tmp_path_factory.mktemp("glyphs") / "page.html"
    page.write_text(
        f'<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Glyphs</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style} body {{background: var(--ms-paper); '
        f"color: var(--ms-ink); font-family: sans-serif}}</style></head><body><main><h1>Glyphs</h1>{figure}</main>"
        "</body></html>",
        encoding="utf8",
    )
    return page.as_uri()


@pytest.fixture
def opened(chromium, document):
    """Open the page; every request and complaint is noted."""
    contexts = []

    def opened(motion="no-preference", width=1280, **options):
        context = chromium.new_context(viewport={"width": width, "height": 800}, reduced_motion=motion, **options)
        contexts.append(context)
        seen = site_tools.Visit(context.new_page())
        seen.listen()
        seen.page.clock.install()
        seen.page.goto(document)
        return seen

    yield opened
    for context in contexts:
        context.close()


def state(page) -> tuple[str, list[str], list[str]]:
    """M, the names that screen readers hear, and the ratios."""
    labels = page.locator(".ms-picture svg.marks").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    return page.locator(".ms-figure output").text_content(), labels, page.locator(".ms-ratio").all_text_contents()


@pytest.mark.site
def test_slider_and_choice_change_pictures_numbers_and_names(opened, recalls):
    page = opened().page
    before = page.locator(".ms-pictures").screenshot()
    assert state(page)[0] == "64"
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    M, labels, ratios = state(page)
    assert M == page.locator("input[type=range]").get_attribute("aria-valuetext") == "256"
    wanted = recalls.table.query("kanji == '記' and M == 256")
    assert [float(ratio) for ratio in ratios] == pytest.approx(wanted["ratio"].tolist(), rel=0.06)
    assert labels[0] == "記, as it was stored"
    assert labels[4].startswith("記 recalled from attention with M = 256: ratio 0.0")
    after = page.locator(".ms-pictures").screenshot()
    assert after != before
    page.locator("input[type=radio]").first.focus()
    page.keyboard.press("ArrowRight")
    _, labels, ratios = state(page)
    wanted = recalls.table.query("kanji == '憶' and M == 256")
    assert [float(ratio) for ratio in ratios] == pytest.approx(wanted["ratio"].tolist(), rel=0.06)
    assert labels[0] == "憶, as it was stored"
    assert page.locator(".ms-pictures").screenshot() != after
    windows = page.locator(".ms-window").evaluate_all("all => all.map(one => one.getAttribute('viewBox'))")
    assert windows[-5:] == ["0 16 16 16"] + ["32 16 16 16"] * 4  # second row, third column of each sprite


@pytest.mark.site
def test_pictures_are_drawn_in_both_themes(opened, recalls):
    page = opened().page
    page.keyboard.press("Home")
    for theme in ("light", "dark"):
        page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
        for k, picture in enumerate(page.locator(".ms-picture svg.marks").all()):
            grey = Image.open(io.BytesIO(picture.screenshot())).convert("L").resize((20, 20), Image.Resampling.BOX)
            seen = np.asarray(grey)[2:-2, 2:-2].astype(float).ravel()
            ink = (recalls.truth[0] if k == 0 else recalls.pictures[0, k - 1, 1]).astype(np.float32)
            wide = Image.fromarray(ink).resize((20, 20), Image.Resampling.BOX)
            likeness = np.corrcoef(seen, np.asarray(wide)[2:-2, 2:-2].ravel())[0, 1]
            assert likeness < -0.8 if theme == "light" else likeness > 0.8


@pytest.mark.site
def test_nothing_moves_until_play_which_ends_at_the_last_m(opened):
    page = opened().page
    button = page.locator(".ms-play")
    page.clock.run_for(10_000)
    assert state(page)[0] == "64"
    assert "Play" in button.text_content()
    button.click()
    assert state(page)[0] == "256"
    assert "Play" in button.text_content()  # at the end
    button.click()
    assert state(page)[0] == "16"
    assert "Pause" in button.text_content()
    page.clock.run_for(1_000)
    assert state(page)[0] == "64"
    button.click()
    page.clock.run_for(5_000)
    assert state(page)[0] == "64"
    button.click()
    page.clock.run_for(5_000)
    assert state(page)[0] == "256"
    assert "Play" in button.text_content()


@pytest.mark.site
def test_moving_the_slider_stops_the_play(opened):
    page = opened().page
    page.locator("input[type=range]").fill("2")
    page.locator(".ms-play").click()
    assert state(page)[0] == "16"
    page.locator("input[type=range]").fill("0")
    assert "Play" in page.locator(".ms-play").text_content()
    page.clock.run_for(5_000)
    assert state(page)[0] == "16"


@pytest.mark.site
def test_reduced_motion_takes_one_step_a_press(opened):
    page = opened("reduce").page
    button = page.locator(".ms-play")
    assert "Next M" in button.text_content()
    for wanted in ("256", "16", "64"):
        button.click()
        page.clock.run_for(5_000)
        assert state(page)[0] == wanted


@pytest.mark.site
def test_screen_readers_are_told_once_it_rests(opened):
    page = opened().page
    page.clock.run_for(2_000)
    assert page.locator(".ms-live").text_content() == ""
    page.locator("input[type=range]").fill("0")
    assert page.locator(".ms-live").text_content() == ""
    page.clock.run_for(500)
    said = page.locator(".ms-live").text_content()
    assert said.startswith("記, M = 16; outer product: ratio 0.")
    assert "; attention: ratio 0.00" in said
    page.locator(".ms-play").click()
    page.clock.run_for(950)  # on the way: silent
    page.clock.run_for(2_000)
    assert "M = 256" in page.locator(".ms-live").text_content()


@pytest.mark.site
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figure_fits_asks_nobody_and_passes_axe(opened, width, theme):
    seen = opened(width=width)
    page = seen.page
    page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
    found = site_tools.facts(page)
    assert found["overflow"] <= 0
    assert found["unlabelled"] == []
    (chart,) = found["charts"]
    assert chart["drawn"] > 0
    assert chart["bad"] == 0
    assert chart["label"] == WORDS
    boxes = [picture.bounding_box() for picture in page.locator(".ms-picture svg.marks").all()]
    assert min(box["width"] for box in boxes) >= 90
    assert max(box["x"] + box["width"] for box in boxes) <= width
    for name in ("output", ".ms-words b"):
        for words in page.locator(f".ms-figure {name}").all():
            box = words.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
    targets = [control.bounding_box() for control in page.locator(".ms-choice label, .ms-play").all()]
    assert min(min(box["width"], box["height"]) for box in targets) >= 24
    page.locator("details.ms-data").evaluate("details => (details.open = true)")
    assert site_tools.accessibility(page) == []
    assert seen.problems == []
    assert [url for url in seen.requested if not url.startswith(("file:", "data:"))] == []


@pytest.mark.site
def test_without_javascript_the_figure_rests(opened):
    page = opened(java_script_enabled=False).page
    assert not page.locator(".ms-controls").is_visible()
    assert page.locator(".ms-picture svg.marks").first.is_visible()
    assert "need JavaScript" in page.locator("noscript").inner_text()


@pytest.mark.parametrize("scale", [1e-300, 1e-60, 1e60, 1e300])
def test_only_the_direction_of_a_recall_is_seen_however_long_it_is(scale):
    some = glyphs.Glyphs(glyphs.kanji(4), 16)
    recalled = some.values.double() + 0.1
    assert torch.allclose(some.pictures(recalled * scale), some.pictures(recalled), atol=1e-6)
    assert some.pictures(recalled).std() > 0.1


@pytest.mark.parametrize(("text", "size"), [("記", 10**9), ("".join(map(chr, range(0x4E00, 0x9000))), 1024)])
def test_images_that_would_fill_the_memory_are_refused(text, size):
    with pytest.raises(ValueError, match=r"size must be at most 1,024|must be at most 2.33 numbers"):
        glyphs.images(text, size)
