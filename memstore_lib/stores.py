"""Stores: write key-value memories, ask with a query, recall a weighted sum of values.

    K  keys,    (M, d_k)      write(K, V) appends memories; write(k, v) appends one
    V  values,  (M, d_v)
    w  weights, (M,)          how much each stored value counts for a query
    recall(q) = Σ_i w_i v_i   the same for every store; a store states its weights and nothing else

Rows are memories everywhere: n queries are (n, d_k), their weights (n, M), their recalls (n, d_v). A single query
(d_k,) gives (M,) and (d_v,).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch

from memstore_lib import _checks
from memstore_lib.scores import SCORES, Linear, Score


class Store(ABC):
    """A key-value memory. A subclass states ``name`` and :meth:`_weights`; writing and recall are done here."""

    name: str

    def __init__(self) -> None:
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None

    def __len__(self) -> int:
        """The number of stored memories, M."""
        return 0 if self._keys is None else len(self._keys)

    @property
    def keys(self) -> torch.Tensor:
        """Stored keys, (M, d_k). Raises ValueError while nothing is stored."""
        return self._filled()[0]

    @property
    def values(self) -> torch.Tensor:
        """Stored values, (M, d_v). Raises ValueError while nothing is stored."""
        return self._filled()[1]

    def _filled(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._keys is None or self._values is None:
            raise ValueError(f"store {self.name!r} is empty: write keys and values first")
        return self._keys, self._values

    def fresh(self) -> Store:
        """Return an empty store with the same settings."""
        new = copy.copy(self)
        new._keys = new._values = None
        new._changed()
        return new

    def write(self, keys: torch.Tensor, values: torch.Tensor) -> Store:
        """Append memories and return the store itself.

        Args:
            keys: (M, d_k), or (d_k,) for one memory. Any length, but not zero: a zero key can never be asked for.
            values: (M, d_v), or (d_v,) for one memory.

        Raises:
            ValueError: shapes that disagree, with each other or with what is stored; empty axes; NaN or infinity; a
                key of norm 0; different devices. Nothing is stored then.
            TypeError: not floating-point tensors, or of different dtypes.
        """
        keys, values = self._as_rows(keys, values)
        if self._keys is None or self._values is None:
            # Clones: a caller who later edits its tensors in place must not edit the memory.
            self._keys, self._values = keys.clone(), values.clone()
        else:
            self._fits("keys", keys, self._keys)
            self._fits("values", values, self._values)
            self._keys = torch.cat([self._keys, keys])
            self._values = torch.cat([self._values, values])
        self._written(keys, values)
        return self

    @staticmethod
    def _as_rows(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = _checks.floating("keys", keys), _checks.floating("values", values)
        if keys.ndim == 1 and values.ndim == 1:
            keys, values = keys[None], values[None]
        keys = _checks.matrix("keys", keys, "(M, d_k), or (d_k,) beside one value")
        values = _checks.matrix("values", values, "(M, d_v), or (d_v,) beside one key")
        if len(keys) != len(values):
            raise ValueError(
                f"keys and values must hold the same number of memories, got keys of shape {tuple(keys.shape)} and "
                f"values of shape {tuple(values.shape)}"
            )
        _checks.same_kind("keys", keys, "values", values)
        norms = keys.norm(dim=1)
        if bool((norms == 0).any()):
            row = int((norms == 0).nonzero()[0])
            raise ValueError(
                f"keys must not be zero, got a key of norm 0 in row {row}: no query can ask for it"
            )
        return keys, values

    def _fits(self, name: str, new: torch.Tensor, old: torch.Tensor) -> None:
        if new.shape[1] != old.shape[1]:
            raise ValueError(
                f"{name} must have {old.shape[1]} columns like the {len(old)} stored {name}, got shape {tuple(new.shape)}"
            )
        _checks.same_kind(name, new, f"the stored {name}", old)

    def _written(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Called after each write with what was appended; a store that keeps a state of its own updates it here."""
        self._changed()

    def _changed(self) -> None:
        """Called whenever the memories change; a store that caches something drops it here."""

    def weights(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the weight of each stored memory.

        Args:
            queries: (n, d_k), or one query (d_k,). Any length.

        Returns:
            Weights, (n, M), or (M,).

        Raises:
            ValueError: the store is empty, the shape is wrong, or entries are not finite.
            TypeError: not a floating-point tensor of the keys' dtype.
        """
        rows, single = self._as_queries(queries)
        w = self._weights(rows)
        expected = (len(rows), len(self))
        if not isinstance(w, torch.Tensor) or tuple(w.shape) != expected:
            came = tuple(w.shape) if isinstance(w, torch.Tensor) else type(w).__name__
            raise ValueError(
                f"weights of store {self.name!r} must have shape (n, M) = {expected}, got {came}"
            )
        return w[0] if single else w

    def recall(self, queries: torch.Tensor) -> torch.Tensor:
        """Return what the store recalls, Σ_i w_i v_i.

        Args:
            queries: (n, d_k), or one query (d_k,).

        Returns:
            Recalled values, (n, d_v), or (d_v,).

        Raises:
            ValueError, TypeError: as :meth:`weights`.
        """
        rows, single = self._as_queries(queries)
        out = self._recall(rows)
        expected = (len(rows), self.values.shape[1])
        if not isinstance(out, torch.Tensor) or tuple(out.shape) != expected:
            came = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            raise ValueError(
                f"recall of store {self.name!r} must have shape (n, d_v) = {expected}, got {came}"
            )
        return out[0] if single else out

    def _as_queries(self, queries: torch.Tensor) -> tuple[torch.Tensor, bool]:
        keys, _ = self._filled()
        queries = _checks.floating("queries", queries)
        single = queries.ndim == 1
        rows = _checks.matrix("queries", queries[None] if single else queries, "(n, d_k) or (d_k,)")
        if rows.shape[1] != keys.shape[1]:
            raise ValueError(
                f"queries must have d_k = {keys.shape[1]} columns like the stored keys, got shape {tuple(queries.shape)}"
            )
        _checks.same_kind("queries", rows, "the stored keys", keys)
        return rows, single

    @abstractmethod
    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the weights, (n, M), of queries (n, d_k)."""

    def _recall(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the recalls, (n, d_v). Only a store with a state of its own has a reason to replace this."""
        return self.weights(queries) @ self.values


@final
class OuterProduct(Store):
    """Summed outer products, W = Σ v_i k_iᵀ = Vᵀ K: the weight of a memory is its similarity to the query.

    The state is the matrix W, (d_v, d_k): its size does not depend on M. Keys and values are kept beside it only so
    that weights can be looked at. Source: Kohonen 1972, "Correlation Matrix Memories".
    """

    name = "outer product"
    score = Linear()

    def __init__(self) -> None:
        super().__init__()
        self._state: torch.Tensor | None = None

    @property
    def W(self) -> torch.Tensor:
        """The state W, (d_v, d_k). Raises ValueError while nothing is stored."""
        self._filled()
        assert self._state is not None
        return self._state

    def _written(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        update = values.T @ keys  # one more memory adds v kᵀ and touches nothing else
        self._state = update if self._state is None else self._state + update

    def _changed(self) -> None:
        self._state = None

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self.keys.T

    def _recall(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self.W.T


@final
class LeastSquares(Store):
    """The best linear map: W = argmin Σ ‖W k_i - v_i‖² + λ ‖W‖².

    Without ridge it is Vᵀ (Kᵀ)⁺: the minimum-norm map through every memory for M ≤ d_k independent keys, the normal
    equations Vᵀ K (Kᵀ K)⁻¹ beyond. Duplicate and dependent keys are handled by the pseudoinverse: directions below
    the keys' own rounding count as zero. The work is done in float64 on the CPU, since MPS has no float64 and CUDA's
    ``lstsq`` assumes full rank; results come back on the queries' device and of their dtype.

    Args:
        ridge: λ ≥ 0, in units of a squared key length (1 for unit keys).

    Raises:
        ValueError: ridge negative or not finite.
        TypeError: ridge not a number.
    """

    def __init__(self, ridge: float = 0.0) -> None:
        super().__init__()
        self.ridge = _checks.real("ridge", ridge, low=0.0)
        self.name = "ridge" if self.ridge else "least squares"
        self._dual: torch.Tensor | None = None

    def _changed(self) -> None:
        self._dual = None

    @property
    def dual_keys(self) -> torch.Tensor:
        """The keys k̃_i that queries are really compared with, (M, d_k): weights are w_i = k̃_i · q.

        Without ridge these are the rows of K (Kᵀ K)⁺ = (K Kᵀ)⁺ K; for M ≤ d_k independent keys they are the dual
        basis, k̃_i · k_j = δ_ij.
        """
        keys = self.keys
        if self._dual is None:
            self._dual = _dual_keys(keys.cpu().double(), self.ridge, torch.finfo(keys.dtype).eps)
        return self._dual.to(keys.device, keys.dtype)

    @property
    def W(self) -> torch.Tensor:
        """The map W = Vᵀ K̃, (d_v, d_k)."""
        return self.values.T @ self.dual_keys

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return queries @ self.dual_keys.T


def _dual_keys(keys: torch.Tensor, ridge: float, eps: float) -> torch.Tensor:
    """Return K (KᵀK + λI)⁺ in float64, for float64 keys known to a relative precision of ``eps``."""
    M, d = keys.shape
    cutoff = max(M, d) * eps
    if M <= d:
        # The singular values themselves: squaring them first would lose half of the digits.
        left, sizes, right = torch.linalg.svd(keys, full_matrices=False)
        gain = _inverse(sizes**2 + ridge, alive=sizes > cutoff * sizes.max()) * sizes
        return (left * gain) @ right
    energies, directions = torch.linalg.eigh(keys.T @ keys)  # the normal equations: d × d however large M is
    # Forming KᵀK in float64 leaves rounding of its own, which can exceed the square of the keys' precision.
    floor = max(cutoff**2, 10 * d * torch.finfo(torch.float64).eps)
    inverse = _inverse(energies + ridge, alive=energies > floor * energies.max())
    return keys @ (directions * inverse) @ directions.T


def _inverse(x: torch.Tensor, *, alive: torch.Tensor) -> torch.Tensor:
    return torch.where(alive, 1 / torch.where(alive, x, torch.ones_like(x)), torch.zeros_like(x))


@final
class MLP(Store):
    """Vᵀ σ(K x), a two-layer MLP: rows of its first matrix are the keys, columns of its second the values.

    Args:
        score: the activation σ, any :class:`memstore_lib.scores.Score`.

    Raises:
        TypeError: not a score.
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        if not isinstance(score, Score):
            raise TypeError(f"score must be a Score, got {type(score).__name__}")
        self.score = score
        self.name = score.name

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        return self.score(queries @ self.keys.T)


STORES: dict[str, Callable[[], Store]] = {}


def register(name: str, make: Callable[[], Store]) -> Callable[[], Store]:
    """Add a store to :data:`STORES`, which the contract tests walk; returns ``make``.

    Args:
        name: how figures and tables call it.
        make: called without arguments, returns an empty store.

    Raises:
        ValueError: the name is empty or taken by another store.
        TypeError: ``make`` does not return a :class:`Store`.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a word or two, got {name!r}")
    store = make()
    if not isinstance(store, Store):
        raise TypeError(f"make must return a Store, got {type(store).__name__}")
    taken = STORES.get(name)
    if taken is not None and type(taken()).__qualname__ != type(store).__qualname__:
        raise ValueError(f"store name {name!r} is taken by {type(taken()).__name__}")
    STORES[name] = make
    return make


register("outer product", OuterProduct)
register("least squares", LeastSquares)
register("ridge", lambda: LeastSquares(ridge=0.1))
for _name, _score in SCORES.items():
    if _name not in STORES:
        register(_name, lambda score=_score: MLP(score))
