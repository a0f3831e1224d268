"""Numbers that are not finite are found, named, and never left out without a word."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st

from assay.claims.cache import test_finite
from assay.fixtures.prompts import prompts
from assay.harness.checking.check import NOT_NUMBERS
from assay.harness.checking.laws import law
from assay.harness.models.reference import finiteness
from assay.harness.models.subject.rows import Rows
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.verdicts import SEES_ONE, Verdict
from assay.harness.tests.support.toys import (
    budget,
    exactly,
    fresh,
    one_tensor,
    toy,
    verdict,
)

C13 = test_finite.test_finite_inputs_give_finite_outputs


def spoiled_for(spec: str, token: int, value: float = math.nan):
    """A model whose last row of one token's embedding is not finite."""
    subject = fresh(spec)

    def spoil(module, arguments, result):
        return result.masked_fill((arguments[0] == token)[..., None], value)

    for module in subject.model.modules():  # an encoder's and a decoder's may be two
        if isinstance(module, torch.nn.Embedding) and len(module.weight) == subject.vocabulary:
            module.register_forward_hook(spoil)
    return subject


@pytest.mark.parametrize("spec", ["gpt2", "bert", "mamba2", "t5"])
def test_sound_models_give_finite_outputs(spec):
    assert verdict(C13, toy(spec), budget(3)).verdict is Verdict.UPHELD


def test_one_element_is_injected_into_each_tensor_and_seen():
    counts = verdict(C13, toy("t5"), budget(2)).details[SEES_ONE]
    ids = toy("t5").content(torch.arange(2)[None])
    many = 2 * 2 * len(finiteness.outputs(toy("t5"), ids).tensors)  # examples, NaN and infinity
    assert counts == {"what": "element that is not finite", "injected": many, "seen": many}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spec", ["gpt2", "t5"])
def test_one_token_of_all_that_gives_no_number_is_named(spec, value):
    subject = toy(spec)
    token = int(subject.content(torch.tensor([77])))
    result = verdict(C13, spoiled_for(spec, token, value), budget(3))
    assert result.verdict is Verdict.REFUTED
    assert f"token <{token}>({token})" in result.counterexample.where
    assert result.counterexample.where.endswith("position 0")


def test_tokens_that_the_library_takes_out_of_the_vocabulary_do_not_count():
    logits = torch.zeros(2, 3, 5)
    logits[..., 4] = -math.inf
    assert finiteness.first(Rows({"logits": logits})) is None
    logits[1, 2, 3] = -math.inf
    assert finiteness.first(Rows({"logits": logits})) == ("logits", 1, 2)
    logits[..., 3] = math.inf
    assert finiteness.first(Rows({"logits": logits})) == ("logits", 0, 0)
    assert finiteness.first(Rows({"state 1": torch.full((1, 1, 2), -math.inf)})) is not None


# Comparisons of other laws.


def with_nan(rows: Rows, row: int = 0) -> Rows:
    return rows.map(lambda t: t.clone().index_fill(1, torch.tensor([row]), math.nan))


ONES = one_tensor(torch.ones(1, 3, 4))


def test_a_law_that_has_nothing_but_nan_is_undecided():
    @law("X1", "says", source="here", control="none")
    def body(draw, check):
        draw(st.integers(), "number")
        nothing = ONES.map(lambda t: t * math.nan)
        check.same(exactly(nothing), nothing)

    result = verdict(body, toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == f"no example could be compared: {NOT_NUMBERS}"


def test_a_law_that_lost_some_rows_to_nan_says_how_many():
    @law("X1", "says", source="here", control="twice as large")
    def body(subject, draw, check):
        ids = draw(prompts(subject, shortest=2), "prompt").ids
        expected = check.reference(lambda s: s.rows(ids))
        expected = expected.map(with_nan)
        check.same(expected, with_nan(subject.rows(ids)))
        check.rejects(expected, with_nan(subject.rows(ids)).map(lambda t: 2 * t))

    result = verdict(body, toy("gpt2"), budget(4))
    assert result.verdict is Verdict.UPHELD
    assert result.details[NOT_NUMBERS] > 0


def test_of_a_large_vocabulary_the_tokens_of_extreme_rows_are_run():
    subject = fresh("gpt2")
    ids = torch.arange(subject.vocabulary)
    with torch.no_grad():
        subject.embedding_table[17] *= 1e3
        subject.embedding_table[23] *= 1e-3
    few = finiteness._telling(subject, ids, 8)
    assert {17, 23, 0, len(ids) - 1} <= set(few.tolist())
    assert len(few) <= 8


@pytest.mark.parametrize("share", [10.0, 0.2])
def test_as_many_tokens_are_run_alone_as_the_reach_allows(monkeypatch, share):
    subject, usual, ran = fresh("gpt2"), finiteness.outputs, []
    most = share * subject.vocabulary * subject.model.num_parameters()
    subject.settings = SubjectSettings(reach=most / finiteness.PASSES)
    monkeypatch.setattr(
        finiteness, "outputs", lambda s, ids: ran.append(len(ids)) or usual(s, ids)
    )
    finiteness.of_vocabulary(subject)
    most = min(1.0, share) * subject.vocabulary
    assert 0.8 * most <= sum(ran) <= most
