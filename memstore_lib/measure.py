"""Measurements: interference over signal along M, capacity, and whether a recall points at the right value.

::

    ISR   for one query: √(Σ_{i≠j} w_i²) / |w_j|, the interference-to-signal ratio of its weights. Averaged over random
          zero-mean values of equal length, ‖Σ_{i≠j} w_i v_i‖² is Σ_{i≠j} w_i², so weights suffice
    M     stored memories, the target among them
    c     cosine between the query and the target's key

Every interval comes from independent replicates: fresh keys, queries and store each time, a t interval over the
replicates' results. Points along one curve share their keys, so errors along M are correlated; replicates are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks, memories
from memstore_lib.device import one_thread, resolve
from memstore_lib.intervals import Interval, interval, root
from memstore_lib.measurement import Measurement, histogram
from memstore_lib.pointing import facts_at, top1
from memstore_lib.scores import Score
from memstore_lib.stores import Store, empty_store, empty_stores

__all__ = [
    "Interval",
    "Measurement",
    "capacity",
    "facts_at",
    "histogram",
    "interference",
    "interval",
    "recall_ratio",
    "similarities",
    "top1",
]

# Chunks of the key stream: large enough to keep the cores busy, small enough to stay in cache.
_CHUNK = 4096


@one_thread()
def interference(
    stores: Store | Sequence[Store],
    grid: Iterable[int],
    *,
    d: int = 64,
    cosine: float = 1.0,
    queries: int = 64,
    replicates: int = 20,
    seed: int = 0,
    keys: Callable[..., torch.Tensor] = memories.unit_keys,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Measurement:
    """Measure the interference-to-signal ratio of stores along a grid of M.

    Stores with a ``score`` are measured together in one pass over the keys: each query brings its own target and meets
    the first M - 1 keys of a common stream. Any other store is written with the first M keys and asked for stored ones.

    Args:
        stores: empty stores with different names.
        grid: increasing numbers of memories M.
        d: key dimension d_k.
        cosine: c between a query and its target's key.
        queries: queries a replicate; where a store holds fewer memories, all of them are asked for.
        replicates: independent replicates, at least 2.
        seed: replicate r draws from ``seed`` and r, on the CPU, so the draws are the same on every device.
        keys: draws keys, such as :func:`memstore_lib.memories.unit_keys` or ``gaussian_keys``. Keys that are not of
            unit length are refused for stores with a score: their law assumes it.
        device: where to compute; None for the default device.
        dtype: floating-point dtype of the keys.

    Returns:
        A :class:`Measurement`.

    Raises:
        ValueError: an empty or unsorted grid, sizes below 1, a cosine outside [-1, 1], stores that are not empty or
            share a name, weights or keys of the wrong shape, a score whose squares overflow.
        TypeError: not stores, sizes that are not integers, or ``keys`` no function that returns a tensor.
    """
    stores = empty_stores(stores)
    grid = _checks.grid(grid)
    d, n = _checks.integer("d", d), _checks.integer("queries", queries)
    _checks.function("keys", keys)
    _checks.size(queries=n, chunk=_CHUNK)
    replicates, seed = (
        _checks.integer("replicates", replicates, minimum=2),
        _checks.integer("seed", seed, minimum=0),
    )
    c, target = _checks.cosine(cosine), resolve(device)
    rows = []
    for r in range(replicates):
        draw = memories.replicate_generator(seed, r)
        stream = _drawn("keys", keys(grid[-1], d, generator=draw, device=target, dtype=dtype), (grid[-1], d))
        fast = [s for s in stores if isinstance(getattr(s, "score", None), Score)]
        if fast:
            _checks.unit_rows("keys", stream, "the law of a score is one of unit keys")
            bank = memories.unit_keys(n, d, generator=draw, device=target, dtype=dtype)
            squares = _stream_squares([s.score for s in fast], stream, bank, grid)
            for store, noise in zip(fast, squares, strict=True):
                signal = store.score(torch.full((1,), c, dtype=torch.float64)).abs().item()
                _finite(store.score, signal < 1e150 and bool(torch.isfinite(noise[-1]).all()), dtype)
                for M, energy in zip(grid, noise, strict=True):
                    rows.append((store.name, d, M, c, r, *_summaries(energy, torch.full_like(energy, signal**2))))
        for store in (s for s in stores if s not in fast):
            for M in grid:
                rows.append((store.name, d, M, c, r, *_summaries(*_energies(store, stream[:M], n, c, draw))))
    columns = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    return Measurement(pd.DataFrame(rows, columns=columns))


def _drawn(name: str, tensor: object, shape: tuple[int, int]) -> torch.Tensor:
    """Return what a function of the caller drew, refusing another shape than the one that was asked for."""
    _checks.instance(name, tensor, torch.Tensor, "a function that returns a torch.Tensor")
    if tensor.shape != shape:  # type: ignore[attr-defined]
        raise ValueError(f"{name} must draw the shape it is asked for, {shape}, got {tuple(tensor.shape)}")  # type: ignore[attr-defined]
    return tensor  # type: ignore[return-value]


def _finite(score: Score, holds: bool, dtype: torch.dtype) -> None:
    if not holds:
        raise ValueError(f"score {score.name!r} must have finite squares in {dtype}, got overflow: {score.hint}")


def _stream_squares(
    scores: Sequence[Score], stream: torch.Tensor, bank: torch.Tensor, grid: Sequence[int]
) -> list[list[torch.Tensor]]:
    """Return Σ_{i<M} σ(s_i)², (queries,), for each score and each M, from one pass over the keys."""
    totals = [torch.zeros(len(bank), dtype=torch.float64) for _ in scores]
    out: list[list[torch.Tensor]] = [[] for _ in scores]
    done = 0
    for M in grid:
        while done < M - 1:
            stop = min(done + _CHUNK, M - 1)
            similarities = bank @ stream[done:stop].T
            for k, score in enumerate(scores):
                # Chunks are summed in the working dtype, their sums in float64: rounding does not grow with M.
                totals[k] += (score(similarities) ** 2).sum(1).cpu().double()
            done = stop
        for k in range(len(scores)):
            out[k].append(totals[k].clone())
    return out


def _energies(
    store: Store, keys: torch.Tensor, queries: int, cosine: float, draw: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return interference and signal energies, (n,) each, of a store written with these keys."""
    M = len(keys)
    filled = store.fresh().write(keys, torch.ones(M, 1, dtype=keys.dtype, device=keys.device))
    index = torch.randperm(M, generator=draw, device=draw.device)[: min(queries, M)].to(keys.device)
    asked = keys[index]
    # With c = 1 the stored keys themselves are asked for, whatever their length.
    asked = asked if cosine == 1 else memories.noisy_queries(asked, cosine, generator=draw)
    w = filled.weights(asked).cpu().double()
    rows = torch.arange(len(index))
    signal = w[rows, index.cpu()] ** 2
    w[rows, index.cpu()] = 0  # masked, not subtracted: the difference of two large sums would be mostly rounding
    return (w**2).sum(1), signal


