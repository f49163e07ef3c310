"""Draw the README's picture from a fresh measurement: ``python -m benchmarks.picture``."""

from __future__ import annotations

import pandas as pd
import vl_convert
from altair.utils._importers import vl_version_for_vl_convert

from benchmarks.builds import ROOT
from memstore_lib import figures, measure, scores, stores, theory

TARGET = ROOT / "book" / "_static" / "two-stores.svg"
GRID = [16, 32, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512]


def main() -> None:
    """Measure the two linear stores, draw them with their laws, and write the SVG."""
    both = [stores.OuterProduct(), stores.LeastSquares()]
    dots = measure.interference(both, GRID, queries=128, seed=2).table()
    lines = [
        theory.curve("outer product", lambda M: theory.isr(scores.Linear(), M, 64), GRID),
        theory.curve("least squares", lambda M: theory.least_squares_isr(M, 64), GRID),
    ]
    figure = figures.curves(
        pd.concat([dots, *lines]), log_y=False, description="Interference over signal of two linear stores."
    )
    spec = {**figure.spec, "width": 640, "background": "white"}
    TARGET.write_text(vl_convert.vegalite_to_svg(spec, vl_version=vl_version_for_vl_convert()), encoding="utf-8")
    print(TARGET.relative_to(ROOT))


if __name__ == "__main__":
    main()
