"""How near a measurement is to the least it must do, and how far from the obvious way, side by side in one run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.rows import Row, alternate, ratio
from memstore_lib import counting, memories, scores, sharpness, spectrum
from memstore_lib.device import default_device, one_thread

PART = "measurement"
D, D_V = 64, 64
GRID = [2**k for k in range(4, 22)]  # of the measurement and the floor
OBVIOUS = [2**k for k in range(8, 22)]  # of the comparison with the obvious way,
MEASURED = [M for M in OBVIOUS if M <= 2**14]  # which is measured up to here
COSINES = (1.0, 0.9, 0.7, 0.5)

Asked = dict[str, scores.Score | Callable[[int], scores.Score]]


def asked() -> Asked:
    """Return nine scores and the sharpness rules, which share one pass over the keys."""
    nine = [*scores.SCORES.values(), *(scores.TruncatedExponential(8.0, terms) for terms in (2, 3, 4))]
    rules = [
        sharpness.Fixed(4.0),
        sharpness.Su(),
        sharpness.QwenLogN(),
        sharpness.YaRN(),
        sharpness.YaRN(clamp=True),
    ]
    return {str(score): score for score in nine} | {repr(rule): rule.score for rule in rules}


@one_thread()
def floor(queries: int, grid: list[int], seed: int, device: torch.device) -> None:
    """Draw the keys and multiply them with the queries, in tiles that suit the cache: what any measurement must do."""
    draw = memories.replicate_generator(seed, 0)
    bank = memories.unit_keys(queries, D, generator=draw, device=device)
    tile = min(counting._TILE // queries, 1024) if device.type == "cpu" else counting._CHUNK
    product = torch.empty(queries, tile, device=device)
    for _ in range(0, grid[-1], counting._CHUNK):
        keys = memories.unit_keys(counting._CHUNK, D, generator=draw, device=device)
        for part in keys.split(tile):
            torch.mm(bank, part.T, out=product)


def ours(
    queries: int,
    grid: list[int],
    seed: int,
    device: torch.device,
    cosines: tuple[float, ...] = (1.0,),
    draws: str = "cpu",
) -> None:
    """Measure everything that is asked for, along the whole grid, with intervals."""
    options = {"queries": queries, "seed": seed, "device": device, "draws": draws}
    spectrum.interference(asked(), grid, d=D, cosines=cosines, **options)  # type: ignore[arg-type]


@one_thread()
def obvious(queries: int, M: int, seed: int, device: torch.device) -> None:
    """Do it the obvious way: fresh keys and values for each store, and recall of real vectors."""
    draw = memories.replicate_generator(seed, M)
    for entry in asked().values():
        score = entry if isinstance(entry, scores.Score) else entry(M)
        keys = memories.unit_keys(M, D, generator=draw, device=device)
        values = memories.values(M, D_V, generator=draw, device=device)
        wanted = torch.randint(M, (queries,), generator=draw).to(device)
        signal = score(torch.ones(1, device=device)) * values[wanted]
        recalled = score(keys[wanted] @ keys.T) @ values
        ((recalled - signal).norm(dim=1) / signal.norm(dim=1)).mean().item()


def ratios(queries: int, runs: int, grid: list[int] | None = None) -> list[Row]:
    """Return the ratios for a number of queries.

    Args:
        queries: of the measurement, in all.
        runs: how often everything takes its turn.
        grid: of the measurement; None for 2⁴ … 2²¹. The obvious way is extrapolated to its last M.
    """
    device, grid = default_device(), grid or GRID
    small = [M for M in MEASURED if M < grid[-1]]
    long = [M for M in OBVIOUS if M <= grid[-1]]
    works: dict[str, Callable[[int], object]] = {
        "floor": lambda seed: floor(queries, grid, seed, device),
        "ours": lambda seed: ours(queries, grid, seed, device),
        "ours, long": lambda seed: ours(queries, long, seed, device),
        "ours, cosines": lambda seed: ours(queries, long, seed, device, COSINES),
    }
    works |= {f"obvious {M}": lambda seed, M=M: obvious(queries, M, seed, device) for M in small}
    if device.type != "cpu":
        works["ours, drawn there"] = lambda seed: ours(queries, grid, seed, device, draws="device")
    taken = alternate(works, runs, device)
    beyond = sum(M for M in long if M not in small) / small[-1]  # the time of a store grows in proportion to M
    each = np.array([taken[f"obvious {M}"] for M in small])
    whole = list(each.sum(0) + beyond * each[-1])
    who = f"{queries} queries"
    note = f"the obvious way extrapolated from M ≤ {small[-1]:,}"
    rows = [
        ratio(PART, f"{who}: ours / floor", taken["ours"], taken["floor"]),
        ratio(PART, f"{who}: obvious way / ours", whole, taken["ours, long"], note),
        ratio(
            PART,
            f"{who}, {len(COSINES)} cosines: obvious way / ours",
            [len(COSINES) * seconds for seconds in whole],
            taken["ours, cosines"],
            f"{note}, and from one cosine",
        ),
    ]
    if "ours, drawn there" in taken:
        rows.append(ratio(PART, f"{who}: ours / ours, keys drawn there", taken["ours"], taken["ours, drawn there"]))
    return rows


def rows(runs: int = 5) -> list[Row]:
    """Return the ratios for 64 and 256 queries."""
    return [row for queries in (64, 256) for row in ratios(queries, runs)]
