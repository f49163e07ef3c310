"""Measurements against laws, their intervals, and what is refused.

A measurement agrees with a law within 4 standard errors, as the ledger's checks ask. That says something only if the
interval is narrow, so every such test also shows that the law, made wrong by 2 % either way, would fail it.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from memstore_lib import measure, memories, pointing, theory
from memstore_lib.intervals import Interval, interval, number, root
from memstore_lib.measure import Measurement
from memstore_lib.scores import SCORES, Exponential, Linear, ReLU, Score
from memstore_lib.stores import MLP, LeastSquares, OuterProduct, Store
from tests.test_device import DEVICES, one_thread  # noqa: F401

PROPERTY = settings(max_examples=30, deadline=None, derandomize=True)
SMALL = {"d": 6, "queries": 5, "replicates": 3, "device": "cpu"}


def accepts(found: Interval, law: float, within: float = 0.0) -> bool:
    """Return whether a law agrees, with an allowance for a law that is itself approximate."""
    return abs(found.value - law) <= 4 * found.standard_error + within * law


def agrees(found: Interval, law: float, within: float = 0.0) -> None:
    """Require agreement with a law, and disagreement with one that is off by 2 %."""
    off = f"off by {found.value / law - 1:+.3%} with a standard error of {found.standard_error / law:.3%}"
    assert accepts(found, law, within), f"measured {found}, law {law:.5g}, {off}"
    for wrong in (1.02 * law, law / 1.02):
        assert not accepts(found, wrong, within), f"too wide to refuse a law off by 2 %: {off}"


class Weighted(Store):
    """A reader's store: the weights of a score, but measured the general way, as it does not tell its score."""

    def __init__(self, sigma: Score) -> None:
        super().__init__()
        self.sigma, self.name = sigma, f"general {sigma.name}"

    def _weights(self, queries):
        return self.sigma(queries @ self.keys.T)


# --- measured against exact laws -------------------------------------------------------------------

# The steeper the score, the more memories it takes to see its ratio to a fraction of a percent.
LAWS = [
    ("outer product", 64, (30, 65, 300), 1.0),
    ("outer product", 7, (40, 300), 0.7),
    ("ReLU", 64, (150, 400), 1.0),
    ("ReLU", 16, (150, 400), 0.5),
    ("ReLU²", 64, (600, 2800), 1.0),
    ("ReLU²", 16, (400, 1500), 0.7),
    ("ReLU³", 64, (2000, 5000), 1.0),
    ("ReLU³", 7, (1000, 4000), 0.9),
    ("SwiGLU", 64, (500, 2900), 1.0),
    ("SwiGLU", 16, (500, 1500), 0.9),
    ("softmax", 64, (1500, 8000), 1.0),
    ("softmax", 64, (1500, 8000), 0.5),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "d", "grid", "cosine"), LAWS)
def test_scores_obey_their_exact_law(device, name, d, grid, cosine):
    store = OuterProduct() if name == "outer product" else MLP(SCORES[name])
    found = measure.interference(store, grid, d=d, cosine=cosine, queries=192, replicates=20, seed=7, device=device)
    for M in grid:
        agrees(found.at(name, M), theory.isr(SCORES[name], M, d, cosine))


def test_every_registered_score_has_been_measured():
    assert {name for name, *_ in LAWS} == set(SCORES)


def test_the_general_path_obeys_the_same_law_and_equals_the_stream():
    for sigma, d, M, cosine in ((Linear(), 16, 80, 1.0), (Linear(), 16, 80, 0.7), (ReLU(2), 16, 700, 0.9)):
        options = {"d": d, "cosine": cosine, "queries": 192, "replicates": 40, "seed": 5, "device": "cpu"}
        slow, fast = Weighted(sigma), MLP(sigma)
        both = measure.interference([slow, fast], [M], **options)
        one, two = both.at(slow.name, M), both.at(fast.name, M)
        assert abs(one.value - two.value) <= 4 * math.hypot(one.standard_error, two.standard_error)
        agrees(two, theory.isr(sigma, M, d, cosine))
        if cosine == 1:
            agrees(one, theory.isr(sigma, M, d, cosine))


