"""Time to compare two runs of thousands of claims, relative to reading them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from assay.harness.comparison import joining
from assay.harness.comparison.judging import compare
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict

MODELS, LAWS, FINDINGS = 10, 170, 30
ROUNDS = 3


def results(model: str, seed: int) -> list[Result]:
    """Laws of 12 examples and findings of 128 draws; another ``seed`` moves each a little."""
    one, other = np.random.default_rng(0), np.random.default_rng(seed)
    results = []
    for number in range(LAWS):
        margins = one.normal(1.5, 0.3, 12) + other.normal(0, 0.05, 12)
        results.append(
            Result(
                *(f"C{number}", f"law {number}", Kind.LAW, model, Verdict.UPHELD),
                margin=float(margins.min()),
                sample={"margin": margins},
            )
        )
    for number in range(FINDINGS):
        effect = one.normal(2, 1, 128) + other.normal(0, 0.1, 128)
        results.append(
            Result(
                *(f"D{number}", f"finding {number}", Kind.FINDING, model, Verdict.UPHELD),
                observed=float(effect.mean()),
                details={"claimed": f"{['mean', 'median'][number % 2]} ≥ 0"},
                sample={"effect": effect},
            )
        )
    return results


def written(path: Path, seed: int) -> Path:
    """An evidence file with one run."""
    models = [f"tiny:{number}" for number in range(MODELS)]
    content = {
        **{"id": f"{seed:032}", "started": "2026-01-01T00:00:00+00:00", "suite": "0"},
        **{"profile": "quick", "seed": 0, "dtype": "float32", "device": "cpu"},
        "attention": None,
        "versions": dict.fromkeys(("python", "torch", "transformers"), "0"),
        "subjects": {model: {"digest": "a" * 64} for model in models},
    }
    run = msgspec.convert(content, RunRecord)
    with Evidence.open(path) as store:
        store._db.execute("PRAGMA synchronous = OFF")  # the benchmark does not time the disk
        store.begin(run)
        for model in models:
            for result in results(model, seed):
                store.record(run.id, result, "a" * 64)
        store.finish(run.id, 0)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [written(folder / f"{seed}.sqlite", seed) for seed in (1, 2)]


def test_comparing(race, report, files):
    def ours():
        return compare(*joining.pair(*map(str, files)))

    def reading():
        for file in files:
            with closing(sqlite3.connect(file)) as base:
                for (row,) in base.execute("SELECT result FROM claims"):
                    json.loads(row)

    assert len(ours().claims) == MODELS * (LAWS + FINDINGS)
    rounds = race(ours, ROUNDS, {"reading": reading})
    name = f"comparing two runs of {MODELS * (LAWS + FINDINGS)} claims"
    report.figure(name, "× reading them", rounds.seconds / rounds.others["reading"])
    report.figure(name, "seconds", rounds.seconds)
