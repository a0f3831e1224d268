"""Ragged batches: where the content, the padding and the positions are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from assay.harness.checking.check import Broken, Check
from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.subject import Subject, positions
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import padding
from assay.harness.tests.support.toys import fresh, is_broken, prompt, toy

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


@pytest.mark.parametrize("model_type", ["llama", "bert"])
def test_a_prompt_s_own_rows_are_found_again(model_type):
    _, ids, ragged = batch(model_type)
    own = ragged.content(Rows({"ids": ragged.ids[..., None]}), 1)["ids"]
    assert own[0, :, 0].tolist() == ids[1, 3:].tolist()


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "bloom", "mamba", "roberta", "t5"])
def test_a_padded_prompt_gives_what_it_gives_alone_and_its_neighbour_does_not(model_type):
    subject, ids, ragged = batch(model_type)
    rows = subject.rows(ragged.ids, mask=ragged.mask, positions=ragged.positions)
    alone = Check(subject).reference(lambda s: s.rows(ids[1:2, 3:]))
    assert not is_broken(Check(subject), alone, ragged.content(rows, 1))
    assert is_broken(Check(subject), alone, ragged.content(rows.map(lambda t: t.roll(1, 0)), 1))


def test_positions_start_where_the_model_s_do(monkeypatch):
    monkeypatch.setattr(positions, "first_position", lambda subject: 3)
    assert batch("llama")[2].positions[1].tolist() == [3, 3, 3, 3, 4]


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


# Rows of a padded batch, against each prompt alone.


def padded():
    subject, ids, ragged = batch("llama")
    return subject, ids, ragged, subject.rows(ragged.ids, mask=ragged.mask)


def test_every_row_is_compared_with_its_prompt_alone_and_its_neighbour_is_the_control():
    subject, ids, ragged, rows = padded()
    check = Check(subject)
    padding.each_alone(check, ids, ragged, rows)
    assert (check.record.controls.tried, check.record.controls.rejected) == (3, 3)
    twice = Check(subject)  # rows of one prompt: no neighbour gives anything else
    same = ids[:1].expand(3, -1)
    equal = padding.ragged(subject, same, [5, 5, 5])
    padding.each_alone(twice, same, equal, subject.rows(equal.ids, mask=equal.mask))
    assert (twice.record.controls.tried, twice.record.controls.rejected) == (3, 0)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("tensor", ["logits", "state 1"])
def test_one_place_that_is_off_in_one_row_is_enough(row, tensor):
    subject, ids, ragged, rows = padded()
    off = rows.map(torch.clone)
    off[tensor][row, -1] *= 1.1
    with pytest.raises(Broken) as broken:
        padding.each_alone(Check(subject), ids, ragged, off)
    assert broken.value.where.startswith(tensor)


def test_what_stands_in_padding_is_not_compared():
    subject, ids, ragged, rows = padded()
    off = rows.map(torch.clone)
    off["logits"][ragged.mask == 0] += 1.0
    padding.each_alone(Check(subject), ids, ragged, off)


def test_states_are_left_out_where_they_are_not_wanted():
    subject, ids, ragged, rows = padded()
    off = rows.map(torch.clone)
    off["state 1"][1, -1] *= 1.1
    padding.each_alone(Check(subject), ids, ragged, off, states=False)


# Whether a mask of past and present is taken beside a cache.


@pytest.fixture
def decoding(monkeypatch):
    """In the place of decoding: [(ids, chunks, kind, named)], and what a mask does to the rows."""
    calls, with_mask = [], {"adds": 0.0}

    def decode(subject, ids, chunks, kind, **named):
        assert isinstance(subject, Subject)
        calls.append((ids, chunks, kind, named))
        masked = named.get("mask") is not None
        if masked and isinstance(with_mask["adds"], Exception):
            raise with_mask["adds"]
        ones = torch.ones(2, 4, 3)
        return Rows({"logits": ones * (1 + with_mask["adds"]) if masked else ones})

    monkeypatch.setattr(caches, "decode", decode)
    return calls, with_mask


def test_a_mask_that_hides_nothing_must_change_nothing(decoding):
    calls, with_mask = decoding
    subject = fresh("llama")
    padding.require_mask_of_past(subject, "static")
    (ids, chunks, kind, without), (again, same, beside, arguments) = calls
    assert kind == beside == "static"
    assert chunks == same == [1, 1, 1, 1]
    assert torch.equal(ids, again)
    assert ids.shape == (2, 4)
    assert len(ids.unique()) == 8
    assert without == {"spare": 4}
    assert arguments["spare"] == 4
    assert torch.equal(arguments["mask"], torch.ones_like(ids))
    with_mask["adds"] = 0.5
    padding.require_mask_of_past(subject, "static")  # asked once of each kind
    said = "^mask-beside-cache: the model takes no mask of cached and new tokens with a "
    with pytest.raises(
        Missing, match=f"{said}default cache: a mask that hides nothing changes the output$"
    ):
        padding.require_mask_of_past(subject, "default")


def test_a_model_that_refuses_a_mask_of_past_says_so_in_its_own_words(decoding):
    decoding[1]["adds"] = ValueError("a mask\nof four lines")
    with pytest.raises(Missing, match=r"with a default cache: a mask$"):
        padding.require_mask_of_past(fresh("llama"), "default")


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
def test_a_mask_that_multiplies_the_present_is_none_of_the_past_whatever_the_output(kernel):
    """A step's row becomes several; a convolution over two tokens or one does not show it."""
    config = MambaConfig(
        hidden_size=16, num_hidden_layers=2, vocab_size=64, state_size=4, conv_kernel=kernel
    )
    subject = Subject("a mamba", MambaForCausalLM(config).eval())
    said = r"with a default cache: it makes several rows from one token's, in backbone\."
    with pytest.raises(Missing, match=said):
        padding.require_mask_of_past(subject, "default")
    assert not [m for m in subject.model.modules() if m._forward_hooks]