# The least-squares law of unit keys is of second order in 1/d: this is how far it is off, from 20,000 draws.
UNIT_KEYS = {16: 0.003, 32: 0.001, 64: 0.0004}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", UNIT_KEYS)
def test_least_squares_of_unit_keys(device, d):
    grid = [d + 1, d + 4, round(1.5 * d), 2 * d, 4 * d, 16 * d]
    found = measure.interference(LeastSquares(), grid, d=d, queries=100, replicates=3200 // d, seed=3, device=device)
    for M in grid:
        agrees(found.at("least squares", M), theory.least_squares_isr(M, d), within=UNIT_KEYS[d])


@pytest.mark.parametrize("device", DEVICES)
def test_least_squares_of_gaussian_keys(device):
    d, grid = 64, [80, 128, 400]
    options = {"d": d, "queries": 100, "replicates": 40, "seed": 3, "device": device, "keys": memories.gaussian_keys}
    found = measure.interference(LeastSquares(), grid, **options)
    for M in grid:
        agrees(found.at("least squares", M), theory.least_squares_isr(M, d, "gaussian"))
        assert not accepts(found.at("least squares", M), theory.least_squares_isr(M, d), 0.001), "the keys matter"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_least_squares_does_not_interfere_up_to_d(device, dtype):
    if device == "mps" and dtype == torch.float64:
        pytest.skip("MPS has no float64")
    found = measure.interference(
        LeastSquares(), [1, 5, 31], d=32, queries=31, replicates=3, seed=1, device=device, dtype=dtype
    )
    assert found.replicates["mean_square"].max() < (1e-20 if dtype == torch.float64 else 1e-8)


@pytest.mark.parametrize("d", [16, 64])
def test_signal_of_least_squares(d):
    for M in (d // 2, 2 * d, 5 * d):
        K = memories.unit_keys(M, d, seed=M, device="cpu", dtype=torch.float64)
        P = LeastSquares().write(K, K).weights(K).diagonal()
        assert P.mean().item() == pytest.approx(theory.least_squares_signal(M, d), rel=1e-9)


@pytest.mark.parametrize(("d", "within"), [(64, 0.03), (128, 0.015)])
@pytest.mark.parametrize("ridge", [0.0, 0.3, 2.0])
def test_noisy_least_squares_away_from_the_peak(d, within, ridge):
    store, grid = LeastSquares(ridge), [d // 2, 2 * d, 4 * d]
    found = measure.interference(store, grid, d=d, cosine=0.9, queries=96, replicates=20, seed=2, device="cpu")
    for M in grid:
        assert accepts(found.at(store.name, M), theory.noisy_least_squares_isr(M, d, 0.9, ridge), within)
        assert found.at(store.name, M).standard_error < 0.02 * found.at(store.name, M).value


def test_noise_has_its_peak_at_d_and_ridge_its_cure():
    d, c = 64, 0.9
    least, ridge = LeastSquares(), LeastSquares(theory.best_ridge(d, d, c))
    found = measure.interference([least, ridge, OuterProduct()], [d], d=d, cosine=c, queries=64, seed=2, device="cpu")
    assert found.at("least squares", d, "median").value > 2
    assert found.at("outer product", d).value == pytest.approx(1.10, abs=0.01)
    assert found.at("ridge", d).value < found.at("outer product", d).value
    assert found.at("ridge", d).value == pytest.approx(theory.noisy_least_squares_isr(d, d, c, ridge.ridge), rel=0.04)
    for factor in (0.3, 3):
        other = LeastSquares(factor * ridge.ridge)
        worse = measure.interference(other, [d], d=d, cosine=c, queries=64, seed=2, device="cpu").at("ridge", d)
        assert worse.value > found.at("ridge", d).value


def test_statistics_are_of_the_ratio():
    options = {"d": 9, "queries": 400, "replicates": 4, "seed": 1, "device": "cpu", "dtype": torch.float64}
    M, r = 25, 2
    row = measure.interference(OuterProduct(), [M], **options).replicates.iloc[r]
    # The same draws by hand: the stream first, then a bank of queries that each bring their own target.
    draw = memories.replicate_generator(1, r)
    stream = memories.unit_keys(M, 9, generator=draw, device="cpu", dtype=torch.float64)
    bank = memories.unit_keys(400, 9, generator=draw, device="cpu", dtype=torch.float64)
    ratio = ((bank @ stream[: M - 1].T) ** 2).sum(1).sqrt().numpy()
    assert row["mean_square"] == pytest.approx((ratio**2).mean())
    assert row["mean"] == pytest.approx(ratio.mean())
    assert row["median"] == pytest.approx(np.median(ratio))


def test_one_memory_does_not_interfere_and_a_silent_target_is_infinite():
    found = measure.interference([OuterProduct(), LeastSquares()], [1, 2], **SMALL)
    assert found.at("outer product", 1).value == 0
    assert found.at("least squares", 1).value == pytest.approx(0, abs=1e-12)
    silent = measure.interference(MLP(ReLU()), [4, 8], cosine=-0.5, **SMALL)
    for statistic in ("rms", "mean", "median"):
        assert silent.at("ReLU", 8, statistic).value == math.inf
        assert (silent.table(statistic)["value"] == math.inf).all()


# --- draws, seeds, chunks --------------------------------------------------------------------------


def columns(found: Measurement) -> np.ndarray:
    return found.replicates[["mean_square", "mean", "median"]].to_numpy()


STORES = [OuterProduct(), MLP(Exponential(3)), LeastSquares(), LeastSquares(0.3)]


def test_a_seed_decides_everything():
    run = lambda seed: columns(measure.interference(STORES, [3, 9, 20], seed=seed, cosine=0.8, **SMALL))  # noqa: E731
    torch.manual_seed(1)
    first = run(4)
    state = torch.get_rng_state()
    assert np.array_equal(first, run(4))
    assert torch.equal(state, torch.get_rng_state()), "torch's global generator was used"
    for other in (5, 0):
        assert not np.isclose(first, run(other)).any()
    # Replicates of neighbouring seeds must not be shared either.
    rows = measure.interference(OuterProduct(), [9], seed=4, **SMALL).replicates["mean"].tolist()
    rows += measure.interference(OuterProduct(), [9], seed=5, **SMALL).replicates["mean"].tolist()
    assert len(set(rows)) == 6


def test_more_replicates_keep_the_first_ones():
    few = measure.interference(STORES, [3, 9], **SMALL).replicates
    many = measure.interference(STORES, [3, 9], **{**SMALL, "replicates": 5}).replicates
    pd.testing.assert_frame_equal(few, many[many["replicate"] < 3].reset_index(drop=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk", [1, 7, 64, 10**6])
def test_chunks_do_not_matter(monkeypatch, chunk, dtype):
    options = {"d": 6, "queries": 5, "replicates": 2, "device": "cpu", "dtype": dtype}
    stores, grid = [MLP(s) for s in SCORES.values()], [1, 2, 5, 30, 31, 150]
    whole = columns(measure.interference(stores, grid, **options))
    monkeypatch.setattr(measure, "_CHUNK", chunk)
    pieces = columns(measure.interference(stores, grid, **options))
    assert pieces == pytest.approx(whole, rel=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_devices_agree(device):
    there = columns(measure.interference(STORES, [3, 9, 20], **{**SMALL, "device": device}))
    assert there == pytest.approx(columns(measure.interference(STORES, [3, 9, 20], **SMALL)), rel=1e-3, abs=1e-4)


def test_stores_measured_together_meet_the_same_keys():
    together = measure.interference([OuterProduct(), MLP(ReLU(2))], [9, 20], **SMALL)
    alone = measure.interference(MLP(ReLU(2)), [9, 20], **SMALL)
    for M in (9, 20):
        assert together.at("ReLU²", M) == alone.at("ReLU²", M)


def test_measuring_leaves_stores_empty():
    stores = [OuterProduct(), LeastSquares()]
    measure.interference(stores, [3], **SMALL)
    measure.recall_ratio(stores[0], 3, **SMALL)
    measure.top1(stores[1], [3], **SMALL)
    assert [len(store) for store in stores] == [0, 0]


def test_the_grid_may_be_any_sequence_of_whole_numbers():
    expected = columns(measure.interference(OuterProduct(), [3, 9], **SMALL))
    for grid in ((3, 9), np.array([3, 9]), torch.tensor([3, 9]), pd.Series([3, 9]), range(3, 10, 6), iter([3, 9])):
        assert np.array_equal(columns(measure.interference(OuterProduct(), grid, **SMALL)), expected)


# --- tables and capacity ---------------------------------------------------------------------------


def measured(squares, grid=(10, 20, 40), store="x") -> Measurement:
    """Return a measurement with these mean squares, a row a replicate."""
    rows = [
        (store, 8, M, 1.0, r, value, math.sqrt(value) / 2, math.sqrt(value) / 4)
        for r, curve in enumerate(squares)
        for M, value in zip(grid, curve, strict=True)
    ]
    names = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    return Measurement(pd.DataFrame(rows, columns=names))


def test_at_is_the_root_of_the_mean_square():
    found = measured([[1, 4, 9], [3, 4, 9], [2, 5, 9]])
    squares = interval([1, 3, 2])
    assert found.at("x", 10) == root(squares)
    assert found.at("x", 10).value == pytest.approx(math.sqrt(2))
    assert found.at("x", 40).low == found.at("x", 40).high == 3
    assert found.at("x", 10, "mean") == interval([0.5, math.sqrt(3) / 2, math.sqrt(2) / 2])
    assert found.at("x", 10, "median", level=0.5) == interval([0.25, math.sqrt(3) / 4, math.sqrt(2) / 4], 0.5)


def test_table_is_tidy():
    found = measure.interference(STORES, [3, 9], cosine=0.5, **SMALL)
    table = found.table()
    assert list(table.columns) == ["store", "d", "M", "cosine", "kind", "value", "low", "high"]
    assert table["store"].tolist() == [s.name for s in STORES for _ in range(2)]
    assert table["M"].tolist() == [3, 9] * len(STORES)
    assert set(table["kind"]) == {"measured"}
    assert set(table["cosine"]) == {0.5}
    assert set(table["d"]) == {6}
    for row in table.itertuples():
        assert (row.value, row.low, row.high) == (
            (at := found.at(row.store, row.M)).value, at.low, at.high,
        )  # fmt: skip
    wide, narrow = found.table("mean", 0.99), found.table("mean", 0.5)
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()


def test_capacity_is_interpolated_in_each_replicate():
    found = measured([[0.5, 1.5, 2], [0.2, 0.8, 1.2], [0.9, 1.0, 3]])
    # 1 is reached half-way from 10 to 20, half-way from 20 to 40, and at 20 itself.
    assert found.capacity("x") == interval([15, 30, 20])
    assert found.capacity("x", level=0.5) == interval([15, 30, 20], 0.5)
    # The column of means holds half, the one of medians a quarter of the root: they cross where the square is 4 and 16.
    assert measured([[2, 6, 8], [1, 7, 8]]).capacity("x", "mean") == interval([15, 15])
    medians = measured([[2, 12, 20], [2, 8, 20]]).capacity("x", "median")
    assert medians.value == pytest.approx((30 + 20 + 20 * 8 / 12) / 2)


def test_one_of_several_cosines():
    one, two = measured([[0.5, 1.5, 2]] * 2).replicates, measured([[1, 2, 4], [0.8, 2, 4]]).replicates
    both = Measurement(pd.concat([one, two.assign(cosine=0.5)]))
    assert both.at("x", 20, cosine=1.0) == Measurement(one).at("x", 20)
    assert both.at("x", 20, cosine=0.5).value == pytest.approx(math.sqrt(2))
    assert both.capacity("x", cosine=1.0).value == 15
    assert Measurement(one).at("x", 20, cosine=1.0) == Measurement(one).at("x", 20)
    assert both.table()["cosine"].tolist() == [1.0] * 3 + [0.5] * 3
    for ask in (lambda **c: both.at("x", 20, **c), lambda **c: both.capacity("x", **c)):
        with pytest.raises(ValueError, match=r"cosine must be given where several were measured \(\[0.5, 1.0\]\)"):
            ask()
        with pytest.raises(ValueError, match=r"cosine must be one of those measured \(\[0.5, 1.0\]\), got 0.7"):
            ask(cosine=0.7)


def test_capacity_is_the_first_crossing():
    assert measured([[0.5, 1.5, 0.5]] * 2).capacity("x").value == 15


@pytest.mark.parametrize(
    ("squares", "side"),
    [
        ([[0.1, 0.2, 0.9]] * 2, "ends below it, with 0.316 at M = 10 and 0.949 at M = 40"),
        ([[1, 2, 3]] * 2, "starts above it, with 1 at M = 10"),
        ([[0.5, 2, 3], [1.1, 2, 3]], "starts above it"),
    ],
)
def test_capacity_beyond_the_grid_is_refused(squares, side):
    with pytest.raises(ValueError, match=f"grid must hold the M where the ratio of 'x' is 1: it {side}"):
        measured(squares).capacity("x")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.at("y", 10), ValueError, "store must be one of 'x', got 'y'"),
        (lambda m: m.at("x", 11), ValueError, r"M must be on the measured grid \[10, 20, 40\], got 11"),
        (lambda m: m.at("x", 10, "mode"), ValueError, "statistic must be one of 'rms', 'mean', 'median', got 'mode'"),
        (lambda m: m.at("x", 10, level=1), ValueError, "level must lie strictly between 0 and 1, got 1"),
        (lambda m: m.at("x", 10, level="95"), TypeError, "level must be a real number, got '95'"),
        (lambda m: m.table("mode"), ValueError, "statistic must be one of 'rms', 'mean', 'median', got 'mode'"),
        (lambda m: m.table(level=0), ValueError, "level must lie strictly between 0 and 1, got 0"),
        (lambda m: m.capacity("y"), ValueError, "store must be one of 'x', got 'y'"),
        (lambda m: m.capacity("x", "mode"), ValueError, "statistic must be one of 'rms', 'mean', 'median', got 'mode'"),
        (lambda m: m.capacity("x", level=-0.5), ValueError, "level must lie strictly between 0 and 1, got -0.5"),
    ],
)
def test_reading_a_measurement_is_checked(call, error, words):
    with pytest.raises(error, match=words):
        call(measured([[0.5, 1, 2], [0.5, 1, 2]]))


CAPACITIES = [
    (OuterProduct(), 64, 1.0, theory.capacity(Linear(), 64)),
    (OuterProduct(), 32, 0.7, theory.capacity(Linear(), 32, 0.7)),
    (MLP(ReLU()), 64, 1.0, theory.capacity(ReLU(), 64)),
    (MLP(ReLU(2)), 32, 0.9, theory.capacity(ReLU(2), 32, 0.9)),
    (LeastSquares(), 64, 1.0, theory.least_squares_capacity(64)),
]


@pytest.mark.parametrize(("store", "d", "cosine", "law"), CAPACITIES, ids=lambda x: getattr(x, "name", None))
def test_capacity_agrees_with_its_law(store, d, cosine, law):
    agrees(measure.capacity(store, d=d, cosine=cosine, queries=256, seed=3, device="cpu"), law, within=0.001)


def test_capacity_of_a_readers_store():
    found = measure.capacity(Weighted(Linear()), d=16, queries=64, replicates=20, seed=3, device="cpu")
    assert accepts(found, 17)
    assert found.standard_error < 0.5


@pytest.mark.parametrize(
    ("store", "options", "error", "words"),
    [
        (
            MLP(ReLU(3)),
            {"limit": 100},
            ValueError,
            "limit must exceed the capacity of 'ReLU³', got 100",
        ),
        (MLP(Exponential(8)), {"limit": 4}, ValueError, "limit must exceed the capacity of 'softmax', got 4"),
        (OuterProduct(), {"d": 1}, ValueError, "'outer product' is 1: it starts above it, with 1 at M = 2"),
        (MLP(ReLU()), {"cosine": -1}, ValueError, "'ReLU' is 1: it starts above it, with inf at M = 2"),
        (OuterProduct(), {"limit": 3}, ValueError, "limit must be at least 4, got 3"),
        (OuterProduct(), {"limit": 1e6}, TypeError, "limit must be an integer, got 1000000.0"),
        (OuterProduct(), {"cosine": 2}, ValueError, r"cosine must lie in \[-1, 1\], got 2"),
        (OuterProduct(), {"replicates": 1}, ValueError, "replicates must be at least 2, got 1"),
        (OuterProduct(), {"colour": 1}, TypeError, "colour"),
        ([OuterProduct()], {}, TypeError, "store must be a Store, got list"),
    ],
)
def test_capacity_is_checked(store, options, error, words):
    with pytest.raises(error, match=words):
        measure.capacity(store, **{"d": 8, "queries": 4, "replicates": 3, "device": "cpu", **options})


# --- intervals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [2, 5, 20])
def test_intervals_cover_as_often_as_they_say(level, n):
    draw, trials = np.random.default_rng(1), 2000
    hits = [one.low <= 3 <= one.high for one in (interval(row, level) for row in draw.normal(3, 2, (trials, n)))]
    assert np.mean(hits) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / trials))


def test_measured_intervals_cover_their_law():
    law = theory.isr(Linear(), 30, 16)
    rows = measure.interference(OuterProduct(), [30], d=16, queries=8, replicates=1600, device="cpu").replicates
    groups = [Measurement(rows[rows["replicate"] // 8 == g]).at("outer product", 30) for g in range(200)]
    assert 0.91 <= np.mean([one.low <= law <= one.high for one in groups]) <= 0.99


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12), st.floats(0.01, 0.999))
@PROPERTY
def test_interval_is_students(samples, level):
    found = interval(samples, level)
    assert found.value == pytest.approx(np.mean(samples))
    assert found.standard_error == pytest.approx(stats.sem(samples), abs=1e-12)
    assert (found.level, found.n) == (level, len(samples))
    half = stats.t.ppf((1 + level) / 2, len(samples) - 1) * found.standard_error
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-6, abs=1e-9)
    assert found.low <= found.value <= found.high


def test_an_infinite_sample_makes_an_infinite_interval():
    assert interval([1, math.inf]) == Interval(math.inf, math.inf, math.inf, 0.95, 2, math.inf)
    assert root(interval([1, math.inf])).value == math.inf


def test_root_carries_an_interval_over():
    one = root(Interval(4.0, 1.0, 9.0, 0.9, 5, 0.4))
    assert (one.value, one.low, one.high, one.level, one.n) == (2, 1, 3, 0.9, 5)
    assert one.standard_error == pytest.approx(0.1)
    assert root(Interval(1.0, -0.5, 2.5, 0.95, 3, 0.4)).low == 0
    assert root(Interval(0.0, 0.0, 0.0, 0.95, 3, 0.0)).value == 0


def test_intervals_write_themselves():
    one = Interval(1234.6, 0.123456, 2e6, 0.95, 5, 1.0)
    assert str(one) == f"{one}" == "1,235 [0.1235, 2,000,000]"
    assert f"{one:.1f}" == "1234.6 [0.1, 2000000.0]"
    assert [number(x) for x in (0, 999.96, 1000, -12345.6, 1e6, math.inf)] == [
        "0", "1000", "1,000", "-12,346", "1,000,000", "inf",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "level", "error", "words"),
    [
        ([], 0.95, ValueError, "samples must be at least 2 numbers for an interval, got 0"),
        ([1.0], 0.95, ValueError, "samples must be at least 2 numbers for an interval, got 1"),
        ([1, math.nan], 0.95, ValueError, "samples must not contain NaN"),
        ([1, 2], 0, ValueError, "level must lie strictly between 0 and 1, got 0"),
        ([1, 2], 1, ValueError, "level must lie strictly between 0 and 1, got 1"),
        ([1, 2], 95, ValueError, "level must lie strictly between 0 and 1, got 95"),
        ([1, 2], math.nan, ValueError, "level must be finite, got nan"),
        ([1, 2], None, TypeError, "level must be a real number, got None"),
    ],
)
def test_intervals_are_checked(samples, level, error, words):
    with pytest.raises(error, match=words):
        interval(samples, level)


