"""Laws: what a measurement should give. Nothing here samples.

::

    s     similarity of two independent unit keys in d dimensions, density ∝ (1 - s²)^((d-3)/2)
    ISR   interference-to-signal ratio, ‖interference‖ / ‖signal‖; capacity is the M at which it reaches 1
    c     cosine between the query and the key it asks for
    γ     load, M / d

For an elementwise score σ the law is exact at every d, M and c: the M - 1 other keys interfere independently, so
ISR² = (M - 1) E[σ(s)²] / σ(c)² as a mean over draws. The rules of thumb (:data:`RULES`) are the source article's.
The laws of least squares are in :mod:`memstore_lib.least_squares`, and can be had from here as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from scipy import optimize, special

from memstore_lib import _checks, exponentials
from memstore_lib.least_squares import best_ridge as best_ridge
from memstore_lib.least_squares import least_squares_capacity as least_squares_capacity
from memstore_lib.least_squares import least_squares_isr as least_squares_isr
from memstore_lib.least_squares import least_squares_signal as least_squares_signal
from memstore_lib.least_squares import least_squares_signal_density as least_squares_signal_density
from memstore_lib.least_squares import least_squares_signal_spread as least_squares_signal_spread
from memstore_lib.least_squares import noisy_least_squares_isr as noisy_least_squares_isr
from memstore_lib.scores import Exponential, Score

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


def similarity_density(s: np.ndarray, d: int) -> np.ndarray:
    """Return the density of the similarity of two random unit vectors in d ≥ 2 dimensions at s in (-1, 1)."""
    d = _checks.integer("d", d, minimum=2)
    s = np.asarray(s, dtype=float)
    if s.size and not (np.abs(s) < 1).all():
        raise ValueError(f"s must lie strictly between -1 and 1, got values up to {np.abs(s).max():g}")
    log_norm = math.lgamma(d / 2) - math.lgamma((d - 1) / 2) - 0.5 * math.log(math.pi)
    return np.exp(log_norm + (d - 3) / 2 * np.log1p(-(s**2)))


def similarity_curve(dimensions: Iterable[int], points: int = 201) -> pd.DataFrame:
    """Return :func:`similarity_density` as a tidy table: series ("d = 64"), x and density.

    Each curve spans four standard deviations, or the open interval (-1, 1) where that is shorter.

    Raises:
        ValueError: no or unsorted dimensions, one below 2, or fewer than 2 points.
        TypeError: sizes that are not integers.
    """
    points, rows = _checks.integer("points", points, minimum=2, maximum=_checks.LONGEST), []
    for d in _checks.grid(dimensions, name="dimensions", minimum=2):
        x = np.linspace(-1, 1, points) * min(0.999, 4 / math.sqrt(d))
        rows += [(f"d = {d}", *pair) for pair in zip(x, similarity_density(x, d), strict=True)]
    return pd.DataFrame(rows, columns=["series", "x", "density"])


def _panels(d: int, kinks: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return similarities and probability weights whose weighted sums are expectations over s.

    With s = sin θ the density becomes cos^(d-2) θ, smooth and free of end-point singularities. Panels end at the
    kinks of the score and at ±12 standard deviations, where Gauss-Legendre would otherwise waste its nodes.
    """
    if d == 1:  # the sphere is two points
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    reach = min(math.pi / 2, 12 / math.sqrt(d))
    edges = sorted({-math.pi / 2, -reach, 0.0, reach, math.pi / 2, *(math.asin(k) for k in kinks if abs(k) < 1)})
    theta = np.concatenate([(b - a) / 2 * _NODES + (a + b) / 2 for a, b in pairwise(edges)])
    step = np.concatenate([(b - a) / 2 * _WEIGHTS for a, b in pairwise(edges)])
    with np.errstate(divide="ignore"):
        mass = step * np.exp((d - 2) * np.log(np.cos(theta)))
    return np.sin(theta), mass / mass.sum()


def _is_score(score: object) -> None:
    if not isinstance(score, Score):
        raise TypeError(f"score must be a Score, got {type(score).__name__}")


