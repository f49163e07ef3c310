"""Sharpness rules: how β grows with the number M of memories in the context.

::

    M     stored memories (tokens in the context)
    L     reference length, at which every rule gives the reference β; 1,024 in the source
    β     reference sharpness at M = L; 8 = √64 in the source

A rule is a function of M. Put into :class:`memstore_lib.scores.Exponential` it gives the score at that M.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from memstore_lib import _checks
from memstore_lib.scores import Exponential


@dataclass(frozen=True)
class Sharpness(ABC):
    """A rule β(M).

    Args:
        beta: reference sharpness, at least 0 and finite.
        L: reference length, above 1: the rules divide by log L.

    Raises:
        ValueError: β or L out of range.
        TypeError: β or L not a number.
    """

    beta: float = 8.0
    L: int = 1024

    name = "rule"
    latex = r"\beta(M)"

    def __post_init__(self) -> None:
        _checks.real("beta", self.beta, low=0.0)
        _checks.real("L", self.L, low=1.0, open_low=True)

    def __call__(self, M: float) -> float:
        """Return β at M memories.

        Raises:
            ValueError: M below 1 or not finite.
            TypeError: M not a number.
        """
        return self.beta * self._factor(_checks.real("M", M, low=1.0))

    def score(self, M: float) -> Exponential:
        """Return the exponential score with the sharpness that the rule gives at M."""
        return Exponential(self(M))

    @abstractmethod
    def _factor(self, M: float) -> float:
        """Return β(M) / β."""


class Fixed(Sharpness):
    """β at every M: plain attention."""

    name = "fixed β"
    latex = r"\beta"

    def _factor(self, M: float) -> float:
        return 1.0


class Su(Sharpness):
    """β log M / log L, at every M. Source: Su 2021, from keeping the entropy of attention constant."""

    name = "Su: log M"
    latex = r"\beta \log M / \log L"

    def _factor(self, M: float) -> float:
        return math.log(M) / math.log(self.L)


@dataclass(frozen=True)
class ScalableSoftmax(Sharpness):
    """s log M with a free s, which a model learns. Source: Nakanishi 2025, "Scalable-Softmax".

    Args:
        s: factor, at least 0; None for β / log L, which is Su's rule.
    """

    s: float | None = None

    name = "Scalable-Softmax"
    latex = r"s \log M"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.s is not None:
            _checks.real("s", self.s, low=0.0)

    def __call__(self, M: float) -> float:
        """Return s log M."""
        M = _checks.real("M", M, low=1.0)
        return (self.beta / math.log(self.L) if self.s is None else self.s) * math.log(M)

    def _factor(self, M: float) -> float:
        return math.log(M) / math.log(self.L)


class QwenLogN(Sharpness):
    """β log M / log L for M above L, β below: Su's rule that never softens. Source: Qwen's LogN scaling."""

    name = "Qwen LogN"
    latex = r"\beta \max(1, \log M / \log L)"

    def _factor(self, M: float) -> float:
        return max(1.0, math.log(M) / math.log(self.L))


@dataclass(frozen=True)
class YaRN(Sharpness):
    """β (0.1 log(M/L) + 1)². Source: YaRN's attention scaling as Qwen2.5-1M uses it.

    Args:
        clamp: keep β from falling below L, as implementations do; the formula as printed would shrink it there.
    """

    clamp: bool = False

    name = "YaRN"
    latex = r"\beta \left(0.1 \log(M/L) + 1\right)^2"

    def _factor(self, M: float) -> float:
        root = 0.1 * math.log(M / self.L) + 1
        factor = max(root, 0.0) ** 2
        return max(1.0, factor) if self.clamp else factor