# --- from real values, similarities, pointing ------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("store", [OuterProduct(), LeastSquares(), MLP(ReLU(2))], ids=lambda s: s.name)
def test_values_and_weights_give_the_same_ratio(device, store):
    M, d = 48, 24
    one, two = measure.recall_ratio(store, M, d=d, d_v=17, queries=48, replicates=40, seed=2, device=device)
    assert abs(one.value - two.value) <= 4 * math.hypot(one.standard_error, two.standard_error)
    assert one.value == pytest.approx(two.value, rel=0.02)
    law = theory.least_squares_isr(M, d) if store.name == "least squares" else theory.isr(store.score, M, d)
    assert accepts(one, law, 0.002)
    assert accepts(two, law, 0.002)


def test_the_ratio_from_values_is_that_of_the_recalls():
    store, M, d, d_v = OuterProduct(), 12, 6, 5
    options = {"d": d, "d_v": d_v, "queries": 4, "replicates": 2, "seed": 3, "device": "cpu", "dtype": torch.float64}
    from_values, from_weights = measure.recall_ratio(store, M, **options)
    squares = []
    for r in range(2):
        draw = memories.replicate_generator(3, r)
        K = memories.unit_keys(M, d, generator=draw, device="cpu", dtype=torch.float64)
        V = memories.values(M, d_v, generator=draw, device="cpu", dtype=torch.float64)
        j = torch.randperm(M, generator=draw)[:4]
        noise = OuterProduct().write(K, V).recall(K[j]) - V[j]
        others = (K[j] @ K.T).masked_fill(torch.nn.functional.one_hot(j, M).bool(), 0)
        squares.append([(noise**2).sum(1).mean().item(), (others**2).sum(1).mean().item()])
    for found, expected in zip((from_values, from_weights), zip(*squares, strict=True), strict=True):
        assert found.value == pytest.approx(math.sqrt(np.mean(expected)))
        assert found.low == pytest.approx(root(interval(expected)).low)


