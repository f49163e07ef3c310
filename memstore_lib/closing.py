"""The table that closes a chapter, and what the chapter cost."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memstore_lib import device, tables
from memstore_lib.intervals import number

if TYPE_CHECKING:
    from memstore_lib.claims import Check, Claim

NOT_CHECKED = "not checked in this edition"  # a claim whose chapter the book does not have
HEADS = ("Claim", "The source", "Exact law", "This build", "Verdict")
_MARKS = {"holds": "✓", "holds approximately": "≈", "needs a caveat": "†", "quoted": "“”", NOT_CHECKED: "–"}
VERDICTS = tuple(_MARKS)
_PLURALS = {
    "holds": "hold",
    "holds approximately": "hold approximately",
    "needs a caveat": "need a caveat",
}


def _source(value: object) -> str:
    """Return the source's value as a text: a number, several, or a phrase."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_source(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_source, value))
    return "" if value is None else value if isinstance(value, str) else number(value)


def in_words(counts: Mapping[str, int]) -> str:
    """Return how many claims got each verdict, such as "12 hold, 1 needs a caveat"; no count of 0 is mentioned."""
    return ", ".join(
        f"{count} {_PLURALS.get(verdict, verdict) if count > 1 else verdict}"
        for verdict, count in counts.items()
        if count
    )


def cells(claim: Claim, verdict: str, law: str, found: str, href: str | None) -> list[str]:
    """Return a claim's row under ``HEADS``, as HTML.

    Args:
        claim: the row of the ledger.
        verdict: how it fared.
        law, found: what the law says and what this build found, as texts; empty for nothing.
        href: where the section is that shows the caveat; None for no link.
    """
    text = html.escape
    result = f'<span class="ms-verdict">{_MARKS[verdict]} {text(verdict)}</span>'
    if claim.caveat is not None:
        result += f"<br>{text(claim.caveat)}"
        if href is not None:
            result += f' <a href="{text(href)}">Shown here</a>.'
    head = f"{text(claim.claim)}<br><code>{text(claim.id)}</code>"
    return [head, *(text(one or "–") for one in (_source(claim.article), law, found)), result]


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
        return f"{len(self.checks)} claims checked in this build: {in_words(self.counts)}."

    def __str__(self) -> str:
        rows = [f"{c.claim.id}: {c.verdict}; law {c.law or '–'}; found {c.found or '–'}" for c in self.checks]
        return "\n".join([self.summary, *rows])

    @staticmethod
    def _row(check: Check) -> list[str]:
        page, _, anchor = (check.claim.where or "").partition("#")
        return cells(check.claim, check.verdict, check.law, check.found, f"{page}.html#{anchor}" if page else None)

    def _repr_html_(self) -> str:
        rows = [self._row(check) for check in self.checks]
        table = tables.markup(HEADS, rows, "Claims of this chapter and their verdicts", "ms-claims")
        return f"{table}<p>{html.escape(self.summary)}</p>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict, dict]:
        costs = {
            "chapter": self.name,
            "device": device.describe(),
            "seeds": [self.seed],
            "peak_memory_mb": round(device.peak_memory_mb(), 1),
            "peak_device_memory_mb": round(device.peak_device_memory_mb(), 1),
            "claims": self.counts,
            "rows": [
                {"id": check.claim.id, "verdict": check.verdict, "law": check.law, "found": check.found}
                for check in self.checks
            ],
        }
        return {"text/html": self._repr_html_(), "text/plain": str(self)}, {"memstore": costs}
