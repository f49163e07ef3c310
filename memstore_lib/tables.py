"""Plain tables for a page: real headers, and a scroll area of their own where they are wider than the screen."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table that a notebook and a built page both show.

    Attributes:
        heads: column headers.
        rows: cells as texts; the first of each row is its header.
        label: what the table holds, for screen readers.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    label: str

    def __str__(self) -> str:
        return "\n".join("  ".join(row) for row in (self.heads, *self.rows))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        escaped = [[html.escape(cell) for cell in row] for row in self.rows]
        return markup([html.escape(head) for head in self.heads], escaped, self.label)


def show(rows: Sequence[Mapping[str, object]], label: str) -> Table:
    """Return rows as a table; numbers keep up to four significant digits.

    Args:
        rows: one mapping a row, all with the same keys, which become the headers.
        label: what the table holds, in a few words.

    Raises:
        ValueError: no rows, rows with different keys, or an empty label.
    """
    if not rows:
        raise ValueError("rows must hold at least one row, got none")
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"label must say what the table holds, got {label!r}")
    heads = list(rows[0])
    for number, row in enumerate(rows):
        if list(row) != heads:
            raise ValueError(f"rows must all have the keys {heads}, got {list(row)} in row {number}")
    return Table(heads, [[_text(cell) for cell in row.values()] for row in rows], label)


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def markup(heads: Sequence[str], rows: Sequence[Sequence[str]], label: str, kind: str = "") -> str:
    """Return the HTML of a table in a focusable scroll area; cells are HTML already, the first of a row its header."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="ms-table {kind}" role="region" tabindex="0" aria-label="{html.escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
