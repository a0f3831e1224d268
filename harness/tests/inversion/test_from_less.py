"""Inversions of less than all states: verified only where they are right."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion import Target, from_last, from_less, from_shuffled
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import prompt, toy


@pytest.fixture
def few(monkeypatch):
    """Probes are fitted to few prompts."""
    monkeypatch.setattr(from_less, "FITTED", 64)


@pytest.mark.usefixtures("few")
def test_a_last_state_verifies_the_prompt_whose_it_is_and_no_other(monkeypatch):
    subject, target = toy("gpt2"), Target(2)
    ids = prompt(subject, 4, batch=2)
    last = target.output(subject, ids)[:, -1]
    result = from_last(subject, target, last, 4)
    slow = from_less.fit_probes(subject, target, 4).decode(last)
    assert torch.equal(result.ids, slow)
    right = (result.ids == ids).all(1)
    assert torch.equal(result.verified.all(1), right)

    class Knowing:
        def decode(self, states: torch.Tensor) -> torch.Tensor:
            return torch.stack([ids[0], ids[0]])

    monkeypatch.setattr(from_less, "fit_probes", lambda *which: Knowing())
    known = from_last(subject, target, last, 4)
    assert known.verified.all(1).tolist() == [True, False]


def test_what_is_no_output_is_refused():
    with pytest.raises(BadInput, match="features"):
        from_shuffled(toy("gpt2"), Target(2), torch.zeros(1, 3, 5))
    with pytest.raises(BadInput, match="not finite"):
        from_last(toy("gpt2"), Target(2), torch.full((1, toy("gpt2").hidden), torch.nan), 3)