def _evaluate(score: Score, s: np.ndarray) -> np.ndarray:
    _is_score(score)
    out = score(torch.from_numpy(np.ascontiguousarray(s, dtype=np.float64)))
    if not isinstance(out, torch.Tensor) or out.shape != s.shape:
        came = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        raise ValueError(f"score {score.name!r} must be elementwise: shape {s.shape} went in, {came} came out")
    result = out.numpy()
    if not np.isfinite(result).all():
        raise ValueError(f"score {score.name!r} must be finite on [-1, 1], got NaN or infinity: {score.hint}")
    return result


def moment(score: Score, d: int, power: int = 2) -> float:
    """Return E[σ(s)^power] over the similarity s of two random unit keys, by quadrature.

    The exponential score of a very large β is too steep for that, and has a closed form.

    Args:
        score: an elementwise score.
        d: key dimension, at least 1.
        power: which moment, at least 1; the interference per memory is the second.

    Raises:
        ValueError: d or power below 1, a score that is not elementwise or not finite on [-1, 1], or one whose power
            is too large for a float.
        TypeError: not a score, or d or power not an integer.
    """
    _is_score(score)
    d, power = _checks.integer("d", d), _checks.integer("power", power)
    if isinstance(score, Exponential) and power * score.beta > 1e5:
        return math.exp(exponentials.log_mean(power * score.beta, d))
    s, mass = _panels(d, getattr(score, "kinks", (0.0,)))
    with np.errstate(over="ignore"):
        mean = float(mass @ _evaluate(score, s) ** power)
    if not math.isfinite(mean):
        raise ValueError(
            f"score {score.name!r} must have a finite mean of its power {power}, got overflow: {score.hint}"
        )
    return mean


def _signal(score: Score, cosine: float) -> float:
    """Return |σ(c)|, whose square must fit a float like all squares."""
    _is_score(score)
    signal = abs(float(_evaluate(score, np.array([_checks.cosine(cosine)]))[0]))
    if signal > 1e150:
        raise ValueError(f"score {score.name!r} must be at most 1e150, got {signal:.3g}: {score.hint}")
    return signal


def isr(score: Score, M: int, d: int, cosine: float = 1.0) -> float:
    """Return the exact root-mean-square interference-to-signal ratio, ``√((M - 1) E[σ²]) / |σ(c)|``.

    Args:
        score: an elementwise score.
        M: stored memories, the target among them, at least 1.
        d: key dimension, at least 1.
        cosine: c between query and key, in [-1, 1].

    Returns:
        The ratio; infinity where the score is 0 at the cosine.

    Raises:
        ValueError, TypeError: as :func:`moment`, and for a cosine outside [-1, 1].
    """
    M = _checks.integer("M", M)
    signal = _signal(score, cosine)
    noise = math.sqrt((M - 1) * moment(score, d))
    return noise / signal if signal else math.inf


def capacity(score: Score, d: int, cosine: float = 1.0) -> float:
    """Return the M at which :func:`isr` is 1: 1 + σ(c)² / E[σ²]; infinity for a score that never interferes."""
    second = moment(score, d)
    return 1 + _signal(score, cosine) ** 2 / second if second else math.inf


def curve(
    store: str, ratio: Callable[[int], float], grid: Iterable[int], kind: str = "law", x: str = "M"
) -> pd.DataFrame:
    """Return a law along M as a tidy table, ready to be drawn beside a measurement's.

    Args:
        store: the name of the store the law is of.
        ratio: the ISR as a function of M.
        grid: increasing numbers of memories.
        kind: ``"law"`` for an exact law, ``"rule"`` for a rule of thumb.
        x: name of the grid's column, if the law does not run along M.

    Returns:
        A table with store, M (or ``x``), kind, value, and NaN as low and high.

    Raises:
        ValueError: an empty or unsorted grid, or another kind.
        TypeError: ``ratio`` is no function, or the grid no sequence of integers.
    """
    _checks.function("ratio", ratio)
    _checks.choice("kind", kind, ("law", "rule"))
    rows = [(store, at, kind, ratio(at), math.nan, math.nan) for at in _checks.grid(grid)]
    return pd.DataFrame(rows, columns=["store", x, "kind", "value", "low", "high"])


