"""Interference by age: how a store of a stream recalls what it wrote last, and what it wrote long ago.

The other chapters ask for memories without regard to when they were written. Where writing goes on, a store may hold
the new ones well and have lost the old ones; their signal then passes through 0, and a mean of ratios says nothing.
So energies are averaged first, and the ratio is taken of the means: the *pooled* ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from scipy import special

from memstore_lib import _checks, memories
from memstore_lib.device import one_thread, resolve
from memstore_lib.intervals import Interval, root
from memstore_lib.stores import Store, empty_store, empty_stores

COLUMNS = ["store", "d", "M", "kind", "value", "low", "high"]


@one_thread()
def energies(
    store: Store,
    M: int,
    *,
    d: int = 64,
    replicates: int = 20,
    seed: int = 0,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the energies of interference and signal for each stored key, by replicate and age.

    Args:
        store: an empty store.
        M: memories, written in order.
        d: key dimension d_k; keys are random, of unit length.
        replicates: independent ones, at least 2.
        seed: replicate r draws from ``seed`` and r.
        device: where to compute; None for the default device.
        dtype: of the keys.

    Returns:
        Interference and signal, each (replicates, M): column n is the memory after which n were written.

    Raises:
        ValueError: a store that is not empty, sizes below 1, fewer than 2 replicates.
        TypeError: not a store, sizes that are not integers.
    """
    store = empty_store(store)
    M, d = _checks.integer("M", M), _checks.integer("d", d)
    replicates, seed = _checks.integer("replicates", replicates, minimum=2), _checks.integer("seed", seed, minimum=0)
    target = resolve(device)
    noise, signal = np.empty((replicates, M)), np.empty((replicates, M))
    for r in range(replicates):
        draw = memories.replicate_generator(seed, r)
        keys = memories.unit_keys(M, d, generator=draw, device=target, dtype=dtype)
        w = store.fresh().write(keys, torch.ones(M, 1, dtype=dtype, device=target)).weights(keys)
        squares = w.cpu().double().flip(0, 1) ** 2
        signal[r] = squares.diagonal().numpy()
        noise[r] = squares.fill_diagonal_(0).sum(1).numpy()
    return noise, signal


def ratio(noise: np.ndarray, signal: np.ndarray, level: float = 0.95) -> Interval:
    """Return √(mean interference energy ÷ mean signal energy) with its interval over replicates.

    Args:
        noise, signal: energies, one of each a replicate, (replicates,).
        level: confidence, in (0, 1).

    Raises:
        ValueError: shapes that disagree, fewer than 2 replicates, no signal at all, a level out of range.
    """
    noise, signal = np.asarray(noise, dtype=float), np.asarray(signal, dtype=float)
    if noise.ndim != 1 or noise.shape != signal.shape or len(noise) < 2:
        raise ValueError(
            f"noise and signal must have one shape (replicates,) of at least 2, got {noise.shape} and {signal.shape}"
        )
    level, n = _checks.real("level", level, low=0.0, high=1.0, open_low=True), len(noise)
    if not signal.mean() > 0:
        raise ValueError("signal must have a mean above 0, got 0")
    value = float(noise.mean() / signal.mean())
    # The error of a ratio of means, to first order: that of the mean of noise - ratio · signal.
    se = float((noise - value * signal).std(ddof=1) / signal.mean() / math.sqrt(n))
    half = float(special.stdtrit(n - 1, (1 + level) / 2)) * se
    return root(Interval(value, value - half, value + half, level, n, se))


def along_M(stores: Store | Sequence[Store], grid: Iterable[int], **options: object) -> pd.DataFrame:
    """Measure the pooled ratio of stores along a grid of M.

    Args:
        stores: empty stores with different names.
        grid: increasing numbers of memories.
        options: d, replicates, seed, device and dtype, as in :func:`energies`.

    Returns:
        A tidy table: store, d, M, kind = "measured", value, low, high (95 %).

    Raises:
        ValueError, TypeError: as :func:`energies`; an empty or unsorted grid.
    """
    rows, grid = [], _checks.grid(grid)
    for store in empty_stores(stores):
        for M in grid:
            noise, signal = energies(store, M, **options)  # type: ignore[arg-type]
            found = ratio(noise.mean(1), signal.mean(1))
            rows.append((store.name, options.get("d", 64), M, "measured", found.value, found.low, found.high))
    return pd.DataFrame(rows, columns=COLUMNS)


def by_age(stores: Store | Sequence[Store], ages: Iterable[int], *, writes: int, **options: object) -> pd.DataFrame:
    """Measure the ratio for memories of several ages in one stream.

    Args:
        stores: empty stores with different names.
        ages: increasing; age n is the memory after which n were written, below ``writes``.
        writes: memories of the stream.
        options: d, replicates, seed, device and dtype, as in :func:`energies`.

    Returns:
        A tidy table: store, d, age, kind = "measured", value, low, high (95 %).

    Raises:
        ValueError, TypeError: as :func:`energies`; ages that are unsorted or beyond the stream.
    """
    rows, ages = [], _checks.grid(ages, name="ages", minimum=0)
    writes = _checks.integer("writes", writes)
    if ages[-1] >= writes:
        raise ValueError(f"ages must be below writes, got {ages[-1]} of {writes}")
    for store in empty_stores(stores):
        noise, signal = energies(store, writes, **options)  # type: ignore[arg-type]
        for n in ages:
            found = ratio(noise[:, n], signal[:, n])
            rows.append((store.name, options.get("d", 64), n, "measured", found.value, found.low, found.high))
    return pd.DataFrame(rows, columns=["age" if c == "M" else c for c in COLUMNS])
