"""A power law fitted to a smoothed loss, as the source reads its end points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize

from memstore_lib import _checks


@dataclass(frozen=True)
class PowerLaw:
    """loss = scale · step^(-exponent).

    Attributes:
        scale, exponent: of the law.
        last_step: where the fitted run ends.
    """

    scale: float
    exponent: float
    last_step: int

    def __call__(self, step: float) -> float:
        """Return the loss at a step, in nats a token."""
        return self.scale * _checks.real("step", step, low=0.0, open_low=True) ** -self.exponent

    @property
    def end(self) -> float:
        """The loss at the last step, which is what the source reports of a run."""
        return self(self.last_step)


def smooth(losses: object, window: int) -> np.ndarray:
    """Return means over the last ``window`` losses at each step that has so many before it, (n - window + 1,).

    Raises:
        ValueError: losses not finite or fewer than the window; a window below 1.
    """
    window, y = _checks.integer("window", window), np.asarray(losses, dtype=float)
    if y.ndim != 1 or not np.isfinite(y).all():
        raise ValueError(f"losses must be a finite sequence, got shape {y.shape} with {np.isfinite(y).sum()} finite")
    if len(y) < window:
        raise ValueError(f"losses must hold at least {window}, the window, got {len(y)}")
    return np.convolve(y, np.full(window, 1 / window), mode="valid")


def fit(history: pd.DataFrame, *, window: int = 500, share: float = 0.8) -> PowerLaw:
    """Fit a power law to a run's training loss by least squares.

    Args:
        history: of one run, with columns step and training_loss.
        window: steps that a smoothed loss is the mean of.
        share: the share of the run, from its end, that is fitted.

    Raises:
        ValueError: several runs in one table, fewer than two smoothed losses to fit, a window or share out of range.
        KeyError: a column is missing.
    """
    share = _checks.real("share", share, low=0.0, high=1.0, open_low=True)
    step = history["step"].to_numpy(float)
    if not (np.diff(step) > 0).all():
        raise ValueError("history must hold one run, with growing steps, got steps that do not grow")
    y = smooth(history["training_loss"], window)
    x = step[window - 1 :]
    kept = x > round(step[-1] * (1 - share), 6)  # 1 - 0.8 is a little less than 0.2
    if kept.sum() < 2:
        raise ValueError(f"history must leave at least two smoothed losses to fit, got {int(kept.sum())}")
    x, y = x[kept], y[kept]
    slope, offset = np.polyfit(np.log(x), np.log(y), 1)  # a start near the end
    (scale, exponent), _ = optimize.curve_fit(lambda s, a, b: a * s**-b, x, y, p0=(np.exp(offset), -slope))
    return PowerLaw(float(scale), float(exponent), int(step[-1]))
