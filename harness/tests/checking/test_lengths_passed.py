"""One prompt of a law passes the model's windows; a result says which it passed and which not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.cache.test_cache import (
    test_cached_decoding_equals_recomputation as cached_decoding,
)
from assay.claims.cache.test_causality import test_a_prefix_ignores_what_follows_it as prefixes
from assay.claims.cache.test_generation import (
    test_generation_is_the_same_with_and_without_the_cache as generation,
)
from assay.claims.cache.test_padding import test_padding_and_batch_mates_change_nothing as padding
from assay.claims.running.test_prefixes import (
    test_copies_of_a_prefix_are_continued_alike as copies,
)
from assay.claims.running.test_prefixes import (
    test_turns_on_one_cache_are_those_read_again as turns,
)
from assay.fixtures.prompts import LONGEST, prompts
from assay.harness import faults
from assay.harness.checking.laws import law
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.subject import edges
from assay.harness.models.subject.lengths import FAR
from assay.harness.results.expectations import judge
from assay.harness.results.verdicts import NOT_PASSED, NOT_REACHED, PASSED, Verdict
from assay.harness.tests.support.completed import completed
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import budget, fresh, verdict, with_settings

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


FAR_ON = [
    (prefixes, {}, "future-seen-far-on"),
    (cached_decoding, {"kind": "default"}, "far-keys-shifted"),
    (padding, {}, "padding-mask-ignored-in-a-wide-batch"),
    nightly(generation, {"mode": "greedy"}, "far-keys-shifted"),
    nightly(turns, {}, "far-keys-shifted"),
    nightly(copies, {}, "far-keys-shifted"),
]
"""Laws with a far prompt, and a fault that shows nowhere else."""


@pytest.mark.parametrize(("body", "arguments", "fault"), FAR_ON)
def test_a_far_prompt_shows_what_no_other_does(body, arguments, fault):
    sound = fresh("llama")
    sound.model.config.max_position_embeddings = 512

    def result(subject):
        return verdict(body, subject, PROFILES["glance"], arguments=arguments)

    kept = result(sound)
    assert (kept.verdict, kept.reason) == (Verdict.UPHELD, ""), "one prompt has FAR tokens"
    with faults.injected(faults.named(fault), sound) as subject:
        assert result(subject).verdict is Verdict.REFUTED


def test_a_context_too_short_for_a_far_prompt_is_reported():
    result = verdict(prefixes, fresh("llama"), PROFILES["glance"])
    assert (result.verdict, result.reason) == (
        Verdict.UPHELD,
        f"compared up to 64 tokens, not {FAR}",
    )


def test_a_large_model_has_no_far_prompt():
    subject = fresh("llama")
    subject.model.config.max_position_embeddings = 512
    assert completed(prompts(subject, 2, far=1))[0].length == FAR
    large = with_settings(subject, reach=200.0 * subject.model.num_parameters())
    prompt, _, _ = completed(prompts(large, 2, far=1))
    assert (prompt.goal, prompt.length) < (1, FAR)
