"""`assay explain C2`: a claim's sentence, its source, and how it is checked."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from assay.harness.checking import catalogue, outside
from assay.harness.checking.profiles import PROFILES
from assay.harness.cli.arguments import Parser, add_outside, word
from assay.harness.cli.list import document, is_about
from assay.harness.results import bibliography, passages
from assay.harness.results.errors import BadInput

LAW = (
    "A law: it must hold for every input.  Hypothesis draws inputs and looks for one that breaks "
    "it; outputs are compared with the same model in float64, within the rounding error of the "
    "plain forward pass."
)
PLAIN = (
    "a small multiple of the plain pass's rounding error (harness/models/reference/tolerances.py)"
)
FINDING = (
    "A finding: it is about particular weights.  Independent draws are taken until the 95 % "
    "interval of the statistic is on one side of the bound, or the profile's draws are used up."
)
INDENT = " " * 13
"""The column where facts begin, after their names."""


def main(arguments: Sequence[str]) -> int:
    """Print all claims with the given number or words; 0."""
    options = _parser().parse_args(arguments)
    others = outside.declared(options.outside + outside.installed())
    claims = [*catalogue.claims(), *others]
    rows = document(claims)
    matches = [row for row in rows if row["id"].casefold() == options.claim.casefold()]
    matches = matches or [row for row in rows if is_about(row, options.claim.split())]
    if not matches:
        numbers = ", ".join(dict.fromkeys(row["id"] for row in rows))
        raise BadInput(f"{options.claim}: no such claim; there are {numbers}")
    if len(matches) > 1:
        sys.stdout.write("".join(f"{row['id']}: {row['claim']}\n" for row in matches) + "\n")
    enough = {claim.says: claim.enough for claim in claims}
    texts = ["\n".join(describe(row, enough[row["claim"]])) + "\n" for row in matches]
    sys.stdout.write("\n".join(texts))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay explain",
        description="Explain a claim: its sentence, its source, what a model needs for it, how it "
        "is decided, its control, and where its test is.  `assay list` lists all claims.",
    )
    parser.add_argument(
        "claim",
        type=word,
        metavar="CLAIM",
        help="its number, such as C2, or words of its sentence",
    )
    add_outside(parser)
    return parser


def describe(row: dict[str, Any], enough: int | None) -> list[str]:
    """A claim in lines; more than ``enough`` examples add nothing."""
    law = row["kind"] == "law"
    facts = {
        "about": row["about"],
        "run": _run(row["slow"], law),
        "needs": ", ".join(row["needs"]) or "nothing: it applies to every model",
        "bound": row["bound"] or PLAIN,
        "control": row["control"],
        "variants": "; ".join(row["variants"]),
        "cost": _cost(law, enough),
        "test": row["file"],
        "source": row["source"],
    }
    lines = [
        f"{row['id']}: {row['claim']}",
        "",
        *_wrapped(LAW if law else FINDING, "  ", "  "),
        "",
    ]
    for name, fact in facts.items():
        lines += _wrapped(fact, f"  {name + ':':<10} ", INDENT) if fact else []
    for work in bibliography.cited(row["source"]):
        lines += _wrapped(f"{work.key}: {work.title} ({work.author})")
        lines += _wrapped(work.address, INDENT + "  ")
    for passage in passages.passages(row["source"]):
        lines += _wrapped(f"{passage.key} says: {passage.says}")
    return lines


def _run(slow: bool | tuple[str, ...], law: bool) -> str:
    """How a claim is run that short profiles leave out; empty for others."""
    if not slow:
        return ""
    variants = "" if isinstance(slow, bool) else f" for the variants {', '.join(slow)}"
    return f"needs --profile=standard{variants}" + (" or -m slow_law" if law else "")


def _wrapped(text: str, first: str = INDENT, rest: str = INDENT + "  ") -> list[str]:
    """``text`` in lines that begin with ``first`` and then with ``rest``."""
    return textwrap.wrap(
        text,
        98,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _cost(law: bool, enough: int | None) -> str:
    costs = []
    for name, each in PROFILES.items():
        examples = min(each.examples, enough or each.examples)
        tried = f"{examples} examples" if law else f"{each.draws} draws or {each.prompts} descents"
        costs.append(f"{name} {tried}, {each.brake:.0f} s")
    return "at most, by profile: " + "; ".join(costs)