def test_values_with_a_common_part_add_up():
    share, M, d = 0.5, 40, 20
    values = functools.partial(memories.shared_values, share=share)
    options = {"d": d, "d_v": 30, "queries": 40, "replicates": 60, "seed": 2, "values": values, "device": "cpu"}
    # The outer product's weights have zero mean, so that nothing adds up; those of ReLU² have one of E[σ].
    one, two = measure.recall_ratio(OuterProduct(), M, **options)
    assert one.value == pytest.approx(two.value, rel=0.03)
    one, two = measure.recall_ratio(MLP(ReLU(2)), M, **options)
    first = theory.moment(ReLU(2), d, 1)
    law = math.sqrt(two.value**2 + share * (M - 1) * (M - 2) * first**2)
    assert one.value == pytest.approx(law, rel=0.03)
    assert one.value > 1.5 * two.value


def test_similarities_match_their_law():
    table, sizes = measure.similarities([4, 64], pairs=4000, replicates=20, bins=40, seed=3)
    for d in (4, 64):
        agrees(sizes[d], 1 / math.sqrt(d))
        bins = table[table["series"] == f"d = {d}"]
        widths = bins["right"] - bins["left"]
        assert (bins["density"] * widths).sum() == pytest.approx(1)
        middle = bins[(bins["left"].abs() < 0.9) & (bins["right"].abs() < 0.9)]
        law = theory.similarity_density(((middle["left"] + middle["right"]) / 2).to_numpy(), d)
        assert np.abs(middle["density"].to_numpy() - law).max() < 0.05 * law.max()


