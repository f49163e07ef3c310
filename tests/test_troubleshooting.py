"""The page on what can go wrong: messages that it quotes from this repository are those that are really printed."""

from __future__ import annotations

import re

import pytest

from tests.sources import ROOT

PAGE = (ROOT / "book" / "troubleshooting.md").read_text(encoding="utf8")
OTHERS = {  # printed by pip, Jupyter, Python
    "No space left on device",
    "DeadKernelError: Kernel died",
    "Address already in use",
    "ModuleNotFoundError: No module named 'memstore_lib'",
    "NameError: name … is not defined",
}
QUOTED = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\*\*(.+)\*\*$", PAGE, re.MULTILINE)))
OURS = [message for message in QUOTED if message not in OTHERS]
CODE = [ROOT / "Makefile", *(ROOT / "memstore_lib").rglob("*.py")]


def test_there_are_ten_messages_or_more():
    assert len(QUOTED) >= 10
    assert set(QUOTED) >= OTHERS


@pytest.mark.parametrize("message", OURS)
def test_our_own_messages_are_in_the_code(message):
    text = "\n".join(path.read_text(encoding="utf8") for path in CODE)
    text = re.sub(r"\{[\w.!:]*\}|\$\([A-Z]+\)", "…", text).replace("….", ".").replace("cuda,", "…,")
    wanted = message.replace(".venv", "…").replace("cuda", "…")
    parts = [part.strip() for part in wanted.split("…") if part.strip()]
    assert all(part in text for part in parts), parts
