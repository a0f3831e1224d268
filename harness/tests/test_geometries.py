"""Models of usual sizes, made where they compute, and refused where they do not fit."""

from __future__ import annotations

import pytest
import torch

from fixtures import geometries, subjects
from harness import memory
from harness.errors import BadInput
from harness.runs import Options

CPU = torch.device("cpu")
SMALL = "rotary-small"


def test_the_published_sizes_are_met():
    """Parameters as published: GPT-2's 124 M, 355 M and 1.56 B, Llama 3's 8.03 B."""
    published = {"gpt2": 124e6, "gpt2-medium": 355e6, "gpt2-xl": 1.558e9, "rotary-8b": 8.03e9}
    for name, count in published.items():
        assert geometries.size(name, torch.bfloat16) == pytest.approx(2 * count, rel=0.005)


def test_one_is_made_and_runs():
    subject = subjects.load(f"geometry:{SMALL}", Options())
    assert subject.context == 8192
    logits = subject.rows(torch.arange(6)[None])["logits"]
    assert logits.shape == (1, 6, 4096)
    count = sum(each.numel() for each in subject.model.parameters())
    assert count * 4 == geometries.size(SMALL, torch.float32)


def test_weights_hang_on_the_seed_alone():
    one, same, other = (
        geometries.made(name, CPU, torch.float32).get_input_embeddings().weight
        for name in (SMALL, f"{SMALL}:0", f"{SMALL}:1")
    )
    assert one.equal(same)
    assert not one.equal(other)
    torch.manual_seed(7)
    before = torch.rand(1)
    torch.manual_seed(7)
    geometries.made(SMALL, CPU, torch.float32)
    assert torch.rand(1).equal(before)


def test_one_that_does_not_fit_is_refused_with_what_it_needs(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 2**30)
    why = r"needs 15\.0 GiB .* in bfloat16, and 1\.0 GiB are free on cpu"
    with pytest.raises(geometries.TooLarge, match=why):
        subjects.load("geometry:rotary-8b", Options(dtype="bfloat16"))
    geometries.refuse_too_large(SMALL, CPU, torch.float32)


@pytest.mark.parametrize(
    ("name", "why"), [("gpt5", "there are gpt2"), (f"{SMALL}:x", "is not a whole number")]
)
def test_a_name_that_is_none_is_refused(name, why):
    with pytest.raises(BadInput, match=why):
        subjects.check(f"geometry:{name}", Options())
