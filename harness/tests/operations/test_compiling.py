"""Compiled models: what is shared, what is lacking, and that compiled code ran."""

from __future__ import annotations

import pytest
import torch

from assay.harness.checking.comparing import Unsettled
from assay.harness.operations import compiling
from assay.harness.results.errors import Missing
from assay.harness.tests.support.toys import fresh, prompt, toy


def test_one_compilation_serves_further_lengths_and_leaves_the_model_as_it_was():
    subject = fresh("gpt2")
    compiled = compiling.forward(subject, "aot_eager")
    for n in (14, 9):
        compiled.rows(prompt(subject, n))
    with torch.compiler.set_stance("fail_on_recompile"):
        rows = compiled.rows(prompt(subject, 5))
    plain = subject.rows(prompt(subject, 5), states=False)
    torch.testing.assert_close(rows["logits"], plain["logits"], rtol=1e-4, atol=1e-5)
    assert compiling.forward(subject, "aot_eager") is compiled
    assert "forward" not in vars(subject.model)


def test_the_decoder_of_an_encoder_decoder_is_compiled():
    subject = fresh("t5")
    compiled = compiling.forward(subject, "aot_eager")
    rows, plain = compiled.rows(prompt(subject)), subject.rows(prompt(subject))
    torch.testing.assert_close(rows["logits"], plain["logits"], rtol=1e-4, atol=1e-4)
    assert compiled.backend.ran


def test_a_pass_of_which_nothing_is_compiled_does_not_count():
    subject = fresh("gpt2")
    subject.model.forward = torch.compiler.disable(subject.model.forward)
    with pytest.raises(Unsettled, match="no part of the pass is compiled"):
        compiling.forward(subject, "aot_eager").rows(prompt(subject))


def test_a_model_that_cannot_be_compiled_says_why(monkeypatch):
    def fails(graph, inputs):
        raise ValueError("no such operation")

    subject = fresh("gpt2")
    monkeypatch.setattr(compiling, "lookup_backend", lambda name: fails)
    with pytest.raises(Missing, match=r"compilation: .*no such operation"):
        compiling.forward(subject, "aot_eager").rows(prompt(subject))


def test_without_a_compiler_nothing_is_compiled_to_machine_code(monkeypatch):
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    with pytest.raises(Missing, match="no C\\+\\+ compiler"):
        compiling.forward(toy("gpt2"), "inductor")
    compiling.require(toy("gpt2"), "aot_eager")


def test_steps_on_a_static_cache_are_compiled_once():
    subject = fresh("gpt2")
    first = compiling.continued(subject, prompt(subject, 6), "aot_eager")
    with torch.compiler.set_stance("fail_on_recompile"):
        again = compiling.continued(subject, prompt(subject, 6), "aot_eager")
    assert torch.equal(first.ids, again.ids)


def test_a_library_that_compiles_no_steps_is_named(monkeypatch):
    subject = fresh("gpt2")
    monkeypatch.setattr(
        type(subject.model), "_valid_auto_compile_criteria", lambda *_: False, raising=False
    )
    with pytest.raises(Missing, match="generate does not compile"):
        compiling.continued(subject, prompt(subject, 6), "aot_eager")


@pytest.mark.nightly
def test_machine_code_draws_the_random_numbers_of_other_code():
    subject = fresh("reformer")
    ids = prompt(subject, 14)
    rows = compiling.forward(subject, "inductor").rows(ids)["logits"]
    torch.testing.assert_close(rows, subject.rows(ids)["logits"], atol=1e-4, rtol=0)


def test_compiled_code_runs_without_what_listens_to_a_choice_of_experts():
    """Torch compiles DBRX in parts, and under a mode takes one variable for another there."""
    subject = toy("dbrx")
    ids = prompt(subject, 14)
    rows = compiling.forward(subject, "aot_eager").rows(ids)
    torch.testing.assert_close(rows["logits"], subject.rows(ids)["logits"])
