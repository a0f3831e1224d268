"""`assay invert`: what it shows."""

from __future__ import annotations

import io
import re

import pytest
import torch
from rich.console import Console

from assay.fixtures import subjects
from assay.harness.cli import invert as command
from assay.harness.cli import prompts
from assay.harness.cli.recovery import DescentStep
from assay.harness.cli.showing import PromptDisplay
from assay.harness.models.subject import Subject
from assay.harness.tests.support import folders
from assay.harness.tests.support.inverted import SKY, load, small, tiny

# -- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "tried"), [("token-by-token", "64 of 32768"), ("exhaustive", "32768 of 32768")]
)
def test_a_search_shows_every_token_as_it_is_found(invert, method, tried):
    outcome = invert(*small("--method", method, "--depth", "1", SKY))
    assert outcome.exit == 0
    assert outcome.errors == ""
    assert outcome.lines[0] == f"reference:small, block 1 of 2; float32 on cpu: {method}"
    assert [row[:2] for row in outcome.rows()] == [
        [str(place), token]
        for place, token in enumerate(["The", "s", "k", "y", "is", "bl", "ue", "."], 1)
    ]
    assert all(re.search(r" \d+ of 4096 +\S+$", line) for line in outcome.lines[4:12])
    assert f"found       {SKY}" in outcome.lines
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")
    assert f"; {tried} candidates tried" in outcome.last
    assert ("; set-up: " in outcome.last) == (method == "token-by-token")


def test_exact_shows_the_guess_and_what_each_pass_verified(invert):
    outcome = invert(*small("--depth", "1", SKY))
    assert outcome.exit == 0
    assert outcome.lines[3] == " pass  verified  guess"
    rows = outcome.lines[4 : outcome.lines.index(f"found       {SKY}")]
    assert not rows[0][:16].strip()  # the guess before the first pass
    assert [row.split()[0] for row in rows[1:]] == [str(i) for i in range(1, len(rows))]
    assert rows[-1].endswith(f"  8 of 8  {SKY}")
    passes = f" and {len(rows) - 1} pass"
    assert re.search(rf"in \S+ s{passes}(es)?; \d+ of 32768 candidates tried", outcome.last)


