"""Laws against the values of shared references, closed forms, and measurements."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from memstore_lib import measure, theory
from memstore_lib.scores import SCORES, Exponential, Linear, ReLU, Score, SwiGLU, TruncatedExponential
from memstore_lib.stores import STORES, OuterProduct
from tests.test_device import one_thread  # noqa: F401

PROPERTY = settings(max_examples=30, deadline=None, derandomize=True)


class Square(Score):
    name, latex = "square", "s^2"

    def __call__(self, s):
        return s**2


class Constant(Score):
    name, latex = "constant", "1"

    def __call__(self, s):
        return torch.ones_like(s)


class Window(Score):
    """1 between two similarities: two jumps away from 0."""

    name, latex, kinks = "window", "1", (-0.2, 0.3)

    def __call__(self, s):
        return ((s > -0.2) & (s < 0.3)).to(s.dtype)


# --- the similarity of two random unit keys --------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 4, 5, 16, 64, 4096])
def test_density_integrates_to_one(d):
    # s = sin θ takes away the singular ends at d = 2.
    f = lambda t: theory.similarity_density(np.sin(t), d) * np.cos(t)  # noqa: E731
    reach = min(math.pi / 2 - 1e-9, 30 / math.sqrt(d))
    assert integrate.quad(f, -reach, reach, limit=200, points=[0])[0] == pytest.approx(1, abs=1e-8)


@given(s=st.floats(-0.999, 0.999), d=st.integers(2, 300))
@PROPERTY
def test_density_is_even_and_of_the_stated_form(s, d):
    here, there = theory.similarity_density(np.array([s, -s]), d)
    assert here == there
    ratio = here / theory.similarity_density(0.0, d)
    assert ratio == pytest.approx((1 - s * s) ** ((d - 3) / 2), rel=1e-9, abs=1e-300)


def test_density_in_three_dimensions_is_flat():
    assert theory.similarity_density(np.linspace(-0.9, 0.9, 7), 3) == pytest.approx(0.5)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 16, 63, 64, 256, 1000, 4096, 100_000, 10**7])
def test_even_moments_of_a_similarity(d):
    rel = 1e-11 if d <= 100_000 else 1e-9
    s2, s4, s6 = 1 / d, 3 / (d * (d + 2)), 15 / (d * (d + 2) * (d + 4))
    for power, expected in ((2, s2), (4, s4), (6, s6)):
        assert theory.moment(Linear(), d, power) == pytest.approx(expected, rel=rel, abs=0)
    for power in (1, 3, 5):
        assert theory.moment(Linear(), d, power) == pytest.approx(0, abs=1e-14)
    assert theory.moment(ReLU(), d) == pytest.approx(s2 / 2, rel=rel, abs=0)
    assert theory.moment(ReLU(2), d) == pytest.approx(s4 / 2, rel=rel, abs=0)
    assert theory.moment(ReLU(3), d) == pytest.approx(s6 / 2, rel=rel, abs=0)
    assert theory.moment(Constant(), d, 5) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("d", [2, 3, 5, 16, 64, 256, 4096])
@pytest.mark.parametrize("t", [0.3, 1, 8, 16, 64, 200])
def test_exponential_moment_is_bessels(d, t):
    # E e^{ts} = Γ(d/2) (2/t)^{d/2-1} I_{d/2-1}(t); σ is e^{t(s-1)}, and ive is I scaled by e^-t.
    order = d / 2 - 1
    if order > 100:  # I_v itself underflows there; the series Σ (t/2)^{2n} / (n! (d/2)_n) is as good
        terms = [2 * n * math.log(t / 2) - special.gammaln(n + 1) - special.gammaln(d / 2 + n) for n in range(400)]
        log_mean = special.logsumexp(terms) + special.gammaln(d / 2) - t
    else:
        log_mean = special.gammaln(d / 2) + order * math.log(2 / t) + math.log(special.ive(order, t))
    assert theory.moment(Exponential(t), d, 1) == pytest.approx(math.exp(log_mean), rel=2e-10, abs=0)
    assert theory.moment(Exponential(t / 2), d, 2) == pytest.approx(math.exp(log_mean), rel=2e-10, abs=0)


@pytest.mark.parametrize("d", [2, 3, 17, 64, 900])
def test_jumps_of_a_score_are_met_by_its_kinks(d):
    a = (d - 1) / 2
    share = special.betainc(a, a, (1 + 0.3) / 2) - special.betainc(a, a, (1 - 0.2) / 2)
    assert theory.moment(Window(), d) == pytest.approx(share, rel=1e-11, abs=0)


def test_one_dimension_has_two_directions():
    assert theory.moment(ReLU(2), 1) == 0.5
    assert theory.capacity(ReLU(), 1) == 3
    assert theory.isr(Linear(), 5, 1) == 2
    assert theory.moment(Exponential(1), 1, 1) == pytest.approx((1 + math.exp(-2)) / 2)


@pytest.mark.parametrize("score", SCORES.values(), ids=str)
@pytest.mark.parametrize("d", [2, 3, 64])
def test_moments_are_integrals_over_the_density(score, d):
    def f(t):
        s = math.sin(t)
        return score(torch.tensor(s, dtype=torch.float64)).item() ** 2 * math.cos(t) ** (d - 2)

    area = 2 ** (d - 2) * special.beta((d - 1) / 2, (d - 1) / 2)
    found = integrate.quad(f, -math.pi / 2, 0)[0] + integrate.quad(f, 0, math.pi / 2)[0]
    assert theory.moment(score, d) == pytest.approx(found / area, rel=1e-7, abs=0)


# --- capacities ------------------------------------------------------------------------------------

# shared/numerics.md, "Exact capacities", to the digits printed there.
CAPACITIES = [
    (Linear(), {16: 17, 64: 65, 256: 257}, 1e-9),
    (ReLU(), {16: 33, 64: 129, 256: 513}, 1e-9),
    (ReLU(2), {16: 193, 64: 2817, 256: 44033}, 1e-9),
    (ReLU(3), {16: 769, 64: 38298.6, 256: 2.29e6}, 2e-3),
    (SwiGLU(), {16: 195, 64: 2957.5, 256: 46842}, 3e-3),
    (Square(), {64: 1409}, 1e-9),
]
BY_DIMENSION = {  # sharpness √d: the series cut to 2, 3, 4 terms, and the exponential
    16: (13.5, 47.1, 116, 483),
    64: (41.5, 452.0, 3144.5, 1.27226e6),
    256: (145.5, 5616, 1.33e5, 1.09e13),
}


@pytest.mark.parametrize(
    ("score", "d", "expected", "rel"),
    [(score, d, M, rel) for score, table, rel in CAPACITIES for d, M in table.items()],
    ids=str,
)
def test_exact_capacities(score, d, expected, rel):
    assert theory.capacity(score, d) == pytest.approx(expected, rel=rel)
    M = theory.capacity(score, d)
    assert theory.isr(score, math.floor(M), d) <= 1 <= theory.isr(score, math.floor(M) + 1, d)


@pytest.mark.parametrize("d", BY_DIMENSION)
def test_exact_capacities_of_the_exponential_and_its_series(d):
    beta = math.sqrt(d)
    found = [theory.capacity(TruncatedExponential(beta, n), d) for n in (2, 3, 4)]
    found.append(theory.capacity(Exponential(beta), d))
    assert found == pytest.approx(BY_DIMENSION[d], rel=5e-3)
    if d == 64:
        assert theory.capacity(ReLU(3), d) == pytest.approx(38298.6, abs=0.06)
        assert theory.capacity(SwiGLU(), d) == pytest.approx(2957.5, abs=0.06)
        assert found[1:] == pytest.approx([452.0, 3144.5, 1272264], abs=0.6)


# shared/numerics.md, point 5: capacities at c = 1, 0.9, 0.7, 0.5.
NOISY = {
    "outer product": (65, 52.8, 32.4, 17.0),
    "ReLU²": (2817, 1849, 677, 177),
    "ReLU³": (38299, 20354, 4507, 599),
    "softmax": (1.27e6, 256867, 10471, 428),
}


@pytest.mark.parametrize("name", NOISY)
def test_capacities_with_noisy_queries(name):
    found = [theory.capacity(SCORES[name], 64, c) for c in (1, 0.9, 0.7, 0.5)]
    assert found == pytest.approx(NOISY[name], rel=3e-3)
    printed = [M for M in NOISY[name] if 1000 < M < 1e6]
    assert [M for M in found if 1000 < M < 1e6] == pytest.approx(printed, abs=0.51)


def test_the_long_context_numbers():
    M = 2**21
    assert theory.isr(Exponential(8 * 21 / 10), M, 64) == pytest.approx(0.003847, rel=1e-3)
    assert theory.isr(Exponential(8 * (0.1 * math.log(2048) + 1) ** 2), M, 64) == pytest.approx(6.48e-5, rel=2e-3)
    su = lambda log_m: theory.isr(Exponential(8 * log_m / math.log(1024)), round(math.exp(log_m)), 64)  # noqa: E731
    lowest = optimize.minimize_scalar(su, bounds=(5, 50), method="bounded")
    assert lowest.fun == pytest.approx(2.1e-3, rel=0.02)
    assert lowest.x / math.log(10) == pytest.approx(10, abs=0.3)
    assert optimize.brentq(lambda x: su(x) - 1, 50, 70) / math.log(10) == pytest.approx(26, abs=0.5)


def test_the_gaussian_formula_peaks_where_the_exact_law_rises():
    exact = [theory.capacity(Exponential(b), 64) for b in (8, 16, 32, 64, 128)]
    assert exact == sorted(exact)
    assert exact[2] / math.exp(2 * 32 * (1 - 32 / 64)) == pytest.approx(2360, rel=0.01)


@given(d=st.integers(1, 200), M=st.integers(1, 10**6), c=st.floats(-1, 1), name=st.sampled_from(list(SCORES)))
@example(d=5, M=9, c=-0.5, name="outer product")
@example(d=5, M=9, c=-0.5, name="ReLU")
@PROPERTY
def test_ratio_is_root_m_minus_one_over_the_signal(d, M, c, name):
    score = SCORES[name]
    signal = abs(score(torch.tensor(c, dtype=torch.float64)).item())
    ratio = theory.isr(score, M, d, c)
    if signal == 0:
        assert ratio == math.inf
        return
    assert ratio * signal == pytest.approx(math.sqrt((M - 1) * theory.moment(score, d)), rel=1e-12)
    assert theory.capacity(score, d, c) == pytest.approx(1 + signal**2 / theory.moment(score, d), rel=1e-12)
    if name == "outer product" and abs(c) == 1:
        assert ratio == pytest.approx(math.sqrt((M - 1) / d))


def test_edges_of_the_ratio():
    assert theory.isr(ReLU(), 1, 64) == 0
    assert theory.isr(ReLU(), 100, 64, -0.5) == math.inf
    assert theory.capacity(ReLU(), 64, -0.5) == 1
    silent = TruncatedExponential(0, 2)  # constant 1: no memory stands out
    assert theory.capacity(silent, 64) == 2

    class Never(Score):
        name, latex = "never", "0"

        def __call__(self, s):
            return (s >= 1).to(s.dtype)

    assert theory.capacity(Never(), 64) == math.inf


# --- rules of thumb, and curves for the figures ----------------------------------------------------


def test_rules_of_thumb():
    outer, least = theory.RULES["outer product"], theory.RULES["least squares"]
    assert outer.capacity(64) == 64
    assert outer.isr(256, 64) == 2
    assert least.capacity(64) == 128
    assert [least.isr(M, 64) for M in (10, 64, 128, 320)] == [0, 0, 1, 2]
    for name, rule in theory.RULES.items():
        assert rule.isr(rule.capacity(64), 64) == pytest.approx(1)
        assert name in STORES
        assert rule.latex
    assert theory.isr(Linear(), 1001, 64) / outer.isr(1000, 64) == pytest.approx(1)


def test_curves_are_tidy():
    table = theory.curve("outer product", lambda M: math.sqrt(M), [1, 4, 9], kind="rule")
    assert list(table.columns) == ["store", "M", "kind", "value", "low", "high"]
    assert table["value"].tolist() == [1, 2, 3]
    assert table["M"].tolist() == [1, 4, 9]
    assert set(table["kind"]) == {"rule"}
    assert set(table["store"]) == {"outer product"}
    assert table[["low", "high"]].isna().all(axis=None)
    assert set(theory.curve("x", lambda M: M, [2])["kind"]) == {"law"}


def test_similarity_curves_are_tidy():
    table = theory.similarity_curve([2, 64], points=11)
    assert list(table.columns) == ["series", "x", "density"]
    assert table.groupby("series", sort=False).size().to_dict() == {"d = 2": 11, "d = 64": 11}
    wide = table[table["series"] == "d = 64"]
    assert (wide["x"].min(), wide["x"].max()) == (-0.5, 0.5)
    assert wide["density"].tolist() == pytest.approx(theory.similarity_density(wide["x"].to_numpy(), 64))
    assert np.trapezoid(wide["density"], wide["x"]) == pytest.approx(1, abs=0.01)
    assert table["x"].abs().max() < 1


# --- least squares ---------------------------------------------------------------------------------


@given(M=st.integers(1, 500), d=st.integers(3, 200))
@PROPERTY
def test_least_squares_laws(M, d):
    assert theory.least_squares_signal(M, d) == min(1, d / M)
    unit, gaussian = theory.least_squares_isr(M, d), theory.least_squares_isr(M, d, "gaussian")
    if M <= d:
        assert unit == gaussian == 0
        return
    assert unit**2 == pytest.approx((M - d) / d * (1 + 2 / M))
    assert gaussian**2 == pytest.approx((M - d) / (d - 2))
    # E[1/P] - 1 for P ~ Beta(d/2, (M-d)/2).
    a, b = d / 2, (M - d) / 2
    assert gaussian**2 == pytest.approx(special.beta(a - 1, b) / special.beta(a, b) - 1, rel=1e-6)


@pytest.mark.parametrize("d", [3, 16, 64, 255])
def test_least_squares_capacities_are_where_the_ratio_is_one(d):
    M = theory.least_squares_capacity(d)
    assert (M - d) / d * (1 + 2 / M) == pytest.approx(1)
    assert theory.least_squares_capacity(d, "gaussian") == 2 * d - 2
    assert theory.least_squares_isr(2 * d - 2, d, "gaussian") == (pytest.approx(1) if d > 2 else 0)


def test_least_squares_capacities_at_64():
    assert theory.least_squares_capacity(64) == pytest.approx(127, abs=0.1)
    assert theory.least_squares_capacity(64, "gaussian") == 126


# --- noisy queries and ridge -----------------------------------------------------------------------


@given(
    M=st.integers(2, 600),
    d=st.integers(1, 200),
    c=st.floats(0.05, 1) | st.floats(-1, -0.05),
    ridge=st.just(0.0) | st.floats(1e-6, 1e6),
)
@PROPERTY
def test_noisy_law_solves_its_fixed_point(M, d, c, ridge):
    gamma, noise = (M - 1) / d, 1 / c**2 - 1
    found = theory.noisy_least_squares_isr(M, d, c, ridge)
    if ridge == 0:
        if gamma < 1:
            assert found == pytest.approx(math.sqrt(noise * gamma / (1 - gamma)))
        elif gamma == 1:
            assert found == (math.inf if noise else 0)
        else:
            tau = 1 / (gamma - 1)
            assert found**2 == pytest.approx((1 + noise * (1 + tau) ** 2) * (gamma - 1), rel=1e-9)
        return
    log_tau = optimize.brentq(
        lambda x: math.exp(-x) - ridge - gamma / (1 + math.exp(x)), -60, 60, xtol=1e-14, maxiter=500
    )
    tau = math.exp(log_tau)
    tau2 = tau**2 / (1 - gamma * tau**2 / (1 + tau) ** 2)
    energy = tau - ridge * tau2
    # The difference cancels in this form; it is the reference only where it does not.
    if energy > 1e-4 * tau:
        assert found**2 == pytest.approx((1 + noise * (1 + tau) ** 2) * energy / tau**2, rel=1e-7)
    assert found > 0


@pytest.mark.parametrize("M", [20, 64, 66, 130, 1000])
def test_noisy_law_is_smooth_at_its_ends(M):
    at = lambda ridge, c=0.9: theory.noisy_least_squares_isr(M, 64, c, ridge)  # noqa: E731
    for tiny in (1e-10, 1e-13, 1e-17, 1e-100, 1e-300):
        assert at(tiny) == pytest.approx(at(0), rel=1e-6)
    # With a very large ridge the store is a faint outer product.
    for large in (1e9, 1e13, 1e100, 1e300):
        assert at(large) == pytest.approx(math.sqrt((M - 1) / 64) / 0.9, rel=1e-6)
    assert at(0, 1.0) == pytest.approx(math.sqrt(max((M - 1) / 64 - 1, 0)))
    assert at(0.5, -0.9) == at(0.5, 0.9)


def test_noisy_law_of_a_faint_ridge_and_an_exact_query():
    # With c = 1 and γ < 1 the ridge alone interferes: τ → (1 - γ)/λ, so ISR → λ √γ / (1 - γ)^{3/2}.
    gamma = 19 / 64
    for tiny in (1e-6, 1e-10, 1e-14, 1e-18):
        law = tiny * math.sqrt(gamma) / (1 - gamma) ** 1.5
        assert theory.noisy_least_squares_isr(20, 64, 1.0, tiny) == pytest.approx(law, rel=1e-5, abs=0)


def test_noise_peaks_where_memories_fill_the_dimensions():
    grid = np.arange(2, 400)
    ratio = [theory.noisy_least_squares_isr(int(M), 64, 0.9) for M in grid]
    assert grid[int(np.argmax(ratio))] == 65
    assert max(ratio) == math.inf
    cured = [theory.noisy_least_squares_isr(int(M), 64, 0.9, theory.best_ridge(int(M), 64, 0.9)) for M in grid]
    assert cured == sorted(cured), "the best ridge removes the peak"
    assert all(a <= b + 1e-12 for a, b in zip(cured, ratio, strict=True))


@given(M=st.integers(2, 1000), d=st.integers(2, 200), c=st.floats(0.1, 0.99))
@PROPERTY
def test_best_ridge_is_the_minimum(M, d, c):
    best = theory.best_ridge(M, d, c)
    assert best == pytest.approx((M - 1) * (1 - c * c) / (d * c * c))
    lowest = theory.noisy_least_squares_isr(M, d, c, best)
    for factor in (0.0, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 100):
        assert theory.noisy_least_squares_isr(M, d, c, factor * best) >= lowest * (1 - 1e-12)
    assert theory.noisy_least_squares_isr(M, d, c, 1.5 * best) > lowest


def test_best_ridge_of_an_exact_query_is_none():
    assert theory.best_ridge(100, 64, 1.0) == 0
    assert theory.best_ridge(100, 64, -1.0) == 0
    assert theory.best_ridge(1, 64, 0.5) == 0


# --- pointing --------------------------------------------------------------------------------------

# shared/numerics.md, point 12: M at 99 % and 50 % top-1, measured.
FACTS = {32: (31, 118), 64: (115, 387), 128: (450, 1316)}
# M and accuracy of a million recalls each, to about 0.0005: a slower measurement than a test can afford.
POINTED = {
    32: {15: 0.99955, 20: 0.99804, 28: 0.9906, 35: 0.97569, 60: 0.85446, 118: 0.49932},
    64: {80: 0.99888, 106: 0.99318, 130: 0.97904, 387: 0.49887},
}


@pytest.mark.parametrize("d", FACTS)
def test_pointing_law_is_near_the_measured_facts(d):
    found = [theory.top1_capacity(accuracy, d) for accuracy in (0.99, 0.5)]
    assert found == pytest.approx(FACTS[d], rel=0.06)
    for M, accuracy in POINTED.get(d, {}).items():
        assert theory.top1_accuracy(M, d) == pytest.approx(accuracy, abs=0.01)
        if accuracy < 0.995:  # above, a percent of M is too little to see
            assert theory.top1_capacity(accuracy, d) == pytest.approx(M, rel=0.06)


@pytest.mark.parametrize(
    ("d", "accuracy", "printed"), [(d, *pair) for d, M in FACTS.items() for pair in zip((0.99, 0.5), M, strict=True)]
)
def test_pointing_law_against_measurement(d, accuracy, printed):
    grid = [round(share * printed) for share in (0.7, 0.95, 1.2)]
    # A replicate holds M facts at most, so the fewer there are, the more replicates it takes to resolve 1 %.
    options = {"d": d, "queries": 300, "replicates": max(6, 5000 // printed), "seed": 1, "device": "cpu"}
    table = measure.top1(OuterProduct(), grid, **options)
    found = measure.facts_at(accuracy, table)
    assert theory.top1_capacity(accuracy, d) == pytest.approx(found.value, rel=0.12)
    assert found.value == pytest.approx(printed, rel=0.12)
    for M in grid:
        seen = table[table["M"] == M]["accuracy"].mean()
        assert theory.top1_accuracy(M, d) == pytest.approx(seen, abs=0.03)


def test_pointing_law_has_the_right_shape():
    accuracies = [theory.top1_accuracy(M, 64) for M in (1, 2, 10, 100, 1000, 10_000)]
    assert accuracies[0] == 1
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[-1] < 0.02
    for accuracy in (0.02, 0.5, 0.99):
        M = theory.top1_capacity(accuracy, 64)
        assert theory.top1_accuracy(M, 64) == pytest.approx(accuracy, abs=1e-6)
    # Of the order d² up to a logarithm: M · 2 ln M / d² is near 1 for half of the facts.
    for d in (128, 1024, 4096):
        M = theory.top1_capacity(0.5, d)
        assert 0.9 < M * 2 * math.log(M) / d**2 < 1.5


@pytest.mark.parametrize("d", [4, 5, 8, 64, 4096])
@pytest.mark.parametrize("accuracy", [0.01, 0.5, 0.9999])
def test_pointing_capacity_is_found_wherever_it_is_promised(d, accuracy):
    assert theory.top1_capacity(accuracy, d) > 1


# --- bad input -------------------------------------------------------------------------------------


class Summed(Score):
    name, latex = "summed", "?"

    def __call__(self, s):
        return s.sum()


class Infinite(Score):
    name, latex = "infinite", "1/s"

    def __call__(self, s):
        return 1 / (s - s)


SIZES = {  # every function that takes sizes, as a function of (M, d)
    "moment": (lambda M, d: theory.moment(Linear(), d), {"d"}),
    "isr": (lambda M, d: theory.isr(Linear(), M, d), {"M", "d"}),
    "capacity": (lambda M, d: theory.capacity(Linear(), d), {"d"}),
    "density": (lambda M, d: theory.similarity_density(0.1, d), {"d"}),
    "signal": (theory.least_squares_signal, {"M", "d"}),
    "least squares": (theory.least_squares_isr, {"M", "d"}),
    "gaussian": (lambda M, d: theory.least_squares_isr(M, d, "gaussian"), {"M", "d"}),
    "ls capacity": (lambda M, d: theory.least_squares_capacity(d), {"d"}),
    "noisy": (theory.noisy_least_squares_isr, {"M", "d"}),
    "ridge": (lambda M, d: theory.best_ridge(M, d, 0.5), {"M", "d"}),
    "top1": (theory.top1_accuracy, {"d"}),
    "top1 capacity": (lambda M, d: theory.top1_capacity(0.5, d), {"d"}),
}
CASES = [(call, size) for call, sizes in SIZES.values() for size in sorted(sizes)]
IDS = [f"{name}-{size}" for name, (_, sizes) in SIZES.items() for size in sorted(sizes)]


@pytest.mark.parametrize(("call", "size"), CASES, ids=IDS)
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0, ValueError, r"must be at least \d, got 0"),
        (-7, ValueError, r"must be at least \d, got -7"),
        (8.0, TypeError, "must be an integer, got 8.0 of type float"),
        ("8", TypeError, "must be an integer, got '8' of type str"),
        (False, TypeError, "must be an integer, got False of type bool"),
        (None, TypeError, "must be an integer, got None of type NoneType"),
    ],
)
def test_sizes_are_checked(call, size, value, error, words):
    assert math.isfinite(call(M=12, d=8))
    with pytest.raises(error, match=f"^{size} {words}"):
        call(**{"M": 12, "d": 8, size: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda c: theory.isr(Linear(), 9, 4, c),
        lambda c: theory.capacity(Linear(), 4, c),
        lambda c: theory.noisy_least_squares_isr(9, 4, c),
        lambda c: theory.best_ridge(9, 4, c),
    ],
)
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (1.01, ValueError, r"cosine must lie in \[-1, 1\], got 1.01"),
        (-2, ValueError, r"cosine must lie in \[-1, 1\], got -2"),
        (math.nan, ValueError, "cosine must be finite, got nan"),
        ("0.5", TypeError, "cosine must be a real number, got '0.5' of type str"),
        (None, TypeError, "cosine must be a real number, got None of type NoneType"),
    ],
)
def test_cosines_are_checked(call, value, error, words):
    with pytest.raises(error, match=words):
        call(value)


@pytest.mark.parametrize(
    "call", [lambda s: theory.moment(s, 4), lambda s: theory.isr(s, 9, 4), lambda s: theory.capacity(s, 4)]
)
@pytest.mark.parametrize(
    ("score", "error", "words"),
    [
        ("ReLU", TypeError, "score must be a Score, got str"),
        (ReLU, TypeError, "score must be a Score, got ABCMeta"),
        (torch.relu, TypeError, "score must be a Score, got builtin"),
        (Summed(), ValueError, r"score 'summed' must be elementwise: shape \(\d+,\) went in, \(\) came out"),
        (Infinite(), ValueError, r"score 'infinite' must be finite on \[-1, 1\], got NaN or infinity"),
    ],
)
def test_scores_are_checked(call, score, error, words):
    with pytest.raises(error, match=words):
        call(score)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: theory.moment(Linear(), 4, 0), ValueError, "power must be at least 1, got 0"),
        (lambda: theory.moment(Linear(), 4, 1.5), TypeError, "power must be an integer, got 1.5"),
        (lambda: theory.similarity_density(1.0, 5), ValueError, "s must lie strictly between -1 and 1, got .* 1"),
        (lambda: theory.similarity_density([0, -1.5], 5), ValueError, "s must lie strictly .* got .* 1.5"),
        (lambda: theory.similarity_density(math.nan, 5), ValueError, "s must lie strictly between -1 and 1"),
        (lambda: theory.similarity_density(0.5, 1), ValueError, "d must be at least 2, got 1"),
        (lambda: theory.least_squares_isr(9, 4, "any"), ValueError, "keys must be one of 'unit', 'gaussian', got"),
        (lambda: theory.least_squares_capacity(4, None), ValueError, "keys must be one of .* got None"),
        (lambda: theory.least_squares_isr(9, 2, "gaussian"), ValueError, "d must be at least 3, got 2"),
        (lambda: theory.least_squares_capacity(2, "gaussian"), ValueError, "d must be at least 3, got 2"),
        (lambda: theory.noisy_least_squares_isr(1, 4), ValueError, "M must be at least 2, got 1"),
        (lambda: theory.noisy_least_squares_isr(9, 4, 0), ValueError, "cosine must not be 0"),
        (lambda: theory.best_ridge(9, 4, 0.0), ValueError, "cosine must not be 0"),
        (lambda: theory.noisy_least_squares_isr(9, 4, 0.5, -0.1), ValueError, r"ridge must lie in \[0, inf\), got"),
        (lambda: theory.noisy_least_squares_isr(9, 4, 0.5, math.nan), ValueError, "ridge must be finite, got nan"),
        (lambda: theory.noisy_least_squares_isr(9, 4, 0.5, "1"), TypeError, "ridge must be a real number, got '1'"),
        (lambda: theory.top1_accuracy(0.5, 8), ValueError, r"M must lie in \[1, inf\), got 0.5"),
        (lambda: theory.top1_accuracy("8", 8), TypeError, "M must be a real number, got '8'"),
        (lambda: theory.top1_accuracy(8, 3), ValueError, "d must be at least 4, got 3"),
        (lambda: theory.top1_capacity(0.999999, 8), ValueError, r"accuracy must lie in \[0.01, 0.9999\], got 0.999999"),
        (lambda: theory.top1_capacity(0, 8), ValueError, r"accuracy must lie in \[0.01, 0.9999\], got 0"),
        (lambda: theory.top1_capacity(None, 8), TypeError, "accuracy must be a real number, got None"),
        (lambda: theory.curve("x", math.sqrt, []), ValueError, "grid must hold at least one M, got an empty sequence"),
        (lambda: theory.curve("x", math.sqrt, [3, 2]), ValueError, "grid must increase .* got 3 followed by 2"),
        (lambda: theory.curve("x", math.sqrt, [2], "guess"), ValueError, "kind must be one of 'law', 'rule', got"),
        (lambda: theory.similarity_curve([]), ValueError, "dimensions must hold at least one"),
        (lambda: theory.similarity_curve([1]), ValueError, r"dimensions\[0\] must be at least 2, got 1"),
        (lambda: theory.similarity_curve([4, 4]), ValueError, "dimensions must increase"),
        (lambda: theory.similarity_curve([4], 1), ValueError, "points must be at least 2, got 1"),
        (lambda: theory.similarity_curve(4), TypeError, "dimensions must be a sequence of integers, got int"),
    ],
)  # fmt: skip
def test_arguments_are_checked(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(("beta", "expected"), [(1e8, 5.908179632259864e27), (1e12, 5.908179503031271e41)])
def test_an_exponential_too_steep_for_quadrature_has_its_closed_form(beta, expected):
    assert theory.capacity(Exponential(beta), 8) - 1 == pytest.approx(expected, rel=1e-11)  # 1 / E[σ²], from mpmath


def test_the_closed_form_takes_over_without_a_jump():
    below, above = (theory.moment(Exponential(beta), 8) for beta in (4.999999e4, 5.000001e4))
    assert above == pytest.approx(below * (4.999999 / 5.000001) ** 3.5, rel=1e-9)


@pytest.mark.parametrize("beta", [200.0, 400.0, 1e100])
def test_a_series_whose_squares_overflow_is_refused(beta):
    score = TruncatedExponential(beta, 2000 if beta < 1e3 else 5)
    for law in (lambda: theory.isr(score, 9, 4), lambda: theory.capacity(score, 4), lambda: theory.moment(score, 4)):
        if beta < 300:
            assert law() < math.inf
        else:
            with pytest.raises(
                ValueError, match=r"'exp, \d+ terms' must .*: use a smaller β, .* or scores.Exponential"
            ):
                law()


def test_a_huge_ridge_leaves_the_outer_product():
    far = [theory.noisy_least_squares_isr(200, 64, 0.8, ridge) for ridge in (1e12, 1e200, 1e308, 1.7e308)]
    assert far == pytest.approx([math.sqrt(199 / 64) / 0.8] * 4, rel=1e-9)


@pytest.mark.parametrize("c", [1e-200, -1e-160])
def test_a_cosine_whose_square_underflows_is_refused(c):
    for law in (theory.noisy_least_squares_isr, theory.best_ridge):
        with pytest.raises(ValueError, match="cosine must not be 0, got"):
            law(200, 64, c)
