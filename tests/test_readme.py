"""The README's code runs as it stands, and does what the lines around it say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memstore_lib import scores, stores

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "SCORES", dict(scores.SCORES))
    monkeypatch.setattr(stores, "STORES", dict(stores.STORES))


@pytest.mark.usefixtures("registries")
def test_readme_code_runs_and_its_capacities_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 2
    space: dict = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), space)
    attention, law_and_cubic = capsys.readouterr().out.splitlines()
    found = float(attention.split(" ")[0])
    assert found == pytest.approx(483, rel=0.05)  # the exact law of e^{βs} at d = 16, β = 4
    law, cubic = law_and_cubic.split(" ")[:2]
    assert float(law) == pytest.approx(1 + 64 * 66 * 68 / 15)
    assert float(cubic.replace(",", "")) == pytest.approx(float(law), rel=0.02)
    assert "crosses 1" in space["figure"].description
    assert {"attention"} <= set(stores.STORES)
    assert {"cubic"} <= set(scores.SCORES)


def test_a_store_takes_about_ten_lines() -> None:
    for block in BLOCKS:
        body = re.search(r"class .*?(?=\n\n\n)", block, flags=re.S)
        assert body is not None
        assert len([line for line in body.group().splitlines() if line.strip()]) <= 10
