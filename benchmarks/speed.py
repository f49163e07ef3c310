"""How much work a measurement saves, side by side in one run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from memstore_lib import measure, memories, scores, stores
from memstore_lib.device import one_thread

GRID = [int(M) for M in np.geomspace(16, 16384, 21)]
D, D_V, QUERIES = 64, 64, 64


def scores_measured() -> list[scores.Score]:
    """Return the scores that share one pass over the keys."""
    return [scores.Linear(), scores.ReLU(), scores.ReLU(2), scores.ReLU(3), scores.Exponential(8.0)]


@one_thread()
def floor(seed: int) -> None:
    """Draw the keys and multiply them with the queries: what any measurement has to do."""
    draw = memories.replicate_generator(seed, 0)
    queries = memories.unit_keys(QUERIES, D, generator=draw, device="cpu")
    keys = memories.unit_keys(GRID[-1], D, generator=draw, device="cpu")
    for start in range(0, len(keys), 4096):
        queries @ keys[start : start + 4096].T


def ours(seed: int) -> None:
    """Measure all scores along the grid; two replicates, as intervals need them, count as two."""
    made = [stores.MLP(score) for score in scores_measured()]
    measure.interference(made, GRID, d=D, queries=QUERIES, replicates=2, seed=seed, device="cpu")


@one_thread()
def obvious(seed: int) -> None:
    """Do it the obvious way: fresh keys and values for each store and each M, and recall of real vectors."""
    draw = memories.replicate_generator(seed, 0)
    for score in scores_measured():
        for M in GRID:
            keys = memories.unit_keys(M, D, generator=draw, device="cpu")
            values = memories.values(M, D_V, generator=draw, device="cpu")
            store = stores.MLP(score).write(keys, values)
            asked = torch.randint(M, (QUERIES,), generator=draw)
            signal = score(torch.ones(1)) * values[asked]
            ((store.recall(keys[asked]) - signal).norm(dim=1) / signal.norm(dim=1)).mean()


def cpu_seconds(work: Callable[[int], None], seed: int) -> float:
    """Return the CPU seconds of one run."""
    start = time.process_time()
    work(seed)
    return time.process_time() - start


def ratios(runs: int = 7) -> list[tuple[str, float, float, float]]:
    """Return (what, median, lowest, highest) of each ratio, over runs that take turns so that load hits all alike."""
    for work in (floor, ours, obvious):
        work(0)
    taken: dict[Callable[[int], None], list[float]] = {work: [] for work in (floor, ours, obvious)}
    for seed in range(1, runs + 1):
        for work, seconds in taken.items():
            seconds.append(cpu_seconds(work, seed) / (2 if work is ours else 1))
    rows = []
    for name, above, below in (
        ("obvious way / one replicate of ours", obvious, ours),
        ("one replicate of ours / floor", ours, floor),
    ):
        each = [a / b for a, b in zip(taken[above], taken[below], strict=True) if not math.isclose(b, 0)]
        rows.append((name, float(np.median(each)), min(each), max(each)))
    return rows
