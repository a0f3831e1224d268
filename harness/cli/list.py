"""`assay list`: every claim, with its sentence, kind, requirements and source."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.checking import catalogue, outside
from assay.harness.checking.catalogue import Declared
from assay.harness.cli.arguments import Parser, add_outside, word
from assay.harness.results.bibliography import cited
from assay.harness.results.errors import BadInput

WIDE = 1000
"""Columns where the output is not a terminal."""

PAGES = {
    "law": ("claims.md", "findings", "A *law* must hold for every input."),
    "finding": ("claims-findings.md", "laws", "A *finding* is about particular weights."),
}
"""For each kind of claim its page in docs/, what the other page has, and what the kind is."""


def main(arguments: Sequence[str]) -> int:
    """List the claims as a table, JSON or Markdown; 0.

    Raises `BadInput` if no claim has all the words.
    """
    options = _parser().parse_args(arguments)
    others = [] if options.markdown else outside.declared(options.outside + outside.installed())
    rows = document([*catalogue.claims(), *others])
    rows = [row for row in rows if is_about(row, options.words)]
    if not rows:
        raise BadInput(f"{' '.join(options.words)}: no claim's number or sentence has these words")
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    elif options.markdown:
        sys.stdout.write(markdown(rows, options.markdown))
    else:
        _show(rows)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay list",
        description="List the claims: number, sentence, law or finding, the capabilities that a "
        "model needs, and the document or paper that makes the claim.",
    )
    parser.add_argument(
        "words",
        nargs="*",
        type=word,
        metavar="WORD",
        help="list only claims that have all of these",
    )
    add_outside(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", choices=[*PAGES], help="print that page of docs/")
    return parser


def is_about(row: dict[str, Any], words: Sequence[str]) -> bool:
    """Whether a claim's number or sentence has all the words, in any case."""
    text = f"{row['id']} {row['claim']}".casefold()
    return all(each.casefold() in text for each in words)


def _about(claim: Declared) -> str:
    if claim.about_engines:
        return "what serves a model"
    return "a network that Assay makes itself" if claim.toy else "the model"


def document(claims: Sequence[Declared]) -> list[dict[str, Any]]:
    """A row for each claim, in the order of their numbers; variants are pytest's parameters."""

    def key(claim: Declared) -> tuple[tuple[str, int], str, bool]:
        return catalogue.order(claim.id), claim.says, claim.toy

    rows = []
    for _, group in groupby(sorted(claims, key=key), key):
        several = list(group)
        claim = several[0]
        rows.append(
            {
                "id": claim.id,
                "claim": claim.says,
                "kind": claim.kind.value,
                "needs": list(claim.needs),
                "about": _about(claim),
                "slow": claim.slow,
                "source": claim.source,
                "control": claim.control,
                "bound": claim.bound,
                "variants": [variant for each in several for variant in each.variants],
                "file": claim.file,
            }
        )
    return rows


def _profile(row: dict[str, Any]) -> str:
    """The profile that it needs, or that the named variants need; empty for any."""
    if not (slow := row["slow"]):
        return ""
    return "standard" if slow is True else f"standard: {', '.join(slow)}"


def _kind(row: dict[str, Any]) -> str:
    """Law or finding, and the profile that it needs."""
    profile = _profile(row)
    return f"{row['kind']} ({profile})" if profile else str(row["kind"])


def markdown(rows: Sequence[dict[str, Any]], kind: str) -> str:
    """The claims of a kind as a page, a table for each letter of the catalogue."""
    page, others, meaning = PAGES[kind]
    ((other, *_),) = (PAGES[each] for each in PAGES if each != kind)
    lines = [
        f"<!-- Written by: assay list --markdown={kind} > docs/{page} -->",
        f"# Claims: {kind}s",
        "",
        f"{meaning} The [{others}]({other}) have a page of their own.",
        "A claim does not apply to a model that lacks a capability it needs. One with *standard*,",
        "or the variants that are named there, needs `--profile=standard`: a law that takes",
        "seconds for an example, a finding that needs more draws than `quick` has.",
        "`assay explain C1` has the rest.",
    ]
    chosen = [row for row in rows if row["kind"] == kind]
    for letter, group in groupby(chosen, lambda row: row["id"][0]):
        lines += [
            "",
            f"## {letter}",
            "",
            "| | claim | profile | needs | source |",
            "|---|---|---|---|---|",
        ]
        for row in group:
            linked = f"[{row['id']}](../{row['file']})"
            cells = (row["claim"], _profile(row), ", ".join(row["needs"]), row["source"])
            lines.append("| " + " | ".join([linked, *map(_cell, cells)]) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "claim", "kind", "needs", "source"):
        table.add_column(name, overflow="fold")
    for row in rows:
        works_of = ", ".join(work.key for work in cited(row["source"])) or row["source"]
        cells = (row["id"], row["claim"], _kind(row), ", ".join(row["needs"]), works_of)
        table.add_row(*map(escape, cells))
    # In a pipe every claim is one line, which `grep` finds.
    console = Console(emoji=False, width=None if sys.stdout.isatty() else WIDE)
    console.print(table)
    laws = sum(row["kind"] == "law" for row in rows)
    console.print(f"{laws} laws, {len(rows) - laws} findings", highlight=False)
