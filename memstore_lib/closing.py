"""The table that closes a chapter, and what the chapter cost."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memstore_lib import device, tables
from memstore_lib.intervals import number

if TYPE_CHECKING:
    from memstore_lib.claims import Check

_MARKS = {"holds": "✓", "holds approximately": "≈", "needs a caveat": "†", "quoted": "“”"}
_PLURALS = {
    "holds": "hold",
    "holds approximately": "hold approximately",
    "needs a caveat": "need a caveat",
    "quoted": "quoted",
}
_HEADS = ("Claim", "The source", "Exact law", "This build", "Verdict")


def _source(value: object) -> str:
    """Return the source's value as a text: a number, several, or a phrase."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_source(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_source, value))
    return "" if value is None else value if isinstance(value, str) else number(value)


@dataclass(frozen=True)
class Closing:
    """The checked claims of a chapter as a table, with the chapter's costs as output metadata.

    Attributes:
        name: the chapter's name in the ledger.
        seed: where its draws start.
        checks: one a claim, in the ledger's order.
    """

    name: str
    seed: int
    checks: list[Check]

    @property
    def counts(self) -> dict[str, int]:
        """How many claims got each verdict."""
        return dict(Counter(check.verdict for check in self.checks))

    @property
    def summary(self) -> str:
        """The counts in words."""
        parts = ", ".join(
            f"{count} {_PLURALS[verdict] if count > 1 else verdict}" for verdict, count in self.counts.items()
        )
        return f"{len(self.checks)} claims checked in this build: {parts}."

    def __str__(self) -> str:
        rows = [f"{c.claim.id}: {c.verdict}; law {c.law or '–'}; found {c.found or '–'}" for c in self.checks]
        return "\n".join([self.summary, *rows])

    def _row(self, check: Check) -> list[str]:
        claim, cell = check.claim, html.escape
        result = f'<span class="ms-verdict">{_MARKS[check.verdict]} {cell(check.verdict)}</span>'
        if claim.caveat is not None:
            page, _, anchor = (claim.where or "").partition("#")
            result += f'<br>{cell(claim.caveat)} <a href="{cell(page)}.html#{cell(anchor)}">Shown here</a>.'
        head = f"{cell(claim.claim)}<br><code>{cell(claim.id)}</code>"
        return [head, *(cell(text or "–") for text in (_source(claim.article), check.law, check.found)), result]

    def _repr_html_(self) -> str:
        rows = [self._row(check) for check in self.checks]
        table = tables.markup(_HEADS, rows, "Claims of this chapter and their verdicts", "ms-claims")
        return f"{table}<p>{html.escape(self.summary)}</p>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        costs = {
            "chapter": self.name,
            "device": device.describe(),
            "seeds": [self.seed],
            "peak_memory_mb": round(device.peak_memory_mb(), 1),
            "peak_device_memory_mb": round(device.peak_device_memory_mb(), 1),
            "claims": self.counts,
            "rows": [self._row(check) for check in self.checks],
        }
        return {"text/html": self._repr_html_(), "text/plain": str(self)}, {"memstore": costs}
