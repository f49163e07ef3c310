"""Scores, sharpness rules and cosines, read off histograms of similarities: one pass over the keys serves them all.

::

    s       similarity of a query and a stored key; :mod:`memstore_lib.counting` keeps a histogram of them
    σ, β    any score and any sharpness, read off the histograms afterwards
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
import torch

from memstore_lib import _checks
from memstore_lib.counting import _CHUNK as _CHUNK
from memstore_lib.counting import BINS as BINS
from memstore_lib.counting import Spectrum, spectra
from memstore_lib.counting import _centres as _centres
from memstore_lib.counting import _Counter as _Counter
from memstore_lib.device import one_thread
from memstore_lib.intervals import interval
from memstore_lib.measurement import Measurement
from memstore_lib.scores import Exponential, Score

ATTENTION = ("weight", "entropy", "gradient")
MEASURED = ("store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median")
SOFTMAX = ("store", "M", "cosine", "replicate", *ATTENTION)


def interference(
    scores: Mapping[str, Score | Callable[[int], Score]],
    grid: Iterable[int],
    *,
    d: int = 64,
    queries: int = 320,
    replicates: int = 20,
    cosines: Iterable[float] = (1.0,),
    seed: int = 0,
    bins: int = BINS,
    antipodes: bool = False,
    device: str | torch.device | None = None,
    draws: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Measurement, pd.DataFrame]:
    """Measure many scores, sharpness rules and cosines along a grid, from one pass over the keys.

    Args:
        scores: label to a score, or to a function of M that returns the score at that M, such as
            ``Su().score``.
        grid: increasing numbers of memories M.
        d: key dimension.
        queries: queries in all; they are dealt to the replicates.
        replicates: groups of queries, at least 2. See :mod:`memstore_lib.counting` for why they are uncorrelated.
        cosines: cosines c between query and target's key to evaluate; the same draws serve all.
        antipodes: as in :func:`memstore_lib.counting.spectra`; each replicate must get whole pairs.
        seed, bins, device, draws, progress: as in :func:`memstore_lib.counting.spectra`.

    Returns:
        What :func:`read` does.

    Raises:
        ValueError, TypeError: as :func:`read` and :func:`memstore_lib.counting.spectra`.
    """
    if _checks.integer("queries", queries) < _checks.integer("replicates", replicates, minimum=2):
        raise ValueError(f"queries must number at least replicates = {replicates}, got {queries}")
    if antipodes and queries % (2 * replicates):
        raise ValueError(f"queries must be a multiple of 2 · replicates = {2 * replicates} for pairs, got {queries}")
    options = {"bins": bins, "antipodes": antipodes, "device": device, "draws": draws, "progress": progress}
    seen = spectra(grid, d=d, queries=queries, seed=seed, **options)  # type: ignore[arg-type]
    return read(seen, scores, d=d, replicates=replicates, cosines=cosines)


@one_thread()
def read(
    spectra: Iterable[Spectrum],
    scores: Mapping[str, Score | Callable[[int], Score]],
    *,
    d: int = 64,
    replicates: int = 20,
    cosines: Iterable[float] = (1.0,),
) -> tuple[Measurement, pd.DataFrame]:
    """Read scores, sharpness rules and cosines off spectra that were measured before.

    Args:
        spectra: what :func:`memstore_lib.counting.spectra` yields, as it comes or kept in a list.
        scores, replicates, cosines: as in :func:`interference`.
        d: key dimension, for the table.

    Returns:
        The :class:`memstore_lib.measurement.Measurement`, and a table with store, M, cosine and replicate, and the
        means of the target's softmax ``weight``, the ``entropy`` in nats and the ``gradient`` to the other keys, for
        the exponential scores.

    Raises:
        ValueError: no scores, fewer queries than replicates, a cosine outside [-1, 1], a score whose squares overflow.
        TypeError: not a mapping of scores; something that is no spectrum or no score.
    """
    _checks.instance("scores", scores, Mapping, "a mapping of labels to scores")
    _checks.instance("spectra", spectra, Iterable, "a sequence of Spectrum objects")
    if not scores:
        raise ValueError("scores must hold at least one score, got none")
    replicates = _checks.integer("replicates", replicates, minimum=2)
    cosines = [_checks.cosine(c) for c in cosines]
    if not cosines or len(set(cosines)) < len(cosines):
        raise ValueError(f"cosines must be at least one and all different, got {cosines}")
    tables, softmax = [], []
    for spectrum in spectra:
        if not isinstance(spectrum, Spectrum):
            raise TypeError(f"spectra must hold Spectrum objects, got {type(spectrum).__name__}")
        M, n = spectrum.M, len(spectrum.counts)
        if n < replicates:
            raise ValueError(f"queries must number at least replicates = {replicates}, got {n}")
        chosen = {label: _score(label, entry, M) for label, entry in scores.items()}
        sharp = {label: score.beta for label, score in chosen.items() if isinstance(score, Exponential)}
        centres = spectrum.centres
        functions = [score(centres) ** 2 for score in chosen.values()]
        functions += [one for beta in sharp.values() for one in spectrum._exponentials(beta)]
        sums = spectrum._sums(*functions)  # all at once: reading the counts is what takes time
        for seen in map(spectrum.at_cosine, cosines):
            squares = [seen._over_signal(sums[:, k], score) for k, score in enumerate(chosen.values())]
            at = {"store": list(chosen), "d": d, "M": M, "cosine": seen.cosine}
            tables.append(_table(at, _summaries(torch.stack(squares, dim=1).numpy(), replicates)))
            if sharp:
                pairs = sums[:, len(chosen) :].unflatten(1, (len(sharp), 2)).unbind(1)
                attention = [seen._attention(beta, one) for beta, one in zip(sharp.values(), pairs, strict=True)]
                weight, entropy = (torch.stack(part, dim=1).numpy() for part in zip(*attention, strict=True))
                columns = (weight, entropy, np.array(list(sharp.values())) * weight * (1 - weight))
                means = {name: _means(column, replicates) for name, column in zip(ATTENTION, columns, strict=True)}
                softmax.append(_table({"store": list(sharp), "M": M, "cosine": seen.cosine}, means))
    return Measurement(_joined(tables, MEASURED)), _joined(softmax, SOFTMAX)


def _groups(x: np.ndarray, replicates: int) -> list[np.ndarray]:
    """Deal the rows of (n, m) to replicates, one more to the first ones where n does not divide: (r, rows, m) each."""
    size, longer = divmod(len(x), replicates)
    border = longer * (size + 1)
    width = x.shape[1]
    parts = x[:border].reshape(longer, size + 1, width), x[border:].reshape(replicates - longer, size, width)
    return [part for part in parts if len(part)]


def _means(x: np.ndarray, replicates: int) -> np.ndarray:
    """Return the mean of (n, m) in each replicate, (replicates, m)."""
    return np.concatenate([group.mean(1) for group in _groups(x, replicates)])


def _summaries(squares: np.ndarray, replicates: int) -> dict[str, np.ndarray]:
    """Return what a :class:`Measurement` holds of squared ratios (n, m), (replicates, m) each."""
    ratios = np.sqrt(squares)
    return {
        "mean_square": _means(squares, replicates),
        "mean": _means(ratios, replicates),
        "median": np.concatenate([np.median(group, axis=1) for group in _groups(ratios, replicates)]),
    }


def _table(at: Mapping[str, object], columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return a row for each store and replicate, of columns (replicates, stores)."""
    replicates, stores = next(iter(columns.values())).shape
    store = {"store": np.repeat(np.array(at["store"], dtype=object), replicates)}
    rest = {"replicate": np.tile(np.arange(replicates), stores)}
    return pd.DataFrame({**at, **store, **rest, **{name: column.T.ravel() for name, column in columns.items()}})


