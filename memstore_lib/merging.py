"""Softmax attention over some of the keys, and how such parts are merged.

::

    m  largest score of a part, (n, 1)        n queries; -infinity where a query sees no key of the part
    z  Σ e^{score - m}, (n, 1)
    y  Σ e^{score - m} v, (n, d_v)            the recall over all keys of a part is y / z

A part knows its scores only relative to their largest, so nothing overflows. Two parts are brought to the larger of
their maxima and added. That is associative and commutative to rounding, and the part without keys is its neutral
element: parts can be computed anywhere and merged in any order. Sources: Milakov and Gimelshein 2018, "Online
normalizer calculation for softmax"; Rabe and Staats 2021, "Self-attention does not need O(n²) memory".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

from memstore_lib import _checks


class Partial(NamedTuple):
    """Softmax attention of n queries over some of the keys: m, z and y above."""

    top: torch.Tensor
    total: torch.Tensor
    weighted: torch.Tensor

    def recall(self) -> torch.Tensor:
        """Return the recalled values, (n, d_v).

        Raises:
            ValueError: a query that sees no key.
        """
        unseen = (self.total == 0).any(1)
        if bool(unseen.any()):
            raise ValueError(f"every query must see at least one key, got none for query {int(unseen.nonzero()[0])}")
        return self.weighted / self.total


def partial_attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, beta: float, mask: torch.Tensor | None = None
) -> Partial:
    """Return softmax attention over some of the keys, in a form that can be merged with that over others.

    Args:
        queries: (n, d_k).
        keys: (m, d_k); m may be 0.
        values: (m, d_v).
        beta: sharpness.
        mask: (n, m) of bool, True where a query sees a key; None if all see all.

    Raises:
        ValueError: keys and values of different number, a mask of another shape.
    """
    if len(keys) != len(values):
        raise ValueError(f"keys and values must be of one number, got {len(keys)} keys and {len(values)} values")
    if len(keys) == 0:
        like = {"dtype": queries.dtype, "device": queries.device}
        nothing = torch.zeros(len(queries), 1, **like)
        return Partial(nothing - math.inf, nothing, torch.zeros(len(queries), values.shape[1], **like))
    scores = beta * (queries @ keys.T)
    if mask is not None:
        if mask.shape != scores.shape or mask.dtype != torch.bool:
            raise ValueError(
                f"mask must be of bool and of shape {tuple(scores.shape)}, got {mask.dtype} {tuple(mask.shape)}"
            )
        scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(1, keepdim=True)
    w = torch.exp(scores - _finite(top))
    return Partial(top, w.sum(1, keepdim=True), w @ values)


def _finite(top: torch.Tensor) -> torch.Tensor:
    """Put 0 for the maximum of no scores: -inf - 0 has the exponential 0, where -inf - (-inf) has none."""
    return torch.where(top == -math.inf, torch.zeros_like(top), top)


def scale_to(part: Partial, top: torch.Tensor) -> Partial:
    """Return the same part relative to another, not smaller maximum, (n, 1)."""
    factor = torch.exp(part.top - _finite(top))
    return Partial(top, factor * part.total, factor * part.weighted)


def merge_attention(one: Partial, other: Partial) -> Partial:
    """Return the partial attention over the keys of both."""
    top = torch.maximum(one.top, other.top)
    mine, theirs = scale_to(one, top), scale_to(other, top)
    return Partial(top, mine.total + theirs.total, mine.weighted + theirs.weighted)


def merge_all(parts: Iterable[Partial]) -> Partial:
    """Merge parts as a tree of neighbours: rounding grows with the depth of the tree, not with the number of parts.

    As parts arrive, the last two are merged while they stand for equally many, so that only a logarithm of their
    number is held at a time.

    Raises:
        ValueError: no parts.
        TypeError: no sequence.
    """
    _checks.instance("parts", parts, Iterable, "a sequence of Partial objects")
    stack: list[tuple[int, Partial]] = []
    for part in parts:
        stack.append((1, part))
        while len(stack) > 1 and stack[-2][0] == stack[-1][0]:
            _merge_last(stack)
    if not stack:
        raise ValueError("parts must hold at least one part, got none")
    while len(stack) > 1:
        _merge_last(stack)
    return stack[0][1]


def _merge_last(stack: list[tuple[int, Partial]]) -> None:
    (m, later), (n, earlier) = stack.pop(), stack.pop()
    stack.append((m + n, merge_attention(earlier, later)))


def partial_by_chunks(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float,
    *,
    mask: torch.Tensor | None = None,
    chunk: int = 4096,
) -> Partial:
    """Return :func:`partial_attention` over all keys, a chunk of them at a time: memory for scores does not grow.

    Args:
        queries, keys, values, beta, mask: as in :func:`partial_attention`.
        chunk: keys at a time, at least 1.

    Raises:
        ValueError, TypeError: as :func:`partial_attention`, and for a chunk below 1.
    """
    chunk = _checks.integer("chunk", chunk)
    starts = range(0, max(1, len(keys)), chunk)
    return merge_all(
        partial_attention(
            queries, keys[i : i + chunk], values[i : i + chunk], beta, None if mask is None else mask[:, i : i + chunk]
        )
        for i in starts
    )
