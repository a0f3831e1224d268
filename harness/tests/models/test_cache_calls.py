"""What a pass is told when a prompt is decoded in chunks, and what a cache is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.tests.support.toys import toy

IDS = torch.arange(10).reshape(2, 5)
CHUNKS = [3, 2]


class RecordingSubject:
    """In the place of a subject: notes the arguments of every pass, and gives the ids as rows."""

    def __init__(self) -> None:
        self.passes: list[dict[str, Any]] = []

    def __call__(self, ids, **arguments):
        self.passes.append(arguments)
        rows = Rows({"logits": ids[..., None].double()})
        return SimpleNamespace(rows=rows, cache=f"after {len(self.passes)}")

    def of(self, name: str) -> list[Any]:
        return [arguments[name] for arguments in self.passes]


def decoded(**options) -> RecordingSubject:
    subject = RecordingSubject()
    rows = caches.decode(subject, IDS, CHUNKS, cache="given", **options)
    assert torch.equal(rows["logits"][..., 0], IDS.double())
    return subject


def test_every_chunk_goes_on_from_the_cache_of_those_before_it():
    subject = decoded(logits_to_keep=2)
    assert subject.of("cache") == ["given", "after 1"]
    assert subject.of("logits_to_keep") == [2, 2]
    assert subject.of("keep") == [True, True]
    for name in ("mask", "positions"):
        assert subject.of(name) == [None, None]


def test_every_chunk_is_told_of_its_part_of_a_mask_of_padding():
    mask = torch.arange(10).reshape(2, 5)
    first, second = decoded(mask=mask).of("mask")
    assert torch.equal(first, mask[:, :3])
    assert torch.equal(second, mask)


def test_every_chunk_is_told_of_its_rows_of_a_mask_of_four_dimensions():
    mask = torch.arange(25).reshape(1, 1, 5, 5)
    first, second = decoded(mask=mask).of("mask")
    assert torch.equal(first, mask[..., :3, :3])
    assert torch.equal(second, mask[..., 3:, :])


@pytest.mark.parametrize("positions", [torch.arange(5), torch.arange(10).reshape(2, 5)])
def test_every_chunk_is_told_of_its_positions(positions):
    first, second = decoded(positions=positions).of("positions")
    assert torch.equal(first, positions[..., :3])
    assert torch.equal(second, positions[..., 3:])


@pytest.mark.parametrize(("spare", "room"), [({}, 5), ({"spare": 2}, 7)])
def test_a_cache_is_made_for_the_batch_and_the_prompt_and_the_spare(monkeypatch, spare, room):
    monkeypatch.setattr(caches, "make", lambda _, *wanted: wanted)
    subject = RecordingSubject()
    caches.decode(subject, IDS, CHUNKS, "static", **spare)
    assert subject.of("cache")[0] == ("static", 2, room)


# What a cache is made of.


@pytest.fixture
def compat_calls(monkeypatch):
    """The calls of `compat` about caches: [(name, arguments)]."""
    calls = []

    def noting(name):
        usual = getattr(caches.compat, name)

        def noted(*arguments):
            calls.append((name, arguments))
            return usual(*arguments)

        monkeypatch.setattr(caches.compat, name, noted)

    for name in (
        "require_cache_objects",
        "require_room_for_state",
        "configured_cache",
        "static_cache",
    ):
        noting(name)
    monkeypatch.setattr(caches.compat, "offloaded_cache", lambda config: DynamicCache())
    noting("offloaded_cache")
    return calls


@pytest.mark.parametrize("make", [lambda s: caches.make(s, "dynamic", 1, 4), caches.growing])
def test_a_model_is_asked_whether_it_takes_objects_before_it_is_given_one(compat_calls, make):
    subject = toy("llama")
    make(subject)
    assert ("require_cache_objects", (subject.model,)) in compat_calls
    for name, arguments in compat_calls:
        if name == "require_room_for_state":
            assert arguments[0] is subject.model


def test_an_encoder_decoder_s_own_cache_is_made_like_any_other(compat_calls, monkeypatch):
    windowed = toy("t5gemma")
    caches.make(windowed, "sliding", 3, 4)
    caches.make(windowed, "static", 3, 4)
    monkeypatch.setattr(Subject, "device", torch.device("cuda"))
    caches.make(windowed, "offloaded", 3, 4)
    made = {name: arguments for name, arguments in compat_calls if not name.startswith("require")}
    assert made["configured_cache"] == (windowed.config,)
    assert made["static_cache"] == (windowed.model, windowed.config, 3, 4)
    assert made["offloaded_cache"] == (windowed.config,)


def test_no_cache_is_offloaded_from_a_processor(monkeypatch):
    """Not on a machine with a GPU either, where the library raises."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    for name in ("t5", "gpt2"):
        with pytest.raises(Missing, match="the model is on a processor"):
            caches.make(toy(name), "offloaded", 1, 4)


# Whether a cache keeps a state.

KEYS = SimpleNamespace(keys=torch.ones(1, 1, 2, 4), values=torch.ones(1, 1, 2, 4))
STATE = SimpleNamespace(recurrent_states=torch.ones(1, 4))


@pytest.mark.parametrize(
    ("own", "carries"),
    [
        (SimpleNamespace(layers=[KEYS, KEYS]), False),
        (SimpleNamespace(layers=[KEYS, STATE]), True),
        (SimpleNamespace(layers=[STATE]), True),
        (SimpleNamespace(layers=[KEYS], length=torch.tensor(3)), False),
        (SimpleNamespace(layers=[KEYS], past={"conv": [torch.ones(1, 4)]}), True),
        (SimpleNamespace(layers=[KEYS], past={"length": 3}), False),
        (SimpleNamespace(key_cache=[KEYS.keys], value_cache=[KEYS.values]), False),
        (SimpleNamespace(states=torch.ones(1, 4)), True),
    ],
)
def test_a_state_is_told_from_keys(own, carries):
    assert caches.carries_state(own) is carries
    pair = SimpleNamespace(self_attention_cache=own, cross_attention_cache=torch.ones(1))
    assert caches.carries_state(pair) is carries
