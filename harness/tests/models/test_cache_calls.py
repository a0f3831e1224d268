"""What a pass is told when a prompt is decoded in chunks, and what a cache is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.harness.models.capabilities import caches, kept_states
from assay.harness.models.subject.rows import Rows

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
    assert kept_states.carries_state(own) is carries
    pair = SimpleNamespace(self_attention_cache=own, cross_attention_cache=torch.ones(1))
    assert kept_states.carries_state(pair) is carries
