"""One pass over the keys for every score, every sharpness rule and every M.

::

    s       similarity of a query and a stored key; each query keeps a histogram of the M - 1 it has met
    σ, β    any score and any sharpness, read off the histograms afterwards

The histogram of a query says all that an elementwise score can know of the keys, so the keys are drawn and multiplied
once and then forgotten: memory does not grow with M. Queries share the keys. Their results are uncorrelated all the
same, exactly: given the keys, independent queries are independent, and the mean over a uniform query of any function
of the similarities to fixed unit keys, summed over keys, does not depend on the keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from memstore_lib import _checks, memories
from memstore_lib.device import one_thread, resolve
from memstore_lib.measurement import Measurement
from memstore_lib.scores import Exponential, Score

BINS = 4096
_CHUNK = 4096
_GROUP = 64  # queries whose histograms are filled together


@dataclass(frozen=True)
class Spectrum:
    """Similarities of n queries with the first M - 1 keys, as histograms.

    Attributes:
        M: memories, the target included, which is not in the counts.
        counts: (n, bins), float64.
        cosine: between each query and its target's key.
    """

    M: int
    counts: torch.Tensor
    cosine: float

    @property
    def centres(self) -> torch.Tensor:
        """The similarities that the bins stand for, (bins,)."""
        return _centres(self.counts.shape[1])

    def squared_ratio(self, score: Score) -> torch.Tensor:
        """Return the squared ISR of each query, (n,), for an elementwise score.

        Binning replaces a similarity by its bin's centre. Its bias is below 1e-5 of the ratio at β = 25 and far below
        at smaller β; tested.
        """
        signal = score(torch.tensor([self.cosine], dtype=torch.float64)) ** 2
        return (self.counts @ score(self.centres) ** 2) / signal

    def attention(self, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the softmax weight of the target and the entropy of all weights in nats, (n,) each, at sharpness β.

        Raises:
            ValueError: β negative or not finite.
            TypeError: β not a number.
        """
        beta = _checks.real("beta", beta, low=0.0)
        s, c = self.centres, self.cosine
        # Relative to a similarity of 1, so that no exponential overflows.
        others, own = torch.exp(beta * (s - 1)), math.exp(beta * (c - 1))
        total = self.counts @ others + own
        mean_s = (self.counts @ (others * s) + own * c) / total
        return own / total, torch.log(total) - beta * (mean_s - 1)

    def nearest(self) -> torch.Tensor:
        """Return the largest similarity to another key that each query has met, (n,)."""
        return torch.where(self.counts > 0, self.centres, torch.full_like(self.centres, -1.0)).amax(1)


def _centres(bins: int) -> torch.Tensor:
    return (torch.arange(bins, dtype=torch.float64) + 0.5) * (2 / bins) - 1


