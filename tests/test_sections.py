"""A reader who has run a chapter's first cells can jump to any section and run that."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from memstore_lib.language_models.training import BUILD_VARIABLE
from tests import sections
from tests.sources import ROOT, Page, pages

CHAPTERS = [page.docname for page in pages() if page.executable]

BROKEN = """# A chapter

```{code-cell} ipython3
first = 1
```

## One

```{code-cell} ipython3
second = first + 1
```

## Two

```{code-cell} ipython3
assert second == 2
```

````{note}
```
## No heading
```
````

```{code-cell} ipython3
assert first == 1
```
"""


@pytest.mark.build
@pytest.mark.parametrize("name", CHAPTERS)
def test_every_section_runs_after_the_first_cells(name):
    environment = os.environ | {BUILD_VARIABLE: "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.sections", name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = json.loads(done.stdout.rsplit("\n", 2)[-2])
    assert not alone, "\n".join(f"{name}: {error}" for name, error in alone.items())


def test_a_section_that_needs_another_is_found(tmp_path):
    (tmp_path / "made_up.md").write_text(BROKEN, encoding="utf8")
    page = Page("made_up", tmp_path)
    assert {name: len(cells) for name, cells in page.sections.items()} == {"": 1, "One": 1, "Two": 2}
    assert list(sections.failures(page)) == ["Two"]
    assert "NameError: name 'second' is not defined" in sections.failures(page)["Two"]
