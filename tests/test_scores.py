"""Scores: their formulas, their names, and the registry."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore_lib import scores
from memstore_lib.scores import SCORES, Exponential, Linear, ReLU, Score, SwiGLU, TruncatedExponential

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)
similarities = st.floats(-1, 1, allow_subnormal=False)

# name in the registry -> σ(s) in plain Python
FORMULAS = {
    "outer product": lambda s: s,
    "ReLU": lambda s: max(s, 0.0),
    "ReLU²": lambda s: max(s, 0.0) ** 2,
    "ReLU³": lambda s: max(s, 0.0) ** 3,
    "SwiGLU": lambda s: s * s / (1 + math.exp(-s)),
    "softmax": lambda s: math.exp(8 * (s - 1)),
}


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(scores, "SCORES", dict(SCORES))
    return scores.SCORES


def test_the_registry_holds_the_books_scores():
    assert set(FORMULAS) <= set(SCORES)
    for name, score in SCORES.items():
        assert score.name == str(score) == name
        assert score.latex
        assert all(-1 <= k <= 1 for k in score.kinks)


@pytest.mark.parametrize("name", FORMULAS)
@given(s=similarities)
@PROPERTY
def test_registered_scores_follow_their_formula(name, s):
    for dtype, rel, small in ((torch.float64, 1e-13, 1e-30), (torch.float32, 2e-6, 1e-12)):
        out = SCORES[name](torch.tensor([s, 0.25], dtype=dtype))
        assert (out.shape, out.dtype) == ((2,), dtype)
        assert out[0].item() == pytest.approx(FORMULAS[name](s), rel=rel, abs=small)
        assert out[1].item() == pytest.approx(FORMULAS[name](0.25), rel=rel)


@given(s=similarities, p=st.sampled_from([0.5, 1, 1.5, 2, 3, 4.25]))
@PROPERTY
def test_relu_raises_to_its_power(s, p):
    out = ReLU(p)(torch.tensor(s, dtype=torch.float64)).item()
    assert out == pytest.approx(s**p if s > 0 else 0.0, rel=1e-13, abs=1e-300)


@given(s=similarities, p=st.sampled_from([1, 2, 3]), b=st.floats(-1, 0.99))
@PROPERTY
def test_a_bias_moves_the_threshold(s, p, b):
    out = ReLU(p, bias=b)(torch.tensor(s, dtype=torch.float64)).item()
    assert out == pytest.approx(max(s - b, 0) ** p, rel=1e-12, abs=1e-300)
    assert ReLU(p, bias=b).kinks == (b,)


def test_squared_relu_squashes_the_small():
    s = torch.tensor([-1, -0.1, 0, 0.1, 1], dtype=torch.float64)
    assert ReLU(2)(s).tolist() == pytest.approx([0, 0, 0, 0.01, 1])
    assert torch.allclose(ReLU(2)(s), ReLU()(s) * s)  # the gate's own input


@given(s=similarities, beta=st.floats(0, 100))
@PROPERTY
def test_exponential_is_relative_to_a_perfect_match(s, beta):
    out = Exponential(beta)(torch.tensor([s, 1.0], dtype=torch.float64))
    assert out[0].item() == pytest.approx(math.exp(beta * (s - 1)), rel=1e-12, abs=0)
    assert out[1].item() == 1


def test_exponential_does_not_overflow():
    s = torch.linspace(-1, 1, 11)
    assert torch.isinf(torch.exp(200 * s)).any()
    out = Exponential(200)(s)
    assert torch.isfinite(out).all()
    assert out.max() == 1


@given(s=similarities, beta=st.floats(0, 20), terms=st.integers(1, 12))
@PROPERTY
def test_truncated_exponential_is_the_series(s, beta, terms):
    out = TruncatedExponential(beta, terms)(torch.tensor(s, dtype=torch.float64)).item()
    series = [(beta * s) ** n / math.factorial(n) for n in range(terms)]
    assert out == pytest.approx(math.fsum(series), rel=1e-12, abs=1e-12 * sum(map(abs, series)))


@given(s=similarities, beta=st.floats(0, 8))
@PROPERTY
def test_the_series_of_the_exponential_holds_every_power(s, beta):
    whole = Exponential(beta)(torch.tensor(s, dtype=torch.float64)).item() * math.exp(beta)
    cut = TruncatedExponential(beta, 60)(torch.tensor(s, dtype=torch.float64)).item()
    assert cut == pytest.approx(whole, rel=1e-9, abs=1e-11)


DRAWN = [ReLU(1.5), ReLU(2, bias=0.25), ReLU(bias=-0.5), TruncatedExponential(8, 1), TruncatedExponential(3, 4)]


@pytest.mark.parametrize("score", [s for s in (*SCORES.values(), *DRAWN) if s.vega is not None], ids=str)
def test_expressions_for_the_figures_compute_the_score(score):
    words = {"max": max, "pow": pow, "exp": math.exp, "beta": getattr(score, "beta", None), "__builtins__": {}}
    s = torch.linspace(-1, 1, 21, dtype=torch.float64)
    assert [eval(score.vega, words, {"s": x}) for x in s.tolist()] == pytest.approx(score(s).tolist(), rel=1e-12)


def test_names():
    assert [ReLU(p).name for p in (1, 1.0, 2, 2.0, 3, 10, 2.5)] == [
        "ReLU", "ReLU", "ReLU²", "ReLU²", "ReLU³", "ReLU¹⁰", "ReLU²·⁵",
    ]  # fmt: skip
    assert [TruncatedExponential(8, n).name for n in (1, 2, 5)] == ["exp, 1 term", "exp, 2 terms", "exp, 5 terms"]
    assert "^{2.5}" in ReLU(2.5).latex
    assert r"n<4" in TruncatedExponential(8, 4).latex
    assert ReLU(2, bias=0.1).name == "ReLU², b = 0.1"
    assert "s - 0.1" in ReLU(2, bias=0.1).latex


def test_scores_are_values():
    assert ReLU(2) == ReLU(2.0) != ReLU(3)
    assert hash(Exponential(8.0)) == hash(Exponential(8.0))
    with pytest.raises(AttributeError):
        ReLU(2).power = 3


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ReLU(0), ValueError, r"power must lie in \(0, inf\), got 0"),
        (lambda: ReLU(-1), ValueError, r"power must lie in \(0, inf\), got -1"),
        (lambda: ReLU(math.nan), ValueError, "power must be finite, got nan"),
        (lambda: ReLU(math.inf), ValueError, "power must be finite, got inf"),
        (lambda: ReLU("2"), TypeError, "power must be a real number, got '2' of type str"),
        (lambda: ReLU(True), TypeError, "power must be a real number, got True of type bool"),
        (lambda: ReLU(bias=-1.5), ValueError, r"bias must lie in \[-1, 1\], got -1.5"),
        (lambda: ReLU(bias=1), ValueError, r"bias must lie in \[-1, 1\), got 1: every key would be silent"),
        (lambda: ReLU(bias=math.nan), ValueError, "bias must be finite, got nan"),
        (lambda: ReLU(bias="0"), TypeError, "bias must be a real number, got '0' of type str"),
        (lambda: Exponential(-1), ValueError, r"beta must lie in \[0, inf\), got -1"),
        (lambda: Exponential(math.inf), ValueError, "beta must be finite, got inf"),
        (lambda: Exponential(None), TypeError, "beta must be a real number, got None of type NoneType"),
        (lambda: TruncatedExponential(-0.5), ValueError, r"beta must lie in \[0, inf\), got -0.5"),
        (lambda: TruncatedExponential(8, 0), ValueError, "terms must be at least 1, got 0"),
        (lambda: TruncatedExponential(8, 2.0), TypeError, "terms must be an integer, got 2.0 of type float"),
        (Score, TypeError, "abstract"),
    ],
)
def test_parameters_are_checked(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_numpys_numbers_are_numbers():
    assert ReLU(np.float64(2)) == ReLU(2)
    assert TruncatedExponential(np.float32(8), np.int64(3)).name == "exp, 3 terms"


@dataclass(frozen=True)
class Cube(Score):
    name = "cube"
    latex = "s^3"

    def __call__(self, s):
        return s**3


def test_register_adds_a_score_and_returns_it(registry):
    score = scores.register(Cube())
    assert isinstance(score, Cube)
    assert registry["cube"] is score
    assert "cube" not in SCORES, "the test's own registry"


def test_a_notebook_cell_may_register_twice(registry):
    scores.register(Cube())
    namespace = {"Score": Score, "__name__": Cube.__module__}
    exec("class Cube(Score):\n    name = latex = 'cube'\n    def __call__(self, s): return s ** 3", namespace)
    assert scores.register(namespace["Cube"]()) is registry["cube"]
    scores.register(ReLU(2))


def test_a_name_is_not_taken_by_other_parameters(registry):
    with pytest.raises(ValueError, match=r"score name 'softmax' is taken by Exponential\(beta=8.0\): .* replace=True"):
        scores.register(Exponential(9.0))
    assert registry["softmax"] == Exponential(8.0)
    assert scores.register(Exponential(9.0), replace=True) is registry["softmax"]


def test_a_score_with_parameters_of_its_own_may_register_twice(registry):
    class Power(Cube):
        def __init__(self, p):
            self.p = p

    first, again, other = Power(3), Power(3), Power(5)
    assert scores.register(first) is first
    assert scores.register(again) is registry["cube"] is again
    with pytest.raises(ValueError, match="score name 'cube' is taken"):
        scores.register(other)
    other.p = again.p = torch.ones(3)  # equal only entry by entry
    assert scores.register(other) is registry["cube"]


def test_register_refuses_a_taken_name(registry):
    class Other(Score):
        name, latex = "ReLU²", "s"

        def __call__(self, s):
            return s

    with pytest.raises(ValueError, match=r"score name 'ReLU²' is taken by ReLU\(power=2"):
        scores.register(Other())
    assert registry["ReLU²"] == ReLU(2)


@pytest.mark.parametrize("wrong", [Linear, "outer product", torch.relu, None])
def test_register_refuses_what_is_no_score(registry, wrong):
    came = re.escape(type(wrong).__name__)
    with pytest.raises(TypeError, match=f"score must be a Score, got {came}"):
        scores.register(wrong)


@pytest.mark.parametrize("word", [None, "", 3])
def test_register_refuses_a_score_without_a_name(registry, word):
    class Nameless(Score):
        latex = "s"

        def __call__(self, s):
            return s

    if word is not None:
        Nameless.name = word
    with pytest.raises(ValueError, match="score must state its name, got"):
        scores.register(Nameless())
    assert len(registry) == len(SCORES)


def test_swiglu_is_the_gate_times_its_input():
    s = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert torch.allclose(SwiGLU()(s), s * (s * torch.sigmoid(s)))
