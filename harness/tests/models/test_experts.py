"""A mixture's experts, computed in the library's several ways."""

from __future__ import annotations

import copy

import pytest
import torch

from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject, compat, experts
from assay.harness.tests.support.toys import fresh, prompt, toy


def test_the_parts_that_compute_experts_by_name_are_found():
    mixture = toy("mixtral")
    assert [type(part).__name__ for part in experts.modules(mixture)] == ["MixtralExperts"] * 2
    for model_type in ("llama", "llama4_text"):  # no experts; experts that know one way
        with pytest.raises(Missing, match="looks up by name"):
            experts.require(toy(model_type), "batched_mm")


def test_another_way_is_one_that_the_model_takes_and_does_not_run_with():
    subject = toy("mixtral")
    assert experts.in_use(subject) == "grouped_mm"
    experts.require(subject, "eager")
    experts.require(subject, "batched_mm")
    with pytest.raises(
        Missing, match="grouped_mm is the implementation that the model already uses"
    ):
        experts.require(subject, "grouped_mm")
    with pytest.raises(Missing, match=r"cannot compute its experts by abacus: .*abacus"):
        experts.require(subject, "abacus")
    assert experts.in_use(subject) == "grouped_mm"


def test_one_expert_has_no_other_in_its_place():
    config = copy.deepcopy(toy("mixtral").model.config)
    config.num_local_experts = config.num_experts_per_tok = 1
    alone = Subject("alone", type(toy("mixtral").model)(config).eval())
    with pytest.raises(Missing, match="a layer has one expert"):
        experts.require(alone, "eager")


def test_another_way_is_taken_and_left_again():
    subject = fresh("mixtral")
    ids, table = prompt(subject), experts.functions_by_name()
    usual, before = table["batched_mm"], subject.rows(ids)["logits"]
    experts.modules(subject)
    assert table["batched_mm"] is usual
    with experts.computed_by(subject, "eager"):
        assert experts.in_use(subject) == "eager"
        one_by_one = subject.rows(ids)["logits"]
    assert experts.in_use(subject) == "grouped_mm"
    assert torch.equal(subject.rows(ids)["logits"], before)
    torch.testing.assert_close(one_by_one, before, atol=1e-5, rtol=1e-5)


def test_the_parts_of_a_model_are_left_as_each_was():
    """The whole says eager and the part with the experts grouped_mm: a copy is loaded so, too."""
    subject = fresh("nemo_speechlm")
    before = compat.settings(subject.model, experts.IMPLEMENTATION)
    assert {name for _, name in before} > {"eager", "grouped_mm"}
    assert experts.in_use(subject) == "grouped_mm"
    with experts.computed_by(subject, "eager"):
        assert experts.in_use(subject) == "eager"
    assert compat.settings(subject.model, experts.IMPLEMENTATION) == before
    with pytest.raises(
        Missing, match="grouped_mm is the implementation that the model already uses"
    ):
        experts.require(subject, "grouped_mm")
    experts.require(subject, "eager")
