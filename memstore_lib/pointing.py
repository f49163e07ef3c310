"""Whether a recall points at the right one of the stored values, which asks for less than recalling it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks, memories
from memstore_lib.device import one_thread, resolve
from memstore_lib.intervals import Interval, interval
from memstore_lib.stores import Store, empty_store


@one_thread()
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
        queries, replicates, seed, device: as in :func:`memstore_lib.measure.interference`.

    Returns:
        A tidy table: store, d, M, replicate, accuracy.

    Raises:
        ValueError, TypeError: as :func:`memstore_lib.measure.interference`.
    """
    store = empty_store(store)
    grid, d, target = _checks.grid(grid), _checks.integer("d", d), resolve(device)
    n, seed = _checks.integer("queries", queries), _checks.integer("seed", seed, minimum=0)
    rows = []
    for r in range(_checks.integer("replicates", replicates, minimum=2)):
        draw = memories.replicate_generator(seed, r)
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

    The accuracy averaged over replicates is interpolated in log M. One replicate holds too few facts to resolve 99 %,
    so the interval is a jackknife over replicates: each is left out once.

    Args:
        accuracy: in (0, 1).
        table: result of :func:`top1` for one store and one d.
        level: confidence of the interval.

    Raises:
        ValueError: the accuracy is not crossed within the grid, or is out of range.
        TypeError: not a number, or not a table.
    """
    wanted = _checks.real("accuracy", accuracy, low=0.0, high=1.0, open_low=True)
    if wanted == 1:  # where the first error is met says how many queries were asked
        raise ValueError("accuracy must lie strictly between 0 and 1, got 1")
    _checks.instance("table", table, pd.DataFrame, "a table, as top1 returns it")
    curves = table.pivot(index="M", columns="replicate", values="accuracy")
    whole, n = _falls_to(wanted, curves.mean(axis=1)), curves.shape[1]
    without = [_falls_to(wanted, curves.drop(columns=r).mean(axis=1)) for r in curves.columns]
    # Pseudo-values: their mean is the jackknife estimate, their spread that of independent replicates.
    found = interval([n * whole - (n - 1) * one for one in without], level)
    shift = whole - found.value
    return Interval(whole, found.low + shift, found.high + shift, level, n, found.standard_error)


def _falls_to(wanted: float, curve: pd.Series) -> float:
    # Accuracy falls with M up to sampling noise; the running minimum makes the crossing unique.
    height, logs = np.minimum.accumulate(curve.to_numpy(float)), np.log(curve.index.to_numpy(float))
    below = np.flatnonzero(height < wanted)
    if len(below) == 0 or below[0] == 0:
        seen = f"{height[0]:.3g} to {height[-1]:.3g}"
        raise ValueError(f"accuracy {wanted:g} must be crossed within the grid, got {seen}")
    i = below[0]
    share = (height[i - 1] - wanted) / (height[i - 1] - height[i])
    return math.exp(logs[i - 1] + share * (logs[i] - logs[i - 1]))
