"""`assay counts FILE…`: on how many models each claim holds, does not apply, or is refuted."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli.arguments import Parser, file, folder
from assay.harness.report.atlas import building
from assay.harness.results import expectation_files
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.expectations import Expectations
from assay.harness.results.verdicts import Verdict

EXPECTATIONS = Path("claims/expectations")
HEADS = ("claim", "upheld", "refuted", "undecided", "not applicable", "refuted by", "missing")

_SCRIPT = re.compile(r"docs/defects/(\w+)\.py")
_ORDER = (Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE)
"""Of a claim's variants the first of these decides the model's verdict."""

MOST = 4
"""Missing capabilities that a row lists."""


@dataclass
class Count:
    """The models by their verdicts on one claim, and why it was refuted or does not apply.

    ``causes`` are defects, or other words, and ``missing`` capabilities: each with the number of
    models.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0."""
    options = _parser().parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for path in options.files:
        if path.suffix == ".html":
            rows += building.rows(path)
            continue
        with Evidence.read(path) as evidence:
            rows += evidence.every()
    wanted = options.claim or ["*"]
    rows = [row for row in rows if any(fnmatchcase(row["claim"], each) for each in wanted)]
    if not rows:
        raise BadInput(f"no results of {', '.join(wanted)} in {len(options.files)} files")
    source = options.expectations or (EXPECTATIONS if EXPECTATIONS.is_dir() else None)
    expected = {} if source is None else expectation_files.load(source)
    counts = count(rows, expected)
    if options.markdown:
        sys.stdout.write(markdown(counts))
    else:
        show(Console(emoji=False), counts)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay counts",
        description="Count the models in evidence files (or of an atlas's page, in its newest "
        "version) on which each claim is upheld, refuted "
        "(by which defect, as the expectations say), undecided, or not applicable (for want of "
        "which capability).  Of a check that ran several times its latest result counts; a claim "
        "with several variants is refuted where one is, and upheld where one is and none is "
        "refuted or undecided.",
    )
    add = parser.add_argument
    add("files", nargs="+", type=file, metavar="FILE", help="evidence, or an atlas's page")
    add(
        "--claim",
        action="append",
        metavar="ID",
        help="a claim's number, or a pattern such as 'G*'; may be given several times",
    )
    add("--markdown", action="store_true", help="print Markdown in place of a table")
    add(
        "--expectations",
        type=folder,
        metavar="FOLDER",
        help=f"expectations of models (default: {EXPECTATIONS}, if there)",
    )
    return parser


def count(
    rows: Iterable[Mapping[str, Any]], expected: Mapping[str, Expectations]
) -> dict[str, Count]:
    """Count ``rows`` (`Evidence.every`) by claim, in the order of their numbers."""
    latest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda each: str(each["recorded"])):
        latest[row["claim"], row["subject"], row["name"]] = row
    models: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for (claim, subject, _), row in latest.items():
        models[claim, subject].append(row)
    counts: dict[str, Count] = defaultdict(Count)
    for (claim, _), variants in models.items():
        verdicts = {Verdict(row["verdict"]) for row in variants}
        verdict = next(each for each in _ORDER if each in verdicts)
        counts[claim].verdicts[verdict] += 1
        if verdict is Verdict.REFUTED:
            counts[claim].causes.update({c for row in variants for c in _causes(row, expected)})
        elif verdict is Verdict.NOT_APPLICABLE:
            counts[claim].missing.update({_capability(row) for row in variants})
    return dict(sorted(counts.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def _causes(row: Mapping[str, Any], expected: Mapping[str, Expectations]) -> set[str]:
    if row["verdict"] != Verdict.REFUTED:
        return set()
    fitting = [each for each in expected.values() if each.fits(row["subject"])]
    entries = [each.expected(row["claim"], row["name"]) for each in fitting]
    reasons = [entry.reason for entry in entries if entry is not None]
    if not reasons:
        return {"no expectation"}
    return {name for reason in reasons for name in _SCRIPT.findall(reason) or [reason]}


def _capability(row: Mapping[str, Any]) -> str:
    return str(row.get("reason") or "").partition(":")[0]


def _listed(numbers: Counter[str], most: int | None = None) -> str:
    """The commonest, each with its number; the rest is counted together."""
    ranked = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{name} ({number})" for name, number in ranked[:most]]
    if most is not None and len(ranked) > most:
        texts.append(f"{len(ranked) - most} others")
    return ", ".join(texts)


def cells(claim: str, count: Count) -> list[str]:
    """One row as text."""
    order = (Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE)
    numbers = [str(count.verdicts[verdict]) for verdict in order]
    return [claim, *numbers, _listed(count.causes), _listed(count.missing, MOST)]


def show(console: Console, counts: Mapping[str, Count]) -> None:
    """The table in the terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in HEADS:
        number = head in HEADS[1:5]
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for claim, each in counts.items():
        table.add_row(*map(escape, cells(claim, each)))
    console.print(table)


def markdown(counts: Mapping[str, Count]) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---|---:|---:|---:|---:|---|---|"]
    for claim, each in counts.items():
        texts = [text.replace("|", "\\|") for text in cells(claim, each)]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join([*lines, ""])
