"""Measurements: interference over signal along M, capacity, and whether a recall points at the right value.

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
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks, memories
from memstore_lib.device import resolve
from memstore_lib.intervals import Interval, interval, root
from memstore_lib.scores import Score
from memstore_lib.stores import Store

STATISTICS = ("rms", "mean", "median")
# Chunks of the key stream: large enough to keep the cores busy, small enough to stay in cache.
_CHUNK = 4096


@dataclass(frozen=True)
class Measurement:
    """What :func:`interference` measured.

    Attributes:
        replicates: a row for each store, M and replicate: store, d, M, cosine, replicate, and over that replicate's
            queries ``mean_square``, ``mean`` and ``median`` of the ISR.
    """

    replicates: pd.DataFrame

    def _samples(self, store: str) -> pd.DataFrame:
        known = list(self.replicates["store"].unique())
        _checks.choice("store", store, known)
        return self.replicates[self.replicates["store"] == store]

    def at(self, store: str, M: int, statistic: str = "rms", level: float = 0.95) -> Interval:
        """Return the ISR of one store at one M of the grid.

        Raises:
            ValueError: a store, an M or a statistic that was not measured.
        """
        rows = self._samples(store)
        rows = rows[rows["M"] == M]
        if rows.empty:
            raise ValueError(
                f"M must be on the measured grid {sorted(self.replicates['M'].unique())}, got {M}"
            )
        return _statistic(rows, statistic, level)

    def table(self, statistic: str = "rms", level: float = 0.95) -> pd.DataFrame:
        """Return a tidy table: store, d, M, cosine, kind = "measured", value, low, high.

        Raises:
            ValueError: an unknown statistic, or a level outside (0, 1).
        """
        _checks.choice("statistic", statistic, STATISTICS)
        rows = []
        for (store, d, M, cosine), group in self.replicates.groupby(
            ["store", "d", "M", "cosine"], sort=False
        ):
            found = _statistic(group, statistic, level)
            rows.append((store, d, M, cosine, "measured", found.value, found.low, found.high))
        return pd.DataFrame(rows, columns=["store", "d", "M", "cosine", "kind", "value", "low", "high"])

    def capacity(self, store: str, level: float = 0.95) -> Interval:
        """Return the M at which the root-mean-square ISR first reaches 1.

        In each replicate ISR² is interpolated linearly in M between the grid points around 1, which is exact for the
        laws of the elementwise scores and of least squares. The interval is over the replicates.

        Raises:
            ValueError: the ratio does not cross 1 within the grid in some replicate.
        """
        crossings = [
            _crossing(group["M"].to_numpy(float), group["mean_square"].to_numpy(float), store)
            for _, group in self._samples(store).groupby("replicate")
        ]
        return interval(crossings, level)


def _statistic(rows: pd.DataFrame, statistic: str, level: float) -> Interval:
    _checks.choice("statistic", statistic, STATISTICS)
    if statistic == "rms":
        return root(interval(rows["mean_square"], level))
    return interval(rows[statistic], level)


def _crossing(M: np.ndarray, squares: np.ndarray, store: str) -> float:
    above = np.flatnonzero(squares >= 1)
    if len(above) == 0 or above[0] == 0:
        side = "ends below" if len(above) == 0 else "starts above"
        raise ValueError(
            f"grid must hold the M where the ratio of {store!r} is 1: it {side} it, "
            f"with {math.sqrt(squares[0]):.3g} at M = {M[0]:g} and {math.sqrt(squares[-1]):.3g} at M = {M[-1]:g}"
        )
    right = above[0]
    left = right - 1
    return float(M[left] + (1 - squares[left]) / (squares[right] - squares[left]) * (M[right] - M[left]))


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
            share a name, weights of the wrong shape.
        TypeError: not stores, or sizes that are not integers.
    """
    stores = _empty_stores(stores)
    grid = _checks.grid(grid)
    d, n = _checks.integer("d", d), _checks.integer("queries", queries)
    replicates, seed = (
        _checks.integer("replicates", replicates, minimum=2),
        _checks.integer("seed", seed, minimum=0),
    )
    c, target = _checks.cosine(cosine), resolve(device)
    rows = []
    for r in range(replicates):
        draw = memories.generator_for(_mixed(seed, r))
        stream = keys(grid[-1], d, generator=draw, device=target, dtype=dtype)
        fast = [s for s in stores if isinstance(getattr(s, "score", None), Score)]
        if fast:
            _checks.unit_rows("keys", stream, "the law of a score is one of unit keys")
            bank = memories.unit_keys(n, d, generator=draw, device=target, dtype=dtype)
            squares = _stream_squares([s.score for s in fast], stream, bank, grid)
            for store, noise in zip(fast, squares, strict=True):
                signal = store.score(torch.full((1,), c, dtype=torch.float64)).abs().item()
                for M, energy in zip(grid, noise, strict=True):
                    rows.append(
                        (store.name, d, M, c, r, *_summaries(energy, torch.full_like(energy, signal**2)))
                    )
        for store in (s for s in stores if s not in fast):
            for M in grid:
                rows.append((store.name, d, M, c, r, *_summaries(*_energies(store, stream[:M], n, c, draw))))
    columns = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    return Measurement(pd.DataFrame(rows, columns=columns))


