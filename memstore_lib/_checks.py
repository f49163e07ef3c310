"""Argument checks shared by every module: each names the argument, what came and what was expected."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from itertools import pairwise

import torch

# Laws reach far beyond any tensor, but not beyond what a float holds.
LARGEST = 10**300

# Unit length is a matter of rounding: float32 rows normalised in float32 are within about 1e-7 of 1.
UNIT_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}


# An axis or a tensor beyond these would fill the memory of any machine that this is for.
LONGEST, MOST = 1 << 20, 1 << 33


def integer(name: str, value: object, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as an int of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if value > LARGEST:
        raise ValueError(f"{name} must be at most 10^300, got an integer of {len(str(value))} digits")
    if maximum is not None and value > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {value}")
    return int(value)


def size(**axes: int) -> None:
    """Refuse a tensor of more numbers than memory would hold; the keywords are its axes."""
    if math.prod(axes.values()) > MOST:
        names, came = " · ".join(axes), " · ".join(map(str, axes.values()))
        raise ValueError(f"{names} must be at most 2^33 numbers, about 32 GiB, got {came}")


def seed(value: object) -> int:
    """Return a seed that torch's CPU generator tells from all others."""
    if integer("seed", value, minimum=0) >= 1 << 32:
        # torch reads 32 bits of a seed on the CPU: a larger one would silently repeat the draws of a smaller.
        raise ValueError(f"seed must be below 2**32, got {value}")
    return int(value)  # type: ignore[call-overload]


def instance(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Refuse what is not of a kind; ``expected`` is the kind in words, such as ``a Score``."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {expected}, got {type(value).__name__}")


def origin(thing: object) -> tuple[str, str] | None:
    """Return the module and the qualified name of a class or function; None for what has no name of its own."""
    name = getattr(thing, "__qualname__", None)
    return None if name is None else (str(getattr(thing, "__module__", "")), name)


def function(name: str, value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {type(value).__name__}")


def real(name: str, value: object, *, low: float = -math.inf, high: float = math.inf, open_low: bool = False) -> float:
    """Return ``value`` as a finite float within [low, high] (or (low, high] with ``open_low``)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r} of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number too large for a float") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if number < low or number > high or (open_low and number == low):
        left = "(" if open_low or low == -math.inf else "["
        right = ")" if high == math.inf else "]"
        raise ValueError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {number:g}")
    return number


def cosine(value: object) -> float:
    """Return a cosine, a real number in [-1, 1]."""
    return real("cosine", value, low=-1.0, high=1.0)


def choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of the words in ``allowed``."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value  # type: ignore[return-value]


def grid(values: object, *, name: str = "grid", minimum: int = 1) -> list[int]:
    """Return a strictly increasing, non-empty list of integers (numbers of memories)."""
    scalar = getattr(values, "ndim", 1) == 0  # an array without axes calls itself iterable
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable) or scalar:
        raise TypeError(f"{name} must be a sequence of integers, got {type(values).__name__}")
    items = list(values)
    if not items:
        raise ValueError(f"{name} must hold at least one M, got an empty sequence")
    numbers_ = [integer(f"{name}[{i}]", int(v) if _integral(v) else v, minimum=minimum) for i, v in enumerate(items)]
    for before, after in pairwise(numbers_):
        if after <= before:
            raise ValueError(f"{name} must increase from entry to entry, got {before} followed by {after}")
    return numbers_


def _integral(value: object) -> bool:
    """True for whole numbers of any integer type, such as numpy's and zero-dimensional tensors."""
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and not value.is_floating_point() and value.dtype != torch.bool
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def floating(name: str, value: object) -> torch.Tensor:
    """Return a real floating-point tensor without NaN or infinity."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {value.dtype}")
    if value.dtype not in UNIT_TOLERANCE or value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor of 16 bits or more, got {value.layout} of {value.dtype}")
    if value.device.type == "meta":
        raise ValueError(f"{name} must hold numbers, got a tensor on the meta device, which has none")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity in a tensor of shape {tuple(value.shape)}")
    return value


def matrix(name: str, value: object, axes: str) -> torch.Tensor:
    """Return a finite floating-point matrix with no empty axis; ``axes`` is how the message calls its shape."""
    tensor = floating(name, value)
    if tensor.ndim != 2:
        raise ValueError(f"{name} must have shape {axes}, got {tuple(tensor.shape)}")
    if 0 in tensor.shape:
        raise ValueError(f"{name} must have shape {axes} without an empty axis, got {tuple(tensor.shape)}")
    return tensor


def same_kind(name: str, value: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Refuse two tensors on different devices or of different dtypes: nothing is moved or cast silently."""
    if value.device != other.device:
        raise ValueError(
            f"{name} and {other_name} must be on one device, got {name} on {value.device} and "
            f"{other_name} on {other.device}"
        )
    if value.dtype != other.dtype:
        raise TypeError(
            f"{name} and {other_name} must have one dtype, got {name} of {value.dtype} and "
            f"{other_name} of {other.dtype}"
        )


def unit_rows(name: str, value: torch.Tensor, why: str) -> None:
    """Refuse rows that are not of unit length, saying ``why`` they have to be."""
    lengths = value.norm(dim=-1)
    if bool((lengths == 0).any()):
        raise ValueError(f"{name} must have rows of unit length, got a row of norm 0; {why}")
    worst = lengths[(lengths - 1).abs().argmax()].item()
    if abs(worst - 1) > UNIT_TOLERANCE.get(value.dtype, 1e-4):
        raise ValueError(f"{name} must have rows of unit length, got a row of norm {worst:.4g}; {why}")
