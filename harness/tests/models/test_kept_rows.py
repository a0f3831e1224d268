"""Rows of plain passes that are kept: looked up where nothing has changed, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.subject import kept_rows
from assay.harness.tests.support.toys import fresh


@pytest.fixture
def llama():
    return fresh("llama")


def ids(subject, n=6):
    return subject.content(torch.arange(n)[None] * 7)


def computed(subject, run):
    """How many passes ``run`` makes inside `kept_rows.reused`."""
    count: list[int] = []
    hook = subject.model.register_forward_pre_hook(lambda *_: count.append(1))
    try:
        with kept_rows.reused(subject):
            run()
    finally:
        hook.remove()
    return len(count)


def test_a_pass_is_looked_up_inside_the_block_alone(llama):
    def run():
        return llama.rows(ids(llama))

    assert [computed(llama, run) for _ in range(3)] == [1, 0, 0]
    with kept_rows.reused(llama):
        kept = run()
    assert all(torch.equal(kept[name], tensor) for name, tensor in run().tensors.items())
    assert kept_rows.spared(llama) == (3, 18)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": torch.tensor([[1, 2, 3]])},
        {"mask": torch.tensor([[0, 1, 1, 1, 1, 1]])},
        {"positions": torch.arange(1, 7)},
        {"states": False},
        {"logits_to_keep": 2},
    ],
    ids=str,
)
def test_another_request_is_another_pass(llama, change):
    computed(llama, lambda: llama.rows(ids(llama)))

    def run():
        return llama.rows(**{"ids": ids(llama), **change})

    assert [computed(llama, run) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize("way", ["a weight", "attention", "training", "a row that was kept"])
def test_what_changes_is_computed_again(llama, way):
    llama.model.set_attn_implementation("sdpa")
    with kept_rows.reused(llama):
        kept = llama.rows(ids(llama))
    with torch.no_grad():
        if way == "a weight":
            llama.model.lm_head.weight[0, 0] += 1
        elif way == "attention":
            llama.model.set_attn_implementation("eager")
        elif way == "training":
            llama.model.train()
        else:
            kept["logits"].zero_()
    try:
        assert computed(llama, lambda: llama.rows(ids(llama))) == 1
    finally:
        llama.model.eval()


def test_passes_with_a_cache_or_from_embeddings_are_always_computed(llama):
    vectors = llama.embedding_table[ids(llama)]
    for run in (
        lambda: llama(ids(llama), keep=True),
        lambda: llama(embeddings=vectors),
    ):
        assert [computed(llama, run) for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_in_the_file_are_the_same(monkeypatch, dtype):
    monkeypatch.setattr(kept_rows, "IN_MEMORY", 0)
    subject = fresh("llama")
    subject.model.to(dtype)

    def run():
        return subject.rows(ids(subject))

    assert [computed(subject, run) for _ in range(2)] == [1, 0]
    with kept_rows.reused(subject):
        kept = run()
    fresh_rows = run()
    assert kept.tensors.keys() == fresh_rows.tensors.keys()
    for name, tensor in fresh_rows.tensors.items():
        assert kept[name].dtype == tensor.dtype == dtype
        assert torch.equal(kept[name], tensor)


@pytest.mark.parametrize("limit", ["ours", "the disk's"])
def test_what_has_no_room_is_computed_again(monkeypatch, limit):
    monkeypatch.setattr(kept_rows, "IN_MEMORY", 0)
    if limit == "ours":
        monkeypatch.setattr(kept_rows, "ON_DISK", 100)
    else:

        def full(**_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(kept_rows.tempfile, "TemporaryFile", full)
    subject = fresh("llama")
    assert [computed(subject, lambda: subject.rows(ids(subject))) for _ in range(2)] == [1, 1]