def _mixed(seed: int, replicate: int) -> int:
    """Return a generator seed for a replicate; neighbouring seeds must not share replicates."""
    return int(np.random.SeedSequence([seed, replicate]).generate_state(1, np.uint64)[0] >> 1)


def _empty_stores(stores: Store | Sequence[Store]) -> list[Store]:
    items = [stores] if isinstance(stores, Store) else list(stores)
    if not items:
        raise ValueError("stores must hold at least one store, got none")
    for i, store in enumerate(items):
        if not isinstance(store, Store):
            raise TypeError(f"stores[{i}] must be a Store, got {type(store).__name__}")
        if len(store):
            raise ValueError(
                f"stores[{i}] must be empty, got {store.name!r} with {len(store)} memories; use .fresh()"
            )
    names = [store.name for store in items]
    if len(set(names)) < len(names):
        raise ValueError(f"stores must have different names, got {names}")
    return items


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
    w[rows, index.cpu()] = (
        0  # masked, not subtracted: the difference of two large sums would be mostly rounding
    )
    return (w**2).sum(1), signal


def _summaries(noise: torch.Tensor, signal: torch.Tensor) -> tuple[float, float, float]:
    """Return mean square, mean and median of the ratio over queries; 0/0, a store that is silent, counts as infinite."""
    squares = torch.where(signal > 0, noise / signal.clamp_min(1e-300), torch.full_like(noise, math.inf))
    ratio = squares.sqrt()
    return squares.mean().item(), ratio.mean().item(), ratio.quantile(0.5).item()


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
    limit = _checks.integer("limit", limit, minimum=4)
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
    grid = np.unique(np.geomspace(max(2, M / 4), 4 * M, 33).astype(int))
    return interference(store, grid, replicates=replicates, seed=seed, **shared).capacity(store.name)  # type: ignore[arg-type]


