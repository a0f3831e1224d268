"""Ways of running a model that must not change what it computes (document 004 and beyond)."""

from __future__ import annotations

import pytest
import torch

from fixtures.prompts import prompts
from harness import capabilities, twins
from harness.laws import law


@law(
    "C8",
    "attention implementations agree",
    source="beyond the documents",
    control="the other implementation, with the first token hidden from it",
)
@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
def test_attention_implementations_agree(subject, implementation, draw, check):
    twins.require_attention(subject, implementation)
    prompt = draw(prompts(subject, shortest=2, least_rows=2), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids))
    with subject.attending_by(implementation):
        check.same(expected, subject.rows(prompt.ids))
        if "padding" in capabilities.of(subject):
            hidden = torch.ones_like(prompt.ids)
            hidden[:, 0] = 0
            later = slice(1, None)
            check.rejects(
                expected.at(later), lambda: subject.rows(prompt.ids, mask=hidden).at(later)
            )


@law(
    "C10",
    "saving and loading change nothing",
    source="beyond the documents",
    control="the loaded copy with the embedding of one token of the prompt moved by a hundredth",
)
def test_saving_and_loading_change_nothing(subject, draw, check):
    prompt = draw(prompts(subject), "prompt")
    copy = twins.saved_and_loaded(subject)
    ours, theirs = subject.rows(prompt.ids), copy.rows(prompt.ids)
    check.judge(twins.share_that_differs(ours, theirs), 0.0, "some element")
    if check.wants_control:
        with twins.nudged(copy, int(prompt.ids[0, 0])):
            check.judge_control(twins.share_that_differs(ours, copy.rows(prompt.ids)), 0.0)
