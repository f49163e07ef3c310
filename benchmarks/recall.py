"""The least-squares store beside torch's own solvers, and attention recall beside torch's own attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.rows import Row, alternate, ratio
from memstore_lib import memories, stores
from memstore_lib.device import default_device, one_thread

D, D_V, QUERIES, BETA = 64, 64, 64, 8.0

Memories = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def stored(M: int, seed: int, device: str | torch.device = "cpu") -> Memories:
    """Return keys and values to store, and queries."""
    draw = memories.replicate_generator(seed, M)
    keys = memories.unit_keys(M, D, generator=draw, device=device)
    values = memories.values(M, D_V, generator=draw, device=device)
    return keys, values, memories.unit_keys(QUERIES, D, generator=draw, device=device)


def least_squares(keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Recall from the store, which solves in double precision."""
    return stores.LeastSquares().write(keys, values).recall(queries)


def pseudoinverse(keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Recall through ``torch.linalg.pinv`` in double precision."""
    solution = torch.linalg.pinv(keys.double()) @ values.double()
    return (queries.double() @ solution).float()


def solver(keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Recall through ``torch.linalg.lstsq`` in double precision, with the driver that bears dependent keys."""
    solution = torch.linalg.lstsq(keys.double(), values.double(), driver="gelsd").solution
    return (queries.double() @ solution).float()


def torch_attention(store: stores.Store, queries: torch.Tensor) -> torch.Tensor:
    """Recall the memories of a store through ``scaled_dot_product_attention``."""
    q, k, v = (x[None, None] for x in (queries, store.keys, store.values))
    return functional.scaled_dot_product_attention(q, k, v, scale=BETA)[0, 0]


#: Whatever holds memories, then the queries.
Recall = Callable[..., torch.Tensor]


def compared(drawn: list[tuple], forms: dict[str, Recall], device: str | torch.device) -> dict[str, list[float]]:
    """Return the seconds of each form in each run.

    Raises:
        AssertionError: a form does not recall what the first does.
    """
    first, *others = (form(*drawn[0]) for form in forms.values())
    for other in others:
        torch.testing.assert_close(other, first, rtol=1e-3, atol=1e-4)
    works = {name: lambda seed, form=form: form(*drawn[seed]) for name, form in forms.items()}
    return alternate(works, len(drawn) - 1, device)


@one_thread()
def rows(runs: int = 7, sizes: tuple[int, int, int] = (48, 4096, 65_536)) -> list[Row]:
    """Return the ratios; two sizes M for least squares, below and above d, and one for attention."""
    found = []
    for M in sizes[:2]:
        drawn = [stored(M, seed) for seed in range(runs + 1)]
        taken = compared(drawn, {"ours": least_squares, "pinv": pseudoinverse, "lstsq": solver}, "cpu")
        for other in ("pinv", "lstsq"):
            found.append(ratio("recall", f"M = {M:,}: {other} / least squares", taken[other], taken["ours"]))
    M, device = sizes[2], default_device()
    filled = []
    for seed in range(runs + 1):
        keys, values, queries = stored(M, seed, device)
        filled.append((stores.Attention(BETA).write(keys, values), queries))
    taken = compared(filled, {"ours": lambda store, queries: store.recall(queries), "torch": torch_attention}, device)
    name = f"M = {M:,}: attention store / scaled_dot_product_attention"
    return [*found, ratio("recall", name, taken["ours"], taken["torch"])]
