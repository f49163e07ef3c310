"""Progress for whoever waits at a terminal or in a notebook; none in the pages that a build makes.

:mod:`memstore_lib.language_models.training` decides the same way for itself: its code is part of a checkpoint's name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

BUILD_VARIABLE = "MEMSTORE_BUILD"  # set while a build executes the chapters: a bar would be printed into the page
SILENT_S = 3.0  # what takes less needs no bar


def somebody_waits() -> bool:
    """Return whether this is a terminal, or a notebook that no build is executing."""
    if os.environ.get(BUILD_VARIABLE):
        return False
    application = getattr(sys.modules.get("ipykernel.kernelapp"), "IPKernelApp", None)
    return sys.stderr.isatty() or (application is not None and application.initialized())


def bar(what: str) -> Callable[[int, int], None] | None:
    """Return a function of (done, in all) that shows a bar; None when nobody waits or tqdm is not installed."""
    if not somebody_waits():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    shown = None

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if shown is None:
            shown = tqdm(desc=what, total=total, unit_scale=True, delay=SILENT_S)
        shown.update(done - shown.n)
        if done >= total:
            shown.close()

    return tell
