"""Programs that `torch.export` makes of a model's pass, and what they take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.claims.running import test_exported as claims
from assay.harness.operations import exporting
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, prompt, toy, verdict

LAW = claims.test_an_exported_program_computes_what_the_model_does
PADDED = claims.test_an_exported_program_reads_padding_as_the_model_does


def with_forward(change):
    """A tiny GPT-2 whose pass goes through ``change(hidden)`` after its first block."""
    subject = fresh("gpt2")
    subject.blocks[0].register_forward_hook(lambda module, args, out: _changed(out, change))
    return subject


def _changed(out, change):
    return (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)


def test_a_program_takes_other_lengths_and_leaves_the_model_as_it_was():
    subject = toy("gpt2")
    before = {n: b.clone() for n, b in subject.model.named_buffers()}
    program = exporting.program(subject)
    ids = prompt(subject, 21)
    torch.testing.assert_close(
        program.rows(ids)["logits"], subject.rows(ids)["logits"], rtol=1e-4, atol=1e-5
    )
    assert program.least <= 2 < 48 <= program.most
    assert exporting.program(subject) is program
    for name, buffer in subject.model.named_buffers():
        assert torch.equal(buffer, before[name])


def test_the_encoders_states_are_inputs():
    subject = toy("t5")
    ids = prompt(subject, 12)
    rows = exporting.program(subject).rows(ids)["logits"]
    torch.testing.assert_close(rows, subject.rows(ids)["logits"], rtol=1e-4, atol=1e-4)


def test_a_program_of_one_length_is_named():
    with pytest.raises(Missing, match="takes prompts of 9 tokens only"):
        exporting.program(toy("mamba"))


def test_a_program_for_one_number_of_tokens_is_named():
    """A mixture's: its law was left without any example that could be compared."""
    with pytest.raises(Missing, match=r"takes no other lengths .* == 27"):
        exporting.program(toy("mixtral"))
    assert verdict(LAW, toy("mixtral"), budget(2)).verdict is Verdict.NOT_APPLICABLE


def test_control_flow_that_depends_on_data_is_named():
    class Asks(nn.Module):
        def forward(self, hidden):
            return hidden if bool((hidden > 100.0).any()) else 1.0 * hidden

    subject = with_forward(Asks())
    with pytest.raises(Missing, match="cannot be traced"):
        exporting.program(subject)
    assert verdict(LAW, subject, budget(2)).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("law", [LAW, PADDED])
def test_a_number_that_tracing_made_constant_is_refuted(law):
    traced = exporting.traced_length(toy("gpt2"))

    def scaled(hidden):
        # As of a length that is read from the data, and is a constant once it is traced.
        n = traced if torch.compiler.is_compiling() else hidden.shape[1]
        return hidden + 1e-2 * hidden.flip(-1) * hidden.shape[1] / n

    result = verdict(law, with_forward(scaled), budget(4))
    assert result.verdict is Verdict.REFUTED, result.reason


def test_a_program_that_breaks_at_a_length_that_it_takes_is_refuted(monkeypatch):
    subject = fresh("gpt2")
    program = exporting.program(subject)

    def breaks(**inputs):
        raise RuntimeError("The size of tensor a (9) must match the size of tensor b (14)")

    monkeypatch.setattr(exporting, "program", lambda *_: _with_run(program, breaks))
    assert verdict(LAW, subject, budget(2)).verdict is Verdict.REFUTED


def _with_run(program, run):
    bounds = program.least, program.most, program.fewest, program.at_most
    return exporting.Program(program.subject, run, *bounds)
