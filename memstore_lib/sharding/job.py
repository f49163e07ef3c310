"""What shall be measured, and the stages in which the keys are met.

::

    stage   the keys between one M of the grid and the next, in one replicate; a stage is made of blocks
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memstore_lib import _checks
from memstore_lib.counting import BINS
from memstore_lib.scores import Score
from memstore_lib.sharding.blocks import BLOCK, MOST
from memstore_lib.sharding.spans import Span

Entry = Score | Callable[[int], Score]


@dataclass(frozen=True)
class Stage:
    """The keys from ``first`` to before ``last`` of one replicate, after which its spectrum at ``M`` is known."""

    replicate: int
    M: int
    first: int
    last: int
    block: int

    @property
    def blocks(self) -> Span:
        """The blocks that these keys lie in; the outer ones may be shared with a neighbouring stage."""
        return self.first // self.block, -(-self.last // self.block)

    def inside(self, block: int) -> slice:
        """Return which keys of a block belong to the stage."""
        start = block * self.block
        return slice(max(0, self.first - start), min(self.block, self.last - start))

    def keys_in(self, blocks: Sequence[int]) -> int:
        """Return how many keys of the stage lie in a span of blocks."""
        start, stop = blocks
        return min(self.last, stop * self.block) - max(self.first, start * self.block)


@dataclass(frozen=True)
class Job:
    """A measurement of many scores and sharpness rules along a grid of M, from one pass over the keys a replicate.

    Args:
        scores: label to a score, or to a function of M that returns the score at that M, such as ``Su().score``.
        grid: increasing numbers of memories M, at least 2.
        d: key dimension.
        queries: queries a replicate.
        replicates: independent replicates, at least 2, each with keys and queries of its own.
        cosines: cosines between query and target's key; the same draws serve all.
        seed: of all draws.
        bins: bins of the histograms over [-1, 1]; see :class:`memstore_lib.counting.Spectrum` for their bias.
        block: keys that are drawn from one seed.

    Raises:
        ValueError: no scores, an empty or unsorted grid, sizes out of range, a cosine outside [-1, 1].
        TypeError: arguments of another type.
    """

    scores: Mapping[str, Entry]
    grid: Sequence[int]
    d: int = 64
    queries: int = 64
    replicates: int = 20
    cosines: Sequence[float] = (1.0,)
    seed: int = 0
    bins: int = BINS
    block: int = BLOCK
    _stages: list[Stage] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.instance("scores", self.scores, Mapping, "a mapping of labels to scores")
        if not self.scores:
            raise ValueError("scores must hold at least one score, got none")
        grid = _checks.grid(self.grid, minimum=2)
        _checks.integer("d", self.d)
        _checks.integer("queries", self.queries)
        _checks.integer("replicates", self.replicates, minimum=2)
        _checks.integer("seed", self.seed, minimum=0)
        _checks.integer("bins", self.bins, minimum=16, maximum=_checks.LONGEST)
        _checks.integer("block", self.block, maximum=_checks.LONGEST)
        _checks.size(queries=self.queries, bins=self.bins)
        _checks.size(block=self.block, d=self.d)
        if grid[-1] - 1 > MOST * self.block:
            raise ValueError(
                f"grid must end by {MOST * self.block + 1:,} memories, 2³² blocks of {self.block:,} keys, "
                f"got {grid[-1]:,}"
            )
        _checks.integer("replicates · numbers of memories", self.replicates * len(grid), maximum=_checks.LONGEST)
        cosines = [_checks.cosine(c) for c in self.cosines]
        if not cosines or len(set(cosines)) < len(cosines):
            raise ValueError(f"cosines must be at least one and all different, got {cosines}")
        object.__setattr__(self, "grid", tuple(grid))
        object.__setattr__(self, "cosines", tuple(cosines))
        for M in grid:
            self.scores_at(M)  # a rule that fails at some M shall fail before the keys are drawn
        met = [0, *(M - 1 for M in grid)]
        stages = [
            Stage(r, M, before, M - 1, self.block)
            for r in range(self.replicates)
            for before, M in zip(met, grid, strict=False)
        ]
        object.__setattr__(self, "_stages", stages)

    @property
    def stages(self) -> Sequence[Stage]:
        """All stages in the order in which they are measured."""
        return self._stages

    @property
    def keys(self) -> int:
        """Keys to be drawn, in all replicates together."""
        return self.replicates * (self.grid[-1] - 1)

    def scores_at(self, M: int) -> dict[str, Score]:
        """Return the score of each label at one M.

        Raises:
            TypeError: an entry that neither is a score nor returns one.
        """
        return dict(self._scores_at(M))

    def _scores_at(self, M: int) -> Iterator[tuple[str, Score]]:
        for label, entry in self.scores.items():
            score = entry if isinstance(entry, Score) or not callable(entry) else entry(M)
            if not isinstance(score, Score):
                raise TypeError(f"scores[{label!r}] must be a Score or return one, got {type(score).__name__}")
            yield label, score

    def parameters(self) -> dict[str, object]:
        """Return all that the results depend on, as plain values: a checkpoint of other parameters is refused."""
        described = {label: _digest([_described(self.scores_at(M)[label]) for M in self.grid]) for label in self.scores}
        return {
            "d": self.d,
            "grid": list(self.grid),
            "queries": self.queries,
            "replicates": self.replicates,
            "cosines": list(self.cosines),
            "seed": self.seed,
            "bins": self.bins,
            "block": self.block,
            "scores": described,
        }


def _described(score: Score) -> object:
    return [type(score).__qualname__, repr(sorted(getattr(score, "__dict__", {}).items()))]


def _digest(thing: object) -> str:
    return hashlib.sha256(json.dumps(thing).encode()).hexdigest()[:12]
