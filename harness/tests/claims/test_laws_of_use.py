"""Laws about ways of running a model: sound models keep them, and injected faults are caught."""

from __future__ import annotations

import pytest
import torch

from assay.claims.loading import test_loading
from assay.claims.running import (
    test_adapters,
    test_batch_size,
    test_compiled,
    test_drafts,
    test_parallel,
    test_prefixes,
)
from assay.harness.operations import compiling, parallel
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, toy, verdict, with_settings

DRAFTS = test_drafts.test_drafted_tokens_change_nothing
TURNS = test_prefixes.test_turns_on_one_cache_are_those_read_again
BATCH = test_batch_size.test_a_row_does_not_depend_on_the_size_of_its_batch
COMPILED = test_compiled.test_a_compiled_model_computes_what_it_does_uncompiled
LOADED = test_loading.test_what_is_loaded_is_what_is_stored
IDLE = test_adapters.test_an_idle_adapter_changes_nothing
MERGED = test_adapters.test_a_merged_adapter_computes_what_it_does_unmerged
TWO_ROWS = test_parallel.test_rows_of_two_processes_are_those_of_one


def row_by_row(subject):
    """A copy of the subject whose forward runs each row of a batch by itself."""

    class RowByRow(type(subject.model)):
        def forward(self, input_ids, **options):
            each = [super(RowByRow, self).forward(row[None], **options) for row in input_ids]
            if each[0].hidden_states:
                states = zip(*(output.hidden_states for output in each), strict=True)
                each[0].hidden_states = tuple(torch.cat(state) for state in states)
            each[0].logits = torch.cat([output.logits for output in each])
            return each[0]

    model = RowByRow(subject.config).eval().requires_grad_(False)
    model.load_state_dict(subject.model.state_dict())
    return type(subject)("row by row", model)


def test_bitwise_a_row_must_have_the_same_bits_in_every_batch():
    usual, apart = with_settings(fresh("llama"), bitwise=True), row_by_row(fresh("llama"))
    differs = verdict(BATCH, usual, budget(4), arguments={"rows": 8})
    assert differs.verdict is Verdict.REFUTED
    assert "the bits of row" in differs.reason
    equal = verdict(BATCH, with_settings(apart, bitwise=True), budget(4), arguments={"rows": 8})
    assert equal.verdict is Verdict.UPHELD, equal.reason
    assert set(equal.details["share of elements whose bits differ"]) == {0.0}


@pytest.mark.nightly
def test_bitwise_a_compiled_model_must_give_the_same_bits(monkeypatch):
    def off_in_the_last_bit(graph, inputs):
        return lambda *args: [each * (1 + 2**-22) for each in graph(*args)]

    strict = {"arguments": {"backend": "aot_eager"}}
    equal = verdict(COMPILED, with_settings(fresh("gpt2"), bitwise=True), budget(2), **strict)
    assert equal.verdict is Verdict.UPHELD, equal.reason
    monkeypatch.setattr(compiling, "lookup_backend", lambda name: off_in_the_last_bit)
    assert verdict(COMPILED, fresh("gpt2"), budget(2), **strict).verdict is Verdict.UPHELD
    differs = verdict(COMPILED, with_settings(fresh("gpt2"), bitwise=True), budget(2), **strict)
    assert differs.verdict is Verdict.REFUTED
    assert "the bits of 14 tokens" in differs.reason


def test_a_model_whose_buffer_is_left_unset_by_loading_is_refuted():
    subject = fresh("llama")

    class Lazy(type(subject.model)):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("scale", torch.empty(3), persistent=False)

    model = Lazy(subject.config).eval().requires_grad_(False)
    model.scale.fill_(1.0)
    result = verdict(LOADED, type(subject)("lazy", model), budget(1))
    assert result.verdict is Verdict.REFUTED
    assert "buffers" in result.reason


@pytest.mark.parametrize(
    ("spec", "drafter", "lacking"),
    [
        ("gpt2", "early exit", "early-exit: the model ignores num_hidden_layers"),
        ("t5", "prompt", "own-prompt: "),
        ("mamba", "assistant", "assisted-generation: the model's cache cannot drop"),
    ],
)
def test_a_way_to_draft_that_a_model_lacks_has_a_name(spec, drafter, lacking):
    result = verdict(DRAFTS, toy(spec), budget(2), arguments={"drafter": drafter})
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason.startswith(lacking)


def test_an_adapter_on_a_layer_that_is_not_called_is_refuted():
    subject = fresh("llama")
    layer = subject.model.model.layers[0].mlp.down_proj
    layer.forward = None  # whoever calls it fails

    def product(states):
        return states @ layer.weight.T

    mlp = subject.model.model.layers[0].mlp
    mlp.forward = lambda x: product(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))
    result = verdict(MERGED, subject, budget(2), arguments={"where": "linear layers"})
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.mark.parametrize("adapter", ["new, of experts", "disabled, of experts"])
def test_experts_take_adapters(adapter):
    for case in ((IDLE, {"adapter": adapter}), (MERGED, {"where": "experts"})):
        result = verdict(case[0], toy("mixtral"), budget(3), arguments=case[1])
        assert result.verdict is Verdict.UPHELD, result.reason


@pytest.mark.nightly
def test_experts_are_divided_as_well():
    result = verdict(TWO_ROWS, toy("mixtral"), budget(2), arguments={"plan": "expert"})
    assert result.verdict is Verdict.UPHELD, result.reason


def test_a_lost_process_says_nothing_about_the_model(monkeypatch):
    monkeypatch.setattr(parallel, "PATIENCE", 0.0)
    result = verdict(TWO_ROWS, fresh("llama"), budget(1), arguments={"plan": "tensor"})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "process 0 of 2 gave no answer in 0 seconds" in result.reason


@pytest.mark.parametrize(
    ("model", "came"),
    [
        ("tiny:mistral+longrope", Verdict.NOT_APPLICABLE),
        ("tiny:llama+dynamic", Verdict.NOT_APPLICABLE),
        ("tiny:phi3+longrope", Verdict.UPHELD),  # whose cache is made again at the switch
    ],
)
def test_a_conversation_ends_before_cached_keys_have_other_frequencies(model, came):
    assert verdict(TURNS, toy(model), budget(4)).verdict is came
