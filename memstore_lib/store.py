"""What every store is: memories are written, a query is asked, a weighted sum of values is recalled.

::

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
from collections.abc import Iterable, Sequence

import torch

from memstore_lib import _checks


class Store(ABC):
    """A key-value memory. A subclass states ``name`` and ``_weights``; writing and recall are done here."""

    name: str
    ordered = False  # whether what is recalled depends on the order of writing

    def __init__(self) -> None:
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        self._edits: tuple[int, int] | None = None

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)  # a deep copy's tensors count their edits from another number on
        if self._keys is not None and self._values is not None:
            self._edits = _edits(self._keys, self._values)

    def __len__(self) -> int:
        """The number of stored memories, M."""
        return 0 if self._keys is None else len(self._keys)

    @property
    def keys(self) -> torch.Tensor:
        """Stored keys, (M, d_k), no copy. Clone them before an edit in place, which a store notices and refuses.

        Raises ValueError while nothing is stored, and after such an edit.
        """
        return self._filled()[0]

    @property
    def values(self) -> torch.Tensor:
        """Stored values, (M, d_v), with the same care as :attr:`keys`."""
        return self._filled()[1]

    def _filled(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._keys is None or self._values is None:
            raise ValueError(f"store {self.name!r} is empty: write keys and values first")
        if self._edits is not None and self._edits != _edits(self._keys, self._values):
            raise ValueError(
                f"keys and values of store {self.name!r} must not be edited in place once they are written: "
                "clone() them, and write the edited ones to a .fresh() store"
            )
        return self._keys, self._values

    def fresh(self) -> Store:
        """Return an empty store with the same settings."""
        new = copy.copy(self)
        new._keys = new._values = new._edits = None
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
        if self._keys is not None:
            self._filled()
        if self._keys is None or self._values is None:
            # Clones: a caller who later edits its tensors in place must not edit the memory.
            self._keys, self._values = keys.clone(), values.clone()
        else:
            self._fits("keys", keys, self._keys)
            self._fits("values", values, self._values)
            self._keys = torch.cat([self._keys, keys])
            self._values = torch.cat([self._values, values])
        self._written(keys, values)
        self._edits = None if self._keys is None or self._values is None else _edits(self._keys, self._values)
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
            raise ValueError(f"keys must not be zero, got a key of norm 0 in row {row}: no query can ask for it")
        return keys, values

    def _fits(self, name: str, new: torch.Tensor, old: torch.Tensor) -> None:
        if new.shape[1] != old.shape[1]:
            raise ValueError(
                f"{name} must have {old.shape[1]} columns like the {len(old)} stored {name}, "
                f"got shape {tuple(new.shape)}"
            )
        _checks.same_kind(name, new, f"the stored {name}", old)

    def _written(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Called after each write with what was appended; a store that keeps a state of its own updates it here."""
        self._changed()

    def _changed(self) -> None:  # noqa: B027 - most stores cache nothing
        """Called whenever the memories change; a store that caches something drops it here."""

    def weights(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the weight of each stored memory.

        Args:
            queries: (n, d_k), or one query (d_k,). Any length.

        Returns:
            Weights, (n, M), or (M,).

        Raises:
            ValueError: the store is empty, the shape is wrong, entries are not finite, or stored keys or values were
                edited in place.
            TypeError: not a floating-point tensor of the keys' dtype.
        """
        rows, single = self._as_queries(queries)
        w = self._weights(rows)
        expected = (len(rows), len(self))
        if not isinstance(w, torch.Tensor) or tuple(w.shape) != expected:
            came = tuple(w.shape) if isinstance(w, torch.Tensor) else type(w).__name__
            raise ValueError(f"weights of store {self.name!r} must have shape (n, M) = {expected}, got {came}")
        self._finite("weights", w)
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
            raise ValueError(f"recall of store {self.name!r} must have shape (n, d_v) = {expected}, got {came}")
        self._finite("recall", out)
        return out[0] if single else out

    def _finite(self, name: str, out: torch.Tensor) -> None:
        if not bool(torch.isfinite(out).all()):
            raise ValueError(
                f"{name} of store {self.name!r} must be finite, got NaN or infinity in {out.dtype}: "
                "use a smaller β, shorter keys and queries, or float64"
            )

    def _as_queries(self, queries: torch.Tensor) -> tuple[torch.Tensor, bool]:
        keys, _ = self._filled()
        queries = _checks.floating("queries", queries)
        single = queries.ndim == 1
        rows = _checks.matrix("queries", queries[None] if single else queries, "(n, d_k) or (d_k,)")
        if rows.shape[1] != keys.shape[1]:
            raise ValueError(
                f"queries must have d_k = {keys.shape[1]} columns like the stored keys, "
                f"got shape {tuple(queries.shape)}"
            )
        _checks.same_kind("queries", rows, "the stored keys", keys)
        return rows, single

    @abstractmethod
    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the weights, (n, M), of queries (n, d_k)."""

    def _recall(self, queries: torch.Tensor) -> torch.Tensor:
        """Return the recalls, (n, d_v). Only a store with a state of its own has a reason to replace this."""
        return self.weights(queries) @ self.values


def _edits(keys: torch.Tensor, values: torch.Tensor) -> tuple[int, int] | None:
    """Return how often two tensors were edited in place; None in inference mode, which does not count."""
    return None if keys.is_inference() or values.is_inference() else (keys._version, values._version)


def empty_store(store: Store) -> Store:
    """Return a store, refusing one that holds memories already.

    Raises:
        ValueError: it is not empty.
        TypeError: it is not a store.
    """
    if not isinstance(store, Store):
        raise TypeError(f"store must be a Store, got {type(store).__name__}")
    if len(store):
        raise ValueError(f"store must be empty, got {store.name!r} with {len(store)} memories; use .fresh()")
    return store


def empty_stores(stores: Store | Sequence[Store]) -> list[Store]:
    """Return one or several stores as a list, refusing stores that hold memories already or share a name.

    Raises:
        ValueError: no store, one that is not empty, or two of one name.
        TypeError: something that is not a store.
    """
    if not isinstance(stores, (Store, Iterable)):
        raise TypeError(f"stores must be a Store or a sequence of them, got {type(stores).__name__}")
    items = [stores] if isinstance(stores, Store) else list(stores)
    if not items:
        raise ValueError("stores must hold at least one store, got none")
    for i, store in enumerate(items):
        if not isinstance(store, Store):
            raise TypeError(f"stores[{i}] must be a Store, got {type(store).__name__}")
        if len(store):
            raise ValueError(f"stores[{i}] must be empty, got {store.name!r} with {len(store)} memories; use .fresh()")
    names = [store.name for store in items]
    if len(set(names)) < len(names):
        raise ValueError(f"stores must have different names, got {names}")
    return items
