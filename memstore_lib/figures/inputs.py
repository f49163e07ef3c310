"""What every chart form asks of its arguments: errors that name the argument, what came and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd


def check_text(value: object, name: str) -> str:
    """Return ``value`` when it is a string that says something; TypeError or ValueError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} must say something, got an empty string")
    return value


def check_number(value: object, name: str, *, positive: bool = False) -> float:
    """Return ``value`` as a float; TypeError unless it is a number, ValueError unless finite (and > 0 if asked)."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if positive and number <= 0:
        raise ValueError(f"{name} must be positive on a log axis, got {number:g}")
    return number


def check_domain(domain: object, name: str, *, log: bool) -> tuple[float, float]:
    """Return an axis range (low, high); TypeError unless two numbers, ValueError unless low < high (> 0 if log)."""
    if not isinstance(domain, Sequence) or isinstance(domain, str) or len(domain) != 2:
        raise TypeError(f"{name} must be a pair (low, high), got {domain!r}")
    low, high = (check_number(v, f"{name}[{i}]", positive=log) for i, v in enumerate(domain))
    if low >= high:
        raise ValueError(f"{name} must be increasing, got ({low:g}, {high:g})")
    return low, high


def check_table(table: object, name: str, columns: Iterable[str]) -> pd.DataFrame:
    """Return the named columns of a tidy table, index dropped.

    Raises TypeError unless ``table`` is a DataFrame, ValueError when columns are missing or there is no row.
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{name} must be a pandas DataFrame, got {type(table).__name__}")
    columns = list(dict.fromkeys(columns))
    missing = [c for c in columns if c not in table.columns]
    if missing:
        raise ValueError(
            f"{name} lacks the column{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}: "
            f"it has {', '.join(map(repr, table.columns)) or 'none'}, expected {', '.join(map(repr, columns))}"
        )
    if table.empty:
        raise ValueError(f"{name} is empty: it has the columns but no row")
    return table[columns].reset_index(drop=True)


def check_numbers(table: pd.DataFrame, name: str, column: str, *, log: bool = False, gaps: bool = False) -> None:
    """Check that a column holds finite numbers, positive ones for a log axis; ``gaps`` allows NaN (not infinity).

    Raises TypeError for a column of another type, ValueError naming the first row that does not fit.
    """
    values = table[column]
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        raise TypeError(f"{name}[{column!r}] must be numbers, got {values.dtype}")
    for row, value in enumerate(values.astype(float)):
        if math.isnan(value) and gaps:
            continue
        if not math.isfinite(value):
            raise ValueError(f"{name}[{column!r}] must be finite, got {value} in row {row}")
        if log and value <= 0:
            raise ValueError(
                f"{name}[{column!r}] must be positive on a log axis, got {value:g} in row {row}: "
                "leave such rows out, or draw on a linear axis"
            )


def check_choices(table: pd.DataFrame, name: str, column: str, allowed: Sequence[str]) -> None:
    """Check that a column holds only the allowed strings; ValueError names the others."""
    unknown = sorted({str(v) for v in table[column]} - set(allowed))
    if unknown:
        raise ValueError(f"{name}[{column!r}] must be one of {list(allowed)}, got {unknown}")


def check_intervals(table: pd.DataFrame, name: str, *, log: bool) -> None:
    """Check columns ``low`` and ``high``: both or neither in a row, and low ≤ value ≤ high.

    Raises ValueError naming the first row that does not fit.
    """
    for column in ("low", "high"):
        check_numbers(table, name, column, log=log, gaps=True)
    for row, (value, low, high) in enumerate(zip(table["value"], table["low"], table["high"], strict=True)):
        if math.isnan(low) != math.isnan(high):
            raise ValueError(f"{name} has half an interval in row {row}: low = {low}, high = {high}; give both or NaN")
        slack = 1e-9 * (1 + abs(value))
        if low > value + slack or high < value - slack:
            raise ValueError(f"{name} has an interval [{low:g}, {high:g}] that misses its value {value:g} in row {row}")


def quoted(text: str) -> str:
    """Text as a string in Vega's expression language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def significant(value: object, digits: int = 4) -> object:
    """Round a float to ``digits`` significant digits; integers and text pass, NaN becomes None (JSON has no NaN)."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return None
    if not (number.is_integer() and abs(number) < 1e6):
        number = float(f"{number:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def records(table: pd.DataFrame, names: dict[str, str] | None = None) -> list[dict]:
    """Rows for a chart's inline data: 4 significant digits, no empty cells, columns renamed by ``names``."""
    table = table.rename(columns=names or {})
    columns = list(table.columns)
    rows = ({c: significant(v) for c, v in zip(columns, r, strict=True)} for r in table.itertuples(index=False))
    return [{c: v for c, v in row.items() if v is not None} for row in rows]
