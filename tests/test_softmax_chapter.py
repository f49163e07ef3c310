"""What chapter 4 added to the library: values with a common part, and recall measured with them."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore_lib import measure, memories, scores, stores, theory

PROPERTY = settings(max_examples=30, deadline=None, derandomize=True)


@given(M=st.integers(1, 40), d_v=st.integers(2, 30), share=st.floats(0, 1), seed=st.integers(0, 2**31))
@PROPERTY
def test_values_have_length_one_and_the_stated_part_in_common(M, d_v, share, seed):
    v = memories.shared_values(M, d_v, share=share, seed=seed, device="cpu", dtype=torch.float64)
    assert v.shape == (M, d_v)
    assert torch.allclose(v.norm(dim=1), torch.ones(M).double(), atol=1e-12)
    whole = memories.shared_values(M, d_v, share=1.0, seed=seed, device="cpu", dtype=torch.float64)
    assert torch.allclose((v * whole).sum(1), torch.full((M,), math.sqrt(share)).double(), atol=1e-9)


def test_a_share_of_the_energy_is_the_mean_cosine_of_two_values():
    v = memories.shared_values(4000, 32, share=0.3, seed=1, device="cpu", dtype=torch.float64)
    assert v.mean(0).square().sum().item() == pytest.approx(0.3, abs=0.01)


def test_dtype_and_generator():
    draw = torch.Generator().manual_seed(3)
    v = memories.shared_values(5, 7, share=0.5, generator=draw, device="cpu")
    assert v.dtype == torch.float32
    assert torch.equal(v, memories.shared_values(5, 7, share=0.5, seed=3, device="cpu"))
    assert torch.equal(memories.shared_values(3, 1, share=1, seed=0, device="cpu").abs(), torch.ones(3, 1))


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(ValueError, match="share must"):
        memories.shared_values(4, 8, share=share, seed=0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"share": "half"}, TypeError, "share must be a real number, got 'half'"),
        ({"share": True}, TypeError, "share must be a real number"),
        ({"share": 0.5, "d_v": 1}, ValueError, r"share must be 1 where d_v = 1.*got 0\.5"),
        ({"share": 0.5, "M": 0}, ValueError, "M must be at least 1, got 0"),
        ({"share": 0.5, "d_v": 2.0}, TypeError, "d_v must be an integer"),
        ({"share": 0.5, "seed": None}, ValueError, "exactly one of seed and generator"),
        ({"share": 0.5, "dtype": torch.int64}, TypeError, "dtype must be a floating-point"),
        ({"share": 0.5, "device": "abacus"}, ValueError, "device must be one of"),
    ],
)
def test_bad_input_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        memories.shared_values(**{"M": 4, "d_v": 8, "seed": 0, **arguments})


@pytest.mark.parametrize("store", [stores.OuterProduct(), stores.MLP(scores.ReLU(2)), stores.Attention(8.0)])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_common_parts_add_up_as_numbers(store, share):
    """ISR² = [(M-1) E σ² + ρ (M-1)(M-2) (E σ)²] / σ(1)²; the weights alone know nothing of the common part."""
    M, score = 512, getattr(store, "score", scores.Exponential(8.0))
    square, mean = theory.moment(score, 64), theory.moment(score, 64, 1)
    signal = score(torch.ones(1, dtype=torch.float64)).item()
    law = math.sqrt((M - 1) * square + share * (M - 1) * (M - 2) * mean**2) / signal
    values = functools.partial(memories.shared_values, share=share)
    from_values, from_weights = measure.recall_ratio(store, M, d=64, values=values, seed=9)
    assert abs(from_values.value - law) < 4 * from_values.standard_error
    assert (from_values.high - from_values.low) / 2 < 0.08 * law  # the common part is one direction: its sum varies
    assert abs(from_weights.value - theory.isr(score, M, 64)) < 4 * from_weights.standard_error