@dataclass(frozen=True)
class Rule:
    """A rule of thumb of the source article.

    Attributes:
        isr: ratio from M and d.
        capacity: memories from d.
        latex: the capacity formula.
    """

    isr: Callable[[float, float], float]
    capacity: Callable[[float], float]
    latex: str


#: The source article's rules of thumb, by the name of the store; softmax at its β = √d.
RULES: dict[str, Rule] = {
    "outer product": Rule(lambda M, d: math.sqrt(M / d), lambda d: d, "d"),
    "least squares": Rule(lambda M, d: math.sqrt(max(M / d - 1, 0.0)), lambda d: 2 * d, "2d"),
    "ReLU": Rule(lambda M, d: math.sqrt(M / (2 * d)), lambda d: 2 * d, "2d"),
    "ReLU²": Rule(lambda M, d: math.sqrt(3 * M / (2 * d**2)), lambda d: 2 * d**2 / 3, "2d^2/3"),
    "ReLU³": Rule(lambda M, d: math.sqrt(15 * M / (2 * d**3)), lambda d: 2 * d**3 / 15, "2d^3/15"),
    "softmax": Rule(
        lambda M, d: math.sqrt(M) * math.exp(1 - math.sqrt(d)),
        lambda d: math.exp(2 * math.sqrt(d) * (1 - 1 / math.sqrt(d))),
        r"e^{2\sqrt{d} - 2}",
    ),
}


def top1_accuracy(M: float, d: int) -> float:
    """Return the chance that the outer-product store points at the right one of its M values.

    Keys and values are unit vectors in d dimensions. Beside the right value v_j and a wrong one v_i with s = k_i·k_j,
    the recall is r = v_j + s v_i + n, where the noise n of the others is nearly Gaussian with variance (M-2)/d² a
    component. The wrong one wins where v_i·r > v_j·r, that is v_i·ρ > 1 - s + n·v_j with ρ = (1 - s) v_j + n, and v_i·ρ
    is ‖ρ‖ times a sphere similarity. The wrong ones are taken as independent, which costs about 4 % in M at d = 32 and
    less above.

    Args:
        M: stored memories, at least 1; need not be whole, so that a capacity can be solved for.
        d: dimension of keys and values, at least 4.

    Raises:
        ValueError: M or d too small.
        TypeError: M not a number, d not an integer.
    """
    M, d = _checks.real("M", M, low=1.0), _checks.integer("d", d, minimum=4)
    sigma = math.sqrt(max(M - 2, 0)) / d
    along, p_along = special.roots_hermitenorm(32)
    ranks = (np.arange(12) + 0.5) / 12  # equally likely lengths of the noise across v_j
    across = sigma * np.sqrt(2 * special.gammaincinv((d - 1) / 2, ranks))
    s, p_s = special.roots_gegenbauer(32, (d - 2) / 2)
    gap = (1 + sigma * along)[:, None, None] - s  # ρ along v_j
    # The distribution function of a sphere similarity is a symmetric Beta's.
    x = np.clip((gap / np.hypot(gap, across[:, None]) + 1) / 2, 0, 1)
    below = np.clip(special.betainc((d - 1) / 2, (d - 1) / 2, x) @ (p_s / p_s.sum()), 1e-300, 1)
    return float((p_along / p_along.sum()) @ (below ** (M - 1)).mean(1))


def top1_capacity(accuracy: float, d: int) -> float:
    """Return the M at which :func:`top1_accuracy` falls to ``accuracy``, between 0.01 and 0.9999.

    Raises:
        ValueError: accuracy out of range, d below 4.
    """
    accuracy, d = (
        _checks.real("accuracy", accuracy, low=0.01, high=0.9999),
        _checks.integer("d", d, minimum=4),
    )
    gap = lambda log_m: top1_accuracy(math.exp(log_m), d) - accuracy  # noqa: E731
    return math.exp(optimize.brentq(gap, math.log(1.0 + 1e-9), math.log(100.0 * d * d)))
