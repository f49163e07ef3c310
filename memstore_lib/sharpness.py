"""Sharpness rules: how β grows with the number M of memories in the context.

::

    M     stored memories (tokens in the context)
    L     reference length, at which every rule gives the reference β; 1,024 in the source
    β     reference sharpness at M = L; 8 = √64 in the source

A rule is a function of M. Put into :class:`memstore_lib.scores.Exponential` it gives the score at that M. Below the
rules are the laws of a sharpness: which similarity rules an average, the best β for a noisy query, and what weight and
entropy attention has. Nothing here samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from memstore_lib import _checks, exponentials, theory
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


def ruling_similarity(t: float, d: int) -> float:
    """Return s*(t) = E[s e^{ts}] / E[e^{ts}] = I_{d/2}(t) / I_{d/2-1}(t), the similarity that rules the mean of e^{ts}.

    The mean of the squared interference is one of e^{2βs}, so s*(2β) rules it: keys near that similarity contribute
    most, whether or not there are enough keys for one to be met.

    Args:
        t: exponent, at least 0.
        d: key dimension, at least 1.

    Raises:
        ValueError: t negative or not finite, d below 1.
        TypeError: t not a number, d not an integer.
    """
    return exponentials.ruling_similarity(_checks.real("t", t, low=0.0), _checks.integer("d", d))


def best_beta(cosine: float, d: int) -> float:
    """Return the β at which the root-mean-square ratio of a query at cosine c is smallest: s*(2β) = c, whatever M.

    The squared ratio is (M - 1) E[e^{2βs}] e^{-2βc}, whose logarithm is convex in β; its derivative is 0 there.

    Args:
        cosine: c between query and key, at least 0 and below 1; at 1 every larger β is better.
        d: key dimension, at least 2: in one dimension a similarity is ±1.

    Raises:
        ValueError: a cosine outside [0, 1), d below 2.
        TypeError: arguments of another type.
    """
    c, d = _checks.cosine(cosine), _checks.integer("d", d, minimum=2)
    if not 0 <= c < 1:
        raise ValueError(f"cosine must lie in [0, 1) for a best β to exist, got {c:g}: at 1 every larger β is better")
    if c == 0:
        return 0.0
    # s* lies between t/(d + t) and t/(t + (d-1)/2): the root is bracketed.
    low, high = c * (d - 1) / 2 / (1 - c), c * d / (1 - c)
    root = optimize.brentq(lambda t: ruling_similarity(t, d) - c, 0.5 * low, 2 * high, xtol=1e-12, rtol=1e-13)
    return float(root) / 2


def limit(rule: Sharpness, d: int, cosine: float = 1.0, up_to: float = 1e40) -> float:
    """Return the M at which a rule's exact root-mean-square ratio first reaches 1; infinity if not up to a bound.

    Args:
        rule: how β grows with M.
        d: key dimension, at least 1.
        cosine: c between query and key.
        up_to: how far to look, at most 1e300.

    Raises:
        ValueError: d, cosine or bound out of range; a β or d beyond 1e150.
        TypeError: not a rule, or d not an integer.
    """
    if not isinstance(rule, Sharpness):
        raise TypeError(f"rule must be a Sharpness, got {type(rule).__name__}")
    c, end = _checks.cosine(cosine), math.log(_checks.real("up_to", up_to, low=2.0, high=1e300))
    gap = lambda x: _log_square(rule(math.exp(x)), math.exp(x), d, c)  # noqa: E731
    before, steps = 1e-9, max(8, int(8 * end))  # even steps in log M: the ratio is smooth in it
    for x in (1e-9 + (end - 1e-9) * k / steps for k in range(1, steps + 1)):
        if gap(x) >= 0:
            return math.exp(optimize.brentq(gap, before, x, xtol=1e-10)) if gap(before) < 0 else math.exp(before)
        before = x
    return math.inf


def _log_square(beta: float, M: float, d: int, cosine: float) -> float:
    """Return the logarithm of the exact squared ratio."""
    return math.log(M - 1) + _log_moment(beta, d, 2) + 2 * beta * (1 - cosine)


def _log_moment(beta: float, d: int, power: int) -> float:
    """Return log E[σ^power] of the exponential score, also where the moment itself underflows."""
    if power * beta <= 600:
        return math.log(theory.moment(Exponential(beta), d, power))
    return exponentials.log_mean(power * beta, d)


def nearest_similarity(M: int, d: int, share: float = 0.5) -> float:
    """Return the similarity below which the nearest of M - 1 random keys lies with a given probability.

    Args:
        M: memories, at least 2.
        d: key dimension, at least 2.
        share: the probability, in (0, 1); one half gives the median.

    Raises:
        ValueError: M, d or share out of range.
        TypeError: M or d not an integer.
    """
    M, d = _checks.integer("M", M, minimum=2), _checks.integer("d", d, minimum=2)
    if not 0 < _checks.real("share", share) < 1:
        raise ValueError(f"share must lie strictly between 0 and 1, got {share:g}")
    beyond = -math.expm1(math.log(share) / (M - 1))  # the chance that one key is nearer
    a = (d - 1) / 2  # (1 - s)/2 follows a Beta(a, a) distribution
    return float(1 - 2 * special.betaincinv(a, a, beyond))


def attention(M: int, d: int, beta: float, cosine: float = 1.0) -> tuple[float, float]:
    """Return the target's softmax weight and the entropy of all weights in nats, with sums at their means.

    The sum over the M - 1 other keys is put at its mean, (M - 1) E[e^{βs}]. That is right where many keys share the
    sum; where the nearest one alone rules it, the typical weight is larger and the entropy smaller.

    Args:
        M: memories, at least 1.
        d: key dimension, at least 1.
        beta: sharpness, at least 0.
        cosine: c between query and key.

    Raises:
        ValueError: M, d, β or cosine out of range.
        TypeError: arguments of another type.
    """
    M, d, c = _checks.integer("M", M), _checks.integer("d", d), _checks.cosine(cosine)
    beta = _checks.real("beta", beta, low=0.0, high=1e150)
    if M == 1:
        return 1.0, 0.0
    if beta <= 600 and beta * (1 - c) <= 600:
        others = (M - 1) * theory.moment(Exponential(beta), d, 1) * math.exp(beta * (1 - c))  # relative to the target's
        weight = 1 / (1 + others)
        mean_s = weight * c + (1 - weight) * ruling_similarity(beta, d)
        return weight, max(0.0, -math.log(weight) + beta * (c - mean_s))
    # The same in logarithms: the two parts, before and after the target's own β (1 - c), need not fit a float.
    own, sum_of_others = -beta * (1 - c), math.log(M - 1) + _log_moment(beta, d, 1)
    total = float(np.logaddexp(own, sum_of_others))
    weight = math.exp(own - total)
    rest = math.exp(sum_of_others - total)
    entropy = total + beta * (weight * (1 - c) + rest * (1 - ruling_similarity(beta, d)))
    return weight, min(max(0.0, entropy), math.log(M))
