"""Requests that a server answers together (beyond the documents)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models.capabilities import serving
from assay.harness.models.reference.tolerances import ROUTER_GAP
from assay.harness.operations import answers, train_mode, training
from assay.harness.results.errors import Missing, refusals

TOKENS = 6
FEWEST, LONGEST = 5, 18
"""Tokens of an answer, and of a prompt: several pages of the server's cache, and several batches
of its budget."""


@law(
    "G5",
    "a request among others is answered as alone",
    needs=["continuous-batching"],
    source="beyond the documents; transformers#46516, #47911",
    control="the answer to another request",
    enough=4,
    slow=True,
)
@pytest.mark.parametrize("arrival", ["together", "late"])
def test_a_request_among_others_is_answered_as_alone(subject, arrival, draw, check):
    serving.require(subject)
    prompt = draw(some_prompts(subject), "prompts")
    requests = sharing(prompt, draw(lengths(prompt), "lengths"))
    service = serving.Service(page=draw(st.sampled_from([4, 8]), "page"))
    late = len(requests) // 2 if arrival == "late" else 0
    results = serving.serve(subject, requests, TOKENS, service, late)
    gap = ROUTER_GAP * check.tolerance.floor
    for number, (request, answer) in enumerate(zip(requests, results, strict=True)):
        assert len(answer.tokens) == TOKENS, f"{len(answer.tokens)} tokens for request {number}"
        expected = reference(check, request, answer.tokens)
        short, far = answers.allowed(expected, check.tolerance)
        worst = answers.shortfall(expected, answer.tokens, gap)
        check.judge(worst, short, f"the tokens for request {number}")
        if answer.logprobs:
            off = answers.apart(expected, answer, gap)
            check.judge(off, far, f"the log probabilities for request {number}")
            noise = answers.noise(expected)

            def off_by(size, expected=expected, answer=answer, far=far):
                return answers.apart(expected, answers.moved(expected, answer, size), gap), far

            check.sees(off_by, noise=noise)
        if check.wants():
            other = results[number - 1].tokens
            neighbour = reference(check, request, other)
            short, _ = answers.allowed(neighbour, check.tolerance)
            check.judge_control(answers.shortfall(neighbour, other, gap), short)


@law(
    "G5",
    "a model that is trained while it is served has the gradients that it has otherwise",
    needs=["continuous-batching", "parameter-gradients"],
    source="beyond the documents; transformers#48294",
    control="the gradients of a prompt without its first token",
    enough=3,
    slow=True,
)
def test_a_model_that_is_served_is_trained_as_otherwise(subject, draw, check):
    serving.require(subject)
    prompt = draw(some_prompts(subject), "prompts")
    samples, names = [training.sample(subject, prompt.ids)], training.names(subject)
    plain, gradients = training.Plain.of(subject, samples), []

    def train():
        # transformers 5.17 leaves the server's attention in the model, and refuses other passes:
        # those of a probe too, so the refusal is looked for first.
        refused = refusals("training while served", "without a paged attention cache")
        with refused, train_mode.in_training(subject):
            gradients.append(training.gradients(subject, samples, names))

    requests = sharing(prompt, [prompt.length] * prompt.rows)[:3]
    results = serving.serve(subject, requests, TOKENS, late=1, meanwhile=train)
    judged = plain.judge(check, gradients[0])
    gap = ROUTER_GAP * check.tolerance.floor
    for request, answer in zip(requests, results, strict=True):
        expected = reference(check, request, answer.tokens)
        short, _ = answers.allowed(expected, check.tolerance)
        check.judge(answers.shortfall(expected, answer.tokens, gap), short, "the tokens")
    later = [training.sample(subject, prompt.ids[:, 1:])]
    judged.rejects(check, training.gradients(subject, later, names))
    judged.sees(check)


def reference(check, request, tokens):
    """The logits for ``tokens`` after ``request`` alone."""
    return check.reference(lambda s: answers.scored(s, request, tokens))


def some_prompts(subject):
    """Four prompts that leave room for the longest request and its answer."""
    room = min(LONGEST, (subject.context or 96) - TOKENS - 3)
    if room < FEWEST:
        raise Missing(f"a context of {subject.context} tokens is too short to serve requests")
    return prompts(subject, shortest=FEWEST, longest=room, rows=4, least_rows=4)


def sharing(prompt, sizes):
    """Requests of unlike lengths, more than fit into a batch; some begin alike, two are equal."""
    rows = [row[:size] for row, size in zip(prompt.ids.tolist(), sizes, strict=True)]
    first = prompt.ids[0].tolist()
    return [first, *rows[1:], first + rows[1][:3], first]