def spectra(
    grid: Iterable[int],
    *,
    d: int = 64,
    queries: int = 320,
    cosine: float = 1.0,
    seed: int = 0,
    bins: int = BINS,
    device: str | torch.device | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterable[Spectrum]:
    """Yield the spectrum at each M of a grid; the keys are drawn as they are needed.

    Args:
        grid: increasing numbers of memories M, at least 2.
        d: key dimension.
        queries: independent queries, at least 2.
        cosine: c between a query and its target's key; it does not change the draws.
        seed: of the queries and of the keys, which are drawn on the CPU.
        bins: bins over [-1, 1].
        device: where to multiply; None for the default device.
        progress: called with keys done and keys in all, after each chunk.

    Raises:
        ValueError: an empty or unsorted grid, sizes too small, a cosine outside [-1, 1].
        TypeError: sizes that are not integers.
    """
    grid = _checks.grid(grid, minimum=2)
    d, queries, bins = (
        _checks.integer("d", d),
        _checks.integer("queries", queries, minimum=2),
        _checks.integer("bins", bins, minimum=16),
    )
    c, target = _checks.cosine(cosine), resolve(device)
    draw = memories.replicate_generator(seed, 0)
    bank = memories.unit_keys(queries, d, generator=draw, device=target)
    counter = _Counter(bank, bins)
    keys = torch.empty(0, d, device=target)
    done = 0
    for M in grid:
        # Not a decorator: a generator's body runs later than its call.
        with one_thread():
            while done < M - 1:
                if len(keys) == 0:  # always whole chunks, so that the draws do not depend on the grid
                    keys = memories.unit_keys(_CHUNK, d, generator=draw, device=target)
                part, keys = keys[: M - 1 - done], keys[M - 1 - done :]
                counter.add(part)
                done += len(part)
                if progress is not None:
                    progress(done, grid[-1] - 1)
        yield Spectrum(M, counter.flush().clone(), c)


class _Counter:
    """Histograms of a bank of queries, filled in place: a fresh array for each chunk would cost more than counting."""

    def __init__(self, bank: torch.Tensor, bins: int) -> None:
        self.bank, self.bins = bank * (bins / 2), bins
        self.total = torch.zeros(len(bank), bins, dtype=torch.float64)
        # Float32 counts exactly up to 2²⁴ = 16.7 million, so it is emptied into the total in time.
        self.recent = torch.zeros(len(bank), bins, dtype=torch.float32, device=bank.device)
        self.since = 0
        self.one = torch.ones((), device=bank.device)
        self.shape = (min(_GROUP, len(bank)), _CHUNK)
        self.at = torch.empty(self.shape, dtype=bank.dtype, device=bank.device)
        self.index = torch.empty(self.shape, dtype=torch.int64, device=bank.device)

    def add(self, keys: torch.Tensor) -> None:
        """Count the similarities of all queries with some keys, (at most a chunk, d)."""
        n = len(keys)
        for start in range(0, len(self.bank), _GROUP):
            group = self.bank[start : start + _GROUP]
            at, index = self.at[: len(group), :n], self.index[: len(group), :n]
            torch.mm(group, keys.T, out=at) if n == _CHUNK else at.copy_(group @ keys.T)
            index.copy_(at.add_(self.bins / 2).clamp_(0, self.bins - 1))  # s = ±1 to rounding stays in its row
            self.recent[start : start + _GROUP].scatter_add_(1, index, self.one.expand_as(index))
        self.since += n
        if self.since >= 1 << 22:
            self.flush()

    def flush(self) -> torch.Tensor:
        """Return the counts so far."""
        self.total += self.recent.cpu()
        self.recent.zero_()
        self.since = 0
        return self.total


def interference(
    scores: Mapping[str, Score | Callable[[int], Score]],
    grid: Iterable[int],
    *,
    d: int = 64,
    queries: int = 320,
    replicates: int = 20,
    cosines: Iterable[float] = (1.0,),
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Measurement, pd.DataFrame]:
    """Measure many scores, sharpness rules and cosines along a grid, from one pass over the keys.

    Args:
        scores: label to a score, or to a function of M that returns the score at that M, such as
            ``Su().score``.
        grid: increasing numbers of memories M.
        d: key dimension.
        queries: queries in all; they are dealt to the replicates.
        replicates: groups of queries, at least 2. See the module's text for why they are uncorrelated.
        cosines: cosines c between query and target's key to evaluate; the same draws serve all.
        seed, device, progress: as in :func:`spectra`.

    Returns:
        The :class:`memstore_lib.measurement.Measurement`, and a table with store, M, cosine, replicate, the mean
        softmax ``weight`` of the target and the mean ``entropy`` in nats, for the exponential scores.

    Raises:
        ValueError: no scores, fewer queries than replicates, and as :func:`spectra`.
        TypeError: something that is no score, and as :func:`spectra`.
    """
    if not scores:
        raise ValueError("scores must hold at least one score, got none")
    replicates = _checks.integer("replicates", replicates, minimum=2)
    if _checks.integer("queries", queries) < replicates:
        raise ValueError(f"queries must number at least replicates = {replicates}, got {queries}")
    cosines = [_checks.cosine(c) for c in cosines]
    rows, softmax = [], []
    for spectrum in spectra(grid, d=d, queries=queries, seed=seed, device=device, progress=progress):
        for c in cosines:
            seen = Spectrum(spectrum.M, spectrum.counts, c)
            for label, entry in scores.items():
                score = entry if isinstance(entry, Score) else entry(spectrum.M)
                if not isinstance(score, Score):
                    raise TypeError(f"scores[{label!r}] must be a Score or return one, got {type(score).__name__}")
                squares = seen.squared_ratio(score)
                for r, group in enumerate(squares.tensor_split(replicates)):
                    root = group.sqrt()
                    summary = (group.mean().item(), root.mean().item(), root.median().item())
                    rows.append((label, d, spectrum.M, c, r, *summary))
                if isinstance(score, Exponential):
                    weight, entropy = (x.tensor_split(replicates) for x in seen.attention(score.beta))
                    for r, (w, h) in enumerate(zip(weight, entropy, strict=True)):
                        softmax.append((label, spectrum.M, c, r, w.mean().item(), h.mean().item()))
    columns = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    extra = pd.DataFrame(softmax, columns=["store", "M", "cosine", "replicate", "weight", "entropy"])
    return Measurement(pd.DataFrame(rows, columns=columns)), extra
