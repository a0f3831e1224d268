"""For maintainers: builds types of language models tiny, runs them, and records what they can do.

``python harness/tests/support/record_capabilities.py [TYPE ...] [--record FILE]`` prints a table
in Markdown.  With FILE the capabilities of each type are probed and recorded there (ten minutes
for all types); capabilities that a type has lost are listed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from assay.fixtures.families import offers, survey
from assay.fixtures.families.survey import Row

HEADS = ("type", "kind", "class", "parameters", "layers", "runs", "remarks")


def remark(row: Row) -> str:
    """Why it does not run; else the inputs that it does not take, and the rule that it needed."""
    missing = [f"takes no {way}" for way, why in row.ways.items() if why is not None]
    return row.why or "; ".join([*missing, *filter(None, [row.rule])])


def line(row: Row) -> str:
    """The row in Markdown."""
    layers = (f"{n} {kind}" if n > 1 else kind for kind, n in Counter(row.layers).items())
    parameters = f"{row.parameters:,}".replace(",", " ") if row.parameters else ""
    cells = [row.model_type, row.kind, row.name, parameters, ", ".join(layers)]
    cells += ["yes" if row.runs else "no", remark(row)]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table, and record; raises `BadInput` for an unknown type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="such as llama (default: all)")
    parser.add_argument("--kind", help="causal, masked, seq2seq or multimodal (default: all)")
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    offered, run, of = {}, Counter[str](), Counter[str]()
    pairs = survey.entries(options.types, options.kind)
    for row in survey.survey(pairs, probe=options.record is not None):
        print(line(row), flush=True)
        of[row.kind] += 1
        run[row.kind] += row.runs
        if row.capabilities:
            has = [name for name, why in row.capabilities.items() if why is None]
            offered[f"{row.kind}:{row.model_type}"] = has
    print("\n" + "; ".join(f"{kind}: {run[kind]} of {of[kind]} run" for kind in of))
    if options.record is not None:
        for lost in offers.write(options.record, offered):
            print(f"{lost}; find out why before this is committed")


if __name__ == "__main__":
    main(sys.argv[1:])
