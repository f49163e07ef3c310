"""The result of measuring interference: replicates in a table, and what is read off them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memstore_lib import _checks
from memstore_lib.intervals import Interval, interval, root

STATISTICS = ("rms", "mean", "median")


@dataclass(frozen=True)
class Measurement:
    """What :func:`memstore_lib.measure.interference` measured.

    Attributes:
        replicates: a row for each store, M and replicate: store, d, M, cosine, replicate, and over that replicate's
            queries ``mean_square``, ``mean`` and ``median`` of the ISR.
    """

    replicates: pd.DataFrame

    def __post_init__(self) -> None:
        _checks.instance("replicates", self.replicates, pd.DataFrame, "a table")

    def _samples(self, store: str, cosine: float | None = None) -> pd.DataFrame:
        _checks.choice("store", store, list(self.replicates["store"].unique()))
        rows = self.replicates[self.replicates["store"] == store]
        known = sorted(rows["cosine"].unique().tolist())
        if cosine is None and len(known) > 1:
            raise ValueError(f"cosine must be given where several were measured ({known}), got None")
        if cosine is not None and cosine not in known:
            raise ValueError(f"cosine must be one of those measured ({known}), got {cosine!r}")
        return rows if cosine is None else rows[rows["cosine"] == cosine]

    def at(
        self, store: str, M: int, statistic: str = "rms", level: float = 0.95, cosine: float | None = None
    ) -> Interval:
        """Return the ISR of one store at one M of the grid, and at one cosine where several were measured.

        Raises:
            ValueError: a store, an M, a statistic or a cosine that was not measured.
        """
        rows = self._samples(store, cosine)
        rows = rows[rows["M"] == M]
        if rows.empty:
            grid = sorted(self.replicates["M"].unique().tolist())
            raise ValueError(f"M must be on the measured grid {grid}, got {M}")
        return _statistic(rows, statistic, level)

    def table(self, statistic: str = "rms", level: float = 0.95) -> pd.DataFrame:
        """Return a tidy table: store, d, M, cosine, kind = "measured", value, low, high.

        Raises:
            ValueError: an unknown statistic, or a level outside (0, 1).
        """
        _checks.choice("statistic", statistic, STATISTICS)
        rows = []
        for (store, d, M, cosine), group in self.replicates.groupby(["store", "d", "M", "cosine"], sort=False):
            found = _statistic(group, statistic, level)
            rows.append((store, d, M, cosine, "measured", found.value, found.low, found.high))
        return pd.DataFrame(rows, columns=["store", "d", "M", "cosine", "kind", "value", "low", "high"])

    def capacity(
        self, store: str, statistic: str = "rms", level: float = 0.95, cosine: float | None = None
    ) -> Interval:
        """Return the M at which the ISR first reaches 1.

        Args:
            store: one of the measured stores.
            statistic: rms, mean or median. With noisy queries a store's signal can pass through 0, its rms ratio then
                has no finite mean, and the median is the one to ask for.
            level: confidence of the interval.
            cosine: which one, where several were measured.

        In each replicate ISR² is interpolated linearly in M between the grid points around 1, which is exact for the
        laws of the elementwise scores and of least squares. The interval is over the replicates.

        Raises:
            ValueError: the ratio does not cross 1 within the grid in some replicate; an unknown store or statistic.
        """
        _checks.choice("statistic", statistic, STATISTICS)
        crossings = [
            _crossing(group["M"].to_numpy(float), _squares(group, statistic), store)
            for _, group in self._samples(store, cosine).groupby("replicate")
        ]
        return interval(crossings, level)


def histogram(series: Mapping[str, object], *, bins: int = 60, low: float = -1.0, high: float = 1.0) -> pd.DataFrame:
    """Count samples into bins, one series beside the other.

    Args:
        series: label to samples, a tensor or an array of any shape.
        bins: equal bins over [low, high].
        low, high: ends of the range; samples outside are refused rather than dropped.

    Returns:
        A tidy table of the bins that were hit: series, left, right, density (integrates to 1 for each series).

    Raises:
        ValueError: no series, no samples, samples outside the range or not finite, low not below high, more than 2^20
            bins.
        TypeError: not a mapping, or bins not an integer.
    """
    _checks.instance("series", series, Mapping, "a mapping of labels to samples")
    bins = _checks.integer("bins", bins, maximum=_checks.LONGEST)
    if not low < high:
        raise ValueError(f"low must be below high, got {low:g} and {high:g}")
    if not series:
        raise ValueError("series must hold at least one label, got none")
    rows = []
    for label, samples in series.items():
        x = np.asarray(samples, dtype=float).ravel()
        if x.size == 0 or not ((x >= low) & (x <= high)).all():
            came = "none" if x.size == 0 else f"values from {x.min():g} to {x.max():g}"
            raise ValueError(f"series {label!r} must have samples within [{low:g}, {high:g}], got {came}")
        density, edges = np.histogram(x, bins=bins, range=(low, high), density=True)
        rows += [(label, a, b, y) for a, b, y in zip(edges[:-1], edges[1:], density, strict=True) if y > 0]
    return pd.DataFrame(rows, columns=["series", "left", "right", "density"])


def _squares(group: pd.DataFrame, statistic: str) -> np.ndarray:
    return group["mean_square"].to_numpy(float) if statistic == "rms" else group[statistic].to_numpy(float) ** 2


def _statistic(rows: pd.DataFrame, statistic: str, level: float) -> Interval:
    _checks.choice("statistic", statistic, STATISTICS)
    if statistic == "rms":
        return root(interval(rows["mean_square"], level))
    return interval(rows[statistic], level)


def _crossing(M: np.ndarray, squares: np.ndarray, store: str) -> float:
    above = np.flatnonzero(squares >= 1)
    if len(above) == 0 or above[0] == 0:
        side = "ends below" if len(above) == 0 else "starts above"
        raise ValueError(
            f"grid must hold the M where the ratio of {store!r} is 1: it {side} it, "
            f"with {math.sqrt(squares[0]):.3g} at M = {M[0]:g} and {math.sqrt(squares[-1]):.3g} at M = {M[-1]:g}"
        )
    right = above[0]
    left = right - 1
    return float(M[left] + (1 - squares[left]) / (squares[right] - squares[left]) * (M[right] - M[left]))
