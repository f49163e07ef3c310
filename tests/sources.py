"""Read the book's sources: pages, cells, figures, citations. Shared by the tests of sources and of built pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jupytext
import yaml

ROOT = Path(__file__).parents[1]
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
FENCE = re.compile(
    r"^(?P<fence>`{3,}|:{3,}|~{3,})(?P<head>.*?)\n(?P<body>.*?)^(?P=fence)\s*$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Cell:
    """A code cell: its text, its metadata, and the names that it takes from ``memstore_lib.figures``."""

    source: str
    metadata: dict

    @property
    def figure(self) -> dict | None:
        """The cell's ``mystnb: figure:`` metadata, or None."""
        return self.metadata.get("mystnb", {}).get("figure")

    @cached_property
    def tree(self) -> ast.Module:
        """The cell's syntax tree; lines with IPython magics are left out."""
        return ast.parse("\n".join("" if line.startswith(("%", "!")) else line for line in self.source.split("\n")))


@dataclass(frozen=True)
class Page:
    """A page of the book."""

    docname: str
    root: Path = ROOT

    @property
    def path(self) -> Path:
        """The Markdown file."""
        return (self.root / self.docname).with_suffix(".md")

    @cached_property
    def text(self) -> str:
        """The whole file."""
        return self.path.read_text(encoding="utf8")

    @property
    def front_matter(self) -> dict:
        """The YAML at the head of the file; empty where there is none."""
        match = FRONT_MATTER.match(self.text)
        return yaml.safe_load(match.group(1)) if match else {}

    @property
    def executable(self) -> bool:
        """Whether the page has code cells."""
        return "{code-cell}" in self.text

    @cached_property
    def cells(self) -> list[Cell]:
        """The code cells, in order."""
        return [cell for cells in self.sections.values() for cell in cells] if self.executable else []

    @cached_property
    def sections(self) -> dict[str, list[Cell]]:
        """The code cells by the heading of level 2 above them; those above the first heading under an empty name."""
        found, name = {"": []}, ""
        for cell in jupytext.reads(self.text, fmt="md:myst").cells:
            if cell.cell_type == "code":
                found.setdefault(name, []).append(Cell(cell.source, dict(cell.metadata)))
                continue
            headings = re.findall(r"^## +(.+?)\s*$", FENCE.sub("", cell.source), re.MULTILINE)
            name = headings[-1] if headings else name
        return found

    @property
    def code(self) -> str:
        """All code of the page."""
        return "\n".join(cell.source for cell in self.cells)

    @property
    def figures(self) -> list[str]:
        """The names of the page's figures."""
        return [cell.figure["name"] for cell in self.cells if cell.figure]

    @cached_property
    def prose(self) -> str:
        """The text that a reader reads as text: without front matter, code, formulas, roles' targets and links."""
        text = FRONT_MATTER.sub("", self.text)
        text = re.sub(r"^(`{3,})\{code-cell\}.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"^(`{3,}|:{3,})\{(math|code-block|bibliography)\}.*?^\1\s*$", "", text, flags=re.DOTALL | re.M)
        text = re.sub(r"^(`{3,})[a-z]*\n.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"\\begin\{(align|equation|gather)\*?\}.*?\\end\{\1\*?\}", "", text, flags=re.DOTALL)
        text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
        text = re.sub(r"\$[^$]+\$", "", text)
        text = re.sub(r"\{[\w:.+-]+\}`[^`]*`", "", text)
        text = re.sub(r"`[^`]*`", "", text)
        return re.sub(r"\]\([^)]*\)|<https?://[^>]*>", "]", text)


def pages(root: Path = ROOT) -> list[Page]:
    """Return every page of the book, in the order of the table of contents."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf8"))
    return [Page(docname, root) for docname in _docnames(toc)]


def _docnames(entry: dict) -> Iterator[str]:
    for key in ("root", "file"):
        if key in entry:
            yield entry[key]
    for key in ("parts", "chapters", "sections"):
        for child in entry.get(key, []):
            yield from _docnames(child)


def calls_of(code: ast.AST, module_names: set[str]) -> Iterator[str]:
    """Yield what code calls on one of the named modules, such as ``curves`` for ``figures.curves()``."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in module_names:
                yield node.func.attr


def imported_roots(cell: Cell) -> Iterator[str]:
    """Yield the top-level packages that a cell imports."""
    for node in ast.walk(cell.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
