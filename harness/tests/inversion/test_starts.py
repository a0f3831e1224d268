"""The slip of document 003's code, what positions add, and where descents begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from assay.harness.inversion import Rule, Target, embedded, invert, start
from assay.harness.models.subject import Subject, positions
from assay.harness.operations.position_rows import rows_replaced, rows_used
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.descents import same_output
from assay.harness.tests.support.toys import prompt, toy


@contextmanager
def everyone_at_the_first_place(subject: Subject, n: int) -> Iterator[None]:
    """Row 0 of the position table written over the others; rotary angles all zero."""
    if positions.position_table(subject) is not None:
        with rows_replaced(subject, rows_used(subject)[:1].expand(n, -1)):
            yield
        return
    turns = [m for name, m in subject.model.named_modules() if name.endswith("rotary_emb")]
    hooks = [
        module.register_forward_hook(lambda m, x, r: (torch.ones_like(r[0]), r[1] * 0))
        for module in turns
    ]
    assert hooks
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "llama", "bert", "roberta", "albert"])
def test_the_slip_puts_every_token_at_the_first_place_and_does_nothing_else(model_type):
    subject = toy(model_type)
    ids = prompt(subject)
    for depth in range(subject.layers + 1):
        with everyone_at_the_first_place(subject, 9):
            slow = Target(depth).output(subject, ids)
        fast = Target(depth, slip=True).output(subject, ids)
        rows = Target(depth, slip=True).output(subject, embeddings=embedded(subject)[ids])
        assert same_output(fast, slow)
        assert same_output(rows, slow)
        if model_type != "llama" or depth:
            assert not same_output(Target(depth).output(subject, ids), slow)


@pytest.mark.parametrize("model_type", ["t5", "bloom", "mamba"])
def test_a_slip_needs_a_model_that_takes_positions(model_type):
    subject = toy(model_type)
    words = f"slip: tiny:{model_type} cannot be given positions"
    with pytest.raises(BadInput, match=words):
        Target(1, slip=True).check(subject)
    with pytest.raises(BadInput, match=words):
        Target(1, slip=True).output(subject, prompt(subject))
    Target(1).check(subject)


def test_a_slip_past_a_window_is_refused():
    subject = toy("mistral")
    Target(1, slip=True).output(subject, prompt(subject, n=8))
    with pytest.raises(BadInput, match="slip: 9 tokens, and tiny:mistral has a window of 8"):
        Target(1, slip=True).output(subject, prompt(subject, n=9))


# Starts.


@pytest.mark.parametrize("slip", [False, True])
def test_an_inversion_begins_where_it_is_told_to(slip):
    subject, target = toy("gpt2"), Target(0, slip=slip)
    wanted = target.output(subject, prompt(subject))
    for begin, mean, size in (("documented", 0.5, 0.05), ("scaled", 0, start.spread(subject))):
        made = invert(subject, target, wanted, "descent", rate=0.0, rule=Rule(1), begin=begin)
        embeddings = made.embeddings
        noise = embeddings if begin == "scaled" else target.output(subject, embeddings=embeddings)
        assert torch.allclose(noise.mean((0, 2)), torch.tensor(mean).float(), atol=size / 2)
        assert float(noise.std()) == pytest.approx(size, rel=0.1)
