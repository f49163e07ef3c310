"""Numbers as people write them on a command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

T = TypeVar("T")

_POWER = re.compile(r"(\d+)(?:\*\*|\^)(\d+)")


def whole_number(text: str) -> int:
    """Read 1000, 1_000, 2**30, 2^30 or 1e9.

    Raises:
        argparse.ArgumentTypeError: anything else, or more than 300 digits.
    """
    plain = text.strip().replace("_", "")
    power = _POWER.fullmatch(plain)
    if power:
        base, exponent = map(int, power.groups())
        if len(plain) < 40 and exponent < 1000 and base**exponent < 10**300:
            return base**exponent
    elif re.fullmatch(r"\d+(\.\d*)?([eE]\+?\d{1,3})?", plain) and len(plain) < 300:
        value = Fraction(plain)
        if value.denominator == 1 and value < 10**300:
            return value.numerator
    raise argparse.ArgumentTypeError(
        f"must be a whole number of at most 300 digits, such as 1000, 2**30 or 1e9, got {text!r}"
    )


def several(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return what reads several numbers with commas between them."""

    def read(text: str) -> list[T]:
        try:
            return [kind(part) for part in text.split(",") if part.strip()]
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be numbers with commas between them, got {text!r}") from None

    return read
