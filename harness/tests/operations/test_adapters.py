"""Adapters on a model that keeps its weights."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.subject import lora
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


def test_a_strong_adapter_changes_weights_by_half_of_their_length():
    adapted = adapters.strong(toy("llama"))
    layers = adapters.layers(adapted.model)
    assert len(layers) == 2 * 7
    for layer in layers:
        delta = layer.get_delta_weight(adapters.FIRST)
        share = float(delta.norm() / layer.get_base_layer().weight.norm())
        assert share == pytest.approx(adapters.STRENGTH, rel=0.5)


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


def test_heads_and_tied_layers_get_no_adapter():
    model = fresh("llama").model
    assert "lm_head" not in lora.linear_layers(model)
    model.model.layers[0].mlp.up_proj.weight = model.model.layers[0].mlp.gate_proj.weight
    names = lora.linear_layers(model)
    assert len(names) == 2 * 7 - 2
    assert not any(name.endswith("0.mlp.up_proj") for name in names)


def test_a_model_without_experts_lacks_them():
    with pytest.raises(Missing, match="experts: no layer looks up"):
        adapters.fresh(toy("llama"), adapters.EXPERTS)
