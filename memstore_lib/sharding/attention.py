"""Softmax recall of memories that lie on many ranks: context-parallel attention in miniature.

Each rank holds some of the keys with their values, and all hold the queries. What travels is one maximum, one sum and
one vector a query and rank, however many keys there are. Source of the merge: :mod:`memstore_lib.merging`.
"""

from __future__ import annotations

import torch

from memstore_lib import _checks
from memstore_lib.merging import Partial, partial_by_chunks, scale_to
from memstore_lib.sharding.ranks import Ranks


def merge_ranks(part: Partial, ranks: Ranks) -> Partial:
    """Return, on every rank, the partial attention over the keys of all ranks: one maximum and one sum over them."""
    scaled = scale_to(part, ranks.largest(part.top))
    both = ranks.sum(torch.cat([scaled.total, scaled.weighted], dim=1))
    return Partial(scaled.top, both[:, :1], both[:, 1:])


def recall(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    beta: float,
    ranks: Ranks,
    *,
    mask: torch.Tensor | None = None,
    chunk: int = 4096,
) -> torch.Tensor:
    """Return on every rank what softmax attention over the keys of all ranks recalls, (n, d_v).

    Args:
        queries: (n, d_k), the same on every rank.
        keys: (m, d_k), this rank's; m may differ between ranks and may be 0.
        values: (m, d_v), of this rank's keys.
        beta: sharpness.
        ranks: this process and the others.
        mask: (n, m) of bool, True where a query sees a key of this rank; None if all see all.
        chunk: keys at a time.

    Raises:
        ValueError: a query that sees no key on any rank, shapes that disagree, a β out of range.
        TypeError: not floating-point tensors, or of different dtypes.
    """
    beta = _checks.real("beta", beta, low=0.0)
    queries = _checks.matrix("queries", queries, "(n, d_k)")
    for name, tensor in (("keys", keys), ("values", values)):
        _checks.floating(name, tensor)
        _checks.same_kind(name, tensor, "queries", queries)
        if tensor.ndim != 2:
            raise ValueError(f"{name} must have two axes, also where a rank has none, got {tuple(tensor.shape)}")
    if keys.shape[1] != queries.shape[1]:
        raise ValueError(f"keys must have d_k = {queries.shape[1]} columns like the queries, got {tuple(keys.shape)}")
    part = partial_by_chunks(queries, keys, values, beta, mask=mask, chunk=chunk)
    return merge_ranks(part, ranks).recall()
