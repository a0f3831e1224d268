"""What each claim costs in passes and tokens, recorded from runs, to plan a run on another model.

`costs.json` holds them by claim; ``python -m assay.harness.checking.costs FILE.json …`` replaces
those of the claims in the files, which runs of the profile ``quick`` wrote with ``--json``.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.harness.models.clock import ELSEWHERE, TOO_SLOW
from assay.harness.models.speed import Speed
from assay.harness.results.verdicts import Kind, Verdict

FILE = Path(__file__).with_suffix(".json")

DIGITS = 4
"""Digits that are kept of a cost."""


@dataclass(frozen=True)
class Cost:
    """A claim's work: passes and tokens of the model and of its float64 reference, and seconds
    outside of passes; for each example of a law, in all for a finding.
    """

    passes: float
    tokens: float
    reference_passes: float
    reference_tokens: float
    other: float

    def seconds(self, speed: Speed, examples: int = 1) -> float:
        """The time of so many examples on a model of this speed."""
        reference = speed.reference
        each = speed.own.seconds(self.passes, self.tokens) + self.other
        if reference is not None:
            each += reference.seconds(self.reference_passes, self.reference_tokens)
        return examples * each


@cache
def recorded() -> dict[str, Cost]:
    """The costs by the claim's whole name."""
    return {name: Cost(*numbers) for name, numbers in json.loads(FILE.read_text()).items()}


def is_recorded(name: str, kind: Kind) -> bool:
    """Whether the claim's own cost is known."""
    return f"{kind.value}: {name}" in recorded()


def cost_of(name: str, kind: Kind) -> Cost:
    """The recorded cost of a claim, or that of a usual one of its kind (`typical`)."""
    return recorded().get(f"{kind.value}: {name}") or typical(kind)


@cache
def typical(kind: Kind) -> Cost:
    """The median of the recorded costs of laws, or of findings."""
    alike = [astuple(c) for name, c in recorded().items() if name.startswith(f"{kind.value}: ")]
    return Cost(*map(statistics.median, zip(*alike, strict=True)))


def of_results(results: Iterable[dict[str, Any]]) -> dict[str, Cost]:
    """The largest recorded cost of each claim that ran, by kind and name."""
    costs: dict[str, list[tuple[float, ...]]] = {}
    for result in results:
        work = result["details"].get("passes and tokens")
        if work is None or not result["examples"] or not _is_whole(result):
            continue
        examples = result["examples"] if result["kind"] == Kind.LAW.value else 1
        details = result["details"]
        spent = result["seconds"] - details["seconds in forward passes"]
        spent += details.get(ELSEWHERE, 0.0)
        numbers = (*work["own"], *work["reference"], max(0.0, spent))
        name = f"{result['kind']}: {result['name']}"
        costs.setdefault(name, []).append(tuple(number / examples for number in numbers))
    return {name: Cost(*map(max, zip(*each, strict=True))) for name, each in costs.items()}


def _is_whole(result: dict[str, Any]) -> bool:
    """Whether it took as long as usual: a law that fails looks for a smaller example as well."""
    refuted_law = result["kind"] == Kind.LAW.value and result["verdict"] == Verdict.REFUTED.value
    return not refuted_law and TOO_SLOW not in result["reason"]


def main(files: Sequence[str]) -> None:
    """Write `FILE` again: costs of the claims in the JSON of these runs are new, others stay."""
    results = [each for file in files for each in json.loads(Path(file).read_text())["claims"]]
    costs = {
        name: [float(f"{number:.{DIGITS}g}") for number in astuple(cost)]
        for name, cost in sorted((recorded() | of_results(results)).items())
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in costs.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
