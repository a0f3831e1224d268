"""Prompts that a state cannot tell apart: all of them are told, and none is invented."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion import METHODS, Target, invert, token_by_token
from assay.harness.inversion.token_by_token import exhaustive, ranked
from assay.harness.inversion.whole_prompts import exact
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.tests.support.descents import inversion_by
from assay.harness.tests.support.toys import fresh, prompt, toy

SEARCHES = pytest.mark.parametrize("method", [exact, ranked, exhaustive])
OVER_ALL = pytest.mark.parametrize("method", METHODS)


def with_copies(*copies: int, of: int = 7) -> Subject:
    """A model in which the tokens ``copies`` are embedded as ``of`` is."""
    subject = fresh("gpt2")
    with torch.no_grad():
        subject.embedding_table[list(copies)] = subject.embedding_table[of].clone()
    return subject


# Tokens of equal rows.


@SEARCHES
@pytest.mark.parametrize("copies", [[30], [1, 30, 100], list(range(20, 60))], ids=len)
def test_tokens_of_equal_rows_are_all_told(method, copies):
    """The most of them are more than a round of `exact` tries."""
    subject, target, equal = with_copies(*copies), Target(2), sorted([7, *copies])
    ids = torch.tensor([[4, 5, 7, 9, 2], [3, copies[-1], 8, 6, 7]])
    result = method(subject, target, target.output(subject, ids))
    assert result.others == dict.fromkeys([(0, 2), (1, 1), (1, 4)], equal)
    assert bool(result.verified.all())
    one, other = (
        each.where(~torch.isin(each, torch.tensor(equal)), 7) for each in (ids, result.ids)
    )
    assert torch.equal(one, other)


@SEARCHES
def test_a_token_that_breaks_the_model_hides_no_other(method):
    subject, target = fresh("gpt2"), Target(2)
    ids = prompt(subject, 5)
    wanted = target.output(subject, ids)
    broken = next(t for t in range(subject.vocabulary) if not (ids == t).any())
    with torch.no_grad():
        subject.embedding_table[broken] = torch.nan
    result = method(subject, target, wanted)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


@OVER_ALL
def test_tokens_of_equal_rows_are_told_by_every_method(method):
    subject = fresh("gpt2")
    with torch.no_grad():
        subject.embedding_table[[30, 31]] = subject.embedding_table[7].clone()
    ids = torch.tensor([[4, 7, 5], [31, 4, 5]])
    result = inversion_by(method, subject, Target(0), ids)
    assert result.others == {(0, 1): [7, 30, 31], (1, 0): [7, 30, 31]}
    assert bool(result.verified.all())


# Prompts of any length.

REPEATED = torch.tensor([[9, 9, 9], [9, 9, 8], [5, 5, 5]])


@pytest.mark.parametrize(
    ("model_type", "rows"), [("llama", [0, 2]), ("gpt2", []), ("opt", []), ("mamba", [])]
)
@pytest.mark.parametrize("method", ["exact", "token-by-token", "exhaustive"])
def test_repetitions_of_a_token_are_of_any_length_without_absolute_positions(
    method, model_type, rows
):
    subject, target = toy(model_type), Target(2)
    result = inversion_by(method, subject, target, REPEATED)
    assert torch.equal(result.ids, REPEATED)
    assert result.any_length == rows
    ends = [target.output(subject, torch.full((1, n), 9))[:, -1:] for n in (3, 17)]
    assert bool(distance(*ends) <= token_by_token.accepted(subject)) == bool(rows)


def test_a_descent_tells_of_any_length_as_well():
    assert inversion_by("descent", toy("llama"), Target(0), REPEATED).any_length == [0, 2]
    assert inversion_by("descent", toy("bert"), Target(0), REPEATED).any_length == []


def test_what_is_not_verified_is_not_of_any_length():
    subject, target = toy("llama"), Target(2)
    wanted = target.output(subject, REPEATED)
    wanted[0, 1] += 0.01
    assert invert(subject, target, wanted).any_length == [2]
