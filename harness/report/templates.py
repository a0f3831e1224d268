"""Renders pages: templates that escape, one style sheet, scripts named by digest."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HERE = Path(__file__).parent


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, scripts: Iterable[str] = (), **values: Any) -> str:
    """A self-contained page from ``name``.html.jinja; all ``values`` are escaped in it."""
    code = "\n".join(_read(script) for script in scripts)
    # The browser runs this script and no other: its digest is in the page's policy.
    digest = hashlib.sha256(f"\n{code}".encode()).digest()
    template = _environment().get_template(f"{name}.html.jinja")
    return template.render(
        **values,
        style=Markup(_read("page.css")),
        script=Markup(code),
        script_digest=base64.b64encode(digest).decode("ascii"),
    )


@cache
def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
