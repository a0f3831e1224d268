"""Evidence files for tests, written at once."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from assay.harness.results.encoding import encode
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict


def run_of(version: str, *subjects: str, **more: Any) -> RunRecord:
    """A run's record, as `models.loading.runs.describe_run` makes it, without loading torch."""
    facts = {
        "model_type": "llama", "parameters": 30752, "vocabulary": 101, "context": 64,
        "hidden": 32, "layers": 2, "digest": "ab" * 32, "capabilities": ["causal"], "missing": {},
    }  # fmt: skip
    fields = {
        "id": f"{random.getrandbits(64):x}",
        "started": "2026-11-21T15:26:50+00:00",
        "finished": None,
        "exit": None,
        "suite": "0.1.0",
        "profile": "quick",
        "seed": 0,
        "device": "cpu",
        "dtype": "float32",
        "attention": None,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "transformers": version},
        "platform": "Linux",
        "threads": 1,
        "subjects": {name: facts for name in subjects},
    }
    return msgspec.convert(fields | more, RunRecord)


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


def finding(subject: str, name: str, value: float, verdict: Verdict = Verdict.UPHELD) -> Result:
    """A finding with an interval around its value, held against a bound of 0.25."""
    return Result(
        "A1", name, Kind.FINDING, subject, verdict, value, 0.25, 3.0,
        interval=(value * 0.8, value * 1.2), examples=64,
        details={"claimed": "median ≤ 0.25", "control": "noise", "control value": 2.0,
                 "control must be": "beyond: median ≤ 0.25", "control interval": [1.5, 2.5]},
    )  # fmt: skip


def write(
    path: Path,
    run: RunRecord,
    results: Iterable[Result],
    finished: bool = True,
    recorded: str | None = None,
) -> Path:
    """Put a run with its results into an evidence file, as if recorded at ``recorded``."""
    with Evidence.open(path) as evidence:
        evidence.begin(run)
        if finished:
            evidence.finish(run.id, 0)
    rows = [_row(run, result, recorded or run.started) for result in results]
    with sqlite3.connect(path) as db:
        names = ", ".join(rows[0]) if rows else ""
        places = ", ".join(f":{name}" for name in rows[0]) if rows else ""
        if rows:
            db.executemany(f"INSERT INTO claims ({names}) VALUES ({places})", rows)
    db.close()
    return path


def _row(run: RunRecord, result: Result, recorded: str) -> dict[str, Any]:
    return {
        "run": run.id,
        "claim": result.id,
        "name": result.name,
        "subject": result.subject,
        "digest": hashlib.sha256(result.subject.encode()).hexdigest(),
        "recorded": recorded,
        "result": encode(result),
    }
