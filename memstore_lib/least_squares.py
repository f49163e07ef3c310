"""Laws of the least-squares store, with ridge and without. Nothing here samples.

::

    P_jj  the target's weight at its own key, the j-th diagonal entry of a projection
    γ     load, M / d
    c     cosine between the query and the key it asks for
    λ     ridge

All of it can be had from :mod:`memstore_lib.theory` as well.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from memstore_lib import _checks


def least_squares_signal(M: int, d: int) -> float:
    """Return the mean weight of the target at its own key, min(1, d/M): the trace of a projection shared by M."""
    return min(1.0, _checks.integer("d", d) / _checks.integer("M", M))


def least_squares_signal_density(x: np.ndarray, M: int, d: int) -> np.ndarray:
    """Return the density of the target's weight P_jj at x for Gaussian keys: Beta(d/2, (M - d)/2), for M > d.

    Raises:
        ValueError: M not above d, d below 1, or x outside (0, 1).
        TypeError: sizes that are not integers.
    """
    d = _checks.integer("d", d)
    a, b = d / 2, (_checks.integer("M", M, minimum=d + 1) - d) / 2
    x = np.asarray(x, dtype=float)
    if not ((x > 0) & (x < 1)).all():
        raise ValueError(f"x must lie strictly between 0 and 1, got values from {x.min():g} to {x.max():g}")
    return np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - special.betaln(a, b))


def least_squares_signal_spread(M: int, d: int, keys: str = "unit") -> float:
    """Return the standard deviation of the target's weight P_jj for M > d.

    For Gaussian keys it is the Beta distribution's; for unit keys √((2/d)(γ - 1)/γ⁴) with γ = M/d, for large d.

    Raises:
        ValueError: M not above d, d below 1, or another kind of keys.
        TypeError: sizes that are not integers.
    """
    d = _checks.integer("d", d)
    M = _checks.integer("M", M, minimum=d + 1)
    if _checks.choice("keys", keys, ("unit", "gaussian")) == "unit":
        return math.sqrt(2 / d * (M / d - 1)) * (d / M) ** 2
    return math.sqrt(2 * d * (M - d) / (M**2 * (M + 2)))


def least_squares_isr(M: int, d: int, keys: str = "unit") -> float:
    """Return the root-mean-square ratio of the least-squares store asked with stored keys.

    It is 0 for M ≤ d. Beyond, with P_jj the target's weight, ISR² = (1 - P_jj) / P_jj, and

    * ``"gaussian"`` keys: P_jj ~ Beta(d/2, (M-d)/2), so ISR² averages to (M - d) / (d - 2), exactly;
    * ``"unit"`` keys: P_jj has the same mean d/M and a smaller variance, (2/d)(γ - 1)/γ⁴ to first order in 1/d, which
      gives ISR² ≈ (M - d)/d · (1 + 2/M). Derived in chapter 2.

    Args:
        M: stored memories, at least 1.
        d: key dimension, at least 1, and above 2 for Gaussian keys beyond M = d.
        keys: ``"unit"`` or ``"gaussian"``.

    Raises:
        ValueError: sizes below these, or another kind of keys.
        TypeError: sizes that are not integers.
    """
    M, d = _checks.integer("M", M), _checks.integer("d", d)
    _checks.choice("keys", keys, ("unit", "gaussian"))
    if M <= d:
        return 0.0
    if keys == "unit":
        return math.sqrt((M - d) / d * (1 + 2 / M))
    _checks.integer("d", d, minimum=3)  # the mean of 1 / P_jj is infinite at d = 2
    return math.sqrt((M - d) / (d - 2))


def least_squares_capacity(d: int, keys: str = "unit") -> float:
    """Return the M at which :func:`least_squares_isr` is 1.

    It is 2d - 2 for Gaussian keys and d - 1 + √((d-1)² + 2d) for unit keys.

    Raises:
        ValueError: d below 1 (below 3 for Gaussian keys) or another kind of keys.
        TypeError: d not an integer.
    """
    _checks.choice("keys", keys, ("unit", "gaussian"))
    d = _checks.integer("d", d, minimum=3 if keys == "gaussian" else 1)
    return 2.0 * d - 2 if keys == "gaussian" else d - 1 + math.sqrt((d - 1) ** 2 + 2 * d)


def noisy_least_squares_isr(M: int, d: int, cosine: float = 1.0, ridge: float = 0.0) -> float:
    """Return the large-d ratio of the (ridge) least-squares store asked at cosine c to a stored key.

    With τ the mean of k̂ᵀ(KᵀK + λ)⁻¹k̂ over a fresh key k̂, which solves 1/τ = λ + γ/(1 + τ), and
    τ₂ = -dτ/dλ = τ² / (1 - γτ²/(1+τ)²):

        ISR² = [1 + (1/c² - 1)(1 + τ)²] (τ - λτ₂) / τ²

    Chapter 2 derives it from the Marchenko-Pastur fixed point. It holds for large d; at M = d without ridge it is
    infinite, where a finite d gives a finite peak.

    Args:
        M: stored memories, at least 2 (the others number M - 1).
        d: key dimension, at least 1.
        cosine: c in [-1, 1], not 0.
        ridge: λ ≥ 0.

    Returns:
        The ratio; infinity at the unregularised peak.

    Raises:
        ValueError: sizes, cosine or ridge out of range.
        TypeError: arguments of another type.
    """
    M, d = _checks.integer("M", M, minimum=2), _checks.integer("d", d)
    c, lam = _checks.cosine(cosine), _checks.real("ridge", ridge, low=0.0)
    _asks(c)
    gamma, noise = (M - 1) / d, 1 / c**2 - 1
    if lam == 0 and gamma == 1:
        return math.inf if noise else 0.0
    # u = 1/τ is the root of u² - (λ + γ - 1)u - λ = 0 that is not negative, finite as λ → 0. With x = τ/(1+τ),
    # τ - λτ₂ = γx² / (1 - γx²). Both are written so that neither a small nor a large λ cancels.
    b = lam + gamma - 1
    size = math.hypot(b, 2 * math.sqrt(lam))
    u = b / 2 + size / 2 if b > 0 else 2 * lam / (size - b)
    x = 1 / (1 + u)
    rest = 1 - gamma + gamma * (u * x) * ((2 + u) * x)  # 1 - γx²
    return math.sqrt(gamma * (noise + (u * x) ** 2) / rest)


def _asks(c: float) -> None:
    if abs(c) < 1e-150:
        raise ValueError(f"cosine must not be 0, got {c:g}: such a query asks for no key in particular")


def best_ridge(M: int, d: int, cosine: float) -> float:
    """Return the ridge that makes :func:`noisy_least_squares_isr` smallest, λ = (M - 1)(1 - c²) / (d c²).

    Raises:
        ValueError: sizes below 1, a cosine outside [-1, 1] or 0.
        TypeError: arguments of another type.
    """
    M, d, c = _checks.integer("M", M), _checks.integer("d", d), _checks.cosine(cosine)
    _asks(c)
    return (M - 1) * (1 - c * c) / (d * c * c)
