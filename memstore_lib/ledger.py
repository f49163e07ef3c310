"""The ledger's file: every statement of the sources as a row of ``book/claims.yml``, found, read and checked.

::

    claim    what a source says, in our words, with its value, and the caveat that it needs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from memstore_lib import _checks

KINDS = ("identity", "law", "measured", "trend", "reported")
REQUIRED = ("id", "chapter", "kind", "claim")
OPTIONAL = ("article", "exact", "note", "caveats", "caveat", "where")


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        id: unique name, such as ``op-capacity``.
        chapter: the chapter that checks it.
        kind: identity, law, measured, trend or reported.
        claim: what the source says, in our words.
        article: the source's value, None where it gives none.
        exact: the value or formula under the exact law, where the article's is an approximation.
        note: a remark.
        caveats: short names of the findings behind the caveat.
        caveat: why the claim holds only with a caveat, in a sentence; None if it needs none.
        where: ``page#anchor`` of the section that shows the caveat.
    """

    id: str
    chapter: str
    kind: str
    claim: str
    article: object = None
    exact: object = None
    note: str | None = None
    caveats: tuple[str, ...] = ()
    caveat: str | None = None
    where: str | None = None


def load(path: str | Path | None = None) -> dict[str, Claim]:
    """Read and check a ledger.

    Args:
        path: a YAML file with a list of rows; None finds ``book/claims.yml`` (see :func:`find`).

    Returns:
        The claims by id, in the file's order.

    Raises:
        ValueError: not a file of UTF-8 text with a list of rows; no rows; a missing, empty, repeated or unknown field;
            a duplicate id; an unknown kind; a caveat without the section that shows it, or the reverse.
        FileNotFoundError: no such file.
    """
    path = find() if path is None else Path(path)
    if path.is_dir():
        raise ValueError(f"ledger {path.name} must be a file, got a folder")
    try:
        rows = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise ValueError(f"ledger {path.name} must be text in UTF-8: {error}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"ledger {path.name} must be YAML: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(f"ledger {path.name} must be a list of rows, got {type(rows).__name__}")
    if not rows:
        raise ValueError(f"ledger {path.name} must hold at least one row, got an empty list")
    claims: dict[str, Claim] = {}
    for line, row in enumerate(rows, start=1):
        claim = _claim(row, f"ledger {path.name}, row {line}")
        if claim.id in claims:
            raise ValueError(f"ledger {path.name}, row {line}: id must be unique, got {claim.id!r} a second time")
        claims[claim.id] = claim
    return claims


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, of which the safe loader silently keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} given twice", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _claim(row: object, place: str) -> Claim:
    if not isinstance(row, Mapping):
        raise ValueError(f"{place} must be a mapping of fields, got {type(row).__name__}")
    place = f"{place} ({row.get('id', 'no id')})"
    for name in REQUIRED:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise ValueError(f"{place}: field {name!r} must be a text, got {row.get(name)!r}")
    unknown = sorted(str(name) for name in set(row) - set(REQUIRED) - set(OPTIONAL))
    if unknown:
        raise ValueError(f"{place}: fields must be among {', '.join((*REQUIRED, *OPTIONAL))}, got {', '.join(unknown)}")
    _checks.choice(f"{place}: kind", row["kind"], KINDS)
    for name in ("caveat", "where"):
        if row.get(name) is not None and not str(row[name]).strip(" #"):
            raise ValueError(f"{place}: {name} must be a text or left out, got {row[name]!r}")
    if (row.get("caveat") is None) != (row.get("where") is None):
        raise ValueError(f"{place}: caveat and where must come together, got only one of them")
    for name in ("note", "caveat", "where"):
        if not isinstance(row.get(name, ""), (str, type(None))):
            raise ValueError(f"{place}: {name} must be a text, got {row[name]!r}")
    if row.get("where") is not None and not all(row["where"].partition("#")):
        raise ValueError(f"{place}: where must be page#section, got {row['where']!r}")
    caveats = row.get("caveats", [])
    if not isinstance(caveats, list) or not all(isinstance(one, str) for one in caveats):
        raise ValueError(f"{place}: caveats must be a list of short names, got {caveats!r}")
    return Claim(**{**row, "caveats": tuple(caveats)})


def find() -> Path:
    """Return the book's ledger.

    It is ``claims.yml`` here, in ``book/`` here or in a parent folder, else in the repository that the library runs
    from, else the copy that is installed with the library: a chapter opened alone finds that one.

    Raises:
        FileNotFoundError: there is none.
    """
    here, library = Path.cwd(), Path(__file__).parent
    for folder in (
        here,
        *(parent / "book" for parent in (here, *here.parents)),
        library.parent / "book",
        library / "book",
    ):
        if (folder / "claims.yml").is_file():
            return folder / "claims.yml"
    raise FileNotFoundError(
        "claims.yml must be in the working folder, in book/ of a parent folder or in the installed library; found none"
    )
