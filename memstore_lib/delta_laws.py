"""Laws of the delta rule as a store of random unit keys: nothing here samples.

::

    n   age: how many memories were written after the one asked for
    a   (2β - β²)/d: the share of a vector's energy that one later write takes away
    c   e^{2g}: the share of all energy that one decay leaves

A query q = k_j goes through the later writes first, newest to oldest: y ← e^g (I - β k kᵀ) y. With A = E(y·q)² and
B = E‖y‖², both 1 at n = 0, one more write gives

    A ← c [A (1 - 2β/d + 2β²/(d(d+2))) + B β²/(d(d+2))]        B ← c (1 - a) B

since E(u·k)²(w·k)² = (‖u‖²‖w‖² + 2(u·w)²)/(d(d+2)) for a random unit k. The signal's energy is β²A. Each later memory
adds β²B/d to the interference. Its own write leaves B - (2β - β²)A, of which each older memory gets a share β²/d.
Nothing is approximated: the laws hold for every d, M, β and g.
"""

from __future__ import annotations

import math

import numpy as np

from memstore_lib import _checks
from memstore_lib.delta_rule import WRITES


def energies(M: int, d: int, *, beta: float = 1.0, g: float = 0.0, write: str = "delta") -> np.ndarray:
    """Return the mean energies of interference and signal after M writes of random unit keys, by age.

    Args:
        M: stored memories.
        d: key dimension d_k.
        beta: how much of each write is done, in (0, 1].
        g: logarithm of the decay before each write, at most 0.
        write: ``"delta"`` or ``"hebb"``.

    Returns:
        An array (M, 2): row n holds the interference's and the signal's mean energy for the memory of age n, in units
        of a squared value length.

    Raises:
        ValueError: sizes below 1, β or g out of range, an unknown write.
        TypeError: arguments of another type.
    """
    M, d = _checks.integer("M", M), _checks.integer("d", d)
    b, g = _checks.real("beta", beta, low=0.0, high=1.0, open_low=True), _checks.real("g", g, high=0.0)
    corrects = _checks.choice("write", write, WRITES) == "delta"
    taken, c = (2 * b - b * b if corrects else 0.0), math.exp(2 * g)
    r = c * (1 - taken / d)
    A, B, younger = 1.0, 1.0, 0.0
    rows = np.empty((M, 2))
    for n in range(M):
        m = M - 1 - n
        shares = c * m if r == 1 else c * (1 - r**m) / (1 - r)  # of m older memories, each decayed once more
        rows[n] = younger + b * b / d * max(B - taken * A, 0.0) * shares, b * b * A
        younger += b * b * B / d
        if corrects:
            A = A * (1 - 2 * b / d + 2 * b * b / (d * (d + 2))) + B * b * b / (d * (d + 2))
        A, B = c * max(A, 0.0), r * B  # at d = 1 both are 0 but for rounding
    return rows


def isr(M: int, d: int, **rule: object) -> float:
    """Return the pooled ratio of interference to signal over all M memories: mean energies, then the root.

    Args:
        M, d: as in :func:`energies`.
        rule: β, g and write, as in :func:`energies`.

    Raises:
        ValueError, TypeError: as :func:`energies`.
    """
    noise, signal = energies(M, d, **rule).mean(0)  # type: ignore[arg-type]
    return math.sqrt(noise / signal) if signal else math.inf


def isr_by_age(M: int, d: int, **rule: object) -> np.ndarray:
    """Return the ratio for each age n, (M,): the root of the interference's mean energy over the signal's.

    Args:
        M, d: as in :func:`energies`.
        rule: β, g and write, as in :func:`energies`.

    Raises:
        ValueError, TypeError: as :func:`energies`.
    """
    noise, signal = energies(M, d, **rule).T  # type: ignore[arg-type]
    with np.errstate(divide="ignore", over="ignore"):
        return np.sqrt(noise / signal)


def span(d: int, *, writes: int = 4096, **rule: object) -> int:
    """Return how many of the newest memories of a long stream are recalled with a ratio of at most 1.

    Args:
        d: key dimension d_k.
        writes: length of the stream.
        rule: β, g and write, as in :func:`energies`.

    Raises:
        ValueError, TypeError: as :func:`energies`.
    """
    above = np.flatnonzero(isr_by_age(writes, d, **rule) > 1)
    return int(above[0]) if len(above) else writes
