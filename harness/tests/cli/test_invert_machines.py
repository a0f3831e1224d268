"""`assay invert` for machines: its JSON, and a process of its own that is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from assay.harness.tests.support.inverted import SKY, small
from assay.harness.tests.support.sessions import ROOT, heeding_ctrl_c


def test_the_json_of_a_search_follows_its_schema(invert):
    document = invert(*small("--json", SKY, "is")).json
    assert document["ok"]
    assert document["descent"] is None
    first = document["prompts"][0]
    assert first["found_text"] == first["text"] == SKY
    assert first["found"] == first["ids"]
    assert first["recovered"] == sum(first["verified"]) == len(first["ids"]) == 8
    assert sum(first["tried"]) == 8 * first["passes"] == 8
    assert [prompt["text"] for prompt in document["prompts"]] == [SKY, "is"]


def test_the_json_of_a_descent_follows_its_schema(invert):
    way = ["--method", "descent", "--steps", "20", "--top", "2", "--rate", "0.05"]
    outcome = invert(*small("--json", *way, "The sky"))
    assert outcome.exit == 1
    assert not outcome.json["ok"]
    (prompt,) = outcome.json["prompts"]
    assert [step["step"] for step in prompt["steps"]] == [0, 20]
    assert prompt["steps"][-1]["ids"] == prompt["found"] == [tokens[0] for tokens in prompt["top"]]


def start(*arguments: str) -> subprocess.Popen[str]:
    hidden = ("FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.Popen(
        [sys.executable, "-m", "assay", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        preexec_fn=heeding_ctrl_c,
    )


def test_ctrl_c_ends_a_descent_in_a_pipe_at_once():
    options = ["--method", "descent", "--steps", "1000000", "--ids", "5,9", "--model", "tiny:gpt2"]
    process = start("invert", *options)
    assert process.stdout is not None
    assert process.stderr is not None
    shown = []
    for line in process.stdout:
        shown.append(line)
        if line.split()[:1] == ["20"]:
            process.send_signal(signal.SIGINT)
            break
    assert process.wait(60) == 130
    assert process.stderr.read().splitlines()[-1] == "interrupted"
    assert "‹" in shown[4]
    assert "\x1b" not in "".join(shown)
    process.stdout.close()
    process.stderr.close()


def test_help_comes_without_a_model():
    text, _ = start("--help").communicate(timeout=300)
    assert "  invert " in text
