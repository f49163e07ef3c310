"""Estimates with their confidence intervals, always from independent replicates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import special

from memstore_lib import _checks


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        value: the estimate.
        low, high: ends of the interval.
        level: its confidence.
        n: independent replicates behind it.
        standard_error: of the estimate.
    """

    value: float
    low: float
    high: float
    level: float
    n: int
    standard_error: float

    def __str__(self) -> str:
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"

    def __format__(self, spec: str) -> str:
        """Format the three numbers by one format, such as ``f"{interval:.2f}"``."""
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]" if spec else str(self)


def number(x: float) -> str:
    """Return four significant digits of a number as a text, without an exponent up to a billion."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 else f"{x:.4g}"


def interval(samples: Iterable[float], level: float = 0.95) -> Interval:
    """Return the mean of independent samples with its t interval.

    Args:
        samples: at least 2 numbers.
        level: confidence, in (0, 1).

    Raises:
        ValueError: fewer than 2 samples, NaN among them, or a level out of range.
        TypeError: not a sequence.
    """
    _checks.instance("samples", samples, Iterable, "a sequence of numbers")
    x = np.asarray(list(samples), dtype=float)
    level = _level(level)
    if x.ndim != 1 or len(x) < 2:
        raise ValueError(f"samples must be at least 2 numbers for an interval, got {len(x)}")
    if np.isnan(x).any():
        raise ValueError("samples must not contain NaN")
    if np.isinf(x).any():
        return Interval(math.inf, math.inf, math.inf, level, len(x), math.inf)
    se = float(x.std(ddof=1)) / math.sqrt(len(x))
    half = float(special.stdtrit(len(x) - 1, (1 + level) / 2)) * se
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, level, len(x), se)


def _level(level: float) -> float:
    if not 0 < _checks.real("level", level) < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level:g}")
    return float(level)


def root(x: Interval) -> Interval:
    """Carry an interval of a mean square over to its root.

    Raises:
        TypeError: not an interval.
    """
    _checks.instance("x", x, Interval, "an Interval")
    value = math.sqrt(x.value)
    se = x.standard_error / (2 * value) if 0 < value < math.inf else x.standard_error
    return Interval(value, math.sqrt(max(x.low, 0.0)), math.sqrt(x.high), x.level, x.n, se)