def test_histogram_counts_every_sample():
    table = measure.histogram({"a": [0.0, 0.1, 0.9], "b": torch.tensor([[-1.0, 1.0]])}, bins=4)
    assert table.values.tolist() == [
        ["a", 0.0, 0.5, pytest.approx(4 / 3)],
        ["a", 0.5, 1.0, pytest.approx(2 / 3)],
        ["b", -1.0, -0.5, 1.0],
        ["b", 0.5, 1.0, 1.0],
    ]


class Right(Store):
    """Recalls the right value always."""

    name = "right"

    def _weights(self, queries):
        return torch.nn.functional.one_hot((queries @ self.keys.T).argmax(1), len(self)).to(queries.dtype)


def test_pointing_counts_right_answers():
    options = {"d": 8, "queries": 20, "replicates": 3, "seed": 1, "device": "cpu"}
    table = measure.top1(Right(), [2, 50], **options)
    assert list(table.columns) == ["store", "d", "M", "replicate", "accuracy"]
    assert (table["accuracy"] == 1).all()
    assert table["M"].tolist() == [2, 50] * 3
    outer = measure.top1(OuterProduct(), [2, 50], **options)
    assert (outer[outer["M"] == 50]["accuracy"] < 1).all()
    assert outer.equals(measure.top1(OuterProduct(), [2, 50], **options))
    assert not outer.equals(measure.top1(OuterProduct(), [2, 50], **{**options, "seed": 2}))


