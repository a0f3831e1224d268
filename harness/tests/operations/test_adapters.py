"""Adapters on a model that keeps its weights."""

from __future__ import annotations

import pytest
import torch

from assay.harness.operations import adapters
from assay.harness.results.errors import Missing
from assay.harness.tests.support.toys import fresh, prompt, toy

pytest.importorskip("peft")


def test_an_adapted_model_has_the_subjects_own_weights():
    subject = toy("gpt2")
    adapted = adapters.fresh(subject)
    theirs = {id(weight) for weight in adapted.model.parameters()}
    assert theirs >= {id(weight) for weight in subject.model.parameters()}
    assert not adapters.layers(subject.model)


def test_merging_leaves_the_subject_as_it_was():
    subject = fresh("llama")
    before = {name: t.clone() for name, t in subject.model.state_dict().items()}
    merged = adapters.merged(subject)
    assert not adapters.layers(merged.model)
    assert all(torch.equal(t, before[n]) for n, t in subject.model.state_dict().items())
    ids = prompt(subject)
    assert not torch.allclose(merged.rows(ids)["logits"], subject.rows(ids)["logits"], rtol=1e-2)


@pytest.mark.parametrize("use", ["disabled", "chosen", "deleted"])
def test_no_adapter_is_left_to_be_trained(use):
    adapted = adapters.strong(toy("llama"))
    adapters.add_another(adapted)
    if use == "disabled":
        with adapters.disabled(adapted):
            pass
    elif use == "chosen":
        adapters.choose(adapted, adapters.SECOND)
    else:
        adapters.delete_first(adapted)
        assert {name.split(".")[-2] for name in adapters.weights(adapted)} == {adapters.SECOND}
    assert not any(weight.requires_grad for weight in adapted.model.parameters())


def test_layers_that_peft_refuses_are_left_out():
    names = adapters.layers_of(toy("mamba2"))
    assert {name.rpartition(".")[2] for name in names} == {"in_proj"}


def test_a_model_without_experts_lacks_them():
    with pytest.raises(Missing, match="experts: no layer looks up"):
        adapters.fresh(toy("llama"), adapters.EXPERTS)
