"""Renders pages: templates that escape, one sheet of colours, scripts named by digest."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_HERE = Path(__file__).parent


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader([_HERE, _HERE / "atlas"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    return environment


def render(
    name: str, styles: Iterable[str] = ("page.css",), scripts: Iterable[str] = (), **values: Any
) -> str:
    """A self-contained page from ``name``.html.jinja; all ``values`` are escaped in it."""
    code = "\n".join(_read(script) for script in scripts)
    # The browser runs this script and no other: its digest is in the page's policy.
    digest = hashlib.sha256(f"\n{code}".encode()).digest()
    template = _environment().get_template(f"{name}.html.jinja")
    return template.render(
        **values,
        style=Markup("\n".join(map(_read, ("base.css", *styles)))),
        script=Markup(code),
        script_digest=base64.b64encode(digest).decode("ascii"),
    )


@cache
def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def prose(text: str) -> Markup:
    """Markdown's `code`, **strong** and *emphasis* as HTML; all else is escaped."""
    pieces = re.split(r"`([^`]+)`", str(escape(text)))
    for i, piece in enumerate(pieces):
        strong = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", piece)
        plain = re.sub(r"\*(\w[^*]*)\*", r"<i>\1</i>", strong)
        pieces[i] = f"<code>{piece}</code>" if i % 2 else plain
    return Markup("".join(pieces))
