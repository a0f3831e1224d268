"""Evidence of runs of the library's versions, written at once."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import DIGEST, a_run, write

__all__ = ["broken", "finding", "law", "run_of", "write"]


def run_of(version: str, *subjects: str, **more: Any) -> RunRecord:
    """A run with this version of transformers, on these models."""
    facts = {
        "model_type": "llama", "parameters": 30752, "vocabulary": 101, "context": 64,
        "hidden": 32, "layers": 2, "digest": DIGEST, "capabilities": ["causal"], "missing": {},
    }  # fmt: skip
    versions = {"python": "3.11.7", "torch": "2.13.0", "transformers": version}
    fields = {"id": f"{random.getrandbits(64):x}", "versions": versions, "threads": 1}
    return a_run(**fields | {"subjects": dict.fromkeys(subjects, facts)} | more)


def law(
    subject: str, id: str = "C2", name: str = "cached decoding equals recomputation", **more: Any
) -> Result:
    """A law that is upheld, unless told otherwise."""
    usual = Result(id, name, Kind.LAW, subject, Verdict.UPHELD, 1e-7, 2e-6, 1.3, examples=200)
    return replace(usual, **more)


def broken(subject: str, **more: Any) -> Result:
    """A law that is refuted, with its counterexample."""
    example = Counterexample(
        {"prompt": "<0>(0) <75>(75)", "chunks": "[1, 1]"},
        observed=0.2338,
        allowed=0.1231,
        where="logits, row 0, position 1",
        replay=f"pytest claims/cache/test_cache.py --model={subject} --replay=AEEA",
    )
    usual = {
        "verdict": Verdict.REFUTED, "observed": 0.4669, "bound": 0.1231, "margin": -0.58,
        "reason": "observed 0.234, allowed 0.123",
        "counterexample": example,
    }  # fmt: skip
    return law(subject, **(usual | more))


def finding(subject: str, name: str, value: float) -> Result:
    """An upheld finding with an interval around its value, compared with a bound of 0.25."""
    return Result(
        "A1", name, Kind.FINDING, subject, Verdict.UPHELD, value, 0.25, 3.0,
        interval=(value * 0.8, value * 1.2), examples=64,
        details={"claimed": "median ≤ 0.25", "control": "noise", "control value": 2.0,
                 "control must be": "beyond: median ≤ 0.25", "control interval": [1.5, 2.5]},
    )  # fmt: skip
