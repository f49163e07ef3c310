"""What a page offers those who use the keyboard, a screen reader, other eyes or a screen of another size."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import ElementHandle, Page

#: Shared by the scripts below: colours as they are seen, and their contrast.
COLOURS = r"""
  const shown = (element) => element.checkVisibility?.({visibilityProperty: true, opacityProperty: true}) ?? true;
  const parse = (colour) => {
    const parts = colour.match(/[\d.]+%?/g)?.map(Number) ?? [0, 0, 0, 0];
    const scale = colour.startsWith("color(") ? 255 : 1;
    return {rgb: parts.slice(0, 3).map((part) => part * scale), alpha: colour === "none" ? 0 : parts[3] ?? 1};
  };
  const over = (top, alpha, below) => top.map((part, index) => part * alpha + below[index] * (1 - alpha));
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const {rgb, alpha} = parse(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => part / 255).map((part) =>
      part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, two) => {
    const [low, high] = [light(one), light(two)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
"""

#: Lines, points and bars against what is behind them. Left out: the grid, which says nothing of its own, and the cells
#: of a heat map, whose contrast is what it shows.
PALE = (
    "() => {"
    + COLOURS
    + r"""
  const pale = [];
  const marks = ".ms-figure svg.marks .role-mark:not(.mark-text) :is(path, line, rect)";
  for (const element of document.querySelectorAll(`${marks}, .ms-legend svg :is(path, circle)`)) {
    if (/--ms-(grid|d\d)/.test(element.outerHTML) || !shown(element)) continue;
    if (element.closest(".ms-glyphs .ms-chart")) continue;
    const style = getComputedStyle(element);
    const behind = background(element.closest("svg").parentElement);
    let whole = 1;
    for (let at = element; at.tagName !== "svg"; at = at.parentElement) whole *= getComputedStyle(at).opacity;
    const ratios = [["fill", style.fillOpacity], ["stroke", style.strokeOpacity]].map(([part, opacity]) => {
      const {rgb, alpha} = parse(style[part]);
      return contrast(over(rgb, alpha * opacity * whole, behind), behind);
    });
    if (Math.max(...ratios) < 3) pale.push(element.outerHTML.slice(0, 200) + " " + Math.max(...ratios).toFixed(2));
  }
  return [...new Set(pale)];
}"""
)

TABLES = """() => {
  const name = (table) => table.outerHTML.slice(0, 120);
  const tables = [...document.querySelectorAll("article table")];
  return {
    count: tables.length,
    headless: tables.filter((table) => !table.querySelector("th")).map(name),
    unscoped: tables.filter((table) => table.querySelector("th:not([scope=col]):not([scope=row])")).map(name),
  };
}"""

#: What would move although the reader asked for less motion.
MOVING = """() => [...document.querySelectorAll("*")].filter((element) => {
  const style = getComputedStyle(element);
  const durations = `${style.transitionDuration},${style.animationDuration}`.split(",").map(parseFloat);
  return style.scrollBehavior === "smooth" || durations.some((seconds) => seconds > 0);
}).map((element) => element.outerHTML.slice(0, 100))"""

#: Sideways scrolling, and the characters in a line of plain text.
SPREAD = """async () => {
  const frame = () => new Promise((done) => {
    requestAnimationFrame(() => setTimeout(done, 30));
    setTimeout(done, 500);
  });
  await frame();
  await frame();
  const lines = [...document.querySelectorAll("article p")].filter((part) => !part.children.length).map((part) => {
    const range = document.createRange();
    range.selectNodeContents(part);
    const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
    return tops.size > 1 ? part.textContent.length / tops.size : 0;
  });
  return {overflow: document.scrollingElement.scrollWidth - innerWidth, line: Math.max(0, ...lines)};
}"""

#: Notes what takes the focus, and whether one sees it: an outline, a shadow, a border or a ground that was not there
#: before, on the element or on the label around it, with a contrast of at least 3 : 1 to what is beside it.
LISTEN = (
    "() => {"
    + COLOURS
    + r"""
  const still = document.createElement("style");
  still.textContent = "*, *::before, *::after {transition: none !important}";
  document.head.append(still);
  const holders = (element) => [element, element.closest("label"), element.closest("li, p")].filter(Boolean);
  const looks = (element) => {
    const style = getComputedStyle(element);
    const outline = style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1 ? "" : style.outlineColor;
    return {outline, boxShadow: style.boxShadow === "none" ? "" : style.boxShadow, borderColor: style.borderTopColor,
      borderBottom: style.borderBottomWidth, backgroundColor: style.backgroundColor,
      textDecoration: style.textDecorationLine + style.textDecorationThickness};
  };
  const can = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const wanted = [...document.querySelectorAll(can)].filter((element) =>
    shown(element) && !element.disabled && element.tabIndex >= 0 && element.getClientRects().length
    && (element.type !== "radio" || element.checked));
  const before = new Map();
  const remember = (element) => holders(element).forEach((part) => before.has(part) || before.set(part, looks(part)));
  wanted.forEach(remember);
  const name = (element) => element.outerHTML.split(">")[0].slice(0, 160) + element.textContent.slice(0, 30);
  const visible = (element) => holders(element).some((part) => {
    const was = before.get(part), is = looks(part);
    const behind = background(part.parentElement);
    const ring = (colour) => contrast(over(parse(colour).rgb, parse(colour).alpha, behind), behind) >= 3;
    if (!was) return is.outline && ring(is.outline);
    if (is.outline && is.outline !== was.outline && ring(is.outline)) return true;
    const shadow = is.boxShadow !== was.boxShadow && is.boxShadow.match(/(rgba?|color)\([^)]*\)/g);
    return shadow ? shadow.some(ring) : false;
  });
  const reached = new Set(), unseen = new Set();
  window.keyboardWalk = {
    wanted: wanted.length,
    report: () => ({
      unreached: wanted.filter((element) => !reached.has(element) && element.isConnected).map(name),
      unseen: [...unseen].map(name),
      reached: reached.size,
    }),
    jump: () => wanted.forEach((element) => element.focus({focusVisible: true, preventScroll: true})),
    done: () => wanted.every((element) => reached.has(element)),
  };
  addEventListener("focusin", (event) => {
    const element = event.target;
    reached.add(element);
    if (!visible(element)) unseen.add(element);
  }, true);
  scrollTo(0, 0);
  return wanted.length;
}"""
)


def keyboard(page: Page) -> dict[str, Any]:
    """Walk through a page with the Tab key, and move its sliders with the arrows.

    Returns:
        what the walk did not reach ("unreached"), where the focus is not to be seen ("unseen"), and the sliders that
        an arrow does not move or that do not say so ("unmoved").
    """
    wanted = page.evaluate(LISTEN)
    for pressed in range(wanted + 60):
        page.keyboard.press("Tab")
        if pressed >= wanted - 1 and page.evaluate("() => keyboardWalk.done()"):
            break
    found = page.evaluate("() => keyboardWalk.report()")
    found["unmoved"] = list(_unmoved(page))
    return found


def unseen_focus(page: Page) -> list[str]:
    """Return where the focus is not to be seen, without walking there; the theme decides, and a walk takes long."""
    page.evaluate(LISTEN)
    page.keyboard.press("Tab")  # so that the browser takes what follows for a keyboard's doing
    return page.evaluate("() => { keyboardWalk.jump(); return keyboardWalk.report().unseen; }")


def _unmoved(page: Page) -> Iterator[str]:
    for slider in page.locator("article input[type=range]:enabled").all():
        said = lambda: (slider.input_value(), slider.get_attribute("aria-valuetext"))  # noqa: B023, E731
        slider.focus()
        page.keyboard.press("Home")
        first = said()
        page.keyboard.press("ArrowRight")
        if not all(one != two for one, two in zip(first, said(), strict=True)):
            yield f"{first} {slider.evaluate('(input) => input.outerHTML')}"


def spoken(page: Page) -> dict[str, list[dict[str, Any]]]:
    """Return what screen readers are told of charts and sliders, from the browser's accessibility tree.

    Returns:
        "charts": the role and name of each, and the roles of what is inside; "sliders": name, and value in words.
    """
    session = page.context.new_cdp_session(page)

    def told(element: ElementHandle) -> list[dict[str, Any]]:
        element.evaluate("(element) => (window.asked = element)")
        found = session.send("Runtime.evaluate", {"expression": "window.asked"})["result"]["objectId"]
        return [n for n in session.send("Accessibility.queryAXTree", {"objectId": found})["nodes"] if not n["ignored"]]

    try:
        charts = [_chart(told(chart)) for chart in page.query_selector_all(".ms-figure .ms-chart")]
        sliders = [
            {"name": _text(told(slider)[0], "name"), "value": slider.get_attribute("aria-valuetext")}
            for slider in page.query_selector_all("article input[type=range]")
        ]
    finally:
        session.detach()
    return {"charts": charts, "sliders": sliders}


def _text(node: dict[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", ""))


def _chart(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    document = next((n for n in nodes if "graphics" in _text(n, "role").lower()), {})
    return {
        "role": _text(document, "role"),
        "name": _text(document, "name"),
        "inside": [_text(n, "role") for n in nodes],
    }


def spread(page: Page, widths: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Return sideways scrolling in px and the longest line in characters, at further widths of the window."""
    found = {}
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        found[width] = page.evaluate(SPREAD)
    return found


#: Where Altair's script takes the chart.
SPEC = re.compile(r'\}\)\((?=\{"\$schema")')


def charts(html: str) -> list[dict[str, Any]]:
    """Return the charts of a page as Vega-Lite, in order."""
    return [json.JSONDecoder().raw_decode(html, found.end())[0] for found in SPEC.finditer(html)]


def walk(node: object) -> Iterator[dict[str, Any]]:
    """Yield every mapping in a chart."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(child)
