"""One prompt of a law passes the model's windows; a result says which it passed and which not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.cache.test_cache import (
    test_cached_decoding_equals_recomputation as cached_decoding,
)
from assay.fixtures.prompts import LONGEST, prompts
from assay.harness.checking.laws import law
from assay.harness.models.subject import edges
from assay.harness.results.expectations import judge
from assay.harness.results.verdicts import NOT_PASSED, NOT_REACHED, PASSED, Verdict
from assay.harness.tests.support.completed import completed
from assay.harness.tests.support.toys import budget, fresh, verdict

WIDE = 300
"""A window longer than any usual prompt."""


def with_window(size=WIDE, far=None):
    """A model with a window of this size in a context of 512; one pass of ``far`` tokens."""
    subject = fresh("mistral")
    subject.model.config.sliding_window = size
    subject.model.config.max_position_embeddings = 512
    return subject, far and far * subject.model.num_parameters()


def declare(body):
    return law("X1", "says", source="here", control="the control")(body)


def passing(subject, draw, check):
    draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    check.judge(0.0, 1.0)
    check.judge_control(2.0, 1.0)


def test_one_prompt_is_past_a_window_longer_than_all_others():
    subject, _ = with_window()
    assert edges.beyond(subject) == WIDE + edges.PAST
    prompt, draws, all_draws = completed(prompts(subject, 2, at_edges=True))
    assert all_draws[:-1] == draws
    assert prompt.length == WIDE + edges.PAST
    rest = prompt.ids[:, LONGEST:]
    assert not torch.equal(rest, prompt.ids[:, : rest.shape[1]])


def test_room_in_the_context_stays_free():
    subject, _ = with_window()
    assert edges.beyond(subject, room=512 - WIDE - 6) == WIDE + 6
    assert edges.beyond(subject, room=512 - WIDE) is None


def test_another_prompt_passes_the_window_while_it_is_continued():
    subject, _ = with_window()

    def made(number, room):
        return completed(prompts(subject, 2, longest=32, at_edges=True, room=room), number)[0]

    assert made(0, room=6).length == WIDE + edges.PAST
    assert made(1, room=6).length == WIDE - 3
    assert made(1, room=0).length <= 32


@pytest.mark.parametrize("tokens", [WIDE - 1, WIDE + 1])
def test_a_window_that_costs_too_much_is_not_passed_and_the_result_says_so(tokens):
    subject, far = with_window(far=tokens)
    result = verdict(declare(passing), subject, replace(budget(4), far=far))
    assert result.verdict is Verdict.UPHELD
    if tokens > WIDE:
        assert result.details[PASSED] == {"sliding_window": WIDE}
        return
    assert result.details[NOT_PASSED] == {"sliding_window": WIDE}
    assert result.reason.startswith("compared up to ")
    assert result.reason.endswith(f"not past sliding_window of {WIDE}")


def test_a_cache_that_never_slid_is_not_reached_and_fails_no_run():
    subject, far = with_window(far=16)
    result = verdict(
        cached_decoding, subject, replace(budget(4), far=far), arguments={"kind": "sliding"}
    )
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "not reached" in result.reason
    assert f"a window of {WIDE} tokens that slides" in result.details[NOT_REACHED]
    judgement = judge(result, None)
    assert (judgement.status, judgement.fails) == ("inconclusive", False)
