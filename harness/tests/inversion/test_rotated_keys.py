"""Keys that rotate are inverted in as few passes as states: they are rotated back first."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion import Target, exact
from assay.harness.inversion import rotated_keys as keys
from assay.harness.inversion.token_by_token import ranked
from assay.harness.models.reference.tolerances import distance
from assay.harness.tests.support.toys import fresh, prompt, toy

ROTARY = ["llama", "gpt_neox", "gptj", "qwen2", "cohere", "glm"]
"""Of halves and of neighbours, of all features and of some, with a bias."""


@pytest.mark.parametrize("name", ["gpt2", "bloom", "opt"])
def test_keys_that_do_not_rotate_stay_as_they_are(name):
    subject, target = toy(name), Target(1, "keys")
    assert keys.rotations(subject, 1, 5) is None
    goal = target.output(subject, prompt(subject, 5))
    assert keys.without_rotation(subject, target, goal) == (target, goal)


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize("n", [12, 60])
def test_prompts_are_found_in_few_passes(name, n):
    subject, target = toy(name), Target(1, "keys")
    ids = prompt(subject, n, batch=2)
    goal = target.output(subject, ids)
    result = exact(subject, target, goal)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert int(result.passes.max()) <= 4
    assert bool((distance(target.output(subject, result.ids), goal) < 1e-5).all())
    assert bool(ranked(subject, target, goal[:, :4]).verified.all())


def test_more_than_a_rotation_is_left_alone():
    """Keys that also grow from place to place are inverted as they are."""
    subject, target = fresh("llama"), Target(1, "keys")
    usual = Target.keys_or_values

    def growing(self, subject, ids, cache=None, **inputs):
        made = usual(self, subject, ids, cache, **inputs)
        return made * torch.arange(1, made.shape[1] + 1)[:, None, None]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Target, "keys_or_values", growing)
        assert keys.rotations(subject, 1, 5) is None
        goal = target.output(subject, prompt(subject, 5))
        assert keys.without_rotation(subject, target, goal)[0] == target


def test_rotations_that_end_somewhere_are_left_alone_beyond(monkeypatch):
    """What was found for short prompts says nothing of long ones."""
    subject, target = fresh("llama"), Target(1, "keys")
    assert keys.rotations(subject, 1, 5) is not None
    usual = Target.keys_or_values

    def growing(self, subject, ids, cache=None, positions=None, **inputs):
        made = usual(self, subject, ids, cache, positions=positions, **inputs)
        places = torch.arange(made.shape[1]) if positions is None else positions
        return made * torch.where(places < 40, 1.0, 1.5)[:, None, None]

    monkeypatch.setattr(Target, "keys_or_values", growing)
    ids = prompt(subject, 50, batch=2)
    result = exact(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert keys.rotations(subject, 1, 50) is None
