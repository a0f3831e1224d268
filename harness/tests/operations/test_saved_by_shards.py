"""Saving and loading a large model without a second one in memory."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject
from assay.harness.operations import copies, differences, variants
from assay.harness.results.errors import BadInput

TYPES = ["gpt2", "mixtral", "t5"]
"""With a tied head, with experts, with two stacks."""


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose memory holds no copies."""
    monkeypatch.setattr(memory, "free", lambda _: 0)


def subject_of(model_type: str) -> Subject:
    try:
        return subjects.load(f"tiny:{model_type}", Options())
    except BadInput as error:
        pytest.skip(f"missing capability: {error}")


@pytest.mark.parametrize("model_type", TYPES)
def test_equal_weights_share_memory_and_nothing_is_lost(full: None, model_type: str) -> None:
    subject = subject_of(model_type)
    ids = subject.content(torch.arange(8)[None])
    copied = variants.saved_and_loaded(subject)
    mine, theirs = (dict(each.model.named_parameters()) for each in (subject, copied))
    for name, weight in theirs.items():
        assert weight.data_ptr() == mine[name].data_ptr()
    assert set(differences.between(subject, copied).values()) == {0.0}
    apart = copies.apart(subject, copied, ids)
    assert apart.distance.error <= apart.allowed


def test_moving_the_copy_s_embedding_leaves_the_subject_s(full: None) -> None:
    subject = subject_of("gpt2")  # whose embedding is its head, too
    ids = subject.content(torch.arange(8)[None])
    before = subject.embedding_table.clone()
    copied = variants.saved_and_loaded(subject)
    with variants.nudge_embedding(copied, int(ids[0, 0])):
        assert torch.equal(subject.embedding_table, before)
        apart = copies.apart(subject, copied, ids)
    assert apart.distance.error > apart.allowed
