"""Results as a tidy table with their laws, and as a file."""

from __future__ import annotations

import math
import secrets
from pathlib import Path

import pandas as pd

from memstore_lib import sharpness, theory
from memstore_lib._files import UNFINISHED, whole
from memstore_lib.measurement import Measurement
from memstore_lib.scores import Exponential
from memstore_lib.sharding.job import Job
from memstore_lib.spectrum import attention_table

FORMATS = (".csv", ".json")
COLUMNS = ["store", "d", "M", "cosine", "beta", "quantity", "value", "low", "high", "law"]


def tidy(job: Job, measurement: Measurement, attention: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Return one row for each store, M, cosine and quantity, with its interval over the replicates.

    The quantities are ``isr`` (root mean square of the interference-to-signal ratio), ``median isr``, and for the
    exponential scores the target's softmax ``weight`` and the ``entropy`` of all weights in nats. The law of ``isr`` is
    exact; that of weight and entropy puts the sum over the other keys at its mean; the median has none.

    Args:
        job: what was measured.
        measurement, attention: what :func:`memstore_lib.sharding.measuring.measure` returned.
        level: of the intervals.
    """
    tables = {"isr": measurement.table("rms", level), "median isr": measurement.table("median", level)}
    if len(attention):
        tables |= {name: attention_table(attention, name, level) for name in ("weight", "entropy")}
    rows = []
    for quantity, table in tables.items():
        for row in table.itertuples():
            score = job.scores_at(row.M)[row.store]
            beta = score.beta if isinstance(score, Exponential) else math.nan
            law = _law(quantity, score, row.M, job.d, row.cosine)
            rows.append((row.store, job.d, row.M, row.cosine, beta, quantity, row.value, row.low, row.high, law))
    order = {store: i for i, store in enumerate(job.scores)}
    found = pd.DataFrame(rows, columns=COLUMNS)
    found = found.sort_values(["store", "M"], key=lambda x: x.map(order) if x.name == "store" else x, kind="stable")
    return found.assign(seed=job.seed, replicates=job.replicates, queries=job.queries).reset_index(drop=True)


def check_laws(job: Job) -> None:
    """Compute every law once, so that what has none is refused before its keys are counted.

    Raises:
        ValueError: a sharpness beyond what the laws reach.
    """
    for M in job.grid:
        for score in job.scores_at(M).values():
            for cosine in job.cosines:
                for quantity in ("isr", "weight") if isinstance(score, Exponential) else ("isr",):
                    _law(quantity, score, M, job.d, cosine)


def _law(quantity: str, score: object, M: int, d: int, cosine: float) -> float:
    if quantity == "isr":
        return theory.isr(score, M, d, cosine)
    if quantity == "median isr":
        return math.nan
    return sharpness.attention(M, d, score.beta, cosine)[("weight", "entropy").index(quantity)]


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV or JSON by the file's suffix; the file is whole or as it was.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    text = as_text(table, path.suffix)
    with whole(path) as file:
        file.write(text.encode())


def as_text(table: pd.DataFrame, suffix: str) -> str:
    """Return a table as the text of a file.

    Raises:
        ValueError: a suffix other than .csv and .json.
    """
    if suffix not in FORMATS:
        raise ValueError(f"output must end in {' or '.join(FORMATS)}, got {suffix!r}")
    if suffix == ".csv":
        return table.to_csv(index=False, lineterminator="\n")
    return table.to_json(orient="records", indent=1, double_precision=15) + "\n"


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written, before hours are spent on what should be in it.

    Raises:
        ValueError: another suffix than .csv or .json, a folder of that name, or no file can be made there.
    """
    as_text(pd.DataFrame(), path.suffix)
    if path.is_dir():
        raise ValueError(f"output must be a file, got the folder {path}")
    probe(path.parent, "output")


def probe(folder: Path, name: str) -> None:
    """Write and remove a small file, to see whether a folder takes any; it is made if it is not there.

    Raises:
        ValueError: it does not; the message calls the argument ``name``.
    """
    file = folder / f"{UNFINISHED}{secrets.token_hex(4)}.part"
    try:
        with whole(file) as handle:
            handle.write(b"?")
        file.unlink()
    except OSError as error:
        raise ValueError(f"{name} must lie where files can be written, got {folder} ({error.strerror})") from None
