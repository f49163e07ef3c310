"""Draw a chart once where it is made, so that a blank or broken one fails its cell instead of reaching a reader.

A browser is silent about most mistakes: a field that is not in the data leaves an empty picture. The checks here
use vl-convert, which runs the real Vega; where it is not installed only the fields are checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

_EXPRESSIONS = {"expr", "calculate", "filter", "test", "labelExpr"}
_FIELD = re.compile(r"\bdatum(?:\.([A-Za-z_]\w*)|\[\s*['\"]([^'\"]+)['\"]\s*\])")
_BUILT_IN = {"label", "value", "index", "data"}  # of an axis label's datum, and of a list of plain numbers


def check_drawing(spec: dict) -> None:
    """Raise ValueError when a Vega-Lite chart would be blank, draw NaN, miss a field or break an expression."""
    known = set(_columns(spec)) | _BUILT_IN
    missing = sorted({f for f in _used(spec) if f not in known})
    if missing:
        raise ValueError(f"the chart asks for {missing}, which its data does not have: {sorted(known - _BUILT_IN)}")
    try:
        import vl_convert
        from altair.utils._importers import vl_version_for_vl_convert
    except ImportError:
        return
    try:
        svg = vl_convert.vegalite_to_svg(spec, vl_version=vl_version_for_vl_convert())
    except ValueError as error:
        raise ValueError(f"the chart cannot be drawn: {str(error).strip().splitlines()[0]}") from error
    check_svg(svg)


def check_svg(svg: str) -> None:
    """Raise ValueError for an SVG without a drawn mark, or with NaN, undefined or Infinity in a number or text."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        texts = [element.text or "", *(v for k, v in element.attrib.items() if k != "aria-label")]
        for text in texts:
            if re.search(r"\b(NaN|undefined|Infinity)\b", text):
                raise ValueError(f"the chart draws {text.strip()[:80]!r}: a value is missing or not finite")
    if next(_marks(root), None) is None:
        raise ValueError("the chart is blank: no point, bar or line was drawn from its data")


def _marks(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Every drawn shape of a mark; text is not enough for a picture."""
    for group in root.iter():
        classes = group.get("class", "").split()
        if "role-mark" in classes and "mark-text" not in classes and "mark-group" not in classes:
            for shape in group:
                if shape.get("d") or shape.tag.rsplit("}")[-1] in {"line", "rect"}:
                    yield shape


def _walk(node: object) -> Iterator[dict]:
    if isinstance(node, dict):
        yield node
        for key, child in node.items():
            if key not in {"values", "usermeta", "config"}:
                yield from _walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)


def _columns(spec: dict) -> Iterator[str]:
    """Every column that the chart's data has or its transforms make."""
    for node in _walk(spec):
        values = node.get("values")
        for row in values if isinstance(values, list) else []:
            if isinstance(row, dict):
                yield from row
        made = node.get("as")
        yield from [made] if isinstance(made, str) else made or []


def _used(spec: dict) -> Iterator[str]:
    """Every column that an encoding, a transform or an expression asks for."""
    for node in _walk(spec):
        if isinstance(node.get("field"), str):
            yield node["field"]
        yield from (f for f in node.get("groupby", []) if isinstance(f, str))
        for key in _EXPRESSIONS & node.keys():
            if isinstance(node[key], str):
                yield from (dotted or quoted for dotted, quoted in _FIELD.findall(node[key]))
