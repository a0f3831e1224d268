"""One request has one answer, however it is sent (beyond the documents)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from assay.fixtures.engines import JUDGED, requests
from assay.fixtures.serving import noisy, other, rejects, same
from assay.harness.checking.laws import law
from assay.harness.engines import bounds
from assay.harness.engines.bounds import plain


@law(
    "I1",
    "the same request has the same scores",
    needs=["engine-scores"],
    source="beyond the documents",
    control="noise of a thousandth of a nat",
)
def test_the_same_request_has_the_same_scores(subject, draw, check):
    (ids,) = draw(requests(subject), "request")
    subject.scores([ids])  # an engine that cannot bypass its cache has it from now on
    once, again = (subject.scores([ids])[0] for _ in range(2))
    allowed = bounds.REPEATED[subject.engine.dtype]
    same(check, once, again, allowed)
    rejects(check, once, noisy(again), allowed)


@law(
    "I1",
    "the same request has the same scores after a restart",
    needs=["engine-scores", "engine-restart"],
    source="beyond the documents",
    control="noise of a thousandth of a nat",
    enough=2,
)
def test_the_same_request_has_the_same_scores_after_a_restart(subject, draw, check):
    (ids,) = draw(requests(subject), "request")
    answers = []
    for _ in range(2):
        subject.restart()
        answers.append(subject.scores([ids])[0])
    allowed = bounds.REPEATED[subject.engine.dtype]
    same(check, answers[0], answers[1], allowed)
    rejects(check, answers[0], noisy(answers[1]), allowed)


@law(
    "I2",
    "scores after a prefix do not depend on what follows it in the request",
    needs=["engine-scores"],
    source="004, answer 2, for what serves a model",
    control="the scores after the next token",
)
def test_scores_after_a_prefix_do_not_depend_on_what_follows(subject, draw, check):
    (ids,) = draw(requests(subject), "request")
    cut = draw(st.integers(1, len(ids) - 1), "cut")
    prefix, allowed = plain(subject, ids[:cut])
    for each in (ids, other(subject, ids, cut)):
        (whole,) = subject.scores([each])
        same(check, prefix, whole.at(0, cut), allowed)
        rejects(check, prefix, whole.moved(-1), allowed)


@law(
    "I3",
    "a request alone and among others has the same scores",
    needs=["engine-scores", "engine-batches"],
    source="beyond the documents",
    control="the scores of the request that was sent next",
    enough=2,
)
@pytest.mark.parametrize("count", [3, 8, 64])
def test_a_request_alone_and_among_others_has_the_same_scores(subject, count, draw, check):
    many = draw(requests(subject, count), "requests")
    order = draw(st.permutations(range(count)), "order")
    together = subject.scores([many[i] for i in order])
    for i in range(min(JUDGED, count)):
        place = order.index(i)
        alone, allowed = plain(subject, many[i])
        same(check, alone, together[place], allowed, f", of request {place} of {count}")
        rejects(check, alone, together[(place + 1) % count], allowed)


HISTORIES = {
    "the same request": lambda ids, cut, changed: [ids, ids],
    "a prefix of it": lambda ids, cut, changed: [ids[: cut + 1], ids],
    "one that it begins": lambda ids, cut, changed: [[*ids, *changed[cut:]], ids],
    "one that differs from a token on": lambda ids, cut, changed: [changed, ids],
    "others that evict it": lambda ids, cut, changed: [
        *(ids, *([*changed[k % len(ids) :], *changed] for k in range(16)), changed, ids)
    ],
}
"""Requests that come before one, and this one last, by what they are."""


@law(
    "I4",
    "a request after a cached prefix has the scores that it has without",
    needs=["engine-scores", "engine-prefix-cache"],
    source="beyond the documents; sglang#34683, vllm#54490",
    control="the scores where the last token of the prefix is another",
)
@pytest.mark.parametrize("before", HISTORIES)
def test_a_request_after_a_cached_prefix_has_the_same_scores(subject, before, draw, check):
    (ids,) = draw(requests(subject, shortest=3), "request")
    cut = draw(st.integers(1, len(ids) - 2), "cut")
    cold, allowed = plain(subject, ids)
    history = HISTORIES[before](ids, cut, other(subject, ids, cut))
    for each in history[:-1]:
        subject.scores([each[: subject.engine.longest]], cold=False)
    (warm,) = subject.scores([ids], cold=False)
    same(check, cold, warm, allowed)
    (stale,) = subject.scores(
        [[*ids[: cut - 1], *other(subject, ids, cut - 1)[cut - 1 : cut], *ids[cut:]]]
    )
    rejects(check, cold, stale, allowed)
