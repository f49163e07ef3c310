"""Sharpness rules, and the laws of a sharpness: against their formulas, by hand or by quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from memstore_lib import exponentials, sharpness, theory
from memstore_lib.scores import Exponential
from memstore_lib.sharpness import Fixed, QwenLogN, ScalableSoftmax, Sharpness, Su, YaRN

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)
RULES = [Fixed, Su, ScalableSoftmax, QwenLogN, YaRN, lambda **kw: YaRN(clamp=True, **kw)]
IDS = ["fixed", "Su", "Scalable-Softmax", "Qwen", "YaRN", "YaRN clamped"]
lengths = st.floats(1, 1e30)


def each(rules=RULES, ids=IDS):
    return pytest.mark.parametrize("make", rules, ids=ids)


# --- rules -----------------------------------------------------------------------------------------


@each()
@given(beta=st.floats(0, 100), L=st.integers(2, 10**9))
@PROPERTY
def test_every_rule_gives_the_reference_at_the_reference_length(make, beta, L):
    assert make(beta=beta, L=L)(L) == pytest.approx(beta, rel=1e-12, abs=1e-12)


@given(M=lengths)
@PROPERTY
def test_rules_follow_their_formulas(M):
    log = math.log(M) / math.log(1024)
    assert Fixed()(M) == 8
    assert Su()(M) == pytest.approx(8 * log, abs=1e-12)
    assert QwenLogN()(M) == pytest.approx(8 * max(1, log))
    root = 0.1 * math.log(M / 1024) + 1
    assert YaRN()(M) == pytest.approx(8 * root**2 if root > 0 else 0, abs=1e-12)
    assert YaRN(clamp=True)(M) == pytest.approx(8 * root**2 if M > 1024 else 8)
    assert ScalableSoftmax(s=1.5)(M) == pytest.approx(1.5 * math.log(M), abs=1e-12)


@given(M=lengths)
@PROPERTY
def test_qwen_and_clamped_yarn_never_soften_and_agree_with_the_unclamped_beyond(M):
    for clamped, raw in ((QwenLogN(), Su()), (YaRN(clamp=True), YaRN())):
        assert clamped(M) == pytest.approx(raw(M) if M >= 1024 else 8)


@given(M=lengths, s=st.floats(0, 10))
@PROPERTY
def test_scalable_softmax_has_the_form_of_su(M, s):
    assert ScalableSoftmax()(M) == pytest.approx(Su()(M), abs=1e-12)
    assert ScalableSoftmax(s=s)(M) == pytest.approx(Su(beta=s * math.log(1024))(M), abs=1e-9)


def test_known_values():
    assert Su()(2**21) == pytest.approx(16.8)
    assert YaRN()(2**21) == pytest.approx(24.85, abs=0.005)
    assert QwenLogN()(16) == YaRN(clamp=True)(16) == 8
    assert Su()(16) == pytest.approx(3.2)


def test_at_one_memory_log_rules_give_zero():
    assert Su()(1) == ScalableSoftmax()(1) == ScalableSoftmax(s=3.0)(1) == 0
    assert QwenLogN()(1) == 8
    assert Su().score(1) == Exponential(0.0)


def test_yarn_does_not_turn_back_up_where_its_root_is_negative():
    assert YaRN(L=10**9)(1) == 0  # 0.1 log(1e-9) + 1 = -1.07, whose square is 1.15
    assert YaRN(L=10**9)(2) == 0


@each()
def test_a_rule_gives_the_score_at_a_length(make):
    assert make().score(500) == Exponential(make()(500))


@each()
def test_rules_have_names_and_latex(make):
    assert make().name
    assert make().latex


@each()
@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"beta": -1.0}, ValueError, r"beta must lie in \[0, .*, got -1"),
        ({"beta": math.nan}, ValueError, "beta must be finite, got nan"),
        ({"beta": math.inf}, ValueError, "beta must be finite, got inf"),
        ({"beta": "8"}, TypeError, "beta must be a real number, got '8'"),
        ({"beta": True}, TypeError, "beta must be a real number"),
        ({"L": 1}, ValueError, r"L must lie in \(1, .*, got 1"),
        ({"L": 0.5}, ValueError, "L must lie in"),
        ({"L": math.nan}, ValueError, "L must be finite"),
        ({"L": None}, TypeError, "L must be a real number"),
    ],
)
def test_bad_references_are_refused(make, options, kind, words):
    with pytest.raises(kind, match=words):
        make(**options)


@each()
@pytest.mark.parametrize(
    ("M", "kind", "words"),
    [
        (0, ValueError, r"M must lie in \[1, .*, got 0"),
        (-3, ValueError, "M must lie in"),
        (math.nan, ValueError, "M must be finite, got nan"),
        (math.inf, ValueError, "M must be finite, got inf"),
        ("many", TypeError, "M must be a real number, got 'many'"),
    ],
)
def test_bad_lengths_are_refused(make, M, kind, words):
    with pytest.raises(kind, match=words):
        make()(M)


@pytest.mark.parametrize("s", [-0.1, math.nan, math.inf])
def test_a_bad_factor_is_refused(s):
    with pytest.raises(ValueError, match="s must"):
        ScalableSoftmax(s=s)


def test_the_rule_itself_is_abstract():
    with pytest.raises(TypeError):
        Sharpness()


@each()
def test_a_huge_beta_does_not_overflow_the_score(make):
    score = make(beta=1e6).score(10**6)
    ratio = theory.isr(score, 10**6, 64)
    assert ratio == pytest.approx(0, abs=1e-30)
    assert math.isfinite(ratio)


# --- laws of a sharpness ---------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3, 16, 64, 257])
@pytest.mark.parametrize("t", [0.0, 1e-9, 1e-3, 0.7, 16.0, 50.0, 300.0])
def test_the_ruling_similarity_is_a_mean_under_the_exponential(d, t):
    s, mass = theory._panels(d, (0.0,))
    weight = mass * np.exp(t * (s - 1))
    expected = float(weight @ s / weight.sum())
    assert sharpness.ruling_similarity(t, d) == pytest.approx(expected, rel=1e-7, abs=1e-13)


def test_the_ruling_similarity_survives_where_bessel_functions_underflow():
    assert special.ive(4096 - 1, 10.0) == 0  # so their quotient would be 0/0
    assert sharpness.ruling_similarity(10.0, 8192) == pytest.approx(10 / 8192, rel=1e-5)
    assert 0.999 < sharpness.ruling_similarity(1e6, 64) < 1


@given(c=st.floats(0.01, 0.99), d=st.integers(2, 300))
@PROPERTY
def test_the_best_beta_solves_its_equation(c, d):
    assert sharpness.ruling_similarity(2 * sharpness.best_beta(c, d), d) == pytest.approx(c, rel=1e-9)


@pytest.mark.parametrize("d", [16, 64])
@pytest.mark.parametrize("c", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("M", [50, 10**6])
def test_the_best_beta_gives_the_smallest_ratio_whatever_M(c, d, M):
    best = sharpness.best_beta(c, d)
    at = [theory.isr(Exponential(best + step), M, d, c) for step in (-0.3, 0, 0.3)]
    assert at[1] < min(at[0], at[2])
    assert sharpness.best_beta(0.0, d) == 0


@pytest.mark.parametrize(("c", "words"), [(1.0, "got 1: at 1"), (-0.2, "got -0.2"), (2.0, "cosine must lie in")])
def test_there_is_no_best_beta_for_such_a_cosine(c, words):
    with pytest.raises(ValueError, match=words):
        sharpness.best_beta(c, 64)


def test_the_nearest_similarity_is_a_quantile_of_the_maximum():
    a = (64 - 1) / 2
    for M, share in ((2, 0.5), (1024, 0.5), (2**21, 0.5), (5000, 0.1)):
        x = sharpness.nearest_similarity(M, 64, share)
        below = special.betainc(a, a, (1 + x) / 2)
        assert below ** (M - 1) == pytest.approx(share, rel=1e-6)
    assert sharpness.nearest_similarity(2, 64) == pytest.approx(0, abs=1e-12)
    assert sharpness.nearest_similarity(2**21, 64) == pytest.approx(0.5715, abs=1e-4)


@pytest.mark.parametrize(("share", "M"), [(0.0, 10), (1.0, 10), (0.5, 1)])
def test_the_nearest_similarity_refuses(share, M):
    with pytest.raises(ValueError, match="share must lie" if M > 1 else "M must be at least 2, got 1"):
        sharpness.nearest_similarity(M, 64, share)


def test_attention_at_its_ends():
    assert sharpness.attention(1, 64, 8.0) == (1.0, 0.0)
    weight, entropy = sharpness.attention(500, 64, 0.0)
    assert (weight, entropy) == (pytest.approx(1 / 500), pytest.approx(math.log(500)))
    weight, entropy = sharpness.attention(500, 64, 400.0)
    assert (weight, entropy) == (pytest.approx(1), pytest.approx(0, abs=1e-9))
    weight, entropy = sharpness.attention(500, 64, 5000.0, cosine=0.1)
    assert 0 <= weight < 1e-200
    assert math.isfinite(entropy)


def test_attention_in_numbers():
    weight, entropy = sharpness.attention(1024, 64, 8.0)
    others = 1023 * theory.moment(Exponential(8.0), 64, 1)
    assert weight == pytest.approx(1 / (1 + others))
    s = sharpness.ruling_similarity(8.0, 64)
    assert entropy == pytest.approx(math.log(1 + others) + 8 * (1 - weight) * (1 - s))


# Right values from mpmath, with 50 digits, where scipy's Bessel functions are NaN or underflow.
@pytest.mark.parametrize(
    ("t", "d", "short", "log_mean"),
    [
        (1e9, 64, 3.149999949769722e-08, -554.122026726718),
        (1e10, 1024, 5.1149998681054853e-08, -8744.621345986345),
        (3e12, 3, 3.33288951992472e-13, -29.4227805851566),
        (30.0, 10**5, 1 - 2.999999730005999e-4, None),
    ],
)
def test_averages_of_huge_exponentials(t, d, short, log_mean):
    assert 1 - sharpness.ruling_similarity(t, d) == pytest.approx(short, rel=1e-3, abs=1e-15)
    if log_mean is not None:
        assert exponentials.log_mean(t, d) == pytest.approx(log_mean, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 64, 1024])
@pytest.mark.parametrize("t", [1e-3, 1.0, 50.0, 599.0])
def test_the_logarithm_of_an_average_is_that_of_the_quadrature(t, d):
    assert exponentials.log_mean(t, d) == pytest.approx(math.log(theory.moment(Exponential(t), d, 1)), rel=1e-11)


@pytest.mark.parametrize("order", [1.0, 32.0, 700.0])
def test_the_expansion_of_bessel_functions_meets_scipys(order):
    for t in (800.0, 4e4, 1e8):
        assert exponentials._log_bessel(t, order) == pytest.approx(math.log(special.ive(order, t)), abs=1e-8)


@pytest.mark.parametrize("t", [1e9, 1e17, 1e200])
def test_the_ruling_similarity_keeps_within_amos_bounds(t):
    for d in (2, 64, 10**6):
        a = d / 2 - 0.5
        low, high = t / (a + math.hypot(a + 1, t)), t / (a + math.hypot(a, t))
        assert low * (1 - 1e-15) <= sharpness.ruling_similarity(t, d) <= high


def test_the_best_beta_of_a_near_perfect_query():
    assert sharpness.best_beta(1 - 1e-12, 64) == pytest.approx(63 / 4e-12, rel=1e-3)


@pytest.mark.parametrize(
    ("M", "d", "beta", "cosine", "weight", "entropy"),
    [
        (10**30, 16, 700.0, 0.9, 3.4850133072909284e-45, 39.83298691273234),
        (10**40, 64, 1e8, 1 - 1e-7, 1.0, 0.0),
        (500, 64, 601.0, 0.0, 2.1131993945951882e-219, 0.0),
        (10**6, 64, 2000.0, 0.5, 0.0, 0.0),  # beyond β (1 - c) = 700 the weight stayed where it was
    ],
)
def test_attention_of_a_steep_score(M, d, beta, cosine, weight, entropy):
    found = sharpness.attention(M, d, beta, cosine)
    assert found == (pytest.approx(weight, rel=1e-9, abs=1e-300), pytest.approx(entropy, rel=1e-9, abs=1e-9))


def test_attention_does_not_jump_where_it_turns_to_logarithms():
    below, above = (sharpness.attention(10**30, 16, beta, 0.9) for beta in (599.999, 600.001))
    assert above == (pytest.approx(below[0], rel=1e-2), pytest.approx(below[1], rel=1e-4))


@pytest.mark.parametrize("bad", [{"M": 0}, {"beta": -1.0}, {"beta": math.nan}, {"cosine": 1.5}, {"d": 0}])
def test_attention_refuses(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must"):
        sharpness.attention(**{"M": 10, "d": 64, "beta": 8.0, **bad})


# --- how far a rule carries ------------------------------------------------------------------------


@pytest.mark.parametrize("cosine", [1.0, 0.9, 0.7, 0.5])
def test_the_limit_of_a_fixed_beta_is_its_capacity(cosine):
    expected = theory.capacity(Exponential(8.0), 64, cosine)
    assert sharpness.limit(Fixed(), 64, cosine) == pytest.approx(expected, rel=1e-6)


def test_the_limits_that_the_book_states():
    assert 1e26 < sharpness.limit(Su(), 64) < 2e26
    assert sharpness.limit(Su(), 64, up_to=1e20) == math.inf
    assert sharpness.limit(QwenLogN(), 64) == pytest.approx(sharpness.limit(Su(), 64))
    assert sharpness.limit(Su(), 64, 0.5) < 100 < sharpness.limit(QwenLogN(), 64, 0.5) < 1024
    assert sharpness.limit(YaRN(), 64) == math.inf


def test_the_ratio_is_one_at_the_limit_and_the_minimum_is_where_the_book_says():
    M = round(sharpness.limit(Su(), 64, 0.7))
    assert theory.isr(Su().score(M), M, 64, 0.7) == pytest.approx(1, abs=1e-6)
    ratios = {n: theory.isr(Su().score(10**n), 10**n, 64) for n in range(4, 20)}
    lowest = min(ratios, key=ratios.get)
    assert lowest == 10
    assert ratios[lowest] == pytest.approx(2.1e-3, rel=0.02)


def test_the_limit_refuses():
    with pytest.raises(TypeError, match="rule must be a Sharpness, got float"):
        sharpness.limit(8.0, 64)
    with pytest.raises(ValueError, match="up_to must lie in"):
        sharpness.limit(Su(), 64, up_to=1e301)
    with pytest.raises(ValueError, match="cosine must lie in"):
        sharpness.limit(Su(), 64, 1.1)


def test_the_limit_of_a_steep_rule():
    assert sharpness.limit(Fixed(400.0), 64, up_to=1e60) == pytest.approx(7.250761425078317e48, rel=1e-7)
    assert sharpness.limit(Fixed(5000.0), 1024, up_to=1e300) > 1e80  # the moment underflows there
    for rule in (Su(1e308), Fixed(1e160)):
        with pytest.raises(ValueError, match="β and d must be at most 1e150, got an exponent of"):
            sharpness.limit(rule, 64, 0.5)
