"""Number of laws that the suite settles per second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from assay.harness.plugin.request import RunRequest

ROOT = Path(__file__).parents[1]
MODELS = ["reference", "tiny:llama"]
FILES = ("cache", "causality", "execution", "positions", "embedding")


def test_laws_per_second(benchmark, report, model, tmp_path, pytestconfig):
    report_file = tmp_path / "claims.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"--json={report_file}",
        f"--model={model.name}",
    ]
    options = RunRequest.of(pytestconfig).loading
    command += [f"--device={options.device}", f"--evidence={tmp_path / 'evidence'}"]
    command += [f"--dtype={options.dtype}"]
    command += [f"claims/test_{name}.py" for name in FILES]
    threads = {"OMP_NUM_THREADS": str(pytestconfig.option.threads)}

    def run():
        report_file.unlink(missing_ok=True)
        process = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=os.environ | threads
        )
        assert process.returncode == 0, process.stdout[-2000:] + process.stderr
        claims = json.loads(report_file.read_text())["claims"]
        return [each for each in claims if each["kind"] == "law" and each["seconds"] > 0]

    laws = benchmark.pedantic(run, rounds=1, iterations=1)
    applied = [law for law in laws if law["verdict"] != "not applicable"]
    assert applied, "no law was looked at"
    rate = len(applied) / sum(law["seconds"] for law in laws)
    report.figure(f"the suite, {model.name}", "laws / s", np.array([rate]))
    report.also(laws=len(applied), verdicts=[law["verdict"] for law in applied])
