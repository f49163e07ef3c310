"""Run each section of a chapter by itself, as a reader does who runs the first cells and then jumps.

``python -m tests.sections book/intro`` prints the sections that need another one, as JSON: {heading: error}.
"""

from __future__ import annotations

import json
import sys
import traceback

import torch

from tests.sources import Page

CLOSING = "Checked in this build"  # counts what the whole chapter has checked


def failures(page: Page) -> dict[str, str]:
    """Return the error of each section that does not run after the cells above the first heading alone."""
    start: dict[str, object] = {"__name__": "__main__"}
    for cell in page.sections[""]:
        exec(compile(cell.source, page.docname, "exec"), start)
    # What is drawn starts over in each section, as it would for that reader.
    draws = [one for one in start.values() if isinstance(one, torch.Generator)]
    states = [draw.get_state() for draw in draws]
    found = {}
    for name, cells in page.sections.items():
        if name in ("", CLOSING):
            continue
        for draw, state in zip(draws, states, strict=True):
            draw.set_state(state)
        names = dict(start)
        try:
            for cell in cells:
                exec(compile(cell.source, f"{page.docname}, {name}", "exec"), names)
        except Exception:
            found[name] = traceback.format_exc(limit=-3)
    return found


if __name__ == "__main__":
    result = failures(Page(sys.argv[1]))
    print("\n" + json.dumps(result))
