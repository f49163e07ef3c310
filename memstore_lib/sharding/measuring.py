"""The measurement itself: ranks take blocks, count similarities, and add up their counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks
from memstore_lib.counting import Spectrum
from memstore_lib.device import one_thread
from memstore_lib.measurement import Measurement
from memstore_lib.scores import Exponential
from memstore_lib.sharding import blocks, histograms
from memstore_lib.sharding.checkpoints import Folder, State
from memstore_lib.sharding.job import Job, Stage
from memstore_lib.sharding.ranks import Ranks
from memstore_lib.sharding.spans import Span, length, missing, pieces
from memstore_lib.spectrum import ATTENTION

_AT_A_TIME = 1 << 18  # keys that a rank takes at most before it asks for more: about half a second of one core

#: Called with keys counted so far, by all ranks together.
Progress = Callable[[int], None]


class Miscounted(RuntimeError):
    """Counts that are not those of the blocks they are said to be of: a counter at fault, or an edited checkpoint."""


def measure(
    job: Job,
    ranks: Ranks,
    *,
    checkpoint: str | Path | None = None,
    every: float = 60.0,
    progress: Progress | None = None,
    make: histograms.Make = histograms.default,
) -> tuple[Measurement, pd.DataFrame] | None:
    """Measure on one rank or many; memory does not grow with M.

    Args:
        job: what to measure.
        ranks: this process and the others, from :func:`memstore_lib.sharding.ranks.opened`.
        checkpoint: folder that all ranks see, from which a measurement is taken up and in which it is kept; None keeps
            nothing.
        every: seconds after which a rank writes down its counts, beside the end of each stage.
        progress: called on rank 0.
        make: makes what counts the similarities.

    Returns:
        On rank 0 the :class:`memstore_lib.measurement.Measurement` and the table of attention, as
        :func:`memstore_lib.spectrum.read` returns them; on other ranks None.

    Raises:
        ValueError: more ranks than blocks; a checkpoint of another measurement, damaged, or not seen by a rank; a
            score whose squares overflow.
        OSError: the checkpoint cannot be written; what it holds already is whole.
        LostContact, FirstFailed: another rank has failed.
    """
    every = _checks.real("every", every, low=0.0)
    ranks.first(lambda: _enough(job, ranks.size))
    parameters = {**job.parameters(), "draws": "cuda" if ranks.device.type == "cuda" else "cpu"}
    folder = None if checkpoint is None else Folder(checkpoint, parameters)
    run = _Run(job, ranks, folder, every, progress, make)
    with one_thread():
        return run.all()


def _enough(job: Job, size: int) -> None:
    most = -(-(job.grid[-1] - 1) // job.block)
    if size > most:
        raise ValueError(
            f"ranks must be at most the {most} block(s) of {job.block:,} keys that M = {job.grid[-1]:,} has, "
            f"got {size}: start fewer"
        )


class _Run:
    """One rank's part of a measurement; ``state`` is known to rank 0 alone."""

    def __init__(
        self,
        job: Job,
        ranks: Ranks,
        folder: Folder | None,
        every: float,
        progress: Progress | None,
        make: histograms.Make,
    ) -> None:
        self.job, self.ranks, self.folder, self.every, self.make = job, ranks, folder, every, make
        self.progress = progress if ranks.rank == 0 else None
        self.state: State | None = None
        self.bank: tuple[int, torch.Tensor] | None = None
        self.saved = time.monotonic()
        self.holding = contextlib.ExitStack()

    def all(self) -> tuple[Measurement, pd.DataFrame] | None:
        with self.holding:
            return self._all()

    def _all(self) -> tuple[Measurement, pd.DataFrame] | None:
        plan = self.ranks.first(self._take_up)
        self._see(plan["token"])
        while plan["stage"] < len(self.job.stages):
            counts = self._count(self.job.stages[plan["stage"]], plan)
            total = self.ranks.sum(counts)
            plan = self.ranks.first(lambda total=total: self._advance(total))
        return None if self.state is None else _tables(self.state)

    def _take_up(self) -> dict[str, object]:
        """Start, or go on from a checkpoint, whose parts are first made one: the ranks need not be those that wrote."""
        found = None
        if self.folder:
            self.holding.enter_context(self.folder.held())
            found = self.folder.load()
        nothing = np.zeros((self.job.queries, self.job.bins), dtype=np.int64)
        self.state = State(nothing) if found is None else self._sound(found)
        return self._plan()

    def _sound(self, found: State) -> State:
        """Return a state that can have come from this measurement; others are by another hand."""
        job, stage = self.job, found.stage
        rows = stage * len(job.scores) * len(job.cosines)
        if found.counts.shape != (job.queries, job.bins) or found.counts.dtype.kind != "i":
            raise ValueError(self.folder.damaged(f"counts are {found.counts.dtype} of shape {found.counts.shape}"))
        if not (isinstance(stage, int) and 0 <= stage <= len(job.stages)) or len(found.rows) != rows:
            raise ValueError(self.folder.damaged(f"{len(found.rows)} results in stage {stage}"))
        return found

    def _plan(self) -> dict[str, object]:
        """Write the state down and say what is left of its stage."""
        state = self.state
        if self.folder:
            self.folder.commit(state)
        left = []
        if state.stage < len(self.job.stages):
            left = missing(self.job.stages[state.stage].blocks, state.done)
        return {"stage": state.stage, "left": left, "token": state.token}

    def _see(self, token: str) -> None:
        if self.folder and self.folder.token() != token:
            raise ValueError(
                f"checkpoint {self.folder.path} must be a folder that every rank sees, but rank {self.ranks.rank} "
                "does not find in it what rank 0 wrote"
            )

    def _count(self, stage: Stage, plan: dict) -> torch.Tensor:
        """Count the blocks that this rank gets, until all are taken; return its counts, (queries, bins)."""
        counter, mine = self.make(self._bank(stage.replicate), self.job.bins), []
        few = max(1, length(plan["left"]) // (4 * self.ranks.size))  # so that every rank gets some
        parts = pieces(plan["left"], min(few, max(1, _AT_A_TIME // self.job.block)))
        counted = self._met_before(plan["stage"]) + stage.last - stage.first
        left = [0, *np.cumsum([stage.keys_in(part) for part in reversed(parts)], dtype=object)][::-1]
        while (i := self.ranks.claim(f"{plan['stage']}/{plan['token']}")) < len(parts):
            for block in range(*parts[i]):
                drawn = blocks.keys(
                    self.job.seed, stage.replicate, block, self.job.d, size=self.job.block, device=self.ranks.device
                )
                for keys in drawn[stage.inside(block)].split(histograms.AT_A_TIME):
                    counter.add(keys)
            mine.append(parts[i])
            self._keep(plan["token"], mine, counter)
            if self.progress:
                self.progress(counted - left[i + 1])
        return _whole_numbers(counter)

    def _met_before(self, stage: int) -> int:
        return sum(one.last - one.first for one in self.job.stages[:stage])

    def _bank(self, replicate: int) -> torch.Tensor:
        if self.bank is None or self.bank[0] != replicate:
            job = self.job
            self.bank = replicate, blocks.bank(job.seed, replicate, job.queries, job.d, device=self.ranks.device)
        return self.bank[1]

    def _keep(self, token: str, mine: list[Span], counter: histograms.Histograms) -> None:
        if self.folder and time.monotonic() - self.saved >= self.every:
            self.folder.save_part(token, self.ranks.rank, mine, _whole_numbers(counter).numpy())
            self.saved = time.monotonic()

    def _advance(self, total: torch.Tensor) -> dict[str, object]:
        """Take the counts of a finished stage into the state and read the scores off them."""
        state, stage = self.state, self.job.stages[self.state.stage]
        state.counts = state.counts + total.numpy()
        rows, attention = _read(self.job, stage, state.counts)
        state.rows += rows
        state.attention += attention
        state.stage, state.done = state.stage + 1, []
        if stage.M == self.job.grid[-1]:
            state.counts = np.zeros_like(state.counts)
        return self._plan()


def _whole_numbers(counter: histograms.Histograms) -> torch.Tensor:
    # A copy, as the counter goes on with its own, and without gaps, as ranks add up nothing else.
    return counter.flush().to(torch.int64).clone(memory_format=torch.contiguous_format)


def _read(job: Job, stage: Stage, counts: np.ndarray) -> tuple[list[list], list[list]]:
    """Return the rows of one replicate at one M: of the ratio, and of attention for the exponential scores."""
    met = int(counts.sum())
    if met != (stage.M - 1) * job.queries:
        raise Miscounted(f"every query must have met {stage.M - 1} keys once, got {met / job.queries} on average")
    seen, rows, attention = Spectrum(stage.M, torch.from_numpy(counts), 1.0), [], []
    for label, score in job.scores_at(stage.M).items():
        for cosine in job.cosines:
            asked = seen.at_cosine(cosine)
            squares = asked.squared_ratio(score).numpy()
            root, at = np.sqrt(squares), [label, job.d, stage.M, cosine, stage.replicate]
            rows.append([*at, float(squares.mean()), float(root.mean()), float(np.median(root))])
            if isinstance(score, Exponential):
                weight, entropy = asked.attention(score.beta)
                slope = score.beta * weight * (1 - weight)
                means = [float(x.mean()) for x in (weight, entropy, slope)]
                attention.append([label, stage.M, cosine, stage.replicate, *means])
    return rows, attention


def _tables(state: State) -> tuple[Measurement, pd.DataFrame]:
    columns = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    attention = pd.DataFrame(state.attention, columns=["store", "M", "cosine", "replicate", *ATTENTION])
    return Measurement(pd.DataFrame(state.rows, columns=columns)), attention
