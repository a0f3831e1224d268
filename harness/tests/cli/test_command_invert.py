"""`assay invert`: what it shows, its exit codes, and what it refuses in one line."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import torch
from rich.console import Console

from assay.fixtures import subjects
from assay.harness.cli import main as command_line
from assay.harness.cli import prompts
from assay.harness.cli.recovery import Step
from assay.harness.cli.recovery_schema import SCHEMA
from assay.harness.cli.showing import Display
from assay.harness.models.subject import Subject
from assay.harness.operations import inversion
from assay.harness.operations.inversion import Target, descent, search
from assay.harness.operations.inversion.rule import Rule
from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import heeding_ctrl_c

ROOT = Path(__file__).parents[3]
SKY = "The sky is blue."

load = functools.cache(subjects.load)


@dataclass
class Told:
    """What a command came to: its exit code, its output and its complaints."""

    exit: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.output.splitlines()

    @property
    def last(self) -> str:
        """The last of them."""
        return self.lines[-1]

    @property
    def json(self) -> dict:
        """The output as JSON, which follows its schema."""
        made = json.loads(self.output)
        jsonschema.validate(made, SCHEMA)
        return made

    def rows(self, first: str = r"\d+") -> list[list[str]]:
        """The rows of the table, in words: those that begin with a number."""
        return [line.split() for line in self.lines if re.match(rf" +{first} ", line)]


Run = Callable[..., Told]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``invert`` with these arguments in this process; models are loaded once."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(command_line, "load", load)

    def told(*arguments: str, command: str = "invert") -> Told:
        code = command_line.main([command, *arguments])
        captured = capsys.readouterr()
        return Told(code, captured.out, captured.err)

    return told


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[Subject], None]:
    """Makes every ``--model`` a subject of the test's own."""
    return lambda subject: monkeypatch.setattr(command_line, "load", lambda *_: subject)


def small(*arguments: str) -> list[str]:
    return ["--model", "reference:small", *arguments]


def tiny(kind: str, *arguments: str) -> list[str]:
    return ["--model", f"tiny:{kind}", *arguments]


# -- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "tried"), [("exact", "64 of 32768"), ("exhaustive", "32768 of 32768")]
)
def test_a_search_shows_every_token_as_it_is_found(run, method, tried):
    told = run(*small("--method", method, "--depth", "1", SKY))
    assert told.exit == 0
    assert told.errors == ""
    assert told.lines[0] == f"reference:small, block 1 of 2; float32 on cpu: {method}"
    assert [row[:2] for row in told.rows()] == [
        [str(place), token]
        for place, token in enumerate(["The", "s", "k", "y", "is", "bl", "ue", "."], 1)
    ]
    assert all(re.search(r" \d+ of 4096 +\S+$", line) for line in told.lines[4:12])
    assert f"found       {SKY}" in told.lines
    assert told.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")
    assert f"; {tried} candidates tried" in told.last
    assert ("set-up: 1024 states in" in told.last) == (method == "exact")


def test_exact_is_what_is_done_with_all_blocks_unless_told_otherwise(run):
    told = run(*small("Hi"))
    assert told.lines[0] == "reference:small, block 2 of 2; float32 on cpu: exact"


def test_descent_shows_the_text_at_the_steps_that_the_document_shows(run):
    told = run(*small("--method", "descent", "--rate", "0.05", "--steps", "70", SKY))
    rows = told.rows()
    assert [row[0] for row in rows] == ["0", "20", "40", "45", "50", "60", "70"]
    losses = [float(row[1]) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert rows[0][2:5] == ["0", "of", "8"]
    assert told.last.startswith("✗ recovered ")
    assert told.exit == 1


def test_descent_ends_at_the_prompt(run):
    told = run(*small("--method", "descent", "--depth", "1", "--steps", "60", SKY))
    assert told.exit == 0
    assert told.rows()[-1][5:] == SKY.split()
    assert told.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")


def test_wrong_tokens_are_marked_without_colour(run):
    told = run(*small("--method", "descent", "--rate", "0.05", "--steps", "20", SKY))
    assert "\x1b" not in told.output
    counted = [line.partition(" of 8")[0].split()[-1] for line in told.lines[4:6]]
    marked = [line.count("‹") for line in told.lines[4:6]]
    assert [int(right) + wrong for right, wrong in zip(counted, marked, strict=True)] == [8, 8]
    assert marked[0] == 8
    assert "‹" not in told.lines[2]


def test_wrong_tokens_are_in_colour_on_a_terminal():
    subject = load("reference:small", subjects.Options())
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="truecolor", width=80)
    ids = prompts.encoded(subject, "The sky is blue")
    display = Display(console, subject)
    with display.descending(ids):
        display.now(ids, Step(10, 1.0, ids), 20)
        display.step(ids, Step(20, 0.5, [*ids[:-1], ids[0]]))
    shown = screen.getvalue()
    assert "The sky is bl\x1b[1;31m‹The›" in shown
    assert "step 10 of 20  loss 1  7 of 7" in shown


