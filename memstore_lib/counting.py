"""One pass over the keys: each query keeps a histogram of the similarities that it has met.

::

    s       similarity of a query and a stored key; a histogram counts those with the M - 1 others

The histogram of a query says all that an elementwise score can know of the keys, so the keys are drawn and multiplied
once and then forgotten: memory does not grow with M, and every score, sharpness, cosine and M is read off afterwards.

On the CPU most time goes into drawing and multiplying the keys, which any measurement has to do. On a GPU it goes into
drawing, which stays on the CPU unless ``draws="device"`` is asked for; that gives other keys of the same law.

Queries share the keys. Their results are uncorrelated all the
same, exactly: given the keys, independent queries are independent, and the mean over a uniform query of any function
of the similarities to fixed unit keys, summed over keys, does not depend on the keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from memstore_lib import _checks, _watched, memories
from memstore_lib.device import full_precision, one_thread, resolve
from memstore_lib.scores import Score

BINS = 4096
DRAWS = ("cpu", "device")
_CHUNK = 4096  # keys drawn together
_BLOCK = 1 << 16  # keys counted together: a call for each query costs as much as counting thousands of bins
_TILE = 1 << 17  # products made together on the CPU, 512 KB: they are still in cache when they become bins
_GROUP = 256  # queries multiplied together


@dataclass(frozen=True)
class Spectrum:
    """Similarities of n queries with the first M - 1 keys, as histograms.

    Attributes:
        M: memories, the target included, which is not in the counts.
        counts: (n, bins) integers, of 16 bits where they fit, as a list of spectra is what takes memory.
        cosine: between each query and its target's key.
    """

    M: int
    counts: torch.Tensor
    cosine: float

    def __post_init__(self) -> None:
        _checks.instance("counts", self.counts, torch.Tensor, "a torch.Tensor of shape (n, bins)")

    @property
    def centres(self) -> torch.Tensor:
        """The similarities that the bins stand for, (bins,)."""
        return _centres(self.counts.shape[1])

    def at_cosine(self, cosine: float) -> Spectrum:
        """Return the same draws asked at another cosine, which moves the target alone.

        Raises:
            ValueError: a cosine outside [-1, 1].
            TypeError: not a number.
        """
        return Spectrum(self.M, self.counts, _checks.cosine(cosine))

    def _sums(self, *functions: torch.Tensor) -> torch.Tensor:
        """Return the sum of each function of s, (bins,) each, over every query's other keys: (n, functions)."""
        columns = torch.stack(functions, dim=1)
        # By blocks, as a float64 copy of all counts would be as large as everything else together.
        return torch.cat([block.double() @ columns for block in self.counts.split(64)])

    def squared_ratio(self, score: Score) -> torch.Tensor:
        """Return the squared ISR of each query, (n,), for an elementwise score.

        Binning replaces a similarity by its bin's centre. For the exponential score its bias is (β · 2/bins)²/12 of
        the ratio: with 4,096 bins 1e-6 at β = 8 and 1e-5 at β = 25. Similarities are products in float32, whose
        rounding adds up to another 1.5e-6 there, and less than 1e-6 below β = 8. For the other registered scores both
        together stay below 3e-6. Where the score is 0 at the cosine, the ratio is infinite.

        Raises:
            ValueError: a score whose squares overflow.
            TypeError: not a score.
        """
        _checks.instance("score", score, Score, "a Score")
        return self._over_signal(self._sums(score(self.centres) ** 2)[:, 0], score)

    def _over_signal(self, noise: torch.Tensor, score: Score) -> torch.Tensor:
        signal = score(torch.tensor([self.cosine], dtype=torch.float64)).abs().item()
        if not (signal < 1e150 and bool(torch.isfinite(noise).all())):
            raise ValueError(f"score {score.name!r} must have finite squares, got overflow: {score.hint}")
        signal = signal**2
        return noise / signal if signal else torch.full_like(noise, math.inf)

    def attention(self, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the softmax weight of the target and the entropy of all weights in nats, (n,) each, at sharpness β.

        Raises:
            ValueError: β negative or not finite.
            TypeError: β not a number.
        """
        beta = _checks.real("beta", beta, low=0.0)
        return self._attention(beta, self._sums(*self._exponentials(beta)))

    def _exponentials(self, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return e^{β(s-1)} and s e^{β(s-1)}: relative to a similarity of 1, so that nothing overflows."""
        weights = torch.exp(beta * (self.centres - 1))
        return weights, weights * self.centres

    def _attention(self, beta: float, sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c = self.cosine
        if beta * (1 - c) > 600:  # the target's own exponential would be lost
            return self._sharp_attention(beta)
        own = math.exp(beta * (c - 1))
        total = sums[:, 0] + own
        mean_s = (sums[:, 1] + own * c) / total
        return own / total, torch.log(total) - beta * (mean_s - 1)

    def _sharp_attention(self, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what :meth:`attention` does, relative to each query's own largest similarity."""
        top = self.nearest().clamp_min(self.cosine)[:, None]
        others = self.counts.double() * torch.exp((beta * (self.centres - top)).clamp_max(0))
        own = torch.exp(beta * (self.cosine - top))[:, 0]
        total = others.sum(1) + own
        mean_s = (others @ self.centres + own * self.cosine) / total
        return own / total, torch.log(total) - beta * (mean_s - top[:, 0])

    def gradient(self, beta: float) -> torch.Tensor:
        """Return how much the target's weight p moves with the similarities of all other keys, (n,), at sharpness β.

        By the similarity of another key with weight pᵢ it is ∂p/∂sᵢ = -β pᵢ p. Over all of them the sizes add up to
        β p (1 - p).

        Raises:
            ValueError, TypeError: as :meth:`attention`.
        """
        weight, _ = self.attention(beta)
        return beta * weight * (1 - weight)

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
    antipodes: bool = False,
    device: str | torch.device | None = None,
    draws: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Iterable[Spectrum]:
    """Yield the spectrum at each M of a grid; the keys are drawn as they are needed.

    Args:
        grid: increasing numbers of memories M, at least 2.
        d: key dimension.
        queries: independent queries, at least 2.
        cosine: c between a query and its target's key; it does not change the draws.
        seed: of the queries and of the keys.
        bins: bins over [-1, 1].
        antipodes: let the queries come in pairs q, -q, whose histograms are mirror images: half the work for as many
            queries. A steep score sees next to no correlation in a pair; a score of s² would see nothing else.
        device: where to multiply and count; None for the default device.
        draws: ``"cpu"`` draws the keys there, the same for every device. ``"device"`` draws them where they are
            multiplied: other keys of the same law, and much faster on a GPU.
        progress: called with keys done and keys in all, after each chunk; None shows a bar on a terminal and in a
            notebook when it takes long, but nothing in a build's pages.

    Raises:
        ValueError: an empty or unsorted grid, sizes too small, an odd number of queries for antipodes, a cosine outside
            [-1, 1], draws of another name.
        TypeError: sizes that are not integers.
    """
    grid = _checks.grid(grid, minimum=2)
    d, queries, bins = (
        _checks.integer("d", d),
        _checks.integer("queries", queries, minimum=2),
        _checks.integer("bins", bins, minimum=16, maximum=_checks.LONGEST),
    )
    _checks.size(queries=queries, bins=bins)
    _checks.choice("draws", draws, DRAWS)
    c, target = _checks.cosine(cosine), resolve(device)
    draw = memories.replicate_generator(seed, 0)
    if antipodes and queries % 2:
        raise ValueError(f"queries must be even to come in pairs of antipodes, got {queries}")
    bank = memories.unit_keys(queries // 2 if antipodes else queries, d, generator=draw, device=target)
    counter, chunk = _Counter(bank, bins), _CHUNK
    if draws == "device" and target.type != "cpu":
        draw, chunk = torch.Generator(target).manual_seed(draw.initial_seed()), _BLOCK
    keys = torch.empty(0, d, device=target)
    done = 0
    if progress is None:
        progress = _watched.bar("keys")
    for M in grid:
        # Not a decorator: a generator's body runs later than its call.
        with one_thread():
            while done < M - 1:
                if len(keys) == 0:  # always whole chunks, so that the draws do not depend on the grid
                    keys = memories.unit_keys(chunk, d, generator=draw, device=target)
                part, keys = keys[: M - 1 - done], keys[M - 1 - done :]
                counter.add(part)
                done += len(part)
                if progress is not None:
                    progress(done, grid[-1] - 1)
            counts = counter.flush()
            short = M <= 1 << 15 or counts.max() < 1 << 15
            counts = counts.to(torch.int16 if short else torch.int64, copy=True)
        if antipodes:
            counts = torch.stack([counts, counts.flip(1)], dim=1).flatten(0, 1)  # a pair stays in one replicate
        yield Spectrum(M, counts, c)


class _Counter:
    """Histograms of a bank of queries, in buffers that are made once: fresh arrays would cost more than counting."""

    def __init__(self, bank: torch.Tensor, bins: int) -> None:
        device, on_cpu = bank.device, bank.device.type == "cpu"
        self.bank = bank * (bins / 2)
        self.middle = torch.full((), bins / 2 + 1, dtype=bank.dtype, device=device)  # where s = 0 lies
        # A bin on either side of [-1, 1]: rounding may carry s = ±1 over the border, and clamping costs a pass.
        self.tally = (_RowTally if on_cpu else _ScatterTally)(len(bank), bins + 2, device)
        group = min(_GROUP, len(bank))
        self.tile = min(_TILE // group, 1024) if on_cpu else _BLOCK  # keys multiplied together; a GPU wants large steps
        self.waiting = torch.empty(_BLOCK, bank.shape[1], dtype=bank.dtype, device=device)
        self.filled = 0
        self.product = torch.empty(group * self.tile, dtype=bank.dtype, device=device)
        # Rows a power of two apart would share few places in the cache.
        self.index = torch.empty(group, _BLOCK + 64, dtype=self.tally.index, device=device)

    def add(self, keys: torch.Tensor) -> None:
        """Count the similarities of all queries with some keys, (m, d)."""
        while len(keys):
            part, keys = keys[: _BLOCK - self.filled], keys[_BLOCK - self.filled :]
            self.waiting[self.filled : self.filled + len(part)] = part
            self.filled += len(part)
            if self.filled == _BLOCK:
                self._empty()

    def flush(self) -> torch.Tensor:
        """Return the counts so far, (n, bins) integers, which go on counting: copy them to keep them."""
        self._empty()
        total = self.tally.counts()
        for border, inside in ((0, 1), (-1, -2)):
            total[:, inside] += total[:, border]
            total[:, border] = 0
        return total[:, 1:-1]

    def _empty(self) -> None:
        """Count the keys that are waiting."""
        with full_precision():
            for start in range(0, len(self.bank), _GROUP):
                group = self.bank[start : start + _GROUP]
                index = self.index[: len(group), : self.filled]
                for at in range(0, self.filled, self.tile):
                    keys = self.waiting[at : min(at + self.tile, self.filled)]
                    product = self.product[: len(group) * len(keys)].view(len(group), len(keys))
                    torch.addmm(self.middle, group, keys.T, out=product)
                    index[:, at : at + len(keys)] = product  # cuts off the fraction
                self.tally.add(start, index)
        self.filled = 0


class _RowTally:
    """Counts on the CPU: a call of bincount for each query, whose row of counts stays in the innermost cache."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self.index = torch.int16 if width < 1 << 15 else torch.int32
        self.width = width
        self.total = torch.zeros(rows, width, dtype=torch.int64, device=device)

    def add(self, start: int, index: torch.Tensor) -> None:
        """Count (n, m) bins of the queries from ``start`` on."""
        for row, bins in zip(self.total[start : start + len(index)], index, strict=True):
            row.add_(torch.bincount(bins, minlength=self.width))

    def counts(self) -> torch.Tensor:
        """Return the counts so far, (rows, width)."""
        return self.total


class _ScatterTally:
    """Counts on another device: one call for all queries, with atomic additions there."""

    index = torch.int64  # what scatter_add_ takes

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        # Sums of integers do not depend on their order. MPS adds floats, which count exactly to 2²⁴ = 16.7 million.
        kind = torch.int32 if device.type == "cuda" else torch.float32
        self.recent = torch.zeros(rows, width, dtype=kind, device=device)
        self.one = torch.ones((), dtype=kind, device=device)
        self.total = torch.zeros(rows, width, dtype=torch.int64)
        self.since = 0

    def add(self, start: int, index: torch.Tensor) -> None:
        """Count (n, m) bins of the queries from ``start`` on."""
        self.recent[start : start + len(index)].scatter_add_(1, index, self.one.expand_as(index))
        self.since += index.shape[1]  # of every group of queries, so early rather than late
        if self.since >= 1 << 23:
            self.counts()

    def counts(self) -> torch.Tensor:
        """Return the counts so far, (rows, width)."""
        self.total += self.recent.cpu().long()
        self.recent.zero_()
        self.since = 0
        return self.total
