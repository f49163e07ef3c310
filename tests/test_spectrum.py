"""One pass over the keys: against direct computation on the same draws, and against the exact laws."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

from memstore_lib import _watched, memories, sharpness, spectrum, theory
from memstore_lib.scores import Exponential, Linear, ReLU, Score
from memstore_lib.sharpness import Fixed, Su, YaRN
from memstore_lib.spectrum import Spectrum, attention_table, interference, read, spectra
from tests.test_device import DEVICES

SMALL = {"d": 16, "queries": 24, "seed": 3, "device": "cpu"}


def drawn(M: int, *, d: int, queries: int, seed: int, device: str = "cpu") -> torch.Tensor:
    """Return the similarities, (queries, M - 1), that a pass with the same seed meets."""
    draw = memories.replicate_generator(seed, 0)
    bank = memories.unit_keys(queries, d, generator=draw, device=device)
    chunks = [
        memories.unit_keys(spectrum._CHUNK, d, generator=draw, device=device)
        for _ in range(math.ceil((M - 1) / spectrum._CHUNK))
    ]
    return (bank @ torch.cat(chunks)[: M - 1].T).double().cpu()


def pass_over(M: int, **options) -> Spectrum:
    return next(iter(spectra([M], **{**SMALL, **options})))


# --- against direct computation --------------------------------------------------------------------


@pytest.mark.parametrize("M", [2, 5000])
@pytest.mark.parametrize("score", [Linear(), ReLU(2), Exponential(0.0), Exponential(8.0), Exponential(25.0)], ids=str)
def test_squared_ratios_agree_with_direct_ones_on_the_same_draws(M, score):
    found = pass_over(M).squared_ratio(score)
    direct = (score(drawn(M, **SMALL)) ** 2).sum(1) / score(torch.ones(1).double()) ** 2
    within = 0.02 if M > 2 else 0.5  # of a single similarity near 0 little is left by a bin
    assert found.shape == (24,)
    assert torch.allclose(found, direct, rtol=within, atol=1e-6)
    if M > 2:
        assert abs(found.mean() / direct.mean() - 1) < (
            2e-3 if score != Exponential(25.0) else 0.02
        )  # few keys rule it


@pytest.mark.parametrize("beta", [8.0, 16.8, 24.85])
def test_the_bias_of_binning_is_what_the_docstring_says(beta):
    """A similarity is spread evenly over its bin, up to a bias of (β · 2/bins)²/6 of the mean square."""
    edges = np.linspace(-1, 1, spectrum.BINS + 1)
    share = np.diff(special.betainc(31.5, 31.5, (1 + edges) / 2))
    centres = spectrum._centres(spectrum.BINS).numpy()
    binned = float(share @ np.exp(2 * beta * (centres - 1)))
    exact = theory.moment(Exponential(beta), 64)
    bias = math.sqrt(binned / exact) - 1
    assert abs(bias) < 1.2 * (beta * 2 / spectrum.BINS) ** 2 / 12
    assert abs(bias) < 2e-5


@pytest.mark.parametrize("cosine", [1.0, 0.7, -0.2])
@pytest.mark.parametrize("beta", [0.0, 8.0, 30.0, 900.0])
def test_attention_agrees_with_a_softmax_over_the_centres(beta, cosine):
    at = ((drawn(300, **SMALL) + 1) * spectrum.BINS / 2).long().clamp(0, spectrum.BINS - 1)
    counts = torch.zeros(24, spectrum.BINS).scatter_add_(1, at, torch.ones(at.shape))
    seen = Spectrum(300, counts, cosine)
    s = torch.cat([torch.full((24, 1), cosine, dtype=torch.float64), seen.centres[at]], dim=1)
    p = torch.softmax(beta * s, dim=1)
    weight, entropy = seen.attention(beta)
    assert torch.allclose(weight, p[:, 0], rtol=1e-9, atol=1e-300)
    assert torch.allclose(entropy, -torch.special.xlogy(p, p).sum(1), atol=1e-9)


def test_the_gradient_is_that_of_autograd():
    seen, beta = pass_over(40), 8.0
    s = torch.cat([torch.ones(1).double(), seen.centres.repeat_interleave(seen.counts[0].long())]).requires_grad_()
    p = torch.softmax(beta * s, dim=0)[0]
    (slope,) = torch.autograd.grad(p, s)
    assert seen.gradient(beta)[0].item() == pytest.approx(slope[1:].abs().sum().item(), rel=1e-9)


def test_the_nearest_is_the_largest_similarity_to_half_a_bin():
    found = pass_over(3000).nearest()
    assert (found - drawn(3000, **SMALL).amax(1)).abs().max() <= 1 / spectrum.BINS + 1e-6


def test_every_key_is_counted_once():
    for one in spectra([2, 100, 4097, 9000], **SMALL):
        assert (one.counts.sum(1) == one.M - 1).all()


def test_a_similarity_of_one_stays_in_the_last_bin():
    counter = spectrum._Counter(memories.unit_keys(3, 5, seed=1, device="cpu"), 64)
    counter.add(counter.bank / 32)
    assert counter.flush()[:, -1].tolist() == [1, 1, 1]


# --- draws -----------------------------------------------------------------------------------------


def test_the_draws_do_not_depend_on_the_grid():
    alone = pass_over(9000)
    *_, last = spectra([2, 3, 4096, 4097, 8000, 9000], **SMALL)
    assert torch.equal(alone.counts, last.counts)


def test_the_draws_do_not_depend_on_the_cosine():
    one, other = pass_over(500), pass_over(500, cosine=0.5)
    assert torch.equal(one.counts, other.counts)
    score = Exponential(8.0)
    assert torch.allclose(other.squared_ratio(score), one.squared_ratio(score) * math.exp(8.0))
    assert torch.equal(one.at_cosine(0.5).squared_ratio(score), other.squared_ratio(score))


def test_seeds_give_other_draws_and_the_same_seed_the_same():
    assert torch.equal(pass_over(500).counts, pass_over(500).counts)
    assert not torch.equal(pass_over(500).counts, pass_over(500, seed=4).counts)


def test_yielded_counts_are_copies():
    first, second = spectra([100, 200], **SMALL)
    assert (first.counts.sum(), second.counts.sum()) == (24 * 99, 24 * 199)


def test_antipodes_are_mirror_images_in_pairs():
    seen = pass_over(700, antipodes=True)
    half = pass_over(700, queries=12)
    assert torch.equal(seen.counts[0::2], half.counts)
    assert torch.equal(seen.counts[1::2], half.counts.flip(1))
    with pytest.raises(ValueError, match="queries must be even to come in pairs of antipodes, got 25"):
        pass_over(700, antipodes=True, queries=25)


def test_queries_and_antipodes_are_uncorrelated_though_they_share_keys():
    """The spread of a mean over n queries is what n independent ones have, over many passes."""
    M, n, score = 200, 16, Exponential(6.0)
    means = [
        pass_over(M, queries=n, antipodes=True, seed=seed).squared_ratio(score).mean().item() for seed in range(400)
    ]
    first, second = (theory.moment(Exponential(b), 16, p) for b, p in ((6.0, 2), (6.0, 4)))
    spread = math.sqrt((M - 1) * (second - first**2) / n)
    assert np.mean(means) == pytest.approx((M - 1) * first, abs=4 * spread / 20)
    assert np.std(means) == pytest.approx(spread, rel=0.25)


# --- against the laws ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_rules_obey_the_exact_law(device):
    rules = {"fixed": Fixed(), "Su": Su(), "YaRN": YaRN()}
    scores = {name: rule.score for name, rule in rules.items()}
    grid = [64, 1024, 2**15]
    options = {"queries": 1280, "cosines": (1.0, 0.7), "seed": 11, "device": device}
    found, table = interference(scores, grid, **options)
    weights = attention_table(table, "weight").set_index(["store", "M", "cosine"])
    entropies = attention_table(table, "entropy").set_index(["store", "M", "cosine"])
    for name, rule in rules.items():
        for M in grid:
            for c in (1.0, 0.7):
                one, law = found.at(name, M, cosine=c), theory.isr(rule.score(M), M, 64, c)
                assert abs(one.value - law) <= 4 * one.standard_error
                if M > 64:
                    assert 4 * one.standard_error < 0.05 * law  # sharp enough to fail
                weight, entropy = sharpness.attention(M, 64, rule(M), c)
                assert weights.loc[(name, M, c), "value"] == pytest.approx(weight, rel=0.03)
                assert entropies.loc[(name, M, c), "value"] == pytest.approx(entropy, rel=0.03)


def test_the_nearest_key_is_where_the_law_puts_it():
    seen = pass_over(4000, d=64, queries=400)
    share = (seen.nearest() < sharpness.nearest_similarity(4000, 64)).double().mean().item()
    assert share == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(400))


def test_median_and_average_part_beyond_the_nearest_similarity():
    seen = pass_over(2000, d=64, queries=640)
    border = sharpness.best_beta(sharpness.nearest_similarity(2000, 64), 64)
    for beta, low, high in ((0.4 * border, 0.95, 1.02), (2.5 * border, 0.0, 0.6)):
        ratio = seen.squared_ratio(Exponential(beta)).sqrt()
        law = theory.isr(Exponential(beta), 2000, 64)
        assert low < ratio.median().item() / law < high


# --- reading ---------------------------------------------------------------------------------------


def test_reading_kept_spectra_is_measuring():
    scores = {"linear": Linear(), "Su": Su().score}
    kept = list(spectra([50, 500], **SMALL))
    options = {"cosines": (1.0, 0.6), "replicates": 4}
    found, table = read(kept, scores, d=16, **options)
    again, other = interference(scores, [50, 500], **SMALL, **options)
    pd.testing.assert_frame_equal(found.replicates, again.replicates)
    pd.testing.assert_frame_equal(table, other)
    assert set(table["store"]) == {"Su"}
    assert list(table.columns) == ["store", "M", "cosine", "replicate", "weight", "entropy", "gradient"]
    assert len(table) == 2 * 2 * 4
    assert len(found.replicates) == 2 * 2 * 2 * 4


def test_reading_agrees_with_asking_each_spectrum():
    seen, rule = pass_over(400), Su()
    found, table = read([seen], {"Su": rule.score}, d=16, replicates=4, cosines=(0.8,))
    asked = seen.at_cosine(0.8)
    squares = asked.squared_ratio(rule.score(400))
    assert found.replicates["mean_square"].mean() == pytest.approx(squares.mean().item())
    assert found.replicates["median"][0] == pytest.approx(float(np.median(squares[:6].sqrt())))
    weight, entropy = asked.attention(rule(400))
    assert table["weight"].mean() == pytest.approx(weight.mean().item())
    assert table["entropy"].mean() == pytest.approx(entropy.mean().item())
    assert table["gradient"].mean() == pytest.approx(asked.gradient(rule(400)).mean().item())


def test_a_silent_target_counts_as_infinite():
    found, _ = read([pass_over(30)], {"ReLU": ReLU()}, d=16, replicates=2, cosines=(-0.5,))
    assert np.isinf(found.replicates[["mean_square", "mean", "median"]]).all(axis=None)


def test_attention_tables_have_intervals():
    _, table = read([pass_over(400)], {"Su": Su().score}, d=16, replicates=4)
    row = attention_table(table, "weight").iloc[0]
    assert row["low"] < row["value"] < row["high"]
    with pytest.raises(ValueError, match="column must be one of 'weight', 'entropy', 'gradient', got 'mass'"):
        attention_table(table, "mass")


def test_progress_is_told():
    told = []
    list(spectra([100, 9000], **SMALL, progress=lambda done, of: told.append((done, of))))
    assert told[-1] == (8999, 8999)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_reader_sees_a_bar_when_a_pass_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(_watched, "somebody_waits", lambda: True)
    monkeypatch.setattr(_watched, "SILENT_S", 0.0)
    list(spectra([100, 9000], **SMALL))
    assert "keys: 100%|" in capsys.readouterr().err


@pytest.mark.parametrize(("build", "terminal", "shown"), [("", True, True), ("1", True, False), ("", False, False)])
def test_nobody_watches_a_build(monkeypatch, build, terminal, shown):
    monkeypatch.setenv("MEMSTORE_BUILD", build)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    assert (_watched.bar("keys") is not None) == shown


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"grid": []}, ValueError, "grid must hold at least one M"),
        ({"grid": [9, 9]}, ValueError, "grid must increase from entry to entry, got 9 followed by 9"),
        ({"grid": [1]}, ValueError, r"grid\[0\] must be at least 2, got 1"),
        ({"grid": [2.5]}, TypeError, r"grid\[0\] must be an integer, got 2.5"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"queries": 1}, ValueError, "queries must be at least 2, got 1"),
        ({"queries": "many"}, TypeError, "queries must be an integer, got 'many'"),
        ({"bins": 8}, ValueError, "bins must be at least 16, got 8"),
        ({"cosine": 1.5}, ValueError, r"cosine must lie in \[-1, 1\], got 1.5"),
        ({"cosine": math.nan}, ValueError, "cosine must be finite, got nan"),
        ({"device": "abacus"}, ValueError, "device must be one of cuda, mps, cpu, got 'abacus'"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ],
)
def test_bad_passes_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        list(spectra(**{"grid": [10], **SMALL, **options}))


class Wrong(Score):
    name, latex = "wrong", "?"

    def __call__(self, s):
        return s


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"scores": {}}, ValueError, "scores must hold at least one score, got none"),
        ({"scores": {"a": 3}}, TypeError, r"scores\['a'\] must be a Score or return one, got int"),
        ({"scores": {"a": lambda M: M}}, TypeError, r"scores\['a'\] must be a Score or return one, got int"),
        ({"replicates": 1}, ValueError, "replicates must be at least 2, got 1"),
        ({"replicates": 25}, ValueError, "queries must number at least replicates = 25, got 24"),
        ({"cosines": (2.0,)}, ValueError, "cosine must lie in"),
        ({"spectra": [3]}, TypeError, "spectra must hold Spectrum objects, got int"),
    ],
)
def test_bad_readings_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        read(**{"spectra": [pass_over(10)], "scores": {"w": Wrong()}, **options})


def test_too_few_queries_are_refused_before_the_keys_are_drawn():
    with pytest.raises(ValueError, match="queries must number at least replicates = 20, got 8"):
        interference({"w": Wrong()}, [10**12], queries=8)


@pytest.mark.parametrize(
    ("beta", "kind", "words"),
    [
        (-1.0, ValueError, r"beta must lie in \[0, .*, got -1"),
        (math.nan, ValueError, "beta must be finite, got nan"),
        (math.inf, ValueError, "beta must be finite, got inf"),
        ("sharp", TypeError, "beta must be a real number, got 'sharp'"),
    ],
)
def test_a_bad_beta_is_refused(beta, kind, words):
    for ask in (pass_over(10).attention, pass_over(10).gradient):
        with pytest.raises(kind, match=words):
            ask(beta)


@pytest.mark.parametrize("cosine", [1.0, 0.3])
def test_a_huge_beta_does_not_overflow(cosine):
    seen = pass_over(500).at_cosine(cosine)
    weight, entropy = seen.attention(1e6)
    assert torch.isfinite(weight).all()
    assert (entropy < 10).all()
    expected = (seen.nearest() < cosine).double()
    assert torch.allclose(weight, expected, atol=1e-6)
    assert torch.isfinite(seen.squared_ratio(Exponential(1e6))).all() == (cosine == 1.0)
