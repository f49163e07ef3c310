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
from memstore_lib.intervals import interval
from memstore_lib.measurement import Measurement
from memstore_lib.scores import Exponential, Score

ATTENTION = ("weight", "entropy", "gradient")


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
        replicates: groups of queries, at least 2. See :mod:`memstore_lib.counting` for why they are uncorrelated.
        cosines: cosines c between query and target's key to evaluate; the same draws serve all.
        seed, device, progress: as in :func:`memstore_lib.counting.spectra`.

    Returns:
        What :func:`read` does.

    Raises:
        ValueError, TypeError: as :func:`read` and :func:`memstore_lib.counting.spectra`.
    """
    if _checks.integer("queries", queries) < _checks.integer("replicates", replicates, minimum=2):
        raise ValueError(f"queries must number at least replicates = {replicates}, got {queries}")
    seen = spectra(grid, d=d, queries=queries, seed=seed, device=device, progress=progress)
    return read(seen, scores, d=d, replicates=replicates, cosines=cosines)


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
    rows, softmax = [], []
    for spectrum in spectra:
        if not isinstance(spectrum, Spectrum):
            raise TypeError(f"spectra must hold Spectrum objects, got {type(spectrum).__name__}")
        M, n = spectrum.M, len(spectrum.counts)
        if n < replicates:
            raise ValueError(f"queries must number at least replicates = {replicates}, got {n}")
        chosen = {label: _score(label, entry, M) for label, entry in scores.items()}
        sharp = {label: score.beta for label, score in chosen.items() if isinstance(score, Exponential)}
        functions = [score(spectrum.centres) ** 2 for score in chosen.values()]
        functions += [one for beta in sharp.values() for one in spectrum._exponentials(beta)]
        sums = spectrum._sums(*functions)  # all at once: reading the counts is what takes time
        for seen in map(spectrum.at_cosine, cosines):
            for k, (label, score) in enumerate(chosen.items()):
                for r, group in enumerate(seen._over_signal(sums[:, k], score).tensor_split(replicates)):
                    root = group.sqrt().numpy()
                    summary = (group.mean().item(), float(root.mean()), float(np.median(root)))
                    rows.append((label, d, M, seen.cosine, r, *summary))
            for k, (label, beta) in enumerate(sharp.items()):
                at = len(chosen) + 2 * k
                weight, entropy = seen._attention(beta, sums[:, at : at + 2])
                measured = torch.stack([weight, entropy, beta * weight * (1 - weight)], dim=1)
                for r, group in enumerate(measured.tensor_split(replicates)):
                    softmax.append((label, M, seen.cosine, r, *group.mean(0).tolist()))
    columns = ["store", "d", "M", "cosine", "replicate", "mean_square", "mean", "median"]
    extra = pd.DataFrame(softmax, columns=["store", "M", "cosine", "replicate", *ATTENTION])
    return Measurement(pd.DataFrame(rows, columns=columns)), extra


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
