"""Runs of another machine, kept as a table: what a laptop cannot train while it builds the book.

A record is a JSON file: the settings, the machine in words, the date, and for each run its losses at the looks at
validation. ``python -m memstore_lib.language_models medium FILE`` makes one.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from memstore_lib import _checks, ledger
from memstore_lib._files import whole
from memstore_lib.language_models import power_law
from memstore_lib.language_models.settings import Settings
from memstore_lib.language_models.training import Run

FORMAT = "memstore record 1"
ROW = ("model", "seed", "parameters", "seconds", "tokens_per_second", "fitted")


class RecordError(ValueError):
    """A record that is corrupt, or not of the settings asked for."""


@dataclass(frozen=True)
class Record:
    """Runs with one of the settings.

    Attributes:
        machine: where they ran, in words.
        date: when, as YYYY-MM-DD.
        corpus: tokens for training, and the checksum.
        history: a row a look: model, seed, step, tokens, training_loss (mean over the steps since the last look) and
            validation_loss, in nats a token.
        runs: a row a run: model, seed, parameters, seconds, tokens_per_second, fitted (end of the power law).
    """

    machine: str
    date: str
    corpus: str
    history: pd.DataFrame
    runs: pd.DataFrame

    @property
    def validation_losses(self) -> dict[tuple[str, int], float]:
        """The validation loss at the end of each run, in nats a token, by model and seed."""
        ends = self.history.sort_values("step", kind="stable").groupby(["model", "seed"], sort=False)["validation_loss"]
        return {(model, int(seed)): float(loss) for (model, seed), loss in ends.last().items()}


def window(settings: Settings) -> int:
    """Return the steps that a loss is smoothed over before a fit: the source's share of its run, 500 of 3,662."""
    return max(2, round(settings.steps * 500 / 3662))


def tabulate(runs: Mapping[tuple[str, int], Run], settings: Settings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables history and runs of a :class:`Record`.

    Args:
        runs: by model and seed, as :func:`memstore_lib.language_models.runs.train_all` returns them.
        settings: they were trained with.
    """
    looks, rows = [], []
    for (model, seed), run in runs.items():
        fitted = power_law.fit(run.history, window=window(settings)).end
        rows.append((model, seed, run.parameters, run.seconds, run.tokens_per_second, fitted))
        part = run.history["validation_loss"].notna().to_numpy()
        since = part[::-1].cumsum()[::-1]  # counts the looks still to come, so equal between two looks
        smooth = run.history.groupby(-since, sort=True)["training_loss"].mean()
        look = run.history[part].copy()
        look["training_loss"] = smooth.to_numpy()[: len(look)]
        looks.append(look)
    return pd.concat(looks, ignore_index=True), pd.DataFrame(rows, columns=list(ROW))


def machine() -> str:
    """Return this machine in words: device, cores or GPU, system and torch."""
    if torch.cuda.is_available():
        what = torch.cuda.get_device_name()
    else:
        what = f"{os.cpu_count()} cores ({platform.machine()})"
    return f"{what}, {platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"


def save(path: str | Path, runs: Mapping[tuple[str, int], Run], settings: Settings, corpus: str) -> None:
    """Write a record: the whole file or nothing.

    Args:
        path: of the file.
        runs: by model and seed.
        settings: they were trained with.
        corpus: what they read, in words.
    """
    history, table = tabulate(runs, settings)
    kept = {
        "format": FORMAT,
        "settings": {name: settings.run(name) for name in dict.fromkeys(name for name, _ in runs)},
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "corpus": corpus,
        "history": history.round(5).to_dict(orient="list"),
        "runs": table.round(5).to_dict(orient="list"),
    }
    with whole(Path(path)) as file:
        file.write(json.dumps(kept, indent=1, ensure_ascii=False).encode())


def published(settings: Settings) -> Record | None:
    """Return the record that the book keeps of some settings, from ``book/data``; None where it keeps none.

    Args:
        settings: one of ``memstore_lib.language_models.settings.SETTINGS``.

    Raises:
        RecordError: as :func:`load`.
    """
    path = ledger.find().parent / "data" / f"shifted-key-{settings.name}.json"
    return load(path, settings) if path.is_file() else None


def load(path: str | Path, settings: Settings) -> Record:
    """Read a record.

    Args:
        path: of the file.
        settings: that the runs must have had.

    Raises:
        RecordError: not a whole record, or one of other settings.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    _checks.instance("settings", settings, Settings, "Settings")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FORMAT:
            raise ValueError(f"its format is {kept['format']!r}, not {FORMAT!r}")
        known = kept["settings"]
        record = Record(
            *(str(kept[name]) for name in ("machine", "date", "corpus")),
            pd.DataFrame(kept["history"]),
            pd.DataFrame(kept["runs"])[list(ROW)],
        )
        record.history[["model", "seed", "step", "tokens", "training_loss", "validation_loss"]]
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise RecordError(f"{path.name} is not a whole record: {error}") from error
    for name, run in known.items():
        if run != settings.run(name):
            raise RecordError(f"{path.name} must be of {settings.run(name)}, got {run}")
    return record
