"""`assay explain C2`: what a claim says, where that is from, and how it is checked."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from assay.harness.checking.cases import Case
from assay.harness.checking.profiles import PROFILES
from assay.harness.cli.arguments import Parser, word
from assay.harness.cli.list import document
from assay.harness.results import bibliography
from assay.harness.results.errors import BadInput

LAW = (
    "A law: it must hold for every input.  Hypothesis draws inputs and looks for one that breaks "
    "it; outputs are compared with the same model in float64, within the rounding error of the "
    "plain forward pass."
)
PLAIN = "a small multiple of the plain pass's rounding error (harness/models/tolerances.py)"
FINDING = (
    "A finding: it is about particular weights.  Independent draws are taken until the 95 % "
    "interval of the statistic is on one side of the bound, or the profile's draws are used up."
)


def main(arguments: Sequence[str], cases: Callable[[], list[Case]]) -> int:
    """Print all claims of the number asked for; 0."""
    asked = _parser().parse_args(arguments)
    rows = document(cases())
    mine = [row for row in rows if row["id"].casefold() == asked.claim.casefold()]
    if not mine:
        numbers = ", ".join(dict.fromkeys(row["id"] for row in rows))
        raise BadInput(f"{asked.claim}: there is no such claim; there are {numbers}")
    sys.stdout.write("\n".join("\n".join(described(row)) + "\n" for row in mine))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay explain",
        description="Explain a claim: its sentence, its source, what a model needs for it, how it "
        "is decided, its control, and where its test is.  `assay list` lists all claims.",
    )
    parser.add_argument("claim", type=word, metavar="ID", help="the claim's number, such as C2")
    return parser


def described(row: dict[str, Any]) -> list[str]:
    """A claim in lines."""
    law = row["kind"] == "law"
    lines = [
        f"{row['id']}: {row['claim']}",
        "",
        *(f"  {line}" for line in textwrap.wrap(LAW if law else FINDING, 96)),
    ]
    facts = {
        "about": row["about"],
        "needs": ", ".join(row["needs"]) or "nothing: it applies to every model",
        "bound": row["bound"] or PLAIN,
        "control": row["control"],
        "source": row["source"],
        "variants": "; ".join(row["variants"]),
        "cost": _cost(law),
        "test": row["file"],
    }
    lines += ["", *(f"  {name + ':':<10} {fact}" for name, fact in facts.items() if fact)]
    lines += [
        f"  {'':<10} {work.title} ({work.author}), {work.address}"
        for work in bibliography.cited(row["source"])
    ]
    return lines


def _cost(law: bool) -> str:
    told = [
        f"{name} {profile.examples} examples"
        if law
        else f"{name} {profile.draws} draws, or {profile.prompts} descents"
        for name, profile in PROFILES.items()
    ]
    return "at most " + "; ".join(told)
