"""Rows of the table: ratios of runs that take turns, so that the load of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        part: which benchmark it is of.
        name: what was measured.
        unit: of the numbers; ``×`` for ratios.
        median, low, high: over the runs.
        runs: how many.
        note: what to know about the number.
    """

    part: str
    name: str
    unit: str
    median: float
    low: float
    high: float
    runs: int
    note: str = ""


def single(part: str, name: str, unit: str, value: float, note: str = "") -> Row:
    """Return the row of something that was measured once."""
    return Row(part, name, unit, float(value), float(value), float(value), 1, note)


def over_runs(part: str, name: str, unit: str, values: object, note: str = "") -> Row:
    """Return the row of values, one a run."""
    each = np.asarray(values, dtype=float)
    return Row(part, name, unit, float(np.median(each)), float(each.min()), float(each.max()), len(each), note)


def ratio(part: str, name: str, above: list[float], below: list[float], note: str = "") -> Row:
    """Return the row of a ratio, taken within each run."""
    return over_runs(part, name, "×", np.array(above) / np.array(below), note)


def clock(device: torch.device) -> float:
    """Return CPU seconds of this process, or on a GPU the seconds on the clock once its work is done."""
    if device.type == "cpu":
        return time.process_time()
    getattr(torch, device.type).synchronize()
    return time.perf_counter()


def alternate(
    works: Mapping[str, Callable[[int], object]], runs: int, device: torch.device | str = "cpu"
) -> dict[str, list[float]]:
    """Return the seconds of each work in each run; run r gives every work the seed r, and run 0 is thrown away."""
    device = torch.device(device)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for run in range(runs + 1):
        for name, work in works.items():
            start = clock(device)
            work(run)
            taken[name].append(clock(device) - start)
    return {name: seconds[1:] for name, seconds in taken.items()}
