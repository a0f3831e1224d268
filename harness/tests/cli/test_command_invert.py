"""`assay invert`: what it shows, its JSON, and Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from assay.fixtures import subjects
from assay.harness.cli import invert as command
from assay.harness.cli.recovery import Display
from assay.harness.inversion import from_less
from assay.harness.models.subject import Subject
from assay.harness.tests.support import folders
from assay.harness.tests.support.inverted import SKY, load, small, tiny
from assay.harness.tests.support.sessions import ROOT, heeding_ctrl_c

DESCENT = ("--method", "descent", "--rate", "0.05")


@pytest.fixture
def few(monkeypatch):
    """Probes of a last state are fitted to few prompts."""
    monkeypatch.setattr(from_less, "FITTED", 64)


# -- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "tried"), [("token-by-token", "64 of 32768"), ("exhaustive", "32768 of 32768")]
)
def test_a_search_shows_every_position(invert, method, tried):
    outcome = invert(*small("--method", method, "--depth", "1", SKY))
    assert (outcome.exit, outcome.errors) == (0, "")
    assert outcome.lines[0] == f"reference:small, block 1 of 2; float32 on cpu: {method}"
    assert [row[:4] for row in outcome.rows()] == [
        [str(i), str(i), "of", "8"] for i in range(1, 9)
    ]
    assert f"found       {SKY}" in outcome.lines
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")
    assert f"; {tried} candidates tried" in outcome.last
    assert ("; set-up: " in outcome.last) == (method == "token-by-token")


def test_exact_is_the_default_and_shows_what_each_pass_verified(invert):
    outcome = invert(*small(SKY))
    assert outcome.exit == 0
    assert outcome.lines[0] == "reference:small, block 2 of 2; float32 on cpu: exact"
    assert outcome.lines[3] == " pass  verified  guess"
    rows = outcome.lines[4 : outcome.lines.index(f"found       {SKY}")]
    assert not rows[0][:16].strip()  # the guess before the first pass
    assert [row.split()[0] for row in rows[1:]] == [str(i) for i in range(1, len(rows))]
    assert rows[-1].endswith(f"  8 of 8  {SKY}")
    passes = f" and {len(rows) - 1} pass"
    assert re.search(rf"in \S+ s{passes}(es)?; \d+ of 32768 candidates tried", outcome.last)


def test_exact_keeps_what_it_learned_of_a_model(invert, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert invert(*small("--no-keep", SKY)).exit == 0
    assert not list(tmp_path.rglob("*"))
    assert invert(*small(SKY)).exit == 0
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_descent_shows_the_text_at_the_document_s_steps(invert):
    outcome = invert(*small(*DESCENT, "--steps", "70", SKY))
    rows = outcome.rows()
    assert [row[0] for row in rows] == ["0", "20", "40", "45", "50", "60", "70"]
    losses = [float(row[1]) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert rows[0][2:5] == ["0", "of", "8"]
    assert [int(row[2]) + " ".join(row).count("‹") for row in rows] == [8] * 7
    assert "‹" not in outcome.lines[2]
    assert "\x1b" not in outcome.output
    assert outcome.last.startswith("✗ recovered ")
    assert outcome.exit == 1


def test_descent_ends_at_the_prompt_and_shows_the_nearest_tokens(invert):
    options = ("--method", "descent", "--depth", "1", "--steps", "60", "--top", "3")
    outcome = invert(*small(*options, SKY))
    assert outcome.exit == 0
    assert outcome.rows(r"60")[-1][5:] == SKY.split()
    first = outcome.lines.index("the nearest tokens at each position (* the prompt's own)") + 1
    for number, line in enumerate(outcome.lines[first : first + 8], 1):
        assert re.fullmatch(rf" +{number}  '[^']+' \*(  '[^']+'){{2}}", line)
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")


def test_wrong_tokens_are_marked_in_signs_and_in_colour():
    subject = load("reference:small", subjects.Options())
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=file, force_terminal=True, color_system="truecolor", width=80)
    ids, display = command.encode(subject, "The sky is blue"), Display(console, subject)
    with display.progress(ids, "descent"):
        display.row(ids, [*ids[:-1], ids[0]], "20", "0.5", "6 of 7")
    file.seek(0)
    assert "The sky is bl\x1b[1;31m‹The›" in file.read()


def test_a_character_of_several_tokens_is_whole_again(invert):
    assert "found       naïve 日本" in invert(*small("naïve 日本")).lines


def test_ids_without_a_tokenizer_and_repetitions_of_any_length(invert):
    outcome = invert(*tiny("llama", "--ids", "7, 7,7"))
    assert outcome.exit == 0
    assert "the prompt  7 7 7  (3 tokens)" in outcome.lines
    assert "found       7 7 7" in outcome.lines
    assert "note: any number of these tokens ends in the same state" in outcome.lines


def test_tokens_of_equal_rows_are_named(invert, use_subject):
    model = folders.tiny("gpt2")
    with torch.no_grad():
        model.get_input_embeddings().weight[40] = model.get_input_embeddings().weight[7]
    use_subject(Subject("twins", model))
    both = [invert("--ids", f"5,{token},9") for token in (7, 40)]
    wrong, right = sorted(both, key=lambda outcome: outcome.last)[::-1]
    recovered, other = (7, 40) if right is both[0] else (40, 7)
    assert f"position 2, '{recovered}': the same output from '{other}'" in right.lines
    assert any(f"the prompt has '{other}'; the same output" in line for line in wrong.lines)
    assert any(f"‹{recovered}›" in line for line in wrong.lines)
    assert all(", all verified, 1 ambiguous, in " in outcome.last for outcome in both)
    assert (right.exit, wrong.exit) == (0, 1)


def test_a_loss_that_diverges_is_noted(invert):
    options = ("--method", "descent", "--rate", "1e30", "--steps", "30", "--ids", "5")
    outcome = invert(*tiny("gpt2", *options))
    assert any("diverged" in line for line in outcome.lines)
    assert outcome.exit == 1


def test_a_model_that_is_not_causal_is_inverted_by_descent(invert):
    outcome = invert(*tiny("bert", "--steps", "5", "--ids", "5,9"))
    assert "by descent: tiny:bert is not causal" in outcome.lines[1]
    assert [row[0] for row in outcome.rows()] == ["0", "5"]


# -- from less than all states ------------------------------------------------------------------


def test_states_in_unknown_order_give_the_prompt_and_its_order(invert):
    outcome = invert(*small("--given", "shuffled", "--seed", "3", SKY))
    assert outcome.exit == 0
    assert outcome.lines[0].endswith("float32 on cpu: states in unknown order")
    assert outcome.lines[3] == f"found       {SKY}"
    assert "note: 8 of 8 states were put in their places" in outcome.lines


@pytest.mark.usefixtures("few")
def test_the_last_state_alone_gives_little(invert):
    outcome = invert(*small("--given", "last", SKY))
    assert outcome.exit == 1
    assert outcome.lines[0].endswith(": the last state alone")
    assert "note: linear probes of the last state; few tokens can be right" in outcome.lines
    assert outcome.last.startswith("✗ recovered ")
    assert (
        "the last state alone" in invert(*tiny("bert", "--given", "last", "--ids", "5")).lines[0]
    )


# -- for machines -------------------------------------------------------------------------------


def test_the_json_of_a_search_follows_its_schema(invert):
    document = invert(*small("is", "--json", SKY, "--", "--depth")).json
    assert document["ok"]
    assert document["descent"] is None
    assert [prompt["text"] for prompt in document["prompts"]] == ["is", SKY, "--depth"]
    sky = document["prompts"][1]
    assert sky["found_text"] == sky["text"]
    assert sky["found"] == sky["ids"]
    assert sky["recovered"] == sum(sky["verified"]) == len(sky["ids"]) == 8
    assert sum(sky["tried"]) == 8 * sky["passes"] == 8


def test_the_json_of_a_descent_follows_its_schema(invert):
    ways = {"optimiser": "adam", "distance": "l2", "schedule": "cosine"}
    ways |= {"decoder": "pseudo-inverse", "start": "documented"}
    options = [f"--{name}={value}" for name, value in ways.items()]
    numbers = ["--seed=3", "--rate=0.1", "--steps=20", "--top=2"]
    outcome = invert(*small("--json", "--method=descent", *options, *numbers, "The sky"))
    assert outcome.exit == 1
    assert not outcome.json["ok"]
    assert outcome.json["descent"] == ways | {"seed": 3, "rate": 0.1, "steps": 20}
    (prompt,) = outcome.json["prompts"]
    assert [step["step"] for step in prompt["steps"]] == [0, 20]
    assert prompt["steps"][-1]["ids"] == prompt["found"] == [each[0] for each in prompt["top"]]


def test_ctrl_c_ends_a_descent_in_a_pipe_at_once():
    hidden = ("FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    options = ["--method", "descent", "--steps", "1000000", "--ids", "5,9", "--model", "tiny:gpt2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "invert", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        preexec_fn=heeding_ctrl_c,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.split()[:1] == ["20"]:
            process.send_signal(signal.SIGINT)
            break
    assert process.wait(60) == 130
    assert process.stderr.read().splitlines()[-1] == "interrupted"
    assert "‹" in lines[4]
    assert "\x1b" not in "".join(lines)
    process.stdout.close()
    process.stderr.close()


def test_the_first_word_may_name_the_model(tmp_path):
    def names(arguments):
        options = command._options(arguments)
        return options.model, options.prompts

    assert names(["tiny:llama", "a b"]) == ("tiny:llama", ["a b"])
    assert names([str(tmp_path), "a b"]) == (str(tmp_path), ["a b"])
    assert names(["openai-community/gpt2", "a b"]) == ("openai-community/gpt2", ["a b"])
    assert names(["a b", "c d"]) == ("reference", ["a b", "c d"])
    assert names(["reference"]) == ("reference", ["reference"])  # a text
    assert names(["--model=tiny:llama", "chat", "b"]) == ("tiny:llama", ["chat", "b"])
