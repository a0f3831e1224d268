"""A folder with one valid input of every kind, which cases of fuzzing begin with."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.harness.comparison import sides
from assay.harness.results import schema
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import evidences, folders
from assay.harness.tests.support.fuzzing import Room

CLAIMS = """\
from assay.harness.models import capabilities
from assay.harness.checking.laws import law

@law("X1", "a law", source="a test", control="twice what is allowed")
def test_law(subject, draw, check):
    check.judge(0.5, 1.0, "here")
    check.judge_control(2.0, 1.0)

def test_capabilities(subject):
    capabilities.probe(subject)
"""

EXPECTED: dict[str, Any] = {
    "model": "tiny:gpt2",
    "dtype": "float32",
    "claim": [
        {"id": "X1", "name": "a law", "verdict": "upheld", "reason": "it is", "sometimes": True},
        {"claims": ["X2: another", "X3"], "verdict": "refuted", "reason": "it is known"},
    ],
    "capability": [{"name": "mask-4d", "reason": "it builds its own"}],
}

PLAN: dict[str, Any] = {
    "models": ["tiny:gpt2", "model"],
    "dtypes": ["float32"],
    "devices": ["cpu"],
    "versions": ["here"],
    "profile": "glance",
    "seed": 0,
    "attention": "eager",
    "attends": "causal",
    "expectations": "expected",
    "evidence": "swept.sqlite",
    "select": {"keyword": "cache", "marker": "law", "claims": ["claims/cache/test_cache.py"]},
    "resources": {"cpu": 1, "gpu": 0.5, "memory": 4},
}

DEFECT = '''\
"""A thing is wrong.

Claims: C2 [static]
Types: llama
Met by: a run
Expected: this
Observed: that
Cause: a line
Fix: none, because it is made up
Upstream: not reported
Seen in: 5.23.0
"""

import sys

sys.exit(1)
'''

KINDS = ("gpt2", "llama", "bert", "t5")
MODELS = ("model", *KINDS, "shards")
"""Model folders: a GPT-2 with a tokenizer, one of each kind, and one in several files."""


def stock(folder: Path) -> Path:
    """Put a valid input of every kind into ``folder``, and models into a ``models`` beside it."""
    folder.mkdir(parents=True)
    models = folder.with_name("models")
    for kind in KINDS:
        folders.tiny(kind).save_pretrained(models / kind)
    folders.tiny("gpt2").save_pretrained(models / "shards", max_shard_size="10KB")
    shutil.copytree(models / "gpt2", models / "model")
    folders.byte_pairs().save_pretrained(models / "model")
    for name in ("before", "after"):
        _evidence(folder / f"{name}.sqlite")
    [side] = sides.read(str(folder / "before.sqlite"))
    schema.write_json(folder / "run.json", side.run, side.rows.values())
    (folder / "map.json").write_text(json.dumps({"": "cpu"}))
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = claims\n")
    for name, text in {"claims/test_laws.py": CLAIMS, "defects/a_defect.py": DEFECT}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    (folder / "expected").mkdir()
    return folder


def _evidence(path: Path) -> None:
    """Two versions, whose verdicts differ, of a law and a finding on two models."""
    for number, version in enumerate(("5.0.0", "5.23.0")):
        run = evidences.run_of(version, "tiny:llama", "tiny:gpt2", id=f"{number}abcdef012345")
        run.started = f"2026-11-2{number}T15:26:50+00:00"
        changed = evidences.broken if number else evidences.law
        evidences.write(
            path,
            run,
            [
                evidences.law("tiny:llama"),
                evidences.law(
                    "tiny:llama", id="C6", name="does not apply", verdict=Verdict.NOT_APPLICABLE
                ),
                changed("tiny:gpt2"),
                evidences.finding("tiny:gpt2", "a finding", 0.1 * (1 + number)),
            ],
        )


@contextmanager
def room(stocked: Path, *models: str) -> Iterator[Room]:
    """A copy of the inputs to damage, with some of the models; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        made = Room(Path(root))
        shutil.copytree(stocked, made.work)
        for model in models:
            shutil.copytree(stocked.with_name("models") / model, made.work / model)
        yield made
