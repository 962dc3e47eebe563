"""Draws the diagrams of the documentation as SVG: `python -m tools.site.diagrams` writes docs/images.

A diagram is boxes on a grid and arrows between them. It has a background and colours for light and for dark
pages, and a title and a description for readers who cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"

_COLUMN, _ROW, _WIDTH, _LINE, _MARGIN = 250, 130, 190, 17, 24
_STYLE: Final = """
  svg { --page: #ffffff; --line: #44546a; --text: #1b2430;
    --box: #eef3f9; --trusted: #dff0e1; --doubt: #fbe9dd; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #14181e; --line: #a9b8cc; --text: #eef2f7;
    --box: #263140; --trusted: #1f4028; --doubt: #523320; }
  }
  .page { fill: var(--page); } .box { fill: var(--box); }
  .trusted { fill: var(--trusted); } .doubt { fill: var(--doubt); }
  rect.node { stroke: var(--line); stroke-width: 1.2; }
  path.arrow { stroke: var(--line); stroke-width: 1.4; fill: none; } .head { fill: var(--line); }
  text { font-family: system-ui, sans-serif; font-size: 12.5px; fill: var(--text); text-anchor: middle; }
  .name { font-weight: 600; font-size: 13.5px; } .label { font-size: 11.5px; }
  .halo { stroke: var(--page); stroke-width: 5px; paint-order: stroke; }
