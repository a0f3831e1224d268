"""Compares which faults laws catch on a slice and on the whole of tiny models of four blocks.

`python benchmarks/kills_of_slices.py FILE TYPE...` adds a row for each type to FILE: how many
faults apply; how many of them are caught on the whole, and how many as in a large model, whose
laws run on a slice and core laws on the whole as well; and which faults differ.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from assay.harness import faults
from assay.harness.checking import cases
from assay.harness.cli.kills import may_notice
from assay.harness.cli.main import rooms
from assay.harness.faults.kills import Extent, Trial
from assay.harness.models.reference import slices
from assay.harness.models.subject import lengths
from assay.harness.tests.support.deep_models import deep

TOKENS = 51
"""Of the 101 tokens of a tiny model, those that its slice keeps."""

EXAMPLES = 8
"""Those in which a claim must catch a fault: as many as the profile `quick` has."""


def killed(model_type: str, planned: Sequence[faults.Fault]) -> dict[str, tuple[str, ...]]:
    """By the name of each fault that applies: the claims that caught it."""
    claims = [c for c in cases.collect(rooms().claims) if may_notice(c.claim)]
    trial = Trial(claims, extent=Extent.NAMED, examples=EXAMPLES)
    family = trial.family(model_type, deep(model_type), planned)
    return {row.fault: tuple(id for id, _ in row.killers) for row in family.rows if row.applies}


def row(model_type: str) -> dict[str, object]:
    """What is caught on the whole of a model, and as in a large one."""
    planned = list(faults.FAULTS.values())
    whole = killed(model_type, planned)
    usual = lengths.LARGE, slices.slice_of
    lengths.LARGE, slices.slice_of = 0, functools.partial(slices.slice_of, tokens=TOKENS)
    try:
        sliced = killed(model_type, planned)
    finally:
        lengths.LARGE, slices.slice_of = usual
    return {
        "type": model_type,
        "faults": len(whole),
        "on the whole": sum(map(bool, whole.values())),
        "as a large model": sum(map(bool, sliced.values())),
        "differ": sorted(n for n in whole if bool(whole[n]) != bool(sliced.get(n))),
    }


def main(file: str, *types: str) -> None:
    """Add the rows of ``types`` to ``file``."""
    path = Path(file)
    rows = json.loads(path.read_text()) if path.exists() else []
    for each in types:
        rows.append(row(each))
        path.write_text(json.dumps(rows, indent=1) + "\n")
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
