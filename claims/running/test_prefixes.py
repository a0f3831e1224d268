"""Prefixes that are read once: over turns, copied, or in chunks (beyond the documents)."""

from __future__ import annotations

import copy

import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import LONGEST, other_ids, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import rotations
from assay.harness.operations import generation

TURNS = 3


@law(
    "G7",
    "a conversation on one cache is continued as when all of it is read again",
    needs=["continued-generation", "lm-head", "causal"],
    source="beyond the documents",
    control="the cache of another first turn",
    enough=4,
)
def test_turns_on_one_cache_are_those_read_again(subject, draw, check):
    said = draw(short_prompts(subject, TURNS), "prompt")
    later = [subject.content(said.ids + 11 * turn) for turn in range(1, TURNS)]
    first = generation.continued(subject, said.ids)
    for number, more in enumerate(later):
        ids = torch.cat([first.sequence, more[:, : 3 + number]], dim=1)
        again = generation.scores(subject, ids, "greedy", cached=False)
        turn = generation.continued(subject, ids, first.cache)
        expected, same = again.reference(subject), slice(0, again.common(turn))
        check.same(expected.at(same), turn.rows.at(same))
        allowed = generation.near_tie(expected.at(same), check.tolerance)
        check.judge(again.gap(turn), allowed, f"the choice in turn {number + 2}")
        if check.wants():
            other = cache_of(subject, subject.content(ids[:, :-1] + 5))
            wrong = generation.continued(subject, ids, other)
            check.rejects(expected.at(slice(0, 1)), wrong.rows.at(slice(0, 1)))
        first = turn


@law(
    "G7",
    "a prefix read once is continued by copies of its cache as when it is read each time",
    needs=["continued-generation", "lm-head", "causal"],
    source="beyond the documents",
    control="the cache of another prefix",
    enough=4,
)
def test_copies_of_a_prefix_are_continued_alike(subject, draw, check):
    prefix = draw(short_prompts(subject, 1), "prompt")
    others = draw(other_ids(subject, prefix), "other ids")
    cache = cache_of(subject, prefix.ids)
    for number in range(2):
        ids = torch.cat([prefix.ids, subject.content(prefix.ids[:, :1] + 7 + number)], dim=1)
        again = generation.scores(subject, ids, "greedy", cached=False)
        copied = generation.continued(subject, ids, copy.deepcopy(cache))
        expected, same = again.reference(subject), slice(0, again.common(copied))
        check.same(expected.at(same), copied.rows.at(same))
        if check.wants():
            wrong = generation.continued(subject, ids, cache_of(subject, others))
            check.rejects(expected.at(slice(0, 1)), wrong.rows.at(slice(0, 1)))


@law(
    "G7",
    "a prompt read in chunks is continued as when it is read at once",
    needs=["chunked-generation", "lm-head", "causal"],
    source="beyond the documents",
    control="a prompt whose last token is another",
    enough=6,
)
def test_a_prompt_read_in_chunks_is_continued_alike(subject, draw, check):
    prompt = draw(short_prompts(subject, 1, far=0), "prompt")
    size = draw(st.integers(1, max(1, prompt.length - 1)), "chunk")
    whole = generation.scores(subject, prompt.ids, "greedy", cached=False)
    chunks = generation.scores(subject, prompt.ids, "greedy", cached=True, prefill_chunk_size=size)
    expected, same = whole.reference(subject), slice(0, whole.common(chunks))
    check.same(expected.at(same), chunks.rows.at(same))
    allowed = generation.near_tie(expected.at(same), check.tolerance)
    check.judge(whole.gap(chunks), allowed, "the choice of a token")
    altered = prompt.ids.clone()
    altered[:, -1] = subject.content(altered[:, -1] + 3)
    check.rejects(
        expected.at(slice(0, 1)),
        lambda: generation.scores(
            subject, altered, "greedy", cached=True, prefill_chunk_size=size
        ).rows.at(slice(0, 1)),
    )


def cache_of(subject, ids):
    """The cache of a pass over ``ids`` [batch, n]."""
    return subject(ids, keep=True, states=False).cache


def short_prompts(subject, turns_taken, far=1):
    """Prompts of 2 to 16 tokens, or far ones, that leave room for their continuations.

    These end before the frequencies of a rotation switch, as cached keys keep theirs, unless the
    model then reads all tokens again.  Raises `Missing` where there is no room.
    """
    context = subject.context
    if "rotation-made-again" in capabilities.probe(subject):
        context = rotations.longest(subject.config)
    taken = turns_taken * (generation.NEW_TOKENS + 4)
    room = (context or 96) - taken
    if room < 2:
        raise Missing(f"generation: a context of {context} tokens has too little room")
    far = far if (subject.context or LONGEST) - taken >= 16 else 0
    return prompts(subject, 2, min(16, room), rows=2, room=taken if far else 0, far=far)