"""


@dataclass(frozen=True)
class Box:
    """A part, at a column and row of the grid; `kind` is `box`, `trusted` or `doubt`."""

    column: float
    row: float
    name: str
    lines: Sequence[str] = ()
    kind: str = "box"

    @property
    def x(self) -> float:
        """Of its centre."""
        return _MARGIN + _WIDTH / 2 + self.column * _COLUMN

    @property
    def y(self) -> float:
        """Of its centre."""
        return _MARGIN + 45 + self.row * _ROW

    @property
    def height(self) -> float:
        """Enough for its lines."""
        return 34 + _LINE * len(self.lines)


@dataclass(frozen=True)
class Diagram:
    """Boxes by key, and arrows as (from, to, label)."""

    title: str
    description: str
    boxes: dict[str, Box]
    arrows: Sequence[tuple[str, str, str]]


def svg(diagram: Diagram) -> str:
    """The file of a diagram."""
    boxes = diagram.boxes.values()
    width = max(box.x for box in boxes) + _WIDTH / 2 + _MARGIN
    height = max(box.y + box.height / 2 for box in boxes) + _MARGIN
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(diagram.title)}</title>',
        f'<desc id="description">{escape(diagram.description)}</desc>',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="page" width="{width:g}" height="{height:g}" rx="8"/>',
        *(line for arrow in diagram.arrows for line in _path(diagram, *arrow)),
        *(line for box in boxes for line in _box(box)),
        *(line for arrow in diagram.arrows for line in _label(diagram, *arrow)),
        "</svg>\n",
    )
    return "\n".join(parts)


def _box(box: Box) -> Iterator[str]:
    left, top = box.x - _WIDTH / 2, box.y - box.height / 2
    size = f'width="{_WIDTH}" height="{box.height:g}"'
    yield f'<rect class="node {box.kind}" x="{left:g}" y="{top:g}" {size} rx="6"/>'
    yield f'<text class="name" x="{box.x:g}" y="{top + 22:g}">{escape(box.name)}</text>'
    for at, line in enumerate(box.lines, 1):
        yield f'<text x="{box.x:g}" y="{top + 22 + at * _LINE:g}">{escape(line)}</text>'


def _ends(diagram: Diagram, start: str, end: str) -> tuple[float, float, float, float]:
    """Where an arrow leaves a box and meets the other, on the line between their centres."""
    one, other = diagram.boxes[start], diagram.boxes[end]
    across, down = other.x - one.x, other.y - one.y
    if abs(across) * max(one.height, other.height) > abs(down) * _WIDTH:
        side = _WIDTH / 2 * (1 if across > 0 else -1)
        return one.x + side, one.y, other.x - side, other.y
    sign = 1 if down > 0 else -1
    return one.x, one.y + sign * one.height / 2, other.x, other.y - sign * other.height / 2


def _path(diagram: Diagram, start: str, end: str, label: str) -> Iterator[str]:
    x1, y1, x2, y2 = _ends(diagram, start, end)
    yield f'<path class="arrow" d="M{x1:g} {y1:g} L{x2:g} {y2:g}" marker-end="url(#head)"/>'


def _label(diagram: Diagram, start: str, end: str, label: str) -> Iterator[str]:
    x1, y1, x2, y2 = _ends(diagram, start, end)
    lines = label.split("\n") if label else []
    for at, line in enumerate(lines):
        y = (y1 + y2) / 2 + 4 + (at - (len(lines) - 1) / 2) * 14
        yield f'<text class="label halo" x="{(x1 + x2) / 2:g}" y="{y:g}">{escape(line)}</text>'


DIAGRAMS: Final = {
    "architecture": Diagram(
        "Architecture of Lakewarden",
        "Spark, Python and standard Iceberg clients, and administrators, call the catalog. The catalog "
        "keeps governed state, seals, keys and the audit log in a database, reads metadata from storage, "
        "and asks a KMS to wrap keys. Engines read data files from allowed locations only.",
        {
            "spark": Box(0, 0, "Spark, Python client", ("check each path,", "decrypt files")),
            "clients": Box(1, 0, "Iceberg clients", ("standard clients,", "Iceberg REST")),
            "admins": Box(2, 0, "Administrators", ("lakewarden commands,", "/admin/v1")),
            "catalog": Box(
                1, 1.25, "Catalog", ("authenticates, decides,", "plans, commits, audits"), "trusted"
            ),
            "database": Box(
                2, 2.5, "Database", ("governed state, seals,", "wrapped keys, audit log"), "trusted"
            ),
            "kms": Box(1, 2.5, "KMS", ("master keys",), "trusted"),
            "storage": Box(
                0, 2.5, "Storage", ("metadata and data files:", "writers can change them"), "doubt"
            ),
        },
        (
            ("spark", "catalog", "/engine/v1"),
            ("clients", "catalog", "/v1"),
            ("admins", "catalog", "/admin/v1"),
            ("catalog", "database", ""),
            ("catalog", "kms", "wrap and\nunwrap PEKs"),
            ("catalog", "storage", "metadata,\nverified"),
            ("spark", "storage", "allowed\ndata files"),
        ),
    ),
    "read": Diagram(
        "The path of a read",
        "The engine asks for a plan. The catalog decides by policies, compares metadata with its seal, "
        "checks every path, and answers files, keys, row filters and masks. Each task checks its path "
        "again, opens its data key, verifies the footer, and filters and masks rows before the query sees "
        "them.",
        {
            "query": Box(0, 0, "1. Query", ("SELECT … FROM table",)),
            "plan": Box(1, 0, "2. Plan request", ("columns, filter, user",)),
            "decide": Box(2, 0, "3. Decide", ("policies: columns,", "rows, masks, keys"), "trusted"),
            "load": Box(2, 1, "4. Load metadata", ("compare SHA-256 and", "length with the seal"), "trusted"),
            "check": Box(2, 2, "5. Check paths", ("each file below an", "allowed location"), "trusted"),
            "answer": Box(1, 2, "6. Plan", ("files, wrapped data keys,", "row filter, masks"), "trusted"),
            "task": Box(0, 2, "7. Task", ("path again, data key,", "footer and its digest")),
            "rows": Box(0, 1, "8. Rows", ("filtered and masked", "below the query")),
        },
        (
            ("query", "plan", ""),
            ("plan", "decide", ""),
            ("decide", "load", ""),
            ("load", "check", ""),
            ("check", "answer", ""),
            ("answer", "task", ""),
            ("task", "rows", ""),
            ("rows", "query", ""),
        ),
    ),
    "commit": Diagram(
        "The path of a commit",
        "The catalog verifies the base metadata, applies the updates, authorizes the change as a whole, "
        "compares each new snapshot with its parent, checks new files, writes and seals metadata, and "
        "moves the pointer in one transaction. A commit that came first leads to a conflict.",
        {
            "client": Box(0, 0, "1. Commit request", ("updates and", "requirements")),
            "base": Box(1, 0, "2. Base", ("load and verify", "sealed metadata"), "trusted"),
            "apply": Box(2, 0, "3. Authorize", ("table, locations, keys,", "in one request"), "trusted"),
            "compare": Box(2, 1.1, "4. Compare", ("new snapshot with", "its parent"), "trusted"),
            "files": Box(
                1, 1.1, "5. Check new files", ("path, encryption epoch,", "key metadata"), "trusted"
            ),
            "refused": Box(0, 1.1, "Refused", ("one typed error;", "nothing was changed"), "doubt"),
            "write": Box(1, 2.2, "6. Write and seal", ("metadata.json, SHA-256", "and length"), "trusted"),
            "swap": Box(2, 2.2, "7. Move the pointer", ("compare and swap,", "one transaction"), "trusted"),
        },
        (
            ("client", "base", ""),
            ("base", "apply", ""),
            ("apply", "compare", ""),
            ("compare", "files", ""),
            ("files", "write", ""),
            ("write", "swap", ""),
            ("files", "refused", "a check\nfails"),
        ),
    ),
    "keys": Diagram(
        "Keys and envelopes",
        "A master key in the KMS wraps the key-encryption key of a table, the PEK, which the database "
        "keeps wrapped. The PEK wraps one data key for each file, kept in the file's key metadata. The "
        "catalog hands data keys to an engine under a transport key that is made for one scan.",
        {
            "master": Box(0, 0, "Master key", ("in the KMS;", "never leaves it"), "trusted"),
            "pek": Box(1, 0, "PEK", ("one a table and master key,", "wrapped, in the database"), "trusted"),
            "dek": Box(2, 0, "Data key (DEK)", ("one a file, wrapped,", "in its key metadata")),
            "file": Box(2, 1.2, "Data file", ("Parquet or ORC,", "encrypted"), "doubt"),
            "transport": Box(1, 1.2, "Transport key", ("made for one scan", "or one write"), "trusted"),
            "engine": Box(0, 1.2, "Engine", ("opens data keys of the", "planned files")),
        },
        (
            ("master", "pek", "wraps"),
            ("pek", "dek", "wraps"),
            ("dek", "file", "encrypts"),
            ("pek", "transport", "data keys are\nwrapped again"),
            ("transport", "engine", "plan"),
        ),
    ),
    "policies": Diagram(
        "From policies to a decision",
        "Policies come from Apache Ranger, from files or from commands, and are kept in the database as "
        "revisions. An identity provider or the catalog's tokens say who the user is. The evaluation "
        "takes user, groups, resource and access, and gives a decision with its reasons. The audit log "
        "records it.",
        {
            "ranger": Box(0, 0, "Ranger Admin", ("downloaded, checked",)),
            "files": Box(0, 1, "Files, commands", ("policy apply, policy put",)),
            "documents": Box(1, 0.5, "Policy documents", ("revisions in the", "database"), "trusted"),
            "provider": Box(0, 2, "Identity provider", ("signed access token",)),
            "identity": Box(1, 2, "Identity", ("user, groups,", "attributes"), "trusted"),
            "evaluate": Box(
                2, 0.5, "Evaluation", ("tags, zones, conditions,", "deny before allow"), "trusted"
            ),
            "decision": Box(2, 2, "Decision", ("allowed or refused,", "with reasons"), "trusted"),
            "effect": Box(3, 2, "Effect", ("columns, row filters,", "masks, keys, audit log")),
        },
        (
            ("ranger", "documents", ""),
            ("files", "documents", ""),
            ("provider", "identity", ""),
            ("documents", "evaluate", ""),
            ("identity", "evaluate", "user, access,\nresource, time"),
            ("evaluate", "decision", ""),
            ("decision", "effect", ""),
        ),
    ),
}


def main() -> None:
    """Write all images."""
    IMAGES.mkdir(exist_ok=True)
    for name, diagram in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(svg(diagram), "utf-8")


if __name__ == "__main__":
    main()