def test_least_squares_points_at_more_facts():
    # shared/numerics.md, point 12: M at 99 % and 50 % top-1, measured.
    for d, facts in {32: (58, 145), 64: (177, 442)}.items():
        grid = [round(share * M) for M in facts for share in (0.75, 1, 1.25)]
        table = measure.top1(LeastSquares(), grid, d=d, replicates=1600 // d, seed=1, device="cpu")
        for share, M in zip((0.99, 0.5), facts, strict=True):
            assert measure.facts_at(share, table).value == pytest.approx(M, rel=0.06)


def curve(*accuracies: list[float]) -> pd.DataFrame:
    rows = [("x", 8, M, r, a) for r, row in enumerate(accuracies) for M, a in zip((10, 100, 1000), row, strict=True)]
    return pd.DataFrame(rows, columns=["store", "d", "M", "replicate", "accuracy"])


def test_facts_are_interpolated_in_log_m():
    assert measure.facts_at(0.75, curve([1, 0.5, 0], [1, 0.5, 0])).value == pytest.approx(10**1.5)
    assert measure.facts_at(0.25, curve([1, 0.5, 0], [1, 0.5, 0])).value == pytest.approx(10**2.5)
    found = measure.facts_at(0.75, curve([1, 0.4, 0], [1, 0.6, 0], [1, 0.5, 0]))
    assert found.value == pytest.approx(10**1.5)
    assert found.low < found.value < found.high
    assert found.n == 3
    # log10 M = 1 + 0.25 / (1 - a) with a the mean accuracy at 100, so dM/da = M ln 10 · 0.25 / (1 - a)² at a = 0.5.
    slope = 10**1.5 * math.log(10) * 0.25 / 0.5**2
    assert found.standard_error == pytest.approx(slope * np.std([0.4, 0.6, 0.5], ddof=1) / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    ("accuracy", "error", "words"),
    [
        (0.95, ValueError, "accuracy 0.95 must be crossed within the grid, got 0.9 to 0.1"),
        (0.05, ValueError, "accuracy 0.05 must be crossed within the grid, got 0.9 to 0.1"),
        (0, ValueError, r"accuracy must lie in \(0, 1\], got 0"),
        (1.2, ValueError, r"accuracy must lie in \(0, 1\], got 1.2"),
        ("half", TypeError, "accuracy must be a real number, got 'half'"),
    ],
)
def test_facts_are_checked(accuracy, error, words):
    with pytest.raises(error, match=words):
        measure.facts_at(accuracy, curve([0.9, 0.5, 0.1], [0.9, 0.5, 0.1]))


# --- bad input -------------------------------------------------------------------------------------

EMPTY, FULL = OuterProduct(), OuterProduct().write(torch.eye(3), torch.eye(3))
# Every function that measures, with good arguments by name; each of them is then spoiled in turn.
CALLS = {
    "interference": (
        lambda stores=EMPTY, grid=(2, 5), **o: measure.interference(stores, grid, **{**SMALL, **o}),
        {"stores", "grid", "d", "cosine", "queries", "replicates", "seed", "device", "dtype"},
    ),
    "capacity": (
        lambda store=EMPTY, **o: measure.capacity(store, **{**SMALL, **o}),
        {"store", "d", "cosine", "queries", "replicates", "seed", "device", "dtype"},
    ),
    "recall_ratio": (
        lambda store=EMPTY, M=5, **o: measure.recall_ratio(store, M, **{**SMALL, **o}),
        {"store", "M", "d", "d_v", "queries", "replicates", "seed", "device", "dtype"},
    ),
    "top1": (
        lambda store=EMPTY, grid=(2, 5), **o: measure.top1(store, grid, **{**SMALL, **o}),
        {"store", "grid", "d", "queries", "replicates", "seed", "device"},
    ),
    "similarities": (
        lambda dimensions=(2, 5), **o: measure.similarities(dimensions, **{"pairs": 4, "replicates": 2, **o}),
        {"dimensions", "pairs", "replicates", "bins", "seed"},
    ),
}
WHOLE = [
    (2.5, TypeError, "must be an integer, got 2.5 of type float"),
    ("4", TypeError, "must be an integer, got '4' of type str"),
    (True, TypeError, "must be an integer, got True of type bool"),
    (None, TypeError, "must be an integer, got None of type NoneType"),
    (-1, ValueError, "must be at least [012], got -1"),
]
COUNT = [*WHOLE, (0, ValueError, "must be at least [12], got 0")]
GRID = [
    ([], ValueError, "must hold at least one M, got an empty sequence"),
    ([5, 2], ValueError, "must increase from entry to entry, got 5 followed by 2"),
    ([2, 5, 5], ValueError, "must increase from entry to entry, got 5 followed by 5"),
    ([0, 5], ValueError, r"\[0\] must be at least 1, got 0"),
    ([2, 5.0], TypeError, r"\[1\] must be an integer, got 5.0 of type float"),
    ([2, True], TypeError, r"\[1\] must be an integer, got True of type bool"),
    (torch.tensor([2.0, 5.0]), TypeError, r"\[0\] must be an integer"),
    (7, TypeError, "must be a sequence of integers, got int"),
    (np.array(7), TypeError, "must be a sequence of integers, got ndarray"),
    ("25", TypeError, "must be a sequence of integers, got str"),
    (None, TypeError, "must be a sequence of integers, got NoneType"),
]
SPOILED = {
    **dict.fromkeys(("d", "d_v", "M", "queries", "replicates", "pairs", "bins"), COUNT),
    "seed": WHOLE,
    "grid": GRID,
    "dimensions": GRID,
    "cosine": [
        (1.1, ValueError, r"must lie in \[-1, 1\], got 1.1"),
        (-7, ValueError, r"must lie in \[-1, 1\], got -7"),
        (math.nan, ValueError, "must be finite, got nan"),
        ("1", TypeError, "must be a real number, got '1' of type str"),
    ],
    "device": [
        ("gpu", ValueError, "must be one of cuda, mps, cpu, got 'gpu'"),
        (3, TypeError, "must be a device name or torch.device, got int"),
    ],
    "dtype": [
        (torch.int64, TypeError, "must be a floating-point torch.dtype, got torch.int64"),
        ("float32", TypeError, "must be a floating-point torch.dtype, got float32"),
    ],
    "store": [
        (FULL, ValueError, "must be empty, got 'outer product' with 3 memories; use .fresh()"),
        ("ridge", TypeError, "must be a Store, got str"),
        (OuterProduct, TypeError, "must be a Store, got ABCMeta"),
        ([OuterProduct()], TypeError, "must be a Store, got list"),
    ],
    "stores": [
        (FULL, ValueError, r"\[0\] must be empty, got 'outer product' with 3 memories; use .fresh()"),
        ([], ValueError, "must hold at least one store, got none"),
        ([OuterProduct(), OuterProduct()], ValueError, "must have different names, got"),
        ([OuterProduct(), "ridge"], TypeError, r"\[1\] must be a Store, got str"),
        (3, TypeError, "must be a Store or a sequence of them, got int"),
    ],
}


@pytest.mark.parametrize(
    ("call", "argument", "value", "error", "words"),
    [
        pytest.param(call, argument, *case, id=f"{name}-{argument}-{i}")
        for name, (call, arguments) in CALLS.items()
        for argument in sorted(arguments)
        for i, case in enumerate(SPOILED[argument])
    ],
)
def test_arguments_are_checked(call, argument, value, error, words):
    with pytest.raises(error, match=f"^{argument} ?{words}"):
        call(**{argument: value})


def test_cuda_where_there_is_none_is_refused(monkeypatch):
    monkeypatch.setattr("memstore_lib.device._available", lambda kind: kind == "cpu")
    for name in ("interference", "capacity", "recall_ratio", "top1"):
        with pytest.raises(ValueError, match="device asks for cuda, which this machine does not have"):
            CALLS[name][0](device="cuda")


def test_keys_of_other_lengths_are_refused_where_a_law_assumes_unit_keys():
    options, words = {**SMALL, "keys": memories.gaussian_keys}, "keys must have rows of unit length, got .*"
    with pytest.raises(ValueError, match=words + "the law of a score is one of unit keys"):
        measure.interference(OuterProduct(), [5], **options)
    with pytest.raises(ValueError, match=words + "a cosine is the similarity of unit vectors"):
        measure.interference(LeastSquares(), [5], cosine=0.5, **options)
    assert measure.interference(LeastSquares(), [5, 9], **options).at("least squares", 9).value > 0


class Wrong(Store):
    name = "wrong"

    def _weights(self, queries):
        return queries @ self.keys.T[:, :-1]


def test_a_store_of_wrong_shape_is_named():
    for call in (
        lambda: measure.interference(Wrong(), [5], **SMALL),
        lambda: measure.recall_ratio(Wrong(), 5, **SMALL),
        lambda: measure.top1(Wrong(), [5], **SMALL),
        lambda: measure.capacity(Wrong(), **SMALL),
    ):
        with pytest.raises(ValueError, match=r"weights of store 'wrong' must have shape \(n, M\)"):
            call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measure.histogram({}), "series must hold at least one label, got none"),
        (lambda: measure.histogram({"a": []}), r"series 'a' must have samples within \[-1, 1\], got none"),
        (lambda: measure.histogram({"a": [0, 1.5]}), r"series 'a' must have .* got values from 0 to 1.5"),
        (lambda: measure.histogram({"a": [0, math.nan]}), "series 'a' must have samples within"),
        (lambda: measure.histogram({"a": [0]}, bins=0), "bins must be at least 1, got 0"),
        (lambda: measure.histogram({"a": [0]}, low=1, high=1), "low must be below high, got 1 and 1"),
    ],
)
def test_histograms_are_checked(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_modules_share_their_names():
    assert (measure.top1, measure.facts_at) == (pointing.top1, pointing.facts_at)
    assert set(measure.__all__) <= set(dir(measure))