def test_what_exact_learned_of_a_model_is_kept_unless_told_otherwise(
    invert, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert invert(*small("--no-keep", SKY)).exit == 0
    assert not list(tmp_path.rglob("*"))
    assert invert(*small(SKY)).exit == 0
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_exact_is_what_is_done_with_all_blocks_unless_told_otherwise(invert):
    outcome = invert(*small("Hi"))
    assert outcome.lines[0] == "reference:small, block 2 of 2; float32 on cpu: exact"


def test_descent_shows_the_text_at_the_steps_that_the_document_shows(invert):
    outcome = invert(*small("--method", "descent", "--rate", "0.05", "--steps", "70", SKY))
    rows = outcome.rows()
    assert [row[0] for row in rows] == ["0", "20", "40", "45", "50", "60", "70"]
    losses = [float(row[1]) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert rows[0][2:5] == ["0", "of", "8"]
    assert outcome.last.startswith("✗ recovered ")
    assert outcome.exit == 1


def test_descent_ends_at_the_prompt(invert):
    outcome = invert(*small("--method", "descent", "--depth", "1", "--steps", "60", SKY))
    assert outcome.exit == 0
    assert outcome.rows()[-1][5:] == SKY.split()
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")


def test_wrong_tokens_are_marked_without_colour(invert):
    outcome = invert(*small("--method", "descent", "--rate", "0.05", "--steps", "20", SKY))
    assert "\x1b" not in outcome.output
    counted = [line.partition(" of 8")[0].split()[-1] for line in outcome.lines[4:6]]
    marked = [line.count("‹") for line in outcome.lines[4:6]]
    assert [int(right) + wrong for right, wrong in zip(counted, marked, strict=True)] == [8, 8]
    assert marked[0] == 8
    assert "‹" not in outcome.lines[2]


def test_wrong_tokens_are_in_colour_on_a_terminal():
    subject = load("reference:small", subjects.Options())
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80)
    ids = prompts.encode(subject, "The sky is blue")
    display = PromptDisplay(console, subject)
    with display.descending(ids):
        display.now(ids, DescentStep(10, 1.0, ids), 20)
        display.step(ids, DescentStep(20, 0.5, [*ids[:-1], ids[0]]))
    shown = screen.getvalue()
    assert "The sky is bl\x1b[1;31m‹The›" in shown
    assert "step 10 of 20  loss 1  7 of 7" in shown


def test_a_terminal_of_few_letters_gets_no_others():
    subject = load("reference:small", subjects.Options())
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    display = PromptDisplay(Console(file=file), subject)
    ids = prompts.encode(subject, "naïve")
    display.begin(ids)
    with display.descending(ids):
        display.step(ids, DescentStep(0, float("nan"), [5] * len(ids)))
    file.seek(0)
    assert "<" in file.read()


def test_a_character_of_several_tokens_is_whole_again(invert):
    outcome = invert(*small("naïve 日本"))
    assert "found       naïve 日本" in outcome.lines


def test_the_nearest_tokens_are_a_table_with_the_prompts_own_marked(invert):
    outcome = invert(
        *small("--method", "descent", "--depth", "1", "--steps", "60", "--top", "3", SKY)
    )
    assert "the nearest tokens at each position (* the prompt's own)" in outcome.lines
    ranks = [line for line in outcome.lines if re.match(r"   [123]  '", line)]
    assert len(ranks) % 3 == 0
    assert sum(line.count(" *") for line in ranks) == 8
    assert sum(line.count(" *") for line in ranks if line.startswith("   1")) == 8


def test_several_prompts_are_summed_up(invert):
    outcome = invert(*small("--depth", "1", "The sky", "--ids", "5,17,3", "--ids", "9"))
    assert outcome.exit == 0
    assert sum("the prompt" in line for line in outcome.lines) == 3
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens in 3 prompts, all verified, in ")
    assert "of 32768 candidates" in outcome.last


def test_options_may_stand_between_texts_and_texts_may_look_like_options(invert):
    document = invert(*small("is", "--depth", "1", "The sky", "--json", "--", "--depth")).json
    assert [prompt["text"] for prompt in document["prompts"]] == ["is", "The sky", "--depth"]


def test_ids_are_enough_without_a_tokenizer(invert):
    outcome = invert(*tiny("llama", "--ids", "5, 17,3"))
    assert outcome.exit == 0
    assert "the prompt  5 17 3  (3 tokens)" in outcome.lines
    assert "found       5 17 3" in outcome.lines


def test_tokens_of_equal_rows_are_named_and_not_passed_over(invert, use_subject):
    model = folders.tiny("gpt2")
    with torch.no_grad():
        model.get_input_embeddings().weight[40] = model.get_input_embeddings().weight[7]
    use_subject(Subject("twins", model))
    both = [invert("--ids", f"5,{token},9") for token in (7, 40)]
    wrong, right = sorted(both, key=lambda outcome: outcome.last)[::-1]
    recovered, other = (7, 40) if right is both[0] else (40, 7)
    line = next(line for line in right.lines if line.startswith("position 2, "))
    assert line.startswith(f"position 2, '{recovered}'")
    assert line.endswith(f": the same output from '{other}'")
    assert any(f"the prompt has '{other}'; the same output" in line for line in wrong.lines)
    assert any(f"‹{recovered}›" in line for line in wrong.lines)
    assert all(", all verified, 1 ambiguous, in " in outcome.last for outcome in both)
    assert (right.exit, wrong.exit) == (0, 1)


def test_repetitions_of_any_length_are_said(invert):
    outcome = invert(*tiny("llama", "--ids", "7,7,7"))
    assert "note: any number of these tokens ends in the same state" in outcome.lines


def test_a_loss_that_diverges_is_said(invert):
    outcome = invert(
        *tiny("gpt2", "--method", "descent", "--rate", "1e30", "--steps", "30", "--ids", "5")
    )
    assert any("diverged" in line for line in outcome.lines)
    assert outcome.exit == 1


def test_a_model_that_is_not_causal_is_inverted_by_descent_and_this_is_said(invert):
    outcome = invert(*tiny("bert", "--steps", "5", "--ids", "5,9"))
    assert "by descent: tiny:bert is not causal" in outcome.lines[1]
    assert [row[0] for row in outcome.rows()] == ["0", "5"]


def test_all_ways_of_a_descent_can_be_asked_for(invert):
    ways = ["--optimiser=adam", "--distance=l2", "--schedule=cosine", "--decoder=pseudo-inverse"]
    options = [*ways, "--start=documented", "--seed=3", "--rate=0.1", "--steps=5"]
    document = invert(
        *tiny("gpt2", "--method", "descent", "--ids", "5,9", "--json", *options)
    ).json
    assert document["descent"] == {
        "steps": 5,
        "rate": 0.1,
        "optimiser": "adam",
        "distance": "l2",
        "schedule": "cosine",
        "decoder": "pseudo-inverse",
        "start": "documented",
        "seed": 3,
    }


@pytest.mark.parametrize("through", ["head", "norm", "logits"])
def test_every_target_is_inverted(invert, through):
    assert invert(*tiny("gpt2", "--target", through, "--ids", "5,9")).exit == 0


def test_the_first_word_may_name_the_model(tmp_path):
    assert named(["tiny:llama", "a b"]) == ("tiny:llama", ["a b"])
    assert named([str(tmp_path), "a b"]) == (str(tmp_path), ["a b"])
    assert named(["openai-community/gpt2", "a b"]) == ("openai-community/gpt2", ["a b"])
    assert named(["a b", "c d"]) == ("reference", ["a b", "c d"])
    assert named(["reference"]) == ("reference", ["reference"])  # a text
    assert named(["--model=tiny:llama", "chat", "b"]) == ("tiny:llama", ["chat", "b"])


def named(arguments):
    """The model and the prompts that a command line names."""
    options = command._options(arguments)
    return options.model, options.prompts