def _summaries(noise: torch.Tensor, signal: torch.Tensor) -> tuple[float, float, float]:
    """Return mean square, mean and median of the ratio over queries; a silent store, 0/0, counts as infinite."""
    squares = torch.where(signal > 0, noise / signal.clamp_min(1e-300), torch.full_like(noise, math.inf))
    ratio = squares.sqrt()
    return squares.mean().item(), ratio.mean().item(), float(np.median(ratio.numpy()))


def capacity(
    store: Store,
    *,
    d: int = 64,
    cosine: float = 1.0,
    queries: int = 64,
    replicates: int = 20,
    seed: int = 0,
    limit: int = 1 << 20,
    **options: object,
) -> Interval:
    """Measure the M at which a store's root-mean-square ratio reaches 1.

    M is doubled until the ratio passes 1, with few replicates; then every replicate is measured on a fine grid there.

    Args:
        store: an empty store.
        limit: give up beyond this many memories.
        d, cosine, queries, replicates, seed, options: as in :func:`interference`.

    Raises:
        ValueError: the ratio is still below 1 at ``limit`` or already above it at M = 2; and as :func:`interference`.
        TypeError: as :func:`interference`.
    """
    store, limit = empty_store(store), _checks.integer("limit", limit, minimum=4)
    shared = {"d": d, "cosine": cosine, "queries": queries, **options}
    M = 2
    while True:
        M = min(2 * M, limit)
        probe = interference(store, [M], replicates=2, seed=seed, **shared)  # type: ignore[arg-type]
        if probe.replicates["mean_square"].mean() >= 1:
            break
        if M == limit:
            raise ValueError(
                f"limit must exceed the capacity of {store.name!r}, got {limit}: the ratio is below 1 there"
            )
    # The capacity lies in (M/2, M] up to the noise of two replicates, so the grid leaves room on both sides.
    grid = np.unique(np.geomspace(max(2, M / 4), 1.5 * M, 25).astype(int))
    return interference(store, grid, replicates=replicates, seed=seed, **shared).capacity(store.name)  # type: ignore[arg-type]


