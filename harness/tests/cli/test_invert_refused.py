"""`assay invert` refuses what it cannot use in one line."""

from __future__ import annotations

import pytest
import torch

from assay.harness import inversion
from assay.harness.cli import main as command_line
from assay.harness.models.subject import Subject
from assay.harness.tests.support import folders
from assay.harness.tests.support.inverted import small, tiny

BAD = {
    ("--depth", "3", "Hi"): "depth 3: reference:small has 2 blocks",
    ("--depth", "x", "Hi"): "--depth: 'x' is not a whole number from 0 on",
    ("",): "prompt '': is empty",
    (): "no prompt: give a text",
    ("a b c d " * 100,): "reference:small has a context of 256",
    ("\udc80",): "is not valid text",
    ("--ids", "5,4096"): "token 4096: reference:small has a vocabulary of 4096",
    ("--ids", "9" * 5000): "has a vocabulary of 4096",
    ("--ids", "5,,3"): "'5,,3' is not a list of token ids",
    ("--ids", ""): "'' is not a list of token ids",
    ("--target", "middle", "Hi"): "--target: invalid choice: 'middle'",
    ("--target", "logits", "--depth", "1", "Hi"): "target logits: comes after all 2 blocks",
    ("--method", "guess", "Hi"): "--method: invalid choice: 'guess'",
    ("--steps", "9", "Hi"): "--steps: belongs to --method descent, and this is exact",
    ("--method", "exhaustive", "--top", "9", "Hi"): "--top: belongs to --method descent",
    ("--method", "descent", "--steps", "0", "Hi"): "--steps: '0' is not a whole number from 1 on",
    ("--method", "descent", "--steps", "9" * 9, "Hi"): "--steps: 999999999 is too large",
    ("--method", "descent", "--rate", "-1", "Hi"): "--rate: '-1' is not a number above 0",
    ("--method", "descent", "--rate", "nan", "Hi"): "--rate: 'nan' is not a number above 0",
    ("--method", "descent", "--optimiser", "x", "Hi"): (
        "unknown optimiser 'x': choose from descent, adam"
    ),
    ("--method", "descent", "--distance", "l3", "Hi"): "unknown distance 'l3': choose from l1, l2",
    ("--method", "descent", "--schedule", "x", "Hi"): "unknown schedule 'x': choose from linear",
    ("--method", "descent", "--decoder", "x", "Hi"): "--decoder: invalid choice: 'x'",
    ("--method", "descent", "--start", "x", "Hi"): "--start: invalid choice: 'x'",
    ("--method", "descent", "--top", "9999", "Hi"): "--top 9999: reference:small has 4096 tokens",
    ("--seed", "-1", "Hi"): "--seed: '-1' is not a whole number from 0 on",
    ("--device", "abacus", "Hi"): "'abacus': is not a device",
    ("--dtype", "float7", "Hi"): "'float7': unsupported dtype",
    ("--attention", "unheard_of", "Hi"): "cannot use the attention 'unheard_of'",
    ("--attends", "left", "Hi"): "--attends: invalid choice: 'left'",
    ("--model", "tiny:gpt2", "--attends", "both", "--method", "exact", "--ids", "5"): (
        "tiny:gpt2 is not causal"
    ),
    ("--revision", "v2", "Hi"): "has no revision 'v2'",
    ("--model", "", "Hi"): "--model: '' is empty; say which",
    ("--model", "/no/such/folder", "Hi"): "'/no/such/folder': no such folder",
    ("--model", "tiny:gpt22", "--ids", "5"): "knows no model type 'gpt22'",
    ("--model", "tiny:gpt2", "Hi"): "tiny:gpt2 has no tokenizer; give token ids: --ids 5,17,3",
    ("--model", "tiny:bert", "--method", "exact", "--ids", "5"): "tiny:bert is not causal",
    ("--model", "tiny:albert", "--target", "head", "--ids", "5"): "projects its states",
    ("--model",): "--model: expected one argument",
    ("--mod", "tiny:gpt2", "Hi"): "unrecognized arguments: --mod",
    ("--given", "shuffled", "--method", "exhaustive", "Hi"): "takes all states in order",
    ("--limit", "5", "--method", "exhaustive", "Hi"): "--limit: belongs to --method exact",
    ("--limit", "5", "--given", "last", "Hi"): "--limit: belongs to --method exact",
    ("--model", "tiny:bert", "--given", "shuffled", "--ids", "5", "--seed", "1"): (
        "is not causal"
    ),
}


@pytest.mark.parametrize(
    "arguments", BAD, ids=lambda use_subject: " ".join(use_subject)[:40] or "nothing"
)
def test_what_cannot_be_used_is_refused_in_one_line(invert, arguments):
    outcome = invert(*small(*arguments))
    assert outcome.exit == 4
    assert outcome.output == ""
    assert len(outcome.errors.splitlines()) == 1
    assert outcome.errors.startswith("error: ")
    assert BAD[arguments] in outcome.errors


def test_an_unknown_command_is_refused_in_one_line(assay):
    outcome = assay("revert")
    assert outcome.exit == 4
    assert (
        outcome.errors
        == f"error: 'revert': no such command; there are {', '.join(command_line.COMMANDS)}\n"
    )


def test_too_little_memory_is_one_line(invert, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate\n  20 GiB")

    monkeypatch.setattr(inversion, "invert", full)
    outcome = invert(*tiny("gpt2", "--ids", "5"))
    assert outcome.exit == 4
    assert len(outcome.errors.splitlines()) == 1
    assert "error: too little memory: " in outcome.errors


def test_what_a_model_cannot_do_is_one_line(invert, use_subject, monkeypatch):
    subject = Subject("lame", folders.tiny("gpt2"))
    use_subject(subject)
    monkeypatch.setattr(Subject, "block_output", lambda *_, **__: [1])
    outcome = invert("--ids", "5")
    assert outcome.exit == 4
    assert len(outcome.errors.splitlines()) == 1
    assert "error: lame: gives no output block 2" in outcome.errors
