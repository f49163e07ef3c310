"""The delta rule as a store, so that the yardstick of the other chapters can be laid on it."""

from __future__ import annotations

from typing import final

import torch

from memstore_lib import _checks
from memstore_lib.delta_rule import WRITES, chunked
from memstore_lib.store import Store


@final
class DeltaRule(Store):
    """A linear memory that is written memory by memory, in order: S ← e^g S, then S ← S + k β (v - Sᵀk)ᵀ.

    What it recalls depends on the order of writing, unlike any other store of the book: ``ordered`` says so. Source:
    Schlag, Irie and Schmidhuber 2021; with decay Yang, Kautz and Hatamizadeh 2024.

    Args:
        beta: how much of each write is done, in (0, 1].
        g: logarithm of the decay before each write, at most 0.
        write: ``"delta"`` writes v - Sᵀk, ``"hebb"`` writes v. The second with β = 1 and g = 0 is the outer product.
        passes: how often all memories are written, in their order.
        name: the label in tables and figures; None makes one from the settings.

    Raises:
        ValueError: β, g or passes out of range, an unknown write.
        TypeError: arguments of another type.
    """

    ordered = True

    def __init__(
        self, beta: float = 1.0, g: float = 0.0, *, write: str = "delta", passes: int = 1, name: str | None = None
    ) -> None:
        super().__init__()
        self.beta = _checks.real("beta", beta, low=0.0, high=1.0, open_low=True)
        self.g, self.write_rule = _checks.real("g", g, high=0.0), _checks.choice("write", write, WRITES)
        self.passes = _checks.integer("passes", passes)
        parts = [f"β = {self.beta:g}"] if self.beta != 1 else []
        parts += [f"decay {1 - torch.tensor(self.g).exp().item():.3g}"] if self.g else []
        parts += [f"{self.passes} passes"] if self.passes > 1 else []
        self.name = name or ", ".join([{"delta": "delta rule", "hebb": "Hebb"}[self.write_rule], *parts])
        self._state: torch.Tensor | None = None

    def _changed(self) -> None:
        self._state = None

    def _weights(self, queries: torch.Tensor) -> torch.Tensor:
        """Weights are recalls of unit values: with V = I the state is (d_k, M), and Sᵀq holds a weight a memory."""
        if self._state is None:
            keys = self.keys
            M = len(keys)
            unit = torch.eye(M, dtype=keys.dtype, device=keys.device)
            beta, g = torch.full((1, 1, M), self.beta).to(keys), torch.full((1, 1, M), self.g).to(keys)
            k, v, state = keys[None, None], unit[None, None], None
            for _ in range(self.passes):
                _, state = chunked(k, k, v, beta, g, state, write=self.write_rule)
            assert state is not None
            self._state = state[0, 0].to(keys.dtype)
        return queries @ self._state