@one_thread()
def similarities(
    dimensions: Iterable[int], *, pairs: int = 2048, replicates: int = 20, bins: int = 80, seed: int = 0
) -> tuple[pd.DataFrame, dict[int, Interval]]:
    """Measure how similar two random unit keys are, in several dimensions.

    Args:
        dimensions: increasing key dimensions.
        pairs: independent pairs of keys a replicate.
        replicates: independent replicates, at least 2.
        bins: bins over [-1, 1].
        seed: start of the draws.

    Returns:
        A table with series ("d = 64"), left, right and density of each bin that was hit, and for each dimension the
        root-mean-square similarity.

    Raises:
        ValueError: no or unsorted dimensions, sizes below 1, fewer than 2 replicates.
        TypeError: sizes that are not integers.
    """
    dimensions = _checks.grid(dimensions, name="dimensions")
    pairs, bins = _checks.integer("pairs", pairs), _checks.integer("bins", bins, maximum=_checks.LONGEST)
    samples, sizes = {}, {}
    for d in dimensions:
        draws = [
            memories.replicate_generator(seed, r) for r in range(_checks.integer("replicates", replicates, minimum=2))
        ]
        both = [memories.unit_keys(2 * pairs, d, generator=draw, device="cpu").double() for draw in draws]
        s = torch.stack([(keys[:pairs] * keys[pairs:]).sum(1) for keys in both])
        sizes[d] = root(interval((s**2).mean(1).tolist()))
        samples[f"d = {d}"] = s.clamp(-1, 1)  # rounding may carry a similarity a hair beyond 1
    return histogram(samples, bins=bins), sizes


@one_thread()
def recall_ratio(
    store: Store,
    M: int,
    *,
    d: int = 64,
    d_v: int = 64,
    queries: int = 64,
    replicates: int = 20,
    seed: int = 0,
    values: Callable[..., torch.Tensor] = memories.values,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Interval, Interval]:
    """Measure the root-mean-square ratio twice on the same recalls: from real value vectors and from weights alone.

    From values it is ``‖recall - w_j v_j‖ / ‖w_j v_j‖`` for stored keys j. For values of zero mean both have the same
    mean; values add noise.

    Args:
        store: an empty store.
        M: stored memories.
        d, d_v: key and value dimensions.
        values: draws values, such as :func:`memstore_lib.memories.values`. With values that have a common part, such
            as :func:`memstore_lib.memories.shared_values`, the two means differ.
        queries, replicates, seed, device, dtype: as in :func:`interference`.

    Returns:
        The interval from values and the one from weights.

    Raises:
        ValueError, TypeError: as :func:`interference`.
    """
    store = empty_store(store)
    M, d, d_v = _checks.integer("M", M), _checks.integer("d", d), _checks.integer("d_v", d_v)
    _checks.function("values", values)
    n, target = _checks.integer("queries", queries), resolve(device)
    from_values, from_weights = [], []
    for r in range(_checks.integer("replicates", replicates, minimum=2)):
        draw = memories.replicate_generator(seed, r)
        keys = memories.unit_keys(M, d, generator=draw, device=target, dtype=dtype)
        stored = _drawn("values", values(M, d_v, generator=draw, device=target, dtype=dtype), (M, d_v))
        filled = store.fresh().write(keys, stored)
        index = torch.randperm(M, generator=draw, device=draw.device)[: min(n, M)].to(target)
        w = filled.weights(keys[index])
        rows = torch.arange(len(index), device=target)
        signal = w[rows, index, None] * stored[index]
        noise = (filled.recall(keys[index]) - signal).cpu().double()
        from_values.append(_summaries((noise**2).sum(1), (signal.cpu().double() ** 2).sum(1))[0])
        w = w.cpu().double()
        own = w[rows.cpu(), index.cpu()] ** 2
        w[rows.cpu(), index.cpu()] = 0
        from_weights.append(_summaries((w**2).sum(1), own)[0])
    return root(interval(from_values)), root(interval(from_weights))
