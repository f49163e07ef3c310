"""What every score and every store must satisfy. The book's tests walk the registries with these; so can a reader.

::

    check_score(MyScore())        raises AssertionError or ValueError with the reason
    check_store(lambda: MyStore())
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from memstore_lib import _checks, measure, memories, theory
from memstore_lib.scores import Score
from memstore_lib.stores import MLP, Store

# Sizes that all differ, so that a swapped axis cannot pass.
_M, _D_K, _D_V, _N = 13, 7, 5, 3


def _require(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise AssertionError(f"{name!r} must satisfy: {what}")


def check_score(score: Score) -> None:
    """Check that a score is elementwise, keeps dtype, has a finite exact law, and obeys it when measured.

    Raises:
        AssertionError: which property fails, and for which score.
        ValueError: the score is not finite or not elementwise.
        TypeError: not a score.
    """
    _checks.instance("score", score, Score, "a Score")
    s = torch.linspace(-1, 1, 24, dtype=torch.float64)
    whole = score(s)
    same = isinstance(whole, torch.Tensor) and whole.shape == s.shape and whole.dtype == s.dtype
    _require(same, score.name, "σ(s) has the shape and dtype of s")
    _require(score(s.float()).dtype == torch.float32, score.name, "float32 in, float32 out")
    parts = torch.cat([score(piece) for piece in s.reshape(4, 6)])
    # Not bit for bit: vectorised and scalar code may round one function differently.
    alone = torch.allclose(whole, parts, rtol=1e-12, atol=0, equal_nan=True)
    _require(alone, score.name, "σ(s) depends on s alone, not on its neighbours")
    d, M = 3, 33  # few dimensions: even a steep score meets near neighbours, so its mean square can be measured
    law = theory.isr(score, M, d)
    _require(math.isfinite(law), score.name, "a stored key recalls its own value: σ(1) ≠ 0")
    found = measure.interference(MLP(score), [M], d=d, queries=256, replicates=20, seed=5).at(score.name, M)
    # Five standard errors: a fixed seed on another device or version still passes, a wrong law does not.
    _require(
        abs(found.value - law) <= 5 * found.standard_error + 1e-9,
        score.name,
        f"measured {found} against law {law:.4g}",
    )


def check_store(make: Callable[[], Store]) -> None:
    """Check that a store writes, weighs and recalls as every store must.

    Raises:
        AssertionError: which property fails, and for which store.
        ValueError: weights or recall of the wrong shape.
        TypeError: not a function that makes a store, such as its class.
    """
    _checks.function("make", make)
    draw = torch.Generator().manual_seed(3)
    keys = memories.unit_keys(_M, _D_K, generator=draw, device="cpu", dtype=torch.float64)
    values = memories.values(_M, _D_V, generator=draw, device="cpu", dtype=torch.float64)
    queries = memories.unit_keys(_N, _D_K, generator=draw, device="cpu", dtype=torch.float64)
    store = make()
    _checks.instance("make", store, Store, "a function that returns a Store")
    name = store.name
    _require(len(store) == 0, name, "a new store is empty")
    _require(
        store.write(keys, values) is store and len(store) == _M,
        name,
        "write stores M memories, returns the store",
    )
    w, out = store.weights(queries), store.recall(queries)
    _require(w.shape == (_N, _M) and out.shape == (_N, _D_V), name, "weights are (n, M), recalls (n, d_v)")
    _require(w.dtype == out.dtype == keys.dtype, name, "weights and recalls keep the dtype")
    close = {"rtol": 1e-8, "atol": 1e-9}
    _require(torch.allclose(out, w @ values, **close), name, "recall is the weighted sum of values")
    if isinstance(score := getattr(store, "score", None), Score):  # measured through the score, so it must be the truth
        told = torch.allclose(w, score(queries @ keys.T), **close)
        _require(told, name, "weights are its score of the similarities")
    _require(torch.allclose(store.weights(queries[0]), w[0], **close), name, "one query gives that query's weights")
    _require(torch.allclose(store.recall(queries[0]), out[0], **close), name, "one query gives that query's recall")
    slowly = make()
    for key, value in zip(keys, values, strict=True):
        slowly.write(key, value)
    _require(
        torch.allclose(slowly.recall(queries), out, **close),
        name,
        "one memory at a time gives the same store",
    )
    if not store.ordered:
        order = torch.randperm(_M, generator=draw)
        shuffled = make().write(keys[order], values[order])
        _require(torch.allclose(shuffled.recall(queries), out, **close), name, "the order of writing does not matter")
    _require(len(store.fresh()) == 0 and len(store) == _M, name, "fresh() is empty and leaves the store as it was")
    single = make().write(keys[0], values[0])
    _require(
        torch.nn.functional.cosine_similarity(single.recall(keys[0]), values[0], dim=0).item() > 1 - 1e-9,
        name,
        "one memory alone is recalled in its own direction",
    )
