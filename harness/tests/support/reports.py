"""A run, a subject and a result as the JSON report has them."""

from __future__ import annotations

import msgspec

from assay.harness.results.records import Counterexample, RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

SUBJECT = {
    "digest": "0f" * 32,
    "model_type": "mamba",
    "parameters": 9,
    "vocabulary": 5,
    "context": None,
    "hidden": 3,
    "layers": 2,
    "attention": "sdpa",
    "dtype": "float32",
    "capabilities": ["causal"],
    "missing": {"kv-cache": "it keeps a recurrent state"},
}
RUN = {
    "id": "5" * 32,
    "started": "2026-01-01T00:00:00+00:00",
    "finished": None,
    "exit": None,
    "suite": "0.1.0",
    "profile": "quick",
    "seed": 0,
    "device": "cpu",
    "dtype": "float32",
    "attention": None,
    "platform": "Linux",
    "threads": 1,
    "subjects": {"tiny:mamba": SUBJECT},
    "versions": {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.23.0", "numpy": "2"},
}
RECORD = msgspec.convert(RUN, RunRecord)
RESULT = Result(
    *("C2", "cached is recomputed", Kind.LAW, "tiny:mamba", Verdict.REFUTED, 0.5, 1e-5, -4.7),
    interval=(0.25, 0.75),
    examples=7,
    seconds=1.25,
    counterexample=Counterexample({"tokens": "Ġa"}, replay="pytest -k C2"),
    details={"layers": [1, 2]},
)
