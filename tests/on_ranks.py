"""What test_torchrun.py runs on several ranks: a measurement and a recall, whose results rank 0 writes as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from memstore_lib import sharding
from tests.test_merging import draw

BETA = 9.0
JOB = {"d": 8, "queries": 6, "replicates": 2, "block": 512}
GRID = [100, 5000, 1 << 14]


def memories(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return draw(1000, dtype=dtype)


def shares(ranks: int) -> list[int]:
    """How many of the 1,000 keys each rank has; rank 1 has none."""
    others = [0, *range(2, ranks)][: ranks - 1]
    return [1000 - sum(others), *others]


def main(path: Path) -> None:
    from tests.test_sharding import SCORES

    with sharding.opened("cpu", patience=120) as ranks:
        found = sharding.measure(sharding.Job(SCORES, GRID, **JOB), ranks)
        recalled = {}
        for dtype in (torch.float32, torch.float64):
            Q, K, V = memories(dtype)
            sizes = shares(ranks.size)
            k, v = K.split(sizes)[ranks.rank], V.split(sizes)[ranks.rank]
            recalled[str(dtype)] = sharding.recall(Q, k, v, BETA, ranks, chunk=64).tolist()
        if found is not None:
            rows = found[0].replicates.to_dict("list"), found[1].to_dict("list")
            path.write_text(json.dumps({"measured": rows, "recalled": recalled, "size": ranks.size}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
