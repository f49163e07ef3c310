"""Train the four models with one of the settings and keep their losses: a record for the page on shifted keys.

Further models, trained with one seed, can be added to the record.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from memstore_lib.language_models import corpus, records
from memstore_lib.language_models.models import ABLATIONS, MODELS
from memstore_lib.language_models.runs import train_all
from memstore_lib.language_models.settings import SETTINGS


def main(arguments: list[str] | None = None) -> None:
    """Train and write; a second call with the same settings takes up what is there."""
    parser = argparse.ArgumentParser(prog="python -m memstore_lib.language_models", description=__doc__)
    parser.add_argument("settings", choices=SETTINGS, help="how long and how large")
    parser.add_argument("record", type=Path, help="the JSON file to write")
    parser.add_argument("--also", nargs="+", choices=ABLATIONS, default=[], metavar="MODEL", help="further models")
    parser.add_argument("--device", help="cuda, mps or cpu; the best there is if not given")
    parser.add_argument("--workers", type=int, help="processes on a CPU; MEMSTORE_WORKERS, else one a core up to 4")
    given = parser.parse_args(arguments)
    chosen = SETTINGS[given.settings]
    text = corpus.load(packages=chosen.packages)
    options = {"seeds": range(chosen.seeds), "device": given.device, "workers": given.workers}
    runs = train_all(list(MODELS), chosen, text, **options)
    if given.also:
        runs |= train_all(given.also, chosen, text, **options | {"seeds": [0]})
    words = f"{len(text.train):,} tokens for training, checksum {text.checksum[:12]}"
    records.save(given.record, runs, chosen, words)
    _, table = records.tabulate(runs, chosen)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