def _joined(tables: list[pd.DataFrame], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[list(columns)] if tables else pd.DataFrame(columns=list(columns))


def _score(label: str, entry: Score | Callable[[int], Score], M: int) -> Score:
    score = entry if isinstance(entry, Score) or not callable(entry) else entry(M)
    if not isinstance(score, Score):
        raise TypeError(f"scores[{label!r}] must be a Score or return one, got {type(score).__name__}")
    return score


def attention_table(table: pd.DataFrame, column: str, level: float = 0.95) -> pd.DataFrame:
    """Return a column of :func:`read`'s second table with its intervals: store, M, cosine, kind, value, low, high.

    Args:
        table: that table.
        column: ``"weight"``, ``"entropy"`` or ``"gradient"``.
        level: confidence.

    Raises:
        ValueError: another column, or a level outside (0, 1).
        TypeError: not a table.
    """
    _checks.instance("table", table, pd.DataFrame, "a table, as read() returns it")
    _checks.choice("column", column, ATTENTION)
    rows = []
    for (store, M, cosine), group in table.groupby(["store", "M", "cosine"], sort=False):
        found = interval(group[column], level)
        rows.append((store, M, cosine, "measured", found.value, found.low, found.high))
    return pd.DataFrame(rows, columns=["store", "M", "cosine", "kind", "value", "low", "high"])
