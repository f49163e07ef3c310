"""The delta rule on the yardstick: the store, its exact laws, and interference by age."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from memstore_lib import aging, contracts, delta_laws, delta_rule, memories, stores
from memstore_lib.delta_store import DeltaRule

RULES = [
    {"write": "hebb"},
    {"write": "hebb", "g": -0.02},
    {},
    {"beta": 0.5},
    {"g": -0.05},
    {"beta": 0.3, "g": -0.01},
]


def keys_and_values(M=50, d=16, d_v=7):
    draw = torch.Generator().manual_seed(11)
    kind = {"generator": draw, "device": "cpu", "dtype": torch.float64}
    return memories.unit_keys(M, d, **kind), memories.values(M, d_v, **kind)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_store_recalls_what_the_recurrence_recalls(rule):
    keys, values = keys_and_values()
    M = len(keys)
    beta = torch.full((1, 1, M), rule.get("beta", 1.0), dtype=torch.float64)
    g = torch.full((1, 1, M), rule.get("g", 0.0), dtype=torch.float64)
    write = rule.get("write", "delta")
    _, state = delta_rule.recurrence(keys[None, None], keys[None, None], values[None, None], beta, g, write=write)
    store = DeltaRule(**rule).write(keys, values)
    assert torch.allclose(store.recall(keys), keys @ state[0, 0], atol=1e-12)


def test_first_row_of_the_family_is_the_first_chapters_store():
    keys, values = keys_and_values()
    one, other = DeltaRule(write="hebb").write(keys, values), stores.OuterProduct().write(keys, values)
    assert torch.allclose(one.recall(keys), other.recall(keys), atol=1e-12)


def test_newest_memory_is_exact_and_an_older_one_is_not():
    keys, values = keys_and_values()
    store = DeltaRule().write(keys, values)
    assert torch.allclose(store.recall(keys[-1]), values[-1], atol=1e-12)
    assert not torch.allclose(store.recall(keys[0]), values[0], atol=0.1)


def test_many_passes_end_at_the_second_chapters_store():
    keys, values = keys_and_values(M=8)
    many, best = DeltaRule(passes=200).write(keys, values), stores.LeastSquares().write(keys, values)
    assert torch.allclose(many.recall(keys), best.recall(keys), atol=1e-9)
    assert torch.allclose(many.weights(keys), best.weights(keys), atol=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_store_obeys_the_contract(rule):
    contracts.check_store(lambda: DeltaRule(**rule))


def test_contract_refuses_a_store_that_hides_its_order(monkeypatch):
    monkeypatch.setattr(DeltaRule, "ordered", False)
    with pytest.raises(AssertionError, match="order of writing"):
        contracts.check_store(DeltaRule)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_laws_hold_at_every_age(rule):
    noise, signal = aging.energies(DeltaRule(**rule), 40, d=12, replicates=400, seed=4, device="cpu")
    law = delta_laws.energies(40, 12, **rule)
    for found, exact in ((noise, law[:, 0]), (signal, law[:, 1])):
        error = found.std(0, ddof=1) / math.sqrt(len(found))
        assert (np.abs(found.mean(0) - exact) <= 5 * error + 1e-6).all()
    assert not np.allclose(law, delta_laws.energies(40, 13, **rule), rtol=0.01)


def test_laws_at_their_ends():
    hebb = delta_laws.energies(20, 8, write="hebb")
    assert np.allclose(hebb, [19 / 8, 1])
    assert delta_laws.energies(20, 8)[0].tolist() == [0, 1]  # the newest memory of the delta rule
    assert delta_laws.isr(1, 8) == 0
    assert delta_laws.isr(20, 8, write="hebb") == pytest.approx(math.sqrt(19 / 8))
    assert np.allclose(
        delta_laws.isr_by_age(20, 8) ** 2 * delta_laws.energies(20, 8)[:, 1], delta_laws.energies(20, 8)[:, 0]
    )


def test_one_dimension_holds_one_memory():
    assert np.allclose(delta_laws.energies(5, 1), [[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])
    assert delta_laws.span(1) == 1


def test_span_of_a_stream():
    assert delta_laws.span(64, write="hebb") == 0  # everything is drowned
    assert delta_laws.span(64, write="hebb", writes=64) == 64  # a stream that is short enough
    span = delta_laws.span(64)
    ages = delta_laws.isr_by_age(4096, 64)
    assert ages[span - 1] <= 1 < ages[span]


def test_pooled_ratio_along_M():
    found = aging.along_M([DeltaRule(), stores.LeastSquares()], [16, 96], d=24, seed=2, device="cpu")
    row = found[(found["store"] == "delta rule") & (found["M"] == 96)].iloc[0]
    assert row["low"] < row["value"] < row["high"]
    assert row["value"] == pytest.approx(delta_laws.isr(96, 24), rel=0.05)
    assert found[found["store"] == "least squares"]["value"].iloc[0] < 1e-4


def test_ratio_by_age():
    found = aging.by_age(DeltaRule(), [0, 4, 16], writes=64, d=16, replicates=200, seed=3, device="cpu")
    assert found["age"].tolist() == [0, 4, 16]
    law = delta_laws.isr_by_age(64, 16)[[0, 4, 16]]
    assert found["value"].to_numpy() == pytest.approx(law, rel=0.15, abs=1e-3)
    assert (found["low"].iloc[1:] < found["value"].iloc[1:]).all()


def test_interval_of_the_ratio_covers_it():
    draw, hit = np.random.default_rng(1), 0
    for _ in range(400):
        signal = draw.gamma(4, 1, 30)
        noise = 0.5 * signal + draw.gamma(4, 1, 30)
        found = aging.ratio(noise, signal)
        hit += found.low <= math.sqrt(1.5) <= found.high
    assert 0.91 < hit / 400 < 0.99


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: DeltaRule(beta=0.0), ValueError, "beta must lie in"),
        (lambda: DeltaRule(beta=1.5), ValueError, "beta must lie in"),
        (lambda: DeltaRule(g=0.1), ValueError, "g must lie in"),
        (lambda: DeltaRule(write="oja"), ValueError, "write must be one of"),
        (lambda: DeltaRule(passes=0), ValueError, "passes must be"),
        (lambda: DeltaRule(beta="1"), TypeError, "beta must be a real number"),
        (lambda: delta_laws.energies(0, 8), ValueError, "M must be"),
        (lambda: delta_laws.energies(8, 0), ValueError, "d must be"),
        (lambda: delta_laws.energies(8, 8, beta=2), ValueError, "beta must lie in"),
        (lambda: delta_laws.energies(8, 8, g=1), ValueError, "g must lie in"),
        (lambda: delta_laws.isr(8, 8, write="oja"), ValueError, "write must be one of"),
        (lambda: aging.energies(DeltaRule(), 8, replicates=1), ValueError, "replicates must be"),
        (lambda: aging.energies("store", 8), TypeError, "store must be a Store"),
        (lambda: aging.by_age(DeltaRule(), [4, 2], writes=8), ValueError, "ages must"),
        (lambda: aging.by_age(DeltaRule(), [0, 8], writes=8), ValueError, "ages must be below writes"),
        (lambda: aging.along_M(DeltaRule(), []), ValueError, "grid must"),
        (lambda: aging.ratio(np.ones(3), np.ones(4)), ValueError, "noise and signal must have one shape"),
        (lambda: aging.ratio(np.ones(3), np.zeros(3)), ValueError, "signal must have a mean above 0"),
        (lambda: aging.ratio(np.ones(1), np.ones(1)), ValueError, "at least 2"),
    ],
)
def test_bad_input(call, error, says):
    with pytest.raises(error, match=says):
        call()
