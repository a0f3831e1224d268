"""One page of HTML about a run: self-contained, offline, readable without its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.harness.report import gallery, templates, view, words
from assay.harness.results.verdicts import Result

MOST_BYTES = 2_000_000
"""A page that comes out larger, the findings' pictures aside (see `gallery.MOST_BYTES`), is laid
out again with less of what fills it."""

LEAST_SHARE = 0.05


def render(
    run: dict[str, Any],
    results: Sequence[Result],
    judgements: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """The page as text; everything that comes from the run is escaped."""
    share = 1.0
    drawn = gallery.gallery(words.by_subject(run, results))
    while True:
        shown = view.page(run, results, judgements or {}, share, drawn)
        page = templates.render("page", scripts=["page.js"], page=shown)
        if share < LEAST_SHARE or len(page.encode()) <= MOST_BYTES + drawn.bytes:
            return page
        share /= 2
