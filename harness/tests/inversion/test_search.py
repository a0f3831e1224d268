"""Exact search: the truth on every type of model, verified, honestly counted, ambiguity told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from assay.harness.inversion import Prefixes, Target, accepted, exact, linear_map
from assay.harness.inversion.token_by_token import exhaustive, ranked
from assay.harness.inversion.whole_prompts import TRIES
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.tests.support.toys import prompt, toy

SEARCHES = pytest.mark.parametrize("method", [exact, ranked, exhaustive])
ONE_BY_ONE = pytest.mark.parametrize("method", [ranked, exhaustive])

MODELS = (*("gpt2", "opt", "llama", "bloom", "mistral", "gemma2", "mamba", "mixtral", "t5"),)
"""Learned, rotary and relative positions, windows of 8, a recurrence, experts, two stacks."""


def uncached(prefixes: Prefixes, subject: Subject, target: Target, rows: int) -> None:
    """`Prefixes.__init__` as it is for models that take no cache."""
    made(prefixes, subject, target, rows)
    prefixes.cache = None


made = Prefixes.__init__


@contextmanager
def tokens_through(subject: Subject) -> Iterator[list[int]]:
    """How many tokens every pass sends through the first block."""
    went: list[int] = []

    def hear(module: torch.nn.Module, arguments: tuple, named: dict) -> None:
        states = arguments[0] if arguments else named["hidden_states"]
        went.append(states.shape[0] * states.shape[1])

    hook = subject.blocks[0].register_forward_pre_hook(hear, with_kwargs=True)
    try:
        yield went
    finally:
        hook.remove()


# The truth.


@pytest.mark.parametrize("model_type", MODELS)
def test_both_find_the_prompt_at_every_depth(model_type):
    """Nine tokens are one more than a window holds."""
    subject = toy(model_type)
    ids = prompt(subject, 9 if subject.window else 4)
    for depth in [subject.layers] if subject.window else range(subject.layers + 1):
        target = Target(depth)
        wanted = target.output(subject, ids)
        for result in (exact(subject, target, wanted), exhaustive(subject, target, wanted)):
            assert torch.equal(result.ids, ids)
            assert bool(result.verified.all())
            assert bool((result.distances <= accepted(subject)).all())
            assert not result.others
        assert bool(
            (distance(target.output(subject, result.ids), wanted) <= accepted(subject)).all()
        )


@SEARCHES
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_in_other_dtypes_the_prompt_is_among_what_is_found(method, dtype):
    subject = toy("gpt2", dtype)
    ids, target = prompt(subject, 6), Target(2)
    result = method(subject, target, target.output(subject, ids))
    for where, token in zip(torch.ones_like(ids).nonzero().tolist(), ids.flatten(), strict=True):
        assert int(token) in result.others.get(tuple(where), [int(result.ids[tuple(where)])])
    assert bool(result.verified.all())


# What is not there.


@SEARCHES
def test_what_is_no_state_of_the_model_is_not_verified(method):
    subject, target = toy("gpt2"), Target(2)
    ids = prompt(subject, 3)
    wanted = target.output(subject, ids)
    for other in (wanted.flip(1), -wanted, target.output(toy("opt"), ids)):
        result = method(subject, target, other)
        assert not result.verified[:, 0].any()
        # `exact` first tries its guesses.
        tries = TRIES if method is exact else 0
        assert bool((result.tried[:, 0] - subject.vocabulary <= tries).all())
        assert bool((result.tried[:, 0] >= subject.vocabulary).all())
        off = distance(target.output(subject, result.ids), other)
        assert torch.equal(off <= accepted(subject), result.verified)
        assert torch.allclose(off, result.distances, rtol=1e-3, atol=1e-6)


@SEARCHES
@pytest.mark.parametrize("damage", [1e-4, 0.03])
def test_a_damaged_state_is_not_verified_and_its_neighbours_are(method, damage):
    subject, target = toy("gpt2"), Target(2)
    ids = prompt(subject, 6)
    wanted = target.output(subject, ids)
    wanted[1, 3] *= 1 + damage
    result = method(subject, target, wanted)
    assert (~result.verified).nonzero().tolist() == [[1, 3]]
    assert torch.equal(result.ids, ids)
    assert float(result.distances[1, 3]) == pytest.approx(damage / (1 + damage), rel=0.01)


# What is counted.


@ONE_BY_ONE
@pytest.mark.parametrize("cached", [True, False])
def test_as_many_candidates_are_counted_as_go_through_the_model(monkeypatch, method, cached):
    subject, target = toy("gpt2"), Target(1)
    ids = prompt(subject, 6)
    wanted = target.output(subject, ids)
    known = linear_map(subject, target)
    if not cached:
        monkeypatch.setattr(Prefixes, "__init__", uncached)
    with tokens_through(subject) as went:
        result = method(subject, target, wanted)
    again = ids.numel() if cached else int((result.tried * torch.arange(6)).sum())
    assert sum(went) == result.tried.sum() + again  # and the prompts, once or every time
    assert result.set_up == (known.states if method is ranked else 0)
    assert result.exhaustive == (method is exhaustive)
    assert bool((result.tried == subject.vocabulary).all()) == (method is exhaustive)
    assert bool((result.tried >= 8).all())
