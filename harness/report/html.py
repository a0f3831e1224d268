"""One page of HTML about a run: self-contained, offline, readable without its script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from assay.harness.report import gallery, view, words
from assay.harness.report.templates import environment
from assay.harness.results.verdicts import Result

MOST_BYTES = 2_000_000
"""A page that comes out larger, the findings' pictures aside (see `gallery.MOST_BYTES`), is laid
out again with less of what fills it."""

LEAST_SHARE = 0.05

_HERE = Path(__file__).parent


def render(
    run: dict[str, Any],
    results: Sequence[Result],
    judgements: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """The page as text; everything that comes from the run is escaped."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    # The browser runs this script and no other: its digest is in the page's policy.
    digest = hashlib.sha256(f"\n{script}".encode()).digest()
    template = environment(_HERE).get_template("page.html.jinja")
    share = 1.0
    drawn = gallery.gallery(words.by_subject(run, results))
    while True:
        page = template.render(
            page=view.page(run, results, judgements or {}, share, drawn),
            style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_digest=base64.b64encode(digest).decode("ascii"),
        )
        if share < LEAST_SHARE or len(page.encode()) <= MOST_BYTES + drawn.bytes:
            return page
        share /= 2
