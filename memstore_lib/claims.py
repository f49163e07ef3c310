"""The ledger, checked: every statement of the sources is compared with what the book measures while it is built.

::

    claim      one row of ``book/claims.yml``, read by :mod:`memstore_lib.ledger`
    verdict    holds | holds approximately | needs a caveat | quoted; a claim that fails raises and stops the build
    Chapter    collects a chapter's checks and shows them as its closing table

A check compares three numbers: the source's value, the exact law's, and this build's with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from memstore_lib import _checks
from memstore_lib.intervals import Interval, number
from memstore_lib.ledger import KINDS as KINDS
from memstore_lib.ledger import OPTIONAL as OPTIONAL
from memstore_lib.ledger import REQUIRED as REQUIRED
from memstore_lib.ledger import Claim, load
from memstore_lib.ledger import find as find

if TYPE_CHECKING:
    from memstore_lib.closing import Closing

HOLDS, APPROXIMATELY, CAVEAT = "holds", "holds approximately", "needs a caveat"
QUOTED = "quoted"  # another work's figure, not measured here

# The source's value may differ from the law by this much and still hold, or hold approximately.
HOLDS_WITHIN, APPROXIMATELY_WITHIN = 0.02, 0.10
# A measurement fails the law beyond this many standard errors; and it must be sharp enough to fail at all.
STANDARD_ERRORS, WIDEST = 4.0, 0.05


class ClaimFailed(AssertionError):
    """A measurement contradicts a claim, or cannot decide it."""


@dataclass
class Check:
    """The outcome of one claim.

    Attributes:
        claim: the row of the ledger.
        verdict: holds, holds approximately, needs a caveat, or quoted.
        law: what the law says, as a text.
        found: what this build found, as a text.
        gap: for an identity, how far its two sides differ.
    """

    claim: Claim
    verdict: str
    law: str = ""
    found: str = ""
    gap: float = 0.0

    def __repr__(self) -> str:
        return f"{self.claim.id}: {self.verdict}, {self.found}"


def verdict(claim: Claim, value: float) -> str:
    """Return how well the source's value agrees with a better one.

    Raises:
        ClaimFailed: they differ by more than 10 % and the ledger shows no caveat.
        ValueError: the source gives no number.
    """
    if claim.caveat is not None:
        return CAVEAT
    if isinstance(claim.article, bool) or not isinstance(claim.article, (int, float)):
        raise ValueError(f"claim {claim.id!r} must have a number as article, got {claim.article!r}")
    off = abs(claim.article / value - 1) if value else math.inf
    if off <= HOLDS_WITHIN:
        return HOLDS
    if off <= APPROXIMATELY_WITHIN:
        return APPROXIMATELY
    raise ClaimFailed(
        f"claim {claim.id!r} fails: the source gives {claim.article:g}, this book {value:g}, "
        f"{off:.0%} apart, and the ledger names no caveat"
    )


@dataclass
class Chapter:
    """A chapter's side of the ledger.

    A claim may be checked in several steps. It keeps one row, which shows every finding once and the worst verdict; an
    identity shows the largest gap. A step that fails raises and leaves the row as it was.

    Args:
        name: the chapter's name in the ledger, such as ``outer-product``.
        seed: the seed all the chapter's draws start from; shown on the reproducibility page.
        claims: a loaded ledger; None for the book's own.

    Raises:
        ValueError: the ledger has no such chapter, or the seed is negative.
    """

    name: str
    seed: int = 0
    claims: Mapping[str, Claim] | None = None
    checks: dict[str, Check] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _checks.integer("seed", self.seed, minimum=0)
        self.claims = load() if self.claims is None else self.claims
        _checks.instance("claims", self.claims, Mapping, "a mapping of ids to claims, as load() returns it")
        self.rows = {key: claim for key, claim in self.claims.items() if claim.chapter == self.name}
        if not self.rows:
            known = sorted({claim.chapter for claim in self.claims.values()})
            raise ValueError(f"name must be a chapter of the ledger ({', '.join(known)}), got {self.name!r}")

    def _row(self, id: str, *kinds: str) -> Claim:
        if id not in self.rows:
            raise ValueError(f"id must be a claim of chapter {self.name!r} ({', '.join(self.rows)}), got {id!r}")
        claim = self.rows[id]
        if claim.kind not in kinds:
            raise ValueError(f"claim {id!r} is of kind {claim.kind!r}; this check is for {' or '.join(kinds)}")
        return claim

    def _record(self, check: Check) -> Check:
        before = self.checks.get(check.claim.id)
        if before is None:
            self.checks[check.claim.id] = check
            return check
        # The same finding twice, from a cell that was run again, is shown once.
        before.law = "; ".join(dict.fromkeys(filter(None, (*before.law.split("; "), check.law))))
        if check.verdict == APPROXIMATELY:
            before.verdict = APPROXIMATELY
        before.found = "; ".join(dict.fromkeys(filter(None, (*before.found.split("; "), check.found))))
        return check

    def identity(self, id: str, left: torch.Tensor, right: torch.Tensor, tolerance: float | None = None) -> Check:
        """Check that two sides of an equality agree.

        Args:
            id: a claim of kind identity.
            left, right: tensors of one shape and one dtype, as the tolerance depends on it.
            tolerance: largest difference relative to the largest entry; None for 1e-9 in float64 and 1e-4 in float32.

        Returns:
            The check, whose text says how far the two sides differ: the largest absolute difference, relative to the
            largest entry of ``right`` (or to 1 if that is smaller).

        Raises:
            ClaimFailed: they differ by more than the tolerance.
            ValueError: unknown claim, another kind, shapes that disagree, no entries, NaN, a negative tolerance.
            TypeError: not floating-point tensors, or of different dtypes.
        """
        claim = self._row(id, "identity")
        left, right = _checks.floating("left", left), _checks.floating("right", right)
        if left.shape != right.shape:
            raise ValueError(f"left and right must have one shape, got {tuple(left.shape)} and {tuple(right.shape)}")
        if left.numel() == 0:
            raise ValueError(f"left and right must have entries, got shape {tuple(left.shape)}")
        if left.dtype != right.dtype:
            raise TypeError(f"left and right must have one dtype, got {left.dtype} and {right.dtype}")
        single = left.dtype == torch.float32
        tolerance = (1e-4 if single else 1e-9) if tolerance is None else _checks.real("tolerance", tolerance, low=0.0)
        left, right = left.detach().cpu().double(), right.detach().cpu().double()
        gap = (left - right).abs().max().item() / max(1.0, right.abs().max().item())
        if gap > tolerance:
            raise ClaimFailed(f"claim {id!r} fails: the two sides differ by {gap:.3g}, more than {tolerance:g}")
        check = Check(claim, CAVEAT if claim.caveat else HOLDS, "exact", f"sides differ by {gap:.1e}", gap)
        before = self.checks.get(id)
        if before is None or gap > before.gap:  # a claim checked in several steps shows the worst of them
            self.checks[id] = check
        return check

    def value(self, id: str, found: Interval, exact: float | None = None) -> Check:
        """Check a number: this build's against the exact law, the source's against the law (or this build's).

        Args:
            id: a claim of kind law or measured whose ``article`` is a number.
            found: this build's measurement.
            exact: the law's value; None where there is none.

        Returns:
            The check, with its verdict.

        Raises:
            ClaimFailed: the measurement is more than 4 standard errors from the law, its interval is wider than ±5 %
                and so could not fail, or the source's value is more than 10 % off without a caveat.
            ValueError: unknown claim, another kind, a source without a number, or an interval that does not hold its
                value.
            TypeError: ``found`` is not an interval.
        """
        claim = self._row(id, "law", "measured")
        self._agrees(claim, found, exact)
        result = verdict(claim, found.value if exact is None else exact)
        return self._record(Check(claim, result, "" if exact is None else number(exact), str(found)))

    def law(self, id: str, found: Sequence[Interval], exact: Sequence[float], at: str) -> Check:
        """Check a formula at several points against measurements there.

        Args:
            id: a claim of kind law whose source gives a formula.
            found: measurements.
            exact: the law's values at the same points.
            at: what the points are, such as ``"M = 16 … 4096"``.

        Returns:
            The check, with its verdict.

        Raises:
            ClaimFailed: at some point, as in :meth:`value`.
            ValueError: unknown claim, another kind, or lengths that differ or are 0.
        """
        claim = self._row(id, "law", "measured")
        if len(found) != len(exact) or not found:
            raise ValueError(f"found and exact must have one length above 0, got {len(found)} and {len(exact)}")
        for one, law in zip(found, exact, strict=True):
            self._agrees(claim, one, law)
        pairs = [(one.value, law) for one, law in zip(found, exact, strict=True)]
        worst = max(0.0 if one == law else abs(one / law - 1) for one, law in pairs)
        ends = f"{number(exact[0])} … {number(exact[-1])}" if len(exact) > 1 else number(exact[0])
        points = f"{len(found)} point{'s' if len(found) > 1 else ''}"
        text = f"within {worst:.1%} of the law at {points}, {at}"
        return self._record(Check(claim, CAVEAT if claim.caveat else HOLDS, ends, text))

    @staticmethod
    def _agrees(claim: Claim, found: Interval, exact: float | None) -> None:
        if not isinstance(found, Interval):
            raise TypeError(f"found must be an Interval, got {type(found).__name__}")
        if found.low > found.value or found.value > found.high or found.standard_error < 0:
            raise ValueError(
                f"found must have low ≤ value ≤ high and no negative standard error, got {found.low:g}, "
                f"{found.value:g}, {found.high:g} and {found.standard_error:g}"
            )
        half = (found.high - found.low) / 2
        if not half <= WIDEST * abs(found.value):
            raise ClaimFailed(f"claim {claim.id!r} is undecided: {found} is wider than ±{WIDEST:.0%}; measure more")
        if exact is not None and not abs(found.value - exact) <= STANDARD_ERRORS * found.standard_error:
            raise ClaimFailed(f"claim {claim.id!r} fails: measured {found}, the exact law gives {exact:.5g}")

    def trend(self, id: str, holds: bool, found: str, law: str = "") -> Check:
        """Record a qualitative claim, decided by the chapter from numbers.

        Args:
            id: a claim of kind trend, or a law or measurement whose source gives no single number.
            holds: whether the numbers show it.
            found: the numbers, in words.
            law: what a law says of them.

        Returns:
            The check, with its verdict.

        Raises:
            ClaimFailed: it does not hold.
            ValueError: unknown claim or another kind, or no numbers in ``found``.
        """
        claim = self._row(id, "trend", "law", "measured")
        if isinstance(holds, torch.Tensor) and holds.ndim == 0 and holds.dtype == torch.bool:
            holds = bool(holds)
        if not isinstance(holds, (bool, np.bool_)):
            raise TypeError(f"holds must be True or False, got {holds!r} of type {type(holds).__name__}")
        if not any(character.isdecimal() for character in found):
            raise ValueError(f"found must show the trend by numbers, got {found!r}")
        if not bool(holds):
            raise ClaimFailed(f"claim {id!r} fails: {found}")
        return self._record(Check(claim, CAVEAT if claim.caveat else HOLDS, law, found))

    def reported(self, id: str, where: str) -> Check:
        """Note that a figure of another work is quoted, not reproduced.

        Args:
            id: a claim of kind reported.
            where: whose figure it is, in a few words.

        Raises:
            ValueError: unknown claim, another kind, or an empty source.
        """
        claim = self._row(id, "reported")
        if not isinstance(where, str) or not where.strip():
            raise ValueError(f"where must name the work, got {where!r}")
        return self._record(Check(claim, QUOTED, "", where))

    def close(self) -> Closing:
        """Return the chapter's closing table.

        Raises:
            ClaimFailed: a claim of the chapter was not checked.
        """
        open_rows = [id for id in self.rows if id not in self.checks]
        if open_rows:
            raise ClaimFailed(f"chapter {self.name!r} must check every claim; left open: {', '.join(open_rows)}")
        from memstore_lib.closing import Closing

        return Closing(self.name, self.seed, [self.checks[id] for id in self.rows])
