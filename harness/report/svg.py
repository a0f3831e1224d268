"""Matplotlib's drawings as parts of a page: in the page's colours and fonts, and small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

FONT = "DejaVu Sans"
"""Comes with matplotlib and is wide: text that fits in it fits in the reader's fonts."""

# Matplotlib draws with these stand-ins; the page's own colours replace them afterwards, so
# that one picture serves light and dark.
COLOURS = {
    name: f"#0102{number:02x}"
    for number, name in enumerate(
        ("ink", "muted", "line", "tint", "upheld", "refuted", "inconclusive",
         "s1", "s2", "s3", "s4", "s5", "s6"),
        start=3,
    )
}  # fmt: skip


def inline(
    document: str, kind: str, size: tuple[int, int], letters: float, decimals: int = 2
) -> str:
    """Matplotlib's ``document`` as an ``<svg>`` of class ``kind`` within a page.

    ``size`` is its width and height and ``letters`` its usual size of type, in pixels; its
    coordinates have ``decimals`` decimals.  Metadata, unused ids and its own fonts are left out.
    """
    drawing = ElementTree.fromstring(document)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', document))
    # Set once for the whole drawing, so that its elements need not repeat it.
    shared = (f"font-size: {letters:g}px", "text-anchor: start", f"fill: {COLOURS['ink']}")
    for element in drawing.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = dict(_attributes(element.attrib, used, shared, decimals))
        element.text = (element.text or "").strip()
        element.tail = ""
    _unwrap(drawing)
    drawing.attrib = {
        "class": kind,
        "viewBox": f"0 0 {size[0]} {size[1]}",
        "style": f"font-size: {letters:g}px; fill: var(--ink)",
        "aria-hidden": "true",
        "focusable": "false",
    }
    return ElementTree.tostring(drawing, encoding="unicode", short_empty_elements=False)


def _attributes(
    attributes: dict[str, str], used: set[str], shared: tuple[str, ...], decimals: int
) -> Iterator[tuple[str, str]]:
    for name, value in attributes.items():
        name = name.rpartition("}")[2]
        if name == "id" and value not in used:
            continue
        if name == "transform" and value.startswith("rotate(-0 "):
            continue
        if name == "style":
            value = _style(value, shared)
        elif name in ("d", "x", "y"):
            value = re.sub(r"\d+\.\d+", lambda match: f"{float(match[0]):.{decimals}f}", value)
        if name == "d":
            value = re.sub(r"\s*([CLMQZz])\s*", r"\1", value).strip()
        if value:
            yield name, value


def _style(value: str, shared: tuple[str, ...]) -> str:
    parts = (part.strip() for part in value.split(";"))
    value = "; ".join(p for p in parts if p and p not in shared and FONT not in p)
    for name, stand_in in COLOURS.items():
        value = value.replace(stand_in, f"var(--{name})")
    return value


def _unwrap(element: ElementTree.Element) -> None:
    """Replace groups without attributes by their children; drop metadata and style."""
    children: list[ElementTree.Element] = []
    for child in element:
        _unwrap(child)
        if child.tag in ("metadata", "style") or (child.tag == "defs" and not len(child)):
            continue
        children += list(child) if child.tag == "g" and not child.attrib else [child]
    element[:] = children
