"""Ragged batches: where the content, the padding and the positions are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from harness import padding, positions
from harness.check import Check
from harness.rows import Rows
from harness.subject import Subject
from harness.tests.toys import is_broken, prompt, toy

LENGTHS = [5, 2, 1]


def batch(model_type: str):
    subject = toy(model_type)
    ids = prompt(subject, 5, batch=3)
    return subject, ids, padding.ragged(subject, ids, LENGTHS)


def test_causal_models_are_padded_on_the_left():
    _, ids, ragged = batch("llama")
    assert ragged.left
    assert ragged.mask.tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]
    for row, size in enumerate(LENGTHS):
        assert torch.equal(ragged.ids[row, 5 - size :], ids[row, 5 - size :])


def test_encoders_are_padded_on_the_right_with_the_same_tokens():
    _, ids, ragged = batch("bert")
    assert not ragged.left
    assert ragged.positions is None
    assert ragged.mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    for row, size in enumerate(LENGTHS):
        assert torch.equal(ragged.ids[row, :size], ids[row, 5 - size :])


@pytest.mark.parametrize("model_type", ["llama", "roberta"])
def test_what_is_no_content_is_padding(model_type):
    subject, _, ragged = batch(model_type)
    token = subject.config.pad_token_id or 0
    assert (ragged.ids[ragged.mask == 0] == token).all()


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "llama"])
def test_positions_count_the_content_from_the_first(model_type):
    _, _, ragged = batch(model_type)
    content = [ragged.positions[row, 5 - size :].tolist() for row, size in enumerate(LENGTHS)]
    assert content == [[0, 1, 2, 3, 4], [0, 1], [0]]


def test_models_that_take_no_positions_are_given_none():
    assert batch("bloom")[2].positions is None


@pytest.mark.parametrize("model_type", ["llama", "bert"])
def test_a_prompt_s_own_rows_are_found_again(model_type):
    _, ids, ragged = batch(model_type)
    own = ragged.of(Rows({"ids": ragged.ids[..., None]}), 1)["ids"]
    assert own[0, :, 0].tolist() == ids[1, 3:].tolist()


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "bloom", "mamba", "roberta", "t5"])
def test_a_padded_prompt_gives_what_it_gives_alone_and_its_neighbour_does_not(model_type):
    subject, ids, ragged = batch(model_type)
    rows = subject.rows(ragged.ids, mask=ragged.mask, positions=ragged.positions)
    alone = Check(subject).reference(lambda s: s.rows(ids[1:2, 3:]))
    assert not is_broken(Check(subject), alone, ragged.of(rows, 1))
    assert is_broken(Check(subject), alone, ragged.of(rows.map(lambda t: t.roll(1, 0)), 1))


def test_positions_start_where_the_model_s_do(monkeypatch):
    monkeypatch.setattr(positions, "first_position", lambda subject: 3)
    assert batch("llama")[2].positions[1].tolist() == [3, 3, 3, 3, 4]


@pytest.mark.parametrize("lengths", [[5, 2], [5, 2, 1, 1]])
def test_there_is_one_length_for_each_row(lengths):
    subject = toy("bert")
    with pytest.raises((ValueError, RuntimeError)):
        padding.ragged(subject, prompt(subject, 5, batch=3), lengths)


@pytest.mark.parametrize("model_type", ["llama", "bert"])
def test_everything_is_made_where_the_ids_are(model_type):
    subject, ids, usual = batch(model_type)
    with torch.device("meta"):  # where what is made without a device would be, and be nothing
        made = padding.ragged(subject, ids, LENGTHS)
    assert made.ids.equal(usual.ids)
    assert made.mask.equal(usual.mask)


def test_a_configuration_without_a_padding_token_is_padded_with_the_first(monkeypatch):
    subject = toy("llama")
    ids = prompt(subject, 5, batch=3)
    bare = SimpleNamespace(
        **{k: v for k, v in vars(subject.config).items() if "pad_token" not in k}
    )
    monkeypatch.setattr(Subject, "config", bare)
    ragged = padding.ragged(subject, ids, LENGTHS)
    assert (ragged.ids[ragged.mask == 0] == 0).all()
