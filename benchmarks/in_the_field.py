"""Decides document 003's findings on the first blocks of a trained model of any size.

    python benchmarks/in_the_field.py real/qwen docs/in-the-field.json --blocks=4 E6 E22

Every finding runs as in `assay check`, with its own prompts, untrained models, control and bound,
on all blocks of a slice of the model (`harness.models.reference.slices`).  There is no limit on a
large model's time unless ``--seconds`` sets one.  Descents through a head of 152 thousand tokens
take hours: ``--tokens=4096`` cuts embedding and head to so many tokens, of which the prompts are
drawn then.  ``--blocks=0`` takes the whole model.  ``--limit`` ends the search for each prompt of
E22 after so many seconds; what is not found by then counts as not recovered.  Results are added to
the file.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from assay.claims.inversion import (
    test_inversion,
    test_inversion_conditions,
    test_inversion_exact,
    test_other_inputs,
    test_separation,
    test_steps_to_close,
    test_trained_inversion,
)
from assay.fixtures import subjects, texts
from assay.fixtures.sides import THIS
from assay.fixtures.ways import Way
from assay.harness.checking.claim import Claim, Session
from assay.harness.checking.profiles import PROFILES
from assay.harness.inversion import Target, exact
from assay.harness.inversion.set_up import default_folder
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models.loading.runs import Options
from assay.harness.models.reference.slices import slice_of
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Result

STARTS = {"as documented": Way(depth=-1), "controlled": Way(depth=-1, begin="scaled")}
"""The document's start, and noise of mean 0 and of the embedding's own scale."""

Variants = dict[str, dict[str, Any]]
"""The arguments of a finding, by what tells its variants apart."""

BY_START: Variants = {name: {"way": way} for name, way in STARTS.items()}
THROUGH_THE_HEAD: Variants = {
    name: {"way": replace(way, through="head"), "population": THIS} for name, way in STARTS.items()
}
CLOSE: Variants = {
    name: {"way": replace(way, measure="close"), "shared": False} for name, way in STARTS.items()
}
ALL = "all blocks"

STYLES = {
    "as documented": "as documented",
    "controlled": "scale-matched",
    "controlled, Adam": "Adam",
}
"""The names here of the styles of E6."""

FINDINGS: dict[str, list[tuple[Callable[..., None], Variants]]] = {
    "E3": [(test_inversion.test_one_untrained_block_is_inverted, BY_START)],
    "E6": [
        (
            test_trained_inversion.test_trained_models_invert_worse,
            {
                name: {"population": THIS, "place": ALL, "style": style}
                for name, style in STYLES.items()
            },
        )
    ],
    "E7": [
        (
            test_inversion_conditions.test_the_head_is_a_gradient_bottleneck,
            {
                "as documented, one step size": CLOSE["as documented"] | {"shared": True},
                "as documented, each its best step size": CLOSE["as documented"],
                "controlled": CLOSE["controlled"],
            },
        )
    ],
    "E19": [
        (
            test_inversion_conditions.test_the_head_is_conditioning_and_not_information,
            BY_START,
        )
    ],
    "E22": [
        (
            test_inversion_exact.test_exact_search_recovers_the_tokens,
            {source: {"source": source, "depth": ALL} for source in (texts.TEXT, texts.RANDOM)},
        ),
        (
            test_inversion_exact.test_exact_search_recovers_the_tokens_of_an_untrained_twin,
            {"untrained": {"depth": ALL}},
        ),
    ],
    "E24": [
        (test_steps_to_close.test_a_trained_model_needs_ten_times_the_steps, THROUGH_THE_HEAD)
    ],
    "E27": [
        (
            test_other_inputs.test_nonsense_has_the_output_of_a_prompt,
            {"as documented": {"population": THIS}},
        )
    ],
    "E29": [
        (
            test_separation.test_states_of_different_tokens_differ_by_more_than_rounding,
            {"random tokens": {"depth": ALL}},
        )
    ],
}
"""The findings, with all blocks of the slice for their depth."""


FEW = 1000
"""Draws of a series up to which each is kept."""


@dataclass
class Settled:
    """What a claim's test reports to: its results, each after ``seconds`` at most."""

    seconds: float
    results: list[Result] = field(default_factory=list)

    def settle(self, claim: Claim, subject: Subject, attempt: Callable[[Session], Result]) -> None:
        """Run the claim."""
        profile = replace(PROFILES["quick"], brake=self.seconds, large_brake=self.seconds)
        self.results.append(attempt(Session(profile)))


def first_blocks(subject: Subject, blocks: int, tokens: int) -> Subject:
    """The first ``blocks`` of the model and its head, with all of its tokens where 0 are named."""
    part = slice_of(subject, tokens or subject.vocabulary, blocks).subject
    if not tokens:
        part.tokenizer = subject.tokenizer
    return part


def decide(
    subject: Subject, test: Callable[..., None], arguments: dict[str, Any], seconds: float
) -> Result:
    """The finding's result on the model; what took longer is undecided, with the draws so far."""
    settled = Settled(seconds)
    test(assay=settled, subject=subject, **arguments)
    return settled.results[0]


def each_within(limit: float) -> Callable[[Subject, Target, Tensor], SearchResult]:
    """An exact search of one prompt after another, each for ``limit`` seconds at most."""

    def search(subject: Subject, target: Target, goal: Tensor) -> SearchResult:
        rows, n = goal.shape[:2]
        result = SearchResult.blank(rows, n, goal.device)
        for row in torch.arange(rows, device=goal.device).split(1):
            found = exact(subject, target, goal[row], keep=default_folder(), limit=limit)
            result.put(row, found)
        return result

    return search


def shown(result: Result) -> dict[str, Any]:
    """What is kept of a result."""
    details = {
        name: value for name, value in result.details.items() if name != "passes and tokens"
    }
    return {
        "claim": result.id,
        "says": result.name,
        "verdict": str(result.verdict),
        "reason": result.reason,
        "observed": result.observed,
        "interval": result.interval,
        "prompts": result.examples,
        "seconds": round(result.seconds),
        "details": details,
        "sample": {
            name: values.tolist() for name, values in result.sample.items() if len(values) <= FEW
        },
    }


def main() -> None:
    """Add the results to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("claims", nargs="+", choices=FINDINGS)
    parser.add_argument("--blocks", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--seconds", type=float, default=math.inf, help="limit of a finding")
    parser.add_argument("--limit", type=float, default=0, help="seconds for a prompt of E22")
    options = parser.parse_args()
    if options.limit:
        patch.object(test_inversion_exact, "exact", each_within(options.limit)).start()
    subject = subjects.load(options.model, Options(dtype="float32"))
    if options.blocks:
        subject = first_blocks(subject, options.blocks, options.tokens)
    for claim in options.claims:
        for test, variants in FINDINGS[claim]:
            for name, arguments in variants.items():
                if options.only not in name:
                    continue
                row = {
                    "model": Path(options.model).name,
                    "variant": name,
                    "blocks": subject.layers,
                    "tokens": subject.vocabulary,
                }
                row |= shown(decide(subject, test, arguments, options.seconds))
                rows = json.loads(options.file.read_text()) if options.file.exists() else []
                lines = ",\n".join(json.dumps(each) for each in [*rows, row])
                options.file.write_text(f"[\n{lines}\n]\n")
                print({k: v for k, v in row.items() if k not in ("details", "sample")}, flush=True)


if __name__ == "__main__":
    main()
