"""What counts the similarities: the one thing that a faster way of counting has to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from memstore_lib import counting

#: Keys that are counted at a time.
AT_A_TIME = 4096


class Histograms(Protocol):
    """Histograms of the similarities of a bank of queries with the keys that were added."""

    def add(self, keys: torch.Tensor) -> None:
        """Count the similarities of all queries with some keys, (at most AT_A_TIME, d)."""

    def flush(self) -> torch.Tensor:
        """Return the counts of all keys so far, (queries, bins), whole numbers on the CPU."""


#: Makes histograms for a bank of queries, (queries, d), with a number of bins.
Make = Callable[[torch.Tensor, int], Histograms]

default: Make = counting._Counter
