"""Models in memory whose own code is odd: each claim has its row, and the others lose nothing."""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel

import assay
from assay.fixtures import families
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.tiny_llama import llama


class NotCopied(LlamaForCausalLM):
    """Its copies fail."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise RuntimeError("no copy")


class ItsOwnCopy(LlamaForCausalLM):
    """Its copies are itself."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


@pytest.mark.parametrize("kind", [NotCopied, ItsOwnCopy])
def test_a_sound_model_that_copies_itself_oddly_is_judged_and_left_as_it_was(
    kind: type[PreTrainedModel],
) -> None:
    model = llama(kind)
    (result,) = assay.check(model, claims=["C1"], profile="glance").results
    assert result.verdict is Verdict.UPHELD, result.reason
    assert model.dtype is torch.float32


def test_a_copy_that_lacks_a_patch_of_the_model_is_no_reference() -> None:
    model = llama(NotCopied)
    first = model.model.layers[0]
    plain = first.forward
    first.forward = lambda *arguments, **named: plain(*arguments, **named) * 1.5
    (result,) = assay.check(model, claims=["C1"], profile="glance").results
    assert result.verdict is not Verdict.REFUTED
    assert "computes other rows" in result.reason


class Scaled(LlamaForCausalLM):
    """A class of somebody's own, whose logits are not those of transformers' class."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        output = super().forward(*arguments, **named)
        output.logits = output.logits * 3.5
        return output


def test_a_class_of_somebodys_own_is_loaded_as_what_it_is() -> None:
    model = llama(Scaled)
    configuration = dict(vars(model.config))
    run = assay.check(model, claims=["C10"], profile="glance")
    assert run.require().upheld
    assert vars(model.config) == configuration


def test_a_model_whose_forward_is_wrapped_has_a_reference_of_its_own() -> None:
    model = llama()
    usual = model.forward
    model.forward = functools.wraps(usual)(lambda *arguments, **named: usual(*arguments, **named))
    run = assay.check(model, claims=["C1", "F1"], profile="glance")
    assert len(run.require().upheld) == 3


def test_a_model_made_in_inference_mode_is_rejected() -> None:
    with torch.inference_mode():
        model = llama()
    with pytest.raises(BadInput, match=r"made under torch\.inference_mode"):
        assay.check(model, claims=["C1"], profile="glance")


class WithALock(LlamaForCausalLM):
    """It has an attribute that cannot be copied."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.lock = threading.Lock()


def test_a_model_that_cannot_be_copied_is_not_accused_by_drafting() -> None:
    assert not assay.check(llama(WithALock), claims=["C4"], profile="glance").refuted


def test_an_input_that_is_ignored_is_a_capability_that_is_lacking() -> None:
    model = copy.deepcopy(families.tiny("gpt2"))
    usual = model.transformer.forward
    model.transformer.forward = lambda *arguments, position_ids=None, **named: usual(
        *arguments, **named
    )
    run = assay.check(model, claims=["A7"], profile="glance")
    assert not run.refuted
    assert run.exit == 1
    with pytest.raises(assay.Lacking, match=r"lacks `position-ids` .*which causal:gpt2 has"):
        run.require()


class ReadsNoPositions(LlamaForCausalLM):
    """Drops an argument that it is given."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **more: Any) -> Any:
        more.pop("position_ids", None)
        return super().forward(input_ids, attention_mask, **more)


class PassesAllOn(LlamaForCausalLM):
    """Names few arguments, and drops none."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, **more: Any) -> Any:
        return super().forward(input_ids, attention_mask, **more)


class NamesNoPositions(LlamaForCausalLM):
    """Takes neither positions nor a cache."""

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        output_hidden_states: Any = None,
        return_dict: Any = None,
    ) -> Any:
        return super().forward(
            input_ids, attention_mask, output_hidden_states=output_hidden_states
        )


@pytest.mark.parametrize(
    ("kind", "lacking"), [(ReadsNoPositions, 1), (PassesAllOn, 0), (NamesNoPositions, 0)]
)
def test_a_subclass_is_compared_with_its_base_in_the_inputs_that_it_takes(
    kind: type[PreTrainedModel], lacking: int
) -> None:
    run = assay.check(llama(kind), claims=["C1", "A7"], profile="glance")
    assert [str(each.verdict) for each in run.results].count("refuted") == 0
    assert len(run.lacking) == lacking
    assert all("position-ids" in why for why in run.lacking)


def test_what_a_claim_calls_bad_input_is_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*_: object) -> None:
        raise BadInput("target head: there is none")

    monkeypatch.setattr("assay.claims.decoding.test_decoding.has_duplicate", reject)
    run = assay.check(llama(), claims=["D2", "C1"], profile="glance")
    assert [(str(each.verdict), each.reason) for each in run.results if each.id == "D2"] == [
        ("inconclusive", "target head: there is none")
    ]


def test_defaults_of_torch_decide_nothing() -> None:
    model = llama()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            run = assay.check(model, claims=["C1", "C2", "D1"], profile="glance")
        assert torch.get_default_dtype() is torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert not run.refuted
    assert {result.id for result in run.upheld} >= {"C1", "C2"}


class Masking(LlamaForCausalLM):
    """It never predicts some ids."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        output = super().forward(*arguments, **named)
        output.logits[..., 50:] = torch.finfo(output.logits.dtype).min
        return output


def test_logits_that_are_masked_by_the_least_number_are_no_difference() -> None:
    run = assay.check(llama(Masking), claims=["C1", "C2", "C5"], profile="glance")
    assert not run.refuted
    assert {result.id for result in run.upheld} >= {"C1", "C2"}


class Shorter(LlamaForCausalLM):
    """Its logits lack a row."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        output = super().forward(*arguments, **named)
        output.logits = output.logits[:, :-1]
        return output


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: llama(Shorter), "no row for each of 4 tokens"),
        (lambda: llama(vocab_size=2, pad_token_id=0), "a vocabulary of 2"),
        (lambda: "a/path", "no such folder"),
        (lambda: None, "is NoneType; give a model"),
        (lambda: llama().to("meta"), "without values"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_one_line(model: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        assay.check(model(), claims=["C1"], profile="glance")


@pytest.mark.nightly
def test_a_model_that_compiles_itself_is_judged() -> None:
    model = llama()
    model.compile(backend="eager")
    run = assay.check(model, claims=["C13"], profile="glance")
    assert [str(each.verdict) for each in run.results] == ["upheld"]


class EndsOtherwise(LlamaForCausalLM):
    """Returns another last token than the one that it chose."""

    def generate(self, *arguments: Any, **named: Any) -> Any:
        output = super().generate(*arguments, **named)
        output.sequences[:, -1] = (output.sequences[:, -1] + 1) % self.config.vocab_size
        return output


def test_a_generated_token_that_is_not_the_best_breaks_greedy_decoding() -> None:
    run = assay.check(llama(EndsOtherwise), claims=["C4:[greedy]"], profile="glance")
    assert "another's score beats" in next(each for each in run.refuted).reason


class ScalesWhatItIsAsked(LlamaForCausalLM):
    """Its logits depend on what else is returned."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        output = super().forward(*arguments, **named)
        if named.get("output_hidden_states"):
            output.logits = output.logits * 1.001
        return output


def test_logits_that_depend_on_what_else_is_returned_are_refuted() -> None:
    run = assay.check(llama(ScalesWhatItIsAsked), claims=["C6:asking for"], profile="glance")
    assert len(run.refuted) == 1
