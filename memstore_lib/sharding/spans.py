"""Sets of block numbers as spans [start, stop), which stay short however many blocks there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]


def union(spans: Iterable[Sequence[int]]) -> list[Span]:
    """Return sorted spans that hold the same numbers, neighbours joined.

    Raises:
        ValueError: a number stands in two of the spans, which would count a block twice.
    """
    joined: list[Span] = []
    for start, stop in sorted((int(a), int(b)) for a, b in spans):
        if joined and start < joined[-1][1]:
            raise ValueError(f"spans must not overlap, got {start} in [{joined[-1][0]}, {joined[-1][1]})")
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


def missing(whole: Span, done: Iterable[Sequence[int]]) -> list[Span]:
    """Return what of a span is not among those that are done."""
    left, at = [], whole[0]
    for start, stop in union(done):
        if start > at:
            left.append((at, start))
        at = stop
    return [*left, (at, whole[1])] if at < whole[1] else left


def pieces(spans: Iterable[Sequence[int]], size: int) -> list[Span]:
    """Cut spans into pieces of at most ``size`` numbers."""
    return [(i, min(i + size, stop)) for start, stop in spans for i in range(start, stop, size)]


def length(spans: Iterable[Sequence[int]]) -> int:
    """Return how many numbers the spans hold."""
    return sum(stop - start for start, stop in spans)
