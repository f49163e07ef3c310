"""Merging softmax attention over parts of the keys: equal to that over all, whatever the parts."""

from __future__ import annotations

import math
import weakref

import pytest
import torch

from memstore_lib import memories
from memstore_lib.merging import merge_all, merge_attention, partial_attention, partial_by_chunks

TOLERANCE = {torch.float32: 3e-7, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def draw(M: int, *, n: int = 5, d: int = 16, d_v: int = 3, dtype: torch.dtype = torch.float64, seed: int = 1):
    g = torch.Generator().manual_seed(seed)
    how = {"generator": g, "device": "cpu", "dtype": dtype}
    return memories.unit_keys(n, d, **how), memories.unit_keys(M, d, **how), memories.values(M, d_v, **how)


def whole(queries, keys, values, beta, mask=None):
    """The plain softmax in float64, of scores as they are in the dtype at hand: rounding of a large β is not ours."""
    scores = (beta * (queries @ keys.T)).double()
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=1) @ values.double()


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.double() - expected).norm(dim=1) / expected.norm(dim=1)).max().item()


@DTYPES
@pytest.mark.parametrize("beta", [0.0, 4.0, 200.0, 1e6])
@pytest.mark.parametrize("sizes", [[1, 2999], [1000, 0, 2000], [0, 3000], [7] * 428 + [4]], ids=len)
def test_merged_parts_equal_the_whole(dtype, beta, sizes):
    Q, K, V = draw(sum(sizes), dtype=dtype)
    parts = [partial_attention(Q, k, v, beta) for k, v in zip(K.split(sizes), V.split(sizes), strict=True)]
    found = merge_all(parts).recall()
    assert found.dtype == dtype
    # Cancelling values: their length sets the scale of rounding, as the recall itself may be much shorter.
    error = (found.double() - whole(Q, K, V, beta)).norm(dim=1).max().item()
    assert error < TOLERANCE[dtype]


@DTYPES
def test_the_tree_keeps_the_digits_of_many_parts(dtype):
    """Values with a common part, so that nothing cancels and the error is relative."""
    Q, K, V = draw(1 << 15, dtype=dtype)
    V = V + 2
    found = partial_by_chunks(Q, K, V, 4.0, chunk=8).recall()
    assert off(found, whole(Q, K, V, 4.0)) < TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("chunk", [1, 13, 4096])
def test_masked_keys_are_not_seen(dtype, chunk):
    Q, K, V = draw(300, dtype=dtype)
    mask = torch.rand(5, 300, generator=torch.Generator().manual_seed(2)) < 0.3
    mask[0, :200] = False  # whole chunks unseen
    mask[1] = False
    mask[1, 299] = True
    found = partial_by_chunks(Q, K, V, 9.0, mask=mask, chunk=chunk).recall()
    assert (found.double() - whole(Q, K, V, 9.0, mask)).norm(dim=1).max() < TOLERANCE[dtype]
    assert torch.allclose(found[1], V[299])


def test_merging_is_associative_and_commutative():
    Q, K, V = draw(90)
    a, b, c = (partial_attention(Q, k, v, 7.0) for k, v in zip(K.split(30), V.split(30), strict=True))
    left, right = merge_attention(merge_attention(a, b), c), merge_attention(a, merge_attention(b, c))
    for x, y, z in zip(left, right, merge_attention(c, merge_attention(b, a)), strict=True):
        assert torch.allclose(x, y, rtol=1e-13)
        assert torch.allclose(x, z, rtol=1e-13)


def test_no_keys_are_the_neutral_element():
    Q, K, V = draw(20)
    part, nothing = partial_attention(Q, K, V, 3.0), partial_attention(Q, K[:0], V[:0], 3.0)
    for merged in (merge_attention(part, nothing), merge_attention(nothing, part)):
        assert all(torch.equal(x, y) for x, y in zip(merged, part, strict=True))
    twice = merge_attention(nothing, nothing)
    assert all(torch.equal(x, y) for x, y in zip(twice, nothing, strict=True))  # and no NaN


def test_few_parts_are_held_at_a_time():
    given, most = [], 0

    def parts():
        nonlocal most
        for _ in range(64):
            most = max(most, sum(seen() is not None for seen in given))
            part = partial_attention(*draw(1), 1.0)
            given.append(weakref.ref(part.total))
            yield part
            del part

    merge_all(parts())
    assert most <= 8


@pytest.mark.parametrize("M", [0, 4])
def test_a_query_without_keys_is_refused(M):
    Q, K, V = draw(M or 1)
    mask = torch.zeros(5, M, dtype=torch.bool)
    mask[:3] = True
    seen = 3 if M else 0
    with pytest.raises(ValueError, match=f"every query must see at least one key, got none for query {seen}"):
        partial_attention(Q, K[:M], V[:M], 1.0, mask if M else None).recall()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda q, k, v: partial_attention(q, k, v[:2], 1.0), ValueError, "one number, got 4 keys and 2 values"),
        (lambda q, k, v: partial_attention(q, k, v, 1.0, torch.ones(5, 3).bool()), ValueError, r"shape \(5, 4\)"),
        (lambda q, k, v: partial_attention(q, k, v, 1.0, torch.ones(5, 4)), ValueError, "mask must be of bool"),
        (lambda q, k, v: partial_by_chunks(q, k, v, 1.0, chunk=0), ValueError, "chunk must be at least 1, got 0"),
        (lambda q, k, v: merge_all([]), ValueError, "parts must hold at least one part, got none"),
        (lambda q, k, v: merge_all(3), TypeError, "parts must be a sequence of Partial objects, got int"),
    ],
)
def test_bad_parts_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call(*draw(4))