def test_a_terminal_of_few_letters_gets_no_others():
    subject = load("reference:small", subjects.Options())
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    display = Display(Console(file=file), subject)
    ids = prompts.encoded(subject, "naïve")
    display.begin(ids)
    with display.descending(ids):
        display.step(ids, Step(0, float("nan"), [5] * len(ids)))
    file.seek(0)
    assert "<" in file.read()


def test_a_character_of_several_tokens_is_whole_again(run):
    told = run(*small("naïve 日本"))
    assert "found       naïve 日本" in told.lines


def test_the_nearest_tokens_are_a_table_with_the_prompts_own_marked(run):
    told = run(*small("--method", "descent", "--depth", "1", "--steps", "60", "--top", "3", SKY))
    assert "the nearest tokens at each place (* the prompt's own)" in told.lines
    ranks = [line for line in told.lines if re.match(r"   [123]  '", line)]
    assert len(ranks) % 3 == 0
    assert sum(line.count(" *") for line in ranks) == 8
    assert sum(line.count(" *") for line in ranks if line.startswith("   1")) == 8


def test_several_prompts_are_summed_up(run):
    told = run(*small("--depth", "1", "The sky", "--ids", "5,17,3", "--ids", "9"))
    assert told.exit == 0
    assert sum("the prompt" in line for line in told.lines) == 3
    assert told.last.startswith("✓ recovered 8 of 8 tokens in 3 prompts, all verified, in ")
    assert "of 32768 candidates" in told.last


def test_options_may_stand_between_texts_and_texts_may_look_like_options(run):
    told = run(*small("is", "--depth", "1", "The sky", "--json", "--", "--depth")).json
    assert [prompt["text"] for prompt in told["prompts"]] == ["is", "The sky", "--depth"]


def test_ids_are_enough_without_a_tokenizer(run):
    told = run(*tiny("llama", "--ids", "5, 17,3"))
    assert told.exit == 0
    assert "the prompt  5 17 3  (3 tokens)" in told.lines
    assert "found       5 17 3" in told.lines


def test_tokens_of_equal_rows_are_named_and_not_passed_over(run, given):
    model = folders.tiny("gpt2")
    with torch.no_grad():
        model.get_input_embeddings().weight[40] = model.get_input_embeddings().weight[7]
    given(Subject("twins", model))
    both = [run("--ids", f"5,{token},9") for token in (7, 40)]
    wrong, right = sorted(both, key=lambda told: told.last)[::-1]
    found, other = (7, 40) if right is both[0] else (40, 7)
    assert right.rows()[1][:2] == ["2", str(found)]
    assert right.lines[5].endswith(f"  the same output from '{other}'")
    assert wrong.rows()[1][:2] == ["2", f"‹{found}›"]
    assert f"the prompt has '{other}'; the same output from '{other}'" in wrong.lines[5]
    assert all(", all verified, 1 ambiguous, in " in told.last for told in both)
    assert (right.exit, wrong.exit) == (0, 1)


def test_repetitions_of_any_length_are_said(run):
    told = run(*tiny("llama", "--ids", "7,7,7"))
    assert "note: any number of these tokens ends in the same state" in told.lines


def test_a_loss_that_diverges_is_said(run):
    told = run(
        *tiny("gpt2", "--method", "descent", "--rate", "1e30", "--steps", "30", "--ids", "5")
    )
    assert any("diverged" in line for line in told.lines)
    assert told.exit == 1


def test_a_model_that_is_not_causal_is_inverted_by_descent_and_this_is_said(run):
    told = run(*tiny("bert", "--steps", "5", "--ids", "5,9"))
    assert "by descent: tiny:bert is not causal" in told.lines[1]
    assert [row[0] for row in told.rows()] == ["0", "5"]


