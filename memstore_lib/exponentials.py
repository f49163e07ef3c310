"""Averages of e^{ts} over the similarity s of two random unit keys, at any t and in any number of dimensions.

::

    t     exponent; 2β for the squared interference of the exponential score
    d     key dimension
    s*    E[s e^{ts}] / E[e^{ts}] = I_{d/2}(t) / I_{d/2-1}(t), a quotient of Bessel functions
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
# Scipy's Bessel functions underflow, and lose digits to it before; from t = 1e9 on they are imprecise, then NaN.
_SMALLEST, _LARGEST = 1e-250, 1e8


def ruling_similarity(t: float, d: int) -> float:
    """Return s*(t) for t ≥ 0 and d ≥ 1, which :func:`memstore_lib.sharpness.ruling_similarity` checks and explains."""
    if t < 1e-6:
        return t / d  # the first term of the series; the next is smaller by t²
    order = d / 2
    if t >= _LARGEST:
        return _uniform(t, order)
    above, below = special.ive(order, t), special.ive(order - 1, t)
    if below > _SMALLEST:
        return float(above / below)
    ratio = _uniform(t, order + 65)  # from there the continued fraction converges, and at once where t is small
    for k in range(64, -1, -1):
        ratio = 1 / (2 * (order + k) / t + ratio)
    return ratio


def _uniform(t: float, order: float) -> float:
    """Return I_order(t) / I_{order-1}(t) up to terms of the second order in 1/t, between Amos' bounds."""
    a = order - 0.5
    size = math.hypot(a, t)
    bound = t / (a + size)  # the upper one, of Amos 1974
    return bound - bound * (a / size) / size / 2


def log_mean(t: float, d: int) -> float:
    """Return log E[e^{t (s - 1)}] for t ≥ 0 and d ≥ 1, where the average itself may be too small for a float.

    Raises:
        ValueError: t or d beyond 1e150.
    """
    if max(t, d) > 1e150:
        raise ValueError(f"β and d must be at most 1e150, got an exponent of {t:.3g} and d = {float(d):.3g}")
    order = d / 2 - 1
    if t < d:  # the derivative of log E[e^{ts}] is s*, smooth here
        nodes = t * (_NODES + 1) / 2
        return float(t / 2 * (_WEIGHTS @ [ruling_similarity(float(u), d) - 1 for u in nodes]))
    # E[e^{ts}] = Γ(d/2) (2/t)^{d/2-1} I_{d/2-1}(t), in its uniform expansion.
    below = special.ive(order, t) if t < _LARGEST else 0.0
    bessel = math.log(below) if below > _SMALLEST else _log_bessel(t, order)
    return math.lgamma(d / 2) + order * math.log(2 / t) + bessel


def _log_bessel(t: float, order: float) -> float:
    """Return log(e^{-t} I_order(t)) by Debye's expansion, to the second order in 1/√(order² + t²)."""
    size = math.hypot(order, t)
    p = (order / size) ** 2
    terms = (3 - 5 * p) / 24 / size + (81 - 462 * p + 385 * p * p) / 1152 / size**2
    exponent = order * (order / (size + t)) - order * math.asinh(order / t)
    return exponent - math.log(2 * math.pi * size) / 2 + math.log1p(terms)
