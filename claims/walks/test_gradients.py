"""Gradients to the input, and directions orthogonal to them (document 003, walks)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.inversion import gradients
from assay.harness.models.reference.float64 import reference_of

NET, *MODEL = gradients.PARTS

of_the_model = pytest.mark.parametrize("part", MODEL)
of_the_net = pytest.mark.parametrize("part", [NET])

SUM: dict[str, Any] = {
    "id": "F1",
    "says": "the gradient of the sum is the sum of the gradients",
    "needs": ["free-embeddings", "blocks"],
    "source": "003, orthogonal walk: individual_gradient, summed_gradient, layer_gradient",
    "control": "one of the gradients left out",
    "enough": 10,
}


@law(**SUM)
@of_the_model
def test_the_gradient_of_the_sum_is_the_sum_of_gradients(subject, part, draw, check):
    gradients_add_up(subject, part, draw, check)


@law(**SUM, toy=True)
@of_the_net
def test_the_gradient_of_a_net_s_sum_is_the_sum_of_gradients(subject, part, draw, check):
    gradients_add_up(subject, part, draw, check)


def gradients_add_up(subject, part, draw, check):
    """F1, of a ``part`` of the subject or of a network built for it."""
    gradients.require(subject, part)
    prompt = draw(prompts(subject, longest=12, rows=2), "prompt")
    pieces = draw(st.integers(2, 6), "pieces")
    expected = check.reference(lambda s: gradients.of_sum(s, part, prompt.ids))
    terms = gradients.of_pieces(subject, part, prompt.ids, pieces)
    # The size of the terms comes from float64: wrong pieces must not widen their bound.
    sizes = gradients.lengths(gradients.of_pieces(reference_of(subject), part, prompt.ids, pieces))
    noise = gradients.noise(expected.plain, expected.oracle, sizes)
    spread = None
    if noise > check.tolerance.most and check.wide:
        spread = gradients.spread(expected.plain, expected.elsewhere(), sizes)
        stable = gradients.stable(spread, check.tolerance)
        noise = gradients.noise(expected.plain, expected.oracle, sizes, stable)
    check.judge(noise, check.tolerance.most, "the gradient against float64's, median row")
    allowed = gradients.allowed(check.tolerance, noise)
    # Both come from one forward pass, so they are compared with each other.
    difference = gradients.apart(gradients.total(terms), expected.plain, sizes)
    if allowed < difference.error and check.wide:
        if spread is None:
            spread = gradients.spread(expected.plain, expected.elsewhere(), sizes)
        stable = gradients.stable(spread, check.tolerance)
        difference = gradients.apart(gradients.total(terms), expected.plain, sizes, spread, stable)
    check.judge(difference.error, allowed, difference.where)
    less = gradients.apart(gradients.total(terms[:-1]), expected.plain, sizes)
    check.judge_control(less.error, allowed)

    def with_leak(size):
        leak = gradients.leaking(expected.plain, gradients.total(terms[:-1]), sizes, size)
        return gradients.apart(leak, expected.plain, sizes).error, allowed

    check.sees(with_leak, noise=noise)


ORTHOGONAL: dict[str, Any] = {
    "id": "F2",
    "says": "right-singular vectors past the n-th are orthogonal to the input gradient",
    "needs": ["free-embeddings", "blocks"],
    "source": "003, orthogonal walk",
    "control": {
        "own dtype": "the first right-singular vector",
        "float64": "the first right-singular vector of the gradient in float64",
    },
    "enough": 10,
}


@law(**ORTHOGONAL)
@of_the_model
def test_later_singular_vectors_are_orthogonal_to_the_gradient(subject, part, draw, check):
    later_vectors_are_orthogonal(subject, part, draw, check)


@law(**ORTHOGONAL, toy=True)
@of_the_net
def test_later_singular_vectors_are_orthogonal_to_a_net_s_gradient(subject, part, draw, check):
    later_vectors_are_orthogonal(subject, part, draw, check)


def later_vectors_are_orthogonal(subject, part, draw, check):
    """F2, of a ``part`` of the subject or of a network built for it."""
    gradients.require(subject, part)
    longest = min(12, subject.hidden - 1)
    prompt = draw(prompts(subject, longest=longest, rows=1), "prompt")
    for name, s in (("own dtype", subject), ("float64", reference_of(subject))):
        gradient = gradients.of_sum(s, part, prompt.ids)["gradient"][0]
        past, among, floor = gradients.alignment(gradient)
        check.judge(past, floor, f"{gradient.dtype}")
        check.judge_control(among, floor, name)
        check.sees(lambda size, past=past, among=among, floor=floor: (past + size * among, floor))
        sizes = check.details.setdefault(f"|g·v| of the last vector, {gradient.dtype}", [])
        sizes.append(gradients.last_product(gradient))