def recall_ratio(
    store: Store,
    M: int,
    *,
    d: int = 64,
    d_v: int = 64,
    queries: int = 64,
    replicates: int = 20,
    seed: int = 0,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Interval, Interval]:
    """Measure the root-mean-square ratio twice on the same recalls: from real value vectors and from weights alone.

    From values it is ‖recall - w_j v_j‖ / ‖w_j v_j‖ for stored keys j. Both have the same mean; values add noise.

    Args:
        store: an empty store.
        M: stored memories.
        d, d_v: key and value dimensions.
        queries, replicates, seed, device, dtype: as in :func:`interference`.

    Returns:
        The interval from values and the one from weights.

    Raises:
        ValueError, TypeError: as :func:`interference`.
    """
    (store,) = _empty_stores(store)
    M, d, d_v = _checks.integer("M", M), _checks.integer("d", d), _checks.integer("d_v", d_v)
    n, target = _checks.integer("queries", queries), resolve(device)
    from_values, from_weights = [], []
    for r in range(_checks.integer("replicates", replicates, minimum=2)):
        draw = memories.generator_for(_mixed(_checks.integer("seed", seed, minimum=0), r))
        keys = memories.unit_keys(M, d, generator=draw, device=target, dtype=dtype)
        values = memories.values(M, d_v, generator=draw, device=target, dtype=dtype)
        filled = store.fresh().write(keys, values)
        index = torch.randperm(M, generator=draw, device=draw.device)[: min(n, M)].to(target)
        w = filled.weights(keys[index])
        rows = torch.arange(len(index), device=target)
        signal = w[rows, index, None] * values[index]
        noise = (filled.recall(keys[index]) - signal).cpu().double()
        from_values.append(_summaries((noise**2).sum(1), (signal.cpu().double() ** 2).sum(1))[0])
        w = w.cpu().double()
        own = w[rows.cpu(), index.cpu()] ** 2
        w[rows.cpu(), index.cpu()] = 0
        from_weights.append(_summaries((w**2).sum(1), own)[0])
    return root(interval(from_values)), root(interval(from_weights))


def top1(
    store: Store,
    grid: Iterable[int],
    *,
    d: int = 64,
    queries: int = 256,
    replicates: int = 10,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> pd.DataFrame:
    """Measure how often a recall points at the right one of the M stored values: argmax_i v_i · recall(k_j) = j.

    Args:
        store: an empty store.
        grid: increasing numbers of memories M.
        d: dimension of keys and of values.
        queries, replicates, seed, device: as in :func:`interference`.

    Returns:
        A tidy table: store, d, M, replicate, accuracy.

    Raises:
        ValueError, TypeError: as :func:`interference`.
    """
    (store,) = _empty_stores(store)
    grid, d, target = _checks.grid(grid), _checks.integer("d", d), resolve(device)
    n, seed = _checks.integer("queries", queries), _checks.integer("seed", seed, minimum=0)
    rows = []
    for r in range(_checks.integer("replicates", replicates, minimum=2)):
        draw = memories.generator_for(_mixed(seed, r))
        keys = memories.unit_keys(grid[-1], d, generator=draw, device=target)
        values = memories.values(grid[-1], d, generator=draw, device=target)
        for M in grid:
            filled = store.fresh().write(keys[:M], values[:M])
            index = torch.randperm(M, generator=draw, device=draw.device)[: min(n, M)].to(target)
            pointed = (filled.recall(keys[index]) @ values[:M].T).argmax(1)
            rows.append((store.name, d, M, r, (pointed == index).double().mean().item()))
    return pd.DataFrame(rows, columns=["store", "d", "M", "replicate", "accuracy"])


def facts_at(accuracy: float, table: pd.DataFrame, level: float = 0.95) -> Interval:
    """Return the M at which the accuracy measured by :func:`top1` falls to ``accuracy``.

    Interpolated in log M within each replicate; the interval is over replicates.

    Args:
        accuracy: in (0, 1).
        table: result of :func:`top1` for one store and one d.
        level: confidence of the interval.

    Raises:
        ValueError: the accuracy is not crossed within the grid, or is out of range.
    """
    wanted = _checks.real("accuracy", accuracy, low=0.0, high=1.0, open_low=True)
    found = []
    for _, group in table.groupby("replicate"):
        # Accuracy falls with M up to sampling noise; the running minimum makes the crossing unique.
        curve = np.minimum.accumulate(group["accuracy"].to_numpy(float))
        below = np.flatnonzero(curve < wanted)
        if len(below) == 0 or below[0] == 0:
            raise ValueError(
                f"accuracy {wanted:g} must be crossed within the grid, got {curve[0]:.3g} to {curve[-1]:.3g}"
            )
        i = below[0]
        share = (curve[i - 1] - wanted) / (curve[i - 1] - curve[i])
        logs = np.log(group["M"].to_numpy(float))
        found.append(math.exp(logs[i - 1] + share * (logs[i] - logs[i - 1])))
    return interval(found, level)
