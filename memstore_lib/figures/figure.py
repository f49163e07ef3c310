"""A figure: the chart, what it shows in words, and its data to read or take along."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import re
from functools import cached_property
from html import escape
from typing import Any
from urllib.parse import quote

import altair as alt
import pandas as pd
from altair.utils.html import spec_to_html

from . import style
from .inputs import check_text, significant
from .rendering import check_drawing

_TABLE_ROWS = 40  # up to here the data is shown as a table too; longer ones are a download only
_numbers = itertools.count(1)


class Figure:
    """What a chart form returns and a cell shows.

    Attributes
    ----------
    spec : dict
        The chart in Vega-Lite, what the page embeds; ``chart`` is the same as an Altair object.
    data : pandas.DataFrame
        The rows behind it, one a mark, only the columns used; units are those of the axes.
    description : str
        What the picture shows, in words; the chart's ``aria-label``.

    Raises
    ------
    ValueError
        When the chart would be blank, draw NaN, miss a field or break an expression.
    TypeError
        When ``description`` is not a string.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        *,
        data: pd.DataFrame,
        description: str,
        legend: str = "",
        lead: str = "",
        controls: dict[str, dict] | None = None,
        live: str | None = None,
        data_note: str = "",
        max_width: int | None = None,
    ) -> None:
        self.description = check_text(description, "description").strip()
        self.data = data
        self._legend, self._lead, self._data_note, self._max_width = legend, lead, data_note, max_width
        self.spec = {
            "$schema": f"https://vega.github.io/schema/vega-lite/{alt.SCHEMA_VERSION}.json",
            "description": self.description,
            "width": "container",
            "autosize": {"type": "fit-x", "contains": "padding"},
            "padding": {"left": 2, "right": 8, "top": 6, "bottom": 2},
            "config": style.config(),
            **spec,
            # What charts.js makes of Vega's plain inputs; a notebook without it shows the inputs as they are.
            "usermeta": {"memstore": {"controls": controls or {}, "live": live}},
        }
        check_drawing(self.spec)

    @cached_property
    def chart(self) -> alt.TopLevelMixin:
        """The chart as an Altair object, checked against Vega-Lite's schema; made when asked for, as it takes long."""
        return alt.Chart.from_dict(self.spec)

    def __repr__(self) -> str:
        return f"Figure: {self.description}"

    def csv(self) -> str:
        """The figure's data as comma-separated text with a header: 4 significant digits, empty where NaN."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.data.columns)
        for row in self.data.itertuples(index=False):
            writer.writerow("" if (v := significant(x)) is None else v for x in row)
        return out.getvalue()

    def file_name(self) -> str:
        """A name for the downloaded data, from the first words of the description."""
        words = re.findall(r"[a-z0-9]+", self.description.lower())
        return "-".join(words[:6])[:60].strip("-") + ".csv" if words else "data.csv"

    def html(self) -> str:
        """The figure as HTML: legend, chart with its controls, data. Self-contained but for Vega itself."""
        limit = f' style="max-width:{self._max_width}px;margin-inline:auto"' if self._max_width else ""
        height = self.spec["height"] + 40  # room kept until the chart is drawn, so that the text does not jump
        return (
            f'<div class="ms-figure"{limit}>{self._lead}{self._legend}'
            f'<div class="ms-chart" style="min-height:{height}px">{self._embed()}</div>'
            "<noscript>The picture needs JavaScript; its data is here without.</noscript>"
            f"{self._details()}</div>"
        )

    def _embed(self) -> str:
        """Altair's own way to show a chart: it finds Vega on the page (charts.js), or asks for it in a notebook."""
        digest = hashlib.sha256(repr(self.spec).encode()).hexdigest()[:12]
        html = spec_to_html(
            self.spec,
            mode="vega-lite",
            vega_version=alt.VEGA_VERSION,
            vegalite_version=alt.VEGALITE_VERSION,
            vegaembed_version=alt.VEGAEMBED_VERSION,
            output_div=f"ms-{digest}-{next(_numbers)}",
            embed_options={"renderer": "svg", "actions": False, "tooltip": {"theme": "custom"}},
            json_kwds={"separators": (",", ":"), "ensure_ascii": False},
            fullhtml=False,
            template="universal",
        )
        head, script = html.split("<script", 1)
        # Altair lays a chart and its controls side by side, where they squeeze each other.
        head = head.replace("display: flex", "display: block")
        body, end = script.rsplit("</script>", 1)
        return f"{head}<script{body.replace('</', '<' + chr(92) + '/')}</script>{end}".strip()

    def _details(self) -> str:
        rows = len(self.data)
        link = (
            f'<a class="ms-download" download="{self.file_name()}" '
            f'href="data:text/csv;charset=utf-8,{quote(self.csv())}">Download as CSV</a>'
        )
        table = self._table() if rows <= _TABLE_ROWS else ""
        note = f" {escape(self._data_note)}" if self._data_note else ""
        return (
            f'<details class="ms-data"><summary>Data ({rows:,} row{"s" * (rows != 1)}){note}</summary>'
            f"<p>{link}</p>{table}</details>"
        )

    def _table(self) -> str:
        head = "".join(f'<th scope="col">{escape(str(c))}</th>' for c in self.data.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(v)}</td>" for v in row) + "</tr>" for row in self.data.itertuples(index=False)
        )
        label = escape("Data: " + self.description, quote=True)
        return (
            f'<div class="ms-table" role="region" tabindex="0" aria-label="{label}" style="overflow:auto;'
            f'max-height:20rem"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": repr(self)}


def _cell(value: object) -> str:
    value = significant(value)
    if value is None:
        return "–"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 1e-4 or value == 0 else f"{value:g}"
    return escape(str(value))


RULE = "the source’s rule of thumb"


def legend(
    stores: list[str],
    kinds: list[str] | None = None,
    *,
    interval: str = "95 % interval",
    law: str = "exact law",
    rule: str = RULE,
    upright: bool = False,
    extra: list[tuple[str, str]] | None = None,
) -> str:
    """A legend in HTML, above the chart: it wraps on a phone and uses the page's font.

    ``stores`` are labels with their point and colour, ``kinds`` those of "measured", "law", "rule" that are drawn,
    the latter two as ``upright`` strokes or level lines that ``law`` and ``rule`` name, ``extra`` further (picture,
    words) pairs of HTML.
    """
    line = '<svg aria-hidden="true" width="26" height="12"><path d="M0,6H26" stroke="{c}" stroke-width="2"{d}/></svg>'
    if upright:
        line = (
            '<svg aria-hidden="true" width="6" height="16"><path d="M3,0V16" stroke="{c}" stroke-width="2"{d}/></svg>'
        )
    pictures = {
        "measured": (
            '<svg aria-hidden="true" width="14" height="14"><path d="M7,0V14" stroke="{c}" stroke-width="1.5"/>'
            '<circle cx="7" cy="7" r="3.6" fill="{c}"/></svg>',
            f"measured, {interval}" if interval else "measured",
        ),
        "law": (line.replace("{d}", ""), escape(law)),
        "rule": (line.replace("{d}", ' stroke-dasharray="5 3"'), escape(rule)),
    }
    items = [*(extra or []), *((style.icon(s), escape(s)) for s in stores)]
    items += [(pictures[k][0].replace("{c}", style.INK), pictures[k][1]) for k in pictures if k in (kinds or [])]
    entry = '<li style="display:inline-flex;align-items:center;gap:.35em;margin:0">{}<span>{}</span></li>'
    return (
        '<ul class="ms-legend" style="display:flex;flex-wrap:wrap;gap:.15em 1.1em;list-style:none;padding:0;'
        'margin:0 0 .4em;font-size:.875em">' + "".join(entry.format(*i) for i in items) + "</ul>"
    )