def test_all_ways_of_a_descent_can_be_asked_for(run):
    ways = ["--optimiser=adam", "--distance=l2", "--schedule=cosine", "--decoder=pseudo-inverse"]
    asked = [*ways, "--start=documented", "--seed=3", "--rate=0.1", "--steps=5"]
    told = run(*tiny("gpt2", "--method", "descent", "--ids", "5,9", "--json", *asked)).json
    assert told["descent"] == {
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
def test_every_target_is_inverted(run, through):
    assert run(*tiny("gpt2", "--target", through, "--ids", "5,9")).exit == 0


# -- for machines -------------------------------------------------------------------------------


def test_the_json_of_a_search_follows_its_schema(run):
    told = run(*small("--json", SKY, "is")).json
    assert told["ok"]
    assert told["descent"] is None
    first = told["prompts"][0]
    assert first["found_text"] == first["text"] == SKY
    assert first["found"] == first["ids"]
    assert first["recovered"] == sum(first["verified"]) == len(first["ids"]) == 8
    assert sum(first["tried"]) == 64
    assert [prompt["text"] for prompt in told["prompts"]] == [SKY, "is"]


def test_the_json_of_a_descent_follows_its_schema(run):
    way = ["--method", "descent", "--steps", "20", "--top", "2", "--rate", "0.05"]
    told = run(*small("--json", *way, "The sky"))
    assert told.exit == 1
    assert not told.json["ok"]
    (prompt,) = told.json["prompts"]
    assert [step["step"] for step in prompt["steps"]] == [0, 20]
    assert prompt["steps"][-1]["ids"] == prompt["found"] == [tokens[0] for tokens in prompt["top"]]


# -- what is refused ----------------------------------------------------------------------------

BAD = {
    ("--depth", "3", "Hi"): "depth 3: reference:small has 2 blocks",
    ("--depth", "x", "Hi"): "--depth: 'x' is not a whole number from 0 on",
    ("",): "prompt '': is empty",
    (): "no prompt: give a text",
    ("a b c d " * 100,): "reference:small has a context of 256",
    ("\udc80",): "is not valid text",
    ("--ids", "5,4096"): "token 4096: reference:small has a vocabulary of 4096",
    ("--ids", "9" * 5000): "has a vocabulary of 4096",
    ("--ids", "5,,3"): "'5,,3' is no list of token ids",
    ("--ids", ""): "'' is no list of token ids",
    ("--target", "middle", "Hi"): "--target: invalid choice: 'middle'",
    ("--target", "logits", "--depth", "1", "Hi"): "target logits: comes after all 2 blocks",
    ("--method", "guess", "Hi"): "--method: invalid choice: 'guess'",
    ("--steps", "9", "Hi"): "--steps: belongs to --method descent, and this is exact",
    ("--method", "exhaustive", "--top", "9", "Hi"): "--top: belongs to --method descent",
    ("--method", "descent", "--steps", "0", "Hi"): "--steps: '0' is not a whole number from 1 on",
    ("--method", "descent", "--steps", "9" * 9, "Hi"): "--steps: 999999999 is too large",
    ("--method", "descent", "--rate", "-1", "Hi"): "--rate: '-1' is not a number above 0",
    ("--method", "descent", "--rate", "nan", "Hi"): "--rate: 'nan' is not a number above 0",
    (
        "--method",
        "descent",
        "--optimiser",
        "x",
        "Hi",
    ): "unknown optimiser 'x': choose from descent",
    ("--method", "descent", "--distance", "l3", "Hi"): "unknown distance 'l3': choose from l1, l2",
    ("--method", "descent", "--schedule", "x", "Hi"): "unknown schedule 'x': choose from linear",
    ("--method", "descent", "--decoder", "x", "Hi"): "--decoder: invalid choice: 'x'",
    ("--method", "descent", "--start", "x", "Hi"): "--start: invalid choice: 'x'",
    ("--method", "descent", "--top", "9999", "Hi"): "--top 9999: reference:small has 4096 tokens",
    ("--seed", "-1", "Hi"): "--seed: '-1' is not a whole number from 0 on",
    ("--device", "abacus", "Hi"): "'abacus': is no device",
    ("--dtype", "float7", "Hi"): "'float7': is no dtype",
    ("--attention", "unheard_of", "Hi"): "cannot use the attention 'unheard_of'",
    ("--attends", "left", "Hi"): "--attends: invalid choice: 'left'",
    ("--model", "tiny:gpt2", "--attends", "both", "--method", "exact", "--ids", "5"): (
        "tiny:gpt2 is not causal"
    ),
    ("--revision", "v2", "Hi"): "has no revision 'v2'",
    ("--model", "", "Hi"): "--model: '' is empty; say which",
    ("--model", "/no/such/folder", "Hi"): "'/no/such/folder': there is no such folder",
    ("--model", "tiny:gpt22", "--ids", "5"): "knows no model type 'gpt22'",
    ("--model", "tiny:gpt2", "Hi"): "tiny:gpt2 has no tokenizer; give token ids: --ids 5,17,3",
    ("--model", "tiny:bert", "--method", "exact", "--ids", "5"): "tiny:bert is not causal",
    ("--model", "tiny:albert", "--target", "head", "--ids", "5"): "projects its states",
    ("--model",): "--model: expected one argument",
    ("--mod", "tiny:gpt2", "Hi"): "unrecognized arguments: --mod",
}


@pytest.mark.parametrize("arguments", BAD, ids=lambda given: " ".join(given)[:40] or "nothing")
def test_what_cannot_be_used_is_refused_in_one_line(run, arguments):
    told = run(*small(*arguments))
    assert told.exit == 4
    assert told.output == ""
    assert len(told.errors.splitlines()) == 1
    assert told.errors.startswith("error: ")
    assert BAD[arguments] in told.errors


def test_an_unknown_command_is_refused_in_one_line(run):
    told = run(command="revert")
    assert told.exit == 4
    assert (
        told.errors
        == f"error: 'revert': no such command; there are {', '.join(command_line.COMMANDS)}\n"
    )


def test_too_little_memory_is_one_line(run, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate\n  20 GiB")

    monkeypatch.setattr(inversion, "invert", full)
    told = run(*tiny("gpt2", "--ids", "5"))
    assert told.exit == 4
    assert len(told.errors.splitlines()) == 1
    assert "error: too little memory: " in told.errors


def test_what_a_model_cannot_do_is_one_line(run, given, monkeypatch):
    subject = Subject("lame", folders.tiny("gpt2"))
    given(subject)
    monkeypatch.setattr(Subject, "block_output", lambda *_, **__: [1])
    told = run("--ids", "5")
    assert told.exit == 4
    assert len(told.errors.splitlines()) == 1
    assert "error: lame: gives no output block 2" in told.errors


# -- as a process of its own --------------------------------------------------------------------


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
    asked = ["--method", "descent", "--steps", "1000000", "--ids", "5,9", "--model", "tiny:gpt2"]
    process = start("invert", *asked)
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
    told, _ = start("--help").communicate(timeout=60)
    assert "  invert " in told


# -- what the engine tells ----------------------------------------------------------------------


@pytest.mark.parametrize("method", [search.exact, search.exhaustive])
def test_a_search_tells_of_every_place_once(method):
    subject = load("tiny:gpt2", subjects.Options())
    ids, target = torch.tensor([[5, 9, 2], [7, 1, 3]]), Target(1)
    told: list[tuple[int, list]] = []

    def tell(place: int, found: search.Found) -> None:
        told.append((place, found.ids[:, : place + 1].tolist()))

    method(subject, target, target.output(subject, ids), tell)
    assert told == [(place, ids[:, : place + 1].tolist()) for place in range(3)]


def test_a_descent_tells_of_the_watched_steps_and_nothing_else_changes():
    subject = load("tiny:gpt2", subjects.Options())
    ids, target, rule = torch.tensor([[5, 9], [7, 1]]), Target(1), Rule(steps=30)
    start_, wanted = torch.zeros(2, 2, subject.hidden), target.output(subject, ids)
    told: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def tell(rows: slice, step: int, embeddings: torch.Tensor, losses: torch.Tensor) -> None:
        assert (rows.start, rows.stop) == (0, 2)
        told.append((step, embeddings.clone(), losses))

    rates = torch.full((2,), 1e-3)
    made = descent.descend(
        subject, target, wanted, start_, rates, rule, watch=[0, 7, 30], tell=tell
    )
    silent = descent.descend(subject, target, wanted, start_, rates, rule, watch=[0, 7, 30])
    assert [step for step, _, _ in told] == [0, 7, 30]
    for step, embeddings, losses in told:
        assert torch.equal(embeddings, made.watched[step])
        torch.testing.assert_close(losses, made.losses[:, step])
    assert torch.equal(made.losses, silent.losses)


def test_a_descent_does_not_begin_at_rows_of_the_models_own_table():
    """Both are drawn from seed 0: the bare seed's numbers would be the table's first rows."""
    subject = load("tiny:gpt2", subjects.Options())
    target, seen = Target(1), []
    wanted = target.output(subject, torch.tensor([[5, 9, 2, 8]]))
    rule = Rule(steps=1)
    inversion.invert(
        subject,
        target,
        wanted,
        "descent",
        rule=rule,
        watch=[0],
        at_step=lambda _, step, embeddings, __: seen.append(embeddings.clone()),
    )
    table = torch.nn.functional.normalize(subject.embedding_table, dim=1)
    alike = torch.nn.functional.normalize(seen[0][0], dim=1) @ table.T
    assert alike.max() < 0.9
