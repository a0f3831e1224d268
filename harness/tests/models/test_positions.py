"""Where models keep their absolute positions, and moving them."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from assay.harness.models.capabilities import probe
from assay.harness.models.subject import positions
from assay.harness.operations.position_rows import rows_moved
from assay.harness.tests.support.toys import TYPES, fresh, prompt, toy

OFFSETS = {
    "gpt2": 0,
    "gpt_neo": 0,
    "opt": 2,
    "bert": 0,
    "roberta": 2,
    "distilbert": 0,
    "albert": 0,
}
"""The row of its table that a model's first token is given."""


@pytest.mark.parametrize(("model_type", "offset"), OFFSETS.items())
def test_a_table_is_found_with_the_row_of_the_first_token(model_type, offset):
    subject = toy(model_type)
    table = positions.position_table(subject)
    assert table.weight.shape == (64 + offset, subject.hidden)
    assert positions.position_offset(subject) == offset


@pytest.mark.parametrize("model_type", [m for m in TYPES if m not in OFFSETS])
def test_no_table_is_found_where_there_is_none(model_type):
    assert positions.position_table(toy(model_type)) is None
    assert positions.position_offset(toy(model_type)) == 0
    assert positions.first_position(toy(model_type)) == 0


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "roberta", "llama", "bloom", "t5"])
def test_the_usual_positions_are_those_of_a_prompt_without_any(model_type):
    subject = toy(model_type)
    if "position-ids" not in probe(subject):
        assert positions.first_position(subject) == 0
        return
    ids = prompt(subject)
    usual = positions.usual(subject, 9)
    assert usual.diff().tolist() == [1] * 8
    plain = subject.rows(ids)["logits"]
    assert torch.allclose(subject.rows(ids, positions=usual)["logits"], plain, atol=1e-4)
    doubled = usual[0] + 2 * torch.arange(9)
    assert not torch.allclose(subject.rows(ids, positions=doubled)["logits"], plain, atol=1e-2)


def test_a_model_that_looks_ahead_in_its_table_takes_that_much_less():
    subject = toy("tiny:causal:prophetnet")
    assert positions.position_offset(subject) == 1
    assert positions.positions_beyond(subject) == 1
    assert subject.context == 62
    subject.rows(prompt(subject, 62))
    with pytest.raises(IndexError):
        subject.rows(prompt(subject, 63))
    assert {positions.positions_beyond(toy(model_type)) for model_type in OFFSETS} == {0}
    assert positions.positions_beyond(toy("llama")) == 0  # which has no table


def test_some_models_add_the_offset_themselves_and_some_want_it_added():
    assert positions.first_position(toy("opt")) == 0
    assert positions.first_position(toy("roberta")) == 2
    constants = toy("kosmos-2.5")  # and a table of two segments, of which a prompt reads one row
    assert positions.first_position(constants) == 2
    assert positions.position_table(constants) is None


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "roberta"])
def test_moved_rows_stand_where_the_order_says(model_type):
    subject = fresh(model_type)
    table, offset = positions.position_table(subject), positions.position_offset(subject)
    before = table.weight.detach().clone()
    with rows_moved(subject, torch.tensor([2, 0, 1])):
        assert torch.equal(table.weight[offset : offset + 3], before[offset:][[2, 0, 1]])
        assert torch.equal(table.weight[offset + 3 :], before[offset + 3 :])
        assert torch.equal(table.weight[:offset], before[:offset])
    assert torch.equal(table.weight, before)


def test_moved_rows_are_put_back_whatever_happens():
    subject = fresh("gpt2")
    before = positions.position_table(subject).weight.detach().clone()
    with suppress(ZeroDivisionError), rows_moved(subject, torch.tensor([1, 0])):
        assert not torch.equal(positions.position_table(subject).weight, before)
        raise ZeroDivisionError
    assert torch.equal(positions.position_table(subject).weight, before)


def test_rows_cannot_be_moved_where_there_are_none():
    with (
        pytest.raises(ValueError, match="tiny:llama has no position embeddings"),
        rows_moved(toy("llama"), torch.tensor([1, 0])),
    ):
        pass
