"""Scores: how much a stored memory weighs, as a function of its similarity s = k . q to the query.

A score is elementwise: σ(s) for each stored key by itself. That one property gives it an exact law
(:mod:`memstore_lib.theory`), a one-pass measurement (:mod:`memstore_lib.measure`) and a store
(:class:`memstore_lib.stores.MLP`). Each knows its name, its LaTeX and its expression for the interactive figures.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from memstore_lib import _checks


class Score(ABC):
    """An elementwise score σ(s).

    A subclass states ``name``, ``latex`` and ``__call__``; ``vega`` (an expression in ``s`` and ``beta``) only if
    the score shall appear in the interactive bar chart, and ``kinks`` if σ is not smooth somewhere other than at 0.
    """

    name: str
    latex: str
    vega: str | None = None
    kinks: tuple[float, ...] = (0.0,)
    #: What to do where its values are too large, for the message that says so.
    hint = "scale it down; only ratios of its values matter"

    @abstractmethod
    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return σ(s), of the shape, dtype and device of ``s``."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Linear(Score):
    """σ(s) = s: the outer-product store of chapter 1."""

    name = "outer product"
    latex = "s"
    vega = "s"

    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return s itself."""
        return s


_SUPERSCRIPTS = str.maketrans("0123456789.-", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


@dataclass(frozen=True)
class ReLU(Score):
    """σ(s) = max(s - b, 0)^p.

    Args:
        power: p, finite and above 0.
        bias: b, the threshold below which a key is silent, in [-1, 1).

    Raises:
        ValueError: the power is 0, negative or not finite; the bias is out of range.
        TypeError: the power or the bias is not a number.
    """

    power: float = 1.0
    bias: float = 0.0

    def __post_init__(self) -> None:
        _checks.real("power", self.power, low=0.0, open_low=True)
        if _checks.real("bias", self.bias, low=-1.0, high=1.0) == 1:
            raise ValueError("bias must lie in [-1, 1), got 1: every key would be silent")

    @property
    def name(self) -> str:  # type: ignore[override]
        """ReLU, ReLU², ReLU³, …, with the bias if there is one."""
        name = "ReLU" if self.power == 1 else "ReLU" + f"{self.power:g}".translate(_SUPERSCRIPTS)
        return f"{name}, b = {self.bias:g}" if self.bias else name

    @property
    def kinks(self) -> tuple[float, ...]:  # type: ignore[override]
        """Where the score starts."""
        return (self.bias,)

    @property
    def latex(self) -> str:  # type: ignore[override]
        """The score in LaTeX."""
        inner = f"s - {self.bias:g}" if self.bias else "s"
        return rf"\max({inner}, 0)" if self.power == 1 else rf"\max({inner}, 0)^{{{self.power:g}}}"

    @property
    def vega(self) -> str:  # type: ignore[override]
        """The score as a Vega expression in s."""
        return f"pow(max(s - {self.bias:g}, 0), {self.power:g})" if self.bias else f"pow(max(s, 0), {self.power:g})"

    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return max(s - b, 0)^p."""
        above = (s - self.bias if self.bias else s).clamp_min(0)
        return above if self.power == 1 else above**self.power


@dataclass(frozen=True)
class SwiGLU(Score):
    """σ(s) = s · swish(s) = s² / (1 + e^-s): a gated MLP whose gate and input share their weights."""

    name = "SwiGLU"
    latex = r"s^2 / (1 + e^{-s})"
    vega = "s * s / (1 + exp(-s))"

    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return s² / (1 + e^-s)."""
        return s * torch.nn.functional.silu(s)


@dataclass(frozen=True)
class Exponential(Score):
    """σ(s) = e^{β (s - 1)}: softmax attention's weight relative to a perfect match.

    The factor e^-β is common to all weights, so it changes no ratio; it keeps every weight at most 1 for unit keys
    and queries, where e^{βs} overflows float32 from β = 89.

    Args:
        beta: sharpness β, finite and at least 0.

    Raises:
        ValueError: β negative or not finite.
        TypeError: β not a number.
    """

    beta: float = 8.0

    name = "softmax"
    latex = r"e^{\beta s}"
    vega = "exp(beta * (s - 1))"

    def __post_init__(self) -> None:
        _checks.real("beta", self.beta, low=0.0)

    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return e^{β (s - 1)}."""
        return torch.exp(self.beta * (s - 1))


@dataclass(frozen=True)
class TruncatedExponential(Score):
    """σ(s) = Σ_{n < terms} (βs)^n / n!: the series of e^{βs}, cut off.

    Its values reach e^β. Measurements and laws refuse a β whose squares overflow.

    Args:
        beta: sharpness β, finite and at least 0.
        terms: number of terms kept, from 1 to 10,000; 2 terms are 1 + βs.

    Raises:
        ValueError: β negative or not finite, fewer than 1 term or more than 10,000.
        TypeError: β or terms of another type.
    """

    beta: float = 8.0
    terms: int = 2

    hint = "use a smaller β, float64, or scores.Exponential, which is relative to a perfect match"

    def __post_init__(self) -> None:
        _checks.real("beta", self.beta, low=0.0)
        _checks.integer("terms", self.terms, maximum=10_000)

    @property
    def name(self) -> str:  # type: ignore[override]
        """How many terms."""
        return f"exp, {self.terms} term{'s' if self.terms > 1 else ''}"

    @property
    def latex(self) -> str:  # type: ignore[override]
        """The score in LaTeX."""
        return rf"\sum_{{n<{self.terms}}} (\beta s)^n / n!"

    @property
    def vega(self) -> str:  # type: ignore[override]
        """The score as a Vega expression in s and beta, by Horner's rule."""
        text = "1"
        for n in range(self.terms - 1, 0, -1):
            text = f"(1 + beta * s / {n} * {text})"
        return text

    def __call__(self, s: torch.Tensor) -> torch.Tensor:
        """Return the sum, by Horner's rule."""
        x = self.beta * s
        total = torch.ones_like(s)
        for n in range(self.terms - 1, 0, -1):
            total = 1 + x / n * total
        return total


#: The registered scores, by name.
SCORES: dict[str, Score] = {}


def register(score: Score, *, replace: bool = False) -> Score:
    """Add a score to :data:`SCORES`, which the contract tests walk; returns it.

    A notebook cell may run twice: a score like the registered one replaces it, and so does one whose class was defined
    again in the same module. Any other takes a name only with ``replace``, one of the same class but another β, too.

    Args:
        score: a score with a name.
        replace: take the name from whatever has it.

    Raises:
        TypeError: not a :class:`Score`.
        ValueError: the name is missing, or another score already has it.
    """
    if not isinstance(score, Score):
        raise TypeError(f"score must be a Score, got {type(score).__name__}")
    if not isinstance(getattr(score, "name", None), str) or not score.name:
        raise ValueError(f"score must state its name, got {getattr(score, 'name', None)!r}")
    taken = SCORES.get(score.name)
    if not (replace or taken is None or _again(taken, score)):
        raise ValueError(
            f"score name {score.name!r} is taken by {taken!r}: choose another, or replace it with replace=True"
        )
    SCORES[score.name] = score
    return score


def _again(taken: Score, score: Score) -> bool:
    """Tell whether a class was defined again, or an object of the same class made again with the same parameters."""
    if type(taken) is type(score):
        try:
            return vars(taken) == vars(score)
        except (RuntimeError, ValueError):  # tensors and arrays are not equal as a whole
            return repr(vars(taken)) == repr(vars(score))
    return _checks.origin(type(taken)) == _checks.origin(type(score))


for _score in (Linear(), ReLU(), ReLU(2), ReLU(3), SwiGLU(), Exponential(math.sqrt(64))):
    register(_score)
