"""Formulas for readers without JavaScript: MathML beside the TeX that MathJax typesets.

Browsers draw MathML themselves. It stands in a ``noscript``, so with JavaScript nothing of a page changes; a formula
that cannot be translated whole stays TeX, which can be read as well.
"""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx

#: What Sphinx writes: the TeX between delimiters, after the number of an equation that has one.
FORMULA = re.compile(
    r'(?P<open><(?P<tag>span|div) class="math notranslate nohighlight"[^>]*>(?:\s*<span class="eqno">.*?</span>)?)'
    r"(?P<tex>\s*(?:\\\((?P<inline>.+?)\\\)|\\\[(?P<block>.+?)\\\])\s*)(?P<close></(?P=tag)>)",
    re.DOTALL,
)

#: Commands that latex2mathml leaves as they are, in words that it knows.
REWRITTEN = ((re.compile(r"\\arg(?![a-zA-Z])"), r"\\operatorname{arg}"), (re.compile(r"\\[bB]igg?[lr]?\\\|"), r"\\|"))


@cache
def mathml(tex: str, display: str = "inline") -> str | None:
    """Return a formula as MathML, or None when a part of it cannot be translated.

    Args:
        tex: without delimiters.
        display: "inline" or "block".
    """
    for command, words in REWRITTEN:
        tex = command.sub(words, tex)
    try:
        found = convert(tex, display=display)
    except Exception:  # whatever a parser raises at what it does not know
        return None
    return None if "\\" in unescape(re.sub(r"<[^>]*>", "", found)) else found


def _with_mathml(formula: re.Match[str]) -> str:
    tex, display = (formula["inline"], "inline") if formula["inline"] else (formula["block"], "block")
    found = mathml(unescape(tex).strip(), display)
    if found is None:
        return formula[0]
    return (
        f'{formula["open"]}<noscript>{found}</noscript><span class="ms-tex">{formula["tex"]}</span>{formula["close"]}'
    )


def add_mathml(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Put MathML beside every formula of a page."""
    context["body"] = FORMULA.sub(_with_mathml, context.get("body") or "")


def setup(app: Sphinx) -> None:
    """Connect the translation to the writing of pages."""
    app.connect("html-page-context", add_mathml)
