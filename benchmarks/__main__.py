"""Run every benchmark, print a table, and write JSON and Markdown to ``_build/bench``."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

from benchmarks import builds, delta, pages, speed

OUT = builds.ROOT / "_build" / "bench"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("speed", "delta", "pages", "builds"), help="run one part")
    only = parser.parse_args().only
    rows: list[tuple[str, str, str]] = []
    if only in (None, "speed"):
        for name, median, low, high in speed.ratios():
            rows.append(("CPU time", name, f"{median:.1f} × [{low:.1f}, {high:.1f}] over 7 runs"))
    if only in (None, "delta"):
        for name, median, low, high in delta.ratios():
            rows.append(("CPU time", name, f"{median:.1f} × [{low:.1f}, {high:.1f}] over 7 runs"))
    if only in (None, "builds"):
        cold, prose, memory = builds.cold_and_prose()
        rows.append(("build", "cold, all chapters executed", f"{cold:.0f} s, at most 90"))
        rows.append(("build", "after a prose edit of every chapter", f"{prose:.0f} s, at most 15"))
        rows += [("kernel", name, f"{peak:.0f} MB, at most 1,000") for name, peak in memory]
    if only in (None, "pages"):
        weights, sliders = pages.weights_and_sliders()
        rows += [("page", name, f"{size / 1e3:.0f} KB compressed, at most 900") for name, size in weights]
        rows += [("slider", f"{page}: {name}", f"{step:.0f} ms a step, at most 50") for page, name, step in sliders]
    write(rows)


def write(rows: list[tuple[str, str, str]]) -> None:
    """Print the rows and keep them as JSON and as a Markdown table."""
    machine = f"{platform.machine()}, {platform.system()}, torch {torch.__version__}, CPU"
    table = [f"Measured on {machine}.", "", "| What | Which | Result |", "|---|---|---|"]
    table += ["| " + " | ".join(row) + " |" for row in rows]
    print("\n".join(table))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "bench.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    records = [dict(zip(("what", "which", "result"), row, strict=True)) for row in rows]
    text = json.dumps({"machine": machine, "results": records}, indent=1, ensure_ascii=False)
    (OUT / "bench.json").write_text(text, encoding="utf-8")
    print(f"\nWritten to {Path('_build/bench')}")


if __name__ == "__main__":
    main()
