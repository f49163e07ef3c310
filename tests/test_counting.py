"""The fast path: what its shortcuts cost in accuracy, what they hold in memory, and that nothing is lost on the way."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from memstore_lib import counting, measure, memories, scores, sharpness, spectrum, stores, theory
from memstore_lib.counting import _Counter, spectra
from tests.test_device import DEVICES

GRID = [2**k for k in range(4, 15, 2)]
SMALL = {"d": 24, "queries": 40, "seed": 3, "device": "cpu"}

RULES = [sharpness.Fixed(4.0), sharpness.Su(), sharpness.QwenLogN(), sharpness.YaRN(), sharpness.YaRN(clamp=True)]
SCORES = [*scores.SCORES.values(), *(scores.TruncatedExponential(8.0, terms) for terms in (2, 3, 4))]


def drawn(M: int, *, d: int, queries: int, seed: int, device: str = "cpu") -> torch.Tensor:
    """Return the similarities, (queries, M - 1) in float64, that a pass with the same seed meets."""
    draw = memories.replicate_generator(seed, 0)
    bank = memories.unit_keys(queries, d, generator=draw, device=device)
    chunks = math.ceil((M - 1) / counting._CHUNK)
    keys = [memories.unit_keys(counting._CHUNK, d, generator=draw, device=device) for _ in range(chunks)]
    return bank.double() @ torch.cat(keys)[: M - 1].double().T


# --- the same as measuring directly ----------------------------------------------------------------


@pytest.fixture(scope="module")
def one_pass():
    """Everything that one pass over the keys serves, and the similarities that it met."""
    asked = {str(score): score for score in SCORES} | {repr(rule): rule.score for rule in RULES}
    cosines = (1.0, 0.7, 0.4)
    found, attention = spectrum.interference(asked, GRID, **SMALL, replicates=5, cosines=cosines)
    return asked, cosines, found, attention, drawn(GRID[-1], **SMALL)


def test_one_pass_serves_every_score_rule_cosine_and_checkpoint(one_pass):
    asked, cosines, found, _, s = one_pass
    means = found.replicates.groupby(["store", "cosine", "M"])[["mean_square", "mean", "median"]].mean()
    assert len(means) == len(asked) * len(cosines) * len(GRID)
    for label, entry in asked.items():
        for M in GRID:
            score = entry if isinstance(entry, scores.Score) else entry(M)
            energy = (score(s[:, : M - 1]) ** 2).sum(1).view(5, 8)
            for c in cosines:
                ratio = (energy / score(torch.tensor([c]).double()) ** 2).sqrt()
                direct = [(ratio**2).mean(), ratio.mean(), ratio.quantile(0.5, dim=1, interpolation="midpoint").mean()]
                # A bin is 5e-4 wide: at M = 16 that is 1 % of what a steep score makes of its nearest key.
                assert means.loc[(label, c, M)].tolist() == pytest.approx(
                    [float(x) for x in direct], rel=0.2 / M + 1e-3
                )


def test_one_pass_serves_the_softmax_weight_entropy_and_gradient(one_pass):
    asked, cosines, _, attention, s = one_pass
    means = attention.groupby(["store", "cosine", "M"])[["weight", "entropy", "gradient"]].mean()
    sharp = ["softmax", *map(repr, RULES)]
    assert len(means) == len(sharp) * len(cosines) * len(GRID)
    for label in sharp:
        for M in GRID:
            beta = (asked[label] if label == "softmax" else asked[label](M)).beta
            for c in cosines:
                everyone = torch.cat([torch.full((40, 1), c, dtype=torch.float64), s[:, : M - 1]], dim=1)
                p = torch.softmax(beta * everyone, dim=1)
                own, entropy = p[:, 0], -torch.special.xlogy(p, p).sum(1)
                direct = [own.mean(), entropy.mean(), (beta * own * (1 - own)).mean()]
                near = pytest.approx([float(x) for x in direct], rel=0.05 / M + 5e-4)
                assert means.loc[(label, c, M)].tolist() == near


def test_it_agrees_with_the_pass_that_looks_at_each_similarity():
    """Other draws, so within the standard errors of both."""
    kinds = [stores.MLP(score) for score in scores.SCORES.values()]
    options = {"d": 24, "device": "cpu", "seed": 5}
    direct = measure.interference(kinds, [300], queries=80, **options)
    binned, _ = spectrum.interference(dict(scores.SCORES), [300], queries=1600, **options)
    for kind in kinds:
        one, other = direct.at(kind.name, 300), binned.at(kind.name, 300)
        assert abs(one.value - other.value) < 4 * math.hypot(one.standard_error, other.standard_error)
        assert 4 * other.standard_error < 0.2 * other.value  # sharp enough to fail


# --- what binning and single precision cost ----------------------------------------------------------


def counted_bins(s: torch.Tensor, bins: int = counting.BINS) -> torch.Tensor:
    """Return the bin into which the counter puts each similarity of a float32 tensor."""
    counter = _Counter(torch.eye(2)[:1], bins)
    found = []
    for part in s.split(counting._BLOCK - 1):  # one short of a block, so that the keys wait for the flush
        counter.add(torch.stack([part, (1 - part.double() ** 2).sqrt().float()], dim=1))
        counter.flush()
        found.append(counter.index[0, : len(part)].long() - 1)
    return torch.cat(found)


@pytest.fixture(scope="module")
def binned():
    """Similarities spread over every bin, the centres that stand for them, and their density at d = 64."""
    inside = 256
    draw = torch.Generator().manual_seed(1)
    places = torch.arange(counting.BINS * inside, dtype=torch.float64)
    places += torch.rand(len(places), generator=draw, dtype=torch.float64)
    s = (places * (2 / len(places)) - 1).float()
    density = (1 - s.double() ** 2) ** 30.5
    return s.double(), counting._centres(counting.BINS)[counted_bins(s).clamp(0, counting.BINS - 1)], density


def bias(binned: tuple[torch.Tensor, torch.Tensor, torch.Tensor], function) -> float:
    """Return the relative error of the mean of a function that binning and rounding make."""
    s, centres, density = binned
    exact = function(s)
    return ((density * (function(centres) - exact)).sum() / (density * exact).sum()).item()


SHARP = [8.0, sharpness.Su()(2**21), sharpness.YaRN()(2**21)]


@pytest.mark.parametrize("beta", SHARP)
def test_the_bias_at_a_sharpness_is_what_the_docstring_says(binned, beta):
    found = bias(binned, lambda s: scores.Exponential(beta)(s) ** 2) / 2  # of the ratio, half that of its square
    binning, rounding = (beta * 2 / counting.BINS) ** 2 / 12, 1.5e-6 * max(beta / 25, 1 / 3)
    assert abs(found) < 1.2 * binning + rounding
    assert abs(found) < 2e-5


@pytest.mark.parametrize("score", SCORES, ids=str)
def test_the_bias_of_every_score_is_small(binned, score):
    limit = 3e-6 if not isinstance(score, scores.TruncatedExponential) else 1e-5
    assert abs(bias(binned, lambda s: score(s) ** 2)) / 2 < limit


@pytest.mark.parametrize("beta", SHARP)
def test_the_bias_of_softmax_sums_is_small(binned, beta):
    assert abs(bias(binned, lambda s: torch.exp(beta * (s - 1)))) < 1e-5
    assert abs(bias(binned, lambda s: torch.exp(beta * (s - 1)) * s)) < 1e-5


@pytest.mark.parametrize("bins", [16, 2048, 4096, 40_000])
def test_a_similarity_goes_into_its_own_bin(bins):
    at = (torch.arange(bins)[:, None] + torch.tensor([0.02, 0.5, 0.98])).flatten()
    found = counted_bins((at * (2 / bins) - 1).float(), bins)
    assert torch.equal(found, torch.arange(bins).repeat_interleave(3))


def test_similarities_beyond_one_to_rounding_are_not_lost():
    counter = _Counter(torch.eye(3), 64)
    counter.add(torch.eye(3) * (1 + 2e-7))
    counter.add(-torch.eye(3) * (1 + 2e-7))
    counts = counter.flush()
    assert counts[:, -1].tolist() == counts[:, 0].tolist() == [1, 1, 1]
    assert counts.sum(1).tolist() == [6, 6, 6]
    assert torch.equal(counter.flush(), counts)


# --- blocks, tiles and groups ------------------------------------------------------------------------


def test_counts_do_not_depend_on_how_keys_arrive():
    bank = memories.unit_keys(300, 16, seed=1, device="cpu")  # more than one group of queries
    keys = memories.unit_keys(2 * counting._BLOCK + 777, 16, seed=2, device="cpu")
    counted = []
    for sizes in ([len(keys)], [5, 4091, 4096, 9000, 70_000, len(keys) - 87_192]):
        counter = _Counter(bank, 512)
        for part in keys.split(sizes):
            counter.add(part)
            if len(part) == 9000:
                counter.flush()
        counted.append(counter.flush().clone())
    assert (counted[0].sum(1) == len(keys)).all()
    assert (counted[0] - counted[1]).abs().sum(1).max() <= 40  # products of other shapes round otherwise


@pytest.mark.parametrize("device", DEVICES)
def test_the_tally_of_a_gpu_counts_like_that_of_the_cpu(device):
    """It adds on whatever device its tensors are on, so the CPU runs it too."""
    scatter = counting._ScatterTally(3, 20, torch.device(device))
    rows = counting._RowTally(3, 20, torch.device("cpu"))
    draw = torch.Generator().manual_seed(1)
    for start, n in ((0, 3), (1, 2), (0, 1)):
        bins = torch.randint(20, (n, 500), generator=draw)
        scatter.add(start, bins.to(device))
        rows.add(start, bins.to(rows.index))
    assert torch.equal(scatter.counts(), rows.counts())
    assert rows.counts().sum(1).tolist() == [1000, 1000, 1000]
    assert torch.equal(scatter.counts(), rows.counts())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("antipodes", [False, True])
def test_cuda_counts_what_the_cpu_counts(antipodes):
    options = {**SMALL, "antipodes": antipodes}
    for one, other in zip(
        spectra([5, 70_000, 140_000], **{**options, "device": "cuda"}),
        spectra([5, 70_000, 140_000], **options),
        strict=True,
    ):
        assert (one.counts.sum(1) == one.M - 1).all()
        # A similarity on a border falls to either side.
        assert (one.counts.long() - other.counts.long()).abs().sum(1).max() <= 2e-3 * one.M + 2


@pytest.mark.parametrize("device", DEVICES)
def test_keys_drawn_on_the_device_obey_the_law(device):
    found, _ = spectrum.interference(
        {"relu": scores.ReLU()}, [500], d=24, queries=1600, seed=2, device=device, draws="device"
    )
    law, one = theory.isr(scores.ReLU(), 500, 24), found.at("relu", 500)
    assert abs(one.value - law) < 4 * one.standard_error < 0.05 * law


def test_on_the_cpu_the_device_draws_are_those_of_the_cpu():
    one, other = (next(iter(spectra([900], **SMALL, draws=draws))) for draws in ("cpu", "device"))
    assert torch.equal(one.counts, other.counts)


# --- TF32 ----------------------------------------------------------------------------------------------


ASKED = """
import sys
import torch
from memstore_lib import counting, device

