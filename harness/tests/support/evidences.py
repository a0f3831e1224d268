"""Evidence files for tests, written at once: many models, laws and versions."""

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
from assay.harness.results.records import Counterexample, RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict, margin

VERSIONS = ("4.48.3", "4.57.1", "5.0.0rc1", "5.0.0", "5.23.0")
VARIANTS = ("default", "dynamic", "static", "sliding", "quantised")


def run_of(version: str, *subjects: str, **more: Any) -> RunRecord:
    """A run's record, as `harness.models.runs.describe_run` makes it, without loading torch."""
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
        replay=f"pytest claims/test_cache.py --model={subject} --replay=AEEA",
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


def sweep(path: Path, types: int, laws: int, versions: int, seed: int = 0) -> Path:
    """A sweep as a real one might come out: a third does not apply, one in twenty is refuted.

    Every number is drawn anew for each version, so nothing is easier to pack than in truth.
    """
    drawn = random.Random(seed)
    names = [f"tiny:{_word(drawn)}_{i}" for i in range(types)]
    said = [
        (f"C{1 + i // 5}", f"what is said in law {i // 5} of a model [{VARIANTS[i % 5]}]")
        for i in range(laws)
    ]
    why = [f"{_word(drawn)}: the model {_word(drawn)} {_word(drawn)}" for _ in range(40)]
    kinds: dict[tuple[str, str], str] = {
        (t, n): drawn.choices("unr", (62, 33, 5))[0] for t in names for _, n in said
    }
    for k in range(versions):
        run = run_of(f"4.{40 + k}.0", *names)
        results = []
        for subject in names:
            for id, name in said:
                kind = kinds[subject, name]
                if drawn.random() < 0.004:
                    kinds[subject, name] = kind = drawn.choice("ur")
                results.append(_drawn(drawn, subject, id, name, kind, why))
        write(path, run, results)
    return path


def _drawn(
    drawn: random.Random, subject: str, id: str, name: str, kind: str, why: list[str]
) -> Result:
    if kind == "n":
        return law(subject, id, name, verdict=Verdict.NOT_APPLICABLE, observed=None, bound=None,
                   margin=None, examples=0, reason=drawn.choice(why))  # fmt: skip
    bound = 10 ** drawn.uniform(-6, -4)
    observed = bound * 10 ** (drawn.uniform(0.1, 3) if kind == "r" else drawn.uniform(-2, -0.05))
    more: dict[str, Any] = {
        "observed": observed, "bound": bound, "margin": margin(observed, bound),
        "examples": drawn.randint(50, 300),
    }  # fmt: skip
    if kind == "u":
        return law(subject, id, name, **more)
    ids = [drawn.randrange(101) for _ in range(drawn.randint(2, 14))]
    blob = "".join(drawn.choices("ABCDEFabcdef0123456789+/", k=40))
    counterexample = Counterexample(
        {"prompt": " ".join(f"<{i}>({i})" for i in ids), "chunks": str(ids[:3])},
        observed=observed,
        allowed=bound,
        where=f"logits, row 0, position {ids[0]}",
        replay=f"pytest 'claims/test_cache.py::test_{name[:20]}[{subject}]' "
        f"--model={subject} --replay={blob}==",
    )
    return broken(subject, id=id, name=name, counterexample=counterexample, **more)


def _word(drawn: random.Random) -> str:
    return "".join(drawn.choice("bdfgklmnprst") + drawn.choice("aeiou") for _ in range(3))
