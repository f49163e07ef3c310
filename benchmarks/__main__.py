"""Run the benchmarks, print a table, and write JSON and Markdown to ``_build/bench``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

import memstore_lib
from benchmarks import builds, chapters, delta, pages, recall, speed
from benchmarks.rows import Row
from memstore_lib import device
from memstore_lib._files import digest, whole

OUT = builds.ROOT / "_build" / "bench"

#: What ``--only`` chooses from, in the order of the table. Builds are left out unless chosen: they take a quarter hour.
PARTS: dict[str, Callable[[], list[Row]]] = {
    "speed": speed.rows,
    "recall": recall.rows,
    "delta": delta.rows,
    "chapters": chapters.rows,
    "pages": pages.rows,
    "builds": builds.rows,
}
USUAL = [name for name in PARTS if name != "builds"]


def main(arguments: list[str] | None = None, out: Path = OUT) -> int:
    """Measure, print and write; return 1 where a part could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, action="append", metavar="PART", help=f"run this part: {', '.join(PARTS)}; repeatable"
    )
    chosen = parser.parse_args(arguments).only or USUAL
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            rows += PARTS[name]()
        except FileNotFoundError as error:  # no built book, no browser: the other parts can be measured all the same
            missing[name] = str(error)
    results = {**circumstances(), "missing": missing, "results": [asdict(row) for row in rows]}
    write(results, out)
    print(markdown(results))
    print(f"Written to {out / 'bench.json'} and {out / 'bench.md'}")
    return 1 if missing else 0


def circumstances() -> dict[str, object]:
    """Return when, where and of which code the numbers are."""
    here = device.describe()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": f"{here['device']} ({here['name']})",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "version": memstore_lib.__version__,
        "commit": commit(),
        "library": digest(Path(memstore_lib.__file__).parent),
    }


def commit(folder: Path = builds.ROOT) -> str:
    """Return the commit in short, with a + where files differ from it; unknown outside a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def markdown(results: dict) -> str:
    """Return the table, with a line above it that says where it was made."""
    origin = "Measured {date} on {device}, {machine}, with Python {python}, torch {torch}, memstore_lib {version}, "
    lines = [(origin + "commit {commit}.").format(**results), ""]
    lines += ["| Part | What | Median | Low | High | Runs | Note |", "|---|---|---|---|---|---|---|"]
    for row in results["results"]:
        numbers = [f"{row[key]:,.3g} {row['unit']}" for key in ("median", "low", "high")]
        lines.append("| " + " | ".join([row["part"], row["name"], *numbers, str(row["runs"]), row["note"]]) + " |")
    lines += [""] + [f"Not measured: {name}, as {reason}\n" for name, reason in results["missing"].items()]
    return "\n".join(lines)


def write(results: dict, folder: Path) -> None:
    """Keep the results as JSON and as a Markdown table."""
    texts = {"bench.json": json.dumps(results, indent=1, ensure_ascii=False), "bench.md": markdown(results)}
    for name, text in texts.items():
        with whole(folder / name) as file:
            file.write(text.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
