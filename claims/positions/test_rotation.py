"""Rotary positions that are scaled for prompts longer than in training (beyond the documents)."""

from __future__ import annotations

import functools

import hypothesis
import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.models.capabilities import caches
from assay.harness.models.reference.tolerances import bit_equal, one_bit_off
from assay.harness.models.subject import lengths, rotations
from assay.harness.operations import frequencies, generation


@law(
    "A15",
    "a scaled rotation has the frequencies that the configuration names, at every length",
    needs=["scaled-rotation"],
    source="beyond the documents",
    control="the frequencies without their scaling",
)
def test_a_scaled_rotation_has_the_frequencies_of_its_configuration(subject, draw, check):
    frequencies.require(subject)
    prompt = draw(prompts(subject, shortest=2, at_edges=True, scaled=True), "prompt")
    made_for = max(rotations.made_for(subject.config), default=0)
    check.reaches(f"more than the {made_for} of training", prompt.length > made_for)

    def rows(s):
        s.rows(prompt.ids[:, : subject.shortest])  # forgets a longer prompt's frequencies
        return s.rows(prompt.ids)

    with frequencies.forgotten(subject, prompt.ids):
        expected = check.reference(rows)
        with frequencies.by_formula(subject, prompt.length):
            by_formula = subject.rows(prompt.ids)
        check.same(expected, by_formula)  # outside, as it may run the plain path again
        with frequencies.by_formula(subject, prompt.length, scaled=False):
            check.rejects(expected, subject.rows(prompt.ids))


@law(
    "A15",
    "a prompt as long as in training is read alike before and after a longer one",
    needs=["switched-rotation"],
    source="beyond 004",
    control="the frequencies of the longer one",
    enough=12,
)
def test_a_longer_prompt_leaves_no_frequencies_behind(subject, draw, check):
    frequencies.require(subject)
    longer = past_the_switch(subject, draw, check).ids
    switch = rotations.required_switch(subject.config)
    ids = longer[:, : draw(st.just(switch) | st.integers(subject.shortest, switch), "length")]

    def rows(s):
        s.rows(ids[:, : subject.shortest])  # forgets a longer prompt's frequencies
        return s.rows(ids)

    expected = check.reference(rows)
    with frequencies.forgotten(subject, ids):
        subject.rows(longer)
        check.same(expected, subject.rows(ids))
        with frequencies.by_formula(subject, longer.shape[1]):
            check.rejects(expected, subject.rows(ids))


@law(
    "A15",
    "past the switch of a rotation, a prefix's states do not change when tokens are appended",
    needs=["causal", "fixed-sight", "two-rotations"],
    source="004, answer 2; 000, solution",
    control="a prefix before the switch, whose frequencies are others",
)
def test_a_prefix_past_the_switch_ignores_what_follows_it(subject, draw, check):
    prompt = past_the_switch(subject, draw, check)
    switch = rotations.required_switch(subject.config)
    cut = draw(st.integers(switch + 1, prompt.length - 1), "cut")
    expected = check.reference(lambda s: s.rows(prompt.ids[:, :cut]))
    check.same(expected, subject.rows(prompt.ids).at(slice(0, cut)))
    short = slice(0, switch)
    check.rejects(expected.at(short), lambda: subject.rows(prompt.ids[:, :switch]))


@law(
    "A15",
    "past the switch of a rotation, cached decoding equals recomputation",
    needs=["causal", "cache", "two-rotations"],
    source="004, answers 1 and 2",
    control="a cache shifted by one: filled with the prompt moved one place to the right",
)
@pytest.mark.parametrize("kind", ["default", "static"])
def test_cached_decoding_past_the_switch_equals_recomputation(subject, kind, draw, check):
    caches.make(subject, kind, 1, 1)
    prompt = past_the_switch(subject, draw, check)
    switch = rotations.required_switch(subject.config)
    first = draw(st.integers(switch + 1, prompt.length - 1), "first chunk")
    rest = prompt.length - first
    together = rest if "chunks-beside-cache" in capabilities.probe(subject) else 1
    size = draw(st.sampled_from(sorted({1, together})), "size of the others")
    decode = functools.partial(
        caches.decode, subject, prompt.ids, [first] + [size] * (rest // size), kind
    )
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    check.same(expected, decode())
    later = slice(first, None)
    check.rejects(expected.at(later), lambda: decode(stale=True).at(later))


@law(
    "A15",
    "keys that are cached when a rotation switches keep their frequencies",
    needs=["kv-cache", "switched-rotation"],
    source="004, question and answer 1",
    control="the entries of the same prompt moved by one place",
)
@pytest.mark.parametrize("kind", ["default", "static"])
def test_cached_keys_keep_their_frequencies(subject, kind, draw, check):
    caches.make(subject, kind, 1, 1)
    longer = past_the_switch(subject, draw, check)
    switch = rotations.required_switch(subject.config)
    ids = longer.ids[:, : switch + 2]
    cut = draw(st.integers(max(1, switch - 3), switch), "cut")  # a window keeps the latest
    subject.rows(ids[:, : subject.shortest])
    with frequencies.forgotten(subject, ids):
        before, after = caches.grown(subject, ids, cut, kind)
    check.judge(max(bit_equal(a, b) for a, b in zip(before, after, strict=True)), 0.0, "the past")
    moved = max(bit_equal(a, b.roll(1, dims=-2)) for a, b in zip(before, after, strict=True))
    check.judge_control(moved, 0.0)
    check.sees_one_bit(bit_equal(before[0], one_bit_off(after[0])))


@law(
    "A15",
    "generation across the switch of a rotation is the same with and without the cache",
    needs=["generation", "cached-generation", "lm-head", "rotation-made-again"],
    source="004, answers 1 and 2",
    control="generation from a prompt whose last token is another",
    enough=6,
)
@pytest.mark.parametrize("mode", ["greedy", "sampling", "static"])
def test_generation_across_the_switch_is_the_same(subject, mode, draw, check):
    longer = past_the_switch(subject, draw, check, rows=1).ids
    switch = rotations.required_switch(subject.config)
    least = max(1, switch + 2 - generation.NEW_TOKENS)
    ids = longer[:, : draw(st.integers(least, switch), "length")]
    plain = generation.scores(subject, ids, mode, cached=False)
    cached = generation.scores(subject, ids, mode, cached=True)
    expected = plain.reference(subject)
    same = slice(0, plain.common(cached))
    check.same(expected.at(same), cached.rows.at(same))
    altered = subject.content(ids + 3)
    first = slice(0, 1)
    check.rejects(
        expected.at(first),
        lambda: generation.scores(subject, altered, mode, cached=True).rows.at(first),
    )


def past_the_switch(subject, draw, check, **how):
    """A prompt longer than the length at which the rotation's frequencies switch."""
    switch = rotations.required_switch(subject.config)
    within = switch + 2 <= lengths.farthest(subject)
    check.reaches(f"more than {switch} tokens, where frequencies switch", within)
    if not within:
        hypothesis.reject()
    longest = switch + 32
    return draw(
        prompts(subject, shortest=switch + 2, longest=longest, scaled=True, **how), "prompt"
    )
