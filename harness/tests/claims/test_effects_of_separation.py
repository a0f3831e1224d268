"""E29 and E30 can come out either way, on models whose tokens are near or one."""

from __future__ import annotations

import re

import pytest
import torch

from assay.claims.inversion import test_separation as claims
from assay.fixtures.neighbours import quantised, rivals
from assay.harness.inversion import Target
from assay.harness.models.reference.tolerances import distance
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import alike
from assay.harness.tests.support.toys import prompt, toy, verdict

APART = claims.test_states_of_different_tokens_differ_by_more_than_rounding
EIGHT = claims.test_no_states_of_different_tokens_are_the_same_in_8_bits
FOUR = claims.test_some_states_of_different_tokens_are_the_same_in_4_bits


@pytest.mark.parametrize(
    ("made", "came", "depth", "why"),
    [
        (lambda: toy("gpt2"), Verdict.UPHELD, "all blocks", ""),
        (lambda: alike(0.01), Verdict.UPHELD, "one block", ""),
        (lambda: alike(1e-6), Verdict.REFUTED, "all blocks", "0 of"),
        (lambda: alike(0.0), Verdict.REFUTED, "all blocks", r"(\d+) of \1 such pairs"),
    ],
)
def test_e29_hangs_on_how_far_apart_tokens_are(made, came, depth, why):
    result = verdict(APART, made(), arguments={"depth": depth})
    assert result.verdict is came, result.interval
    assert re.match(why, result.reason)
    assert result.details["control value"] == 0.0


@pytest.mark.parametrize(
    ("by", "in_8_bits", "in_4_bits"),
    [
        (0.0, Verdict.REFUTED, Verdict.INCONCLUSIVE),  # unquantised ones collide as well
        (1e-3, Verdict.REFUTED, Verdict.UPHELD),
        (1.0, Verdict.UPHELD, Verdict.REFUTED),
    ],
)
def test_e30_hangs_on_whether_quantised_states_are_one(by, in_8_bits, in_4_bits):
    subject = alike(by)
    assert verdict(EIGHT, subject).verdict is in_8_bits
    assert verdict(FOUR, subject).verdict is in_4_bits


def test_a_state_is_quantised_by_its_largest_number():
    states = torch.tensor([[1.0, -0.5, 0.07, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert quantised(states, 4).tolist() == [[7, -4, 0, 0], [0, 0, 0, 0]]
    assert quantised(states, 8).tolist() == [[127, -64, 9, 0], [0, 0, 0, 0]]
    assert torch.equal(quantised(4 * states, 8), quantised(states, 8))


@pytest.mark.parametrize("model_type", ["mistral", "mamba"])
def test_rivals_are_states_of_whole_prompts(model_type):
    subject, target = toy(model_type), Target(1)
    ids = prompt(subject, 9)
    found = rivals(subject, target, ids, 3)
    assert float(found.itself.max()) < 1e-5
    every = torch.arange(subject.vocabulary)
    for row, own in enumerate(ids):
        whole = torch.cat([own[:-1].expand(len(every), -1), every[:, None]], 1)
        states = target.output(subject, whole)[:, -1]
        for state, off in zip(found.others[row], found.distances[row], strict=True):
            known = distance(states, state.expand_as(states))
            assert float(known.min()) < 1e-5
            assert int(known.argmin()) != int(own[-1])
            apart = (state - states[own[-1]]).double().norm() / states[own[-1]].double().norm()
            assert float(off) == pytest.approx(float(apart), rel=1e-3)