def state():
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = "mixed"
    return older, torch.backends.cuda.matmul.fp32_precision

exec(sys.argv[1])
before, during, real = state(), [], torch.addmm

def product(*arguments, **options):
    # What a product on CUDA asks, and where torch refuses settings that contradict one another.
    during.append(torch.backends.cuda.matmul.allow_tf32)
    return real(*arguments, **options)

torch.addmm = product
list(counting.spectra([50], d=8, queries=4, device="cpu"))
assert during == [False], during
assert state() == before, (before, state())
try:
    with device.full_precision():
        raise ValueError
except ValueError:
    assert state() == before
"""


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has no such setting")
@pytest.mark.parametrize(
    "setting",
    [
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.fp32_precision = 'tf32'",
    ],
)
def test_tf32_stays_out_of_the_products_and_comes_back(setting):
    """In a program of its own, as torch cannot take back every setting."""
    run = subprocess.run([sys.executable, "-c", ASKED, setting], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


# --- memory --------------------------------------------------------------------------------------------

PEAK = """
import resource, sys
from pathlib import Path
from memstore_lib import scores, sharpness, spectrum

def peak():
    status = Path("/proc/self/status")
    if status.exists():  # of this program alone; what getrusage tells begins with the peak of the one that started it
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before = peak()
most, d, queries = map(int, sys.argv[1:])
asked = {**scores.SCORES, "Su": sharpness.Su().score, "YaRN": sharpness.YaRN().score}
grid = [2**k for k in range(4, most + 1)]
spectrum.interference(asked, grid, d=d, queries=queries, cosines=(1.0, 0.7), device="cpu")
print(peak() - before)
"""


def peak_above_import(most: int, d: int, queries: int) -> int:
    """Return the bytes that a measurement up to M = 2^most adds to the peak of a fresh process."""
    command = [sys.executable, "-c", PEAK, str(most), str(d), str(queries)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return int(run.stdout)


def test_memory_does_not_grow_with_the_number_of_memories():
    pytest.importorskip("resource", reason="this system does not tell the peak")
    few, many = (peak_above_import(most, d=8, queries=20) for most in (15, 24))
    assert many < few + 20e6  # the similarities of one query alone would take 67 MB
    assert many < 300e6


def test_two_million_memories_fit_with_256_queries():
    pytest.importorskip("resource", reason="this system does not tell the peak")
    assert 1e6 < peak_above_import(21, d=64, queries=256) < 300e6


# --- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"draws": "gpu"}, ValueError, "draws must be one of 'cpu', 'device', got 'gpu'"),
        ({"antipodes": True, "queries": 45}, ValueError, "multiple of 2 · replicates = 10 for pairs, got 45"),
    ],
)
def test_bad_options_are_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        spectrum.interference({"relu": scores.ReLU()}, [9], **{**SMALL, "replicates": 5, **options})


def test_pairs_of_antipodes_are_measured():
    found, _ = spectrum.interference({"relu": scores.ReLU()}, [300], **{**SMALL, "queries": 800}, antipodes=True)
    one, law = found.at("relu", 300), theory.isr(scores.ReLU(), 300, 24)
    assert abs(one.value - law) < 4 * one.standard_error < 0.1 * law
